//! The families whose number of series follows the number of topics, partitions or groups: a page holds
//! so many of them as it may, each whole or not at all, in the order of [`BOUNDED`].

use std::fmt::Display;

use super::text::{Out, Series, labels};
use super::{Scrape, at_min, under_min, under_replicated};
use crate::telemetry::TopicMetrics;
use crate::telemetry::names::{self as n, Family};
use crate::telemetry::samples::{GroupOffsetSample, GroupSample, PartitionSample};

/// Where the series of a family come from.
#[derive(Clone, Copy)]
pub(super) enum Rows {
    Group(fn(&GroupSample) -> Option<f64>),
    /// Sums over the partitions of a topic.
    GroupTopic(fn(&GroupOffsetSample) -> Option<i64>),
    GroupPartition(fn(&GroupOffsetSample) -> Option<i64>),
    GroupPartitionSeconds,
    /// One of [`n::TOPIC_COUNTERS`]; the sum over all topics stays, whatever is left out.
    Topic(usize),
    TopicPartitions,
    /// From the partition's leader, so that a series comes from one broker; without a leader from the
    /// controller.
    Led(fn(&PartitionSample) -> Option<i64>),
    /// From every broker that has a replica.
    Log(fn(&PartitionSample) -> Option<i64>),
    Damaged,
}

use Rows::{Damaged, Group, GroupPartition, GroupPartitionSeconds, GroupTopic, Led, Log};

/// What is left out first stands last.
pub(super) const BOUNDED: &[(Family, Rows)] = &[
    (n::GROUP_MEMBERS, Group(|group| Some(group.members as f64))),
    (
        n::GROUP_LAG_SECONDS_MAX,
        Group(|group| group.lag_seconds_max()),
    ),
    (n::GROUP_LAG_SUM, GroupTopic(|offset| offset.lag)),
    (
        n::GROUP_OFFSET_SUM,
        GroupTopic(|offset| Some(offset.offset)),
    ),
    (n::LOG_DAMAGED, Damaged),
    (n::MESSAGES_IN, Rows::Topic(0)),
    (n::BYTES_IN, Rows::Topic(1)),
    (n::BYTES_OUT, Rows::Topic(2)),
    (n::GROUP_LAG, GroupPartition(|offset| offset.lag)),
    (n::GROUP_LAG_SECONDS, GroupPartitionSeconds),
    (
        n::GROUP_OFFSET,
        GroupPartition(|offset| Some(offset.offset)),
    ),
    (n::EXPORTER_PARTITIONS, Rows::TopicPartitions),
    (n::BYTES_REJECTED, Rows::Topic(3)),
    (n::FAILED_PRODUCE, Rows::Topic(4)),
    (n::FAILED_FETCH, Rows::Topic(5)),
    (n::TOTAL_PRODUCE, Rows::Topic(6)),
    (n::TOTAL_FETCH, Rows::Topic(7)),
    (n::REPLICATION_BYTES_IN, Rows::Topic(8)),
    (n::REPLICATION_BYTES_OUT, Rows::Topic(9)),
    (n::PRODUCE_CONVERSIONS, Rows::Topic(10)),
    (n::FETCH_CONVERSIONS, Rows::Topic(11)),
    (n::LOG_SIZE, Log(|p| p.log.map(|log| number(log.size)))),
    (
        n::EXPORTER_CURRENT_OFFSET,
        Led(|p| p.log.map(|log| log.high_watermark)),
    ),
    (
        n::EXPORTER_OLDEST_OFFSET,
        Led(|p| p.log.map(|log| log.start_offset)),
    ),
    (
        n::EXPORTER_UNDER_REPLICATED,
        Led(|p| Some(under_replicated(p).into())),
    ),
    (
        n::EXPORTER_IN_SYNC,
        Led(|p| Some(number(p.in_sync_replicas))),
    ),
    (
        n::EXPORTER_LEADER,
        Led(|p| Some(p.leader.map_or(-1, |leader| leader.0.into()))),
    ),
    (n::EXPORTER_REPLICAS, Led(|p| Some(number(p.replicas)))),
    (
        n::PARTITION_UNDER_MIN_ISR,
        Led(|p| Some(under_min(p).into())),
    ),
    (n::LOG_END_OFFSET, Log(|p| p.log.map(|log| log.end_offset))),
    (
        n::LOG_START_OFFSET,
        Log(|p| p.log.map(|log| log.start_offset)),
    ),
    (
        n::EXPORTER_PREFERRED,
        Led(|p| Some(p.leader_is_preferred.into())),
    ),
    (
        n::LOG_SEGMENTS,
        Log(|p| p.log.map(|log| number(log.segments))),
    ),
    (
        n::PARTITION_UNDER_REPLICATED,
        Led(|p| Some(under_replicated(p).into())),
    ),
    (n::PARTITION_AT_MIN_ISR, Led(|p| Some(at_min(p).into()))),
    (n::PARTITION_ISR, Led(|p| Some(number(p.in_sync_replicas)))),
    (n::PARTITION_REPLICAS, Led(|p| Some(number(p.replicas)))),
];

fn number<N>(value: N) -> i64
where
    i64: TryFrom<N>,
{
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The labels of many series, written once.
#[derive(Debug, Default)]
pub(super) struct Labels {
    text: String,
    ends: Vec<usize>,
}

impl Labels {
    /// `topic="…",partition="…"` of each.
    pub(super) fn of(partitions: &[PartitionSample]) -> Self {
        let mut all = Self::default();
        for partition in partitions {
            let pair: [(&str, &dyn Display); 2] = [
                ("topic", &partition.topic),
                ("partition", &partition.partition),
            ];
            labels(&mut all.text, &pair);
            all.ends.push(all.text.len());
        }
        all
    }

    fn get(&self, index: usize) -> &str {
        let start = match index {
            0 => 0,
            index => self.ends[index - 1],
        };
        &self.text[start..self.ends[index]]
    }

    fn mean_bytes(&self) -> usize {
        self.text.len() / self.ends.len().max(1)
    }
}

/// How many series the kinds of rows have.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RowCounts {
    led: usize,
    logs: usize,
    group_partitions: usize,
}

impl RowCounts {
    pub(super) fn of(
        partitions: &[PartitionSample],
        groups: &[GroupSample],
        controller: bool,
    ) -> Self {
        let count = |test: &dyn Fn(&PartitionSample) -> bool| {
            partitions
                .iter()
                .filter(|partition| test(partition))
                .count()
        };
        Self {
            led: count(&|partition| is_told_here(partition, controller)),
            logs: count(&|partition| partition.log.is_some()),
            group_partitions: groups.iter().map(|group| group.offsets.len()).sum(),
        }
    }
}

fn is_told_here(partition: &PartitionSample, controller: bool) -> bool {
    partition.led_here || (controller && partition.leader.is_none())
}

impl Scrape {
    /// About how many series a family has, and at least how many bytes.
    pub(super) fn extent(&self, family: Family, rows: Rows) -> (usize, usize) {
        let count = match rows {
            Group(_) | GroupTopic(_) => self.groups.len(),
            GroupPartition(_) | GroupPartitionSeconds => self.rows.group_partitions,
            Rows::Topic(_) => self.topics.len(),
            Led(_) => self.rows.led,
            Log(_) => self.rows.logs,
            Rows::TopicPartitions | Damaged => 0,
        };
        let labels = match rows {
            Led(_) | Log(_) => self.labels.mean_bytes(),
            _ => 0,
        };
        // Braces, a space, a digit, an end of line.
        (count, count * (family.name.len() + labels + 5))
    }

    /// The family with all of its series.
    pub(super) fn bounded(&self, out: &mut Out, family: Family, rows: Rows) {
        let mut series = Series::begin(out, family);
        match rows {
            Group(value) => {
                for group in &self.groups {
                    if let Some(value) = value(group) {
                        series.sample(&[("consumergroup", &group.group)], value);
                    }
                }
            }
            GroupTopic(value) => self.group_topics(&mut series, value),
            GroupPartition(value) => self.group_partitions(&mut series, value),
            GroupPartitionSeconds => {
                self.group_partitions(&mut series, |offset| offset.lag_seconds)
            }
            Rows::Topic(index) => {
                self.all_topics(&mut series, index);
                for (name, topic) in &self.topics {
                    series.sample(&[("topic", name)], topic.counters()[index].get());
                }
            }
            Rows::TopicPartitions => {
                let told = self.cluster.is_controller;
                let topics = self.partitions.chunk_by(|a, b| a.topic == b.topic);
                for topic in topics.filter(|_| told) {
                    series.sample(&[("topic", &topic[0].topic)], topic.len());
                }
            }
            Led(value) => {
                let controller = self.cluster.is_controller;
                self.by_partition(&mut series, |partition| {
                    value(partition).filter(|_| is_told_here(partition, controller))
                });
            }
            Log(value) => self.by_partition(&mut series, value),
            Damaged => self.by_partition(&mut series, |partition| {
                let places = partition.log.map(|log| number(log.damaged_places));
                places.filter(|&places| places > 0)
            }),
        }
    }

    /// The family's header, and what is no matter of numbers.
    pub(super) fn left_out(&self, out: &mut Out, family: Family, rows: Rows) {
        let mut series = Series::begin(out, family);
        if let Rows::Topic(index) = rows {
            self.all_topics(&mut series, index);
        }
    }

    fn all_topics(&self, series: &mut Series<'_>, index: usize) {
        let counted = |topic: &TopicMetrics| topic.counters()[index].get();
        let sum: u64 = self.topics.iter().map(|(_, topic)| counted(topic)).sum();
        series.sample(&[], sum + counted(&self.metrics.deleted_topics));
    }

    fn by_partition(
        &self,
        series: &mut Series<'_>,
        value: impl Fn(&PartitionSample) -> Option<i64>,
    ) {
        for (index, partition) in self.partitions.iter().enumerate() {
            if let Some(value) = value(partition) {
                series.written(self.labels.get(index), value);
            }
        }
    }

    fn group_partitions<V: Display>(
        &self,
        series: &mut Series<'_>,
        value: impl Fn(&GroupOffsetSample) -> Option<V>,
    ) {
        for group in &self.groups {
            for offset in &group.offsets {
                let labels: [(&str, &dyn Display); 3] = [
                    ("consumergroup", &group.group),
                    ("topic", &offset.topic),
                    ("partition", &offset.partition),
                ];
                if let Some(value) = value(offset) {
                    series.sample(&labels, value);
                }
            }
        }
    }

    fn group_topics(
        &self,
        series: &mut Series<'_>,
        value: impl Fn(&GroupOffsetSample) -> Option<i64>,
    ) {
        for group in &self.groups {
            for topic in group.offsets.chunk_by(|a, b| a.topic == b.topic) {
                let labels: [(&str, &dyn Display); 2] =
                    [("consumergroup", &group.group), ("topic", &topic[0].topic)];
                if let Some(sum) = topic.iter().map(&value).sum::<Option<i64>>() {
                    series.sample(&labels, sum);
                }
            }
        }
    }
}
