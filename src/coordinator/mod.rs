//! Groups: state machines whose records live in `__consumer_offsets`.

/// The group coordinator.
#[derive(Debug)]
pub struct GroupCoordinator {}
