//! One replica of one partition, and all of them. The only writers of the logs.

mod partition;
mod replicas;

pub use partition::{Acks, AppendFailure, AppendOptions, FetchBound, Partition, PartitionRead};
pub use replicas::Replicas;
