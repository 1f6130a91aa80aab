//! The socket seam: a byte stream that may know how to send a file range by itself.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest};
use tokio::net::TcpStream;

/// A connected byte stream.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Ready when a read would not block, so that an idle connection holds no buffer.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

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

    fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        position: u64,
        bytes: usize,
    ) -> Poll<Option<io::Result<usize>>> {
        loop {
            if let Err(error) = std::task::ready!(self.poll_write_ready(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            let mut offset = position;
            let sent = self.try_io(Interest::WRITABLE, || {
                Ok(rustix::fs::sendfile(
                    self.as_fd(),
                    file.as_fd(),
                    Some(&mut offset),
                    bytes,
                )?)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(Some(sent)),
            }
        }
    }
}

/// For tests without a network.
impl Socket for DuplexStream {
    fn poll_readable(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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
