//! What the group handlers share: between the codec's types and the coordinator's.

use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;

use super::RequestInfo;
use crate::types::{ErrorCode, TopicName};

/// Copies: what a group keeps must not keep the frame that it came in.
pub(super) fn arc(text: &StrBytes) -> Arc<str> {
    Arc::from(text.as_str())
}

pub(super) fn str_bytes(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

pub(super) fn client_id(request: &RequestInfo) -> Arc<str> {
    request.client_id.clone().unwrap_or_else(|| Arc::from(""))
}

/// As `InetAddress.toString()` of Java shows an address.
pub(super) fn client_host(request: &RequestInfo) -> Arc<str> {
    Arc::from(format!("/{}", request.peer.ip()))
}

/// Collects an error for each partition as Kafka's response builders do: topics in the order in which
/// they are first heard of.
#[derive(Debug, Default)]
pub(super) struct PartitionAnswers {
    pub(super) topics: Vec<(TopicName, Vec<(i32, ErrorCode)>)>,
}

impl PartitionAnswers {
    pub(super) fn add(&mut self, topic: &TopicName, errors: Vec<(i32, ErrorCode)>) {
        if errors.is_empty() {
            return;
        }
        match self.topics.iter_mut().find(|(name, _)| name == topic) {
            Some((_, known)) => known.extend(errors),
            None => self.topics.push((topic.clone(), errors)),
        }
    }
}
