//! rdkafka (librdkafka from its own sources) against a broker: `ottla-compat-rdkafka BOOTSTRAP`

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_executor::block_on;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const NAME: &str = "rust/rdkafka";
const SECONDS_10: Duration = Duration::from_secs(10);

type Place = (i32, i64);

struct Checks {
    bootstrap: String,
    run_id: String,
    base: i64,
    admin: AdminClient<DefaultClientContext>,
    failed: bool,
}

// ---- records ----

fn key(i: usize) -> Option<Vec<u8>> {
    (i % 10 != 3).then(|| format!("key-{i}").into_bytes())
}

fn value(i: usize) -> Option<Vec<u8>> {
    (i % 10 != 7).then(|| format!("value-{i}-{}", "x".repeat(i * 37 % 500)).into_bytes())
}

fn headers(i: usize) -> Vec<(String, Option<Vec<u8>>)> {
    let header = |k: &str, v: Option<String>| (k.to_owned(), v.map(String::into_bytes));
    if i.is_multiple_of(3) {
        vec![header("n", Some(i.to_string())), header("n", Some("again".into())), header("empty", Some(String::new())), header("null", None)]
    } else {
        vec![]
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Received {
    place: Place,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: i64,
}

impl Received {
    fn of(m: &impl Message) -> Self {
        let headers = m.headers().map_or_else(Vec::new, |h| h.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect());
        Self {
            place: (m.partition(), m.offset()),
            key: m.key().map(<[u8]>::to_vec),
            value: m.payload().map(<[u8]>::to_vec),
            headers,
            timestamp: m.timestamp().to_millis().unwrap_or(-1),
        }
    }
}

/// Exactly the records of `numbers`, each at its acknowledged place, in offset order per partition, unchanged.
fn verify(checks: &Checks, records: &[Received], numbers: std::ops::Range<usize>, partitions: usize, acknowledged: &HashMap<usize, Place>) {
    let mut wanted: BTreeMap<Place, usize> = numbers.map(|i| (*acknowledged.get(&i).unwrap_or_else(|| panic!("record {i} was not acknowledged")), i)).collect();
    let mut last: HashMap<i32, i64> = HashMap::new();
    for record in records {
        let i = wanted.remove(&record.place).unwrap_or_else(|| panic!("a record at {:?} that nobody was acknowledged, or twice", record.place));
        let sent = Received { place: record.place, key: key(i), value: value(i), headers: headers(i), timestamp: checks.base + i as i64 };
        assert_eq!(record, &sent, "record {i}");
        assert_eq!(record.place.0 as usize, i % partitions, "partition");
        let before = last.insert(record.place.0, record.place.1).unwrap_or(-1);
        assert!(before < record.place.1, "offset {} after {before} in partition {}", record.place.1, record.place.0);
    }
    assert!(wanted.is_empty(), "{} records were not received", wanted.len());
}

fn by_offset(mut records: Vec<Received>) -> Vec<Received> {
    records.sort_by_key(|r| r.place.1);
    records
}

// ---- clients ----

/// Remembers where each record was acknowledged.
#[derive(Default, Clone)]
struct Acknowledgements(Arc<Mutex<(HashMap<usize, Place>, Vec<String>)>>);

impl ClientContext for Acknowledgements {}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let mut state = self.0.lock().unwrap();
        match result {
            Ok(m) => drop(state.0.insert(*number, (m.partition(), m.offset()))),
            Err((e, _)) => state.1.push(e.to_string()),
        }
    }
}

struct Sender {
    producer: ThreadedProducer<Acknowledgements>,
    acknowledgements: Acknowledgements,
    topic: String,
    partitions: usize,
    base: i64,
}

impl Sender {
    fn new(checks: &Checks, topic: &str, partitions: usize, settings: &[(&str, &str)]) -> Self {
        let acknowledgements = Acknowledgements::default();
        let config = checks.config(&[&[("linger.ms", "5"), ("message.timeout.ms", "60000")], settings].concat());
        let producer = ThreadedProducer::from_config_and_context(&config, acknowledgements.clone()).unwrap();
        Self { producer, acknowledgements, topic: topic.to_owned(), partitions, base: checks.base }
    }

    fn send(&self, numbers: std::ops::Range<usize>) -> &Self {
        for i in numbers {
            let (key, value) = (key(i), value(i));
            let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(&self.topic, Box::new(i)).partition((i % self.partitions) as i32).timestamp(self.base + i as i64);
            record.key = key.as_deref();
            record.payload = value.as_deref();
            let mut owned = OwnedHeaders::new();
            for (key, value) in headers(i) {
                owned = owned.insert(Header { key: &key, value: value.as_deref() });
            }
            if i.is_multiple_of(3) {
                record = record.headers(owned);
            }
            self.producer.send(record).map_err(|(e, _)| e).unwrap();
        }
        self
    }

    fn flush(&self) -> &Self {
        self.producer.flush(Duration::from_secs(60)).unwrap();
        assert_eq!(self.acknowledgements.0.lock().unwrap().1, Vec::<String>::new(), "errors of the producer");
        self
    }

    fn acknowledged(&self) -> HashMap<usize, Place> {
        self.acknowledgements.0.lock().unwrap().0.clone()
    }
}

/// A group member that consumes and commits until it is told to leave.
struct Member {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    assigned: Mutex<BTreeSet<i32>>,
    leaving: AtomicBool,
    commit: AtomicBool,
}

struct MemberContext(Arc<Shared>);

impl ClientContext for MemberContext {}

impl ConsumerContext for MemberContext {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(partitions) = rebalance {
            commit(consumer);
            self.0.assigned.lock().unwrap().retain(|p| !partitions.elements().iter().any(|e| e.partition() == *p));
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance {
            self.0.assigned.lock().unwrap().extend(partitions.elements().iter().map(rdkafka::topic_partition_list::TopicPartitionListElem::partition));
        }
    }
}

fn commit<C: ConsumerContext>(consumer: &BaseConsumer<C>) {
    match consumer.commit_consumer_state(CommitMode::Sync) {
        Ok(()) | Err(KafkaError::ConsumerCommit(rdkafka::error::RDKafkaErrorCode::NoOffset)) => {}
        Err(e) => panic!("commit: {e}"),
    }
}

impl Member {
    fn join(checks: &Checks, group: &str, topic: &str, settings: &[(&str, &str)]) -> Self {
        let shared = Arc::new(Shared::default());
        let config = checks.config(&[CONSUMER, &[("group.id", group)], settings].concat());
        let consumer = BaseConsumer::from_config_and_context(&config, MemberContext(shared.clone())).unwrap();
        consumer.subscribe(&[topic]).unwrap();
        let state = shared.clone();
        let thread = thread::spawn(move || {
            while !state.leaving.load(Ordering::Relaxed) {
                match consumer.poll(Duration::from_millis(100)) {
                    Some(Ok(m)) => state.received.lock().unwrap().push(Received::of(&m)),
                    Some(Err(e)) => assert!(e.rdkafka_error_code().is_some_and(|c| format!("{c:?}").contains("Transport") || format!("{c:?}").contains("AllBrokersDown")), "{e}"),
                    None => {}
                }
                if state.commit.load(Ordering::Relaxed) {
                    commit(&consumer);
                    state.commit.store(false, Ordering::Relaxed);
                }
            }
            commit(&consumer);
        });
        Self { shared, thread: Some(thread) }
    }

    fn count(&self) -> usize {
        self.shared.received.lock().unwrap().len()
    }

    fn owned(&self) -> usize {
        self.shared.assigned.lock().unwrap().len()
    }

    fn commit(&self) {
        self.shared.commit.store(true, Ordering::Relaxed);
        eventually("the commit", 20, || !self.shared.commit.load(Ordering::Relaxed));
    }

    fn leave(&mut self) -> Vec<Received> {
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("a member");
        self.shared.received.lock().unwrap().clone()
    }
}

const CONSUMER: &[(&str, &str)] = &[
    ("auto.offset.reset", "earliest"),
    ("enable.auto.commit", "false"),
    ("fetch.wait.max.ms", "100"),
    ("session.timeout.ms", "10000"),
    ("heartbeat.interval.ms", "500"),
];

fn eventually(what: &str, seconds: u64, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        thread::sleep(Duration::from_millis(30));
    }
}

fn poll(consumer: &BaseConsumer, count: usize) -> Vec<Received> {
    let mut records = Vec::new();
    eventually(&format!("{count} records"), 30, || {
        while let Some(m) = consumer.poll(Duration::from_millis(100)) {
            records.push(Received::of(&m.expect("a message")));
            if records.len() >= count {
                break;
            }
        }
        records.len() >= count
    });
    records
}

impl Checks {
    fn config(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("reconnect.backoff.max.ms", "500").set("allow.auto.create.topics", "false");
        config.set_log_level(RDKafkaLogLevel::Critical);
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config
    }

    fn name(&self, what: &str) -> String {
        format!("rust-rdkafka-{what}-{}", self.run_id)
    }

    fn create(&self, name: &str, partitions: i32, replicas: i32, configs: &[(&str, &str)]) -> Result<(), String> {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        for (key, value) in configs {
            topic = topic.set(key, value);
        }
        block_on(self.admin.create_topics(&[topic], &AdminOptions::new())).unwrap().remove(0).map(drop).map_err(|(_, e)| format!("{e:?}"))
    }

    fn partitions(&self, name: &str) -> usize {
        let metadata = self.admin.inner().fetch_metadata(None, SECONDS_10).unwrap();
        metadata.topics().iter().find(|t| t.name() == name).map_or(0, |t| t.partitions().iter().filter(|p| p.leader() >= 0).count())
    }

    fn topic(&self, what: &str, partitions: i32) -> String {
        let name = self.name(what);
        let replicas = std::env::var("COMPAT_REPLICAS").map_or(1, |r| r.parse().unwrap()); // --cluster asks for 3
        self.create(&name, partitions, replicas, &[]).unwrap();
        eventually("the topic's leaders", 20, || self.partitions(&name) == partitions as usize);
        name
    }

    fn reader(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> BaseConsumer {
        let consumer: BaseConsumer = self.config(&[CONSUMER, &[("group.id", "no-group")], settings].concat()).create().unwrap();
        let mut list = TopicPartitionList::new();
        for p in 0..partitions {
            list.add_partition_offset(topic, p, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        consumer
    }

    fn config_of(&self, topic: &str, key: &str) -> String {
        let described = block_on(self.admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &AdminOptions::new())).unwrap().remove(0).unwrap();
        described.get(key).and_then(|e| e.value.clone()).unwrap_or_default()
    }

    fn check(&mut self, what: &str, body: impl Fn(&Self)) {
        if !what.contains(&std::env::var("COMPAT_ONLY").unwrap_or_default()) {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| body(self))) {
            Ok(()) => println!("ok  {NAME} {what}"),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
                let text: Vec<_> = text.split_whitespace().collect();
                println!("FAIL {NAME} {what}: {:.300}", text.join(" "));
                self.failed = true;
            }
        }
    }
}

// ---- the checks ----

fn topics(checks: &Checks) {
    let name = checks.topic("topics", 3);
    assert!(checks.create(&name, 1, 1, &[]).unwrap_err().contains("TopicAlreadyExists"));
    assert!(checks.create(&format!("{name}-rf"), 1, 9, &[]).unwrap_err().contains("InvalidReplicationFactor"));
    assert!(checks.create(&format!("{name}-c"), 1, 1, &[("retention.ms", "soon")]).unwrap_err().contains("InvalidConfig"));
    assert_eq!(checks.config_of(&name, "segment.bytes"), "1073741824");
    let change = AlterConfig::new(ResourceSpecifier::Topic(&name)).set("retention.ms", "3600000");
    block_on(checks.admin.alter_configs(&[change], &AdminOptions::new())).unwrap().remove(0).unwrap();
    eventually("the altered config", 20, || checks.config_of(&name, "retention.ms") == "3600000");
    block_on(checks.admin.create_partitions(&[NewPartitions::new(&name, 5)], &AdminOptions::new())).unwrap().remove(0).unwrap();
    eventually("5 partitions", 20, || checks.partitions(&name) == 5);
    let sender = Sender::new(checks, &name, 5, &[]);
    sender.send(0..20).flush();
    block_on(checks.admin.delete_topics(&[&name], &AdminOptions::new())).unwrap().remove(0).unwrap();
    eventually("the topic to be gone", 20, || checks.partitions(&name) == 0);
    let again = block_on(checks.admin.delete_topics(&[&name], &AdminOptions::new())).unwrap().remove(0);
    assert!(format!("{again:?}").contains("UnknownTopicOrPartition"), "{again:?}");
}

fn produce_consume(checks: &Checks, codec: &str) {
    let name = checks.topic(codec, 3);
    let count = if std::env::var("COMPAT_FULL").is_ok_and(|f| !f.is_empty()) { 60_000 } else { 6_000 };
    let sender = Sender::new(checks, &name, 3, &[("compression.type", codec)]);
    sender.send(0..count).flush();
    let consumer = checks.reader(&name, 3, &[]);
    verify(checks, &poll(&consumer, count), 0..count, 3, &sender.acknowledged());
    for p in 0..3 {
        assert_eq!(consumer.fetch_watermarks(&name, p, SECONDS_10).unwrap(), (0, count as i64 / 3));
    }
}

fn idempotent(checks: &Checks) {
    let name = checks.topic("idempotent", 3);
    let sender = Sender::new(checks, &name, 3, &[("enable.idempotence", "true"), ("batch.num.messages", "20")]);
    sender.send(0..3000).flush();
    let consumer = checks.reader(&name, 3, &[("isolation.level", "read_committed")]);
    verify(checks, &poll(&consumer, 3000), 0..3000, 3, &sender.acknowledged());
}

fn offsets_by_time(checks: &Checks) {
    let name = checks.topic("times", 1);
    Sender::new(checks, &name, 1, &[("compression.type", "gzip"), ("batch.num.messages", "50")]).send(0..500).flush();
    let consumer = checks.reader(&name, 1, &[]);
    for i in [0, 1, 49, 50, 333, 499] {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&name, 0, Offset::Offset(checks.base + i)).unwrap();
        let found = consumer.offsets_for_times(list, SECONDS_10).unwrap();
        assert_eq!(found.elements()[0].offset(), Offset::Offset(i), "the offset by time");
    }
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&name, 0, Offset::Offset(checks.base + 9999)).unwrap();
    assert_eq!(consumer.offsets_for_times(list, SECONDS_10).unwrap().elements()[0].offset(), Offset::End, "after the last");
}

fn seek(checks: &Checks) {
    let name = checks.topic("seek", 1);
    let sender = Sender::new(checks, &name, 1, &[]);
    sender.send(0..1000).flush();
    let consumer = checks.reader(&name, 1, &[]);
    verify(checks, &poll(&consumer, 1000), 0..1000, 1, &sender.acknowledged());
    for start in [900, 0, 517, 999] {
        consumer.seek(&name, 0, Offset::Offset(start as i64), SECONDS_10).unwrap();
        verify(checks, &poll(&consumer, 1000 - start), start..1000, 1, &sender.acknowledged());
    }
    consumer.seek(&name, 0, Offset::Offset(5000), SECONDS_10).unwrap(); // out of range: auto.offset.reset
    verify(checks, &poll(&consumer, 1000), 0..1000, 1, &sender.acknowledged());
}

fn rebalance(checks: &Checks, strategy: &str) {
    let name = checks.topic(strategy, 4);
    let settings = [("partition.assignment.strategy", strategy)];
    let sender = Sender::new(checks, &name, 4, &[]);
    sender.send(0..1000).flush();
    let mut first = Member::join(checks, &name, &name, &settings);
    eventually("the first 1000 records", 20, || first.owned() == 4 && first.count() >= 1000);
    let mut second = Member::join(checks, &name, &name, &settings);
    eventually("two partitions each", 20, || first.owned() == 2 && second.owned() == 2);
    sender.send(1000..2000).flush();
    eventually("2000 records", 20, || first.count() + second.count() >= 2000);
    assert_eq!(second.count(), 500, "records of the second member");
    let groups = checks.admin.inner().fetch_group_list(Some(&name), SECONDS_10).unwrap();
    let group = &groups.groups()[0];
    assert_eq!((group.state(), group.members().len(), group.protocol_type()), ("Stable", 2, "consumer"), "the described group");
    let two = second.leave();
    eventually("all partitions to be with the first again", 20, || first.owned() == 4);
    sender.send(2000..3000).flush();
    eventually("3000 records", 20, || first.count() + two.len() >= 3000);
    verify(checks, &by_offset([first.leave(), two].concat()), 0..3000, 4, &sender.acknowledged());
    // What was committed is where the next member starts.
    sender.send(3000..3100).flush();
    let mut third = Member::join(checks, &name, &name, &settings);
    eventually("the last 100 records", 20, || third.count() >= 100);
    verify(checks, &third.leave(), 3000..3100, 4, &sender.acknowledged());
}

fn commits(checks: &Checks) {
    let name = checks.topic("commits", 2);
    let sender = Sender::new(checks, &name, 2, &[]);
    sender.send(0..100).flush();
    let consumer: BaseConsumer = checks.config(&[CONSUMER, &[("group.id", &name)]].concat()).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&name, 0, Offset::Offset(20)).unwrap();
    list.add_partition_offset(&name, 1, Offset::Offset(30)).unwrap();
    consumer.commit(&list, CommitMode::Sync).unwrap();
    let committed = consumer.committed_offsets(list.clone(), SECONDS_10).unwrap();
    assert_eq!(committed.elements().iter().map(|e| e.offset()).collect::<Vec<_>>(), [Offset::Offset(20), Offset::Offset(30)]);
    consumer.subscribe(&[&name]).unwrap();
    let mut places: Vec<Place> = poll(&consumer, 50).iter().map(|r| r.place).collect();
    places.sort_unstable();
    assert_eq!(places, (20..50).map(|o| (0, o)).chain((30..50).map(|o| (1, o))).collect::<Vec<_>>(), "resumed at");
    let delete = || format!("{:?}", block_on(checks.admin.delete_groups(&[&name], &AdminOptions::new())).unwrap().remove(0));
    let refused = delete();
    assert!(refused.contains("NonEmptyGroup"), "{refused}");
    drop(consumer);
    let deleted = delete();
    assert!(deleted.starts_with("Ok"), "{deleted}");
    let gone = delete();
    assert!(gone.contains("GroupIdNotFound"), "{gone}");
}

fn delete_records(checks: &Checks) {
    let name = checks.topic("delete-records", 1);
    let sender = Sender::new(checks, &name, 1, &[]);
    sender.send(0..100).flush();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&name, 0, Offset::Offset(40)).unwrap();
    block_on(checks.admin.delete_records(&list, &AdminOptions::new())).unwrap();
    let consumer = checks.reader(&name, 1, &[]);
    verify(checks, &poll(&consumer, 60), 40..100, 1, &sender.acknowledged());
    assert_eq!(consumer.fetch_watermarks(&name, 0, SECONDS_10).unwrap(), (40, 100));
}

/// The broker restarts under an idempotent producer and a group member; nothing is lost or duplicated.
fn restart(checks: &Checks, how: &str) {
    let name = checks.topic(&format!("restart-{how}"), 3);
    let sender = Sender::new(checks, &name, 3, &[("enable.idempotence", "true")]);
    let mut member = Member::join(checks, &name, &name, &[("session.timeout.ms", "45000")]);
    sender.send(0..1000).flush();
    eventually("1000 records before the restart", 20, || member.count() >= 1000);
    member.commit();
    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut sent = 1000;
            while !stop.load(Ordering::Relaxed) {
                sender.send(sent..sent + 10);
                sent += 10;
                thread::sleep(Duration::from_millis(5));
            }
            sent
        });
        let status = std::process::Command::new(std::env::var("OTTLA_RESTART").unwrap()).arg(how).stdout(std::process::Stdio::null()).status();
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        let sent = load.join().unwrap();
        assert!(status.unwrap().success(), "the restart failed");
        sent
    });
    sender.flush();
    eventually("the records after the restart", 60, || member.count() >= sent);
    verify(checks, &member.leave(), 0..sent, 3, &sender.acknowledged());
    verify(checks, &poll(&checks.reader(&name, 3, &[]), sent), 0..sent, 3, &sender.acknowledged());
    let consumer: BaseConsumer = checks.config(&[CONSUMER, &[("group.id", &name)]].concat()).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_range(&name, 0, 2);
    let committed: i64 = consumer.committed_offsets(list, SECONDS_10).unwrap().elements().iter().map(|e| e.offset().to_raw().unwrap_or(0)).sum();
    assert_eq!(committed, sent as i64, "committed offsets");
}

fn main() {
    let bootstrap = std::env::args().nth(1).expect("usage: ottla-compat-rdkafka BOOTSTRAP");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let admin = ClientConfig::new().set("bootstrap.servers", &bootstrap).set_log_level(RDKafkaLogLevel::Critical).create().unwrap();
    let run_id = format!("{:06x}", (now.subsec_nanos() >> 4) & 0xff_ffff);
    let mut checks = Checks { bootstrap, run_id, base: (now.as_secs() as i64 - 3600) * 1000, admin, failed: false };
    checks.check("topics", topics);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        checks.check(&format!("produce-consume {codec}"), |c| produce_consume(c, codec));
    }
    checks.check("idempotent", idempotent);
    checks.check("offsets-by-time", offsets_by_time);
    checks.check("seek", seek);
    checks.check("rebalance eager", |c| rebalance(c, "range"));
    checks.check("rebalance cooperative", |c| rebalance(c, "cooperative-sticky"));
    checks.check("commits-and-groups", commits);
    checks.check("delete-records", delete_records);
    for how in ["term", "kill"] {
        if std::env::var("OTTLA_RESTART").is_ok() {
            checks.check(&format!("restart {how}"), |c| restart(c, how));
        } else {
            println!("skip {NAME} restart {how}: OTTLA_RESTART names no command that restarts the broker");
        }
    }
    std::process::exit(i32::from(checks.failed));
}
