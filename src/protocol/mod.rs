//! The wire protocol around the `kafka-protocol` codec. Pure.

pub mod frame;
pub mod request;
pub mod response;

pub use request::{HeaderError, RequestHeader};
pub use response::{Chunk, Completion, Response};
