//! Reading from a partition, and questions about its offsets.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;

use super::leader::FetchingReplica;
use super::partition::{OpenPartition, Partition};
use super::waiters::FetchBound;
use crate::log::{Log, LogRead, LogSlice, ProducerView, TimestampOffset};
use crate::types::{
    ErrorCode, LeaderEpoch, NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, Offset, TimestampMs,
};

/// What a fetch of one partition found.
#[derive(Debug, Clone)]
pub struct PartitionRead {
    pub slice: LogSlice,
    pub bytes: usize,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// The log parted from the asker's after its last fetch: epoch and where it ends here. Nothing is
    /// read then.
    pub diverging_epoch: Option<(LeaderEpoch, Offset)>,
}

/// What is asked of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    pub offset: Offset,
    pub bytes_max: usize,
    pub bound: FetchBound,
    /// The first batch is returned however large it is (KIP-74).
    pub at_least_one: bool,
    /// −1: not checked.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record before `offset` as the asker has it; −1: not checked.
    pub last_fetched_epoch: LeaderEpoch,
    /// `None`: a consumer asks.
    pub replica: Option<FetchingReplica>,
    /// Where the log of the replica starts.
    pub replica_log_start: Offset,
}

/// What ListOffsets asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetQuery {
    Earliest,
    /// The end of what readers with this bound may see.
    Latest(FetchBound),
    /// The end of what lies in remote storage, where nothing is yet.
    LatestTiered,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// The first record at or after this time.
    Timestamp(TimestampMs),
}

/// "There is none", as ListOffsets answers it.
const NO_SUCH_OFFSET: TimestampOffset = TimestampOffset {
    timestamp: NO_TIMESTAMP,
    offset: NO_OFFSET,
    leader_epoch: NO_EPOCH,
};

/// Where the bounds stand at one moment.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    high_watermark: Offset,
    /// The one that the request reads up to.
    readable_end: Offset,
    leader_epoch: LeaderEpoch,
}

impl Partition {
    /// Reads whole batches from the one that holds `offset`.
    pub fn read(
        self: &Arc<Self>,
        offset: Offset,
        bytes_max: usize,
        bound: FetchBound,
        at_least_one: bool,
    ) -> BoxFuture<'static, Result<PartitionRead, ErrorCode>> {
        let request = ReadRequest {
            offset,
            bytes_max,
            bound,
            at_least_one,
            current_leader_epoch: NO_EPOCH,
            last_fetched_epoch: NO_EPOCH,
            replica: None,
            replica_log_start: NO_OFFSET,
        };
        match self.read_now(request) {
            Some(read) => Box::pin(std::future::ready(read)),
            None => self.read_on_lane(request),
        }
    }

    /// The same, if it can be answered without touching the disk.
    pub(super) fn read_now(
        self: &Arc<Self>,
        request: ReadRequest,
    ) -> Option<Result<PartitionRead, ErrorCode>> {
        let bounds = match self.bounds(request) {
            Ok(bounds) => bounds,
            Err(error) => return Some(Err(error)),
        };
        let log = self.opened_log()?;
        match diverging_epoch(log, request, bounds) {
            Ok(None) => {}
            Ok(diverging) => {
                let mut read = partition_read(nothing(), bounds, log.log_start_offset());
                read.diverging_epoch = diverging;
                return Some(Ok(read));
            }
            Err(error) => return Some(Err(error)),
        }
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        if request.offset < start || request.offset > end {
            return Some(Err(ErrorCode::OffsetOutOfRange));
        }
        let bounds = match self.count_fetch_of(request, bounds, log) {
            Ok(bounds) => bounds,
            Err(error) => return Some(Err(error)),
        };
        let nothing_asked = request.bytes_max == 0 && !request.at_least_one;
        let at_the_end = request.offset >= bounds.readable_end;
        if at_the_end {
            // For the next fetch: this one may not wait.
            log.flush_soon();
            log.reader_is_at_the_end();
        }
        let read = if at_the_end || nothing_asked {
            nothing()
        } else {
            log.read_cached(
                request.offset,
                request.bytes_max,
                bounds.readable_end,
                request.at_least_one,
            )?
        };
        Some(Ok(partition_read(read, bounds, start)))
    }

    /// Reads on the partition's lane, opening the log first if need be.
    pub(super) fn read_on_lane(
        self: &Arc<Self>,
        request: ReadRequest,
    ) -> BoxFuture<'static, Result<PartitionRead, ErrorCode>> {
        self.on_log(move |open| open.read(request))
    }

    /// A follower's fetch counts before it is answered, so that it hears of the high watermark that it
    /// has moved itself.
    fn count_fetch_of(
        self: &Arc<Self>,
        request: ReadRequest,
        bounds: Bounds,
        log: &Log,
    ) -> Result<Bounds, ErrorCode> {
        if request.replica.is_none() {
            return Ok(bounds);
        }
        self.follower_fetched(&request, log)?;
        self.bounds(request)
    }

    fn bounds(&self, request: ReadRequest) -> Result<Bounds, ErrorCode> {
        if let Some(replica) = request.replica {
            self.check_replica(replica.id, request.current_leader_epoch)?;
        }
        let state = self.state.lock();
        state.check_leader(request.current_leader_epoch)?;
        Ok(Bounds {
            high_watermark: state.high_watermark,
            readable_end: state.bound(request.bound),
            leader_epoch: state.role.leader_epoch,
        })
    }

    /// Answers ListOffsets; `bound` is what the asker may see.
    pub fn offset_for(
        self: &Arc<Self>,
        query: OffsetQuery,
        bound: FetchBound,
        current_leader_epoch: LeaderEpoch,
    ) -> BoxFuture<'static, Result<TimestampOffset, ErrorCode>> {
        if let Err(error) = self.check_leader(current_leader_epoch) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let settled = match query {
            OffsetQuery::Earliest | OffsetQuery::LatestTiered => None,
            _ => self.settle(),
        };
        let Some(settled) = settled else {
            return self.offset_now(query, bound, current_leader_epoch);
        };
        let partition = Arc::clone(self);
        Box::pin(async move {
            let _ = settled.await; // what did not become visible is not answered
            partition
                .offset_now(query, bound, current_leader_epoch)
                .await
        })
    }

    fn offset_now(
        self: &Arc<Self>,
        query: OffsetQuery,
        bound: FetchBound,
        current: LeaderEpoch,
    ) -> BoxFuture<'static, Result<TimestampOffset, ErrorCode>> {
        if self.opened_log().is_some()
            && let OffsetQuery::Latest(latest) = query
        {
            return Box::pin(std::future::ready(self.latest(latest, current)));
        }
        self.on_log(move |open| open.offset_for(query, bound, current))
    }

    /// About when the record at `offset` was written; from the log that is here, whoever leads.
    pub fn about_time_of(
        self: &Arc<Self>,
        offset: Offset,
    ) -> BoxFuture<'static, Result<Option<TimestampMs>, ErrorCode>> {
        self.on_log(move |open| {
            let time = open.log.about_time_of(offset);
            time.map_err(|error| open.partition.storage_error("look for a time", &error))
        })
    }

    /// Whoever asked may have waited: another broker may lead by now, and know of more.
    fn latest(
        &self,
        bound: FetchBound,
        current: LeaderEpoch,
    ) -> Result<TimestampOffset, ErrorCode> {
        let state = self.state.lock();
        state.check_leader(current)?;
        state.check_offsets_known(bound)?;
        Ok(TimestampOffset {
            timestamp: NO_TIMESTAMP,
            offset: state.bound(bound),
            leader_epoch: state.role.leader_epoch,
        })
    }

    /// Answers OffsetForLeaderEpoch: the largest epoch up to `epoch` and where it ends, or (−1, −1).
    /// `bound` is what the asker may see.
    pub fn end_offset_for_epoch(
        self: &Arc<Self>,
        epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch,
        bound: FetchBound,
    ) -> BoxFuture<'static, Result<(LeaderEpoch, Offset), ErrorCode>> {
        let checked = {
            let state = self.state.lock();
            let led = state.check_leader(current_leader_epoch);
            led.and_then(|()| state.check_offsets_known(bound))
        };
        if let Err(error) = checked {
            return Box::pin(std::future::ready(Err(error)));
        }
        self.on_log(move |open| {
            open.partition.check_leader(current_leader_epoch)?;
            Ok(end_of_epoch(open.log, open.partition.leader_epoch(), epoch))
        })
    }

    /// Moves the log start to `offset` (−1: the high watermark), durably; answers where the logs of all
    /// live replicas start, once that is there too. OFFSET_OUT_OF_RANGE beyond the high watermark,
    /// POLICY_VIOLATION where the topic is only compacted, REQUEST_TIMED_OUT.
    pub fn delete_records(
        self: &Arc<Self>,
        offset: Offset,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<Offset, ErrorCode>> {
        if let Err(error) = self.check_leader(NO_EPOCH) {
            return Box::pin(std::future::ready(Err(error)));
        }
        if !self.config().cleanup_policy.delete {
            return Box::pin(std::future::ready(Err(ErrorCode::PolicyViolation)));
        }
        let settled = self.settle();
        let partition = Arc::clone(self);
        Box::pin(async move {
            if let Some(settled) = settled {
                let _ = settled.await; // what did not become visible is not deleted
            }
            let to = partition.on_log(move |open| open.delete_records(offset));
            let to = to.await?;
            partition.low_watermark_reaches(to, deadline).await
        })
    }

    /// The producers that the partition knows.
    pub fn producers(self: &Arc<Self>) -> BoxFuture<'static, Result<Vec<ProducerView>, ErrorCode>> {
        if let Err(error) = self.check_leader(NO_EPOCH) {
            return Box::pin(std::future::ready(Err(error)));
        }
        self.on_log(|open| Ok(open.log.producers()))
    }
}

impl OpenPartition<'_> {
    pub(super) fn read(&self, request: ReadRequest) -> Result<PartitionRead, ErrorCode> {
        let bounds = self.partition.bounds(request)?;
        let start = self.log.log_start_offset();
        let diverging = diverging_epoch(self.log, request, bounds)?;
        if diverging.is_some() {
            let mut read = partition_read(nothing(), bounds, start);
            read.diverging_epoch = diverging;
            return Ok(read);
        }
        if request.offset < start || request.offset > self.log.log_end_offset() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let bounds = self.partition.count_fetch_of(request, bounds, self.log)?;
        let nothing_asked = request.bytes_max == 0 && !request.at_least_one;
        let read = if request.offset >= bounds.readable_end || nothing_asked {
            nothing()
        } else {
            let read = self.log.read(
                request.offset,
                request.bytes_max,
                bounds.readable_end,
                request.at_least_one,
            );
            read.map_err(|error| self.partition.storage_error("read the log", &error))?
        };
        Ok(partition_read(read, bounds, start))
    }

    /// Returns where the log was to start.
    fn delete_records(&self, offset: Offset) -> Result<Offset, ErrorCode> {
        let high_watermark = self.partition.high_watermark();
        let to = if offset == -1 { high_watermark } else { offset };
        if to < 0 || to > high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        if to <= self.log.log_start_offset() {
            return Ok(to);
        }
        let moved = self.log.advance_log_start_offset(to);
        moved.map_err(|error| self.partition.storage_error("delete records", &error))?;
        Ok(to)
    }

    fn offset_for(
        &self,
        query: OffsetQuery,
        bound: FetchBound,
        current: LeaderEpoch,
    ) -> Result<TimestampOffset, ErrorCode> {
        let (end, known) = {
            let state = self.partition.state.lock();
            state.check_leader(current)?;
            (state.bound(bound), state.check_offsets_known(bound))
        };
        let found = match query {
            OffsetQuery::Latest(latest) => return self.partition.latest(latest, current),
            OffsetQuery::Earliest => {
                let offset = self.log.log_start_offset();
                let epoch = self.log.epoch_for_offset(offset);
                return Ok(TimestampOffset {
                    timestamp: NO_TIMESTAMP,
                    offset,
                    // A leader's epoch begins before its first record.
                    leader_epoch: epoch.unwrap_or_else(|| self.partition.leader_epoch()),
                });
            }
            OffsetQuery::LatestTiered => return Ok(NO_SUCH_OFFSET),
            OffsetQuery::MaxTimestamp => self.log.offset_of_max_timestamp(),
            OffsetQuery::Timestamp(timestamp) => self.log.offset_for_timestamp(timestamp, end),
        };
        let found = found.map_err(|error| {
            self.partition
                .storage_error("search the log by time", &error)
        })?;
        match found.filter(|found| found.offset < end) {
            Some(found) => Ok(found),
            None => known.map(|()| NO_SUCH_OFFSET),
        }
    }
}

/// The largest epoch up to `epoch` with its end, or (−1, −1). Does not block.
fn end_of_epoch(log: &Log, current: LeaderEpoch, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
    let end = log.log_end_offset();
    if epoch < 0 || epoch > current {
        return (NO_EPOCH, NO_OFFSET);
    }
    if epoch == current {
        // A leader's own epoch begins before its first record.
        return (current, end);
    }
    match log.latest_epoch() {
        // All records are of earlier leaders, and the log ends where the current one begins.
        Some(latest) if latest <= epoch => (latest, end),
        None => (epoch, end),
        Some(_) => log
            .end_offset_for_epoch(epoch)
            .unwrap_or((NO_EPOCH, NO_OFFSET)),
    }
}

/// Where the asker's log and this one parted, if they did before `offset` (KIP-595).
fn diverging_epoch(
    log: &Log,
    request: ReadRequest,
    bounds: Bounds,
) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    let fetched = request.last_fetched_epoch;
    if fetched < 0 {
        return Ok(None);
    }
    let (epoch, end) = end_of_epoch(log, bounds.leader_epoch, fetched);
    if epoch == NO_EPOCH || end == NO_OFFSET {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((epoch < fetched || end < request.offset).then_some((epoch, end)))
}

fn nothing() -> LogRead {
    LogRead {
        slice: LogSlice::Memory(Vec::new()),
        bytes: 0,
        more: false,
    }
}

fn partition_read(read: LogRead, bounds: Bounds, log_start_offset: Offset) -> PartitionRead {
    PartitionRead {
        slice: read.slice,
        bytes: read.bytes,
        high_watermark: bounds.high_watermark,
        last_stable_offset: bounds.high_watermark,
        log_start_offset,
        diverging_epoch: None,
    }
}
