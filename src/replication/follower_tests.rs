//! One broker's partition that another one leads.

use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::config::TopicConfig;
use crate::log::{InlineExecutor, LogManager, LogManagerConfig};
use crate::metadata;
use crate::record::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader};
use crate::replication::shared::{ReplicasConfig, Shared};
use crate::telemetry::Metrics;
use crate::time::SystemClock;
use crate::types::{BrokerId, TopicId, TopicPartition};

const ME: BrokerId = BrokerId(1);
const LEADER: BrokerId = BrokerId(2);

struct Fixture {
    partition: Arc<Partition>,
    logs: Arc<LogManager>,
    _directory: TempDir,
}

impl Fixture {
    fn new(config: TopicConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let logs = LogManager::open(
            LogManagerConfig::for_tests(directory.path().into()),
            clock.clone(),
        )
        .unwrap();
        let metrics = Arc::new(Metrics::new());
        let shared = Shared::new(
            ReplicasConfig::new(ME),
            Arc::clone(&logs),
            Arc::clone(&metrics),
            clock,
            Some(Arc::new(InlineExecutor)),
        );
        let partition = Arc::new(Partition::new(
            TopicPartition::new("t", 0),
            TopicId([7; 16]),
            Arc::new(shared),
            metrics.topic(&"t".into()),
            Arc::new(config),
            role(LEADER, 3),
        ));
        Self {
            partition,
            logs,
            _directory: directory,
        }
    }

    async fn append(&self, records: Bytes, high_watermark: Offset) -> Result<Position, ErrorCode> {
        let fetched = Fetched {
            records,
            high_watermark,
            log_start: 0,
        };
        let appending = self.partition.append_fetched(3, fetched);
        // The flusher tells the replicas, of which there are none here.
        let partition = Arc::clone(&self.partition);
        let flushing = async move {
            if let Some(log) = partition.opened_log() {
                log.flush().unwrap();
                partition.advance();
            }
        };
        tokio::join!(appending, flushing).0
    }

    fn ends(&self) -> (Offset, Offset, Offset) {
        let (start, end) = self.partition.log_offsets().unwrap();
        (start, self.partition.high_watermark(), end)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.logs.close();
    }
}

fn role(leader: BrokerId, leader_epoch: LeaderEpoch) -> Arc<metadata::Partition> {
    Arc::new(metadata::Partition {
        leader: Some(leader),
        leader_epoch,
        ..metadata::Partition::made(&[LEADER, ME])
    })
}

/// Batches of two records.
fn batches(from: Offset, epochs: &[LeaderEpoch]) -> Bytes {
    let mut all = Vec::new();
    for (number, &epoch) in epochs.iter().enumerate() {
        let mut builder = BatchBuilder::new();
        builder.push(1, None, Some(b"a"));
        builder.push(2, None, Some(b"b"));
        let built = builder.build();
        let header = BatchHeader {
            base_offset: from + 2 * number as i64,
            partition_leader_epoch: epoch,
            ..BatchHeader::parse(&built).unwrap()
        };
        all.extend(header.encode());
        all.extend(&built[BATCH_HEADER_BYTES..]);
    }
    all.into()
}

#[tokio::test]
async fn the_high_watermark_is_the_leaders_as_far_as_the_records_are_here() {
    let fixture = Fixture::new(TopicConfig::default());
    let located = fixture.partition.locate(3).await.unwrap();
    assert_eq!((located.fetch_offset, located.last_epoch), (0, NO_EPOCH));
    let at = fixture.append(batches(0, &[1, 1, 2]), 100).await.unwrap();
    assert_eq!((at.fetch_offset, at.log_end, at.last_epoch), (6, 6, 2));
    assert_eq!(fixture.ends(), (0, 6, 6));
    let at = fixture.append(batches(6, &[3, 3]), 8).await.unwrap();
    assert_eq!((at.fetch_offset, at.last_epoch), (10, 3));
    // It has been at 100; what came since is committed too.
    assert_eq!(fixture.ends(), (0, 10, 10));
    // The log start follows the leader's.
    let noted = fixture.partition.note_leader(3, 100, 4).unwrap();
    assert_eq!(noted.await, Ok(4));
    assert_eq!(fixture.ends(), (4, 10, 10));
    assert!(fixture.partition.note_leader(3, 100, 4).is_none());
}

#[tokio::test]
async fn a_leader_of_another_term_is_not_heard() {
    let fixture = Fixture::new(TopicConfig::default());
    assert_eq!(
        fixture.partition.locate(2).await,
        Err(ErrorCode::NotLeaderOrFollower)
    );
    fixture.append(batches(0, &[1]), 0).await.unwrap();
    let next = role(LEADER, 4);
    fixture.partition.set_role(next, Arc::default());
    assert_eq!(
        fixture.append(batches(2, &[1]), 100).await,
        Err(ErrorCode::NotLeaderOrFollower)
    );
    assert!(fixture.partition.note_leader(3, 100, 2).is_none());
    assert_eq!(fixture.ends(), (0, 0, 2));
    let led_here = Arc::new(metadata::Partition {
        leader_epoch: 5,
        ..metadata::Partition::made(&[ME])
    });
    fixture.partition.set_role(led_here, Arc::default());
    assert!(fixture.partition.cut_at(5, 0).await.is_err());
}

#[tokio::test]
async fn what_is_damaged_or_does_not_follow_touches_no_disk() {
    let fixture = Fixture::new(TopicConfig::default());
    fixture.append(batches(0, &[1]), 0).await.unwrap();
    let mut damaged = batches(2, &[1]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let corrupt = Err(ErrorCode::CorruptMessage);
    assert_eq!(fixture.append(damaged.into(), 0).await, corrupt);
    for wrong in [batches(0, &[1]), batches(2, &[0]), batches(2, &[4])] {
        assert_eq!(fixture.append(wrong, 0).await, corrupt);
    }
    assert_eq!(fixture.ends(), (0, 0, 2));
    // A gap is believed when it is sent twice.
    assert_eq!(fixture.append(batches(5, &[1]), 0).await, corrupt);
    assert_eq!(fixture.append(batches(6, &[1]), 0).await, corrupt);
    let at = fixture.append(batches(6, &[1]), 0).await.unwrap();
    assert_eq!(at.log_end, 8);
}

#[tokio::test]
async fn a_log_that_starts_inside_of_a_batch_begins_with_that_batch() {
    let fixture = Fixture::new(TopicConfig::default());
    fixture.partition.begin_anew(3, 7).await.unwrap();
    let at = fixture.append(batches(6, &[2]), 8).await.unwrap();
    assert_eq!((at.log_start, at.log_end), (6, 8));
}

#[tokio::test]
async fn logs_that_part_are_cut_by_epoch() {
    let fixture = Fixture::new(TopicConfig::default());
    let records = batches(0, &[0, 0, 1, 1, 2]);
    fixture.append(records, 4).await.unwrap();
    // The leader has of epoch 1 only up to 6, and knows no epoch 2.
    let at = fixture.partition.cut_for_leader(3, (1, 6)).await.unwrap();
    assert_eq!((at.fetch_offset, at.last_epoch), (6, 1));
    assert_eq!(fixture.ends(), (0, 4, 6));
    // There is nothing to be cut: it would go round in circles.
    let nothing = fixture.partition.cut_for_leader(3, (1, 8)).await;
    assert!(nothing.is_err());
}

#[tokio::test]
async fn what_was_committed_on_disk_is_not_cut_unless_the_topic_says_so() {
    let fixture = Fixture::new(TopicConfig::default());
    fixture.append(batches(0, &[0, 0, 1]), 6).await.unwrap();
    assert_eq!(fixture.ends(), (0, 6, 6));
    assert!(fixture.partition.cut_for_leader(3, (0, 2)).await.is_err());
    assert_eq!(fixture.ends(), (0, 6, 6));
    let unclean = Arc::new(TopicConfig {
        unclean_leader_election: true,
        ..TopicConfig::default()
    });
    fixture.partition.set_role(role(LEADER, 3), unclean);
    let at = fixture.partition.cut_for_leader(3, (0, 2)).await.unwrap();
    assert_eq!(at.fetch_offset, 2);
    assert_eq!(fixture.ends(), (0, 2, 2));
}
