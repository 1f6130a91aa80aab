use std::sync::Arc;

use super::*;
use crate::metadata::{Broker, Topic};
use crate::types::TopicId;

const DEFAULTS: Defaults = Defaults {
    num_partitions: 2,
    replication_factor: 1,
};

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Brokers 1 and 2, and the topics `a.b` and `taken`.
fn image() -> Image {
    let broker = |id| {
        let broker = Broker {
            id,
            endpoints: Vec::new(),
            rack: None,
            epoch: 1,
            incarnation: String::new(),
            shutting_down: false,
        };
        (id, Arc::new(broker))
    };
    let topic = |name: &str| {
        let topic = Topic {
            name: name.into(),
            id: TopicId([1; 16]),
            partitions: Vec::new(),
            overrides: BTreeMap::new(),
            config: Arc::default(),
        };
        (Arc::clone(&topic.name), Arc::new(topic))
    };
    Image {
        brokers: BTreeMap::from([broker(BrokerId(1)), broker(BrokerId(2))]),
        topics: BTreeMap::from([topic("a.b"), topic("taken")]),
        ..Image::default()
    }
}

fn asked(num_partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic {
        name: "new".to_owned(),
        num_partitions,
        replication_factor,
        ..NewTopic::default()
    }
}

fn assigned(assignments: &[(i32, &[i32])]) -> NewTopic {
    NewTopic {
        assignments: assignments
            .iter()
            .map(|(index, replicas)| (*index, ids(replicas)))
            .collect(),
        ..asked(-1, -1)
    }
}

#[test]
fn names_are_refused_as_kafka_refuses_them() {
    let long = "x".repeat(250);
    for (name, code, message) in [
        (
            "",
            17,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (".", 17, "Topic name is invalid: '.' is not allowed"),
        ("..", 17, "Topic name is invalid: '..' is not allowed"),
        (
            "a b",
            17,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII \
             alphanumerics, '.', '_' and '-'",
        ),
        ("a_b", 17, "Topic 'a_b' collides with existing topic: a.b"),
        ("a.b", 36, "Topic 'a.b' already exists."),
        ("taken", 36, "Topic 'taken' already exists."),
        (
            &long,
            17,
            &format!(
                "Topic name is invalid: the length of '{long}' is longer than the max allowed \
                 length 249"
            ),
        ),
    ] {
        let error = TakenNames::new(&image()).check(name).unwrap_err();
        assert_eq!(error.code.code(), code, "{name}");
        assert_eq!(error.message.as_deref(), Some(message));
    }
    for name in ["a-b", "ab", "A.B", &long[1..]] {
        assert_eq!(TakenNames::new(&image()).check(name), Ok(()));
    }
}

#[test]
fn counts_are_checked_and_default() {
    let plan = |partitions, factor| plan_topic(&image(), DEFAULTS, &asked(partitions, factor));
    assert_eq!(plan(-1, -1).unwrap().replicas, [ids(&[1]), ids(&[2])]);
    assert_eq!(plan(3, 2).unwrap().replicas.len(), 3);
    for (partitions, factor, code) in [
        (0, 1, 37),
        (-2, 1, 37),
        (1, 0, 38),
        (1, -2, 38),
        (0, 0, 38),
        (1, 3, 38),
    ] {
        let error = plan(partitions, factor).unwrap_err();
        assert_eq!(error.code.code(), code, "{partitions} {factor}");
    }
    assert_eq!(
        plan(1, 3).unwrap_err().message.unwrap(),
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be \
         reached because only 2 broker(s) are registered or some brokers have all their log \
         directories cordoned."
    );
}

#[test]
fn manual_assignments_are_checked() {
    let plan = |topic: &NewTopic| plan_topic(&image(), DEFAULTS, topic);
    assert_eq!(
        plan(&assigned(&[(1, &[2, 1]), (0, &[1, 2])]))
            .unwrap()
            .replicas,
        [ids(&[1, 2]), ids(&[2, 1])]
    );
    for (assignments, message) in [
        (
            &[(0, &[][..])][..],
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            &[(0, &[9])],
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            &[(0, &[1, 1])],
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            &[(0, &[1]), (1, &[1, 2])],
            "The manual partition assignment includes a partition with 2 replica(s), but this is \
             not consistent with previous partitions, which have 1 replica(s).",
        ),
        (
            &[(0, &[1]), (0, &[1])],
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            &[(1, &[1])],
            "partitions should be a consecutive 0-based integer sequence",
        ),
    ] {
        let error = plan(&assigned(assignments)).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidReplicaAssignment);
        assert_eq!(error.message.as_deref(), Some(message));
    }
    for topic in [
        NewTopic {
            num_partitions: 1,
            ..assigned(&[(0, &[1])])
        },
        NewTopic {
            replication_factor: 1,
            ..assigned(&[(0, &[1])])
        },
    ] {
        assert_eq!(plan(&topic).unwrap_err().code, ErrorCode::InvalidRequest);
    }
}

#[test]
fn who_is_not_there_neither_leads_nor_is_in_sync() {
    let mut image = image();
    let two = image.brokers.remove(&BrokerId(2)).unwrap();
    image.known_brokers.insert(BrokerId(2), Arc::clone(&two));
    let placed = plan_topic(&image, DEFAULTS, &asked(1, 2)).unwrap();
    assert_eq!(placed.replicas, [ids(&[1, 2])]);
    let state = &placed.states[0];
    assert_eq!((state.leader, &state.isr[..]), (1, &[1][..]));
    assert_eq!(state.leader_registration, 1);
    let placed = plan_topic(&image, DEFAULTS, &assigned(&[(0, &[2, 1])])).unwrap();
    assert_eq!(placed.states[0].leader, 1);
    let error = plan_topic(&image, DEFAULTS, &assigned(&[(0, &[1]), (1, &[2])])).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidReplicaAssignment);
    assert_eq!(
        error.message.as_deref(),
        Some(
            "All brokers specified in the manual partition assignment for partition 1 are fenced or \
             in controlled shutdown."
        )
    );
    // One that wants to stop is as good as gone, one that is the only replica needs no registration.
    let stopping = Broker {
        shutting_down: true,
        ..(*two).clone()
    };
    image.brokers.insert(BrokerId(2), Arc::new(stopping));
    let placed = plan_topic(&image, DEFAULTS, &asked(1, 1)).unwrap();
    assert_eq!(placed.replicas, [ids(&[1])]);
    assert_eq!(placed.states[0].leader_registration, 0);
}

#[test]
fn partitions_are_only_added() {
    let existing = [ids(&[1, 2]), ids(&[2, 1])];
    let plan = |count, assignments: Option<&[&[i32]]>| {
        let topic = NewPartitions {
            name: "t".into(),
            count,
            assignments: assignments
                .map(|lists| lists.iter().map(|replicas| ids(replicas)).collect()),
        };
        plan_partitions(&image(), &topic, &existing)
    };
    assert_eq!(plan(4, None).unwrap().replicas.len(), 2);
    assert_eq!(plan(3, Some(&[&[2, 1]])).unwrap().replicas, [ids(&[2, 1])]);
    for (count, assignments, code, message) in [
        (2, None, 37, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            37,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            -1,
            None,
            37,
            "The topic t currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            4,
            Some(&[&[1, 2][..]][..]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            Some(&[&[1]]),
            39,
            "The manual partition assignment includes a partition with 1 replica(s), but this is \
             not consistent with previous partitions, which have 2 replica(s).",
        ),
    ] {
        let error = plan(count, assignments).unwrap_err();
        assert_eq!(
            (error.code.code(), error.message.as_deref()),
            (code, Some(message))
        );
    }
}

#[test]
fn configs_are_checked() {
    let check = |name: &str, value: Option<&str>| {
        let configs = [(name.to_owned(), value.map(str::to_owned))];
        check_configs(&BrokerValues::default(), &configs)
    };
    assert_eq!(
        check("retention.ms", Some("5")).unwrap(),
        BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())])
    );
    let lag = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
    let conflict = [
        lag("min.compaction.lag.ms", "10"),
        lag("max.compaction.lag.ms", "5"),
    ];
    assert_eq!(
        check_configs(&BrokerValues::default(), &conflict)
            .unwrap_err()
            .message
            .as_deref(),
        Some(
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
        )
    );
    for (name, value, message) in [
        ("no.such", Some("1"), "Unknown topic config name: no.such"),
        (
            "retention.ms",
            Some("x"),
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            None,
            "Null value not supported for topic configs: retention.ms",
        ),
    ] {
        let error = check(name, value).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig);
        assert_eq!(error.message.as_deref(), Some(message));
    }
}
