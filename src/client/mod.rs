//! A small Kafka client for the tools: bootstrap, versions, routing to leaders and coordinators, retries within a
//! time-out. Not for the broker's own use, and not for speed: requests go one after the other, but for fetches and
//! produce requests to several brokers.

mod admin;
mod apis;
mod assignor;
mod cluster;
mod config;
mod configs;
mod connection;
mod errors;
mod group;
mod groups;
mod offsets;
mod partitioner;
mod producer;
mod records;
mod topics;

pub use admin::{ApiRange, BrokerInfo, BrokerVersions, ClusterDescription};
pub use apis::known_apis;
pub use cluster::Client;
pub use config::ClientConfig;
pub use configs::{ConfigChange, ConfigEntry, ConfigSource, ConfigSynonym, Resource, ResourceKind};
pub use errors::{ClientError, exception_name};
pub use group::{GroupMember, GroupMemberConfig, GroupTurn};
pub use groups::{GroupDescription, GroupListing, GroupMemberDescription};
pub use offsets::{CommittedOffset, ListedOffset, OffsetSpec};
pub use partitioner::{murmur2, partition_of};
pub use producer::Producer;
pub use records::{
    Acks, FetchedRecord, OutgoingRecord, PartitionFetch, ProduceOptions, ProducedBatch,
};
pub use topics::{
    NewTopic, OngoingReassignment, PartitionDescription, TopicDescription, TopicListing,
};

/// What every call of this module comes to.
pub type Result<T> = std::result::Result<T, ClientError>;
