//! What configuration does, seen from outside: keys of the start, and keys that change while it runs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use support::{
    Batch, Client, Ottla, PATIENCE, create_topic, fetch_body, fetched, hex, produce_body, produced,
    string,
};

const TOPIC: u8 = 2;
const BROKER: u8 = 4;
const BROKER_LOGGER: u8 = 8;
const SET: u8 = 0;
const DELETE: u8 = 1;
const APPEND: u8 = 2;

/// IncrementalAlterConfigs v0 of one key; the error.
fn alter(client: &mut Client, resource: (u8, &str), key: &str, operation: u8, value: &str) -> i16 {
    let body = [
        &hex("00000001")[..],
        &[resource.0],
        &string(resource.1),
        &hex("00000001"),
        &string(key),
        &[operation],
        &string(value),
        &[0],
    ]
    .concat();
    let answer = client.request(44, 0, &body).unwrap();
    i16::from_be_bytes(answer[8..10].try_into().unwrap())
}

fn set(client: &mut Client, resource: (u8, &str), key: &str, value: &str) {
    assert_eq!(alter(client, resource, key, SET, value), 0, "{key}={value}");
}

/// DescribeConfigs v1 of one key, without synonyms: its value and source.
fn describe(client: &mut Client, resource: (u8, &str), key: &str) -> (String, u8) {
    let body = [
        &hex("00000001")[..],
        &[resource.0],
        &string(resource.1),
        &hex("00000001"),
        &string(key),
        &[0],
    ]
    .concat();
    let answer = client.request(32, 1, &body).unwrap();
    let mut rest = &answer[8..];
    let take = |rest: &mut &[u8], count: usize| {
        let (taken, left) = rest.split_at(count);
        *rest = left;
        taken.to_vec()
    };
    let text = |rest: &mut &[u8]| {
        let length = i16::from_be_bytes(take(rest, 2).try_into().unwrap());
        String::from_utf8(take(rest, usize::try_from(length.max(0)).unwrap())).unwrap()
    };
    assert_eq!(take(&mut rest, 2), [0, 0], "{answer:?}");
    text(&mut rest);
    take(&mut rest, 1);
    text(&mut rest);
    assert_eq!(take(&mut rest, 4), [0, 0, 0, 1], "{answer:?}");
    assert_eq!(text(&mut rest), key);
    let value = text(&mut rest);
    take(&mut rest, 1);
    (value, take(&mut rest, 1)[0])
}

fn produce(client: &mut Client, batch: &Batch) -> i16 {
    let body = produce_body(-1, &batch.bytes());
    produced(&client.request(0, 3, &body).expect("an answer")).0
}

/// `produced` and the log append time (−1 with CreateTime).
fn append_time(client: &mut Client, batch: &Batch) -> i64 {
    let body = produce_body(1, &batch.bytes());
    let answer = client.request(0, 3, &body).unwrap();
    i64::from_be_bytes(answer[25..33].try_into().unwrap())
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn segments(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".log")
        })
        .count()
}

/// The directory of the partition, wherever below the test's directory the logs are.
fn partition_directory(broker: &Ottla) -> std::path::PathBuf {
    fn find(directory: &Path) -> Option<std::path::PathBuf> {
        for entry in std::fs::read_dir(directory).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.ends_with("t-0") {
                    return Some(path);
                }
                if let Some(found) = find(&path) {
                    return Some(found);
                }
            }
        }
        None
    }
    find(broker.directory.path()).expect("the partition has a directory")
}

#[test]
fn the_largest_batch_follows_topic_broker_and_cluster_and_survives_a_restart() {
    let mut broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let big = Batch::of(&[&[7; 2_000]]);
    assert_eq!(produce(&mut client, &big), 0);
    set(&mut client, (TOPIC, "t"), "max.message.bytes", "1000");
    assert_eq!(produce(&mut client, &big), 10, "MESSAGE_TOO_LARGE");
    assert_eq!(
        alter(&mut client, (TOPIC, "t"), "max.message.bytes", DELETE, ""),
        0
    );
    assert_eq!(produce(&mut client, &big), 0);
    set(&mut client, (BROKER, ""), "message.max.bytes", "1000");
    assert_eq!(produce(&mut client, &big), 10);
    set(&mut client, (BROKER, "1"), "message.max.bytes", "5000");
    assert_eq!(produce(&mut client, &big), 0);
    set(&mut client, (TOPIC, "t"), "max.message.bytes", "1001");
    assert_eq!(produce(&mut client, &big), 10);
    broker.kill();
    broker.spawn();
    let mut client = broker.connect();
    assert_eq!(produce(&mut client, &big), 10);
    let topic = describe(&mut client, (TOPIC, "t"), "max.message.bytes");
    assert_eq!(topic, ("1001".to_owned(), 1));
    let own = describe(&mut client, (BROKER, "1"), "message.max.bytes");
    assert_eq!(own, ("5000".to_owned(), 2));
    let all = describe(&mut client, (BROKER, ""), "message.max.bytes");
    assert_eq!(all, ("1000".to_owned(), 3));
}

#[test]
fn timestamps_follow_the_configuration_at_once() {
    let broker = Ottla::start(&["log.message.timestamp.after.max.ms=60000"]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let mut old = Batch::of(&[b"old"]);
    old.base_timestamp -= 7_200_000;
    old.max_timestamp -= 7_200_000;
    let mut new = Batch::of(&[b"new"]);
    new.base_timestamp += 120_000;
    new.max_timestamp += 120_000;
    assert_eq!(produce(&mut client, &old), 0);
    assert_eq!(produce(&mut client, &new), 32, "INVALID_TIMESTAMP");
    let before = "log.message.timestamp.before.max.ms";
    set(&mut client, (BROKER, ""), before, "3600000");
    assert_eq!(produce(&mut client, &old), 32);
    let after = "message.timestamp.after.max.ms";
    set(&mut client, (TOPIC, "t"), after, "3600000");
    assert_eq!(produce(&mut client, &new), 0);
    let plain = Batch::of(&[b"x"]);
    assert_eq!(append_time(&mut client, &plain), -1);
    let kind = "log.message.timestamp.type";
    set(&mut client, (BROKER, "1"), kind, "LogAppendTime");
    assert!(append_time(&mut client, &plain) >= plain.base_timestamp);
}

#[test]
fn batches_are_brought_into_the_codec_that_is_asked_for() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let batch = Batch::of(&[&[7; 500]]);
    let codec_of = |client: &mut Client, offset: i64| {
        let answer = client.request(1, 4, &fetch_body(offset, 0)).unwrap();
        let (error, _, records) = fetched(&answer);
        assert_eq!(error, 0);
        records[22] & 7
    };
    assert_eq!(produce(&mut client, &batch), 0);
    for (offset, (value, codec)) in (1..).zip([("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
    {
        set(&mut client, (BROKER, ""), "compression.type", value);
        assert_eq!(produce(&mut client, &batch), 0);
        assert_eq!(codec_of(&mut client, offset), codec, "{value}");
    }
    assert_eq!(codec_of(&mut client, 0), 0);
    set(
        &mut client,
        (TOPIC, "t"),
        "compression.type",
        "uncompressed",
    );
    assert_eq!(produce(&mut client, &batch), 0);
    assert_eq!(codec_of(&mut client, 5), 0);
}

#[test]
fn segments_roll_by_size_and_age() {
    let broker = Ottla::start(&["log.segment.delete.delay.ms=100"]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let batch = Batch::of(&[&[7; 500]]);
    let mut later = |by: i64| {
        let mut batch = batch.clone();
        batch.base_timestamp += by;
        batch.max_timestamp += by;
        assert_eq!(produce(&mut client, &batch), 0);
    };
    later(0);
    later(1);
    let directory = partition_directory(&broker);
    assert_eq!(segments(&directory), 1);
    let mut admin = broker.connect();
    set(&mut admin, (TOPIC, "t"), "internal.segment.bytes", "700");
    later(2);
    later(3);
    assert_eq!(segments(&directory), 3, "each batch fills a segment");
    let key = "internal.segment.bytes";
    assert_eq!(alter(&mut admin, (TOPIC, "t"), key, DELETE, ""), 0);
    later(4);
    let before = segments(&directory);
    set(&mut admin, (BROKER, ""), "log.roll.ms", "1000");
    later(5);
    assert_eq!(segments(&directory), before);
    later(10_000);
    assert_eq!(segments(&directory), before + 1);
}

#[test]
fn connection_limits_count_at_once() {
    let broker = Ottla::start(&["max.connections.per.ip.overrides=127.0.0.1:4"]);
    let works = |client: &mut Client| client.request(18, 0, &[]).is_some();
    // The connection that saw the broker start may still count.
    let admitted = || {
        let mut admitted = None;
        wait_until("a connection is taken", || {
            let mut client = broker.connect();
            let taken = works(&mut client);
            admitted = taken.then_some(client);
            taken
        });
        admitted.unwrap()
    };
    let mut first = admitted();
    let mut open = [admitted(), admitted(), admitted()].into_iter();
    assert!(!works(&mut broker.connect()), "the fifth of one address");
    open.next();
    wait_until("closed connections are forgotten", || {
        works(&mut broker.connect())
    });
    drop(open);
    set(&mut first, (BROKER, ""), "max.connections", "1");
    wait_until("the limit counts", || !works(&mut broker.connect()));
    let key = "max.connections";
    assert_eq!(alter(&mut first, (BROKER, ""), key, DELETE, ""), 0);
    wait_until("the limit is gone", || works(&mut broker.connect()));
}

#[test]
fn limits_of_the_start_are_kept() {
    let broker = Ottla::start(&[
        "delete.topic.enable=false",
        "default.replication.factor=2",
        "socket.request.max.bytes=3000",
        "connections.max.idle.ms=400",
        "num.partitions=3",
        "queued.max.request.bytes=-1",
    ]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let delete = [&hex("00000001")[..], &string("t"), &hex("00002710")].concat();
    let answer = client.request(20, 3, &delete).unwrap();
    assert_eq!(answer[11..13], [0, 73], "TOPIC_DELETION_DISABLED");
    let create = [
        &hex("00000001")[..],
        &string("two"),
        &hex("ffffffff ffff 00000000 00000000 00002710 00"),
    ]
    .concat();
    let answer = client.request(19, 4, &create).unwrap();
    assert_eq!(answer[13..15], [0, 38], "INVALID_REPLICATION_FACTOR");
    assert_eq!(produce(&mut client, &Batch::of(&[&[7; 2_000]])), 0);
    let large = produce_body(1, &Batch::of(&[&[7; 4_000]]).bytes());
    assert!(client.request(0, 3, &large).is_none(), "closed");
    let mut idle = broker.connect();
    assert!(idle.request(18, 0, &[]).is_some());
    let start = Instant::now();
    assert!(idle.receive().is_none(), "closed");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn levels_of_the_log_change_while_the_broker_runs() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    let here = (BROKER_LOGGER, "1");
    let level = |client: &mut Client| describe(client, here, "kafka.network");
    assert_eq!(level(&mut client), ("INFO".to_owned(), 6));
    assert!(!broker.log().contains("DEBUG"));
    set(&mut client, here, "kafka.network", "DEBUG");
    assert_eq!(level(&mut client), ("DEBUG".to_owned(), 6));
    drop(broker.connect());
    wait_until("a line of that level", || {
        broker.log().contains("DEBUG ottla::net")
    });
    assert_eq!(alter(&mut client, here, "kafka.network", DELETE, ""), 0);
    assert_eq!(level(&mut client).0, "INFO");
    for (key, operation, value, error) in [
        ("no.such.logger", SET, "DEBUG", 40),
        ("kafka.network", SET, "LOUD", 40),
        ("kafka.network", APPEND, "DEBUG", 42),
        ("root", DELETE, "", 42),
    ] {
        assert_eq!(
            alter(&mut client, here, key, operation, value),
            error,
            "{key} {value}"
        );
    }
    let other = (BROKER_LOGGER, "7");
    assert_eq!(alter(&mut client, other, "kafka.network", SET, "DEBUG"), 42);
    assert_eq!(level(&mut client).0, "INFO");
}

#[test]
fn lists_grow_and_wrong_changes_change_nothing() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let topic = (TOPIC, "t");
    let policy = "cleanup.policy";
    assert_eq!(alter(&mut client, topic, policy, APPEND, "compact"), 0);
    let described = describe(&mut client, topic, policy);
    assert_eq!(described, ("delete,compact".to_owned(), 1));
    assert_eq!(alter(&mut client, topic, policy, SET, "shred"), 40);
    assert_eq!(alter(&mut client, topic, "no.such.key", SET, "1"), 40);
    assert_eq!(alter(&mut client, topic, "retention.ms", APPEND, "1"), 40);
    assert_eq!(describe(&mut client, topic, policy).0, "delete,compact");
    let missing = (TOPIC, "missing");
    assert_eq!(alter(&mut client, missing, policy, SET, "delete"), 3);
    let other = (BROKER, "2");
    assert_eq!(alter(&mut client, other, "log.retention.ms", SET, "1"), 42);
    let own = (BROKER, "1");
    assert_eq!(alter(&mut client, own, "num.partitions", SET, "2"), 42);
    let root = (8, "1");
    assert_eq!(alter(&mut client, root, "root", SET, "DEBUG"), 0);
    assert_eq!(describe(&mut client, root, "root"), ("DEBUG".to_owned(), 6));
    assert_eq!(alter(&mut client, root, "root", SET, "LOUD"), 40);
}

#[test]
fn checkpoints_are_written_as_often_as_asked() {
    let broker = Ottla::start(&[
        "log.initial.task.delay.ms=0",
        "log.flush.offset.checkpoint.interval.ms=50",
        "log.flush.start.offset.checkpoint.interval.ms=50",
    ]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    // A recovery point moves only where that saves a recovery some work.
    let large = Batch::of(&[&vec![7; 1_000_000]]);
    for _ in 0..18 {
        assert_eq!(produce(&mut client, &large), 0);
    }
    let directory = partition_directory(&broker);
    let logs = directory.parent().unwrap();
    wait_until("the recovery point is written", || {
        let path = logs.join("recovery-point-offset-checkpoint");
        std::fs::read_to_string(path)
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("t 0 1")))
    });
}
