//! DeleteGroups: groups without members, with their offsets.

use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};

use super::group_names::{arc, str_bytes};
use super::{Context, RequestInfo};

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut seen = std::collections::BTreeSet::new();
    let names = body.groups_names.iter().map(|name| arc(name));
    let names: Vec<Arc<str>> = names.filter(|name| seen.insert(name.clone())).collect();
    let deleted = context.groups.delete_groups(names).await;
    let results = deleted.into_iter().map(|(group, error)| {
        DeletableGroupResult::default()
            .with_group_id(GroupId(str_bytes(&group)))
            .with_error_code(error.code())
    });
    DeleteGroupsResponse::default().with_results(results.collect())
}
