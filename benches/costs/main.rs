//! What a broker costs: start, memory, CPU seconds per GB in and out, latency. Prints a table, with
//! `--beside COMMAND` for another broker in a second column. `benches/run` is the way to call it.
//!
//! CPU seconds are those of the broker's process alone, from `/proc`; wall-clock figures swing with
//! whatever else the machine does, so judge by the ratio of one run.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod disk;
mod scrape;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::{Batch, Client, frame, hex, string};

/// Bytes of records in one Produce request: librdkafka's `batch.size` in a busy producer.
const BATCH_BYTES: usize = 1_000_000;
/// Lengths, deltas and the rest of a record that is not its value, at most: batches stay below
/// `message.max.bytes`.
const RECORD_OVERHEAD_BYTES: usize = 12;
/// Requests outstanding on the producer's connection.
const IN_FLIGHT: usize = 5;
const FETCH_BYTES: i32 = 1 << 20;
const IDLE_CONNECTIONS: u64 = 2_000;
const PARTITIONS: i32 = 1_000;
/// USER_HZ of every Linux on x86-64 and arm64.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;
const LATENCY_RATE: u64 = 1_000;
const LATENCY_RECORDS: u64 = 4_000;

/// One figure with its unit.
type Figure = (&'static str, f64);

struct Process {
    child: Child,
    address: SocketAddr,
    started: Instant,
    directory: Arc<tempfile::TempDir>,
}

impl Process {
    /// Runs `command` by a shell, with `{port}` and `{dir}` filled in, in a directory of its own that is
    /// removed with the process.
    fn start(command: &str) -> Self {
        Self::start_in(command, Arc::new(tempfile::tempdir().unwrap()))
    }

    fn start_in(command: &str, directory: Arc<tempfile::TempDir>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let command = command
            .replace("{port}", &address.port().to_string())
            .replace("{dir}", &directory.path().display().to_string());
        let log = File::create(directory.path().join("broker.log")).unwrap();
        let started = now();
        let child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        Self {
            child,
            address,
            started,
            directory,
        }
    }

    /// kill −9.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("broker.log")).unwrap()
    }

    /// Milliseconds from the start to the first acknowledged record.
    fn first_produce(&self) -> f64 {
        let batch = Batch::of(&[b"first"]).bytes();
        loop {
            assert!(
                self.started.elapsed() < Duration::from_secs(60),
                "nothing acknowledged in 60 s"
            );
            if TcpStream::connect(self.address).is_err() {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            let mut client = self.connect();
            let created = create_topic(&mut client, "first", 1, None);
            let produced = created.and_then(|()| produce_one(&mut client, "first", -1, &batch));
            if produced == Some(0) {
                return self.started.elapsed().as_secs_f64() * 1e3;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    fn status_kib(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// User and system seconds, those of threads that ended included.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum();
        ticks as f64 / CLOCK_TICKS_PER_SECOND
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        // Ten gigabytes may have to reach the disk.
        for _ in 0..2_400 {
            if self.child.try_wait().unwrap().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods)] // a bench measures real time
fn now() -> Instant {
    Instant::now()
}

/// CreateTopics v2; `None` if the broker does not answer with 0.
fn create_topic(
    client: &mut Client,
    name: &str,
    partitions: i32,
    config: Option<(&str, &str)>,
) -> Option<()> {
    let mut body = hex("00000001");
    body.extend(string(name));
    body.extend(partitions.to_be_bytes());
    body.extend(hex("0001 00000000"));
    body.extend(i32::from(config.is_some()).to_be_bytes());
    if let Some((key, value)) = config {
        body.extend([string(key), string(value)].concat());
    }
    body.extend(hex("00007530 00"));
    let response = client.request(19, 2, &body)?;
    let error = 4 + 4 + 2 + name.len();
    matches!(response[error..error + 2], [0, 0] | [0, 36]).then_some(())
}

fn produce_request(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Vec<u8> {
    let mut body = hex("ffff");
    body.extend(acks.to_be_bytes());
    body.extend(hex("00007530 00000001"));
    body.extend(string(topic));
    body.extend(hex("00000001"));
    body.extend(partition.to_be_bytes());
    body.extend(u32::try_from(batch.len()).unwrap().to_be_bytes());
    body.extend(batch);
    frame(0, 3, &body, false)
}

fn produce_error(topic: &str, response: &[u8]) -> i16 {
    let error = 4 + 4 + 2 + topic.len() + 4 + 4;
    i16::from_be_bytes(response[error..error + 2].try_into().unwrap())
}

fn produce_one(client: &mut Client, topic: &str, acks: i16, batch: &[u8]) -> Option<i16> {
    produce_to(client, topic, 0, acks, batch)
}

fn produce_to(
    client: &mut Client,
    topic: &str,
    partition: i32,
    acks: i16,
    batch: &[u8],
) -> Option<i16> {
    client.send_raw(&produce_request(topic, partition, acks, batch));
    client
        .receive()
        .map(|response| produce_error(topic, &response))
}

fn batch_of(record_bytes: usize, count: usize) -> Batch {
    let value = vec![b'x'; record_bytes];
    Batch::of(&vec![&value[..]; count])
}

/// Sends `gigabytes` of records, IN_FLIGHT requests at a time; returns CPU seconds per GB.
fn load_in(
    process: &Process,
    topic: &str,
    record_bytes: usize,
    partitions: i32,
    acks: i16,
    gigabytes: f64,
) -> f64 {
    let (requests, per_batch) = requests(record_bytes, partitions, gigabytes);
    load_batches(
        process,
        topic,
        (record_bytes, per_batch),
        partitions,
        acks,
        requests,
    ) / gigabytes
}

/// Sends so many Produce requests of one batch, to one partition after the other; returns CPU seconds.
fn load_batches(
    process: &Process,
    topic: &str,
    (record_bytes, per_batch): (usize, usize),
    partitions: i32,
    acks: i16,
    requests: usize,
) -> f64 {
    create_topic(&mut process.connect(), topic, partitions, None).unwrap();
    let batch = batch_of(record_bytes, per_batch).bytes();
    let mut reader = process.connect();
    let mut writer = Client {
        stream: reader.stream.try_clone().unwrap(),
    };
    let mut request = produce_request(topic, 0, acks, &batch);
    let partition_at = request.len() - batch.len() - 8;
    let before = process.cpu_seconds();
    for sent in 0..requests + IN_FLIGHT {
        if sent >= IN_FLIGHT {
            let response = reader.receive().expect("an answer to Produce");
            assert_eq!(produce_error(topic, &response), 0);
        }
        if sent < requests {
            let partition = i32::try_from(sent).unwrap() % partitions;
            request[partition_at..partition_at + 4].copy_from_slice(&partition.to_be_bytes());
            writer.send_raw(&request);
        }
    }
    process.cpu_seconds() - before
}

/// Requests that make so many gigabytes, and records in each.
fn requests(record_bytes: usize, partitions: i32, gigabytes: f64) -> (usize, usize) {
    let per_batch = (BATCH_BYTES / (record_bytes + RECORD_OVERHEAD_BYTES)).min(match partitions {
        1 => usize::MAX,
        _ => 16, // many partitions share what a producer has gathered in its linger time
    });
    let requests = (gigabytes * 1e9 / (per_batch * record_bytes) as f64) as usize;
    (requests.max(1), per_batch)
}

/// Reads what [`load_in`] wrote into one partition, all of it; returns CPU seconds per GB of records.
fn load_out(process: &Process, topic: &str, record_bytes: usize, gigabytes: f64) -> f64 {
    let (requests, per_batch) = requests(record_bytes, 1, gigabytes);
    let end = i64::try_from(requests * per_batch).unwrap();
    let mut client = process.connect();
    let before = process.cpu_seconds();
    let start = now();
    let mut offset = 0i64;
    while offset < end {
        assert!(
            start.elapsed() < Duration::from_secs(300),
            "{offset} of {end}"
        );
        // What was written at last may not be on disk yet: then there is nothing to see for a while.
        let response = fetch(&mut client, topic, offset, 100);
        let records = fetched_records(topic, &response);
        offset = next_offset(records).unwrap_or(offset);
    }
    (process.cpu_seconds() - before) / gigabytes
}

fn fetch(client: &mut Client, topic: &str, offset: i64, wait_ms: i32) -> Vec<u8> {
    let mut body = hex("ffffffff");
    body.extend(wait_ms.to_be_bytes());
    body.extend(hex("00000001 03200000 00 00000001"));
    body.extend(string(topic));
    body.extend(hex("00000001 00000000"));
    body.extend(offset.to_be_bytes());
    body.extend(FETCH_BYTES.to_be_bytes());
    client.request(1, 4, &body).expect("an answer to Fetch")
}

fn fetched_records<'a>(topic: &str, response: &'a [u8]) -> &'a [u8] {
    if response.len() < 12 + topic.len() {
        return b"";
    }
    let partition = 4 + 4 + 2 + topic.len() + 4 + 4;
    let aborted = i32::from_be_bytes(response[partition + 18..partition + 22].try_into().unwrap());
    &response[partition + 22 + 16 * usize::try_from(aborted).unwrap_or(0) + 4..]
}

/// The offset behind the last whole batch.
fn next_offset(mut records: &[u8]) -> Option<i64> {
    let mut next = None;
    while records.len() >= 61 {
        let base = i64::from_be_bytes(records[..8].try_into().unwrap());
        let length = 12 + u32::from_be_bytes(records[8..12].try_into().unwrap()) as usize;
        if records.len() < length {
            break;
        }
        next = Some(base + i64::from(i32::from_be_bytes(records[23..27].try_into().unwrap())) + 1);
        records = &records[length..];
    }
    next
}

/// Open loop: a record is due every millisecond, whatever the answers do. Returns the median time from
/// due to read by a consumer, in microseconds.
fn latency(process: &Process, topic: &str, flush_messages: Option<&str>) -> f64 {
    let config = flush_messages.map(|count| ("flush.messages", count));
    let mut client = process.connect();
    create_topic(&mut client, topic, 1, config).unwrap();
    assert_eq!(
        produce_one(&mut client, topic, -1, &batch_of(100, 1).bytes()),
        Some(0)
    );
    let start = now();
    let address = process.address;
    let name = topic.to_owned();
    let consumer = thread::spawn(move || {
        let mut client = Client::connect(address);
        let mut offset = 1;
        let mut seen = Vec::new();
        while seen.len() < LATENCY_RECORDS as usize {
            let response = fetch(&mut client, &name, offset, 500);
            let time = start.elapsed();
            if let Some(next) = next_offset(fetched_records(&name, &response)) {
                seen.extend((offset..next).map(|offset| (offset, time)));
                offset = next;
            }
        }
        seen
    });
    let mut reader = Client {
        stream: client.stream.try_clone().unwrap(),
    };
    let answers = thread::spawn(move || {
        for _ in 0..LATENCY_RECORDS {
            reader.receive().expect("an answer to Produce");
        }
    });
    let request = produce_request(topic, 0, -1, &batch_of(100, 1).bytes());
    let due = |record: u64| Duration::from_micros(record * 1_000_000 / LATENCY_RATE);
    for record in 0..LATENCY_RECORDS {
        thread::sleep(due(record).saturating_sub(start.elapsed()));
        client.send_raw(&request);
    }
    answers.join().unwrap();
    let seen = consumer
        .join()
        .unwrap()
        .into_iter()
        .skip(LATENCY_RECORDS as usize / 10);
    let mut times: Vec<_> = seen
        .map(|(offset, time)| time.saturating_sub(due(offset as u64 - 1)).as_secs_f64() * 1e6)
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(command: &str, parts: &str, scale: f64) -> Vec<Figure> {
    let wanted = |part: &str| parts.split(',').any(|name| name == part);
    let process = Process::start(command);
    let mut figures = vec![(
        "exec to first acknowledged produce, ms",
        process.first_produce(),
    )];
    thread::sleep(Duration::from_secs(2));
    if wanted("idle") {
        let before = process.cpu_seconds();
        thread::sleep(Duration::from_secs(10));
        figures.push((
            "idle CPU, % of a core",
            (process.cpu_seconds() - before) * 10.0,
        ));
        figures.push(("idle RSS, MiB", process.status_kib("VmRSS:") / 1024.0));
        let before = process.status_kib("VmRSS:");
        let mut clients: Vec<_> = (0..IDLE_CONNECTIONS).map(|_| process.connect()).collect();
        clients
            .iter_mut()
            .for_each(|client| drop(client.request(18, 0, b"")));
        let each = (process.status_kib("VmRSS:") - before) / IDLE_CONNECTIONS as f64;
        figures.push(("KiB per idle connection", each));
    }
    let warm_up = || load_in(&process, "warm", 1024, 1, 1, scale);
    if wanted("load") {
        warm_up();
        figures.push((
            "1 KiB, acks=1: CPU s per GB in",
            load_in(&process, "a", 1024, 1, 1, 2.0 * scale),
        ));
        figures.push((
            "1 KiB: CPU s per GB out",
            load_out(&process, "a", 1024, 2.0 * scale),
        ));
        figures.push((
            "1 KiB, acks=all: CPU s per GB in",
            load_in(&process, "b", 1024, 1, -1, scale),
        ));
        figures.push((
            "100 B, acks=1: CPU s per GB in",
            load_in(&process, "c", 100, 1, 1, scale),
        ));
        figures.push((
            "100 B: CPU s per GB out",
            load_out(&process, "c", 100, scale),
        ));
        figures.push((
            "100 B, acks=all: CPU s per GB in",
            load_in(&process, "d", 100, 1, -1, scale),
        ));
    }
    if wanted("latency") {
        figures.push((
            "page cache, 1000/s: end to end p50, us",
            latency(&process, "e", Some("9223372036854775807")),
        ));
        figures.push((
            "default topic, 1000/s: end to end p50, us",
            latency(&process, "f", None),
        ));
    }
    if wanted("partitions") {
        let cost = load_in(&process, "g", 1024, PARTITIONS, 1, scale);
        figures.push(("1,000 partitions, 16 KiB batches: CPU s per GB in", cost));
    }
    figures.push(("peak RSS, MiB", process.status_kib("VmHWM:") / 1024.0));
    drop(process);
    figures.extend(disk::measure(command, &wanted, scale));
    if wanted("scrape") {
        figures.extend(scrape::measure(command));
    }
    figures
}

/// Median microseconds of appending 4 KiB and `fdatasync`: what durability costs without a broker.
fn bare_sync() -> f64 {
    let file = tempfile::tempfile().unwrap();
    let mut times: Vec<f64> = (0..200)
        .map(|index: u64| {
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], index * 4096).unwrap();
            let start = now();
            file.sync_data().unwrap();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let parts =
        option("--parts").unwrap_or_else(|| "idle,load,latency,partitions,scrape".to_owned());
    let scale = option("--scale").map_or(1.0, |scale| scale.parse().unwrap());
    let binary = std::env::var("OTTLA").unwrap_or_else(|_| env!("CARGO_BIN_EXE_ottla").to_owned());
    let ours = format!(
        "{binary} --override listeners=PLAINTEXT://127.0.0.1:{{port}} --override log.dirs={{dir}}/data \
         --override metrics.listeners="
    );
    println!("bare 4 KiB append + fdatasync p50: {:.0} us", bare_sync());
    let ottla = measure(&ours, &parts, scale);
    let other = option("--beside").map(|command| measure(&command, &parts, scale));
    println!("{:52}{:>12}{:>12}{:>8}", "", "ottla", "beside", "ratio");
    for (index, (name, figure)) in ottla.iter().enumerate() {
        match other.as_ref().map(|other| other[index].1) {
            Some(beside) => {
                println!(
                    "{name:52}{figure:>12.2}{beside:>12.2}{:>8.2}",
                    figure / beside
                );
            }
            None => println!("{name:52}{figure:>12.2}{:>12}{:>8}", "-", "-"),
        }
    }
}
