//! Following leaders: for each leader some fetchers, each with a connection of its own and a share of the
//! partitions that it leads (Kafka's `ReplicaFetcherManager` and `AbstractFetcherThread`).

mod assignment;
mod machine;
mod session;
mod task;

pub(super) use machine::{Position, truncation_offset};
#[cfg(test)]
pub(crate) use task::Simulated;
pub use task::{FetcherSettings, ReplicaFetchers};
