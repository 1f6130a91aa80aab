//! Elections that somebody asks for.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{ATTEMPTS, Admin, contended, unavailable};
use crate::controller::election::Election;
use crate::controller::machine::{Change, change};
use crate::controller::writer::write_changes;
use crate::metadata::Image;
use crate::types::{ApiError, ErrorCode, PartitionId, TopicName};

/// What an election is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionKind {
    /// The first replica, if it is in sync.
    Preferred,
    /// Any replica, where there is no leader.
    Unclean,
}

type Elected = (TopicName, PartitionId, Result<(), ApiError>);

impl Admin {
    /// One result per partition, in order; as Kafka's `ReplicationControlManager.electLeader`:
    /// UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    /// ELIGIBLE_LEADERS_NOT_AVAILABLE.
    pub async fn elect_leaders(
        &self,
        partitions: Vec<(TopicName, PartitionId)>,
        kind: ElectionKind,
        timeout: Duration,
    ) -> Result<Vec<Elected>, ApiError> {
        if timeout.is_zero() {
            return Err(ErrorCode::RequestTimedOut.into());
        }
        self.may_write()?;
        let none = || -> Result<(), ApiError> { Err(contended()) };
        let mut results: Vec<Elected> = partitions
            .into_iter()
            .map(|(topic, partition)| (topic, partition, none()))
            .collect();
        let mut pending: Vec<usize> = (0..results.len()).collect();
        for attempt in 0..ATTEMPTS {
            let image = self.cache.current();
            let mut changes = Vec::new();
            let mut asked = BTreeSet::new();
            pending.retain(|index| {
                let (topic, partition, result) = &mut results[*index];
                match plan(&image, topic, *partition, kind) {
                    Ok(change) => {
                        if asked.insert((change.topic, change.partition)) {
                            changes.push(change);
                        }
                        true
                    }
                    // Somebody was quicker, or it was ours and nobody said so.
                    Err(error) if attempt > 0 && error.code == ErrorCode::ElectionNotNeeded => {
                        *result = Ok(());
                        false
                    }
                    Err(error) => {
                        *result = Err(error);
                        false
                    }
                }
            });
            if changes.is_empty() {
                break;
            }
            for change in &changes {
                let (topic, partition) = (&change.name, change.partition);
                tracing::info!(%topic, partition, ?kind, leader = change.value.leader, "an election was asked for");
            }
            let written = write_changes(self.registry.as_ref(), &[], &changes).await;
            let written = written.map_err(unavailable)?;
            self.visible(written.revision, timeout).await?;
            if written.refused == 0 {
                for index in pending.drain(..) {
                    results[index].2 = Ok(());
                }
                break;
            }
        }
        Ok(results)
    }
}

fn plan(
    image: &Image,
    topic: &TopicName,
    index: PartitionId,
    kind: ElectionKind,
) -> Result<Change, ApiError> {
    let unknown = |message| ApiError::new(ErrorCode::UnknownTopicOrPartition, message);
    let found = image
        .topics
        .get(topic)
        .ok_or_else(|| unknown(format!("No such topic as {topic}")))?;
    let partition = image
        .partition(topic, index)
        .ok_or_else(|| unknown(format!("No such partition as {topic}-{index}")))?;
    let needed = match kind {
        ElectionKind::Preferred => partition.leader != partition.replicas.first().copied(),
        ElectionKind::Unclean => partition.leader.is_none(),
    };
    if !needed {
        return Err(ApiError::new(
            ErrorCode::ElectionNotNeeded,
            "Leader election not needed for topic partition.",
        ));
    }
    let (election, unavailable) = match kind {
        ElectionKind::Preferred => (
            Election::Preferred,
            ApiError::new(
                ErrorCode::PreferredLeaderNotAvailable,
                "The preferred leader was not available.",
            ),
        ),
        ElectionKind::Unclean => (
            Election::Unclean,
            ApiError::new(
                ErrorCode::EligibleLeadersNotAvailable,
                "Eligible topic partition leaders are not available.",
            ),
        ),
    };
    change(image, found, index, &BTreeSet::new(), election).ok_or(unavailable)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::metadata::{Broker, Partition, Topic};
    use crate::types::{BrokerId, TopicId};

    fn planned(partition: Partition, live: &[i32], kind: ElectionKind) -> Result<i32, i16> {
        let broker = |id: &i32| {
            let broker = Broker {
                id: BrokerId(*id),
                endpoints: Vec::new(),
                rack: None,
                epoch: 1,
                incarnation: String::new(),
                shutting_down: false,
            };
            (BrokerId(*id), Arc::new(broker))
        };
        let topic = Topic {
            name: "t".into(),
            id: TopicId([1; 16]),
            partitions: vec![Arc::new(partition)],
            overrides: BTreeMap::new(),
            config: Arc::default(),
        };
        let image = Image {
            brokers: live.iter().map(broker).collect(),
            topics: BTreeMap::from([("t".into(), Arc::new(topic))]),
            ..Image::default()
        };
        plan(&image, &"t".into(), 0, kind)
            .map(|change| change.value.leader)
            .map_err(|error| error.code.code())
    }

    #[test]
    fn what_kafka_answers() {
        let made = Partition::made(&[BrokerId(1), BrokerId(2)]);
        let (preferred, unclean) = (ElectionKind::Preferred, ElectionKind::Unclean);
        assert_eq!(planned(made.clone(), &[1, 2], preferred), Err(84));
        assert_eq!(planned(made.clone(), &[1, 2], unclean), Err(84));
        let moved = Partition {
            leader: Some(BrokerId(2)),
            ..made
        };
        assert_eq!(planned(moved.clone(), &[1, 2], preferred), Ok(1));
        let behind = Partition {
            isr: vec![BrokerId(2)],
            ..moved
        };
        assert_eq!(planned(behind.clone(), &[1, 2], preferred), Err(80));
        let gone = Partition {
            leader: None,
            isr: Vec::new(),
            elr: vec![BrokerId(2)],
            ..behind
        };
        assert_eq!(planned(gone.clone(), &[1], preferred), Err(80));
        assert_eq!(planned(gone.clone(), &[1], unclean), Ok(1));
        assert_eq!(planned(gone, &[], unclean), Err(83));
    }
}
