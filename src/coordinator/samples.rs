//! Groups as metrics show them, with their lag.

use super::GroupSnapshot;
use super::service::GroupCoordinator;
use crate::telemetry::{GroupOffsetSample, GroupSample, GroupStateSample};
use crate::types::{Offset, TopicName};

impl GroupCoordinator {
    /// The groups that are loaded, sorted by name; the lag of partitions whose log is open here.
    pub async fn group_samples(&self) -> Vec<GroupSample> {
        let snapshots = self.groups_snapshot().await;
        let mut samples: Vec<GroupSample> = snapshots
            .into_iter()
            .map(|group| self.sample(group))
            .collect();
        samples.sort_by(|a, b| a.group.cmp(&b.group));
        samples
    }

    fn sample(&self, snapshot: GroupSnapshot) -> GroupSample {
        let offsets = snapshot.offsets.into_iter();
        let offsets = offsets.map(|(topic, partition, offset)| GroupOffsetSample {
            lag: self.lag(&topic, partition, offset),
            topic,
            partition,
            offset,
        });
        GroupSample {
            group: snapshot.group.to_string(),
            state: state(snapshot.state),
            members: snapshot.members,
            offsets: offsets.collect(),
        }
    }

    fn lag(&self, topic: &TopicName, partition: i32, offset: Offset) -> Option<Offset> {
        let partition = self.replicas().partition(topic, partition).ok()?;
        // Unknown until the log was opened.
        partition.log_offsets()?;
        Some((partition.high_watermark() - offset).max(0))
    }
}

fn state(name: &str) -> GroupStateSample {
    match name {
        "Stable" => GroupStateSample::Stable,
        "Empty" => GroupStateSample::Empty,
        "PreparingRebalance" => GroupStateSample::PreparingRebalance,
        "CompletingRebalance" => GroupStateSample::CompletingRebalance,
        _ => GroupStateSample::Other,
    }
}
