//! Until when this broker may count on its lease.

use std::time::Duration;

use parking_lot::Mutex;

/// The end of this broker's lease by its own boot clock (R12): set by whoever keeps the lease alive, to
/// well before it can have run out; read by those who must stop then.
#[derive(Debug, Default)]
pub struct LeaseDeadline {
    /// `None`: there is no lease that could run out.
    until: Mutex<Option<Duration>>,
}

impl LeaseDeadline {
    pub fn set(&self, until: Duration) {
        *self.until.lock() = Some(until);
    }

    pub fn has_passed(&self, now: Duration) -> bool {
        self.until.lock().is_some_and(|until| now >= until)
    }
}
