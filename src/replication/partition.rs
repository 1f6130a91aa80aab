//! One partition on this broker: leader state, its log, who waits for it.
//!
//! Everything that touches the disk runs on the partition's lane of its log directory's executor, in
//! the order in which it was asked for. The state here is small, behind one mutex that is never held
//! across an `.await` or a call into the log that may block.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::append::{AppendFailure, PendingAppend};
use super::fetch::FetchWait;
use super::waiters::{FetchBound, Ticket, Waiters};
use super::watermark::{ReplicaPosition, WatermarkRule, high_watermark};
use crate::config::TopicConfig;
use crate::log::{Appended, Executor, Log, LogError, LogManager};
use crate::metadata;
use crate::telemetry::{LogSample, Metrics, TopicMetrics};
use crate::time::Clock;
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, NO_EPOCH, Offset, TopicId, TopicPartition};

/// How long a question about offsets waits for a flush at most.
const SETTLE_MAX: Duration = Duration::from_millis(500);

/// What all partitions of a broker have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node_id: BrokerId,
    pub(super) logs: Arc<LogManager>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
    /// Instead of the log directories' own: tests and simulations.
    executor: Option<Arc<dyn Executor>>,
    tickets: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        node_id: BrokerId,
        logs: Arc<LogManager>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        executor: Option<Arc<dyn Executor>>,
    ) -> Self {
        Self {
            node_id,
            logs,
            metrics,
            clock,
            executor,
            tickets: AtomicU64::new(0),
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the disk work of a partition runs.
    pub(super) fn executor(&self, partition: &TopicPartition) -> Arc<dyn Executor> {
        let own = self.executor.as_ref().map(Arc::clone);
        own.unwrap_or_else(|| self.logs.executor(partition))
    }
}

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

/// Whether the partition can be used at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Online,
    /// Its topic is gone, or it is no longer here.
    Removed,
    /// Its log directory is gone.
    Offline,
}

/// `high_watermark <= log end`; it only grows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Arc<TopicConfig>,
    pub(super) role: Arc<metadata::Partition>,
    health: Health,
    pub(super) high_watermark: Offset,
    log_end: Offset,
    pub(super) waiters: Waiters<Waiter>,
}

/// One partition on this broker.
#[derive(Debug)]
pub struct Partition {
    topic_partition: TopicPartition,
    topic_id: TopicId,
    pub(super) shared: Arc<Shared>,
    pub(super) metrics: Arc<TopicMetrics>,
    /// Of the directory where the partition is: it does not move.
    executor: OnceLock<Arc<dyn Executor>>,
    log: OnceLock<Arc<Log>>,
    pub(super) state: Mutex<State>,
}

impl Partition {
    /// Touches no file: the log opens when it is first needed.
    pub(super) fn new(
        topic_partition: TopicPartition,
        topic_id: TopicId,
        shared: Arc<Shared>,
        metrics: Arc<TopicMetrics>,
        config: Arc<TopicConfig>,
        role: Arc<metadata::Partition>,
    ) -> Self {
        Self {
            topic_partition,
            topic_id,
            shared,
            metrics,
            executor: OnceLock::new(),
            log: OnceLock::new(),
            state: Mutex::new(State {
                config,
                role,
                health: Health::Online,
                high_watermark: 0,
                log_end: 0,
                waiters: Waiters::new(),
            }),
        }
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.state.lock().role.leader_epoch
    }

    /// Who leads as far as this broker knows, with the epoch.
    pub fn leader(&self) -> (Option<BrokerId>, LeaderEpoch) {
        let state = self.state.lock();
        (state.role.leader, state.role.leader_epoch)
    }

    /// The topic's settings.
    pub fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.state.lock().config)
    }

    /// NOT_LEADER_OR_FOLLOWER, or FENCED_ / UNKNOWN_LEADER_EPOCH if `current` (−1: do not check) differs.
    pub fn check_leader(&self, current: LeaderEpoch) -> Result<(), ErrorCode> {
        self.state.lock().check_leader(self.shared.node_id, current)
    }

    /// The end (exclusive) of what consumers may see; 0 before the log was opened (see [`Self::open`]).
    pub fn high_watermark(&self) -> Offset {
        self.state.lock().high_watermark
    }

    /// The end (exclusive) of what read_committed consumers may see. Without transactions nothing is
    /// ever undecided below the high watermark.
    pub fn last_stable_offset(&self) -> Offset {
        self.high_watermark()
    }

    /// The log, if it has been opened. Does not block.
    pub(super) fn opened_log(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }

    /// Start and end of the log; `None` before it was opened.
    pub fn log_offsets(&self) -> Option<(Offset, Offset)> {
        let log = self.log.get()?;
        Some((log.log_start_offset(), log.log_end_offset()))
    }

    /// What metrics show of the log; `None` before it was opened. Does not block.
    pub fn log_sample(&self) -> Option<LogSample> {
        let Some(log) = self.log.get() else {
            // A clean stop flushes all that there is.
            let rest = self.shared.logs.at_rest(&self.topic_partition)?;
            return Some(LogSample {
                start_offset: rest.log_start_offset,
                end_offset: rest.log_end_offset,
                high_watermark: rest.log_end_offset,
                size: rest.size_bytes,
                segments: rest.segment_count,
                damaged_places: 0,
            });
        };
        Some(LogSample {
            start_offset: log.log_start_offset(),
            end_offset: log.log_end_offset(),
            high_watermark: self.high_watermark(),
            size: log.size_bytes(),
            segments: log.segment_count(),
            damaged_places: log.damaged_places(),
        })
    }

    /// The log directory failed.
    pub fn is_offline(&self) -> bool {
        self.state.lock().health == Health::Offline
    }

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

    /// Opens (and recovers) the log if that has not happened yet.
    pub fn open(self: &Arc<Self>) -> BoxFuture<'static, Result<(), ErrorCode>> {
        if self.log.get().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.on_log(|_| Ok(()))
    }

    /// Resolves when the high watermark has reached `offset` (exclusive end); REQUEST_TIMED_OUT at
    /// `deadline`, NOT_LEADER_OR_FOLLOWER / KAFKA_STORAGE_ERROR if it never will.
    pub fn committed(
        self: &Arc<Self>,
        offset: Offset,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<(), ErrorCode>> {
        let parked = {
            let mut state = self.state.lock();
            if let Err(error) = state.check_leader(self.shared.node_id, NO_EPOCH) {
                return Box::pin(std::future::ready(Err(error)));
            }
            if state.high_watermark >= offset {
                return Box::pin(std::future::ready(Ok(())));
            }
            let ticket = self.shared.ticket();
            let (reply, committed) = oneshot::channel();
            let bound = FetchBound::HighWatermark;
            state
                .waiters
                .park(bound, offset, ticket, Waiter::Commit(reply));
            (ticket, committed)
        };
        self.hurry();
        let (ticket, committed) = parked;
        let partition = Arc::clone(self);
        Box::pin(async move {
            match tokio::time::timeout_at(deadline.into(), committed).await {
                Ok(outcome) => outcome.unwrap_or(Err(ErrorCode::NotLeaderOrFollower)),
                Err(_) => {
                    let mut state = partition.state.lock();
                    state
                        .waiters
                        .cancel(FetchBound::HighWatermark, offset, ticket);
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
        if state.check_leader(self.shared.node_id, NO_EPOCH).is_err() {
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
            let rule = WatermarkRule::new(
                state.config.flush_messages,
                state.config.min_insync_replicas,
                state.role.replicas.len(),
            );
            if position.log_end == state.log_end && state.waiters.is_empty() {
                // The usual flush: nobody to wake.
                state.high_watermark = high_watermark(state.high_watermark, &[position], rule);
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
            // The other members of the ISR join here when followers exist.
            let to = high_watermark(state.high_watermark, &[position], rule);
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

    /// Takes over what the registry says of the partition.
    pub(super) fn set_role(&self, role: Arc<metadata::Partition>, config: Arc<TopicConfig>) {
        let (reconfigured, lost) = {
            let mut state = self.state.lock();
            let reconfigured = *state.config != *config;
            state.config = Arc::clone(&config);
            let before = std::mem::replace(&mut state.role, role);
            let lost = if state.role.leader != before.leader {
                state.waiters.drain()
            } else if state.role.leader_epoch != before.leader_epoch {
                // Fetches check their epoch again; whoever produced waits on under the same leader.
                let waiters = &mut state.waiters;
                waiters.take(|waiter| matches!(waiter, Waiter::Fetch { .. }))
            } else {
                Vec::new()
            };
            (reconfigured, lost)
        };
        for waiter in lost {
            waiter.fail(ErrorCode::NotLeaderOrFollower);
        }
        if reconfigured && let Some(log) = self.log.get() {
            log.set_config(config);
            self.advance();
        }
    }

    /// The topic is gone: whoever waits hears of it, and the log of this partition is not opened again.
    pub(super) fn remove(&self) {
        self.fail(Health::Removed, ErrorCode::UnknownTopicOrPartition);
    }

    /// The log directory is gone.
    pub(super) fn take_offline(&self) {
        self.fail(Health::Offline, ErrorCode::KafkaStorageError);
    }

    fn fail(&self, health: Health, error: ErrorCode) {
        let waiters = {
            let mut state = self.state.lock();
            if state.health != Health::Removed {
                state.health = health;
            }
            state.waiters.drain()
        };
        for waiter in waiters {
            waiter.fail(error);
        }
    }

    /// The log, opened if need be. Blocks: only on the partition's lane.
    pub(super) fn open_here(&self) -> Result<&Arc<Log>, ErrorCode> {
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let config = {
            let state = self.state.lock();
            state.check_health()?;
            Arc::clone(&state.config)
        };
        let shared = &self.shared;
        let log = shared
            .logs
            .log(&self.topic_partition, self.topic_id, config)
            .and_then(|log| {
                // What recovery found but cannot vouch for is synced before anybody may see it.
                if log.flushed_offset() < log.log_end_offset() {
                    log.flush()?;
                }
                Ok(log)
            });
        let log = log.map_err(|error| self.storage_error("open the log", &error))?;
        let log = self.log.get_or_init(|| log);
        self.advance();
        Ok(log)
    }

    /// What a client hears of a failed operation on the log; where it is the disk's fault the log says so.
    pub(super) fn storage_error(&self, doing: &'static str, error: &LogError) -> ErrorCode {
        match error {
            LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            // Said once, when it began.
            LogError::Full(_) => ErrorCode::KafkaStorageError,
            LogError::Offline(_) => {
                self.take_offline(); // it was given its place while the directory failed
                ErrorCode::KafkaStorageError
            }
            LogError::Io(_) | LogError::Unusable { .. } => {
                tracing::error!(partition = %self.topic_partition, %error, "{doing}");
                ErrorCode::KafkaStorageError
            }
            // The log told of it when it was found.
            LogError::Damaged { .. } => ErrorCode::CorruptMessage,
            LogError::Corrupt(_) => {
                tracing::error!(partition = %self.topic_partition, %error, "{doing}");
                ErrorCode::CorruptMessage
            }
        }
    }

    /// Runs `work` on the partition's lane, behind everything that was asked for before. It is dropped
    /// where the directory's disk has stalled and too much waits for it already.
    pub(super) fn on_lane(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let partition = Arc::clone(self);
        let job = Box::new(move || work(&partition));
        self.executor().offer(lane(&self.topic_partition), job);
    }

    /// The same for what must be done.
    pub(super) fn surely_on_lane(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let partition = Arc::clone(self);
        let job = Box::new(move || work(&partition));
        self.executor().submit(lane(&self.topic_partition), job);
    }

    fn executor(&self) -> &Arc<dyn Executor> {
        let here = || self.shared.executor(&self.topic_partition);
        self.executor.get_or_init(here)
    }

    /// Runs `work` with the opened log on the partition's lane. Enqueued at the call, not at a poll.
    pub(super) fn on_log<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&OpenPartition<'_>) -> Result<T, ErrorCode> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ErrorCode>> {
        let (reply, answer) = oneshot::channel();
        self.on_lane(move |partition| {
            let result = partition
                .open_here()
                .and_then(|log| work(&OpenPartition { partition, log }));
            // Nobody listens any more: the connection is gone.
            let _ = reply.send(result);
        });
        // A lane that drops a job without running it has a disk that stalls.
        Box::pin(async move { answer.await.unwrap_or(Err(ErrorCode::KafkaStorageError)) })
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
        let outcome = if let Err(error) = state.check_leader(self.shared.node_id, NO_EPOCH) {
            Err(AppendFailure::from(error))
        } else if state.high_watermark >= end {
            Ok(appended)
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

/// A partition whose log is open, on its lane.
#[derive(Debug)]
pub(super) struct OpenPartition<'a> {
    pub(super) partition: &'a Arc<Partition>,
    pub(super) log: &'a Arc<Log>,
}

impl State {
    fn check_health(&self) -> Result<(), ErrorCode> {
        match self.health {
            Health::Online => Ok(()),
            Health::Removed => Err(ErrorCode::UnknownTopicOrPartition),
            Health::Offline => Err(ErrorCode::KafkaStorageError),
        }
    }

    pub(super) fn check_leader(
        &self,
        node_id: BrokerId,
        current: LeaderEpoch,
    ) -> Result<(), ErrorCode> {
        self.check_health()?;
        if current >= 0 && current < self.role.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if current > self.role.leader_epoch {
            return Err(ErrorCode::UnknownLeaderEpoch);
        }
        if self.role.leader != Some(node_id) {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        Ok(())
    }

    pub(super) fn bound(&self, bound: FetchBound) -> Offset {
        match bound {
            FetchBound::LogEnd => self.log_end,
            FetchBound::HighWatermark | FetchBound::LastStable => self.high_watermark,
        }
    }
}

impl Waiter {
    /// What it waited for has come. Those that went away do not listen.
    fn wake(self) {
        match self {
            Self::Append { appended, reply } => drop(reply.send(Ok(appended))),
            Self::Commit(reply) => drop(reply.send(Ok(()))),
            Self::Fetch { wait, .. } => wait.wake(),
        }
    }

    /// What it waited for will not come.
    fn fail(self, error: ErrorCode) {
        match self {
            Self::Append { reply, .. } => drop(reply.send(Err(error.into()))),
            Self::Commit(reply) => drop(reply.send(Err(error))),
            Self::Fetch { wait, .. } => wait.wake(),
        }
    }
}

/// The executor lane of a partition: a hash (FNV-1a) of its name, so that a topic made anew is opened
/// behind the removal of the old one.
pub(super) fn lane(partition: &TopicPartition) -> u64 {
    let number = partition.partition.to_le_bytes();
    let bytes = partition.topic.as_bytes().iter().chain(&number);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
