//! Three brokers and etcd: what the leader has the followers have, byte for byte. Where the machine has
//! no `etcd` this says so and passes, unless `OTTLA_REQUIRE_ETCD=1` is set (CI does).
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

#[path = "support/etcd.rs"]
mod etcd_process;
mod support;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use etcd_process::{EtcdProcess, start_etcd};
use support::{
    Answer, Batch, Client, Ottla, PATIENCE, ask, hex, is_asked_again, produce_body, produced,
    string, until_answered,
};

struct Cluster {
    brokers: Vec<Ottla>,
    _etcd: EtcdProcess,
}

fn start() -> Option<Cluster> {
    let etcd = start_etcd()?;
    let broker = |id: i32| {
        let overrides = [
            format!("etcd.endpoints={}", etcd.client_url),
            format!("node.id={id}"),
            "broker.session.timeout.ms=2000".to_owned(),
            "broker.heartbeat.interval.ms=300".to_owned(),
            "log.segment.bytes=1048576".to_owned(),
            "auto.leader.rebalance.enable=false".to_owned(),
            "offsets.topic.num.partitions=3".to_owned(),
            "offsets.topic.replication.factor=3".to_owned(),
        ];
        let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
        Ottla::start(&overrides)
    };
    Some(Cluster {
        brokers: (1..=3).map(broker).collect(),
        _etcd: etcd,
    })
}

impl Cluster {
    /// Topic `t` with one partition, a replica on each broker.
    fn create_topic(&self) {
        let body = [
            &hex("00000001")[..],
            &string("t"),
            &hex("00000001 0003 00000000 00000001"),
            &string("min.insync.replicas"),
            &string("2"),
            &hex("00002710 00"),
        ]
        .concat();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut answer = ask(&mut self.brokers[0].connect(), 19, 2, &body);
            answer.take(4 + 4 + 2 + 1);
            match answer.i16() {
                0 => return,
                // INVALID_REPLICATION_FACTOR: not all brokers are known yet.
                38 if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                error => panic!("CreateTopics: {error}"),
            }
        }
    }

    /// Leader and in-sync replicas, as broker `of` knows them; nothing where it has not heard of the topic.
    fn partition(&self, of: usize) -> (i32, Vec<i32>) {
        let body = [&hex("00000001")[..], &string("t"), &[0]].concat();
        let mut answer = ask(&mut self.brokers[of].connect(), 3, 4, &body);
        answer.i32(); // throttle time
        for _ in 0..answer.i32() {
            answer.i32();
            answer.string();
            answer.i32();
            answer.string();
        }
        answer.string();
        answer.i32(); // controller
        answer.i32(); // topics
        let known = answer.i16() == 0;
        answer.string();
        answer.take(1);
        if !known || answer.i32() == 0 {
            return (-1, Vec::new());
        }
        answer.take(2 + 4);
        let leader = answer.i32();
        let ids = |answer: &mut Answer| (0..answer.i32()).map(|_| answer.i32()).collect();
        let _replicas: Vec<i32> = ids(&mut answer);
        (leader, ids(&mut answer))
    }

    fn leader(&self, of: usize) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (leader, _) = self.partition(of);
            if let Ok(leader @ 1..) = usize::try_from(leader) {
                return leader - 1;
            }
            assert!(Instant::now() < deadline, "nobody leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Produces with `acks=all` at whoever leads, as broker `of` knows it; returns the offset.
    fn produce(&self, of: usize, values: &[&[u8]]) -> i64 {
        let body = produce_body(-1, &Batch::of(values).bytes());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = &self.brokers[self.leader(of)];
            let answer = std::net::TcpStream::connect(leader.address)
                .ok()
                .and_then(|_| Client::connect(leader.address).request(0, 3, &body));
            match answer.map(|answer| produced(&answer)) {
                Some((0, offset)) => return offset,
                error => assert!(Instant::now() < deadline, "Produce: {error:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The segments of a broker's replica.
    fn segments(&self, of: usize) -> Vec<PathBuf> {
        let path = self.brokers[of].directory.path().join("data/t-0");
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut segments: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        segments.sort();
        segments
    }

    /// The records of a broker's replica, as they lie on its disk.
    fn records(&self, of: usize) -> Vec<u8> {
        let read = |path: &PathBuf| fs::read(path).unwrap_or_default();
        self.segments(of).iter().flat_map(read).collect()
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            if Instant::now() > deadline {
                let sizes: Vec<_> = (0..3).map(|of| self.records(of).len()).collect();
                panic!("{what} did not happen; bytes: {sizes:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn until_all_are_equal(&self, of: usize) {
        self.until("all replicas in sync", || self.partition(of).1.len() == 3);
        let leader = self.leader(of);
        self.until("equal replicas", || {
            let records = self.records(leader);
            !records.is_empty() && (0..3).all(|of| self.records(of) == records)
        });
    }
}

#[test]
fn replicas_are_equal_and_one_that_was_away_catches_up() {
    let Some(mut cluster) = start() else { return };
    cluster.create_topic();
    for number in 0..60 {
        let value = vec![number; 40_000];
        assert_eq!(cluster.produce(0, &[&value, b"b"]), i64::from(number) * 2);
    }
    cluster.until_all_are_equal(0);
    // Whoever follows dies, and misses something.
    let leader = cluster.leader(0);
    let follower = (leader + 1) % 3;
    cluster.brokers[follower].kill();
    for number in 60..80 {
        let value = vec![number; 40_000];
        assert_eq!(
            cluster.produce(leader, &[&value, b"b"]),
            i64::from(number) * 2
        );
    }
    assert_ne!(cluster.records(follower), cluster.records(leader));
    cluster.brokers[follower].spawn();
    cluster.until_all_are_equal(leader);
    assert_eq!(cluster.produce(leader, &[b"after"]), 160);
    cluster.until_all_are_equal(leader);
}

/// Records that a leader of the past had alone go, and those of the new one come in their place.
#[test]
fn a_replica_that_parted_from_its_leader_is_cut() {
    let Some(mut cluster) = start() else { return };
    cluster.create_topic();
    for _ in 0..10 {
        cluster.produce(0, &[b"a", b"b"]);
    }
    cluster.until_all_are_equal(0);
    let before = cluster.leader(0);
    cluster.brokers[before].kill();
    // What it had appended and nobody else heard of.
    let alone = Batch {
        base_offset: 20,
        ..Batch::of(&[b"lost", b"lost", b"lost"])
    };
    let mut alone = alone.bytes();
    alone[12..16].copy_from_slice(&0_i32.to_be_bytes()); // its leader epoch
    let log = cluster.brokers[before].directory.path();
    let log = log.join("data/t-0/00000000000000000000.log");
    let mut records = fs::read(&log).unwrap();
    let epoch = i32::from_be_bytes(records[12..16].try_into().unwrap());
    alone[12..16].copy_from_slice(&epoch.to_be_bytes());
    records.extend(&alone);
    fs::write(&log, &records).unwrap();
    let other = (before + 1) % 3;
    cluster.until("another leader", || cluster.leader(other) != before);
    assert_eq!(cluster.produce(other, &[b"c", b"d"]), 20);
    cluster.brokers[before].spawn();
    cluster.until_all_are_equal(other);
    let said = cluster.brokers[before].log();
    assert!(said.contains("cut a log that parts from its leader's"));
    assert_eq!(cluster.produce(other, &[b"e"]), 22);
    cluster.until_all_are_equal(other);
}

/// The broker that coordinates group `g`, as broker `of` knows it.
fn coordinator(cluster: &Cluster, of: usize) -> Option<usize> {
    let mut answer = ask(&mut cluster.brokers[of].connect(), 10, 0, &string("g"));
    match answer.i16() {
        0 => Some(usize::try_from(answer.i32()).unwrap() - 1),
        15 => None, // COORDINATOR_NOT_AVAILABLE
        error => panic!("FindCoordinator: {error}"),
    }
}

/// Commits an offset of `t-0` for group `g`, without being a member; the error code.
fn commit(client: &mut Client, offset: i64) -> i16 {
    let body = [
        &string("g")[..],
        &(-1i32).to_be_bytes(),
        &string(""),
        &(-1i64).to_be_bytes(),
        &hex("00000001 0001 74 00000001 00000000"),
        &offset.to_be_bytes(),
        &string("m"),
    ]
    .concat();
    let mut answer = ask(client, 8, 2, &body);
    answer.take(4 + 3 + 4 + 4);
    answer.i16()
}

/// The committed offset, or an error code.
fn committed(client: &mut Client) -> Result<i64, i16> {
    let body = [&string("g")[..], &hex("00000001 0001 74 00000001 00000000")].concat();
    let mut answer = ask(client, 9, 1, &body);
    answer.take(4 + 3 + 4 + 4);
    let offset = answer.i64();
    answer.string();
    match answer.i16() {
        0 => Ok(offset),
        error => Err(error),
    }
}

/// Asks whoever coordinates until it answers.
fn until_coordinated<T>(
    cluster: &Cluster,
    of: usize,
    asked: impl Fn(&mut Client) -> Result<T, i16>,
) -> (usize, T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut failed = None;
        if let Some(at) = coordinator(cluster, of)
            && std::net::TcpStream::connect(cluster.brokers[at].address).is_ok()
        {
            match asked(&mut cluster.brokers[at].connect()) {
                Ok(found) => return (at, found),
                Err(error) => failed = Some(error),
            }
        }
        assert!(Instant::now() < deadline, "no coordinator: {failed:?}");
        assert!(failed.is_none_or(is_asked_again), "{failed:?}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn a_group_goes_on_when_its_coordinator_dies() {
    let Some(mut cluster) = start() else { return };
    cluster.create_topic();
    let asked = |offset| {
        move |client: &mut Client| match commit(client, offset) {
            0 => Ok(()),
            error => Err(error),
        }
    };
    let (first, ()) = until_coordinated(&cluster, 0, asked(5));
    for offset in 6..50 {
        until_answered("OffsetCommit", || {
            asked(offset)(&mut cluster.brokers[first].connect())
        });
    }
    // Who does not coordinate says so.
    let other = (first + 1) % 3;
    cluster.until("its place", || {
        committed(&mut cluster.brokers[other].connect()) == Err(16)
    });
    cluster.brokers[first].kill();
    cluster.until("another coordinator", || {
        coordinator(&cluster, other).is_some_and(|at| at != first)
    });
    let (second, offset) = until_coordinated(&cluster, other, committed);
    assert_eq!(offset, 49);
    assert_eq!(until_coordinated(&cluster, other, asked(70)), (second, ()));
    // The first one comes back and knows its place.
    cluster.brokers[first].spawn();
    let there = |client: &mut Client| committed(client);
    cluster.until("its place", || {
        coordinator(&cluster, first) == Some(second)
            && there(&mut cluster.brokers[first].connect()) == Err(16)
    });
    assert_eq!(until_coordinated(&cluster, first, committed), (second, 70));
    // And takes over in its turn.
    let third = (0..3).find(|of| *of != first && *of != second).unwrap();
    cluster.brokers[second].kill();
    cluster.until("a coordinator", || {
        coordinator(&cluster, third).is_some_and(|at| at != second)
    });
    assert_eq!(until_coordinated(&cluster, third, committed).1, 70);
}

/// DeleteRecords v0 of `t-0`; the error code and the new start.
fn delete_records(client: &mut Client, to: i64) -> (i16, i64) {
    let body = [
        &hex("00000001 0001 74 00000001 00000000")[..],
        &to.to_be_bytes(),
        &10_000_i32.to_be_bytes(),
    ]
    .concat();
    let mut answer = ask(client, 21, 0, &body);
    answer.take(4 + 4 + 3 + 4 + 4);
    let start = answer.i64();
    (answer.i16(), start)
}

#[test]
fn a_replica_whose_records_its_leader_has_deleted_begins_where_that_does() {
    let Some(mut cluster) = start() else { return };
    cluster.create_topic();
    for _ in 0..10 {
        cluster.produce(0, &[b"a", b"b"]);
    }
    cluster.until_all_are_equal(0);
    let leader = cluster.leader(0);
    let follower = (leader + 1) % 3;
    cluster.brokers[follower].kill();
    let value = vec![7; 200_000];
    for number in 0..12 {
        assert_eq!(cluster.produce(leader, &[&value]), 20 + number);
    }
    // Not a whole segment: the batch at the new start begins before it.
    cluster.until("the death of a follower", || {
        cluster.partition(leader).1.len() == 2
    });
    let deleted = delete_records(&mut cluster.brokers[leader].connect(), 31);
    assert_eq!(deleted, (0, 31));
    cluster.brokers[follower].spawn();
    cluster.until("all replicas in sync", || {
        cluster.partition(leader).1.len() == 3
    });
    assert_eq!(cluster.produce(leader, &[b"after"]), 32);
    cluster.until("only what the leader has", || {
        let segments = cluster.segments(follower);
        let first = segments.first();
        first.is_some_and(|first| first.ends_with("00000000000000000031.log"))
    });
    let said = cluster.brokers[follower].log();
    assert!(said.contains("a log begins anew"), "{said}");
    let records = cluster.records(follower);
    assert!(cluster.records(leader).ends_with(&records));
}
