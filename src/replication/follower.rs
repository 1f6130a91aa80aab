//! A partition that another broker leads: what this one takes over from it.
//!
//! All of it runs on the partition's lane and only while the partition is followed in the leader epoch in
//! which it was asked for: what a leader of the past said comes too late.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::fetcher::{Position, truncation_offset};
use super::parking::Waiter;
use super::partition::{OpenPartition, Partition, State};
use super::waiters::FetchBound;
use super::watermark::ReplicaPosition;
use crate::log::{AppendError, LogError};
use crate::record::{ReplicaBatchError, ReplicaBatches, ReplicaRules};
use crate::types::rules::{Rule, holds};
use crate::types::{ErrorCode, LeaderEpoch, NO_EPOCH, Offset};

/// What is known of the leader.
#[derive(Debug, Default)]
pub(super) struct Following {
    pub(super) high_watermark: Offset,
    /// Where it was not cut, and that was told.
    refused: Option<Offset>,
    /// Offsets that were missing in what the leader sent last.
    gap: Option<(Offset, Offset)>,
}

/// What a leader sent of one partition.
#[derive(Debug, Clone)]
pub(super) struct Fetched {
    pub(super) records: Bytes,
    pub(super) high_watermark: Offset,
    pub(super) log_start: Offset,
}

type Located = BoxFuture<'static, Result<Position, ErrorCode>>;

impl Partition {
    /// Where the log stands; all of it is on disk if the topic waits for that.
    pub(super) fn locate(self: &Arc<Self>, leader_epoch: LeaderEpoch) -> Located {
        self.on_log(move |open| {
            open.check_following(leader_epoch)?;
            if !holds(Rule::R6) {
                open.cut_as_before_kip_101()?;
            }
            if open.waits_for_disk() {
                let flushed = open.log.flush();
                flushed.map_err(|error| open.partition.storage_error("flush the log", &error))?;
            }
            Ok(open.position())
        })
    }

    /// Appends what the leader sent and takes over its high watermark and log start. Resolves when the
    /// records are on disk, if the topic waits for that.
    pub(super) fn append_fetched(
        self: &Arc<Self>,
        leader_epoch: LeaderEpoch,
        fetched: Fetched,
    ) -> Located {
        let appended = self.append_on_log(fetched.records.len(), move |open| {
            open.check_following(leader_epoch)?;
            let flushed = open.append_fetched(leader_epoch, &fetched)?;
            open.partition.hear_high_watermark(fetched.high_watermark);
            open.raise_log_start(fetched.log_start);
            Ok((flushed, open.position_at(open.log.log_end_offset())))
        });
        Box::pin(async move {
            let (flushed, position) = appended.await?;
            if let Some(flushed) = flushed {
                flushed
                    .await
                    .unwrap_or(Err(ErrorCode::NotLeaderOrFollower))?;
            }
            Ok(position)
        })
    }

    /// The leader had no records to send. Where its log start has moved, so will this one's, and where to is
    /// answered.
    pub(super) fn note_leader(
        self: &Arc<Self>,
        leader_epoch: LeaderEpoch,
        high_watermark: Offset,
        log_start: Offset,
    ) -> Option<BoxFuture<'static, Result<Offset, ErrorCode>>> {
        self.state.lock().check_following(leader_epoch).ok()?;
        self.hear_high_watermark(high_watermark);
        if self.log_offsets()?.0 >= log_start {
            return None;
        }
        Some(self.on_log(move |open| {
            open.check_following(leader_epoch)?;
            open.raise_log_start(log_start);
            Ok(open.log.log_start_offset())
        }))
    }

    /// R6: cuts the log where it parts from the leader's, for which `epoch` ends at `leader_end`.
    pub(super) fn cut_for_leader(
        self: &Arc<Self>,
        leader_epoch: LeaderEpoch,
        (epoch, leader_end): (LeaderEpoch, Offset),
    ) -> Located {
        self.on_log(move |open| {
            open.check_following(leader_epoch)?;
            let known = open.log.end_offset_for_epoch(epoch);
            let end = open.log.log_end_offset();
            open.cut(truncation_offset((epoch, leader_end), known, end))
        })
    }

    /// Cuts the log at an offset: its leader ends there.
    pub(super) fn cut_at(self: &Arc<Self>, leader_epoch: LeaderEpoch, offset: Offset) -> Located {
        self.on_log(move |open| {
            open.check_following(leader_epoch)?;
            open.cut(offset)
        })
    }

    /// Lets go of all records: the leader's begin later.
    pub(super) fn begin_anew(
        self: &Arc<Self>,
        leader_epoch: LeaderEpoch,
        start: Offset,
    ) -> Located {
        self.on_log(move |open| {
            open.check_following(leader_epoch)?;
            open.begin_anew(start)?;
            Ok(open.position())
        })
    }

    /// The high watermark of the leader: this one's is that, as far as the records are here.
    fn hear_high_watermark(&self, leaders: Offset) {
        {
            let mut state = self.state.lock();
            let following = &mut state.following;
            following.high_watermark = following.high_watermark.max(leaders);
        }
        self.advance();
    }
}

impl State {
    /// NOT_LEADER_OR_FOLLOWER unless another broker leads the partition, in this epoch.
    fn check_following(&self, leader_epoch: LeaderEpoch) -> Result<(), ErrorCode> {
        self.check_health()?;
        let another = self.role.leader.is_some() && !self.leading.is_so();
        match another && self.role.leader_epoch == leader_epoch {
            true => Ok(()),
            false => Err(ErrorCode::NotLeaderOrFollower),
        }
    }

    /// Where the high watermark of a follower goes. What is committed is kept here too as soon as it
    /// would count at the leader.
    pub(super) fn followed_high_watermark(&self, own: ReplicaPosition) -> Offset {
        let kept = self.watermark_rule().kept(own);
        self.following
            .high_watermark
            .min(kept)
            .max(self.high_watermark)
    }
}

impl OpenPartition<'_> {
    fn check_following(&self, leader_epoch: LeaderEpoch) -> Result<(), ErrorCode> {
        self.partition.state.lock().check_following(leader_epoch)
    }

    fn waits_for_disk(&self) -> bool {
        self.partition.state.lock().config.flush_messages <= 1
    }

    fn position(&self) -> Position {
        let log_end = self.log.log_end_offset();
        self.position_at(match self.waits_for_disk() {
            true => self.log.flushed_offset().min(log_end),
            false => log_end,
        })
    }

    fn position_at(&self, fetch_offset: Offset) -> Position {
        let log = self.log;
        let log_end = log.log_end_offset();
        let last_epoch = match fetch_offset == log_end {
            true => log.latest_epoch(),
            false => log.epoch_for_offset(fetch_offset - 1),
        };
        Position {
            log_start: log.log_start_offset(),
            log_end,
            fetch_offset,
            last_epoch: last_epoch.unwrap_or(NO_EPOCH),
        }
    }

    /// Returns what to wait for until the records are on disk.
    fn append_fetched(
        &self,
        leader_epoch: LeaderEpoch,
        fetched: &Fetched,
    ) -> Result<Option<oneshot::Receiver<Result<(), ErrorCode>>>, ErrorCode> {
        let batches = self.check(leader_epoch, &fetched.records)?;
        let partition = self.partition;
        let now_ms = partition.shared.clock.wall_ms();
        let end = match self.log.append_as_follower(&batches, now_ms) {
            Ok(end) => end,
            Err(AppendError::Log(error)) => {
                partition.advance(); // some of it may be there
                return Err(partition.storage_error("append to the log", &error));
            }
            Err(AppendError::Refused(refused)) => return Err(refused.code),
        };
        let metrics = &partition.metrics;
        metrics
            .replication_bytes_in
            .add(batches.bytes_total() as u64);
        let flushed = self.waits_for_disk().then(|| partition.until_flushed(end));
        partition.advance();
        self.log.flush_soon();
        Ok(flushed)
    }

    /// Nothing touches the disk that is damaged or does not follow what is there.
    fn check(
        &self,
        leader_epoch: LeaderEpoch,
        records: &Bytes,
    ) -> Result<ReplicaBatches, ErrorCode> {
        let partition = self.partition;
        let known_gap = partition.state.lock().following.gap.take();
        let rules = |gaps| ReplicaRules {
            next_offset: self.log.log_end_offset(),
            last_epoch: self.log.latest_epoch().unwrap_or(NO_EPOCH),
            leader_epoch,
            gaps,
        };
        let compacted = partition.config().cleanup_policy.compact;
        let checked = match ReplicaBatches::check(records.clone(), rules(compacted)) {
            Err(ReplicaBatchError::Before {
                expected,
                first,
                last,
            }) if self.is_empty() && last >= expected => {
                // The leader's log starts inside of a batch.
                self.begin_anew(first)?;
                ReplicaBatches::check(records.clone(), rules(compacted))
            }
            // Sent twice it is what the leader has.
            Err(ReplicaBatchError::Gap { expected, found })
                if known_gap == Some((expected, found)) =>
            {
                ReplicaBatches::check(records.clone(), rules(true))
            }
            checked => checked,
        };
        checked.map_err(|error| {
            if let ReplicaBatchError::Gap { expected, found } = error {
                partition.state.lock().following.gap = Some((expected, found));
            }
            tracing::error!(
                partition = %partition.topic_partition(), %error,
                "records of the leader are refused and fetched again"
            );
            ErrorCode::CorruptMessage
        })
    }

    fn is_empty(&self) -> bool {
        self.log.log_start_offset() == self.log.log_end_offset()
    }

    fn raise_log_start(&self, leaders: Offset) {
        let to = leaders.min(self.partition.high_watermark());
        if to <= self.log.log_start_offset() {
            return;
        }
        if let Err(error) = self.log.advance_log_start_offset(to) {
            self.partition.storage_error("move the log start", &error);
        }
    }

    /// To its own high watermark: what R6 forbids.
    fn cut_as_before_kip_101(&self) -> Result<(), ErrorCode> {
        let high_watermark = self.partition.high_watermark();
        match high_watermark < self.log.log_end_offset() {
            true => self.cut(high_watermark).map(|_| ()),
            false => Ok(()),
        }
    }

    fn cut(&self, offset: Offset) -> Result<Position, ErrorCode> {
        let partition = self.partition;
        let before = (self.log.log_start_offset(), self.log.log_end_offset());
        if offset >= before.1 {
            tracing::error!(
                partition = %partition.topic_partition(), offset, log_end = before.1,
                "the leader says that the logs part where this one has nothing"
            );
            return Err(ErrorCode::UnknownServerError);
        }
        self.check_cut(offset)?;
        self.expect_end(offset);
        let cut = self.log.truncate_to(offset);
        self.was_cut(cut.map(|_| ()))?;
        tracing::info!(
            partition = %partition.topic_partition(), from = before.1,
            to = self.log.log_end_offset(), "cut a log that parts from its leader's"
        );
        Ok(self.position())
    }

    fn begin_anew(&self, start: Offset) -> Result<(), ErrorCode> {
        self.expect_end(start);
        self.was_cut(self.log.truncate_fully_and_start_at(start))
    }

    /// Where the topic waits for the disk a leader has all that was committed, or was elected uncleanly, or
    /// its log is lost. Then this may be the last copy: it is kept until the topic says that it may go.
    fn check_cut(&self, offset: Offset) -> Result<(), ErrorCode> {
        let mut state = self.partition.state.lock();
        let high_watermark = state.high_watermark;
        let promised = state.config.flush_messages <= 1 && !state.config.unclean_leader_election;
        if !promised || offset >= high_watermark {
            state.following.refused = None;
            return Ok(());
        }
        if state.following.refused.replace(offset) != Some(offset) {
            tracing::error!(
                partition = %self.partition.topic_partition(), offset, high_watermark,
                "the leader does not have committed records: this replica keeps them and does not follow it; \
                 set unclean.leader.election.enable=true on the topic to let them go"
            );
        }
        Err(ErrorCode::UnknownServerError)
    }

    /// Before the log is cut: nothing says any more that there is something behind.
    fn expect_end(&self, offset: Offset) {
        let partition = self.partition;
        let mut state = partition.state.lock();
        if offset < state.high_watermark && offset < self.log.log_end_offset() {
            tracing::error!(
                partition = %partition.topic_partition(), offset, high_watermark = state.high_watermark,
                "committed records are cut: the leader does not have them (an unclean election, or its log is lost)"
            );
        }
        state.high_watermark = state.high_watermark.min(offset);
        state.following.high_watermark = state.following.high_watermark.min(offset);
    }

    fn was_cut(&self, cut: Result<(), LogError>) -> Result<(), ErrorCode> {
        let partition = self.partition;
        let (start, end) = (self.log.log_start_offset(), self.log.log_end_offset());
        let waiters = {
            let mut state = partition.state.lock();
            state.log_end = end;
            state.high_watermark = state.high_watermark.clamp(start.min(end), end);
            state.waiters.drain()
        };
        for waiter in waiters {
            waiter.fail(ErrorCode::NotLeaderOrFollower);
        }
        cut.map_err(|error| partition.storage_error("cut the log", &error))
    }
}

impl Partition {
    /// Resolves when all below `offset` is on disk.
    fn until_flushed(&self, offset: Offset) -> oneshot::Receiver<Result<(), ErrorCode>> {
        let (reply, flushed) = oneshot::channel();
        let ticket = self.shared.ticket();
        let mut state = self.state.lock();
        let bound = FetchBound::Flushed;
        state
            .waiters
            .park(bound, offset, ticket, Waiter::Commit(reply));
        flushed
    }
}

#[cfg(test)]
#[path = "follower_tests.rs"]
mod tests;
