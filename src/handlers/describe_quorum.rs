//! DescribeQuorum: tools ask who keeps the metadata. Here it is the registry, and the one voter that
//! they see is the controller.

use kafka_protocol::messages::describe_quorum_request::{self as asked, DescribeQuorumRequest};
use kafka_protocol::messages::describe_quorum_response::{
    DescribeQuorumResponse, Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{Context, RequestInfo};
use crate::metadata::Image;
use crate::types::ErrorCode;

const METADATA_TOPIC: &str = "__cluster_metadata";
const UNKNOWN_PARTITION: &str = "This server does not host this topic-partition.";

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    let with_messages = request.api_version >= 2;
    let image = context.metadata.current();
    let message = |text: &'static str| with_messages.then(|| StrBytes::from_static_str(text));
    let response = DescribeQuorumResponse::default().with_error_message(message(""));
    if !is_the_metadata_partition(&body.topics) {
        let unknown = |topic: asked::TopicData| {
            let partitions = topic.partitions.iter().map(|partition| {
                PartitionData::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(ErrorCode::UnknownTopicOrPartition.code())
                    .with_error_message(message(UNKNOWN_PARTITION))
            });
            TopicData::default()
                .with_topic_name(topic.topic_name)
                .with_partitions(partitions.collect())
        };
        return response.with_topics(body.topics.into_iter().map(unknown).collect());
    }
    let partition = quorum(context, request, &image).with_error_message(message(""));
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str(METADATA_TOPIC)))
        .with_partitions(vec![partition]);
    let nodes = if with_messages {
        nodes(request, &image)
    } else {
        Vec::new()
    };
    response.with_topics(vec![topic]).with_nodes(nodes)
}

fn is_the_metadata_partition(topics: &[asked::TopicData]) -> bool {
    match topics {
        [topic] => {
            topic.topic_name.as_str() == METADATA_TOPIC
                && matches!(&topic.partitions[..], [only] if only.partition_index == 0)
        }
        _ => false,
    }
}

fn quorum(context: &Context, request: &RequestInfo, image: &Image) -> PartitionData {
    let leader = BrokerId(image.controller.map_or(-1, |id| id.0));
    let mut voter = ReplicaState::default()
        .with_replica_id(leader)
        .with_log_end_offset(image.revision);
    if request.api_version >= 1 {
        let now = context.clock.wall_ms();
        voter = voter
            .with_last_fetch_timestamp(now)
            .with_last_caught_up_timestamp(now);
    }
    PartitionData::default()
        .with_leader_id(leader)
        .with_leader_epoch(1)
        .with_high_watermark(image.revision)
        .with_current_voters(vec![voter])
}

fn nodes(request: &RequestInfo, image: &Image) -> Vec<Node> {
    let controller = image.controller.and_then(|id| image.brokers.get(&id));
    let node = controller.and_then(|broker| {
        let endpoint = broker.endpoint(&request.listener)?;
        let listener = Listener::default()
            .with_name(StrBytes::from_string(endpoint.listener.to_string()))
            .with_host(StrBytes::from_string(endpoint.host.clone()))
            .with_port(endpoint.port);
        Some(
            Node::default()
                .with_node_id(BrokerId(broker.id.0))
                .with_listeners(vec![listener]),
        )
    });
    node.into_iter().collect()
}
