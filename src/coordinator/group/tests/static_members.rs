//! Members that keep their place over a restart of their process (KIP-345).

use super::*;

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
