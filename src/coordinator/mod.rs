//! Groups: state machines whose records live in `__consumer_offsets`.

mod group;
mod record;

/// The group coordinator.
#[derive(Debug)]
pub struct GroupCoordinator {}
