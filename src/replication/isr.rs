//! Which replicas are in sync with the leader, as the leader decides it (Kafka's `Partition`,
//! KIP-497, KIP-966). Pure.
//!
//! The in-sync replicas in the registry are those from whom the next leader is chosen. So whatever is
//! acknowledged must be on every one of them, and on those that a change under way may add:
//! `maximal ISR = committed ∪ proposed`, from the proposal until its outcome is *known* (R4). The high
//! watermark counts the maximal ISR, only positions that were fetched in this leader's epoch (R6), and
//! stands still while fewer than `min.insync.replicas` are committed (R8). Who leaves the ISR below that
//! number has all that was committed and stays eligible (the ELR).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::watermark::{ReplicaPosition, WatermarkRule, high_watermark};
use crate::metadata::Partition;
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, NO_OFFSET, Offset};

/// Pause before a proposal is made again that was refused, or whose outcome is not known.
const RETRY: Duration = Duration::from_millis(500);

/// How long after its last fetch a follower may join; one that had caught up holds the high watermark for
/// so long, so that it can. Kafka waits for `replica.lag.time.max.ms`; one that died then holds up every acknowledgement.
const JOIN_PATIENCE: Duration = Duration::from_secs(2);

/// Registered brokers that are not about to stop, with their epochs.
pub(crate) type LiveBrokers = BTreeMap<BrokerId, i64>;

/// What is so around the partition when something is decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub(crate) now: Instant,
    pub(crate) rule: WatermarkRule,
    /// `replica.lag.time.max.ms`.
    pub(crate) lag_max: Duration,
    pub(crate) live: &'a LiveBrokers,
}

/// One fetch of a follower that was answered: all below `offset` is on its side, reconciled with this
/// leader's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FollowerFetch {
    /// When the request came.
    pub(crate) at: Instant,
    pub(crate) offset: Offset,
    pub(crate) log_start: Offset,
    /// −1: it did not say.
    pub(crate) broker_epoch: i64,
}

/// A change that the leader wants in the registry, or a follower that leaves (`leave.rs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// Whose proposal it is, and in which leader epoch.
    pub(crate) leader: BrokerId,
    pub(crate) leader_epoch: LeaderEpoch,
    /// Mod revision that the partition must still have (R1).
    pub(crate) revision: i64,
    /// The proposer's own registration (R2).
    pub(crate) registration: i64,
    /// Who joins, with the broker epoch of its fetches (R3).
    pub(crate) added: Vec<(BrokerId, i64)>,
    pub(crate) removed: Vec<BrokerId>,
    /// Who is to lead instead, with its broker epoch.
    pub(crate) successor: Option<(BrokerId, i64)>,
    /// The partition as it is to be.
    pub(crate) to: Partition,
}

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The registry took it, with this mod revision.
    Applied(i64),
    /// It was refused while the partition was still what it compared with: one of the registrations is
    /// gone, and gone for good.
    Refused,
    /// No answer, or none that rules out that it was or will be applied.
    Unknown,
}

#[derive(Debug, Clone, Copy, Default)]
struct Follower {
    /// `None`: it has not fetched in this epoch.
    position: Option<Offset>,
    log_start: Option<Offset>,
    broker_epoch: Option<i64>,
    fetched_at: Option<Instant>,
    /// The leader's log end at its last fetch.
    leader_end: Offset,
    /// When it last had all that the leader had.
    caught_up_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Pending {
    proposal: Proposal,
    /// Set while the outcome is unknown: when it is sent again. The same comparison guards both, so that
    /// at most one of them is applied.
    again_at: Option<Instant>,
}

/// The in-sync replicas of one partition in one term of its leader, which is this broker.
#[derive(Debug)]
pub(crate) struct Isr {
    me: BrokerId,
    /// As the registry last said. `isr ⊆ replicas`, `elr ∩ isr = ∅`.
    committed: Arc<Partition>,
    /// `None` until the last append of the term before is through.
    epoch_start: Option<Offset>,
    pending: Option<Pending>,
    followers: BTreeMap<BrokerId, Follower>,
    /// No proposal before that.
    quiet_until: Option<Instant>,
}

impl Isr {
    /// Begins a term: nothing is known of the followers, and those in the ISR have time to catch up.
    pub(crate) fn new(me: BrokerId, committed: Arc<Partition>, now: Instant) -> Self {
        let mut isr = Self {
            me,
            followers: BTreeMap::new(),
            committed,
            epoch_start: None,
            pending: None,
            quiet_until: None,
        };
        isr.know_replicas();
        isr.grant_time(now, |_| true);
        isr
    }

    /// Notes where the log ended when the term began; only the first call counts.
    pub(crate) fn begin(&mut self, log_end: Offset) {
        self.epoch_start.get_or_insert(log_end);
    }

    /// Where this leader's records begin; `None` while that is not known yet.
    pub(crate) fn epoch_start(&self) -> Option<Offset> {
        self.epoch_start
    }

    pub(crate) fn committed(&self) -> &Arc<Partition> {
        &self.committed
    }

    /// Everybody is in sync, and nothing is under way: no need to look at it often.
    pub(crate) fn is_settled(&self) -> bool {
        self.pending.is_none()
            && self.committed.elr.is_empty()
            && self.committed.isr.len() == self.committed.replicas.len()
    }

    /// R4: whoever may be in the ISR of the registry by now.
    pub(crate) fn maximal(&self) -> BTreeSet<BrokerId> {
        let proposed = self.pending.iter().flat_map(|it| &it.proposal.to.isr);
        let mut all: BTreeSet<BrokerId> = self.committed.isr.iter().copied().collect();
        all.extend(proposed);
        all.insert(self.me);
        all
    }

    /// A follower has fetched, and its log agrees with this one up to there. UNKNOWN_LEADER_EPOCH if it
    /// is no replica as far as is known here; STALE_BROKER_EPOCH from an earlier life of the broker.
    pub(crate) fn fetched(
        &mut self,
        id: BrokerId,
        fetch: FollowerFetch,
        leader_end: Offset,
    ) -> Result<(), ErrorCode> {
        let follower = self
            .followers
            .get_mut(&id)
            .ok_or(ErrorCode::UnknownLeaderEpoch)?;
        if fetch.broker_epoch < follower.broker_epoch.unwrap_or(-1) {
            return Err(ErrorCode::StaleBrokerEpoch);
        }
        // Kafka's `Replica.updateFetchStateOrThrow`: whoever asks for what followed the end of its last
        // fetch had everything then.
        let caught_up_at = if fetch.offset >= leader_end {
            Some(fetch.at)
        } else if follower.position.is_some() && fetch.offset >= follower.leader_end {
            follower.fetched_at
        } else {
            None
        };
        follower.caught_up_at = follower.caught_up_at.max(caught_up_at);
        follower.position = Some(fetch.offset);
        follower.log_start = Some(fetch.log_start);
        follower.broker_epoch = Some(fetch.broker_epoch);
        follower.fetched_at = follower.fetched_at.max(Some(fetch.at));
        follower.leader_end = leader_end;
        Ok(())
    }

    /// Whether a fetch of this follower may change the ISR.
    pub(crate) fn may_join(&self, id: BrokerId) -> bool {
        self.pending.is_none() && !self.committed.isr.contains(&id)
    }

    /// Where the high watermark goes from `current`.
    pub(crate) fn high_watermark(
        &self,
        moment: Moment<'_>,
        current: Offset,
        leader: ReplicaPosition,
    ) -> Offset {
        // R8. While an ELR is there only the registry's word that it is no longer lets records be
        // committed without it, whatever `min.insync.replicas` says by now.
        let is_strict = holds(Rule::R8);
        let too_few = self.committed.isr.len() < moment.rule.min_isr;
        if is_strict && (too_few || !self.committed.elr.is_empty()) {
            return current;
        }
        let mut members = 1;
        let mut lowest = leader;
        for (id, follower) in &self.followers {
            let is_member = self.may_be_member(*id);
            if !is_member && !follower.is_joining(*id, moment, leader.log_end) {
                continue;
            }
            members += usize::from(is_member);
            // R6: what it had before this epoch says nothing.
            let Some(position) = follower.position else {
                return current;
            };
            // Of a topic whose records count once they are on disk it reports what is on its disk.
            lowest.log_end = lowest.log_end.min(position);
            lowest.flushed = lowest.flushed.min(position);
        }
        if holds(Rule::R4) && members < self.committed.isr.len() {
            return current; // a member that is no replica: somebody changed the registry by hand
        }
        high_watermark(
            current,
            &[lowest],
            WatermarkRule {
                min_isr: 1,
                ..moment.rule
            },
        )
    }

    /// R4
    fn may_be_member(&self, id: BrokerId) -> bool {
        let proposed = self.pending.as_ref();
        let proposed = proposed.map(|pending| pending.proposal.to.isr.contains(&id));
        if !holds(Rule::R4) {
            return proposed.unwrap_or_else(|| self.committed.isr.contains(&id));
        }
        self.committed.isr.contains(&id) || proposed == Some(true)
    }

    /// The change that is due, to be sent now: each is given out once, and again while its outcome is
    /// unknown.
    pub(crate) fn propose(
        &mut self,
        moment: Moment<'_>,
        high_watermark: Offset,
        leader_end: Offset,
    ) -> Option<Proposal> {
        // R7: what a replica needs to join.
        let joins_at = match holds(Rule::R7) {
            true => self.epoch_start.map(|start| start.max(high_watermark)),
            false => Some(high_watermark),
        };
        self.give_out(moment, |isr| isr.due(moment, joins_at?, leader_end))
    }

    /// The leader cannot go on, its disk having failed: somebody else who has all that was committed is to
    /// lead. As Kafka's controller does for the replicas of a failed log directory.
    pub(crate) fn resign(&mut self, moment: Moment<'_>) -> Option<Proposal> {
        self.give_out(moment, |isr| isr.succession(moment))
    }

    fn give_out(
        &mut self,
        moment: Moment<'_>,
        due: impl FnOnce(&Self) -> Option<Proposal>,
    ) -> Option<Proposal> {
        if let Some(pending) = &mut self.pending {
            let due = pending.again_at.is_some_and(|at| moment.now >= at);
            if due {
                pending.again_at = None;
            }
            return due.then(|| pending.proposal.clone());
        }
        if self.quiet_until.is_some_and(|until| moment.now < until) {
            return None;
        }
        let proposal = due(self)?;
        self.pending = Some(Pending {
            proposal: proposal.clone(),
            again_at: None,
        });
        Some(proposal)
    }

    fn succession(&self, moment: Moment<'_>) -> Option<Proposal> {
        let me = self.me;
        let others = |ids: &[BrokerId]| -> Vec<BrokerId> {
            ids.iter().copied().filter(|id| *id != me).collect()
        };
        let live = |id: &BrokerId| Some((*id, *moment.live.get(id)?));
        let in_sync = others(&self.committed.isr);
        let in_order = |ids: &[BrokerId]| {
            let mut replicas = self.committed.replicas.iter();
            replicas.find_map(|id| ids.contains(id).then(|| live(id))?)
        };
        let (successor, isr) = match in_order(&in_sync) {
            Some(successor) => (successor, in_sync),
            // The eligible have all that was committed too (KIP-966).
            None => {
                let eligible = in_order(&self.committed.elr)?;
                (eligible, vec![eligible.0])
            }
        };
        // This replica may have lost everything: it is not eligible.
        let before = self.committed.elr.iter().chain(&self.committed.isr);
        let elr: BTreeSet<BrokerId> = match isr.len() >= moment.rule.min_isr {
            true => BTreeSet::new(),
            false => before
                .copied()
                .filter(|id| *id != me && !isr.contains(id))
                .collect(),
        };
        Some(Proposal {
            leader: me,
            leader_epoch: self.committed.leader_epoch,
            revision: self.committed.revision,
            registration: self.committed.leader_registration,
            added: Vec::new(),
            removed: vec![me],
            successor: Some(successor),
            to: Partition {
                leader: Some(successor.0),
                leader_epoch: self.committed.leader_epoch + 1,
                leader_registration: successor.1,
                isr,
                elr: elr.into_iter().collect(),
                last_known_leader: None,
                partition_epoch: self.committed.partition_epoch + 1,
                revision: 0,
                ..(*self.committed).clone()
            },
        })
    }

    /// `joins_at`: the offset that a replica needs to join.
    fn due(&self, moment: Moment<'_>, joins_at: Offset, leader_end: Offset) -> Option<Proposal> {
        let mut added = Vec::new();
        let mut removed = Vec::new();
        for (id, follower) in &self.followers {
            if self.committed.isr.contains(id) {
                if !follower.is_caught_up(moment, leader_end) {
                    removed.push(*id);
                }
            } else if follower.position.is_some_and(|at| at >= joins_at)
                && follower.fetches(moment.now)
                && let Some(epoch) = follower.eligible_epoch(*id, moment.live)
            {
                added.push((*id, epoch));
            }
        }
        let joins = |id: &BrokerId| added.iter().any(|(joining, _)| joining == id);
        let stays = |id: &BrokerId| {
            *id == self.me || (self.committed.isr.contains(id) && !removed.contains(id))
        };
        let replicas = self.committed.replicas.iter().copied();
        let isr: Vec<BrokerId> = replicas.filter(|id| stays(id) || joins(id)).collect();
        // KIP-966: whoever leaves below min.insync.replicas stays eligible; nobody is from there on up.
        let elr: Vec<BrokerId> = if isr.len() >= moment.rule.min_isr {
            Vec::new()
        } else {
            let before = self.committed.elr.iter().chain(&self.committed.isr);
            let before: BTreeSet<BrokerId> = before.copied().collect();
            before.into_iter().filter(|id| !isr.contains(id)).collect()
        };
        if added.is_empty() && removed.is_empty() && elr == self.committed.elr {
            return None;
        }
        Some(Proposal {
            leader: self.me,
            leader_epoch: self.committed.leader_epoch,
            revision: self.committed.revision,
            registration: self.committed.leader_registration,
            added,
            removed,
            successor: None,
            to: Partition {
                isr,
                elr,
                last_known_leader: None,
                partition_epoch: self.committed.partition_epoch + 1,
                revision: 0,
                ..(*self.committed).clone()
            },
        })
    }

    /// What became of a proposal that was sent.
    pub(crate) fn outcome(&mut self, now: Instant, sent: &Proposal, outcome: Outcome) {
        let Some(pending) = &mut self.pending else {
            return; // the registry's own word came first
        };
        if pending.proposal != *sent {
            return;
        }
        match outcome {
            // The term is over: the rest comes with the image.
            Outcome::Applied(_) if sent.successor.is_some() => {}
            Outcome::Applied(revision) => {
                let to = Partition {
                    revision,
                    ..sent.to.clone()
                };
                self.learn(now, &Arc::new(to));
            }
            Outcome::Refused => {
                self.pending = None;
                self.quiet_until = Some(now + RETRY);
            }
            // R4: the union counts on.
            Outcome::Unknown => pending.again_at = Some(now + RETRY),
        }
    }

    /// What the registry says of the partition, in this same term. Older news is no news (R13). A newer
    /// revision than the one that a proposal compares with ends its being unknown: it was applied by then
    /// or never will be (R4).
    pub(crate) fn learn(&mut self, now: Instant, committed: &Arc<Partition>) {
        if committed.revision <= self.committed.revision {
            if committed.replicas != self.committed.replicas {
                // They are another key's.
                let replicas = committed.replicas.clone();
                Arc::make_mut(&mut self.committed).replicas = replicas;
                self.know_replicas();
            }
            return;
        }
        let before = std::mem::replace(&mut self.committed, Arc::clone(committed));
        self.pending = None;
        self.quiet_until = None;
        self.know_replicas();
        self.grant_time(now, |id| !before.isr.contains(id));
        // Who was taken out by somebody else, or left by itself, comes back by what it fetches from now on.
        let now_out = before.isr.iter().filter(|id| !committed.isr.contains(id));
        for id in now_out {
            if let Some(follower) = self.followers.get_mut(id) {
                follower.position = None;
                follower.caught_up_at = None;
            }
        }
    }

    /// Log start of all live replicas: `own` at most.
    pub(crate) fn low_watermark(&self, own: Offset, live: &LiveBrokers) -> Offset {
        let live = self
            .followers
            .iter()
            .filter(|(id, _)| live.contains_key(id));
        live.map(|(_, follower)| follower.log_start.unwrap_or(NO_OFFSET))
            .fold(own, Offset::min)
    }

    /// Whether everybody else who may be elected has fetched in this epoch `since` then: nobody has been,
    /// up to then (R12).
    pub(crate) fn is_followed(&self, since: Instant) -> bool {
        let mut electable = self.maximal();
        electable.extend(&self.committed.elr);
        electable.remove(&self.me);
        electable.iter().all(|id| {
            let follower = self.followers.get(id);
            follower.is_some_and(|it| it.fetched_at.is_some_and(|at| at >= since))
        })
    }

    fn know_replicas(&mut self) {
        let replicas = &self.committed.replicas;
        self.followers.retain(|id, _| replicas.contains(id));
        for id in replicas.iter().filter(|id| **id != self.me) {
            self.followers.entry(*id).or_default();
        }
    }

    /// Members of the ISR for whom `is_new` holds count as caught up now.
    fn grant_time(&mut self, now: Instant, is_new: impl Fn(&BrokerId) -> bool) {
        for id in self.committed.isr.iter().filter(|id| is_new(id)) {
            if let Some(follower) = self.followers.get_mut(id) {
                follower.caught_up_at = follower.caught_up_at.max(Some(now));
            }
        }
    }
}

impl Follower {
    /// Kafka's `Replica.isCaughtUp`.
    fn is_caught_up(&self, moment: Moment<'_>, leader_end: Offset) -> bool {
        self.position == Some(leader_end)
            || self
                .caught_up_at
                .is_some_and(|at| moment.now.saturating_duration_since(at) <= moment.lag_max)
    }

    fn fetches(&self, now: Instant) -> bool {
        self.fetched_at
            .is_some_and(|at| now.saturating_duration_since(at) <= JOIN_PATIENCE)
    }

    /// R3: the broker epoch of its fetches, if that is the one under which it is registered and it does
    /// not want to stop.
    fn eligible_epoch(&self, id: BrokerId, live: &LiveBrokers) -> Option<i64> {
        let epoch = self.broker_epoch.filter(|epoch| *epoch >= 0)?;
        (live.get(&id) == Some(&epoch)).then_some(epoch)
    }

    /// It is not in the ISR, but close: the high watermark waits for it, or it would run after it for ever
    /// (Kafka's `shouldWaitForReplicaToJoinIsr`).
    fn is_joining(&self, id: BrokerId, moment: Moment<'_>, leader_end: Offset) -> bool {
        self.fetches(moment.now)
            && self.position.is_some()
            && self.is_caught_up(moment, leader_end)
            && self.eligible_epoch(id, moment.live).is_some()
    }
}

#[cfg(test)]
mod tests;
