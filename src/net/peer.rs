//! A connection to another broker: one request, then its answer, in turn.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Socket;
use super::frame_buffer::{FrameBuffers, LARGE_BYTES};

/// Bytes of the length prefix.
const PREFIX_BYTES: usize = 4;
/// The correlation id.
const RESPONSE_HEADER_BYTES: usize = 4;

/// How a peer is spoken to.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// Names this broker in the other's logs and metrics.
    pub client_id: String,
    pub connect_timeout: Duration,
    /// `replica.socket.receive.buffer.bytes`; −1: the system's.
    pub receive_buffer_bytes: i32,
    /// A longer answer ends the connection.
    pub response_bytes_max: usize,
}

/// One request to another broker.
#[derive(Debug)]
pub struct PeerRequest {
    pub api_key: i16,
    pub api_version: i16,
    /// What stands in front of both bodies.
    pub headers: PeerHeaders,
    pub body: BytesMut,
    /// How long the answer may take.
    pub timeout: Duration,
}

/// Which headers an API's version has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerHeaders {
    /// Both end with tagged fields: all flexible versions but those of ApiVersions.
    Flexible,
    /// Only the request's does: ApiVersions, whose answer anybody can read.
    PlainAnswer,
    /// Neither does.
    Plain,
}

/// A connection. After any error it is of no use.
#[derive(Debug)]
pub struct Peer<S = TcpStream> {
    socket: S,
    config: PeerConfig,
    buffers: FrameBuffers,
    correlation_id: i32,
}

impl Peer {
    /// Connects to the first address of `host` that answers.
    pub async fn connect(
        host: &str,
        port: u16,
        config: PeerConfig,
        buffers: FrameBuffers,
    ) -> io::Result<Self> {
        let timeout = config.connect_timeout;
        let receive_buffer_bytes = config.receive_buffer_bytes;
        let connecting = async {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let mut failed = None;
            for address in tokio::net::lookup_host((host, port)).await? {
                let socket = match address.is_ipv4() {
                    true => TcpSocket::new_v4()?,
                    false => TcpSocket::new_v6()?,
                };
                if let Ok(bytes @ 1..) = u32::try_from(receive_buffer_bytes) {
                    socket.set_recv_buffer_size(bytes)?;
                }
                match socket.connect(address).await {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(stream);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
        };
        let connected = tokio::time::timeout(timeout, connecting);
        let socket = connected.await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Self::over(socket, config, buffers))
    }
}

impl<S: Socket> Peer<S> {
    pub fn over(socket: S, config: PeerConfig, buffers: FrameBuffers) -> Self {
        Self {
            socket,
            config,
            buffers,
            correlation_id: 0,
        }
    }

    /// Sends a request and returns the body of its answer. Dropped half way it leaves the connection
    /// unusable, as an error does.
    pub async fn call(&mut self, request: PeerRequest) -> io::Result<Bytes> {
        let timeout = request.timeout;
        let answered = tokio::time::timeout(timeout, self.exchange(request));
        answered.await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Sends a request that is never answered: Produce at acks=0.
    pub async fn tell(&mut self, request: PeerRequest) -> io::Result<()> {
        let timeout = request.timeout;
        let sent = tokio::time::timeout(timeout, self.write(request));
        sent.await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn exchange(&mut self, request: PeerRequest) -> io::Result<Bytes> {
        let tagged = request.headers == PeerHeaders::Flexible;
        self.write(request).await?;
        self.answer(tagged).await
    }

    async fn write(&mut self, request: PeerRequest) -> io::Result<()> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let header = self.header(&request)?;
        let mut bytes = header.chain(request.body);
        self.socket.write_all_buf(&mut bytes).await?;
        self.socket.flush().await
    }

    fn header(&self, request: &PeerRequest) -> io::Result<BytesMut> {
        let client_id = self.config.client_id.as_bytes();
        let tags_bytes = usize::from(request.headers != PeerHeaders::Plain);
        let header_bytes = 10 + client_id.len() + tags_bytes;
        let mut header = BytesMut::with_capacity(PREFIX_BYTES + header_bytes);
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let client_id_bytes = i16::try_from(client_id.len()).map_err(too_long)?;
        let bytes = header_bytes + request.body.len();
        header.put_i32(i32::try_from(bytes).map_err(too_long)?);
        header.put_i16(request.api_key);
        header.put_i16(request.api_version);
        header.put_i32(self.correlation_id);
        header.put_i16(client_id_bytes);
        header.put_slice(client_id);
        header.put_bytes(0, tags_bytes); // no tagged fields
        Ok(header)
    }

    async fn answer(&mut self, tagged: bool) -> io::Result<Bytes> {
        let header_bytes = RESPONSE_HEADER_BYTES + usize::from(tagged);
        let mut prefix = [0; PREFIX_BYTES];
        self.socket.read_exact(&mut prefix).await?;
        let bytes = usize::try_from(i32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
        if !(header_bytes..=self.config.response_bytes_max).contains(&bytes) {
            return Err(invalid(format!("an answer of {bytes} bytes")));
        }
        let frame = if bytes < LARGE_BYTES {
            let mut buffer = Vec::with_capacity(bytes);
            self.fill(&mut buffer, bytes).await?;
            Bytes::from(buffer)
        } else {
            let mut buffer = self.buffers.take(bytes);
            self.fill(&mut buffer.bytes, bytes).await?;
            buffer.freeze()
        };
        let mut header = &frame[..];
        let correlation_id = header.get_i32();
        if correlation_id != self.correlation_id {
            return Err(invalid(format!(
                "an answer to request {correlation_id} instead of {}",
                self.correlation_id
            )));
        }
        if tagged && header.get_u8() != 0 {
            return Err(invalid("tagged fields in the header".to_owned()));
        }
        Ok(frame.slice(header_bytes..))
    }

    async fn fill(&mut self, buffer: &mut Vec<u8>, bytes: usize) -> io::Result<()> {
        while buffer.len() < bytes {
            let left = bytes - buffer.len();
            let mut rest = (&mut *buffer).limit(left);
            if self.socket.read_buf(&mut rest).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    fn peer() -> (Peer<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let config = PeerConfig {
            client_id: "broker-1".to_owned(),
            connect_timeout: Duration::from_secs(1),
            receive_buffer_bytes: -1,
            response_bytes_max: 1 << 20,
        };
        (Peer::over(ours, config, FrameBuffers::default()), theirs)
    }

    fn request() -> PeerRequest {
        PeerRequest {
            api_key: 1,
            api_version: 17,
            headers: PeerHeaders::Flexible,
            body: BytesMut::from(&b"body"[..]),
            timeout: Duration::from_secs(1),
        }
    }

    async fn answered(answer: &[u8]) -> io::Result<Bytes> {
        let (mut peer, mut theirs) = peer();
        theirs.write_all(answer).await.unwrap();
        peer.call(request()).await
    }

    #[tokio::test]
    async fn a_request_and_its_answer() {
        let (mut peer, mut theirs) = peer();
        let large = vec![9; 100_000];
        let mut answers = b"\0\0\0\x08\0\0\0\x01\0abc".to_vec();
        answers.extend(100_005_u32.to_be_bytes());
        answers.extend(b"\0\0\0\x02\0");
        answers.extend(&large);
        theirs.write_all(&answers).await.unwrap();
        assert_eq!(peer.call(request()).await.unwrap(), "abc");
        assert_eq!(peer.call(request()).await.unwrap(), large);
        let mut sent = vec![0; 27];
        theirs.read_exact(&mut sent).await.unwrap();
        assert_eq!(
            sent,
            b"\0\0\0\x17\0\x01\0\x11\0\0\0\x01\0\x08broker-1\0body"
        );
    }

    #[tokio::test]
    async fn headers_without_tagged_fields() {
        let (mut peer, mut theirs) = peer();
        theirs
            .write_all(b"\0\0\0\x07\0\0\0\x01abc\0\0\0\x04\0\0\0\x02")
            .await
            .unwrap();
        let of = |headers| PeerRequest {
            headers,
            ..request()
        };
        assert_eq!(
            peer.call(of(PeerHeaders::PlainAnswer)).await.unwrap(),
            "abc"
        );
        assert_eq!(peer.call(of(PeerHeaders::Plain)).await.unwrap(), "");
        let mut sent = vec![0; 27 + 26];
        theirs.read_exact(&mut sent).await.unwrap();
        assert_eq!(
            sent,
            b"\0\0\0\x17\0\x01\0\x11\0\0\0\x01\0\x08broker-1\0body\
              \0\0\0\x16\0\x01\0\x11\0\0\0\x02\0\x08broker-1body"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_answer_ends_it() {
        let kind =
            |answer: &'static [u8]| async move { answered(answer).await.unwrap_err().kind() };
        let invalid = io::ErrorKind::InvalidData;
        assert_eq!(kind(b"\0\0\0\x05\0\0\0\x07\0").await, invalid);
        assert_eq!(kind(b"\0\x11\0\0").await, invalid);
        assert_eq!(kind(b"\xff\xff\xff\xff").await, invalid);
        assert_eq!(kind(b"\0\0\0\x04\0\0\0\x01").await, invalid);
        assert_eq!(kind(b"\0\0\0\x09\0\0").await, io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn nobody_listens() {
        let (peer, _) = peer();
        let config = peer.config;
        let refused = Peer::connect("127.0.0.1", 1, config, FrameBuffers::default()).await;
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
