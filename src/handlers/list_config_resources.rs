//! ListConfigResources: what has dynamic configurations. v0 knew client metrics only.

use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use kafka_protocol::protocol::StrBytes;

use super::config_change::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::{Context, RequestInfo};
use crate::metadata::Image;
use crate::types::ErrorCode;

/// In the order in which Kafka answers.
const TYPES: [i8; 5] = [GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC];

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let wanted = body.resource_types;
    let response = ListConfigResourcesResponse::default();
    if wanted.iter().any(|wanted| !TYPES.contains(wanted)) {
        return response.with_error_code(ErrorCode::UnsupportedVersion.code());
    }
    let image = context.metadata.current();
    let asked = |kind: i8| match request.api_version {
        0 => kind == CLIENT_METRICS,
        _ => wanted.is_empty() || wanted.contains(&kind),
    };
    let mut resources = Vec::new();
    for kind in TYPES.into_iter().filter(|kind| asked(*kind)) {
        for name in names(&image, kind) {
            let mut resource =
                ConfigResource::default().with_resource_name(StrBytes::from_string(name));
            if request.api_version >= 1 {
                resource = resource.with_resource_type(kind);
            }
            resources.push(resource);
        }
    }
    response.with_config_resources(resources)
}

fn names(image: &Image, kind: i8) -> Vec<String> {
    match kind {
        GROUP => image.group_configs.keys().cloned().collect(),
        CLIENT_METRICS => image.client_metrics_configs.keys().cloned().collect(),
        TOPIC => image.topics.keys().map(|name| name.to_string()).collect(),
        _ => image.brokers.keys().map(|id| id.to_string()).collect(),
    }
}
