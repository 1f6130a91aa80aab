//! IncrementalAlterConfigs: keys are set, deleted, and lists extended one by one.

use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::config_change::{self, Asked, AskedKey};
use super::{Context, RequestInfo};
use crate::types::ErrorCode;

pub(crate) async fn handle(
    context: &Context,
    _request: &RequestInfo,
    body: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let resources = body
        .resources
        .into_iter()
        .map(|resource| Asked {
            resource_type: resource.resource_type,
            name: resource.resource_name.to_string(),
            keys: resource
                .configs
                .into_iter()
                .map(|config| AskedKey {
                    name: config.name.to_string(),
                    operation: config.config_operation,
                    value: config.value.map(|value| value.to_string()),
                })
                .collect(),
            replace: false,
        })
        .collect();
    let answers = config_change::apply(context, resources, body.validate_only).await;
    let responses = answers.into_iter().map(|(resource, outcome)| {
        let answer = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(StrBytes::from_string(resource.name));
        match outcome {
            Ok(()) => answer
                .with_error_code(ErrorCode::None.code())
                .with_error_message(None),
            Err(error) => answer
                .with_error_code(error.code.code())
                .with_error_message(error.message.map(StrBytes::from_string)),
        }
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}
