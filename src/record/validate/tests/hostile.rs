//! What is malformed or larger than it says.

use super::*;

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
