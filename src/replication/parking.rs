//! Who waits on a partition, and what wakes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::append::{AppendFailure, PendingAppend};
use super::fetch::FetchWait;
use super::partition::Partition;
use super::waiters::{FetchBound, Ticket};
use super::watermark::ReplicaPosition;
use crate::log::Appended;
use crate::types::{ErrorCode, NO_EPOCH, Offset};

/// How long a question about offsets waits for a flush at most.
const SETTLE_MAX: Duration = Duration::from_millis(500);

/// Someone parked on a partition.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A produced batch that waits for its acks.
    Append {
        appended: Appended,
        reply: oneshot::Sender<Result<Appended, AppendFailure>>,
    },
    Commit(oneshot::Sender<Result<(), ErrorCode>>),
    /// A fetch from `offset` on that has counted `counted` readable bytes here.
    Fetch {
        wait: Arc<FetchWait>,
        offset: Offset,
        counted: u64,
    },
}

impl Partition {
    /// Lets fetches go that wait for records: they answer with what there is.
    pub(super) fn release_fetches(&self) {
        let is_fetch = |waiter: &Waiter| matches!(waiter, Waiter::Fetch { .. });
        let fetches = self.state.lock().waiters.take(is_fetch);
        for waiter in fetches {
            waiter.wake();
        }
    }

    /// Lets fetches go that wait for more behind an offset that is gone: they hear of it.
    pub(super) fn release_fetches_below(&self, log_start: Offset) {
        let below =
            |waiter: &Waiter| matches!(waiter, Waiter::Fetch { offset, .. } if *offset < log_start);
        let fetches = {
            let mut state = self.state.lock();
            match state.waiters.is_empty() {
                true => return,
                false => state.waiters.take(below),
            }
        };
        for waiter in fetches {
            waiter.wake();
        }
    }

    /// Resolves when the high watermark has reached `offset` (exclusive end); REQUEST_TIMED_OUT at
    /// `deadline`, NOT_LEADER_OR_FOLLOWER / KAFKA_STORAGE_ERROR if it never will.
    pub fn committed(
        self: &Arc<Self>,
        offset: Offset,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<(), ErrorCode>> {
        self.reached(FetchBound::HighWatermark, offset, deadline)
    }

    /// The same for any bound.
    pub(super) fn reached(
        self: &Arc<Self>,
        bound: FetchBound,
        offset: Offset,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<(), ErrorCode>> {
        let (ticket, committed) = {
            let mut state = self.state.lock();
            if let Err(error) = state.check_leader(NO_EPOCH) {
                return Box::pin(std::future::ready(Err(error)));
            }
            if state.bound(bound) >= offset {
                return Box::pin(std::future::ready(Ok(())));
            }
            let ticket = self.shared.ticket();
            let (reply, committed) = oneshot::channel();
            let waiter = Waiter::Commit(reply);
            state.waiters.park(bound, offset, ticket, waiter);
            (ticket, committed)
        };
        self.hurry();
        let partition = Arc::clone(self);
        Box::pin(async move {
            match tokio::time::timeout_at(deadline.into(), committed).await {
                Ok(outcome) => outcome.unwrap_or(Err(ErrorCode::NotLeaderOrFollower)),
                Err(_) => {
                    partition.state.lock().waiters.cancel(bound, offset, ticket);
                    Err(ErrorCode::RequestTimedOut)
                }
            }
        })
    }

    /// Parks a fetch of `offset` until `bound` has passed it; what is readable below the bound by now
    /// is counted first. Returns false if there is nothing left to wait for.
    pub(super) fn park_fetch(
        &self,
        bound: FetchBound,
        offset: Offset,
        ticket: Ticket,
        counted: u64,
        wait: &Arc<FetchWait>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.check_leader(NO_EPOCH).is_err() {
            return false;
        }
        let mut counted = counted;
        let reached = state.bound(bound);
        if reached > offset && self.count_fetch(wait, offset, &mut counted, reached) {
            return false;
        }
        let waiter = Waiter::Fetch {
            wait: Arc::clone(wait),
            offset,
            counted,
        };
        state.waiters.park(bound, offset + 1, ticket, waiter);
        drop(state);
        // After parking: an append that came before it saw nobody waiting.
        self.hurry();
        true
    }

    pub(super) fn unpark_fetch(&self, bound: FetchBound, offset: Offset, ticket: Ticket) {
        let waiter = self.state.lock().waiters.cancel(bound, offset + 1, ticket);
        drop(waiter); // not under the lock
    }

    /// Adds what became readable in `offset..reached` to a waiting fetch; true if it has enough.
    fn count_fetch(
        &self,
        wait: &FetchWait,
        offset: Offset,
        counted: &mut u64,
        reached: Offset,
    ) -> bool {
        let readable = match self.log.get() {
            Some(log) if wait.wants_more_than(1) => log.bytes_between(offset, reached).max(1),
            _ => 1,
        };
        let more = readable.saturating_sub(*counted);
        *counted = readable.max(*counted);
        wait.add(more)
    }

    /// The log has grown or was flushed: moves log end and high watermark and wakes whom that
    /// concerns. Called on the append lane and on the flusher's thread. True if somebody waits on.
    pub(super) fn advance(&self) -> bool {
        let Some(log) = self.log.get() else {
            return false;
        };
        let position = ReplicaPosition {
            log_end: log.log_end_offset(),
            flushed: log.flushed_offset(),
        };
        let mut woken = Vec::new();
        let wait_on = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let to = state.next_high_watermark(position, &self.shared);
            if position.log_end == state.log_end && state.waiters.is_empty() {
                // The usual flush: nobody to wake.
                state.high_watermark = to;
                return false;
            }
            let satisfied = |waiter: &mut Waiter, reached| match waiter {
                Waiter::Append { .. } | Waiter::Commit(_) => true,
                Waiter::Fetch {
                    wait,
                    offset,
                    counted,
                } => self.count_fetch(wait, *offset, counted, reached),
            };
            if position.log_end > state.log_end {
                state.log_end = position.log_end;
                let to = position.log_end;
                let waiters = &mut state.waiters;
                waiters.advance(FetchBound::LogEnd, to, &mut woken, |w| satisfied(w, to));
            }
            let flushed = position.flushed;
            let waiters = &mut state.waiters;
            waiters.advance(FetchBound::Flushed, flushed, &mut woken, |_| true);
            if to > state.high_watermark {
                state.high_watermark = to;
                let waiters = &mut state.waiters;
                waiters.advance(FetchBound::HighWatermark, to, &mut woken, |w| {
                    satisfied(w, to)
                });
                waiters.advance(FetchBound::LastStable, to, &mut woken, |w| satisfied(w, to));
            }
            !state.waiters.is_empty()
        };
        for waiter in woken {
            waiter.wake();
        }
        wait_on
    }

    /// Somebody waits for what is in the log already: what the high watermark lacks is synced now.
    pub(super) fn hurry(&self) {
        if let Some(log) = self.log.get() {
            log.flush_soon();
        }
    }

    /// A moment's wait for what was appended before the call to become visible, so that whoever asks for
    /// the end of a partition after writing to it finds it behind that. `None` where it is; a stalled
    /// disk holds up nobody for long.
    pub(super) fn settle(self: &Arc<Self>) -> Option<BoxFuture<'static, Result<(), ErrorCode>>> {
        let log = self.log.get()?;
        let appended = log.log_end_offset();
        if log.flushed_offset() >= appended || self.high_watermark() >= appended {
            return None;
        }
        Some(self.committed(appended, self.shared.clock.now() + SETTLE_MAX))
    }

    /// Parks a batch whose acks ask for the high watermark, or answers at once.
    pub(super) fn answer_when_committed(
        &self,
        appended: Appended,
        ticket: Ticket,
        reply: oneshot::Sender<Result<Appended, AppendFailure>>,
    ) {
        let end = appended.last_offset + 1;
        let mut state = self.state.lock();
        let outcome = if let Err(error) = state.check_leader(NO_EPOCH) {
            Err(AppendFailure::from(error))
        } else if state.high_watermark >= end {
            match state.has_min_isr() {
                true => Ok(appended),
                false => Err(ErrorCode::NotEnoughReplicasAfterAppend.into()),
            }
        } else {
            if !reply.is_closed() {
                let waiter = Waiter::Append { appended, reply };
                state
                    .waiters
                    .park(FetchBound::HighWatermark, end, ticket, waiter);
                drop(state);
                // A duplicate may be of a write that nobody waited for.
                self.hurry();
            }
            return;
        };
        drop(state);
        let _ = reply.send(outcome); // a closed connection does not listen
    }

    /// Whoever waited for `pending` is gone. Returns what was to be answered, if it was known.
    pub(super) fn forget(&self, pending: &PendingAppend) -> Option<Appended> {
        // Not dropped under the lock.
        let waiter = self.state.lock().waiters.cancel_ticket(pending.ticket());
        match waiter? {
            Waiter::Append { appended, .. } => Some(appended),
            Waiter::Commit(_) | Waiter::Fetch { .. } => None,
        }
    }
}

impl Waiter {
    /// What it waited for has come. Those that went away do not listen.
    pub(super) fn wake(self) {
        match self {
            Self::Append { appended, reply } => drop(reply.send(Ok(appended))),
            Self::Commit(reply) => drop(reply.send(Ok(()))),
            Self::Fetch { wait, .. } => wait.wake(),
        }
    }

    /// What it waited for will not come.
    pub(super) fn fail(self, error: ErrorCode) {
        match self {
            Self::Append { reply, .. } => drop(reply.send(Err(error.into()))),
            Self::Commit(reply) => drop(reply.send(Err(error))),
            Self::Fetch { wait, .. } => wait.wake(),
        }
    }
}
