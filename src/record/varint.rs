//! Zigzag varints, as records use them for every number.

use super::RecordError;

/// Reads a varint of 32 bits off the front. Bits beyond 32 in the fifth byte are dropped, as Kafka
/// does; a sixth byte is an error.
#[inline]
pub(crate) fn take_i32(bytes: &mut &[u8]) -> Result<i32, RecordError> {
    // Most numbers in a record have one byte or two.
    match **bytes {
        [first, ..] if first < 0x80 => {
            *bytes = &bytes[1..];
            Ok(unzigzag_i32(u32::from(first)))
        }
        [first, second, ..] if second < 0x80 => {
            *bytes = &bytes[2..];
            Ok(unzigzag_i32(
                u32::from(first & 0x7f) | u32::from(second) << 7,
            ))
        }
        _ => take_long_i32(bytes),
    }
}

fn take_long_i32(bytes: &mut &[u8]) -> Result<i32, RecordError> {
    let mut value = 0u32;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Ok(unzigzag_i32(value));
        }
    }
    Err(overrun(bytes.len(), 5))
}

/// Reads a varint of 64 bits off the front.
#[inline]
pub(crate) fn take_i64(bytes: &mut &[u8]) -> Result<i64, RecordError> {
    match **bytes {
        [first, ..] if first < 0x80 => {
            *bytes = &bytes[1..];
            Ok(unzigzag_i64(u64::from(first)))
        }
        [first, second, ..] if second < 0x80 => {
            *bytes = &bytes[2..];
            Ok(unzigzag_i64(
                u64::from(first & 0x7f) | u64::from(second) << 7,
            ))
        }
        _ => take_long_i64(bytes),
    }
}

fn take_long_i64(bytes: &mut &[u8]) -> Result<i64, RecordError> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Ok(unzigzag_i64(value));
        }
    }
    Err(overrun(bytes.len(), 10))
}

fn overrun(bytes: usize, bytes_max: usize) -> RecordError {
    if bytes < bytes_max {
        RecordError::Truncated
    } else {
        RecordError::Varint
    }
}

pub(crate) fn unzigzag_i32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

pub(crate) fn unzigzag_i64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Appends a zigzag varint.
pub(crate) fn put_i64(buffer: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        buffer.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    buffer.push(rest as u8);
}

/// Appends a zigzag varint; the 64-bit form of a 32-bit number has the same bytes.
pub(crate) fn put_i32(buffer: &mut Vec<u8>, value: i32) {
    put_i64(buffer, i64::from(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bytes_that_kafka_gives_them() {
        for (value, bytes) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (-64, &[127]),
            (64, &[128, 1]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut buffer = Vec::new();
            put_i32(&mut buffer, value);
            assert_eq!(buffer, bytes);
            assert_eq!(take_i32(&mut &buffer[..]), Ok(value));
            assert_eq!(take_i64(&mut &buffer[..]), Ok(i64::from(value)));
        }
        for value in [i64::MIN, i64::MAX, 1 << 40, -(1 << 40)] {
            let mut buffer = Vec::new();
            put_i64(&mut buffer, value);
            assert_eq!(take_i64(&mut &buffer[..]), Ok(value));
        }
    }

    #[test]
    fn a_long_or_cut_number_is_an_error() {
        assert_eq!(take_i32(&mut &[][..]), Err(RecordError::Truncated));
        assert_eq!(take_i32(&mut &[0x80; 4][..]), Err(RecordError::Truncated));
        assert_eq!(take_i32(&mut &[0x80; 5][..]), Err(RecordError::Varint));
        assert_eq!(take_i64(&mut &[0x80; 9][..]), Err(RecordError::Truncated));
        assert_eq!(take_i64(&mut &[0x80; 10][..]), Err(RecordError::Varint));
    }
}
