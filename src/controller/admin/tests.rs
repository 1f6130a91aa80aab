//! The whole way: registry on disk, session, watcher, image.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::controller::{Session, SessionConfig};
use crate::metadata::{Watcher, initial_partition};
use crate::registry::Embedded;
use crate::time::SystemClock;

const TIMEOUT: Duration = Duration::from_secs(30);

struct Node {
    admin: Arc<Admin>,
    cache: Arc<MetadataCache>,
    registry: Arc<Embedded>,
    stop: CancellationToken,
    watching: JoinHandle<()>,
    directory: tempfile::TempDir,
}

impl Node {
    /// Ends it, as far as its database is closed.
    async fn stop(self) -> tempfile::TempDir {
        self.stop.cancel();
        self.watching.await.unwrap();
        self.directory
    }
}

async fn node(change: impl FnOnce(&mut BrokerConfig)) -> Node {
    start(tempfile::tempdir().unwrap(), change).await
}

async fn start(directory: tempfile::TempDir, change: impl FnOnce(&mut BrokerConfig)) -> Node {
    let mut config = BrokerConfig::for_tests(directory.path());
    change(&mut config);
    let path = directory.path().join("registry.redb");
    let registry = Arc::new(Embedded::open(path, Arc::new(SystemClock)).await.unwrap());
    let shared: Arc<dyn Registry> = Arc::clone(&registry) as _;
    let session_config = SessionConfig {
        broker: config.node_id,
        endpoints: Vec::new(),
        rack: None,
        cluster_id: None,
        new_cluster_id: None,
        ttl: Duration::from_secs(3600),
        heartbeat: Duration::from_secs(1200),
        has_data: false,
        directories: Vec::new(),
        shared: None,
        stopped_incarnation: None,
        seen: Vec::new(),
    };
    let session = Session::start(Arc::clone(&shared), session_config, Arc::new(SystemClock))
        .await
        .unwrap();
    let watcher = Watcher::load(Arc::clone(&shared), Resolver::new(&config))
        .await
        .unwrap();
    session
        .remove_orphans(&watcher.unattached_topics())
        .await
        .unwrap();
    let cache = watcher.cache();
    let stop = CancellationToken::new();
    let watching = tokio::spawn(watcher.run(Arc::new(SystemClock), stop.clone()));
    let admin = Admin::new(
        shared,
        Arc::clone(&cache),
        Arc::new(config),
        session.producer_ids(),
    );
    Node {
        admin: Arc::new(admin),
        cache,
        registry,
        stop,
        watching,
        directory,
    }
}

fn topic(name: &str, partitions: i32) -> NewTopic {
    NewTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: -1,
        ..NewTopic::default()
    }
}

fn named(name: &str) -> TopicReference {
    TopicReference::Name(name.into())
}

async fn create(node: &Node, topic: NewTopic) -> Result<CreatedTopic, ApiError> {
    let results = node.admin.create_topics(vec![topic], false, TIMEOUT).await;
    results.into_iter().next().unwrap()
}

fn code<T: std::fmt::Debug>(result: &Result<T, ApiError>) -> i16 {
    result
        .as_ref()
        .map_or_else(|error| error.code.code(), |_| 0)
}

#[tokio::test]
async fn a_topic_is_in_the_image_when_its_creation_returns_and_gone_with_its_deletion() {
    let node = node(|_| {}).await;
    let created = create(&node, topic("t", 3)).await.unwrap();
    assert_eq!((created.num_partitions, created.replication_factor), (3, 1));
    let image = node.cache.current();
    let seen = &image.topics["t"];
    assert_eq!((seen.id, seen.partitions.len()), (created.id, 3));
    assert_eq!(seen.partitions[2].leader, Some(BrokerId(1)));
    assert_eq!(code(&create(&node, topic("t", 3)).await), 36);

    let results = node
        .admin
        .delete_topics(
            vec![
                TopicReference::Id(created.id),
                named("none"),
                TopicReference::Id(TopicId([9; 16])),
            ],
            TIMEOUT,
        )
        .await;
    assert_eq!(results[0], Ok(("t".into(), created.id)));
    assert_eq!(results[1..].iter().map(code).collect::<Vec<_>>(), [3, 100]);
    assert!(node.cache.current().topics.is_empty());
    let left = node.registry.range("/partitions/", "", 9, 0).await.unwrap();
    assert!(left.entries.is_empty());
    let again = create(&node, topic("t", 1)).await.unwrap();
    assert_ne!(again.id, created.id);
}

#[tokio::test]
async fn one_request_is_one_sync_and_bad_topics_do_not_keep_good_ones_back() {
    let node = node(|_| {}).await;
    let before = node.registry.syncs().await.unwrap();
    let mut topics: Vec<_> = (0..20).map(|n| topic(&format!("t{n}"), 1)).collect();
    topics.insert(7, topic("bad name", 1));
    let valid = node
        .admin
        .create_topics(topics[..20].to_vec(), true, TIMEOUT)
        .await;
    assert_eq!(valid.iter().filter(|result| result.is_ok()).count(), 19);
    assert!(node.cache.current().topics.is_empty());
    let results = node.admin.create_topics(topics, false, TIMEOUT).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 20);
    assert_eq!(code(&results[7]), 17);
    assert_eq!(node.cache.current().topics.len(), 20);
    assert_eq!(node.registry.syncs().await.unwrap(), before + 1);
    let names = (0..20).map(|n| named(&format!("t{n}"))).collect();
    let results = node.admin.delete_topics(names, TIMEOUT).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(node.registry.syncs().await.unwrap(), before + 2);
}

#[tokio::test]
async fn configs_count_at_once_and_outlive_the_process() {
    let node = node(|_| {}).await;
    let created = create(
        &node,
        NewTopic {
            configs: vec![("retention.ms".to_owned(), Some("5000".to_owned()))],
            ..topic("t", 1)
        },
    )
    .await
    .unwrap();
    assert_eq!(created.config.retention_ms, 5000);
    let set = |key: &'static str, value: &'static str| {
        move |old: &ConfigMap| {
            let mut new = old.clone();
            new.insert(key.to_owned(), value.to_owned());
            Ok(new)
        }
    };
    let admin = &node.admin;
    let on_topic = ConfigResource::Topic("t".into());
    let change = set("segment.ms", "7000");
    admin.alter_config(&on_topic, true, &change).await.unwrap();
    assert_eq!(node.cache.current().topics["t"].overrides.len(), 1);
    admin.alter_config(&on_topic, false, &change).await.unwrap();
    let config = Arc::clone(&node.cache.current().topics["t"].config);
    assert_eq!((config.retention_ms, config.segment_ms), (5000, 7000));
    // The cluster's defaults reach every topic that does not say otherwise.
    let defaults = set("log.retention.ms", "9000");
    admin
        .alter_config(&ConfigResource::BrokerDefaults, false, &defaults)
        .await
        .unwrap();
    create(&node, topic("u", 1)).await.unwrap();
    let image = node.cache.current();
    assert_eq!(image.topics["u"].config.retention_ms, 9000);
    assert_eq!(image.topics["t"].config.retention_ms, 5000);
    let clear = |_: &ConfigMap| Ok(ConfigMap::new());
    admin.alter_config(&on_topic, false, &clear).await.unwrap();
    assert_eq!(node.cache.current().topics["t"].config.retention_ms, 9000);
    for resource in [
        ConfigResource::Broker(BrokerId(1)),
        ConfigResource::Group("g/1".to_owned()),
        ConfigResource::ClientMetrics("m".to_owned()),
    ] {
        let change = set("k", "v");
        admin.alter_config(&resource, false, &change).await.unwrap();
    }
    let unknown = ConfigResource::Topic("none".into());
    assert_eq!(code(&admin.alter_config(&unknown, false, &clear).await), 3);
    let refuse = |_: &ConfigMap| Err(ApiError::new(ErrorCode::InvalidConfig, "no"));
    assert_eq!(
        code(&admin.alter_config(&on_topic, false, &refuse).await),
        40
    );

    let directory = node.stop().await;
    let node = start(directory, |_| {}).await;
    let image = node.cache.current();
    assert_eq!(image.topics["t"].config.retention_ms, 9000);
    assert_eq!(image.group_configs["g/1"]["k"], "v");
    assert_eq!(image.client_metrics_configs["m"]["k"], "v");
    assert_eq!(image.broker_configs[&BrokerId(1)]["k"], "v");
}

#[tokio::test]
async fn concurrent_changes_of_one_config_all_count() {
    let node = node(|_| {}).await;
    create(&node, topic("t", 1)).await.unwrap();
    let changes = (0..10).map(|n| {
        let admin = Arc::clone(&node.admin);
        async move {
            let change = move |old: &ConfigMap| {
                let mut new = old.clone();
                new.insert(format!("k{n}"), "v".to_owned());
                Ok(new)
            };
            let resource = ConfigResource::Topic("t".into());
            admin.alter_config(&resource, false, &change).await
        }
    });
    for result in futures_util::future::join_all(changes).await {
        result.unwrap();
    }
    assert_eq!(node.cache.current().topics["t"].overrides.len(), 10);
}

#[tokio::test]
async fn partitions_are_added_together() {
    let node = node(|_| {}).await;
    create(&node, topic("t", 2)).await.unwrap();
    let more = |count| NewPartitions {
        name: "t".into(),
        count,
        assignments: None,
    };
    let results = node
        .admin
        .create_partitions(vec![more(5)], true, TIMEOUT)
        .await;
    assert_eq!(code(&results[0]), 0);
    assert_eq!(node.cache.current().topics["t"].partitions.len(), 2);
    let unknown = NewPartitions {
        name: "none".into(),
        ..more(5)
    };
    let results = node
        .admin
        .create_partitions(vec![more(5), more(5), unknown], false, TIMEOUT)
        .await;
    assert_eq!(results.iter().map(code).collect::<Vec<_>>(), [0, 37, 3]);
    assert_eq!(node.cache.current().topics["t"].partitions.len(), 5);
    let results = node
        .admin
        .create_partitions(vec![more(10_006)], true, TIMEOUT)
        .await;
    assert_eq!(code(&results[0]), 44);
    let results = node
        .admin
        .create_partitions(vec![more(6)], true, Duration::ZERO)
        .await;
    assert_eq!(code(&results[0]), 7);
}

#[tokio::test]
async fn a_large_topic_is_made_and_deleted_and_a_larger_one_refused() {
    let node = node(|_| {}).await;
    create(&node, topic("large", 10_000)).await.unwrap();
    assert_eq!(
        node.cache.current().topics["large"].partitions.len(),
        10_000
    );
    assert_eq!(code(&create(&node, topic("larger", 10_001)).await), 44);
    assert_eq!(code(&create(&node, topic("largest", i32::MAX)).await), 44);
    let results = node
        .admin
        .delete_topics(vec![named("large")], TIMEOUT)
        .await;
    assert_eq!(code(&results[0]), 0);
    assert!(node.cache.current().topics.is_empty());
}

#[tokio::test]
async fn topics_are_made_on_demand_once() {
    let node = node(|_| {}).await;
    let admin = &node.admin;
    let (one, two) = tokio::join!(admin.auto_create_topic("t"), admin.auto_create_topic("t"));
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!(node.cache.current().topics["t"].partitions.len(), 1);
    assert_eq!(code(&admin.auto_create_topic("a/b").await), 17);
    admin.auto_create_topic("__consumer_offsets").await.unwrap();
    let image = node.cache.current();
    let offsets = &image.topics["__consumer_offsets"];
    assert_eq!(offsets.partitions.len(), 50);
    assert!(offsets.config.cleanup_policy.compact && !offsets.config.cleanup_policy.delete);
    assert_eq!(offsets.config.segment_bytes, 104_857_600);
}

#[tokio::test]
async fn deletion_can_be_disabled() {
    let node = node(|config| config.delete_topic_enable = false).await;
    create(&node, topic("t", 1)).await.unwrap();
    let results = node.admin.delete_topics(vec![named("t")], TIMEOUT).await;
    assert_eq!(code(&results[0]), 73);
    assert_eq!(node.cache.current().topics.len(), 1);
}

#[tokio::test]
async fn producer_ids_never_come_twice() {
    let mut node = node(|_| {}).await;
    let mut last = -1;
    for _ in 0..2 {
        for _ in 0..1500 {
            let id = node.admin.allocate_producer_id().await.unwrap();
            assert!(id > last);
            last = id;
        }
        let directory = node.stop().await;
        node = start(directory, |_| {}).await;
    }
}

#[tokio::test]
async fn what_an_interrupted_creation_left_is_removed_at_the_next_start() {
    let node = node(|_| {}).await;
    create(&node, topic("t", 2)).await.unwrap();
    let id = TopicId([9; 16]);
    let state = initial_partition(&node.cache.current(), &[BrokerId(1)]).unwrap();
    let orphans = create::partition_ops(id, 0, &vec![state; 3]);
    node.registry.txn(vec![], orphans).await.unwrap();
    let directory = node.stop().await;
    let node = start(directory, |_| {}).await;
    let left = node
        .registry
        .range("/partitions/", "", 99, 0)
        .await
        .unwrap();
    assert_eq!(left.entries.len(), 2);
    assert_eq!(node.cache.current().topics["t"].partitions.len(), 2);
}
