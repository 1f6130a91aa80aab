//! How members come, stay and go.

use super::*;

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
