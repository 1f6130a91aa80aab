//! Several log directories of one process: what it finds in them at the start.
// What is not as expected ends the run; time is real here.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::fs;
use std::path::Path;

use support::{Batch, Client, Ottla, create_topic, fetch_body, fetched, produce_body, produced};

fn produce(client: &mut Client, value: &[u8]) -> (i16, i64) {
    let batch = Batch::of(&[value]);
    let body = produce_body(-1, &batch.bytes());
    produced(&client.request(0, 3, &body).expect("an answer"))
}

fn records(client: &mut Client) -> usize {
    let response = client.request(1, 4, &fetch_body(0, 0)).expect("an answer");
    let (error, _, records) = fetched(&response);
    assert_eq!(error, 0);
    records.len()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A broker on two directories, with three records in `t-0` of the first.
fn two_directories() -> (tempfile::TempDir, Ottla, String) {
    let root = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| root.path().join(name).display().to_string());
    let log_dirs = format!("log.dirs={}", paths.join(","));
    let broker = Ottla::start(&[&log_dirs]);
    let mut client = broker.connect();
    create_topic(&mut client, "t", 1);
    for offset in 0..3 {
        assert_eq!(produce(&mut client, b"value"), (0, offset));
    }
    assert!(root.path().join("a/t-0").exists());
    (root, broker, log_dirs)
}

#[test]
fn of_a_partition_in_two_directories_the_larger_is_served() {
    for kept in ["a", "b"] {
        let (root, mut broker, _) = two_directories();
        let path = |name: &str| root.path().join(name);
        assert_eq!(broker.stop(), Some(0));
        copy(&path("a/t-0"), &path("b/t-0"));
        broker.spawn();
        let mut client = broker.connect();
        let first = records(&mut client);
        assert!(first > 0 && broker.log().contains("is in two log directories"));
        assert!(path("a/t-0").exists() && !path("b/t-0").exists());
        // Now one of them has more.
        assert_eq!(broker.stop(), Some(0));
        copy(&path("a/t-0"), &path("b/t-0"));
        if kept == "b" {
            let log = path("a/t-0/00000000000000000000.log");
            let bytes = fs::read(&log).unwrap();
            fs::write(&log, &bytes[..bytes.len() / 3]).unwrap();
        } else {
            fs::remove_file(path("b/t-0/00000000000000000000.log")).unwrap();
        }
        for mark in ["a/.kafka_cleanshutdown", "b/.kafka_cleanshutdown"] {
            fs::remove_file(path(mark)).unwrap();
        }
        broker.spawn();
        let mut client = broker.connect();
        assert_eq!(records(&mut client), first);
        assert!(path(&format!("{kept}/t-0")).exists());
        assert_eq!(
            path("a/t-0").exists() as u8 + path("b/t-0").exists() as u8,
            1
        );
        assert_eq!(produce(&mut client, b"goes on"), (0, 3));
    }
}

#[test]
fn a_directory_that_cannot_be_used_stops_the_start() {
    let (root, mut broker, _) = two_directories();
    assert_eq!(broker.stop(), Some(0));
    // A path that cannot be written any more stops the start, with a line that says what to do.
    let b = root.path().join("b");
    fs::remove_dir_all(&b).unwrap();
    fs::write(&b, "a file").unwrap();
    let listeners = format!("listeners=PLAINTEXT://{}", broker.address);
    let log_dirs = format!(
        "log.dirs={},{}",
        root.path().join("a").display(),
        b.display()
    );
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(["--override", &listeners, "--override", &log_dirs])
        .args(["--override", "metrics.listeners="])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().last().unwrap_or_default();
    let expected = format!("ottla: log.dirs={}: it is, or lies below, ", b.display());
    assert!(line.starts_with(&expected), "{line}");
    fs::remove_file(&b).unwrap();
    broker.spawn();
    let mut client = broker.connect();
    assert_eq!(produce(&mut client, b"as before"), (0, 3));
}
