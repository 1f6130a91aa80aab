//! Who leads what, and the admin transactions.

mod admin;
mod election;
pub(crate) mod machine;
mod placement;
mod seat;
mod session;
mod task;
mod writer;

pub use admin::{
    Admin, ConfigMap, ConfigResource, CreatedTopic, ElectionKind, NewPartitions, NewTopic,
    TopicReference,
};
pub use machine::MachineConfig;
#[cfg(test)]
pub(crate) use placement::{Candidate, place};
pub use session::{Session, SessionConfig, SessionError, SessionHandle};
pub use task::Controller;
