//! One partition on this broker: what it is here (`role`), its log, who waits for it (`parking`).
//!
//! Everything that touches the disk runs on the partition's lane of its log directory's executor, in
//! the order in which it was asked for. The state here is small, behind one mutex that is never held
//! across an `.await` or a call into the log that may block.

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::follower::Following;
use super::parking::Waiter;
use super::role::{Health, Leading};
use super::shared::Shared;
use super::waiters::Waiters;
use crate::config::TopicConfig;
use crate::log::{Executor, Job, Log, LogError};
use crate::metadata;
use crate::telemetry::{LogSample, TopicMetrics};
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId, TopicPartition};

/// Larger appends are no brief ones: a thread of the runtime has others to serve.
const BRIEF_APPEND_BYTES_MAX: usize = 2 << 20;

/// `high_watermark <= log end`; it only grows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Arc<TopicConfig>,
    pub(super) role: Arc<metadata::Partition>,
    pub(super) leading: Leading,
    pub(super) following: Following,
    pub(super) health: Health,
    pub(super) high_watermark: Offset,
    pub(super) log_end: Offset,
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
    pub(super) log: OnceLock<Arc<Log>>,
    pub(super) state: Mutex<State>,
}

impl Partition {
    /// Touches no file: the log opens when it is first needed. What is to be done here the first call of
    /// [`Self::set_role`] tells.
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
                leading: Leading::No,
                following: Following::default(),
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

    /// The epoch in which this broker leads, if it does.
    #[cfg(test)]
    pub(crate) fn leads_in(&self) -> Option<LeaderEpoch> {
        let state = self.state.lock();
        state.leading.is_so().then_some(state.role.leader_epoch)
    }

    /// The topic's settings.
    pub fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.state.lock().config)
    }

    /// NOT_LEADER_OR_FOLLOWER, or FENCED_ / UNKNOWN_LEADER_EPOCH if `current` (−1: do not check) differs.
    pub fn check_leader(&self, current: LeaderEpoch) -> Result<(), ErrorCode> {
        self.state.lock().check_leader(current)
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
    pub(crate) fn opened_log(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }

    /// Start and end of the log; `None` before it was opened.
    pub fn log_offsets(&self) -> Option<(Offset, Offset)> {
        let log = self.log.get()?;
        Some((log.log_start_offset(), log.log_end_offset()))
    }

    /// What metrics show of the log; `None` where that is not known before it is opened. Does not block.
    pub fn log_sample(&self) -> Option<LogSample> {
        let Some(log) = self.log.get() else {
            if self.shared.logs.has_nothing(&self.topic_partition) {
                return Some(LogSample::default());
            }
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

    /// Records below the leader's high watermark, as it was last told, that are not here.
    pub fn follower_lag(&self) -> Offset {
        let Some((_, end)) = self.log_offsets() else {
            return 0;
        };
        let state = self.state.lock();
        match state.leading {
            Leading::No => (state.following.high_watermark - end).max(0),
            _ => 0,
        }
    }

    /// The log directory failed.
    pub fn is_offline(&self) -> bool {
        self.state.lock().health == Health::Offline
    }

    /// Opens (and recovers) the log if that has not happened yet.
    pub fn open(self: &Arc<Self>) -> BoxFuture<'static, Result<(), ErrorCode>> {
        if self.log.get().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.on_log(|_| Ok(()))
    }

    /// The log, opened if need be. Blocks: only on the partition's lane.
    pub(super) fn open_here(&self) -> Result<&Arc<Log>, ErrorCode> {
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let log = self.recover_here()?;
        // What recovery found but cannot vouch for is synced before anybody may see it.
        if log.flushed_offset() < log.log_end_offset() {
            let flushed = log.flush();
            flushed.map_err(|error| self.storage_error("open the log", &error))?;
        }
        let log = self.log.get_or_init(|| log);
        self.recall_high_watermark(log);
        self.term_begins_at(log.log_end_offset());
        self.advance();
        Ok(log)
    }

    /// Has the log recovered, so that whoever opens it need not wait for that.
    pub(super) fn recover_here(&self) -> Result<Arc<Log>, ErrorCode> {
        let config = {
            let state = self.state.lock();
            state.check_health()?;
            Arc::clone(&state.config)
        };
        let logs = &self.shared.logs;
        logs.log(&self.topic_partition, self.topic_id, config)
            .map_err(|error| self.storage_error("open the log", &error))
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
        let lane = lane(&self.topic_partition);
        self.executor().offer(lane, self.job(work));
    }

    /// The same for an append of so many bytes, which may be done before this returns.
    pub(super) fn append_on_lane(
        self: &Arc<Self>,
        bytes: usize,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let briefly = |log: &Arc<Log>| log.appends_briefly();
        if bytes > BRIEF_APPEND_BYTES_MAX || !self.log.get().is_some_and(briefly) {
            return self.on_lane(work);
        }
        let lane = lane(&self.topic_partition);
        self.executor().offer_short(lane, self.job(work));
    }

    /// The same for what must be done.
    pub(super) fn surely_on_lane(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let lane = lane(&self.topic_partition);
        self.executor().submit(lane, self.job(work));
    }

    fn job(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) -> Job {
        let partition = Arc::clone(self);
        Box::new(move || work(&partition))
    }

    fn executor(&self) -> &Arc<dyn Executor> {
        let here = || self.shared.executor(&self.topic_partition);
        self.executor.get_or_init(here)
    }

    /// Runs `work` with the opened log on the partition's lane. Enqueued at the call, not at a poll.
    pub(super) fn on_log<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&OpenPartition<'_>) -> Result<T, ErrorCode> + Send + 'static,
    ) -> Answer<T> {
        let (work, answer) = answering(work);
        self.on_lane(work);
        answer
    }

    /// The same for an append of so many bytes.
    pub(super) fn append_on_log<T: Send + 'static>(
        self: &Arc<Self>,
        bytes: usize,
        work: impl FnOnce(&OpenPartition<'_>) -> Result<T, ErrorCode> + Send + 'static,
    ) -> Answer<T> {
        let (work, answer) = answering(work);
        self.append_on_lane(bytes, work);
        answer
    }
}

/// Of a job on the lane.
type Answer<T> = BoxFuture<'static, Result<T, ErrorCode>>;

/// What is to run on the lane, and its answer.
fn answering<T: Send + 'static>(
    work: impl FnOnce(&OpenPartition<'_>) -> Result<T, ErrorCode> + Send + 'static,
) -> (impl FnOnce(&Arc<Partition>) + Send + 'static, Answer<T>) {
    let (reply, answer) = oneshot::channel();
    let work = move |partition: &Arc<Partition>| {
        let result = partition
            .open_here()
            .and_then(|log| work(&OpenPartition { partition, log }));
        // Nobody listens any more: the connection is gone.
        let _ = reply.send(result);
    };
    // A lane that drops a job without running it has a disk that stalls.
    let answer = async move { answer.await.unwrap_or(Err(ErrorCode::KafkaStorageError)) };
    (work, Box::pin(answer))
}

/// A partition whose log is open, on its lane.
#[derive(Debug)]
pub(super) struct OpenPartition<'a> {
    pub(super) partition: &'a Arc<Partition>,
    pub(super) log: &'a Arc<Log>,
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
