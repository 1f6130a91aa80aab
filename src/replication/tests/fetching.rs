//! Fetches: what they wait for, what they bring, what ends them.

use super::*;

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
