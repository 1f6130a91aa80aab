//! Record batches (magic 2) as bytes. Pure.
//!
//! Nothing here decodes a batch and encodes it again: what a producer sent is what a consumer gets,
//! unless the topic's `compression.type` asks for another codec or the offsets inside are wrong.

mod batch;
mod builder;
mod compression;
mod crc;
mod error;
mod records;
mod replica;
#[cfg(test)]
mod samples;
mod validate;
mod varint;

pub use batch::{BATCH_HEADER_BYTES, BatchHeader, LOG_OVERHEAD_BYTES, MAGIC};
pub use builder::{BatchBuilder, Headers};
pub use compression::{compress, decompress, decompressed_bytes_max};
pub use error::{HeaderError, RecordError};
pub use records::{Record, RecordHeaders, RecordStamp, Records, scan};
pub use replica::{ReplicaBatch, ReplicaBatchError, ReplicaBatches, ReplicaRules};
pub use validate::{InvalidBatch, ValidBatch, ValidationRules, validate, validate_within};
