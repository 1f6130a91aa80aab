//! The broker's own configuration.

use std::path::PathBuf;

use crate::types::{BrokerId, ListenerName};

/// One client listener: where it is bound and what it tells clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: ListenerName,
    /// Empty: all interfaces.
    pub host: String,
    pub port: u16,
    pub advertised_host: String,
    pub advertised_port: u16,
}

/// A value that cannot be used. Prints the key, the value and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}={value}: {fix}")]
pub struct ConfigError {
    pub key: String,
    pub value: String,
    pub fix: String,
}

/// Everything that was set at the start, parsed and checked. Field names are Kafka's keys with `_`.
/// Times in milliseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerConfig {
    pub node_id: BrokerId,
    pub rack: Option<String>,
    pub cluster_id: Option<String>,
    pub listeners: Vec<Listener>,
    pub metrics_listener: Option<Listener>,
    pub log_dirs: Vec<PathBuf>,
    pub etcd_endpoints: Vec<String>,
    pub etcd_prefix: String,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    pub socket_request_max_bytes: i32,
    pub queued_max_request_bytes: i64,
    pub max_connections: i32,
    pub max_connections_per_ip: i32,
    pub connections_max_idle_ms: i64,
    pub fetch_max_bytes: i32,
    pub fetch_session_slots: usize,
    pub max_request_partition_size_limit: i32,
    pub offsets_topic_num_partitions: i32,
    pub offsets_topic_replication_factor: i16,
    pub offsets_retention_minutes: i32,
    pub offsets_retention_check_interval_ms: i64,
    pub offset_metadata_max_bytes: i32,
    pub offsets_commit_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_max_size: i32,
    pub producer_id_expiration_ms: i32,
    pub producer_id_expiration_check_interval_ms: i32,
    pub log_initial_task_delay_ms: i64,
    pub log_flush_offset_checkpoint_interval_ms: i64,
    pub log_flush_start_offset_checkpoint_interval_ms: i64,
    pub log_flush_scheduler_interval_ms: i64,
    pub log_retention_check_interval_ms: i64,
    pub num_recovery_threads_per_data_dir: i32,
}
