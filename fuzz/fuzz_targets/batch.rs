//! Records of a Produce partition, as they came and put into a batch whose length and checksum are
//! right, so that the records themselves are reached. What is accepted must be valid when validated
//! again, as followers and recovery will see it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla::config::{CleanupPolicy, CompressionPolicy, TopicConfig};
use ottla::record::{
    BATCH_HEADER_BYTES, BatchHeader, Records, ValidationRules, decompress, validate,
};
use ottla::types::{Compression, TimestampType, TopicPartition};

const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Topics that differ in what they ask of a batch.
fn topic(choice: u8) -> TopicConfig {
    let mut topic = TopicConfig::default();
    topic.cleanup_policy = CleanupPolicy {
        delete: true,
        compact: choice & 1 != 0,
    };
    if choice & 2 != 0 {
        topic.timestamp_type = TimestampType::LogAppendTime;
    }
    if choice & 4 != 0 {
        topic.compression = CompressionPolicy::Always(match choice >> 3 & 7 {
            0 => Compression::Gzip,
            1 => Compression::Snappy,
            2 => Compression::Lz4,
            3 => Compression::Zstd,
            _ => Compression::None,
        });
    }
    topic
}

fn check(records: &Bytes, choice: u8) {
    let topic = topic(choice);
    let rules = ValidationRules {
        partition: &TopicPartition::new("t", 0),
        topic: &topic,
        now_ms: 1_700_000_000_000,
        produce_version: 9,
        internal: choice & 64 != 0,
    };
    let Ok(valid) = validate(records, &rules) else {
        return;
    };
    let stored = Bytes::from([&valid.header.encode()[..], &valid.payload].concat());
    let header = BatchHeader::parse(&stored).expect("a stored batch has a header");
    assert_eq!(header.total_bytes(), stored.len());
    assert_eq!(header.compute_crc(&valid.payload), header.crc);
    let compression = header.compression().expect("a stored batch has a codec");
    let plain = decompress(compression, &valid.payload, DECOMPRESSED_BYTES_MAX)
        .expect("a stored batch can be decompressed");
    for (index, record) in Records::new(&plain, header.record_count).enumerate() {
        let record = record.expect("a stored record can be read");
        assert_eq!(usize::try_from(record.offset_delta), Ok(index));
    }
    if topic.timestamp_type == TimestampType::CreateTime {
        let again = validate(&stored, &rules).expect("what was valid stays valid");
        assert_eq!(again.header, header);
        assert_eq!(again.max_timestamp_delta, valid.max_timestamp_delta);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, attributes, count, payload @ ..] = bytes else {
        return;
    };
    check(&Bytes::copy_from_slice(payload), *choice);
    let count = i32::from(*count);
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: 0,
        partition_leader_epoch: 0,
        crc: 0,
        attributes: i16::from(*attributes),
        last_offset_delta: count - 1,
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 1_700_000_000_000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: count,
    };
    header.batch_length =
        i32::try_from(BATCH_HEADER_BYTES - 12 + payload.len()).expect("inputs are small");
    header.crc = header.compute_crc(payload);
    check(
        &Bytes::from([&header.encode()[..], payload].concat()),
        *choice,
    );
});
