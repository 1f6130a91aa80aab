//! ApiVersions: what this broker serves. Answered with response header 0 always (KIP-511).

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use super::{APIS, Context, RequestInfo};
use crate::protocol::{Completion, Response};
use crate::types::ErrorCode;

/// Names and versions of client software: Kafka's `ApiVersionsRequest.isValid`.
fn is_valid_software(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let outer = |c: char| c.is_ascii_alphanumeric();
    !text.is_empty() && text.chars().all(inner) && text.starts_with(outer) && text.ends_with(outer)
}

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: ApiVersionsRequest,
) -> ApiVersionsResponse {
    let software = [&body.client_software_name, &body.client_software_version];
    if request.api_version >= 3 && !software.iter().all(|text| is_valid_software(text)) {
        return ApiVersionsResponse::default().with_error_code(ErrorCode::InvalidRequest.code());
    }
    if request.api_version >= 3 {
        let [name, version] = software;
        let radar = &context.metrics.radar;
        radar.told(&request.client, &request.listener, name, version);
        radar.used(&request.client, request.api_key, request.api_version);
    }
    ApiVersionsResponse::default()
        .with_api_keys(served())
        .with_finalized_features_epoch(if request.api_version >= 3 { 0 } else { -1 })
}

/// The answer to a version that we do not know: a v0 body that says which versions of ApiVersions
/// there are, so that the client can choose again on the same connection.
pub(super) fn unsupported(correlation_id: i32) -> Completion {
    let mut itself = served();
    itself.retain(|api| api.api_key == ApiKey::ApiVersions as i16);
    let body = ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UnsupportedVersion.code())
        .with_api_keys(itself);
    match Response::encode(correlation_id, 0, &body, 0) {
        Ok(response) => Completion::Ready(response),
        Err(error) => Completion::Close(error.to_string()),
    }
}

fn served() -> Vec<ApiVersion> {
    APIS.iter()
        .map(|api| {
            ApiVersion::default()
                .with_api_key(api.key as i16)
                .with_min_version(api.advertised_min_version)
                .with_max_version(api.max_version)
        })
        .collect()
}
