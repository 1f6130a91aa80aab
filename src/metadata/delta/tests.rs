use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::registry::value::{EndpointValue, encode};

const ID: TopicId = TopicId([7; 16]);
const OTHER: TopicId = TopicId([8; 16]);

fn resolver() -> Resolver {
    Resolver::new(&crate::config::BrokerConfig::for_tests("/nowhere"))
}

fn put(key: Key, value: Bytes, revision: i64) -> WatchEvent {
    WatchEvent::Put(KeyValue {
        key: key.to_string(),
        value,
        create_revision: revision,
        mod_revision: revision,
        lease: 0,
    })
}

fn deleted(key: Key, revision: i64) -> WatchEvent {
    WatchEvent::Delete {
        key: key.to_string(),
        revision,
    }
}

fn topic(id: TopicId, partitions: usize, revision: i64) -> WatchEvent {
    let value = TopicValue {
        id,
        replicas: vec![vec![BrokerId(1)]; partitions],
        configs: BTreeMap::new(),
    };
    put(Key::Topic("t".into()), encode(&value), revision)
}

fn state(id: TopicId, index: i32, leader_epoch: i32, revision: i64) -> WatchEvent {
    let value = PartitionValue {
        leader: 1,
        leader_epoch,
        leader_registration: 0,
        isr: vec![1],
        elr: Vec::new(),
        last_known_leader: None,
        partition_epoch: 0,
    };
    put(Key::Partition(id, index), encode(&value), revision)
}

/// Applies groups one after the other.
fn apply(groups: &[Vec<WatchEvent>]) -> (Image, Unattached, Vec<String>) {
    let mut image = Image::default();
    let mut unattached = Unattached::new();
    let mut problems = Vec::new();
    for group in groups {
        let mut delta = Delta::new(&image, unattached);
        for event in group {
            delta.apply(event);
        }
        let (new, rest, found) = delta.finish(&image, &resolver());
        (image, unattached) = (new, rest);
        problems.extend(found);
    }
    (image, unattached, problems)
}

#[test]
fn a_topic_shows_itself_when_it_is_whole() {
    let groups = [
        vec![state(ID, 0, 0, 5), state(ID, 1, 3, 5)],
        vec![state(ID, 2, 0, 6)],
    ];
    let (image, unattached, _) = apply(&groups);
    assert!(image.topics.is_empty());
    assert_eq!((unattached[&ID].len(), image.revision), (3, 6));
    let groups = [groups.to_vec(), vec![vec![topic(ID, 3, 7)]]].concat();
    let (image, unattached, problems) = apply(&groups);
    assert!(unattached.is_empty() && problems.is_empty());
    let epochs: Vec<_> = image.topics["t"]
        .partitions
        .iter()
        .map(|p| p.leader_epoch)
        .collect();
    assert_eq!(epochs, [0, 3, 0]);
    assert_eq!(image.topic_by_id(ID).map(|topic| &*topic.name), Some("t"));
}

#[test]
fn more_partitions_show_themselves_together_and_leave_the_old_ones_alone() {
    let (image, unattached, problems) = apply(&[
        vec![topic(ID, 1, 5), state(ID, 0, 4, 5)],
        vec![state(ID, 1, 0, 6), state(ID, 2, 0, 6)],
    ]);
    assert_eq!(image.topics["t"].partitions.len(), 1);
    assert_eq!((unattached[&ID].len(), problems.len()), (2, 0));
    let (image, unattached, problems) = apply(&[
        vec![topic(ID, 1, 5), state(ID, 0, 4, 5)],
        vec![state(ID, 1, 0, 6), state(ID, 2, 0, 6)],
        vec![topic(ID, 3, 7)],
    ]);
    assert!(unattached.is_empty() && problems.is_empty());
    let epochs: Vec<_> = image.topics["t"]
        .partitions
        .iter()
        .map(|p| p.leader_epoch)
        .collect();
    assert_eq!(epochs, [4, 0, 0]);
}

#[test]
fn a_topic_made_anew_takes_nothing_over() {
    let gone = [
        vec![topic(ID, 2, 5), state(ID, 0, 4, 5), state(ID, 1, 4, 5)],
        vec![
            deleted(Key::Partition(ID, 0), 6),
            deleted(Key::Topic("t".into()), 6),
            deleted(Key::Partition(ID, 1), 6),
        ],
    ];
    let (image, unattached, problems) = apply(&gone);
    assert!(image.topics.is_empty() && image.topic_names.is_empty());
    assert!(unattached.is_empty() && problems.is_empty());
    let again = [
        gone.to_vec(),
        vec![vec![topic(OTHER, 1, 7), state(OTHER, 0, 0, 7)]],
    ]
    .concat();
    let (image, _, problems) = apply(&again);
    assert!(problems.is_empty());
    assert_eq!(image.topics["t"].partitions[0].leader_epoch, 0);
    assert_eq!(image.topic_names.len(), 1);
}

#[test]
fn brokers_configs_and_the_rest_come_and_go() {
    let registration = BrokerValue {
        endpoints: vec![EndpointValue {
            listener: "PLAINTEXT".to_owned(),
            host: "h".to_owned(),
            port: 9,
        }],
        rack: Some("r".to_owned()),
        incarnation: String::new(),
        shutting_down: false,
    };
    let configs = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let there = vec![
        put(Key::ClusterId, Bytes::from_static(b"abc"), 1),
        put(Key::Broker(BrokerId(1)), encode(&registration), 2),
        put(Key::Controller, encode(&ControllerValue { broker: 1 }), 2),
        put(Key::BrokerDefaults, encode(&configs), 3),
        put(Key::BrokerConfig(BrokerId(1)), encode(&configs), 3),
        put(Key::GroupConfig("g".into()), encode(&configs), 3),
        put(Key::ClientMetrics("m".into()), encode(&configs), 3),
        put(Key::ProducerIdsNext, Bytes::from_static(b"1000"), 3),
    ];
    let (image, _, problems) = apply(std::slice::from_ref(&there));
    assert!(problems.is_empty());
    assert_eq!(
        (&*image.cluster_id, image.controller),
        ("abc", Some(BrokerId(1)))
    );
    let broker = &image.brokers[&BrokerId(1)];
    assert_eq!((broker.epoch, broker.endpoints[0].port), (2, 9));
    assert_eq!(image.broker_defaults, configs);
    assert_eq!(image.broker_configs[&BrokerId(1)], configs);
    assert_eq!(image.group_configs["g"], configs);
    assert_eq!(image.client_metrics_configs["m"], configs);
    let gone = [
        Key::Broker(BrokerId(1)),
        Key::Controller,
        Key::BrokerDefaults,
        Key::BrokerConfig(BrokerId(1)),
        Key::GroupConfig("g".into()),
        Key::ClientMetrics("m".into()),
    ];
    let gone = gone.into_iter().map(|key| deleted(key, 4)).collect();
    let (image, _, _) = apply(&[there, gone]);
    assert!(image.brokers.is_empty() && image.controller.is_none());
    assert!(image.broker_defaults.is_empty() && image.broker_configs.is_empty());
    assert!(image.group_configs.is_empty() && image.client_metrics_configs.is_empty());
    assert_eq!(image.revision, 4);
}

#[test]
fn what_cannot_be_read_is_named_and_left_out() {
    let (image, _, problems) = apply(&[vec![
        put(Key::Topic("bad".into()), Bytes::from_static(b"{"), 1),
        put(Key::Broker(BrokerId(1)), Bytes::from_static(b"[]"), 1),
        put(Key::ClusterId, Bytes::from_static(b"\xff"), 1),
        topic(ID, 1, 2),
    ]]);
    assert_eq!(problems.len(), 4, "{problems:?}"); // the topic's partition is missing as well
    assert_eq!(image.topics["t"].partitions[0].leader, Some(BrokerId(1)));
    assert_eq!(image.topics.len(), 1);
}

proptest! {
    /// The order of the changes within one revision makes no difference.
    #[test]
    fn a_group_is_a_set(events in Just(vec![
        topic(ID, 3, 5), state(ID, 0, 1, 5), state(ID, 1, 2, 5), state(ID, 2, 3, 5),
        deleted(Key::Partition(OTHER, 0), 5),
    ]).prop_shuffle()) {
        let (image, unattached, problems) = apply(&[vec![state(OTHER, 0, 0, 4)], events]);
        prop_assert!(unattached.is_empty() && problems.is_empty());
        let epochs: Vec<_> = image.topics["t"].partitions.iter().map(|p| p.leader_epoch).collect();
        prop_assert_eq!(epochs, [1, 2, 3]);
    }
}
