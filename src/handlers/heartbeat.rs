//! Heartbeat of the classic group protocol.

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::group_names::arc;
use super::{Context, RequestInfo};
use crate::coordinator;

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: HeartbeatRequest,
) -> HeartbeatResponse {
    let heartbeat = coordinator::HeartbeatRequest {
        group: arc(&body.group_id),
        generation: body.generation_id,
        member_id: arc(&body.member_id),
        instance_id: body.group_instance_id.as_ref().map(arc),
    };
    let error = context.groups.heartbeat(heartbeat).await;
    HeartbeatResponse::default().with_error_code(error.code())
}
