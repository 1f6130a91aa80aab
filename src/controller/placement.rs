//! Which brokers hold a new partition. Pure.

use std::collections::BTreeMap;

use crate::metadata::Image;
use crate::types::BrokerId;

/// Why no placement exists, as Kafka words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error(
        "Unable to replicate the partition {0} time(s): The target replication factor of {0} \
         cannot be reached because only {1} broker(s) are registered or some brokers have all their \
         log directories cordoned."
    )]
    TooFewBrokers(usize, usize),
}

/// Spreads `partitions` with `replication_factor` replicas each over `brokers`: leaders go round the
/// brokers in their order, and the followers of each round are shifted against those of the round
/// before, so that a broker's load falls to all others when it fails. `brokers` must be distinct.
pub fn place(
    brokers: &[BrokerId],
    partitions: usize,
    replication_factor: usize,
) -> Result<Vec<Vec<BrokerId>>, PlacementError> {
    let count = brokers.len();
    if replication_factor > count || count == 0 {
        return Err(PlacementError::TooFewBrokers(replication_factor, count));
    }
    let replicas_of = |partition: usize| {
        let first = partition % count;
        let shift = partition / count;
        let follower = |n: usize| {
            // 1..count, never 0: a follower is never the leader.
            let distance = 1 + (shift + n) % (count - 1);
            brokers[(first + distance) % count]
        };
        std::iter::once(brokers[first])
            .chain((0..replication_factor - 1).map(follower))
            .collect()
    };
    Ok((0..partitions).map(replicas_of).collect())
}

/// The live brokers, those that lead least first.
pub fn least_loaded_first(image: &Image) -> Vec<BrokerId> {
    let mut load: BTreeMap<BrokerId, (usize, usize)> =
        image.brokers.keys().map(|id| (*id, (0, 0))).collect();
    if load.len() > 1 {
        for topic in image.topics.values() {
            for partition in &topic.partitions {
                for (position, id) in partition.replicas.iter().enumerate() {
                    if let Some((leads, holds)) = load.get_mut(id) {
                        *leads += usize::from(position == 0);
                        *holds += 1;
                    }
                }
            }
        }
    }
    let mut brokers: Vec<_> = load.into_iter().collect();
    brokers.sort_by_key(|(id, load)| (*load, *id));
    brokers.into_iter().map(|(id, _)| id).collect()
}

/// How many replicas an internal topic gets: as many as there are brokers, but at most three and at
/// most as configured.
pub fn internal_replication_factor(configured: i16, brokers: usize) -> i16 {
    let brokers = i16::try_from(brokers).unwrap_or(i16::MAX);
    configured.min(brokers).clamp(1, 3)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ids(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    #[test]
    fn one_broker_holds_everything() {
        assert_eq!(place(&ids(&[7]), 3, 1), Ok(vec![ids(&[7]); 3]));
    }

    #[test]
    fn leaders_go_round_and_followers_shift() {
        let placed = place(&ids(&[1, 2, 3]), 6, 2).unwrap();
        let expected: [&[i32]; 6] = [&[1, 2], &[2, 3], &[3, 1], &[1, 3], &[2, 1], &[3, 2]];
        assert_eq!(placed, expected.map(ids));
    }

    #[test]
    fn too_few_brokers_say_so_as_kafka_does() {
        let error = place(&ids(&[1]), 1, 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 \
             cannot be reached because only 1 broker(s) are registered or some brokers have all \
             their log directories cordoned."
        );
        assert!(place(&[], 1, 1).is_err());
    }

    #[test]
    fn internal_topics_take_what_there_is() {
        assert_eq!(internal_replication_factor(3, 1), 1);
        assert_eq!(internal_replication_factor(3, 2), 2);
        assert_eq!(internal_replication_factor(5, 9), 3);
        assert_eq!(internal_replication_factor(2, 9), 2);
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_and_load_is_even(
            brokers in 1usize..8, partitions in 0usize..100, factor in 1usize..8
        ) {
            prop_assume!(factor <= brokers);
            let all: Vec<_> = (0..8).map(BrokerId).take(brokers).collect();
            let placed = place(&all, partitions, factor).unwrap();
            prop_assert_eq!(placed.len(), partitions);
            let mut leads = vec![0usize; brokers];
            for replicas in &placed {
                prop_assert_eq!(replicas.len(), factor);
                prop_assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), factor);
                leads[usize::try_from(replicas[0].0).unwrap()] += 1;
            }
            let (min, max) = (leads.iter().min().unwrap(), leads.iter().max().unwrap());
            prop_assert!(max - min <= 1);
        }
    }
}
