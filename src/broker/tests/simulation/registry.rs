//! The registry as it is: one partition, registrations under leases, the controller's seat.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::TopicConfig;
use crate::metadata::{Broker, Image, Partition, Topic};
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, TopicId};

pub(super) const TOPIC: TopicId = TopicId([1; 16]);

#[derive(Debug, Clone)]
struct Registration {
    epoch: i64,
    life: u32,
    expires: u64,
    shutting_down: bool,
}

/// A change of the partition with what it compares.
#[derive(Debug, Clone)]
pub(super) struct Txn {
    /// R1
    pub(super) revision: i64,
    /// R2: of the leader whose proposal it is.
    pub(super) own: Option<(BrokerId, i64)>,
    /// R3: of who joins or is elected.
    pub(super) others: Vec<(BrokerId, i64)>,
    /// R11: the controller's seat.
    pub(super) seat: Option<i64>,
    pub(super) to: Partition,
}

#[derive(Debug)]
pub(super) struct Registry {
    pub(super) revision: i64,
    pub(super) partition: Arc<Partition>,
    config: Arc<TopicConfig>,
    brokers: BTreeMap<BrokerId, Registration>,
    controller: Option<(BrokerId, i64)>,
    pub(super) images: Vec<Arc<Image>>,
}

impl Registry {
    pub(super) fn new(partition: Partition, config: TopicConfig) -> Self {
        Self {
            revision: 1,
            partition: Arc::new(Partition {
                revision: 1,
                ..partition
            }),
            config: Arc::new(config),
            brokers: BTreeMap::new(),
            controller: None,
            images: vec![Arc::new(Image::default())],
        }
    }

    pub(super) fn newest(&self) -> &Arc<Image> {
        self.images.last().unwrap()
    }

    fn publish(&mut self) {
        let topic = Arc::new(Topic {
            name: "t".into(),
            id: TOPIC,
            partitions: vec![Arc::clone(&self.partition)],
            overrides: BTreeMap::new(),
            config: Arc::clone(&self.config),
        });
        let brokers = self.brokers.iter().map(|(id, it)| {
            let broker = Broker {
                id: *id,
                endpoints: Vec::new(),
                rack: None,
                epoch: it.epoch,
                incarnation: it.life.to_string(),
                shutting_down: it.shutting_down,
            };
            (*id, Arc::new(broker))
        });
        let image = Image {
            revision: self.revision,
            controller: self.controller.map(|(id, _)| id),
            controller_registration: self.controller.map_or(0, |(_, seat)| seat),
            brokers: brokers.collect(),
            topics: BTreeMap::from([("t".into(), topic)]),
            topic_names: BTreeMap::from([(TOPIC, "t".into())]),
            ..Image::default()
        };
        self.images.push(Arc::new(image));
    }

    /// Registers a life of a broker, unless another one is registered. `expires` is when its lease ends.
    pub(super) fn register(&mut self, id: BrokerId, life: u32, expires: u64) -> Option<i64> {
        if self.brokers.contains_key(&id) {
            return None;
        }
        self.revision += 1;
        let epoch = self.revision;
        let registration = Registration {
            epoch,
            life,
            expires,
            shutting_down: false,
        };
        self.brokers.insert(id, registration);
        self.publish();
        Some(epoch)
    }

    /// False: the lease is no longer there.
    pub(super) fn keep_alive(&mut self, id: BrokerId, epoch: i64, expires: u64) -> bool {
        match self.brokers.get_mut(&id) {
            Some(registration) if registration.epoch == epoch => {
                registration.expires = registration.expires.max(expires);
                true
            }
            _ => false,
        }
    }

    /// Takes what has run out.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let gone: Vec<BrokerId> = self
            .brokers
            .iter()
            .filter(|(_, registration)| registration.expires <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in &gone {
            self.brokers.remove(id);
            if self
                .controller
                .is_some_and(|(controller, _)| controller == *id)
            {
                self.controller = None;
            }
        }
        if !gone.is_empty() {
            self.revision += 1;
            self.publish();
        }
        !gone.is_empty()
    }

    pub(super) fn sit(&mut self, id: BrokerId, epoch: i64) -> bool {
        let registered = self.brokers.get(&id).is_some_and(|it| it.epoch == epoch);
        if self.controller.is_some() || !registered {
            return false;
        }
        self.revision += 1;
        self.controller = Some((id, self.revision));
        self.publish();
        true
    }

    /// Whether all compares held, and the revision if so.
    pub(super) fn txn(&mut self, txn: &Txn) -> Option<i64> {
        let registered = |(id, epoch): &(BrokerId, i64)| {
            self.brokers.get(id).is_some_and(|it| it.epoch == *epoch)
        };
        let compares = (!holds(Rule::R1) || txn.revision == self.partition.revision)
            && (!holds(Rule::R2) || txn.own.iter().all(registered))
            && (!holds(Rule::R3) || txn.others.iter().all(registered))
            && (!holds(Rule::R11)
                || txn
                    .seat
                    .is_none_or(|seat| self.controller.is_some_and(|(_, is)| is == seat)));
        if !compares {
            return None;
        }
        self.revision += 1;
        self.partition = Arc::new(Partition {
            revision: self.revision,
            ..txn.to.clone()
        });
        self.publish();
        Some(self.revision)
    }
}
