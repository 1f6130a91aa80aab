//! The codec is the oracle.

use bytes::BytesMut;
use kafka_protocol::messages as codec;
use kafka_protocol::messages::{fetch_request, fetch_response};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::protocol::guard;

const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;

fn text() -> impl Strategy<Value = String> {
    "[a-zé]{0,8}"
}

fn str_bytes(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

type Named = (String, [u8; 16]);

fn named() -> impl Strategy<Value = Named> {
    (text(), any::<[u8; 16]>())
}

/// The key as this version carries it.
fn key((name, id): &Named, version: i16) -> TopicKey {
    if version >= 13 {
        TopicKey::Id(TopicId(*id))
    } else {
        TopicKey::Name(name.as_str().into())
    }
}

fn name_and_id(key: &TopicKey) -> (codec::TopicName, Uuid) {
    match key {
        TopicKey::Name(name) => (str_bytes(name).into(), Uuid::nil()),
        TopicKey::Id(id) => (codec::TopicName::default(), Uuid::from_bytes(id.0)),
    }
}

fn partition() -> impl Strategy<Value = FetchPartition> {
    (
        any::<[i32; 4]>(),
        any::<[i64; 3]>(),
        any::<[u8; 16]>().prop_map(TopicId),
    )
        .prop_map(|(small, large, replica_directory_id)| FetchPartition {
            partition: small[0],
            current_leader_epoch: small[1],
            fetch_offset: large[0],
            last_fetched_epoch: small[2],
            log_start_offset: large[1],
            max_bytes: small[3],
            replica_directory_id,
            high_watermark: large[2],
        })
}

/// The partition without what the version does not carry.
fn in_version(partition: &FetchPartition, version: i16) -> FetchPartition {
    let mut partition = *partition;
    if version < 5 {
        partition.log_start_offset = -1;
    }
    if version < 9 {
        partition.current_leader_epoch = -1;
    }
    if version < 12 {
        partition.last_fetched_epoch = -1;
    }
    if version < 17 {
        partition.replica_directory_id = TopicId::ZERO;
    }
    if version < 18 {
        partition.high_watermark = i64::MAX;
    }
    partition
}

fn request_as_codec(request: &FetchRequest, version: i16) -> codec::FetchRequest {
    let topics = request.topics.iter().map(|topic| {
        let (name, id) = name_and_id(&topic.topic);
        let partitions = topic.partitions.iter().map(|partition| {
            fetch_request::FetchPartition::default()
                .with_partition(partition.partition)
                .with_current_leader_epoch(partition.current_leader_epoch)
                .with_fetch_offset(partition.fetch_offset)
                .with_last_fetched_epoch(partition.last_fetched_epoch)
                .with_log_start_offset(partition.log_start_offset)
                .with_partition_max_bytes(partition.max_bytes)
                .with_replica_directory_id(Uuid::from_bytes(partition.replica_directory_id.0))
                .with_high_watermark(partition.high_watermark)
        });
        fetch_request::FetchTopic::default()
            .with_topic(name)
            .with_topic_id(id)
            .with_partitions(partitions.collect())
    });
    let forgotten = request.forgotten_topics.iter().map(|topic| {
        let (name, id) = name_and_id(&topic.topic);
        fetch_request::ForgottenTopic::default()
            .with_topic(name)
            .with_topic_id(id)
            .with_partitions(topic.partitions.clone())
    });
    let mut encoded = codec::FetchRequest::default()
        .with_cluster_id(request.cluster_id.as_deref().map(str_bytes))
        .with_max_wait_ms(request.max_wait_ms)
        .with_min_bytes(request.min_bytes)
        .with_max_bytes(request.max_bytes)
        .with_isolation_level(request.isolation_level)
        .with_session_id(request.session_id)
        .with_session_epoch(request.session_epoch)
        .with_topics(topics.collect())
        .with_forgotten_topics_data(forgotten.collect())
        .with_rack_id(str_bytes(&request.rack_id));
    if version <= 14 {
        encoded.replica_id = request.replica_id.into();
    } else {
        encoded.replica_state = fetch_request::ReplicaState::default()
            .with_replica_id(request.replica_id.into())
            .with_replica_epoch(request.replica_epoch);
    }
    encoded
}

fn request() -> impl Strategy<Value = (FetchRequest, i16)> {
    let topics = (named(), proptest::collection::vec(partition(), 0..4));
    let forgotten = (named(), proptest::collection::vec(any::<i32>(), 0..4));
    (
        any::<[i32; 6]>(),
        any::<(i64, i8)>(),
        proptest::option::of(text()),
        proptest::collection::vec(topics, 0..4),
        proptest::collection::vec(forgotten, 0..4),
        text(),
        VERSIONS,
    )
        .prop_map(
            |(numbers, (epoch, isolation_level), cluster_id, topics, forgotten, rack, version)| {
                let request = FetchRequest {
                    replica_id: numbers[0],
                    replica_epoch: if version >= 15 { epoch } else { -1 },
                    cluster_id: cluster_id.filter(|_| version >= 12),
                    max_wait_ms: numbers[1],
                    min_bytes: numbers[2],
                    max_bytes: numbers[3],
                    isolation_level,
                    session_id: if version >= 7 { numbers[4] } else { 0 },
                    session_epoch: if version >= 7 { numbers[5] } else { -1 },
                    topics: topics
                        .iter()
                        .map(|(name, partitions)| FetchTopic {
                            topic: key(name, version),
                            partitions: partitions
                                .iter()
                                .map(|partition| in_version(partition, version))
                                .collect(),
                        })
                        .collect(),
                    forgotten_topics: forgotten
                        .iter()
                        .filter(|_| version >= 7)
                        .map(|(name, partitions)| ForgottenTopic {
                            topic: key(name, version),
                            partitions: partitions.clone(),
                        })
                        .collect(),
                    rack_id: if version >= 11 { rack } else { String::new() },
                };
                (request, version)
            },
        )
}

fn partition_response() -> impl Strategy<Value = FetchPartitionResponse> {
    let aborted = any::<(i64, i64)>().prop_map(|(producer_id, first_offset)| AbortedTransaction {
        producer_id,
        first_offset,
    });
    let chunk = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..10),
        proptest::collection::vec(any::<u8>(), 250..600),
    ];
    (
        any::<(i32, i32)>(),
        any::<[i64; 3]>(),
        prop_oneof![Just(ErrorCode::None), Just(ErrorCode::OffsetOutOfRange)],
        proptest::option::of((0..9i32, any::<i64>())),
        proptest::option::of((0..9i32, any::<i32>())),
        proptest::option::of(proptest::collection::vec(aborted, 0..3)),
        proptest::collection::vec(chunk, 0..3),
    )
        .prop_map(
            |((partition, replica), offsets, error, diverging_epoch, leader, aborted, chunks)| {
                FetchPartitionResponse {
                    partition,
                    error,
                    high_watermark: offsets[0],
                    last_stable_offset: offsets[1],
                    log_start_offset: offsets[2],
                    diverging_epoch,
                    current_leader: leader.map(|(leader_id, leader_epoch)| CurrentLeader {
                        leader_id,
                        leader_epoch,
                    }),
                    aborted_transactions: aborted,
                    preferred_read_replica: replica,
                    records: chunks
                        .into_iter()
                        .map(|bytes| Chunk::Bytes(bytes.into()))
                        .collect(),
                }
            },
        )
}

fn response() -> impl Strategy<Value = (FetchResponse, i16)> {
    let topic = (
        named(),
        proptest::collection::vec(partition_response(), 0..3),
    );
    let endpoint = (any::<(i32, i32)>(), text(), proptest::option::of(text())).prop_map(
        |((node_id, port), host, rack)| NodeEndpoint {
            node_id,
            host,
            port,
            rack,
        },
    );
    (
        any::<(i32, i32)>(),
        prop_oneof![Just(None), Just(Some(ErrorCode::FetchSessionIdNotFound))],
        proptest::collection::vec(topic, 0..3),
        proptest::collection::vec(endpoint, 0..3),
        VERSIONS,
    )
        .prop_map(
            |((throttle_time_ms, session_id), error, topics, node_endpoints, version)| {
                let topics = topics
                    .into_iter()
                    .map(|(name, partitions)| FetchTopicResponse {
                        topic: key(&name, version),
                        partitions,
                    });
                let response = FetchResponse {
                    throttle_time_ms,
                    error,
                    session_id,
                    topics: topics.collect(),
                    node_endpoints,
                };
                (response, version)
            },
        )
}

fn bytes_of(chunks: &[Chunk]) -> Vec<u8> {
    let mut all = Vec::new();
    for chunk in chunks {
        match chunk {
            Chunk::Bytes(bytes) => all.extend_from_slice(bytes),
            Chunk::File { .. } => panic!("no files here"),
        }
    }
    all
}

fn partition_as_codec(
    partition: &FetchPartitionResponse,
    version: i16,
) -> fetch_response::PartitionData {
    let aborted = partition.aborted_transactions.as_ref().map(|transactions| {
        let transactions = transactions.iter().map(|transaction| {
            fetch_response::AbortedTransaction::default()
                .with_producer_id(transaction.producer_id.into())
                .with_first_offset(transaction.first_offset)
        });
        transactions.collect()
    });
    let mut answer = fetch_response::PartitionData::default()
        .with_partition_index(partition.partition)
        .with_error_code(partition.error.code())
        .with_high_watermark(partition.high_watermark)
        .with_last_stable_offset(partition.last_stable_offset)
        .with_log_start_offset(partition.log_start_offset)
        .with_aborted_transactions(aborted)
        .with_records(Some(bytes_of(&partition.records).into()));
    if version >= 11 {
        answer.preferred_read_replica = partition.preferred_read_replica.into();
    }
    if version >= 12 {
        if let Some((epoch, end_offset)) = partition.diverging_epoch {
            answer.diverging_epoch = fetch_response::EpochEndOffset::default()
                .with_epoch(epoch)
                .with_end_offset(end_offset);
        }
        if let Some(leader) = partition.current_leader {
            answer.current_leader = fetch_response::LeaderIdAndEpoch::default()
                .with_leader_id(leader.leader_id.into())
                .with_leader_epoch(leader.leader_epoch);
        }
    }
    answer
}

fn response_as_codec(response: &FetchResponse, version: i16) -> codec::FetchResponse {
    let topics = response.topics.iter().map(|topic| {
        let (name, id) = name_and_id(&topic.topic);
        let partitions = topic.partitions.iter();
        fetch_response::FetchableTopicResponse::default()
            .with_topic(name)
            .with_topic_id(id)
            .with_partitions(
                partitions
                    .map(|partition| partition_as_codec(partition, version))
                    .collect(),
            )
    });
    let mut answer = codec::FetchResponse::default()
        .with_throttle_time_ms(response.throttle_time_ms)
        .with_responses(topics.collect());
    if version >= 7 {
        answer.session_id = response.session_id;
        answer.error_code = response.error.map_or(0, ErrorCode::code);
    }
    if version >= 16 {
        for endpoint in &response.node_endpoints {
            answer.node_endpoints.push(
                fetch_response::NodeEndpoint::default()
                    .with_node_id(endpoint.node_id.into())
                    .with_host(str_bytes(&endpoint.host))
                    .with_port(endpoint.port)
                    .with_rack(endpoint.rack.as_deref().map(str_bytes)),
            );
        }
    }
    answer
}

proptest! {
    #[test]
    fn requests_are_read_as_the_codec_writes_them((request, version) in request()) {
        let mut body = BytesMut::new();
        request_as_codec(&request, version).encode(&mut body, version).unwrap();
        prop_assert!(guard::check(1, version, &body).is_ok());
        prop_assert_eq!(FetchRequest::decode(&body, version).unwrap(), request);
        for end in 0..body.len() {
            prop_assert!(FetchRequest::decode(&body[..end], version).is_err());
        }
    }

    #[test]
    fn arbitrary_bodies_never_panic(
        body in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..100),
        version in VERSIONS,
    ) {
        let decoded = FetchRequest::decode(&body, version);
        prop_assert!(decoded.is_err() || guard::check(1, version, &body).is_ok());
    }

    #[test]
    fn responses_are_written_as_the_codec_writes_them((response, version) in response()) {
        let mut expected = BytesMut::new();
        response_as_codec(&response, version).encode(&mut expected, version).unwrap();
        prop_assert_eq!(bytes_of(&response.encode(version)), expected.to_vec());
    }
}

#[test]
fn records_are_placed_by_reference() {
    let large = Bytes::from(vec![7; COPIED_BYTES_MAX + 1]);
    let file = Chunk::File {
        file: std::sync::Arc::new(tempfile::tempfile().unwrap()),
        position: 5,
        bytes: 300,
        unreadable: std::sync::Arc::default(),
    };
    let mut partition = FetchPartitionResponse::failed(0, ErrorCode::None);
    partition.records = vec![
        Chunk::Bytes(large.clone()),
        Chunk::Bytes(Bytes::from_static(b"small")),
        file,
    ];
    let response = FetchResponse {
        topics: vec![FetchTopicResponse {
            topic: TopicKey::Name("a".into()),
            partitions: vec![partition],
        }],
        ..FetchResponse::default()
    };
    let chunks = response.encode(4);
    let [
        Chunk::Bytes(head),
        Chunk::Bytes(records),
        Chunk::Bytes(small),
        Chunk::File { position: 5, .. },
    ] = &chunks[..]
    else {
        panic!("{chunks:?}")
    };
    assert_eq!(records.as_ptr(), large.as_ptr());
    assert_eq!(&small[..], b"small");
    // The length counts all three.
    assert_eq!(head[head.len() - 4..], (257u32 + 5 + 300).to_be_bytes());
}

/// An empty partition has records of no bytes, never null: librdkafka 1 and others die on null.
#[test]
fn no_records_are_not_null() {
    let response = || FetchResponse {
        topics: vec![FetchTopicResponse {
            topic: TopicKey::Name("a".into()),
            partitions: vec![FetchPartitionResponse::failed(
                1,
                ErrorCode::OffsetOutOfRange,
            )],
        }],
        ..FetchResponse::default()
    };
    let none = b"\xff\xff\xff\xff\xff\xff\xff\xff";
    let v4 = [
        &b"\0\0\0\0\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x01\0\x01"[..],
        none,
        none,
        b"\xff\xff\xff\xff\0\0\0\0",
    ];
    assert_eq!(bytes_of(&response().encode(4)), v4.concat());
    let v12 = [
        &b"\0\0\0\0\0\0\0\0\0\0\x02\x02a\x02\0\0\0\x01\0\x01"[..],
        none,
        none,
        none,
        // Null transactions, no other replica, no records; three empty lists of tags.
        b"\0\xff\xff\xff\xff\x01\0\0\0",
    ];
    assert_eq!(bytes_of(&response().encode(12)), v12.concat());
}

/// What kafka-clients 4 sends first in a new session: version 17 by topic id.
#[test]
fn literal_bytes_of_a_request() {
    let body = [
        &b"\0\0\x01\xf4\0\0\0\x01\x03\x20\0\0\0\0\0\0\0\0\0\0\0\x02"[..],
        &[9; 16],
        b"\x02\0\0\0\x03\0\0\0\x05\0\0\0\0\0\0\0\x07\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\0\x10\0\0\0\0\x01\x01\0",
    ];
    let request = FetchRequest::decode(&body.concat(), 17).unwrap();
    let expected = FetchRequest {
        replica_id: -1,
        replica_epoch: -1,
        cluster_id: None,
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        isolation_level: 0,
        session_id: 0,
        session_epoch: 0,
        topics: vec![FetchTopic {
            topic: TopicKey::Id(TopicId([9; 16])),
            partitions: vec![FetchPartition {
                partition: 3,
                current_leader_epoch: 5,
                fetch_offset: 7,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                max_bytes: 1 << 20,
                replica_directory_id: TopicId::ZERO,
                high_watermark: i64::MAX,
            }],
        }],
        forgotten_topics: Vec::new(),
        rack_id: String::new(),
    };
    assert_eq!(request, expected);
}
