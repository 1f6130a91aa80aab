//! The groups of one partition of `__consumer_offsets` as a machine. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::GroupConfig;
use super::classic::{ClassicGroup, State};
use super::messages::{
    CommitRequest, DeleteOffsetsRequest, DescribedGroup, DescribedMember, GroupSnapshot,
    HeartbeatRequest, LeaveReply, LeaveRequest, LeavingMember, ListFilter, ListedGroup, Now,
    Outcome, PartitionErrors, Reply, Request, SyncReply, SyncRequest, Token,
};
use super::offsets::{self, Offsets};
use super::rebalance::{Step, Timer, assigned};
use crate::coordinator::record::GroupRecord;
use crate::time::Deadlines;
use crate::types::ErrorCode;

type Groups = BTreeMap<Arc<str>, ClassicGroup>;

/// All groups of a partition, with their offsets.
#[derive(Debug)]
pub struct Shard {
    config: Arc<GroupConfig>,
    groups: Groups,
    offsets: Offsets,
    timers: Deadlines<Timer>,
    expiry_is_set: bool,
}

impl Shard {
    /// A shard that has loaded nothing yet.
    pub fn new(config: Arc<GroupConfig>) -> Self {
        Self {
            config,
            groups: BTreeMap::new(),
            offsets: Offsets::default(),
            timers: Deadlines::new(),
            expiry_is_set: false,
        }
    }

    /// Neither groups nor offsets.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.offsets.is_empty()
    }

    /// Takes in one record, just appended or read while loading. Never fails.
    pub fn apply(&mut self, record: &GroupRecord) {
        match record {
            GroupRecord::Group {
                group,
                value: Some(value),
            } => self.group_or_new(group).install(value),
            GroupRecord::Group { group, value: None } => {
                self.groups.remove(group);
            }
            GroupRecord::Offset {
                group,
                topic,
                partition,
                value: Some(value),
            } => {
                // A consumer without membership makes its group by committing.
                self.group_or_new(group);
                self.offsets.put(group, topic, *partition, value.clone());
            }
            GroupRecord::Offset {
                group,
                topic,
                partition,
                value: None,
            } => self.offsets.remove(group, topic, *partition),
        }
    }

    /// Everything is applied: sessions start to run.
    pub fn loaded(&mut self, now: Now) -> Outcome {
        let mut out = Outcome::default();
        let (mut step, groups) = self.step(now, &mut out);
        for group in groups.values_mut() {
            for id in group.member_ids() {
                step.touch(group, &id);
            }
            if group.member_count() > step.config.size_max {
                step.prepare_rebalance(group, "the loaded group is larger than group.max.size");
            }
        }
        self.set_expiry(now, !self.is_empty());
        out
    }

    /// Decides a request. Replies may come in the outcome of a later step.
    pub fn decide(&mut self, now: Now, token: Token, request: Request) -> Outcome {
        let mut out = Outcome::default();
        let reply = match request {
            Request::Join(request) => {
                self.join(now, token, request, &mut out);
                None
            }
            Request::Sync(request) => {
                self.sync(now, token, request, &mut out);
                None
            }
            Request::Heartbeat(request) => {
                let heard = self.heartbeat(now, &request, &mut out);
                Some(Reply::Heartbeat(heard.err().unwrap_or(ErrorCode::None)))
            }
            Request::Leave(request) => Some(Reply::Leave(self.leave(now, request, &mut out))),
            Request::CommitOffsets(request) => {
                Some(Reply::CommitOffsets(self.commit(now, &request, &mut out)))
            }
            Request::FetchOffsets(request) => {
                Some(Reply::FetchOffsets(self.offsets.fetch(&request)))
            }
            Request::DeleteOffsets(request) => Some(Reply::DeleteOffsets(
                self.delete_offsets(&request, &mut out),
            )),
            Request::DeleteGroups(groups) => {
                Some(Reply::DeleteGroups(self.delete_groups(groups, &mut out)))
            }
            Request::DescribeGroups(groups) => Some(Reply::DescribeGroups(self.describe(groups))),
            Request::ListGroups(filter) => Some(Reply::ListGroups(self.list(&filter))),
            Request::Snapshot => Some(Reply::Snapshot(self.snapshot())),
            Request::TopicsDeleted(topics) => {
                out.records = self.offsets.topic_tombstones(&topics);
                Some(Reply::TopicsDeleted)
            }
        };
        out.replies.extend(reply.map(|reply| (token, reply)));
        self.set_expiry(now, !self.is_empty() || !out.records.is_empty());
        out
    }

    /// When [`Shard::on_due`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.next_due()
    }

    /// Does what is due at `now`, one thing at a time; `None` once nothing more is.
    pub fn on_due(&mut self, now: Now) -> Option<Outcome> {
        let timer = self.timers.pop_due(now.instant)?;
        let mut out = Outcome::default();
        if timer == Timer::ExpireOffsets {
            self.expiry_is_set = false;
            self.expire_offsets(now, &mut out);
            self.set_expiry(now, !self.is_empty());
            return Some(out);
        }
        let (mut step, groups) = self.step(now, &mut out);
        match timer {
            Timer::Session(group, member) => {
                if let Some(group) = groups.get_mut(&group) {
                    step.session_due(group, &member);
                }
            }
            Timer::Join(group) => {
                if let Some(group) = groups.get_mut(&group) {
                    step.join_due(group);
                }
            }
            Timer::Sync(group) => {
                if let Some(group) = groups.get_mut(&group) {
                    step.sync_due(group);
                }
            }
            Timer::ExpireOffsets => {}
        }
        Some(out)
    }

    pub(super) fn step<'a>(
        &'a mut self,
        now: Now,
        out: &'a mut Outcome,
    ) -> (Step<'a>, &'a mut Groups) {
        let step = Step {
            config: &self.config,
            timers: &mut self.timers,
            now,
            out,
        };
        (step, &mut self.groups)
    }

    fn group_or_new(&mut self, group: &Arc<str>) -> &mut ClassicGroup {
        self.groups
            .entry(group.clone())
            .or_insert_with(|| ClassicGroup::new(group.clone()))
    }

    /// A request that came to nothing leaves no group behind.
    pub(super) fn forget_untouched(&mut self, name: &str) {
        let is_untouched = self.groups.get(name).is_some_and(|group| {
            group.state == State::Empty
                && group.state_timestamp.is_none()
                && group.protocol_type.is_none()
                && group.pending_join.is_empty()
        });
        if is_untouched && self.offsets.of(name).next().is_none() {
            self.groups.remove(name);
        }
    }

    fn set_expiry(&mut self, now: Now, is_needed: bool) {
        if is_needed && !self.expiry_is_set {
            let interval = u64::try_from(self.config.offsets_retention_check_interval_ms);
            let interval = Duration::from_millis(interval.unwrap_or(1).max(1));
            self.timers
                .set(Timer::ExpireOffsets, now.instant + interval);
            self.expiry_is_set = true;
        }
    }

    fn expire_offsets(&mut self, now: Now, out: &mut Outcome) {
        let retention_ms = self.config.offsets_retention_ms;
        for group in self.groups.values() {
            let records = &mut out.records;
            let nothing_left = self
                .offsets
                .expire(group, now.wall_ms, retention_ms, records);
            if nothing_left && group.state == State::Empty && group.pending_join.is_empty() {
                out.records.push(group_tombstone(&group.id));
            }
        }
    }

    fn sync(&mut self, now: Now, token: Token, request: SyncRequest, out: &mut Outcome) {
        let (mut step, groups) = self.step(now, out);
        let group = groups.get_mut(&request.group);
        let Some(group) = group.filter(|group| group.state != State::Empty) else {
            step.sync_reply(token, SyncReply::failed(ErrorCode::UnknownMemberId));
            return;
        };
        if let Err(error) = validate_sync(group, &request) {
            step.sync_reply(token, SyncReply::failed(error));
            return;
        }
        match group.state {
            State::Empty | State::PreparingRebalance => {
                step.sync_reply(token, SyncReply::failed(ErrorCode::RebalanceInProgress));
            }
            State::CompletingRebalance => {
                step.has_synced(group, &request.member_id);
                let member = group.member_mut(&request.member_id);
                if let Some(before) = member.and_then(|m| m.sync.replace(token)) {
                    step.sync_reply(before, SyncReply::failed(ErrorCode::RebalanceInProgress));
                }
                if group.is_leader(&request.member_id) {
                    step.note(
                        &group.id,
                        format!(
                            "assignment received for generation {} from leader {}: {} members, {} static",
                            group.generation,
                            request.member_id,
                            group.member_count(),
                            group.static_member_count()
                        ),
                    );
                    step.hand_out(group, &request.assignments.into_iter().collect());
                }
            }
            State::Stable => {
                step.has_synced(group, &request.member_id);
                let member = group.member(&request.member_id);
                let assignment = member.map(|m| m.assignment.clone()).unwrap_or_default();
                step.sync_reply(token, assigned(group, assignment));
            }
        }
    }

    fn heartbeat(
        &mut self,
        now: Now,
        request: &HeartbeatRequest,
        out: &mut Outcome,
    ) -> Result<(), ErrorCode> {
        let (mut step, groups) = self.step(now, out);
        let group = groups.get_mut(&request.group);
        let group = group.ok_or(ErrorCode::UnknownMemberId)?;
        group.validate_member(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        step.touch(group, &request.member_id);
        if group.state == State::PreparingRebalance {
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    fn leave(&mut self, now: Now, request: LeaveRequest, out: &mut Outcome) -> LeaveReply {
        let (mut step, groups) = self.step(now, out);
        let Some(group) = groups.get_mut(&request.group) else {
            let unknown = |member| (member, ErrorCode::UnknownMemberId);
            return LeaveReply {
                error: ErrorCode::None,
                members: request.members.into_iter().map(unknown).collect(),
            };
        };
        let mut left = Vec::new();
        let mut members = Vec::with_capacity(request.members.len());
        for member in request.members {
            let error = match step.leave_one(group, &member) {
                Ok(id) => {
                    left.push(id);
                    ErrorCode::None
                }
                Err(error) => error,
            };
            members.push((member, error));
        }
        if !left.is_empty() && group.state != State::Empty {
            let reason = format!("explicit LeaveGroup of {left:?}");
            step.rebalance_or_complete_join(group, &reason);
        }
        LeaveReply {
            error: ErrorCode::None,
            members,
        }
    }

    fn commit(
        &mut self,
        now: Now,
        request: &CommitRequest,
        out: &mut Outcome,
    ) -> Result<PartitionErrors, ErrorCode> {
        let group = self.groups.get(&request.group);
        offsets::validate_commit(group, request)?;
        let mut records = Vec::new();
        let reply = offsets::commit(request, &self.config, now.wall_ms, &mut records);
        let (mut step, groups) = self.step(now, out);
        if let Some(group) = groups.get(&request.group) {
            // To commit is a sign of life.
            step.touch(group, &request.member_id);
        }
        out.records = records;
        Ok(reply)
    }

    fn delete_offsets(
        &self,
        request: &DeleteOffsetsRequest,
        out: &mut Outcome,
    ) -> Result<PartitionErrors, ErrorCode> {
        let group = self.groups.get(&request.group);
        let group = group.ok_or(ErrorCode::GroupIdNotFound)?;
        if group.state != State::Empty && !group.is_consumer() {
            return Err(ErrorCode::NonEmptyGroup);
        }
        Ok(self.offsets.delete(group, request, &mut out.records))
    }

    fn delete_groups(&self, names: Vec<Arc<str>>, out: &mut Outcome) -> Vec<(Arc<str>, ErrorCode)> {
        let mut reply = Vec::with_capacity(names.len());
        for name in names {
            let error = match self.groups.get(&name) {
                None => ErrorCode::GroupIdNotFound,
                Some(group) if group.state != State::Empty => ErrorCode::NonEmptyGroup,
                Some(_) => {
                    out.records.extend(self.offsets.tombstones(&name));
                    out.records.push(group_tombstone(&name));
                    ErrorCode::None
                }
            };
            reply.push((name, error));
        }
        reply
    }

    fn describe(&self, names: Vec<Arc<str>>) -> Vec<(Arc<str>, Option<DescribedGroup>)> {
        let each = names.into_iter().map(|name| {
            let described = self.groups.get(&name).map(describe_group);
            (name, described)
        });
        each.collect()
    }

    fn list(&self, filter: &ListFilter) -> Vec<ListedGroup> {
        let is_wanted = |wanted: &[String], value: &str| {
            let matches = |wanted: &String| wanted.trim().eq_ignore_ascii_case(value);
            wanted.is_empty() || wanted.iter().any(matches)
        };
        if !is_wanted(&filter.types, "classic") {
            return Vec::new();
        }
        let states = State::ALL.into_iter();
        let states: Vec<State> = states
            .filter(|state| is_wanted(&filter.states, state.name()))
            .collect();
        let groups = self.groups.values();
        groups
            .filter(|group| states.contains(&group.state))
            .map(|group| ListedGroup {
                group: group.id.clone(),
                protocol_type: group.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
                state: group.state.name(),
            })
            .collect()
    }

    fn snapshot(&self) -> Vec<GroupSnapshot> {
        let groups = self.groups.values();
        let snapshot = |group: &ClassicGroup| GroupSnapshot {
            group: group.id.clone(),
            state: group.state.name(),
            members: group.member_count(),
            offsets: self
                .offsets
                .of(&group.id)
                .map(|(topic, partition, value)| (topic.clone(), partition, value.offset))
                .collect(),
        };
        groups.map(snapshot).collect()
    }

    /// What a restart keeps: for tests that compare a life with its replay.
    #[cfg(test)]
    pub(super) fn durable(&self) -> (Vec<GroupRecord>, Offsets) {
        let groups = self.groups.values().map(|group| GroupRecord::Group {
            group: group.id.clone(),
            value: Some(group.to_value(None)),
        });
        (groups.collect(), self.offsets.clone())
    }

    /// The state of a group, by name.
    #[cfg(test)]
    pub(super) fn state_of(&self, group: &str) -> Option<&'static str> {
        self.groups.get(group).map(|group| group.state.name())
    }
}

impl Step<'_> {
    fn has_synced(&mut self, group: &mut ClassicGroup, member: &str) {
        group.pending_sync.remove(member);
        if group.pending_sync.is_empty() {
            self.timers.cancel(&Timer::Sync(group.id.clone()));
        }
    }

    /// Takes one member out; the caller starts the rebalance once for all. Returns its id.
    fn leave_one(
        &mut self,
        group: &mut ClassicGroup,
        member: &LeavingMember,
    ) -> Result<Arc<str>, ErrorCode> {
        let instance_id = member.instance_id.as_deref();
        let id = if member.member_id.is_empty() {
            let id = instance_id.and_then(|instance_id| group.static_member_id(instance_id));
            id.cloned().ok_or(ErrorCode::UnknownMemberId)?
        } else {
            if !group.pending_join.contains(&member.member_id) {
                group.validate_member(&member.member_id, instance_id)?;
            }
            member.member_id.clone()
        };
        let reason = member.reason.as_deref().unwrap_or("not provided");
        self.note(
            &group.id,
            format!("member {id} leaves; client reason: {reason}"),
        );
        self.remove(group, &id);
        Ok(id)
    }
}

fn validate_sync(group: &ClassicGroup, request: &SyncRequest) -> Result<(), ErrorCode> {
    group.validate_member(&request.member_id, request.instance_id.as_deref())?;
    if request.generation != group.generation {
        return Err(ErrorCode::IllegalGeneration);
    }
    let differs = |asked: &Option<Arc<str>>, held: &Option<Arc<str>>| {
        asked.is_some() && held.is_some() && asked != held
    };
    if differs(&request.protocol_type, &group.protocol_type)
        || differs(&request.protocol_name, &group.protocol)
    {
        return Err(ErrorCode::InconsistentGroupProtocol);
    }
    Ok(())
}

fn group_tombstone(group: &Arc<str>) -> GroupRecord {
    GroupRecord::Group {
        group: group.clone(),
        value: None,
    }
}

fn describe_group(group: &ClassicGroup) -> DescribedGroup {
    let protocol = group
        .protocol
        .clone()
        .filter(|_| group.state == State::Stable);
    let members = group.members().map(|member| DescribedMember {
        member_id: member.id.clone(),
        instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        metadata: match &protocol {
            Some(protocol) => member.metadata(protocol),
            None => bytes::Bytes::new(),
        },
        assignment: member.assignment.clone(),
    });
    DescribedGroup {
        state: group.state.name(),
        protocol_type: group.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
        members: members.collect(),
        protocol: protocol.unwrap_or_else(|| Arc::from("")),
    }
}
