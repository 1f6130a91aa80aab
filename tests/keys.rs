//! What single configuration keys do, seen from outside; `configs.rs` has those that change at run time.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{
    Answer, Batch, Client, Ottla, PATIENCE, ask, create_topic, fetch_body, fetched, frame, hex,
    produce_body, produced, string,
};

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn produce(client: &mut Client, acks: i16, batch: &Batch) -> i16 {
    let body = produce_body(acks, &batch.bytes());
    produced(&client.request(0, 3, &body).expect("an answer")).0
}

/// What Metadata v2 says of the brokers and of the topics that are named.
struct Described {
    brokers: Vec<(i32, String)>,
    cluster_id: String,
    partitions: Vec<i32>,
}

fn metadata(client: &mut Client, topics: &[&str]) -> Described {
    let mut body = i32::try_from(topics.len()).unwrap().to_be_bytes().to_vec();
    topics.iter().for_each(|topic| body.extend(string(topic)));
    let mut answer = ask(client, 3, 2, &body);
    let brokers = (0..answer.i32())
        .map(|_| {
            let id = answer.i32();
            answer.string();
            answer.i32();
            (id, answer.string())
        })
        .collect();
    let cluster_id = answer.string();
    answer.i32();
    let partitions = (0..answer.i32())
        .map(|_| {
            answer.i16();
            answer.string();
            answer.take(1);
            let count = answer.i32();
            for _ in 0..count {
                answer.take(2 + 4 + 4);
                for _ in 0..2 {
                    let nodes = usize::try_from(answer.i32()).unwrap();
                    answer.take(4 * nodes);
                }
            }
            count
        })
        .collect();
    Described {
        brokers,
        cluster_id,
        partitions,
    }
}

#[test]
fn a_broker_is_who_its_keys_say() {
    let id = "AAECAwQFBgcICQoLDA0ODw";
    let mut broker = Ottla::start(&["node.id=7", "broker.rack=r1", &format!("cluster.id={id}")]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let described = metadata(&mut client, &[]);
    assert_eq!(described.brokers, [(7, "r1".to_owned())]);
    assert_eq!(described.cluster_id, id);
    assert_eq!(broker.stop(), Some(0));
    // A registry that is new takes the cluster's id from the data.
    let data = broker.directory.path().join("data");
    std::fs::remove_file(data.join("registry.redb")).unwrap();
    broker.set_overrides(&["node.id=7"]);
    broker.spawn();
    let mut client = broker.connect();
    assert_eq!(metadata(&mut client, &[]).cluster_id, id);
    assert_eq!(broker.stop(), Some(0));
    // What belongs to another cluster is not taken over, and nothing is left behind of the attempt.
    std::fs::remove_file(data.join("registry.redb")).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(["--override", "listeners=PLAINTEXT://127.0.0.1:0"])
        .args(["--override", "node.id=7"])
        .args(["--override", "cluster.id=EBESExQVFhcYGRobHB0eHw"])
        .args(["--override", &format!("log.dirs={}", data.display())])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains(&format!("belongs to the cluster {id}")),
        "{said}"
    );
    assert!(!data.join("registry.redb").exists());
}

/// FindCoordinator v0, until there is one.
fn find_coordinator(client: &mut Client, group: &str) {
    wait_until("there is a coordinator", || {
        ask(client, 10, 0, &string(group)).i16() == 0
    });
}

#[test]
fn the_offsets_topic_is_made_as_asked() {
    let broker = Ottla::start(&[
        "offsets.topic.num.partitions=3",
        "offsets.topic.segment.bytes=2000000",
        "offsets.topic.replication.factor=3",
    ]);
    let mut client = broker.connect();
    find_coordinator(&mut client, "g");
    let described = metadata(&mut client, &["__consumer_offsets"]);
    assert_eq!(described.partitions, [3]);
    let body = [
        &hex("00000001 02")[..],
        &string("__consumer_offsets"),
        &hex("00000001"),
        &string("segment.bytes"),
        &[0],
    ];
    let answer = client.request(32, 1, &body.concat()).unwrap();
    let value = string("2000000");
    assert!(answer.windows(value.len()).any(|part| part == value));
}

/// JoinGroup v1 with a session timeout: (error, member).
fn join(client: &mut Client, group: &str, session_ms: i32) -> (i16, String) {
    let body = [
        string(group),
        session_ms.to_be_bytes().to_vec(),
        hex("00002710"),
        string(""),
        string("consumer"),
        hex("00000001"),
        string("range"),
        hex("00000000"),
    ];
    let mut answer = ask(client, 11, 1, &body.concat());
    let error = answer.i16();
    answer.i32();
    answer.string();
    answer.string();
    (error, answer.string())
}

#[test]
fn groups_keep_to_their_bounds() {
    let broker = Ottla::start(&[
        "group.initial.rebalance.delay.ms=600",
        "group.min.session.timeout.ms=1000",
        "group.max.session.timeout.ms=20000",
        "group.max.size=1",
    ]);
    let mut client = broker.connect();
    find_coordinator(&mut client, "g");
    assert_eq!(join(&mut client, "g", 999).0, 26, "INVALID_SESSION_TIMEOUT");
    assert_eq!(join(&mut client, "g", 20_001).0, 26);
    let start = Instant::now();
    assert_eq!(join(&mut client, "g", 1_000).0, 0);
    assert!(start.elapsed() >= Duration::from_millis(600));
    let mut other = broker.connect();
    assert_eq!(
        join(&mut other, "g", 20_000).0,
        81,
        "GROUP_MAX_SIZE_REACHED"
    );
    let broker = Ottla::start(&["group.initial.rebalance.delay.ms=0"]);
    let mut client = broker.connect();
    find_coordinator(&mut client, "g");
    let start = Instant::now();
    assert_eq!(join(&mut client, "g", 6_000).0, 0);
    assert!(start.elapsed() < Duration::from_millis(500));
}

/// OffsetCommit v2 of `t-0` by nobody in particular.
fn commit(client: &mut Client, retention_ms: i64, metadata: &str) -> i16 {
    let body = [
        string("g"),
        hex("ffffffff 0000"),
        retention_ms.to_be_bytes().to_vec(),
        hex("00000001"),
        string("t"),
        hex("00000001 00000000 0000000000000005"),
        string(metadata),
    ];
    let mut answer = ask(client, 8, 2, &body.concat());
    answer.take(4 + 3 + 4 + 4);
    answer.i16()
}

/// OffsetFetch v1 of `t-0`.
fn committed(client: &mut Client) -> i64 {
    let body = [
        string("g"),
        hex("00000001"),
        string("t"),
        hex("00000001 00000000"),
    ];
    let mut answer = ask(client, 9, 1, &body.concat());
    answer.take(4 + 3 + 4 + 4);
    answer.i64()
}

#[test]
fn committed_offsets_are_bounded_in_size_and_time() {
    let broker = Ottla::start(&[
        "offset.metadata.max.bytes=10",
        "offsets.retention.check.interval.ms=100",
    ]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    find_coordinator(&mut client, "g");
    wait_until("the group is loaded", || commit(&mut client, -1, "") == 0);
    assert_eq!(commit(&mut client, -1, "0123456789"), 0);
    assert_eq!(
        commit(&mut client, -1, "0123456789a"),
        12,
        "OFFSET_METADATA_TOO_LARGE"
    );
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(committed(&mut client), 5, "it has a week");
    assert_eq!(commit(&mut client, 1, ""), 0);
    wait_until("it expires at the next look", || {
        committed(&mut client) == -1
    });
    let seldom = Ottla::start(&[]);
    let mut client = seldom.connect();
    create_topic(&mut client, "t", 1);
    find_coordinator(&mut client, "g");
    wait_until("the group is loaded", || commit(&mut client, 1, "") == 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(committed(&mut client), 5, "nobody looks for ten minutes");
}

/// Fetch v7 of `t-0` and `t-1` that begins a session: its id, and the bytes of the answer.
fn fetch_both(client: &mut Client) -> (i32, usize) {
    let partition = |index: u8| {
        let offsets = hex("0000000000000000 ffffffffffffffff 00100000");
        [vec![0, 0, 0, index], offsets].concat()
    };
    let body = [
        hex("ffffffff 00000000 00000001 7fffffff 00 00000000 00000000 00000001"),
        string("t"),
        hex("00000002"),
        partition(0),
        partition(1),
        hex("00000000"),
    ];
    let mut answer = ask(client, 1, 7, &body.concat());
    answer.i32();
    assert_eq!(answer.i16(), 0);
    (answer.i32(), answer.rest())
}

#[test]
fn answers_are_bounded() {
    let broker = Ottla::start(&[
        "fetch.max.bytes=1024",
        "max.incremental.fetch.session.cache.slots=0",
        "max.request.partition.size.limit=2",
    ]);
    let wide = Ottla::start(&[]);
    let mut answers = [&broker, &wide].map(|broker| {
        let mut client = broker.connect();
        create_topic(&mut client, "t", 5);
        let records = Batch::of(&[&[7; 2_000]]).bytes();
        for partition in [0, 1] {
            let mut body = produce_body(-1, &records);
            body[22] = partition;
            assert_eq!(produced(&client.request(0, 3, &body).unwrap()), (0, 0));
        }
        let fetched = fetch_both(&mut client);
        // DescribeTopicPartitions v0 without a limit of its own.
        let body = [&hex("02 0274 00 7fffffff ff 00")[..]].concat();
        client.send_raw(&frame(75, 0, &body, true));
        let mut answer = Answer::of(client.receive().unwrap());
        answer.take(4 + 1 + 4);
        assert_eq!((answer.compact(), answer.i16()), (1, 0));
        answer.take(2 + 16 + 1);
        (fetched, answer.compact())
    });
    let ((session, bytes), partitions) = answers[0];
    assert_eq!(session, 0, "no session is kept");
    assert!(bytes < 3_000, "one batch, however large");
    assert_eq!(partitions, 2);
    let ((session, bytes), partitions) = std::mem::take(&mut answers[1]);
    assert!(session > 0);
    assert!(bytes > 4_000);
    assert_eq!(partitions, 5);
}

#[test]
fn a_compacted_broker_wants_keys() {
    let broker = Ottla::start(&["log.cleanup.policy=compact"]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    assert_eq!(produce(&mut client, -1, &Batch::of(&[b"no key"])), 87);
}

/// How often a log was flushed, by the metrics.
fn flushes(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let name = "kafka_log_logflushstats_logflushrateandtimems_count ";
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn with_metrics(overrides: &[&str]) -> (Ottla, u16) {
    let port = free_port();
    let metrics = format!("metrics.listeners=127.0.0.1:{port}");
    let mut all = vec![metrics.as_str()];
    all.extend(overrides);
    (Ottla::start(&all), port)
}

#[test]
fn logs_are_flushed_by_count_and_by_time() {
    let one = Batch::of(&[b"x"]);
    let (broker, port) = with_metrics(&["log.flush.interval.messages=3"]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    for _ in 0..2 {
        assert_eq!(produce(&mut client, -1, &one), 0);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(flushes(port), 0);
    assert_eq!(produce(&mut client, -1, &one), 0);
    wait_until("the third flushes", || flushes(port) == 1);

    let many = "log.flush.interval.messages=1000";
    let (broker, port) = with_metrics(&[many, "log.flush.interval.ms=100"]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    assert_eq!(produce(&mut client, -1, &one), 0);
    wait_until("the time flushes", || flushes(port) == 1);

    // The scheduler looks at that time only now and then, and not before its first delay.
    let (broker, port) = with_metrics(&[
        many,
        "log.flush.interval.ms=1",
        "log.flush.scheduler.interval.ms=200",
        "log.initial.task.delay.ms=1500",
    ]);
    let start = Instant::now();
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    assert_eq!(produce(&mut client, -1, &one), 0);
    wait_until("the scheduler flushes", || flushes(port) == 1);
    assert!(start.elapsed() > Duration::from_millis(1_000));
}

/// The only file of the partition with that ending.
fn file_of_partition(broker: &Ottla, ending: &str) -> std::path::PathBuf {
    let directory = broker.directory.path().join("data/t-0");
    let found = std::fs::read_dir(directory).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension()
            .is_some_and(|extension| extension == ending)
            .then_some(path)
    });
    found.unwrap()
}

#[test]
fn an_index_has_an_entry_for_each_interval() {
    let entries = ["100", "100000"].map(|interval| {
        let mut broker = Ottla::start(&[&format!("log.index.interval.bytes={interval}")]);
        let mut client = broker.connect();
        create_topic(&mut client, "t", 1);
        for _ in 0..20 {
            assert_eq!(produce(&mut client, 1, &Batch::of(&[&[7; 200]])), 0);
        }
        assert_eq!(broker.stop(), Some(0));
        std::fs::metadata(file_of_partition(&broker, "index"))
            .unwrap()
            .len()
            / 8
    });
    assert_eq!(entries, [19, 0]);
}

#[test]
fn high_watermarks_are_noted_while_the_broker_runs() {
    let broker = Ottla::start(&["replica.high.watermark.checkpoint.interval.ms=50"]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    assert_eq!(produce(&mut client, -1, &Batch::of(&[b"a", b"b"])), 0);
    let path = broker
        .directory
        .path()
        .join("data/replication-offset-checkpoint");
    wait_until("it is written", || {
        std::fs::read_to_string(&path).is_ok_and(|text| text.lines().any(|line| line == "t 0 2"))
    });
}

/// DescribeProducers v0 of `t-0`: how many.
fn producers(client: &mut Client) -> usize {
    client.send_raw(&frame(61, 0, &hex("02 0274 02 00000000 00 00"), true));
    let mut answer = Answer::of(client.receive().unwrap());
    answer.take(4 + 1 + 4 + 1 + 2 + 1 + 4);
    assert_eq!(answer.i16(), 0);
    answer.take(1);
    answer.compact()
}

#[test]
fn producers_expire_as_the_cluster_says_now() {
    let broker = Ottla::start(&[
        "log.initial.task.delay.ms=0",
        "producer.id.expiration.check.interval.ms=50",
    ]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let idempotent = Batch {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        ..Batch::of(&[b"x"])
    };
    assert_eq!(produce(&mut client, -1, &idempotent), 0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(producers(&mut client), 1, "it has a day");
    // IncrementalAlterConfigs v0 of all brokers.
    let body = [
        &hex("00000001 04")[..],
        &string(""),
        &hex("00000001"),
        &string("producer.id.expiration.ms"),
        &[0],
        &string("1"),
        &[0],
    ];
    let answer = client.request(44, 0, &body.concat()).unwrap();
    assert_eq!(answer[8..10], [0, 0]);
    wait_until("it is forgotten", || producers(&mut client) == 0);
}

#[test]
fn connections_are_taken_up_at_a_rate() {
    let broker = Ottla::start(&["max.connection.creation.rate=8"]);
    let start = Instant::now();
    let mut clients: Vec<Client> = (0..16).map(|_| broker.connect()).collect();
    for client in &mut clients {
        assert!(
            client.request(18, 0, &[]).is_some(),
            "slowed down, not refused"
        );
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(800), "{took:?}");
    let fast = Ottla::start(&[]);
    let start = Instant::now();
    for _ in 0..16 {
        assert!(fast.connect().request(18, 0, &[]).is_some());
    }
    assert!(start.elapsed() < Duration::from_millis(800));
}

#[test]
fn one_request_at_a_time_is_enough() {
    let broker = Ottla::start(&["queued.max.requests=1"]);
    let mut clients: Vec<Client> = (0..8).map(|_| broker.connect()).collect();
    create_topic(&mut clients[0], "t", 1);
    // A fetch that waits for records keeps nobody from bringing them.
    let waiting = frame(1, 4, &fetch_body(0, 20_000), false);
    for client in &mut clients[1..] {
        client.send_raw(&waiting);
    }
    assert_eq!(produce(&mut clients[0], -1, &Batch::of(&[b"x"])), 0);
    for client in &mut clients[1..] {
        let answer = client.receive().unwrap();
        let (error, high_watermark, records) = fetched(&answer[4..]);
        assert_eq!((error, high_watermark), (0, 1));
        assert!(!records.is_empty());
    }
}

/// The old names of `node.id` and `log.dirs`, from the environment, over the built-in configuration.
#[test]
fn old_names_count_where_nobody_wrote_the_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .env("KAFKA_BROKER_ID", "7")
        .env("KAFKA_LOG_DIR", directory.path().join("old"))
        .env("KAFKA_LISTENERS", format!("PLAINTEXT://127.0.0.1:{port}"))
        .env("KAFKA_METRICS_LISTENERS", "")
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let mut client = Client::connect(([127, 0, 0, 1], port).into());
    assert_eq!(metadata(&mut client, &[]).brokers[0].0, 7);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(directory.path().join("old/meta.properties").exists());
    assert!(!directory.path().join("ottla-data").exists());
}

#[test]
fn a_listener_has_a_bound_of_its_own() {
    let other = free_port();
    let mut broker = Ottla::start(&["listener.name.plaintext.max.connections=2"]);
    let here = broker.address;
    broker.terminate();
    broker.exit_code();
    let both = format!("listeners=PLAINTEXT://{here},OTHER://127.0.0.1:{other}");
    broker.set_overrides(&[
        &both,
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "listener.name.plaintext.max.connections=2",
    ]);
    broker.spawn();
    wait_until("what asked whether it serves is gone", || {
        let mut clients = [broker.connect(), broker.connect()];
        let served = clients
            .iter_mut()
            .all(|client| client.request(18, 0, &[]).is_some());
        served && {
            let refused = broker.connect().request(18, 0, &[]).is_none();
            let mut elsewhere = Client::connect(([127, 0, 0, 1], other).into());
            assert!(elsewhere.request(18, 0, &[]).is_some());
            assert!(refused, "a third connection");
            true
        }
    });
}

/// Stops the process without its knowledge, so that only the kernel answers.
struct Paused(rustix::process::Pid);

impl Paused {
    fn new(broker: &Ottla) -> Self {
        let pid = i32::try_from(broker.pid()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let paused = Self(pid);
        let deadline = Instant::now() + PATIENCE;
        while !paused.stands_still() {
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        paused
    }

    /// Each thread finishes the system call that it is in.
    fn stands_still(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.0.as_raw_nonzero());
        let mut tasks = std::fs::read_dir(tasks).unwrap();
        tasks.all(|task| {
            let stat = task.unwrap().path().join("stat");
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
            state.is_none_or(|state| state.starts_with('T'))
        })
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

#[test]
fn the_backlog_bounds_who_waits_to_be_accepted() {
    let waiting = |overrides: &[&str]| {
        let broker = Ottla::start(overrides);
        let _paused = Paused::new(&broker);
        let mut connected = Vec::new();
        while connected.len() < 8 {
            let wait = Duration::from_millis(300);
            match TcpStream::connect_timeout(&broker.address, wait) {
                Ok(socket) => connected.push(socket),
                Err(_) => break,
            }
        }
        connected.len()
    };
    assert!(waiting(&["socket.listen.backlog.size=1"]) < 8);
    assert_eq!(waiting(&[]), 8);
}

/// How many bytes can be written to a broker that reads nothing.
fn taken_unread(overrides: &[&str]) -> usize {
    let broker = Ottla::start(overrides);
    let _paused = Paused::new(&broker);
    let mut socket = TcpStream::connect(broker.address).unwrap();
    let wait = Some(Duration::from_millis(300));
    socket.set_write_timeout(wait).unwrap();
    let mut taken = 0;
    while let Ok(bytes) = std::io::Write::write(&mut socket, &[0; 4096]) {
        taken += bytes;
    }
    taken
}

#[test]
fn the_receive_buffer_is_as_large_as_asked() {
    let small = taken_unread(&["socket.receive.buffer.bytes=4096"]);
    let large = taken_unread(&["socket.receive.buffer.bytes=200000"]);
    assert!(small + 100_000 < large, "{small} and {large}");
}

/// How much of a large answer has left a broker that is stopped before anybody reads.
fn sent_unread(overrides: &[&str]) -> usize {
    let broker = Ottla::start(overrides);
    let mut client = broker.connect();
    // One that does not grow with what arrives.
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 65_536).unwrap();
    create_topic(&mut client, "t", 1);
    let value = vec![7; 900_000];
    for _ in 0..10 {
        assert_eq!(produce(&mut client, -1, &Batch::of(&[&value])), 0);
    }
    client.send_raw(&frame(1, 4, &fetch_body(0, 0), false));
    std::thread::sleep(Duration::from_millis(500));
    let _paused = Paused::new(&broker);
    let wait = Some(Duration::from_millis(300));
    client.stream.set_read_timeout(wait).unwrap();
    let (mut sent, mut buffer) = (0, vec![0; 1 << 20]);
    while let Ok(bytes @ 1..) = std::io::Read::read(&mut client.stream, &mut buffer) {
        sent += bytes;
    }
    sent
}

#[test]
fn the_send_buffer_is_as_large_as_asked() {
    let small = sent_unread(&["socket.send.buffer.bytes=4096"]);
    let large = sent_unread(&["socket.send.buffer.bytes=200000"]);
    assert!(small + 100_000 < large, "{small} and {large}");
}
