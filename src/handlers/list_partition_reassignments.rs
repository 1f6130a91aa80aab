//! ListPartitionReassignments: none is going on in a cluster that cannot reassign yet.

use kafka_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::{Context, RequestInfo};

pub(crate) async fn handle(
    _context: &Context,
    _request: &RequestInfo,
    _body: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default().with_error_message(None)
}
