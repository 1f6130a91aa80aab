//! What can be wrong with the bytes of a batch.

/// Why bytes are not the header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("fewer bytes than a batch header has")]
    Truncated,
    #[error("magic {0} is not 2")]
    Magic(i8),
    #[error("batch length {0} is less than a header")]
    Length(i32),
}

/// Why the records of a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("the records end before the last one that the batch counts")]
    Truncated,
    #[error("bytes follow the last record that the batch counts")]
    Trailing,
    #[error("a varint is too long")]
    Varint,
    #[error("a record is malformed: {0}")]
    Malformed(&'static str),
    #[error("no such codec")]
    UnknownCodec,
    #[error("the payload cannot be decompressed")]
    Decompress,
    #[error("the records decompress to more bytes than allowed")]
    TooLarge,
}
