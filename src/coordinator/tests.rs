//! The coordinator over real logs, on a disk that stalls or fails when told to.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::config::{BrokerConfig, TopicConfig};
use crate::log::gated_disk::{Gate, GatedDisk};
use crate::log::{LogManager, LogManagerConfig};
use crate::metadata::{self, Image, ImageListener, MetadataCache, Topic};
use crate::replication::{Replicas, ReplicasConfig};
use crate::telemetry::Metrics;
use crate::time::SystemClock;
use crate::types::{BrokerId, ErrorCode, TopicId};

const ME: BrokerId = BrokerId(1);

struct Fixture {
    metadata: Arc<MetadataCache>,
    replicas: Arc<Replicas>,
    logs: Arc<LogManager>,
    gate: Arc<Gate>,
    config: BrokerConfig,
    _directory: TempDir,
}

impl Fixture {
    /// With `__consumer_offsets` of one partition.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let gate = Arc::new(Gate::default());
        let log_config = LogManagerConfig::for_tests(directory.path().into());
        let disk = Arc::new(GatedDisk(Arc::clone(&gate)));
        let logs = LogManager::open_on(log_config, clock.clone(), disk).unwrap();
        let metrics = Arc::new(Metrics::new());
        let replicas = Replicas::new(ReplicasConfig::new(ME), Arc::clone(&logs), metrics, clock);
        let replicas = Arc::new(replicas);
        logs.set_flush_listener(replicas.flush_listener());
        let metadata = Arc::new(MetadataCache::default());
        metadata.add_listener(Arc::clone(&replicas) as Arc<dyn ImageListener>);
        let mut config = BrokerConfig::for_tests(directory.path());
        config.node_id = ME;
        config.group_initial_rebalance_delay_ms = 0;
        let fixture = Self {
            metadata,
            replicas,
            logs,
            gate,
            config,
            _directory: directory,
        };
        fixture.make_topic(1);
        fixture
    }

    fn change(&self, change: impl FnOnce(&mut Image)) {
        let mut next = Image::clone(&self.metadata.current());
        next.revision += 1;
        change(&mut next);
        self.metadata.publish(Arc::new(next));
    }

    fn make_topic(&self, id: u8) {
        let topic = Topic {
            name: GROUP_METADATA_TOPIC.into(),
            id: TopicId([id; 16]),
            partitions: vec![Arc::new(metadata::Partition::made(&[ME]))],
            overrides: Default::default(),
            config: Arc::new(TopicConfig::default()),
        };
        self.change(|image| {
            image.topic_names.insert(topic.id, Arc::clone(&topic.name));
            image
                .topics
                .insert(Arc::clone(&topic.name), Arc::new(topic));
        });
    }

    fn delete_topic(&self) {
        self.change(|image| {
            let topic = image.topics.remove(GROUP_METADATA_TOPIC).unwrap();
            image.topic_names.remove(&topic.id);
        });
    }

    /// A coordinator that follows the image.
    fn coordinator(&self) -> Arc<GroupCoordinator> {
        let coordinator = Arc::new(GroupCoordinator::new(
            &self.config,
            Arc::clone(&self.metadata),
            Arc::clone(&self.replicas),
            Arc::new(SystemClock),
        ));
        let listener = Arc::clone(&coordinator) as Arc<dyn ImageListener>;
        self.metadata.add_listener(listener);
        coordinator
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.gate.set_closed(false);
        self.logs.close();
    }
}

fn commit_of(offset: i64) -> CommitRequest {
    CommitRequest {
        group: "g".into(),
        generation: -1,
        member_id: "".into(),
        instance_id: None,
        retention_ms: None,
        missing_group_error: ErrorCode::IllegalGeneration,
        topics: vec![CommitTopic {
            name: "t".into(),
            id: TopicId::ZERO,
            partitions: vec![CommitPartition {
                partition: 0,
                offset,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        }],
    }
}

async fn commit(groups: &GroupCoordinator, offset: i64) -> Result<(), ErrorCode> {
    groups.commit_offsets(commit_of(offset)).await.map(|_| ())
}

async fn fetch(groups: &GroupCoordinator) -> Result<Option<i64>, ErrorCode> {
    let request = FetchRequest {
        group: "g".into(),
        topics: None,
    };
    let topics = groups.fetch_offsets(request).await?;
    let found = topics.first().and_then(|(_, partitions)| {
        let (_, value) = partitions.first()?;
        Some(value.as_ref()?.offset)
    });
    Ok(found)
}

fn join_of(member_id: &str) -> JoinRequest {
    JoinRequest {
        group: "g".into(),
        member_id: member_id.into(),
        instance_id: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: "m".into(),
        }],
        reason: None,
        requires_known_member_id: false,
        supports_skip_assignment: true,
        fresh_id: "1".into(),
    }
}

/// Joins as the only member, then has another one wait for it.
async fn parked_join(groups: &Arc<GroupCoordinator>) -> tokio::task::JoinHandle<JoinReply> {
    assert_eq!(groups.join(join_of("")).await.error, ErrorCode::None);
    let others = Arc::clone(groups);
    let parked = tokio::spawn(async move {
        let request = JoinRequest {
            client_id: "d".into(),
            ..join_of("")
        };
        others.join(request).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!parked.is_finished());
    parked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_from_what_is_not_committed() {
    let fixture = Fixture::new();
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 1).await, Ok(()));
    fixture.gate.set_closed(true);
    let (committing, fetching) = (Arc::clone(&groups), Arc::clone(&groups));
    let committing = tokio::spawn(async move { commit(&committing, 2).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let fetching = tokio::spawn(async move { fetch(&fetching).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!committing.is_finished() && !fetching.is_finished());
    fixture.gate.set_closed(false);
    assert_eq!(committing.await.unwrap(), Ok(()));
    assert_eq!(fetching.await.unwrap(), Ok(Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_late_times_out_and_reads_still_do_not_overtake_it() {
    let mut fixture = Fixture::new();
    fixture.config.offsets_commit_timeout_ms = 100;
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 1).await, Ok(()));
    fixture.gate.set_closed(true);
    let late = Err(ErrorCode::CoordinatorNotAvailable);
    assert_eq!(commit(&groups, 2).await, late);
    assert_eq!(fetch(&groups).await, Err(ErrorCode::NotCoordinator));
    fixture.gate.set_closed(false);
    assert_eq!(fetch(&groups).await, Ok(Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_loading_says_so_and_never_answers_an_empty_offset() {
    let mut fixture = Fixture::new();
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 1).await, Ok(()));
    fixture.gate.set_closed(true);
    let committing = tokio::spawn(async move { commit(&groups, 2).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Another one finds a record that is not committed yet, and waits for it.
    fixture.config.offsets_commit_timeout_ms = 30_000;
    let loading = fixture.coordinator();
    let error = Err(ErrorCode::CoordinatorLoadInProgress);
    assert_eq!(fetch(&loading).await, error);
    let heartbeat = HeartbeatRequest {
        group: "g".into(),
        generation: 1,
        member_id: "m".into(),
        instance_id: None,
    };
    assert_eq!(loading.heartbeat(heartbeat).await, ErrorCode::None);
    let listed = loading.list_groups(ListFilter::default()).await;
    assert_eq!(listed, Err(ErrorCode::CoordinatorLoadInProgress));
    fixture.gate.set_closed(false);
    assert_eq!(committing.await.unwrap(), Ok(()));
    while fetch(&loading).await == error {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fetch(&loading).await, Ok(Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_heard_while_the_disk_stalls() {
    let mut fixture = Fixture::new();
    fixture.config.offsets_commit_timeout_ms = 200;
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 0).await, Ok(()));
    let heartbeat = || HeartbeatRequest {
        group: "g".into(),
        generation: 1,
        member_id: "m".into(),
        instance_id: None,
    };
    let unknown = ErrorCode::UnknownMemberId;
    assert_eq!(groups.heartbeat(heartbeat()).await, unknown);
    fixture.gate.set_closed(true);
    // More than may be on their way, each in a round of its own.
    let mut committing = Vec::new();
    for offset in 1..60 {
        let other = Arc::clone(&groups);
        committing.push(tokio::spawn(async move { commit(&other, offset).await }));
        tokio::time::sleep(Duration::from_millis(10)).await;
        let heard =
            tokio::time::timeout(Duration::from_secs(10), groups.heartbeat(heartbeat())).await;
        assert_eq!(heard, Ok(unknown), "{offset}");
    }
    let late = Err(ErrorCode::CoordinatorNotAvailable);
    for committed in committing {
        assert_eq!(committed.await.unwrap(), late);
    }
    fixture.gate.set_closed(false);
    while commit(&groups, 99).await == late {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fetch(&groups).await, Ok(Some(99)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_do_not_wait_for_what_is_not_committed() {
    let fixture = Fixture::new();
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 0).await, Ok(()));
    fixture.gate.set_closed(true);
    let patience = Duration::from_secs(2);
    let mut committing = Vec::new();
    for offset in 1..=40 {
        let other = Arc::clone(&groups);
        committing.push(tokio::spawn(async move { commit(&other, offset).await }));
        tokio::time::sleep(Duration::from_millis(10)).await;
        let snapshot = tokio::time::timeout(patience, groups.groups_snapshot()).await;
        let snapshot = snapshot.unwrap_or_else(|_| panic!("commit {offset} holds metrics up"));
        match snapshot.first() {
            Some(group) => assert_eq!(group.offsets, [("t".into(), 0, offset)]),
            // As many are on their way as may be: the shard does not look at requests.
            None => assert!(offset > 30, "no groups after commit {offset}"),
        }
    }
    fixture.gate.set_closed(false);
    for committed in committing {
        assert_eq!(committed.await.unwrap(), Ok(()));
    }
    let snapshot = groups.groups_snapshot().await;
    assert_eq!(snapshot[0].offsets, [("t".into(), 0, 40)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_ends_the_coordinator_and_nobody_waits_for_ever() {
    let fixture = Fixture::new();
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 1).await, Ok(()));
    let parked = parked_join(&groups).await;
    fixture.gate.fail();
    let gone = Err(ErrorCode::NotCoordinator);
    let request = CommitRequest {
        group: "other".into(),
        ..commit_of(2)
    };
    assert_eq!(groups.commit_offsets(request).await.map(|_| ()), gone);
    assert_eq!(parked.await.unwrap().error, ErrorCode::NotCoordinator);
    assert_eq!(fetch(&groups).await, Err(ErrorCode::NotCoordinator));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_deleted_takes_its_groups_along() {
    let fixture = Fixture::new();
    let groups = fixture.coordinator();
    let parked = parked_join(&groups).await;
    fixture.delete_topic();
    assert_eq!(parked.await.unwrap().error, ErrorCode::NotCoordinator);
    assert_eq!(fetch(&groups).await, Err(ErrorCode::NotCoordinator));
    fixture.make_topic(2);
    assert_eq!(fetch(&groups).await, Ok(None));
    assert_eq!(commit(&groups, 7).await, Ok(()));
    assert_eq!(fetch(&groups).await, Ok(Some(7)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_those_go_who_wait_and_a_restart_finds_what_was_committed() {
    let fixture = Fixture::new();
    let groups = fixture.coordinator();
    assert_eq!(commit(&groups, 5).await, Ok(()));
    let parked = parked_join(&groups).await;
    groups.shutdown().await;
    assert_eq!(parked.await.unwrap().error, ErrorCode::NotCoordinator);
    assert_eq!(fetch(&groups).await, Err(ErrorCode::NotCoordinator));
    let again = fixture.coordinator();
    let listed = again.list_groups(ListFilter::default()).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(fetch(&again).await, Ok(Some(5)));
    let snapshot = again.groups_snapshot().await;
    assert_eq!(snapshot[0].offsets, [("t".into(), 0, 5)]);
}
