//! Changes of partitions as transactions: many in one, each compared with what it started from.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::machine::Change;
use crate::registry::value::encode;
use crate::registry::{Compare, Key, Op, Registry, RegistryError, Revision};
use crate::types::rules::{Rule, holds};

/// Partitions in one transaction.
const PARTITIONS_MAX: usize = 120;
/// etcd's bound for compares and for operations; where the registry has none it is ours.
const COMPARES_MAX: usize = 128;
/// etcd takes 1.5 MiB.
const BYTES_MAX: usize = 1 << 20;
/// Of a compare and an operation, beside the value: the key twice, and what stands around it.
const OVERHEAD: usize = 256;
/// Transactions on their way at once.
const AT_ONCE: usize = 4;

/// What writing comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// The newest revision of those that the registry answered.
    pub(super) revision: Revision,
    /// Changes that were not made: something that they started from had changed.
    pub(super) refused: usize,
}

/// Writes `changes`, each only if `conditions` hold, its partition is as it was and its new leader is
/// registered as it was (R1, R2). Where a transaction is refused its parts are tried by themselves, down
/// to single partitions.
pub(super) async fn write_changes(
    registry: &dyn Registry,
    conditions: &[Compare],
    changes: &[Change],
) -> Result<Written, RegistryError> {
    let mut written = Written {
        revision: 0,
        refused: 0,
    };
    let mut waiting = batches(registry.txn_ops_max(), conditions.len(), changes);
    while !waiting.is_empty() {
        let rest = waiting.split_off(AT_ONCE.min(waiting.len()));
        let sent = waiting.iter().map(|batch| {
            let (compares, ops) = transaction(conditions, batch);
            registry.txn(compares, ops)
        });
        let outcomes = join_all(sent).await;
        let mut next = Vec::new();
        let mut is_refused = false;
        for (batch, outcome) in waiting.into_iter().zip(outcomes) {
            let outcome = outcome?;
            written.revision = written.revision.max(outcome.revision);
            match (outcome.succeeded, batch) {
                (true, _) => {}
                (false, [_]) => written.refused += 1,
                (false, batch) => {
                    is_refused = true;
                    let (one, other) = batch.split_at(batch.len() / 2);
                    next.extend([one, other]);
                }
            }
        }
        next.extend(rest);
        waiting = next;
        if is_refused && !registry.txn(conditions.to_vec(), vec![]).await?.succeeded {
            // R11: who is deposed has nothing to write at all.
            written.refused += waiting.iter().map(|batch| batch.len()).sum::<usize>();
            return Ok(written);
        }
    }
    Ok(written)
}

/// Cuts `changes` into what fits into a transaction each.
fn batches(ops_max: usize, conditions: usize, changes: &[Change]) -> Vec<&[Change]> {
    let compares_max = COMPARES_MAX.min(ops_max);
    let mut batches = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    let mut elected = BTreeMap::new();
    for (index, change) in changes.iter().enumerate() {
        let size = encode(&change.value).len() + OVERHEAD;
        let mut with_this = elected.clone();
        with_this.extend(change.elected.map(|(id, epoch, _)| (id, epoch)));
        let count = index - start + 1;
        let is_full = count > PARTITIONS_MAX
            || count + conditions + with_this.len() > compares_max
            || bytes + size > BYTES_MAX;
        if is_full && index > start {
            batches.push(&changes[start..index]);
            (start, bytes) = (index, 0);
            with_this.clear();
            with_this.extend(change.elected.map(|(id, epoch, _)| (id, epoch)));
        }
        bytes += size;
        elected = with_this;
    }
    if start < changes.len() {
        batches.push(&changes[start..]);
    }
    batches
}

fn transaction(conditions: &[Compare], changes: &[Change]) -> (Vec<Compare>, Vec<Op>) {
    let mut compares = conditions.to_vec();
    let mut ops = Vec::with_capacity(changes.len());
    let mut elected = BTreeMap::new();
    for change in changes {
        let key = String::from(Key::Partition(change.topic, change.partition));
        if holds(Rule::R1) {
            compares.push(Compare::ModRevision {
                key: key.clone(),
                revision: change.revision,
            });
        }
        ops.push(Op::Put {
            key,
            value: encode(&change.value),
            lease: 0,
        });
        elected.extend(change.elected.map(|(id, epoch, _)| (id, epoch)));
    }
    for (id, revision) in elected {
        let compare = Compare::CreateRevision {
            key: Key::Broker(id).into(), // the new leader is who it was
            revision,
        };
        if !compares.contains(&compare) {
            compares.push(compare);
        }
    }
    (compares, ops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::election::Origin;
    use crate::registry::value::PartitionValue;
    use crate::types::{BrokerId, TopicId};

    fn change(partition: i32, leader: i32, isr: usize) -> Change {
        Change {
            topic: TopicId([1; 16]),
            name: "t".into(),
            partition,
            revision: 7,
            value: PartitionValue {
                leader,
                leader_epoch: 1,
                leader_registration: 0,
                isr: vec![1; isr],
                elr: Vec::new(),
                last_known_leader: None,
                partition_epoch: 1,
            },
            elected: Some((BrokerId(leader), i64::from(leader), Origin::Isr)),
        }
    }

    fn sizes(changes: &[Change]) -> Vec<usize> {
        let batches = batches(128, 1, changes);
        for batch in &batches {
            let condition = Compare::CreateRevision {
                key: "/controller".to_owned(),
                revision: 5,
            };
            let (compares, ops) = transaction(&[condition], batch);
            assert!(compares.len() <= 128 && ops.len() == batch.len());
        }
        batches.iter().map(|batch| batch.len()).collect()
    }

    #[test]
    fn batches_keep_to_partitions_compares_and_bytes() {
        let few: Vec<_> = (0..250).map(|index| change(index, index % 3, 3)).collect();
        assert_eq!(sizes(&few), [120, 120, 10]);
        let many: Vec<_> = (0..130).map(|index| change(index, index % 50, 3)).collect();
        assert_eq!(sizes(&many), [77, 53]);
        let large: Vec<_> = (0..5).map(|index| change(index, 1, 200_000)).collect();
        assert_eq!(sizes(&large), [2, 2, 1]);
        assert_eq!(sizes(&[]), [0; 0]);
    }
}
