//! A broker whose registry is etcd. Where the machine has no `etcd` most of this says so and passes,
//! unless `OTTLA_REQUIRE_ETCD=1` is set (CI does).
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

#[path = "support/etcd.rs"]
mod etcd_process;
mod support;

use std::time::{Duration, Instant};

use etcd_process::{free_port, start_etcd, start_etcd_on};
use ottla::registry::{Etcd, Registry};
use support::{Batch, Ottla, create_topic, produce_body, produced};

const PREFIX: &str = "/somewhere/else";

fn overrides(url: &str, more: &[&str]) -> Vec<String> {
    let mut all = vec![
        format!("etcd.endpoints={url}"),
        format!("etcd.prefix={PREFIX}"),
        "node.id=7".to_owned(),
    ];
    all.extend(more.iter().map(|&text| text.to_owned()));
    all
}

fn start(url: &str, more: &[&str]) -> Ottla {
    let overrides = overrides(url, more);
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    Ottla::start(&overrides)
}

/// The create revision of the broker's registration.
async fn registration(etcd: &Etcd) -> Option<i64> {
    let found = etcd.get("/brokers/7").await.unwrap()?;
    Some(found.create_revision)
}

#[test]
fn an_etcd_that_never_answers_ends_the_start() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let begun = Instant::now();
    let mut broker = start(&url, &["initial.broker.registration.timeout.ms=1500"]);
    assert_eq!(broker.exit_code(), Some(1));
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1_000), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let said = broker.log();
    assert!(
        said.contains("initial.broker.registration.timeout.ms=1500"),
        "{said}"
    );
    // Whoever waits can be stopped.
    let mut broker = start(&url, &[]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(broker.is_alive());
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn a_broker_waits_for_its_etcd() {
    let port = free_port();
    let broker = start(&format!("http://127.0.0.1:{port}"), &[]);
    std::thread::sleep(Duration::from_millis(700));
    let Some(_etcd) = start_etcd_on(port) else {
        return;
    };
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    let body = produce_body(-1, &Batch::of(&[b"a"]).bytes());
    assert_eq!(produced(&client.request(0, 3, &body).unwrap()), (0, 0));
}

/// The lease is `broker.session.timeout.ms`, kept alive each `broker.heartbeat.interval.ms`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_ends_a_session_timeout_after_its_broker() {
    let Some(process) = start_etcd() else { return };
    let etcd = process.connect(PREFIX).await;
    let heartbeat = "broker.heartbeat.interval.ms=500";
    let timeouts = ["2000", "30000"].map(|ms| format!("broker.session.timeout.ms={ms}"));
    let mut broker = start(&process.client_url, &[&timeouts[0], heartbeat]);
    create_topic(&mut broker.connect(), "t", 1);
    let registered = registration(&etcd).await;
    assert!(registered.is_some());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(registration(&etcd).await, registered, "kept alive");
    broker.kill();
    let killed = Instant::now();
    while registration(&etcd).await.is_some() {
        assert!(killed.elapsed() < Duration::from_secs(15));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(killed.elapsed() > Duration::from_millis(1_400));

    let mut broker = start(&process.client_url, &[&timeouts[1], heartbeat]);
    create_topic(&mut broker.connect(), "u", 1);
    broker.kill();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(registration(&etcd).await.is_some(), "30 s are not over");
}
