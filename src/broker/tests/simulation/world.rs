//! Time, chance, and how messages travel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::clients::{Consumer, Coordinator, Decision, Producer, Question, Sent};
use super::node::{Node, SimClock, TTL};
use super::oracle::{Oracle, key_of};
use super::post::{Answer, Ask, Mail, Part, Post, Record, Reply, Stream, Tasks, Who};
use super::store::Store;
use super::{Counts, Options, serve};
use crate::registry::value::{PartitionValue, TopicValue, encode};
use crate::registry::{Key, Op, RegistryError, Revision};
use crate::telemetry::Metrics;
use crate::types::{BrokerId, ErrorCode, Offset, TopicId};

pub(super) const FAULTS_END: u64 = 40_000;
const END: u64 = 66_000;
/// Timers of brokers are late by at most so much.
const STEP_MAX: u64 = 20;

/// A partition, and what is promised of it.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) topic: &'static str,
    pub(super) id: TopicId,
    pub(super) index: i32,
    pub(super) replicas: Vec<BrokerId>,
    /// `flush.messages=1`
    pub(super) synced: bool,
    pub(super) min_isr: usize,
    /// Only a coordinator writes to it, counting.
    pub(super) counted: bool,
}

pub(super) enum Event {
    Boot(usize),
    Ask(Who, Ask, Reply),
    Deliver(Box<dyn FnOnce() + Send>),
    Frame {
        from: usize,
        to: usize,
        life: u32,
        frame: Bytes,
        answer: oneshot::Sender<Bytes>,
    },
    /// The syncs that are under way are done.
    Synced(usize, u32),
    /// What is due by a broker's clock.
    Look(usize, u32),
    Expire,
    Fault,
    Closed(usize, u32),
    Produce(usize),
    ProduceAt(Sent),
    ProduceTimeout(u64),
    Produced(u64, Result<Offset, ErrorCode>),
    Consume(usize),
    ConsumeAt(Question),
    ConsumeTimeout(u64),
    Consumed(u64, Result<Offset, ErrorCode>, Vec<Record>),
    Coordinate(usize),
    /// What a coordinator decided in an epoch.
    Decided(usize, u32, Decision),
}

impl Event {
    /// On whom it happens, in which life.
    fn node(&self) -> Option<(usize, u32)> {
        match self {
            Self::Frame { to, life, .. } => Some((*to, *life)),
            Self::Synced(node, life)
            | Self::Look(node, life)
            | Self::Closed(node, life)
            | Self::Decided(node, life, _) => Some((*node, *life)),
            Self::ProduceAt(sent) => Some((sent.node, sent.life)),
            Self::ConsumeAt(question) => Some((question.node, question.life)),
            _ => None,
        }
    }
}

/// A watch of a broker's.
struct Watching {
    node: usize,
    life: u32,
    next: Revision,
    stream: Arc<Stream>,
    /// What comes next comes no earlier.
    arrives: u64,
    broken: bool,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) options: Options,
    random: u64,
    pub(super) start: Instant,
    pub(super) now: u64,
    clock: Arc<AtomicU64>,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pub(super) store: Store,
    pub(super) nodes: Vec<Node>,
    pub(super) post: Arc<Post>,
    carriers: Tasks,
    watches: Vec<Watching>,
    /// Nobody has noticed yet that these bring nothing more.
    silent: Vec<Arc<Stream>>,
    pub(super) specs: Arc<[Spec]>,
    /// From and to, until when it is cut; the registry is the one behind the brokers, then clients.
    pub(super) cut: BTreeMap<(usize, usize), u64>,
    pub(super) slow_until: u64,
    /// Nothing is answered before.
    pub(super) away_until: u64,
    /// Whose changes of the ISR arrive only then.
    pub(super) held: Option<(usize, u64)>,
    /// Answers that never come, and whose connection is not closed for that.
    stalled: Vec<oneshot::Sender<Bytes>>,
    pub(super) producers: Vec<Producer>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) coordinators: Vec<Coordinator>,
    /// By number: which producer's.
    pub(super) sent: BTreeMap<u64, usize>,
    pub(super) next_record: u64,
    pub(super) oracle: Oracle,
    pub(super) counts: Counts,
}

impl World {
    /// In a runtime whose time stands still.
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let start = tokio::time::Instant::now().into_std();
        let clock: Arc<AtomicU64> = Arc::default();
        let (post, carriers) = (Arc::<Post>::default(), Tasks::default());
        let metrics = Arc::new(Metrics::new());
        let brokers = [3, 3, 4, 3, 5, 3][usize::try_from(seed / 3 % 6).unwrap()];
        let nodes: Vec<Node> = (0..brokers)
            .map(|index| {
                let clock = SimClock {
                    start,
                    now: Arc::clone(&clock),
                    skew: AtomicI64::new(0),
                };
                Node::new(index, clock, &post, &carriers.spawner, &metrics)
            })
            .collect();
        let specs: Arc<[Spec]> = specs(seed, brokers).into();
        let mut world = Self {
            seed,
            options,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            start,
            now: 0,
            clock,
            sequence: 0,
            queue: BTreeMap::new(),
            store: store(&specs),
            oracle: Oracle::new(Arc::clone(&specs), brokers),
            coordinators: (0..brokers).map(|_| Coordinator::default()).collect(),
            producers: super::clients::producers(&specs),
            consumers: super::clients::consumers(&specs),
            nodes,
            post,
            carriers,
            watches: Vec::new(),
            silent: Vec::new(),
            specs,
            cut: BTreeMap::new(),
            slow_until: 0,
            away_until: 0,
            held: None,
            stalled: Vec::new(),
            sent: BTreeMap::new(),
            next_record: 1,
            counts: Counts::default(),
        };
        for index in 0..brokers {
            world.after(1 + index as u64, Event::Boot(index));
            world.after(1_000, Event::Coordinate(index));
        }
        for index in 0..world.producers.len() {
            world.after(1_000, Event::Produce(index));
        }
        for index in 0..world.consumers.len() {
            world.after(1_500, Event::Consume(index));
        }
        world.after(50, Event::Expire);
        world.after(5_000, Event::Fault);
        world
    }

    pub(super) async fn run(mut self) -> Counts {
        self.settle();
        loop {
            let next = self.queue.keys().next().map_or(END, |(at, _)| *at);
            let to = next.min(self.now + STEP_MAX);
            if to > END {
                break;
            }
            if to > self.now {
                tokio::time::advance(Duration::from_millis(to - self.now)).await;
                self.now = to;
                self.clock.store(to, Ordering::Relaxed);
                self.settle();
            }
            while let Some(entry) = self.queue.first_entry()
                && entry.key().0 <= self.now
            {
                let event = entry.remove();
                self.counts.events += 1;
                self.happen(event);
                self.settle();
            }
        }
        self.check_rest();
        self.counts.acknowledged = self.oracle.acknowledged();
        self.counts
    }

    // --- time and chance ---

    pub(super) fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    pub(super) fn one_of(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    pub(super) fn chance(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    pub(super) fn after(&mut self, ms: u64, event: Event) {
        self.at(self.now + ms, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    pub(super) fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if self.options.tells {
            println!("{:>6} {}", self.now, what());
        }
    }

    pub(super) fn fail(&self, why: &str) -> ! {
        panic!("seed {} at {}: {why}", self.seed, self.now);
    }

    /// What a rule says, and not yet what is lost without it.
    pub(super) fn fail_rule(&self, why: &str) {
        if !self.options.losses_only {
            self.fail(why);
        }
    }

    pub(super) fn calm(&self) -> bool {
        self.now >= FAULTS_END
    }

    pub(super) fn registry(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn clients(&self) -> usize {
        self.nodes.len() + 1
    }

    // --- messages ---

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        let cut = self.cut.get(&(from, to));
        cut.is_some_and(|until| *until > self.now)
    }

    /// When something that is sent now arrives; `None`: never.
    pub(super) fn travel(&mut self, from: usize, to: usize) -> Option<u64> {
        if self.is_cut(from, to) || !self.calm() && self.chance(1) {
            return None;
        }
        let slow = self.now < self.slow_until;
        let late = !self.calm() && self.chance(if slow { 40 } else { 2 });
        let mut ms = match late {
            // A transaction may outlive the registrations that it counts on.
            true => self.below(if to == self.registry() {
                3 * TTL
            } else {
                2_000
            }),
            false => 1 + self.below(12),
        };
        if to == self.registry() || from == self.registry() {
            ms += self.away_until.saturating_sub(self.now);
        }
        Some(ms)
    }

    /// Lets everybody go on who can, and takes what they send.
    fn settle(&mut self) {
        loop {
            let mut ran = self.carriers.run();
            for node in &mut self.nodes {
                if node.paused_until <= self.now
                    && let Some(running) = &mut node.running
                {
                    let _span = tracing::error_span!("broker", id = node.index).entered();
                    let any = running.tasks.run();
                    running.touched |= any;
                    ran |= any;
                }
            }
            for mail in self.post.collect() {
                ran = true;
                self.take(mail);
            }
            if !ran {
                break;
            }
        }
        self.sync_what_is_due();
        self.look();
    }

    fn take(&mut self, mail: Mail) {
        match mail {
            Mail::Ask(who, ask, reply) => self.ask(who, ask, reply),
            Mail::Frame {
                from,
                to,
                frame,
                answer,
            } => match self.travel(from, to) {
                Some(ms) => {
                    let life = self.nodes[to].life;
                    let event = Event::Frame {
                        from,
                        to,
                        life,
                        frame,
                        answer,
                    };
                    self.after(ms, event);
                }
                None => self.stalled.push(answer),
            },
            Mail::Answer {
                from,
                to,
                frame,
                answer,
            } => match self.travel(from, to) {
                Some(ms) => {
                    let deliver = Box::new(move || drop(answer.send(frame)));
                    self.after(ms, Event::Deliver(deliver));
                }
                None => self.stalled.push(answer),
            },
            Mail::Produced {
                number,
                node,
                outcome,
            } => {
                self.answered(number, node, outcome);
                if let Some(ms) = self.travel(node, self.clients()) {
                    self.after(ms, Event::Produced(number, outcome));
                }
            }
            Mail::Consumed {
                number,
                latest,
                records,
            } => {
                let ms = 1 + self.below(12);
                self.after(ms, Event::Consumed(number, latest, records));
            }
        }
    }

    fn ask(&mut self, who: Who, ask: Ask, reply: Reply) {
        if self.nodes[who.node].life != who.life {
            return;
        }
        self.check_ask(who, &ask);
        self.hinder(who, &ask);
        let Some(mut ms) = self.travel(who.node, self.registry()) else {
            return;
        };
        if who.part == Part::Publisher
            && let Some((held, until)) = self.held
            && held == who.node
        {
            ms += until.saturating_sub(self.now);
        }
        self.after(ms, Event::Ask(who, ask, reply));
    }

    /// Syncs that somebody waits for, or that are due by the clock, are under way for a while.
    fn sync_what_is_due(&mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].paused_until > self.now {
                continue;
            }
            let Some(running) = &mut self.nodes[index].running else {
                continue;
            };
            if !running.touched {
                continue;
            }
            let due = running.logs.due_flushes();
            if due.is_empty() {
                continue;
            }
            let is_first = running.syncing.is_empty();
            running.syncing.extend(due);
            if is_first {
                let (most, life) = (self.nodes[index].sync_ms, self.nodes[index].life);
                let ms = 1 + self.below(most);
                self.after(ms, Event::Synced(index, life));
            }
        }
    }

    // --- what happens ---

    fn happen(&mut self, event: Event) {
        if let Some((node, life)) = event.node() {
            let node = &self.nodes[node];
            if node.running.is_none() || node.life != life {
                return; // with it goes the connection
            }
            let paused_until = node.paused_until;
            if paused_until > self.now {
                return self.at(paused_until, event);
            }
        }
        match event {
            Event::Boot(node) => self.boot(node),
            Event::Ask(who, ask, reply) => self.at_registry(who, ask, reply),
            Event::Deliver(deliver) => deliver(),
            Event::Frame {
                from,
                to,
                frame,
                answer,
                ..
            } => self.serve(from, to, frame, answer),
            Event::Synced(node, _) => {
                let running = self.nodes[node].running.as_mut().expect("it is up");
                running.touched = true;
                for log in std::mem::take(&mut running.syncing) {
                    let _ = log.flush();
                }
            }
            Event::Look(node, life) => {
                let running = self.nodes[node].running.as_mut().expect("it is up");
                running.touched = true;
                running.logs.run_due_tasks();
                self.look_at_logs_of_all(node, life);
            }
            Event::Expire => {
                if self.now >= self.away_until && self.store.expire(self.now) > 0 {
                    self.tell(|| "a lease ended".to_owned());
                    self.registered();
                }
                self.after(50, Event::Expire);
            }
            Event::Fault => self.fault(),
            Event::Closed(node, _) => self.closed(node),
            Event::Produce(index) => self.produce(index),
            Event::ProduceAt(sent) => self.produce_at(sent),
            Event::ProduceTimeout(number) => {
                self.produced(number, Err(ErrorCode::RequestTimedOut));
            }
            Event::Produced(number, outcome) => self.produced(number, outcome),
            Event::Consume(index) => self.consume(index),
            Event::ConsumeAt(question) => self.consume_at(question),
            Event::ConsumeTimeout(number) => self.consumed(number, None, &[]),
            Event::Consumed(number, latest, records) => {
                self.consumed(number, latest.ok(), &records);
            }
            Event::Coordinate(node) => self.coordinate(node),
            Event::Decided(node, _, decision) => self.decided(node, decision),
        }
    }

    fn boot(&mut self, index: usize) {
        if self.nodes[index].running.is_some() {
            return;
        }
        let seed = self.next();
        let node = &mut self.nodes[index];
        node.boot(seed);
        let life = node.life;
        self.tell(|| format!("{index} boots, life {life}"));
        self.after(100, Event::Look(index, life));
    }

    fn serve(&mut self, from: usize, to: usize, frame: Bytes, answer: oneshot::Sender<Bytes>) {
        let received = self.instant();
        let running = self.nodes[to].running.as_ref().expect("it is up");
        let replicas = Arc::clone(&running.replicas);
        let post = Arc::clone(&self.post);
        running.tasks.spawner.spawn(async move {
            let frame = serve::frame(replicas, frame, received).await;
            post.send(Mail::Answer {
                from: to,
                to: from,
                frame,
                answer,
            });
        });
    }

    // --- the registry ---

    fn at_registry(&mut self, who: Who, ask: Ask, reply: Reply) {
        let result = match ask {
            Ask::Get(key) => Ok(Answer::Entry(self.store.get(&key).cloned())),
            Ask::Range(range) => self.store.range(&range).map(Answer::Page),
            Ask::Txn(compares, ops) => {
                let before = self.partitions_of(&ops);
                let written = ops.iter().map(key_of).collect();
                let outcome = self.store.txn(&compares, ops);
                if let Ok(outcome) = &outcome {
                    if outcome.succeeded {
                        self.check_changes(who, &before);
                        self.registered();
                    }
                    self.note_outcome(who, written, outcome.succeeded);
                }
                outcome.map(Answer::Txn)
            }
            Ask::Grant(ttl) => Ok(Answer::Lease(self.store.grant(ttl, self.now))),
            Ask::KeepAlive(id) => self.store.keep_alive(id, self.now).map(|()| Answer::Done),
            Ask::Revoke(id) => {
                let revoked = self.store.revoke(id);
                self.registered();
                revoked.map(|()| Answer::Done)
            }
            Ask::Watch(from, stream) => match from <= self.store.compacted {
                true => Err(RegistryError::Compacted {
                    oldest: self.store.compacted,
                }),
                false => {
                    self.watches.push(Watching {
                        node: who.node,
                        life: who.life,
                        next: from,
                        stream,
                        arrives: self.now,
                        broken: false,
                    });
                    self.registered();
                    Ok(Answer::Done)
                }
            },
        };
        if let Some(ms) = self.travel(self.registry(), who.node) {
            let deliver = Box::new(move || drop(reply.send(result)));
            self.after(ms, Event::Deliver(deliver));
        }
    }

    /// Tells the watches what has changed, in order; but now and then one falls silent.
    fn registered(&mut self) {
        let mut watches = std::mem::take(&mut self.watches);
        watches.retain(|it| !it.broken && self.nodes[it.node].life == it.life);
        for watch in &mut watches {
            let news = self.store.changes(watch.next);
            let news: Vec<_> = news.map(|(at, events)| (at, events.clone())).collect();
            for (revision, events) in news {
                watch.next = revision + 1;
                let registry = self.registry();
                let stream = Arc::clone(&watch.stream);
                if self.is_cut(registry, watch.node) || !self.calm() && self.chance(2) {
                    watch.broken = true;
                    // Nobody may notice that: then it is found by comparing.
                    if self.now + 15_000 > FAULTS_END || self.chance(80) {
                        let ms = 500 + self.below(6_000);
                        let deliver = Box::new(move || stream.put(None));
                        self.after(ms, Event::Deliver(deliver));
                    } else {
                        self.silent.push(stream);
                    }
                    break;
                }
                let late = !self.calm() && self.chance(5);
                let ms = 1 + self.below(if late { 1_500 } else { 30 });
                watch.arrives = watch.arrives.max(self.now + ms);
                let deliver = Box::new(move || stream.put(Some(events)));
                self.at(watch.arrives, Event::Deliver(deliver));
            }
        }
        self.watches = watches;
    }

    /// Nobody hears any more of what changes.
    pub(super) fn break_watches(&mut self) {
        for watch in std::mem::take(&mut self.watches) {
            watch.stream.put(None);
        }
        for silent in std::mem::take(&mut self.silent) {
            silent.put(None);
        }
    }
}

fn specs(seed: u64, brokers: usize) -> Vec<Spec> {
    let mode = seed % 5;
    let synced = mode.is_multiple_of(2);
    let candidates: Vec<_> = (0..brokers)
        .map(|index| crate::controller::Candidate {
            id: BrokerId(i32::try_from(index).unwrap()),
            rack: None,
            is_fenced: false,
        })
        .collect();
    let placed = crate::controller::place(&candidates, 3, 3).unwrap();
    let spec = |number: usize, topic, index, synced, min_isr| Spec {
        topic,
        id: TopicId([u8::try_from(number).unwrap() + 1; 16]),
        index,
        replicas: placed[number + usize::try_from(index).unwrap()].clone(),
        synced,
        min_isr,
        counted: topic == "c",
    };
    let min_isr = if synced && seed.is_multiple_of(3) {
        1
    } else {
        2
    };
    vec![
        spec(0, "t", 0, synced, min_isr),
        spec(0, "t", 1, synced, min_isr),
        spec(2, "c", 0, synced != (mode == 3), 2),
    ]
}

fn store(specs: &[Spec]) -> Store {
    let mut store = Store::default();
    let put = |key: String, value: Bytes| Op::Put {
        key,
        value,
        lease: 0,
    };
    let mut ops = vec![
        put(Key::Layout.to_string(), Bytes::from_static(b"1")),
        put(Key::ClusterId.to_string(), Bytes::from_static(b"cluster")),
    ];
    let mut topics: BTreeMap<&str, TopicValue> = BTreeMap::new();
    for spec in specs {
        let topic = topics.entry(spec.topic).or_insert_with(|| TopicValue {
            id: spec.id,
            replicas: Vec::new(),
            configs: BTreeMap::from([
                (
                    "flush.messages".to_owned(),
                    if spec.synced { "1" } else { "1000000" }.to_owned(),
                ),
                ("min.insync.replicas".to_owned(), spec.min_isr.to_string()),
            ]),
        });
        topic.replicas.push(spec.replicas.clone());
        let ids: Vec<i32> = spec.replicas.iter().map(|id| id.0).collect();
        let value = PartitionValue {
            leader: ids[0],
            leader_epoch: 0,
            leader_registration: 0,
            isr: ids,
            elr: Vec::new(),
            last_known_leader: None,
            partition_epoch: 0,
        };
        let key = Key::Partition(spec.id, spec.index).to_string();
        ops.push(put(key, encode(&value)));
    }
    for (name, value) in topics {
        ops.push(put(Key::Topic(name.into()).to_string(), encode(&value)));
    }
    store.txn(&[], ops).unwrap();
    store
}
