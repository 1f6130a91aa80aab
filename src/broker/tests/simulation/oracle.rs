//! What must hold, after every event and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node::TTL;
use super::post::{Ask, Part, Record, Who};
use super::serve::{chunks, records_of};
use super::world::{Event, Spec, World};
use crate::metadata::{Image, partition_of};
use crate::registry::value::{ControllerValue, PartitionValue, decode};
use crate::registry::{Key, Op};
use crate::types::{BrokerId, LeaderEpoch, Offset};

/// A deposed leader may take so long to notice that nobody fetches from it: its patience, and messages
/// that were late.
const SILENCE: u64 = 3_500;

/// What is known of a partition for ever.
#[derive(Debug, Default)]
struct Track {
    /// What any broker has shown to be committed.
    committed: Vec<Record>,
    acknowledged: BTreeSet<u64>,
    /// Who led in an epoch, in which life.
    terms: BTreeMap<LeaderEpoch, (usize, u32)>,
    /// When the newest of them began.
    newest_at: u64,
}

/// A log, as it is on a broker that is up.
#[derive(Debug, Default, Clone)]
struct Mirror {
    records: Vec<Record>,
    /// So many of them were shown.
    shown: usize,
    term: Option<LeaderEpoch>,
    is_open: bool,
}

/// Whom a broker has missed since when.
#[derive(Debug, Default, Clone)]
struct Missed {
    /// Who is there, since when.
    known: BTreeMap<BrokerId, u64>,
    since: BTreeMap<BrokerId, u64>,
}

pub(super) struct Oracle {
    tracks: Vec<Track>,
    /// By broker and partition.
    mirrors: Vec<Vec<Mirror>>,
    missed: Vec<Missed>,
    /// Of each broker's controller: the keys of a change that was refused as a whole. They follow by themselves.
    refused: Vec<BTreeSet<String>>,
    /// Since when somebody sits there.
    seat: (i64, u64),
}

impl Oracle {
    pub(super) fn new(specs: Arc<[Spec]>, brokers: usize) -> Self {
        Self {
            tracks: specs.iter().map(|_| Track::default()).collect(),
            mirrors: vec![vec![Mirror::default(); specs.len()]; brokers],
            missed: vec![Missed::default(); brokers],
            refused: vec![BTreeSet::new(); brokers],
            seat: (0, 0),
        }
    }

    /// A broker is down.
    pub(super) fn forget(&mut self, node: usize) {
        self.mirrors[node].fill(Mirror::default());
        self.missed[node] = Missed::default();
        self.refused[node].clear();
    }

    pub(super) fn acknowledged(&self) -> u64 {
        let tracks = self.tracks.iter();
        tracks.map(|track| track.acknowledged.len() as u64).sum()
    }

    pub(super) fn has_committed(&self, spec: usize, records: &[Record]) -> bool {
        self.tracks[spec].committed.starts_with(records)
    }

    /// The last record of a broker's log; 0: it has none.
    pub(super) fn last_of(&self, spec: usize, node: usize) -> u64 {
        let last = self.mirrors[node][spec].records.last();
        last.map_or(0, |(_, record)| *record)
    }
}

/// What an operation writes.
pub(super) fn key_of(op: &Op) -> String {
    match op {
        Op::Put { key, .. } | Op::Delete { key } | Op::DeletePrefix { prefix: key } => key.clone(),
    }
}

fn starts(records: &[Record], with: &[Record]) -> bool {
    records.starts_with(with)
}

impl World {
    /// After every event.
    pub(super) fn look(&mut self) {
        for node in 0..self.nodes.len() {
            let running = self.nodes[node].running.as_mut();
            if !running.is_some_and(|running| std::mem::take(&mut running.touched)) {
                continue;
            }
            self.look_at_image(node);
            for spec in 0..self.specs.len() {
                self.look_at_log(node, spec);
            }
        }
    }

    fn look_at_image(&mut self, node: usize) {
        let Some(image) = self.nodes[node].image() else {
            return;
        };
        let missed = &mut self.oracle.missed[node];
        // What comes and goes while the controller waits for an answer is not seen by it.
        for (id, from) in &missed.known {
            if !image.brokers.contains_key(id) && from + TTL <= self.now {
                missed.since.insert(*id, self.now);
            }
        }
        missed.since.retain(|id, _| !image.brokers.contains_key(id));
        missed.known.retain(|id, _| image.brokers.contains_key(id));
        for id in image.brokers.keys() {
            missed.known.entry(*id).or_insert(self.now);
        }
    }

    fn look_at_log(&mut self, node: usize, index: usize) {
        let spec = &self.specs[index];
        let running = self.nodes[node].running.as_ref().expect("it is up");
        let known = running.partitions.get(index).cloned().flatten();
        let partition = match known {
            Some(partition) => partition,
            None => {
                let found = running.replicas.partition(spec.topic, spec.index);
                let Ok(partition) = found else { return };
                let running = self.nodes[node].running.as_mut().expect("it is up");
                running.partitions.resize(self.specs.len(), None);
                running.partitions[index] = Some(Arc::clone(&partition));
                partition
            }
        };
        let Some(log) = partition.opened_log() else {
            return;
        };
        let mirror = &mut self.oracle.mirrors[node][index];
        mirror.is_open = true;
        let end = usize::try_from(log.log_end_offset()).unwrap();
        mirror.records.truncate(end);
        while mirror.records.len() < end {
            let from = Offset::try_from(mirror.records.len()).unwrap();
            let read = log.read(from, 1 << 20, log.log_end_offset(), true).unwrap();
            for chunk in chunks(read.slice) {
                records_of(&chunk, |offset, record| {
                    if offset == Offset::try_from(mirror.records.len()).unwrap() {
                        mirror.records.push(record);
                    }
                });
            }
        }
        let shown = usize::try_from(partition.high_watermark()).unwrap();
        let leads = partition.leads_in();
        if shown > mirror.shown {
            self.shown(node, index, shown);
        }
        let mirror = &mut self.oracle.mirrors[node][index];
        if leads != mirror.term {
            mirror.term = leads;
            if let Some(epoch) = leads {
                self.begins(node, index, epoch);
            }
        }
    }

    /// A broker shows more than before.
    fn shown(&mut self, node: usize, index: usize, shown: usize) {
        let mirror = &mut self.oracle.mirrors[node][index];
        let before = mirror.shown;
        mirror.shown = shown;
        if shown > mirror.records.len() {
            self.fail("a high watermark is behind the end of the log");
        }
        let track = &mut self.oracle.tracks[index];
        let both = shown.min(track.committed.len()).max(before);
        let (same, new) = mirror.records[..shown].split_at(both);
        if same[before..] != track.committed[before..both] {
            self.fail("what was seen was taken back");
        }
        track.committed.extend(new);
        if self.specs[index].counted {
            let counts = (1..).zip(&track.committed).skip(before);
            if !counts.clone().all(|(count, (_, record))| count == *record) {
                self.fail("what was decided in an epoch of the past was written");
            }
        }
    }

    fn begins(&mut self, node: usize, index: usize, epoch: LeaderEpoch) {
        self.counts.terms += 1;
        let life = self.nodes[node].life;
        let mirror = &self.oracle.mirrors[node][index];
        let end = mirror.records.len();
        self.tell(|| format!("{node} leads {index} in {epoch} from {end}"));
        let track = &mut self.oracle.tracks[index];
        if track
            .terms
            .keys()
            .next_back()
            .is_none_or(|last| *last < epoch)
        {
            track.newest_at = self.now;
        }
        let of = *track.terms.entry(epoch).or_insert((node, life));
        if of.0 != node {
            self.fail("two leaders in one epoch");
        }
        if of.1 != life {
            self.fail_rule("a broker leads in an epoch of its life before (R5)");
        }
        // One that hears late of its election may have been followed by another.
        let spec = &self.specs[index];
        let is_current = self.store.partition(spec.id, spec.index).leader_epoch == epoch;
        let (mirror, track) = (
            &self.oracle.mirrors[node][index],
            &self.oracle.tracks[index],
        );
        if is_current && !starts(&mirror.records, &track.committed) {
            self.fail("a leader without what was committed");
        }
    }

    /// A producer is told that its batch is committed there.
    pub(super) fn acknowledge(&mut self, spec: usize, offset: Offset, batch: &[u64]) {
        let track = &mut self.oracle.tracks[spec];
        let from = usize::try_from(offset).unwrap();
        let there = track.committed.get(from..from + batch.len());
        let is_there = there.is_some_and(|there| there.iter().map(|(_, id)| id).eq(batch));
        if !is_there {
            self.fail("what is acknowledged is not committed");
        }
        self.oracle.tracks[spec].acknowledged.extend(batch);
    }

    /// R12: an append at `acks=1` was acknowledged.
    pub(super) fn check_alone(&mut self, index: usize, node: usize) {
        let track = &self.oracle.tracks[index];
        let Some((newest, _)) = track.terms.last_key_value() else {
            return;
        };
        let term = self.oracle.mirrors[node][index].term;
        let spec = &self.specs[index];
        let image = self.nodes[node].image();
        let role = image
            .as_ref()
            .and_then(|image| image.partition(spec.topic, spec.index));
        // Who is registered as before may lead no more, and not have heard of it.
        let registered = self.store.broker_epoch(self.nodes[node].id());
        let is_deposed = term.is_some_and(|term| term < *newest)
            && role.is_some_and(|role| role.leader_registration != registered);
        // What had come before a pause is read after it.
        let since = track.newest_at.max(self.nodes[node].paused_until);
        if is_deposed && self.now > since + SILENCE {
            self.fail_rule("a leader of the past goes on alone (R12)");
        }
    }

    // --- the registry ---

    /// The partitions that a transaction writes, as they are before it.
    pub(super) fn partitions_of(&self, ops: &[Op]) -> Vec<(usize, PartitionValue)> {
        let mut before = Vec::new();
        for op in ops {
            if let Op::Put { key, .. } = op
                && let Some(Key::Partition(topic, number)) = Key::parse(key)
            {
                let of = |spec: &Spec| spec.id == topic && spec.index == number;
                let index = self.specs.iter().position(of).unwrap();
                before.push((index, self.store.partition(topic, number)));
            }
        }
        before
    }

    /// What is asked of the registry is sent.
    pub(super) fn check_ask(&mut self, who: Who, ask: &Ask) {
        let Ask::Txn(_, ops) = ask else { return };
        let before = self.partitions_of(ops);
        if who.part != Part::Controller || before.is_empty() {
            return;
        }
        let node = &self.nodes[who.node];
        let (id, epoch) = (node.id(), node.broker_epoch());
        // Parts of what was refused as a whole follow when they can: they were decided with it.
        let refused = &mut self.oracle.refused[who.node];
        let is_part = ops.iter().all(|op| refused.contains(&key_of(op)));
        if !is_part {
            refused.clear();
        }
        if !is_part && (epoch == 0 || self.store.broker_epoch(id) != epoch) {
            self.fail_rule("a controller writes past the end of its lease (R12)");
        }
        let resumes = before.iter().all(|(_, before)| before.leader == id.0);
        let image = self.nodes[who.node].image();
        if let Some(image) = image.filter(|_| !resumes && !is_part) {
            self.check_patience(who.node, &image, ops);
        }
    }

    /// R14: one that is new in the seat fences nobody while it misses several that it needs.
    fn check_patience(&mut self, node: usize, image: &Image, ops: &[Op]) {
        if let Some(seat) = self.store.get(&Key::Controller.to_string())
            && seat.create_revision != self.oracle.seat.0
        {
            self.oracle.seat = (seat.create_revision, self.now);
        }
        let mut needed = BTreeSet::new();
        for partition in image.topics.values().flat_map(|topic| &topic.partitions) {
            needed.extend(partition.leader);
            needed.extend(partition.isr.iter().copied());
        }
        let missed = self.oracle.missed[node].since.iter();
        let missed: BTreeSet<BrokerId> = missed
            .filter(|(id, _)| needed.contains(id) && !image.brokers.contains_key(id))
            .filter(|(_, since)| *since + TTL > self.now)
            .map(|(id, _)| *id)
            .collect();
        let is_new = image.controller_registration == self.oracle.seat.0
            && self.oracle.seat.1 + TTL > self.now;
        if missed.len() < 2 || !is_new {
            return;
        }
        for op in ops {
            let Op::Put { key, value, .. } = op else {
                continue;
            };
            let Some(Key::Partition(topic, number)) = Key::parse(key) else {
                continue;
            };
            let before = self.store.partition(topic, number);
            let after: PartitionValue = decode(value).unwrap();
            let fences = |id: &BrokerId| before.isr.contains(&id.0) && !after.isr.contains(&id.0);
            if missed.iter().any(fences) {
                self.fail_rule(&format!(
                    "{node}, new as the controller, misses {missed:?} at {} and takes some for dead (R14): {:?}, {ops:?}",
                    image.revision, self.oracle.missed[node]
                ));
            }
        }
    }

    /// Partitions were changed.
    pub(super) fn check_changes(&mut self, who: Who, before: &[(usize, PartitionValue)]) {
        for (index, before) in before {
            let spec = self.specs[*index].clone();
            let after = self.store.partition(spec.id, spec.index);
            self.tell(|| {
                format!(
                    "{} {:?} changes {index}: leader {} in {}, isr {:?}, elr {:?}",
                    who.node, who.part, after.leader, after.leader_epoch, after.isr, after.elr
                )
            });
            let of_replicas = |id: &i32| spec.replicas.contains(&BrokerId(*id));
            if !after.isr.iter().all(of_replicas) {
                self.fail("a member of the ISR that is no replica");
            }
            if after.elr.iter().any(|id| after.isr.contains(id)) {
                self.fail("ELR and ISR have a member in common");
            }
            if after.partition_epoch != before.partition_epoch + 1 {
                self.fail_rule("a change of what has changed meanwhile (R1)");
            }
            if after.leader_epoch < before.leader_epoch {
                self.fail("a leader epoch goes back");
            }
            self.check_author(who, before, &after);
            self.check_members(*index, &spec, &after);
        }
        if who.part == Part::Publisher {
            self.counts.isr_changes += 1;
        }
    }

    fn check_author(&mut self, who: Who, before: &PartitionValue, after: &PartitionValue) {
        let id = self.nodes[who.node].id();
        let registered = self.store.broker_epoch(id);
        let resumes = before.leader == id.0 && after.leader == id.0 && before.isr == after.isr;
        match who.part {
            Part::Publisher => {
                let stays = before.leader == after.leader;
                if registered == 0 || stays && registered != after.leader_registration {
                    self.fail_rule("a leader whose registration is gone changes the ISR (R2)");
                }
                for joined in after.isr.iter().filter(|id| !before.isr.contains(id)) {
                    if self.store.broker_epoch(BrokerId(*joined)) == 0 {
                        self.fail_rule("one joins the ISR that is not registered (R3)");
                    }
                }
            }
            Part::Controller if resumes => {
                if registered == 0 || registered != after.leader_registration {
                    self.fail_rule("a broker whose registration is gone resumes (R2)");
                }
            }
            Part::Controller => {
                let seat = self.store.get(&Key::Controller.to_string());
                let seat = seat.map(|entry| decode::<ControllerValue>(&entry.value).unwrap());
                if seat.is_none_or(|seat| seat.broker != id.0) {
                    self.fail_rule("a deposed controller writes (R11)");
                }
            }
            Part::Session | Part::Watcher => {}
        }
    }

    /// Whoever may be elected has what is committed, from when it registered on.
    fn check_members(&self, index: usize, spec: &Spec, after: &PartitionValue) {
        let partition = partition_of(&spec.replicas, after, 0);
        for id in partition.isr.iter().chain(&partition.elr) {
            let node = usize::try_from(id.0).unwrap();
            let registered = self.store.broker_epoch(*id);
            let is_here = registered != 0 && self.nodes[node].broker_epoch() == registered;
            let mirror = &self.oracle.mirrors[node][index];
            let committed = &self.oracle.tracks[index].committed;
            if is_here && mirror.is_open && !starts(&mirror.records, committed) {
                self.fail("one that may be elected lacks what was committed");
            }
        }
    }

    /// Logs that agree in an epoch agree in all before it.
    pub(super) fn check_matching(&self) {
        for index in 0..self.specs.len() {
            let logs: Vec<&[Record]> = self
                .oracle
                .mirrors
                .iter()
                .map(|mirrors| &mirrors[index].records[..])
                .collect();
            for (number, one) in logs.iter().enumerate() {
                for other in &logs[number + 1..] {
                    let both = one.len().min(other.len());
                    let same = |at: &usize| one[*at].0 == other[*at].0;
                    if let Some(last) = (0..both).rev().find(same)
                        && one[..=last] != other[..=last]
                    {
                        self.fail("logs that end in the same epoch differ");
                    }
                }
            }
        }
    }

    /// `written`: the keys of the partitions that a transaction was to change.
    pub(super) fn note_outcome(&mut self, who: Who, written: BTreeSet<String>, succeeded: bool) {
        if who.part == Part::Controller && !succeeded {
            self.oracle.refused[who.node].extend(written);
        }
        if let Some(seat) = self.store.get(&Key::Controller.to_string())
            && seat.create_revision != self.oracle.seat.0
        {
            self.oracle.seat = (seat.create_revision, self.now);
        }
    }

    /// Long after the last fault.
    pub(super) fn check_rest(&self) {
        self.check_matching();
        for producer in &self.producers {
            if !producer.batch.is_empty() && self.specs[producer.spec].min_isr > 0 {
                self.fail("a producer has not come to an end");
            }
        }
        for (index, spec) in self.specs.iter().enumerate() {
            let track = &self.oracle.tracks[index];
            let mut times: BTreeMap<u64, u32> = BTreeMap::new();
            for (_, record) in &track.committed {
                *times.entry(*record).or_default() += 1;
            }
            if let Some((record, _)) = times.iter().find(|(_, times)| **times > 1) {
                self.fail(&format!("record {record} is there twice"));
            }
            if !track.acknowledged.iter().all(|id| times.contains_key(id)) {
                self.fail("an acknowledged record is not committed");
            }
            let state = self.store.partition(spec.id, spec.index);
            if state.isr.len() != spec.replicas.len() {
                let known = |node: &super::node::Node| {
                    let image = node.image()?;
                    let known = image.partition(spec.topic, spec.index)?;
                    Some((known.leader, known.leader_epoch, known.isr.clone()))
                };
                let known: Vec<_> = self.nodes.iter().map(known).collect();
                let logs = self.oracle.mirrors.iter();
                let ends: Vec<_> = logs.map(|logs| logs[index].records.len()).collect();
                self.fail(&format!(
                    "partition {index} does not come to rest: {state:?}; known: {known:?}, ends: {ends:?}"
                ));
            }
            let leader = usize::try_from(state.leader).unwrap();
            let log = &self.oracle.mirrors[leader][index].records;
            if !starts(log, &track.committed) {
                self.fail("something committed is gone at the end");
            }
            for id in &spec.replicas {
                let replica = usize::try_from(id.0).unwrap();
                if self.oracle.mirrors[replica][index].records != *log {
                    self.fail("the replicas differ at the end");
                }
            }
        }
        self.check_images();
    }

    /// R13: everybody knows in the end what the registry has.
    fn check_images(&self) {
        for node in &self.nodes {
            let Some(image) = node.image() else {
                self.fail("a broker is not up at the end");
            };
            for (index, spec) in self.specs.iter().enumerate() {
                let state = self.store.partition(spec.id, spec.index);
                let known = image.partition(spec.topic, spec.index).unwrap();
                let known = crate::metadata::value_of(known);
                if known != state {
                    self.fail_rule(&format!(
                        "{} has partition {index} as {known:?}, and it is {state:?} (R13)",
                        node.index
                    ));
                }
            }
            if image.brokers.len() != self.nodes.len() {
                let known: Vec<_> = image.brokers.values().map(|it| (it.id, it.epoch)).collect();
                let there =
                    |node: &super::node::Node| (node.id(), self.store.broker_epoch(node.id()));
                let there: Vec<_> = self.nodes.iter().map(there).collect();
                self.fail_rule(&format!(
                    "{} knows {known:?} at the end, and there are {there:?} (R13)",
                    node.index
                ));
            }
        }
    }

    pub(super) fn look_at_logs_of_all(&mut self, node: usize, life: u32) {
        self.check_matching();
        self.after(400, Event::Look(node, life));
    }
}
