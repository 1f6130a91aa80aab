//! Logging, every metric's name, and the HTTP port that shows them.
//!
//! Metrics are our own atomics and are written as text by hand: the families are fixed, most series
//! are read from the broker's state when somebody looks, and there is no thread that keeps anything up.

pub mod http;
mod instruments;
pub mod logging;
mod metrics;
pub mod names;
mod process;
mod radar;
mod render;
mod samples;

pub use instruments::{Counter, Gauge, Histogram};
pub use metrics::{
    BrokerState, FETCH_FOLLOWER_KEY, ListenerMetrics, Metrics, RegistryTraffic, RequestMetrics,
    RequestTimes, TopicMetrics,
};
pub use radar::{ClientUse, Radar};
pub use render::{Format, PageLimits, PageOptions, Scrape};
pub use samples::{
    ClusterSample, GroupOffsetSample, GroupSample, GroupStateSample, LogDirSample, LogSample,
    PartitionSample, Readiness, ScrapeSource,
};
