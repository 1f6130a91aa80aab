//! Responses as lists of chunks, so that record bytes are never copied into a buffer.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use kafka_protocol::messages::ResponseHeader;
use kafka_protocol::protocol::Encodable;

/// A piece of a response.
#[derive(Debug, Clone)]
pub enum Chunk {
    Bytes(Bytes),
    /// A range of a file, sent by `sendfile` where the socket can.
    File {
        file: Arc<File>,
        position: u64,
        bytes: u64,
        /// Set if the file cannot be read: then the answer is cut off, and the next one says why.
        unreadable: Arc<AtomicBool>,
    },
}

impl Chunk {
    /// Bytes on the wire.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A whole response frame: length prefix, header and body.
#[derive(Debug, Clone)]
pub struct Response {
    pub chunks: Vec<Chunk>,
    /// Where the time went until the answer was there, for metrics.
    pub timing: Option<Timing>,
}

/// Where the time of one request went.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub api_key: i16,
    /// Waiting for its turn.
    pub queued: Duration,
    /// In the handler.
    pub local: Duration,
    /// Waiting for other brokers, the flush, or bytes.
    pub remote: Duration,
    /// When the answer was there.
    pub done: Instant,
}

impl From<Vec<Chunk>> for Response {
    fn from(chunks: Vec<Chunk>) -> Self {
        Self {
            chunks,
            timing: None,
        }
    }
}

impl Response {
    /// Encodes header and body into one chunk.
    pub fn encode<B: Encodable>(
        correlation_id: i32,
        header_version: i16,
        body: &B,
        version: i16,
    ) -> anyhow::Result<Self> {
        let mut frame = BytesMut::with_capacity(4 + 5 + body.compute_size(version)?);
        frame.put_u32(0);
        header(correlation_id).encode(&mut frame, header_version)?;
        body.encode(&mut frame, version)?;
        let length = u32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(vec![Chunk::Bytes(frame.freeze())].into())
    }

    /// Puts length prefix and header before a body that is chunks already.
    pub fn frame(
        correlation_id: i32,
        header_version: i16,
        body: Vec<Chunk>,
    ) -> anyhow::Result<Self> {
        let mut head = BytesMut::with_capacity(9);
        head.put_u32(0);
        header(correlation_id).encode(&mut head, header_version)?;
        let body_bytes: u64 = body.iter().map(Chunk::len).sum();
        let length = u32::try_from(head.len() as u64 - 4 + body_bytes)?;
        head[..4].copy_from_slice(&length.to_be_bytes());
        let mut chunks = Vec::with_capacity(body.len() + 1);
        chunks.push(Chunk::Bytes(head.freeze()));
        chunks.extend(body);
        Ok(chunks.into())
    }

    /// Bytes on the wire.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(Chunk::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn header(correlation_id: i32) -> ResponseHeader {
    ResponseHeader::default().with_correlation_id(correlation_id)
}

/// What dispatching a request leaves to be done.
pub enum Completion {
    Ready(Response),
    /// The request is in order; its answer comes when it is committed. `None` closes the connection.
    Later(BoxFuture<'static, Option<Response>>),
    /// There is no answer (acks=0).
    Nothing,
    /// The connection is to be closed, for the reason given.
    Close(String),
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(response) => f.debug_tuple("Ready").field(response).finish(),
            Self::Later(_) => f.write_str("Later"),
            Self::Nothing => f.write_str("Nothing"),
            Self::Close(reason) => f.debug_tuple("Close").field(reason).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::HeartbeatResponse;

    use super::*;

    #[test]
    fn a_frame_counts_everything_behind_its_prefix() {
        let body = HeartbeatResponse::default()
            .with_throttle_time_ms(1)
            .with_error_code(27);
        let response = Response::encode(7, 1, &body, 4).unwrap();
        let Chunk::Bytes(bytes) = &response.chunks[0] else {
            panic!("one chunk of bytes")
        };
        assert_eq!(&bytes[..], b"\0\0\0\x0c\0\0\0\x07\0\0\0\0\x01\0\x1b\0");

        let body = vec![Chunk::Bytes(Bytes::from_static(b"\0\0\0\x01\0\x1b\0"))];
        let framed = Response::frame(7, 1, body).unwrap();
        assert_eq!(framed.len(), 16);
    }
}
