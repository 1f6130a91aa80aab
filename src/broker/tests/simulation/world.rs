//! Everything around the brokers: time, messages, faults, and what must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::node::{Node, Record};
use super::registry::{Registry, Txn};
use crate::config::TopicConfig;
use crate::controller::machine::{Change, forget, resume};
use crate::metadata::{Partition, partition_of};
use crate::replication::isr::{FollowerFetch, Moment, Outcome, Proposal};
use crate::time::{Clock, SystemClock};
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, LeaderEpoch, Offset};

/// Milliseconds.
pub(super) const TTL: u64 = 3_000;
pub(super) const LAG_MAX: Duration = Duration::from_millis(1_500);
const BROKERS: usize = 3;
const FAULTS_END: u64 = 70_000;
const END: u64 = 110_000;
const TXN_TIMEOUT: u64 = 900;
const FETCHED_AT_ONCE: usize = 8;

/// How much happened.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) faults: u64,
    pub(super) acknowledged: u64,
    pub(super) terms: u64,
    pub(super) isr_changes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.faults += more.faults;
        self.acknowledged += more.acknowledged;
        self.terms += more.terms;
        self.isr_changes += more.isr_changes;
    }
}

#[derive(Debug, Clone)]
enum Request {
    /// From a new life, or from one whose lease is gone.
    Register {
        is_new: bool,
    },
    KeepAlive {
        epoch: i64,
    },
    Sit {
        epoch: i64,
    },
    Isr {
        number: u64,
        proposal: Box<Proposal>,
    },
    Change {
        number: u64,
        txn: Box<Txn>,
    },
}

#[derive(Debug, Clone)]
enum Message {
    Registered(Option<i64>),
    KeptAlive(bool),
    /// The revision, or the partition that was found instead.
    Isr(u64, Box<Proposal>, Result<i64, Arc<Partition>>),
    Changed(u64),
    Fetch(Fetch),
    Fetched(u64, Fetch, Found),
}

#[derive(Debug, Clone, Copy)]
struct Fetch {
    from: usize,
    number: u64,
    epoch: LeaderEpoch,
    offset: Offset,
    last_epoch: LeaderEpoch,
    broker_epoch: i64,
}

#[derive(Debug, Clone)]
enum Found {
    Refused,
    Parted(LeaderEpoch, Offset),
    Records(Vec<Record>, Offset),
}

#[derive(Debug, Clone, Copy)]
enum Timer {
    Tick,
    Watch,
    KeepAlive,
    Fetch,
    FetchTimeout(u64),
    TxnTimeout(u64),
    ChangeTimeout(u64),
    Flush,
}

#[derive(Debug, Clone)]
enum Event {
    Boot(usize),
    Timer(usize, u32, Timer),
    Message(usize, u32, Message),
    Registry(usize, u32, Request),
    Expire,
    Produce,
    Fault,
}

pub(super) struct World {
    seed: u64,
    random: u64,
    start: Instant,
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    registry: Registry,
    nodes: Vec<Node>,
    /// From and to, until when it is cut; the registry is the last one.
    cut: BTreeMap<(usize, usize), u64>,
    slow_until: u64,
    /// Whose changes of the ISR arrive only then.
    held: Option<(usize, u64)>,
    /// Every message is synced before it counts.
    synced: bool,
    isr_under_way: BTreeMap<u64, Box<Proposal>>,
    committed: Vec<Record>,
    acknowledged: BTreeSet<u32>,
    leaders: BTreeMap<LeaderEpoch, usize>,
    next_record: u32,
    counts: Counts,
    pub(super) tells: bool,
}

const REGISTRY: usize = BROKERS;

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let start = SystemClock.now();
        let synced = seed % 2 == 1;
        let config = TopicConfig {
            min_insync_replicas: 2,
            flush_messages: if synced { 1 } else { i64::MAX },
            ..TopicConfig::default()
        };
        let ids: Vec<BrokerId> = (0..).take(BROKERS).map(BrokerId).collect();
        let mut world = Self {
            seed,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            start,
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            registry: Registry::new(Partition::made(&ids), config),
            nodes: ids.iter().map(|id| Node::new(*id, start)).collect(),
            cut: BTreeMap::new(),
            slow_until: 0,
            held: None,
            synced,
            isr_under_way: BTreeMap::new(),
            committed: Vec::new(),
            acknowledged: BTreeSet::new(),
            leaders: BTreeMap::new(),
            next_record: 0,
            counts: Counts::default(),
            tells: false,
        };
        for index in 0..BROKERS {
            world.after(index as u64, Event::Boot(index));
        }
        world.after(50, Event::Expire);
        world.after(1_000, Event::Produce);
        world.after(6_000, Event::Fault);
        world
    }

    pub(super) fn run(mut self) -> Counts {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > END {
                break;
            }
            self.now = at;
            self.counts.events += 1;
            self.happen(event);
            self.check();
        }
        self.check_rest();
        self.counts.acknowledged = self.acknowledged.len() as u64;
        self.counts
    }

    // --- time and chance ---

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    fn chance(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + ms, self.sequence), event);
    }

    fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>6} {}", self.now, what());
        }
    }

    fn fail(&self, why: &str) -> ! {
        panic!("seed {} at {}: {why}", self.seed, self.now);
    }

    fn calm(&self) -> bool {
        self.now >= FAULTS_END
    }

    // --- messages ---

    /// When something that is sent now arrives; `None`: never.
    fn travel(&mut self, from: usize, to: usize) -> Option<u64> {
        let cut = self
            .cut
            .get(&(from, to))
            .is_some_and(|until| *until > self.now);
        if cut || !self.calm() && self.chance(1) {
            return None;
        }
        let slow = self.now < self.slow_until;
        let late = !self.calm() && self.chance(if slow { 40 } else { 2 });
        Some(if late {
            // A transaction may outlive the registrations that it counts on.
            self.below(if to == REGISTRY { 3 * TTL } else { 2_000 })
        } else {
            1 + self.below(12)
        })
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if let Some(ms) = self.travel(from, to) {
            let life = self.nodes[to].life;
            self.after(ms, Event::Message(to, life, message));
        }
    }

    fn ask_registry(&mut self, from: usize, request: Request) {
        if let Some(mut ms) = self.travel(from, REGISTRY) {
            let life = self.nodes[from].life;
            if let (Request::Isr { .. }, Some((held, until))) = (&request, self.held)
                && held == from
            {
                ms += until.saturating_sub(self.now);
            }
            self.after(ms, Event::Registry(from, life, request));
        }
    }

    fn timer(&mut self, node: usize, ms: u64, timer: Timer) {
        let life = self.nodes[node].life;
        self.after(ms, Event::Timer(node, life, timer));
    }

    // --- what happens ---

    fn happen(&mut self, event: Event) {
        let (Event::Boot(node) | Event::Timer(node, _, _) | Event::Message(node, _, _)) = event
        else {
            return self.happen_elsewhere(event);
        };
        if let Event::Timer(_, life, _) | Event::Message(_, life, _) = event
            && (!self.nodes[node].up || self.nodes[node].life != life)
        {
            return;
        }
        let paused_until = self.nodes[node].paused_until;
        if paused_until > self.now {
            self.sequence += 1;
            self.queue.insert((paused_until, self.sequence), event);
            return;
        }
        match event {
            Event::Boot(_) => self.boot(node),
            Event::Timer(_, _, timer) => self.time_is_up(node, timer),
            Event::Message(_, _, message) => self.receive(node, message),
            _ => {}
        }
    }

    fn happen_elsewhere(&mut self, event: Event) {
        match event {
            Event::Registry(from, life, request) => self.at_registry(from, life, request),
            Event::Expire => {
                if self.registry.expire(self.now) {
                    self.tell(|| "a lease ended".to_owned());
                }
                self.after(50, Event::Expire);
            }
            Event::Produce => self.produce(),
            Event::Fault => self.fault(),
            _ => {}
        }
    }

    fn boot(&mut self, node: usize) {
        if self.nodes[node].up {
            return;
        }
        let now = self.instant();
        self.nodes[node].boot(now, Arc::default());
        self.tell(|| format!("{node} boots with {}", self.nodes[node].log.len()));
        self.ask_registry(node, Request::Register { is_new: true });
        self.timer(node, 500, Timer::KeepAlive);
        for timer in [Timer::Tick, Timer::Watch, Timer::Fetch, Timer::Flush] {
            self.timer(node, 20, timer);
        }
    }

    fn time_is_up(&mut self, node: usize, timer: Timer) {
        match timer {
            Timer::Tick => {
                self.propose(node);
                self.resume(node);
                self.control(node);
                self.advance(node);
                self.timer(node, 200, Timer::Tick);
            }
            Timer::Watch => {
                let connected = self.travel(REGISTRY, node).is_some();
                if connected && self.nodes[node].epoch != 0 {
                    self.see_image(node);
                }
                let ms = 5 + self.below(150);
                self.timer(node, ms, Timer::Watch);
            }
            Timer::KeepAlive => {
                let epoch = self.nodes[node].epoch;
                let request = match epoch {
                    0 => Request::Register { is_new: true },
                    _ => Request::KeepAlive { epoch },
                };
                self.ask_registry(node, request);
                self.timer(node, 600, Timer::KeepAlive);
            }
            Timer::Fetch => self.fetch(node),
            Timer::FetchTimeout(number) => {
                if self.nodes[node].fetching == Some(number) {
                    self.nodes[node].fetching = None;
                    self.fetch(node);
                }
            }
            Timer::TxnTimeout(number) => {
                // R4: nobody knows what becomes of it.
                if let Some(proposal) = self.isr_under_way.remove(&number) {
                    let now = self.instant();
                    if let Some(isr) = &mut self.nodes[node].leading {
                        isr.outcome(now, &proposal, Outcome::Unknown);
                    }
                }
            }
            Timer::ChangeTimeout(number) => {
                let changing = &mut self.nodes[node].changing;
                *changing = changing.filter(|under_way| *under_way != number);
            }
            Timer::Flush => {
                self.nodes[node].durable = self.nodes[node].log.len();
                self.advance(node);
                if !self.synced {
                    self.timer(node, 3_000, Timer::Flush);
                }
            }
        }
    }

    /// The watch: mostly the newest image, sometimes one of those in between.
    fn see_image(&mut self, node: usize) {
        let seen = self.nodes[node].image.revision;
        let newest = self.registry.newest();
        if newest.revision <= seen {
            return;
        }
        let next = self
            .registry
            .images
            .iter()
            .find(|image| image.revision > seen);
        let (newest, next) = (Arc::clone(newest), next.cloned());
        let image = match next {
            // The first one is read whole, after the registration.
            Some(next) if seen > 0 && self.chance(30) => next,
            _ => newest,
        };
        let now = self.instant();
        let begun = self.nodes[node].take_over(image, now);
        if begun {
            self.begins(node);
        }
        self.advance(node);
        self.resume(node);
        self.control(node);
    }

    fn begins(&mut self, node: usize) {
        self.counts.terms += 1;
        self.flush_soon(node);
        let role = self.nodes[node].role().cloned().expect("a role");
        self.tell(|| {
            format!(
                "{node} leads in {} from {}",
                role.leader_epoch,
                self.nodes[node].end()
            )
        });
        let of = *self.leaders.entry(role.leader_epoch).or_insert(node);
        if of != node && holds(Rule::R5) {
            self.fail("two leaders in one epoch");
        }
        // One that hears late of its election may have been followed by another.
        let is_current = self.registry.partition.leader_epoch == role.leader_epoch;
        if is_current && !self.nodes[node].log.starts_with(&self.committed) {
            self.fail("a leader without what was committed");
        }
    }

    // --- the leader ---

    fn propose(&mut self, node: usize) {
        let now = self.instant();
        let live = self.nodes[node].live();
        if self.nodes[node].leading.is_none() {
            return;
        }
        let rule = self.nodes[node].rule();
        let (hw, end) = (self.nodes[node].high_watermark, self.nodes[node].end());
        let moment = Moment {
            now,
            rule,
            lag_max: LAG_MAX,
            live: &live,
        };
        let isr = self.nodes[node].leading.as_mut().expect("a leader");
        let Some(proposal) = isr.propose(moment, hw, end) else {
            return;
        };
        self.tell(|| {
            format!(
                "{node} proposes {:?} {:?}",
                proposal.to.isr, proposal.to.elr
            )
        });
        self.hinder(node, &proposal);
        let number = self.number();
        let proposal = Box::new(proposal);
        self.isr_under_way.insert(number, proposal.clone());
        self.ask_registry(node, Request::Isr { number, proposal });
        self.timer(node, TXN_TIMEOUT, Timer::TxnTimeout(number));
    }

    fn advance(&mut self, node: usize) {
        let now = self.instant();
        let before = self.nodes[node].high_watermark;
        let acknowledged = self.nodes[node].advance(now);
        let reached = self.nodes[node].high_watermark;
        if reached > before && self.nodes[node].leading.is_some() {
            let reached = usize::try_from(reached).unwrap();
            let log = &self.nodes[node].log[..reached];
            let both = reached.min(self.committed.len());
            if log[..both] != self.committed[..both] {
                self.fail("what was seen was taken back");
            }
            if reached > both {
                self.committed = log.to_vec();
            }
        }
        self.acknowledged.extend(acknowledged);
    }

    fn produce(&mut self) {
        let leaders: Vec<usize> = (0..BROKERS)
            .filter(|node| {
                let node = &self.nodes[*node];
                node.up && node.leading.is_some() && node.paused_until <= self.now
            })
            .collect();
        if !leaders.is_empty() && self.now < FAULTS_END {
            let at = usize::try_from(self.below(leaders.len() as u64)).unwrap();
            let node = &mut self.nodes[leaders[at]];
            let committed = node.leading.as_ref().expect("a leader").committed();
            if committed.isr.len() >= node.rule().min_isr {
                let record = (committed.leader_epoch, self.next_record);
                node.log.push(record);
                node.waiting.push((node.end(), self.next_record));
                self.next_record += 1;
                self.flush_soon(leaders[at]);
            }
        }
        let ms = 10 + self.below(120);
        self.after(ms, Event::Produce);
    }

    /// As `Partition::read` and `follower_fetched` do.
    fn answer(&mut self, node: usize, fetch: Fetch) -> Found {
        let now = self.instant();
        let Some(isr) = &self.nodes[node].leading else {
            return Found::Refused;
        };
        if fetch.epoch != isr.committed().leader_epoch && holds(Rule::R6) {
            return Found::Refused;
        }
        if fetch.last_epoch >= 0 && holds(Rule::R6) {
            let (epoch, end) = self.nodes[node].end_of_epoch(fetch.last_epoch);
            if epoch < fetch.last_epoch || end < fetch.offset {
                return Found::Parted(epoch, end);
            }
        }
        let end = self.nodes[node].end();
        if fetch.offset > end {
            return Found::Parted(fetch.last_epoch, end); // R6 is off
        }
        let counted = FollowerFetch {
            at: now,
            offset: fetch.offset,
            log_start: 0,
            broker_epoch: fetch.broker_epoch,
        };
        let id = self.nodes[fetch.from].id;
        let isr = self.nodes[node].leading.as_mut().expect("a leader");
        if isr.fetched(id, counted, end).is_err() {
            return Found::Refused;
        }
        if isr.may_join(id) {
            self.propose(node);
        }
        self.advance(node);
        let from = usize::try_from(fetch.offset).unwrap();
        let to = self.nodes[node].log.len().min(from + FETCHED_AT_ONCE);
        let records = self.nodes[node].log[from..to].to_vec();
        Found::Records(records, self.nodes[node].high_watermark)
    }

    fn flush_soon(&mut self, node: usize) {
        if self.synced {
            let ms = 1 + self.below(15);
            self.timer(node, ms, Timer::Flush);
        }
    }

    // --- the follower ---

    fn fetch(&mut self, node: usize) {
        let Some((leader, epoch)) = self.nodes[node].following else {
            return self.timer(node, 40, Timer::Fetch);
        };
        if self.nodes[node].fetching.is_some() {
            return;
        }
        if self.synced {
            self.nodes[node].durable = self.nodes[node].log.len();
        }
        let number = self.number();
        let fetch = Fetch {
            from: node,
            number,
            epoch,
            offset: self.nodes[node].end(),
            last_epoch: self.nodes[node].log.last().map_or(-1, |(epoch, _)| *epoch),
            broker_epoch: self.nodes[node].epoch,
        };
        self.nodes[node].fetching = Some(number);
        let to = usize::try_from(leader.0).unwrap();
        self.send(node, to, Message::Fetch(fetch));
        self.timer(node, 700, Timer::FetchTimeout(number));
    }

    fn fetched(&mut self, node: usize, number: u64, fetch: Fetch, found: Found) {
        if self.nodes[node].fetching != Some(number) {
            return;
        }
        self.nodes[node].fetching = None;
        let is_current = self.nodes[node]
            .following
            .is_some_and(|(_, epoch)| epoch == fetch.epoch)
            && self.nodes[node].end() == fetch.offset;
        let mut wait = 1 + self.below(10);
        match found {
            _ if !is_current => {}
            Found::Refused => wait = 100,
            Found::Parted(epoch, end) => {
                let (_, own) = self.nodes[node].end_of_epoch(epoch);
                let to = usize::try_from(own.min(end)).unwrap();
                self.tell(|| format!("{node} cuts its log off at {to}"));
                self.nodes[node].cut(to);
            }
            Found::Records(records, high_watermark) => {
                if records.is_empty() {
                    wait = 20 + self.below(40);
                }
                let node = &mut self.nodes[node];
                node.log.extend(records);
                node.high_watermark = node.high_watermark.max(high_watermark.min(node.end()));
            }
        }
        self.timer(node, wait, Timer::Fetch);
    }

    // --- the controller ---

    fn change(
        &mut self,
        node: usize,
        change: Change,
        seat: Option<i64>,
        own: Option<(BrokerId, i64)>,
    ) {
        let replicas = &self.registry.partition.replicas.clone();
        let elected = change.elected.map(|(id, epoch, _)| (id, epoch));
        let txn = Txn {
            revision: change.revision,
            own,
            others: elected.into_iter().collect(),
            seat,
            to: partition_of(replicas, &change.value, 0),
        };
        let number = self.number();
        self.nodes[node].changing = Some(number);
        let txn = Box::new(txn);
        self.ask_registry(node, Request::Change { number, txn });
        self.timer(node, TXN_TIMEOUT, Timer::ChangeTimeout(number));
    }

    fn control(&mut self, node: usize) {
        let now = self.instant();
        let it = &mut self.nodes[node];
        if it.epoch == 0 || it.changing.is_some() {
            return;
        }
        let image = Arc::clone(&it.image);
        if image.controller.is_none() && image.revision > 0 {
            let epoch = it.epoch;
            return self.ask_registry(node, Request::Sit { epoch });
        }
        let step = it.machine.step(&image, it.answering_since, now);
        for change in step.changes {
            self.tell(|| format!("{node} changes to {:?}", change.value));
            self.change(node, change, Some(image.controller_registration), None);
        }
    }

    fn resume(&mut self, node: usize) {
        let it = &self.nodes[node];
        if !holds(Rule::R5) || it.changing.is_some() {
            return;
        }
        let (id, epoch) = (it.id, it.epoch);
        let registered = it
            .image
            .brokers
            .get(&id)
            .is_some_and(|broker| broker.epoch == epoch);
        if registered && let Some(change) = resume(&it.image, id, epoch).pop() {
            self.tell(|| format!("{node} resumes in {}", change.value.leader_epoch));
            self.change(node, change, None, Some((id, epoch)));
        }
    }

    // --- the registry ---

    fn at_registry(&mut self, from: usize, life: u32, request: Request) {
        let id = self.nodes[from].id;
        let expires = self.now + TTL;
        let reply = match request {
            Request::Register { is_new } => {
                if is_new && holds(Rule::R10) && life > 1 {
                    self.forget(id);
                }
                Message::Registered(self.registry.register(id, life, expires))
            }
            Request::KeepAlive { epoch } => {
                Message::KeptAlive(self.registry.keep_alive(id, epoch, expires))
            }
            Request::Sit { epoch } => {
                self.registry.sit(id, epoch);
                return;
            }
            Request::Isr { number, proposal } => {
                let txn = Txn {
                    revision: proposal.revision,
                    own: Some((proposal.leader, proposal.registration)),
                    others: proposal
                        .added
                        .iter()
                        .chain(&proposal.successor)
                        .copied()
                        .collect(),
                    seat: None,
                    to: proposal.to.clone(),
                };
                let done = self.registry.txn(&txn);
                if done.is_some() {
                    self.check_members();
                    self.counts.isr_changes += 1;
                    self.tell(|| format!("isr {:?} {:?}", proposal.to.isr, proposal.to.elr));
                }
                let done = done.ok_or_else(|| Arc::clone(&self.registry.partition));
                Message::Isr(number, proposal, done)
            }
            Request::Change { number, txn } => {
                let done = self.registry.txn(&txn);
                if done.is_some() {
                    self.check_members();
                    self.tell(|| {
                        format!(
                            "changed: {:?} {:?} {:?}",
                            txn.to.leader, txn.to.isr, txn.to.elr
                        )
                    });
                }
                Message::Changed(number)
            }
        };
        if let Some(ms) = self.travel(REGISTRY, from) {
            self.after(ms, Event::Message(from, life, reply));
        }
    }

    /// R10: as the session does before it registers.
    fn forget(&mut self, id: BrokerId) {
        let image = Arc::clone(self.registry.newest());
        if image.revision == 0 || image.brokers.contains_key(&id) {
            return;
        }
        for change in forget(&image, id, false) {
            self.tell(|| format!("{id:?} may have forgotten: {:?}", change.value));
            let txn = Txn {
                revision: change.revision,
                own: None,
                others: change
                    .elected
                    .iter()
                    .map(|(id, epoch, _)| (*id, *epoch))
                    .collect(),
                seat: None,
                to: partition_of(&self.registry.partition.replicas, &change.value, 0),
            };
            self.registry.txn(&txn);
        }
    }

    fn receive(&mut self, node: usize, message: Message) {
        let now = self.instant();
        match message {
            Message::Registered(Some(epoch)) => {
                self.nodes[node].epoch = epoch;
                self.tell(|| format!("{node} is registered: {epoch}"));
                self.see_image(node);
            }
            Message::Registered(None) => {}
            Message::KeptAlive(true) => {
                self.nodes[node].answering_since.get_or_insert(now);
            }
            Message::KeptAlive(false) => {
                self.ask_registry(node, Request::Register { is_new: false });
            }
            Message::Isr(number, sent, done) => {
                if self.isr_under_way.remove(&number).is_none() {
                    return; // it was given up
                }
                let Some(isr) = &mut self.nodes[node].leading else {
                    return;
                };
                let outcome = match done {
                    Ok(revision) => Outcome::Applied(revision),
                    Err(found) if found.revision > sent.revision => {
                        if found.leader_epoch == isr.committed().leader_epoch {
                            isr.learn(now, &found);
                        }
                        Outcome::Unknown
                    }
                    Err(_) => Outcome::Refused,
                };
                if isr.committed().leader_epoch == sent.leader_epoch {
                    isr.outcome(now, &sent, outcome);
                }
                self.advance(node);
            }
            Message::Changed(number) => {
                let changing = &mut self.nodes[node].changing;
                *changing = changing.filter(|under_way| *under_way != number);
            }
            Message::Fetch(fetch) => {
                let found = self.answer(node, fetch);
                self.send(
                    node,
                    fetch.from,
                    Message::Fetched(fetch.number, fetch, found),
                );
            }
            Message::Fetched(number, fetch, found) => self.fetched(node, number, fetch, found),
        }
    }

    // --- faults ---

    fn fault(&mut self) {
        if self.now >= FAULTS_END - 1_000 {
            return self.heal();
        }
        let node = usize::try_from(self.below(BROKERS as u64)).unwrap();
        // Without syncs the promise holds while not too many forget at once.
        let is_well = |node: &Node| node.up && node.epoch != 0 && node.paused_until <= self.now;
        let healthy =
            self.registry.partition.isr.len() == BROKERS && self.nodes.iter().all(is_well);
        let partition = &self.registry.partition;
        let id = self.nodes[node].id;
        let counts = partition.isr.contains(&id) || partition.elr.contains(&id);
        let may_crash = self.synced || healthy || !counts;
        self.counts.faults += 1;
        match self.below(12) {
            0 | 1 if may_crash => self.crash(node, true),
            2 | 3 if may_crash => self.crash(node, false),
            4 if self.synced => {
                for node in 0..BROKERS {
                    self.crash(node, true);
                }
            }
            5 | 6 => {
                let until = self.now + self.below(2 * TTL);
                self.nodes[node].paused_until = until;
                self.tell(|| format!("{node} is paused until {until}"));
            }
            7 | 8 => {
                let (until, ways) = (self.now + self.below(2 * TTL), self.below(3));
                self.cut_off(node, REGISTRY, until, ways);
            }
            9 | 10 => {
                let other = (node + 1 + usize::try_from(self.below(2)).unwrap()) % BROKERS;
                let (until, ways) = (self.now + self.below(2 * TTL), self.below(3));
                self.cut_off(node, other, until, ways);
            }
            _ => {
                self.slow_until = self.now + self.below(5_000);
                self.tell(|| "everything is slow".to_owned());
            }
        }
        let most = if self.chance(50) { 1_200 } else { 6_000 };
        let ms = 200 + self.below(most);
        self.after(ms, Event::Fault);
    }

    /// Now and then, where nothing is synced: who is about to join dies and forgets before the registry
    /// hears that it may.
    fn hinder(&mut self, leader: usize, proposal: &Proposal) {
        let Some((id, _)) = proposal.added.first().copied() else {
            return;
        };
        if self.synced || self.calm() || !self.chance(5) {
            return;
        }
        let partition = &self.registry.partition;
        if partition.isr.contains(&id) || partition.elr.contains(&id) {
            return;
        }
        let joining = usize::try_from(id.0).unwrap();
        let until = self.now + TTL + self.below(TTL);
        self.tell(|| format!("{joining} dies while it joins; held until {until}"));
        self.held = Some((leader, until));
        self.cut_off(joining, leader, until + TTL, 0);
        self.crash(joining, true);
        self.counts.faults += 1;
    }

    fn crash(&mut self, node: usize, power: bool) {
        if !self.nodes[node].up {
            return;
        }
        if power {
            let at_risk = self.nodes[node].log.len() - self.nodes[node].durable;
            let lost = usize::try_from(self.below(at_risk as u64 + 1)).unwrap();
            let to = self.nodes[node].log.len() - lost;
            self.nodes[node].cut(to);
            self.nodes[node].durable = to;
        }
        self.tell(|| format!("{node} crashes with {}", self.nodes[node].log.len()));
        self.nodes[node].stop();
        let ms = 50 + self.below(2 * TTL);
        self.after(ms, Event::Boot(node));
    }

    fn cut_off(&mut self, a: usize, b: usize, until: u64, ways: u64) {
        self.tell(|| format!("{a} and {b} are cut off until {until}, {ways}"));
        if ways != 1 {
            self.cut.insert((a, b), until);
        }
        if ways != 2 {
            self.cut.insert((b, a), until);
        }
    }

    fn heal(&mut self) {
        self.cut.clear();
        for node in &mut self.nodes {
            node.paused_until = node.paused_until.min(self.now);
        }
    }

    // --- what must hold ---

    fn check(&self) {
        let partition = &self.registry.partition;
        if !partition
            .isr
            .iter()
            .all(|id| partition.replicas.contains(id))
        {
            self.fail("a member of the ISR that is no replica");
        }
        if partition.elr.iter().any(|id| partition.isr.contains(id)) {
            self.fail("ELR and ISR have a member in common");
        }
    }

    /// Whoever may be elected has what is committed, from when it registered on.
    fn check_members(&self) {
        let partition = &self.registry.partition;
        for id in partition.isr.iter().chain(&partition.elr) {
            let node = &self.nodes[usize::try_from(id.0).unwrap()];
            let is_here = node.up && node.epoch != 0;
            if is_here && !node.log.starts_with(&self.committed) {
                self.fail("one that may be elected lacks what was committed");
            }
        }
    }

    fn check_rest(&self) {
        let committed: BTreeSet<u32> = self.committed.iter().map(|(_, id)| *id).collect();
        if !self.acknowledged.is_subset(&committed) {
            self.fail("an acknowledged record is not committed");
        }
        if self.registry.partition.isr.len() != BROKERS {
            self.fail(&format!(
                "it does not come to rest: {:?}",
                self.registry.partition
            ));
        }
        for node in &self.nodes {
            if node.log != self.nodes[0].log || node.log.len() < self.committed.len() {
                self.fail("the replicas differ at the end");
            }
            if !node.log.starts_with(&self.committed) {
                self.fail("something committed is gone at the end");
            }
        }
    }
}
