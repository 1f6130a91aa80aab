//! One file per Kafka API. The table at the end of this file is what ApiVersions answers and what
//! dispatch obeys.
//!
//! A handler translates, authorises, calls and translates back.

mod alter_configs;
mod api_versions;
mod config_change;
mod context;
mod create_partitions;
mod create_topics;
mod current_leader;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod dispatch;
mod elect_leaders;
mod error_counts;
mod fetch;
mod find_coordinator;
mod group_names;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod seen;
mod sync_group;
mod topic_names;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use kafka_protocol::messages::ApiKey;

pub use context::{Context, RequestInfo};
pub use dispatch::{Peer, dispatch};

use crate::protocol::Completion;

/// An API that this broker serves, with the versions of it that we implement.
#[derive(Clone, Copy)]
pub struct Api {
    pub key: ApiKey,
    pub min_version: i16,
    pub max_version: i16,
    /// The lowest version that ApiVersions claims: below `min_version` only for Produce.
    pub advertised_min_version: i16,
    handler: Handler,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {}..={}",
            self.key, self.min_version, self.max_version
        )
    }
}

/// Decodes the body, runs the handler and encodes its answer.
type Handler = fn(Arc<Context>, Arc<RequestInfo>, Bytes) -> BoxFuture<'static, Completion>;

/// `timeoutMs` of an admin request. Zero is served as Kafka serves it: with REQUEST_TIMED_OUT.
fn admin_timeout(timeout_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or_default())
}

/// Looks an API up by its key.
pub fn api(key: i16) -> Option<&'static Api> {
    APIS.iter().find(|api| api.key as i16 == key)
}

/// `Name min..=max => module`: the module's `handle(&Context, &RequestInfo, NameRequest)` answers with
/// a body for the codec; `=> later module` does the same, but what it waits for holds up no request
/// behind it; `=> raw module` has a `dispatch(Arc<Context>, Arc<RequestInfo>, Bytes)` of its
/// own that returns a boxed future of a [`Completion`].
macro_rules! apis {
    ($($api:ident $min:literal..=$max:literal $(($advertised:literal))? => $($handler:ident)+,)*) => {
        /// Every API that this broker serves, by key.
        pub const APIS: &[Api] = &[$(Api {
            key: ApiKey::$api,
            min_version: $min,
            max_version: $max,
            advertised_min_version: apis!(@advertised $min $($advertised)?),
            handler: apis!(@handler $($handler)+),
        },)*];
    };
    (@advertised $min:literal) => { $min };
    (@advertised $min:literal $advertised:literal) => { $advertised };
    (@handler raw $module:ident) => { $module::dispatch };
    (@handler later $module:ident) => {
        |context, request, body| {
            Box::pin(async move {
                let body = match dispatch::decode(&request, body) {
                    Ok(body) => body,
                    Err(reason) => return Completion::Close(reason),
                };
                let answer = async move {
                    let response = $module::handle(&context, &request, body).await;
                    dispatch::encode(&context, &request, &response)
                };
                dispatch::begun(Box::pin(answer))
            })
        }
    };
    (@handler $module:ident) => {
        |context, request, body| {
            Box::pin(async move {
                let body = match dispatch::decode(&request, body) {
                    Ok(body) => body,
                    Err(reason) => return Completion::Close(reason),
                };
                let response = $module::handle(&context, &request, body).await;
                dispatch::encode(&context, &request, &response)
            })
        }
    };
}

apis! {
    Produce 3..=13 (0) => raw produce,
    Fetch 4..=18 => raw fetch,
    ListOffsets 1..=10 => list_offsets,
    Metadata 0..=13 => metadata,
    OffsetCommit 2..=9 => later offset_commit,
    OffsetFetch 1..=9 => later offset_fetch,
    FindCoordinator 0..=6 => find_coordinator,
    JoinGroup 0..=9 => later join_group,
    Heartbeat 0..=4 => later heartbeat,
    LeaveGroup 0..=5 => later leave_group,
    SyncGroup 0..=5 => later sync_group,
    DescribeGroups 0..=6 => later describe_groups,
    ListGroups 0..=5 => later list_groups,
    ApiVersions 0..=4 => api_versions,
    CreateTopics 2..=7 => create_topics,
    DeleteTopics 1..=6 => delete_topics,
    DeleteRecords 0..=2 => delete_records,
    InitProducerId 0..=5 => init_producer_id,
    OffsetForLeaderEpoch 2..=4 => offset_for_leader_epoch,
    DescribeConfigs 1..=4 => describe_configs,
    AlterConfigs 0..=2 => alter_configs,
    DescribeLogDirs 1..=5 => raw describe_log_dirs,
    CreatePartitions 0..=3 => create_partitions,
    DeleteGroups 0..=2 => later delete_groups,
    ElectLeaders 0..=2 => elect_leaders,
    IncrementalAlterConfigs 0..=1 => incremental_alter_configs,
    ListPartitionReassignments 0..=0 => list_partition_reassignments,
    OffsetDelete 0..=0 => later offset_delete,
    DescribeQuorum 0..=2 => describe_quorum,
    DescribeCluster 0..=2 => describe_cluster,
    DescribeProducers 0..=0 => describe_producers,
    ListConfigResources 0..=1 => list_config_resources,
    DescribeTopicPartitions 0..=0 => describe_topic_partitions,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions beyond those that the codec has, and how they are served all the same.
    const BEYOND_THE_CODEC: &[(ApiKey, i16, &str)] = &[(
        ApiKey::DescribeLogDirs,
        5,
        "protocol/log_dirs.rs writes the answer; the request is that of v4",
    )];

    #[test]
    fn every_api_is_in_the_codecs_range_or_served_by_hand() {
        for api in APIS {
            let codec = api.key.valid_versions();
            let by_hand = BEYOND_THE_CODEC.iter().find(|(key, ..)| *key == api.key);
            let max = by_hand.map_or(codec.max, |(_, version, _)| *version);
            assert!(
                by_hand.is_none() || max > codec.max,
                "the codec has {api:?} now"
            );
            assert!(
                api.min_version >= codec.min && api.max_version <= max,
                "{api:?}"
            );
            assert!(api.advertised_min_version <= api.min_version, "{api:?}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_names_each_api_once() {
        assert!(
            APIS.windows(2)
                .all(|pair| (pair[0].key as i16) < (pair[1].key as i16))
        );
    }
}
