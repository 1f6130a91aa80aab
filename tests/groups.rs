//! Groups over real sockets with literal bytes: membership, offsets, restarts.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::time::{Duration, Instant};

use support::{Answer, Client, Ottla, ask, create_topic, frame, hex, string};

fn nullable(text: Option<&str>) -> Vec<u8> {
    text.map_or_else(|| hex("ffff"), string)
}

/// FindCoordinator v1, until there is one.
fn find_coordinator(client: &mut Client, group: &str) {
    let deadline = Instant::now() + support::PATIENCE;
    loop {
        let mut answer = ask(client, 10, 1, &[string(group), hex("00")].concat());
        answer.i32();
        let error = answer.i16();
        if error == 0 {
            assert_eq!(answer.string(), "NONE");
            assert_eq!(answer.i32(), 1);
            assert_eq!(answer.string(), "127.0.0.1");
            return;
        }
        assert_eq!(error, 15, "COORDINATOR_NOT_AVAILABLE at most");
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One topic `t`, version 0 of the consumer's subscription.
const SUBSCRIPTION: &str = "0000 00000001 0001 74 ffffffff";

fn join_body(group: &str, member: &str, instance: Option<&str>, session_ms: i32) -> Vec<u8> {
    let metadata = hex(SUBSCRIPTION);
    [
        string(group),
        session_ms.to_be_bytes().to_vec(),
        hex("00007530"),
        string(member),
        nullable(instance),
        string("consumer"),
        hex("00000001"),
        string("range"),
        i32::try_from(metadata.len())
            .unwrap()
            .to_be_bytes()
            .to_vec(),
        metadata,
    ]
    .concat()
}

#[derive(Debug, PartialEq)]
struct Joined {
    error: i16,
    generation: i32,
    leader: String,
    member: String,
    members: Vec<String>,
}

fn joined(mut answer: Answer) -> Joined {
    answer.i32();
    let error = answer.i16();
    let generation = answer.i32();
    answer.string();
    let leader = answer.string();
    let member = answer.string();
    let count = answer.i32();
    let members = (0..count).map(|_| {
        let id = answer.string();
        answer.string();
        assert_eq!(answer.bytes(), hex(SUBSCRIPTION));
        id
    });
    let members = members.collect();
    answer.end();
    Joined {
        error,
        generation,
        leader,
        member,
        members,
    }
}

/// JoinGroup v5.
fn join(client: &mut Client, group: &str, member: &str, instance: Option<&str>) -> Joined {
    let body = join_body(group, member, instance, 10_000);
    joined(ask(client, 11, 5, &body))
}

/// SyncGroup v3: (error, assignment).
fn sync(
    client: &mut Client,
    group: &str,
    (generation, member): (i32, &str),
    assignments: &[(&str, &[u8])],
) -> (i16, Vec<u8>) {
    let mut body = [
        string(group),
        generation.to_be_bytes().to_vec(),
        string(member),
        hex("ffff"),
        u32::try_from(assignments.len())
            .unwrap()
            .to_be_bytes()
            .to_vec(),
    ]
    .concat();
    for (member, assignment) in assignments {
        body.extend(string(member));
        body.extend(u32::try_from(assignment.len()).unwrap().to_be_bytes());
        body.extend(*assignment);
    }
    let mut answer = ask(client, 14, 3, &body);
    answer.i32();
    let answered = (answer.i16(), answer.bytes());
    answer.end();
    answered
}

/// Heartbeat v3.
fn heartbeat(client: &mut Client, group: &str, generation: i32, member: &str) -> i16 {
    let body = [
        string(group),
        generation.to_be_bytes().to_vec(),
        string(member),
        hex("ffff"),
    ];
    let mut answer = ask(client, 12, 3, &body.concat());
    answer.i32();
    answer.i16()
}

fn commit_body(group: &str, generation: i32, member: &str, offset: i64) -> Vec<u8> {
    [
        string(group),
        generation.to_be_bytes().to_vec(),
        string(member),
        hex("ffff 00000001"),
        string("t"),
        hex("00000001 00000000"),
        offset.to_be_bytes().to_vec(),
        hex("00000007"),
        string("meta"),
    ]
    .concat()
}

/// OffsetCommit v7 of `t-0`.
fn commit(client: &mut Client, group: &str, generation: i32, member: &str, offset: i64) -> i16 {
    let body = commit_body(group, generation, member, offset);
    committed(ask(client, 8, 7, &body))
}

fn committed(mut answer: Answer) -> i16 {
    answer.i32();
    assert_eq!(answer.i32(), 1);
    answer.string();
    assert_eq!((answer.i32(), answer.i32()), (1, 0));
    let error = answer.i16();
    answer.end();
    error
}

/// OffsetFetch v5 of `t-0`: (error, offset, leader epoch, metadata).
fn fetch_offset(client: &mut Client, group: &str) -> (i16, i64, i32, String) {
    let body = [
        string(group),
        hex("00000001"),
        string("t"),
        hex("00000001 00000000"),
    ];
    let mut answer = ask(client, 9, 5, &body.concat());
    answer.i32();
    if answer.i32() == 0 {
        return (answer.i16(), -1, -1, String::new());
    }
    answer.string();
    assert_eq!((answer.i32(), answer.i32()), (1, 0));
    let found = (answer.i64(), answer.i32(), answer.string());
    let (partition_error, error) = (answer.i16(), answer.i16());
    answer.end();
    assert_eq!(partition_error, 0);
    (error, found.0, found.1, found.2)
}

/// The same, until the coordinator has loaded: never an offset that is not the committed one.
fn fetch_offset_when_loaded(client: &mut Client, group: &str) -> (i16, i64, i32, String) {
    let deadline = Instant::now() + support::PATIENCE;
    loop {
        let answer = fetch_offset(client, group);
        if !matches!(answer.0, 14 | 16) {
            return answer;
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// ListGroups v0: names, sorted.
fn list(client: &mut Client) -> Vec<String> {
    let mut answer = ask(client, 16, 0, b"");
    assert_eq!(answer.i16(), 0);
    let count = answer.i32();
    let mut groups: Vec<String> = (0..count)
        .map(|_| {
            let name = answer.string();
            answer.string();
            name
        })
        .collect();
    answer.end();
    groups.sort();
    groups
}

/// DescribeGroups v4 of one group: (error, state, member ids).
fn describe(client: &mut Client, group: &str) -> (i16, String, Vec<String>) {
    let body = [hex("00000001"), string(group), hex("00")].concat();
    let mut answer = ask(client, 15, 4, &body);
    answer.i32();
    assert_eq!(answer.i32(), 1);
    let error = answer.i16();
    assert_eq!(answer.string(), group);
    let state = answer.string();
    answer.string();
    answer.string();
    let count = answer.i32();
    let members = (0..count).map(|_| {
        let id = answer.string();
        answer.string();
        assert_eq!(answer.string(), "t", "client id");
        assert_eq!(answer.string(), "/127.0.0.1");
        answer.bytes();
        answer.bytes();
        id
    });
    let members = members.collect();
    assert_eq!(answer.i32(), i32::MIN, "operations were not asked for");
    answer.end();
    (error, state, members)
}

fn started() -> (Ottla, Client) {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    find_coordinator(&mut client, "g");
    (broker, client)
}

/// A member of its own generation 1, by the way of MEMBER_ID_REQUIRED.
fn only_member(client: &mut Client, group: &str) -> String {
    let first = join(client, group, "", None);
    assert_eq!((first.error, first.generation), (79, -1));
    let again = join(client, group, &first.member, None);
    assert_eq!((again.error, again.generation), (0, 1));
    assert_eq!(again.members, std::slice::from_ref(&first.member));
    let assigned = sync(
        client,
        group,
        (1, &first.member),
        &[(&first.member, b"mine")],
    );
    assert_eq!(assigned, (0, b"mine".to_vec()));
    first.member
}

#[test]
fn two_members_share_a_group_and_one_leaves() {
    let (broker, mut a) = started();
    let first = only_member(&mut a, "g");
    assert_eq!(
        describe(&mut a, "g"),
        (0, "Stable".to_owned(), vec![first.clone()])
    );
    let mut b = broker.connect();
    let second = join(&mut b, "g", "", None).member;
    // b waits for a: requests behind a parked join on the same connection do not overtake it.
    b.send_raw(&frame(11, 5, &join_body("g", &second, None, 10_000), false));
    assert!(b.is_silent(Duration::from_millis(100)));
    assert_eq!(heartbeat(&mut a, "g", 1, &first), 27);
    let rejoined = join(&mut a, "g", &first, None);
    assert_eq!((rejoined.error, rejoined.generation), (0, 2));
    assert_eq!(rejoined.members.len(), 2);
    let follower = joined(Answer::of(b.receive().unwrap()[4..].to_vec()));
    assert_eq!((follower.generation, &follower.leader), (2, &first));
    assert!(follower.members.is_empty());
    assert_eq!(
        commit(&mut a, "g", 2, &first, 1),
        27,
        "nobody commits before the assignment"
    );
    let assignments: [(&str, &[u8]); 2] = [(&first, b"a"), (&second, b"b")];
    assert_eq!(
        sync(&mut a, "g", (2, &first), &assignments),
        (0, b"a".to_vec())
    );
    assert_eq!(sync(&mut b, "g", (2, &second), &[]), (0, b"b".to_vec()));
    assert_eq!(heartbeat(&mut b, "g", 2, &second), 0);
    assert_eq!(heartbeat(&mut b, "g", 1, &second), 22);
    assert_eq!(heartbeat(&mut b, "g", 2, "stranger"), 25);
    // LeaveGroup v3 of b and a stranger.
    let body = [
        string("g"),
        hex("00000002"),
        string(&second),
        hex("ffff"),
        string("stranger"),
        hex("ffff"),
    ];
    let mut answer = ask(&mut b, 13, 3, &body.concat());
    answer.i32();
    assert_eq!((answer.i16(), answer.i32()), (0, 2));
    for (id, error) in [(second.as_str(), 0), ("stranger", 25)] {
        assert_eq!(
            (answer.string().as_str(), answer.string().as_str()),
            (id, "")
        );
        assert_eq!(answer.i16(), error);
    }
    assert_eq!(heartbeat(&mut a, "g", 2, &first), 27);
}

#[test]
fn a_member_and_its_offsets_survive_a_restart_and_a_kill() {
    let (mut broker, mut client) = started();
    let member = only_member(&mut client, "g");
    assert_eq!(commit(&mut client, "g", 1, &member, 41), 0);
    assert_eq!(broker.stop(), Some(0));
    broker.spawn();
    let mut client = broker.connect();
    let expected = (0, 41, 7, "meta".to_owned());
    assert_eq!(fetch_offset_when_loaded(&mut client, "g"), expected);
    assert_eq!(heartbeat(&mut client, "g", 1, &member), 0);
    assert_eq!(commit(&mut client, "g", 1, &member, 42), 0);
    broker.kill();
    broker.spawn();
    let mut client = broker.connect();
    let expected = (0, 42, 7, "meta".to_owned());
    assert_eq!(fetch_offset_when_loaded(&mut client, "g"), expected);
    assert_eq!(
        describe(&mut client, "g"),
        (0, "Stable".to_owned(), vec![member.clone()])
    );
    assert_eq!(list(&mut client), ["g"]);
    let assigned = sync(&mut client, "g", (1, &member), &[]);
    assert_eq!(assigned, (0, b"mine".to_vec()));
}

#[test]
fn an_acknowledged_commit_is_what_is_fetched_after_every_kill() {
    let (mut broker, mut client) = started();
    for round in 0..8 {
        let mut last = -1;
        for step in 0..20 {
            let offset = round * 100 + step;
            assert_eq!(commit(&mut client, "simple", -1, "", offset), 0);
            last = offset;
        }
        broker.kill();
        broker.spawn();
        client = broker.connect();
        let (error, offset, _, _) = fetch_offset_when_loaded(&mut client, "simple");
        assert_eq!((error, offset), (0, last));
    }
}

#[test]
fn pipelined_commits_are_applied_in_order() {
    let (_broker, mut client) = started();
    let mut frames = Vec::new();
    for offset in 0..300 {
        frames.extend(frame(8, 7, &commit_body("p", -1, "", offset), false));
    }
    client.send_raw(&frames);
    for _ in 0..300 {
        let answer = client.receive().unwrap()[4..].to_vec();
        assert_eq!(committed(Answer::of(answer)), 0);
    }
    assert_eq!(fetch_offset(&mut client, "p").1, 299);
}

#[test]
fn a_static_member_comes_back_and_fences_its_former_self() {
    let (_broker, mut client) = started();
    let first = join(&mut client, "g", "", Some("i"));
    assert_eq!((first.error, first.generation), (0, 1));
    let id = first.member;
    assert!(id.starts_with("i-"));
    sync(&mut client, "g", (1, &id), &[(&id, b"mine")]);
    let second = join(&mut client, "g", "", Some("i"));
    assert_eq!((second.error, second.generation), (0, 1));
    assert_eq!(
        second.leader, id,
        "an old client does not learn that it leads"
    );
    assert_ne!(second.member, id);
    let again = join(&mut client, "g", &id, Some("i"));
    assert_eq!(again.error, 82, "FENCED_INSTANCE_ID");
    let assigned = sync(&mut client, "g", (1, &second.member), &[]);
    assert_eq!(assigned, (0, b"mine".to_vec()));
}

#[test]
fn what_is_wrong_is_refused_by_its_code() {
    let (_broker, mut client) = started();
    assert_eq!(
        join(&mut client, "", "", None).error,
        24,
        "INVALID_GROUP_ID"
    );
    assert_eq!(join(&mut client, "g", "x", None).error, 25);
    let body = join_body("g", "", None, 1);
    assert_eq!(
        joined(ask(&mut client, 11, 5, &body)).error,
        26,
        "INVALID_SESSION_TIMEOUT"
    );
    assert_eq!(commit(&mut client, "none", 1, "x", 1), 22);
    assert_eq!(describe(&mut client, "none").1, "Dead");
    assert_eq!(
        fetch_offset(&mut client, "none"),
        (0, -1, -1, String::new())
    );
    assert!(list(&mut client).is_empty());
    // A transactional id has no coordinator yet.
    let mut answer = ask(&mut client, 10, 1, &[string("x"), hex("01")].concat());
    answer.i32();
    assert_eq!(answer.i16(), 53);
    // DeleteGroups v0
    let member = only_member(&mut client, "g");
    let mut answer = ask(
        &mut client,
        42,
        0,
        &[hex("00000002"), string("g"), string("no")].concat(),
    );
    answer.i32();
    assert_eq!(answer.i32(), 2);
    let mut results = [
        (answer.string(), answer.i16()),
        (answer.string(), answer.i16()),
    ];
    results.sort();
    assert_eq!(results, [("g".to_owned(), 68), ("no".to_owned(), 69)]);
    // OffsetDelete v0: the group reads `t`.
    commit(&mut client, "g", 1, &member, 1);
    let body = [
        string("g"),
        hex("00000001"),
        string("t"),
        hex("00000001 00000000"),
    ]
    .concat();
    let mut answer = ask(&mut client, 47, 0, &body);
    assert_eq!((answer.i16(), answer.i32(), answer.i32()), (0, 0, 1));
    answer.string();
    assert_eq!((answer.i32(), answer.i32(), answer.i16()), (1, 0, 86));
}

#[test]
fn the_offsets_of_a_deleted_topic_are_gone() {
    let (_broker, mut client) = started();
    assert_eq!(commit(&mut client, "g", -1, "", 5), 0);
    // DeleteTopics v1
    let body = [hex("00000001"), string("t"), hex("00002710")].concat();
    let mut answer = ask(&mut client, 20, 1, &body);
    answer.i32();
    assert_eq!(answer.i32(), 1);
    answer.string();
    assert_eq!(answer.i16(), 0);
    create_topic(&mut client, "t", 1);
    assert_eq!(fetch_offset(&mut client, "g").1, -1);
}

#[test]
fn naming_a_large_group_again_and_again_costs_little() {
    let (broker, mut client) = started();
    // JoinGroup v2 with 900 KB of metadata, then SyncGroup: stable, and as large as a record may be.
    let metadata = vec![7; 900_000];
    let body = [
        string("g"),
        hex("00002710 00007530"),
        string(""),
        string("consumer"),
        hex("00000001"),
        string("range"),
        i32::try_from(metadata.len())
            .unwrap()
            .to_be_bytes()
            .to_vec(),
        metadata,
    ];
    let mut answer = ask(&mut client, 11, 2, &body.concat());
    answer.i32();
    assert_eq!((answer.i16(), answer.i32()), (0, 1));
    answer.string();
    let member = answer.string();
    assert_eq!(sync(&mut client, "g", (1, &member), &[]).0, 0);
    let names = 3_000;
    let mut body = u32::to_be_bytes(names).to_vec();
    body.extend(string("g").repeat(names as usize));
    // DescribeGroups v1: 2.7 GB if each were described.
    let answer = client.request(15, 1, &body).unwrap();
    assert!(answer.len() < 100 << 20, "{} bytes", answer.len());
    assert!(
        broker.resident_kib() < 400 << 10,
        "{} KiB",
        broker.resident_kib()
    );
}
