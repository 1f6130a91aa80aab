//! Step traces with literal times, and one law: what a shard became is what its records say.

mod members;
mod offsets;
mod replay;
mod static_members;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

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
