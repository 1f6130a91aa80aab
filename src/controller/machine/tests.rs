use super::*;
use crate::config::TopicConfig;
use crate::metadata::Broker;
use crate::time::{Clock, ManualClock};

const TTL: u64 = 9;

/// Brokers with epoch 100 × id; topic `t`; seconds.
struct Cluster {
    image: Image,
    machine: Machine,
    clock: ManualClock,
    /// Seconds at which etcd began to answer.
    answering: Option<u64>,
    start: Instant,
}

impl Cluster {
    /// Broker 1 looks at it, and is the controller; it is there for longer than a lease's time.
    fn new(brokers: &[i32], replicas: &[&[i32]]) -> Self {
        let mut cluster = Self::just_started(brokers, replicas);
        assert_eq!(cluster.step(), "");
        cluster.at(100);
        cluster.answering = Some(0);
        cluster
    }

    fn just_started(brokers: &[i32], replicas: &[&[i32]]) -> Self {
        let clock = ManualClock::new(0);
        let config = MachineConfig {
            broker: BrokerId(1),
            ttl: Duration::from_secs(TTL),
            balance_interval: None,
        };
        let topic = Topic {
            name: "t".into(),
            id: TopicId([1; 16]),
            partitions: replicas
                .iter()
                .map(|replicas| {
                    let replicas: Vec<_> = replicas.iter().copied().map(BrokerId).collect();
                    let leader = i64::from(replicas[0].0);
                    Arc::new(Partition {
                        leader_registration: leader * 100,
                        revision: 7,
                        ..Partition::made(&replicas)
                    })
                })
                .collect(),
            overrides: BTreeMap::new(),
            config: Arc::new(TopicConfig {
                min_insync_replicas: 2,
                ..TopicConfig::default()
            }),
        };
        let mut cluster = Self {
            image: Image {
                controller: Some(BrokerId(1)),
                controller_registration: 50,
                topics: BTreeMap::from([("t".into(), Arc::new(topic))]),
                ..Image::default()
            },
            machine: Machine::new(config, clock.now()),
            start: clock.now(),
            clock,
            answering: Some(0),
        };
        for id in brokers {
            cluster.comes(*id);
        }
        cluster
    }

    fn at(&mut self, second: u64) {
        let now = self.clock.now() - self.start;
        self.clock.advance(Duration::from_secs(second) - now);
    }

    fn broker(&mut self, id: i32, shutting_down: bool) {
        let broker = Broker {
            id: BrokerId(id),
            endpoints: Vec::new(),
            rack: None,
            epoch: i64::from(id) * 100,
            incarnation: String::new(),
            shutting_down,
        };
        self.image.brokers.insert(BrokerId(id), Arc::new(broker));
    }

    fn comes(&mut self, id: i32) {
        self.broker(id, false);
    }

    fn goes(&mut self, id: i32) {
        self.image.brokers.remove(&BrokerId(id));
    }

    fn topic(&mut self) -> &mut Topic {
        Arc::make_mut(self.image.topics.get_mut("t").unwrap())
    }

    /// What the machine does, `partition: isr/elr leader@epoch`, and applies it; `[id]` brokers that it
    /// spares, `@s` when it wants to look again.
    fn step(&mut self) -> String {
        let answering = self
            .answering
            .map(|at| self.start + Duration::from_secs(at));
        let step = self.machine.step(&self.image, answering, self.clock.now());
        let mut lines = Vec::new();
        for change in &step.changes {
            assert_eq!(change.revision, 7);
            let value = &change.value;
            lines.push(format!(
                "{}: {:?}/{:?} {}@{}",
                change.partition, value.isr, value.elr, value.leader, value.leader_epoch
            ));
            let position = usize::try_from(change.partition).unwrap();
            let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect();
            let old = (*self.topic().partitions[position]).clone();
            self.topic().partitions[position] = Arc::new(Partition {
                leader: (value.leader >= 0).then_some(BrokerId(value.leader)),
                leader_epoch: value.leader_epoch,
                isr: ids(&value.isr),
                elr: ids(&value.elr),
                leader_registration: value.leader_registration,
                last_known_leader: value.last_known_leader.map(BrokerId),
                partition_epoch: value.partition_epoch,
                ..old
            });
        }
        if !step.spared.is_empty() {
            let spared: Vec<_> = step.spared.iter().map(|id| id.0).collect();
            lines.push(format!("{spared:?}"));
        }
        if let Some(at) = step.wake_at {
            lines.push(format!("@{}", (at - self.start).as_secs()));
        }
        lines.join(", ")
    }
}

#[test]
fn what_a_dead_broker_led_goes_to_others_and_it_leaves_the_isrs() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2], &[1, 3]]);
    assert_eq!(cluster.step(), "");
    cluster.goes(2);
    assert_eq!(
        cluster.step(),
        "0: [1, 3]/[] 1@0, 1: [3, 1]/[] 3@1, 2: [3, 1]/[] 3@0"
    );
    assert_eq!(cluster.step(), "");
    // It comes back: that it is in sync is the leaders' affair.
    cluster.comes(2);
    assert_eq!(cluster.step(), "");
}

#[test]
fn who_is_not_the_controller_only_looks() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[2, 3]]);
    cluster.image.controller = Some(BrokerId(3));
    cluster.goes(2);
    assert_eq!(cluster.step(), "");
    // A new controller finishes what the last one left, and knows since when 2 is gone.
    cluster.at(120);
    cluster.goes(3);
    cluster.image.controller = Some(BrokerId(1));
    assert_eq!(cluster.step(), "0: []/[2, 3] -1@1");
    cluster.comes(3);
    assert_eq!(cluster.step(), "0: [3]/[2] 3@2");
}

/// R14
#[test]
fn the_lone_death_of_the_last_controller_needs_no_wait() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[2, 3, 1]]);
    cluster.image.controller = Some(BrokerId(2));
    assert_eq!(cluster.step(), "");
    cluster.goes(2);
    cluster.image.controller = None;
    assert_eq!(cluster.step(), "");
    cluster.image.controller = Some(BrokerId(1));
    cluster.image.controller_registration = 60;
    assert_eq!(cluster.step(), "0: [3, 1]/[] 3@1");
}

/// R14
#[test]
fn a_new_controller_spares_several_for_a_whole_lease() {
    let mut cluster = Cluster::new(&[1, 2, 3, 4, 5], &[&[2, 1, 4], &[3, 1, 4]]);
    cluster.image.controller = Some(BrokerId(2));
    assert_eq!(cluster.step(), "");
    cluster.goes(2);
    cluster.goes(3);
    cluster.image.controller = Some(BrokerId(1));
    assert_eq!(cluster.step(), "[2, 3], @109");
    cluster.at(103);
    cluster.comes(3);
    assert_eq!(cluster.step(), "0: [1, 4]/[] 1@1");
    cluster.at(109);
    assert_eq!(cluster.step(), "");
}

/// R14
#[test]
fn a_controller_that_is_settled_fences_two_of_five_but_not_most_of_them_at_once() {
    let replicas: &[&[i32]] = &[&[2, 1, 4], &[3, 1, 4], &[4, 1, 5]];
    let mut cluster = Cluster::new(&[1, 2, 3, 4, 5], replicas);
    cluster.goes(2);
    cluster.goes(3);
    assert_eq!(cluster.step(), "0: [1, 4]/[] 1@1, 1: [1, 4]/[] 1@1");
    let mut cluster = Cluster::new(&[1, 2, 3, 4, 5], replicas);
    for id in [2, 3, 4] {
        cluster.goes(id);
    }
    assert_eq!(cluster.step(), "[2, 3, 4], @109");
    cluster.at(109);
    assert_eq!(
        cluster.step(),
        "0: [1]/[2, 4] 1@1, 1: [1]/[3, 4] 1@1, 2: [1, 5]/[] 1@1"
    );
}

/// R14
#[test]
fn while_etcd_is_away_and_a_lease_after_it_nobody_is_fenced() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[2, 3, 1]]);
    cluster.answering = None;
    cluster.goes(2);
    assert_eq!(cluster.step(), "[2]");
    cluster.at(130);
    cluster.answering = Some(130);
    assert_eq!(cluster.step(), "[2], @139");
    cluster.at(139);
    assert_eq!(cluster.step(), "0: [3, 1]/[] 3@1");
    // It was away a moment ago, and now one vanishes.
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[2, 3, 1]]);
    cluster.answering = Some(95);
    cluster.goes(2);
    assert_eq!(cluster.step(), "[2], @104");
}

/// R14
#[test]
fn who_has_just_started_waits_for_those_it_has_never_seen() {
    let mut cluster = Cluster::just_started(&[1, 3], &[&[2, 3, 1]]);
    assert_eq!(cluster.step(), "[2], @9");
    cluster.at(9);
    assert_eq!(cluster.step(), "0: [3, 1]/[] 3@1");
}

#[test]
fn who_wants_to_stop_hands_over_first() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[2, 3, 1], &[3, 2, 1], &[2, 3], &[2]]);
    cluster.broker(2, true);
    assert_eq!(
        cluster.step(),
        "0: [3, 1]/[] 3@1, 1: [3, 1]/[] 3@0, 2: [3]/[2] 3@1, 3: []/[2] -1@1"
    );
    assert_eq!(cluster.step(), "");
    cluster.goes(2);
    assert_eq!(cluster.step(), "");
    cluster.comes(2);
    assert_eq!(cluster.step(), "3: [2]/[] 2@2");
}

#[test]
fn an_unclean_election_happens_only_where_it_is_allowed() {
    let mut cluster = Cluster::new(&[1, 2], &[&[2, 1]]);
    let partition = Partition {
        isr: vec![BrokerId(2)],
        ..(*cluster.topic().partitions[0]).clone()
    };
    cluster.topic().partitions[0] = Arc::new(partition);
    cluster.goes(2);
    assert_eq!(cluster.step(), "0: []/[2] -1@1");
    let mut config = (*cluster.topic().config).clone();
    config.unclean_leader_election = true;
    cluster.topic().config = Arc::new(config);
    assert_eq!(cluster.step(), "0: [1]/[] 1@2");
}

#[test]
fn leadership_goes_back_to_the_first_replicas_in_time() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[2, 3, 1], &[2, 1, 3]]);
    cluster.machine.config.balance_interval = Some(Duration::from_secs(300));
    cluster.image.controller_registration = 51; // takes the seat anew
    assert_eq!(cluster.step(), "@400");
    cluster.goes(2);
    assert_eq!(cluster.step(), "0: [3, 1]/[] 3@1, 1: [1, 3]/[] 1@1, @400");
    cluster.comes(2);
    let partition = Partition {
        isr: vec![BrokerId(3), BrokerId(1), BrokerId(2)],
        ..(*cluster.topic().partitions[0]).clone()
    };
    cluster.topic().partitions[0] = Arc::new(partition);
    assert_eq!(cluster.step(), "@400");
    cluster.at(400);
    // Not partition 1: its first replica is not in sync yet.
    assert_eq!(cluster.step(), "0: [3, 1, 2]/[] 2@2, @700");
}

/// A controller that may not write meanwhile (R12) would spin.
#[test]
fn a_balance_that_has_to_wait_for_a_failover_wakes_nobody() {
    let mut cluster = Cluster::new(&[1, 2, 3], &[&[1, 2, 3], &[2, 3, 1]]);
    cluster.machine.config.balance_interval = Some(Duration::from_secs(300));
    cluster.at(150);
    cluster.step();
    cluster.goes(2);
    cluster.at(1_000);
    let now = cluster.clock.now();
    let answering = cluster
        .answering
        .map(|at| cluster.start + Duration::from_secs(at));
    let step = cluster.machine.step(&cluster.image, answering, now);
    assert!(!step.changes.is_empty());
    assert!(step.wake_at.is_none_or(|at| at > now));
}

/// R10
#[test]
fn who_lost_its_page_cache_leaves_the_topics_that_live_in_it() {
    let mut cluster = Cluster::just_started(&[2, 3], &[&[1, 2, 3], &[2, 1, 3], &[1], &[2, 3]]);
    assert_eq!(forget(&cluster.image, BrokerId(1), false), []);
    let lines = |changes: Vec<Change>| {
        let line = |change: Change| {
            let value = change.value;
            format!(
                "{}: {:?}/{:?} {}@{}",
                change.partition, value.isr, value.elr, value.leader, value.leader_epoch
            )
        };
        changes.into_iter().map(line).collect::<Vec<_>>()
    };
    let expected = ["0: [2, 3]/[] 2@1", "1: [2, 3]/[] 2@0"];
    assert_eq!(lines(forget(&cluster.image, BrokerId(1), true)), expected);
    let mut config = (*cluster.topic().config).clone();
    config.flush_messages = 10_000;
    cluster.topic().config = Arc::new(config);
    assert_eq!(lines(forget(&cluster.image, BrokerId(1), false)), expected);
}

/// R5
#[test]
fn a_broker_takes_up_what_it_leads_with_each_registration() {
    let cluster = Cluster::new(&[1, 2], &[&[1, 2], &[2, 1], &[1]]);
    assert_eq!(resume(&cluster.image, BrokerId(1), 100), []);
    let resumed = resume(&cluster.image, BrokerId(1), 170);
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].elected, Some((BrokerId(1), 170, Origin::Isr)));
    assert_eq!(resumed[0].value.leader_epoch, 1);
}
