//! Short disk work on the thread that brings it, a thread of the runtime.
//!
//! Handing an append to a thread of the pool costs about as much as the append: two threads are woken, and
//! the records move to another core's cache. So it runs where it is brought, as long as the disk answers
//! at once. What if it does not?
//!
//! * One job runs so at a time, however many directories there are. The runtime has more threads than one.
//! * The thread that is stuck may be the one that the others count on to look at sockets and timers. A
//!   watch notices within two [`TICK`]s, and has the runtime send a stand-in.
//! * After a job that took long because it waited none runs here for [`REST`] times as long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libc::c_long;
use nix::sys::resource::{UsageWho, getrusage};
use parking_lot::{Condvar, Mutex};

use crate::time::Clock;

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(20);
/// The watch sleeps when no job has come for so many ticks.
const QUIET_TICKS: u32 = 10;
/// A job that took longer and waited for something makes the next ones go elsewhere. One that merely lost
/// its core to others for a while would have done so there.
const LONG: Duration = Duration::from_millis(5);
/// How long for, in times of what it took.
const REST: u32 = 50;

/// Lets one job at a time run on its caller's thread, and watches it.
pub struct Callers {
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    start: Instant,
    /// When the job began that runs, in microseconds since `start`; 0: none runs.
    began: AtomicU64,
    /// Jobs that began.
    turns: AtomicU64,
    /// None begins before.
    rest_until: AtomicU64,
    asleep: AtomicBool,
    stopped: Mutex<bool>,
    wake: Condvar,
    send_stand_in: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

/// A job's turn; over when dropped, on the same thread.
pub(super) struct Turn<'a> {
    shared: &'a Shared,
    /// How often the thread had waited for anything when it began.
    waits: Option<c_long>,
}

impl Callers {
    /// `send_stand_in` wakes another thread of the runtime, which then looks at sockets and timers. It is
    /// called every [`TICK`] while a job is stuck, and must not block.
    pub fn new(
        clock: Arc<dyn Clock>,
        send_stand_in: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            start: clock.now(),
            clock,
            began: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            rest_until: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            stopped: Mutex::new(false),
            wake: Condvar::new(),
            send_stand_in: Box::new(send_stand_in),
        });
        let watched = Arc::clone(&shared);
        let watch = std::thread::Builder::new()
            .name("log-watch".to_owned())
            .spawn(move || watched.watch())?;
        Ok(Self {
            shared,
            watch: Some(watch),
        })
    }

    /// `None` if the job has to run elsewhere. Does not block.
    pub(super) fn enter(&self) -> Option<Turn<'_>> {
        let shared = &*self.shared;
        let now = shared.now();
        if now < shared.rest_until.load(Ordering::Relaxed) {
            return None;
        }
        let (now, order) = (now.max(1), Ordering::SeqCst);
        shared.began.compare_exchange(0, now, order, order).ok()?;
        shared.turns.fetch_add(1, Ordering::Relaxed);
        if shared.asleep.load(Ordering::SeqCst) {
            drop(shared.stopped.lock()); // it waits, or has not looked at `began` yet
            shared.wake.notify_one();
        }
        Some(Turn {
            shared,
            waits: waits(),
        })
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        *self.shared.stopped.lock() = true;
        self.shared.wake.notify_one();
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let began = self.shared.began.load(Ordering::Relaxed);
        let now = self.shared.now();
        let took = now.saturating_sub(began);
        if took > micros(LONG) && waits() != self.waits {
            let until = now + took * u64::from(REST);
            self.shared.rest_until.store(until, Ordering::Relaxed);
        }
        self.shared.began.store(0, Ordering::SeqCst);
    }
}

/// How often this thread has given up its core since it began, for a disk or a lock.
fn waits() -> Option<c_long> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    Some(usage.voluntary_context_switches())
}

impl Shared {
    fn now(&self) -> u64 {
        micros(self.clock.now().saturating_duration_since(self.start))
    }

    fn watch(&self) {
        let mut stopped = self.stopped.lock();
        let (mut turns, mut quiet) = (0, 0);
        while !*stopped {
            if quiet >= QUIET_TICKS {
                self.asleep.store(true, Ordering::SeqCst);
                if self.began.load(Ordering::SeqCst) == 0 {
                    self.wake.wait(&mut stopped);
                }
                self.asleep.store(false, Ordering::SeqCst);
                quiet = 0;
                continue;
            }
            self.wake.wait_for(&mut stopped, TICK);
            let began = self.began.load(Ordering::SeqCst);
            if began != 0 && self.now().saturating_sub(began) >= micros(TICK) {
                (self.send_stand_in)();
            }
            let so_far = self.turns.load(Ordering::Relaxed);
            quiet = if began == 0 && so_far == turns {
                quiet + 1
            } else {
                0
            };
            turns = so_far;
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::time::ManualClock;

    #[test]
    fn one_job_at_a_time_has_a_turn() {
        let callers = Callers::new(Arc::new(ManualClock::new(0)), || {}).unwrap();
        let turn = callers.enter();
        assert!(turn.is_some());
        assert!(callers.enter().is_none());
        drop(turn);
        assert!(callers.enter().is_some());
    }

    #[test]
    fn a_stand_in_is_sent_for_a_stuck_thread_also_when_the_watch_was_asleep() {
        let (send, sent) = mpsc::channel();
        let clock = Arc::new(ManualClock::new(0));
        let callers = Callers::new(Arc::<ManualClock>::clone(&clock), move || {
            send.send(()).unwrap();
        });
        let callers = callers.unwrap();
        for _ in 0..2 {
            while !callers.shared.asleep.load(Ordering::SeqCst) {
                std::thread::sleep(TICK);
            }
            clock.advance(REST * 2 * TICK);
            let turn = callers.enter().unwrap();
            std::thread::sleep(2 * TICK);
            assert!(sent.try_recv().is_err(), "nobody is stuck yet");
            clock.advance(TICK);
            sent.recv_timeout(Duration::from_secs(30)).unwrap();
            drop(turn);
            while sent.recv_timeout(5 * TICK).is_ok() {}
        }
    }

    #[test]
    fn after_a_job_that_waited_long_the_next_ones_go_elsewhere_for_a_while() {
        let clock = Arc::new(ManualClock::new(0));
        let callers = Callers::new(Arc::<ManualClock>::clone(&clock), || {}).unwrap();
        let has_turn_for = |time, job: fn()| {
            let turn = callers.enter();
            job();
            clock.advance(time);
            turn.is_some()
        };
        let (waiting, working) = (|| std::thread::sleep(Duration::from_millis(1)), || ());
        assert!(has_turn_for(LONG, waiting));
        assert!(has_turn_for(2 * LONG, working));
        assert!(has_turn_for(2 * LONG, waiting));
        clock.advance(REST * 2 * LONG - Duration::from_millis(1));
        assert!(!has_turn_for(Duration::from_millis(1), working));
        assert!(has_turn_for(Duration::ZERO, working));
    }
}
