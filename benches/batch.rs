//! What a batch costs on its way in and out: validation, decoding a Produce body, putting a Fetch
//! response together.

use std::hint::black_box;

use bytes::{BufMut, Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ottla::config::TopicConfig;
use ottla::protocol::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
use ottla::protocol::produce::ProduceRequest;
use ottla::protocol::{Chunk, TopicKey};
use ottla::record::{BatchBuilder, ValidationRules, validate};
use ottla::types::{Compression, ErrorCode, TopicPartition};

const NOW_MS: i64 = 1_700_000_000_000;

/// `count` records with values of `bytes` bytes that compress somewhat.
fn batch(count: usize, bytes: usize, compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new().compression(compression);
    let value: Vec<u8> = (0..bytes)
        .map(|index| (index * index / 7 % 64) as u8)
        .collect();
    for _ in 0..count {
        builder.push(NOW_MS, None, Some(&value));
    }
    builder.build()
}

fn validation(criterion: &mut Criterion) {
    let topic = TopicConfig {
        max_message_bytes: 4 << 20,
        ..TopicConfig::default()
    };
    let rules = ValidationRules {
        partition: &TopicPartition::new("t", 0),
        topic: &topic,
        now_ms: NOW_MS,
        produce_version: 9,
        internal: false,
    };
    let mut group = criterion.benchmark_group("validate");
    for (count, bytes) in [(1, 100), (150, 100), (10_000, 100), (1000, 1024)] {
        let records = batch(count, bytes, Compression::None);
        group.throughput(Throughput::Bytes(records.len() as u64));
        group.bench_function(format!("{count} records of {bytes} B"), |bencher| {
            bencher.iter(|| validate(black_box(&records), &rules).is_ok());
        });
    }
    for compression in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let records = batch(1000, 1024, compression);
        group.throughput(Throughput::Bytes(1000 * 1024));
        group.bench_function(
            format!("1000 records of 1024 B, {compression:?}"),
            |bencher| {
                bencher.iter(|| validate(black_box(&records), &rules).is_ok());
            },
        );
    }
    group.finish();
}

fn produce(criterion: &mut Criterion) {
    let records = batch(150, 100, Compression::None);
    let mut body = BytesMut::new();
    body.put_slice(b"\xff\xff\xff\xff\0\0\x75\x30\0\0\0\x01\0\x05topic\0\0\0\x64");
    for partition in 0..100 {
        body.put_i32(partition);
        body.put_u32(records.len() as u32);
        body.put_slice(&records);
    }
    let body = body.freeze();
    criterion.bench_function("decode produce of 100 partitions", |bencher| {
        bencher.iter(|| ProduceRequest::decode(black_box(&body), 7).is_ok());
    });
}

fn fetch(criterion: &mut Criterion) {
    let records = batch(150, 100, Compression::None);
    criterion.bench_function("encode fetch of 100 partitions", |bencher| {
        bencher.iter(|| {
            let partitions = (0..100).map(|partition| FetchPartitionResponse {
                records: vec![Chunk::Bytes(records.clone())],
                ..FetchPartitionResponse::failed(partition, ErrorCode::None)
            });
            let response = FetchResponse {
                topics: vec![FetchTopicResponse {
                    topic: TopicKey::Name("topic".into()),
                    partitions: partitions.collect(),
                }],
                ..FetchResponse::default()
            };
            black_box(response.encode(12)).len()
        });
    });
}

criterion_group!(benches, validation, produce, fetch);
criterion_main!(benches);
