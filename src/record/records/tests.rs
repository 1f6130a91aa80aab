use proptest::prelude::*;

use super::*;

/// The bytes of one record with so many headers, each without a value.
fn record(
    timestamp_delta: i64,
    offset_delta: i32,
    fields: [Option<usize>; 2],
    headers: i32,
) -> Vec<u8> {
    let mut body = vec![0];
    varint::put_i64(&mut body, timestamp_delta);
    varint::put_i32(&mut body, offset_delta);
    for field in fields {
        varint::put_i32(&mut body, field.map_or(-1, |bytes| bytes as i32));
        body.extend(std::iter::repeat_n(0x81, field.unwrap_or(0)));
    }
    varint::put_i32(&mut body, headers);
    for _ in 0..headers {
        body.extend([2, b'h', 1]);
    }
    let mut bytes = Vec::new();
    varint::put_i32(&mut bytes, body.len() as i32);
    bytes.extend(body);
    bytes
}

#[test]
fn usual_records_are_stamped_without_a_closer_look() {
    for (timestamp_delta, offset_delta, key_bytes, value_bytes) in [
        (0, 0, None, Some(100)),
        (5, 9_999, Some(8), Some(1024)),
        (-1, 1 << 19, Some(0), None),
        (1 << 19, 1, None, Some(0)),
    ] {
        let mut bytes = record(timestamp_delta, offset_delta, [key_bytes, value_bytes], 0);
        bytes.extend(b"next");
        let stamp = RecordStamp {
            offset_delta,
            timestamp_delta,
            key_bytes,
            value_bytes,
        };
        assert_eq!(usual_stamp(&bytes), Some((stamp, &b"next"[..])));
    }
}

#[test]
fn others_are_looked_at_closely() {
    let usual = record(0, 0, [None, Some(3)], 0);
    let mut short = usual.clone();
    short.pop();
    for bytes in [
        record(0, 0, [None, Some(3)], 1),
        record(1 << 20, 0, [None, Some(3)], 0),
        record(0, 1 << 20, [None, Some(3)], 0),
        short,
        Vec::new(),
    ] {
        assert_eq!(usual_stamp(&bytes), None, "{bytes:?}");
    }
    assert!(usual_stamp(&usual).is_some());
}

fn field() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![Just(None), (0..300_usize).prop_map(Some)]
}

proptest! {
    /// Sound, or with some bytes overwritten, or cut: what the quick way reads is what the slow one reads.
    #[test]
    fn the_quick_way_reads_what_the_slow_one_reads(
        timestamp_delta in prop_oneof![-9..9_i64, any::<i64>()],
        offset_delta in prop_oneof![-9..9_i32, any::<i32>()],
        key in field(),
        value in field(),
        headers in 0..3_i32,
        overwritten in prop::collection::vec((0..24_usize, any::<u8>()), 0..3),
        cut in 0..12_usize,
        behind in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = record(timestamp_delta, offset_delta, [key, value], headers);
        bytes.extend(behind);
        for (index, byte) in overwritten {
            if let Some(place) = bytes.get_mut(index) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len() - cut.saturating_sub(6));
        if let Some((stamp, rest)) = usual_stamp(&bytes) {
            let mut slow = &bytes[..];
            prop_assert_eq!(take_record(&mut slow).map(RecordStamp::from), Ok(stamp));
            prop_assert_eq!(slow, rest);
        }
    }
}
