//! What the disk's promises cost: recovery, the flush that `acks=all` waits for, many partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::support::Client;
use super::{
    Figure, Process, batch_of, create_topic, load_batches, now, produce_error, produce_one,
    produce_request, produce_to,
};

const NEVER: &str = "9223372036854775807";
/// File descriptors that a broker with many partitions gets.
const DESCRIPTORS: u32 = 4096;
const RECOVERED_PARTITIONS: i32 = 10_000;
/// Of the partitions that are recovered: four batches each make 1 MB a partition.
const RECOVERED_BATCH: (usize, usize) = (1024, 245);
const SPREAD: [i32; 3] = [1, 1_000, 10_000];
/// 16 KiB: what a producer gathers for each of many partitions in its linger time.
const SPREAD_BATCH: (usize, usize) = (1024, 16);
const PRODUCERS: usize = 16;
const PRODUCER_BATCH: (usize, usize) = (100, 1_000);
const PRODUCER_IN_FLIGHT: usize = 5;
const WRITER_BYTES_PER_SECOND: f64 = 200e6;
const PATIENCE: Duration = Duration::from_secs(120);

pub fn measure(command: &str, wanted: &dyn Fn(&str) -> bool, scale: f64) -> Vec<Figure> {
    let mut figures = Vec::new();
    if wanted("recovery") {
        figures.extend(recovery(command, scale));
    }
    if wanted("flush") {
        figures.extend(flush(command, scale));
    }
    if wanted("beside") {
        figures.extend(beside(command, scale));
    }
    if wanted("spread") {
        figures.extend(spread(command, scale));
    }
    figures
}

/// Kill −9 and a clean stop with 10,000 partitions and 1 MB in each, all under a small `ulimit -n`.
fn recovery(command: &str, scale: f64) -> Vec<Figure> {
    let command = format!("sh -c 'ulimit -n {DESCRIPTORS}; exec {command}'");
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut process = Process::start_in(&command, Arc::clone(&directory));
    process.first_produce();
    let requests = (4.0 * scale * f64::from(RECOVERED_PARTITIONS)) as usize;
    load_batches(
        &process,
        "many",
        RECOVERED_BATCH,
        RECOVERED_PARTITIONS,
        1,
        requests,
    );
    process.kill();
    let after_kill = Process::start_in(&command, Arc::clone(&directory));
    let first = produce_somewhere(&after_kill);
    let recovered = loop {
        if after_kill.log().contains("recovered all partitions") {
            break after_kill.started.elapsed().as_secs_f64() * 1e3;
        }
        assert!(after_kill.started.elapsed() < PATIENCE, "not recovered");
        thread::sleep(Duration::from_millis(5));
    };
    let stopping = now();
    drop(after_kill);
    let stop = stopping.elapsed().as_secs_f64() * 1e3;
    let after_stop = Process::start_in(&command, directory);
    let clean = produce_somewhere(&after_stop);
    vec![
        ("kill -9, 10,000 partitions: first acked produce, ms", first),
        ("kill -9, 10,000 partitions: all recovered, ms", recovered),
        ("clean stop of them, ms", stop),
        ("clean restart: first acked produce, ms", clean),
    ]
}

/// Milliseconds from the start to an acknowledged record in a partition that nobody has asked for yet.
fn produce_somewhere(process: &Process) -> f64 {
    let batch = batch_of(100, 1).bytes();
    let partition = RECOVERED_PARTITIONS / 3;
    loop {
        assert!(process.started.elapsed() < PATIENCE, "nothing acknowledged");
        if std::net::TcpStream::connect(process.address).is_err() {
            thread::sleep(Duration::from_micros(200));
            continue;
        }
        let mut client = process.connect();
        if produce_to(&mut client, "many", partition, -1, &batch) == Some(0) {
            return process.started.elapsed().as_secs_f64() * 1e3;
        }
    }
}

/// How much of the page cache's rate a producer of `acks=all` keeps where each acknowledgement waits for
/// the disk, in per cent; the better of two turns each.
fn flush(command: &str, scale: f64) -> Vec<Figure> {
    let process = Process::start(command);
    process.first_produce();
    let turn = |name: &str, flush_messages| producers_rate(&process, name, flush_messages, scale);
    turn("warm", NEVER);
    let (cached, synced) = (turn("cached-1", NEVER), turn("synced-1", "1"));
    let cached = cached.max(turn("cached-2", NEVER));
    let synced = synced.max(turn("synced-2", "1"));
    let per_second = PRODUCER_BATCH.1 as f64;
    vec![
        (
            "acks=all, 16 producers, cached: records/s",
            cached * per_second,
        ),
        (
            "acks=all, 16 producers, synced: records/s",
            synced * per_second,
        ),
        ("synced / cached, %", 100.0 * synced / cached),
    ]
}

/// Batches a second of 16 producers that make each of their batches.
fn producers_rate(process: &Process, topic: &str, flush_messages: &str, scale: f64) -> f64 {
    let config = Some(("flush.messages", flush_messages));
    let partitions = i32::try_from(PRODUCERS).unwrap();
    create_topic(&mut process.connect(), topic, partitions, config).unwrap();
    let count = (2_000.0 * scale) as usize;
    let start = now();
    thread::scope(|scope| {
        for partition in 0..partitions {
            let mut client = process.connect();
            scope.spawn(move || {
                for sent in 0..count + PRODUCER_IN_FLIGHT {
                    if sent >= PRODUCER_IN_FLIGHT {
                        let response = client.receive().expect("an answer to Produce");
                        assert_eq!(produce_error(topic, &response), 0);
                    }
                    if sent < count {
                        let batch = batch_of(PRODUCER_BATCH.0, PRODUCER_BATCH.1).bytes();
                        client.send_raw(&produce_request(topic, partition, -1, &batch));
                    }
                }
            });
        }
    });
    (PRODUCERS * count) as f64 / start.elapsed().as_secs_f64()
}

/// p99 of a record at `acks=all`, 500 a second, alone and beside 200 MB/s at `acks=1`.
fn beside(command: &str, scale: f64) -> Vec<Figure> {
    let process = Process::start(command);
    process.first_produce();
    let alone = acks_all_p99(&process, scale);
    let stop = AtomicBool::new(false);
    let (p99, rate) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&process, &stop));
        thread::sleep(Duration::from_secs(2));
        let p99 = acks_all_p99(&process, scale);
        stop.store(true, Ordering::Relaxed);
        (p99, writer.join().unwrap())
    });
    vec![
        ("acks=all p99 alone, us", alone),
        ("acks=all p99 beside a writer, us", p99),
        ("the writer, MB/s", rate / 1e6),
        ("beside / alone", p99 / alone),
    ]
}

fn acks_all_p99(process: &Process, scale: f64) -> f64 {
    let mut client = process.connect();
    create_topic(&mut client, "careful", 1, None).unwrap();
    let batch = batch_of(100, 1).bytes();
    let count = (5_000.0 * scale) as u32;
    let start = now();
    let mut times: Vec<f64> = (0..count)
        .map(|record| {
            let due = Duration::from_millis(2) * record;
            thread::sleep(due.saturating_sub(start.elapsed()));
            let sent = now();
            assert_eq!(produce_one(&mut client, "careful", -1, &batch), Some(0));
            sent.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Writes 200 MB/s at `acks=1`; returns what came of it, in bytes a second.
fn write_until(process: &Process, stop: &AtomicBool) -> f64 {
    let mut client: Client = process.connect();
    create_topic(&mut client, "careless", 1, None).unwrap();
    let batch = batch_of(1024, 240).bytes();
    let start = now();
    let mut bytes = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let due = Duration::from_secs_f64(bytes / WRITER_BYTES_PER_SECOND);
        thread::sleep(due.saturating_sub(start.elapsed()));
        assert_eq!(produce_one(&mut client, "careless", 1, &batch), Some(0));
        bytes += batch.len() as f64;
    }
    bytes / start.elapsed().as_secs_f64()
}

/// CPU seconds per GB at one batch size with 1, 1,000 and 10,000 partitions, each written to before.
fn spread(command: &str, scale: f64) -> Vec<Figure> {
    let command = format!("sh -c 'ulimit -n {DESCRIPTORS}; exec {command}'");
    let process = Process::start(&command);
    process.first_produce();
    let requests = (scale * 1e9 / (SPREAD_BATCH.0 * SPREAD_BATCH.1) as f64) as usize;
    let names = [
        "16 KiB batches, 1 partition: CPU s per GB in",
        "16 KiB batches, 1,000 partitions: CPU s per GB in",
        "16 KiB batches, 10,000 partitions: CPU s per GB in",
    ];
    let mut figures = Vec::new();
    for (name, partitions) in names.into_iter().zip(SPREAD) {
        let topic = format!("spread-{partitions}");
        let load = |requests| load_batches(&process, &topic, SPREAD_BATCH, partitions, 1, requests);
        load(partitions as usize);
        figures.push((name, load(requests) / scale));
    }
    figures
}
