//! Producers that send each batch until it is acknowledged, producers that do not, consumers, and a
//! coordinator on every broker.

use std::sync::Arc;

use bytes::Bytes;

use super::post::Record;
use super::serve;
use super::world::{Event, FAULTS_END, Spec, World};
use crate::record::BatchBuilder;
use crate::replication::{Acks, AppendOptions};
use crate::types::{ErrorCode, LeaderEpoch, NO_EPOCH, Offset};

/// Acknowledged records of a history.
const ENOUGH: u64 = 250;
const PRODUCE_END: u64 = FAULTS_END + 12_000;

#[derive(Debug)]
pub(super) struct Producer {
    pub(super) spec: usize,
    /// `None`: it writes at `acks=1` and never again.
    id: Option<i64>,
    sequence: i32,
    /// What it sends.
    pub(super) batch: Vec<u64>,
    /// The request that it waits for.
    waits_for: Option<u64>,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Sent {
    number: u64,
    producer: usize,
    pub(super) node: usize,
    pub(super) life: u32,
    batch: Bytes,
}

#[derive(Debug)]
pub(super) struct Consumer {
    spec: usize,
    /// The newest leader epoch that it has heard of.
    epoch: LeaderEpoch,
    latest: Offset,
    read: Vec<Record>,
    asked: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Question {
    number: u64,
    consumer: usize,
    pub(super) node: usize,
    pub(super) life: u32,
    epoch: LeaderEpoch,
    position: Offset,
}

/// Counts, in a partition that it leads: what it decides follows from what is in the log.
#[derive(Debug, Default)]
pub(super) struct Coordinator {
    /// The epoch in which it has read the log, and the next count.
    loaded: Option<(LeaderEpoch, u64)>,
    /// A decision is on its way into the log.
    decided: bool,
    /// How often it has begun anew: what it had decided before in the same epoch it has dropped.
    pub(super) begun: u64,
}

/// What a coordinator decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decision {
    epoch: LeaderEpoch,
    count: u64,
    begun: u64,
}

pub(super) fn producers(specs: &[Spec]) -> Vec<Producer> {
    let mut producers = Vec::new();
    for (spec, it) in specs.iter().enumerate().filter(|(_, it)| !it.counted) {
        let id = 1_000 + i64::from(it.index) * 10;
        let ids = [Some(id), Some(id + 1), Some(id + 2), Some(id + 3), None];
        producers.extend(ids.map(|id| Producer {
            spec,
            id,
            sequence: 0,
            batch: Vec::new(),
            waits_for: None,
        }));
    }
    producers
}

pub(super) fn consumers(specs: &[Spec]) -> Vec<Consumer> {
    let specs = specs.iter().enumerate().filter(|(_, it)| !it.counted);
    specs
        .map(|(spec, _)| Consumer {
            spec,
            epoch: 0,
            latest: 0,
            read: Vec::new(),
            asked: None,
        })
        .collect()
}

impl World {
    /// Who leads a partition, as a broker has it that somebody asks.
    fn leader_of(&mut self, spec: usize) -> Option<(usize, LeaderEpoch)> {
        let asked = self.one_of(self.nodes.len());
        let image = self.nodes[asked].image()?;
        let spec = &self.specs[spec];
        let partition = image.partition(spec.topic, spec.index)?;
        let leader = usize::try_from(partition.leader?.0).unwrap();
        Some((leader, partition.leader_epoch))
    }

    // --- producers ---

    pub(super) fn produce(&mut self, index: usize) {
        let producer = &self.producers[index];
        if producer.waits_for.is_some() {
            return;
        }
        let spec = producer.spec;
        if producer.batch.is_empty() {
            // Where everything was down for long there is more to come.
            let enough = self.oracle.acknowledged() >= ENOUGH || self.now >= PRODUCE_END;
            if self.now >= FAULTS_END && enough {
                return;
            }
            let records = 1 + self.below(3);
            let first = self.next_record;
            self.next_record += records;
            self.producers[index].batch = (first..first + records).collect();
        }
        let Some((node, _)) = self.leader_of(spec) else {
            return self.after(50, Event::Produce(index));
        };
        let number = self.number();
        let producer = &mut self.producers[index];
        producer.waits_for = Some(number);
        let batch = producer.encoded(self.nodes[0].clock.as_ref());
        self.sent.insert(number, index);
        let life = self.nodes[node].life;
        let sent = Sent {
            number,
            producer: index,
            node,
            life,
            batch,
        };
        if let Some(ms) = self.travel(self.clients(), node) {
            self.after(ms, Event::ProduceAt(sent));
        }
        let ms = 1_500 + self.below(500);
        self.after(ms, Event::ProduceTimeout(number));
    }

    pub(super) fn produce_at(&mut self, sent: Sent) {
        let producer = &self.producers[sent.producer];
        let acks = match producer.id {
            Some(_) => Acks::All,
            None => Acks::Leader,
        };
        self.append(
            producer.spec,
            sent.node,
            sent.number,
            sent.batch,
            acks,
            NO_EPOCH,
        );
    }

    fn append(
        &mut self,
        spec: usize,
        node: usize,
        number: u64,
        batch: Bytes,
        acks: Acks,
        leader_epoch: LeaderEpoch,
    ) {
        let it = &self.specs[spec];
        let partition = self.nodes[node].partition(it.topic, it.index);
        let Some(partition) = partition else {
            let outcome = Err(ErrorCode::NotLeaderOrFollower);
            return self.post.send(super::post::Mail::Produced {
                number,
                node,
                outcome,
            });
        };
        let options = AppendOptions {
            acks,
            produce_version: i16::MAX,
            internal: it.counted,
            leader_epoch,
        };
        let running = self.nodes[node].running.as_ref().expect("it is up");
        let post = Arc::clone(&self.post);
        let produced = serve::produce(partition, batch, options, post, (number, node));
        running.tasks.spawner.spawn(produced);
    }

    /// A broker answers: what it says must be so from now on.
    pub(super) fn answered(
        &mut self,
        number: u64,
        node: usize,
        outcome: Result<Offset, ErrorCode>,
    ) {
        let Some(&index) = self.sent.get(&number) else {
            return self.counted(number, node, outcome);
        };
        let producer = &self.producers[index];
        let (spec, idempotent) = (producer.spec, producer.id.is_some());
        match outcome {
            Ok(offset) if idempotent && producer.waits_for == Some(number) => {
                let batch = producer.batch.clone();
                self.look();
                self.acknowledge(spec, offset, &batch);
            }
            Ok(_) if !idempotent => self.check_alone(spec, node),
            Err(ErrorCode::OutOfOrderSequenceNumber) if idempotent => {
                // One that was deposed may know less than it needs to.
                let it = &self.specs[spec];
                let leader = self.store.partition(it.id, it.index).leader;
                let current = producer.waits_for == Some(number);
                if current && leader == self.nodes[node].id().0 {
                    self.fail("a leader does not know the sequence that was acknowledged before");
                }
            }
            _ => {}
        }
    }

    pub(super) fn produced(&mut self, number: u64, outcome: Result<Offset, ErrorCode>) {
        let Some(index) = self.sent.remove(&number) else {
            return;
        };
        let producer = &mut self.producers[index];
        if producer.waits_for != Some(number) {
            return;
        }
        producer.waits_for = None;
        let mut ms = 20;
        if outcome.is_ok() || producer.id.is_none() {
            if producer.id.is_some() {
                producer.sequence += i32::try_from(producer.batch.len()).unwrap();
            }
            producer.batch.clear();
            ms = 1;
        }
        let ms = ms + self.below(70);
        self.after(ms, Event::Produce(index));
    }

    // --- consumers ---

    pub(super) fn consume(&mut self, index: usize) {
        let ms = 100 + self.below(200);
        self.after(ms, Event::Consume(index));
        let consumer = &self.consumers[index];
        if consumer.asked.is_some() {
            return;
        }
        let Some((node, epoch)) = self.leader_of(consumer.spec) else {
            return;
        };
        let number = self.number();
        let consumer = &mut self.consumers[index];
        consumer.epoch = consumer.epoch.max(epoch);
        consumer.asked = Some(number);
        let question = Question {
            number,
            consumer: index,
            node,
            life: self.nodes[node].life,
            epoch: consumer.epoch,
            position: Offset::try_from(consumer.read.len()).unwrap(),
        };
        if let Some(ms) = self.travel(self.clients(), node) {
            self.after(ms, Event::ConsumeAt(question));
        }
        self.after(1_000, Event::ConsumeTimeout(number));
    }

    pub(super) fn consume_at(&mut self, question: Question) {
        let it = &self.specs[self.consumers[question.consumer].spec];
        let Some(partition) = self.nodes[question.node].partition(it.topic, it.index) else {
            return;
        };
        let running = self.nodes[question.node].running.as_ref();
        let Question {
            number,
            epoch,
            position,
            ..
        } = question;
        let post = Arc::clone(&self.post);
        let consumed = serve::consume(partition, epoch, position, post, number);
        running.expect("it is up").tasks.spawner.spawn(consumed);
    }

    /// R9: the end of a partition never goes back for whoever asks newer leaders only.
    pub(super) fn consumed(&mut self, number: u64, latest: Option<Offset>, records: &[Record]) {
        let asked = |consumer: &Consumer| consumer.asked == Some(number);
        let Some(index) = self.consumers.iter().position(asked) else {
            return;
        };
        let consumer = &mut self.consumers[index];
        consumer.asked = None;
        consumer.read.extend(records);
        let before = consumer.latest;
        if let Some(latest) = latest {
            consumer.latest = consumer.latest.max(latest);
            if latest < before {
                let (spec, epoch) = (consumer.spec, consumer.epoch);
                self.fail(&format!(
                    "the end of partition {spec} went back from {before} to {latest}, asked in {epoch}"
                ));
            }
        }
        let consumer = &self.consumers[index];
        if !self.oracle.has_committed(consumer.spec, &consumer.read) {
            self.fail("a consumer has read what is not committed");
        }
    }

    // --- coordinators ---

    pub(super) fn coordinate(&mut self, node: usize) {
        if self.now < FAULTS_END {
            let ms = 150 + self.below(250);
            self.after(ms, Event::Coordinate(node));
        }
        let (spec, it) = self.counted_spec();
        let life = self.nodes[node].life;
        let is_paused = self.nodes[node].paused_until > self.now;
        let partition = self.nodes[node].partition(it.topic, it.index);
        let epoch = partition.and_then(|partition| partition.leads_in());
        let Some(epoch) = epoch.filter(|_| !is_paused) else {
            return;
        };
        let last = self.oracle.last_of(spec, node);
        let coordinator = &mut self.coordinators[node];
        if coordinator.loaded.is_none_or(|(loaded, _)| loaded != epoch) {
            coordinator.loaded = Some((epoch, last + 1));
            coordinator.decided = false;
        }
        if coordinator.decided {
            return;
        }
        let begun = coordinator.begun;
        let (_, next) = coordinator.loaded.as_mut().expect("just now");
        let count = *next;
        *next += 1;
        coordinator.decided = true;
        let decision = Decision {
            epoch,
            count,
            begun,
        };
        // Something may have to be asked first.
        let most = if self.chance(20) { 4_000 } else { 30 };
        let ms = 1 + self.below(most);
        self.after(ms, Event::Decided(node, life, decision));
    }

    pub(super) fn decided(&mut self, node: usize, decision: Decision) {
        let Decision {
            epoch,
            count,
            begun,
        } = decision;
        let coordinator = &mut self.coordinators[node];
        // In a later epoch nobody knows of it any more.
        if coordinator.loaded.is_none_or(|(loaded, _)| loaded == epoch) {
            if coordinator.begun != begun {
                return;
            }
            coordinator.decided = false;
        }
        let mut batch = BatchBuilder::new();
        let clock: &dyn crate::time::Clock = self.nodes[node].clock.as_ref();
        batch.push(clock.wall_ms(), None, Some(&count.to_be_bytes()));
        let (spec, _) = self.counted_spec();
        let number = self.number();
        self.append(spec, node, number, batch.build(), Acks::All, epoch);
    }

    /// A failed write: what is in the log is read again.
    fn counted(&mut self, _number: u64, node: usize, outcome: Result<Offset, ErrorCode>) {
        if outcome.is_err() {
            self.coordinators[node].loaded = None;
            self.coordinators[node].begun += 1;
        } else {
            self.counts.counted += 1;
        }
    }

    fn counted_spec(&self) -> (usize, Spec) {
        let mut specs = self.specs.iter().enumerate();
        let found = specs.find(|(_, spec)| spec.counted);
        let (index, spec) = found.expect("a coordinator's partition");
        (index, spec.clone())
    }
}

impl Producer {
    fn encoded(&self, clock: &dyn crate::time::Clock) -> Bytes {
        let mut builder = match self.id {
            Some(id) => BatchBuilder::new().producer(id, 0, self.sequence),
            None => BatchBuilder::new(),
        };
        for record in &self.batch {
            builder.push(clock.wall_ms(), None, Some(&record.to_be_bytes()));
        }
        builder.build()
    }
}
