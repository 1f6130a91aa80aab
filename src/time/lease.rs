//! Until when this broker may count on its lease.

use std::time::Instant;

use parking_lot::Mutex;

/// The end of this broker's lease by its own clock (design R12): set by whoever keeps the lease alive, to
/// well before it can have run out; read by those who must stop then.
#[derive(Debug, Default)]
pub struct LeaseDeadline {
    /// `None`: there is no lease that could run out.
    until: Mutex<Option<Instant>>,
}

impl LeaseDeadline {
    pub fn set(&self, until: Instant) {
        *self.until.lock() = Some(until);
    }

    pub fn has_passed(&self, now: Instant) -> bool {
        self.until.lock().is_some_and(|until| now >= until)
    }
}
