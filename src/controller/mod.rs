//! Who leads what, and the admin transactions.

mod admin;
mod placement;
mod session;

pub use admin::{
    Admin, ConfigMap, ConfigResource, CreatedTopic, NewPartitions, NewTopic, TopicReference,
};
pub use session::{Session, SessionConfig, SessionError};
