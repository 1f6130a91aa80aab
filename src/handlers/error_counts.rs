//! Which error codes an answer holds, for the metric of errors by API: what Kafka's responses count.

use kafka_protocol::messages::{
    AlterConfigsResponse, ApiVersionsResponse, CreatePartitionsResponse, CreateTopicsResponse,
    DeleteGroupsResponse, DeleteRecordsResponse, DeleteTopicsResponse, DescribeClusterResponse,
    DescribeConfigsResponse, DescribeGroupsResponse, DescribeLogDirsResponse,
    DescribeProducersResponse, DescribeQuorumResponse, DescribeTopicPartitionsResponse,
    ElectLeadersResponse, FindCoordinatorResponse, HeartbeatResponse,
    IncrementalAlterConfigsResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse,
    ListConfigResourcesResponse, ListGroupsResponse, ListOffsetsResponse,
    ListPartitionReassignmentsResponse, MetadataResponse, OffsetCommitResponse,
    OffsetDeleteResponse, OffsetFetchResponse, OffsetForLeaderEpochResponse, SyncGroupResponse,
};

use super::{Context, RequestInfo};
use crate::protocol::fetch::FetchResponse;
use crate::protocol::produce::ProduceTopicResponse;
use crate::types::ErrorCode;

/// An answer that has error codes.
pub(super) trait ErrorCodes {
    /// Shows each of them, zeros too.
    fn each(&self, see: &mut dyn FnMut(i16));
}

/// Counts the errors of an answer.
pub(super) fn count(context: &Context, request: &RequestInfo, answer: &(impl ErrorCodes + ?Sized)) {
    let metrics = context.metrics.request(request.metrics_key());
    let mut fine = 0;
    answer.each(&mut |code| match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => fine += 1,
        Some(error) => metrics.error(error),
        None => metrics.error(ErrorCode::UnknownServerError),
    });
    metrics.no_error(fine);
}

/// `Response: own fields; [list / inner list]...`: where the codes are.
macro_rules! error_codes {
    ($($response:ident: $($own:ident)? $([$($path:ident)/+])*;)*) => {
        $(impl ErrorCodes for $response {
            fn each(&self, see: &mut dyn FnMut(i16)) {
                $(see(self.$own);)?
                $(error_codes!(@walk self, see, $($path)/+);)*
            }
        })*
    };
    (@walk $at:expr, $see:ident, $list:ident) => {
        $at.$list.iter().for_each(|item| $see(item.error_code));
    };
    (@walk $at:expr, $see:ident, $list:ident / $($rest:ident)/+) => {
        for item in &$at.$list {
            error_codes!(@walk item, $see, $($rest)/+);
        }
    };
}

error_codes! {
    AlterConfigsResponse: [responses];
    ApiVersionsResponse: error_code;
    CreatePartitionsResponse: [results];
    CreateTopicsResponse: [topics];
    DeleteGroupsResponse: [results];
    DeleteRecordsResponse: [topics / partitions];
    DeleteTopicsResponse: [responses];
    DescribeClusterResponse: error_code;
    DescribeConfigsResponse: [results];
    DescribeGroupsResponse: [groups];
    DescribeLogDirsResponse: error_code [results];
    DescribeProducersResponse: [topics / partitions];
    DescribeQuorumResponse: error_code [topics / partitions];
    DescribeTopicPartitionsResponse: [topics] [topics / partitions];
    ElectLeadersResponse: error_code [replica_election_results / partition_result];
    HeartbeatResponse: error_code;
    IncrementalAlterConfigsResponse: [responses];
    InitProducerIdResponse: error_code;
    JoinGroupResponse: error_code;
    LeaveGroupResponse: error_code [members];
    ListConfigResourcesResponse: error_code;
    ListGroupsResponse: error_code;
    ListOffsetsResponse: [topics / partitions];
    ListPartitionReassignmentsResponse: error_code;
    MetadataResponse: [topics] [topics / partitions];
    OffsetCommitResponse: [topics / partitions];
    OffsetDeleteResponse: error_code [topics / partitions];
    OffsetForLeaderEpochResponse: [topics / partitions];
    SyncGroupResponse: error_code;
}

impl ErrorCodes for FindCoordinatorResponse {
    /// One code for all until one for each came (v4).
    fn each(&self, see: &mut dyn FnMut(i16)) {
        if self.coordinators.is_empty() {
            see(self.error_code);
        }
        self.coordinators.iter().for_each(|one| see(one.error_code));
    }
}

impl ErrorCodes for OffsetFetchResponse {
    /// Of one group until there were several (v8).
    fn each(&self, see: &mut dyn FnMut(i16)) {
        if self.groups.is_empty() {
            see(self.error_code);
        }
        let old = self.topics.iter().flat_map(|topic| &topic.partitions);
        old.for_each(|partition| see(partition.error_code));
        for group in &self.groups {
            see(group.error_code);
            let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.for_each(|partition| see(partition.error_code));
        }
    }
}

impl ErrorCodes for [ProduceTopicResponse] {
    fn each(&self, see: &mut dyn FnMut(i16)) {
        let partitions = self.iter().flat_map(|topic| &topic.partitions);
        partitions.for_each(|partition| see(partition.error.code()));
    }
}

impl ErrorCodes for FetchResponse {
    fn each(&self, see: &mut dyn FnMut(i16)) {
        see(self.error.unwrap_or(ErrorCode::None).code());
        let partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.for_each(|partition| see(partition.error.code()));
    }
}
