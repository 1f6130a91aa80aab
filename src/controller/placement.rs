//! Which brokers hold a new partition. Pure.

use std::collections::{BTreeMap, BTreeSet};

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
    #[error("Unable to replicate the partition {0} time(s): All brokers are currently fenced.")]
    AllFenced(usize),
}

/// A broker that may hold a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: BrokerId,
    /// Brokers without one share one.
    pub rack: Option<String>,
    /// Known to the cluster, but not there: it gets a replica only where the others do not suffice.
    pub is_fenced: bool,
}

/// Spreads `partitions` with `replication_factor` replicas each over the distinct `brokers`, as Kafka's
/// `AdminUtils` does: leaders go round the brokers, racks taking turns; the followers of each round are
/// shifted against those of the round before, so that a broker's load falls to all others when it
/// fails; no rack gets a second replica before each has one. Earlier brokers are filled first.
pub fn place(
    brokers: &[Candidate],
    partitions: usize,
    replication_factor: usize,
) -> Result<Vec<Vec<BrokerId>>, PlacementError> {
    if replication_factor > brokers.len() || brokers.is_empty() {
        return Err(PlacementError::TooFewBrokers(
            replication_factor,
            brokers.len(),
        ));
    }
    let live = rack_alternated(brokers.iter().filter(|broker| !broker.is_fenced));
    let fenced = rack_alternated(brokers.iter().filter(|broker| broker.is_fenced));
    if live.is_empty() {
        return Err(PlacementError::AllFenced(replication_factor));
    }
    let racks: BTreeSet<_> = live.iter().map(|broker| &broker.rack).collect();
    let count = live.len();
    let replicas_of = |partition: usize| {
        let first = partition % count;
        let shift = partition / count * racks.len();
        let mut chosen = vec![live[first]];
        // 1..count, never 0: a follower is never the leader.
        let followers = (0..count.saturating_sub(1))
            .map(|n| live[(first + 1 + (shift + n) % (count - 1)) % count]);
        let followers: Vec<_> = followers.collect();
        choose(&mut chosen, &followers, replication_factor);
        choose(&mut chosen, &fenced, replication_factor);
        chosen.iter().map(|broker| broker.id).collect()
    };
    Ok((0..partitions).map(replicas_of).collect())
}

/// Adds to `chosen` up to `wanted`: those on new racks first, then whoever is left.
fn choose<'a>(chosen: &mut Vec<&'a Candidate>, from: &[&'a Candidate], wanted: usize) {
    for on_new_racks in [true, false] {
        for &candidate in from {
            let has_rack = chosen.iter().any(|one| one.rack == candidate.rack);
            let is_in = chosen.iter().any(|one| one.id == candidate.id);
            if chosen.len() < wanted && !is_in && !(on_new_racks && has_rack) {
                chosen.push(candidate);
            }
        }
    }
}

/// One of each rack, in the order of the racks, then a second one of each, and so on.
fn rack_alternated<'a>(brokers: impl Iterator<Item = &'a Candidate>) -> Vec<&'a Candidate> {
    let mut racks: BTreeMap<&Option<String>, Vec<&Candidate>> = BTreeMap::new();
    for broker in brokers {
        racks.entry(&broker.rack).or_default().push(broker);
    }
    let longest = racks.values().map(Vec::len).max().unwrap_or_default();
    (0..longest)
        .flat_map(|position| racks.values().filter_map(move |rack| rack.get(position)))
        .copied()
        .collect()
}

/// The brokers of the cluster, those that lead least first. One that is shutting down counts as fenced,
/// as in Kafka.
pub fn least_loaded_first(image: &Image) -> Vec<Candidate> {
    let all = image.known_brokers.iter().chain(&image.brokers);
    let mut load: BTreeMap<BrokerId, (usize, usize)> = all.map(|(id, _)| (*id, (0, 0))).collect();
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
    let candidate = |(id, _)| {
        let known = image
            .brokers
            .get(&id)
            .or_else(|| image.known_brokers.get(&id));
        Candidate {
            id,
            rack: known.and_then(|broker| broker.rack.clone()),
            is_fenced: !image.is_active(id),
        }
    };
    brokers.into_iter().map(candidate).collect()
}

/// How many replicas an internal topic gets where nobody has said it: as many as there are brokers, but
/// at most Kafka's default.
pub fn internal_replication_factor(configured: i16, brokers: usize) -> i16 {
    let brokers = i16::try_from(brokers).unwrap_or(i16::MAX);
    configured.min(brokers).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ids(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    fn brokers(ids: &[i32]) -> Vec<Candidate> {
        on_racks(&ids.iter().map(|id| (*id, None)).collect::<Vec<_>>())
    }

    fn on_racks(brokers: &[(i32, Option<&str>)]) -> Vec<Candidate> {
        let candidate = |(id, rack): &(i32, Option<&str>)| Candidate {
            id: BrokerId(*id),
            rack: rack.map(str::to_owned),
            is_fenced: false,
        };
        brokers.iter().map(candidate).collect()
    }

    #[test]
    fn one_broker_holds_everything() {
        assert_eq!(place(&brokers(&[7]), 3, 1), Ok(vec![ids(&[7]); 3]));
    }

    #[test]
    fn leaders_go_round_and_followers_shift() {
        let placed = place(&brokers(&[1, 2, 3]), 6, 2).unwrap();
        let expected: [&[i32]; 6] = [&[1, 2], &[2, 3], &[3, 1], &[1, 3], &[2, 1], &[3, 2]];
        assert_eq!(placed, expected.map(ids));
    }

    #[test]
    fn each_rack_gets_one_before_any_gets_two() {
        let (a, b, c) = (Some("a"), Some("b"), Some("c"));
        let brokers = on_racks(&[(1, a), (2, a), (3, b), (4, b), (5, c), (6, c)]);
        let placed = place(&brokers, 7, 3).unwrap();
        let expected: [&[i32]; 7] = [
            &[1, 3, 5],
            &[3, 5, 2],
            &[5, 2, 4],
            &[2, 4, 6],
            &[4, 6, 1],
            &[6, 1, 3],
            &[1, 4, 6],
        ];
        assert_eq!(placed, expected.map(ids));
        let placed = place(&on_racks(&[(1, a), (2, a), (3, b)]), 2, 3).unwrap();
        assert_eq!(placed, [ids(&[1, 3, 2]), ids(&[3, 2, 1])]);
    }

    #[test]
    fn a_fenced_broker_follows_where_the_others_do_not_suffice() {
        let mut three = brokers(&[1, 2, 3]);
        three[0].is_fenced = true;
        let expected: [&[i32]; 2] = [&[2, 3], &[3, 2]];
        assert_eq!(place(&three, 2, 2).unwrap(), expected.map(ids));
        let expected: [&[i32]; 2] = [&[2, 3, 1], &[3, 2, 1]];
        assert_eq!(place(&three, 2, 3).unwrap(), expected.map(ids));
        three[1].is_fenced = true;
        three[2].is_fenced = true;
        assert_eq!(place(&three, 1, 1), Err(PlacementError::AllFenced(1)));
    }

    #[test]
    fn too_few_brokers_say_so_as_kafka_does() {
        let error = place(&brokers(&[1]), 1, 3).unwrap_err();
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
        assert_eq!(internal_replication_factor(5, 9), 5);
        assert_eq!(internal_replication_factor(2, 9), 2);
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_and_load_is_even(
            count in 1usize..8, partitions in 0usize..100, factor in 1usize..8,
            racks in proptest::collection::vec(0usize..3, 8),
        ) {
            prop_assume!(factor <= count);
            let names = ["a", "b", "c"];
            let all: Vec<_> = (0..).zip(&racks).take(count)
                .map(|(id, rack)| (id, Some(names[*rack]))).collect();
            let all = on_racks(&all);
            let rack_of = |id: &BrokerId| all[usize::try_from(id.0).unwrap()].rack.clone();
            let racks: BTreeSet<_> = all.iter().map(|broker| broker.rack.clone()).collect();
            let placed = place(&all, partitions, factor).unwrap();
            prop_assert_eq!(placed.len(), partitions);
            let mut leads = vec![0usize; count];
            for replicas in &placed {
                prop_assert_eq!(replicas.len(), factor);
                prop_assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), factor);
                let on: BTreeSet<_> = replicas.iter().map(rack_of).collect();
                prop_assert_eq!(on.len(), factor.min(racks.len()));
                leads[usize::try_from(replicas[0].0).unwrap()] += 1;
            }
            let (min, max) = (leads.iter().min().unwrap(), leads.iter().max().unwrap());
            prop_assert!(max - min <= 1);
        }
    }
}
