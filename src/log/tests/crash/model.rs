//! What a broker may believe of its logs: what was appended, what was reported as flushed.

use std::collections::BTreeMap;

use crate::log::producer_state::SequenceCheck;
use crate::log::tests::support::bytes_of;
use crate::log::{Log, TimestampOffset};
use crate::record::BatchHeader;
use crate::types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId, TopicPartition,
};

use super::random::Random;

/// Batches of a producer whose repetition is recognised.
const BATCHES_RETAINED: usize = 5;

/// One batch, as it must be found.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// With offset and epoch.
    pub header: BatchHeader,
    /// Header and payload.
    pub stored: bytes::Bytes,
    /// Of each record.
    pub timestamps: Vec<TimestampMs>,
}

impl Batch {
    fn base(&self) -> Offset {
        self.header.base_offset
    }

    fn last(&self) -> Offset {
        self.header.last_offset()
    }
}

/// One partition of one topic id.
#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub partition: TopicPartition,
    pub id: TopicId,
    pub epoch: LeaderEpoch,
    pub batches: Vec<Batch>,
    /// Are being appended: the first of them may be there.
    pub in_flight: Vec<Batch>,
    /// All below is on disk: so it was said.
    pub flushed: Offset,
    /// What the log that is open now says of it: after a crash it may not know of all that is on disk.
    pub reported: Offset,
    /// Where the log began when somebody could see it.
    pub log_start: Offset,
    /// Where it may begin if the deletion that runs has got so far.
    pub log_start_max: Offset,
    /// Where it ends without a batch.
    pub empty_end: Offset,
    /// It is being emptied, and will begin there.
    pub begins_anew: Option<Offset>,
    /// `flush.messages=1`: nobody sees what is not flushed.
    pub waits_for_disk: bool,
}

/// All partitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub topics: Vec<Topic>,
    /// Flushes of a deleted log are none of the new one's.
    pub deaf: bool,
    /// The directory went offline: from now on nothing may be reported.
    pub failed: bool,
    /// Something may fail: on a full disk a start that moves is durable only when that is said.
    pub foul: bool,
}

impl Topic {
    pub(super) fn new(partition: TopicPartition, id: TopicId) -> Self {
        Self {
            partition,
            id,
            epoch: 0,
            batches: Vec::new(),
            in_flight: Vec::new(),
            flushed: 0,
            reported: 0,
            log_start: 0,
            log_start_max: 0,
            empty_end: 0,
            begins_anew: None,
            waits_for_disk: true,
        }
    }

    pub(super) fn end(&self) -> Offset {
        let end = |batch: &Batch| batch.last() + 1;
        self.batches.last().map_or(self.empty_end, end)
    }

    /// Where it ends once the batch that holds `offset` is gone, and all behind it.
    pub(super) fn end_if_cut_at(&self, offset: Offset) -> Offset {
        let first = self.batches.iter().find(|batch| batch.last() >= offset);
        first.map_or(self.end(), Batch::base)
    }

    /// All of it is gone.
    pub(super) fn begin_anew(&mut self, start: Offset) {
        self.batches.clear();
        self.empty_end = start;
        self.flushed = start;
        self.reported = start;
        self.log_start = start;
        self.log_start_max = start;
    }

    /// What the next batch of a producer must be: its epoch and sequence.
    pub(super) fn next_sequence(&self, producer: ProducerId) -> (ProducerEpoch, i32) {
        let known = self.producers();
        known.get(&producer).map_or((0, 0), |(epoch, batches)| {
            let last = batches.last().expect("a producer is known by its batches");
            (*epoch, last.last_sequence() + 1)
        })
    }

    /// Epoch and last batches of each producer.
    fn producers(&self) -> BTreeMap<ProducerId, (ProducerEpoch, Vec<BatchHeader>)> {
        let mut producers = BTreeMap::new();
        for batch in self.batches.iter().filter(|b| b.header.producer_id >= 0) {
            let header = batch.header;
            let (epoch, batches) = producers
                .entry(header.producer_id)
                .or_insert_with(|| (header.producer_epoch, Vec::new()));
            if *epoch != header.producer_epoch {
                *epoch = header.producer_epoch;
                batches.clear();
            }
            batches.push(header);
            if batches.len() > BATCHES_RETAINED {
                batches.remove(0);
            }
        }
        producers
    }

    /// What is cut off is promised no more.
    pub(super) fn promised_only(&mut self, end: Offset) {
        self.reported = self.reported.min(end);
        self.flushed = self.flushed.min(end);
    }

    pub(super) fn flush_reported(&mut self, offset: Offset) {
        self.reported = self.reported.max(offset);
        self.flushed = self.flushed.max(offset);
    }

    /// Takes over what a log that was opened has: of what was not reported as flushed the end may be
    /// gone, and what was being appended may be there.
    pub(super) fn reconcile(&mut self, log: &Log) {
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        if let Some(new_start) = self.begins_anew.take()
            && start == end
            && end <= self.end().max(new_start)
        {
            // It is empty, at its old place or its new one. Whether the producers are there still tells
            // how far it had got.
            self.in_flight.clear();
            let mut before = std::mem::take(&mut self.batches);
            before.retain(|batch| batch.last() < end);
            self.begin_anew(start);
            if !log.producers().is_empty() {
                self.batches = before;
            }
        }
        let partition = &self.partition;
        assert!(
            end >= self.flushed,
            "{partition}: flushed to {}, recovered to {end}",
            self.flushed
        );
        assert!(
            (self.log_start..=self.log_start_max).contains(&start),
            "{partition}: begins at {start}, not in {}..={}",
            self.log_start,
            self.log_start_max
        );
        self.batches.append(&mut self.in_flight);
        self.batches.retain(|batch| batch.last() < end);
        assert_eq!(
            self.end(),
            end,
            "{partition}: ends inside a batch or nowhere"
        );
        let reported = log.flushed_offset();
        assert!(
            reported <= end,
            "{partition}: more is on disk than there is"
        );
        self.reported = reported;
        self.flushed = self.flushed.max(reported);
        self.log_start = start;
        self.log_start_max = start;
    }

    /// Compares a log with all that is known. `random` chooses where to look closely.
    pub(super) fn check(&self, log: &Log, random: &mut Random) {
        assert_eq!(log.log_end_offset(), self.end(), "{}", self.partition);
        assert_eq!(log.log_start_offset(), self.log_start, "{}", self.partition);
        assert!(log.flushed_offset() >= self.reported);
        self.check_batches(log, random);
        self.check_epochs(log);
        self.check_producers(log);
        self.check_times(log, random);
    }

    fn kept(&self) -> &[Batch] {
        let from = self
            .batches
            .partition_point(|batch| batch.last() < self.log_start);
        &self.batches[from..]
    }

    fn check_batches(&self, log: &Log, random: &mut Random) {
        let mut next = self.log_start;
        let mut rest = self.kept();
        while next < self.end() {
            let bytes_max = 1 + random.below(900);
            let read = log.read(next, bytes_max, Offset::MAX, true).unwrap();
            let mut found = &bytes_of(&read)[..];
            assert!(!found.is_empty(), "{}: nothing at {next}", self.partition);
            while !found.is_empty() {
                let expected = rest.first().expect("more than was appended");
                let stored = &expected.stored[..];
                assert!(
                    found.starts_with(stored),
                    "{}: other bytes at {}: {:?} instead of {:?}",
                    self.partition,
                    expected.base(),
                    BatchHeader::parse(found),
                    expected.header,
                );
                found = &found[stored.len()..];
                next = expected.last() + 1;
                rest = &rest[1..];
            }
            assert_eq!(
                read.more,
                next < self.end(),
                "{}: more at {next}",
                self.partition
            );
        }
        assert!(rest.is_empty());
        for _ in 0..3 {
            let Some(batch) = pick(self.kept(), random) else {
                return;
            };
            let offset = batch.base() + random.below(batch.timestamps.len()) as i64;
            let offset = offset.max(self.log_start);
            let read = log.read(offset, 1, Offset::MAX, true).unwrap();
            assert_eq!(bytes_of(&read), batch.stored, "the batch at {offset}");
        }
    }

    fn check_epochs(&self, log: &Log) {
        let kept = self.kept();
        let Some(last) = kept.last() else {
            return;
        };
        assert_eq!(
            log.latest_epoch(),
            Some(last.header.partition_leader_epoch),
            "{}: the latest epoch",
            self.partition
        );
        let mut starts: Vec<(LeaderEpoch, Offset)> = Vec::new();
        for batch in kept {
            let epoch = batch.header.partition_leader_epoch;
            let first = batch.base().max(self.log_start);
            if starts.last().is_none_or(|(last, _)| *last != epoch) {
                starts.push((epoch, first));
            }
            assert_eq!(log.epoch_for_offset(first), Some(epoch), "of {first}");
            assert_eq!(log.epoch_for_offset(batch.last()), Some(epoch));
        }
        for (number, (epoch, _)) in starts.iter().enumerate() {
            let end = starts
                .get(number + 1)
                .map_or(self.end(), |(_, start)| *start);
            assert_eq!(
                log.end_offset_for_epoch(*epoch),
                Some((*epoch, end)),
                "{}: where epoch {epoch} ends",
                self.partition
            );
        }
    }

    fn check_producers(&self, log: &Log) {
        let expected = self.producers();
        let views = log.producers();
        let found: Vec<_> = views
            .iter()
            .map(|view| (view.producer_id, view.producer_epoch, view.last_sequence))
            .collect();
        let last = |(id, (epoch, batches)): (&ProducerId, &(ProducerEpoch, Vec<BatchHeader>))| {
            (*id, *epoch, batches.last().unwrap().last_sequence())
        };
        let wanted: Vec<_> = expected.iter().map(last).collect();
        assert_eq!(found, wanted, "{}: id, epoch, sequence", self.partition);
        for (id, (epoch, batches)) in &expected {
            for header in batches.iter().filter(|h| h.base_offset >= self.log_start) {
                let check = log.with_producers(|p| p.check(header, 0, &self.partition));
                let same = SequenceCheck::Duplicate {
                    base_offset: header.base_offset,
                    last_offset: header.last_offset(),
                    timestamp: header.max_timestamp,
                };
                assert_eq!(
                    check.unwrap(),
                    Ok(same),
                    "{}: of producer {id}",
                    self.partition
                );
            }
            let last = batches.last().unwrap();
            for (sequence, in_order) in [(1, true), (2, false)] {
                let next = BatchHeader {
                    producer_epoch: *epoch,
                    base_sequence: last.last_sequence() + sequence,
                    ..*last
                };
                let check = log.with_producers(|p| p.check(&next, 0, &self.partition));
                assert_eq!(check.unwrap().is_ok(), in_order, "{}: {id}", self.partition);
            }
        }
    }

    fn check_times(&self, log: &Log, random: &mut Random) {
        let records = || {
            self.kept().iter().flat_map(|batch| {
                let times = batch.timestamps.iter().enumerate();
                times.map(|(number, &timestamp)| TimestampOffset {
                    timestamp,
                    offset: batch.base() + number as i64,
                    leader_epoch: batch.header.partition_leader_epoch,
                })
            })
        };
        let kept = || records().filter(|record| record.offset >= self.log_start);
        let largest = kept().map(|record| record.timestamp).max();
        let expected = kept().find(|record| Some(record.timestamp) == largest);
        let found = log.offset_of_max_timestamp().unwrap();
        assert_eq!(found, expected, "{}: the largest timestamp", self.partition);
        for _ in 0..2 {
            let Some(batch) = pick(self.kept(), random) else {
                return;
            };
            let timestamp = batch.header.max_timestamp + random.below(3) as i64 - 1;
            let expected = kept().find(|record| record.timestamp >= timestamp);
            let found = log.offset_for_timestamp(timestamp, Offset::MAX).unwrap();
            assert_eq!(found, expected, "{}: from {timestamp} on", self.partition);
        }
    }
}

fn pick<'a, T>(items: &'a [T], random: &mut Random) -> Option<&'a T> {
    match items.len() {
        0 => None,
        count => items.get(random.below(count)),
    }
}
