//! Step traces with literal times, and one law: what a shard became is what its records say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::coordinator::record::GroupRecord;
use crate::time::{Clock, ManualClock};
use crate::types::{ErrorCode, TopicId};

const E: fn(&Reply) -> ErrorCode = error_of;

fn error_of(reply: &Reply) -> ErrorCode {
    match reply {
        Reply::Join(reply) => reply.error,
        Reply::Sync(reply) => reply.error,
        Reply::Heartbeat(error) => *error,
        Reply::Leave(reply) => reply.members[0].1,
        Reply::CommitOffsets(reply) | Reply::DeleteOffsets(reply) => match reply {
            Ok(topics) => topics[0].1[0].1,
            Err(error) => *error,
        },
        Reply::DeleteGroups(groups) => groups[0].1,
        other => panic!("carries no error: {other:?}"),
    }
}

/// A shard with a clock, its log, and the replies that came.
struct World {
    shard: Shard,
    start: Instant,
    ms: i64,
    log: Vec<GroupRecord>,
    replies: BTreeMap<u64, Reply>,
    tokens: u64,
}

fn config() -> GroupConfig {
    GroupConfig {
        initial_rebalance_delay_ms: 0,
        size_max: 100,
        offset_metadata_max: 10,
        offsets_retention_ms: 60_000,
        offsets_retention_check_interval_ms: 10_000,
        batch_bytes_max: 100_000,
    }
}

impl World {
    fn new(config: GroupConfig) -> Self {
        Self {
            shard: Shard::new(Arc::new(config)),
            start: ManualClock::new(0).now(),
            ms: 0,
            log: Vec::new(),
            replies: BTreeMap::new(),
            tokens: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            instant: self.start + Duration::from_millis(self.ms.unsigned_abs()),
            wall_ms: self.ms,
        }
    }

    fn take_in(&mut self, outcome: Outcome) {
        for record in &outcome.records {
            self.shard.apply(record);
        }
        self.log.extend(outcome.records);
        for (token, reply) in outcome.replies {
            assert!(
                self.replies.insert(token.0, reply).is_none(),
                "{token:?} is answered twice"
            );
        }
    }

    /// Lets time pass up to `ms`, with whatever becomes due on the way.
    fn at(&mut self, ms: i64) -> &mut Self {
        let end = self.start + Duration::from_millis(ms.unsigned_abs());
        while let Some(due) = self.shard.next_due().filter(|due| *due <= end) {
            let due = (due - self.start).as_millis();
            self.ms = self.ms.max(i64::try_from(due).unwrap());
            while let Some(outcome) = self.shard.on_due(self.now()) {
                self.take_in(outcome);
            }
        }
        self.ms = ms;
        self
    }

    fn ask(&mut self, request: Request) -> u64 {
        let token = self.ask_only(request);
        let ms = self.ms;
        self.at(ms);
        token
    }

    /// Asks without doing what became due.
    fn ask_only(&mut self, request: Request) -> u64 {
        self.tokens += 1;
        let token = self.tokens;
        let outcome = self.shard.decide(self.now(), Token(token), request);
        self.take_in(outcome);
        token
    }

    fn now_answered(&mut self, request: Request) -> Reply {
        let token = self.ask(request);
        self.reply(token)
    }

    fn reply(&mut self, token: u64) -> Reply {
        self.replies.remove(&token).expect("is answered")
    }

    fn join(&mut self, token: u64) -> JoinReply {
        match self.reply(token) {
            Reply::Join(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn sync(&mut self, token: u64) -> SyncReply {
        match self.reply(token) {
            Reply::Sync(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn waits(&self, token: u64) -> bool {
        !self.replies.contains_key(&token)
    }

    fn state(&self) -> &'static str {
        self.shard.state_of("g").unwrap_or("Dead")
    }

    /// A stable group of dynamic members `a-1`, `b-1`, … in generation 1; `a-1` leads.
    fn stable(&mut self, names: &[&str]) {
        let join = |name: &&str| self.ask_only(old_join(name));
        let tokens: Vec<u64> = names.iter().map(join).collect();
        let ms = self.ms;
        self.at(ms);
        for (token, name) in tokens.into_iter().zip(names) {
            let reply = self.join(token);
            assert_eq!(
                (reply.error, reply.generation),
                (ErrorCode::None, 1),
                "{name}"
            );
        }
        self.sync_all(names, 1);
        assert_eq!(self.state(), "Stable");
    }

    fn sync_all(&mut self, names: &[&str], generation: i32) {
        let ids: Vec<String> = names.iter().map(|name| format!("{name}-1")).collect();
        let assignments = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
        let leader = self.ask(sync(&ids[0], generation, assignments));
        assert_eq!(&self.sync(leader).assignment[..], ids[0].as_bytes());
        for id in &ids[1..] {
            let token = self.ask(sync(id, generation, vec![]));
            assert_eq!(&self.sync(token).assignment[..], id.as_bytes());
        }
    }

    fn replayed(&self) -> Shard {
        let mut shard = Shard::new(Arc::new(config()));
        for record in &self.log {
            let value = record.encode_value();
            let read = GroupRecord::decode(&record.encode_key(), value.as_deref());
            shard.apply(&read.unwrap().unwrap());
        }
        shard
    }
}

fn world() -> World {
    World::new(config())
}

fn subscription(topic: &str) -> Bytes {
    let mut bytes = b"\0\x01\0\0\0\x01\0".to_vec();
    bytes.push(u8::try_from(topic.len()).unwrap());
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(b"\xff\xff\xff\xff\0\0\0\0");
    Bytes::from(bytes)
}

fn protocols(names: &[&str]) -> Vec<Protocol> {
    let protocol = |name: &&str| Protocol {
        name: Arc::from(*name),
        metadata: subscription("t"),
    };
    names.iter().map(protocol).collect()
}

fn join_request(client: &str, member_id: &str) -> JoinRequest {
    JoinRequest {
        group: "g".into(),
        member_id: member_id.into(),
        instance_id: None,
        client_id: client.into(),
        client_host: "/h".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: protocols(&["range"]),
        reason: None,
        requires_known_member_id: true,
        supports_skip_assignment: true,
        fresh_id: "1".into(),
    }
}

/// A JoinGroup below v4: the member is added at once.
fn old_join(client: &str) -> Request {
    Request::Join(JoinRequest {
        requires_known_member_id: false,
        ..join_request(client, "")
    })
}

fn rejoin(id: &str) -> Request {
    Request::Join(join_request(id, id))
}

fn static_join(instance: &str, fresh: &str) -> JoinRequest {
    JoinRequest {
        instance_id: Some(instance.into()),
        fresh_id: fresh.into(),
        ..join_request("c", "")
    }
}

fn sync(id: &str, generation: i32, assignments: Vec<(&str, &str)>) -> Request {
    let assignments = assignments.into_iter();
    Request::Sync(SyncRequest {
        group: "g".into(),
        generation,
        member_id: id.into(),
        instance_id: None,
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assignments
            .map(|(id, bytes)| (id.into(), Bytes::copy_from_slice(bytes.as_bytes())))
            .collect(),
    })
}

fn heartbeat(id: &str, generation: i32) -> Request {
    Request::Heartbeat(HeartbeatRequest {
        group: "g".into(),
        generation,
        member_id: id.into(),
        instance_id: None,
    })
}

fn leave(id: &str, instance_id: Option<&str>) -> Request {
    Request::Leave(LeaveRequest {
        group: "g".into(),
        members: vec![LeavingMember {
            member_id: id.into(),
            instance_id: instance_id.map(Into::into),
            reason: None,
        }],
    })
}

fn commit(id: &str, generation: i32, topic: &str, offset: i64) -> CommitRequest {
    CommitRequest {
        group: "g".into(),
        generation,
        member_id: id.into(),
        instance_id: None,
        retention_ms: None,
        missing_group_error: ErrorCode::IllegalGeneration,
        topics: vec![CommitTopic {
            name: topic.into(),
            id: TopicId::ZERO,
            partitions: vec![CommitPartition {
                partition: 0,
                offset,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        }],
    }
}

fn fetched(world: &mut World, topic: &str) -> Option<i64> {
    let reply = world.now_answered(Request::FetchOffsets(FetchRequest {
        group: "g".into(),
        topics: Some(vec![FetchTopic {
            name: topic.into(),
            id: TopicId::ZERO,
            partitions: vec![0],
        }]),
    }));
    match reply {
        Reply::FetchOffsets(topics) => topics[0].1[0].1.as_ref().map(|value| value.offset),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_is_given_an_id_and_comes_back_with_it() {
    let mut world = world();
    let first = world.now_answered(Request::Join(join_request("c", "")));
    let Reply::Join(first) = first else { panic!() };
    assert_eq!(
        (first.error, &*first.member_id),
        (ErrorCode::MemberIdRequired, "c-1")
    );
    assert_eq!(world.state(), "Empty");
    assert!(world.log.is_empty(), "a pending member is not stored");
    let token = world.ask(rejoin("c-1"));
    world.at(1);
    let reply = world.join(token);
    assert_eq!((reply.error, reply.generation), (ErrorCode::None, 1));
    assert_eq!((&*reply.leader, reply.members.len()), ("c-1", 1));
    assert_eq!(world.state(), "CompletingRebalance");
    let token = world.ask(sync("c-1", 1, vec![("c-1", "mine")]));
    assert_eq!(&world.sync(token).assignment[..], b"mine");
    assert_eq!(world.state(), "Stable");
    assert_eq!(world.log.len(), 1);
}

#[test]
fn a_pending_member_is_forgotten_after_its_session() {
    let mut world = world();
    world.ask(Request::Join(join_request("c", "")));
    world.at(10_001);
    let reply = world.now_answered(rejoin("c-1"));
    assert_eq!(E(&reply), ErrorCode::UnknownMemberId);
}

#[test]
fn the_initial_delay_gathers_members_and_grows_with_them() {
    let mut world = World::new(GroupConfig {
        initial_rebalance_delay_ms: 3_000,
        ..config()
    });
    let first = world.ask(old_join("a"));
    let second = world.at(2_000).ask(old_join("b"));
    world.at(5_999);
    assert!(world.waits(first), "the delay was extended to 6 s");
    world.at(6_000);
    let (first, second) = (world.join(first), world.join(second));
    assert_eq!((first.generation, first.members.len()), (1, 2));
    assert_eq!((second.generation, second.members.len()), (1, 0));
    assert_eq!(&*second.leader, "a-1");
}

#[test]
fn the_join_barrier_waits_for_everybody_until_the_rebalance_timeout() {
    let mut world = world();
    world.stable(&["a"]);
    let token = world.at(1_000).ask(old_join("b"));
    assert_eq!(world.state(), "PreparingRebalance");
    assert!(world.waits(token));
    assert_eq!(
        E(&world.now_answered(heartbeat("a-1", 1))),
        ErrorCode::RebalanceInProgress
    );
    // The heartbeats go on, the member does not join: at 31 s it is out.
    for ms in (5_000..=30_000).step_by(5_000) {
        world.at(ms).ask(heartbeat("a-1", 1));
    }
    assert!(world.waits(token));
    world.at(31_000);
    let reply = world.join(token);
    assert_eq!(
        (reply.generation, &*reply.leader, reply.members.len()),
        (2, "b-1", 1)
    );
    assert_eq!(
        E(&world.now_answered(heartbeat("a-1", 1))),
        ErrorCode::UnknownMemberId
    );
}

#[test]
fn a_cooperative_rejoin_completes_as_soon_as_all_are_there() {
    let mut world = world();
    world.stable(&["a", "b"]);
    // b revoked partitions and asks for a rebalance by joining with other metadata.
    let mut request = join_request("b-1", "b-1");
    request.protocols[0].metadata = subscription("u");
    let b = world.at(100).ask(Request::Join(request));
    let a = world.at(200).ask(rejoin("a-1"));
    let (a, b) = (world.join(a), world.join(b));
    assert_eq!((a.generation, a.members.len()), (2, 2));
    assert_eq!((b.generation, b.members.len()), (2, 0));
    // A follower that asks for its assignment before the leader gave it waits for it.
    let b = world.ask(sync("b-1", 2, vec![]));
    assert!(world.waits(b));
    let a = world.ask(sync("a-1", 2, vec![("b-1", "all")]));
    assert_eq!(&world.sync(a).assignment[..], b"");
    assert_eq!(&world.sync(b).assignment[..], b"all");
    // Unchanged followers learn the generation, a joining leader starts a rebalance.
    let Reply::Join(reply) = world.now_answered(Request::Join({
        let mut request = join_request("b-1", "b-1");
        request.protocols[0].metadata = subscription("u");
        request
    })) else {
        panic!()
    };
    assert_eq!((reply.error, reply.generation), (ErrorCode::None, 2));
    world.ask(rejoin("a-1"));
    assert_eq!(world.state(), "PreparingRebalance");
}

#[test]
fn a_session_that_runs_out_costs_the_membership() {
    let mut world = world();
    world.stable(&["a", "b"]);
    world.at(9_000).ask(heartbeat("a-1", 1));
    world.at(10_000);
    assert_eq!(world.state(), "PreparingRebalance", "b is gone");
    let token = world.ask(rejoin("a-1"));
    let reply = world.join(token);
    assert_eq!((reply.generation, reply.members.len()), (2, 1));
    // The last one goes too: the group is empty, and that is stored.
    world.at(20_001);
    assert_eq!(world.state(), "Empty");
    let Some(GroupRecord::Group {
        value: Some(value), ..
    }) = world.log.last()
    else {
        panic!()
    };
    assert_eq!((value.generation, value.members.len()), (3, 0));
}

#[test]
fn members_who_never_sync_are_removed_after_the_rebalance_timeout() {
    let mut world = world();
    let a = world.ask(Request::Join(JoinRequest {
        session_timeout_ms: 60_000,
        ..join_request("a", "")
    }));
    let Reply::Join(pending) = world.reply(a) else {
        panic!()
    };
    let a = world.ask(Request::Join(JoinRequest {
        session_timeout_ms: 60_000,
        ..join_request("a", &pending.member_id)
    }));
    world.at(1);
    assert_eq!(world.join(a).generation, 1);
    world.at(30_001);
    assert_eq!(world.state(), "Empty");
    let reply = world.now_answered(sync("a-1", 1, vec![]));
    assert_eq!(E(&reply), ErrorCode::UnknownMemberId);
}

#[test]
fn leaving_starts_a_rebalance_and_the_last_one_empties_the_group() {
    let mut world = world();
    world.stable(&["a", "b"]);
    assert_eq!(
        E(&world.now_answered(leave("x", None))),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(E(&world.now_answered(leave("b-1", None))), ErrorCode::None);
    assert_eq!(world.state(), "PreparingRebalance");
    assert_eq!(E(&world.now_answered(leave("a-1", None))), ErrorCode::None);
    assert_eq!(world.state(), "Empty");
    assert_eq!(
        E(&world.now_answered(leave("a-1", None))),
        ErrorCode::UnknownMemberId
    );
}

#[test]
fn a_member_that_leaves_while_it_waits_is_answered() {
    let mut world = world();
    world.stable(&["a"]);
    let b = world.ask(old_join("b"));
    assert!(world.waits(b));
    world.ask(leave("b-1", None));
    assert_eq!(world.join(b).error, ErrorCode::UnknownMemberId);
}

fn stable_static(world: &mut World) {
    let s = world.ask(Request::Join(static_join("i", "1")));
    world.at(1);
    assert_eq!(&*world.join(s).member_id, "i-1");
    let s = world.ask(sync("i-1", 1, vec![("i-1", "mine")]));
    world.sync(s);
}

#[test]
fn a_static_member_takes_its_place_again_without_a_rebalance() {
    let mut world = world();
    stable_static(&mut world);
    let Reply::Join(reply) = world.now_answered(Request::Join(static_join("i", "2"))) else {
        panic!()
    };
    assert_eq!((reply.error, reply.generation), (ErrorCode::None, 1));
    assert_eq!((&*reply.member_id, &*reply.leader), ("i-2", "i-2"));
    assert!(reply.skip_assignment && reply.members.len() == 1);
    assert_eq!(world.state(), "Stable");
    let token = world.ask(sync("i-2", 1, vec![]));
    assert_eq!(&world.sync(token).assignment[..], b"mine");
    // The one it replaced is fenced where it names its instance, unknown where it does not.
    let fenced = Request::Heartbeat(HeartbeatRequest {
        group: "g".into(),
        generation: 1,
        member_id: "i-1".into(),
        instance_id: Some("i".into()),
    });
    assert_eq!(E(&world.now_answered(fenced)), ErrorCode::FencedInstanceId);
    assert_eq!(
        E(&world.now_answered(heartbeat("i-1", 1))),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(world.replayed().durable(), world.shard.durable());
}

#[test]
fn an_old_client_that_leads_as_a_static_member_does_not_learn_it() {
    let mut world = world();
    stable_static(&mut world);
    let Reply::Join(reply) = world.now_answered(Request::Join(JoinRequest {
        supports_skip_assignment: false,
        ..static_join("i", "2")
    })) else {
        panic!()
    };
    assert_eq!((&*reply.member_id, &*reply.leader), ("i-2", "i-1"));
    assert!(reply.members.is_empty() && !reply.skip_assignment);
}

#[test]
fn a_static_member_is_removed_by_its_instance_id() {
    let mut world = world();
    stable_static(&mut world);
    assert_eq!(
        E(&world.now_answered(leave("", Some("x")))),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(
        E(&world.now_answered(leave("", Some("i")))),
        ErrorCode::None
    );
    assert_eq!(world.state(), "Empty");
}

#[test]
fn a_static_member_that_stays_away_keeps_its_place_in_a_rebalance() {
    let mut world = world();
    stable_static(&mut world);
    // A session of 60 s outlives the rebalance of 30 s.
    let Reply::Join(_) = world.now_answered(Request::Join(JoinRequest {
        session_timeout_ms: 60_000,
        ..static_join("i", "2")
    })) else {
        panic!()
    };
    world.ask(heartbeat("i-2", 1));
    let b = world.at(1_000).ask(old_join("b"));
    world.at(31_000);
    let reply = world.join(b);
    assert_eq!((&*reply.leader, reply.members.len()), ("b-1", 2));
}

#[test]
fn what_does_not_fit_the_group_is_refused() {
    let mut world = World::new(GroupConfig {
        size_max: 1,
        ..config()
    });
    let nothing = Request::Join(JoinRequest {
        protocols: vec![],
        ..join_request("c", "")
    });
    assert_eq!(
        E(&world.now_answered(nothing)),
        ErrorCode::InconsistentGroupProtocol
    );
    assert_eq!(world.state(), "Dead", "leaves no group behind");
    assert_eq!(
        E(&world.now_answered(rejoin("x"))),
        ErrorCode::UnknownMemberId
    );
    world.stable(&["a"]);
    assert_eq!(
        E(&world.now_answered(old_join("b"))),
        ErrorCode::GroupMaxSizeReached
    );
    let other = |change: fn(&mut JoinRequest)| {
        let mut request = join_request("a-1", "a-1");
        change(&mut request);
        Request::Join(request)
    };
    let reply = world.now_answered(other(|r| r.protocols = protocols(&["other"])));
    assert_eq!(E(&reply), ErrorCode::InconsistentGroupProtocol);
    let reply = world.now_answered(other(|r| r.protocol_type = "connect".into()));
    assert_eq!(E(&reply), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(
        E(&world.now_answered(sync("a-1", 9, vec![]))),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(
        E(&world.now_answered(heartbeat("a-1", 0))),
        ErrorCode::IllegalGeneration
    );
    let mut request = sync("a-1", 1, vec![]);
    if let Request::Sync(sync) = &mut request {
        sync.protocol_name = Some("other".into());
    }
    assert_eq!(
        E(&world.now_answered(request)),
        ErrorCode::InconsistentGroupProtocol
    );
}

#[test]
fn members_vote_for_the_protocol_that_all_have() {
    let mut world = World::new(GroupConfig {
        initial_rebalance_delay_ms: 10,
        ..config()
    });
    let vote = |client: &str, names: &[&str]| {
        Request::Join(JoinRequest {
            requires_known_member_id: false,
            protocols: protocols(names),
            ..join_request(client, "")
        })
    };
    let a = world.ask(vote("a", &["x", "y", "z"]));
    world.ask(vote("b", &["w", "z", "y"]));
    world.ask(vote("c", &["z", "y"]));
    world.at(30);
    assert_eq!(world.join(a).protocol_name.as_deref(), Some("z"));
}

#[test]
fn an_assignment_too_large_to_store_fails_the_sync_and_not_the_shard() {
    let mut world = world();
    let a = world.ask(old_join("a"));
    world.at(1);
    world.join(a);
    let huge = "x".repeat(100_001);
    let token = world.ask(sync("a-1", 1, vec![("a-1", &huge)]));
    assert_eq!(world.sync(token).error, ErrorCode::UnknownServerError);
    assert_eq!(world.state(), "PreparingRebalance");
    assert!(world.log.is_empty());
}

#[test]
fn offsets_are_committed_by_members_and_by_those_without_a_group() {
    let mut world = world();
    let ask = |world: &mut World, id: &str, generation| {
        E(&world.now_answered(Request::CommitOffsets(commit(id, generation, "t", 7))))
    };
    assert_eq!(ask(&mut world, "", 0), ErrorCode::IllegalGeneration);
    assert_eq!(fetched(&mut world, "t"), None);
    assert_eq!(ask(&mut world, "", -1), ErrorCode::None);
    assert_eq!(world.state(), "Empty", "a simple group");
    assert_eq!(fetched(&mut world, "t"), Some(7));
    world.stable(&["a"]);
    assert_eq!(fetched(&mut world, "t"), Some(7));
    assert_eq!(ask(&mut world, "", -1), ErrorCode::UnknownMemberId);
    assert_eq!(ask(&mut world, "x", 1), ErrorCode::UnknownMemberId);
    assert_eq!(ask(&mut world, "a-1", 2), ErrorCode::IllegalGeneration);
    assert_eq!(ask(&mut world, "a-1", 1), ErrorCode::None);
    let mut long = commit("a-1", 1, "t", 8);
    long.topics[0].partitions[0].metadata = "more than ten".into();
    let reply = world.now_answered(Request::CommitOffsets(long));
    assert_eq!(E(&reply), ErrorCode::OffsetMetadataTooLarge);
    assert_eq!(fetched(&mut world, "t"), Some(7));
    // Nobody commits between a generation and its assignments.
    world.ask(rejoin("a-1"));
    assert_eq!(ask(&mut world, "a-1", 2), ErrorCode::RebalanceInProgress);
}

#[test]
fn offsets_expire_after_the_group_is_empty_and_then_the_group() {
    let mut world = world();
    world.stable(&["a"]);
    world.ask(Request::CommitOffsets(commit("a-1", 1, "t", 7)));
    world.ask(Request::CommitOffsets(commit("a-1", 1, "other", 7)));
    for ms in (5_000..=75_000).step_by(5_000) {
        world.at(ms).ask(heartbeat("a-1", 1));
    }
    assert_eq!(fetched(&mut world, "t"), Some(7), "subscribed");
    assert_eq!(fetched(&mut world, "other"), None, "no longer subscribed");
    world.ask(leave("a-1", None));
    world.at(134_000);
    assert_eq!(fetched(&mut world, "t"), Some(7));
    world.at(145_000);
    assert_eq!(fetched(&mut world, "t"), None);
    assert_eq!(world.state(), "Dead");
    assert!(world.shard.is_empty());
    world.at(200_000);
    assert_eq!(
        world.shard.next_due(),
        None,
        "an idle shard does not wake up"
    );
}

#[test]
fn a_retention_that_a_client_asks_for_wins() {
    let mut world = world();
    let mut request = commit("", -1, "t", 7);
    request.retention_ms = Some(5_000);
    world.ask(Request::CommitOffsets(request));
    world.at(10_000);
    assert_eq!(fetched(&mut world, "t"), None);
}

#[test]
fn offsets_and_groups_are_deleted_where_nobody_uses_them() {
    let mut world = world();
    let delete = |topic: &str| {
        Request::DeleteOffsets(DeleteOffsetsRequest {
            group: "g".into(),
            topics: vec![(topic.into(), vec![0])],
        })
    };
    let delete_group = Request::DeleteGroups(vec!["g".into()]);
    assert_eq!(
        E(&world.now_answered(delete("t"))),
        ErrorCode::GroupIdNotFound
    );
    assert_eq!(
        E(&world.now_answered(delete_group.clone())),
        ErrorCode::GroupIdNotFound
    );
    world.stable(&["a"]);
    world.ask(Request::CommitOffsets(commit("a-1", 1, "t", 7)));
    world.ask(Request::CommitOffsets(commit("a-1", 1, "u", 7)));
    assert_eq!(
        E(&world.now_answered(delete("t"))),
        ErrorCode::GroupSubscribedToTopic
    );
    assert_eq!(E(&world.now_answered(delete("u"))), ErrorCode::None);
    assert_eq!(fetched(&mut world, "u"), None);
    assert_eq!(
        E(&world.now_answered(delete_group.clone())),
        ErrorCode::NonEmptyGroup
    );
    world.ask(leave("a-1", None));
    assert_eq!(E(&world.now_answered(delete_group)), ErrorCode::None);
    assert!(world.shard.is_empty());
    assert!(world.replayed().is_empty());
    world.ask(Request::CommitOffsets(commit("", -1, "t", 7)));
    world.ask(Request::TopicsDeleted(vec!["t".into()]));
    assert_eq!(fetched(&mut world, "t"), None);
}

#[test]
fn an_offset_of_an_earlier_topic_of_the_same_name_is_none() {
    let mut world = world();
    let mut request = commit("", -1, "t", 7);
    request.topics[0].id = TopicId([1; 16]);
    world.ask(Request::CommitOffsets(request));
    let mut fetch = |id| {
        let reply = world.now_answered(Request::FetchOffsets(FetchRequest {
            group: "g".into(),
            topics: Some(vec![FetchTopic {
                name: "t".into(),
                id: TopicId([id; 16]),
                partitions: vec![0],
            }]),
        }));
        let Reply::FetchOffsets(topics) = reply else {
            panic!()
        };
        topics[0].1[0].1.is_some()
    };
    assert!(fetch(1));
    assert!(!fetch(2));
}

#[test]
fn a_loaded_group_is_stable_and_its_sessions_run() {
    let mut world = world();
    world.stable(&["a", "b"]);
    world.shard = world.replayed();
    let outcome = world.shard.loaded(world.now());
    world.take_in(outcome);
    assert_eq!(E(&world.now_answered(heartbeat("a-1", 1))), ErrorCode::None);
    world.at(10_001);
    assert_eq!(world.state(), "Empty");
}

#[derive(Debug, Clone)]
enum Act {
    Wait(i64),
    Join {
        who: u8,
        known: bool,
        is_static: bool,
        topic: bool,
    },
    Sync {
        who: u8,
    },
    Heartbeat {
        who: u8,
    },
    Leave {
        who: u8,
    },
    Commit {
        who: u8,
    },
    Delete,
}

fn any_act() -> impl Strategy<Value = Act> {
    let who = 0u8..4;
    prop_oneof![
        2 => (1i64..20_000).prop_map(Act::Wait),
        6 => (who.clone(), any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(who, known, is_static, topic)| Act::Join { who, known, is_static, topic }),
        6 => who.clone().prop_map(|who| Act::Sync { who }),
        2 => who.clone().prop_map(|who| Act::Heartbeat { who }),
        1 => who.clone().prop_map(|who| Act::Leave { who }),
        2 => who.prop_map(|who| Act::Commit { who }),
        1 => Just(Act::Delete),
    ]
}

/// Clients that believe what they were last told.
#[derive(Default)]
struct Clients {
    ids: BTreeMap<u8, (Arc<str>, i32)>,
    joins: BTreeMap<u64, u8>,
}

impl Clients {
    fn listen(&mut self, world: &mut World) {
        let joins = &mut self.joins;
        let ids = &mut self.ids;
        world.replies.retain(|token, reply| {
            if let (Reply::Join(reply), Some(who)) = (reply, joins.remove(token)) {
                ids.insert(who, (reply.member_id.clone(), reply.generation));
            }
            false
        });
    }

    fn act(&mut self, world: &mut World, act: Act) {
        let known = |who: &u8| self.ids.get(who).cloned().unwrap_or(("".into(), -1));
        match act {
            Act::Wait(ms) => {
                let ms = world.ms + ms;
                world.at(ms);
            }
            Act::Join {
                who,
                known: is_known,
                is_static,
                topic,
            } => {
                let id = if is_known { known(&who).0 } else { "".into() };
                let mut request = JoinRequest {
                    instance_id: is_static.then(|| Arc::from(format!("i{who}"))),
                    fresh_id: world.tokens.to_string(),
                    member_id: id,
                    ..join_request(&format!("c{who}"), "")
                };
                request.protocols = protocols(if topic {
                    &["range", "sticky"]
                } else {
                    &["sticky"]
                });
                let token = world.ask(Request::Join(request));
                self.joins.insert(token, who);
            }
            Act::Sync { who } => {
                let (id, generation) = known(&who);
                let assignments = vec![(&*id, "x")];
                let mut request = sync(&id, generation, assignments);
                if let Request::Sync(request) = &mut request {
                    request.protocol_name = None;
                }
                world.ask(request);
            }
            Act::Heartbeat { who } => {
                let (id, generation) = known(&who);
                world.ask(heartbeat(&id, generation));
            }
            Act::Leave { who } => {
                world.ask(leave(&known(&who).0, None));
            }
            Act::Commit { who } => {
                let (id, generation) = known(&who);
                world.ask(Request::CommitOffsets(commit(&id, generation, "t", 1)));
            }
            Act::Delete => {
                world.ask(Request::DeleteGroups(vec!["g".into()]));
            }
        }
        self.listen(world);
    }
}

proptest! {
    #[test]
    fn what_a_shard_became_is_what_its_records_say(
        acts in proptest::collection::vec(any_act(), 1..60),
    ) {
        let mut world = world();
        let mut clients = Clients::default();
        for act in acts {
            clients.act(&mut world, act);
            let (replayed, live) = (world.replayed(), &world.shard);
            let ((groups, offsets), (live_groups, live_offsets)) = (replayed.durable(), live.durable());
            prop_assert_eq!(offsets, live_offsets);
            // Between generations the log still holds the last one; a group that only has pending
            // members is not stored.
            let is_settled = match live.state_of("g") {
                Some("Stable") => true,
                Some("Empty") => world.log.iter().any(|r| matches!(r, GroupRecord::Group { .. })),
                _ => false,
            };
            if is_settled && !groups.is_empty() {
                prop_assert_eq!(groups, live_groups);
            }
        }
        // Everybody falls silent: sessions end, nobody is left waiting, in the end nothing remains.
        let end = world.ms + 2_000_000;
        world.at(end);
        clients.listen(&mut world);
        prop_assert!(clients.joins.is_empty(), "never answered: {:?}", clients.joins);
        prop_assert!(world.shard.is_empty());
        prop_assert!(world.replayed().is_empty());
        prop_assert_eq!(world.shard.next_due(), None);
    }
}
