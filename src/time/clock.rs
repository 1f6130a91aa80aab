//! Where the time comes from.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::types::TimestampMs;

/// The time, monotonic and of the wall.
pub trait Clock: Debug + Send + Sync {
    /// Never goes back; for deadlines and durations.
    fn now(&self) -> Instant;
    /// Time since the machine started, what it slept included: a lease goes on while a machine sleeps.
    fn boot(&self) -> Duration;
    /// Milliseconds since 1970, as records and offsets are stamped.
    fn wall_ms(&self) -> TimestampMs;
}

/// The machine's clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the clock
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(seconds, nanoseconds)
    }

    #[allow(clippy::disallowed_methods)] // this is the clock
    fn wall_ms(&self) -> TimestampMs {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(_) => 0,
        }
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    start: Instant,
    start_ms: TimestampMs,
    elapsed_ms: AtomicI64,
}

impl ManualClock {
    /// Starts at `start_ms` since 1970.
    #[allow(clippy::disallowed_methods)] // an Instant cannot be made out of nothing
    pub fn new(start_ms: TimestampMs) -> Self {
        Self {
            start: Instant::now(),
            start_ms,
            elapsed_ms: AtomicI64::new(0),
        }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).expect("a test moves its clock by years at most");
        self.elapsed_ms.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        let elapsed = self.elapsed_ms.load(Ordering::SeqCst);
        self.start + Duration::from_millis(elapsed.unsigned_abs())
    }

    fn boot(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.load(Ordering::SeqCst).unsigned_abs())
    }

    fn wall_ms(&self) -> TimestampMs {
        self.start_ms + self.elapsed_ms.load(Ordering::SeqCst)
    }
}
