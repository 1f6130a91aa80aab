//! What is read only when somebody looks: the cluster, the partitions, the groups.

use std::fmt::Debug;

use futures_util::future::BoxFuture;

use crate::types::{BrokerId, Offset, PartitionId, TopicName};

/// One partition of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSample {
    pub topic: TopicName,
    pub partition: PartitionId,
    pub leader: Option<BrokerId>,
    pub leader_is_preferred: bool,
    pub replicas: usize,
    pub in_sync_replicas: usize,
    pub min_insync_replicas: usize,
    /// This broker leads it.
    pub led_here: bool,
    /// Being moved to other brokers.
    pub reassigning: bool,
    /// The log on this broker, if it has a replica that is online.
    pub log: Option<LogSample>,
    /// This broker has a replica whose log directory failed.
    pub offline_here: bool,
}

/// The log of a partition on this broker; by default an empty one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogSample {
    pub start_offset: Offset,
    pub end_offset: Offset,
    /// Up to where consumers can read.
    pub high_watermark: Offset,
    pub size: u64,
    pub segments: usize,
    /// Places that are not served because they are damaged.
    pub damaged_places: usize,
}

/// The state of a group, as far as metrics tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStateSample {
    Stable,
    Empty,
    Dead,
    PreparingRebalance,
    CompletingRebalance,
    Other,
}

/// One group that this broker coordinates.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSample {
    pub group: String,
    pub state: GroupStateSample,
    pub members: usize,
    /// Sorted by topic and partition.
    pub offsets: Vec<GroupOffsetSample>,
}

impl GroupSample {
    /// Of what lags most; `None` where nothing is known of any partition.
    pub(super) fn lag_seconds_max(&self) -> Option<f64> {
        let seconds = self.offsets.iter().filter_map(|offset| offset.lag_seconds);
        seconds.reduce(f64::max)
    }
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupOffsetSample {
    pub topic: TopicName,
    pub partition: PartitionId,
    pub offset: Offset,
    /// High watermark minus offset; `None` where the high watermark is not known.
    pub lag: Option<Offset>,
    /// Age of the record at the offset; zero without a lag, `None` where it is not known.
    pub lag_seconds: Option<f64>,
}

/// The cluster as this broker sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSample {
    /// Id and address of each broker that serves.
    pub brokers: Vec<(BrokerId, String)>,
    pub fenced_brokers: usize,
    pub controller: Option<BrokerId>,
    /// Revision of the registry at which it took its seat.
    pub controller_epoch: i64,
    pub is_controller: bool,
    /// Revision of the registry that this broker has seen.
    pub revision: i64,
    pub topics: usize,
    /// Values of the registry that could not be understood.
    pub metadata_errors: usize,
    /// Largest distance of a follower here to its leader.
    pub fetcher_max_lag: u64,
}

/// One of `log.dirs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDirSample {
    pub path: String,
    /// Produce to it is refused until there is room.
    pub full: bool,
    /// Its disk failed.
    pub offline: bool,
}

/// Whether clients can be sent here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// What is missing, in words for an operator; empty: nothing.
    pub missing: Vec<String>,
}

impl Readiness {
    /// Nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Where a scrape reads what is not counted. Called on a runtime worker: must not block on a disk.
pub trait ScrapeSource: Debug + Send + Sync {
    fn cluster(&self) -> ClusterSample;
    fn readiness(&self) -> Readiness;
    /// The effective configuration as JSON, secrets left out.
    fn config(&self) -> String;
    fn log_dirs(&self) -> Vec<LogDirSample>;
    /// Damaged places that were found in logs since the start.
    fn damage_found(&self) -> u64;
    /// Every partition of the cluster, sorted by topic and partition.
    fn partitions(&self) -> Vec<PartitionSample>;
    /// Every group that this broker coordinates, sorted by name.
    fn groups(&self) -> BoxFuture<'_, Vec<GroupSample>>;
}
