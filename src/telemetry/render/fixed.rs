//! The families whose number of series does not follow what users make: of the broker, the cluster, the
//! APIs, the listeners and the kinds of clients.

use std::time::Instant;

use super::text::{Label, Out, Series};
use super::{Scrape, at_min, under_min, under_replicated};
use crate::telemetry::instruments::Rate;
use crate::telemetry::names::{self as n, Family};
use crate::telemetry::samples::{GroupStateSample, PartitionSample};
use crate::telemetry::{Counter, Histogram, ListenerMetrics, RequestMetrics};
use crate::types::ErrorCode;

impl Scrape {
    fn count(&self, test: impl Fn(&PartitionSample) -> bool) -> usize {
        let partitions = self.partitions.iter();
        partitions.filter(|partition| test(partition)).count()
    }

    pub(super) fn replica_manager(&self, out: &mut Out) {
        let led = |test: fn(&PartitionSample) -> bool| self.count(|p| p.led_here && test(p));
        out.one(
            n::PARTITION_COUNT,
            self.count(|p| p.log.is_some() || p.offline_here),
        );
        out.one(n::LEADER_COUNT, led(|_| true));
        out.one(n::UNDER_REPLICATED, led(under_replicated));
        out.one(n::UNDER_MIN_ISR, led(under_min));
        out.one(n::AT_MIN_ISR, led(at_min));
        out.one(n::OFFLINE_REPLICAS, self.count(|p| p.offline_here));
        out.one(n::REASSIGNING, led(|p| p.reassigning));
        let metrics = &self.metrics;
        out.one(n::ISR_SHRINKS, metrics.isr_shrinks.get());
        out.one(n::ISR_EXPANDS, metrics.isr_expands.get());
        out.one(n::FAILED_ISR_UPDATES, metrics.failed_isr_updates.get());
        let replica: [Label<'_>; 1] = [("client_id", &"Replica")];
        Series::begin(out, n::FETCHER_LAG).sample(&replica, self.cluster.fetcher_max_lag);
        let rate = metrics
            .replica_fetch_rate
            .per_second(self.options.now, metrics.replica_fetches.get());
        Series::begin(out, n::FETCHER_RATE).sample(&replica, rate);
    }

    /// What is known of the whole cluster: the controller tells it, the others tell nothing, so that a sum
    /// over the brokers is right.
    pub(super) fn controller(&self, out: &mut Out) {
        let cluster = &self.cluster;
        let tells = cluster.is_controller;
        let told = |value: usize| if tells { value } else { 0 };
        let count = |test: fn(&PartitionSample) -> bool| match tells {
            true => self.count(test),
            false => 0,
        };
        out.one(n::ACTIVE_CONTROLLER, u8::from(tells));
        out.one(n::OFFLINE_PARTITIONS, count(|p| p.leader.is_none()));
        out.one(n::GLOBAL_TOPICS, told(cluster.topics));
        out.one(n::GLOBAL_PARTITIONS, told(self.partitions.len()));
        out.one(n::PREFERRED_IMBALANCE, count(|p| !p.leader_is_preferred));
        out.one(n::ACTIVE_BROKERS, told(cluster.brokers.len()));
        out.one(n::FENCED_BROKERS, told(cluster.fenced_brokers));
        out.one(n::CLUSTER_UNDER_REPLICATED, count(under_replicated));
        out.one(n::CLUSTER_UNDER_MIN_ISR, count(under_min));
        let metrics = &self.metrics;
        out.one(n::METADATA_ERRORS, cluster.metadata_errors);
        out.one(n::UNCLEAN_ELECTIONS, metrics.unclean_leader_elections.get());
        self.time(out, n::LEADER_ELECTIONS, &metrics.leader_elections);
        out.one(n::BROKER_STATE, metrics.state());
        out.one(n::READY, u8::from(self.readiness.is_ready()));
    }

    /// The registry's side of a cluster, in the words of a KRaft quorum.
    pub(super) fn raft(&self, out: &mut Out) {
        let cluster = &self.cluster;
        let state = match (cluster.is_controller, cluster.controller) {
            (true, _) => "leader",
            (false, Some(_)) => "follower",
            (false, None) => "unattached",
        };
        Series::begin(out, n::RAFT_STATE).sample(&[("current_state", &state)], 1);
        let leader = cluster.controller.map_or(-1, |id| id.0);
        out.one(n::RAFT_LEADER, leader);
        out.one(n::RAFT_EPOCH, cluster.controller_epoch);
        out.one(n::RAFT_HIGH_WATERMARK, cluster.revision);
        out.one(n::RAFT_LOG_END, cluster.revision);
        out.one(
            n::RAFT_VOTE,
            if cluster.is_controller { leader } else { -1 },
        );
        let (traffic, now) = (&self.metrics.registry, self.options.now);
        let rate = |rate: &Rate, count: &Counter| rate.per_second(now, count.get());
        let written = rate(&traffic.write_rate, &traffic.keys_written);
        out.one(n::RAFT_APPEND_RATE, written);
        let heard = rate(&traffic.hear_rate, &traffic.keys_heard);
        out.one(n::RAFT_FETCH_RATE, heard);
        out.one(n::RAFT_COMMIT_LATENCY, traffic.commit_ms_average(now));
        out.one(n::REGISTRY_REQUESTS, traffic.requests.get());
        out.one(n::REGISTRY_ANSWERS, traffic.answers.get());
        out.one(n::REGISTRY_BYTES_OUT, traffic.bytes_out.get());
        out.one(n::REGISTRY_BYTES_IN, traffic.bytes_in.get());
        out.one(n::METADATA_OFFSET, cluster.revision);
        out.one(n::METADATA_LOAD_ERRORS, cluster.metadata_errors);
    }

    fn time(&self, out: &mut Out, family: Family, histogram: &Histogram) {
        let summary = histogram.summary(self.options.now);
        Series::begin(out, family).summary(&[], &summary);
    }

    pub(super) fn log_manager(&self, out: &mut Out) {
        let metrics = &self.metrics;
        let log_dirs = self.log_dirs.iter();
        let offline = log_dirs.clone().filter(|log_dir| log_dir.offline).count();
        out.one(n::OFFLINE_LOG_DIRS, offline);
        let full = log_dirs.filter(|log_dir| log_dir.full).count();
        out.one(n::FULL_LOG_DIRS, full);
        out.one(n::DAMAGE_FOUND, self.damage_found);
        out.one(n::CLEANER_DIRTY, metrics.cleaner_max_dirty_percent.get());
        out.one(
            n::CLEANER_UNCLEANABLE,
            metrics.cleaner_uncleanable_partitions.get(),
        );
        self.time(out, n::LOG_FLUSH, &metrics.log_flush_time);
    }

    pub(super) fn requests(&self, out: &mut Out) {
        let mut series = Series::begin(out, n::REQUESTS);
        for request in self.metrics.requests() {
            for (version, counter) in request.by_version.iter().enumerate() {
                if counter.get() > 0 {
                    let labels: [Label<'_>; 2] =
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
                let labels: [Label<'_>; 2] = [("request", &request.name), ("error", &error)];
                series.sample(&labels, count);
            }
        }
    }

    pub(super) fn request_times(&self, out: &mut Out) {
        type Read = fn(&RequestMetrics) -> &Histogram;
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
                let summary = read(request).summary(self.options.now);
                series.summary(&[("request", &request.name)], &summary);
            }
        }
    }

    pub(super) fn network(&self, out: &mut Out) {
        let listeners = self.metrics.listeners();
        out.one(n::NETWORK_IDLE, self.idle);
        out.one(n::HANDLER_IDLE, self.idle);
        out.one(n::REQUEST_QUEUE, self.metrics.request_queue_size.get());
        out.one(n::RESPONSE_QUEUE, self.metrics.response_queue_size.get());
        type Read = fn(&ListenerMetrics, Instant) -> f64;
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
                let labels: [Label<'_>; 2] = [("listener", name), ("network_processor", &0)];
                series.sample(&labels, read(listener, self.options.now));
            }
        }
        Series::begin(out, n::TLS_INFO);
    }

    /// Who speaks to this broker, and how old they are.
    pub(super) fn clients(&self, out: &mut Out) {
        let radar = &self.metrics.radar;
        let mut series = Series::begin(out, n::SOFTWARE);
        radar.each_open(|listener, software, count| {
            let labels: [Label<'_>; 4] = [
                ("client_software_name", &software.name),
                ("client_software_version", &software.version),
                ("listener", listener),
                ("network_processor", &0),
            ];
            series.sample(&labels, count);
        });
        let mut series = Series::begin(out, n::CLIENT_VERSIONS);
        radar.each_use(|software, request, version, count| {
            let labels: [Label<'_>; 4] = [
                ("client_software_name", &software.name),
                ("client_software_version", &software.version),
                ("request", &request),
                ("version", &version),
            ];
            series.sample(&labels, count);
        });
        let mut series = Series::begin(out, n::CLIENT_TOO_OLD);
        radar.each_too_old(|client, request, version, count| {
            let labels: [Label<'_>; 5] = [
                ("client_id", &client.id),
                ("client_software_name", &client.software.name),
                ("client_software_version", &client.software.version),
                ("request", &request),
                ("version", &version),
            ];
            series.sample(&labels, count);
        });
    }

    pub(super) fn waiting(&self, out: &mut Out) {
        let metrics = &self.metrics;
        let mut series = Series::begin(out, n::PURGATORY);
        for (operation, gauge) in [
            ("Produce", &metrics.waiting_produce),
            ("Fetch", &metrics.waiting_fetch),
        ] {
            series.sample(&[("delayed_operation", &operation)], gauge.get());
        }
        out.one(n::FETCH_SESSIONS, metrics.incremental_fetch_sessions.get());
        out.one(
            n::FETCH_SESSION_PARTITIONS,
            metrics.incremental_fetch_partitions.get(),
        );
        out.one(
            n::FETCH_SESSION_EVICTIONS,
            metrics.incremental_fetch_session_evictions.get(),
        );
    }

    pub(super) fn group_states(&self, out: &mut Out) {
        let offsets: usize = self.groups.iter().map(|group| group.offsets.len()).sum();
        out.one(n::GROUPS, self.groups.len());
        out.one(n::GROUP_OFFSETS, offsets);
        for (family, state) in [
            (n::GROUPS_STABLE, GroupStateSample::Stable),
            (n::GROUPS_EMPTY, GroupStateSample::Empty),
            (n::GROUPS_DEAD, GroupStateSample::Dead),
            (n::GROUPS_PREPARING, GroupStateSample::PreparingRebalance),
            (n::GROUPS_COMPLETING, GroupStateSample::CompletingRebalance),
        ] {
            let groups = self.groups.iter();
            out.one(family, groups.filter(|group| group.state == state).count());
        }
    }

    /// As `kafka_exporter` tells it, once for the cluster: by the controller.
    pub(super) fn exporter_cluster(&self, out: &mut Out) {
        let cluster = &self.cluster;
        let mut series = Series::begin(out, n::EXPORTER_BROKERS);
        if cluster.is_controller {
            series.sample(&[], cluster.brokers.len());
        }
        let mut series = Series::begin(out, n::EXPORTER_BROKER_INFO);
        for (id, address) in cluster.brokers.iter().filter(|_| cluster.is_controller) {
            series.sample(&[("id", id), ("address", address)], 1);
        }
    }

    pub(super) fn process(&self, out: &mut Out) {
        let process = &self.process;
        out.one(n::PROCESS_CPU, process.cpu_seconds);
        out.one(n::PROCESS_RESIDENT, process.resident_bytes);
        out.one(n::PROCESS_VIRTUAL, process.virtual_bytes);
        out.one(n::PROCESS_OPEN_FDS, process.open_fds);
        out.one(n::PROCESS_MAX_FDS, process.max_fds);
        out.one(n::PROCESS_START, process.start_seconds);
        out.one(n::DISK_READ, process.disk_read_bytes);
        out.one(n::DISK_WRITE, process.disk_write_bytes);
        Series::begin(out, n::JVM_MEMORY).sample(&[("area", &"heap")], process.resident_bytes);
        Series::begin(out, n::JVM_GC).sum_and_count(&[("gc", &"none")], 0.0, 0);
        out.one(n::JVM_THREADS, process.threads);
        let version = env!("CARGO_PKG_VERSION");
        Series::begin(out, n::BUILD_INFO).sample(&[("version", &version)], 1);
    }
}

/// `NotLeaderOrFollower` is `NOT_LEADER_OR_FOLLOWER` in Kafka.
fn kafka_name(error: ErrorCode) -> String {
    let mut name = String::new();
    for character in format!("{error:?}").chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}
