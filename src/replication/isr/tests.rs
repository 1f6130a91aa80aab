//! Step traces of the decider, and what holds whatever happens.

use proptest::prelude::*;

use super::*;
use crate::time::{Clock, SystemClock};

const ME: BrokerId = BrokerId(0);
const ONE: BrokerId = BrokerId(1);
const TWO: BrokerId = BrokerId(2);
const LAG_MAX: Duration = Duration::from_secs(30);
/// Broker epochs of 0, 1, 2.
const EPOCHS: [i64; 3] = [10, 11, 12];

fn partition(isr: &[i32], elr: &[i32], revision: i64) -> Arc<Partition> {
    let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect();
    Arc::new(Partition {
        leader_epoch: 5,
        isr: ids(isr),
        elr: ids(elr),
        leader_registration: EPOCHS[0],
        revision,
        ..Partition::made(&[ME, ONE, TWO])
    })
}

/// A leader with its log and the time.
struct Leader {
    isr: Isr,
    start: Instant,
    live: LiveBrokers,
    min_isr: usize,
    log_end: Offset,
    high_watermark: Offset,
}

impl Leader {
    /// A term that begins at log end 100, with the high watermark at 90.
    fn new(isr: &[i32], elr: &[i32], min_isr: usize) -> Self {
        let start = SystemClock.now();
        let mut isr = Isr::new(ME, partition(isr, elr, 1), start);
        isr.begin(100);
        Self {
            isr,
            start,
            live: (0..)
                .zip(EPOCHS)
                .map(|(id, at)| (BrokerId(id), at))
                .collect(),
            min_isr,
            log_end: 100,
            high_watermark: 90,
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn moment(&self, seconds: u64) -> Moment<'_> {
        Moment {
            now: self.at(seconds),
            rule: WatermarkRule {
                flushed_only: false,
                min_isr: self.min_isr,
            },
            lag_max: LAG_MAX,
            live: &self.live,
        }
    }

    fn fetch(&mut self, seconds: u64, id: BrokerId, offset: Offset) -> Offset {
        let epoch = EPOCHS[usize::try_from(id.0).unwrap()];
        self.fetch_as(seconds, id, offset, epoch).unwrap();
        self.advance(seconds)
    }

    fn fetch_as(
        &mut self,
        seconds: u64,
        id: BrokerId,
        offset: Offset,
        broker_epoch: i64,
    ) -> Result<(), ErrorCode> {
        let fetch = FollowerFetch {
            at: self.at(seconds),
            offset,
            log_start: 0,
            broker_epoch,
        };
        self.isr.fetched(id, fetch, self.log_end)
    }

    fn advance(&mut self, seconds: u64) -> Offset {
        let own = ReplicaPosition {
            log_end: self.log_end,
            flushed: self.log_end,
        };
        let current = self.high_watermark;
        self.high_watermark = self.isr.high_watermark(self.moment(seconds), current, own);
        self.high_watermark
    }

    fn propose(&mut self, seconds: u64) -> Option<Proposal> {
        let now = self.at(seconds);
        let moment = Moment {
            now,
            live: &self.live.clone(),
            ..self.moment(seconds)
        };
        self.isr.propose(moment, self.high_watermark, self.log_end)
    }

    fn outcome(&mut self, seconds: u64, proposal: &Proposal, outcome: Outcome) {
        let now = self.at(seconds);
        self.isr.outcome(now, proposal, outcome);
    }

    fn learn(&mut self, seconds: u64, isr: &[i32], elr: &[i32], revision: i64) {
        let now = self.at(seconds);
        self.isr.learn(now, &partition(isr, elr, revision));
    }
}

fn ids(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}

#[test]
fn the_high_watermark_waits_for_every_member() {
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    assert_eq!(leader.advance(0), 90);
    assert_eq!(leader.fetch(1, ONE, 100), 90);
    assert_eq!(leader.fetch(1, TWO, 95), 95);
    leader.log_end = 110;
    assert_eq!(leader.fetch(2, TWO, 108), 100);
    assert_eq!(leader.fetch(2, ONE, 110), 108);
    // A follower that cut its log off: what was committed stays.
    assert_eq!(leader.fetch(3, ONE, 50), 108);
    assert_eq!(leader.propose(3), None);
}

#[test]
fn who_falls_behind_leaves_and_who_catches_up_joins() {
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    leader.fetch(1, ONE, 100);
    leader.fetch(1, TWO, 100);
    leader.log_end = 200;
    leader.fetch(20, ONE, 200);
    leader.fetch(20, TWO, 150);
    // TWO had all that there was at its last fetch: that counts from then.
    assert_eq!(leader.propose(31), None);
    let shrink = leader.propose(32).unwrap();
    assert_eq!(ids(&shrink.to.isr), [0, 1]);
    assert_eq!((shrink.revision, shrink.registration), (1, EPOCHS[0]));
    assert_eq!((shrink.to.partition_epoch, shrink.to.leader_epoch), (1, 5));
    assert_eq!(shrink.removed, [TWO]);
    assert!(shrink.to.elr.is_empty());
    assert_eq!(leader.propose(33), None, "given out once");
    leader.outcome(33, &shrink, Outcome::Applied(7));
    assert_eq!(leader.advance(33), 200);
    // TWO comes back: below the high watermark it does not join.
    leader.log_end = 300;
    leader.fetch(34, ONE, 300);
    leader.fetch(34, TWO, 199);
    assert_eq!(leader.propose(34), None);
    leader.fetch(35, TWO, 300);
    let expand = leader.propose(35).unwrap();
    assert_eq!(ids(&expand.to.isr), [0, 1, 2]);
    assert_eq!((expand.revision, expand.to.partition_epoch), (7, 2));
    assert_eq!(expand.added, [(TWO, EPOCHS[2])]);
}

#[test]
fn a_follower_keeps_up_by_asking_for_the_end_of_its_last_fetch() {
    // R7 and Kafka's isCaughtUp: the leader is always ahead by one round trip.
    let mut leader = Leader::new(&[0, 1], &[], 1);
    for second in 1..200 {
        let before = leader.log_end;
        leader.log_end += 10;
        leader.fetch(second, ONE, before);
        assert_eq!(leader.propose(second), None, "at {second}");
    }
}

#[test]
fn the_maximal_isr_counts_until_the_outcome_is_known() {
    // R4, shrink: the one that is on its way out holds the high watermark.
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    leader.fetch(1, ONE, 100);
    leader.fetch(1, TWO, 95);
    leader.log_end = 200;
    leader.fetch(40, ONE, 200);
    let shrink = leader.propose(40).unwrap();
    assert_eq!(ids(&shrink.to.isr), [0, 1]);
    assert_eq!(leader.advance(40), 95);
    leader.outcome(42, &shrink, Outcome::Unknown);
    assert_eq!(leader.advance(42), 95);
    // Sent again with the same comparison, after a pause, once.
    assert_eq!(leader.propose(42), None);
    assert_eq!(leader.propose(43), Some(shrink.clone()));
    assert_eq!(leader.propose(44), None);
    // The first one had been applied: the registry says so.
    leader.learn(45, &[0, 1], &[], 9);
    assert_eq!(leader.advance(45), 200);
    leader.outcome(46, &shrink, Outcome::Unknown);
    assert!(leader.propose(47).is_none());

    // R4, expand: the one that may have joined counts as well.
    leader.fetch(50, TWO, 200);
    let expand = leader.propose(50).unwrap();
    leader.outcome(50, &expand, Outcome::Unknown);
    leader.log_end = 210;
    assert_eq!(leader.fetch(51, ONE, 210), 200);
    // Refused for good once it is sent again: it never was applied.
    assert_eq!(leader.propose(51), Some(expand.clone()));
    leader.outcome(52, &expand, Outcome::Refused);
    assert_eq!(leader.advance(60), 210);
}

#[test]
fn news_of_the_past_change_nothing() {
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    leader.learn(1, &[0, 1], &[], 8);
    leader.learn(2, &[0, 1, 2], &[], 7);
    leader.learn(2, &[0, 1, 2], &[], 8);
    assert_eq!(ids(&leader.isr.committed().isr), [0, 1]);
}

#[test]
fn nobody_joins_before_the_start_of_the_epoch() {
    // R7: the high watermark of a new leader may lie far behind.
    let mut leader = Leader::new(&[0], &[], 1);
    leader.min_isr = 2;
    assert_eq!(leader.fetch(1, ONE, 99), 90);
    assert_eq!(leader.propose(1), None);
    leader.fetch(2, ONE, 100);
    let expand = leader.propose(2).unwrap();
    assert_eq!(ids(&expand.to.isr), [0, 1]);
    leader.outcome(2, &expand, Outcome::Applied(3));
    assert_eq!(leader.advance(2), 100);

    let mut unknown = Isr::new(ME, partition(&[0], &[], 1), leader.start);
    let fetch = FollowerFetch {
        at: leader.start,
        offset: 100,
        log_start: 0,
        broker_epoch: EPOCHS[1],
    };
    unknown.fetched(ONE, fetch, 100).unwrap();
    assert_eq!(unknown.propose(leader.moment(0), 0, 100), None);
    unknown.begin(100);
    unknown.begin(3);
    assert_eq!(unknown.epoch_start(), Some(100));
    assert!(unknown.propose(leader.moment(0), 0, 100).is_some());
}

#[test]
fn only_who_fetches_under_its_present_registration_joins() {
    // R3, KIP-903.
    let mut leader = Leader::new(&[0], &[], 1);
    leader.fetch_as(1, ONE, 100, 8).unwrap();
    assert_eq!(leader.propose(1), None, "of an earlier life");
    leader.fetch_as(2, ONE, 100, -1).unwrap_err();
    leader.fetch_as(2, TWO, 100, -1).unwrap();
    assert_eq!(leader.propose(2), None, "of an unknown one");
    leader.live.remove(&ONE);
    leader.fetch_as(3, ONE, 100, EPOCHS[1]).unwrap();
    assert_eq!(leader.propose(3), None, "its registration is gone");
    leader.live.insert(ONE, EPOCHS[1]);
    let expand = leader.propose(4).unwrap();
    assert_eq!(expand.added, [(ONE, EPOCHS[1])]);
    leader.outcome(4, &expand, Outcome::Refused);
    assert_eq!(leader.propose(4), None, "not at once again");
    assert!(leader.propose(5).is_some());
    let late = leader.fetch_as(6, ONE, 100, 9);
    assert_eq!(late, Err(ErrorCode::StaleBrokerEpoch));
    let stranger = leader.fetch_as(6, BrokerId(7), 100, 9);
    assert_eq!(stranger, Err(ErrorCode::UnknownLeaderEpoch));
}

#[test]
fn below_min_insync_replicas_nothing_is_committed_and_nobody_loses_eligibility() {
    // R8 and KIP-966.
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    leader.fetch(1, ONE, 100);
    leader.fetch(1, TWO, 100);
    leader.log_end = 200;
    let shrink = leader.propose(40).unwrap();
    assert_eq!(
        (ids(&shrink.to.isr), ids(&shrink.to.elr)),
        (vec![0], vec![1, 2])
    );
    leader.outcome(40, &shrink, Outcome::Applied(2));
    assert_eq!(leader.advance(40), 100);
    // The minimum is lowered: first the registry forgets the eligible ones.
    leader.min_isr = 1;
    assert_eq!(leader.advance(41), 100);
    let forget = leader.propose(41).unwrap();
    assert_eq!(
        (ids(&forget.to.isr), ids(&forget.to.elr)),
        (vec![0], vec![])
    );
    leader.outcome(41, &forget, Outcome::Applied(3));
    assert_eq!(leader.advance(41), 200);

    let mut leader = Leader::new(&[0], &[1, 2], 2);
    leader.fetch(1, TWO, 100);
    let expand = leader.propose(1).unwrap();
    assert_eq!(
        (ids(&expand.to.isr), ids(&expand.to.elr)),
        (vec![0, 2], vec![])
    );
    let mut three = Leader::new(&[0], &[1, 2], 3);
    three.fetch(1, TWO, 100);
    let expand = three.propose(1).unwrap();
    assert_eq!(
        (ids(&expand.to.isr), ids(&expand.to.elr)),
        (vec![0, 2], vec![1])
    );
}

#[test]
fn the_high_watermark_waits_a_little_for_who_is_about_to_join() {
    let mut leader = Leader::new(&[0], &[], 1);
    assert_eq!(leader.advance(1), 100);
    leader.fetch(2, ONE, 100);
    leader.log_end = 150;
    assert_eq!(leader.advance(2), 100);
    // It died: others do not wait for long. Nor for one that wants to stop.
    assert_eq!(leader.advance(4), 100);
    leader.live.remove(&ONE);
    assert_eq!(leader.advance(4), 150);
    leader.live.insert(ONE, EPOCHS[1]);
    leader.log_end = 160;
    assert_eq!(leader.advance(4), 150);
    assert_eq!(leader.advance(5), 160);
    // Far behind it is not waited for at all.
    let mut leader = Leader::new(&[0], &[], 1);
    leader.fetch(1, ONE, 3);
    assert_eq!(leader.advance(1), 100);
}

#[test]
fn a_leader_without_a_disk_names_a_successor() {
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    leader.live.remove(&ONE);
    let now = leader.at(1);
    let live = leader.live.clone();
    let resign = |leader: &mut Leader| {
        let moment = Moment {
            now,
            live: &live,
            ..leader.moment(1)
        };
        leader.isr.resign(moment)
    };
    let succession = resign(&mut leader).unwrap();
    let to = &succession.to;
    assert_eq!((to.leader, to.leader_epoch), (Some(TWO), 6));
    assert_eq!(to.leader_registration, EPOCHS[2]);
    assert_eq!((ids(&to.isr), ids(&to.elr)), (vec![1, 2], vec![]));
    assert_eq!(succession.successor, Some((TWO, EPOCHS[2])));
    assert_eq!(resign(&mut leader), None);
    leader.outcome(1, &succession, Outcome::Unknown);
    assert_eq!(leader.propose(2), Some(succession.clone()));
    leader.outcome(2, &succession, Outcome::Applied(9));
    assert_eq!(
        leader.isr.committed().revision,
        1,
        "the image ends the term"
    );

    // One that is eligible, and never the one that may have lost everything.
    let mut last = Leader::new(&[0], &[1, 2], 2);
    let to = resign(&mut last).unwrap().to;
    assert_eq!(
        (to.leader, ids(&to.isr), ids(&to.elr)),
        (Some(TWO), vec![2], vec![1])
    );
    assert_eq!(resign(&mut Leader::new(&[0], &[], 1)), None);
}

#[test]
fn what_others_hold_bounds_low_watermark_and_lease() {
    let mut leader = Leader::new(&[0, 1], &[2], 2);
    assert_eq!(leader.isr.low_watermark(50, &leader.live), -1);
    leader.fetch(1, ONE, 100);
    leader.live.remove(&TWO);
    assert_eq!(leader.isr.low_watermark(50, &leader.live), 0);
    assert!(!leader.isr.is_followed(leader.at(1)), "TWO is electable");
    leader.fetch(3, TWO, 100);
    assert!(leader.isr.is_followed(leader.at(1)));
    assert!(!leader.isr.is_followed(leader.at(2)));
}

/// What may happen to a leader.
#[derive(Debug, Clone)]
enum Step {
    Append,
    /// A follower fetches so far behind the end.
    Fetch(BrokerId, Offset),
    Wait(u64),
    Propose,
    /// The transaction is carried out, and the leader hears of it or not.
    Deliver {
        told: bool,
    },
    Lose,
    /// Somebody else changes the ISR: the controller takes a broker out.
    Fence(BrokerId),
    Look,
    MinIsr(usize),
    Live(BrokerId, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let follower = || prop_oneof![Just(ONE), Just(TWO)];
    prop_oneof![
        3 => Just(Step::Append),
        6 => (follower(), 0i64..4).prop_map(|(id, behind)| Step::Fetch(id, behind)),
        3 => (0u64..40).prop_map(Step::Wait),
        4 => Just(Step::Propose),
        4 => any::<bool>().prop_map(|told| Step::Deliver { told }),
        1 => Just(Step::Lose),
        1 => follower().prop_map(Step::Fence),
        2 => Just(Step::Look),
        1 => (1usize..4).prop_map(Step::MinIsr),
        1 => (follower(), any::<bool>()).prop_map(|(id, live)| Step::Live(id, live)),
    ]
}

proptest! {
    /// The registry is played beside the leader; transactions that were sent may be carried out at any
    /// time later. What is committed is on everybody who may be elected, always.
    #[test]
    fn whoever_may_be_elected_has_what_is_committed(
        steps in proptest::collection::vec(step(), 1..120),
        min_isr in 1usize..4,
    ) {
        let mut leader = Leader::new(&[0, 1, 2], &[], min_isr);
        let mut registry = partition(&[0, 1, 2], &[], 1);
        let mut sent: Vec<Proposal> = Vec::new();
        // What each replica holds: a follower never cuts off what it has in this term.
        let mut holds: BTreeMap<BrokerId, Offset> =
            BTreeMap::from([(ME, 100), (ONE, 90), (TWO, 90)]);
        let mut now = 0;
        for step in steps {
            match step {
                Step::Append => leader.log_end += 5,
                Step::Fetch(id, behind) => {
                    let position = (leader.log_end - behind).max(holds[&id]);
                    holds.insert(id, position);
                    leader.fetch(now, id, position);
                }
                Step::Wait(seconds) => now += seconds,
                Step::Propose => {
                    if let Some(proposal) = leader.propose(now) {
                        sent.push(proposal);
                    }
                }
                Step::Deliver { told } => {
                    let Some(proposal) = sent.pop() else { continue };
                    let outcome = if proposal.revision == registry.revision {
                        let revision = registry.revision + 1;
                        registry = Arc::new(Partition { revision, ..proposal.to.clone() });
                        Outcome::Applied(revision)
                    } else {
                        // The publisher reads what there is instead.
                        Outcome::Unknown
                    };
                    let outcome = if told { outcome } else { Outcome::Unknown };
                    leader.outcome(now, &proposal, outcome);
                }
                // It stays under way, and may yet be carried out.
                Step::Lose => {
                    if let Some(proposal) = sent.last().cloned() {
                        leader.outcome(now, &proposal, Outcome::Unknown);
                    }
                }
                Step::Fence(id) => {
                    let fenced = (*registry).clone();
                    let isr: Vec<_> = fenced.isr.iter().copied().filter(|it| *it != id).collect();
                    let mut elr = fenced.elr.clone();
                    if isr.len() < leader.min_isr && fenced.isr.contains(&id) {
                        elr.push(id);
                    }
                    let revision = registry.revision + 1;
                    registry = Arc::new(Partition { isr, elr, revision, ..fenced });
                }
                Step::Look => leader.isr.learn(leader.at(now), &registry.clone()),
                Step::MinIsr(min_isr) => leader.min_isr = min_isr,
                Step::Live(id, live) => {
                    if live {
                        leader.live.insert(id, EPOCHS[usize::try_from(id.0).unwrap()]);
                    } else {
                        leader.live.remove(&id);
                    }
                }
            }
            holds.insert(ME, leader.log_end);
            let before = leader.high_watermark;
            leader.advance(now);
            prop_assert!(leader.high_watermark >= before);
            let committed = leader.isr.committed();
            let maximal = leader.isr.maximal();
            for state in [&registry, committed] {
                prop_assert!(state.isr.iter().all(|id| state.replicas.contains(id)));
                prop_assert!(state.elr.iter().all(|id| !state.isr.contains(id)));
                prop_assert!(state.isr.contains(&ME));
            }
            prop_assert!(committed.isr.iter().all(|id| maximal.contains(id)));
            if leader.high_watermark > before {
                prop_assert!(maximal.iter().all(|id| holds[id] >= leader.high_watermark));
                prop_assert!(committed.isr.len() >= leader.min_isr);
            }
            for id in registry.isr.iter().chain(&registry.elr) {
                prop_assert!(
                    holds[id] >= leader.high_watermark,
                    "{id:?} has {} of {}", holds[id], leader.high_watermark
                );
            }
        }
    }
}

#[test]
fn who_left_by_itself_is_back_by_what_it_fetches_from_then_on() {
    let mut leader = Leader::new(&[0, 1, 2], &[], 2);
    leader.fetch(1, ONE, 100);
    leader.fetch(1, TWO, 100);
    // Its disk failed: it has said so itself. What it had is no reason to take it back.
    let now = leader.at(2);
    leader.isr.learn(now, &partition(&[0, 2], &[], 2));
    assert_eq!(leader.propose(2), None);
    leader.fetch(3, TWO, 100);
    assert_eq!(leader.propose(40), None);
    leader.fetch(41, TWO, 100);
    leader.fetch(41, ONE, 100);
    let joins = leader.propose(41).unwrap();
    assert_eq!(joins.added, [(ONE, EPOCHS[1])]);
}
