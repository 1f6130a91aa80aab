use proptest::prelude::*;

use super::*;
use crate::config::CleanupPolicy;
use crate::record::samples::{SAMPLES, unhex};
use crate::record::{BatchBuilder, Records, compress, varint};

mod hostile;
mod timestamps;

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
