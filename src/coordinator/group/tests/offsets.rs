//! Offsets: who may commit, what expires, what is deleted.

use super::*;

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
