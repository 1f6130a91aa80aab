//! JoinGroup: new members, members who come back, static members who take their old place. Pure.

use std::sync::Arc;

use super::classic::{ClassicGroup, NewMember, State};
use super::machine::Shard;
use super::messages::{JoinReply, JoinRequest, Now, Outcome, Token};
use super::rebalance::{Step, joined};
use crate::coordinator::record::GroupRecord;
use crate::types::ErrorCode;

/// How long a new member may wait in a join phase: it cannot send heartbeats before it knows its id.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1000;

impl Shard {
    pub(super) fn join(&mut self, now: Now, token: Token, request: JoinRequest, out: &mut Outcome) {
        let is_unknown = request.member_id.is_empty();
        let name = request.group.clone();
        let (mut step, groups) = self.step(now, out);
        if !groups.contains_key(&name) {
            if !is_unknown {
                let error = ErrorCode::UnknownMemberId;
                step.join_reply(token, JoinReply::failed(request.member_id, error));
                return;
            }
            groups.insert(name.clone(), ClassicGroup::new(name.clone()));
        }
        let Some(group) = groups.get_mut(&name) else {
            return;
        };
        if !accepts(group, &request.member_id, step.config.size_max) {
            step.remove(group, &request.member_id);
            let error = ErrorCode::GroupMaxSizeReached;
            step.join_reply(token, JoinReply::failed(Arc::from(""), error));
        } else if !group.supports_protocols(&request.protocol_type, &request.protocols) {
            let error = ErrorCode::InconsistentGroupProtocol;
            step.join_reply(token, JoinReply::failed(request.member_id, error));
        } else if is_unknown {
            step.join_new(group, token, request);
        } else {
            step.join_existing(group, token, request);
        }
        self.forget_untouched(&name);
    }
}

/// `acceptJoiningMember`: in a join phase those who wait are counted, so that a group that became too large
/// loses the last ones to come back.
fn accepts(group: &ClassicGroup, member_id: &str, size_max: usize) -> bool {
    let member = group.member(member_id);
    match group.state {
        State::Empty => true,
        State::PreparingRebalance => {
            member.is_some_and(|m| m.is_awaiting_join()) || group.joined_count < size_max
        }
        State::CompletingRebalance | State::Stable => {
            member.is_some() || group.member_count() < size_max
        }
    }
}

impl Step<'_> {
    fn join_new(&mut self, group: &mut ClassicGroup, token: Token, request: JoinRequest) {
        let prefix = request.instance_id.as_ref().unwrap_or(&request.client_id);
        let id: Arc<str> = Arc::from(format!("{prefix}-{}", request.fresh_id));
        let state = group.state.name();
        if let Some(instance_id) = request.instance_id.clone() {
            if let Some(before) = group.static_member_id(&instance_id).cloned() {
                self.note(
                    &group.id,
                    format!(
                        "static member {instance_id} joins in state {state}: {id} replaces {before}"
                    ),
                );
                self.replace_static(group, token, request, &before, id);
                return;
            }
        } else if request.requires_known_member_id {
            self.note(
                &group.id,
                format!("a member joins in state {state} and is to come back as {id}"),
            );
            group.pending_join.insert(id.clone());
            self.set_session(&group.id, &id, request.session_timeout_ms);
            self.join_reply(token, JoinReply::failed(id, ErrorCode::MemberIdRequired));
            return;
        }
        self.add(group, token, request, id);
    }

    fn add(&mut self, group: &mut ClassicGroup, token: Token, request: JoinRequest, id: Arc<str>) {
        let reason = format!(
            "adding member {id} with instance id {:?}; client reason: {}",
            request.instance_id,
            request.reason()
        );
        if group.state == State::PreparingRebalance && group.is_initial_rebalance {
            group.new_member_added = true;
        }
        let member = NewMember {
            id: id.clone(),
            instance_id: request.instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocol_type: request.protocol_type,
            protocols: request.protocols,
        };
        group.add(member, token);
        self.set_session(&group.id, &id, NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.rebalance_or_complete_join(group, &reason);
    }

    fn join_existing(&mut self, group: &mut ClassicGroup, token: Token, request: JoinRequest) {
        let id = request.member_id.clone();
        if group.pending_join.contains(&id) {
            if request.instance_id.is_some() {
                // A pending member is never static; Kafka runs into an IllegalStateException here.
                let error = ErrorCode::UnknownServerError;
                self.join_reply(token, JoinReply::failed(id, error));
                return;
            }
            self.add(group, token, request, id);
            return;
        }
        if let Err(error) = group.validate_member(&id, request.instance_id.as_deref()) {
            self.join_reply(token, JoinReply::failed(id, error));
            return;
        }
        let is_leader = group.is_leader(&id);
        let is_same = group
            .member(&id)
            .is_some_and(|member| member.matches(&request.protocols));
        match group.state {
            // It missed the answer, or has nothing new to say: the current generation stands.
            State::CompletingRebalance if is_same => {
                let members = if is_leader {
                    group.joined_members()
                } else {
                    Vec::new()
                };
                self.join_reply(token, joined(group, id, members));
            }
            State::Stable if is_same && !is_leader => {
                self.join_reply(token, joined(group, id, Vec::new()));
            }
            // The leader of a stable group asks for a rebalance by joining: what is to be assigned changed.
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {
                let reason = format!(
                    "member {id} joins during {}; client reason: {}",
                    group.state.name(),
                    request.reason()
                );
                self.update(group, token, request, &id);
                self.rebalance_or_complete_join(group, &reason);
            }
            State::Empty => {
                let error = ErrorCode::UnknownMemberId;
                self.join_reply(token, JoinReply::failed(id, error));
            }
        }
    }

    fn update(
        &mut self,
        group: &mut ClassicGroup,
        token: Token,
        request: JoinRequest,
        id: &Arc<str>,
    ) {
        let timeouts = (request.rebalance_timeout_ms, request.session_timeout_ms);
        let before = group.update(id, request.protocols, timeouts, token);
        if let Some(before) = before {
            // Asked twice: the newer request is the one that will hear of the generation.
            let error = ErrorCode::RebalanceInProgress;
            self.join_reply(before, JoinReply::failed(id.clone(), error));
        }
    }

    /// A static member comes back without its id: it takes its old place under a new one, and whoever still
    /// uses the old one is fenced (KIP-345).
    fn replace_static(
        &mut self,
        group: &mut ClassicGroup,
        token: Token,
        request: JoinRequest,
        before: &Arc<str>,
        id: Arc<str>,
    ) {
        let Some(instance_id) = request.instance_id.clone() else {
            return;
        };
        let leader_before = group.leader.clone();
        let supports_skip_assignment = request.supports_skip_assignment;
        let client_reason = request.reason().to_owned();
        let Some(old) = group.replace_static(&instance_id, before, id.clone()) else {
            return;
        };
        self.refuse(&old, before, ErrorCode::FencedInstanceId);
        self.cancel_session(&group.id, before);
        self.update(group, token, request, &id);
        self.touch(group, &id);
        let reason =
            format!("static member {id} ({instance_id}) joins; client reason: {client_reason}");
        match group.state {
            State::Stable => {
                let record = GroupRecord::Group {
                    group: group.id.clone(),
                    value: Some(group.to_value(None)),
                };
                let fits = self.fits(std::slice::from_ref(&record));
                if !fits || group.protocol != group.select_protocol() {
                    self.rebalance_or_complete_join(group, &reason);
                    return;
                }
                self.out.records.push(record);
                if let Some(token) = group.take_join(&id) {
                    let leader = leader_before.filter(|_| !supports_skip_assignment);
                    self.answer_replaced(group, token, id, leader);
                }
            }
            State::CompletingRebalance => self.prepare_rebalance(group, &reason),
            State::PreparingRebalance | State::Empty => self.maybe_complete_join(group),
        }
    }

    /// A new client is told when it leads, and not to assign again. An old one must not learn that it leads,
    /// or it would assign: it hears of the leader as it was.
    fn answer_replaced(
        &mut self,
        group: &ClassicGroup,
        token: Token,
        id: Arc<str>,
        leader_shown: Option<Arc<str>>,
    ) {
        let mut reply = joined(group, id.clone(), Vec::new());
        match leader_shown {
            Some(leader) => reply.leader = leader,
            None if group.is_leader(&id) => {
                reply.members = group.joined_members();
                reply.skip_assignment = true;
            }
            None => {}
        }
        self.join_reply(token, reply);
    }
}
