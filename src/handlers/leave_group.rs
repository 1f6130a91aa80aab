//! LeaveGroup: one member below v3, several from then on.

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::group_names::{arc, str_bytes};
use super::{Context, RequestInfo};
use crate::coordinator::{LeaveReply, LeaveRequest, LeavingMember};
use crate::types::ErrorCode;

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let members = if request.api_version >= 3 {
        body.members.iter().map(leaving).collect()
    } else {
        vec![LeavingMember {
            member_id: arc(&body.member_id),
            instance_id: None,
            reason: None,
        }]
    };
    let leave = LeaveRequest {
        group: arc(&body.group_id),
        members,
    };
    to_response(request.api_version, context.groups.leave(leave).await)
}

fn leaving(member: &MemberIdentity) -> LeavingMember {
    LeavingMember {
        member_id: arc(&member.member_id),
        instance_id: member.group_instance_id.as_ref().map(arc),
        reason: member.reason.as_ref().map(|reason| reason.to_string()),
    }
}

fn to_response(version: i16, reply: LeaveReply) -> LeaveGroupResponse {
    if version < 3 {
        // The one member's error is the response's.
        let member = reply.members.first().map(|(_, error)| *error);
        let error = match reply.error {
            ErrorCode::None => member.unwrap_or(ErrorCode::UnknownServerError),
            error => error,
        };
        return LeaveGroupResponse::default().with_error_code(error.code());
    }
    let member = |(member, error): (LeavingMember, ErrorCode)| {
        MemberResponse::default()
            .with_member_id(str_bytes(&member.member_id))
            .with_group_instance_id(member.instance_id.as_ref().map(str_bytes))
            .with_error_code(error.code())
    };
    LeaveGroupResponse::default()
        .with_error_code(reply.error.code())
        .with_members(reply.members.into_iter().map(member).collect())
}
