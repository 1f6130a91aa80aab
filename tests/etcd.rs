//! A broker whose registry is etcd. Where the machine has no `etcd` most of this says so and passes,
//! unless `OTTLA_REQUIRE_ETCD=1` is set (CI does).
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

#[path = "support/etcd.rs"]
mod etcd_process;
mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_process::{
    EtcdProcess, free_port, start_etcd, start_etcd_on, start_etcd_with, start_members,
};
use ottla::registry::{Etcd, EtcdConfig, Registry};
use support::{Batch, Ottla, PATIENCE, create_topic, create_topic_answer, produce, produce_body};

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
    assert_eq!(produce(&broker, &body), 0);
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

/// Certificates of a test's own in `directory`: `ca.pem`, and `NAME.pem` with `NAME.key` for each name.
fn make_certificates(directory: &Path, names: &[&str]) {
    let openssl = |arguments: &str| {
        let done = Command::new("openssl")
            .current_dir(directory)
            .args(arguments.split(' '))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "openssl {arguments}: {said}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 -days 2 -subj /CN=ca {key} -keyout ca.key -out ca.pem"
    ));
    let extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(directory.join("extensions"), extensions).unwrap();
    for name in names {
        openssl(&format!(
            "req -new -subj /CN={name} {key} -keyout {name}.key -out {name}.csr"
        ));
        openssl(&format!(
            "x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
             -extfile extensions -out {name}.pem"
        ));
    }
}

/// The line with which the start of a broker ends.
fn refused(url: &str, more: &[&str]) -> String {
    let mut broker = start(url, more);
    assert_eq!(broker.exit_code(), Some(1));
    broker.log().lines().last().unwrap().to_owned()
}

#[test]
fn etcd_asks_for_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    make_certificates(directory.path(), &["etcd", "broker"]);
    let url = format!("https://127.0.0.1:{}", free_port());
    let (ca, certificate, key) = (path("ca.pem"), path("etcd.pem"), path("etcd.key"));
    let server = [
        &["--cert-file", &*certificate, "--key-file", &*key][..],
        &["--trusted-ca-file", &*ca, "--client-cert-auth"],
    ]
    .concat();
    let Some(_etcd) = start_etcd_with(&url, &server) else {
        return;
    };
    let ca = format!("etcd.tls.ca.file={ca}");
    let certificate = format!("etcd.tls.certificate.file={}", path("broker.pem"));
    let key = format!("etcd.tls.key.file={}", path("broker.key"));
    let broker = start(&url, &[&ca, &certificate, &key]);
    create_topic(&mut broker.connect(), "t", 1);
    drop(broker);
    // Without a certificate, and against another authority.
    let brief = "initial.broker.registration.timeout.ms=1500";
    let line = refused(&url, &[&ca, brief]);
    assert!(line.contains(&url), "{line}");
    let line = refused(&url, &[&certificate, &key, brief]);
    assert!(line.contains(&url), "{line}");
}

#[test]
fn etcd_asks_for_user_and_password() {
    // The token ends soon, and is asked for again.
    let url = format!("http://127.0.0.1:{}", free_port());
    let Some(etcd) = start_etcd_with(&url, &["--auth-token-ttl", "2"]) else {
        return;
    };
    wait_for(&etcd);
    for command in [
        "user add root:secret",
        "user grant-role root root",
        "user add broker:pass",
        "role add ottla",
        &format!("role grant-permission ottla --prefix=true readwrite {PREFIX}/"),
        "user grant-role broker ottla",
        "auth enable",
    ] {
        etcd.ctl(&command.split(' ').collect::<Vec<_>>());
    }
    let user = ["etcd.user=broker", "etcd.password=pass"];
    let broker = start(&url, &user);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    std::thread::sleep(Duration::from_secs(6));
    create_topic(&mut client, "later", 1);
    assert!(
        !broker.log().contains("registration alive"),
        "{}",
        broker.log()
    );
    drop(broker);
    let brief = "initial.broker.registration.timeout.ms=1500";
    for wrong in [
        &["etcd.user=broker", "etcd.password=wrong", brief][..],
        &[brief],
    ] {
        let line = refused(&url, wrong);
        assert!(
            !line.contains("wrong"),
            "the password is in the log: {line}"
        );
        assert!(
            line.contains("authentication failed") || line.contains("user name is empty"),
            "{line}"
        );
    }
}

/// A topic is made soon, by a client that tries again where it is told that nobody knows whether it was made.
fn goes_on(broker: &Ottla, topic: &str) {
    let begun = Instant::now();
    let mut client = broker.connect();
    loop {
        let answer = create_topic_answer(&mut client, topic, 1);
        let took = begun.elapsed();
        match answer {
            0 | 36 => break eprintln!("{topic}: {took:?}"), // 36: made by the attempt before
            7 => assert!(took < Duration::from_secs(20), "{topic}: {took:?}"),
            error => panic!("{topic}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_member_of_etcd_that_a_broker_talks_to_goes() {
    let Some(mut members) = start_members::<3>() else {
        return;
    };
    let dead = format!("http://127.0.0.1:{}", free_port());
    let urls: Vec<String> = members
        .iter()
        .map(|member| member.client_url.clone())
        .collect();
    let broker = start(&format!("{dead},{}", urls.join(",")), &[]);
    create_topic(&mut broker.connect(), "t", 1);
    let etcd = Etcd::connect(&EtcdConfig::new(urls.clone(), PREFIX))
        .await
        .unwrap();
    let registered = registration(&etcd).await;
    for (number, member) in members.iter_mut().enumerate() {
        member.kill();
        goes_on(&broker, &format!("killed-{number}"));
        member.spawn();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for (number, member) in members.iter().enumerate() {
        member.pause();
        goes_on(&broker, &format!("paused-{number}"));
        member.resume();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let etcd = Etcd::connect(&EtcdConfig::new(urls, PREFIX)).await.unwrap();
    let now = registration(&etcd).await;
    assert_eq!(now, registered, "its lease was kept alive all the while");
}

fn wait_for(etcd: &EtcdProcess) {
    let begun = Instant::now();
    while etcd.try_ctl(&["get", "/"]).is_none() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Has etcd go back to what was saved, and others write to it since.
fn restore(etcd: &mut EtcdProcess, snapshot: &str, strangers_write: usize) {
    etcd.kill();
    std::fs::remove_dir_all(etcd.data()).unwrap();
    etcd.restore(snapshot);
    etcd.spawn();
    wait_for(etcd);
    for number in 0..strangers_write {
        etcd.ctl(&["put", "/strangers", &number.to_string()]);
    }
}

#[test]
fn an_etcd_from_the_past_is_not_believed_at_the_next_start() {
    let Some(mut etcd) = start_etcd() else { return };
    let url = etcd.client_url.clone();
    let mut broker = start(&url, &[]);
    create_topic(&mut broker.connect(), "t", 1);
    let snapshot = broker.directory.path().join("snapshot");
    let snapshot = snapshot.to_str().unwrap().to_owned();
    etcd.ctl(&["snapshot", "save", &snapshot]);
    create_topic(&mut broker.connect(), "forgotten", 1);
    assert_eq!(broker.stop(), Some(0));
    for strangers_write in [0, 40] {
        restore(&mut etcd, &snapshot, strangers_write);
        broker.spawn();
        assert_eq!(broker.exit_code(), Some(1));
        let log = broker.log();
        let line = log.lines().last().unwrap();
        assert!(
            line.contains("etcd was restored from an older snapshot"),
            "{line}"
        );
        assert!(line.contains(".ottla_registry"), "{line}");
    }
    // Who wants that state can have it.
    let note = broker.directory.path().join("data/.ottla_registry");
    std::fs::remove_file(note).unwrap();
    broker.spawn();
    create_topic(&mut broker.connect(), "forgotten", 1);
    assert_eq!(broker.stop(), Some(0));
    broker.spawn();
}

/// Killed before it could note anything but that it registered.
#[test]
fn an_etcd_from_before_a_registration_is_not_believed() {
    let Some(mut etcd) = start_etcd() else { return };
    let url = etcd.client_url.clone();
    let mut broker = start(&url, &["broker.session.timeout.ms=2000"]);
    let note_path = broker.directory.path().join("data/.ottla_registry");
    create_topic(&mut broker.connect(), "t", 1);
    let snapshot = broker.directory.path().join("snapshot");
    let snapshot = snapshot.to_str().unwrap().to_owned();
    etcd.ctl(&["snapshot", "save", &snapshot]);
    assert_eq!(broker.stop(), Some(0));
    let note = || std::fs::read(&note_path).unwrap();
    let before = note();
    broker.spawn();
    create_topic(&mut broker.connect(), "forgotten", 1);
    let begun = Instant::now();
    while note() == before {
        assert!(
            begun.elapsed() < PATIENCE,
            "the registration is noted at once"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    broker.kill();
    restore(&mut etcd, &snapshot, 40);
    etcd.ctl(&["compact", "40"]); // no history to look at
    broker.spawn();
    assert_eq!(broker.exit_code(), Some(1));
    let log = broker.log();
    assert!(
        log.lines()
            .last()
            .unwrap()
            .contains("its record of this broker"),
        "{log}"
    );
}

#[test]
fn running_brokers_do_not_believe_an_etcd_from_the_past_that_others_write_to() {
    let Some(mut etcd) = start_etcd() else { return };
    let broker = start(&etcd.client_url, &[]);
    create_topic(&mut broker.connect(), "t", 1);
    let snapshot = broker.directory.path().join("snapshot");
    let snapshot = snapshot.to_str().unwrap().to_owned();
    etcd.ctl(&["snapshot", "save", &snapshot]);
    create_topic(&mut broker.connect(), "kept", 1);
    let body = produce_body(-1, &Batch::of(&[b"a"]).bytes());
    assert_eq!(produce(&broker, &body), 0);
    broker.pause();
    restore(&mut etcd, &snapshot, 40);
    broker.resume();
    let begun = Instant::now();
    while !broker.log().contains("another history") {
        assert!(begun.elapsed() < PATIENCE, "{}", broker.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(broker.directory.path().join("data/t-0").exists());
    assert_eq!(produce(&broker, &body), 1);
}
