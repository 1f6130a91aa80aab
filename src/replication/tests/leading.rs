//! A partition that is led here, with followers that a test speaks for.

use futures_util::FutureExt as _;

use super::*;
use crate::metadata::Broker;
use crate::registry::value::{BrokerValue, encode};
use crate::registry::{Embedded, Key, Op, Registry};
use crate::replication::{FetchingReplica, IsrPublisher, ReadRequest};
use crate::types::LeaderEpoch;

const TWO: BrokerId = BrokerId(2);
const THREE: BrokerId = BrokerId(3);
/// Broker epochs of 1, 2, 3.
const EPOCHS: [i64; 3] = [101, 102, 103];

fn epoch_of(id: BrokerId) -> i64 {
    EPOCHS[usize::try_from(id.0).unwrap() - 1]
}

fn broker(id: BrokerId, epoch: i64) -> Arc<Broker> {
    Arc::new(Broker {
        id,
        endpoints: Vec::new(),
        rack: None,
        epoch,
        incarnation: String::new(),
        shutting_down: false,
    })
}

/// Led by this broker, in leader epoch 3.
fn led(isr: &[BrokerId]) -> metadata::Partition {
    metadata::Partition {
        leader_epoch: 3,
        leader_registration: EPOCHS[0],
        isr: isr.to_vec(),
        revision: 1,
        ..metadata::Partition::made(&[ME, TWO, THREE])
    }
}

impl Fixture {
    fn register(&self, ids: &[BrokerId]) {
        self.change(|image| {
            for id in ids {
                image.brokers.insert(*id, broker(*id, epoch_of(*id)));
            }
        });
    }

    fn put_partition(&self, config: TopicConfig, partition: metadata::Partition) -> Arc<Partition> {
        let topic = Topic {
            name: "t".into(),
            id: TopicId([1; 16]),
            partitions: vec![Arc::new(partition)],
            overrides: Default::default(),
            config: Arc::new(config),
        };
        self.change(|image| {
            image.topic_names.insert(topic.id, Arc::clone(&topic.name));
            image
                .topics
                .insert(Arc::clone(&topic.name), Arc::new(topic));
        });
        self.replicas.partition("t", 0).unwrap()
    }

    /// A cluster of three, whose partition this broker leads; two replicas must be in sync.
    fn leading(config: TopicConfig, isr: &[BrokerId]) -> (Self, Arc<Partition>) {
        let fixture = Self::new();
        fixture.register(&[ME, TWO, THREE]);
        let config = TopicConfig {
            min_insync_replicas: 2,
            ..config
        };
        let partition = fixture.put_partition(config, led(isr));
        (fixture, partition)
    }
}

fn asks(id: BrokerId, offset: Offset) -> ReadRequest {
    ReadRequest {
        offset,
        bytes_max: 1 << 20,
        bound: FetchBound::LogEnd,
        at_least_one: true,
        current_leader_epoch: 3,
        last_fetched_epoch: if offset == 0 { -1 } else { 3 },
        replica: Some(FetchingReplica {
            id,
            broker_epoch: epoch_of(id),
            at: SystemClock.now(),
        }),
        replica_log_start: 0,
    }
}

async fn fetch_as(
    partition: &Arc<Partition>,
    request: ReadRequest,
) -> Result<PartitionRead, ErrorCode> {
    partition.read_on_lane(request).await
}

async fn follow(partition: &Arc<Partition>, id: BrokerId, offset: Offset) -> PartitionRead {
    fetch_as(partition, asks(id, offset)).await.unwrap()
}

#[tokio::test]
async fn what_all_in_sync_replicas_have_is_committed() {
    for config in [TopicConfig::default(), page_cache()] {
        let (_fixture, partition) = Fixture::leading(config, &[ME, TWO, THREE]);
        let mut pending = partition.produce(batch(&["a", "b"]), options(Acks::All));
        // Behind it on the lane.
        let read = follow(&partition, TWO, 0).await;
        assert!(contains(&read, "a"));
        assert_eq!((read.high_watermark, read.log_start_offset), (0, 0));
        assert_eq!(partition.high_watermark(), 0);
        follow(&partition, THREE, 0).await;
        assert_eq!(follow(&partition, TWO, 2).await.high_watermark, 0);
        let early = tokio::time::timeout(Duration::from_millis(20), &mut pending).await;
        assert!(early.is_err(), "one replica lacks it");
        let consumer = partition.read(0, 1 << 20, FetchBound::HighWatermark, true);
        assert_eq!(consumer.await.unwrap().bytes, 0);
        // It hears at once of what its own fetch has brought about, or once the leader's disk has it.
        follow(&partition, THREE, 2).await;
        assert_eq!(pending.await.unwrap().base_offset, 0);
        assert_eq!(follow(&partition, TWO, 2).await.high_watermark, 2);
    }
}

#[tokio::test]
async fn the_leader_counts_what_is_on_its_own_disk() {
    let (fixture, partition) = Fixture::leading(TopicConfig::default(), &[ME, TWO]);
    produce(&partition, &["a"], Acks::Leader).await;
    fixture.gate.set_closed(true);
    produce(&partition, &["b"], Acks::Leader).await;
    let flushed = partition.opened_log().unwrap().flushed_offset();
    follow(&partition, TWO, 2).await;
    assert_eq!(partition.high_watermark(), flushed);
    let committed = partition.committed(2, later());
    fixture.gate.set_closed(false);
    committed.await.unwrap();
}

#[tokio::test]
async fn a_follower_waits_for_the_log_end() {
    let (_fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    let targets = [FetchTarget {
        current_leader_epoch: 3,
        ..FetchTarget::new(Arc::clone(&partition), 0, 1 << 20)
    }];
    let limits = FetchLimits {
        bound: FetchBound::LogEnd,
        replica: asks(TWO, 0).replica,
        ..limits(Duration::from_secs(20), 1)
    };
    let producing = async {
        while partition.state.lock().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        produce(&partition, &["news"], Acks::Leader).await;
    };
    let (found, ()) = tokio::join!(fetch(&targets, limits), producing);
    assert!(contains(found[0].as_ref().unwrap(), "news"));
    assert_eq!(partition.high_watermark(), 0);
}

#[tokio::test]
async fn fetches_of_other_epochs_strangers_and_earlier_lives_do_not_count() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    produce(&partition, &["a"], Acks::Leader).await;
    let asked = |epoch: LeaderEpoch| ReadRequest {
        current_leader_epoch: epoch,
        ..asks(TWO, 1)
    };
    let fenced = fetch_as(&partition, asked(2)).await;
    assert_eq!(fenced.unwrap_err(), ErrorCode::FencedLeaderEpoch);
    let unknown = fetch_as(&partition, asked(4)).await;
    assert_eq!(unknown.unwrap_err(), ErrorCode::UnknownLeaderEpoch);
    fetch_as(&partition, asked(NO_EPOCH)).await.unwrap();
    let unreconciled = ReadRequest {
        last_fetched_epoch: -1,
        ..asks(TWO, 1)
    };
    fetch_as(&partition, unreconciled).await.unwrap();
    let beyond = fetch_as(&partition, asks(TWO, 2)).await.unwrap();
    assert_eq!(beyond.diverging_epoch, Some((3, 1)));
    assert_eq!(partition.high_watermark(), 0);

    let stranger = |current_leader_epoch| ReadRequest {
        current_leader_epoch,
        replica: Some(FetchingReplica {
            id: BrokerId(9),
            broker_epoch: 1,
            at: SystemClock.now(),
        }),
        ..asks(TWO, 1)
    };
    let refused = fetch_as(&partition, stranger(3)).await;
    assert_eq!(refused.unwrap_err(), ErrorCode::UnknownLeaderEpoch);
    let refused = fetch_as(&partition, stranger(NO_EPOCH)).await;
    assert_eq!(refused.unwrap_err(), ErrorCode::NotLeaderOrFollower);

    follow(&partition, TWO, 1).await;
    assert_eq!(partition.high_watermark(), 1);
    let mut earlier = asks(TWO, 0);
    earlier.replica.as_mut().unwrap().broker_epoch = 50;
    let refused = fetch_as(&partition, earlier).await;
    assert_eq!(refused.unwrap_err(), ErrorCode::StaleBrokerEpoch);
    drop(fixture);
}

#[tokio::test]
async fn a_log_that_parted_is_told_where_and_does_not_count() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    produce(&partition, &["a", "b"], Acks::Leader).await;
    let role = metadata::Partition {
        leader_epoch: 6,
        revision: 2,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(config_of(&partition), role);
    produce(&partition, &["c"], Acks::Leader).await;
    // It led in epoch 5, and wrote what nobody else has.
    let parted = ReadRequest {
        current_leader_epoch: 6,
        last_fetched_epoch: 5,
        ..asks(TWO, 3)
    };
    let read = fetch_as(&partition, parted).await.unwrap();
    assert_eq!(read.diverging_epoch, Some((3, 2)));
    assert_eq!((read.bytes, partition.high_watermark()), (0, 0));
    let reconciled = ReadRequest {
        current_leader_epoch: 6,
        ..asks(TWO, 2)
    };
    let read = fetch_as(&partition, reconciled).await.unwrap();
    assert!(read.diverging_epoch.is_none() && contains(&read, "c"));
    assert_eq!(partition.high_watermark(), 2);
}

fn config_of(partition: &Partition) -> TopicConfig {
    TopicConfig::clone(&partition.config())
}

#[tokio::test]
async fn a_broker_leads_only_what_it_was_given_under_its_registration() {
    // R5
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    let mut waiting = partition.produce(batch(&["a"]), options(Acks::All));
    follow(&partition, TWO, 0).await;
    assert!((&mut waiting).now_or_never().is_none());
    // Its lease was lost, and it registered anew.
    fixture.change(|image| {
        image.brokers.insert(ME, broker(ME, 500));
    });
    let lost = waiting.await.unwrap_err();
    assert_eq!(lost.error, ErrorCode::NotLeaderOrFollower);
    let refused = fetch_as(&partition, asks(TWO, 1)).await;
    assert_eq!(refused.unwrap_err(), ErrorCode::NotLeaderOrFollower);
    let refused = partition
        .produce(batch(&["b"]), options(Acks::Leader))
        .await;
    assert_eq!(refused.unwrap_err().error, ErrorCode::NotLeaderOrFollower);
    // The epoch is raised, under the new registration.
    let resumed = metadata::Partition {
        leader_epoch: 4,
        leader_registration: 500,
        revision: 2,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(config_of(&partition), resumed);
    let read = ReadRequest {
        current_leader_epoch: 4,
        ..asks(TWO, 1)
    };
    fetch_as(&partition, read).await.unwrap();
    assert_eq!(partition.high_watermark(), 1);
    // A registration that is gone changes nothing by itself.
    fixture.change(|image| {
        image.brokers.remove(&ME);
    });
    assert_eq!(partition.check_leader(4), Ok(()));
}

#[tokio::test]
async fn an_election_ends_every_wait() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    let produced = partition.produce(batch(&["a"]), options(Acks::All));
    let targets = [FetchTarget {
        current_leader_epoch: 3,
        ..FetchTarget::new(Arc::clone(&partition), 1, 1 << 20)
    }];
    let limits = FetchLimits {
        bound: FetchBound::LogEnd,
        replica: asks(TWO, 1).replica,
        ..limits(Duration::from_secs(20), 1)
    };
    follow(&partition, TWO, 0).await;
    let electing = async {
        while waiting(&partition) < 2 {
            tokio::task::yield_now().await;
        }
        let role = metadata::Partition {
            leader: Some(THREE),
            leader_epoch: 4,
            revision: 2,
            ..led(&[THREE, TWO])
        };
        fixture.put_partition(config_of(&partition), role);
    };
    let (found, ()) = tokio::join!(fetch(&targets, limits), electing);
    assert_eq!(
        found[0].as_ref().unwrap_err(),
        &ErrorCode::FencedLeaderEpoch
    );
    let lost = produced.await.unwrap_err();
    assert_eq!(lost.error, ErrorCode::NotLeaderOrFollower);
}

fn waiting(partition: &Partition) -> usize {
    partition.state.lock().waiters.len()
}

#[tokio::test]
async fn acks_all_asks_for_enough_replicas() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME]);
    let refused = partition.produce(batch(&["a"]), options(Acks::All)).await;
    assert_eq!(refused.unwrap_err().error, ErrorCode::NotEnoughReplicas);
    assert_eq!(produce(&partition, &["a"], Acks::Leader).await, 0);
    // R8: nothing is committed below min.insync.replicas.
    assert_eq!(partition.high_watermark(), 0);
    let role = metadata::Partition {
        revision: 2,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(config_of(&partition), role);
    follow(&partition, TWO, 1).await;
    assert_eq!(partition.high_watermark(), 1);
}

#[tokio::test]
async fn offsets_are_not_told_before_the_high_watermark_has_reached_the_term() {
    // R9, KIP-207.
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    produce(&partition, &["a"], Acks::Leader).await;
    let role = metadata::Partition {
        leader_epoch: 4,
        revision: 2,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(config_of(&partition), role);
    partition.open().await.unwrap(); // behind the beginning of the term
    let bound = FetchBound::HighWatermark;
    let ask = |query, bound| partition.offset_for(query, bound, NO_EPOCH);
    let unknown = Some(ErrorCode::OffsetNotAvailable);
    assert_eq!(ask(OffsetQuery::Latest(bound), bound).await.err(), unknown);
    let by_time = OffsetQuery::Timestamp(0);
    assert_eq!(ask(by_time, bound).await.err(), unknown);
    let ends = |bound| partition.end_offset_for_epoch(3, NO_EPOCH, bound);
    assert_eq!(ends(bound).await.err(), unknown);
    assert_eq!(ends(FetchBound::LogEnd).await, Ok((3, 1)));
    let earliest = ask(OffsetQuery::Earliest, bound).await;
    assert_eq!(earliest.unwrap().offset, 0);
    let end = FetchBound::LogEnd;
    let follower = ask(OffsetQuery::Latest(end), end).await;
    assert_eq!(follower.unwrap().offset, 1);
    let read = ReadRequest {
        current_leader_epoch: 4,
        ..asks(TWO, 1)
    };
    fetch_as(&partition, read).await.unwrap();
    let latest = ask(OffsetQuery::Latest(bound), bound).await;
    assert_eq!(latest.unwrap().offset, 1);
    assert_eq!(ask(by_time, bound).await.unwrap().offset, 0);
}

#[tokio::test]
async fn whoever_asked_for_the_end_hears_nothing_from_a_leader_that_was_deposed_meanwhile() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    partition.open().await.unwrap();
    let bound = FetchBound::HighWatermark;
    // It waits a moment for what was appended before to be committed.
    produce(&partition, &["a"], Acks::Leader).await;
    let asked = partition.offset_for(OffsetQuery::Latest(bound), bound, 3);
    let role = metadata::Partition {
        leader: Some(THREE),
        leader_epoch: 4,
        revision: 2,
        ..led(&[THREE, TWO])
    };
    fixture.put_partition(config_of(&partition), role);
    let refused = Some(ErrorCode::FencedLeaderEpoch);
    assert_eq!(asked.await.err(), refused);
}

#[tokio::test]
async fn past_its_lease_a_leader_goes_on_while_everybody_follows() {
    // R12
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    let lease = fixture.replicas.lease();
    lease.set(SystemClock.boot(), EPOCHS[0]);
    let refused = partition
        .produce(batch(&["a"]), options(Acks::Leader))
        .await;
    assert_eq!(refused.unwrap_err().error, ErrorCode::NotLeaderOrFollower);
    follow(&partition, TWO, 0).await;
    assert_eq!(produce(&partition, &["a"], Acks::Leader).await, 0);
    assert_eq!(produce(&partition, &["b"], Acks::None).await, 1);
    let elr = metadata::Partition {
        elr: vec![THREE],
        revision: 2,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(config_of(&partition), elr);
    let refused = partition.produce(batch(&["a"]), options(Acks::None)).await;
    assert_eq!(refused.unwrap_err().error, ErrorCode::NotLeaderOrFollower);
    // What the ISR commits goes on.
    let pending = partition.produce(batch(&["c"]), options(Acks::All));
    follow(&partition, TWO, 2).await;
    drop(pending);
    assert_eq!(partition.log_offsets(), Some((0, 3)));
    let later = SystemClock.boot() + Duration::from_secs(60);
    lease.set(later, EPOCHS[0]);
    assert_eq!(produce(&partition, &["d"], Acks::Leader).await, 3);
    // It had to register anew, and has not heard yet what has become of the partition.
    lease.set(later, EPOCHS[0] + 1_000);
    let refused = partition
        .produce(batch(&["e"]), options(Acks::Leader))
        .await;
    assert_eq!(refused.unwrap_err().error, ErrorCode::NotLeaderOrFollower);
}

#[tokio::test]
async fn records_are_gone_when_all_live_replicas_have_let_go_of_them() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    produce(&partition, &["a"], Acks::Leader).await;
    produce(&partition, &["b"], Acks::Leader).await;
    follow(&partition, TWO, 2).await;
    follow(&partition, THREE, 2).await;
    assert_eq!(
        partition.delete_records(1, soon()).await,
        Err(ErrorCode::RequestTimedOut)
    );
    let deleting = tokio::spawn(partition.delete_records(1, later()));
    let behind = |id| ReadRequest {
        replica_log_start: 1,
        ..asks(id, 2)
    };
    let read = fetch_as(&partition, behind(TWO)).await.unwrap();
    assert_eq!(read.log_start_offset, 1);
    assert!(!deleting.is_finished());
    fetch_as(&partition, behind(THREE)).await.unwrap();
    assert_eq!(deleting.await.unwrap(), Ok(1));
    assert_eq!(partition.delete_records(1, later()).await, Ok(1));
    // One that is gone is not waited for.
    let deleting = tokio::spawn(partition.delete_records(2, later()));
    let behind = ReadRequest {
        replica_log_start: 2,
        ..asks(TWO, 2)
    };
    fetch_as(&partition, behind).await.unwrap();
    fixture.change(|image| {
        image.brokers.remove(&THREE);
    });
    partition.tick_isr();
    assert_eq!(deleting.await.unwrap(), Ok(2));
}

#[tokio::test]
async fn a_duplicate_is_acknowledged_when_all_have_its_first_write() {
    let (_fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    drop(partition.produce(idempotent(0, "a"), options(Acks::All)));
    let mut retry = partition.produce(idempotent(0, "a"), options(Acks::All));
    follow(&partition, TWO, 0).await;
    let early = tokio::time::timeout(Duration::from_millis(20), &mut retry).await;
    assert!(early.is_err(), "TWO lacks the first write");
    follow(&partition, TWO, 1).await;
    let retried = retry.await.unwrap();
    assert!(retried.duplicate && retried.base_offset == 0);
}

#[tokio::test]
async fn a_duplicate_is_known_however_few_replicas_are_in_sync() {
    let (fixture, partition) = Fixture::leading(page_cache(), &[ME, TWO]);
    drop(partition.produce(idempotent(0, "a"), options(Acks::All)));
    follow(&partition, TWO, 0).await; // behind it on the lane
    let alone = metadata::Partition {
        revision: 2,
        ..led(&[ME])
    };
    fixture.put_partition(config_of(&partition), alone);
    let mut retry = partition.produce(idempotent(0, "a"), options(Acks::All));
    let early = tokio::time::timeout(Duration::from_millis(20), &mut retry).await;
    assert!(
        early.is_err(),
        "nothing is committed below min.insync.replicas"
    );
    let next = partition.produce(idempotent(1, "b"), options(Acks::All));
    assert_eq!(next.await.unwrap_err().error, ErrorCode::NotEnoughReplicas);
    let both = metadata::Partition {
        revision: 3,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(config_of(&partition), both);
    follow(&partition, TWO, 1).await;
    assert!(retry.await.unwrap().duplicate);
}

/// A registry in which brokers are registered, with a partition as it is led.
async fn registry(directory: &TempDir) -> (Arc<dyn Registry>, [i64; 3], i64) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let path = directory.path().join("registry.redb");
    let registry: Arc<dyn Registry> = Arc::new(Embedded::open(path, clock).await.unwrap());
    let mut epochs = [0; 3];
    for (id, epoch) in (1..).zip(&mut epochs) {
        *epoch = put(&registry, Key::Broker(BrokerId(id)), &registration()).await;
    }
    let value = metadata::value_of(&led(&[ME, TWO]));
    let value = crate::registry::value::PartitionValue {
        leader_registration: epochs[0],
        ..value
    };
    let revision = put(&registry, Key::Partition(TopicId([1; 16]), 0), &value).await;
    (registry, epochs, revision)
}

fn registration() -> BrokerValue {
    BrokerValue {
        endpoints: Vec::new(),
        rack: None,
        incarnation: String::new(),
        shutting_down: false,
    }
}

async fn put<T: serde::Serialize>(registry: &Arc<dyn Registry>, key: Key, value: &T) -> i64 {
    let put = Op::Put {
        key: key.to_string(),
        value: encode(value),
        lease: 0,
    };
    registry.txn(vec![], vec![put]).await.unwrap().revision
}

#[tokio::test]
async fn the_registry_hears_who_is_in_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, epochs, revision) = registry(&directory).await;
    let fixture = Fixture::new();
    fixture.change(|image| {
        for (id, epoch) in (1..).zip(epochs) {
            image
                .brokers
                .insert(BrokerId(id), broker(BrokerId(id), epoch));
        }
    });
    let role = metadata::Partition {
        leader_registration: epochs[0],
        revision,
        ..led(&[ME, TWO])
    };
    let partition = fixture.put_partition(page_cache(), role);
    let publisher = IsrPublisher::new(Arc::clone(&fixture.replicas), Arc::clone(&registry));
    let fetches = |id: BrokerId, offset, broker_epoch| {
        let mut asked = asks(id, offset);
        asked.replica.as_mut().unwrap().broker_epoch = broker_epoch;
        fetch_as(&partition, asked)
    };
    produce(&partition, &["a"], Acks::Leader).await;
    fetches(TWO, 1, epochs[1]).await.unwrap();
    fetches(THREE, 1, epochs[2]).await.unwrap();
    publisher.publish().await;
    let key = Key::Partition(partition.topic_id(), 0).to_string();
    let found = registry.get(&key).await.unwrap().unwrap();
    assert_eq!(
        std::str::from_utf8(&found.value).unwrap(),
        format!(
            r#"{{"leader":1,"leader_epoch":3,"leader_registration":{},"isr":[1,2,3],"partition_epoch":1}}"#,
            epochs[0]
        )
    );
    assert_eq!(fixture.replicas.shared().metrics.isr_expands.get(), 1);
    // The image comes later, and says nothing new.
    let isr = || match &partition.state.lock().leading {
        super::super::role::Leading::With(isr) => isr.committed().isr.clone(),
        _ => Vec::new(),
    };
    assert_eq!(isr(), [ME, TWO, THREE]);

    // R1: the controller changes the partition twice, of which this broker hears once.
    let value = |isr: Vec<i32>| crate::registry::value::PartitionValue {
        isr,
        ..crate::registry::value::decode(&found.value).unwrap()
    };
    let place = || Key::Partition(partition.topic_id(), 0);
    let seen = put(&registry, place(), &value(vec![1, 2])).await;
    let role = metadata::Partition {
        leader_registration: epochs[0],
        revision: seen,
        ..led(&[ME, TWO])
    };
    fixture.put_partition(page_cache(), role);
    assert_eq!(isr(), [ME, TWO]);
    let unseen = put(&registry, place(), &value(vec![1])).await;
    fetches(THREE, 1, epochs[2]).await.unwrap();
    publisher.publish().await;
    let failed = || fixture.replicas.shared().metrics.failed_isr_updates.get();
    assert_eq!((failed(), isr()), (1, vec![ME]));

    // R3: THREE is gone from the registry, and here nobody knows that yet. R2: so is this broker.
    for gone in [THREE, ME] {
        let key = Key::Broker(gone).to_string();
        registry
            .txn(vec![], vec![Op::Delete { key }])
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(510)).await; // after a refusal it waits
        let (joins, at) = if gone == ME { (TWO, 1) } else { (THREE, 2) };
        fetches(joins, 1, epochs[at]).await.unwrap();
        publisher.publish().await;
        let found = registry.get(&place().to_string()).await.unwrap().unwrap();
        assert_eq!((found.mod_revision, isr()), (unseen, vec![ME]), "{gone:?}");
    }
    assert_eq!(failed(), 3);
}

#[tokio::test]
async fn a_partition_whose_disk_failed_is_led_by_another() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, epochs, revision) = registry(&directory).await;
    let fixture = Fixture::new();
    fixture.change(|image| {
        for (id, epoch) in (1..).zip(epochs) {
            let id = BrokerId(id);
            image.brokers.insert(id, broker(id, epoch));
        }
    });
    let role = metadata::Partition {
        leader_registration: epochs[0],
        revision,
        ..led(&[ME, TWO])
    };
    let partition = fixture.put_partition(page_cache(), role);
    produce(&partition, &["a"], Acks::Leader).await;
    let publisher = IsrPublisher::new(Arc::clone(&fixture.replicas), Arc::clone(&registry));
    partition.take_offline();
    publisher.look_again();
    publisher.publish().await;
    let key = Key::Partition(partition.topic_id(), 0).to_string();
    let found = registry.get(&key).await.unwrap().unwrap();
    let text = std::str::from_utf8(&found.value).unwrap().to_owned();
    let expected = format!(
        r#"{{"leader":2,"leader_epoch":4,"leader_registration":{},"isr":[2],"partition_epoch":1}}"#,
        epochs[1]
    );
    assert_eq!(text, expected);
    publisher.look_again();
    publisher.publish().await;
    assert_eq!(registry.get(&key).await.unwrap().unwrap(), found);
}

#[tokio::test]
async fn a_follower_whose_disk_failed_leaves_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, epochs, _) = registry(&directory).await;
    let fixture = Fixture::new();
    fixture.change(|image| {
        for (id, epoch) in (1..).zip(epochs) {
            let id = BrokerId(id);
            image.brokers.insert(id, broker(id, epoch));
        }
    });
    let key = Key::Partition(TopicId([1; 16]), 0);
    let followed = metadata::Partition {
        leader: Some(TWO),
        leader_registration: epochs[1],
        ..led(&[ME, TWO])
    };
    let revision = put(&registry, key.clone(), &metadata::value_of(&followed)).await;
    let partition = fixture.put_partition(
        page_cache(),
        metadata::Partition {
            revision,
            ..followed
        },
    );
    assert_eq!(partition.topic_id(), TopicId([1; 16]));
    let publisher = IsrPublisher::new(Arc::clone(&fixture.replicas), Arc::clone(&registry));
    publisher.look_again();
    publisher.publish().await;
    let isr = async || {
        let found = registry.get(&key.to_string()).await.unwrap().unwrap();
        let value: crate::registry::value::PartitionValue =
            crate::registry::value::decode(&found.value).unwrap();
        (found.mod_revision, value.leader, value.isr)
    };
    assert_eq!(isr().await, (revision, 2, vec![1, 2]));
    partition.take_offline();
    publisher.look_again();
    publisher.publish().await;
    let (left_at, leader, rest) = isr().await;
    assert_eq!((leader, rest), (2, vec![2]));
    // The image has not come yet: it says so again, which is refused and changes nothing.
    publisher.look_again();
    publisher.publish().await;
    assert_eq!(isr().await.0, left_at);
}
