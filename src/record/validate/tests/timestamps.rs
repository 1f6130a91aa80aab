//! Timestamps: their bounds, who sets them, which is the largest.

use super::*;

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
