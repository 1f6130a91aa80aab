//! The three steps that every record passes: a batch is validated, appended, and fetched again.
//!
//! `cargo bench --bench micro`; add a word to run only what has it in its name.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ottla::config::TopicConfig;
use ottla::log::{LogManager, LogManagerConfig};
use ottla::metadata::{Image, ImageListener, Partition as Role, Topic};
use ottla::protocol::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
use ottla::protocol::{Chunk, TopicKey};
use ottla::record::{BatchBuilder, ValidationRules, validate};
use ottla::replication::{
    Acks, AppendOptions, FetchBound, FetchLimits, FetchTarget, LogSlice, Partition, Replicas,
    ReplicasConfig, fetch,
};
use ottla::telemetry::Metrics;
use ottla::time::{Clock, SystemClock};
use ottla::types::{BrokerId, Compression, ErrorCode, TopicId, TopicPartition};

fn batch(records: usize, bytes: usize, compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new().compression(compression);
    let value = vec![b'v'; bytes];
    for _ in 0..records {
        builder.push(SystemClock.wall_ms(), None, Some(&value));
    }
    builder.build()
}

fn validation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("validate");
    let partition = TopicPartition::new("t", 0);
    let topic = TopicConfig {
        max_message_bytes: 16 << 20,
        ..TopicConfig::default()
    };
    for (name, records) in [
        ("150 x 100 B", batch(150, 100, Compression::None)),
        ("1000 x 1 KiB", batch(1000, 1024, Compression::None)),
        ("10000 x 100 B", batch(10_000, 100, Compression::None)),
        ("1000 x 1 KiB lz4", batch(1000, 1024, Compression::Lz4)),
    ] {
        let rules = ValidationRules {
            partition: &partition,
            topic: &topic,
            now_ms: SystemClock.wall_ms(),
            produce_version: 11,
            internal: false,
        };
        group.throughput(Throughput::Bytes(records.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| validate(&records, &rules).expect("a good batch"));
        });
    }
    group.finish();
}

/// Replicas of one topic that does not wait for the disk.
fn replicas(directory: &std::path::Path, partitions: usize) -> (Arc<LogManager>, Arc<Replicas>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let config = LogManagerConfig {
        directories: vec![directory.to_path_buf()],
        cluster_id: "bench".into(),
        node_id: 1,
        tail_cache_bytes: 16 << 20,
        initial_task_delay_ms: 3_600_000,
        flush_offset_checkpoint_interval_ms: 60_000,
        flush_start_offset_checkpoint_interval_ms: 60_000,
        retention_check_interval_ms: 300_000,
        high_watermark_checkpoint_interval_ms: 5_000,
        flush_scheduler_interval_ms: i64::MAX,
        producer_id_expiration_ms: 86_400_000,
        producer_id_expiration_check_interval_ms: 600_000,
        reserved_bytes: 0,
        recovery_threads: 1,
    };
    let logs = LogManager::open(config, Arc::clone(&clock)).expect("a log directory");
    let replicas = Arc::new(Replicas::new(
        ReplicasConfig::new(BrokerId(1)),
        Arc::clone(&logs),
        Arc::new(Metrics::new()),
        clock,
    ));
    logs.set_flush_listener(replicas.flush_listener());
    let role = Arc::new(Role::made(&[BrokerId(1)]));
    let topic = Topic {
        name: "t".into(),
        id: TopicId([1; 16]),
        partitions: vec![role; partitions],
        overrides: Default::default(),
        config: Arc::new(TopicConfig {
            flush_messages: i64::MAX,
            ..TopicConfig::default()
        }),
    };
    let mut image = Image::default();
    image.topic_names.insert(topic.id, Arc::clone(&topic.name));
    image
        .topics
        .insert(Arc::clone(&topic.name), Arc::new(topic));
    replicas.image_changed(&Image::default(), &Arc::new(image));
    (logs, replicas)
}

const OPTIONS: AppendOptions = AppendOptions {
    acks: Acks::Leader,
    produce_version: 11,
    internal: false,
    leader_epoch: -1,
};

fn append(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    let (logs, replicas) = replicas(directory.path(), 1);
    let partition = replicas.partition("t", 0).expect("a partition");
    let runtime = runtime();
    let mut group = criterion.benchmark_group("append");
    for (name, records) in [
        ("150 x 100 B", batch(150, 100, Compression::None)),
        ("1000 x 1 KiB", batch(1000, 1024, Compression::None)),
    ] {
        group.throughput(Throughput::Bytes(records.len() as u64));
        group.bench_function(name, |bencher| {
            // A copy each, as each comes in a frame of its own.
            bencher.iter_batched(
                || Bytes::copy_from_slice(&records),
                |records| runtime.block_on(partition.produce(records, OPTIONS)),
                BatchSize::LargeInput,
            );
        });
        // Pipelined, as producers do.
        group.throughput(Throughput::Bytes(5 * records.len() as u64));
        group.bench_function(format!("5 x {name}"), |bencher| {
            bencher.iter_batched(
                || [(); 5].map(|()| Bytes::copy_from_slice(&records)),
                |batches| {
                    let pending = batches.map(|records| partition.produce(records, OPTIONS));
                    runtime.block_on(async {
                        for appended in pending {
                            appended.await.expect("appended");
                        }
                    });
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
    logs.close();
}

fn fetching(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    let (logs, replicas) = replicas(directory.path(), 1000);
    let runtime = runtime();
    let all: Vec<Arc<Partition>> = (0..1000)
        .map(|index| replicas.partition("t", index).expect("a partition"))
        .collect();
    for partition in &all {
        let appended = partition.produce(batch(1, 1000, Compression::None), OPTIONS);
        runtime.block_on(appended).expect("appended");
    }
    let mut group = criterion.benchmark_group("fetch");
    for (name, count, offset) in [
        ("1 partition", 1, 0),
        ("100 partitions", 100, 0),
        ("1000 partitions", 1000, 0),
        ("1000 idle partitions", 1000, 1),
    ] {
        let targets: Vec<FetchTarget> = all[..count]
            .iter()
            .map(|partition| FetchTarget::new(Arc::clone(partition), offset, 1 << 20))
            .collect();
        group.bench_function(name, |bencher| {
            bencher.iter(|| runtime.block_on(respond(&targets)));
        });
    }
    group.bench_function("a parked poll of 1000 partitions", |bencher| {
        let targets: Vec<FetchTarget> = all
            .iter()
            .map(|partition| FetchTarget::new(Arc::clone(partition), 1, 1 << 20))
            .collect();
        let limits = FetchLimits {
            deadline: SystemClock.now() + Duration::from_millis(1),
            may_wait: true,
            ..limits()
        };
        bencher.iter(|| runtime.block_on(fetch(&targets, limits)));
    });
    group.finish();
    logs.close();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

fn limits() -> FetchLimits {
    FetchLimits {
        deadline: SystemClock.now(),
        may_wait: false,
        bytes_min: 1,
        bytes_max: 50 << 20,
        bound: FetchBound::HighWatermark,
        replica: None,
    }
}

/// Reads and puts the response together, as the handler does.
async fn respond(targets: &[FetchTarget]) -> Vec<Chunk> {
    let fetched = fetch(targets, limits()).await;
    let partitions = fetched.into_iter().zip(0..).map(|(read, index)| {
        let read = read.expect("a read");
        FetchPartitionResponse {
            high_watermark: read.high_watermark,
            records: match read.slice {
                LogSlice::Memory(pieces) => pieces.into_iter().map(Chunk::Bytes).collect(),
                LogSlice::File(range) => vec![Chunk::File {
                    file: range.file,
                    position: range.position,
                    bytes: range.bytes,
                    unreadable: range.unreadable,
                }],
            },
            ..FetchPartitionResponse::failed(index, ErrorCode::None)
        }
    });
    let response = FetchResponse {
        topics: vec![FetchTopicResponse {
            topic: TopicKey::Name("t".into()),
            partitions: partitions.collect(),
        }],
        ..FetchResponse::default()
    };
    response.encode(12)
}

criterion_group!(benches, validation, append, fetching);
criterion_main!(benches);
