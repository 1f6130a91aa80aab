//! From the log of a partition of `__consumer_offsets` to its shard. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::group::Shard;
use super::record::GroupRecord;
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, Record, Records, decompress};
use crate::types::{Compression, Offset, ProducerId};

/// What the records of one batch may decompress to: far more than any batch that a coordinator wrote.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Applies batches to a shard, in order.
#[derive(Debug)]
pub(super) struct Loader {
    shard: Shard,
    /// The next offset to read.
    next_offset: Offset,
    /// Offsets committed in transactions that have not ended yet.
    undecided: BTreeMap<ProducerId, Vec<GroupRecord>>,
    /// Records that could not be read, and are passed over.
    pub(super) malformed: usize,
    pub(super) records: usize,
}

impl Loader {
    pub(super) fn new(shard: Shard, start: Offset) -> Self {
        Self {
            shard,
            next_offset: start,
            undecided: BTreeMap::new(),
            malformed: 0,
            records: 0,
        }
    }

    pub(super) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Whoever is done with the log takes the shard.
    pub(super) fn finish(self) -> Shard {
        self.shard
    }

    /// Applies whole batches; returns whether there were any.
    pub(super) fn apply(&mut self, mut batches: Bytes) -> bool {
        let mut any = false;
        while let Ok(header) = BatchHeader::parse(&batches) {
            let total = header.total_bytes();
            if total > batches.len() || total < BATCH_HEADER_BYTES {
                break;
            }
            let batch = batches.split_to(total);
            if header.last_offset() >= self.next_offset {
                self.apply_batch(&header, &batch.slice(BATCH_HEADER_BYTES..));
                self.next_offset = header.last_offset() + 1;
            }
            any = true;
        }
        any
    }

    fn apply_batch(&mut self, header: &BatchHeader, payload: &Bytes) {
        let compression = header.compression().unwrap_or(Compression::None);
        let Ok(payload) = decompress(compression, payload, DECOMPRESSED_BYTES_MAX) else {
            self.malformed += usize::try_from(header.record_count).unwrap_or(0);
            return;
        };
        for record in Records::new(&payload, header.record_count) {
            let Ok(record) = record else {
                self.malformed += 1;
                return;
            };
            let offset = header.base_offset + i64::from(record.offset_delta);
            if offset < self.next_offset {
                continue;
            }
            if header.is_control() {
                self.end_transaction(header.producer_id, &record);
            } else {
                self.apply_record(header, &record);
            }
        }
    }

    fn apply_record(&mut self, header: &BatchHeader, record: &Record<'_>) {
        self.records += 1;
        match GroupRecord::decode(record.key.unwrap_or(&[]), record.value) {
            Ok(Some(decoded)) if header.is_transactional() => {
                let pending = self.undecided.entry(header.producer_id).or_default();
                pending.push(decoded);
            }
            Ok(Some(decoded)) => self.shard.apply(&decoded),
            Ok(None) => {}
            Err(_) => self.malformed += 1,
        }
    }

    /// The marker's key is a version and a type: 0 aborts, 1 commits.
    fn end_transaction(&mut self, producer: ProducerId, marker: &Record<'_>) {
        let Some(pending) = self.undecided.remove(&producer) else {
            return;
        };
        if marker.key.and_then(|key| key.get(2..4)) == Some(&[0, 1]) {
            for record in &pending {
                self.shard.apply(record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::coordinator::group::{GroupConfig, Now, Reply, Request, Token};
    use crate::record::BatchBuilder;
    use crate::time::{Clock, ManualClock};

    /// A segment that Apache Kafka 4.4.0 wrote: offsets in versions 4 and 1, a stable group with a
    /// static member, an offset of that member.
    const KAFKA: &[u8] = include_bytes!("tests/kafka-4.4.log");

    fn loader() -> Loader {
        let config = GroupConfig {
            initial_rebalance_delay_ms: 0,
            size_max: 10,
            offset_metadata_max: 10,
            offsets_retention_ms: 1,
            offsets_retention_check_interval_ms: 1,
            batch_bytes_max: 1_000_000,
        };
        Loader::new(Shard::new(Arc::new(config)), 0)
    }

    fn ask(loader: Loader, request: Request) -> Reply {
        let now = Now {
            instant: ManualClock::new(0).now() + Duration::from_secs(1),
            wall_ms: 0,
        };
        let mut outcome = loader.finish().decide(now, Token(1), request);
        outcome.replies.remove(0).1
    }

    fn offset_of_t(loader: Loader) -> Option<i64> {
        let request = Request::FetchOffsets(crate::coordinator::FetchRequest {
            group: "fix".into(),
            topics: None,
        });
        match ask(loader, request) {
            Reply::FetchOffsets(topics) => {
                let (_, partitions) = topics.first()?;
                Some(partitions[0].1.as_ref()?.offset)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_kafka_wrote_is_loaded() {
        let mut all = loader();
        assert!(all.apply(Bytes::from_static(KAFKA)));
        assert_eq!((all.next_offset(), all.records, all.malformed), (4, 4, 0));
        assert_eq!(offset_of_t(all), Some(9));
        let mut all = loader();
        all.apply(Bytes::from_static(KAFKA));
        let Reply::DescribeGroups(groups) = ask(all, Request::DescribeGroups(vec!["fix".into()]))
        else {
            panic!()
        };
        let group = groups[0].1.as_ref().unwrap();
        assert_eq!(
            (group.state, &*group.protocol_type, &*group.protocol),
            ("Stable", "consumer", "range")
        );
        assert_eq!(&*group.members[0].client_host, "/127.0.0.1");
        assert_eq!(&group.members[0].assignment[..], b"mine");
    }

    #[test]
    fn what_kafka_wrote_is_what_we_would_write() {
        let mut batches = Bytes::from_static(KAFKA);
        let mut compared = 0;
        while let Ok(header) = BatchHeader::parse(&batches) {
            let batch = batches.split_to(header.total_bytes());
            for record in Records::new(&batch[BATCH_HEADER_BYTES..], header.record_count) {
                let record = record.unwrap();
                let key = record.key.unwrap();
                let decoded = GroupRecord::decode(key, record.value).unwrap().unwrap();
                assert_eq!(&decoded.encode_key()[..], key);
                assert_eq!(decoded.encode_value().as_deref(), record.value);
                let size = key.len() + record.value.map_or(0, <[u8]>::len);
                assert!(decoded.bytes_max() >= size + 20);
                compared += 1;
            }
        }
        assert_eq!(compared, 4);
    }

    #[test]
    fn a_cut_off_batch_ends_the_load_and_what_was_loaded_is_not_loaded_twice() {
        let mut some = loader();
        assert!(some.apply(Bytes::from_static(&KAFKA[..KAFKA.len() - 1])));
        assert_eq!(some.next_offset(), 3);
        assert!(some.apply(Bytes::from_static(KAFKA)));
        assert_eq!((some.next_offset(), some.records), (4, 4));
        assert!(!some.apply(Bytes::from_static(b"")));
    }

    fn transactional(offset: i64) -> Bytes {
        let record = GroupRecord::Offset {
            group: "fix".into(),
            topic: "t".into(),
            partition: 0,
            value: Some(crate::coordinator::CommittedOffset {
                offset,
                leader_epoch: -1,
                metadata: "".into(),
                commit_timestamp: 1,
                expire_timestamp: None,
                topic_id: crate::types::TopicId::ZERO,
            }),
        };
        let mut batch = BatchBuilder::new().producer(7, 0, 0).transactional();
        batch.push(
            1,
            Some(&record.encode_key()),
            record.encode_value().as_deref(),
        );
        batch.build()
    }

    fn marker(kind: u8) -> Bytes {
        let mut batch = BatchBuilder::new()
            .producer(7, 0, -1)
            .transactional()
            .control();
        batch.push(1, Some(&[0, 0, 0, kind]), Some(&[0, 0, 0, 0, 0, 0]));
        batch.build()
    }

    /// Sets the base offset, which the checksum does not cover.
    fn at(offset: i64, batch: &Bytes) -> Bytes {
        let mut bytes = batch.to_vec();
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        bytes.into()
    }

    #[test]
    fn transactional_offsets_count_once_their_transaction_is_committed() {
        for (kind, expected) in [(1, Some(5)), (0, None)] {
            let mut one = loader();
            one.apply(at(0, &transactional(5)));
            one.apply(at(1, &marker(kind)));
            assert_eq!(offset_of_t(one), expected);
        }
        let mut undecided = loader();
        undecided.apply(transactional(5));
        assert_eq!(offset_of_t(undecided), None);
    }
}
