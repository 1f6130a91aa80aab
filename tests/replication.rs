//! One broker on etcd that leads, and a test that speaks to it as the other replica. Says so and passes
//! where the machine has no `etcd`, unless `OTTLA_REQUIRE_ETCD=1` is set.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // helpers of tests

#[path = "support/etcd.rs"]
mod etcd_process;
mod support;

use std::time::{Duration, Instant};

use etcd_process::start_etcd;
use ottla::registry::value::{BrokerValue, PartitionValue, TopicValue, decode, encode};
use ottla::registry::{Etcd, Key, Op, Registry};
use ottla::types::{BrokerId, TopicId};
use support::{Answer, Batch, Client, Ottla, frame, hex, produce_body, produced, string};

const PREFIX: &str = "/ottla/cluster";
const PATIENCE: Duration = Duration::from_secs(20);

/// The other replica.
struct Follower {
    client: Client,
    topic: TopicId,
    broker_epoch: i64,
    session: (i32, i32),
}

/// What a fetch brought of the one partition; all −1 where the session has nothing new.
#[derive(Debug, PartialEq, Eq)]
struct Fetched {
    error: i16,
    high_watermark: i64,
    log_start: i64,
    bytes: usize,
}

const NOTHING_NEW: Fetched = Fetched {
    error: 0,
    high_watermark: -1,
    log_start: -1,
    bytes: 0,
};

impl Follower {
    /// Fetch v15.
    fn fetch(&mut self, offset: i64, leader_epoch: i32, last_epoch: i32, wait_ms: i32) -> Fetched {
        let body = [
            &wait_ms.to_be_bytes()[..],
            &hex("00000001 00a00000 00"),
            &self.session.0.to_be_bytes(),
            &self.session.1.to_be_bytes(),
            &hex("02"),
            &self.topic.0,
            &hex("02 00000000"),
            &leader_epoch.to_be_bytes(),
            &offset.to_be_bytes(),
            &last_epoch.to_be_bytes(),
            &0i64.to_be_bytes(),
            &hex("00100000 00 00 01 01"),
            // The tagged field that says who asks.
            &hex("01 01 0d 00000008"),
            &self.broker_epoch.to_be_bytes(),
            &hex("00"),
        ];
        self.client.send_raw(&frame(1, 15, &body.concat(), true));
        let mut answer = Answer::of(self.client.receive().unwrap());
        answer.take(4 + 1 + 4);
        assert_eq!(answer.i16(), 0);
        self.session = (answer.i32(), self.session.1 + 1);
        if answer.compact() == 0 {
            return NOTHING_NEW;
        }
        assert_eq!(answer.take(16), self.topic.0);
        assert_eq!((answer.compact(), answer.i32()), (1, 0));
        let error = answer.i16();
        let high_watermark = answer.i64();
        answer.i64();
        let log_start = answer.i64();
        assert_eq!((answer.compact(), answer.i32()), (0, -1));
        Fetched {
            error,
            high_watermark,
            log_start,
            bytes: answer.compact(),
        }
    }
}

async fn put(etcd: &Etcd, key: Key, value: bytes::Bytes) -> i64 {
    let put = Op::Put {
        key: key.to_string(),
        value,
        lease: 0,
    };
    etcd.txn(vec![], vec![put]).await.unwrap().revision
}

async fn partition(etcd: &Etcd, topic: TopicId) -> PartitionValue {
    let key = Key::Partition(topic, 0).to_string();
    decode(&etcd.get(&key).await.unwrap().unwrap().value).unwrap()
}

async fn until(etcd: &Etcd, topic: TopicId, isr: &[i32], elr: &[i32]) {
    let begun = Instant::now();
    loop {
        let found = partition(etcd, topic).await;
        if found.isr == isr && found.elr == elr {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Broker 8, which is only this test.
fn registration() -> BrokerValue {
    BrokerValue {
        endpoints: Vec::new(),
        rack: None,
        incarnation: "test".to_owned(),
        shutting_down: false,
    }
}

/// Topic `t` on the brokers 7 and 8, both of which are to be in sync.
async fn create(client: &mut Client, etcd: &Etcd) -> TopicId {
    let body = [
        &hex("00000001")[..],
        &string("t"),
        &hex("ffffffff ffff 00000001 00000000 00000002 00000007 00000008 00000001"),
        &string("min.insync.replicas"),
        &string("2"),
        &hex("00002710 00"),
    ];
    let begun = Instant::now();
    // The broker has to hear of the other one first.
    while client.request(19, 2, &body.concat()).unwrap()[11..13] != [0, 0] {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let key = Key::Topic("t".into()).to_string();
    let value: TopicValue = decode(&etcd.get(&key).await.unwrap().unwrap().value).unwrap();
    value.id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_told_counted_missed_and_taken_back() {
    let Some(process) = start_etcd() else { return };
    let url = format!("etcd.endpoints={}", process.client_url);
    let overrides = [
        &url,
        &format!("etcd.prefix={PREFIX}"),
        "node.id=7",
        "replica.lag.time.max.ms=2000",
    ];
    let broker = Ottla::start(&overrides);
    let mut client = broker.connect();
    let etcd = process.connect(PREFIX).await;
    let other = encode(&registration());
    let broker_epoch = put(&etcd, Key::Broker(BrokerId(8)), other).await;
    let topic = create(&mut client, &etcd).await;
    let mut follower = Follower {
        client: broker.connect(),
        topic,
        broker_epoch,
        session: (0, 0),
    };
    let first = follower.fetch(0, 0, -1, 0);
    assert_eq!(
        (first.error, first.high_watermark, first.log_start),
        (0, 0, 0)
    );
    assert_ne!(follower.session.0, 0);
    let (isr, elr): (&[i32], &[i32]) = (&[7, 8], &[]);
    until(&etcd, topic, isr, elr).await;

    // What the follower does not have is not acknowledged, and nobody else sees it.
    let all = |value: &[u8]| frame(0, 3, &produce_body(-1, &Batch::of(&[value]).bytes()), false);
    client.send_raw(&all(b"a"));
    let read = follower.fetch(0, 0, -1, 5_000);
    assert_eq!((read.high_watermark, read.error), (0, 0));
    assert!(read.bytes > 60);
    assert!(client.is_silent(Duration::from_millis(100)));
    follower.fetch(1, 0, 0, 0);
    let answer = client.receive().unwrap();
    assert_eq!(produced(&answer[4..]), (0, 0));
    let again = follower.fetch(1, 0, 0, 0);
    assert!(
        again == NOTHING_NEW || again.high_watermark == 1,
        "{again:?}"
    );

    // A broker that is no replica, an epoch that is not, another life.
    assert_eq!(follower.fetch(1, 9, 0, 0).error, 75);
    follower.broker_epoch -= 1;
    assert_eq!(follower.fetch(1, 0, 0, 0).error, 77);
    follower.broker_epoch += 1;

    // It is silent for longer than replica.lag.time.max.ms while there is more.
    let one = frame(0, 3, &produce_body(1, &Batch::of(&[b"b"]).bytes()), false);
    client.send_raw(&one);
    assert_eq!(produced(&client.receive().unwrap()[4..]), (0, 1));
    until(&etcd, topic, &[7], &[8]).await;
    client.send_raw(&all(b"c"));
    assert_eq!(produced(&client.receive().unwrap()[4..]), (19, -1));
    let read = follower.fetch(1, 0, 0, 0);
    assert!(read.bytes > 60);
    follower.fetch(2, 0, 0, 0);
    until(&etcd, topic, isr, elr).await;
    let found = partition(&etcd, topic).await;
    assert_eq!((found.leader, found.leader_epoch), (7, 0));
    client.send_raw(&all(b"c"));
    follower.fetch(2, 0, 0, 5_000);
    follower.fetch(3, 0, 0, 0);
    assert_eq!(produced(&client.receive().unwrap()[4..]), (0, 2));
}
