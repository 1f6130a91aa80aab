//! What `/metrics` reads when somebody looks: the image, the partitions, the groups.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::lag::Lags;
use super::readiness;
use crate::handlers::Context;
use crate::metadata::{Image, Topic};
use crate::registry::BrokerLease;
use crate::replication::LogDirState;
use crate::telemetry::{
    ClusterSample, GroupSample, GroupStateSample, LogDirSample, PartitionSample, Readiness,
    ScrapeSource,
};
use crate::types::{BrokerId, PartitionId};

/// Reads the broker's state for metrics.
#[derive(Debug)]
pub(super) struct Source {
    context: Arc<Context>,
    lease: Arc<BrokerLease>,
    lags: Lags,
}

impl Source {
    pub(super) fn new(context: Arc<Context>, lease: Arc<BrokerLease>, lags: Lags) -> Self {
        Self {
            context,
            lease,
            lags,
        }
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
}

impl ScrapeSource for Source {
    fn cluster(&self) -> ClusterSample {
        let image = self.context.metadata.current();
        let brokers = image.brokers.values().map(|broker| {
            let address = broker.endpoints.first();
            let address = address.map(|endpoint| format!("{}:{}", endpoint.host, endpoint.port));
            (broker.id, address.unwrap_or_default())
        });
        let mine = |partition: &crate::replication::Partition| partition.follower_lag();
        let lags = self.context.replicas.partitions();
        let lag = lags.iter().map(|partition| mine(partition)).max();
        ClusterSample {
            controller: image.controller,
            controller_epoch: image.controller_registration,
            revision: image.revision,
            brokers: brokers.collect(),
            fenced_brokers: {
                let known = image.known_brokers.keys();
                known.filter(|id| image.reach(**id).is_none()).count()
            },
            is_controller: image.controller == Some(self.node_id()),
            topics: image.topics.len(),
            metadata_errors: image.problems,
            fetcher_max_lag: lag.and_then(|lag| u64::try_from(lag).ok()).unwrap_or(0),
        }
    }

    fn readiness(&self) -> Readiness {
        readiness::readiness(&self.context, &self.lease)
    }

    fn config(&self) -> String {
        readiness::config(&self.context)
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
            let offsets = self.lags.of(&groups).await;
            let mut samples: Vec<GroupSample> = groups
                .into_iter()
                .zip(offsets)
                .map(|(group, offsets)| GroupSample {
                    group: group.group.to_string(),
                    state: state(group.state),
                    members: group.members,
                    offsets,
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
