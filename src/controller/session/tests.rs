use super::*;
use crate::registry::Embedded;
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
        ttl: Duration::from_millis(400),
        revoke_at_stop: true,
    }
}

#[tokio::test]
async fn a_new_cluster_gets_an_id_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let session = Session::start(Arc::clone(&shared), config(None), &SystemClock)
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
    let session = Session::start(Arc::clone(&shared), config(None), &SystemClock)
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
    let other = Session::start(shared, config(Some("other")), &SystemClock).await;
    assert!(matches!(other, Err(SessionError::OtherCluster { .. })));
}

#[tokio::test]
async fn a_given_cluster_id_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let session = Session::start(
        registry(&directory).await,
        config(Some("mine")),
        &SystemClock,
    )
    .await
    .unwrap();
    assert_eq!(session.cluster_id(), "mine");
}

#[tokio::test]
async fn a_silent_predecessor_is_waited_for_and_a_living_one_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let shared = registry(&directory).await;
    let start = || Session::start(Arc::clone(&shared), config(None), &SystemClock);
    let first = start().await.unwrap();
    // Nobody keeps the first one alive.
    let second = start().await.unwrap();
    assert!(second.broker_epoch() > first.broker_epoch());
    let stop = CancellationToken::new();
    let running = tokio::spawn(second.run(Arc::new(SystemClock), stop.clone()));
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
