//! What the group handlers share: between the codec's types and the coordinator's.

use std::collections::BTreeMap;
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

/// What one response may take: a request of a few bytes that names something large again and again must
/// not cost more than that.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Counts what a response takes.
#[derive(Debug)]
pub(super) struct ResponseBudget {
    left: usize,
}

impl ResponseBudget {
    pub(super) fn new() -> Self {
        Self {
            left: RESPONSE_BYTES_MAX,
        }
    }

    /// Takes `bytes`; from the first time that they are more than what is left there is nothing left.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.left = 0;
                false
            }
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// Collects an error for each partition as Kafka's response builders do: topics in the order in which
/// they are first heard of.
#[derive(Debug, Default)]
pub(super) struct PartitionAnswers {
    pub(super) topics: Vec<(TopicName, Vec<(i32, ErrorCode)>)>,
    /// Where each topic stands in `topics`.
    places: BTreeMap<TopicName, usize>,
}

impl PartitionAnswers {
    pub(super) fn add(&mut self, topic: &TopicName, errors: Vec<(i32, ErrorCode)>) {
        if errors.is_empty() {
            return;
        }
        match self.places.get(topic) {
            Some(&place) => self.topics[place].1.extend(errors),
            None => {
                self.places.insert(topic.clone(), self.topics.len());
                self.topics.push((topic.clone(), errors));
            }
        }
    }
}
