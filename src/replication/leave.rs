//! A follower whose log directory failed leaves the in-sync replicas by itself, as Kafka's controller has it
//! leave that hears of the directory: nobody waits `replica.lag.time.max.ms` for it. Pure.

use super::isr::Proposal;
use crate::metadata::Partition;
use crate::types::BrokerId;

/// `None` if it is not among them, leads, is the last one, or is not registered. The leader counts it until the
/// registry has the change (R4). It is not eligible either: its records may be gone.
pub(crate) fn leave(
    role: &Partition,
    me: BrokerId,
    registration: i64,
    min_isr: usize,
) -> Option<Proposal> {
    let is_follower = role.leader.is_some_and(|leader| leader != me);
    if !is_follower || registration == 0 || role.revision == 0 || !role.isr.contains(&me) {
        return None;
    }
    let others = |ids: &[BrokerId]| -> Vec<BrokerId> {
        ids.iter().copied().filter(|id| *id != me).collect()
    };
    let isr = others(&role.isr);
    if isr.is_empty() {
        return None;
    }
    let elr = match isr.len() >= min_isr {
        true => Vec::new(),
        false => others(&role.elr),
    };
    Some(Proposal {
        leader: me,
        leader_epoch: role.leader_epoch,
        revision: role.revision,
        registration,
        added: Vec::new(),
        removed: vec![me],
        successor: None,
        to: Partition {
            isr,
            elr,
            partition_epoch: role.partition_epoch + 1,
            revision: 0,
            ..role.clone()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: BrokerId = BrokerId(1);
    const TWO: BrokerId = BrokerId(2);
    const THREE: BrokerId = BrokerId(3);

    fn role() -> Partition {
        Partition {
            revision: 7,
            leader_epoch: 4,
            partition_epoch: 9,
            ..Partition::made(&[ONE, TWO, THREE])
        }
    }

    #[test]
    fn a_follower_leaves_and_nothing_else_changes() {
        let proposal = leave(&role(), TWO, 5, 2).unwrap();
        assert_eq!((proposal.leader, proposal.registration), (TWO, 5));
        assert_eq!((proposal.revision, proposal.removed), (7, vec![TWO]));
        let expected = Partition {
            isr: vec![ONE, THREE],
            partition_epoch: 10,
            revision: 0,
            ..role()
        };
        assert_eq!(proposal.to, expected);
    }

    #[test]
    fn below_min_isr_it_is_not_eligible() {
        let role = Partition {
            isr: vec![ONE, TWO],
            elr: vec![THREE],
            ..role()
        };
        let to = leave(&role, TWO, 5, 2).unwrap().to;
        assert_eq!((to.isr, to.elr), (vec![ONE], vec![THREE]));
        let to = leave(&role, TWO, 5, 1).unwrap().to;
        assert_eq!((to.isr, to.elr), (vec![ONE], vec![]));
    }

    #[test]
    fn who_leads_is_out_is_alone_or_unregistered_stays() {
        assert_eq!(leave(&role(), ONE, 5, 2), None);
        assert_eq!(leave(&role(), TWO, 0, 2), None);
        for (leader, isr) in [
            (Some(ONE), vec![ONE, THREE]),
            (None, vec![ONE, TWO]),
            (Some(ONE), vec![TWO]),
        ] {
            let role = Partition {
                leader,
                isr,
                ..role()
            };
            assert_eq!(leave(&role, TWO, 5, 2), None);
        }
    }
}
