//! The codec is the oracle.

use bytes::BytesMut;
use kafka_protocol::messages as codec;
use kafka_protocol::messages::{produce_request, produce_response};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;

use super::*;
use crate::protocol::guard;
use crate::types::TopicId;

const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;

fn text() -> impl Strategy<Value = String> {
    "[a-zé]{0,8}"
}

fn topic_id() -> impl Strategy<Value = [u8; 16]> {
    any::<[u8; 16]>()
}

fn str_bytes(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// The key as a request of this version carries it.
fn key(name: &str, id: [u8; 16], version: i16) -> TopicKey {
    if version >= 13 {
        TopicKey::Id(TopicId(id))
    } else {
        TopicKey::Name(name.into())
    }
}

type Partitions = Vec<(i32, Option<Vec<u8>>)>;

fn partitions() -> impl Strategy<Value = Partitions> {
    let records = proptest::collection::vec(any::<u8>(), 0..300);
    proptest::collection::vec((any::<i32>(), proptest::option::of(records)), 0..4)
}

proptest! {
    #[test]
    fn requests_are_read_as_the_codec_writes_them(
        transactional_id in proptest::option::of(text()),
        acks in any::<i16>(),
        timeout_ms in any::<i32>(),
        topics in proptest::collection::vec((text(), topic_id(), partitions()), 0..4),
        version in VERSIONS,
    ) {
        let topic_data = topics.iter().map(|(name, id, partitions)| {
            let mut topic = produce_request::TopicProduceData::default();
            if version >= 13 {
                topic.topic_id = uuid::Uuid::from_bytes(*id);
            } else {
                topic.name = str_bytes(name).into();
            }
            topic.with_partition_data(partitions.iter().map(|(index, records)| {
                produce_request::PartitionProduceData::default()
                    .with_index(*index)
                    .with_records(records.clone().map(Bytes::from))
            }).collect())
        }).collect();
        let mut body = BytesMut::new();
        codec::ProduceRequest::default()
            .with_transactional_id(transactional_id.as_deref().map(|id| str_bytes(id).into()))
            .with_acks(acks)
            .with_timeout_ms(timeout_ms)
            .with_topic_data(topic_data)
            .encode(&mut body, version)
            .unwrap();
        let body = body.freeze();
        prop_assert!(guard::check(0, version, &body).is_ok());
        let request = ProduceRequest::decode(&body, version).unwrap();
        for partition in request.topics.iter().flat_map(|topic| &topic.partitions) {
            if let Some(records) = &partition.records && !records.is_empty() {
                prop_assert!(body.as_ptr_range().contains(&records.as_ptr()), "a copy");
            }
        }
        let expected = ProduceRequest {
            transactional_id,
            acks,
            timeout_ms,
            topics: topics.into_iter().map(|(name, id, partitions)| ProduceTopic {
                topic: key(&name, id, version),
                partitions: partitions.into_iter().map(|(index, records)| ProducePartition {
                    index,
                    records: records.map(Bytes::from),
                }).collect(),
            }).collect(),
        };
        prop_assert_eq!(request, expected);
        for end in 0..body.len() {
            prop_assert!(ProduceRequest::decode(&body.slice(..end), version).is_err());
        }
    }

    #[test]
    fn arbitrary_bodies_never_panic(
        body in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..100),
        version in VERSIONS,
    ) {
        let body = Bytes::from(body);
        let decoded = ProduceRequest::decode(&body, version);
        // Nothing passes here that the guard would stop.
        prop_assert!(decoded.is_err() || guard::check(0, version, &body).is_ok());
    }

    #[test]
    fn responses_are_written_as_the_codec_writes_them(
        topics in proptest::collection::vec(
            (text(), topic_id(), proptest::collection::vec(partition_response(), 0..3)),
            0..3,
        ),
        throttle_time_ms in any::<i32>(),
        node_endpoints in proptest::collection::vec(endpoint(), 0..3),
        version in VERSIONS,
    ) {
        let response = ProduceResponse {
            topics: topics.iter().map(|(name, id, partitions)| ProduceTopicResponse {
                topic: key(name, *id, version),
                partitions: partitions.clone(),
            }).collect(),
            throttle_time_ms,
            node_endpoints,
        };
        let mut expected = BytesMut::new();
        as_codec(&response, version).encode(&mut expected, version).unwrap();
        prop_assert_eq!(response.encode(version), expected.freeze());
    }
}

fn partition_response() -> impl Strategy<Value = ProducePartitionResponse> {
    let record_error = (any::<i32>(), proptest::option::of(text()));
    (
        any::<i32>(),
        prop_oneof![Just(ErrorCode::None), Just(ErrorCode::InvalidRecord)],
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        proptest::collection::vec(record_error, 0..3),
        proptest::option::of(text()),
        proptest::option::of((0i32..100, any::<i32>())),
    )
        .prop_map(|fields| {
            let (index, error, base_offset, append_time, log_start_offset, ..) = fields;
            let (.., record_errors, error_message, leader) = fields;
            ProducePartitionResponse {
                index,
                error,
                base_offset,
                log_append_time_ms: append_time,
                log_start_offset,
                record_errors,
                error_message,
                current_leader: leader.map(|(leader_id, leader_epoch)| CurrentLeader {
                    leader_id,
                    leader_epoch,
                }),
            }
        })
}

fn endpoint() -> impl Strategy<Value = NodeEndpoint> {
    (
        any::<i32>(),
        text(),
        any::<i32>(),
        proptest::option::of(text()),
    )
        .prop_map(|(node_id, host, port, rack)| NodeEndpoint {
            node_id,
            host,
            port,
            rack,
        })
}

fn as_codec(response: &ProduceResponse, version: i16) -> codec::ProduceResponse {
    let topics = response.topics.iter().map(|topic| {
        let mut answer = produce_response::TopicProduceResponse::default();
        match &topic.topic {
            TopicKey::Name(name) => answer.name = str_bytes(name).into(),
            TopicKey::Id(id) => answer.topic_id = uuid::Uuid::from_bytes(id.0),
        }
        let partitions = topic.partitions.iter();
        answer.with_partition_responses(
            partitions
                .map(|partition| partition_as_codec(partition, version))
                .collect(),
        )
    });
    let mut answer = codec::ProduceResponse::default()
        .with_responses(topics.collect())
        .with_throttle_time_ms(response.throttle_time_ms);
    if version >= 10 {
        for endpoint in &response.node_endpoints {
            answer.node_endpoints.push(
                produce_response::NodeEndpoint::default()
                    .with_node_id(endpoint.node_id.into())
                    .with_host(str_bytes(&endpoint.host))
                    .with_port(endpoint.port)
                    .with_rack(endpoint.rack.as_deref().map(str_bytes)),
            );
        }
    }
    answer
}

fn partition_as_codec(
    partition: &ProducePartitionResponse,
    version: i16,
) -> produce_response::PartitionProduceResponse {
    let mut answer = produce_response::PartitionProduceResponse::default()
        .with_index(partition.index)
        .with_error_code(partition.error.code())
        .with_base_offset(partition.base_offset)
        .with_log_append_time_ms(partition.log_append_time_ms)
        .with_log_start_offset(partition.log_start_offset);
    if version >= 8 {
        answer.error_message = partition.error_message.as_deref().map(str_bytes);
        for (index, message) in &partition.record_errors {
            answer.record_errors.push(
                produce_response::BatchIndexAndErrorMessage::default()
                    .with_batch_index(*index)
                    .with_batch_index_error_message(message.as_deref().map(str_bytes)),
            );
        }
    }
    if version >= 10
        && let Some(leader) = partition.current_leader
    {
        answer.current_leader = produce_response::LeaderIdAndEpoch::default()
            .with_leader_id(leader.leader_id.into())
            .with_leader_epoch(leader.leader_epoch);
    }
    answer
}

/// What librdkafka 2 sends for `kcat -P`: version 7, one topic, acks=all.
#[test]
fn literal_bytes_of_a_request() {
    let body = Bytes::from_static(
        b"\xff\xff\xff\xff\0\0\x75\x30\0\0\0\x01\0\x02ab\0\0\0\x01\0\0\0\x05\0\0\0\x03xyz",
    );
    let request = ProduceRequest::decode(&body, 7).unwrap();
    assert_eq!(
        request,
        ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: 30_000,
            topics: vec![ProduceTopic {
                topic: TopicKey::Name("ab".into()),
                partitions: vec![ProducePartition {
                    index: 5,
                    records: Some(Bytes::from_static(b"xyz")),
                }],
            }],
        }
    );
}

#[test]
fn literal_bytes_of_a_response() {
    let response = ProduceResponse {
        topics: vec![ProduceTopicResponse {
            topic: TopicKey::Name("a".into()),
            partitions: vec![ProducePartitionResponse {
                current_leader: Some(CurrentLeader {
                    leader_id: 2,
                    leader_epoch: 9,
                }),
                ..ProducePartitionResponse::failed(1, ErrorCode::NotLeaderOrFollower)
            }],
        }],
        ..ProduceResponse::default()
    };
    let none = b"\xff\xff\xff\xff\xff\xff\xff\xff";
    let v5 = [
        &b"\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x01\0\x06"[..],
        none,
        none,
        none,
        &[0; 4],
    ];
    assert_eq!(response.encode(5), v5.concat());
    let v10 = [
        &b"\x02\x02a\x02\0\0\0\x01\0\x06"[..],
        none,
        none,
        none,
        // No record errors, no message, the leader, the end of the topic.
        b"\x01\0\x01\0\x09\0\0\0\x02\0\0\0\x09\0\0",
        &[0; 5],
    ];
    assert_eq!(response.encode(10), v10.concat());
}
