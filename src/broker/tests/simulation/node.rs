//! One broker: its log, and what it is to the partition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::controller::machine::{Machine, MachineConfig};
use crate::metadata::{Image, Partition};
use crate::replication::isr::{Isr, LiveBrokers, Moment};
use crate::replication::role::leads;
use crate::replication::watermark::{ReplicaPosition, WatermarkRule};
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, LeaderEpoch, Offset};

use super::world::{LAG_MAX, TTL};

/// A record: the epoch in which it was written, and which one it is.
pub(super) type Record = (LeaderEpoch, u32);

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) up: bool,
    pub(super) life: u32,
    pub(super) paused_until: u64,
    pub(super) log: Vec<Record>,
    /// So many of them are on the disk.
    pub(super) durable: usize,
    pub(super) high_watermark: Offset,
    pub(super) image: Arc<Image>,
    /// Create revision of its registration as it was told; 0: none.
    pub(super) epoch: i64,
    /// The same as the image last had it.
    seen: i64,
    /// Its fetch that is under way, and the change of the controller's (or its own resuming).
    pub(super) fetching: Option<u64>,
    pub(super) changing: Option<u64>,
    pub(super) machine: Machine,
    pub(super) answering_since: Option<Instant>,
    pub(super) leading: Option<Isr>,
    /// Whom it follows in which epoch.
    pub(super) following: Option<(BrokerId, LeaderEpoch)>,
    /// Appends that wait for their acknowledgement, by their end.
    pub(super) waiting: Vec<(Offset, u32)>,
}

impl Node {
    pub(super) fn new(id: BrokerId, now: Instant) -> Self {
        Self {
            id,
            up: false,
            life: 0,
            paused_until: 0,
            log: Vec::new(),
            durable: 0,
            high_watermark: 0,
            image: Arc::default(),
            epoch: 0,
            seen: 0,
            fetching: None,
            changing: None,
            machine: machine(id, now),
            answering_since: None,
            leading: None,
            following: None,
            waiting: Vec::new(),
        }
    }

    /// A new life, with what the disk has.
    pub(super) fn boot(&mut self, now: Instant, image: Arc<Image>) {
        self.up = true;
        self.life += 1;
        self.epoch = 0;
        self.seen = 0;
        self.fetching = None;
        self.changing = None;
        self.image = image;
        self.machine = machine(self.id, now);
        self.answering_since = Some(now);
        self.high_watermark = 0;
    }

    pub(super) fn stop(&mut self) {
        self.up = false;
        self.leading = None;
        self.following = None;
        self.waiting.clear();
    }

    pub(super) fn end(&self) -> Offset {
        Offset::try_from(self.log.len()).unwrap()
    }

    pub(super) fn flushed(&self) -> Offset {
        Offset::try_from(self.durable).unwrap()
    }

    pub(super) fn live(&self) -> LiveBrokers {
        let brokers = self.image.brokers.values();
        brokers
            .filter(|broker| !broker.shutting_down)
            .map(|broker| (broker.id, broker.epoch))
            .collect()
    }

    pub(super) fn rule(&self) -> WatermarkRule {
        let config = self.image.topics.values().next().map(|topic| &topic.config);
        let config = config.expect("an image with a topic");
        WatermarkRule::new(config.flush_messages, config.min_insync_replicas, 3)
    }

    pub(super) fn role(&self) -> Option<&Arc<Partition>> {
        Some(&self.image.topics.values().next()?.partitions[0])
    }

    /// Takes over an image, as `Partition::set_role` does. True if a term begins.
    pub(super) fn take_over(&mut self, image: Arc<Image>, now: Instant) -> bool {
        self.image = image;
        let Some(role) = self.role().cloned() else {
            return false;
        };
        // A registration that is gone changes nothing by itself, as in `Shared::see_brokers`.
        if let Some(broker) = self.image.brokers.get(&self.id) {
            self.seen = broker.epoch;
        }
        let registration = self.seen;
        let same_term = |isr: &Isr| isr.committed().leader_epoch == role.leader_epoch;
        if !leads(&role, self.id, registration) {
            self.leading = None;
            self.waiting.clear();
            let leader = role.leader.filter(|leader| *leader != self.id);
            let following = leader.map(|leader| (leader, role.leader_epoch));
            if following != self.following {
                self.following = following;
                if !holds(Rule::R6) {
                    // As before KIP-101.
                    let keep = usize::try_from(self.high_watermark).unwrap();
                    self.cut(keep);
                }
            }
            return false;
        }
        self.following = None;
        if let Some(isr) = &mut self.leading
            && same_term(isr)
        {
            isr.learn(now, &role);
            return false;
        }
        let mut isr = Isr::new(self.id, role, now);
        isr.begin(self.end());
        self.leading = Some(isr);
        true
    }

    pub(super) fn cut(&mut self, to: usize) {
        self.log.truncate(to);
        self.durable = self.durable.min(to);
    }

    /// The largest epoch up to `epoch` with its end, as `read::end_of_epoch` has it.
    pub(super) fn end_of_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        let current = self
            .leading
            .as_ref()
            .map(|isr| isr.committed().leader_epoch);
        if current == Some(epoch) {
            return (epoch, self.end());
        }
        let end = self.log.partition_point(|(of, _)| *of <= epoch);
        let found = end.checked_sub(1).map_or(epoch, |last| self.log[last].0);
        (found, Offset::try_from(end).unwrap())
    }

    /// Returns the ids whose records are acknowledged by now.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<u32> {
        let live = self.live();
        let own = ReplicaPosition {
            log_end: self.end(),
            flushed: self.flushed(),
        };
        let Some(isr) = &self.leading else {
            return Vec::new();
        };
        let moment = Moment {
            now,
            rule: self.rule(),
            lag_max: LAG_MAX,
            live: &live,
        };
        self.high_watermark = isr.high_watermark(moment, self.high_watermark, own);
        let reached = self.high_watermark;
        let done = self.waiting.extract_if(.., |(end, _)| *end <= reached);
        done.map(|(_, id)| id).collect()
    }
}

fn machine(id: BrokerId, now: Instant) -> Machine {
    let config = MachineConfig {
        broker: id,
        ttl: Duration::from_millis(TTL),
        balance_interval: Some(Duration::from_secs(10)),
    };
    Machine::new(config, now)
}
