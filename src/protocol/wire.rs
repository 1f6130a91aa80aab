//! Kafka's primitive types, read and written by hand.
//!
//! Reading never allocates: every count and length is held against what is left of the body first.

use bytes::{BufMut, BytesMut};

/// Elements of all arrays of one request together. The largest honest request names each of the
/// 100,000 partitions that a broker is made for, in topics of their own; and each costs memory many
/// times its bytes.
pub const ELEMENTS_MAX: usize = 1 << 18;

/// Why a body cannot be what its API and version say. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedBody {
    #[error("the body ends inside a field")]
    Truncated,
    #[error("a length or count below zero")]
    NegativeLength,
    #[error("null where the field cannot be null")]
    Null,
    #[error("a varint of more than 32 bits")]
    Varint,
    #[error("an array of more elements than the body can hold")]
    Count,
    #[error("more than {ELEMENTS_MAX} array elements and tagged fields")]
    TooManyElements,
    #[error("a string that is not UTF-8")]
    NotUtf8,
    #[error("a tagged field that is not as long as it says")]
    TagSize,
    #[error("no such api or version")]
    UnknownApi,
}

/// Reads a body from front to back.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    /// Compact lengths and tagged fields (KIP-482).
    flexible: bool,
    elements: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(body: &'a [u8], flexible: bool) -> Self {
        Self {
            rest: body,
            flexible,
            elements: 0,
        }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Array elements and tagged fields seen so far.
    pub fn elements(&self) -> usize {
        self.elements
    }

    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], MalformedBody> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(MalformedBody::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedBody> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(MalformedBody::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn i8(&mut self) -> Result<i8, MalformedBody> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, MalformedBody> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, MalformedBody> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, MalformedBody> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Result<[u8; 16], MalformedBody> {
        self.array()
    }

    /// An unsigned varint of at most 32 bits.
    pub fn varint(&mut self) -> Result<u32, MalformedBody> {
        let mut value = 0u32;
        for index in 0..5 {
            let [byte] = self.array()?;
            if index == 4 && byte > 0x0f {
                return Err(MalformedBody::Varint);
            }
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(MalformedBody::Varint)
    }

    /// A compact length or count: one more than it says, zero for null.
    fn compact(&mut self) -> Result<Option<usize>, MalformedBody> {
        Ok((self.varint()? as usize).checked_sub(1))
    }

    /// A length or count where −1 means null.
    fn nullable(length: i32) -> Result<Option<usize>, MalformedBody> {
        match length {
            -1 => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| MalformedBody::NegativeLength),
        }
    }

    /// The bytes of a nullable string, which need not be UTF-8.
    pub fn nullable_string_bytes(&mut self) -> Result<Option<&'a [u8]>, MalformedBody> {
        let length = if self.flexible {
            self.compact()?
        } else {
            Self::nullable(i32::from(self.i16()?))?
        };
        length.map(|length| self.take(length)).transpose()
    }

    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, MalformedBody> {
        self.nullable_string_bytes()?
            .map(|bytes| std::str::from_utf8(bytes).map_err(|_| MalformedBody::NotUtf8))
            .transpose()
    }

    pub fn string(&mut self) -> Result<&'a str, MalformedBody> {
        self.nullable_string()?.ok_or(MalformedBody::Null)
    }

    /// Bytes, or records.
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, MalformedBody> {
        let length = if self.flexible {
            self.compact()?
        } else {
            Self::nullable(self.i32()?)?
        };
        length.map(|length| self.take(length)).transpose()
    }

    /// The count of an array whose elements have at least `element_bytes_min` bytes each.
    pub fn nullable_count(
        &mut self,
        element_bytes_min: usize,
    ) -> Result<Option<usize>, MalformedBody> {
        let count = if self.flexible {
            self.compact()?
        } else {
            Self::nullable(self.i32()?)?
        };
        if let Some(count) = count {
            self.count_elements(count, element_bytes_min)?;
        }
        Ok(count)
    }

    /// The count of an array that cannot be null.
    pub fn count(&mut self, element_bytes_min: usize) -> Result<usize, MalformedBody> {
        self.nullable_count(element_bytes_min)?
            .ok_or(MalformedBody::Null)
    }

    fn count_elements(
        &mut self,
        count: usize,
        element_bytes_min: usize,
    ) -> Result<(), MalformedBody> {
        if count > self.rest.len() / element_bytes_min.max(1) {
            return Err(MalformedBody::Count);
        }
        self.elements = self.elements.saturating_add(count);
        if self.elements > ELEMENTS_MAX {
            return Err(MalformedBody::TooManyElements);
        }
        Ok(())
    }

    /// Reads tagged fields, if this version has them: `known` reads the ones it knows and returns
    /// false for others, which are skipped. Each must be as long as it says.
    pub fn tags(
        &mut self,
        mut known: impl FnMut(u32, &mut Self) -> Result<bool, MalformedBody>,
    ) -> Result<(), MalformedBody> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.varint()? as usize;
        self.count_elements(count, 2)?;
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            let mut field = Self {
                rest: self.take(size)?,
                flexible: true,
                elements: self.elements,
            };
            if known(tag, &mut field)? && field.remaining() > 0 {
                return Err(MalformedBody::TagSize);
            }
            self.elements = field.elements;
        }
        Ok(())
    }

    /// Skips tagged fields, if this version has them.
    pub fn skip_tags(&mut self) -> Result<(), MalformedBody> {
        self.tags(|_, _| Ok(false))
    }
}

/// Writes a body from front to back.
#[derive(Debug)]
pub struct Writer {
    pub buffer: BytesMut,
    flexible: bool,
}

impl Writer {
    pub fn new(capacity: usize, flexible: bool) -> Self {
        Self {
            buffer: BytesMut::with_capacity(capacity),
            flexible,
        }
    }

    pub fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value as u8);
    }

    /// The count of an array, or the length of bytes. Both fit: a response is far below 2 GiB.
    pub fn count(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX >> 1);
        if self.flexible {
            self.varint(count.saturating_add(1));
        } else {
            self.buffer.put_u32(count);
        }
    }

    /// An array that is null.
    pub fn null_array(&mut self) {
        if self.flexible {
            self.buffer.put_u8(0);
        } else {
            self.buffer.put_i32(-1);
        }
    }

    /// A string. One longer than its length field can say is cut at a character.
    pub fn string(&mut self, text: &str) {
        if self.flexible {
            self.count(text.len());
            self.buffer.put_slice(text.as_bytes());
            return;
        }
        let mut end = text.len().min(i16::MAX as usize);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.buffer.put_u16(end as u16);
        self.buffer.put_slice(&text.as_bytes()[..end]);
    }

    pub fn nullable_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.string(text),
            None if self.flexible => self.buffer.put_u8(0),
            None => self.buffer.put_i16(-1),
        }
    }

    /// Ends a structure that has no tagged fields to tell.
    pub fn no_tags(&mut self) {
        if self.flexible {
            self.buffer.put_u8(0);
        }
    }

    /// Writes one tagged field; the caller has written their count.
    pub fn tag(&mut self, tag: u32, content: &[u8]) {
        self.varint(tag);
        self.varint(u32::try_from(content.len()).unwrap_or(u32::MAX));
        self.buffer.put_slice(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_has_32_bits() {
        let read = |bytes: &[u8]| Cursor::new(bytes, true).varint();
        assert_eq!(read(&[0x00]), Ok(0));
        assert_eq!(read(&[0xac, 0x02]), Ok(300));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(
            read(&[0x81, 0x80, 0x80, 0x80, 0x70]),
            Err(MalformedBody::Varint)
        );
        assert_eq!(
            read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
            Err(MalformedBody::Varint)
        );
        assert_eq!(read(&[0x80]), Err(MalformedBody::Truncated));
        for value in [0, 1, 127, 128, 16_383, 16_384, u32::MAX] {
            let mut writer = Writer::new(0, true);
            writer.varint(value);
            assert_eq!(read(&writer.buffer), Ok(value));
        }
    }

    #[test]
    fn a_count_must_fit_the_body() {
        let count = |bytes: &[u8], flexible| Cursor::new(bytes, flexible).nullable_count(2);
        assert_eq!(count(&[0, 0, 0, 1, 9, 9], false), Ok(Some(1)));
        assert_eq!(count(&[0, 0, 0, 2, 9, 9], false), Err(MalformedBody::Count));
        assert_eq!(count(&[0xff; 4], false), Ok(None));
        assert_eq!(
            count(&[0xff, 0xff, 0xff, 0xfe], false),
            Err(MalformedBody::NegativeLength)
        );
        assert_eq!(count(&[2, 9, 9], true), Ok(Some(1)));
        assert_eq!(
            count(&[0xff, 0xff, 0xff, 0xff, 0x0f], true),
            Err(MalformedBody::Count)
        );
        assert_eq!(count(&[0], true), Ok(None));
    }

    #[test]
    fn a_tagged_field_has_its_own_length() {
        let mut cursor = Cursor::new(&[2, 0, 1, 7, 5, 2, 8, 9, 42], true);
        let mut seen = Vec::new();
        cursor
            .tags(|tag, field| {
                seen.push(tag);
                Ok(tag == 0 && field.i8()? == 7)
            })
            .unwrap();
        assert_eq!(seen, [0, 5]);
        assert_eq!(cursor.i8(), Ok(42));
        let mut long = Cursor::new(&[1, 0, 2, 7, 7], true);
        assert_eq!(
            long.tags(|_, field| field.i8().map(|_| true)),
            Err(MalformedBody::TagSize)
        );
    }

    #[test]
    fn a_long_string_is_cut_at_a_character() {
        let mut writer = Writer::new(0, false);
        writer.string(&"é".repeat(20_000));
        assert_eq!(writer.buffer[..2], 32_766u16.to_be_bytes());
        assert_eq!(writer.buffer.len(), 2 + 32_766);
    }
}
