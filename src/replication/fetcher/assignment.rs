//! Which fetcher follows which partition. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::machine::Key;
use crate::metadata::{Image, Topic};
use crate::types::{BrokerId, LeaderEpoch, PartitionId};

/// One fetcher: a leader, as it is registered now, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FetcherId {
    pub(crate) leader: BrokerId,
    /// A broker that registered again is somebody else.
    pub(crate) broker_epoch: i64,
    pub(crate) number: u64,
}

/// What is different for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Key,
    /// Whose it was, if it is somebody else's now.
    pub(crate) left: Option<FetcherId>,
    pub(crate) follows: Option<(FetcherId, LeaderEpoch)>,
}

/// All partitions that this broker follows.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    followed: BTreeMap<Key, (FetcherId, LeaderEpoch)>,
    /// Of each leader.
    fetchers: u64,
}

impl Assignments {
    /// Takes over an image: what has changed since `old`.
    pub(crate) fn update(
        &mut self,
        (old, new): (&Image, &Image),
        me: BrokerId,
        fetchers: u64,
    ) -> Vec<Change> {
        let recounted = std::mem::replace(&mut self.fetchers, fetchers) != fetchers;
        let same_brokers = old.brokers == new.brokers && !recounted;
        let mut changes = Vec::new();
        for topic in old.topics.values() {
            let now = new.topics.get(&topic.name).filter(|now| now.id == topic.id);
            let from = now.map_or(0, |now| now.partitions.len());
            for index in from..topic.partitions.len() {
                self.change(key(topic, index), None, &mut changes);
            }
        }
        for (name, topic) in &new.topics {
            let before = old.topics.get(name);
            if same_brokers && before.is_some_and(|before| Arc::ptr_eq(before, topic)) {
                continue;
            }
            for (index, partition) in topic.partitions.iter().enumerate() {
                let key = key(topic, index);
                let follows = partition
                    .leader
                    .filter(|leader| *leader != me && partition.replicas.contains(&me))
                    .and_then(|leader| new.brokers.get(&leader))
                    .map(|leader| FetcherId {
                        leader: leader.id,
                        broker_epoch: leader.epoch,
                        number: hash(key) % fetchers.max(1),
                    });
                let follows = follows.map(|fetcher| (fetcher, partition.leader_epoch));
                self.change(key, follows, &mut changes);
            }
        }
        changes
    }

    fn change(
        &mut self,
        key: Key,
        follows: Option<(FetcherId, LeaderEpoch)>,
        changes: &mut Vec<Change>,
    ) {
        let before = match follows {
            Some(follows) => self.followed.insert(key, follows),
            None => self.followed.remove(&key),
        };
        if before == follows {
            return;
        }
        let fetcher = follows.map(|(fetcher, _)| fetcher);
        changes.push(Change {
            key,
            left: before
                .map(|(fetcher, _)| fetcher)
                .filter(|before| Some(*before) != fetcher),
            follows,
        });
    }
}

fn key(topic: &Topic, index: usize) -> Key {
    Key {
        topic: topic.id,
        partition: PartitionId::try_from(index).unwrap_or(PartitionId::MAX),
    }
}

/// FNV-1a.
fn hash(key: Key) -> u64 {
    let partition = key.partition.to_le_bytes();
    let bytes = key.topic.0.iter().chain(&partition);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Broker, Partition};
    use crate::types::TopicId;

    const ME: BrokerId = BrokerId(1);

    fn image(brokers: &[(i32, i64)], leaders: &[(Option<i32>, LeaderEpoch)]) -> Image {
        let mut image = Image::default();
        for &(id, epoch) in brokers {
            let broker = Broker {
                id: BrokerId(id),
                endpoints: Vec::new(),
                rack: None,
                epoch,
                incarnation: String::new(),
                shutting_down: false,
            };
            image.brokers.insert(BrokerId(id), Arc::new(broker));
        }
        let partitions = leaders.iter().map(|&(leader, leader_epoch)| {
            let partition = Partition {
                leader: leader.map(BrokerId),
                leader_epoch,
                ..Partition::made(&[ME, BrokerId(2), BrokerId(3)])
            };
            Arc::new(partition)
        });
        let topic = Topic {
            name: "t".into(),
            id: TopicId([9; 16]),
            partitions: partitions.collect(),
            overrides: BTreeMap::new(),
            config: Arc::default(),
        };
        image.topics.insert("t".into(), Arc::new(topic));
        image
    }

    /// One line for each change.
    fn update(assignments: &mut Assignments, old: &Image, new: &Image) -> Vec<String> {
        let changes = assignments.update((old, new), ME, 1);
        let line = |change: &Change| {
            let left = change
                .left
                .map(|left| format!("{}@{}", left.leader, left.broker_epoch));
            let follows = change
                .follows
                .map(|(to, epoch)| format!("{}@{} in {epoch}", to.leader, to.broker_epoch));
            let none = || "-".to_owned();
            let (left, follows) = (left.unwrap_or_else(none), follows.unwrap_or_else(none));
            format!("{}: {left} > {follows}", change.key.partition)
        };
        changes.iter().map(line).collect()
    }

    #[test]
    fn partitions_follow_their_leaders_as_these_come_and_go() {
        let all = [(1, 10), (2, 20), (3, 30)];
        let mut assignments = Assignments::default();
        let mut trace = |old: &Image, new: &Image| update(&mut assignments, old, new);
        let none = Image::default();
        let first = image(&all, &[(Some(1), 0), (Some(2), 0), (None, 4)]);
        assert_eq!(trace(&none, &first), ["1: - > 2@20 in 0"]);
        assert_eq!(trace(&first, &first.clone()), [""; 0]);
        // Broker 2 died, 3 leads.
        let second = image(
            &[(1, 10), (3, 30)],
            &[(Some(1), 0), (Some(3), 1), (None, 4)],
        );
        assert_eq!(trace(&first, &second), ["1: 2@20 > 3@30 in 1"]);
        // It registered again, in the same term of this partition.
        let third = image(
            &[(1, 10), (3, 31)],
            &[(Some(3), 1), (Some(3), 1), (None, 4)],
        );
        assert_eq!(
            trace(&second, &third),
            ["0: - > 3@31 in 1", "1: 3@30 > 3@31 in 1"]
        );
        // A new term of the same leader; one partition is led here; the leader of one is gone.
        let fourth = image(
            &[(1, 10), (3, 31)],
            &[(Some(1), 2), (Some(3), 2), (Some(2), 5)],
        );
        assert_eq!(trace(&third, &fourth), ["0: 3@31 > -", "1: - > 3@31 in 2"]);
        assert_eq!(trace(&fourth, &none), ["1: 3@31 > -"]);
    }

    #[test]
    fn partitions_are_spread_over_the_fetchers_of_a_leader() {
        let leaders = vec![(Some(2), 0); 200];
        let image = image(&[(1, 10), (2, 20)], &leaders);
        let mut assignments = Assignments::default();
        let changes = assignments.update((&Image::default(), &image), ME, 4);
        let mut counts = [0; 4];
        for change in changes {
            counts[usize::try_from(change.follows.unwrap().0.number).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| *count > 25), "{counts:?}");
        // Fewer of them: each partition has one again, those that stay keep theirs.
        let changes = assignments.update((&image, &image.clone()), ME, 2);
        let moved = counts[2] + counts[3];
        assert_eq!(changes.len(), moved);
        let fits = |change: &Change| change.follows.is_some_and(|(to, _)| to.number < 2);
        assert!(changes.iter().all(fits));
        assert_eq!(assignments.update((&image, &image.clone()), ME, 2), []);
    }
}
