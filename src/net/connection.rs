//! One connection: frames in, in order; answers out, in order.
//!
//! One task owns the socket. It dispatches a frame only when the one before has been dispatched, and
//! writes an answer only when the ones before are written. While answers are outstanding it goes on
//! reading, up to a bound. An idle connection holds no buffer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame_buffer::{FrameBuffer, LARGE_BYTES as LARGE_FRAME_BYTES};
use super::{Budgets, NetConfig, PeerInfo, Service, Socket, Turn};
use crate::protocol::frame::{self, Frame};
use crate::protocol::{Chunk, Completion, Response, Timing};

/// The first read of a frame; most requests fit.
const FIRST_READ_BYTES: usize = 4 << 10;
/// A buffer at most doubles, and by at least this much: memory follows what has arrived.
const GROWTH_BYTES_MIN: usize = 64 << 10;
/// Slices given to one `writev`.
const SLICES_MAX: usize = 32;
/// Requests whose answers are outstanding may hold this many bytes on one connection; one more request
/// is always read when there is none.
const OUTSTANDING_BYTES_MAX: usize = 2 << 20;
/// Answers that are gathered into one write.
const GATHER_BYTES_MAX: u64 = 256 << 10;
/// A file range is copied through a buffer of this size where the socket cannot send files.
const COPY_BYTES: usize = 64 << 10;

/// Why a connection ended, where it is worth a log line.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] frame::FrameError),
    #[error("{0}")]
    Refused(String),
    #[error("the peer is done")]
    Eof,
    #[error("idle for too long")]
    Idle,
    #[error("shutting down")]
    Shutdown,
}

/// An answer that is not written yet, with its share of the memory budget.
struct Outstanding {
    answer: Answer,
    /// Of the request, which lives about as long as its answer is awaited.
    frame_bytes: usize,
    _memory: Option<OwnedSemaphorePermit>,
}

enum Answer {
    Ready(Response),
    Later(BoxFuture<'static, Option<Response>>),
}

/// A frame that is read into a buffer of its own.
struct LargeFrame {
    buffer: FrameBuffer,
    /// Bytes of the frame and its prefix.
    wanted: usize,
    /// As much of it may be read before memory is asked for again.
    room: usize,
}

/// One connection and what it is in the middle of.
pub struct Connection<S> {
    socket: S,
    peer: PeerInfo,
    service: Arc<dyn Service>,
    config: NetConfig,
    budgets: Budgets,
    shutdown: CancellationToken,
    buffer: BytesMut,
    /// The large frame that is arriving, prefix and all; `buffer` is empty then.
    large: Option<LargeFrame>,
    /// Memory taken for what is in `buffer` or `large`.
    buffer_memory: Option<OwnedSemaphorePermit>,
    /// Size of the last frame.
    last_frame_bytes: usize,
    /// Size of the largest frame: a peer that has sent that much is believed when it claims as much.
    largest_frame_bytes: usize,
}

impl<S> std::fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl<S: Socket> Connection<S> {
    pub fn new(
        socket: S,
        peer: PeerInfo,
        service: Arc<dyn Service>,
        config: NetConfig,
        budgets: Budgets,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            socket,
            peer,
            service,
            config,
            budgets,
            shutdown,
            buffer: BytesMut::new(),
            large: None,
            buffer_memory: None,
            last_frame_bytes: 0,
            largest_frame_bytes: 0,
        }
    }

    /// Serves until either side has had enough.
    pub async fn run(mut self) {
        self.service.connected(&self.peer);
        let Err(reason) = self.serve().await;
        let peer = self.peer.address;
        match reason {
            Closed::Io(error) => tracing::debug!(%peer, %error, "connection lost"),
            Closed::Eof | Closed::Idle | Closed::Shutdown => {
                tracing::debug!(%peer, %reason, "connection closed");
            }
            Closed::Frame(_) | Closed::Refused(_) => {
                tracing::warn!(%peer, listener = %self.peer.listener, %reason, "connection closed");
            }
        }
        self.service.disconnected(&self.peer);
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, Closed> {
        let mut dispatching: Option<BoxFuture<'static, Completion>> = None;
        let mut memory = None;
        let mut outstanding: VecDeque<Outstanding> = VecDeque::new();
        let shutdown = self.shutdown.clone();
        let mut active = Instant::now();
        loop {
            let outstanding_bytes: usize = outstanding.iter().map(|next| next.frame_bytes).sum();
            let may_read = dispatching.is_none()
                && outstanding.len() < self.config.in_flight_max
                && outstanding_bytes < OUTSTANDING_BYTES_MAX;
            let idle = may_read && outstanding.is_empty();
            let stopping = shutdown.is_cancelled();
            if stopping && idle {
                return Err(Closed::Shutdown);
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !stopping => {}
                answer = front(&mut outstanding), if !outstanding.is_empty() => {
                    let Some(response) = answer else {
                        return Err(Closed::Refused("a request failed that has no answer".into()));
                    };
                    active = self.write(response, &mut outstanding).await?;
                }
                completion = dispatched(&mut dispatching), if dispatching.is_some() => {
                    dispatching = None;
                    let answer = match completion {
                        Completion::Ready(response) if outstanding.is_empty() => {
                            memory = None;
                            active = self.write(response, &mut outstanding).await?;
                            continue;
                        }
                        Completion::Ready(response) => Answer::Ready(response),
                        Completion::Later(later) => Answer::Later(later),
                        Completion::Nothing => {
                            memory = None;
                            continue;
                        }
                        Completion::Close(reason) => return Err(Closed::Refused(reason)),
                    };
                    let frame_bytes = self.last_frame_bytes;
                    let _memory = memory.take();
                    outstanding.push_back(Outstanding { answer, frame_bytes, _memory });
                }
                frame = self.read_frame(active), if may_read && !stopping => {
                    let (frame, permit) = frame?;
                    memory = permit;
                    active = Instant::now();
                    let turn = Turn::at_once(self.budgets.requests.try_take());
                    dispatching = Some(match turn {
                        Some(turn) => self.service.dispatch(&self.peer, frame, turn),
                        None => self.dispatch_in_turn(frame, active),
                    });
                }
            }
        }
    }

    /// Dispatches a frame when there is a place for it among those of other connections.
    fn dispatch_in_turn(&self, frame: Bytes, read: Instant) -> BoxFuture<'static, Completion> {
        let (service, peer) = (Arc::clone(&self.service), self.peer.clone());
        let requests = self.budgets.requests.clone();
        service.queued(1);
        let queued = Counted(Arc::clone(&service), |service| service.queued(-1));
        Box::pin(async move {
            let _slot = requests.take().await;
            drop(queued);
            let waited = Instant::now() - read;
            service.dispatch(&peer, frame, Turn { waited, _slot }).await
        })
    }

    /// Reads up to the end of the next frame. Cancel-safe: what was read stays in the buffer.
    async fn read_frame(
        &mut self,
        active: Instant,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Closed> {
        loop {
            let wanted = match self.next_frame()? {
                Frame::Complete(frame) => {
                    self.last_frame_bytes = frame.len();
                    self.largest_frame_bytes = self.largest_frame_bytes.max(frame.len());
                    let memory = self.buffer_memory.take();
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                    return Ok((frame, memory));
                }
                Frame::Incomplete { bytes } => bytes,
            };
            let Some(deadline) = active.checked_add(self.config.idle_max) else {
                return Err(Closed::Idle);
            };
            match tokio::time::timeout_at(deadline, self.read_some(wanted)).await {
                Ok(result) => result?,
                Err(_) => return Err(Closed::Idle),
            }
        }
    }

    fn next_frame(&mut self) -> Result<Frame, Closed> {
        let whole = |large: &mut LargeFrame| large.buffer.bytes.len() == large.wanted;
        if let Some(large) = self.large.take_if(whole) {
            let frame = large.buffer.freeze().slice(frame::PREFIX_BYTES..);
            return Ok(Frame::Complete(frame));
        }
        if let Some(large) = &self.large {
            let bytes = large.wanted;
            return Ok(Frame::Incomplete { bytes });
        }
        let bytes_max = self.config.request_bytes_max;
        Ok(frame::next(&mut self.buffer, bytes_max)?)
    }

    async fn read_some(&mut self, wanted: usize) -> Result<(), Closed> {
        if self.buffer.is_empty() && self.large.is_none() {
            poll_fn(|cx| self.socket.poll_readable(cx)).await?;
        }
        let full = match &self.large {
            Some(large) => large.buffer.bytes.len() == large.room,
            None => self.buffer.capacity() == self.buffer.len(),
        };
        if full {
            self.grow(wanted).await?;
        }
        let read = match &mut self.large {
            Some(large) => {
                let bytes = &mut large.buffer.bytes;
                let room = large.room - bytes.len();
                self.socket.read_buf(&mut bytes.limit(room)).await?
            }
            None => self.socket.read_buf(&mut self.buffer).await?,
        };
        match read {
            0 => Err(Closed::Eof),
            _ => Ok(()),
        }
    }

    /// Makes room for more of a frame of `wanted` bytes, in step with what has arrived. The buffer never
    /// reaches beyond the frame, so that a frame pins no memory but its own.
    async fn grow(&mut self, wanted: usize) -> Result<(), Closed> {
        let arrived = match &self.large {
            Some(large) => &large.buffer.bytes[..],
            None => &self.buffer[..],
        };
        let held = arrived.len();
        if held == 0 {
            self.buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
            return Ok(());
        }
        let believed = held.max(GROWTH_BYTES_MIN).max(self.largest_frame_bytes);
        let more = wanted.saturating_sub(held).clamp(1, believed);
        let permit = self.budgets.memory.take(more).await;
        match (&mut self.buffer_memory, permit) {
            (Some(memory), Some(permit)) => memory.merge(permit),
            (memory, permit) => *memory = permit,
        }
        let room = held + more;
        if room < LARGE_FRAME_BYTES {
            let mut larger = BytesMut::with_capacity(room);
            larger.extend_from_slice(arrived);
            self.buffer = larger;
            return Ok(());
        }
        let mut buffer = self.budgets.frames.take(room);
        buffer.bytes.extend_from_slice(arrived);
        self.buffer = BytesMut::new();
        self.large = Some(LargeFrame {
            buffer,
            wanted,
            room,
        });
        Ok(())
    }

    /// Writes one answer, with those behind it that are ready as well. Returns when it was done.
    async fn write(
        &mut self,
        response: Response,
        outstanding: &mut VecDeque<Outstanding>,
    ) -> Result<Instant, Closed> {
        let mut bytes = response.len();
        let mut timings: Vec<Timing> = response.timing.into_iter().collect();
        let mut answers = 1;
        let mut chunks: VecDeque<Chunk> = response.chunks.into();
        while bytes < GATHER_BYTES_MAX && !outstanding.is_empty() {
            match front(outstanding).now_or_never() {
                Some(Some(next)) => {
                    bytes += next.len();
                    timings.extend(next.timing);
                    answers += 1;
                    chunks.extend(next.chunks);
                }
                Some(None) => {
                    return Err(Closed::Refused(
                        "a request failed that has no answer".into(),
                    ));
                }
                None => break,
            }
        }
        self.service.sending(answers);
        let _sending = Counted(Arc::clone(&self.service), move |service| {
            service.sending(-answers);
        });
        let start = Instant::now();
        let deadline = start + self.config.idle_max;
        match tokio::time::timeout_at(deadline, write_chunks(&mut self.socket, chunks)).await {
            Ok(result) => result?,
            Err(_) => return Err(Closed::Idle),
        }
        let end = Instant::now();
        for timing in timings {
            let waited = start.into_std().saturating_duration_since(timing.done);
            self.service.sent(&timing, waited, end - start);
        }
        Ok(end)
    }
}

/// Takes back what a gauge counted, also where its future is dropped.
struct Counted<F: Fn(&dyn Service)>(Arc<dyn Service>, F);

impl<F: Fn(&dyn Service)> Drop for Counted<F> {
    fn drop(&mut self) {
        (self.1)(&*self.0);
    }
}

/// Resolves with the oldest answer once it is there, and takes it off the queue.
async fn front(outstanding: &mut VecDeque<Outstanding>) -> Option<Response> {
    poll_fn(|cx| {
        let Some(oldest) = outstanding.front_mut() else {
            return Poll::Pending;
        };
        if let Answer::Later(later) = &mut oldest.answer {
            let response = std::task::ready!(later.poll_unpin(cx));
            outstanding.pop_front();
            return Poll::Ready(response);
        }
        match outstanding.pop_front() {
            Some(Outstanding {
                answer: Answer::Ready(response),
                ..
            }) => Poll::Ready(Some(response)),
            _ => Poll::Ready(None),
        }
    })
    .await
}

async fn dispatched(dispatching: &mut Option<BoxFuture<'static, Completion>>) -> Completion {
    match dispatching {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn write_chunks<S: Socket>(socket: &mut S, mut chunks: VecDeque<Chunk>) -> io::Result<()> {
    while let Some(chunk) = chunks.front() {
        match chunk {
            Chunk::Bytes(_) => {
                let sent = poll_fn(|cx| poll_write_bytes(socket, cx, &chunks)).await?;
                advance(&mut chunks, sent)?;
            }
            Chunk::File { .. } => {
                let Some(Chunk::File {
                    file,
                    position,
                    bytes,
                    unreadable,
                }) = chunks.pop_front()
                else {
                    continue;
                };
                let written = write_file(socket, &file, position, bytes).await;
                if let Err(error) = written {
                    // Not the socket's fault.
                    if error.raw_os_error() == Some(libc::EIO)
                        || error.kind() == io::ErrorKind::UnexpectedEof
                    {
                        unreadable.store(true, Ordering::Release);
                    }
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// One `writev` over the byte chunks up to the next file.
fn poll_write_bytes<S: Socket>(
    socket: &mut S,
    cx: &mut Context<'_>,
    chunks: &VecDeque<Chunk>,
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for chunk in chunks.iter().take(SLICES_MAX) {
        let Chunk::Bytes(bytes) = chunk else { break };
        slices[count] = IoSlice::new(bytes);
        count += 1;
    }
    if slices[..count].iter().all(|slice| slice.is_empty()) {
        return Poll::Ready(Ok(0));
    }
    let slices = &slices[..count];
    let written = match chunks.get(count) {
        Some(Chunk::File { .. }) => socket.poll_write_before_file(cx, slices),
        _ => Pin::new(socket).poll_write_vectored(cx, slices),
    };
    match written {
        Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        other => other,
    }
}

/// Drops what was sent, and empty chunks, off the front.
fn advance(chunks: &mut VecDeque<Chunk>, mut sent: usize) -> io::Result<()> {
    while let Some(Chunk::Bytes(bytes)) = chunks.front_mut() {
        if sent < bytes.len() {
            bytes.advance(sent);
            return Ok(());
        }
        sent -= bytes.len();
        chunks.pop_front();
        if sent == 0 && !matches!(chunks.front(), Some(Chunk::Bytes(next)) if next.is_empty()) {
            return Ok(());
        }
    }
    if sent == 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Sends a range of a file. A file that shrank under the response ends the connection: its length
/// was promised.
async fn write_file<S: Socket>(
    socket: &mut S,
    file: &std::fs::File,
    mut position: u64,
    mut bytes: u64,
) -> io::Result<()> {
    while bytes > 0 {
        let chunk = usize::try_from(bytes).unwrap_or(usize::MAX).min(1 << 30);
        match poll_fn(|cx| socket.poll_send_file(cx, file, position, chunk)).await {
            Some(sent) => {
                let sent = sent? as u64;
                if sent == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                position += sent;
                bytes -= sent;
            }
            None => return copy_file(socket, file, position, bytes).await,
        }
    }
    Ok(())
}

async fn copy_file<S: AsyncWrite + Unpin>(
    socket: &mut S,
    file: &std::fs::File,
    mut position: u64,
    mut bytes: u64,
) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; COPY_BYTES];
    while bytes > 0 {
        let chunk = usize::try_from(bytes).unwrap_or(usize::MAX).min(COPY_BYTES);
        let read = file.read_at(&mut buffer[..chunk], position)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        socket.write_all(&buffer[..read]).await?;
        position += read as u64;
        bytes -= read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
