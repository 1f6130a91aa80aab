//! Record batches (magic 2) as bytes. Pure.
//!
//! Nothing here decodes a batch and encodes it again: what a producer sent is what a consumer gets,
//! unless the topic's `compression.type` asks for another codec.

mod batch;
mod validate;

pub use batch::{BATCH_HEADER_BYTES, BatchHeader};
pub use validate::{InvalidBatch, ValidBatch, ValidationRules, validate};
