use super::*;
use crate::registry::value::PartitionValue;
use crate::registry::{Embedded, SeenChange};
use crate::time::SystemClock;

async fn registry(directory: &tempfile::TempDir) -> Arc<dyn Registry> {
    let path = directory.path().join("registry.redb");
    Arc::new(Embedded::open(path, Arc::new(SystemClock)).await.unwrap())
}

fn config(cluster_id: Option<&str>) -> SessionConfig {
    SessionConfig {
        broker: BrokerId(1),
        endpoints: Vec::new(),
        rack: None,
        cluster_id: cluster_id.map(str::to_owned),
        new_cluster_id: None,
        ttl: Duration::from_millis(400),
        heartbeat: Duration::from_millis(130),
        has_data: false,
        directories: Vec::new(),
        stopped_incarnation: None,
        seen: Vec::new(),
        shared: Some(Resolver::new(&crate::config::BrokerConfig::for_tests(
            "/nowhere",
        ))),
    }
}

#[tokio::test]
async fn a_new_cluster_gets_an_id_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let session = Session::start(Arc::clone(&shared), config(None), Arc::new(SystemClock))
        .await
        .unwrap();
    assert_eq!(session.cluster_id().len(), 22);
    assert_eq!(session.producer_ids(), 0..1000);
    let controller = shared.get("/controller").await.unwrap().unwrap();
    assert_eq!(controller.value, r#"{"broker":1}"#);
    assert_eq!(controller.create_revision, session.broker_epoch());
    let id = session.cluster_id().to_owned();
    drop((session, shared));

    // The next process: the same cluster, a new epoch, a new block.
    let shared = registry(&directory).await;
    let session = Session::start(Arc::clone(&shared), config(None), Arc::new(SystemClock))
        .await
        .unwrap();
    assert_eq!(
        (session.cluster_id(), session.producer_ids()),
        (&*id, 1000..2000)
    );
    assert_eq!(session.broker_epoch(), 2);
    let epoch = shared.get("/epoch/controller").await.unwrap().unwrap();
    assert_eq!(epoch.value, "2");
    drop((session, shared));

    let shared = registry(&directory).await;
    let other = Session::start(shared, config(Some("other")), Arc::new(SystemClock)).await;
    assert!(matches!(other, Err(SessionError::OtherCluster { .. })));
}

#[tokio::test]
async fn a_given_cluster_id_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let session = Session::start(
        registry(&directory).await,
        config(Some("mine")),
        Arc::new(SystemClock),
    )
    .await
    .unwrap();
    assert_eq!(session.cluster_id(), "mine");
}

#[tokio::test]
async fn a_new_registry_takes_the_id_of_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let start = |configured, of_the_data: &str| {
        let config = SessionConfig {
            new_cluster_id: Some(of_the_data.to_owned()),
            ..config(configured)
        };
        Session::start(Arc::clone(&shared), config, Arc::new(SystemClock))
    };
    let session = start(None, "data").await.unwrap();
    assert_eq!(session.cluster_id(), "data");
    // It is old now: what the directories say is for others to compare.
    assert_eq!(start(None, "other").await.unwrap().cluster_id(), "data");
    assert!(start(Some("other"), "data").await.is_err());
}

#[tokio::test]
async fn the_lease_is_kept_alive_as_often_as_asked() {
    for (heartbeat_ms, stays) in [(100, true), (60_000, false)] {
        let directory = tempfile::tempdir().unwrap();
        let shared = registry(&directory).await;
        let config = SessionConfig {
            heartbeat: Duration::from_millis(heartbeat_ms),
            ..config(None)
        };
        let session = Session::start(Arc::clone(&shared), config, Arc::new(SystemClock)).await;
        let session = session.unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(session.run(stop.clone()));
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let registered = shared.get("/brokers/1").await.unwrap().is_some();
        assert_eq!(registered, stays, "every {heartbeat_ms} ms");
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test]
async fn a_silent_predecessor_is_waited_for_and_a_living_one_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let start = || Session::start(Arc::clone(&shared), config(None), Arc::new(SystemClock));
    let first = start().await.unwrap();
    // Nobody keeps the first one alive.
    let second = start().await.unwrap();
    assert!(second.broker_epoch() > first.broker_epoch());
    let stop = CancellationToken::new();
    let running = tokio::spawn(second.run(stop.clone()));
    assert!(matches!(
        start().await,
        Err(SessionError::Taken(BrokerId(1)))
    ));
    // A clean stop makes room at once.
    stop.cancel();
    running.await.unwrap();
    assert_eq!(shared.get("/brokers/1").await.unwrap(), None);
    start().await.unwrap();
}

#[tokio::test]
async fn a_registry_that_does_not_go_on_from_what_was_seen_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let start = |seen: &[Seen]| {
        let config = SessionConfig {
            seen: seen.to_vec(),
            ..config(None)
        };
        Session::start(Arc::clone(&shared), config, Arc::new(SystemClock))
    };
    let first = start(&[]).await.unwrap();
    let epoch = first.broker_epoch();
    let seen = Seen {
        cluster_id: first.cluster_id().to_owned(),
        imported: None,
        revision: epoch,
        change: SeenChange {
            key: "/brokers-meta/1".into(),
            revision: epoch,
        },
        registration: first.handle().registered_at(),
    };
    start(std::slice::from_ref(&seen)).await.unwrap();
    let changed = |change: &dyn Fn(&mut Seen)| {
        let mut changed = seen.clone();
        change(&mut changed);
        [seen.clone(), changed]
    };
    for (older, word) in [
        (changed(&|seen| seen.revision = 99), "at revision"),
        (
            changed(&|seen| seen.registration = 99),
            "record of this broker",
        ),
        (
            changed(&|seen| seen.change.key = "/topics/t".into()),
            "another history",
        ),
    ] {
        let error = start(&older).await.unwrap_err();
        assert!(matches!(&error, SessionError::Older(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
        // What others have seen, or this one of another registry, is nothing to go by.
        let mut other = older.clone();
        other[1].imported = Some("another".into());
        start(&other).await.unwrap();
        other[1].imported = None;
        other[1].cluster_id = "another".into();
        start(&other).await.unwrap();
    }
}

/// R10: etcd was away when the broker stopped; the broker's own disk has what it could not say.
#[tokio::test]
async fn a_clean_stop_that_only_the_disk_knows_of_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let put = |key: &str, value: &str| Op::Put {
        key: key.to_owned(),
        value: value.to_owned().into(),
        lease: 0,
    };
    let topic = r#"{"id":"AAAAAAAAAAAAAAAAAAAAAQ","replicas":[[1,2]],"configs":{"flush.messages":"10000"}}"#;
    let partition = r#"{"leader":2,"leader_epoch":0,"isr":[2,1],"partition_epoch":0}"#;
    let ops = vec![
        put("/topics/t", topic),
        put("/partitions/AAAAAAAAAAAAAAAAAAAAAQ/0", partition),
    ];
    shared.txn(vec![], ops).await.unwrap();
    let start = async |stopped: Option<&str>| {
        let config = SessionConfig {
            stopped_incarnation: stopped.map(str::to_owned),
            ..config(None)
        };
        let session = Session::start(Arc::clone(&shared), config, Arc::new(SystemClock)).await;
        session.unwrap().handle().incarnation().to_owned()
    };
    let isr = async || {
        let found = shared.get("/partitions/AAAAAAAAAAAAAAAAAAAAAQ/0").await;
        let value: PartitionValue = decode(&found.unwrap().unwrap().value).unwrap();
        value.isr
    };
    let first = start(None).await;
    let second = start(Some(&first)).await;
    assert_eq!(isr().await, [2, 1]);
    // That of a life before the last one says nothing of the last one.
    assert_ne!(first, second);
    start(Some(&first)).await;
    assert_eq!(isr().await, [2]);
}
