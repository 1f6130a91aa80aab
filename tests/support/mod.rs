//! Runs the built binary and talks to it with literal bytes.
#![allow(dead_code)] // each test binary uses its part
#![allow(clippy::disallowed_methods)] // time is real here

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long anything may take before a test gives up; never how long it should take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A broker process with a data directory of its own; killed when dropped.
pub struct Ottla {
    pub directory: TempDir,
    pub address: SocketAddr,
    overrides: Vec<String>,
    address_space_kib: Option<u64>,
    child: Option<Child>,
}

impl Ottla {
    /// Starts on an empty directory with `key=value` overrides and waits until it serves.
    pub fn start(overrides: &[&str]) -> Self {
        Self::start_limited(overrides, None)
    }

    /// The same under `ulimit -v`.
    pub fn start_limited(overrides: &[&str], address_space_kib: Option<u64>) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("ottla-test-")
            .tempdir()
            .unwrap();
        let mut broker = Self {
            directory,
            address: (Ipv4Addr::LOCALHOST, free_port()).into(),
            overrides: overrides.iter().map(|&text| text.to_owned()).collect(),
            address_space_kib,
            child: None,
        };
        broker.spawn();
        broker
    }

    /// Starts on a given port with `listeners` among the overrides; `None` if a port is taken.
    pub fn try_start(overrides: &[&str], port: u16) -> Option<Self> {
        let taken = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err();
        if taken(port) || taken(port + 1) {
            return None;
        }
        let mut broker = Self {
            directory: tempfile::tempdir().unwrap(),
            address: (Ipv4Addr::LOCALHOST, port).into(),
            overrides: overrides.iter().map(|&text| text.to_owned()).collect(),
            address_space_kib: None,
            child: None,
        };
        broker.spawn();
        Some(broker)
    }

    /// Starts the process again on the same directory and port.
    pub fn spawn(&mut self) {
        let binary = env!("CARGO_BIN_EXE_ottla");
        let mut command = match self.address_space_kib {
            None => Command::new(binary),
            Some(kib) => {
                let mut shell = Command::new("sh");
                shell
                    .arg("-c")
                    .arg(format!("ulimit -v {kib}; exec {binary} \"$@\""))
                    .arg0("sh");
                shell.arg("sh");
                shell
            }
        };
        let path = self.directory.path().join("broker.log");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        let mut overrides = vec![
            format!("listeners=PLAINTEXT://{}", self.address),
            format!("log.dirs={}", self.directory.path().join("data").display()),
            "metrics.listeners=".to_owned(),
            "log.segment.delete.delay.ms=100".to_owned(),
        ];
        overrides.extend(self.overrides.iter().cloned());
        for text in overrides {
            command.arg("--override").arg(text);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
        self.wait_until_it_serves();
    }

    fn wait_until_it_serves(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the broker ended: {ended:?}\n{}",
                self.log()
            );
            assert!(
                Instant::now() < deadline,
                "the broker does not serve\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the next start is given instead.
    pub fn set_overrides(&mut self, overrides: &[&str]) {
        self.overrides = overrides.iter().map(|&text| text.to_owned()).collect();
    }

    /// What the broker printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("broker.log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// kill −9.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; the process goes on ending by itself.
    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGTERM, and the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.terminate();
        self.exit_code()
    }

    /// Waits until the process has ended by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "the broker does not stop\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Ottla {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- broker.log\n{}", self.log());
        }
    }
}

/// A port that nobody listens on, for somebody who may go and come back to it: not one of those that the
/// kernel gives to outgoing connections, any of which could have it meanwhile.
pub fn free_port() -> u16 {
    loop {
        let random = RandomState::new().hash_one(0) % 20_000;
        let port = 10_000 + u16::try_from(random).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A blocking connection that knows frames and nothing else.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    /// Sends bytes as they are; that the peer has closed is no error.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next response without its length prefix; `None` if the broker closed the connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut prefix = [0; 4];
        read_or_closed(&mut self.stream, &mut prefix)?;
        let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
        read_or_closed(&mut self.stream, &mut body)?;
        Some(body)
    }

    /// Sends header version 1 (no tags) and a body; returns the response behind its correlation id.
    pub fn request(&mut self, api: i16, version: i16, body: &[u8]) -> Option<Vec<u8>> {
        self.send_raw(&frame(api, version, body, false));
        self.receive().map(|response| response[4..].to_vec())
    }

    /// True if nothing comes for `wait`.
    pub fn is_silent(&mut self, wait: Duration) -> bool {
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let mut byte = [0];
        let silent = matches!(
            self.stream.peek(&mut byte),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
        );
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }
}

fn read_or_closed(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<()> {
    match stream.read_exact(buffer) {
        Ok(()) => Some(()),
        Err(error) => match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => None,
            _ => panic!("no answer: {error}"),
        },
    }
}

/// Walks a response.
pub struct Answer(Vec<u8>, usize);

impl Answer {
    pub fn of(bytes: Vec<u8>) -> Self {
        Self(bytes, 0)
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let at = self.1;
        self.1 += count;
        self.0[at..self.1].to_vec()
    }

    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    /// A count or a length of a flexible version; null and empty are 0.
    pub fn compact(&mut self) -> usize {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.take(1)[0];
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value.saturating_sub(1)
    }

    /// A nullable string; null is "".
    pub fn string(&mut self) -> String {
        let length = usize::try_from(self.i16()).unwrap_or(0);
        String::from_utf8(self.take(length)).unwrap()
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let length = usize::try_from(self.i32()).unwrap_or(0);
        self.take(length)
    }

    /// Bytes that are left.
    pub fn rest(&self) -> usize {
        self.0.len() - self.1
    }

    pub fn end(&self) {
        assert_eq!(self.1, self.0.len(), "bytes are left: {:?}", self.0);
    }
}

/// A request and its answer.
pub fn ask(client: &mut Client, api: i16, version: i16, body: &[u8]) -> Answer {
    Answer(client.request(api, version, body).expect("an answer"), 0)
}

/// A request frame: length, header (client id `t`) and body. `flexible` adds the header's empty tags.
pub fn frame(api: i16, version: i16, body: &[u8], flexible: bool) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend(api.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(1i32.to_be_bytes());
    frame.extend(b"\0\x01t");
    if flexible {
        frame.push(0);
    }
    frame.extend(body);
    let length = u32::try_from(frame.len() - 4).unwrap();
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Bytes from hex; spaces are allowed.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("hex")).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// A string as requests before the flexible versions have it.
pub fn string(text: &str) -> Vec<u8> {
    let mut bytes = u16::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Whether clients ask again: a broker hears a moment later of what others changed, and takes up its
/// roles then. UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER and the three
/// COORDINATOR_*.
pub fn is_asked_again(error: i16) -> bool {
    matches!(error, 3 | 5 | 6 | 14..=16)
}

/// Asks until the answer is one; `asked` returns the error code with an answer that is none yet.
pub fn until_answered<T>(what: &str, mut asked: impl FnMut() -> Result<T, i16>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match asked() {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(is_asked_again(error), "{what}: {error}");
                assert!(Instant::now() < deadline, "{what}: {error} in the end");
            }
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// CreateTopics v2 for one topic; panics unless it is made.
pub fn create_topic(client: &mut Client, name: &str, partitions: i32) {
    let mut error = create_topic_answer(client, name, partitions);
    if error == 7 {
        // REQUEST_TIMED_OUT: on a slow machine it may have been made all the same.
        error = create_topic_answer(client, name, partitions);
        error = if error == 36 { 0 } else { error };
    }
    assert_eq!(error, 0, "CreateTopics: {name}");
}

/// The same; returns the error code.
pub fn create_topic_answer(client: &mut Client, name: &str, partitions: i32) -> i16 {
    let body = [
        &hex("00000001")[..],
        &string(name),
        &partitions.to_be_bytes(),
        &hex("0001 00000000 00000000 00002710 00"),
    ]
    .concat();
    let mut answer = ask(client, 19, 2, &body);
    answer.i32();
    answer.i32();
    assert_eq!(answer.string(), name);
    answer.i16()
}

/// Varint of Kafka's records (zigzag).
pub fn varint(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// The fields of a batch; `bytes` puts them on the wire with the CRC that fits.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base_offset: i64,
    pub magic: u8,
    pub attributes: u16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: i32,
    pub payload: Vec<u8>,
}

impl Batch {
    /// One record a value, with the wall clock's time.
    pub fn of(values: &[&[u8]]) -> Self {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let now = i64::try_from(now.as_millis()).unwrap();
        let count = i32::try_from(values.len()).unwrap();
        let records = values.iter().enumerate();
        Self {
            base_offset: 0,
            magic: 2,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: now,
            max_timestamp: now,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count,
            payload: records
                .flat_map(|(delta, value)| record(delta as i64, value))
                .collect(),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut checked = self.attributes.to_be_bytes().to_vec();
        checked.extend(self.last_offset_delta.to_be_bytes());
        checked.extend(self.base_timestamp.to_be_bytes());
        checked.extend(self.max_timestamp.to_be_bytes());
        checked.extend(self.producer_id.to_be_bytes());
        checked.extend(self.producer_epoch.to_be_bytes());
        checked.extend(self.base_sequence.to_be_bytes());
        checked.extend(self.count.to_be_bytes());
        checked.extend(&self.payload);
        let mut bytes = self.base_offset.to_be_bytes().to_vec();
        bytes.extend(u32::try_from(checked.len() + 9).unwrap().to_be_bytes());
        bytes.extend((-1i32).to_be_bytes());
        bytes.push(self.magic);
        bytes.extend(crc32c(&checked).to_be_bytes());
        bytes.extend(checked);
        bytes
    }
}

/// A record without key and headers.
pub fn record(offset_delta: i64, value: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend(varint(0));
    body.extend(varint(offset_delta));
    body.extend(varint(-1));
    body.extend(varint(value.len() as i64));
    body.extend(value);
    body.extend(varint(0));
    [varint(body.len() as i64), body].concat()
}

/// Bit by bit, so that it shares nothing with the broker's.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// Body of Produce v3 with one partition of topic `t`.
pub fn produce_body(acks: i16, records: &[u8]) -> Vec<u8> {
    let mut body = hex("ffff");
    body.extend(acks.to_be_bytes());
    body.extend(hex("00002710 00000001 0001 74 00000001 00000000"));
    body.extend(u32::try_from(records.len()).unwrap().to_be_bytes());
    body.extend(records);
    body
}

/// Error code and base offset of that one partition in the response.
pub fn produced(response: &[u8]) -> (i16, i64) {
    let error = i16::from_be_bytes(response[15..17].try_into().unwrap());
    (
        error,
        i64::from_be_bytes(response[17..25].try_into().unwrap()),
    )
}

/// Produces until the broker leads the partition; the base offset.
pub fn produce(broker: &Ottla, body: &[u8]) -> i64 {
    until_answered("Produce", || {
        let answer = broker.connect().request(0, 3, body).expect("an answer");
        match produced(&answer) {
            (0, offset) => Ok(offset),
            (error, _) => Err(error),
        }
    })
}

/// Body of Fetch v4 for partition 0 of topic `t`.
pub fn fetch_body(offset: i64, wait_ms: i32) -> Vec<u8> {
    let mut body = hex("ffffffff");
    body.extend(wait_ms.to_be_bytes());
    body.extend(hex(
        "00000001 00100000 00 00000001 0001 74 00000001 00000000",
    ));
    body.extend(offset.to_be_bytes());
    body.extend(hex("00100000"));
    body
}

/// Error code, high watermark and record bytes of that one partition in the response.
pub fn fetched(response: &[u8]) -> (i16, i64, &[u8]) {
    // throttle 4, topics 4, name 3, partitions 4, index 4
    let error = i16::from_be_bytes(response[19..21].try_into().unwrap());
    let high_watermark = i64::from_be_bytes(response[21..29].try_into().unwrap());
    let aborted = i32::from_be_bytes(response[37..41].try_into().unwrap()).max(0) as usize;
    let records = 41 + 16 * aborted + 4;
    (error, high_watermark, &response[records..])
}
