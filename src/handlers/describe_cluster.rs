//! DescribeCluster: the brokers, by the listener that the request came in on (KIP-700, KIP-919).

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Context, RequestInfo};
use crate::security::{CLUSTER_OPERATIONS, NOT_ASKED};
use crate::types::ErrorCode;

const ENDPOINT_TYPE_BROKER: i8 = 1;
const ENDPOINT_TYPE_CONTROLLER: i8 = 2;

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DescribeClusterRequest,
) -> DescribeClusterResponse {
    match body.endpoint_type {
        ENDPOINT_TYPE_BROKER => {}
        ENDPOINT_TYPE_CONTROLLER => {
            let message = "The request was sent to an endpoint of type BROKER, but we wanted an \
                           endpoint of type CONTROLLER";
            return refuse(ErrorCode::MismatchedEndpointType, message.to_owned());
        }
        other => {
            let message = format!("Unsupported endpoint type {other}");
            return refuse(ErrorCode::UnsupportedEndpointType, message);
        }
    }
    let image = context.metadata.current();
    let fenced = image.known_brokers.values();
    let fenced = fenced.filter(|broker| image.reach(broker.id).is_none());
    let fenced = fenced.filter(|_| body.include_fenced_brokers);
    let there = image.reachable().map(|broker| (broker, false));
    let all = there.chain(fenced.map(|broker| (broker, true)));
    let brokers = all.filter_map(|(broker, is_fenced)| {
        let endpoint = broker.endpoint(&request.listener)?;
        let answer = DescribeClusterBroker::default()
            .with_broker_id(BrokerId(broker.id.0))
            .with_host(StrBytes::from_string(endpoint.host.clone()))
            .with_port(i32::from(endpoint.port))
            .with_rack(broker.rack.clone().map(StrBytes::from_string))
            .with_is_fenced(is_fenced);
        Some(answer)
    });
    DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_string(image.cluster_id.to_string()))
        .with_controller_id(BrokerId(image.controller.map_or(-1, |id| id.0)))
        .with_brokers(brokers.collect())
        .with_cluster_authorized_operations(match body.include_cluster_authorized_operations {
            true => CLUSTER_OPERATIONS,
            false => NOT_ASKED,
        })
}

fn refuse(error: ErrorCode, message: String) -> DescribeClusterResponse {
    DescribeClusterResponse::default()
        .with_error_code(error.code())
        .with_error_message(Some(StrBytes::from_string(message)))
        .with_controller_id(BrokerId(-1))
}
