//! SyncGroup.

use bytes::Bytes;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::group_names::{arc, str_bytes};
use super::{Context, RequestInfo};
use crate::coordinator::{SyncReply, SyncRequest};
use crate::types::ErrorCode;

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: SyncGroupRequest,
) -> SyncGroupResponse {
    let version = request.api_version;
    let names_missing = body.protocol_type.is_none() || body.protocol_name.is_none();
    if version >= 5 && names_missing {
        return to_response(
            version,
            SyncReply::failed(ErrorCode::InconsistentGroupProtocol),
        );
    }
    let assignments = body.assignments.iter().map(|assignment| {
        let bytes = Bytes::copy_from_slice(&assignment.assignment);
        (arc(&assignment.member_id), bytes)
    });
    let sync = SyncRequest {
        group: arc(&body.group_id),
        generation: body.generation_id,
        member_id: arc(&body.member_id),
        instance_id: body.group_instance_id.as_ref().map(arc),
        protocol_type: body.protocol_type.as_ref().map(arc),
        protocol_name: body.protocol_name.as_ref().map(arc),
        assignments: assignments.collect(),
    };
    to_response(version, context.groups.sync(sync).await)
}

fn to_response(version: i16, reply: SyncReply) -> SyncGroupResponse {
    let has_names = version >= 5;
    let protocol_type = reply.protocol_type.filter(|_| has_names);
    let protocol_name = reply.protocol_name.filter(|_| has_names);
    SyncGroupResponse::default()
        .with_error_code(reply.error.code())
        .with_protocol_type(protocol_type.as_ref().map(str_bytes))
        .with_protocol_name(protocol_name.as_ref().map(str_bytes))
        .with_assignment(reply.assignment)
}
