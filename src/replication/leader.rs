//! A partition that this broker leads, with others who follow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use super::isr::{FollowerFetch, Moment, Outcome, Proposal};
use super::leave::leave;
use super::partition::{Partition, State};
use super::read::ReadRequest;
use super::role::{Health, Leading};
use super::shared::Shared;
use super::waiters::FetchBound;
use super::watermark::{ReplicaPosition, WatermarkRule, high_watermark};
use crate::log::Log;
use crate::metadata;
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, NO_EPOCH, Offset};

/// Below this a follower that is silent is not missed: it may be busy with its disk.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// Who fetches, if it is a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchingReplica {
    pub id: BrokerId,
    /// −1: it does not say.
    pub broker_epoch: i64,
    /// When its request came.
    pub at: Instant,
}

impl Partition {
    /// A follower asks for what comes after `request.offset`: all before it is on its side. R6: it counts
    /// if it was said in this leader's epoch and the logs agree up to there, which the caller has seen.
    pub(super) fn follower_fetched(
        self: &Arc<Self>,
        request: &ReadRequest,
        log: &Log,
    ) -> Result<(), ErrorCode> {
        let Some(replica) = request.replica else {
            return Ok(());
        };
        let reconciled = request.last_fetched_epoch >= 0
            || request.offset <= log.log_start_offset()
            || !holds(Rule::R6);
        if request.current_leader_epoch == NO_EPOCH || !reconciled {
            return Ok(()); // what it has may be of another history
        }
        let fetch = FollowerFetch {
            at: replica.at,
            offset: request.offset,
            log_start: request.replica_log_start,
            broker_epoch: replica.broker_epoch,
        };
        let joins = {
            let mut state = self.state.lock();
            state.check_leader(request.current_leader_epoch)?;
            let Leading::With(isr) = &mut state.leading else {
                return Err(ErrorCode::UnknownLeaderEpoch);
            };
            isr.fetched(replica.id, fetch, log.log_end_offset())?;
            isr.may_join(replica.id)
        };
        self.advance_low_watermark();
        if joins {
            self.propose();
        }
        self.advance();
        Ok(())
    }

    /// Hands the change of in-sync replicas that is due, if one is, to the publisher.
    fn propose(self: &Arc<Self>) {
        let live = self.shared.live();
        let proposal = {
            let mut state = self.state.lock();
            let (rule, hw) = (state.watermark_rule(), state.high_watermark);
            let health = state.health;
            let leaves = state.leaves(&self.shared);
            let Leading::With(isr) = &mut state.leading else {
                drop(state);
                self.put_proposal(leaves);
                return;
            };
            let moment = Moment {
                now: self.shared.clock.now(),
                rule,
                lag_max: self.shared.config.lag_time_max,
                live: &live,
            };
            match (health, self.log.get()) {
                (Health::Online, Some(log)) => isr.propose(moment, hw, log.log_end_offset()),
                (Health::Offline, _) => isr.resign(moment),
                (Health::Online | Health::Removed, _) => None,
            }
        };
        self.put_proposal(proposal);
    }

    fn put_proposal(self: &Arc<Self>, proposal: Option<Proposal>) {
        if let Some(proposal) = proposal {
            self.shared.outbox.watch(self.topic_partition());
            self.shared.outbox.put(self, proposal);
        }
    }

    /// What time alone brings about: followers that stayed behind, an outcome that is still unknown, a
    /// high watermark that has waited long enough.
    pub(super) fn tick_isr(self: &Arc<Self>) {
        self.propose();
        self.advance();
        self.advance_low_watermark();
        self.settle_isr();
    }

    /// Has the publisher look here again soon, if there is anything to be looked at.
    pub(super) fn settle_isr(&self) {
        let unsettled = {
            let state = self.state.lock();
            match &state.leading {
                Leading::With(isr) => !isr.is_settled() || state.health == Health::Offline,
                Leading::No => state.leaves(&self.shared).is_some(),
                Leading::Alone => false,
            }
        };
        if unsettled {
            self.shared.outbox.watch(self.topic_partition());
        }
    }

    /// Resolves when the log of every live replica starts at `offset` or later, with where they do.
    /// REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER.
    pub(super) fn low_watermark_reaches(
        self: &Arc<Self>,
        offset: Offset,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<Offset, ErrorCode>> {
        let reached = self.reached(FetchBound::LowWatermark, offset, deadline);
        self.advance_low_watermark(); // it may be so by now
        let partition = Arc::clone(self);
        Box::pin(async move {
            reached.await?;
            let state = partition.state.lock();
            Ok(state.low_watermark(&partition))
        })
    }

    fn advance_low_watermark(&self) {
        let mut woken = Vec::new();
        {
            let mut state = self.state.lock();
            if !state.waiters.is_empty() {
                let low = state.low_watermark(self);
                let bound = FetchBound::LowWatermark;
                state.waiters.advance(bound, low, &mut woken, |_| true);
            }
        }
        for waiter in woken {
            waiter.wake();
        }
    }

    /// What became of a proposal that was sent.
    pub(super) fn isr_outcome(&self, sent: &Proposal, outcome: Outcome) {
        let now = self.shared.clock.now();
        self.with_isr(sent, |isr| isr.outcome(now, sent, outcome));
    }

    /// What the registry has instead of what a proposal compared with.
    pub(super) fn isr_learned(&self, sent: &Proposal, found: &Arc<metadata::Partition>) {
        let now = self.shared.clock.now();
        self.with_isr(sent, |isr| {
            // Another leader epoch comes with the image, and ends this term.
            if found.leader_epoch == isr.committed().leader_epoch {
                isr.learn(now, found);
            }
        });
    }

    fn with_isr(&self, sent: &Proposal, then: impl FnOnce(&mut super::isr::Isr)) {
        if let Leading::With(isr) = &mut self.state.lock().leading
            && isr.committed().leader_epoch == sent.leader_epoch
        {
            then(isr);
        }
        self.advance();
    }

    /// False once this broker's lease is over and not everybody who may be elected fetches from it: another
    /// broker may lead by now, and have newer records.
    pub fn is_undisputed(&self) -> bool {
        self.state.lock().may_append_alone(&self.shared)
    }

    /// Who is no replica is told so before anything else.
    pub(super) fn check_replica(
        &self,
        replica: BrokerId,
        current: LeaderEpoch,
    ) -> Result<(), ErrorCode> {
        let state = self.state.lock();
        state.check_leader(current)?;
        if replica != self.shared.node_id() && state.role.replicas.contains(&replica) {
            return Ok(());
        }
        Err(match current {
            NO_EPOCH => ErrorCode::NotLeaderOrFollower,
            // It may know more than we do, and tries again.
            _ => ErrorCode::UnknownLeaderEpoch,
        })
    }

    /// Where the high watermark stood at the last stop: that much is committed, as far as it is there.
    pub(super) fn recall_high_watermark(&self, log: &Log) {
        let noted = self.shared.logs.high_watermark(self.topic_partition());
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let mut state = self.state.lock();
        if !matches!(state.leading, Leading::Alone) {
            let noted = noted.unwrap_or(0).clamp(start, end);
            state.high_watermark = state.high_watermark.max(noted);
        }
    }
}

impl State {
    /// What a follower whose disk failed has to say.
    fn leaves(&self, shared: &Shared) -> Option<Proposal> {
        let min_isr = self.watermark_rule().min_isr;
        let failed = self.health == Health::Offline && matches!(self.leading, Leading::No);
        failed.then(|| leave(&self.role, shared.node_id(), shared.broker_epoch(), min_isr))?
    }

    pub(super) fn watermark_rule(&self) -> WatermarkRule {
        WatermarkRule::new(
            self.config.flush_messages,
            self.config.min_insync_replicas,
            self.role.replicas.len(),
        )
    }

    /// Where the high watermark goes, given how far this replica is.
    pub(super) fn next_high_watermark(&self, own: ReplicaPosition, shared: &Shared) -> Offset {
        let current = self.high_watermark;
        let rule = self.watermark_rule();
        match &self.leading {
            Leading::No => self.followed_high_watermark(own),
            Leading::Alone => high_watermark(current, &[own], rule),
            Leading::With(isr) => {
                let moment = Moment {
                    now: shared.clock.now(),
                    rule,
                    lag_max: shared.config.lag_time_max,
                    live: &shared.live(),
                };
                isr.high_watermark(moment, current, own)
            }
        }
    }

    /// Log start of this replica and of those that live.
    fn low_watermark(&self, partition: &Partition) -> Offset {
        let log = partition.log.get();
        let own = log.map_or(0, |log| log.log_start_offset());
        match &self.leading {
            Leading::With(isr) => isr.low_watermark(own, &partition.shared.live()),
            Leading::No | Leading::Alone => own,
        }
    }

    /// Whether `acks=all` can be promised.
    pub(super) fn has_min_isr(&self) -> bool {
        let isr = match &self.leading {
            Leading::With(isr) => isr.committed().isr.len(),
            Leading::No | Leading::Alone => self.role.isr.len(),
        };
        isr >= self.watermark_rule().min_isr
    }

    /// R12: past the end of its lease a leader appends what nobody else confirms only while everybody who
    /// may be elected fetches from it.
    pub(super) fn may_append_alone(&self, shared: &Shared) -> bool {
        let Leading::With(isr) = &self.leading else {
            return true;
        };
        let now = shared.clock.now();
        let silence_max = (shared.config.fetch_wait_max * 2).max(SILENCE_MIN);
        !holds(Rule::R12)
            || !shared
                .lease
                .has_passed(shared.clock.boot(), isr.committed().leader_registration)
            || now
                .checked_sub(silence_max)
                .is_none_or(|since| isr.is_followed(since))
    }

    /// R9, KIP-207: OFFSET_NOT_AVAILABLE while the high watermark may lie before what earlier leaders
    /// showed.
    pub(super) fn check_offsets_known(&self, bound: FetchBound) -> Result<(), ErrorCode> {
        match &self.leading {
            Leading::With(_) if bound == FetchBound::LogEnd => Ok(()), // a follower asks
            Leading::With(isr) => match isr.epoch_start() {
                Some(start) if start <= self.high_watermark => Ok(()),
                _ if !holds(Rule::R9) => Ok(()),
                _ => Err(ErrorCode::OffsetNotAvailable),
            },
            Leading::No | Leading::Alone => Ok(()),
        }
    }
}
