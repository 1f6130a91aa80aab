//! The broker's own configuration.

use std::path::{Path, PathBuf};

use super::keys::elements;
use super::load;
use super::values::BrokerValues;
use super::{LoadedConfig, listeners};
use crate::types::{BrokerId, ListenerName};

/// One client listener: where it is bound and what it tells clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: ListenerName,
    /// Empty: all interfaces.
    pub host: String,
    /// 0: any free port.
    pub port: u16,
    pub advertised_host: String,
    /// 0: the port that is really bound.
    pub advertised_port: u16,
    /// Connections that it accepts at most, besides the broker's own limit.
    pub max_connections: Option<i32>,
    /// Connections that it takes up per second at most, besides the broker's own limit.
    pub max_connection_creation_rate: Option<i32>,
}

/// Where something that is not for Kafka clients listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// Empty: all interfaces.
    pub host: String,
    /// 0: any free port.
    pub port: u16,
}

/// A value that cannot be used. Prints the key, the value and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}={value}: {fix}")]
pub struct ConfigError {
    pub key: String,
    pub value: String,
    pub fix: String,
}

impl ConfigError {
    pub fn new(key: impl Into<String>, value: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            fix: fix.into(),
        }
    }
}

/// Everything that was set at the start, parsed and checked. Field names are Kafka's keys with `_`.
/// Times in milliseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerConfig {
    pub node_id: BrokerId,
    pub rack: Option<String>,
    pub cluster_id: Option<String>,
    /// Those of clients; never empty.
    pub listeners: Vec<Listener>,
    /// The one of `listeners` by which brokers reach each other.
    pub inter_broker_listener: ListenerName,
    pub metrics_listeners: Vec<HostPort>,
    /// `metrics.listeners` was set: a busy port stops the start. Else it is a warning.
    pub metrics_listeners_configured: bool,
    /// Series with labels, and bytes, of a page of metrics.
    pub metrics_series_max: i32,
    pub metrics_page_bytes_max: i64,
    /// Never empty.
    pub log_dirs: Vec<PathBuf>,
    /// Empty: the embedded registry.
    pub etcd_endpoints: Vec<String>,
    pub etcd_prefix: String,
    pub etcd_user: Option<String>,
    pub etcd_password: Option<String>,
    pub etcd_tls_ca_file: Option<PathBuf>,
    pub etcd_tls_certificate_file: Option<PathBuf>,
    pub etcd_tls_key_file: Option<PathBuf>,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    pub socket_request_max_bytes: i32,
    /// −1: the system's default; as `socket_receive_buffer_bytes`.
    pub socket_send_buffer_bytes: i32,
    pub socket_receive_buffer_bytes: i32,
    pub socket_listen_backlog_size: i32,
    /// −1: no limit.
    pub queued_max_request_bytes: i64,
    pub queued_max_requests: i32,
    pub max_connections: i32,
    pub max_connections_per_ip: i32,
    /// Host or address, and the limit that replaces `max_connections_per_ip` for it.
    pub max_connections_per_ip_overrides: Vec<(String, i32)>,
    /// Per second.
    pub max_connection_creation_rate: i32,
    /// Negative: never.
    pub connections_max_idle_ms: i64,
    pub request_timeout_ms: i32,
    pub fetch_max_bytes: i32,
    pub fetch_session_slots: usize,
    pub max_request_partition_size_limit: i32,
    pub offsets_topic_num_partitions: i32,
    pub offsets_topic_replication_factor: i16,
    pub offsets_topic_segment_bytes: i32,
    pub offsets_retention_minutes: i32,
    pub offsets_retention_check_interval_ms: i64,
    pub offset_metadata_max_bytes: i32,
    pub offsets_commit_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_max_size: i32,
    pub transaction_state_log_num_partitions: i32,
    pub transaction_state_log_replication_factor: i16,
    pub transaction_state_log_min_isr: i32,
    pub transaction_state_log_segment_bytes: i32,
    pub transaction_max_timeout_ms: i32,
    pub transactional_id_expiration_ms: i32,
    pub producer_id_expiration_ms: i32,
    pub producer_id_expiration_check_interval_ms: i32,
    pub log_initial_task_delay_ms: i64,
    pub log_flush_offset_checkpoint_interval_ms: i32,
    /// Room that users' records leave free on each disk.
    pub log_dir_reserved_bytes: i64,
    /// Zero or less: closed segments are not scrubbed.
    pub log_scrub_interval_ms: i64,
    pub log_flush_start_offset_checkpoint_interval_ms: i32,
    pub log_flush_scheduler_interval_ms: i64,
    pub log_retention_check_interval_ms: i64,
    pub log_cleaner_enable: bool,
    pub log_cleaner_threads: i32,
    pub log_cleaner_backoff_ms: i64,
    pub log_cleaner_dedupe_buffer_size: i64,
    pub num_recovery_threads_per_data_dir: i32,
    pub replica_high_watermark_checkpoint_interval_ms: i64,
    pub replica_lag_time_max_ms: i64,
    pub replica_fetch_max_bytes: i32,
    pub replica_fetch_min_bytes: i32,
    pub replica_fetch_wait_max_ms: i32,
    pub replica_fetch_response_max_bytes: i32,
    pub replica_fetch_backoff_ms: i32,
    pub replica_socket_timeout_ms: i32,
    pub replica_socket_receive_buffer_bytes: i32,
    pub num_replica_fetchers: i32,
    pub broker_heartbeat_interval_ms: i32,
    pub broker_session_timeout_ms: i32,
    pub initial_broker_registration_timeout_ms: i32,
    pub auto_leader_rebalance_enable: bool,
    pub leader_imbalance_check_interval_seconds: i64,
    pub controlled_shutdown_enable: bool,
    /// All values as text: what topics and DescribeConfigs resolve against. In a configuration that
    /// was loaded, only those of the start.
    pub values: BrokerValues,
}

impl BrokerConfig {
    /// Reads `file` (or else the built-in `config/server.properties`), then the `KAFKA_*` names of
    /// `env`, then `overrides` of the form `key=value`; what comes later wins.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: &[String],
    ) -> Result<LoadedConfig, ConfigError> {
        load::load(file, env, overrides)
    }

    /// What tests start from: Kafka's defaults, one PLAINTEXT listener on a free port of 127.0.0.1.
    pub fn for_tests(log_dir: impl Into<PathBuf>) -> Self {
        let pairs = [
            ("node.id", "1".to_string()),
            ("listeners", "PLAINTEXT://127.0.0.1:0".to_string()),
            ("group.initial.rebalance.delay.ms", "0".to_string()),
            ("metrics.listeners", String::new()),
            ("log.dirs", log_dir.into().display().to_string()),
        ];
        let values = pairs
            .into_iter()
            .map(|(key, value)| (key.to_string(), value))
            .collect();
        match Self::from_values(BrokerValues::new(values)) {
            Ok(config) => config,
            Err(error) => unreachable!("{error}"),
        }
    }

    /// The same broker with dynamic values: the cluster's defaults, and its own. Dynamic values that
    /// do not fit are left out.
    pub fn with_dynamic(
        &self,
        defaults: &std::collections::BTreeMap<String, String>,
        broker: &std::collections::BTreeMap<String, String>,
    ) -> Self {
        let values = self.values.with_dynamic(defaults, broker);
        match Self::from_values(values.clone()) {
            Ok(config) => config,
            Err(_) => Self {
                values,
                ..self.clone()
            },
        }
    }

    /// Parses and cross-checks.
    pub fn from_values(values: BrokerValues) -> Result<Self, ConfigError> {
        load::check_each(&values)?;
        let node_id = node_id(&values)?;
        let host = hostname();
        let listeners = listeners::client_listeners(&values, &host)?;
        let read = Reader(&values);
        let config = Self {
            node_id,
            rack: read.text("broker.rack"),
            cluster_id: read.text("cluster.id"),
            inter_broker_listener: listeners::inter_broker_name(&values, &listeners)?,
            listeners,
            metrics_listeners: listeners::metrics_listeners(&values)?,
            metrics_listeners_configured: values.explicit("metrics.listeners").is_some(),
            metrics_series_max: read.int("metrics.series.max"),
            metrics_page_bytes_max: read.long("metrics.page.bytes.max"),
            log_dirs: log_dirs(&values)?,
            etcd_endpoints: read.list("etcd.endpoints"),
            etcd_prefix: read.text("etcd.prefix").unwrap_or_default(),
            etcd_user: read.text("etcd.user"),
            etcd_password: read.text("etcd.password"),
            etcd_tls_ca_file: read.text("etcd.tls.ca.file").map(PathBuf::from),
            etcd_tls_certificate_file: read.text("etcd.tls.certificate.file").map(PathBuf::from),
            etcd_tls_key_file: read.text("etcd.tls.key.file").map(PathBuf::from),
            num_partitions: read.int("num.partitions"),
            default_replication_factor: read.short("default.replication.factor"),
            auto_create_topics_enable: read.flag("auto.create.topics.enable"),
            delete_topic_enable: read.flag("delete.topic.enable"),
            socket_request_max_bytes: read.int("socket.request.max.bytes"),
            socket_send_buffer_bytes: read.int("socket.send.buffer.bytes"),
            socket_receive_buffer_bytes: read.int("socket.receive.buffer.bytes"),
            socket_listen_backlog_size: read.int("socket.listen.backlog.size"),
            queued_max_request_bytes: read.long("queued.max.request.bytes"),
            queued_max_requests: read.int("queued.max.requests"),
            max_connections: read.int("max.connections"),
            max_connections_per_ip: read.int("max.connections.per.ip"),
            max_connections_per_ip_overrides: listeners::connection_overrides(&values)?,
            max_connection_creation_rate: read.int("max.connection.creation.rate"),
            connections_max_idle_ms: read.long("connections.max.idle.ms"),
            request_timeout_ms: read.int("request.timeout.ms"),
            fetch_max_bytes: read.int("fetch.max.bytes"),
            fetch_session_slots: usize::try_from(
                read.int("max.incremental.fetch.session.cache.slots"),
            )
            .unwrap_or_default(),
            max_request_partition_size_limit: read.int("max.request.partition.size.limit"),
            offsets_topic_num_partitions: read.int("offsets.topic.num.partitions"),
            offsets_topic_replication_factor: read.short("offsets.topic.replication.factor"),
            offsets_topic_segment_bytes: read.int("offsets.topic.segment.bytes"),
            offsets_retention_minutes: read.int("offsets.retention.minutes"),
            offsets_retention_check_interval_ms: read.long("offsets.retention.check.interval.ms"),
            offset_metadata_max_bytes: read.int("offset.metadata.max.bytes"),
            offsets_commit_timeout_ms: read.int("offsets.commit.timeout.ms"),
            group_initial_rebalance_delay_ms: read.int("group.initial.rebalance.delay.ms"),
            group_min_session_timeout_ms: read.int("group.min.session.timeout.ms"),
            group_max_session_timeout_ms: read.int("group.max.session.timeout.ms"),
            group_max_size: read.int("group.max.size"),
            transaction_state_log_num_partitions: read.int("transaction.state.log.num.partitions"),
            transaction_state_log_replication_factor: read
                .short("transaction.state.log.replication.factor"),
            transaction_state_log_min_isr: read.int("transaction.state.log.min.isr"),
            transaction_state_log_segment_bytes: read.int("transaction.state.log.segment.bytes"),
            transaction_max_timeout_ms: read.int("transaction.max.timeout.ms"),
            transactional_id_expiration_ms: read.int("transactional.id.expiration.ms"),
            producer_id_expiration_ms: read.int("producer.id.expiration.ms"),
            producer_id_expiration_check_interval_ms: read
                .int("producer.id.expiration.check.interval.ms"),
            log_initial_task_delay_ms: read.long("log.initial.task.delay.ms"),
            log_dir_reserved_bytes: read.long("log.dir.reserved.bytes"),
            log_scrub_interval_ms: read.long("log.scrub.interval.ms"),
            log_flush_offset_checkpoint_interval_ms: read
                .int("log.flush.offset.checkpoint.interval.ms"),
            log_flush_start_offset_checkpoint_interval_ms: read
                .int("log.flush.start.offset.checkpoint.interval.ms"),
            log_flush_scheduler_interval_ms: read.long("log.flush.scheduler.interval.ms"),
            log_retention_check_interval_ms: read.long("log.retention.check.interval.ms"),
            log_cleaner_enable: read.flag("log.cleaner.enable"),
            log_cleaner_threads: read.int("log.cleaner.threads"),
            log_cleaner_backoff_ms: read.long("log.cleaner.backoff.ms"),
            log_cleaner_dedupe_buffer_size: read.long("log.cleaner.dedupe.buffer.size"),
            num_recovery_threads_per_data_dir: read.int("num.recovery.threads.per.data.dir"),
            replica_high_watermark_checkpoint_interval_ms: read
                .long("replica.high.watermark.checkpoint.interval.ms"),
            replica_lag_time_max_ms: read.long("replica.lag.time.max.ms"),
            replica_fetch_max_bytes: read.int("replica.fetch.max.bytes"),
            replica_fetch_min_bytes: read.int("replica.fetch.min.bytes"),
            replica_fetch_wait_max_ms: read.int("replica.fetch.wait.max.ms"),
            replica_fetch_response_max_bytes: read.int("replica.fetch.response.max.bytes"),
            replica_fetch_backoff_ms: read.int("replica.fetch.backoff.ms"),
            replica_socket_timeout_ms: read.int("replica.socket.timeout.ms"),
            replica_socket_receive_buffer_bytes: read.int("replica.socket.receive.buffer.bytes"),
            num_replica_fetchers: read.int("num.replica.fetchers"),
            broker_heartbeat_interval_ms: read.int("broker.heartbeat.interval.ms"),
            broker_session_timeout_ms: read.int("broker.session.timeout.ms"),
            initial_broker_registration_timeout_ms: read
                .int("initial.broker.registration.timeout.ms"),
            auto_leader_rebalance_enable: read.flag("auto.leader.rebalance.enable"),
            leader_imbalance_check_interval_seconds: read
                .long("leader.imbalance.check.interval.seconds"),
            controlled_shutdown_enable: read.flag("controlled.shutdown.enable"),
            values,
        };
        config.cross_check()?;
        super::TopicConfig::resolve(&config.values, &std::collections::BTreeMap::new())?;
        Ok(config)
    }

    /// Rules between keys, as `KafkaConfig.validateValues` has them.
    fn cross_check(&self) -> Result<(), ConfigError> {
        let read = Reader(&self.values);
        let fail = |key: &str, fix: &str| {
            Err(ConfigError::new(
                key,
                self.values.get(key).unwrap_or_default(),
                fix,
            ))
        };
        if self.queued_max_request_bytes > 0
            && self.queued_max_request_bytes < i64::from(self.socket_request_max_bytes)
        {
            return fail(
                "queued.max.request.bytes",
                "give -1 or at least socket.request.max.bytes, or no large request ever fits",
            );
        }
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms {
            return fail(
                "group.min.session.timeout.ms",
                "give at most group.max.session.timeout.ms",
            );
        }
        if self.max_connections_per_ip == 0 && self.max_connections_per_ip_overrides.is_empty() {
            return fail(
                "max.connections.per.ip",
                "0 is allowed only beside max.connections.per.ip.overrides",
            );
        }
        if self.etcd_user.is_some() != self.etcd_password.is_some() {
            return fail("etcd.user", "give etcd.user and etcd.password together");
        }
        if self.etcd_tls_certificate_file.is_some() != self.etcd_tls_key_file.is_some() {
            return fail(
                "etcd.tls.certificate.file",
                "give etcd.tls.certificate.file and etcd.tls.key.file together",
            );
        }
        if self.values.get("log.retention.ms") == Some("0") {
            return fail("log.retention.ms", "give -1 or at least 1");
        }
        let protocols = read.list("group.coordinator.rebalance.protocols");
        if !protocols.iter().any(|protocol| protocol == "classic") {
            return fail(
                "group.coordinator.rebalance.protocols",
                "keep classic among them: it cannot be switched off",
            );
        }
        if self.default_replication_factor < 1 {
            return fail("default.replication.factor", "give at least 1");
        }
        if self.replica_fetch_wait_max_ms > read.int("replica.socket.timeout.ms") {
            return fail(
                "replica.fetch.wait.max.ms",
                "give at most replica.socket.timeout.ms",
            );
        }
        if i64::from(self.replica_fetch_wait_max_ms) > self.replica_lag_time_max_ms {
            return fail(
                "replica.fetch.wait.max.ms",
                "give at most replica.lag.time.max.ms, or replicas leave the ISR",
            );
        }
        for key in ["socket.send.buffer.bytes", "socket.receive.buffer.bytes"] {
            if read.int(key) < 1 && read.int(key) != -1 {
                return fail(key, "give -1 (the system's default) or at least 1");
            }
        }
        Ok(())
    }
}

/// `node.id`, or its old name `broker.id`.
fn node_id(values: &BrokerValues) -> Result<BrokerId, ConfigError> {
    let number = |key: &str| {
        let value = values.explicit(key)?;
        value.parse::<i32>().ok().filter(|&id| id >= 0)
    };
    match (number("node.id"), number("broker.id")) {
        (Some(node), Some(broker)) if node != broker => Err(ConfigError::new(
            "broker.id",
            broker.to_string(),
            format!("node.id is {node}: both mean the same, leave broker.id out"),
        )),
        (Some(id), _) | (None, Some(id)) => Ok(BrokerId(id)),
        (None, None) if values.explicit("etcd.endpoints").is_none() => Ok(BrokerId(1)),
        (None, None) => Err(ConfigError::new(
            "node.id",
            "",
            "give each broker of the cluster a number of its own, from 0",
        )),
    }
}

/// `log.dirs`, or else `log.dir`; each once.
fn log_dirs(values: &BrokerValues) -> Result<Vec<PathBuf>, ConfigError> {
    let key = match values.explicit("log.dirs") {
        Some(_) => "log.dirs",
        None => "log.dir",
    };
    let text = values.get(key).unwrap_or_default();
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in elements(text).map(PathBuf::from) {
        if dir.as_os_str().is_empty() || dirs.contains(&dir) {
            return Err(ConfigError::new(
                key,
                text,
                "name each directory once, separated by commas",
            ));
        }
        dirs.push(dir);
    }
    if dirs.is_empty() {
        return Err(ConfigError::new(key, text, "name at least one directory"));
    }
    Ok(dirs)
}

/// What this machine calls itself.
fn hostname() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    match name.as_str() {
        "" | "(none)" => "localhost".to_string(),
        _ => name,
    }
}

/// Reads values that have been checked against the table of keys.
struct Reader<'a>(&'a BrokerValues);

impl Reader<'_> {
    fn parsed<T: std::str::FromStr + Default>(&self, key: &str) -> T {
        let value = self.0.get(key).unwrap_or_default();
        value.parse().unwrap_or_default()
    }

    fn int(&self, key: &str) -> i32 {
        self.parsed(key)
    }

    /// Also of keys that are INT in Kafka and 16 bits on the wire.
    fn short(&self, key: &str) -> i16 {
        i16::try_from(self.parsed::<i64>(key)).unwrap_or(i16::MAX)
    }

    fn long(&self, key: &str) -> i64 {
        self.parsed(key)
    }

    fn flag(&self, key: &str) -> bool {
        self.parsed(key)
    }

    /// `None` where nothing or nothing but space is set.
    fn text(&self, key: &str) -> Option<String> {
        self.0
            .get(key)
            .filter(|value| !value.is_empty())
            .map(str::to_string)
    }

    fn list(&self, key: &str) -> Vec<String> {
        elements(self.0.get(key).unwrap_or_default())
            .filter(|element| !element.is_empty())
            .map(str::to_string)
            .collect()
    }
}
