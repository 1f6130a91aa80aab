//! ListGroups: the groups that this broker coordinates.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::group_names::str_bytes;
use super::{Context, RequestInfo};
use crate::coordinator::{self, ListFilter};

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: ListGroupsRequest,
) -> ListGroupsResponse {
    let version = request.api_version;
    let strings = |values: Vec<StrBytes>| values.iter().map(|value| value.to_string()).collect();
    let filter = ListFilter {
        states: strings(body.states_filter),
        types: strings(body.types_filter),
    };
    match context.groups.list_groups(filter).await {
        Ok(groups) => {
            let groups = groups.into_iter().map(|group| listed(version, &group));
            ListGroupsResponse::default().with_groups(groups.collect())
        }
        Err(error) => ListGroupsResponse::default().with_error_code(error.code()),
    }
}

fn listed(version: i16, group: &coordinator::ListedGroup) -> ListedGroup {
    let text = |value: &'static str, since: i16| match version >= since {
        true => StrBytes::from_static_str(value),
        false => StrBytes::default(),
    };
    ListedGroup::default()
        .with_group_id(GroupId(str_bytes(&group.group)))
        .with_protocol_type(str_bytes(&group.protocol_type))
        .with_group_state(text(group.state, 4))
        .with_group_type(text("classic", 5))
}
