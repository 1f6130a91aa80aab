//! JoinGroup.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::group_names::{arc, client_host, client_id, str_bytes};
use super::{Context, RequestInfo};
use crate::coordinator::{JoinReply, JoinRequest, JoinedMember, Protocol};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: JoinGroupRequest,
) -> JoinGroupResponse {
    let version = request.api_version;
    let reply = context.groups.join(to_request(request, body)).await;
    to_response(version, reply)
}

fn to_request(request: &RequestInfo, body: JoinGroupRequest) -> JoinRequest {
    let version = request.api_version;
    JoinRequest {
        group: arc(&body.group_id),
        member_id: arc(&body.member_id),
        instance_id: body.group_instance_id.as_ref().map(arc),
        client_id: client_id(request),
        client_host: client_host(request),
        session_timeout_ms: body.session_timeout_ms,
        // The first version knew one timeout for both.
        rebalance_timeout_ms: if version == 0 {
            body.session_timeout_ms
        } else {
            body.rebalance_timeout_ms
        },
        protocol_type: arc(&body.protocol_type),
        protocols: protocols(&body.protocols),
        reason: body.reason.map(|reason| reason.to_string()),
        requires_known_member_id: version >= 4,
        supports_skip_assignment: version >= 9,
        fresh_id: uuid::Uuid::new_v4().to_string(),
    }
}

/// The metadata is copied: a member lives longer than the frame that it came in.
fn protocols(offered: &[JoinGroupRequestProtocol]) -> Vec<Protocol> {
    let mut seen = BTreeSet::new();
    let distinct = offered
        .iter()
        .filter(|protocol| seen.insert(protocol.name.as_str()));
    let copied = distinct.map(|protocol| Protocol {
        name: arc(&protocol.name),
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    });
    copied.collect()
}

fn to_response(version: i16, reply: JoinReply) -> JoinGroupResponse {
    let name = reply.protocol_name.as_ref().map(str_bytes);
    JoinGroupResponse::default()
        .with_error_code(reply.error.code())
        .with_generation_id(reply.generation)
        .with_protocol_type(
            reply
                .protocol_type
                .as_ref()
                .map(str_bytes)
                .filter(|_| version >= 7),
        )
        // Not nullable before v7.
        .with_protocol_name(name.or_else(|| (version < 7).then(StrBytes::default)))
        .with_leader(str_bytes(&reply.leader))
        .with_skip_assignment(reply.skip_assignment && version >= 9)
        .with_member_id(str_bytes(&reply.member_id))
        .with_members(members(version, reply.members))
}

fn members(version: i16, members: Vec<JoinedMember>) -> Vec<JoinGroupResponseMember> {
    let member = |member: JoinedMember| {
        let instance_id: Option<Arc<str>> = member.instance_id.filter(|_| version >= 5);
        JoinGroupResponseMember::default()
            .with_member_id(str_bytes(&member.member_id))
            .with_group_instance_id(instance_id.as_ref().map(str_bytes))
            .with_metadata(member.metadata)
    };
    members.into_iter().map(member).collect()
}
