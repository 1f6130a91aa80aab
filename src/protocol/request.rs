//! The request header, read by hand: it is checked before the body is looked at.

use bytes::{Buf, Bytes};

/// Header of a request; `client_id` is not kept as text that could forge log lines until it is
/// known to be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
}

/// A header that cannot be read. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the frame ends inside the request header")]
    TooShort,
    #[error("the client id is not UTF-8")]
    ClientIdNotUtf8,
    #[error("a negative length in the request header")]
    NegativeLength,
    #[error("malformed tagged fields in the request header")]
    BadTags,
}

/// Tagged fields allowed in a header: Kafka's clients send none.
const TAGS_MAX: u32 = 64;

impl RequestHeader {
    /// Reads the fixed part: key, version and correlation id.
    pub fn parse(frame: &mut Bytes) -> Result<Self, HeaderError> {
        if frame.len() < 8 {
            return Err(HeaderError::TooShort);
        }
        Ok(Self {
            api_key: frame.get_i16(),
            api_version: frame.get_i16(),
            correlation_id: frame.get_i32(),
        })
    }
}

/// Reads the client id and, in a flexible header (version 2), skips its tagged fields.
pub fn parse_client_id(
    frame: &mut Bytes,
    header_version: i16,
) -> Result<Option<String>, HeaderError> {
    if header_version < 1 {
        return Ok(None);
    }
    if frame.len() < 2 {
        return Err(HeaderError::TooShort);
    }
    let client_id = match frame.get_i16() {
        -1 => None,
        length => {
            let length = usize::try_from(length).map_err(|_| HeaderError::NegativeLength)?;
            if frame.len() < length {
                return Err(HeaderError::TooShort);
            }
            let bytes = frame.split_to(length);
            let text = std::str::from_utf8(&bytes).map_err(|_| HeaderError::ClientIdNotUtf8)?;
            Some(text.to_owned())
        }
    };
    if header_version >= 2 {
        let tags = unsigned_varint(frame)?;
        if tags > TAGS_MAX {
            return Err(HeaderError::BadTags);
        }
        for _ in 0..tags {
            unsigned_varint(frame)?;
            let size = unsigned_varint(frame)? as usize;
            if frame.len() < size {
                return Err(HeaderError::BadTags);
            }
            frame.advance(size);
        }
    }
    Ok(client_id)
}

fn unsigned_varint(frame: &mut Bytes) -> Result<u32, HeaderError> {
    let mut value = 0u32;
    for index in 0..5 {
        if !frame.has_remaining() {
            return Err(HeaderError::TooShort);
        }
        let byte = frame.get_u8();
        if index == 4 && byte > 0x0f {
            return Err(HeaderError::BadTags);
        }
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(HeaderError::BadTags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_id(bytes: &'static [u8], version: i16) -> Result<Option<String>, HeaderError> {
        parse_client_id(&mut Bytes::from_static(bytes), version)
    }

    #[test]
    fn headers_of_every_version_are_read() {
        let mut frame = Bytes::from_static(b"\0\x12\0\x03\0\0\0\x07\0\x04kcat\0");
        let header = RequestHeader::parse(&mut frame).unwrap();
        assert_eq!(
            header,
            RequestHeader {
                api_key: 18,
                api_version: 3,
                correlation_id: 7
            }
        );
        assert_eq!(parse_client_id(&mut frame, 2), Ok(Some("kcat".into())));
        assert!(frame.is_empty());
        assert_eq!(client_id(b"\xff\xff", 1), Ok(None));
        assert_eq!(client_id(b"\0\0\x01\x05\x02ab", 2), Ok(Some(String::new())));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        assert_eq!(
            RequestHeader::parse(&mut Bytes::from_static(b"\0\x03")),
            Err(HeaderError::TooShort)
        );
        assert_eq!(client_id(b"\x7f\xffab", 1), Err(HeaderError::TooShort));
        assert_eq!(client_id(b"\xff\xfe", 1), Err(HeaderError::NegativeLength));
        assert_eq!(
            client_id(b"\0\x01\xff", 1),
            Err(HeaderError::ClientIdNotUtf8)
        );
        assert_eq!(
            client_id(b"\xff\xff\xff\xff\xff\xff\x0f", 2),
            Err(HeaderError::BadTags)
        );
        assert_eq!(
            client_id(b"\xff\xff\x81\x80\x80\x80\x70", 2),
            Err(HeaderError::BadTags)
        );
        assert_eq!(
            client_id(b"\xff\xff\x01\x05\xff\xff\xff\xff\x0f", 2),
            Err(HeaderError::BadTags)
        );
    }
}
