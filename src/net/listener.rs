//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use socket2::{Domain, Protocol, SockAddr, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Budgets, Connection, ConnectionLimits, NetConfig, PeerInfo, Service};
use crate::types::ListenerName;

/// Waited after an accept that failed for lack of something (file descriptors, memory).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What the kernel is told about a listener's sockets; −1 leaves a buffer to the system.
#[derive(Debug, Clone, Copy)]
pub struct SocketOptions {
    /// `socket.send.buffer.bytes`
    pub send_buffer_bytes: i32,
    /// `socket.receive.buffer.bytes`
    pub receive_buffer_bytes: i32,
    /// `socket.listen.backlog.size`
    pub backlog: i32,
}

/// A bound socket that is not served yet.
#[derive(Debug)]
pub struct BoundListener {
    pub name: ListenerName,
    pub address: SocketAddr,
    listener: TcpListener,
    pacing: Option<Pacing>,
}

/// The system's congestion control, where it sends piece by piece by a timer (BBR). On the loopback there is no
/// link that would need it, and the timer costs more than sending. A socket that had it once keeps the timer:
/// so the listener has Reno, which is part of every Linux, and accepted sockets of other peers get the
/// system's choice back.
#[derive(Debug)]
struct Pacing(String);

impl Pacing {
    /// `None` where the system's choice can stay.
    fn spare(listener: &TcpListener) -> Option<Self> {
        let choice = tcp_congestion(listener).ok()?;
        let paces = choice.starts_with("bbr");
        let spared = paces && set_tcp_congestion(listener, "reno").is_ok();
        spared.then_some(Self(choice))
    }
}

/// Binds one listener. An empty host is every interface, IPv6 as well where there is one.
pub fn bind(
    name: &ListenerName,
    host: &str,
    port: u16,
    options: SocketOptions,
) -> io::Result<BoundListener> {
    let candidates = addresses(host, port)?;
    let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in candidates {
        match bind_address(address, options) {
            Ok(listener) => {
                let address = listener.local_addr()?;
                let pacing = Pacing::spare(&listener);
                return Ok(BoundListener {
                    name: Arc::clone(name),
                    address,
                    listener,
                    pacing,
                });
            }
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.is_empty() {
        return Ok(vec![([0u16; 8], port).into(), ([0u8; 4], port).into()]);
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).map(Iterator::collect)
}

fn bind_address(address: SocketAddr, options: SocketOptions) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit the sizes.
    if let Ok(bytes @ 1..) = usize::try_from(options.send_buffer_bytes) {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Ok(bytes @ 1..) = usize::try_from(options.receive_buffer_bytes) {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(options.backlog.max(1))?;
    TcpListener::from_std(socket.into())
}

impl BoundListener {
    /// Accepts until `shutdown`; every connection runs in `tasks`.
    pub async fn serve(
        self,
        service: Arc<dyn Service>,
        config: NetConfig,
        limits: Arc<ConnectionLimits>,
        budgets: Budgets,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shutdown.cancelled() => return,
            };
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    tracing::warn!(listener = %self.name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            while let Err(wait) = limits.take_up(&self.name, tokio::time::Instant::now().into_std())
            {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = shutdown.cancelled() => return,
                }
            }
            let admitted = match limits.admit(address.ip(), &self.name) {
                Ok(admitted) => admitted,
                Err(limit) => {
                    service.refused(&self.name);
                    tracing::warn!(peer = %address, limit, "connection refused: limit reached");
                    continue;
                }
            };
            if let Err(error) = prepare(&socket, address, self.pacing.as_ref()) {
                tracing::debug!(peer = %address, %error, "connection lost");
                continue;
            }
            let peer = PeerInfo {
                listener: Arc::clone(&self.name),
                address,
                client: Arc::default(),
            };
            let service = Arc::clone(&service);
            let connection = Connection::new(
                socket,
                peer,
                service,
                config,
                budgets.clone(),
                shutdown.clone(),
            );
            tasks.spawn(async move {
                connection.run().await;
                drop(admitted);
            });
        }
    }
}

fn prepare(socket: &TcpStream, peer: SocketAddr, pacing: Option<&Pacing>) -> io::Result<()> {
    if let Some(Pacing(choice)) = pacing
        && !peer.ip().to_canonical().is_loopback()
    {
        let _ = set_tcp_congestion(socket, choice); // without, it has Reno, which serves as well
    }
    socket.set_nodelay(true)
}

/// Errors that say something about the peer, not about us.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: SocketOptions = SocketOptions {
        send_buffer_bytes: -1,
        receive_buffer_bytes: -1,
        backlog: 10,
    };

    #[tokio::test]
    async fn only_the_loopback_is_spared_what_links_need() {
        let bound = bind(&"L".into(), "127.0.0.1", 0, OPTIONS).unwrap();
        for (peer, spared) in [
            ("127.0.0.1:1000", true),
            ("[::1]:1000", true),
            ("[::ffff:127.0.0.1]:1000", true),
            ("10.0.0.1:1000", false),
            ("[2001:db8::1]:1000", false),
        ] {
            let accepted = bound.listener.accept();
            let (client, accepted) = tokio::join!(TcpStream::connect(bound.address), accepted);
            let system = tcp_congestion(client.unwrap()).unwrap();
            let (socket, _) = accepted.unwrap();
            prepare(&socket, peer.parse().unwrap(), bound.pacing.as_ref()).unwrap();
            let paces = system.starts_with("bbr");
            let expected = if spared && paces { "reno" } else { &system };
            assert_eq!(tcp_congestion(&socket).unwrap(), expected, "{peer}");
        }
    }
}
