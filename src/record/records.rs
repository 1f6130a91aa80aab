//! The records of a batch, read in place.
//!
//! ```text
//! length varint | attributes i8 | timestamp_delta varlong | offset_delta varint |
//! key_length varint, key | value_length varint, value | header_count varint |
//! (key_length varint, key | value_length varint, value)*
//! ```
//!
//! A length below zero means null (but for header keys). [`Records`] walks uncompressed or
//! decompressed bytes without allocation; [`scan`] also walks a compressed payload, holding no more
//! of it than one small buffer.

use std::io::Read;
use std::ops::ControlFlow;

use super::compression::Decompressor;
use super::varint::{take_i32, take_i64};
use super::{BatchHeader, RecordError, varint};
use crate::types::Compression;

/// One record. Offset and timestamp are relative to the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: RecordHeaders<'a>,
}

/// The headers of a record, unparsed. A key may occur more than once and need not be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordHeaders<'a> {
    count: i32,
    bytes: &'a [u8],
}

impl<'a> RecordHeaders<'a> {
    pub fn count(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }

    /// The headers as they stand in the record, without their count.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for RecordHeaders<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.count <= 0 {
            return None;
        }
        self.count -= 1;
        let key = take_field(&mut self.bytes).ok()??;
        let value = take_field(&mut self.bytes).ok()?;
        Some((key, value))
    }
}

/// The records of an uncompressed or decompressed payload. Ends after an error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    left: i32,
}

impl<'a> Records<'a> {
    /// Walks `count` records, which must fill `payload`.
    pub fn new(payload: &'a [u8], count: i32) -> Self {
        Self {
            bytes: payload,
            left: count.max(0),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let mut record = take_record(&mut self.bytes);
        if self.left == 0 && record.is_ok() && !self.bytes.is_empty() {
            record = Err(RecordError::Trailing);
        }
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

#[inline]
fn take_record<'a>(bytes: &mut &'a [u8]) -> Result<Record<'a>, RecordError> {
    let length = take_i32(bytes)?;
    let length = usize::try_from(length).map_err(|_| RecordError::Malformed("its length"))?;
    let (mut body, rest) = bytes
        .split_at_checked(length)
        .ok_or(RecordError::Truncated)?;
    *bytes = rest;
    parse_body(&mut body).map_err(|error| match error {
        RecordError::Truncated => RecordError::Malformed("its fields outrun its length"),
        other => other,
    })
}

#[inline]
fn parse_body<'a>(body: &mut &'a [u8]) -> Result<Record<'a>, RecordError> {
    let (_attributes, rest) = body.split_first().ok_or(RecordError::Truncated)?;
    *body = rest;
    let timestamp_delta = take_i64(body)?;
    let offset_delta = take_i32(body)?;
    let key = take_field(body)?;
    let value = take_field(body)?;
    let count = take_i32(body)?;
    let headers = RecordHeaders { count, bytes: body };
    if count != 0 {
        check_headers(count, body)?;
    } else if !body.is_empty() {
        return Err(RecordError::Malformed("its length outruns its fields"));
    }
    Ok(Record {
        offset_delta,
        timestamp_delta,
        key,
        value,
        headers,
    })
}

fn check_headers(count: i32, mut bytes: &[u8]) -> Result<(), RecordError> {
    if usize::try_from(count).map_or(true, |count| count > bytes.len()) {
        return Err(RecordError::Malformed("its header count"));
    }
    for _ in 0..count {
        take_field(&mut bytes)?.ok_or(RecordError::Malformed("a header without a key"))?;
        take_field(&mut bytes)?;
    }
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(RecordError::Malformed("its length outruns its fields"))
    }
}

/// A length and as many bytes; `None` for a length below zero.
#[inline]
fn take_field<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordError> {
    let Ok(length) = usize::try_from(take_i32(bytes)?) else {
        return Ok(None);
    };
    let (field, rest) = bytes
        .split_at_checked(length)
        .ok_or(RecordError::Truncated)?;
    *bytes = rest;
    Ok(Some(field))
}

/// What is known of a record without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordStamp {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    /// `None` for a null key.
    pub key_bytes: Option<usize>,
    /// `None` for a null value.
    pub value_bytes: Option<usize>,
}

impl From<Record<'_>> for RecordStamp {
    fn from(record: Record<'_>) -> Self {
        Self {
            offset_delta: record.offset_delta,
            timestamp_delta: record.timestamp_delta,
            key_bytes: record.key.map(<[u8]>::len),
            value_bytes: record.value.map(<[u8]>::len),
        }
    }
}

/// The stamp of a sound record without headers whose numbers have at most three bytes each, and what
/// follows it. `None` is no verdict.
#[inline(always)]
fn usual_stamp(bytes: &[u8]) -> Option<(RecordStamp, &[u8])> {
    let (length, body) = usual_number(bytes)?;
    let (body, rest) = body.split_at_checked(usize::try_from(length).ok()?)?;
    let (_attributes, fields) = body.split_first()?;
    let (timestamp_delta, fields) = usual_number(fields)?;
    let (offset_delta, fields) = usual_number(fields)?;
    let (key_bytes, fields) = usual_field(fields)?;
    let (value_bytes, fields) = usual_field(fields)?;
    let stamp = RecordStamp {
        offset_delta,
        timestamp_delta: timestamp_delta.into(),
        key_bytes,
        value_bytes,
    };
    (fields == [0]).then_some((stamp, rest))
}

#[inline]
fn usual_field(bytes: &[u8]) -> Option<(Option<usize>, &[u8])> {
    let (length, bytes) = usual_number(bytes)?;
    match usize::try_from(length) {
        Ok(length) => Some((Some(length), bytes.get(length..)?)),
        Err(_) => Some((None, bytes)),
    }
}

#[inline]
fn usual_number(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let low = |byte: u8| u32::from(byte & 0x7f);
    let (value, rest) = match bytes {
        [a @ ..0x80, rest @ ..] => (low(*a), rest),
        [a, b @ ..0x80, rest @ ..] => (low(*a) | low(*b) << 7, rest),
        [a, b, c @ ..0x80, rest @ ..] => (low(*a) | low(*b) << 7 | low(*c) << 14, rest),
        _ => return None,
    };
    Some((varint::unzigzag_i32(value), rest))
}

/// How large the records of a compressed batch may be once decompressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecompressedLimits {
    /// All of them: more is [`RecordError::TooLarge`].
    pub(crate) bytes_max: usize,
    /// Each: a larger one is malformed.
    pub(crate) record_bytes_max: usize,
}

/// Shows each record's stamp to `visit` until it breaks. A compressed payload is decompressed as it
/// is walked, and given up with [`RecordError::TooLarge`] beyond `decompressed_bytes_max`.
pub fn scan(
    header: &BatchHeader,
    payload: &[u8],
    decompressed_bytes_max: usize,
    visit: impl FnMut(RecordStamp) -> ControlFlow<()>,
) -> Result<(), RecordError> {
    let limits = DecompressedLimits {
        bytes_max: decompressed_bytes_max,
        record_bytes_max: decompressed_bytes_max,
    };
    scan_within(header, payload, limits, visit)
}

pub(crate) fn scan_within(
    header: &BatchHeader,
    payload: &[u8],
    limits: DecompressedLimits,
    mut visit: impl FnMut(RecordStamp) -> ControlFlow<()>,
) -> Result<(), RecordError> {
    let compression = header.compression().ok_or(RecordError::UnknownCodec)?;
    if compression == Compression::None {
        let mut bytes = payload;
        for _ in 0..header.record_count {
            // Two calls: a stamp that came from either would be put together in memory, which takes
            // twice the time. Every produced record passes here.
            let flow = match usual_stamp(bytes) {
                Some((stamp, rest)) => {
                    bytes = rest;
                    visit(stamp)
                }
                None => visit(take_record(&mut bytes)?.into()),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        return match bytes {
            [] => Ok(()),
            _ => Err(RecordError::Trailing),
        };
    }
    let source = Decompressor::new(compression, payload, limits.bytes_max)?;
    let mut stream = Stream::new(source, limits);
    for _ in 0..header.record_count.max(0) {
        if visit(stream.record()?).is_break() {
            return Ok(());
        }
    }
    stream.expect_end()
}

/// Bytes of decompressed records held at a time.
const WINDOW_BYTES: usize = 16 << 10;

/// Reads records off a decompressor without holding their contents.
struct Stream<R> {
    source: R,
    window: Box<[u8]>,
    /// What of the window has not been consumed.
    start: usize,
    end: usize,
    /// Bytes consumed before `start`, in all.
    position: usize,
    bytes_left: usize,
    record_bytes_max: usize,
}

impl<R: Read> Stream<R> {
    fn new(source: R, limits: DecompressedLimits) -> Self {
        Self {
            source,
            window: vec![0; WINDOW_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            position: 0,
            bytes_left: limits.bytes_max,
            record_bytes_max: limits.record_bytes_max,
        }
    }

    /// Reads more into an empty window. Returns false at the end.
    fn refill(&mut self) -> Result<bool, RecordError> {
        debug_assert!(self.start == self.end, "only an empty window is refilled");
        let bytes = self
            .source
            .read(&mut self.window)
            .map_err(|_| RecordError::Decompress)?;
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or(RecordError::TooLarge)?;
        (self.start, self.end) = (0, bytes);
        Ok(bytes > 0)
    }

    fn byte(&mut self) -> Result<u8, RecordError> {
        if self.start == self.end && !self.refill()? {
            return Err(RecordError::Truncated);
        }
        let byte = self.window[self.start];
        self.start += 1;
        self.position += 1;
        Ok(byte)
    }

    fn varint<const BYTES_MAX: usize>(&mut self) -> Result<u64, RecordError> {
        let mut value = 0u64;
        for index in 0..BYTES_MAX {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordError::Varint)
    }

    fn int(&mut self) -> Result<i32, RecordError> {
        // Bits beyond 32 are dropped, as in memory.
        Ok(varint::unzigzag_i32(self.varint::<5>()? as u32))
    }

    fn skip(&mut self, mut bytes: usize) -> Result<(), RecordError> {
        loop {
            let step = bytes.min(self.end - self.start);
            self.start += step;
            self.position += step;
            bytes -= step;
            if bytes == 0 {
                return Ok(());
            }
            if !self.refill()? {
                return Err(RecordError::Truncated);
            }
        }
    }

    /// Skips a field and returns its length, `None` for null.
    fn field(&mut self) -> Result<Option<usize>, RecordError> {
        let Ok(length) = usize::try_from(self.int()?) else {
            return Ok(None);
        };
        self.skip(length)?;
        Ok(Some(length))
    }

    fn record(&mut self) -> Result<RecordStamp, RecordError> {
        let length =
            usize::try_from(self.int()?).map_err(|_| RecordError::Malformed("its length"))?;
        if length > self.record_bytes_max {
            return Err(RecordError::Malformed("its length"));
        }
        let end = self.position + length;
        self.byte()?;
        let timestamp_delta = varint::unzigzag_i64(self.varint::<10>()?);
        let offset_delta = self.int()?;
        let key_bytes = self.field()?;
        let value_bytes = self.field()?;
        let header_count = self.int()?;
        if usize::try_from(header_count).map_or(true, |count| count > length) {
            return Err(RecordError::Malformed("its header count"));
        }
        for _ in 0..header_count {
            self.field()?
                .ok_or(RecordError::Malformed("a header without a key"))?;
            self.field()?;
        }
        if self.position != end {
            return Err(RecordError::Malformed(
                "its length is not that of its fields",
            ));
        }
        Ok(RecordStamp {
            offset_delta,
            timestamp_delta,
            key_bytes,
            value_bytes,
        })
    }

    fn expect_end(&mut self) -> Result<(), RecordError> {
        if self.start != self.end || self.refill()? {
            return Err(RecordError::Trailing);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
