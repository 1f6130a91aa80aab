//! Metrics as text, in Prometheus's exposition format 0.0.4.
//!
//! One family after the other, so that a scrape of many partitions holds the text of one family at
//! a time.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Instant;

use super::instruments::{QUANTILES, Summary};
use super::metrics::Metrics;
use super::names::{self as n, Family, Type};
use super::process::Process;
use super::samples::{
    ClusterSample, GroupSample, GroupStateSample, LogDirSample, PartitionSample, ScrapeSource,
};
use crate::types::TopicName;

/// The `Content-Type` of what [`Scrape`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes one family: its header, then its series.
struct Series<'a> {
    out: &'a mut String,
    family: Family,
}

impl<'a> Series<'a> {
    fn begin(out: &'a mut String, family: Family) -> Self {
        let kind = match family.kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Summary => "summary",
            Type::Untyped => "untyped",
        };
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(out, "# HELP {} {}", family.name, family.help);
        let _ = writeln!(out, "# TYPE {} {kind}", family.name);
        Self { out, family }
    }

    fn sample(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.suffixed("", labels, value);
    }

    fn suffixed(&mut self, suffix: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.out, "{}{suffix}", self.family.name);
        for (index, (name, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{name}=\"", if index == 0 { '{' } else { ',' });
            let _ = write!(Escaped(self.out), "{text}");
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    fn summary(&mut self, labels: &[(&str, &dyn Display)], summary: &Summary) {
        for (quantile, value) in QUANTILES.iter().zip(summary.quantiles_ms) {
            let quantile = format!("{quantile:.2}");
            let quantile = if quantile == "1.00" {
                "0.999"
            } else {
                &quantile
            };
            let mut all = labels.to_vec();
            all.push(("quantile", &quantile));
            self.sample(&all, value);
        }
        self.suffixed("_sum", labels, summary.sum.as_secs_f64() * 1_000.0);
        self.suffixed("_count", labels, summary.count);
    }
}

/// Escapes what is written as a label value.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

/// One scrape: everything that is not counted is read at its start.
#[derive(Debug)]
pub struct Scrape {
    metrics: Arc<Metrics>,
    now: Instant,
    cluster: ClusterSample,
    log_dirs: Vec<LogDirSample>,
    damage_found: u64,
    partitions: Vec<PartitionSample>,
    groups: Vec<GroupSample>,
    process: Process,
    /// Part of all processor time that was not used since the process started.
    idle: f64,
    next: usize,
}

/// The parts of a page, in order.
type Part = fn(&Scrape, &mut String);
const PARTS: &[Part] = &[
    Scrape::topics,
    Scrape::replica_manager,
    Scrape::partition_health,
    Scrape::controller,
    Scrape::log_sizes,
    Scrape::log_offsets,
    Scrape::log_manager,
    Scrape::requests,
    Scrape::request_times,
    Scrape::network,
    Scrape::waiting,
    Scrape::group_states,
    Scrape::exporter_cluster,
    Scrape::exporter_offsets,
    Scrape::exporter_replicas,
    Scrape::exporter_group_offsets,
    Scrape::exporter_group_sums,
    Scrape::process,
];

impl Scrape {
    /// `wall_seconds` since 1970 tells how long the process runs.
    pub async fn new(
        metrics: &Arc<Metrics>,
        source: &dyn ScrapeSource,
        now: Instant,
        wall_seconds: f64,
    ) -> Self {
        let process = Process::read();
        let cores = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let available = (wall_seconds - process.start_seconds).max(1.0) * cores;
        Self {
            metrics: Arc::clone(metrics),
            now,
            cluster: source.cluster(),
            log_dirs: source.log_dirs(),
            damage_found: source.damage_found(),
            partitions: source.partitions(),
            groups: source.groups().await,
            process,
            idle: (1.0 - process.cpu_seconds / available).clamp(0.0, 1.0),
            next: 0,
        }
    }

    /// The next part of the page; `None` at its end.
    pub fn next_part(&mut self) -> Option<String> {
        let part = PARTS.get(self.next)?;
        self.next += 1;
        let mut out = String::new();
        part(self, &mut out);
        Some(out)
    }

    /// The whole page.
    pub fn page(mut self) -> String {
        let mut page = String::new();
        while let Some(part) = self.next_part() {
            page.push_str(&part);
        }
        page
    }

    fn topics(&self, out: &mut String) {
        let topics = self.metrics.topics();
        for (index, family) in n::TOPIC_COUNTERS.into_iter().enumerate() {
            let mut series = Series::begin(out, family);
            let counted = |topic: &super::TopicMetrics| topic.counters()[index].get();
            let sum: u64 = topics.iter().map(|(_, topic)| counted(topic)).sum();
            series.sample(&[], sum + counted(&self.metrics.deleted_topics));
            for (name, topic) in &topics {
                series.sample(&[("topic", name)], counted(topic));
            }
        }
    }

    fn replica_manager(&self, out: &mut String) {
        let here = |test: fn(&PartitionSample) -> bool| {
            self.partitions
                .iter()
                .filter(|partition| test(partition))
                .count()
        };
        gauge(
            out,
            n::PARTITION_COUNT,
            here(|p| p.log.is_some() || p.offline_here),
        );
        gauge(out, n::LEADER_COUNT, here(|p| p.led_here));
        gauge(
            out,
            n::UNDER_REPLICATED,
            here(|p| p.led_here && under_replicated(p)),
        );
        gauge(out, n::UNDER_MIN_ISR, here(|p| p.led_here && under_min(p)));
        gauge(out, n::AT_MIN_ISR, here(|p| p.led_here && at_min(p)));
        gauge(out, n::OFFLINE_REPLICAS, here(|p| p.offline_here));
        gauge(out, n::REASSIGNING, here(|p| p.led_here && p.reassigning));
        gauge(out, n::ISR_SHRINKS, self.metrics.isr_shrinks.get());
        gauge(out, n::ISR_EXPANDS, self.metrics.isr_expands.get());
        gauge(
            out,
            n::FAILED_ISR_UPDATES,
            self.metrics.failed_isr_updates.get(),
        );
        gauge(out, n::FETCHER_LAG, self.cluster.fetcher_max_lag);
        gauge(out, n::FETCHER_RATE, 0);
    }

    /// A family with a series per partition that passes `test`.
    fn by_partition<V: Display>(
        &self,
        out: &mut String,
        family: Family,
        value: impl Fn(&PartitionSample) -> Option<V>,
    ) {
        let mut series = Series::begin(out, family);
        for partition in &self.partitions {
            if let Some(value) = value(partition) {
                let labels: [(&str, &dyn Display); 2] = [
                    ("topic", &partition.topic),
                    ("partition", &partition.partition),
                ];
                series.sample(&labels, value);
            }
        }
    }

    fn partition_health(&self, out: &mut String) {
        let led = |p: &PartitionSample, value: usize| p.led_here.then_some(value);
        self.by_partition(out, n::PARTITION_UNDER_MIN_ISR, |p| {
            led(p, under_min(p).into())
        });
        self.by_partition(out, n::PARTITION_AT_MIN_ISR, |p| led(p, at_min(p).into()));
        self.by_partition(out, n::PARTITION_REPLICAS, |p| led(p, p.replicas));
        self.by_partition(out, n::PARTITION_ISR, |p| led(p, p.in_sync_replicas));
        self.by_partition(out, n::PARTITION_UNDER_REPLICATED, |p| {
            led(p, under_replicated(p).into())
        });
    }

    fn controller(&self, out: &mut String) {
        let partitions = |test: fn(&PartitionSample) -> bool| {
            self.partitions
                .iter()
                .filter(|partition| test(partition))
                .count()
        };
        gauge(
            out,
            n::ACTIVE_CONTROLLER,
            u8::from(self.cluster.is_controller),
        );
        gauge(
            out,
            n::OFFLINE_PARTITIONS,
            partitions(|p| p.leader.is_none()),
        );
        gauge(out, n::GLOBAL_TOPICS, self.cluster.topics);
        gauge(out, n::GLOBAL_PARTITIONS, self.partitions.len());
        gauge(
            out,
            n::PREFERRED_IMBALANCE,
            partitions(|p| !p.leader_is_preferred),
        );
        gauge(out, n::ACTIVE_BROKERS, self.cluster.brokers.len());
        gauge(out, n::FENCED_BROKERS, self.cluster.fenced_brokers);
        gauge(out, n::METADATA_ERRORS, self.metrics.metadata_errors.get());
        gauge(
            out,
            n::UNCLEAN_ELECTIONS,
            self.metrics.unclean_leader_elections.get(),
        );
        gauge(out, n::BROKER_STATE, self.metrics.state());
    }

    fn log_sizes(&self, out: &mut String) {
        self.by_partition(out, n::LOG_SIZE, |p| p.log.map(|log| log.size));
        self.by_partition(out, n::LOG_SEGMENTS, |p| p.log.map(|log| log.segments));
        // Nearly none has any.
        self.by_partition(out, n::LOG_DAMAGED, |p| {
            p.log
                .map(|log| log.damaged_places)
                .filter(|&places| places > 0)
        });
    }

    fn log_offsets(&self, out: &mut String) {
        self.by_partition(out, n::LOG_START_OFFSET, |p| {
            p.log.map(|log| log.start_offset)
        });
        self.by_partition(out, n::LOG_END_OFFSET, |p| p.log.map(|log| log.end_offset));
    }

    fn log_manager(&self, out: &mut String) {
        let metrics = &self.metrics;
        let log_dirs = self.log_dirs.iter();
        let offline = log_dirs.clone().filter(|log_dir| log_dir.offline).count();
        gauge(out, n::OFFLINE_LOG_DIRS, offline);
        let full = log_dirs.filter(|log_dir| log_dir.full).count();
        gauge(out, n::FULL_LOG_DIRS, full);
        gauge(out, n::DAMAGE_FOUND, self.damage_found);
        gauge(
            out,
            n::CLEANER_DIRTY,
            metrics.cleaner_max_dirty_percent.get(),
        );
        gauge(
            out,
            n::CLEANER_UNCLEANABLE,
            metrics.cleaner_uncleanable_partitions.get(),
        );
        let flush = metrics.log_flush_time.summary(self.now);
        Series::begin(out, n::LOG_FLUSH).summary(&[], &flush);
    }

    fn requests(&self, out: &mut String) {
        let mut series = Series::begin(out, n::REQUESTS);
        for request in self.metrics.requests() {
            for (version, counter) in request.by_version.iter().enumerate() {
                if counter.get() > 0 {
                    let labels: [(&str, &dyn Display); 2] =
                        [("request", &request.name), ("version", &version)];
                    series.sample(&labels, counter.get());
                }
            }
        }
        let mut series = Series::begin(out, n::REQUEST_ERRORS);
        for request in self.metrics.requests() {
            let none = ("NONE".to_string(), request.no_errors.get());
            let errors = request.errors.lock();
            let others = errors
                .iter()
                .map(|(error, count)| (kafka_name(*error), *count));
            for (error, count) in [none].into_iter().chain(others) {
                let labels: [(&str, &dyn Display); 2] =
                    [("request", &request.name), ("error", &error)];
                series.sample(&labels, count);
            }
        }
    }

    fn request_times(&self, out: &mut String) {
        type Read = fn(&super::RequestMetrics) -> &super::Histogram;
        let families: [(Family, Read); 6] = [
            (n::TOTAL_TIME, |r| &r.total_time),
            (n::QUEUE_TIME, |r| &r.request_queue_time),
            (n::LOCAL_TIME, |r| &r.local_time),
            (n::REMOTE_TIME, |r| &r.remote_time),
            (n::RESPONSE_QUEUE_TIME, |r| &r.response_queue_time),
            (n::RESPONSE_SEND_TIME, |r| &r.response_send_time),
        ];
        for (family, read) in families {
            let mut series = Series::begin(out, family);
            for request in self.metrics.requests() {
                let summary = read(request).summary(self.now);
                series.summary(&[("request", &request.name)], &summary);
            }
        }
    }

    fn network(&self, out: &mut String) {
        let listeners = self.metrics.listeners();
        gauge(out, n::NETWORK_IDLE, self.idle);
        gauge(out, n::HANDLER_IDLE, self.idle);
        gauge(out, n::REQUEST_QUEUE, self.metrics.request_queue_size.get());
        gauge(
            out,
            n::RESPONSE_QUEUE,
            self.metrics.response_queue_size.get(),
        );
        type Read = fn(&super::ListenerMetrics, Instant) -> f64;
        let families: [(Family, Read); 4] = [
            (n::CONNECTIONS, |l, _| l.connections.get() as f64),
            (n::CONNECTION_RATE, |l, now| {
                l.creation_rate.per_second(now, l.accepted.get())
            }),
            (n::CLOSE_RATE, |l, now| {
                l.close_rate.per_second(now, l.closed.get())
            }),
            (n::CONNECTIONS_REFUSED, |l, _| l.refused.get() as f64),
        ];
        for (family, read) in families {
            let mut series = Series::begin(out, family);
            for (name, listener) in &listeners {
                let labels: [(&str, &dyn Display); 2] =
                    [("listener", name), ("network_processor", &0)];
                series.sample(&labels, read(listener, self.now));
            }
        }
        let mut series = Series::begin(out, n::SOFTWARE);
        for ((listener, name, version), count) in self.metrics.software.lock().iter() {
            let labels: [(&str, &dyn Display); 3] = [
                ("listener", listener),
                ("client_software_name", name),
                ("client_software_version", version),
            ];
            series.sample(&labels, count);
        }
        Series::begin(out, n::TLS_INFO);
    }

    fn waiting(&self, out: &mut String) {
        let metrics = &self.metrics;
        let mut series = Series::begin(out, n::PURGATORY);
        for (operation, gauge) in [
            ("Produce", &metrics.waiting_produce),
            ("Fetch", &metrics.waiting_fetch),
        ] {
            series.sample(&[("delayed_operation", &operation)], gauge.get());
        }
        gauge(
            out,
            n::FETCH_SESSIONS,
            metrics.incremental_fetch_sessions.get(),
        );
        gauge(
            out,
            n::FETCH_SESSION_PARTITIONS,
            metrics.incremental_fetch_partitions.get(),
        );
        gauge(
            out,
            n::FETCH_SESSION_EVICTIONS,
            metrics.incremental_fetch_session_evictions.get(),
        );
    }

    fn group_states(&self, out: &mut String) {
        let offsets: usize = self.groups.iter().map(|group| group.offsets.len()).sum();
        gauge(out, n::GROUPS, self.groups.len());
        gauge(out, n::GROUP_OFFSETS, offsets);
        for (family, state) in [
            (n::GROUPS_STABLE, GroupStateSample::Stable),
            (n::GROUPS_EMPTY, GroupStateSample::Empty),
            (n::GROUPS_DEAD, GroupStateSample::Dead),
            (n::GROUPS_PREPARING, GroupStateSample::PreparingRebalance),
            (n::GROUPS_COMPLETING, GroupStateSample::CompletingRebalance),
        ] {
            let count = self
                .groups
                .iter()
                .filter(|group| group.state == state)
                .count();
            gauge(out, family, count);
        }
    }

    fn exporter_cluster(&self, out: &mut String) {
        gauge(out, n::EXPORTER_BROKERS, self.cluster.brokers.len());
        let mut series = Series::begin(out, n::EXPORTER_BROKER_INFO);
        for (id, address) in &self.cluster.brokers {
            series.sample(&[("id", id), ("address", address)], 1);
        }
        let mut series = Series::begin(out, n::EXPORTER_PARTITIONS);
        for topic in self.partitions.chunk_by(|a, b| a.topic == b.topic) {
            series.sample(&[("topic", &topic[0].topic)], topic.len());
        }
    }

    fn exporter_offsets(&self, out: &mut String) {
        // Only from the leader, so that a series comes from one broker.
        let led = |p: &PartitionSample| p.log.filter(|_| p.led_here);
        self.by_partition(out, n::EXPORTER_CURRENT_OFFSET, |p| {
            led(p).map(|log| log.high_watermark)
        });
        self.by_partition(out, n::EXPORTER_OLDEST_OFFSET, |p| {
            led(p).map(|log| log.start_offset)
        });
    }

    fn exporter_replicas(&self, out: &mut String) {
        let led = |p: &PartitionSample, value: usize| p.led_here.then_some(value);
        self.by_partition(out, n::EXPORTER_LEADER, |p| {
            p.leader.filter(|_| p.led_here).map(|leader| leader.0)
        });
        self.by_partition(out, n::EXPORTER_PREFERRED, |p| {
            led(p, p.leader_is_preferred.into())
        });
        self.by_partition(out, n::EXPORTER_REPLICAS, |p| led(p, p.replicas));
        self.by_partition(out, n::EXPORTER_IN_SYNC, |p| led(p, p.in_sync_replicas));
        self.by_partition(out, n::EXPORTER_UNDER_REPLICATED, |p| {
            led(p, under_replicated(p).into())
        });
    }

    fn exporter_group_offsets(&self, out: &mut String) {
        type Read = fn(&super::GroupOffsetSample) -> Option<i64>;
        let families: [(Family, Read); 2] = [
            (n::GROUP_OFFSET, |offset| Some(offset.offset)),
            (n::GROUP_LAG, |offset| offset.lag),
        ];
        for (family, read) in families {
            let mut series = Series::begin(out, family);
            for group in &self.groups {
                for offset in &group.offsets {
                    let labels: [(&str, &dyn Display); 3] = [
                        ("consumergroup", &group.group),
                        ("topic", &offset.topic),
                        ("partition", &offset.partition),
                    ];
                    if let Some(value) = read(offset) {
                        series.sample(&labels, value);
                    }
                }
            }
        }
    }

    fn exporter_group_sums(&self, out: &mut String) {
        let mut offsets = Vec::new();
        let mut lags = Vec::new();
        for group in &self.groups {
            for topic in group.offsets.chunk_by(|a, b| a.topic == b.topic) {
                let key = (group.group.as_str(), TopicName::clone(&topic[0].topic));
                offsets.push((key.clone(), topic.iter().map(|offset| offset.offset).sum()));
                let lag: Option<i64> = topic.iter().map(|offset| offset.lag).sum();
                lags.extend(lag.map(|lag| (key, lag)));
            }
        }
        type Sums<'a> = Vec<((&'a str, TopicName), i64)>;
        let families: [(Family, Sums<'_>); 2] =
            [(n::GROUP_OFFSET_SUM, offsets), (n::GROUP_LAG_SUM, lags)];
        for (family, sums) in families {
            let mut series = Series::begin(out, family);
            for ((group, topic), sum) in sums {
                series.sample(&[("consumergroup", &group), ("topic", &topic)], sum);
            }
        }
        let mut series = Series::begin(out, n::GROUP_MEMBERS);
        for group in &self.groups {
            series.sample(&[("consumergroup", &group.group)], group.members);
        }
    }

    fn process(&self, out: &mut String) {
        let process = &self.process;
        gauge(out, n::PROCESS_CPU, process.cpu_seconds);
        gauge(out, n::PROCESS_RESIDENT, process.resident_bytes);
        gauge(out, n::PROCESS_VIRTUAL, process.virtual_bytes);
        gauge(out, n::PROCESS_OPEN_FDS, process.open_fds);
        gauge(out, n::PROCESS_MAX_FDS, process.max_fds);
        gauge(out, n::PROCESS_START, process.start_seconds);
        gauge(out, n::DISK_READ, process.disk_read_bytes);
        gauge(out, n::DISK_WRITE, process.disk_write_bytes);
        let version = env!("CARGO_PKG_VERSION");
        Series::begin(out, n::BUILD_INFO).sample(&[("version", &version)], 1);
    }
}

/// A family of one series without labels; counters too.
fn gauge(out: &mut String, family: Family, value: impl Display) {
    Series::begin(out, family).sample(&[], value);
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

/// `NotLeaderOrFollower` is `NOT_LEADER_OR_FOLLOWER` in Kafka.
fn kafka_name(error: crate::types::ErrorCode) -> String {
    let mut name = String::new();
    for character in format!("{error:?}").chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::telemetry::{GroupOffsetSample, LogSample, RequestTimes};
    use crate::time::{Clock, ManualClock};
    use crate::types::{BrokerId, ErrorCode, ListenerName};

    #[derive(Debug)]
    struct OneOfEach;

    impl ScrapeSource for OneOfEach {
        fn cluster(&self) -> ClusterSample {
            ClusterSample {
                brokers: vec![(BrokerId(1), "127.0.0.1:9092".to_string())],
                is_controller: true,
                topics: 1,
                ..ClusterSample::default()
            }
        }

        fn log_dirs(&self) -> Vec<LogDirSample> {
            let log_dir = |full, offline| LogDirSample {
                path: "/data".to_string(),
                full,
                offline,
            };
            vec![
                log_dir(false, false),
                log_dir(true, false),
                log_dir(false, true),
            ]
        }

        fn damage_found(&self) -> u64 {
            3
        }

        fn partitions(&self) -> Vec<PartitionSample> {
            let partition = |number: i32, in_sync_replicas: usize| PartitionSample {
                topic: "orders".into(),
                partition: number,
                leader: Some(BrokerId(1)),
                leader_is_preferred: true,
                replicas: 2,
                in_sync_replicas,
                min_insync_replicas: 2,
                led_here: true,
                reassigning: false,
                log: Some(LogSample {
                    start_offset: 3,
                    end_offset: 10,
                    high_watermark: 9,
                    size: 4_096,
                    segments: 2,
                    damaged_places: 1,
                }),
                offline_here: false,
            };
            vec![partition(0, 2), partition(1, 1)]
        }

        fn groups(&self) -> futures_util::future::BoxFuture<'_, Vec<GroupSample>> {
            let offset = |partition, offset, lag| GroupOffsetSample {
                topic: "orders".into(),
                partition,
                offset,
                lag,
            };
            Box::pin(std::future::ready(vec![GroupSample {
                group: "a \"quoted\\\ngroup".to_string(),
                state: GroupStateSample::Stable,
                members: 3,
                offsets: vec![offset(0, 4, Some(5)), offset(1, 9, Some(0))],
            }]))
        }
    }

    fn page() -> String {
        let metrics = Arc::new(Metrics::new());
        let topic = metrics.topic(&"orders".into());
        topic.messages_in.add(7);
        metrics.topic(&"gone".into()).messages_in.add(2);
        metrics.remove_topic("gone");
        metrics.request(0).request(9);
        metrics.request(0).error(ErrorCode::NotLeaderOrFollower);
        metrics.request(0).times(RequestTimes {
            request_queue: Duration::from_millis(1),
            local: Duration::from_millis(2),
            remote: Duration::from_millis(3),
            ..RequestTimes::default()
        });
        metrics.fetch_follower().request(17);
        metrics.request(9_999).request(0);
        metrics.request(-1).request(-1);
        metrics.log_flush_time.record(Duration::from_millis(4));
        let listener: ListenerName = "PLAINTEXT".into();
        metrics.listener(&listener).opened();
        let _software = metrics.client_software(&listener, "apache-kafka-java", "4.4.0");
        let clock = ManualClock::new(1_900_000_000_000);
        let scrape = Scrape::new(&metrics, &OneOfEach, clock.now(), 1_900_000_000.0);
        futures_util::FutureExt::now_or_never(scrape)
            .unwrap()
            .page()
    }

    #[test]
    fn a_page_shows_what_was_counted_and_what_is() {
        let page = page();
        for line in [
            "kafka_server_brokertopicmetrics_messagesin_total 9",
            "kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"} 7",
            "kafka_network_requestmetrics_requests_total{request=\"Produce\",version=\"9\"} 1",
            "kafka_network_requestmetrics_requests_total{request=\"FetchFollower\",version=\"17\"} 1",
            "kafka_network_requestmetrics_requests_total{request=\"Unknown\",version=\"0\"} 2",
            "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"NOT_LEADER_OR_FOLLOWER\"} 1",
            "kafka_network_requestmetrics_totaltimems_count{request=\"Produce\"} 1",
            "kafka_network_requestmetrics_requestqueuetimems_sum{request=\"Produce\"} 1",
            "kafka_network_requestmetrics_totaltimems_sum{request=\"Produce\"} 6",
            "kafka_server_replicamanager_underminisrpartitioncount 1",
            "kafka_log_log_logendoffset{topic=\"orders\",partition=\"1\"} 10",
            "kafka_topic_partition_current_offset{topic=\"orders\",partition=\"0\"} 9",
            "kafka_consumergroup_lag{consumergroup=\"a \\\"quoted\\\\\\ngroup\",topic=\"orders\",partition=\"0\"} 5",
            "kafka_consumergroup_lag_sum{consumergroup=\"a \\\"quoted\\\\\\ngroup\",topic=\"orders\"} 5",
            "kafka_server_socket_server_metrics_connection_count{listener=\"PLAINTEXT\",network_processor=\"0\"} 1",
            "kafka_controller_kafkacontroller_activecontrollercount 1",
            "kafka_log_logflushstats_logflushrateandtimems_count 1",
            "ottla_log_damaged_places{topic=\"orders\",partition=\"1\"} 1",
            "ottla_log_damage_found_total 3",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn every_family_is_on_the_page_once() {
        let page = page();
        for family in n::FAMILIES {
            let help = format!("# HELP {} ", family.name);
            let count = page.lines().filter(|line| line.starts_with(&help)).count();
            assert_eq!(count, 1, "{}", family.name);
            assert_eq!(
                family.name.ends_with("_total"),
                family.kind == Type::Counter,
                "{}",
                family.name
            );
        }
    }

    #[test]
    fn promtool_finds_nothing_to_say() {
        let tool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut tool) = tool else {
            eprintln!("promtool is not installed (Debian: prometheus); not checked");
            return;
        };
        let mut input = tool.stdin.take().unwrap();
        input.write_all(page().as_bytes()).unwrap();
        drop(input);
        let output = tool.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
