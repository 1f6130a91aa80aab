//! Until when this broker may count on its lease.

use std::time::Duration;

use parking_lot::Mutex;

/// The end of this broker's lease by its own boot clock (R12), and the registration that it holds: set by
/// whoever keeps the lease alive, to well before it can have run out; read by those who must stop then.
#[derive(Debug, Default)]
pub struct LeaseDeadline {
    /// `None`: there is no lease that could run out.
    held: Mutex<Option<(Duration, i64)>>,
}

impl LeaseDeadline {
    pub fn set(&self, until: Duration, registration: i64) {
        *self.held.lock() = Some((until, registration));
    }

    /// For what was given to this broker under `registration`: when it had to register anew, that may be
    /// somebody else's by now, however long the new lease is.
    pub fn has_passed(&self, now: Duration, registration: i64) -> bool {
        let held = *self.held.lock();
        held.is_some_and(|(until, of)| now >= until || of != registration)
    }
}
