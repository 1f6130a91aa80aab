//! One suite for every implementation of `Registry`: what the broker relies on holds in both.
//!
//! The etcd half starts an etcd of its own per test, on free loopback ports. Where the machine has no
//! `etcd` it says so and passes, unless `OTTLA_REQUIRE_ETCD=1` is set (CI does).
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "support/etcd.rs"]
mod etcd_process;
mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_process::{EtcdProcess, start_etcd};
use ottla::config::BrokerConfig;
use ottla::controller::{
    Admin, ConfigResource, NewPartitions, NewTopic, Session, SessionConfig, TopicReference,
};
use ottla::metadata::{Resolver, Watcher};
use ottla::registry::{
    Compare, Embedded, Etcd, EtcdConfig, KeyValue, Op, Registry, RegistryError, WatchEvent,
};
use ottla::time::SystemClock;
use ottla::types::BrokerId;
use tokio::time::timeout;

fn put(key: &str, value: &str) -> Op {
    leased(key, value, 0)
}

fn leased(key: &str, value: &str, lease: i64) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
    }
}

fn delete(key: &str) -> Op {
    Op::Delete {
        key: key.to_owned(),
    }
}

fn modified(key: &str, revision: i64) -> Compare {
    Compare::ModRevision {
        key: key.to_owned(),
        revision,
    }
}

fn created(key: &str, revision: i64) -> Compare {
    Compare::CreateRevision {
        key: key.to_owned(),
        revision,
    }
}

/// Writes without a condition; returns the revision.
async fn write(registry: &dyn Registry, ops: Vec<Op>) -> i64 {
    let outcome = registry.txn(vec![], ops).await.unwrap();
    assert!(outcome.succeeded);
    outcome.revision
}

async fn found(registry: &dyn Registry, key: &str) -> KeyValue {
    registry.get(key).await.unwrap().expect(key)
}

/// A short form of a group: `+key=value` and `-key`, and the revision that all of them have.
fn brief(group: &[WatchEvent]) -> (Vec<String>, i64) {
    let mut revisions: Vec<i64> = Vec::new();
    let texts = group
        .iter()
        .map(|event| match event {
            WatchEvent::Put(entry) => {
                revisions.push(entry.mod_revision);
                format!("+{}={}", entry.key, String::from_utf8_lossy(&entry.value))
            }
            WatchEvent::Delete { key, revision } => {
                revisions.push(*revision);
                format!("-{key}")
            }
        })
        .collect();
    revisions.dedup();
    assert_eq!(revisions.len(), 1, "a group is of one revision: {group:?}");
    (texts, revisions[0])
}

async fn next(watch: &mut Box<dyn ottla::registry::Watch>) -> (Vec<String>, i64) {
    let group = timeout(Duration::from_secs(10), watch.next())
        .await
        .expect("a change arrives")
        .unwrap();
    brief(&group)
}

async fn compare_and_swap(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let first = r
        .txn(vec![created("/k", 0)], vec![put("/k", "1")])
        .await
        .unwrap();
    assert!(first.succeeded);
    let again = r
        .txn(vec![created("/k", 0)], vec![put("/k", "2")])
        .await
        .unwrap();
    assert!(!again.succeeded);
    assert_eq!(
        again.revision, first.revision,
        "a failed one counts nothing"
    );
    let swapped = r
        .txn(vec![modified("/k", first.revision)], vec![put("/k", "3")])
        .await
        .unwrap();
    assert!(swapped.succeeded);
    // One wrong compare among right ones: nothing of it happens.
    let outcome = r
        .txn(
            vec![modified("/k", swapped.revision), modified("/other", 7)],
            vec![put("/k", "4"), put("/other", "4")],
        )
        .await
        .unwrap();
    assert!(!outcome.succeeded);
    assert_eq!(found(r, "/k").await.value, "3");
    assert_eq!(r.get("/other").await.unwrap(), None);
    // A key written twice in one transaction is refused.
    for ops in [
        vec![put("/d", "1"), put("/d", "2")],
        vec![
            Op::DeletePrefix {
                prefix: "/d".to_owned(),
            },
            put("/d/x", "1"),
        ],
    ] {
        assert!(matches!(
            r.txn(vec![], ops).await,
            Err(RegistryError::Storage(_))
        ));
    }
    // Of many at once exactly one wins each round, and none is lost.
    let before = write(r, vec![put("/count", "0")]).await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let registry = Arc::clone(&registry);
        tasks.push(tokio::spawn(async move {
            loop {
                let now = found(registry.as_ref(), "/count").await;
                let value: i32 = std::str::from_utf8(&now.value).unwrap().parse().unwrap();
                let outcome = registry
                    .txn(
                        vec![modified("/count", now.mod_revision)],
                        vec![put("/count", &(value + 1).to_string())],
                    )
                    .await
                    .unwrap();
                if outcome.succeeded {
                    return;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let end = found(r, "/count").await;
    assert_eq!(end.value, "8");
    assert_eq!(end.mod_revision, before + 8);
}

async fn revisions(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let one = write(r, vec![put("/a", "1"), put("/b", "1")]).await;
    let two = write(r, vec![put("/a", "2")]).await;
    assert_eq!(two, one + 1);
    let a = found(r, "/a").await;
    assert_eq!((a.create_revision, a.mod_revision), (one, two));
    let b = found(r, "/b").await;
    assert_eq!((b.create_revision, b.mod_revision), (one, one));
    // Deleting what is not there is no change; deleting and making anew starts over.
    assert_eq!(write(r, vec![delete("/none")]).await, two);
    let three = write(r, vec![delete("/a")]).await;
    assert_eq!(three, two + 1);
    let four = write(r, vec![put("/a", "3")]).await;
    let a = found(r, "/a").await;
    assert_eq!((a.create_revision, a.mod_revision), (four, four));
    // A prefix is deleted as one revision, and nothing beside it.
    write(
        r,
        vec![
            put("/p/1", ""),
            put("/p/2", ""),
            put("/p", ""),
            put("/p0", ""),
        ],
    )
    .await;
    write(
        r,
        vec![Op::DeletePrefix {
            prefix: "/p/".to_owned(),
        }],
    )
    .await;
    let left = r.range("/p", "", 10, 0).await.unwrap().entries;
    let left: Vec<_> = left.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(left, ["/p", "/p0"]);
}

async fn leases(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let ttl = Duration::from_secs(3);
    let (short, kept, revoked) = (
        r.lease_grant(ttl).await.unwrap(),
        r.lease_grant(ttl).await.unwrap(),
        r.lease_grant(ttl).await.unwrap(),
    );
    let start = write(
        r,
        vec![
            leased("/l/short1", "", short),
            leased("/l/short2", "", short),
            leased("/l/freed", "", short),
            leased("/l/kept", "", kept),
            leased("/l/revoked", "", revoked),
        ],
    )
    .await;
    assert_eq!(found(r, "/l/kept").await.lease, kept);
    write(r, vec![put("/l/freed", "stays")]).await;
    assert_eq!(found(r, "/l/freed").await.lease, 0);
    let mut watch = r.watch("/l/", start + 2).await.unwrap();
    r.lease_revoke(revoked).await.unwrap();
    assert_eq!(next(&mut watch).await.0, ["-/l/revoked"]);
    let keeping = {
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            loop {
                registry.lease_keep_alive(kept).await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        })
    };
    // Nobody asks anything meanwhile: the lease runs out by itself, all its keys at once.
    let (mut gone, _) = next(&mut watch).await;
    gone.sort();
    assert_eq!(gone, ["-/l/short1", "-/l/short2"]);
    assert_eq!(found(r, "/l/freed").await.value, "stays");
    found(r, "/l/kept").await;
    keeping.abort();
    assert_eq!(next(&mut watch).await.0, ["-/l/kept"]);
    assert!(matches!(
        r.lease_keep_alive(short).await,
        Err(RegistryError::LeaseNotFound)
    ));
    assert!(matches!(
        r.lease_revoke(revoked).await,
        Err(RegistryError::LeaseNotFound)
    ));
    assert!(matches!(
        r.txn(vec![], vec![leased("/l/late", "", short)]).await,
        Err(RegistryError::LeaseNotFound)
    ));
}

async fn watch_from_a_revision(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let first = write(r, vec![put("/w/a", "1")]).await;
    write(
        r,
        vec![put("/w/a", "2"), put("/w/b", "2"), put("/other", "")],
    )
    .await;
    write(r, vec![put("/other", "3")]).await;
    write(r, vec![delete("/w/a")]).await;
    // The past first, then what comes; one group a revision, other prefixes left out.
    let mut watch = r.watch("/w/", first).await.unwrap();
    assert_eq!(next(&mut watch).await, (vec!["+/w/a=1".into()], first));
    let (mut both, revision) = next(&mut watch).await;
    both.sort();
    assert_eq!(
        (both, revision),
        (vec!["+/w/a=2".into(), "+/w/b=2".into()], first + 1)
    );
    assert_eq!(next(&mut watch).await, (vec!["-/w/a".into()], first + 3));
    assert!(
        timeout(Duration::from_millis(100), watch.next())
            .await
            .is_err(),
        "nothing more has happened, and giving up on a group loses none"
    );
    let now = write(r, vec![put("/w/c", "5")]).await;
    assert_eq!(next(&mut watch).await, (vec!["+/w/c=5".into()], now));
    // A later start, a future start, and two watches that do not disturb each other.
    let mut late = r.watch("/w/", now).await.unwrap();
    let mut future = r.watch("/", now + 2).await.unwrap();
    assert_eq!(next(&mut late).await, (vec!["+/w/c=5".into()], now));
    write(r, vec![put("/w/d", "6")]).await;
    let last = write(r, vec![put("/w/e", "7")]).await;
    assert_eq!(next(&mut future).await, (vec!["+/w/e=7".into()], last));
    assert_eq!(next(&mut late).await, (vec!["+/w/d=6".into()], last - 1));
    assert_eq!(next(&mut watch).await, (vec!["+/w/d=6".into()], last - 1));
}

async fn watch_groups_by_revision(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let mut watch = r.watch("/g/", 1).await.unwrap();
    let writer = {
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            for round in 0..20 {
                let ops = (0..100)
                    .map(|key| put(&format!("/g/{key:03}"), &round.to_string()))
                    .collect();
                write(registry.as_ref(), ops).await;
            }
        })
    };
    let mut before = 0;
    for round in 0..20 {
        let (group, revision) = next(&mut watch).await;
        assert_eq!(group.len(), 100, "all of one transaction arrives together");
        assert!(
            group
                .iter()
                .all(|event| event.ends_with(&format!("={round}")))
        );
        assert!(revision > before);
        before = revision;
    }
    writer.await.unwrap();
}

async fn compaction(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let first = write(r, vec![put("/c", "1")]).await;
    for value in 2..=5 {
        write(r, vec![put("/c", &value.to_string())]).await;
    }
    r.compact(first + 2).await.unwrap();
    let page = r.range("/c", "", 10, first + 2).await.unwrap();
    assert_eq!(page.entries[0].value, "3", "the revision itself stays");
    assert!(matches!(
        r.range("/c", "", 10, first + 1).await,
        Err(RegistryError::Compacted { .. })
    ));
    let mut watch = r.watch("/c", first + 1).await.unwrap();
    let Err(RegistryError::Compacted { oldest }) = timeout(Duration::from_secs(10), watch.next())
        .await
        .expect("an answer")
    else {
        panic!("a watch of what is gone");
    };
    assert_eq!(oldest, first + 2);
    let mut watch = r.watch("/c", first + 3).await.unwrap();
    assert_eq!(next(&mut watch).await, (vec!["+/c=4".into()], first + 3));
    assert!(matches!(
        r.compact(first + 1).await,
        Err(RegistryError::Compacted { .. })
    ));
    assert!(matches!(
        r.compact(first + 100).await,
        Err(RegistryError::Storage(_))
    ));
    assert!(matches!(
        r.range("/c", "", 10, first + 100).await,
        Err(RegistryError::Storage(_))
    ));
}

async fn paging(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    for base in (0..250).step_by(50) {
        let ops = (base..base + 50)
            .map(|key| put(&format!("/page/{key:04}"), "old"))
            .collect();
        write(r, ops).await;
    }
    write(r, vec![put("/page", ""), put("/page0", ""), put("/a", "")]).await;
    let first = r.range("/page/", "", 100, 0).await.unwrap();
    assert_eq!(first.entries.len(), 100);
    // What happens between the pages is not seen at the first page's revision.
    write(
        r,
        vec![
            put("/page/0000", "new"),
            put("/page/0120", "new"),
            delete("/page/0121"),
            delete("/page/0249"),
            put("/page/0122x", "new"),
            put("/page/9999", "new"),
        ],
    )
    .await;
    let mut keys: Vec<_> = first.entries.into_iter().map(|entry| entry.key).collect();
    let mut from = first.next_key;
    let mut pages = 1;
    while let Some(key) = from {
        let page = r.range("/page/", &key, 100, first.revision).await.unwrap();
        assert_eq!(page.revision, first.revision);
        for entry in page.entries {
            assert_eq!(entry.value, "old", "{}", entry.key);
            assert!(entry.mod_revision <= first.revision);
            keys.push(entry.key);
        }
        from = page.next_key;
        pages += 1;
    }
    let expected: Vec<_> = (0..250).map(|key| format!("/page/{key:04}")).collect();
    assert_eq!(keys, expected);
    assert_eq!(pages, 3);
    let now = r.range("/page/", "", 1000, 0).await.unwrap();
    assert_eq!(now.entries.len(), 250);
    assert_eq!(now.next_key, None);
    // A page that ends exactly at the end says so; an empty one too.
    let exact = r.range("/page/", "", 250, 0).await.unwrap();
    assert_eq!((exact.entries.len(), exact.next_key), (250, None));
    let none = r.range("/none/", "", 10, 0).await.unwrap();
    assert_eq!((none.entries.len(), none.next_key), (0, None));
}

async fn large_transactions(registry: Arc<dyn Registry>) {
    let r = registry.as_ref();
    let count = r.txn_ops_max().min(2_000);
    let ops: Vec<_> = (0..count)
        .map(|key| put(&format!("/big/{key:05}"), &"x".repeat(200)))
        .collect();
    let revision = write(r, ops).await;
    let mut watch = r.watch("/big/", revision).await.unwrap();
    assert_eq!(next(&mut watch).await.0.len(), count);
    let compares = (0..count.min(128))
        .map(|key| modified(&format!("/big/{key:05}"), revision))
        .collect();
    let outcome = r
        .txn(
            compares,
            vec![Op::DeletePrefix {
                prefix: "/big/".to_owned(),
            }],
        )
        .await
        .unwrap();
    assert!(outcome.succeeded);
    assert_eq!(next(&mut watch).await.0.len(), count);
    assert!(r.range("/big/", "", 1, 0).await.unwrap().entries.is_empty());
}

async fn connect(process: &EtcdProcess) -> Arc<dyn Registry> {
    let config = EtcdConfig::new(vec![process.client_url.clone()], "/ottla/test");
    for _ in 0..100 {
        if let Ok(etcd) = Etcd::connect(&config).await {
            return Arc::new(etcd);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("etcd does not come up");
}

macro_rules! contract {
    ($($case:ident),* $(,)?) => {
        mod embedded {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let directory = tempfile::tempdir().unwrap();
                    let path = directory.path().join("registry.redb");
                    let registry = Embedded::open(path, Arc::new(SystemClock)).await.unwrap();
                    super::$case(Arc::new(registry)).await;
                }
            )*
        }
        mod etcd {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some(process) = start_etcd() {
                        super::$case(connect(&process).await).await;
                    }
                }
            )*
        }
    };
}

contract! {
    compare_and_swap,
    revisions,
    leases,
    watch_from_a_revision,
    watch_groups_by_revision,
    compaction,
    paging,
    large_transactions,
}

/// The prefix keeps clusters in one etcd apart.
#[tokio::test]
async fn two_prefixes_in_one_etcd_do_not_meet() {
    let Some(process) = start_etcd() else { return };
    let one = connect(&process).await;
    let config = EtcdConfig::new(vec![process.client_url.clone()], "/ottla/tes");
    let other = Etcd::connect(&config).await.unwrap();
    write(one.as_ref(), vec![put("/k", "one")]).await;
    assert_eq!(other.get("/k").await.unwrap(), None);
    assert!(
        other
            .range("/", "", 10, 0)
            .await
            .unwrap()
            .entries
            .is_empty()
    );
}

/// No call waits for ever on an etcd that does not answer.
#[tokio::test]
async fn a_silent_etcd_is_an_error_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap(); // accepts (backlog) and never answers
    let mut config = EtcdConfig::new(vec![listener.local_addr().unwrap().to_string()], "/x");
    config.request_timeout = Duration::from_millis(300);
    let outcome = timeout(Duration::from_secs(5), Etcd::connect(&config)).await;
    assert!(matches!(
        outcome.expect("an answer in time"),
        Err(RegistryError::Unavailable(_))
    ));
}

/// Topics that do not fit into one transaction of etcd, through the whole of `Admin`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_over_etcd() {
    let Some(process) = start_etcd() else { return };
    let registry = connect(&process).await;
    let config = Arc::new(BrokerConfig::for_tests("/nowhere"));
    let place = SessionConfig {
        broker: BrokerId(1),
        endpoints: Vec::new(),
        rack: None,
        cluster_id: None,
        new_cluster_id: None,
        ttl: Duration::from_secs(9),
        heartbeat: Duration::from_secs(2),
        has_data: false,
        directories: Vec::new(),
        shared: Some(Resolver::new(&config)),
        stopped_incarnation: None,
        seen: Vec::new(),
    };
    let session = Session::start(Arc::clone(&registry), place.clone(), Arc::new(SystemClock))
        .await
        .unwrap();
    // What an interrupted creation of before left.
    write(
        registry.as_ref(),
        vec![put(
            "/partitions/AAECAwQFBgcICQoLDA0O_w/0",
            "{\"leader\":1,\"leader_epoch\":0,\"isr\":[1],\"partition_epoch\":0}",
        )],
    )
    .await;
    let watcher = Watcher::load(Arc::clone(&registry), Resolver::new(&config))
        .await
        .unwrap();
    let orphans = watcher.unattached_topics();
    assert_eq!(orphans.len(), 1);
    session.remove_orphans(&orphans).await.unwrap();
    let cache = watcher.cache();
    let stop = tokio_util::sync::CancellationToken::new();
    let watching = tokio::spawn(watcher.run(Arc::new(SystemClock), stop.clone()));
    let admin = Admin::new(
        Arc::clone(&registry),
        Arc::clone(&cache),
        config,
        session.producer_ids(),
    );
    let running = tokio::spawn(session.run(stop.clone()));

    let wait = Duration::from_secs(30);
    let topic = |name: &str, num_partitions| NewTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor: -1,
        ..NewTopic::default()
    };
    let mut topics = vec![
        topic("large", 1_000),
        topic("exact", 127),
        topic("over", 128),
    ];
    topics.extend((0..100).map(|n| topic(&format!("small{n}"), 3)));
    for result in admin.create_topics(topics, false, wait).await {
        result.unwrap();
    }
    let image = cache.current();
    assert_eq!(image.topics.len(), 103);
    assert_eq!(image.topics["large"].partitions.len(), 1_000);
    assert_eq!(image.topics["over"].partitions.len(), 128);
    let more = NewPartitions {
        name: "large".into(),
        count: 1_300,
        assignments: None,
    };
    let added = admin.create_partitions(vec![more], false, wait).await;
    assert_eq!(added, [Ok(())]);
    assert_eq!(cache.current().topics["large"].partitions.len(), 1_300);
    let resource = ConfigResource::Topic("large".into());
    admin
        .alter_config(&resource, false, &|old| {
            let mut new = old.clone();
            new.insert("retention.ms".to_owned(), "5".to_owned());
            Ok(new)
        })
        .await
        .unwrap();
    assert_eq!(cache.current().topics["large"].config.retention_ms, 5);
    assert_eq!(admin.allocate_producer_id().await.unwrap(), 0);
    let all = cache.current().topics.keys().cloned().collect::<Vec<_>>();
    let all = all.into_iter().map(TopicReference::Name).collect();
    for result in admin.delete_topics(all, wait).await {
        result.unwrap();
    }
    assert!(cache.current().topics.is_empty());
    let left = registry.range("/partitions/", "", 10, 0).await.unwrap();
    assert!(left.entries.is_empty());

    stop.cancel();
    watching.await.unwrap();
    running.await.unwrap();
    assert_eq!(registry.get("/brokers/1").await.unwrap(), None);
}
