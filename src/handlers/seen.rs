//! A partition as clients are shown it: one whose log directory here is offline has no leader, as in
//! Kafka, where the controller takes the leadership away. The leader epoch stays: with the directory
//! back this broker leads on in it, and clients ignore metadata of an older epoch.

use std::borrow::Cow;

use crate::metadata::{Image, Partition, Topic};
use crate::types::{BrokerId, PartitionId};

use super::Context;

/// A partition, and which of its replicas cannot serve.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) partition: Cow<'a, Partition>,
    pub(super) offline: Vec<BrokerId>,
    /// In sync when their directory went offline, so that nothing is lost if they come back (KIP-966).
    pub(super) eligible: Vec<BrokerId>,
}

pub(super) fn seen<'a>(
    context: &Context,
    image: &Image,
    topic: &'a Topic,
    index: usize,
) -> Seen<'a> {
    let partition = &*topic.partitions[index];
    let is_gone = |id: &&BrokerId| image.reach(**id).is_none();
    let mut seen = Seen {
        partition: Cow::Borrowed(partition),
        offline: partition.replicas.iter().filter(is_gone).copied().collect(),
        eligible: Vec::new(),
    };
    let node_id = context.config.node_id;
    let is_offline = PartitionId::try_from(index)
        .is_ok_and(|index| context.replicas.is_offline(&topic.name, index));
    if is_offline {
        take_away(&mut seen, node_id);
    }
    seen
}

fn take_away(seen: &mut Seen<'_>, node_id: BrokerId) {
    let partition = seen.partition.to_mut();
    if partition.leader == Some(node_id) {
        partition.leader = None;
    }
    if partition.isr.contains(&node_id) {
        partition.isr.retain(|id| *id != node_id);
        seen.eligible.push(node_id);
    }
    if !seen.offline.contains(&node_id) {
        seen.offline.push(node_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_in_an_offline_directory_neither_leads_nor_is_in_sync() {
        let partition = Partition {
            leader_epoch: 4,
            isr: vec![BrokerId(2), BrokerId(1)],
            ..Partition::made(&[BrokerId(1), BrokerId(2)])
        };
        let mut seen = Seen {
            partition: Cow::Borrowed(&partition),
            offline: vec![BrokerId(2)],
            eligible: Vec::new(),
        };
        take_away(&mut seen, BrokerId(1));
        assert_eq!(seen.partition.leader, None);
        assert_eq!(seen.partition.leader_epoch, 4);
        assert_eq!(seen.partition.isr, [BrokerId(2)]);
        assert_eq!(seen.offline, [BrokerId(2), BrokerId(1)]);
        assert_eq!(seen.eligible, [BrokerId(1)]);
    }
}
