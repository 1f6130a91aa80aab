//! What a clean stop leaves for the next start, so that it opens no partition. Pure.
//!
//! ```text
//! 0
//! <crc32c of all lines below, hexadecimal>
//! <topic> <partition> <topic id> <log start> <log end> <segments base:bytes:timestamp,…> <epochs epoch:start,…>
//! ```
//!
//! The timestamp of a segment is its largest, left out where it was not known at the stop.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::checkpoint::TopicNames;
use super::leader_epochs::LeaderEpochs;
use crate::types::{Offset, TimestampMs, TopicId, TopicPartition};

const VERSION: &str = "0";

/// One partition at the moment of the stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManifestEntry {
    pub topic_id: TopicId,
    pub log_start: Offset,
    pub log_end: Offset,
    pub segments: Vec<SegmentEntry>,
    pub epochs: LeaderEpochs,
}

/// One segment at the moment of the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentEntry {
    pub base_offset: Offset,
    pub bytes: u64,
    /// What retention by time goes by, if it is known.
    pub largest_timestamp: Option<TimestampMs>,
}

/// All partitions of one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    entries: BTreeMap<TopicPartition, ManifestEntry>,
}

impl Manifest {
    pub(super) fn insert(&mut self, partition: TopicPartition, entry: ManifestEntry) {
        self.entries.insert(partition, entry);
    }

    pub(super) fn remove(&mut self, partition: &TopicPartition) -> Option<ManifestEntry> {
        self.entries.remove(partition)
    }

    pub(super) fn get(&self, partition: &TopicPartition) -> Option<&ManifestEntry> {
        self.entries.get(partition)
    }

    /// Up to `count` entries behind the partition `after`.
    pub(super) fn some_after(
        &self,
        after: Option<&TopicPartition>,
        count: usize,
    ) -> Vec<(TopicPartition, ManifestEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range((from, Bound::Unbounded));
        let entries = entries.take(count);
        entries.map(|(a, b)| (a.clone(), b.clone())).collect()
    }

    pub(super) fn to_text(&self) -> String {
        let mut lines = String::new();
        for (partition, entry) in &self.entries {
            let segments = list(entry.segments.iter().map(|segment| {
                let timestamp = segment.largest_timestamp;
                let timestamp = timestamp.map_or_else(String::new, |time| format!(":{time}"));
                format!("{}:{}{timestamp}", segment.base_offset, segment.bytes)
            }));
            let epochs = entry.epochs.entries().iter();
            let epochs = list(epochs.map(|(epoch, start)| format!("{epoch}:{start}")));
            lines.push_str(&format!(
                "{} {} {} {} {} {segments} {epochs}\n",
                partition.topic,
                partition.partition,
                entry.topic_id,
                entry.log_start,
                entry.log_end,
            ));
        }
        let crc = crc_fast::crc32_iscsi(lines.as_bytes());
        format!("{VERSION}\n{crc:08x}\n{lines}")
    }

    /// `None` if it is damaged.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (version, rest) = text.split_once('\n')?;
        let (crc, lines) = rest.split_once('\n')?;
        if version != VERSION
            || u32::from_str_radix(crc, 16).ok()? != crc_fast::crc32_iscsi(lines.as_bytes())
        {
            return None;
        }
        let mut names = TopicNames::default();
        let parsed = lines.lines().map(|line| parse_line(line, &mut names));
        let entries = parsed.collect::<Option<_>>()?;
        Some(Self { entries })
    }
}

fn parse_line(line: &str, names: &mut TopicNames) -> Option<(TopicPartition, ManifestEntry)> {
    let mut words = line.split(' ');
    let mut word = || words.next();
    let (topic, partition, topic_id) = (word()?, word()?, word()?);
    let (log_start, log_end) = (word()?, word()?);
    let (segments, epochs) = (word()?, word()?);
    if word().is_some() {
        return None;
    }
    let mut cache = LeaderEpochs::default();
    for epoch in elements(epochs) {
        let (epoch, start) = epoch.split_once(':')?;
        cache.assign(epoch.parse().ok()?, start.parse().ok()?);
    }
    let entry = ManifestEntry {
        topic_id: TopicId::parse(topic_id)?,
        log_start: log_start.parse().ok()?,
        log_end: log_end.parse().ok()?,
        segments: elements(segments)
            .map(parse_segment)
            .collect::<Option<_>>()?,
        epochs: cache,
    };
    let partition = TopicPartition::new(names.of(topic), partition.parse().ok()?);
    Some((partition, entry))
}

fn parse_segment(text: &str) -> Option<SegmentEntry> {
    let (base_offset, rest) = text.split_once(':')?;
    let (bytes, timestamp) = match rest.split_once(':') {
        Some((bytes, timestamp)) => (bytes, Some(timestamp.parse().ok()?)),
        None => (rest, None),
    };
    Some(SegmentEntry {
        base_offset: base_offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
        largest_timestamp: timestamp,
    })
}

fn list(elements: impl Iterator<Item = String>) -> String {
    let list = elements.collect::<Vec<_>>().join(",");
    match list.is_empty() {
        true => "-".to_owned(),
        false => list,
    }
}

fn elements(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(move |_| list != "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        let mut epochs = LeaderEpochs::default();
        epochs.assign(0, 0);
        epochs.assign(4, 70);
        let mut manifest = Manifest::default();
        manifest.insert(
            TopicPartition::new("a-b", 3),
            ManifestEntry {
                topic_id: TopicId(*b"0123456789abcdef"),
                log_start: 5,
                log_end: 90,
                segments: vec![
                    SegmentEntry {
                        base_offset: 0,
                        bytes: 100,
                        largest_timestamp: Some(1_700_000_000_000),
                    },
                    SegmentEntry {
                        base_offset: 50,
                        bytes: 2_000,
                        largest_timestamp: None,
                    },
                ],
                epochs,
            },
        );
        manifest.insert(
            TopicPartition::new("z", 0),
            ManifestEntry {
                topic_id: TopicId::ZERO,
                log_start: 0,
                log_end: 0,
                segments: Vec::new(),
                epochs: LeaderEpochs::default(),
            },
        );
        let text = manifest.to_text();
        assert_eq!(Manifest::from_text(&text), Some(manifest.clone()));
        let names = |after: Option<&TopicPartition>, count| -> Vec<String> {
            let some = manifest.some_after(after, count);
            some.iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(None, 1), ["a-b-3"]);
        assert_eq!(names(Some(&TopicPartition::new("a-b", 3)), 9), ["z-0"]);
        assert_eq!(names(Some(&TopicPartition::new("z", 0)), 9), [""; 0]);
        for index in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[index] ^= 1;
            let damaged = String::from_utf8_lossy(&damaged).into_owned();
            assert_eq!(Manifest::from_text(&damaged), None, "byte {index}");
        }
        assert_eq!(Manifest::from_text(""), None);
    }
}
