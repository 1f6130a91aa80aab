//! The length prefix: bytes in, a frame or "so many more" out.

use bytes::{Buf, Bytes, BytesMut};

/// Requests other than Produce never need to be larger.
pub const SMALL_REQUEST_BYTES_MAX: usize = 8 << 20;
const PRODUCE_KEY: i16 = 0;
pub const PREFIX_BYTES: usize = 4;

/// What the buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Complete(Bytes),
    /// The buffer must grow to this many bytes before the frame is whole, as far as known.
    Incomplete {
        bytes: usize,
    },
}

/// A prefix that no frame of ours has. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("invalid request size {0}")]
    Negative(i32),
    #[error("request of {bytes} bytes is larger than {bytes_max}{}", hint(.bytes))]
    TooLarge { bytes: usize, bytes_max: usize },
}

/// Names what is likely behind a size that is text: an HTTP or TLS client on the wrong port.
fn hint(bytes: &usize) -> &'static str {
    match u32::try_from(*bytes).unwrap_or(0).to_be_bytes() {
        [b'G', b'E', b'T', b' '] | [b'P', b'O', b'S', b'T'] | [b'H', b'E', b'A', b'D'] => {
            " (an HTTP request?)"
        }
        [0x16, 0x03, _, _] => " (a TLS handshake on a plaintext listener?)",
        _ => "",
    }
}

/// Takes the next frame, without its prefix, out of `buffer`. `bytes_max` is `socket.request.max.bytes`.
pub fn next(buffer: &mut BytesMut, bytes_max: usize) -> Result<Frame, FrameError> {
    if buffer.len() < PREFIX_BYTES {
        return Ok(Frame::Incomplete {
            bytes: PREFIX_BYTES,
        });
    }
    let size = i32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
    let size = usize::try_from(size).map_err(|_| FrameError::Negative(size))?;
    if size > bytes_max {
        return Err(FrameError::TooLarge {
            bytes: size,
            bytes_max,
        });
    }
    if size > SMALL_REQUEST_BYTES_MAX && buffer.len() >= PREFIX_BYTES + 2 {
        let api_key = i16::from_be_bytes([buffer[4], buffer[5]]);
        if api_key != PRODUCE_KEY {
            return Err(FrameError::TooLarge {
                bytes: size,
                bytes_max: SMALL_REQUEST_BYTES_MAX,
            });
        }
    }
    if buffer.len() < PREFIX_BYTES + size {
        return Ok(Frame::Incomplete {
            bytes: PREFIX_BYTES + size,
        });
    }
    buffer.advance(PREFIX_BYTES);
    Ok(Frame::Complete(buffer.split_to(size).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 104_857_600;

    fn next_of(bytes: &[u8]) -> Result<Frame, FrameError> {
        next(&mut BytesMut::from(bytes), MAX)
    }

    #[test]
    fn a_frame_comes_out_whole_and_the_rest_stays() {
        let mut buffer = BytesMut::from(&b"\0\0\0\x02ab\0\0"[..]);
        assert_eq!(
            next(&mut buffer, MAX),
            Ok(Frame::Complete(Bytes::from_static(b"ab")))
        );
        assert_eq!(next(&mut buffer, MAX), Ok(Frame::Incomplete { bytes: 4 }));
        assert_eq!(next_of(b"\0\0\0\x05ab"), Ok(Frame::Incomplete { bytes: 9 }));
    }

    #[test]
    fn sizes_that_nobody_may_send_are_refused() {
        assert_eq!(next_of(b"\xff\xff\xff\xff"), Err(FrameError::Negative(-1)));
        assert_eq!(next_of(b"\x80\0\0\0"), Err(FrameError::Negative(i32::MIN)));
        let too_large = |bytes, bytes_max| Err(FrameError::TooLarge { bytes, bytes_max });
        assert_eq!(next_of(b"\x06\x40\0\x01"), too_large(MAX + 1, MAX));
        assert!(
            next_of(b"GET / HTTP/1.1")
                .unwrap_err()
                .to_string()
                .ends_with("(an HTTP request?)")
        );
        let tls = next(&mut BytesMut::from(&b"\x16\x03\x01\0\xc8"[..]), MAX);
        assert!(tls.unwrap_err().to_string().contains("TLS"));
        // Nine mebibytes are fine for Produce, not for Metadata.
        assert_eq!(
            next_of(b"\0\x90\0\0\0\0"),
            Ok(Frame::Incomplete {
                bytes: 4 + (9 << 20)
            })
        );
        assert_eq!(
            next_of(b"\0\x90\0\0\0\x03"),
            too_large(9 << 20, SMALL_REQUEST_BYTES_MAX)
        );
    }
}
