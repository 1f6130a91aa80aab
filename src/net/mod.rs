//! Sockets: listeners, connections, limits. Knows frames and chunks, no Kafka semantics.

mod connection;
mod limits;
mod listener;
mod service;
mod socket;

pub use connection::Connection;
pub use limits::{ConnectionLimits, MemoryBudget};
pub use listener::{BoundListener, bind};
pub use service::{NetConfig, PeerInfo, Service};
pub use socket::Socket;
