//! What a stranger may send. Each case gets Kafka's error or a closed connection; the broker lives, its
//! memory does not grow with what was claimed, and another client does not notice.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::{
    Batch, Client, Ottla, create_topic, frame, hex, produce_body, produced, record, varint,
};

/// Memory that a case may cost, whatever it claims.
const GROWTH_KIB_MAX: u64 = 64 << 10;
/// The bystander's slowest answer but for one in a hundred. Generous: the machine is shared.
const BYSTANDER_P99_MAX: Duration = Duration::from_millis(250);

/// What is sent, and what comes of it.
type Case = (&'static str, Vec<u8>, Expected);

enum Expected {
    /// No answer, and the connection ends.
    Closed,
    /// An answer, whatever it says.
    Answer,
    /// This error for the one partition of a Produce v3.
    Produce(i16),
    /// Nothing happens: the broker waits for the rest.
    Patience,
}

use Expected::{Answer, Closed, Patience, Produce};

/// A client of good faith: asks for ApiVersions all the time and notes how long it takes.
struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Bystander {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut times = Vec::new();
            while !stopped.load(Ordering::Relaxed) || times.len() < 20 {
                let start = Instant::now();
                client
                    .request(18, 0, b"")
                    .expect("the bystander was cut off");
                times.push(start.elapsed());
                thread::sleep(Duration::from_micros(500));
            }
            times
        });
        Self { stop, thread }
    }

    fn p99(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().unwrap();
        times.sort_unstable();
        times[(times.len() - 1) * 99 / 100]
    }
}

fn check(broker: &mut Ottla, name: &str, bytes: &[u8], expected: &Expected) {
    let before = broker.resident_kib();
    let bystander = Bystander::start(broker.address);
    let mut stranger = broker.connect();
    stranger.send_raw(bytes);
    match expected {
        Closed => assert!(stranger.receive().is_none(), "{name}: answered"),
        Answer => assert!(stranger.receive().is_some(), "{name}: closed"),
        Produce(code) => {
            let response = stranger
                .receive()
                .unwrap_or_else(|| panic!("{name}: closed"));
            assert_eq!(produced(&response[4..]).0, *code, "{name}");
        }
        Patience => assert!(stranger.is_silent(Duration::from_millis(100)), "{name}"),
    }
    let p99 = bystander.p99();
    assert!(
        p99 < BYSTANDER_P99_MAX,
        "{name}: the bystander's p99 is {p99:?}"
    );
    assert!(
        broker.is_alive(),
        "{name}: the broker ended\n{}",
        broker.log()
    );
    let growth = broker.resident_kib().saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{name}: {growth} KiB more");
}

fn run(broker: &mut Ottla, cases: Vec<Case>) {
    create_topic(&mut broker.connect(), "t", 1);
    for (name, bytes, expected) in cases {
        check(broker, name, &bytes, &expected);
    }
    assert!(!broker.log().contains("panicked"), "{}", broker.log());
}

/// Once as it comes, once with little address space: an allocation by a claimed size would abort.
fn run_both(cases: fn() -> Vec<Case>) {
    run(&mut Ottla::start(&[]), cases());
    run(&mut Ottla::start_limited(&[], Some(2 << 20)), cases());
}

fn framing() -> Vec<Case> {
    let long_client_id = [&hex("00000010 0012 0000 00000001 7fff")[..], b"123456"].concat();
    vec![
        ("an empty frame", hex("00000000"), Closed),
        ("half a header", hex("00000002 0003"), Closed),
        (
            "a header without correlation id",
            hex("00000004 0012 0000"),
            Closed,
        ),
        ("size -1", hex("ffffffff"), Closed),
        ("the smallest size", hex("80000000"), Closed),
        ("2 GiB claimed, nothing sent", hex("7fffffff"), Closed),
        ("100 MiB and a byte", hex("06400001"), Closed),
        ("100 MiB claimed, nothing sent", hex("06400000"), Patience),
        (
            "100 MiB claimed by Metadata",
            hex("06400000 0003 0000"),
            Closed,
        ),
        (
            "HTTP",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            Closed,
        ),
        ("a TLS handshake", hex("16030100c8010000c40303"), Closed),
        ("api key -1", frame(-1, 0, b"", false), Closed),
        ("api key 32767", frame(32767, 0, b"", false), Closed),
        ("an api of the quorum", frame(52, 0, b"", false), Closed),
        ("an api that was removed", frame(4, 0, b"", false), Closed),
        ("Metadata version -1", frame(3, -1, b"", false), Closed),
        (
            "Metadata version 32767",
            frame(3, 32767, b"", false),
            Closed,
        ),
        ("Produce version 2", frame(0, 2, b"", false), Closed),
        (
            "ApiVersions version 99",
            hex("0000000b 0012 0063 00000001 ffff 00"),
            Answer,
        ),
        ("ApiVersions version -1", frame(18, -1, b"", false), Answer),
        ("a client id longer than the frame", long_client_id, Closed),
        (
            "a client id of length -2",
            hex("0000000a 0012 0000 00000001 fffe"),
            Closed,
        ),
        (
            "a client id that is not UTF-8",
            hex("0000000c 0012 0000 00000001 0002 fffe"),
            Closed,
        ),
        (
            "2^32-1 header tags",
            hex("0000000f 0012 0003 00000001 ffff ffffffff0f"),
            Closed,
        ),
        (
            "a header tag of 4 GiB",
            hex("00000011 0012 0003 00000001 ffff 0100 ffffffff0f"),
            Closed,
        ),
        (
            "a header varint of six bytes",
            hex("00000010 0012 0003 00000001 ffff 808080808001"),
            Closed,
        ),
    ]
}

#[test]
fn frames_and_headers() {
    run_both(framing);
}

fn counts() -> Vec<Case> {
    let fetch_head = hex("ffffffff 00000000 00000000 00000000 00 00000000 00000000");
    let nested = [
        &hex("ffffffff 00000000 00000000 00000000 00 00000001 0001 74")[..],
        &hex("7fffffff"),
    ];
    let empty_names = [&hex("00400000")[..], &[0; 2 << 22]].concat();
    let many_tags = [
        &hex("01 00 00")[..],
        &hex("808040"),
        &[0, 0].repeat(1 << 20),
    ]
    .concat();
    let deletes = hex("7fffffff");
    vec![
        (
            "Metadata v0, 2^31-1 topics",
            frame(3, 0, &hex("7fffffff"), false),
            Closed,
        ),
        (
            "Metadata v0, -2 topics",
            frame(3, 0, &hex("fffffffe"), false),
            Closed,
        ),
        (
            "Metadata v0, a topic too many",
            frame(3, 0, &hex("00000003 0000 0000"), false),
            Closed,
        ),
        (
            "Metadata v12, 2^32-1 topics",
            frame(3, 12, &hex("ffffffff0f"), true),
            Closed,
        ),
        (
            "Fetch v12, 2^32-1 topics",
            frame(1, 12, &[&fetch_head[..], &hex("ffffffff0f")].concat(), true),
            Closed,
        ),
        (
            "a varint with bits to spare",
            frame(3, 12, &hex("8180808070"), true),
            Closed,
        ),
        (
            "a varint of six bytes",
            frame(3, 12, &hex("808080808001"), true),
            Closed,
        ),
        (
            "one topic with 2^31-1 partitions",
            frame(1, 4, &nested.concat(), false),
            Closed,
        ),
        (
            "four million empty names",
            frame(3, 1, &empty_names, false),
            Closed,
        ),
        ("a million tags", frame(3, 12, &many_tags, true), Closed),
        (
            "DeleteGroups of 2^31-1",
            frame(42, 0, &deletes, false),
            Closed,
        ),
        (
            "DescribeGroups of 2^31-1",
            frame(15, 0, &deletes, false),
            Closed,
        ),
        (
            "DeleteTopics of 2^31-1",
            frame(20, 1, &deletes, false),
            Closed,
        ),
        (
            "CreateTopics of 2^31-1",
            frame(19, 2, &deletes, false),
            Closed,
        ),
        (
            "ListOffsets of 2^31-1",
            frame(2, 1, &hex("ffffffff 7fffffff"), false),
            Closed,
        ),
        (
            "Produce v9 of 2^32-1",
            frame(0, 9, &hex("00 0001 00000000 ffffffff0f"), true),
            Closed,
        ),
        (
            "JoinGroup of 2^31-1 protocols",
            frame(11, 0, &hex("0001 67 00002710 0000 0001 63 7fffffff"), false),
            Closed,
        ),
        (
            "OffsetFetch of 2^31-1 topics",
            frame(9, 1, &hex("0001 67 7fffffff"), false),
            Closed,
        ),
        (
            "eight bytes that upstream found",
            hex("00000008 0300 0003 3c0c 00b6"),
            Closed,
        ),
    ]
}

#[test]
fn counts_and_lengths() {
    run_both(counts);
}

fn produce(records: &[u8]) -> Vec<u8> {
    frame(0, 3, &produce_body(1, records), false)
}

/// A batch changed in one respect; the CRC fits.
fn batch(change: impl FnOnce(&mut Batch)) -> Vec<u8> {
    let mut batch = Batch::of(&[b"v"]);
    change(&mut batch);
    produce(&batch.bytes())
}

/// A batch whose bytes are changed behind its CRC's back.
fn bytes(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Batch::of(&[b"v"]).bytes();
    change(&mut bytes);
    produce(&bytes)
}

fn record_with_headers(count: i64) -> Vec<u8> {
    let mut body = hex("00 00 00 01 02 76");
    body.extend(varint(count));
    [varint(body.len() as i64), body].concat()
}

/// Xerial framing around a raw snappy block that claims 4 GiB.
fn snappy_bomb() -> Vec<u8> {
    let head = hex("82534e4150505900 00000001 00000001 00000006");
    [&head[..], &hex("ffffffff0f 00")].concat()
}

const CORRUPT_MESSAGE: i16 = 2;
const INVALID_TIMESTAMP: i16 = 32;
const INVALID_RECORD: i16 = 87;

fn batches() -> Vec<Case> {
    let two = [Batch::of(&[b"a"]).bytes(), Batch::of(&[b"b"]).bytes()].concat();
    let null_records = {
        let mut body = hex("ffff 0001 00002710 00000001 0001 74 00000001 00000000");
        body.extend(hex("ffffffff"));
        frame(0, 3, &body, false)
    };
    vec![
        ("null records", null_records, Produce(INVALID_RECORD)),
        ("no bytes", produce(b""), Produce(INVALID_RECORD)),
        (
            "half a batch header",
            bytes(|b| b.truncate(30)),
            Produce(INVALID_RECORD),
        ),
        (
            "a batch cut off",
            bytes(|b| b.truncate(b.len() - 1)),
            Produce(INVALID_RECORD),
        ),
        ("two batches", produce(&two), Produce(INVALID_RECORD)),
        (
            "a wrong CRC",
            bytes(|b| b[20] ^= 1),
            Produce(CORRUPT_MESSAGE),
        ),
        (
            "batch length 0",
            bytes(|b| b[8..12].fill(0)),
            Produce(CORRUPT_MESSAGE),
        ),
        (
            "batch length -1",
            bytes(|b| b[8..12].fill(0xff)),
            Produce(CORRUPT_MESSAGE),
        ),
        (
            "2^31-1 records claimed",
            batch(|b| b.count = i32::MAX),
            Produce(INVALID_RECORD),
        ),
        (
            "-1 records",
            batch(|b| b.count = -1),
            Produce(INVALID_RECORD),
        ),
        ("no record", batch(|b| b.count = 0), Produce(INVALID_RECORD)),
        (
            "a last offset delta that lies",
            batch(|b| b.last_offset_delta = 1000),
            Produce(INVALID_RECORD),
        ),
        (
            "a negative last offset delta",
            batch(|b| b.last_offset_delta = -5),
            Produce(INVALID_RECORD),
        ),
        (
            "a control batch",
            batch(|b| b.attributes = 0x20),
            Produce(INVALID_RECORD),
        ),
        (
            "a transactional batch without an id",
            batch(|b| {
                b.attributes = 0x10;
                (b.producer_id, b.producer_epoch, b.base_sequence) = (7, 0, 0);
            }),
            Produce(53),
        ),
        (
            "timestamps from the far future",
            batch(|b| {
                b.base_timestamp += 100 * 365 * 86_400_000;
                b.max_timestamp = b.base_timestamp;
            }),
            Produce(INVALID_TIMESTAMP),
        ),
        (
            "2^31-1 record headers",
            batch(|b| b.payload = record_with_headers(i64::from(i32::MAX))),
            Answer,
        ),
        (
            "-1 record headers",
            batch(|b| b.payload = record_with_headers(-1)),
            Answer,
        ),
        (
            "a record of negative length",
            batch(|b| b.payload = varint(-7)),
            Answer,
        ),
        (
            "a record longer than its batch",
            batch(|b| b.payload = varint(1 << 30)),
            Answer,
        ),
        (
            "a record behind the last",
            batch(|b| b.payload.extend(record(1, b"w"))),
            Answer,
        ),
        (
            "an offset delta of -1",
            batch(|b| b.payload = record(-1, b"v")),
            Answer,
        ),
        ("an unknown codec", batch(|b| b.attributes = 7), Answer),
        (
            "a snappy block of 4 GiB",
            batch(|b| {
                b.attributes = 2;
                b.payload = snappy_bomb();
            }),
            Answer,
        ),
        (
            "a zstd window of 128 MiB",
            batch(|b| {
                b.attributes = 4;
                b.payload = hex("28b52ffd0088010000");
            }),
            Answer,
        ),
        ("gzip that is not", batch(|b| b.attributes = 1), Answer),
        ("lz4 that is not", batch(|b| b.attributes = 3), Answer),
        (
            "the largest base offset",
            batch(|b| b.base_offset = i64::MAX),
            Produce(INVALID_RECORD),
        ),
        (
            "acks 2",
            frame(0, 3, &produce_body(2, &Batch::of(&[b"v"]).bytes()), false),
            Produce(21),
        ),
        (
            "acks -2",
            frame(0, 3, &produce_body(-2, &Batch::of(&[b"v"]).bytes()), false),
            Produce(21),
        ),
        (
            "acks 0 and a wrong CRC",
            {
                let mut records = Batch::of(&[b"v"]).bytes();
                records[20] ^= 1;
                frame(0, 3, &produce_body(0, &records), false)
            },
            Closed,
        ),
    ]
}

#[test]
fn record_batches() {
    run_both(batches);
}

fn fetches() -> Vec<Case> {
    let fetch = |replica: &str, partition: &str, offset: &str, max: &str| {
        let body = format!(
            "{replica} 00000000 00000001 {max} 00 00000001 0001 74 00000001 {partition} {offset} {max}"
        );
        frame(1, 4, &hex(&body), false)
    };
    let (any, zero, mib) = ("ffffffff", "00000000", "00100000");
    let start = "0000000000000000";
    let repeated = {
        let mut body = hex("ffffffff 00000000 00000001 00100000 00 00000001 0001 74 000186a0");
        body.extend(hex("00000000 0000000000000000 00100000").repeat(100_000));
        frame(1, 4, &body, false)
    };
    vec![
        (
            "Fetch as a follower",
            fetch("00000001", zero, start, mib),
            Answer,
        ),
        ("Fetch of partition -1", fetch(any, any, start, mib), Answer),
        (
            "Fetch of partition 2^31-1",
            fetch(any, "7fffffff", start, mib),
            Answer,
        ),
        (
            "Fetch from offset -1",
            fetch(any, zero, "ffffffffffffffff", mib),
            Answer,
        ),
        (
            "Fetch from offset 2^63-1",
            fetch(any, zero, "7fffffffffffffff", mib),
            Answer,
        ),
        ("Fetch of -1 bytes", fetch(any, zero, start, any), Answer),
        (
            "Fetch of 2^31-1 bytes",
            fetch(any, zero, start, "7fffffff"),
            Answer,
        ),
        ("Fetch of one partition 100,000 times", repeated, Answer),
        (
            "ListOffsets at the smallest timestamp",
            frame(
                2,
                1,
                &hex("ffffffff 00000001 0001 74 00000001 00000000 8000000000000000"),
                false,
            ),
            Answer,
        ),
        (
            "DeleteRecords to offset -2",
            frame(
                21,
                0,
                &hex("00000001 0001 74 00000001 00000000 fffffffffffffffe 00002710"),
                false,
            ),
            Answer,
        ),
        (
            "CreateTopics with 2^31-1 partitions",
            frame(
                19,
                2,
                &hex("00000001 0001 62 7fffffff 0001 00000000 00000000 00002710 00"),
                false,
            ),
            Answer,
        ),
        (
            "CreateTopics of ../../etc",
            frame(
                19,
                2,
                &[
                    &hex("00000001 0009")[..],
                    b"../../etc",
                    &hex("00000001 0001 00000000 00000000 00002710 00"),
                ]
                .concat(),
                false,
            ),
            Answer,
        ),
        (
            "a group named after a path",
            frame(
                9,
                1,
                &[&hex("000f")[..], b"../../acls\0\n/x/", &hex("00000000")].concat(),
                false,
            ),
            Answer,
        ),
    ]
}

#[test]
fn fetches_and_names() {
    run_both(fetches);
}

/// Thousands of connections that say nothing, or half a frame, cost almost nothing.
#[test]
fn idle_connections_and_half_sent_frames() {
    let mut broker = Ottla::start(&[]);
    let count = 2_000;
    let before = broker.resident_kib();
    let mut strangers: Vec<_> = (0..count).map(|_| broker.connect()).collect();
    for stranger in strangers.iter_mut().step_by(2) {
        stranger.send_raw(&hex("00000040 0003"));
    }
    check(&mut broker, "many idle", &frame(18, 0, b"", false), &Answer);
    let each = broker.resident_kib().saturating_sub(before) / count;
    assert!(each <= 12, "{each} KiB a connection");
}

/// Answers that nobody reads do not pile up.
#[test]
fn a_client_that_does_not_read() {
    let mut broker = Ottla::start(&[]);
    let before = broker.resident_kib();
    let mut stranger = broker.connect();
    stranger
        .stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let requests = frame(18, 0, b"", false).repeat(1_000);
    for _ in 0..200 {
        stranger.send_raw(&requests);
    }
    check(
        &mut broker,
        "deaf client",
        &frame(18, 0, b"", false),
        &Answer,
    );
    let growth = broker.resident_kib().saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more");
}

/// The positive control: a broker that swells or a slow bystander would be noticed.
#[test]
fn the_checks_can_fail() {
    let mut broker = Ottla::start(&[]);
    let closes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        check(&mut broker, "control", &frame(18, 0, b"", false), &Closed);
    }));
    assert!(
        closes.is_err(),
        "an answer where none is expected must fail the case"
    );
    let bystander = Bystander::start(broker.address);
    let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    thread::sleep(Duration::from_millis(400));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    bystander.stop.store(true, Ordering::Relaxed);
    let slowest = bystander.thread.join().unwrap().into_iter().max().unwrap();
    assert!(
        slowest > BYSTANDER_P99_MAX,
        "the bystander did not notice a stopped broker"
    );
}
