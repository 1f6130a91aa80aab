//! The JSON that stands behind the registry's keys. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::types::{BrokerId, TopicId};

/// Behind `/topics/<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicValue {
    #[serde(with = "topic_id")]
    pub id: TopicId,
    /// Replicas by partition, the preferred leader first.
    #[serde(with = "replica_lists")]
    pub replicas: Vec<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configs: BTreeMap<String, String>,
}

/// Behind `/partitions/<topic id>/<n>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionValue {
    /// −1: none.
    pub leader: i32,
    pub leader_epoch: i32,
    /// The broker epoch (create revision of its registration) with which the leader was chosen: a
    /// broker that registered anew raises the leader epoch before it serves what it still leads. 0: of
    /// no matter, as for the only replica.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leader_registration: i64,
    pub isr: Vec<i32>,
    /// Eligible leader replicas (KIP-966): out of the ISR, but with all that was committed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elr: Vec<i32>,
    /// Who led last, while nobody leads and nobody is eligible (KIP-966).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_leader: Option<i32>,
    pub partition_epoch: i32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// Behind `/brokers/<id>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerValue {
    pub endpoints: Vec<EndpointValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Differs with each start of the broker: tells its own registration from a predecessor's.
    pub incarnation: String,
    /// It wants to stop: its leaderships go elsewhere first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shutting_down: bool,
}

/// Behind `/brokers-meta/<id>`: stays when the registration goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerMetaValue {
    pub endpoints: Vec<EndpointValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Of the last registration.
    pub incarnation: String,
    /// That incarnation stopped with everything on disk (R10).
    #[serde(default)]
    pub stopped_cleanly: bool,
    /// `directory.id` of its log directories: one that is missing later has taken its replicas along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointValue {
    pub listener: String,
    pub host: String,
    pub port: u16,
}

/// Behind `/controller`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerValue {
    pub broker: i32,
}

/// As it is stored.
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    // Only maps with keys that are no strings and failing `Serialize` impls can fail: none is here.
    serde_json::to_vec(value)
        .map(Bytes::from)
        .unwrap_or_default()
}

/// What was stored, or why it cannot be read.
pub fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

mod topic_id {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::types::TopicId;

    pub(super) fn serialize<S: Serializer>(id: &TopicId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TopicId, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        TopicId::parse(&text).ok_or_else(|| D::Error::custom("not a topic id"))
    }
}

mod replica_lists {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::types::BrokerId;

    pub(super) fn serialize<S: Serializer>(
        lists: &[Vec<BrokerId>],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            lists
                .iter()
                .map(|list| list.iter().map(|id| id.0).collect::<Vec<_>>()),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Vec<BrokerId>>, D::Error> {
        let lists = <Vec<Vec<i32>>>::deserialize(from)?;
        Ok(lists
            .into_iter()
            .map(|list| list.into_iter().map(BrokerId).collect())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_they_are_written() {
        let topic = TopicValue {
            id: TopicId([0; 16]),
            replicas: vec![vec![BrokerId(1), BrokerId(2)], vec![BrokerId(2)]],
            configs: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        };
        let json = encode(&topic);
        assert_eq!(
            json,
            r#"{"id":"AAAAAAAAAAAAAAAAAAAAAA","replicas":[[1,2],[2]],"configs":{"a":"b"}}"#
        );
        assert_eq!(decode(&json), Ok(topic));
        assert!(decode::<TopicValue>(b"{\"id\":\"x\",\"replicas\":[]}").is_err());
        assert!(decode::<PartitionValue>(b"\xff").is_err());
    }
}
