//! One file per Kafka API. The table at the end of this file is what ApiVersions answers.
//!
//! A handler translates, authorises, calls and translates back.

mod context;

pub use context::{Context, RequestInfo};
