//! DescribeGroups: classic groups with their members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kafka_protocol::messages::describe_groups_response::{
    DescribedGroup as GroupAnswer, DescribedGroupMember,
};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use kafka_protocol::protocol::StrBytes;

use super::group_names::{ResponseBudget, arc, str_bytes};
use super::{Context, RequestInfo};
use crate::coordinator::{DescribedGroup, DescribedMember};
use crate::security::{GROUP_OPERATIONS, NOT_ASKED};
use crate::types::ErrorCode;

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let version = request.api_version;
    let operations = match version >= 3 && body.include_authorized_operations {
        true => GROUP_OPERATIONS,
        false => NOT_ASKED,
    };
    let mut seen = BTreeSet::new();
    let groups: Vec<Arc<str>> = body.groups.iter().map(|group| arc(group)).collect();
    let distinct = groups.iter().filter(|group| seen.insert(*group)).cloned();
    let described = context.groups.describe_groups(distinct.collect()).await;
    let described: BTreeMap<_, _> = described.into_iter().collect();
    let mut budget = ResponseBudget::new();
    let answers = groups.iter().map(|group| {
        let found = described.get(group).cloned();
        let found = found.unwrap_or(Err(ErrorCode::UnknownServerError));
        let found = if budget.take(bytes_of(&found)) {
            found
        } else {
            Err(ErrorCode::UnknownServerError)
        };
        answer(version, operations, group, found)
    });
    DescribeGroupsResponse::default().with_groups(answers.collect())
}

fn bytes_of(found: &Result<Option<DescribedGroup>, ErrorCode>) -> usize {
    const FIXED: usize = 200;
    let Ok(Some(group)) = found else {
        return FIXED;
    };
    let member = |member: &DescribedMember| {
        FIXED + member.client_id.len() + member.metadata.len() + member.assignment.len()
    };
    FIXED + group.members.iter().map(member).sum::<usize>()
}

fn answer(
    version: i16,
    operations: i32,
    group: &Arc<str>,
    found: Result<Option<DescribedGroup>, ErrorCode>,
) -> GroupAnswer {
    let answer = GroupAnswer::default()
        .with_group_id(GroupId(str_bytes(group)))
        .with_authorized_operations(NOT_ASKED);
    match found {
        Err(error) => answer.with_error_code(error.code()),
        Ok(Some(described)) => answer
            .with_group_state(StrBytes::from_static_str(described.state))
            .with_protocol_type(str_bytes(&described.protocol_type))
            .with_protocol_data(str_bytes(&described.protocol))
            .with_members(members(version, described.members))
            .with_authorized_operations(operations),
        Ok(None) if version >= 6 => answer
            .with_group_state(StrBytes::from_static_str("Dead"))
            .with_error_code(ErrorCode::GroupIdNotFound.code())
            .with_error_message(Some(StrBytes::from_string(format!(
                "Group {group} not found."
            )))),
        Ok(None) => answer
            .with_group_state(StrBytes::from_static_str("Dead"))
            .with_authorized_operations(operations),
    }
}

fn members(version: i16, members: Vec<DescribedMember>) -> Vec<DescribedGroupMember> {
    let member = |member: DescribedMember| {
        let instance_id = member.instance_id.filter(|_| version >= 4);
        DescribedGroupMember::default()
            .with_member_id(str_bytes(&member.member_id))
            .with_group_instance_id(instance_id.as_ref().map(str_bytes))
            .with_client_id(str_bytes(&member.client_id))
            .with_client_host(str_bytes(&member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment)
    };
    members.into_iter().map(member).collect()
}
