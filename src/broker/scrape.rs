//! What `/metrics` reads when somebody looks: the image, the partitions, the groups.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::handlers::Context;
use crate::metadata::{Image, Topic};
use crate::replication::LogDirState;
use crate::telemetry::{
    ClusterSample, GroupOffsetSample, GroupSample, GroupStateSample, LogDirSample, PartitionSample,
    ScrapeSource,
};
use crate::types::{BrokerId, PartitionId, TopicName};

/// Reads the broker's state for metrics.
#[derive(Debug)]
pub(super) struct Source {
    context: Arc<Context>,
}

impl Source {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn node_id(&self) -> BrokerId {
        self.context.config.node_id
    }

    fn partition(&self, image: &Image, topic: &Topic, index: usize) -> PartitionSample {
        let state = &topic.partitions[index];
        let partition = PartitionId::try_from(index).unwrap_or(PartitionId::MAX);
        let here = self.context.replicas.partition(&topic.name, partition).ok();
        let log = here.as_ref().and_then(|here| here.log_sample());
        let online = |id: &&BrokerId| image.brokers.contains_key(id);
        PartitionSample {
            topic: Arc::clone(&topic.name),
            partition,
            leader: state.leader.filter(|id| online(&id)),
            leader_is_preferred: state.leader == state.replicas.first().copied(),
            replicas: state.replicas.len(),
            in_sync_replicas: state.isr.iter().filter(online).count(),
            min_insync_replicas: usize::try_from(topic.config.min_insync_replicas)
                .unwrap_or(1)
                .min(state.replicas.len()),
            led_here: state.leader == Some(self.node_id()),
            reassigning: false,
            log,
            offline_here: here.is_some_and(|here| here.is_offline()),
        }
    }

    fn lag(&self, topic: &TopicName, partition: PartitionId, offset: i64) -> Option<i64> {
        let here = self.context.replicas.partition(topic, partition).ok()?;
        Some((here.log_sample()?.high_watermark - offset).max(0))
    }
}

impl ScrapeSource for Source {
    fn cluster(&self) -> ClusterSample {
        let image = self.context.metadata.current();
        let brokers = image.brokers.values().map(|broker| {
            let address = broker.endpoints.first();
            let address = address.map(|endpoint| format!("{}:{}", endpoint.host, endpoint.port));
            (broker.id, address.unwrap_or_default())
        });
        ClusterSample {
            brokers: brokers.collect(),
            fenced_brokers: {
                let known = image.known_brokers.keys();
                known.filter(|id| image.reach(**id).is_none()).count()
            },
            is_controller: image.controller == Some(self.node_id()),
            topics: image.topics.len(),
            fetcher_max_lag: 0,
        }
    }

    fn log_dirs(&self) -> Vec<LogDirSample> {
        let states = self.context.replicas.log_dir_states();
        let sample = |(path, state): (PathBuf, LogDirState)| LogDirSample {
            path: path.display().to_string(),
            full: state == LogDirState::Full,
            offline: state == LogDirState::Offline,
        };
        states.into_iter().map(sample).collect()
    }

    fn damage_found(&self) -> u64 {
        self.context.replicas.damage_found()
    }

    fn partitions(&self) -> Vec<PartitionSample> {
        let image = self.context.metadata.current();
        let of_topic = |topic: &Arc<Topic>| {
            let indexes = 0..topic.partitions.len();
            indexes
                .map(|index| self.partition(&image, topic, index))
                .collect::<Vec<_>>()
        };
        image.topics.values().flat_map(of_topic).collect()
    }

    fn groups(&self) -> BoxFuture<'_, Vec<GroupSample>> {
        Box::pin(async {
            let groups = self.context.groups.groups_snapshot().await;
            let mut samples: Vec<GroupSample> = groups
                .into_iter()
                .map(|group| GroupSample {
                    group: group.group.to_string(),
                    state: state(group.state),
                    members: group.members,
                    offsets: group
                        .offsets
                        .into_iter()
                        .map(|(topic, partition, offset)| GroupOffsetSample {
                            lag: self.lag(&topic, partition, offset),
                            topic,
                            partition,
                            offset,
                        })
                        .collect(),
                })
                .collect();
            samples.sort_by(|a, b| a.group.cmp(&b.group));
            samples
        })
    }
}

fn state(name: &str) -> GroupStateSample {
    match name {
        "Stable" => GroupStateSample::Stable,
        "Empty" => GroupStateSample::Empty,
        "Dead" => GroupStateSample::Dead,
        "PreparingRebalance" => GroupStateSample::PreparingRebalance,
        "CompletingRebalance" => GroupStateSample::CompletingRebalance,
        _ => GroupStateSample::Other,
    }
}
