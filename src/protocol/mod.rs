//! The wire protocol around the `kafka-protocol` codec. Pure.

pub mod fetch;
pub mod frame;
pub mod guard;
pub mod list_offsets;
pub mod log_dirs;
pub mod produce;
pub mod request;
pub mod response;
mod topic;
pub mod wire;

pub use request::{HeaderError, RequestHeader};
pub use response::{Chunk, Completion, Response, Timing};
pub use topic::{CurrentLeader, NodeEndpoint, TopicKey};
pub use wire::MalformedBody;
