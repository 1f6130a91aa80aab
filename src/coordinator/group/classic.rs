//! One group of the classic protocol: Kafka's `ClassicGroup` and `ClassicGroupMember`. Pure.
//!
//! What survives a restart is exactly what [`ClassicGroup::to_value`] writes and [`ClassicGroup::install`]
//! reads; who waits for a reply, who is pending and every timer is lost with the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::messages::{JoinedMember, Protocol, Token};
use super::subscription;
use crate::coordinator::record::{GroupValue, MemberValue};
use crate::types::{ErrorCode, TimestampMs, TopicName};

/// The embedded protocol of consumers; only its subscriptions can be read here.
pub(super) const CONSUMER_PROTOCOL: &str = "consumer";

/// `ClassicGroupState`. A dead group is one that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl State {
    pub(super) const ALL: [Self; 4] = [
        Self::Empty,
        Self::PreparingRebalance,
        Self::CompletingRebalance,
        Self::Stable,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: Arc<str>,
    pub(super) instance_id: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// Waits for the join phase to end; counted in `ClassicGroup::joined_count`.
    join: Option<Token>,
    pub(super) sync: Option<Token>,
    /// Has not been part of a generation: it does not know its id, so it cannot send heartbeats.
    pub(super) is_new: bool,
}

impl Member {
    pub(super) fn is_awaiting_join(&self) -> bool {
        self.join.is_some()
    }

    /// Those who wait for this member's join phase, and for its assignment.
    pub(super) fn waiting(&self) -> (Option<Token>, Option<Token>) {
        (self.join, self.sync)
    }

    /// Whether it offers exactly these (`ClassicGroupMember.matches`).
    pub(super) fn matches(&self, protocols: &[Protocol]) -> bool {
        self.protocols == protocols
    }

    /// The metadata for the protocol called `name`; empty if it does not offer it.
    pub(super) fn metadata(&self, name: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|protocol| &*protocol.name == name)
            .map_or_else(Bytes::new, |protocol| protocol.metadata.clone())
    }

    /// Whether a session that ran out just now is excused (`hasSatisfiedHeartbeat`).
    pub(super) fn has_satisfied_heartbeat(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }
}

/// What a joining member brings.
#[derive(Debug, Clone)]
pub(super) struct NewMember {
    pub(super) id: Arc<str>,
    pub(super) instance_id: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
    pub(super) protocol_type: Arc<str>,
    pub(super) protocols: Vec<Protocol>,
}

#[derive(Debug, Clone)]
pub(super) struct ClassicGroup {
    pub(super) id: Arc<str>,
    pub(super) state: State,
    /// The join phase under way is the first since the group was empty.
    pub(super) is_initial_rebalance: bool,
    /// The delay of the initial rebalance that runs now, and what may still be added to it; milliseconds.
    pub(super) initial_delay: Option<(i32, i32)>,
    pub(super) state_timestamp: Option<TimestampMs>,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<Arc<str>>,
    pub(super) protocol: Option<Arc<str>>,
    pub(super) leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, Member>,
    /// instance id → member id
    static_members: BTreeMap<Arc<str>, Arc<str>>,
    /// Given an id, not come back with it yet (KIP-394).
    pub(super) pending_join: BTreeSet<Arc<str>>,
    pub(super) pending_sync: BTreeSet<Arc<str>>,
    /// How many members have `join` set.
    pub(super) joined_count: usize,
    /// protocol → how many members offer it
    supported: BTreeMap<Arc<str>, usize>,
    /// `None`: not known, for want of members, of the consumer protocol, or of readable metadata.
    pub(super) subscribed_topics: Option<BTreeSet<TopicName>>,
    /// Somebody joined since the initial delay was last extended.
    pub(super) new_member_added: bool,
}

impl ClassicGroup {
    pub(super) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            state: State::Empty,
            is_initial_rebalance: false,
            initial_delay: None,
            state_timestamp: None,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_join: BTreeSet::new(),
            pending_sync: BTreeSet::new(),
            joined_count: 0,
            supported: BTreeMap::new(),
            subscribed_topics: None,
            new_member_added: false,
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    pub(super) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(super) fn member_ids(&self) -> Vec<Arc<str>> {
        self.members.keys().cloned().collect()
    }

    pub(super) fn member_count(&self) -> usize {
        self.members.len()
    }

    pub(super) fn static_member_id(&self, instance_id: &str) -> Option<&Arc<str>> {
        self.static_members.get(instance_id)
    }

    pub(super) fn static_member_count(&self) -> usize {
        self.static_members.len()
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    pub(super) fn has_all_members_joined(&self) -> bool {
        self.members.len() == self.joined_count && self.pending_join.is_empty()
    }

    pub(super) fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL)
    }

    /// The longest of its members'.
    pub(super) fn rebalance_timeout_ms(&self) -> i32 {
        let timeouts = self.members.values().map(|m| m.rebalance_timeout_ms);
        timeouts.max().unwrap_or(0).max(0)
    }

    pub(super) fn transition_to(&mut self, state: State, now_ms: TimestampMs) {
        self.is_initial_rebalance =
            state == State::PreparingRebalance && self.state == State::Empty;
        self.state = state;
        self.state_timestamp = Some(now_ms);
    }

    /// Adds a member, who waits for the join phase with `token`.
    pub(super) fn add(&mut self, new: NewMember, token: Token) {
        if self.members.is_empty() {
            self.protocol_type = Some(new.protocol_type);
        }
        if let Some(instance_id) = &new.instance_id {
            self.static_members
                .insert(instance_id.clone(), new.id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(new.id.clone());
        }
        self.pending_join.remove(&new.id);
        self.insert(Member {
            id: new.id,
            instance_id: new.instance_id,
            client_id: new.client_id,
            client_host: new.client_host,
            rebalance_timeout_ms: new.rebalance_timeout_ms,
            session_timeout_ms: new.session_timeout_ms,
            protocols: new.protocols,
            assignment: Bytes::new(),
            join: Some(token),
            sync: None,
            is_new: true,
        });
    }

    /// Removes a member, or a pending one. The caller answers what the member waited for.
    pub(super) fn remove(&mut self, id: &str) -> Option<Member> {
        let removed = self.take(id);
        if let Some(instance_id) = removed.as_ref().and_then(|m| m.instance_id.as_ref()) {
            self.static_members.remove(instance_id);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_join.remove(id);
        self.pending_sync.remove(id);
        removed
    }

    /// Gives a static member a new id; the caller answers what the returned old one waited for.
    pub(super) fn replace_static(
        &mut self,
        instance_id: &Arc<str>,
        old_id: &str,
        new_id: Arc<str>,
    ) -> Option<Member> {
        let old = self.take(old_id)?;
        self.insert(Member {
            id: new_id.clone(),
            join: None,
            sync: None,
            is_new: false,
            ..old.clone()
        });
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        if self.pending_sync.remove(old_id) {
            self.pending_sync.insert(new_id.clone());
        }
        self.static_members.insert(instance_id.clone(), new_id);
        Some(old)
    }

    /// Takes over what a member's new JoinGroup says. Returns whom it had left waiting before.
    pub(super) fn update(
        &mut self,
        id: &str,
        protocols: Vec<Protocol>,
        timeouts: (i32, i32),
        token: Token,
    ) -> Option<Token> {
        let mut member = self.take(id)?;
        let before = member.join.replace(token);
        member.protocols = protocols;
        (member.rebalance_timeout_ms, member.session_timeout_ms) = timeouts;
        self.insert(member);
        before
    }

    /// The one who waits for this member's join phase, once.
    pub(super) fn take_join(&mut self, id: &str) -> Option<Token> {
        let token = self.members.get_mut(id)?.join.take()?;
        self.joined_count -= 1;
        Some(token)
    }

    fn insert(&mut self, member: Member) {
        for protocol in &member.protocols {
            *self.supported.entry(protocol.name.clone()).or_insert(0) += 1;
        }
        self.joined_count += usize::from(member.join.is_some());
        self.members.insert(member.id.clone(), member);
    }

    fn take(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        for protocol in &member.protocols {
            if let Some(count) = self.supported.get_mut(&protocol.name) {
                *count -= 1;
                if *count == 0 {
                    self.supported.remove(&protocol.name);
                }
            }
        }
        self.joined_count -= usize::from(member.join.is_some());
        Some(member)
    }

    /// Whether a member that offers these could be part of the group.
    pub(super) fn supports_protocols(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols
                .iter()
                .any(|protocol| self.is_common(&protocol.name))
    }

    fn is_common(&self, protocol: &str) -> bool {
        self.supported.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    /// The protocol that most members would choose among those that all offer; the alphabet breaks a tie.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut names = member.protocols.iter().map(|protocol| &protocol.name);
            if let Some(choice) = names.find(|name| self.is_common(name)) {
                *votes.entry(choice).or_insert(0) += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let winner = votes.into_iter().find(|(_, count)| *count == most)?;
        Some(winner.0.clone())
    }

    /// Makes sure that the leader is one who joined. False: nobody did.
    pub(super) fn elect_joined_leader(&mut self) -> bool {
        let leader = self.leader.as_deref().and_then(|id| self.members.get(id));
        match leader {
            None => return false,
            Some(leader) if leader.is_awaiting_join() => return true,
            Some(_) => {}
        }
        let joined = self.members.values().find(|m| m.is_awaiting_join());
        let Some(joined) = joined else { return false };
        self.leader = Some(joined.id.clone());
        true
    }

    /// Ends the join phase: the next generation begins, with whoever is a member now.
    pub(super) fn init_next_generation(&mut self, now_ms: TimestampMs) {
        self.generation = self.generation.wrapping_add(1);
        self.protocol = self.select_protocol();
        self.compute_subscribed_topics();
        let state = if self.members.is_empty() {
            State::Empty
        } else {
            State::CompletingRebalance
        };
        self.transition_to(state, now_ms);
        self.pending_sync.clear();
    }

    pub(super) fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let describe = |member: &Member| JoinedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol),
        };
        self.members.values().map(describe).collect()
    }

    /// FENCED_INSTANCE_ID if another member holds the instance id, UNKNOWN_MEMBER_ID if there is no such member.
    pub(super) fn validate_member(
        &self,
        id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(holder) if &**holder != id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(ErrorCode::UnknownMemberId)
        }
    }

    /// Where it is not known what a consumer group reads, it may be any topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer(),
        }
    }

    fn compute_subscribed_topics(&mut self) {
        self.subscribed_topics = self.read_subscriptions();
    }

    fn read_subscriptions(&self) -> Option<BTreeSet<TopicName>> {
        if !self.is_consumer() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut all = BTreeSet::new();
        for member in self.members.values() {
            all.extend(subscription::topics(&member.metadata(protocol))?);
        }
        Some(all)
    }

    /// What is stored of the group, with the assignments given (none: what the members have).
    pub(super) fn to_value(&self, assignments: Option<&BTreeMap<Arc<str>, Bytes>>) -> GroupValue {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let member_value = |member: &Member| MemberValue {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(protocol),
            assignment: match assignments {
                None => member.assignment.clone(),
                Some(all) => all.get(&member.id).cloned().unwrap_or_default(),
            },
        };
        GroupValue {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            current_state_timestamp: self.state_timestamp.unwrap_or(-1),
            members: self.members.values().map(member_value).collect(),
        }
    }

    /// Makes the group what a record says: the same while living, where it is already so but for the
    /// assignments and the state, and while loading. What lives on is who waits, and the protocols of a
    /// member that were not chosen.
    pub(super) fn install(&mut self, value: &GroupValue) {
        let mut before = std::mem::take(&mut self.members);
        self.supported.clear();
        self.static_members.clear();
        self.joined_count = 0;
        self.generation = value.generation;
        self.protocol_type = (!value.protocol_type.is_empty()).then(|| value.protocol_type.clone());
        self.protocol.clone_from(&value.protocol);
        self.leader.clone_from(&value.leader);
        self.state_timestamp =
            (value.current_state_timestamp != -1).then_some(value.current_state_timestamp);
        let protocol = value.protocol.clone().unwrap_or_else(|| Arc::from(""));
        for stored in &value.members {
            let live = before.remove(&stored.member_id);
            if let Some(instance_id) = &stored.instance_id {
                self.static_members
                    .insert(instance_id.clone(), stored.member_id.clone());
            }
            self.insert(installed_member(stored, &protocol, live));
        }
        self.is_initial_rebalance = false;
        self.state = if self.members.is_empty() {
            State::Empty
        } else {
            State::Stable
        };
        self.compute_subscribed_topics();
    }
}

fn installed_member(stored: &MemberValue, protocol: &Arc<str>, live: Option<Member>) -> Member {
    let chosen = Protocol {
        name: protocol.clone(),
        metadata: stored.subscription.clone(),
    };
    let (protocols, join, sync) = match live {
        Some(live) if live.protocols.contains(&chosen) => (live.protocols, live.join, live.sync),
        Some(live) => (vec![chosen], live.join, live.sync),
        None => (vec![chosen], None, None),
    };
    Member {
        id: stored.member_id.clone(),
        instance_id: stored.instance_id.clone(),
        client_id: stored.client_id.clone(),
        client_host: stored.client_host.clone(),
        rebalance_timeout_ms: stored.rebalance_timeout_ms,
        session_timeout_ms: stored.session_timeout_ms,
        protocols,
        assignment: stored.assignment.clone(),
        join,
        sync,
        is_new: false,
    }
}
