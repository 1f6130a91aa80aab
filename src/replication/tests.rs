//! Partitions over real logs in a temporary directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::shared::Shared;
use super::{
    Acks, AppendFailure, AppendOptions, FetchBound, FetchLimits, FetchSource, FetchTarget,
    LogSlice, OffsetQuery, Partition, PartitionRead, Replicas, ReplicasConfig, fetch,
};
use crate::config::{CleanupPolicy, TopicConfig};
use crate::log::gated_disk::{Gate, GatedDisk};
use crate::log::{Executor, InlineExecutor, LogManager, LogManagerConfig};
use crate::metadata::{self, Image, ImageListener, Topic};
use crate::record::BatchBuilder;
use crate::telemetry::Metrics;
use crate::time::{Clock, SystemClock};
use crate::types::{BrokerId, ErrorCode, NO_EPOCH, Offset, TopicId, TopicPartition};

mod leading;

const ME: BrokerId = BrokerId(1);

/// A broker's replicas over a directory of their own.
struct Fixture {
    replicas: Arc<Replicas>,
    logs: Arc<LogManager>,
    gate: Arc<Gate>,
    image: Mutex<Arc<Image>>,
    _directory: Option<TempDir>,
}

impl Fixture {
    fn new() -> Self {
        Self::over(None)
    }

    fn inline() -> Self {
        Self::over(Some(Arc::new(InlineExecutor)))
    }

    fn over(executor: Option<Arc<dyn Executor>>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut fixture = Self::at(directory.path().into(), executor);
        fixture._directory = Some(directory);
        fixture
    }

    fn at(path: PathBuf, executor: Option<Arc<dyn Executor>>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let gate = Arc::new(Gate::default());
        let config = LogManagerConfig::for_tests(path);
        let disk = Arc::new(GatedDisk(Arc::clone(&gate)));
        let logs = LogManager::open_on(config, Arc::clone(&clock), disk).unwrap();
        let metrics = Arc::new(Metrics::new());
        let config = ReplicasConfig::new(ME);
        let shared = Shared::new(config, Arc::clone(&logs), metrics, clock, executor);
        let replicas = Arc::new(Replicas::over(shared));
        logs.set_flush_listener(replicas.flush_listener());
        Self {
            replicas,
            logs,
            gate,
            image: Mutex::default(),
            _directory: None,
        }
    }

    /// Changes the image and tells the replicas.
    fn change(&self, change: impl FnOnce(&mut Image)) {
        let mut image = self.image.lock();
        let mut next = Image::clone(&image);
        next.revision += 1;
        change(&mut next);
        let next = Arc::new(next);
        self.replicas.image_changed(&image, &next);
        *image = next;
    }

    fn create(&self, name: &str, id: u8, config: TopicConfig) -> Arc<Partition> {
        self.put_topic(name, id, config, 0);
        self.replicas.partition(name, 0).unwrap()
    }

    fn put_topic(&self, name: &str, id: u8, config: TopicConfig, leader_epoch: i32) {
        let topic = Topic {
            name: name.into(),
            id: TopicId([id; 16]),
            partitions: vec![Arc::new(metadata::Partition {
                leader_epoch,
                ..metadata::Partition::made(&[ME])
            })],
            overrides: Default::default(),
            config: Arc::new(config),
        };
        self.change(|image| {
            image.topic_names.insert(topic.id, Arc::clone(&topic.name));
            image
                .topics
                .insert(Arc::clone(&topic.name), Arc::new(topic));
        });
    }

    fn delete(&self, name: &str) {
        self.change(|image| {
            let topic = image.topics.remove(name).unwrap();
            image.topic_names.remove(&topic.id);
        });
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.gate.set_closed(false);
        self.logs.close();
    }
}

fn page_cache() -> TopicConfig {
    TopicConfig {
        flush_messages: i64::MAX,
        ..TopicConfig::default()
    }
}

fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(SystemClock.wall_ms(), None, Some(value.as_bytes()));
    }
    builder.build()
}

fn idempotent(sequence: i32, value: &str) -> Bytes {
    let mut builder = BatchBuilder::new().producer(77, 0, sequence);
    builder.push(SystemClock.wall_ms(), None, Some(value.as_bytes()));
    builder.build()
}

fn options(acks: Acks) -> AppendOptions {
    AppendOptions {
        acks,
        produce_version: 11,
        internal: false,
        leader_epoch: -1,
    }
}

async fn produce(partition: &Arc<Partition>, values: &[&str], acks: Acks) -> Offset {
    let appended = partition.produce(batch(values), options(acks)).await;
    appended.unwrap().base_offset
}

fn limits(wait: Duration, bytes_min: usize) -> FetchLimits {
    FetchLimits {
        deadline: SystemClock.now() + wait,
        may_wait: !wait.is_zero(),
        bytes_min,
        bytes_max: 1 << 20,
        bound: FetchBound::HighWatermark,
        replica: None,
    }
}

fn bytes_of(read: &PartitionRead) -> Vec<u8> {
    match &read.slice {
        LogSlice::Memory(pieces) => pieces.concat(),
        LogSlice::File(range) => {
            let mut bytes = vec![0; usize::try_from(range.bytes).unwrap()];
            let file = &range.file;
            std::os::unix::fs::FileExt::read_exact_at(&**file, &mut bytes, range.position).unwrap();
            bytes
        }
    }
}

fn contains(read: &PartitionRead, value: &str) -> bool {
    let bytes = bytes_of(read);
    bytes.windows(value.len()).any(|at| at == value.as_bytes())
}

fn soon() -> Instant {
    SystemClock.now() + Duration::from_millis(30)
}

fn later() -> Instant {
    SystemClock.now() + Duration::from_secs(20)
}

#[tokio::test]
async fn what_is_acknowledged_is_read_back() {
    for fixture in [Fixture::new(), Fixture::inline()] {
        let partition = fixture.create("t", 1, TopicConfig::default());
        assert_eq!(produce(&partition, &["a", "b"], Acks::All).await, 0);
        assert_eq!(produce(&partition, &["c"], Acks::All).await, 2);
        assert_eq!(partition.high_watermark(), 3);
        let read = partition.read(0, 1 << 20, FetchBound::HighWatermark, true);
        let read = read.await.unwrap();
        assert!(contains(&read, "a") && contains(&read, "c"));
        assert_eq!((read.high_watermark, read.log_start_offset), (3, 0));
        // The whole batch around the offset.
        let read = partition.read(1, 1, FetchBound::HighWatermark, true);
        assert!(contains(&read.await.unwrap(), "a"));
        let read = partition.read(3, 1, FetchBound::HighWatermark, true);
        assert_eq!(read.await.unwrap().bytes, 0);
        for offset in [-1, 4] {
            let read = partition.read(offset, 1, FetchBound::HighWatermark, true);
            assert_eq!(read.await.unwrap_err(), ErrorCode::OffsetOutOfRange);
        }
    }
}

#[tokio::test]
async fn nobody_sees_what_is_not_on_disk() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    produce(&partition, &["first"], Acks::All).await;
    fixture.gate.set_closed(true);
    assert_eq!(produce(&partition, &["second"], Acks::Leader).await, 1);
    assert_eq!(partition.high_watermark(), 1);
    let read = partition.read(1, 1 << 20, FetchBound::HighWatermark, true);
    assert_eq!(read.await.unwrap().bytes, 0);
    let unflushed = partition.read(1, 1 << 20, FetchBound::LogEnd, true);
    assert!(contains(&unflushed.await.unwrap(), "second"));
    let timed_out = partition.committed(2, soon()).await;
    assert_eq!(timed_out, Err(ErrorCode::RequestTimedOut));
    let committed = partition.committed(2, later());
    fixture.gate.set_closed(false);
    committed.await.unwrap();
    assert_eq!(partition.high_watermark(), 2);
}

/// Well before records are synced that nobody waits for.
const PROMPTLY: Duration = Duration::from_secs(3);

async fn promptly<T>(wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PROMPTLY, wait).await;
    waited.expect("nobody asked for the flush")
}

#[tokio::test]
async fn records_that_nobody_waits_for_are_synced_for_whoever_asks() {
    let fixture = Fixture::new();
    let unasked = fixture.create("unasked", 9, TopicConfig::default());
    produce(&unasked, &["a"], Acks::Leader).await;
    let topic = |name, id| fixture.create(name, id, TopicConfig::default());
    let latest = OffsetQuery::Latest(FetchBound::HighWatermark);

    let listed = topic("listed", 1);
    produce(&listed, &["a"], Acks::Leader).await;
    let asked = listed.offset_for(latest, FetchBound::HighWatermark, NO_EPOCH);
    assert_eq!(promptly(asked).await.unwrap().offset, 1);

    let searched = topic("searched", 2);
    produce(&searched, &["a"], Acks::Leader).await;
    let by_time = OffsetQuery::Timestamp(0);
    let asked = searched.offset_for(by_time, FetchBound::HighWatermark, NO_EPOCH);
    assert_eq!(promptly(asked).await.unwrap().offset, 0);

    let deleted = topic("deleted", 3);
    produce(&deleted, &["a"], Acks::Leader).await;
    assert_eq!(promptly(deleted.delete_records(-1, later())).await, Ok(1));

    let acknowledged = topic("acknowledged", 4);
    produce(&acknowledged, &["a"], Acks::Leader).await;
    promptly(produce(&acknowledged, &["b"], Acks::All)).await;
    assert_eq!(acknowledged.high_watermark(), 2);

    let fetched = topic("fetched", 5);
    produce(&fetched, &["a"], Acks::Leader).await;
    let targets = [FetchTarget::new(Arc::clone(&fetched), 0, 1 << 20)];
    let found = promptly(fetch(&targets, limits(Duration::from_secs(20), 1))).await;
    assert!(contains(found[0].as_ref().unwrap(), "a"));

    // A fetch that does not wait finds nothing, and the next one does.
    let polled = topic("polled", 6);
    produce(&polled, &["a"], Acks::Leader).await;
    let poll = async {
        while polled.high_watermark() == 0 {
            let read = polled.read(0, 1, FetchBound::HighWatermark, true);
            read.await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    promptly(poll).await;

    // Whoever waits already is heard at the append.
    let awaited = topic("awaited", 7);
    awaited.open().await.unwrap();
    let waiting = tokio::spawn(awaited.committed(1, later()));
    while awaited.state.lock().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    produce(&awaited, &["a"], Acks::Leader).await;
    promptly(waiting).await.unwrap().unwrap();

    assert_eq!(unasked.high_watermark(), 0, "that one was not asked for");
}

#[tokio::test]
async fn a_stalled_disk_does_not_hold_up_a_question_about_offsets() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    produce(&partition, &["first"], Acks::All).await;
    fixture.gate.set_closed(true);
    produce(&partition, &["second"], Acks::Leader).await;
    let latest = OffsetQuery::Latest(FetchBound::HighWatermark);
    let asked = partition.offset_for(latest, FetchBound::HighWatermark, NO_EPOCH);
    assert_eq!(promptly(asked).await.unwrap().offset, 1);
}

#[tokio::test]
async fn who_gives_up_is_told_where_the_batch_is() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    produce(&partition, &["a", "b"], Acks::All).await;
    fixture.gate.set_closed(true);
    let pending = partition.produce(batch(&["c"]), options(Acks::All));
    // Behind it on the lane: by then it is in the log.
    produce(&partition, &["d"], Acks::Leader).await;
    let appended = pending.give_up().unwrap();
    assert_eq!((appended.base_offset, appended.last_offset), (2, 2));
    let latest = |bound| partition.offset_for(OffsetQuery::Latest(bound), bound, NO_EPOCH);
    assert_eq!(latest(FetchBound::HighWatermark).await.unwrap().offset, 2);
    assert_eq!(
        latest(FetchBound::LogEnd).await.unwrap().offset,
        4,
        "as followers see it"
    );
    let refused = partition.produce(Bytes::from_static(b"no batch"), options(Acks::All));
    assert_eq!(refused.give_up(), None);
    fixture.gate.set_closed(false);
    produce(&partition, &["e"], Acks::All).await;
}

#[tokio::test]
async fn a_page_cache_topic_does_not_wait_for_the_disk() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, page_cache());
    // The first record waits until `partition.metadata` is there, as in Kafka.
    assert_eq!(produce(&partition, &["a"], Acks::All).await, 0);
    fixture.gate.set_closed(true);
    assert_eq!(produce(&partition, &["b"], Acks::All).await, 1);
    assert_eq!(partition.high_watermark(), 2);
}

#[tokio::test]
async fn a_duplicate_waits_as_long_as_its_first_write() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    partition
        .produce(idempotent(0, "a"), options(Acks::All))
        .await
        .unwrap();
    fixture.gate.set_closed(true);
    // Its connection is lost before the flush; the retry comes over another one.
    drop(partition.produce(idempotent(1, "b"), options(Acks::All)));
    let mut retry = partition.produce(idempotent(1, "b"), options(Acks::All));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut retry).await;
    assert!(early.is_err(), "the first write is not on disk");
    // At acks=1 it is answered at once, and the older duplicate at any acks.
    let leader = partition.produce(idempotent(1, "b"), options(Acks::Leader));
    let leader = leader.await.unwrap();
    assert!(leader.duplicate && leader.base_offset == 1);
    let older = partition.produce(idempotent(0, "a"), options(Acks::All));
    assert_eq!(older.await.unwrap().base_offset, 0);
    fixture.gate.set_closed(false);
    let retried = retry.await.unwrap();
    assert!(retried.duplicate);
    assert_eq!((retried.base_offset, partition.high_watermark()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_keeps_the_order_of_calls() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let partition = Arc::clone(&partition);
        producers.spawn(async move {
            let pending: Vec<_> = (0..200)
                .map(|_| partition.produce(batch(&["x", "y"]), options(Acks::All)))
                .collect();
            // Awaited in the wrong order: the calls count.
            let mut offsets = Vec::new();
            for pending in pending.into_iter().rev() {
                offsets.push(pending.await.unwrap().base_offset);
            }
            offsets.reverse();
            assert!(offsets.is_sorted(), "{offsets:?}");
            offsets
        });
    }
    let mut all = Vec::new();
    while let Some(offsets) = producers.join_next().await {
        all.extend(offsets.unwrap());
    }
    all.sort_unstable();
    let expected: Vec<Offset> = (0..800).map(|number| number * 2).collect();
    assert_eq!(all, expected);
    assert!(partition.state.lock().waiters.is_empty());
}

#[tokio::test]
async fn a_fetch_sleeps_until_there_is_something() {
    let fixture = Fixture::new();
    let partitions: Vec<_> = (0..10)
        .map(|id| fixture.create(&format!("t{id}"), id, TopicConfig::default()))
        .collect();
    let targets = |offset| -> Vec<FetchTarget> {
        let all = partitions.iter();
        all.map(|partition| FetchTarget::new(Arc::clone(partition), offset, 1 << 20))
            .collect()
    };
    // Nothing comes: an empty answer at the deadline, and nobody stays parked.
    let asked = targets(0);
    let nothing = fetch(&asked, limits(Duration::from_millis(20), 1)).await;
    assert!(nothing.iter().all(|read| read.as_ref().unwrap().bytes == 0));
    let parked = |partition: &Arc<Partition>| !partition.state.lock().waiters.is_empty();
    assert!(!partitions.iter().any(parked));

    let waiting = fetch(&asked, limits(Duration::from_secs(20), 1));
    let producing = async {
        while !parked(&partitions[7]) {
            tokio::task::yield_now().await;
        }
        produce(&partitions[7], &["news"], Acks::All).await;
    };
    let (found, ()) = tokio::join!(waiting, producing);
    assert!(contains(found[7].as_ref().unwrap(), "news"));
    assert!(!partitions.iter().any(parked));
}

#[tokio::test]
async fn min_bytes_are_gathered_over_partitions() {
    let fixture = Fixture::new();
    let a = fixture.create("a", 1, TopicConfig::default());
    let b = fixture.create("b", 2, TopicConfig::default());
    let targets = [&a, &b].map(|p| FetchTarget::new(Arc::clone(p), 0, 1 << 20));
    let value = "x".repeat(1000);
    let waiting = fetch(&targets, limits(Duration::from_secs(20), 3000));
    let producing = async {
        for partition in [&a, &b, &a] {
            assert_eq!(
                partition.high_watermark() > 0,
                std::ptr::eq(partition, &a) && a.high_watermark() > 0
            );
            produce(partition, &[&value], Acks::All).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (found, ()) = tokio::join!(waiting, producing);
    let bytes: usize = found.iter().map(|read| read.as_ref().unwrap().bytes).sum();
    assert!(bytes >= 3000, "{bytes}");
    // Enough is there already: no wait.
    let found = fetch(&targets, limits(Duration::from_secs(20), 3000)).await;
    assert!(found[0].as_ref().unwrap().bytes > 2000);
}

#[tokio::test]
async fn limits_leave_the_first_batch_whole() {
    let fixture = Fixture::new();
    let a = fixture.create("a", 1, TopicConfig::default());
    let b = fixture.create("b", 2, TopicConfig::default());
    let value = "x".repeat(1000);
    for partition in [&a, &b] {
        produce(partition, &[&value], Acks::All).await;
        produce(partition, &[&value], Acks::All).await;
    }
    let read = |bytes_max: usize, partition_max: usize| {
        let targets = [&a, &b].map(|p| FetchTarget::new(Arc::clone(p), 0, partition_max));
        async move {
            let limits = FetchLimits {
                bytes_max,
                ..limits(Duration::ZERO, 1)
            };
            let found = fetch(&targets, limits).await;
            let bytes = found.into_iter().map(|read| read.unwrap().bytes);
            bytes.collect::<Vec<_>>()
        }
    };
    let one = read(1, 1 << 20).await[0];
    assert!(one > 1000 && one < 1200);
    assert_eq!(read(0, 0).await, [one, 0]);
    assert_eq!(read(1 << 20, 1).await, [one, 0]);
    assert_eq!(read(1 << 20, one).await, [one, one]);
    assert_eq!(read(3 * one, 1 << 20).await, [2 * one, one]);
}

#[tokio::test]
async fn errors_end_a_wait_and_unknown_topics_do_not() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    let known = || FetchTarget::new(Arc::clone(&partition), 0, 1 << 20);
    let unknown = || FetchTarget {
        source: FetchSource::Unknown(ErrorCode::UnknownTopicOrPartition),
        ..known()
    };
    // Long where no wait is expected: the machine may be busy.
    let took = |wait_ms, targets: Vec<FetchTarget>| async move {
        let wait = Duration::from_millis(wait_ms);
        let start = SystemClock.now();
        let found = fetch(&targets, limits(wait, 1)).await;
        let errors: Vec<_> = found.into_iter().map(Result::err).collect();
        (SystemClock.now() - start >= wait, errors)
    };
    let missing = Some(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(
        took(50, vec![known(), unknown()]).await,
        (true, vec![None, missing])
    );
    assert_eq!(took(5_000, vec![unknown()]).await, (false, vec![missing]));
    let beyond = FetchTarget {
        offset: 5,
        ..known()
    };
    let out = Some(ErrorCode::OffsetOutOfRange);
    assert_eq!(
        took(5_000, vec![known(), beyond]).await,
        (false, vec![None, out])
    );
    let future = FetchTarget {
        current_leader_epoch: 3,
        ..known()
    };
    let epoch = Some(ErrorCode::UnknownLeaderEpoch);
    assert_eq!(
        took(5_000, vec![known(), future]).await,
        (false, vec![None, epoch])
    );
}

#[tokio::test]
async fn deletion_wakes_everybody_and_a_new_topic_starts_empty() {
    let fixture = Fixture::new();
    let old = fixture.create("t", 1, TopicConfig::default());
    produce(&old, &["old"], Acks::All).await;
    fixture.gate.set_closed(true);
    let committing = old.produce(batch(&["lost"]), options(Acks::All));
    let targets = [FetchTarget::new(Arc::clone(&old), 1, 1 << 20)];
    let waiting = fetch(&targets, limits(Duration::from_secs(20), 1));
    let deleting = async {
        while old.state.lock().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        fixture.delete("t");
        fixture.gate.set_closed(false);
    };
    let (found, ()) = tokio::join!(waiting, deleting);
    let gone = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(found[0].as_ref().unwrap_err(), &gone);
    assert_eq!(committing.await.unwrap_err(), AppendFailure::from(gone));
    let late = old.append(batch(&["late"]), options(Acks::Leader)).await;
    assert_eq!(late.unwrap_err().error, gone);

    let new = fixture.create("t", 2, TopicConfig::default());
    assert_eq!(new.open().await, Ok(()));
    assert_eq!(new.log_offsets(), Some((0, 0)));
    assert_eq!(produce(&new, &["new"], Acks::All).await, 0);
    let by_id = |id| fixture.replicas.partition_by_id(TopicId([id; 16]), 0);
    assert_eq!(by_id(1).unwrap_err(), ErrorCode::UnknownTopicId);
    assert!(Arc::ptr_eq(&by_id(2).unwrap(), &new));
    let index = fixture.replicas.partition_by_id(new.topic_id(), 1);
    assert_eq!(index.unwrap_err(), gone);
}

#[tokio::test]
async fn offsets_are_listed() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    let bound = FetchBound::HighWatermark;
    let ask = |query| {
        let asked = partition.offset_for(query, bound, NO_EPOCH);
        async move {
            let found = asked.await.unwrap();
            (found.offset, found.timestamp, found.leader_epoch)
        }
    };
    assert_eq!(ask(OffsetQuery::Earliest).await, (0, -1, 0));
    assert_eq!(ask(OffsetQuery::Latest(bound)).await, (0, -1, 0));
    assert_eq!(ask(OffsetQuery::MaxTimestamp).await, (-1, -1, -1));
    assert_eq!(ask(OffsetQuery::LatestTiered).await, (-1, -1, -1));
    let now = SystemClock.wall_ms();
    for times in [[now - 30, now - 10], [now - 20, now - 40]] {
        let mut builder = BatchBuilder::new();
        for time in times {
            builder.push(time, None, Some(b"v"));
        }
        let produced = partition.produce(builder.build(), options(Acks::All));
        produced.await.unwrap();
    }
    assert_eq!(ask(OffsetQuery::Latest(bound)).await, (4, -1, 0));
    assert_eq!(ask(OffsetQuery::MaxTimestamp).await, (1, now - 10, 0));
    assert_eq!(
        ask(OffsetQuery::Timestamp(now - 25)).await,
        (1, now - 10, 0)
    );
    assert_eq!(ask(OffsetQuery::Timestamp(now)).await, (-1, -1, -1));
    let ends = |epoch| partition.end_offset_for_epoch(epoch, NO_EPOCH, bound);
    assert_eq!(ends(0).await, Ok((0, 4)));
    assert_eq!(ends(1).await, Ok((-1, -1)));
    let wrong = partition.end_offset_for_epoch(0, 7, bound).await;
    assert_eq!(wrong, Err(ErrorCode::UnknownLeaderEpoch));

    fixture.put_topic("t", 1, TopicConfig::default(), 5);
    assert_eq!(partition.check_leader(4), Err(ErrorCode::FencedLeaderEpoch));
    assert_eq!(partition.check_leader(5), Ok(()));
    assert_eq!(ends(5).await, Ok((5, 4)));
    assert_eq!(ends(3).await, Ok((0, 4)));
    produce(&partition, &["x"], Acks::All).await;
    assert_eq!(ends(3).await, Ok((0, 4)));
    assert_eq!(ends(5).await, Ok((5, 5)));
}

#[tokio::test]
async fn records_are_deleted_up_to_the_high_watermark() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    for value in ["a", "b", "c"] {
        produce(&partition, &[value], Acks::All).await;
    }
    assert_eq!(partition.delete_records(2, later()).await, Ok(2));
    assert_eq!(partition.delete_records(1, later()).await, Ok(2));
    assert_eq!(
        partition.delete_records(4, later()).await,
        Err(ErrorCode::OffsetOutOfRange)
    );
    assert_eq!(
        partition.delete_records(-2, later()).await,
        Err(ErrorCode::OffsetOutOfRange)
    );
    let read = partition.read(1, 1, FetchBound::HighWatermark, true);
    assert_eq!(read.await.unwrap_err(), ErrorCode::OffsetOutOfRange);
    assert_eq!(partition.delete_records(-1, later()).await, Ok(3));
    assert_eq!(produce(&partition, &["d"], Acks::All).await, 3);

    let compacted = TopicConfig {
        cleanup_policy: CleanupPolicy {
            delete: false,
            compact: true,
        },
        ..TopicConfig::default()
    };
    let partition = fixture.create("compacted", 2, compacted);
    assert_eq!(
        partition.delete_records(0, later()).await,
        Err(ErrorCode::PolicyViolation)
    );
}

#[tokio::test]
async fn a_restart_finds_everything_and_puts_strays_aside() {
    let directory = tempfile::tempdir().unwrap();
    {
        let fixture = Fixture::at(directory.path().into(), None);
        let partition = fixture.create("kept", 1, TopicConfig::default());
        produce(&partition, &["a", "b"], Acks::All).await;
        let partition = fixture.create("stray", 2, TopicConfig::default());
        produce(&partition, &["a"], Acks::All).await;
    }
    let fixture = Fixture::at(directory.path().into(), None);
    let partition = fixture.create("kept", 1, TopicConfig::default());
    let image = Arc::clone(&fixture.image.lock());
    fixture.replicas.remove_strays(move || Arc::clone(&image));
    while directory.path().join("stray-0").exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(directory.path().join("kept-0").exists());
    let put_aside = std::fs::read_dir(directory.path()).unwrap();
    let names = put_aside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let strays: Vec<String> = names.filter(|name| name.ends_with("-stray")).collect();
    assert!(strays.len() == 1 && strays[0].starts_with("stray-0."));
    assert_eq!(partition.open().await, Ok(()));
    if let Some(settled) = partition.settle() {
        assert_eq!(settled.await, Ok(()));
    }
    assert_eq!(partition.high_watermark(), 2);
    let directories = fixture.replicas.describe_log_dirs(|_| true).await;
    let (described, bytes) = &directories[0].partitions[0];
    assert_eq!(*described, TopicPartition::new("kept", 0));
    assert!(*bytes > 60);
}

#[test]
fn an_idle_partition_is_small() {
    let size = size_of::<Partition>() + size_of::<Arc<Partition>>();
    assert!(size < 400, "{size}");
}

#[tokio::test]
async fn a_fetch_that_waits_below_the_log_start_hears_of_it() {
    let fixture = Fixture::new();
    let partition = fixture.create("t", 1, TopicConfig::default());
    produce(&partition, &["old"], Acks::All).await;
    let targets = [FetchTarget::new(Arc::clone(&partition), 0, 1 << 20)];
    let waiting = fetch(&targets, limits(Duration::from_secs(60), 1 << 20));
    let deleting = async {
        while partition.state.lock().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(partition.delete_records(-1, later()).await, Ok(1));
    };
    let start = SystemClock.now();
    let (found, ()) = tokio::join!(waiting, deleting);
    assert_eq!(found[0].as_ref().unwrap_err(), &ErrorCode::OffsetOutOfRange);
    assert!(SystemClock.now() - start < Duration::from_secs(30));
}
