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

mod durability;
mod fetching;
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
