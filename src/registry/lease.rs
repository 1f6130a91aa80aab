//! What this broker may believe of its own lease, by its own clock (R12).
//!
//! The registry counts a lease's time from when it got the last renewal, and that was not before this
//! broker sent it. So until two thirds of the time have passed since the sending nobody can have been
//! told that this broker is gone; from then on it does nothing that assumes it is not: no admin writes,
//! no changes of leaders, and `acks=0/1` only under the leader's own conditions. What the ISR commits
//! goes on, whatever the lease does.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Revision;
use crate::time::{Clock, LeaseDeadline};
use crate::types::rules::{Rule, holds};

const NEVER: i64 = i64::MIN;
const ALWAYS: i64 = i64::MAX;

/// Shared by whoever keeps the lease and those who ask.
#[derive(Debug)]
pub struct BrokerLease {
    clock: Arc<dyn Clock>,
    /// Milliseconds on the boot clock.
    held_until: AtomicI64,
    /// Create revision of the registration; 0: none.
    epoch: AtomicI64,
    /// The registry has answered each renewal since then.
    answering_since: Mutex<Option<Instant>>,
    /// The same deadline for those who know nothing of a registry.
    deadline: Mutex<Option<Arc<LeaseDeadline>>>,
}

impl BrokerLease {
    /// Not held yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            held_until: AtomicI64::new(NEVER),
            epoch: AtomicI64::new(0),
            answering_since: Mutex::new(None),
            deadline: Mutex::new(None),
        }
    }

    /// One that does not end, for tests.
    pub fn endless(clock: Arc<dyn Clock>, epoch: Revision) -> Self {
        let lease = Self::new(clock);
        lease.never_ends();
        lease.registered(epoch);
        lease
    }

    /// R12: whether nobody can have been told yet that this broker is gone.
    pub fn is_held(&self) -> bool {
        let until = self.held_until.load(Ordering::Acquire);
        if !holds(Rule::R12) {
            return self.broker_epoch() != 0;
        }
        until == ALWAYS || millis(self.clock.boot()) < until
    }

    /// The broker epoch of the registration that the lease holds.
    pub fn broker_epoch(&self) -> Revision {
        self.epoch.load(Ordering::Acquire)
    }

    /// Since when the registry answers without a break; `None` while it does not.
    pub fn answering_since(&self) -> Option<Instant> {
        *self.answering_since.lock()
    }

    /// Keeps `deadline` as well from now on.
    pub fn keep(&self, deadline: Arc<LeaseDeadline>) {
        let until = self.held_until.load(Ordering::Acquire);
        if until != ALWAYS {
            let until = Duration::from_millis(u64::try_from(until).unwrap_or(0));
            deadline.set(until, self.broker_epoch());
        }
        *self.deadline.lock() = Some(deadline);
    }

    fn pass_on(&self, until: Duration) {
        if let Some(deadline) = &*self.deadline.lock() {
            deadline.set(until, self.broker_epoch());
        }
    }

    /// The time on the boot clock, to be taken before a renewal is sent.
    pub fn sending(&self) -> Duration {
        self.clock.boot()
    }

    /// A renewal, sent at `sent`, was answered: the lease lives for `ttl` from when it arrived.
    pub fn renewed(&self, sent: Duration, ttl: Duration) {
        let until = millis(sent + ttl * 2 / 3);
        let before = self.held_until.fetch_max(until, Ordering::AcqRel);
        if before < until {
            self.pass_on(sent + ttl * 2 / 3);
        }
        let now = self.clock.now();
        self.answering_since.lock().get_or_insert(now);
    }

    /// It does not end: the registry is inside of this process.
    pub fn never_ends(&self) {
        self.held_until.store(ALWAYS, Ordering::Release);
        let now = self.clock.now();
        self.answering_since.lock().get_or_insert(now);
    }

    /// A registration under the lease.
    pub fn registered(&self, epoch: Revision) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// The registry did not answer.
    pub fn unanswered(&self) {
        *self.answering_since.lock() = None;
    }

    /// It is known to be over.
    pub fn lost(&self) {
        self.held_until.store(NEVER, Ordering::Release);
        self.pass_on(Duration::ZERO);
        self.epoch.store(0, Ordering::Release);
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(ALWAYS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ManualClock;

    #[test]
    fn a_lease_is_held_for_two_thirds_of_its_time_from_the_sending_on() {
        let clock = Arc::new(ManualClock::new(0));
        let lease = BrokerLease::new(Arc::clone(&clock) as _);
        let deadline = Arc::new(LeaseDeadline::default());
        lease.keep(Arc::clone(&deadline));
        assert!(!lease.is_held() && deadline.has_passed(clock.boot(), 17));
        let ttl = Duration::from_secs(9);
        let sent = lease.sending();
        clock.advance(Duration::from_secs(5)); // the answer took that long
        lease.registered(17);
        lease.renewed(sent, ttl);
        assert_eq!((lease.is_held(), lease.broker_epoch()), (true, 17));
        clock.advance(Duration::from_millis(999));
        assert!(lease.is_held() && !deadline.has_passed(clock.boot(), 17));
        clock.advance(Duration::from_millis(1));
        assert!(!lease.is_held() && deadline.has_passed(clock.boot(), 17));
        lease.renewed(lease.sending(), ttl);
        assert!(lease.is_held());
        // An answer to something older does not shorten it.
        lease.renewed(Duration::ZERO, ttl);
        assert!(lease.is_held());
        lease.lost();
        assert_eq!((lease.is_held(), lease.broker_epoch()), (false, 0));
        // A new registration says nothing of what was given under the one before.
        lease.registered(23);
        lease.renewed(lease.sending(), ttl);
        assert!(!deadline.has_passed(clock.boot(), 23) && deadline.has_passed(clock.boot(), 17));
    }

    #[test]
    fn answering_begins_anew_after_each_break() {
        let clock = Arc::new(ManualClock::new(0));
        let lease = BrokerLease::new(Arc::clone(&clock) as _);
        assert_eq!(lease.answering_since(), None);
        let ttl = Duration::from_secs(9);
        lease.renewed(lease.sending(), ttl);
        let first = lease.answering_since();
        clock.advance(Duration::from_secs(2));
        lease.renewed(lease.sending(), ttl);
        assert_eq!(lease.answering_since(), first);
        lease.unanswered();
        assert_eq!(lease.answering_since(), None);
        lease.renewed(lease.sending(), ttl);
        assert_eq!(lease.answering_since(), Some(clock.now()));
    }

    #[test]
    fn an_endless_lease_is_held_for_ever() {
        let clock = Arc::new(ManualClock::new(0));
        let lease = BrokerLease::endless(Arc::clone(&clock) as _, 3);
        clock.advance(Duration::from_secs(1 << 30));
        assert_eq!((lease.is_held(), lease.broker_epoch()), (true, 3));
    }
}
