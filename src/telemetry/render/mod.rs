//! Metrics as text.
//!
//! One family after the other, so that a scrape of many partitions holds the text of one family at a
//! time: first those whose size is known, then the [`bounded`] ones as far as a page may grow.

mod bounded;
mod fixed;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;
use std::time::Instant;

pub use text::Format;

use self::bounded::{BOUNDED, Labels, RowCounts};
use self::text::{Out, Series};
use super::metrics::{Metrics, TopicMetrics};
use super::names as n;
use super::process::Process;
use super::samples::{
    ClusterSample, GroupSample, LogDirSample, PartitionSample, Readiness, ScrapeSource,
};
use crate::types::TopicName;

/// How large a page may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// `metrics.series.max`
    pub series: usize,
    /// `metrics.page.bytes.max`
    pub bytes: usize,
}

/// When and how a page is written.
#[derive(Debug, Clone, Copy)]
pub struct PageOptions {
    pub limits: PageLimits,
    pub format: Format,
    pub now: Instant,
}

/// One scrape: everything that is not counted is read at its start.
#[derive(Debug)]
pub struct Scrape {
    metrics: Arc<Metrics>,
    options: PageOptions,
    cluster: ClusterSample,
    readiness: Readiness,
    log_dirs: Vec<LogDirSample>,
    damage_found: u64,
    topics: Vec<(TopicName, Arc<TopicMetrics>)>,
    partitions: Vec<PartitionSample>,
    labels: Labels,
    rows: RowCounts,
    groups: Vec<GroupSample>,
    process: Process,
    /// Part of all processor time that was not used lately.
    idle: f64,
    next: usize,
    series: usize,
    bytes: usize,
    left_out: Vec<(&'static str, usize)>,
}

/// Parts whose size does not follow what a user makes.
type Part = fn(&Scrape, &mut Out);
const FIXED: &[Part] = &[
    Scrape::replica_manager,
    Scrape::controller,
    Scrape::raft,
    Scrape::log_manager,
    Scrape::requests,
    Scrape::request_times,
    Scrape::network,
    Scrape::clients,
    Scrape::waiting,
    Scrape::group_states,
    Scrape::exporter_cluster,
    Scrape::process,
];

impl Scrape {
    /// Reads what is not counted.
    pub async fn new(
        metrics: &Arc<Metrics>,
        source: &dyn ScrapeSource,
        options: PageOptions,
    ) -> Self {
        let process = Process::read();
        let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let used_ms = metrics
            .cpu_rate
            .per_second(options.now, (process.cpu_seconds * 1_000.0) as u64);
        let cluster = source.cluster();
        let partitions = source.partitions();
        let groups = source.groups().await;
        Self {
            metrics: Arc::clone(metrics),
            options,
            readiness: source.readiness(),
            log_dirs: source.log_dirs(),
            damage_found: source.damage_found(),
            topics: metrics.topics(),
            labels: Labels::of(&partitions),
            rows: RowCounts::of(&partitions, &groups, cluster.is_controller),
            cluster,
            partitions,
            groups,
            idle: (1.0 - used_ms / 1_000.0 / cores).clamp(0.0, 1.0),
            process,
            next: 0,
            series: 0,
            bytes: 0,
            left_out: Vec::new(),
        }
    }

    /// The next part of the page; `None` at its end.
    pub fn next_part(&mut self) -> Option<String> {
        let part = self.next;
        self.next += 1;
        let format = self.options.format;
        let mut out = Out::new(format);
        if let Some(fixed) = FIXED.get(part) {
            fixed(self, &mut out);
        } else if let Some(index) = part.checked_sub(FIXED.len()).filter(|&i| i < BOUNDED.len()) {
            out = self.bounded_part(index);
        } else if part == FIXED.len() + BOUNDED.len() {
            self.what_is_left_out(&mut out);
        } else {
            return None;
        }
        self.series += out.labelled;
        self.bytes += out.text.len();
        Some(out.text)
    }

    /// A family whole, if there is room for it.
    fn bounded_part(&mut self, index: usize) -> Out {
        let (family, rows) = BOUNDED[index];
        let PageLimits { series, bytes } = self.options.limits;
        let fits = |count: usize, length: usize| {
            self.series + count <= series && self.bytes + length <= bytes
        };
        let (count, length) = self.extent(family, rows);
        let mut left_out = count;
        if fits(count, length) {
            let mut out = Out::new(self.options.format);
            self.bounded(&mut out, family, rows);
            if fits(out.labelled, out.text.len()) {
                return out;
            }
            left_out = out.labelled;
        }
        self.left_out.push((family.name, left_out));
        let mut out = Out::new(self.options.format);
        Self::left_out(self, &mut out, family, rows);
        out
    }

    fn what_is_left_out(&self, out: &mut Out) {
        let mut series = Series::begin(out, n::LEFT_OUT);
        if self.left_out.is_empty() {
            series.sample(&[], 0);
        }
        for (family, count) in &self.left_out {
            series.sample(&[("family", family)], count);
        }
        if self.options.format.open_metrics {
            out.text.push_str("# EOF\n");
        }
    }

    /// The whole page.
    pub fn page(mut self) -> String {
        let mut page = String::new();
        while let Some(part) = self.next_part() {
            page.push_str(&part);
        }
        page
    }
}

fn under_replicated(partition: &PartitionSample) -> bool {
    partition.in_sync_replicas < partition.replicas
}

/// Kafka counts `min.insync.replicas` as at most the number of replicas.
fn effective_min(partition: &PartitionSample) -> usize {
    partition.min_insync_replicas.min(partition.replicas)
}

fn under_min(partition: &PartitionSample) -> bool {
    partition.in_sync_replicas < effective_min(partition)
}

fn at_min(partition: &PartitionSample) -> bool {
    partition.in_sync_replicas == effective_min(partition)
}
