//! The tools against a broker: Kafka's face and the friendly one, processes as a person starts them.
// What is not as expected ends the run.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

const OTTLA: &str = env!("CARGO_BIN_EXE_ottla");

struct Broker {
    process: Child,
    address: String,
    _data: tempfile::TempDir,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug)]
struct Said {
    status: i32,
    out: String,
    err: String,
}

impl Broker {
    /// One with an empty directory, which serves.
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let log_dirs = format!("log.dirs={}", data.path().display());
        let delay = "group.initial.rebalance.delay.ms=0";
        let broker = Self::start_as(&["--override", &log_dirs, "--override", delay], data);
        broker.serves();
        broker
    }

    fn serves(&self) {
        eventually("the broker starts", || {
            TcpStream::connect(&self.address).is_ok()
        });
    }

    fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// With which status it has ended.
    fn ended(&mut self) -> Option<i32> {
        eventually("the broker ends", || !self.runs());
        self.process.wait().unwrap().code()
    }

    /// One with these arguments, on a port of its own; it may not listen yet.
    fn start_as(arguments: &[&str], data: tempfile::TempDir) -> Self {
        Self::start_program(Path::new(OTTLA), arguments, data)
    }

    fn start_program(program: &Path, arguments: &[&str], data: tempfile::TempDir) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let process = Command::new(program)
            .args(arguments)
            .args(["--override", &format!("listeners=PLAINTEXT://{address}")])
            .args(["--override", "metrics.listeners="])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            process,
            address,
            _data: data,
        }
    }

    /// A command line; `{B}` is the broker.
    fn run_with(&self, line: &str, input: &str) -> Said {
        let arguments = line
            .split(' ')
            .map(|word| word.replace("{B}", &self.address));
        run(arguments, input)
    }

    fn run(&self, line: &str) -> Said {
        self.run_with(line, "")
    }

    /// A friendly command, whose answer is JSON.
    fn json(&self, line: &str) -> Value {
        let said = self.run(&format!("{line} --json --timeout 60 --bootstrap {{B}}"));
        assert_eq!(said.status, 0, "{line}: {said:?}");
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{line}: {error}: {said:?}"))
    }
}

fn run(arguments: impl Iterator<Item = String>, input: &str) -> Said {
    let mut process = Command::new(OTTLA)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    let output = process.wait_with_output().unwrap();
    Said {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within a minute: {what}");
}

#[test]
fn kafkas_names() {
    let broker = Broker::start();
    let created =
        broker.run("kafka-topics --bootstrap-server {B} --create --topic t --partitions 2");
    assert_eq!(
        (created.status, created.out.as_str()),
        (0, "Created topic t.\n")
    );
    let again = broker.run("kafka-topics.sh --bootstrap-server {B} --create --topic t");
    assert_eq!(again.status, 1);
    assert_eq!(
        again.out,
        "Error while executing topic command : Topic 't' already exists.\n"
    );
    assert!(
        again
            .err
            .contains("ERROR org.apache.kafka.common.errors.TopicExistsException: ")
    );
    let keyed = "--reader-property parse.key=true --reader-property key.separator=:";
    let produced = broker.run_with(
        &format!("kafka-console-producer --bootstrap-server {{B}} --topic t {keyed} --compression-codec zstd"),
        "k1:one\nk2:two\nk1:three\n",
    );
    assert_eq!((produced.status, produced.err.as_str()), (0, ""));
    let consume =
        "kafka-console-consumer --bootstrap-server {B} --topic t --group g --from-beginning";
    let consumed = broker.run(&format!(
        "{consume} --max-messages 3 --formatter-property print.key=true"
    ));
    let mut lines: Vec<&str> = consumed.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["k1\tone", "k1\tthree", "k2\ttwo"]);
    assert_eq!(consumed.err, "Processed a total of 3 messages\n");
    // What was read is committed.
    let rest = broker.run(&format!("{consume} --timeout-ms 500"));
    assert_eq!(rest.out, "");
    let described = broker.run("kafka-consumer-groups --bootstrap-server {B} --describe --group g");
    assert!(
        described
            .err
            .contains("Consumer group 'g' has no active members.")
    );
    let lag: i64 = described
        .out
        .lines()
        .filter(|line| line.starts_with("g "))
        .map(|line| {
            line.split_whitespace()
                .nth(5)
                .unwrap()
                .parse::<i64>()
                .unwrap()
        })
        .sum();
    assert_eq!(lag, 0, "{}", described.out);
    let offsets = broker.run("kafka-get-offsets --bootstrap-server {B} --topic t");
    let sum: i64 = offsets
        .out
        .lines()
        .map(|line| line.rsplit(':').next().unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(sum, 3, "{}", offsets.out);
}

#[test]
fn friendly_names() {
    let broker = Broker::start();
    let created = broker.json("topic create t --partitions 1 --config retention.ms=3600000");
    assert_eq!(created, json!({"topic": "t", "created": true}));
    let topics = broker.json("topic list");
    assert_eq!(topics[0]["configs"]["retention.ms"], "3600000");
    let produced = broker.run_with(
        "produce t --key k -H a=b -c lz4 --timeout 60 --bootstrap {B}",
        "one\ntwo\n",
    );
    assert_eq!(
        (produced.status, produced.err.as_str()),
        (0, "2 records written to t\n")
    );
    let read = broker
        .run("consume t --from earliest --count 2 --group g --json --timeout 60 --bootstrap {B}");
    let records: Vec<Value> = read
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2, "{read:?}");
    assert_eq!(records[1]["value"], "two");
    assert_eq!(records[1]["key"], "k");
    assert_eq!(records[1]["headers"], json!([{"key": "a", "value": "b"}]));
    let group = broker.json("group describe g");
    assert_eq!(group["partitions"][0]["lag"], 0, "{group}");
    let reset = broker.json("group reset g --by -1 --execute");
    assert_eq!(reset["offsets"][0]["new"], 1);
    assert_eq!(broker.json("group describe g")["partitions"][0]["lag"], 1);
    broker.json("config set --topic t retention.ms=5000");
    let shown = broker.json("config show --topic t");
    assert_eq!(shown[0]["value"], "5000");
    broker.json("config unset --topic t retention.ms");
    assert_eq!(broker.json("config show --topic t"), json!([]));
    assert_eq!(broker.json("cluster info")["controller"], 1);
    broker.json("group delete g");
    broker.json("topic delete t");
    assert_eq!(broker.json("topic list"), json!([]));
    let nothing = broker.run("topic describe t --bootstrap {B}");
    assert_eq!(
        (nothing.status, nothing.err.as_str()),
        (1, "ottla: there is no topic t\n")
    );
}

#[test]
fn a_formatted_directory_gives_the_cluster_its_id() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("server.properties");
    let data = directory.path().join("data");
    let text = format!(
        "node.id=1\nprocess.roles=broker,controller\nlog.dirs={}\n",
        data.display()
    );
    std::fs::write(&file, text).unwrap();
    let storage = |line: &str| {
        let words = line.replace("{F}", &file.display().to_string());
        run(
            words
                .split(' ')
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .into_iter(),
            "",
        )
    };
    let format = "kafka-storage format -t 4L6g3nShT-eMCtK--X86sw -c {F}";
    let formatted = storage(format);
    assert_eq!(formatted.status, 0, "{formatted:?}");
    let again = storage(format);
    assert_eq!(again.status, 1);
    assert!(again.err.contains("is already formatted."), "{again:?}");
    let ignoring = storage(&format!("{format} --ignore-formatted --standalone"));
    assert_eq!(
        ignoring.out,
        "All of the log directories are already formatted.\n"
    );
    let info = storage("kafka-storage info -c {F}");
    assert!(
        info.out.contains("cluster.id=4L6g3nShT-eMCtK--X86sw"),
        "{info:?}"
    );
    let uuid = storage("kafka-storage random-uuid");
    assert_eq!(uuid.out.trim().len(), 22);
    // The broker takes it.
    let file = file.display().to_string();
    let broker = Broker::start_as(&["kafka-server-start", &file], directory);
    // As an init script waits: the tool itself tries again until the broker is there.
    let id = broker.run("kafka-cluster cluster-id --bootstrap-server {B}");
    assert_eq!(id.out, "Cluster ID: 4L6g3nShT-eMCtK--X86sw\n", "{id:?}");
}

/// `kafka-server-stop` stops those that run the very same program: here a copy, which only this test runs.
#[test]
fn brokers_are_stopped_by_kafkas_script() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("ottla");
    // By a process: a file that this one still writes while another test forks could not be run.
    let copied = Command::new("cp").arg(OTTLA).arg(&program).status();
    assert!(copied.unwrap().success());
    let foreign = &mut Broker::start();
    let start_with = |options: &[&str], id: &str| {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join("server.properties");
        let text = format!("log.dirs={}\nnode.id={id}\n", data.path().display());
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let arguments = [&["kafka-server-start"], options, &[&file]].concat();
        let broker = Broker::start_program(&program, &arguments, data);
        broker.serves();
        broker
    };
    let start = |id: &str| start_with(&[], id);
    let stop = |arguments: &[&str]| {
        let done = Command::new(&program)
            .arg("kafka-server-stop.sh")
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        (done.status.code(), said)
    };
    let (mut one, mut two) = (start("1"), start("2"));
    // In the background: what was started ends by itself, the broker stays.
    let mut starter = start_with(&["-daemon"], "3");
    assert_eq!(starter.ended(), Some(0));
    assert_eq!(stop(&["--node-id=2"]), (Some(0), String::new()));
    assert_eq!(two.ended(), Some(0));
    assert!(one.runs() && TcpStream::connect(&starter.address).is_ok());
    assert_eq!(stop(&["--node-id=7"]), (Some(0), String::new()));
    assert_eq!(stop(&[]), (Some(0), String::new()));
    assert_eq!(one.ended(), Some(0));
    eventually("the broker in the background ends", || {
        TcpStream::connect(&starter.address).is_err() && stop(&[]).0 == Some(1)
    });
    let nobody = (Some(1), "No kafka server to stop\n".to_owned());
    assert_eq!(stop(&[]), nobody);
    assert!(foreign.runs());
}

#[test]
fn who_is_not_there_is_told_of() {
    let run = |line: &str| {
        run(
            line.split(' ')
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .into_iter(),
            "",
        )
    };
    let missing = run("kafka-acls --list");
    assert_eq!((missing.status, missing.err.lines().count()), (1, 1));
    assert!(missing.err.starts_with("kafka-acls: "), "{missing:?}");
    let nobody = run("topic list --bootstrap 127.0.0.1:1 --timeout 1");
    assert_eq!(nobody.status, 1);
    assert!(nobody.err.starts_with("ottla: Timed out"), "{nobody:?}");
    let names = run("tools list");
    assert!(names.out.lines().any(|name| name == "kafka-topics"));
    assert!(names.out.lines().any(|name| name == "connect-standalone"));
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&format!("completions {shell}"));
        assert!(
            completions.status == 0 && completions.out.contains("consume"),
            "{shell}"
        );
    }
}
