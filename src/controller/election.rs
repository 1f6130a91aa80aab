//! Who leads a partition and who is in sync, when somebody leaves. Pure.
//!
//! The rules are those of Kafka's `PartitionChangeBuilder` with eligible leader replicas (KIP-966): a
//! leader comes from the ISR in the order of the replicas; with an empty ISR from the ELR; with both
//! empty it is the one that led last; any other replica only where `unclean.leader.election.enable`
//! says so. Whoever leaves an ISR that thereby falls below `min.insync.replicas` has everything that was
//! committed and goes to the ELR, unless it came back without what it had (R10).

use std::collections::BTreeSet;

use crate::metadata::Partition;
use crate::registry::value::PartitionValue;
use crate::types::BrokerId;

/// How far an election may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// The leader stays if it can.
    Online,
    /// The first replica becomes the leader if it can.
    Preferred,
    /// As `Online`; but better any replica than none.
    Unclean,
}

/// Where a new leader came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Isr,
    /// Eligible (KIP-966): it has all that was committed.
    Elr,
    /// It led last, nobody else is left: what the others were told may be lost.
    LastKnown,
    /// It may lack what was committed.
    Unclean,
}

/// What is asked of a partition.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    pub partition: &'a Partition,
    /// `min.insync.replicas` of its topic.
    pub min_insync_replicas: usize,
    /// These leave the ISR.
    pub leaving: &'a BTreeSet<BrokerId>,
    /// These leave ISR and ELR: what they had on disk may be gone (R10).
    pub forgetful: &'a BTreeSet<BrokerId>,
    pub election: Election,
    /// The broker epoch of a broker that may become a leader.
    pub active: &'a dyn Fn(BrokerId) -> Option<i64>,
}

/// The change of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub value: PartitionValue,
    /// The new leader with the broker epoch that the change counts on.
    pub elected: Option<(BrokerId, i64, Origin)>,
}

/// What the partition becomes; `None` if it stays as it is.
pub fn change(question: &Question<'_>) -> Option<Answer> {
    let partition = question.partition;
    let goes = |id: &BrokerId| question.leaving.contains(id) || question.forgetful.contains(id);
    let mut isr: Vec<BrokerId> = partition
        .isr
        .iter()
        .copied()
        .filter(|id| !goes(id))
        .collect();
    let mut elr = eligible(question, &isr);
    let chosen = choose(question, &isr, &elr);
    let leader = chosen.map(|(id, _)| id);
    let is_new = leader != partition.leader;
    if let Some((id, origin)) = chosen
        && !isr.contains(&id)
    {
        isr = vec![id];
        elr.retain(|other| *other != id && origin == Origin::Elr);
    }
    if !is_new && isr == partition.isr && elr == partition.elr {
        return None;
    }
    let elected = chosen.filter(|_| is_new).and_then(|(id, origin)| {
        let epoch = (question.active)(id)?;
        Some((id, epoch, origin))
    });
    let registration = match elected {
        Some((_, epoch, _)) if partition.replicas.len() > 1 => epoch,
        Some(_) => 0,
        None if is_new => 0,
        None => partition.leader_registration,
    };
    Some(Answer {
        value: PartitionValue {
            leader: leader.map_or(-1, |id| id.0),
            leader_epoch: partition.leader_epoch + i32::from(is_new),
            leader_registration: registration,
            isr: isr.iter().map(|id| id.0).collect(),
            elr: elr.iter().map(|id| id.0).collect(),
            last_known_leader: match leader {
                Some(_) => None,
                None => partition
                    .leader
                    .or(partition.last_known_leader)
                    .map(|id| id.0),
            },
            partition_epoch: partition.partition_epoch + 1,
        },
        elected,
    })
}

/// The ELR beside `isr`, in the order of the replicas.
fn eligible(question: &Question<'_>, isr: &[BrokerId]) -> Vec<BrokerId> {
    let partition = question.partition;
    // R8: while the ISR is large enough nothing is committed without it.
    if isr.len() >= question.min_insync_replicas.min(partition.replicas.len()) {
        return Vec::new();
    }
    let was = |id: &BrokerId| partition.isr.contains(id) || partition.elr.contains(id);
    let stays = |id: &BrokerId| was(id) && !isr.contains(id) && !question.forgetful.contains(id);
    partition.replicas.iter().copied().filter(stays).collect()
}

fn choose(
    question: &Question<'_>,
    isr: &[BrokerId],
    elr: &[BrokerId],
) -> Option<(BrokerId, Origin)> {
    let partition = question.partition;
    let is_active = |id: BrokerId| (question.active)(id).is_some();
    let valid = |id: BrokerId| {
        let origin = if isr.contains(&id) {
            Origin::Isr
        } else if isr.is_empty() && elr.contains(&id) {
            Origin::Elr
        } else {
            return None;
        };
        is_active(id).then_some((id, origin))
    };
    let preferred = match question.election {
        Election::Preferred => partition.replicas.first().copied(),
        Election::Online | Election::Unclean => None,
    };
    let clean = preferred
        .into_iter()
        .chain(partition.leader)
        .chain(partition.replicas.iter().copied())
        .find_map(valid);
    let last_known = || {
        let last = partition.leader.or(partition.last_known_leader)?;
        (isr.is_empty() && elr.is_empty() && is_active(last)).then_some((last, Origin::LastKnown))
    };
    let any = || {
        let mut replicas = partition.replicas.iter().copied();
        let id = replicas.find(|id| is_active(*id))?;
        (question.election == Election::Unclean).then_some((id, Origin::Unclean))
    };
    clean.or_else(last_known).or_else(any)
}

/// R5: a broker that has registered anew takes up, in a new leader epoch, what it still leads.
pub fn resume(partition: &Partition, id: BrokerId, broker_epoch: i64) -> Option<PartitionValue> {
    let stale = partition.leader == Some(id)
        && partition.replicas != [id]
        && partition.leader_registration != broker_epoch;
    let ids = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect();
    stale.then(|| PartitionValue {
        leader: id.0,
        leader_epoch: partition.leader_epoch + 1,
        leader_registration: broker_epoch,
        isr: ids(&partition.isr),
        elr: ids(&partition.elr),
        last_known_leader: None,
        partition_epoch: partition.partition_epoch + 1,
    })
}

#[cfg(test)]
mod tests;
