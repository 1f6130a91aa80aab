//! What an acknowledgement means, and who sees a record when.

use super::*;

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
