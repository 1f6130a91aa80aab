//! How a group goes from one generation to the next: the join barrier, the initial delay, the hand-out of
//! assignments, members who fail. Pure. Kafka's `GroupMetadataManager`, classic part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::GroupConfig;
use super::classic::{ClassicGroup, Member, State};
use super::messages::{JoinReply, Note, Now, Outcome, Reply, SyncReply, Token};
use crate::coordinator::record::GroupRecord;
use crate::time::Deadlines;
use crate::types::ErrorCode;

/// What a shard waits for; one deadline each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    ExpireOffsets,
    /// A member's (or pending member's) session.
    Session(Arc<str>, Arc<str>),
    /// The end of a group's join phase.
    Join(Arc<str>),
    /// When every member must have asked for its assignment.
    Sync(Arc<str>),
}

/// One step of the machine: the group it is about is passed along.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) config: &'a GroupConfig,
    pub(super) timers: &'a mut Deadlines<Timer>,
    pub(super) now: Now,
    pub(super) out: &'a mut Outcome,
}

impl Step<'_> {
    pub(super) fn join_reply(&mut self, token: Token, reply: JoinReply) {
        self.out.replies.push((token, Reply::Join(reply)));
    }

    pub(super) fn sync_reply(&mut self, token: Token, reply: SyncReply) {
        self.out.replies.push((token, Reply::Sync(reply)));
    }

    pub(super) fn note(&mut self, group: &Arc<str>, text: String) {
        self.out.notes.push(Note {
            group: group.clone(),
            text,
        });
    }

    fn after(&self, timeout_ms: i32) -> Instant {
        self.now.instant + Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
    }

    pub(super) fn set_session(&mut self, group: &Arc<str>, member: &Arc<str>, timeout_ms: i32) {
        let due = self.after(timeout_ms);
        self.timers
            .set(Timer::Session(group.clone(), member.clone()), due);
    }

    /// A member was heard of.
    pub(super) fn touch(&mut self, group: &ClassicGroup, member: &str) {
        if let Some(member) = group.member(member) {
            self.set_session(&group.id, &member.id, member.session_timeout_ms);
        }
    }

    pub(super) fn cancel_session(&mut self, group: &Arc<str>, member: &Arc<str>) {
        self.timers
            .cancel(&Timer::Session(group.clone(), member.clone()));
    }

    /// Whether records can be appended as one batch.
    pub(super) fn fits(&self, records: &[GroupRecord]) -> bool {
        let bytes: usize = records.iter().map(GroupRecord::bytes_max).sum();
        bytes <= self.config.batch_bytes_max
    }

    /// Removes a member for good. Who still waits for it hears that it is unknown: if the client lives, it
    /// joins again.
    pub(super) fn remove(&mut self, group: &mut ClassicGroup, id: &Arc<str>) {
        self.cancel_session(&group.id, id);
        if let Some(member) = group.remove(id) {
            self.refuse(&member, &Arc::from(""), ErrorCode::UnknownMemberId);
        }
    }

    /// Answers whoever waits for a member that is no more.
    pub(super) fn refuse(&mut self, member: &Member, id: &Arc<str>, error: ErrorCode) {
        let (join, sync) = member.waiting();
        if let Some(token) = join {
            self.join_reply(token, JoinReply::failed(id.clone(), error));
        }
        if let Some(token) = sync {
            self.sync_reply(token, SyncReply::failed(error));
        }
    }

    pub(super) fn rebalance_or_complete_join(&mut self, group: &mut ClassicGroup, reason: &str) {
        if group.state == State::PreparingRebalance {
            self.maybe_complete_join(group);
        } else {
            self.prepare_rebalance(group, reason);
        }
    }

    /// Ends the join phase if everybody is there; the initial one always lasts its delay.
    pub(super) fn maybe_complete_join(&mut self, group: &mut ClassicGroup) {
        if group.state == State::PreparingRebalance
            && !group.is_initial_rebalance
            && group.has_all_members_joined()
        {
            self.complete_join(group);
        }
    }

    pub(super) fn prepare_rebalance(&mut self, group: &mut ClassicGroup, reason: &str) {
        if group.state == State::CompletingRebalance {
            self.fail_sync(group, ErrorCode::RebalanceInProgress);
        }
        group.pending_sync.clear();
        self.timers.cancel(&Timer::Sync(group.id.clone()));
        let is_initial = group.state == State::Empty;
        if is_initial {
            // Others are likely to come at the same time: wait for them, rather than rebalance for each.
            let delay_ms = self.config.initial_rebalance_delay_ms;
            let remaining_ms = group.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            group.initial_delay = Some((delay_ms, remaining_ms));
            self.set_join_timer(group, delay_ms);
        }
        self.note(
            &group.id,
            format!(
                "preparing to rebalance in state {} with old generation {}: {reason}",
                group.state.name(),
                group.generation
            ),
        );
        group.transition_to(State::PreparingRebalance, self.now.wall_ms);
        if is_initial {
            return;
        }
        if group.has_all_members_joined() {
            self.complete_join(group);
        } else {
            self.set_join_timer(group, group.rebalance_timeout_ms());
        }
    }

    fn set_join_timer(&mut self, group: &ClassicGroup, timeout_ms: i32) {
        let due = self.after(timeout_ms);
        self.timers.set(Timer::Join(group.id.clone()), due);
    }

    /// The join phase has lasted as long as it may, or the initial delay is over.
    pub(super) fn join_due(&mut self, group: &mut ClassicGroup) {
        if group.state != State::PreparingRebalance {
            return;
        }
        match group.initial_delay.take() {
            Some((delay_ms, remaining_ms)) if group.new_member_added && remaining_ms != 0 => {
                group.new_member_added = false;
                let next_ms = self.config.initial_rebalance_delay_ms.min(remaining_ms);
                group.initial_delay = Some((next_ms, (remaining_ms - delay_ms).max(0)));
                self.set_join_timer(group, next_ms);
            }
            _ => self.complete_join(group),
        }
    }

    /// Begins the next generation with those who joined; static members may stay away.
    pub(super) fn complete_join(&mut self, group: &mut ClassicGroup) {
        self.timers.cancel(&Timer::Join(group.id.clone()));
        group.initial_delay = None;
        let missing: Vec<Arc<str>> = group
            .members()
            .filter(|member| !member.is_awaiting_join() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in &missing {
            self.remove(group, id);
        }
        if !missing.is_empty() {
            self.note(
                &group.id,
                format!("removed members who have not joined: {missing:?}"),
            );
        }
        if !group.elect_joined_leader() && group.member_count() > 0 {
            // Only static members, none of which joined: their sessions will run out.
            self.note(&group.id, "nobody joined, the rebalance goes on".to_owned());
            self.set_join_timer(group, group.rebalance_timeout_ms());
            return;
        }
        group.init_next_generation(self.now.wall_ms);
        let generation = group.generation;
        if group.state == State::Empty {
            self.note(&group.id, format!("empty with generation {generation}"));
            self.out.records.push(GroupRecord::Group {
                group: group.id.clone(),
                value: Some(group.to_value(None)),
            });
            return;
        }
        let count = group.member_count();
        self.note(
            &group.id,
            format!("generation {generation} has {count} members"),
        );
        self.answer_joined(group);
        let due = self.after(group.rebalance_timeout_ms());
        self.timers.set(Timer::Sync(group.id.clone()), due);
    }

    fn answer_joined(&mut self, group: &mut ClassicGroup) {
        for id in group.member_ids() {
            if let Some(token) = group.take_join(&id) {
                let members = if group.is_leader(&id) {
                    group.joined_members()
                } else {
                    Vec::new()
                };
                self.join_reply(token, joined(group, id.clone(), members));
            }
            if let Some(member) = group.member_mut(&id) {
                member.is_new = false;
            }
            self.touch(group, &id);
            group.pending_sync.insert(id);
        }
    }

    /// Ends the wait for assignments with an error.
    pub(super) fn fail_sync(&mut self, group: &mut ClassicGroup, error: ErrorCode) {
        for id in group.member_ids() {
            let Some(member) = group.member_mut(&id) else {
                continue;
            };
            member.assignment = Bytes::new();
            if let Some(token) = member.sync.take() {
                self.sync_reply(token, SyncReply::failed(error));
                self.touch(group, &id);
            }
        }
    }

    /// The leader's assignments go to the log, and with it to all who wait. Applying the record makes the
    /// group stable.
    pub(super) fn hand_out(
        &mut self,
        group: &mut ClassicGroup,
        assignments: &BTreeMap<Arc<str>, Bytes>,
    ) {
        let record = GroupRecord::Group {
            group: group.id.clone(),
            value: Some(group.to_value(Some(assignments))),
        };
        if !self.fits(std::slice::from_ref(&record)) {
            self.fail_sync(group, ErrorCode::UnknownServerError);
            self.rebalance_or_complete_join(group, "the assignment is too large to be stored");
            return;
        }
        self.out.records.push(record);
        for id in group.member_ids() {
            let Some(token) = group.member_mut(&id).and_then(|m| m.sync.take()) else {
                continue;
            };
            let assignment = assignments.get(&id).cloned().unwrap_or_default();
            self.sync_reply(token, assigned(group, assignment));
            self.touch(group, &id);
        }
    }

    /// Members who never asked for their assignment hold everybody up no longer.
    pub(super) fn sync_due(&mut self, group: &mut ClassicGroup) {
        let is_running = matches!(group.state, State::CompletingRebalance | State::Stable);
        let late = std::mem::take(&mut group.pending_sync);
        if !is_running || late.is_empty() {
            return;
        }
        for id in &late {
            self.remove(group, id);
        }
        self.prepare_rebalance(group, &format!("removing {late:?}, who have not synced"));
    }

    /// A session ran out.
    pub(super) fn session_due(&mut self, group: &mut ClassicGroup, id: &Arc<str>) {
        if group.pending_join.remove(id) {
            self.note(
                &group.id,
                format!("pending member {id} has not come back in time"),
            );
            if group.state == State::PreparingRebalance && group.has_all_members_joined() {
                self.complete_join(group);
            }
            return;
        }
        if group.member(id).is_none_or(Member::has_satisfied_heartbeat) {
            return;
        }
        self.note(&group.id, format!("member {id} has failed"));
        self.remove(group, id);
        match group.state {
            State::Stable | State::CompletingRebalance => {
                self.prepare_rebalance(group, &format!("member {id} sent no heartbeat"));
            }
            State::PreparingRebalance if group.has_all_members_joined() => {
                self.complete_join(group);
            }
            State::PreparingRebalance | State::Empty => {}
        }
    }
}

/// What a member that is part of the generation hears.
pub(super) fn joined(
    group: &ClassicGroup,
    member_id: Arc<str>,
    members: Vec<super::messages::JoinedMember>,
) -> JoinReply {
    JoinReply {
        error: ErrorCode::None,
        generation: group.generation,
        protocol_type: group.protocol_type.clone(),
        protocol_name: group.protocol.clone(),
        leader: group.leader.clone().unwrap_or_else(|| Arc::from("")),
        skip_assignment: false,
        member_id,
        members,
    }
}

pub(super) fn assigned(group: &ClassicGroup, assignment: Bytes) -> SyncReply {
    SyncReply {
        error: ErrorCode::None,
        protocol_type: group.protocol_type.clone(),
        protocol_name: group.protocol.clone(),
        assignment,
    }
}
