//! One replica of one partition, and all of them. The only writers of the logs.

mod append;
mod batches;
mod fetch;
mod fetch_session;
mod fetcher;
mod follower;
pub(crate) mod isr;
mod leader;
mod leave;
mod parking;
mod partition;
mod publisher;
mod read;
mod replicas;
pub(crate) mod role;
mod sessions;
mod shared;
mod strays;
mod waiters;
pub(crate) mod watermark;

pub use append::{Acks, AppendFailure, AppendOptions, PendingAppend};
pub use fetch::{FetchLimits, FetchSource, FetchTarget, Fetched, fetch};
pub use fetch_session::{SessionPartition, SessionPartitions, SessionRequest, Told};
#[cfg(test)]
pub(crate) use fetcher::Simulated;
pub use fetcher::{FetcherSettings, ReplicaFetchers};
pub use leader::FetchingReplica;
pub use partition::Partition;
pub use publisher::IsrPublisher;
pub use read::{OffsetQuery, PartitionRead, ReadRequest};
pub use replicas::Replicas;
pub use sessions::{FetchSessions, SharedSession};
pub use shared::ReplicasConfig;
pub use waiters::FetchBound;

// What the log tells, for those above who do not know it.
pub use crate::log::{
    Appended, FileRange, LogDirDescription, LogDirState, LogSlice, ProducerView, TimestampOffset,
};

#[cfg(test)]
mod tests;
