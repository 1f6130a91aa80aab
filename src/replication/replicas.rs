//! All partitions on this broker.

use std::sync::Arc;

use super::Partition;
use crate::types::{ErrorCode, PartitionId, TopicId};

/// All partitions on this broker; follows the metadata image.
#[derive(Debug)]
pub struct Replicas {}

#[allow(unused_variables)]
impl Replicas {
    /// UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
    pub fn partition(
        &self,
        topic: &str,
        partition: PartitionId,
    ) -> Result<Arc<Partition>, ErrorCode> {
        unimplemented!()
    }
    /// UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
    pub fn partition_by_id(
        &self,
        topic: TopicId,
        partition: PartitionId,
    ) -> Result<Arc<Partition>, ErrorCode> {
        unimplemented!()
    }
}
