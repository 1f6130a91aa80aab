//! Sockets: listeners, connections, limits. Knows frames and chunks, no Kafka semantics.

mod connection;
mod frame_buffer;
mod limits;
mod listener;
mod peer;
mod service;
mod socket;

pub use connection::Connection;
pub use frame_buffer::FrameBuffers;
pub use limits::{Budgets, ConnectionLimitValues, ConnectionLimits, MemoryBudget, RequestSlots};
pub use listener::{BoundListener, SocketOptions, bind};
pub use peer::{Peer, PeerConfig, PeerHeaders, PeerRequest};
pub use service::{NetConfig, PeerInfo, Service, Turn};
pub use socket::Socket;
