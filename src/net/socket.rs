//! The socket seam: a byte stream that may know how to send a file range by itself.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest};
use tokio::net::TcpStream;

/// A connected byte stream.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Ready when a read would not block, so that an idle connection holds no buffer.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Writes what a part of a file follows at once: it need not go out alone.
    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Sends a part of the file by the kernel's hand. `None`: this socket cannot, copy instead.
    /// `Some(Ok(0))`: the file ends before `position`.
    fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        position: u64,
        bytes: usize,
    ) -> Poll<Option<io::Result<usize>>>;
}

impl Socket for TcpStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        poll_when_writable(self, cx, || {
            let control = &mut SendAncillaryBuffer::default();
            rustix::net::sendmsg(self.as_fd(), slices, control, flags)
        })
    }

    fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        position: u64,
        bytes: usize,
    ) -> Poll<Option<io::Result<usize>>> {
        let sent = poll_when_writable(self, cx, || {
            let mut offset = position;
            rustix::fs::sendfile(self.as_fd(), file.as_fd(), Some(&mut offset), bytes)
        });
        sent.map(Some)
    }
}

fn poll_when_writable(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    mut write: impl FnMut() -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        std::task::ready!(socket.poll_write_ready(cx))?;
        match socket.try_io(Interest::WRITABLE, || Ok(write()?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}

/// For tests without a network.
impl Socket for DuplexStream {
    fn poll_readable(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write_vectored(cx, slices)
    }

    fn poll_send_file(
        &self,
        _cx: &mut Context<'_>,
        _file: &File,
        _position: u64,
        _bytes: usize,
    ) -> Poll<Option<io::Result<usize>>> {
        Poll::Ready(None)
    }
}
