use proptest::prelude::*;

use super::*;

/// `isr/elr leader@epoch`, the last known leader behind a `?`, the origin of a new leader behind it.
fn line(answer: &Answer) -> String {
    let value = &answer.value;
    let last = value.last_known_leader.map(|id| format!("?{id}"));
    let origin = answer.elected.map(|(id, epoch, origin)| {
        assert_eq!((id.0, i64::from(id.0) * 100), (value.leader, epoch));
        format!(" {origin:?}")
    });
    format!(
        "{:?}/{:?} {}@{}{}{}",
        value.isr,
        value.elr,
        value.leader,
        value.leader_epoch,
        last.unwrap_or_default(),
        origin.unwrap_or_default()
    )
}

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

fn set(members: &[i32]) -> BTreeSet<BrokerId> {
    ids(members).into_iter().collect()
}

/// Replicas 1, 2, 3; min.insync.replicas 2; a trace of partitions.
struct Trace {
    partition: Partition,
    active: Vec<i32>,
    min: usize,
}

impl Trace {
    fn new() -> Self {
        let partition = Partition {
            leader_epoch: 5,
            leader_registration: 100,
            ..Partition::made(&ids(&[1, 2, 3]))
        };
        Self {
            partition,
            active: vec![1, 2, 3],
            min: 2,
        }
    }

    fn ask(&mut self, leaving: &[i32], forgetful: &[i32], election: Election) -> String {
        let active = |id: BrokerId| self.active.contains(&id.0).then(|| i64::from(id.0) * 100);
        let answer = change(&Question {
            partition: &self.partition,
            min_insync_replicas: self.min,
            leaving: &set(leaving),
            forgetful: &set(forgetful),
            election,
            active: &active,
        });
        let Some(answer) = answer else {
            return "-".to_owned();
        };
        let value = &answer.value;
        assert_eq!(value.partition_epoch, self.partition.partition_epoch + 1);
        self.partition = Partition {
            leader: (value.leader >= 0).then_some(BrokerId(value.leader)),
            leader_epoch: value.leader_epoch,
            isr: ids(&value.isr),
            elr: ids(&value.elr),
            last_known_leader: value.last_known_leader.map(BrokerId),
            partition_epoch: value.partition_epoch,
            leader_registration: value.leader_registration,
            ..self.partition.clone()
        };
        line(&answer)
    }

    fn dies(&mut self, id: i32) -> String {
        self.active.retain(|active| *active != id);
        self.ask(&[id], &[], Election::Online)
    }

    fn comes_back(&mut self, id: i32) -> String {
        self.active.push(id);
        self.ask(&[], &[], Election::Online)
    }
}

#[test]
fn leaders_come_from_the_isr_then_from_the_elr() {
    let mut trace = Trace::new();
    assert_eq!(trace.ask(&[], &[], Election::Online), "-");
    assert_eq!(trace.dies(1), "[2, 3]/[] 2@6 Isr");
    assert_eq!(trace.partition.leader_registration, 200);
    // Below min.insync.replicas nothing is committed any more: 3 keeps all that was.
    assert_eq!(trace.dies(3), "[2]/[3] 2@6");
    assert_eq!(trace.partition.leader_registration, 200);
    assert_eq!(trace.dies(2), "[]/[2, 3] -1@7?2");
    assert_eq!(trace.partition.leader_registration, 0);
    // 1 left an ISR that was large enough, and has missed what came after.
    assert_eq!(trace.comes_back(1), "-");
    assert_eq!(trace.comes_back(3), "[3]/[2] 3@8 Elr");
    assert_eq!(trace.partition.leader_registration, 300);
    assert_eq!(trace.comes_back(2), "-");
}

#[test]
fn the_last_member_of_an_isr_is_eligible_when_it_returns() {
    let mut trace = Trace::new();
    trace.min = 1;
    trace.dies(3);
    assert_eq!(trace.dies(1), "[2]/[] 2@6 Isr");
    assert_eq!(trace.dies(2), "[]/[2] -1@7?2");
    assert_eq!(trace.comes_back(1), "-");
    assert_eq!(trace.comes_back(2), "[2]/[] 2@8 Elr");
}

/// R10: who comes back without what it had is neither in sync nor eligible.
#[test]
fn a_forgetful_replica_leaves_both() {
    let mut trace = Trace::new();
    assert_eq!(trace.ask(&[], &[2], Election::Online), "[1, 3]/[] 1@5");
    trace.dies(3);
    assert_eq!(trace.dies(1), "[]/[1, 3] -1@6?1");
    trace.active = vec![2];
    assert_eq!(trace.ask(&[], &[3], Election::Online), "[]/[1] -1@6?1");
    assert_eq!(trace.ask(&[], &[1], Election::Online), "[]/[] -1@6?1");
    // Everybody has forgotten: the one that led last, and nobody else.
    assert_eq!(trace.comes_back(3), "-");
    assert_eq!(trace.comes_back(1), "[1]/[] 1@7 LastKnown");
}

#[test]
fn a_leader_that_forgot_stops_leading() {
    let mut trace = Trace::new();
    trace.active = vec![2, 3]; // it does so before it registers
    let line = trace.ask(&[], &[1], Election::Online);
    assert_eq!(line, "[2, 3]/[] 2@6 Isr");
}

#[test]
fn an_unclean_leader_is_alone_and_the_last_resort() {
    let mut trace = Trace::new();
    trace.dies(1);
    trace.dies(3);
    trace.dies(2);
    trace.active = vec![1];
    assert_eq!(trace.ask(&[], &[], Election::Online), "-");
    assert_eq!(trace.ask(&[], &[], Election::Unclean), "[1]/[] 1@8 Unclean");
    // What could be elected cleanly is.
    let mut trace = Trace::new();
    trace.active = vec![2, 3];
    assert_eq!(trace.ask(&[1], &[], Election::Unclean), "[2, 3]/[] 2@6 Isr");
}

#[test]
fn the_preferred_replica_leads_only_if_it_is_in_sync() {
    let mut trace = Trace::new();
    trace.dies(1);
    trace.active.push(1);
    assert_eq!(trace.ask(&[], &[], Election::Preferred), "-");
    trace.partition.isr = ids(&[2, 3, 1]);
    assert_eq!(trace.ask(&[], &[], Election::Online), "-");
    assert_eq!(
        trace.ask(&[], &[], Election::Preferred),
        "[2, 3, 1]/[] 1@7 Isr"
    );
}

#[test]
fn the_only_replica_goes_and_returns() {
    let mut trace = Trace::new();
    trace.partition = Partition::made(&ids(&[1]));
    assert_eq!(trace.dies(1), "[]/[1] -1@1?1");
    assert_eq!(trace.comes_back(1), "[1]/[] 1@2 Elr");
    assert_eq!(trace.partition.leader_registration, 0);
}

/// R5
#[test]
fn who_registered_anew_raises_the_epoch_of_what_it_leads() {
    let partition = Partition {
        leader_epoch: 5,
        leader_registration: 100,
        ..Partition::made(&ids(&[1, 2]))
    };
    assert_eq!(resume(&partition, BrokerId(1), 100), None);
    assert_eq!(resume(&partition, BrokerId(2), 700), None);
    let resumed = resume(&partition, BrokerId(1), 700).unwrap();
    assert_eq!((resumed.leader_epoch, resumed.partition_epoch), (6, 1));
    assert_eq!(
        (resumed.leader_registration, &resumed.isr[..]),
        (700, &[1, 2][..])
    );
    // Nobody else could lead it.
    assert_eq!(resume(&Partition::made(&ids(&[1])), BrokerId(1), 700), None);
}

proptest! {
    /// Whatever happens: ISR ⊆ replicas, ISR and ELR apart, a leader is in the ISR and alive, and nobody
    /// becomes eligible or in sync who was neither.
    #[test]
    fn what_always_holds(
        steps in proptest::collection::vec((0u8..4, 1i32..4), 1..30), min in 1usize..4
    ) {
        let mut trace = Trace::new();
        trace.min = min;
        for (step, id) in steps {
            let before = trace.partition.clone();
            match step {
                0 => trace.dies(id),
                1 => {
                    trace.active.retain(|active| *active != id);
                    trace.comes_back(id)
                }
                2 => trace.ask(&[], &[id], Election::Online),
                _ => trace.ask(&[], &[], Election::Preferred),
            };
            let now = &trace.partition;
            let elected_last_known = before.isr.is_empty() && before.elr.is_empty();
            for id in &now.isr {
                prop_assert!(now.replicas.contains(id) && !now.elr.contains(id));
            }
            for id in now.isr.iter().chain(&now.elr) {
                let was = before.isr.contains(id) || before.elr.contains(id);
                prop_assert!(was || elected_last_known || step == 2);
            }
            if let Some(leader) = now.leader {
                prop_assert!(now.isr.contains(&leader));
                prop_assert!(trace.active.contains(&leader.0));
            }
            prop_assert!(now.leader_epoch > before.leader_epoch || now.leader == before.leader);
            // Asked again it has nothing to say.
            prop_assert_eq!(trace.ask(&[], &[], Election::Online), "-");
        }
    }
}
