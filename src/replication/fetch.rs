//! Fetching from many partitions: one pass of reads, a long poll, and a second pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use super::leader::FetchingReplica;
use super::partition::Partition;
use super::read::{PartitionRead, ReadRequest};
use super::waiters::{FetchBound, Ticket};
use crate::telemetry::Metrics;
use crate::types::{ErrorCode, LeaderEpoch, NO_EPOCH, NO_OFFSET, Offset};

/// One partition of a fetch.
#[derive(Debug)]
pub struct FetchTarget {
    pub source: FetchSource,
    pub offset: Offset,
    pub bytes_max: usize,
    /// −1: not checked.
    pub current_leader_epoch: LeaderEpoch,
    /// −1: not checked.
    pub last_fetched_epoch: LeaderEpoch,
    /// Where the log of a follower that asks starts.
    pub replica_log_start: Offset,
}

/// Where a fetched partition is.
#[derive(Debug)]
pub enum FetchSource {
    Here(Arc<Partition>),
    /// Nothing to read; answered with the code, but it does not cut a long poll short.
    Unknown(ErrorCode),
    /// Answered with the code, at once.
    Refused(ErrorCode),
}

/// What a fetch asks for as a whole.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Until when it waits for `bytes_min`.
    pub deadline: Instant,
    /// False: it does not wait at all.
    pub may_wait: bool,
    pub bytes_min: usize,
    pub bytes_max: usize,
    pub bound: FetchBound,
    /// Who asks, if it is a follower.
    pub replica: Option<FetchingReplica>,
}

/// What was found in each target, in order.
pub type Fetched = Vec<Result<PartitionRead, ErrorCode>>;

/// A fetch that waits on its partitions. Woken once enough bytes came together, or one of them cannot
/// go on.
#[derive(Debug)]
pub(super) struct FetchWait {
    missing: AtomicI64,
    woken: Notify,
}

impl FetchWait {
    fn new(missing: usize) -> Arc<Self> {
        Arc::new(Self {
            missing: AtomicI64::new(i64::try_from(missing).unwrap_or(i64::MAX)),
            woken: Notify::new(),
        })
    }

    /// Whether it pays to count bytes instead of taking every advance for one.
    pub(super) fn wants_more_than(&self, bytes: i64) -> bool {
        self.missing.load(Ordering::Relaxed) > bytes
    }

    /// `bytes` more are readable; true if that is enough.
    pub(super) fn add(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.missing.fetch_sub(bytes, Ordering::Relaxed) <= bytes
    }

    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }
}

/// Reads every target once, and again after a wait if there was not enough. Errors of partitions end
/// the wait, as does anything that stops a partition from growing.
pub async fn fetch(targets: &[FetchTarget], limits: FetchLimits) -> Fetched {
    let fetched = read_or_wait(targets, limits).await;
    for (target, outcome) in targets.iter().zip(&fetched) {
        if let FetchSource::Here(partition) = &target.source {
            match outcome {
                Ok(read) if read.bytes > 0 => {
                    let bytes = match limits.replica {
                        Some(_) => &partition.metrics.replication_bytes_out,
                        None => &partition.metrics.bytes_out,
                    };
                    bytes.add(read.bytes as u64);
                }
                Err(ErrorCode::UnknownServerError | ErrorCode::CorruptMessage) => {
                    partition.metrics.failed_fetch_requests.inc();
                }
                _ => {}
            }
        }
    }
    fetched
}

async fn read_or_wait(targets: &[FetchTarget], limits: FetchLimits) -> Fetched {
    let first = read_all(targets, limits).await;
    let readable: usize = first.iter().flatten().map(|read| read.bytes).sum();
    let at_once = |(target, outcome): (&FetchTarget, &Result<PartitionRead, _>)| match outcome {
        Ok(read) => read.diverging_epoch.is_some(),
        Err(_) => !matches!(target.source, FetchSource::Unknown(_)),
    };
    let failed = targets.iter().zip(&first).any(at_once);
    let nothing_here = !targets
        .iter()
        .any(|target| matches!(target.source, FetchSource::Here(_)));
    if !limits.may_wait || failed || nothing_here || readable >= limits.bytes_min {
        return first;
    }
    let parked = Parked::new(targets, &first, limits, limits.bytes_min - readable);
    if parked.wait().await == Outcome::Nothing {
        return first;
    }
    drop(parked);
    read_all(targets, limits).await
}

/// In order, until `bytes_max` is used up; the first batch of the first partition that has one comes
/// whole (KIP-74).
async fn read_all(targets: &[FetchTarget], limits: FetchLimits) -> Fetched {
    let mut fetched = Vec::with_capacity(targets.len());
    let mut left = limits.bytes_max;
    let mut at_least_one = true;
    for target in targets {
        let partition = match &target.source {
            FetchSource::Here(partition) => partition,
            FetchSource::Unknown(error) | FetchSource::Refused(error) => {
                fetched.push(Err(*error));
                continue;
            }
        };
        let request = ReadRequest {
            offset: target.offset,
            bytes_max: target.bytes_max.min(left),
            bound: limits.bound,
            at_least_one,
            current_leader_epoch: target.current_leader_epoch,
            last_fetched_epoch: target.last_fetched_epoch,
            replica: limits.replica,
            replica_log_start: target.replica_log_start,
        };
        let read = match partition.read_now(request) {
            Some(read) => read,
            None => partition.read_on_lane(request).await,
        };
        partition.metrics.total_fetch_requests.inc();
        if let Ok(read) = &read
            && read.bytes > 0
        {
            left = left.saturating_sub(read.bytes);
            at_least_one = false;
        }
        fetched.push(read);
    }
    fetched
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Changed,
    /// The deadline passed and no partition moved.
    Nothing,
}

/// A fetch that is parked on its partitions until it is dropped.
struct Parked<'a> {
    targets: &'a [FetchTarget],
    bound: FetchBound,
    deadline: Instant,
    ticket: Ticket,
    missing: usize,
    wait: Arc<FetchWait>,
    metrics: Option<&'a Arc<Metrics>>,
}

impl<'a> Parked<'a> {
    fn new(
        targets: &'a [FetchTarget],
        first: &Fetched,
        limits: FetchLimits,
        missing: usize,
    ) -> Self {
        let wait = FetchWait::new(missing);
        let metrics = targets.iter().find_map(|target| match &target.source {
            FetchSource::Here(partition) => Some(&partition.shared.metrics),
            _ => None,
        });
        if let Some(metrics) = metrics {
            metrics.waiting_fetch.add(1);
        }
        let mut ticket = Ticket::MAX;
        for (target, found) in targets.iter().zip(first) {
            let FetchSource::Here(partition) = &target.source else {
                continue;
            };
            if ticket == Ticket::MAX {
                ticket = partition.shared.ticket();
            }
            let counted = found.as_ref().map_or(0, |read| read.bytes as u64);
            if !partition.park_fetch(limits.bound, target.offset, ticket, counted, &wait) {
                // Enough has come meanwhile, or the partition went away.
                wait.wake();
                break;
            }
        }
        Self {
            targets,
            bound: limits.bound,
            deadline: limits.deadline,
            ticket,
            missing,
            wait,
            metrics,
        }
    }

    async fn wait(&self) -> Outcome {
        let woken = tokio::time::timeout_at(self.deadline.into(), self.wait.woken.notified()).await;
        let missing = i64::try_from(self.missing).unwrap_or(i64::MAX);
        if woken.is_ok() || !self.wait.wants_more_than(missing - 1) {
            Outcome::Changed
        } else {
            Outcome::Nothing
        }
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics {
            metrics.waiting_fetch.add(-1);
        }
        for target in self.targets {
            if let FetchSource::Here(partition) = &target.source {
                partition.unpark_fetch(self.bound, target.offset, self.ticket);
            }
        }
    }
}

/// A target that asks one partition with no checks, for tests and benchmarks.
impl FetchTarget {
    pub fn new(partition: Arc<Partition>, offset: Offset, bytes_max: usize) -> Self {
        Self {
            source: FetchSource::Here(partition),
            offset,
            bytes_max,
            current_leader_epoch: NO_EPOCH,
            last_fetched_epoch: NO_EPOCH,
            replica_log_start: NO_OFFSET,
        }
    }
}
