//! One process, real sockets, literal bytes.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use support::{
    Batch, Client, Ottla, PATIENCE, create_topic, fetch_body, fetched, frame, hex, produce_body,
    produced, string,
};

fn produce(client: &mut Client, acks: i16, batch: &Batch) -> (i16, i64) {
    produced(
        &client
            .request(0, 3, &produce_body(acks, &batch.bytes()))
            .expect("an answer"),
    )
}

/// The batch as a consumer gets it: base offset and leader epoch are the broker's.
fn stored(batch: &Batch, base_offset: i64) -> Vec<u8> {
    let mut bytes = batch.bytes();
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].fill(0);
    bytes
}

fn fetch(client: &mut Client, offset: i64) -> Vec<u8> {
    let response = client
        .request(1, 4, &fetch_body(offset, 0))
        .expect("an answer");
    let (error, _, records) = fetched(&response);
    assert_eq!(error, 0);
    records.to_vec()
}

#[test]
fn what_is_produced_is_fetched_byte_for_byte() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let first = Batch::of(&[b"a", b"b", b"c"]);
    let second = Batch::of(&[b"d"]);
    assert_eq!(produce(&mut client, -1, &first), (0, 0));
    assert_eq!(produce(&mut client, 1, &second), (0, 3));
    assert_eq!(produce(&mut client, -1, &second), (0, 4));
    let all = [stored(&first, 0), stored(&second, 3), stored(&second, 4)].concat();
    assert_eq!(fetch(&mut client, 0), all);
    assert_eq!(
        fetch(&mut client, 2),
        all,
        "the batch that holds the offset comes whole"
    );
    assert_eq!(fetch(&mut client, 4), stored(&second, 4));
    assert_eq!(fetch(&mut client, 5), b"");
    let response = client.request(1, 4, &fetch_body(6, 0)).unwrap();
    assert_eq!(fetched(&response), (1, -1, &b""[..]), "OFFSET_OUT_OF_RANGE");
}

#[test]
fn requests_of_one_connection_are_answered_in_order() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let batches: Vec<_> = (0..200)
        .map(|n: i32| Batch::of(&[n.to_string().as_bytes()]))
        .collect();
    let mut pipelined = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        let acks = [-1, 1, 0][index % 3];
        pipelined.extend(frame(0, 3, &produce_body(acks, &batch.bytes()), false));
        if index % 10 == 9 {
            pipelined.extend(frame(18, 0, b"", false));
        }
    }
    client.send_raw(&pipelined);
    for index in 0..batches.len() {
        if index % 3 != 2 {
            let response = client.receive().unwrap();
            assert_eq!(produced(&response[4..]), (0, index as i64));
        }
        if index % 10 == 9 {
            assert!(client.receive().unwrap().len() > 50, "ApiVersions");
        }
    }
    let all: Vec<u8> = batches
        .iter()
        .enumerate()
        .flat_map(|(index, batch)| stored(batch, index as i64))
        .collect();
    // The last one was not asked to be on disk, and is not shown before it is.
    let start = Instant::now();
    let mut found = fetch(&mut client, 0);
    while found.len() < all.len() && start.elapsed() < Duration::from_secs(5) {
        found = fetch(&mut client, 0);
    }
    assert_eq!(found, all);
}

#[test]
fn a_fetch_waits_for_records_and_no_longer_than_asked() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let start = Instant::now();
    let response = client.request(1, 4, &fetch_body(0, 300)).unwrap();
    assert_eq!(fetched(&response), (0, 0, &b""[..]));
    assert!(
        start.elapsed() >= Duration::from_millis(290),
        "{:?}",
        start.elapsed()
    );

    client.send_raw(&frame(1, 4, &fetch_body(0, 25_000), false));
    assert!(client.is_silent(Duration::from_millis(100)));
    let batch = Batch::of(&[b"woken"]);
    assert_eq!(produce(&mut broker.connect(), -1, &batch), (0, 0));
    let response = client.receive().unwrap();
    assert_eq!(fetched(&response[4..]), (0, 1, &stored(&batch, 0)[..]));
}

#[test]
fn acks_0_is_not_answered() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let batch = Batch::of(&[b"v"]);
    client.send_raw(&frame(0, 3, &produce_body(0, &batch.bytes()), false));
    assert!(client.is_silent(Duration::from_millis(100)));
    assert_eq!(produce(&mut client, -1, &batch), (0, 1));
}

#[test]
fn records_survive_a_clean_stop_and_a_kill() {
    let mut broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let mut all = Vec::new();
    for round in 0..6 {
        for _ in 0..5 {
            let batch = Batch::of(&[format!("round {round}").as_bytes()]);
            let offset = all.len() as i64;
            assert_eq!(produce(&mut client, -1, &batch), (0, offset));
            all.push(stored(&batch, offset));
        }
        if round % 2 == 0 {
            broker.kill();
        } else {
            assert_eq!(broker.stop(), Some(0), "{}", broker.log());
        }
        broker.spawn();
        client = broker.connect();
        assert_eq!(fetch(&mut client, 0), all.concat(), "after round {round}");
    }
}

/// Base offsets of the segments of `t-0`.
fn segments(broker: &Ottla) -> Vec<i64> {
    let entries = std::fs::read_dir(broker.directory.path().join("data/t-0")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut bases: Vec<i64> = names
        .filter_map(|name| name.strip_suffix(".log")?.parse().ok())
        .collect();
    bases.sort_unstable();
    bases
}

fn wait_for_segments(broker: &Ottla, expected: &[i64]) {
    let end = Instant::now() + Duration::from_secs(20);
    while segments(broker) != expected {
        assert!(Instant::now() < end, "{:?}", segments(broker));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn old_records_go_and_stay_away() {
    let mut broker = Ottla::start(&[
        "log.retention.hours=1",
        "log.retention.ms=4000",
        "log.retention.check.interval.ms=50",
        "log.initial.task.delay.ms=10",
        "log.segment.delete.delay.ms=0",
    ]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let old = Batch {
        base_timestamp: 1_000,
        max_timestamp: 1_000,
        ..Batch::of(&[b"a", b"b"])
    };
    assert_eq!(produce(&mut client, -1, &old), (0, 0));
    wait_for_segments(&broker, &[2]);
    let out_of_range = |client: &mut Client, offset: i64| {
        let response = client.request(1, 4, &fetch_body(offset, 0)).unwrap();
        fetched(&response).0 == 1
    };
    assert!(out_of_range(&mut client, 1));
    let young = Batch::of(&[b"c"]);
    assert_eq!(produce(&mut client, -1, &young), (0, 2));
    assert_eq!(fetch(&mut client, 2), stored(&young, 2));
    broker.kill();
    broker.spawn();
    let mut client = broker.connect();
    assert!(out_of_range(&mut client, 1));
    // Nobody asks for the partition after a clean stop: it goes by what the stop noted.
    assert_eq!(produce(&mut client, -1, &Batch::of(&[b"d"])), (0, 3));
    assert_eq!(broker.stop(), Some(0));
    broker.spawn();
    wait_for_segments(&broker, &[4]);
    let mut client = broker.connect();
    assert!(out_of_range(&mut client, 3));
    assert_eq!(produce(&mut client, -1, &old), (0, 4));
}

#[test]
fn a_retry_of_an_idempotent_producer_gets_its_first_offset() {
    let mut broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    // InitProducerId v0 without transactional id: throttle, error, producer id, epoch
    let response = client.request(22, 0, &hex("ffff 00007530")).unwrap();
    assert_eq!(response[4..6], [0, 0]);
    let producer_id = i64::from_be_bytes(response[6..14].try_into().unwrap());
    let batch = |sequence: i32, value: &[u8]| {
        let mut batch = Batch::of(&[value]);
        (batch.producer_id, batch.producer_epoch, batch.base_sequence) = (producer_id, 0, sequence);
        batch
    };
    let first = batch(0, b"first");
    assert_eq!(produce(&mut client, -1, &first), (0, 0));
    assert_eq!(
        produce(&mut broker.connect(), -1, &first),
        (0, 0),
        "a duplicate"
    );
    assert_eq!(produce(&mut client, -1, &batch(1, b"second")), (0, 1));
    assert_eq!(
        produce(&mut client, -1, &batch(3, b"gap")).0,
        45,
        "OUT_OF_ORDER_SEQUENCE_NUMBER"
    );
    broker.kill();
    broker.spawn();
    let mut client = broker.connect();
    assert_eq!(
        produce(&mut client, -1, &batch(1, b"second")),
        (0, 1),
        "a duplicate, remembered"
    );
    assert_eq!(produce(&mut client, -1, &batch(2, b"third")), (0, 2));
    let mut fenced = batch(3, b"old");
    fenced.producer_epoch = -1;
    assert_ne!(produce(&mut client, -1, &fenced).0, 0);
}

#[test]
fn api_versions_answers_what_it_serves() {
    let broker = Ottla::start(&[]);
    let mut client = broker.connect();
    let v0 = client.request(18, 0, b"").unwrap();
    assert_eq!(v0[..2], [0, 0]);
    assert_eq!(
        v0[6..12],
        hex("0000 0000 000d"),
        "Produce is claimed from version 0"
    );
    // A version that we do not know: body of version 0 with error 35, and the connection goes on.
    client.send_raw(&hex("0000000b 0012 0063 00000007 ffff 00"));
    let response = client.receive().unwrap();
    assert_eq!(response[..6], hex("00000007 0023"));
    let mut v3 = frame(18, 3, b"\x05test\x021\0", true);
    client.send_raw(&v3);
    assert_eq!(client.receive().unwrap()[4..6], [0, 0]);
    // A software name that Kafka refuses: INVALID_REQUEST.
    let name = v3.len() - 7;
    v3[name] = b' ';
    client.send_raw(&v3);
    assert_eq!(client.receive().unwrap()[4..6], [0, 42]);
}

/// Error code of the one topic in a Metadata v1 response, and how many partitions it has.
fn described(answer: &[u8], topic: &str) -> (i16, i32) {
    // brokers 1, id, host, port, rack; controller; topics 1
    let error = 4 + 4 + 2 + "127.0.0.1".len() + 4 + 2 + 4 + 4;
    let partitions = error + 2 + 2 + topic.len() + 1;
    let code = i16::from_be_bytes(answer[error..error + 2].try_into().unwrap());
    let count = i32::from_be_bytes(answer[partitions..partitions + 4].try_into().unwrap());
    (code, count)
}

#[test]
fn metadata_creates_the_topic_that_is_asked_for() {
    let body = [&hex("00000001")[..], &string("made")].concat();
    let ask = |broker: &Ottla| described(&broker.connect().request(3, 1, &body).unwrap(), "made");
    let broker = Ottla::start(&["num.partitions=3"]);
    assert_eq!(
        ask(&broker),
        (3, 0),
        "the first answer says so, as Kafka's does"
    );
    assert_eq!(ask(&broker), (0, 3));
    let refused = Ottla::start(&["auto.create.topics.enable=false"]);
    assert_eq!(ask(&refused), (3, 0));
    assert_eq!(ask(&refused), (3, 0));
}

#[test]
fn each_listener_tells_its_own_address() {
    let broker = Ottla::start(&[]);
    let second = broker.address.port().wrapping_add(1).max(1025);
    let first = broker.address.port();
    drop(broker);
    let listeners =
        format!("listeners=INTERNAL://127.0.0.1:{first},EXTERNAL-1://127.0.0.1:{second},");
    let advertised = format!(
        "advertised.listeners=INTERNAL://127.0.0.1:{first},EXTERNAL-1://broker.example:19999"
    );
    let map = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL-1:PLAINTEXT";
    let inter = "inter.broker.listener.name=INTERNAL";
    let Some(broker) = Ottla::try_start(&[&listeners, &advertised, map, inter], first) else {
        return eprintln!("port {second} was taken; nothing was checked");
    };
    let host = |port: u16| {
        let answer = Client::connect(([127, 0, 0, 1], port).into()).request(3, 0, &hex("00000000"));
        String::from_utf8_lossy(&answer.unwrap()).into_owned()
    };
    assert!(host(first).contains("127.0.0.1"));
    assert!(host(second).contains("broker.example"));
    drop(broker);
}

#[test]
fn sigterm_answers_what_is_in_flight_and_exits_with_0() {
    let mut broker = Ottla::start(&[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    client.send_raw(&frame(1, 4, &fetch_body(0, 25_000), false));
    assert!(client.is_silent(Duration::from_millis(50)));
    let start = Instant::now();
    assert_eq!(broker.stop(), Some(0), "{}", broker.log());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let answer = client.receive().expect("the long poll is answered");
    assert_eq!(fetched(&answer[4..]).0, 0);
    assert!(
        TcpStream::connect(broker.address).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn a_second_signal_ends_the_broker_at_once() {
    let mut broker = Ottla::start(&[]);
    // A client that does not read its answers holds up a clean stop for a while.
    let mut deaf = broker.connect();
    deaf.request(18, 0, b"").expect("it serves");
    deaf.stream
        .set_write_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let requests = frame(18, 0, b"", false).repeat(1_000);
    while deaf.stream.write_all(&requests).is_ok() {}
    broker.terminate();
    std::thread::sleep(Duration::from_millis(300));
    assert!(broker.is_alive(), "it waits for the answers");
    let start = Instant::now();
    assert_eq!(broker.stop(), Some(130), "{}", broker.log());
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn metrics_and_health_are_served_over_http() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut broker = Ottla::start(&[&format!("metrics.listeners=http://127.0.0.1:{port}")]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    assert_eq!(produce(&mut client, -1, &Batch::of(&[b"a", b"b"])), (0, 0));
    assert_eq!(produce(&mut client, 5, &Batch::of(&[b"a"])).0, 21);
    let unknown = [
        &hex("ffffffff 00000001")[..],
        &string("no.such"),
        &hex("00000001 00000000 ffffffffffffffff"),
    ]
    .concat();
    client.request(2, 1, &unknown).unwrap();
    let told = format!("metrics=\"http://127.0.0.1:{port}\"");
    assert!(broker.log().contains(&told), "{}", broker.log());
    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").ends_with("\r\n\r\nready\n"));
    let config = get("/config");
    let (_, config) = config.split_once("\r\n\r\n").unwrap();
    let config: serde_json::Value = serde_json::from_str(config).unwrap();
    assert_eq!(config["config"]["metrics.listeners"]["source"], "argument");
    assert_eq!(config["config"]["num.partitions"]["source"], "default");
    let has = |metrics: &str, line: &str| {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    };
    // A request is counted when its answer has been sent: it may have arrived before.
    let metrics_with = |line: &str| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = get("/metrics");
            if metrics.lines().any(|l| l == line) || Instant::now() > deadline {
                has(&metrics, line);
                return metrics;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let metrics = metrics_with("kafka_network_requestchannel_responsequeuesize 0");
    has(
        &metrics,
        "kafka_server_brokertopicmetrics_messagesin_total{topic=\"t\"} 2",
    );
    has(
        &metrics,
        "kafka_log_logflushstats_logflushrateandtimems_count 1",
    );
    has(
        &metrics,
        "kafka_network_requestmetrics_requests_total{request=\"Produce\",version=\"3\"} 2",
    );
    for (request, error) in [
        ("Produce", "NONE"),
        ("Produce", "INVALID_REQUIRED_ACKS"),
        ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("CreateTopics", "NONE"),
    ] {
        let labels = format!("request=\"{request}\",error=\"{error}\"");
        has(
            &metrics,
            &format!("kafka_network_requestmetrics_errors_total{{{labels}}} 1"),
        );
    }
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name}\n{metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let times = ["total", "local", "remote", "responsequeue", "responsesend"].map(|part| {
        let name = format!("kafka_network_requestmetrics_{part}timems");
        let label = "{request=\"Produce\"}";
        assert_eq!(value(&format!("{name}_count{label}")), 2.0, "{part}");
        value(&format!("{name}_sum{label}"))
    });
    let [total, local, remote, queue, send] = times;
    assert!(remote > 0.0 && send > 0.0, "{times:?}: a flush and a write");
    let sum = local + remote + queue + send;
    assert!((total - sum).abs() < 0.1, "{times:?}");
    assert_eq!(value("kafka_network_requestchannel_requestqueuesize"), 0.0);
    let offsets = [
        "kafka_log_log_logendoffset{topic=\"t\",partition=\"0\"} 2",
        "kafka_topic_partition_current_offset{topic=\"t\",partition=\"0\"} 2",
    ];
    offsets.iter().for_each(|line| has(&metrics, line));
    create_topic(&mut client, "empty", 1);
    // A Fetch in version 0, as no client of the last ten years sends it.
    assert!(broker.connect().request(1, 0, b"").is_none());
    let old =
        "client_id=\"t\",client_software_name=\"unknown\",client_software_version=\"unknown\"";
    let metrics = metrics_with(&format!(
        "ottla_client_too_old_for_kafka_4_requests_total{{{old},request=\"FetchConsumer\",version=\"0\"}} 1"
    ));
    has(
        &metrics,
        "kafka_topic_partition_current_offset{topic=\"empty\",partition=\"0\"} 0",
    );
    // A clean stop is remembered: what nobody has asked for yet is shown as well.
    broker.stop();
    broker.spawn();
    let metrics = get("/metrics");
    offsets.iter().for_each(|line| has(&metrics, line));
}

#[test]
fn a_wrong_configuration_stops_the_start_and_says_why() {
    let cases = [
        ("num.partitions=many", "num.partitions"),
        ("listeners=SASL_SSL://127.0.0.1:9092", "SASL_SSL"),
        ("log.segment.bytes=14", "log.segment.bytes"),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners",
        ),
    ];
    for (setting, named) in cases {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_ottla"))
            .arg("--override")
            .arg(format!("log.dirs={}", directory.path().display()))
            .arg("--override")
            .arg(setting)
            .output()
            .unwrap();
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success(), "{setting}: {printed}");
        assert!(printed.contains(named), "{setting}: {printed}");
        assert!(!printed.contains("panicked"), "{setting}: {printed}");
    }
}

#[test]
fn a_second_broker_on_the_same_directory_is_refused() {
    let broker = Ottla::start(&[]);
    let data = broker.directory.path().join("data");
    let output = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(["--override", &format!("log.dirs={}", data.display())])
        .args([
            "--override",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "--override",
            "metrics.listeners=",
        ])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("data"), "names the directory: {printed}");
}
