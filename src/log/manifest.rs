//! What a clean stop leaves for the next start, so that it opens no partition. Pure.
//!
//! ```text
//! 0
//! <crc32c of all lines below, hexadecimal>
//! <topic> <partition> <topic id> <log start> <log end> <segments base:bytes,…> <epochs epoch:start,…>
//! ```

use std::collections::BTreeMap;

use super::leader_epochs::LeaderEpochs;
use crate::types::{Offset, TopicId, TopicPartition};

const VERSION: &str = "0";

/// One partition at the moment of the stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManifestEntry {
    pub topic_id: TopicId,
    pub log_start: Offset,
    pub log_end: Offset,
    /// Base offset and bytes of each segment.
    pub segments: Vec<(Offset, u64)>,
    pub epochs: LeaderEpochs,
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

    pub(super) fn to_text(&self) -> String {
        let mut lines = String::new();
        for (partition, entry) in &self.entries {
            let pairs = |pairs: &mut dyn Iterator<Item = (i64, u64)>| {
                let texts: Vec<String> = pairs.map(|(a, b)| format!("{a}:{b}")).collect();
                match texts.is_empty() {
                    true => "-".to_owned(),
                    false => texts.join(","),
                }
            };
            let segments = pairs(&mut entry.segments.iter().copied());
            let epochs = entry.epochs.entries().iter();
            let epochs =
                pairs(&mut epochs.map(|&(epoch, start)| (epoch.into(), start.unsigned_abs())));
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
        let entries = lines.lines().map(parse_line).collect::<Option<_>>()?;
        Some(Self { entries })
    }
}

fn parse_line(line: &str) -> Option<(TopicPartition, ManifestEntry)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [
        topic,
        partition,
        topic_id,
        log_start,
        log_end,
        segments,
        epochs,
    ] = words[..]
    else {
        return None;
    };
    let mut cache = LeaderEpochs::default();
    for (epoch, start) in parse_pairs(epochs)? {
        cache.assign(i32::try_from(epoch).ok()?, i64::try_from(start).ok()?);
    }
    let entry = ManifestEntry {
        topic_id: TopicId::parse(topic_id)?,
        log_start: log_start.parse().ok()?,
        log_end: log_end.parse().ok()?,
        segments: parse_pairs(segments)?,
        epochs: cache,
    };
    Some((TopicPartition::new(topic, partition.parse().ok()?), entry))
}

fn parse_pairs(text: &str) -> Option<Vec<(i64, u64)>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let pairs = text.split(',').map(|pair| {
        let (a, b) = pair.split_once(':')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    });
    pairs.collect()
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
                segments: vec![(0, 100), (50, 2_000)],
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
        assert_eq!(Manifest::from_text(&text), Some(manifest));
        for index in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[index] ^= 1;
            let damaged = String::from_utf8_lossy(&damaged).into_owned();
            assert_eq!(Manifest::from_text(&damaged), None, "byte {index}");
        }
        assert_eq!(Manifest::from_text(""), None);
    }
}
