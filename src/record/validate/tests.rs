use proptest::prelude::*;

use super::*;
use crate::config::CleanupPolicy;
use crate::record::samples::{SAMPLES, unhex};
use crate::record::{BatchBuilder, Records, compress, varint};

const NOW: TimestampMs = 1_795_974_243_334;

struct Case {
    topic: TopicConfig,
    produce_version: i16,
    internal: bool,
}

impl Case {
    fn new() -> Self {
        Self {
            topic: TopicConfig::default(),
            produce_version: 8,
            internal: false,
        }
    }

    fn compacted() -> Self {
        let mut case = Self::new();
        case.topic.cleanup_policy = CleanupPolicy {
            delete: false,
            compact: true,
        };
        case
    }

    fn stamping() -> Self {
        let mut case = Self::new();
        case.topic.timestamp_type = TimestampType::LogAppendTime;
        case
    }

    fn compressing(codec: Compression) -> Self {
        let mut case = Self::new();
        case.topic.compression = CompressionPolicy::Always(codec);
        case
    }

    fn validate(&self, records: &Bytes) -> Result<ValidBatch, InvalidBatch> {
        let rules = ValidationRules {
            partition: &TopicPartition::new("prc", 0),
            topic: &self.topic,
            now_ms: NOW,
            produce_version: self.produce_version,
            internal: self.internal,
        };
        validate(records, &rules)
    }

    fn error(&self, records: &Bytes) -> ErrorCode {
        self.validate(records).map(|_| ()).unwrap_err().error
    }
}

/// A batch of this payload, with what `change` does to its header under the checksum.
fn batch(payload: &[u8], count: i32, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: 0,
        partition_leader_epoch: -1,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: NOW,
        max_timestamp: NOW,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: count,
    };
    change(&mut header);
    header.seal(payload);
    [&header.encode()[..], payload].concat().into()
}

fn patched(records: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut records = records.to_vec();
    records[at..at + bytes.len()].copy_from_slice(bytes);
    records.into()
}

/// Key `k<i>`, value `v`, no headers, timestamp delta 0.
fn payload(count: u8) -> Vec<u8> {
    (0..count)
        .flat_map(|index| [0x12, 0, 0, index * 2, 4, b'k', b'0' + index, 2, b'v', 0])
        .collect()
}

fn plain(count: u8) -> Bytes {
    batch(&payload(count), i32::from(count), |_| {})
}

#[track_caller]
fn assert_sealed(valid: &ValidBatch) {
    assert_eq!(valid.header.compute_crc(&valid.payload), valid.header.crc);
    assert_eq!(valid.header.payload_bytes(), valid.payload.len());
}

#[test]
fn what_clients_send_is_kept_as_it_is() {
    for sample in SAMPLES {
        let bytes = sample.bytes();
        let mut case = Case::new();
        case.topic.timestamp_after_max_ms = i64::MAX;
        let valid = case.validate(&bytes).unwrap();
        assert_eq!(valid.header, BatchHeader::parse(&bytes).unwrap());
        // Not a copy.
        assert_eq!(valid.payload.as_ptr(), bytes[BATCH_HEADER_BYTES..].as_ptr());
    }
}

#[test]
fn every_topic_codec_takes_every_client_codec() {
    for sample in SAMPLES {
        for target in [
            Compression::None,
            Compression::Gzip,
            Compression::Snappy,
            Compression::Lz4,
            Compression::Zstd,
        ] {
            let bytes = sample.bytes();
            let sent = BatchHeader::parse(&bytes).unwrap();
            let mut case = Case::compressing(target);
            case.topic.timestamp_after_max_ms = i64::MAX;
            let valid = case.validate(&bytes).unwrap();
            assert_sealed(&valid);
            assert_eq!(valid.header.compression(), Some(target));
            assert_eq!(valid.header.producer_id, sent.producer_id);
            assert_eq!(valid.header.max_timestamp, sent.max_timestamp);
            let before = compression::decompress(
                sample.compression,
                &bytes.slice(BATCH_HEADER_BYTES..),
                1 << 20,
            );
            let after = compression::decompress(target, &valid.payload, 1 << 20);
            assert_eq!(before, after);
        }
    }
}

/// The expected codes of these were seen on Apache Kafka 4.4.
#[test]
fn a_request_without_exactly_one_batch_is_refused() {
    let case = Case::new();
    let one = plain(1);
    assert_eq!(case.error(&Bytes::new()), ErrorCode::InvalidRecord);
    assert_eq!(case.error(&one.slice(..13)), ErrorCode::InvalidRecord);
    assert_eq!(
        case.error(&one.slice(..one.len() - 1)),
        ErrorCode::InvalidRecord
    );
    let two = [&one[..], &one[..]].concat().into();
    assert_eq!(case.error(&two), ErrorCode::InvalidRecord);
    // A hidden batch of the old format; bytes that are no batch.
    let hidden = [&one[..], &patched(&one, 16, &[0])[..]].concat().into();
    assert_eq!(case.error(&hidden), ErrorCode::InvalidRecord);
    let zeros = [&one[..], &[0; 20]].concat().into();
    assert_eq!(case.error(&zeros), ErrorCode::CorruptMessage);
    // A cut-off batch behind the first is ignored, and not appended.
    let cut = Bytes::from([&one[..], &one[..one.len() - 3]].concat());
    let valid = case.validate(&cut).unwrap();
    assert_eq!(valid.payload, payload(1));
}

#[test]
fn lengths_and_magic_are_looked_at_first() {
    let case = Case::new();
    let one = plain(1);
    for length in [0i32, 13, -1, i32::MIN] {
        let refused = case
            .validate(&patched(&one, 8, &length.to_be_bytes()))
            .unwrap_err();
        assert_eq!(refused.error, ErrorCode::CorruptMessage);
        assert_eq!(
            refused.message.unwrap(),
            format!("Record size {length} is less than the minimum record overhead (14)")
        );
    }
    for (length, error) in [
        (14, ErrorCode::CorruptMessage),
        (48, ErrorCode::CorruptMessage),
        (49, ErrorCode::CorruptMessage),
        (1_000_000, ErrorCode::InvalidRecord),
        (i32::MAX, ErrorCode::InvalidRecord),
    ] {
        let records = patched(&one, 8, &i32::to_be_bytes(length));
        assert_eq!(case.error(&records), error, "length {length}");
    }
    for (magic, error) in [
        (0, ErrorCode::InvalidRecord),
        (1, ErrorCode::InvalidRecord),
        (3, ErrorCode::CorruptMessage),
        (127, ErrorCode::CorruptMessage),
        (255, ErrorCode::CorruptMessage),
    ] {
        assert_eq!(
            case.error(&patched(&one, 16, &[magic])),
            error,
            "magic {magic}"
        );
    }
    let refused = case.validate(&patched(&one, 16, &[255])).unwrap_err();
    assert_eq!(
        refused.message.as_deref(),
        Some("Invalid magic found in record: -1")
    );
}

#[test]
fn the_header_must_agree_with_itself() {
    let case = Case::new();
    let check = |count, change: &dyn Fn(&mut BatchHeader)| {
        case.validate(&batch(&payload(2), count, change))
            .map(|_| ())
    };
    let refused = Err(InvalidBatch::in_partition(ErrorCode::InvalidRecord));
    assert_eq!(check(2, &|_| {}), Ok(()));
    for delta in [0, 5, -1, i32::MAX, i32::MIN] {
        assert_eq!(check(2, &|h| h.last_offset_delta = delta), refused);
    }
    for count in [0, -1, 1, 3, i32::MAX, i32::MIN + 1] {
        assert_eq!(check(count, &|_| {}), refused, "count {count}");
    }
    assert_eq!(check(2, &|h| h.attributes = 0x20), refused);
    assert_eq!(check(2, &|h| h.base_offset = 5), refused);
    assert_eq!(check(2, &|h| h.base_offset = i64::MAX), refused);
    assert_eq!(
        check(2, &|h| (h.producer_id, h.producer_epoch) = (5, 0)),
        refused
    );
    let producer = |h: &mut BatchHeader| (h.producer_id, h.base_sequence) = (5, 0);
    assert_eq!(check(2, &producer), Ok(()));
    assert_eq!(
        case.error(&patched(&plain(2), 60, &[3])),
        ErrorCode::CorruptMessage
    );
}

#[test]
fn unknown_attributes_stay_unless_the_header_is_written_anew() {
    let records = batch(&payload(1), 1, |h| h.attributes = 0x7f80);
    let valid = Case::new().validate(&records).unwrap();
    assert_eq!(valid.header.attributes, 0x7f80);
    let records = batch(&payload(1), 1, |h| {
        (h.attributes, h.max_timestamp) = (0x7f90, NOW + 999);
    });
    let valid = Case::new().validate(&records).unwrap();
    assert_eq!(valid.header.attributes, 0x10);
    assert_eq!(valid.header.max_timestamp, NOW);
    assert_sealed(&valid);
}

#[test]
fn codecs_have_their_versions() {
    for codec in [5, 6, 7] {
        let records = batch(&payload(1), 1, |h| h.attributes = codec);
        assert_eq!(
            Case::new().error(&records),
            ErrorCode::UnsupportedCompressionType
        );
    }
    let zstd = compress(Compression::Zstd, &payload(1)).unwrap();
    let records = batch(&zstd, 1, |h| h.attributes = 4);
    let mut case = Case::new();
    assert!(case.validate(&records).is_ok());
    case.produce_version = 6;
    assert_eq!(case.error(&records), ErrorCode::UnsupportedCompressionType);
}

#[test]
fn a_batch_larger_than_the_topic_takes_is_refused_before_its_checksum() {
    let mut case = Case::new();
    case.topic.max_message_bytes = 70;
    assert_eq!(case.error(&plain(1)), ErrorCode::MessageTooLarge);
    assert_eq!(
        case.error(&patched(&plain(1), 60, &[3])),
        ErrorCode::MessageTooLarge
    );
    case.topic.max_message_bytes = 71;
    assert!(case.validate(&plain(1)).is_ok());
    // Small enough as sent, but not as the topic wants it.
    let zeros = [&[0xd6, 1, 0, 0, 0, 1, 0xc8, 1][..], &[0; 100], &[0]].concat();
    let gzip = compress(Compression::Gzip, &zeros).unwrap();
    let records = batch(&gzip, 1, |h| h.attributes = 1);
    let mut case = Case::compressing(Compression::None);
    case.topic.max_message_bytes = 169;
    assert_eq!(case.error(&records), ErrorCode::MessageTooLarge);
    case.topic.max_message_bytes = 170;
    assert!(case.validate(&records).is_ok());
}

#[test]
fn keyless_records_are_named_on_a_compacted_topic() {
    let mut builder = BatchBuilder::new();
    for key in [None, Some(&b"k"[..]), None] {
        builder.push(NOW, key, Some(b"x"));
    }
    let records = builder.build();
    assert!(Case::new().validate(&records).is_ok());
    let refused = Case::compacted().validate(&records).unwrap_err();
    let keyless = "Compacted topic cannot accept message without key in topic partition prc-0";
    assert_eq!(refused.error, ErrorCode::InvalidRecord);
    assert_eq!(
        refused.record_errors,
        [(0, Some(keyless.to_owned())), (2, Some(keyless.to_owned()))]
    );
    assert_eq!(
        refused.message.unwrap(),
        format!(
            "One or more records have been rejected due to 2 record errors in total, and only \
             showing the first three errors at most: [RecordError(batchIndex=0, \
             message='{keyless}'), RecordError(batchIndex=2, message='{keyless}')]"
        )
    );
}

#[test]
fn the_list_of_faulty_records_is_bounded() {
    let mut builder = BatchBuilder::new();
    for _ in 0..5000 {
        builder.push(NOW, None, None);
    }
    let refused = Case::compacted().validate(&builder.build()).unwrap_err();
    assert_eq!(refused.record_errors.len(), RECORD_ERRORS_MAX);
    assert!(
        refused
            .message
            .unwrap()
            .contains("due to 5000 record errors")
    );
}

#[test]
fn timestamps_have_bounds() {
    let stamped = |timestamp| {
        let mut builder = BatchBuilder::new();
        builder.push(timestamp, Some(b"x"), Some(b"x"));
        builder.push(NOW, Some(b"x"), Some(b"x"));
        builder.build()
    };
    let case = Case::new();
    let refused = case.validate(&stamped(NOW + 7_200_000)).unwrap_err();
    assert_eq!(refused.error, ErrorCode::InvalidTimestamp);
    assert_eq!(
        refused.message.as_deref(),
        Some("One or more records have been rejected due to invalid timestamp")
    );
    assert_eq!(refused.record_errors.len(), 1);
    assert_eq!(
        refused.record_errors[0].1.as_deref(),
        Some(
            "Timestamp 1795981443334 of message with offset 0 is out of range. The timestamp \
             should be within [-9223370240880532473, 1795977843334]"
        )
    );
    for timestamp in [NOW + 3_600_000, -1, -5, 0] {
        assert!(case.validate(&stamped(timestamp)).is_ok(), "{timestamp}");
    }
    for timestamp in [NOW + 3_600_001, i64::MAX, i64::MIN] {
        assert_eq!(
            case.error(&stamped(timestamp)),
            ErrorCode::InvalidTimestamp,
            "{timestamp}"
        );
    }
    let mut case = Case::new();
    case.topic.timestamp_before_max_ms = 10;
    assert!(case.validate(&stamped(NOW - 10)).is_ok());
    assert!(case.validate(&stamped(-1)).is_ok());
    assert_eq!(case.error(&stamped(NOW - 11)), ErrorCode::InvalidTimestamp);
    // Both faults: the worse one names the batch.
    let mut builder = BatchBuilder::new();
    builder.push(NOW, None, None);
    builder.push(i64::MAX, Some(b"k"), None);
    let refused = Case::compacted().validate(&builder.build()).unwrap_err();
    assert_eq!(refused.error, ErrorCode::InvalidTimestamp);
    assert_eq!(refused.record_errors.len(), 2);
}

#[test]
fn the_largest_timestamp_is_found_not_believed() {
    let mut builder = BatchBuilder::new();
    for timestamp in [NOW - 5, NOW, NOW, NOW - 7] {
        builder.push(timestamp, Some(b"k"), None);
    }
    let records = builder.build();
    let sent = BatchHeader::parse(&records).unwrap();
    let valid = Case::new().validate(&records).unwrap();
    assert_eq!((valid.header, valid.max_timestamp_delta), (sent, 1));

    let lying = batch(&records[BATCH_HEADER_BYTES..], 4, |h| {
        (h.base_timestamp, h.max_timestamp) = (NOW - 5, i64::MAX);
    });
    let valid = Case::new().validate(&lying).unwrap();
    assert_eq!(valid.header.max_timestamp, NOW);
    assert_eq!(valid.max_timestamp_delta, 1);
    assert_sealed(&valid);

    // None at all.
    let mut builder = BatchBuilder::new();
    builder.push(-1, Some(b"k"), None);
    let valid = Case::new().validate(&builder.build()).unwrap();
    assert_eq!(
        (valid.header.max_timestamp, valid.max_timestamp_delta),
        (-1, 0)
    );
}

#[test]
fn a_stamping_topic_overwrites_the_largest_timestamp() {
    for attributes in [0, 1] {
        let bytes = match attributes {
            0 => payload(2),
            _ => compress(Compression::Gzip, &payload(2)).unwrap(),
        };
        // A time that a topic with CreateTime would refuse.
        let records = batch(&bytes, 2, |h| {
            (h.attributes, h.base_timestamp) = (attributes, NOW + 10_000_000_000);
        });
        let valid = Case::stamping().validate(&records).unwrap();
        assert_eq!(valid.header.attributes, attributes | 8);
        assert_eq!(valid.header.max_timestamp, NOW);
        assert_eq!(valid.header.base_timestamp, NOW + 10_000_000_000);
        assert_eq!(valid.max_timestamp_delta, 0);
        assert_eq!(valid.payload, bytes);
        assert_sealed(&valid);
    }
}

#[test]
fn the_stamp_of_a_client_counts_for_nothing() {
    let records = batch(&payload(1), 1, |h| {
        (h.attributes, h.max_timestamp) = (8, NOW + 50);
    });
    let valid = Case::new().validate(&records).unwrap();
    assert_eq!(valid.header.attributes, 0);
    assert_eq!(valid.header.max_timestamp, NOW);
    assert_sealed(&valid);

    let refused = Case::stamping().validate(&records).unwrap_err();
    assert_eq!(refused.error, ErrorCode::InvalidTimestamp);
    assert_eq!(
        refused.record_errors[0].1.as_deref(),
        Some(
            "Invalid timestamp type in message DefaultRecord(offset=0, timestamp=1795974243384, \
             key=2 bytes, value=1 bytes). Producer should not set timestamp type to LogAppendTime."
        )
    );
    let gzip = compress(Compression::Gzip, &[0x0c, 0, 0, 0, 1, 1, 0]).unwrap();
    let records = batch(&gzip, 1, |h| {
        (h.attributes, h.max_timestamp) = (9, NOW + 50);
    });
    let refused = Case::stamping().validate(&records).unwrap_err();
    assert_eq!(
        refused.record_errors[0].1.as_deref(),
        Some(
            "Invalid timestamp type in message PartialDefaultRecord(offset=0, \
             timestamp=1795974243384, key=-1 bytes, value=-1 bytes). Producer should not set \
             timestamp type to LogAppendTime."
        )
    );
}

#[test]
fn offsets_inside_the_batch_are_put_right() {
    // Kafka appends the uncompressed form as it is, and answers the compressed one with −1.
    let records = [0x0e, 0, 0, 10, 2, b'a', 0, 0, 0x0e, 0, 0, 9, 2, b'b', 0, 0];
    let ordered = [0x0e, 0, 0, 0, 2, b'a', 0, 0, 0x0e, 0, 0, 2, 2, b'b', 0, 0];
    for codec in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let bytes = compress(codec, &records).unwrap();
        let records = batch(&bytes, 2, |h| h.attributes = codec as i16);
        let valid = Case::new().validate(&records).unwrap();
        assert_sealed(&valid);
        assert_eq!(valid.header.compression(), Some(codec));
        assert_eq!(
            compression::decompress(codec, &valid.payload, 100).unwrap(),
            ordered[..]
        );
    }
}

#[test]
fn a_malformed_record_is_an_invalid_record() {
    // Length, attributes, timestamp, offset, key, value, header count.
    for (hex, good) in [
        ("0e00000003027600", true),          // key length −2 is null
        ("10ff0000026b027600", true),        // attributes mean nothing
        ("1400000001010204fffe01", true),    // a header key that is not UTF-8
        ("01", false),                       // length −1
        ("00", false),                       // nothing in it
        ("ffffffffffffffffffff", false),     // an endless varint
        ("16000000010276feffffff0f", false), // 2³¹−1 headers
        ("0e00000001027601", false),         // −1 headers
        ("12000000010276020101", false),     // a null header key
        ("14000000026b0276007a7a", false),   // bytes behind
        ("0e00000003027602", false),         // a header that is not there
        ("0e0000007e027600", false),         // a key longer than the record
        ("0e000000030276", false),           // the record is cut off
        ("0e0000000302760000", false),       // bytes behind the last record
    ] {
        let bytes = unhex(hex);
        let result = Case::new().validate(&batch(&bytes, 1, |_| {}));
        assert_eq!(result.is_ok(), good, "{hex}");
        let gzip = compress(Compression::Gzip, &bytes).unwrap();
        let compressed = Case::new().validate(&batch(&gzip, 1, |h| h.attributes = 1));
        assert_eq!(compressed.is_ok(), good, "compressed {hex}");
        for result in [result, compressed] {
            if let Err(refused) = result {
                assert_eq!(
                    refused,
                    InvalidBatch::in_partition(ErrorCode::InvalidRecord),
                    "{hex}"
                );
            }
        }
    }
}

#[test]
fn a_bomb_is_refused() {
    // One record of zeros, more than 64 MiB of them.
    let zeros = 70 << 20;
    let mut bomb = Vec::new();
    varint::put_i64(&mut bomb, zeros + 9);
    bomb.extend([0, 0, 0, 1]);
    varint::put_i64(&mut bomb, zeros);
    bomb.resize(bomb.len() + usize::try_from(zeros).unwrap() + 1, 0);
    let payload = compress(Compression::Zstd, &bomb).unwrap();
    drop(bomb);
    assert!(payload.len() < 100_000);
    let records = batch(&payload, 1, |h| h.attributes = 4);
    assert_eq!(Case::new().error(&records), ErrorCode::MessageTooLarge);
    assert_eq!(
        Case::compressing(Compression::None).error(&records),
        ErrorCode::MessageTooLarge
    );
    assert_eq!(
        Case::compressing(Compression::Gzip).error(&records),
        ErrorCode::MessageTooLarge
    );
}

#[test]
fn a_decompressed_record_has_a_bound_of_its_own() {
    // As seen on Kafka 4.4: the bound is for each record of a compressed batch, without its length.
    let record = |bytes: usize| {
        let mut record = Vec::new();
        varint::put_i64(&mut record, bytes as i64);
        record.extend([0, 0, 0, 1]);
        varint::put_i64(&mut record, bytes as i64 - 7);
        record.resize(record.len() + bytes - 6, 0);
        record
    };
    for target in [
        CompressionPolicy::Producer,
        CompressionPolicy::Always(Compression::None),
    ] {
        let mut case = Case::new();
        case.topic.max_decompressed_message_bytes = 1000;
        case.topic.compression = target;
        for (bytes, good) in [(1000, true), (1001, false)] {
            let plain = record(bytes);
            assert!(case.validate(&batch(&plain, 1, |_| {})).is_ok());
            let gzip = compress(Compression::Gzip, &plain).unwrap();
            let result = case.validate(&batch(&gzip, 1, |h| h.attributes = 1));
            match result {
                Ok(_) => assert!(good, "{bytes}"),
                Err(refused) => {
                    assert!(!good, "{bytes}");
                    assert_eq!(
                        refused,
                        InvalidBatch::in_partition(ErrorCode::InvalidRecord)
                    );
                }
            }
        }
    }
}

#[test]
fn a_caller_may_ask_for_less_than_the_topic_allows() {
    let case = Case::new();
    let rules = ValidationRules {
        partition: &TopicPartition::new("t", 0),
        topic: &case.topic,
        now_ms: NOW,
        produce_version: 8,
        internal: false,
    };
    let gzip = compress(Compression::Gzip, &payload(9)).unwrap();
    let records = batch(&gzip, 9, |h| h.attributes = 1);
    assert!(validate_within(&records, &rules, 90).is_ok());
    let refused = validate_within(&records, &rules, 89)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.error, ErrorCode::MessageTooLarge);
    // What is not compressed has its size already.
    assert!(validate_within(&plain(9), &rules, 0).is_ok());
}

#[test]
fn the_brokers_own_batches_may_be_control_batches() {
    let mut builder = BatchBuilder::new()
        .producer(7, 0, -1)
        .transactional()
        .control();
    builder.push(NOW, Some(b"\0\0\0\x01"), Some(b"\0\0\0\0\0\0"));
    let records = builder.build();
    let mut case = Case::compressing(Compression::Gzip);
    assert_eq!(case.error(&records), ErrorCode::InvalidRecord);
    case.internal = true;
    let valid = case.validate(&records).unwrap();
    assert!(valid.header.is_control() && valid.header.is_transactional());
    // Found by fuzzing: bytes in a batch that counts no records.
    let hidden = batch(&[1, 2, 3], 0, |_| {});
    assert_eq!(case.error(&hidden), ErrorCode::InvalidRecord);
    // Control records stay as they are.
    assert_eq!(valid.header.compression(), Some(Compression::None));
}

type OwnedRecord = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(Vec<u8>, Option<Vec<u8>>)>,
);

fn record() -> impl Strategy<Value = OwnedRecord> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let header = (bytes(), proptest::option::of(bytes()));
    (
        -1i64..1_000_000,
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        proptest::collection::vec(header, 0..3),
    )
}

fn codec() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Gzip),
        Just(Compression::Snappy),
        Just(Compression::Lz4),
        Just(Compression::Zstd),
    ]
}

fn build(records: &[OwnedRecord], codec: Compression) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec).producer(9, 1, 5);
    for (timestamp, key, value, headers) in records {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        builder.push_with_headers(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.build()
}

fn read(header: &BatchHeader, payload: &Bytes) -> Vec<OwnedRecord> {
    let plain = compression::decompress(header.compression().unwrap(), payload, 1 << 20).unwrap();
    Records::new(&plain, header.record_count)
        .enumerate()
        .map(|(index, record)| {
            let record = record.unwrap();
            assert_eq!(record.offset_delta, i32::try_from(index).unwrap());
            (
                header.record_timestamp(record.timestamp_delta),
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                record
                    .headers
                    .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect(),
            )
        })
        .collect()
}

proptest! {
    #[test]
    fn what_is_built_is_valid_and_read_back(
        records in proptest::collection::vec(record(), 1..20),
        source in codec(),
        target in codec(),
    ) {
        let batch = build(&records, source);
        let valid = Case::new().validate(&batch).unwrap();
        prop_assert_eq!(&[&valid.header.encode()[..], &valid.payload].concat()[..], &batch[..]);
        prop_assert_eq!(&read(&valid.header, &valid.payload), &records);
        let largest = &records[usize::try_from(valid.max_timestamp_delta).unwrap()];
        prop_assert_eq!(largest.0, records.iter().map(|record| record.0).max().unwrap());

        let again = Case::compressing(target).validate(&batch).unwrap();
        assert_sealed(&again);
        prop_assert_eq!(again.header.compression(), Some(target));
        prop_assert_eq!(&read(&again.header, &again.payload), &records);
        prop_assert_eq!(again.header.base_sequence, 5);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        attributes in 0u8..16,
        count in 0u8..4,
        seal in any::<bool>(),
    ) {
        let _ = Case::new().validate(&Bytes::copy_from_slice(&bytes));
        // The same as the payload of a batch that gets past its header.
        if seal && bytes.len() > BATCH_HEADER_BYTES {
            let payload = bytes.split_off(BATCH_HEADER_BYTES);
            let records = batch(&payload, i32::from(count), |h| h.attributes = attributes.into());
            let _ = Case::compacted().validate(&records);
            let _ = Case::compressing(Compression::Lz4).validate(&records);
        }
    }

    #[test]
    fn a_flipped_bit_under_the_checksum_is_found(
        records in proptest::collection::vec(record(), 1..5),
        at in any::<proptest::sample::Index>(),
        bit in 0u8..8,
    ) {
        let batch = build(&records, Compression::None);
        let at = 17 + at.index(batch.len() - 17);
        let flipped = patched(&batch, at, &[batch[at] ^ (1 << bit)]);
        prop_assert_eq!(Case::new().error(&flipped), ErrorCode::CorruptMessage);
    }
}
