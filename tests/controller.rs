//! Brokers, a real etcd, and who leads what. Where the machine has no `etcd` this says so and passes, unless
//! `OTTLA_REQUIRE_ETCD=1` is set (CI does).
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

#[path = "support/etcd.rs"]
mod etcd_process;
mod support;

use std::time::{Duration, Instant};

use etcd_process::{EtcdProcess, start_etcd};
use ottla::config::BrokerConfig;
use ottla::metadata::{Image, Partition, Resolver, read_image};
use ottla::registry::{Compare, Etcd, Op, Registry};
use ottla::types::BrokerId;
use support::{Answer, Ottla, PATIENCE, ask, hex, produce, string};

const PREFIX: &str = "/ottla/test";
const SESSION: Duration = Duration::from_secs(3);

struct Cluster {
    etcd: Etcd,
    brokers: Vec<Ottla>,
    process: EtcdProcess,
}

impl Cluster {
    /// Brokers 1..=`count`, 1 being the controller. `None`: there is no etcd.
    async fn start(count: i32, more: &[&str]) -> Option<Self> {
        let process = start_etcd()?;
        let etcd = process.connect(PREFIX).await;
        let brokers = (1..=count)
            .map(|id| start(&process.client_url, id, more))
            .collect();
        let cluster = Self {
            etcd,
            brokers,
            process,
        };
        let all = usize::try_from(count).unwrap();
        cluster.until(|image| image.brokers.len() == all).await;
        Some(cluster)
    }

    fn broker(&mut self, id: i32) -> &mut Ottla {
        &mut self.brokers[usize::try_from(id - 1).unwrap()]
    }

    async fn image(&self) -> Image {
        let resolver = Resolver::new(&BrokerConfig::for_tests("/nowhere"));
        read_image(&self.etcd, &resolver).await.unwrap()
    }

    /// Looks until the image is as it should be; returns it.
    async fn until(&self, holds: impl Fn(&Image) -> bool) -> Image {
        let begun = Instant::now();
        loop {
            let image = self.image().await;
            if holds(&image) {
                return image;
            }
            assert!(begun.elapsed() < PATIENCE, "{image:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn partition(&self, topic: &str, holds: impl Fn(&Partition) -> bool) -> Partition {
        let image = self
            .until(|image| image.partition(topic, 0).is_some_and(|p| holds(p)))
            .await;
        (**image.partition(topic, 0).unwrap()).clone()
    }
}

fn start(url: &str, id: i32, more: &[&str]) -> Ottla {
    let mut overrides = vec![
        format!("etcd.endpoints={url}"),
        format!("etcd.prefix={PREFIX}"),
        format!("node.id={id}"),
        format!("broker.rack=rack-{}", id % 2),
        format!("broker.session.timeout.ms={}", SESSION.as_millis()),
        "broker.heartbeat.interval.ms=500".to_owned(),
    ];
    overrides.extend(more.iter().map(|&text| text.to_owned()));
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let broker = Ottla::start(&overrides);
    serves(&broker, 1);
    broker
}

/// Waits until a broker has said so often that it serves: its port takes connections earlier.
fn serves(broker: &Ottla, times: usize) {
    let begun = Instant::now();
    while broker.log().matches(" serving ").count() < times {
        assert!(begun.elapsed() < PATIENCE, "{}", broker.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// CreateTopics v2 with these replicas, on any broker.
fn create(broker: &Ottla, name: &str, replicas: &[&[i32]]) {
    let begun = Instant::now();
    loop {
        match create_once(broker, name, replicas) {
            0 => return,
            // INVALID_REPLICA_ASSIGNMENT: not all brokers are known there yet.
            39 if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(30)),
            error => panic!("CreateTopics {name}: {error}"),
        }
    }
}

/// The same once; returns the error code.
fn create_once(broker: &Ottla, name: &str, replicas: &[&[i32]]) -> i16 {
    let mut body = [&hex("00000001")[..], &string(name), &hex("ffffffff ffff")].concat();
    body.extend(u32::try_from(replicas.len()).unwrap().to_be_bytes());
    for (index, replicas) in (0i32..).zip(replicas) {
        body.extend(index.to_be_bytes());
        body.extend(u32::try_from(replicas.len()).unwrap().to_be_bytes());
        for id in *replicas {
            body.extend(id.to_be_bytes());
        }
    }
    body.extend(hex("00000000 00007530 00"));
    let response = broker.connect().request(19, 2, &body).unwrap();
    let at = 4 + 4 + 2 + name.len();
    i16::from_be_bytes(response[at..at + 2].try_into().unwrap())
}

/// Metadata v1 of no topics: the brokers with their racks, and the controller.
fn brokers_seen(broker: &Ottla) -> (Vec<(i32, String)>, i32) {
    let mut answer: Answer = ask(&mut broker.connect(), 3, 1, &hex("00000000"));
    let brokers = (0..answer.i32())
        .map(|_| {
            let id = answer.i32();
            answer.string();
            answer.i32();
            (id, answer.string())
        })
        .collect();
    (brokers, answer.i32())
}

/// Looks until a broker has heard of what is so.
fn until_seen(broker: &Ottla, holds: impl Fn(&(Vec<(i32, String)>, i32)) -> bool) {
    let begun = Instant::now();
    loop {
        let seen = brokers_seen(broker);
        if holds(&seen) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{seen:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_dies_loses_what_it_led_and_the_controller_its_seat() {
    let Some(mut cluster) = Cluster::start(3, &[]).await else {
        return;
    };
    // Whoever is asked knows all of them, and does what is asked.
    let rack = |id: i32| (id, format!("rack-{}", id % 2));
    let everybody = (vec![rack(1), rack(2), rack(3)], 1);
    for id in 1..=3 {
        until_seen(cluster.broker(id), |seen| *seen == everybody);
    }
    create(cluster.broker(3), "t", &[&[1, 2, 3], &[2, 3, 1]]);
    create(cluster.broker(3), "alone", &[&[3]]);
    let made = cluster.image().await;
    let first = made.partition("t", 0).unwrap();
    let epoch_of = |image: &Image, id: i32| image.brokers[&BrokerId(id)].epoch;
    assert_eq!(first.leader, Some(BrokerId(1)));
    assert_eq!(first.leader_registration, epoch_of(&made, 1));

    // The controller itself: another one takes the seat, and its leaderships go on.
    cluster.broker(1).kill();
    let killed = Instant::now();
    let image = cluster
        .until(|image| !image.brokers.contains_key(&BrokerId(1)))
        .await;
    let lapsed = Instant::now();
    let partition = cluster
        .partition("t", |p| p.leader == Some(BrokerId(2)))
        .await;
    // How soon is for benches/failover to say.
    println!(
        "lease ended {:?} after the kill; a new leader {:?} later",
        lapsed - killed,
        lapsed.elapsed()
    );
    assert_eq!((partition.isr, partition.leader_epoch), (ids(&[2, 3]), 1));
    assert_eq!(partition.leader_registration, epoch_of(&image, 2));
    let image = cluster.until(|image| image.controller.is_some()).await;
    assert_ne!(image.controller, Some(BrokerId(1)));

    // What the deposed controller would write is refused, and changes nothing.
    let key = "/partitions/AAAAAAAAAAAAAAAAAAAAAA/0".to_owned();
    let seat = Compare::CreateRevision {
        key: "/controller".to_owned(),
        revision: made.controller_registration,
    };
    let op = Op::Delete { key };
    assert!(
        !cluster
            .etcd
            .txn(vec![seat], vec![op])
            .await
            .unwrap()
            .succeeded
    );

    // Back again it leads nothing, until its turn as the preferred leader comes.
    cluster.broker(1).spawn();
    serves(cluster.broker(1), 2);
    until_seen(cluster.broker(1), |(brokers, _)| brokers.len() == 3);
    let image = cluster.image().await;
    assert_eq!(image.partition("t", 0).unwrap().leader, Some(BrokerId(2)));
    // The only replica of a partition goes with its broker, and comes back with it.
    cluster.broker(3).kill();
    let gone = |p: &Partition| p.leader.is_none() && p.elr == ids(&[3]);
    cluster
        .until(|image| gone(image.partition("alone", 0).unwrap()))
        .await;
    cluster.broker(3).spawn();
    let back = |p: &Partition| p.leader == Some(BrokerId(3)) && p.isr == ids(&[3]);
    cluster
        .until(|image| back(image.partition("alone", 0).unwrap()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stops_hands_over_first() {
    let Some(mut cluster) = Cluster::start(3, &[]).await else {
        return;
    };
    create(cluster.broker(2), "t", &[&[1, 2, 3], &[2, 1, 3]]);
    assert_eq!(cluster.broker(1).stop(), Some(0));
    let image = cluster.image().await;
    let partition = image.partition("t", 0).unwrap();
    assert_eq!(partition.leader, Some(BrokerId(2)));
    assert_eq!((&partition.isr, partition.leader_epoch), (&ids(&[2, 3]), 1));
    assert_eq!(image.partition("t", 1).unwrap().isr, ids(&[2, 3]));
    assert!(!image.brokers.contains_key(&BrokerId(1)));
    assert!(image.known_brokers.contains_key(&BrokerId(1)));
    let said = cluster.broker(1).log();
    assert!(said.contains("handed over"), "{said}");
    // Who is known gets replicas, though it is away.
    create(cluster.broker(3), "u", &[&[1, 3]]);
    // Whoever made it may not have heard that 1 has gone: then the controller puts it right.
    let led = |p: &Partition| p.leader == Some(BrokerId(3)) && p.isr == ids(&[3]);
    cluster.partition("u", led).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_broker_with_the_same_id_is_refused() {
    let Some(mut cluster) = Cluster::start(1, &[]).await else {
        return;
    };
    let url = cluster.process.client_url.clone();
    let second = std::thread::spawn(move || {
        let mut second = std::process::Command::new(env!("CARGO_BIN_EXE_ottla"));
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().display().to_string();
        for text in [
            "listeners=PLAINTEXT://127.0.0.1:0",
            "metrics.listeners=",
            "node.id=1",
            "broker.session.timeout.ms=3000",
            &format!("log.dirs={data}"),
            &format!("etcd.endpoints={url}"),
            &format!("etcd.prefix={PREFIX}"),
        ] {
            second.args(["--override", text]);
        }
        second.output().unwrap()
    });
    let output = second.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("another broker with this id is running"),
        "{said}"
    );
    assert!(cluster.broker(1).is_alive());
    assert_eq!(cluster.image().await.brokers.len(), 1);
}

/// 2,000 of them here; `CONTROLLER_PARTITIONS=10000` for the promise: 3 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_partitions_of_a_dead_broker_have_leaders_soon() {
    let Some(mut cluster) = Cluster::start(3, &[]).await else {
        return;
    };
    let count = std::env::var("CONTROLLER_PARTITIONS").map_or(2_000, |n| n.parse().unwrap());
    let topics = 10;
    for topic in 0..topics {
        let replicas: Vec<&[i32]> = vec![&[3, 1, 2]; count / topics];
        create(cluster.broker(1), &format!("t{topic}"), &replicas);
    }
    cluster.broker(3).kill();
    cluster
        .until(|image| !image.brokers.contains_key(&BrokerId(3)))
        .await;
    let lapsed = Instant::now();
    let led_by_3 = |image: &Image| {
        let partitions = image.topics.values().flat_map(|topic| &topic.partitions);
        let mut led = partitions.filter(|p| p.leader == Some(BrokerId(3)));
        led.next().is_some()
    };
    cluster.until(|image| !led_by_3(image)).await;
    let took = lapsed.elapsed();
    println!("{count} partitions have leaders {took:?} after the lease ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_killed_leaves_the_isrs_of_topics_that_live_in_the_page_cache() {
    let more = ["log.flush.interval.messages=1000000"];
    let Some(mut cluster) = Cluster::start(2, &more).await else {
        return;
    };
    create(cluster.broker(1), "t", &[&[1, 2], &[2, 1]]);
    // Both at once: nobody is left to see who goes.
    cluster.broker(2).kill();
    cluster.broker(1).kill();
    cluster.until(|image| image.brokers.is_empty()).await;
    cluster.broker(2).spawn();
    let partition = cluster
        .partition("t", |p| !p.isr.contains(&BrokerId(2)))
        .await;
    assert_eq!(partition.isr, ids(&[1]));
    let said = cluster.broker(2).log();
    assert!(said.contains("the last stop was not clean"), "{said}");
}

/// ElectLeaders v1 for partition 0 of `topic`; its error code.
fn elect(broker: &Ottla, topic: &str, kind: u8) -> i16 {
    let mut body = vec![kind];
    body.extend(hex("00000001"));
    body.extend(string(topic));
    body.extend(hex("00000001 00000000 00007530"));
    let mut answer = ask(&mut broker.connect(), 43, 1, &body);
    answer.i32();
    assert_eq!((answer.i16(), answer.i32()), (0, 1));
    answer.string();
    assert_eq!((answer.i32(), answer.i32()), (1, 0));
    answer.i16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_made_on_request_by_any_broker() {
    let Some(mut cluster) = Cluster::start(2, &["auto.leader.rebalance.enable=false"]).await else {
        return;
    };
    create(cluster.broker(1), "t", &[&[2, 1]]);
    assert_eq!(elect(cluster.broker(1), "t", 0), 84);
    assert_eq!(elect(cluster.broker(1), "none", 0), 3);
    cluster.broker(2).kill();
    cluster
        .partition("t", |p| p.leader == Some(BrokerId(1)))
        .await;
    let begun = Instant::now();
    // ELECTION_NOT_NEEDED: it has not heard of the new leader yet.
    while elect(cluster.broker(1), "t", 0) == 84 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert_eq!(elect(cluster.broker(1), "t", 0), 80);
    assert_eq!(elect(cluster.broker(1), "t", 1), 84);
    cluster.broker(2).spawn();
    serves(cluster.broker(2), 2);
    // As if its leader had found it in sync; whoever does that writes it so.
    let image = cluster.image().await;
    let (topic, partition) = (&image.topics["t"], image.partition("t", 0).unwrap());
    let in_sync = Partition {
        isr: ids(&[1, 2]),
        partition_epoch: partition.partition_epoch + 1,
        ..(**partition).clone()
    };
    if partition.isr.len() == 1 {
        let op = Op::Put {
            key: format!("/partitions/{}/0", topic.id),
            value: ottla::registry::value::encode(&ottla::metadata::value_of(&in_sync)),
            lease: 0,
        };
        cluster.etcd.txn(vec![], vec![op]).await.unwrap();
    }
    let led_by_2 = |p: &Partition| p.leader == Some(BrokerId(2));
    let begun = Instant::now();
    while elect(cluster.broker(1), "t", 0) == 80 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.partition("t", led_by_2).await;
}

/// R13, and what must not be believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_etcd_is_refused_by_who_runs_and_by_who_starts() {
    let Some(mut cluster) = Cluster::start(1, &[]).await else {
        return;
    };
    create(cluster.broker(1), "t", &[&[1]]);
    let body = support::produce_body(-1, &support::Batch::of(&[b"a"]).bytes());
    assert_eq!(produce(cluster.broker(1), &body), 0);
    let everything = Op::DeletePrefix {
        prefix: "/".to_owned(),
    };
    cluster.etcd.txn(vec![], vec![everything]).await.unwrap();
    let begun = Instant::now();
    let foreign = "does not know the cluster";
    while !cluster.broker(1).log().contains(foreign) {
        assert!(begun.elapsed() < PATIENCE, "{}", cluster.broker(1).log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(SESSION * 2).await;
    // It serves what it has, registers nowhere and changes nothing.
    assert_eq!(produce(cluster.broker(1), &body), 1);
    assert_eq!(create_once(cluster.broker(1), "u", &[&[1]]), 7);
    let left = cluster.etcd.range("/", "", 9, 0).await.unwrap();
    assert_eq!(left.entries, []);
    assert_eq!(cluster.broker(1).stop(), Some(0));
    let spawned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cluster.broker(1).spawn();
        cluster.broker(1).exit_code()
    }));
    assert!(!matches!(spawned, Ok(Some(0))));
    let said = cluster.broker(1).log();
    assert!(
        said.contains("the registry is empty, but the log directories hold"),
        "{said}"
    );
}

/// R12: what the ISR commits goes on, what changes the cluster stops, and all of it comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_is_away_stops_nothing_but_changes() {
    let Some(mut cluster) = Cluster::start(2, &[]).await else {
        return;
    };
    create(cluster.broker(1), "t", &[&[1]]);
    let body = support::produce_body(-1, &support::Batch::of(&[b"a"]).bytes());
    assert_eq!(produce(cluster.broker(1), &body), 0);
    cluster.process.pause();
    tokio::time::sleep(SESSION * 2).await;
    assert_eq!(produce(cluster.broker(1), &body), 1);
    assert_eq!(create_once(cluster.broker(1), "u", &[&[1]]), 7);
    until_seen(cluster.broker(1), |(brokers, _)| brokers.len() == 2);
    cluster.process.resume();
    let begun = Instant::now();
    while create_once(cluster.broker(1), "u", &[&[1]]) == 7 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.until(|image| image.brokers.len() == 2).await;
    let partition = cluster
        .partition("t", |p| p.leader == Some(BrokerId(1)))
        .await;
    assert_eq!(partition.isr, ids(&[1]));
    assert_eq!(produce(cluster.broker(1), &body), 2);
}
