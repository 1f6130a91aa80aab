//! Who may do what. Without an authorizer everybody may do everything.

mod operations;

pub use operations::{CLUSTER_OPERATIONS, GROUP_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS};
