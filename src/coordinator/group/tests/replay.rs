//! What a loaded shard is, and the law: what a shard became is what its records say.

use proptest::prelude::*;

use super::*;

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
