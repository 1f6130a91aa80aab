//! The image. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::TopicConfig;
use crate::registry::SeenChange;
use crate::types::{
    BrokerId, LeaderEpoch, ListenerName, PartitionId, TopicId, TopicName, is_internal_topic,
};

/// Where clients of one listener reach a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub listener: ListenerName,
    pub host: String,
    pub port: u16,
}

/// A registered broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    pub id: BrokerId,
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<String>,
    /// Create revision of its registration.
    pub epoch: i64,
    /// Differs with each start of the broker.
    pub incarnation: String,
    /// It wants to stop: its leaderships go elsewhere first.
    pub shutting_down: bool,
}

impl Broker {
    /// Where clients of `listener` reach this broker; `None` if it has no such listener.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| &*endpoint.listener == listener)
    }
}

/// One partition, as the registry has it. `isr ⊆ replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub replicas: Vec<BrokerId>,
    pub isr: Vec<BrokerId>,
    /// Eligible leader replicas (KIP-966); none of them is in the ISR.
    pub elr: Vec<BrokerId>,
    /// Who led last, while nobody leads and nobody is eligible.
    pub last_known_leader: Option<BrokerId>,
    pub partition_epoch: i32,
    /// The broker epoch with which the leader was chosen; 0: of no matter.
    pub leader_registration: i64,
    /// Mod revision of the partition's key: what a change of it compares with. 0: there is no key.
    pub revision: i64,
}

impl Partition {
    /// A partition that was just made, all of its replicas there: the first leads, all are in sync.
    pub fn made(replicas: &[BrokerId]) -> Self {
        Self {
            leader: replicas.first().copied(),
            leader_epoch: 0,
            replicas: replicas.to_vec(),
            isr: replicas.to_vec(),
            elr: Vec::new(),
            last_known_leader: None,
            partition_epoch: 0,
            leader_registration: 0,
            revision: 0,
        }
    }
}

/// One topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Topic {
    pub name: TopicName,
    pub id: TopicId,
    pub partitions: Vec<Arc<Partition>>,
    /// What was set on the topic.
    pub overrides: BTreeMap<String, String>,
    /// The overrides resolved against the broker's values.
    pub config: Arc<TopicConfig>,
}

impl Topic {
    /// `__consumer_offsets`, `__transaction_state`, `__share_group_state`.
    pub fn is_internal(&self) -> bool {
        is_internal_topic(&self.name)
    }
}

/// The cluster at one revision of the registry.
#[derive(Debug, Clone, Default)]
pub struct Image {
    pub revision: i64,
    /// The last key that was written before that.
    pub newest: SeenChange,
    pub cluster_id: Arc<str>,
    pub controller: Option<BrokerId>,
    /// Create revision of the controller's seat: what it did compares with it. 0: nobody sits there.
    pub controller_registration: i64,
    /// Values of the registry that could not be understood, since the first image.
    pub problems: usize,
    /// Those that are there.
    pub brokers: BTreeMap<BrokerId, Arc<Broker>>,
    /// The last registration of every broker that ever was there: those that are not in `brokers` are
    /// fenced, as Kafka calls it.
    pub known_brokers: BTreeMap<BrokerId, Arc<Broker>>,
    /// Whose image this is: it is there for those who ask it, whatever the registry says.
    pub own_id: Option<BrokerId>,
    pub topics: BTreeMap<TopicName, Arc<Topic>>,
    pub topic_names: BTreeMap<TopicId, TopicName>,
    /// Cluster-wide dynamic broker configs (`<default>`).
    pub broker_defaults: BTreeMap<String, String>,
    /// Dynamic configs of single brokers.
    pub broker_configs: BTreeMap<BrokerId, BTreeMap<String, String>>,
    /// Configs of groups (resource type 32) and client metrics (16), as they were set.
    pub group_configs: BTreeMap<String, BTreeMap<String, String>>,
    pub client_metrics_configs: BTreeMap<String, BTreeMap<String, String>>,
}

impl Image {
    /// The brokers that clients are told of, and where they are.
    pub fn reachable(&self) -> impl Iterator<Item = &Arc<Broker>> {
        let own = self.own_id.filter(|id| !self.brokers.contains_key(id));
        let own = own.and_then(|id| self.known_brokers.get(&id));
        self.brokers.values().chain(own)
    }

    /// One of those.
    pub fn reach(&self, id: BrokerId) -> Option<&Arc<Broker>> {
        let own = || {
            self.known_brokers
                .get(&id)
                .filter(|_| self.own_id == Some(id))
        };
        self.brokers.get(&id).or_else(own)
    }

    /// Whether a broker is there and means to stay: it may become a leader.
    pub fn is_active(&self, id: BrokerId) -> bool {
        self.brokers
            .get(&id)
            .is_some_and(|broker| !broker.shutting_down)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(self.topic_names.get(&id)?)
    }

    pub fn partition(&self, topic: &str, partition: PartitionId) -> Option<&Arc<Partition>> {
        self.topics
            .get(topic)?
            .partitions
            .get(usize::try_from(partition).ok()?)
    }
}
