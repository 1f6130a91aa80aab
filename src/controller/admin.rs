//! The registry transactions that handlers call.

/// Creates, changes and deletes topics and configs.
#[derive(Debug)]
pub struct Admin {}
