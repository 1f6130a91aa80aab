//! What a produced batch must be before it is appended (Kafka's `ProduceRequest.validateRecords`,
//! `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`).

use std::ops::ControlFlow;

use bytes::Bytes;

use super::batch::{
    ATTRIBUTES_POSITION, BATCH_HEADER_BYTES, HEADER_BYTES_UP_TO_MAGIC, LOG_OVERHEAD_BYTES, MAGIC,
    MAGIC_POSITION,
};
use super::records::{self, DecompressedLimits, RecordStamp};
use super::{BatchHeader, RecordError, builder, compression, crc};
use crate::config::{CompressionPolicy, TopicConfig};
use crate::types::{
    Compression, ErrorCode, NO_TIMESTAMP, TimestampMs, TimestampType, TopicPartition,
};

/// The first version of Produce that may carry Zstandard (KIP-110).
const ZSTD_PRODUCE_VERSION: i16 = 7;
/// A batch length below this is corrupt to Kafka before it looks at the magic (`RECORD_OVERHEAD_V0`).
const BATCH_LENGTH_MIN: i32 = 14;
/// A response names at most this many faulty records, so that a batch of tiny ones does not swell it.
const RECORD_ERRORS_MAX: usize = 1000;

/// What the topic and the request demand of a batch.
#[derive(Debug, Clone)]
pub struct ValidationRules<'a> {
    /// Only for the messages.
    pub partition: &'a TopicPartition,
    pub topic: &'a TopicConfig,
    pub now_ms: TimestampMs,
    /// Version of the Produce request (zstd needs 7), or the newest for internal appends.
    pub produce_version: i16,
    /// The broker's own batch, which may hold control records.
    pub internal: bool,
}

/// A batch that may be appended: header as it will be stored but for base offset and leader epoch.
#[derive(Debug, Clone)]
pub struct ValidBatch {
    pub header: BatchHeader,
    /// The bytes behind the header; a slice of the request's frame unless recompressed.
    pub payload: Bytes,
    /// Offset delta of (the first record with) the largest timestamp.
    pub max_timestamp_delta: i32,
}

/// Why a batch was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidBatch {
    pub error: ErrorCode,
    /// What the response says besides the code; Kafka does so for faulty records only.
    pub message: Option<String>,
    /// Index and message of each faulty record (Produce v8+).
    pub record_errors: Vec<(i32, Option<String>)>,
    /// Kafka finds this fault in the partition rather than in the request: the response carries the
    /// log start offset instead of −1.
    pub names_log_start: bool,
}

impl From<ErrorCode> for InvalidBatch {
    fn from(error: ErrorCode) -> Self {
        Self {
            error,
            message: None,
            record_errors: Vec::new(),
            names_log_start: false,
        }
    }
}

impl InvalidBatch {
    /// A fault that Kafka finds in the partition.
    fn in_partition(error: ErrorCode) -> Self {
        Self {
            names_log_start: true,
            ..error.into()
        }
    }

    /// Bytes that do not even start like a batch.
    fn corrupt(message: String) -> Self {
        Self {
            message: Some(message),
            ..ErrorCode::CorruptMessage.into()
        }
    }
}

impl From<RecordError> for InvalidBatch {
    /// Malformed records are INVALID_RECORD. Records that would not stop are MESSAGE_TOO_LARGE, on
    /// which producers split the batch.
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::TooLarge => ErrorCode::MessageTooLarge.into(),
            RecordError::UnknownCodec => Self::in_partition(ErrorCode::UnsupportedCompressionType),
            _ => Self::in_partition(ErrorCode::InvalidRecord),
        }
    }
}

/// Checks the one batch of a Produce partition and makes it what the topic wants.
pub fn validate(records: &Bytes, rules: &ValidationRules<'_>) -> Result<ValidBatch, InvalidBatch> {
    let bytes_max = compression::decompressed_bytes_max(rules.topic.max_message_bytes);
    validate_within(records, rules, bytes_max)
}

/// The same for callers that cannot wait for a batch to be decompressed however large: one whose
/// records are more than `decompressed_bytes_max` is refused with MESSAGE_TOO_LARGE.
pub fn validate_within(
    records: &Bytes,
    rules: &ValidationRules<'_>,
    decompressed_bytes_max: usize,
) -> Result<ValidBatch, InvalidBatch> {
    let bytes = the_one_batch(records)?;
    let mut header = check_batch(&records[..bytes], rules)?;
    let source = header.compression().ok_or(RecordError::UnknownCodec)?;
    let mut payload = records.slice(BATCH_HEADER_BYTES..bytes);
    let limits = DecompressedLimits {
        bytes_max: decompressed_bytes_max,
        record_bytes_max: usize::try_from(rules.topic.max_decompressed_message_bytes).unwrap_or(0),
    };
    let mut walk = Walk::new(&header, rules);
    records::scan_within(&header, &payload, limits, |stamp| walk.visit(stamp))?;
    let (max_timestamp, max_timestamp_delta, in_order) = walk.finish()?;

    let target = match rules.topic.compression {
        // Control records are not compressed.
        CompressionPolicy::Always(codec) if !header.is_control() => codec,
        _ => source,
    };
    if source == target && in_order {
        if stamp(&mut header, target, max_timestamp, rules) {
            header.crc = header.compute_crc(&payload);
        }
    } else {
        let mut plain = compression::decompress(source, &payload, decompressed_bytes_max)?;
        if !in_order {
            plain = builder::renumber(&plain, header.record_count)?.into();
        }
        payload = match target {
            Compression::None => plain,
            codec => compression::compress_at(codec, &plain, levels(rules.topic))
                .map_err(|_| ErrorCode::UnknownServerError)?
                .into(),
        };
        stamp(&mut header, target, max_timestamp, rules);
        header.seal(&payload);
        check_size(&header, rules)?;
    }
    Ok(ValidBatch {
        header,
        payload,
        max_timestamp_delta: match rules.topic.timestamp_type {
            TimestampType::CreateTime => max_timestamp_delta,
            TimestampType::LogAppendTime => 0,
        },
    })
}

fn levels(topic: &TopicConfig) -> compression::CompressionLevels {
    compression::CompressionLevels {
        gzip: topic.compression_gzip_level,
        lz4: topic.compression_lz4_level,
        zstd: topic.compression_zstd_level,
    }
}

/// Finds the length of the only batch. Bytes behind it that are no batch are ignored, as Kafka does;
/// they are not appended.
fn the_one_batch(records: &[u8]) -> Result<usize, InvalidBatch> {
    let bytes = next_batch(records)?.ok_or(ErrorCode::InvalidRecord)?;
    if i8::from_be_bytes([records[MAGIC_POSITION]]) != MAGIC {
        return Err(ErrorCode::InvalidRecord.into());
    }
    match next_batch(&records[bytes..]) {
        Ok(None) => Ok(bytes),
        Ok(Some(_)) => Err(ErrorCode::InvalidRecord.into()),
        Err(invalid) => Err(invalid.error.into()),
    }
}

/// The length of the batch at the front; `None` if it is not whole
/// (`ByteBufferLogInputStream.nextBatch`).
fn next_batch(bytes: &[u8]) -> Result<Option<usize>, InvalidBatch> {
    let Some(overhead) = bytes.first_chunk::<LOG_OVERHEAD_BYTES>() else {
        return Ok(None);
    };
    let [.., a, b, c, d] = *overhead;
    let batch_length = i32::from_be_bytes([a, b, c, d]);
    if batch_length < BATCH_LENGTH_MIN {
        return Err(InvalidBatch::corrupt(format!(
            "Record size {batch_length} is less than the minimum record overhead \
             ({BATCH_LENGTH_MIN})"
        )));
    }
    if bytes.len() < HEADER_BYTES_UP_TO_MAGIC {
        return Ok(None);
    }
    let magic = i8::from_be_bytes([bytes[MAGIC_POSITION]]);
    if !(0..=MAGIC).contains(&magic) {
        return Err(InvalidBatch::corrupt(format!(
            "Invalid magic found in record: {magic}"
        )));
    }
    let total = usize::try_from(batch_length).unwrap_or(usize::MAX - LOG_OVERHEAD_BYTES)
        + LOG_OVERHEAD_BYTES;
    Ok((total <= bytes.len()).then_some(total))
}

/// Checks everything but the records. `batch` is exactly one batch with magic 2.
fn check_batch(batch: &[u8], rules: &ValidationRules<'_>) -> Result<BatchHeader, InvalidBatch> {
    let header = BatchHeader::parse(batch).map_err(|_| ErrorCode::CorruptMessage)?;
    if header.compression() == Some(Compression::Zstd)
        && rules.produce_version < ZSTD_PRODUCE_VERSION
    {
        return Err(ErrorCode::UnsupportedCompressionType.into());
    }
    if !rules.internal && header.base_offset != 0 {
        return Err(InvalidBatch::in_partition(ErrorCode::InvalidRecord));
    }
    check_size(&header, rules)?;
    if crc::of(&batch[ATTRIBUTES_POSITION..]) != header.crc {
        return Err(ErrorCode::CorruptMessage.into());
    }
    if !rules.internal {
        let counts_agree =
            i64::from(header.last_offset_delta) + 1 == i64::from(header.record_count);
        let sequence_missing = header.has_producer_id() && header.base_sequence < 0;
        if header.record_count <= 0 || !counts_agree || header.is_control() || sequence_missing {
            return Err(InvalidBatch::in_partition(ErrorCode::InvalidRecord));
        }
    }
    Ok(header)
}

fn check_size(header: &BatchHeader, rules: &ValidationRules<'_>) -> Result<(), ErrorCode> {
    let bytes_max = usize::try_from(rules.topic.max_message_bytes).unwrap_or(0);
    if header.total_bytes() > bytes_max {
        return Err(ErrorCode::MessageTooLarge);
    }
    Ok(())
}

/// Gives the header the codec and the timestamps that it is stored with. Returns true if that changed
/// bytes under the checksum. What a producer claims as its largest timestamp is corrected silently.
fn stamp(
    header: &mut BatchHeader,
    target: Compression,
    max_timestamp: TimestampMs,
    rules: &ValidationRules<'_>,
) -> bool {
    let timestamp_type = rules.topic.timestamp_type;
    let max_timestamp = match timestamp_type {
        TimestampType::CreateTime => max_timestamp,
        TimestampType::LogAppendTime => rules.now_ms,
    };
    if header.timestamp_type() == timestamp_type
        && header.max_timestamp == max_timestamp
        && header.compression() == Some(target)
    {
        return false;
    }
    header.rewrite_attributes(target, timestamp_type);
    header.max_timestamp = max_timestamp;
    true
}

/// Checks record by record and remembers the largest timestamp.
struct Walk<'a> {
    rules: &'a ValidationRules<'a>,
    header: &'a BatchHeader,
    /// The client set the bit that only the broker may set.
    stamped_by_client: bool,
    count: i32,
    max_timestamp: TimestampMs,
    max_timestamp_delta: i32,
    /// Offset deltas are 0, 1, 2 …
    in_order: bool,
    faults: usize,
    timestamp_fault: bool,
    errors: Vec<(i32, Option<String>)>,
}

impl<'a> Walk<'a> {
    fn new(header: &'a BatchHeader, rules: &'a ValidationRules<'a>) -> Self {
        Self {
            rules,
            header,
            stamped_by_client: header.timestamp_type() == TimestampType::LogAppendTime,
            count: 0,
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_delta: 0,
            in_order: true,
            faults: 0,
            timestamp_fault: false,
            errors: Vec::new(),
        }
    }

    #[inline]
    fn visit(&mut self, stamp: RecordStamp) -> ControlFlow<()> {
        // The record's own time, even if the bit says that the batch has one for all: it is stored
        // without that bit.
        let timestamp = self
            .header
            .base_timestamp
            .wrapping_add(stamp.timestamp_delta);
        let keyless = self.rules.topic.cleanup_policy.compact && stamp.key_bytes.is_none();
        if keyless || self.is_timestamp_faulty(timestamp) {
            self.refuse(&stamp, timestamp, keyless);
        }
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_delta = self.count;
        }
        self.in_order &= stamp.offset_delta == self.count;
        self.count += 1;
        ControlFlow::Continue(())
    }

    #[inline]
    fn is_timestamp_faulty(&self, timestamp: TimestampMs) -> bool {
        let topic = self.rules.topic;
        if topic.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
            let age = self.rules.now_ms.wrapping_sub(timestamp);
            age > topic.timestamp_before_max_ms || age.wrapping_neg() > topic.timestamp_after_max_ms
        } else {
            self.stamped_by_client
        }
    }

    #[cold]
    fn refuse(&mut self, stamp: &RecordStamp, timestamp: TimestampMs, keyless: bool) {
        self.faults += 1;
        self.timestamp_fault |= !keyless;
        if self.errors.len() >= RECORD_ERRORS_MAX {
            return;
        }
        let topic = self.rules.topic;
        let message = if keyless {
            format!(
                "Compacted topic cannot accept message without key in topic partition {}",
                self.rules.partition
            )
        } else if topic.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
            format!(
                "Timestamp {timestamp} of message with offset {} is out of range. \
                 The timestamp should be within [{}, {}]",
                self.header
                    .base_offset
                    .wrapping_add(i64::from(stamp.offset_delta)),
                self.rules
                    .now_ms
                    .wrapping_sub(topic.timestamp_before_max_ms),
                self.rules.now_ms.wrapping_add(topic.timestamp_after_max_ms),
            )
        } else {
            // Kafka prints what its iterator made, and that skips the contents of compressed records.
            let (class, null) = match self.header.compression() {
                Some(Compression::None) => ("DefaultRecord", 0),
                _ => ("PartialDefaultRecord", -1),
            };
            let shown = |bytes: Option<usize>| bytes.map_or(null, |bytes| bytes as i64);
            format!(
                "Invalid timestamp type in message {class}(offset={}, timestamp={}, \
                 key={} bytes, value={} bytes). Producer should not set timestamp type to \
                 LogAppendTime.",
                self.header
                    .base_offset
                    .wrapping_add(i64::from(stamp.offset_delta)),
                self.header.max_timestamp,
                shown(stamp.key_bytes),
                shown(stamp.value_bytes),
            )
        };
        self.errors.push((self.count, Some(message)));
    }

    fn finish(self) -> Result<(TimestampMs, i32, bool), InvalidBatch> {
        if self.faults == 0 {
            return Ok((self.max_timestamp, self.max_timestamp_delta, self.in_order));
        }
        if self.timestamp_fault {
            return Err(InvalidBatch {
                error: ErrorCode::InvalidTimestamp,
                message: Some(
                    "One or more records have been rejected due to invalid timestamp".to_owned(),
                ),
                record_errors: self.errors,
                names_log_start: true,
            });
        }
        let shown: Vec<String> = self
            .errors
            .iter()
            .take(3)
            .map(|(index, message)| {
                let message = message.as_deref().unwrap_or_default();
                format!("RecordError(batchIndex={index}, message='{message}')")
            })
            .collect();
        Err(InvalidBatch {
            error: ErrorCode::InvalidRecord,
            message: Some(format!(
                "One or more records have been rejected due to {} record errors in total, and only \
                 showing the first three errors at most: [{}]",
                self.faults,
                shown.join(", ")
            )),
            record_errors: self.errors,
            names_log_start: true,
        })
    }
}

#[cfg(test)]
mod tests;
