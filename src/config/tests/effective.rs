//! Every key arrives: the broker's, a topic's own, those that change while the broker runs.

use super::*;

/// Every broker key that the configuration carries as a field: a value that is not the default
/// arrives there.
#[test]
fn every_key_that_is_acted_on_arrives() {
    type Shown = fn(&BrokerConfig) -> String;
    let cases: &[(&str, &str, Shown)] = &[
        ("node.id", "5", |c| c.node_id.to_string()),
        ("broker.id", "5", |c| c.node_id.to_string()),
        ("broker.rack", "r1", |c| c.rack.clone().unwrap_or_default()),
        ("cluster.id", "abc", |c| {
            c.cluster_id.clone().unwrap_or_default()
        }),
        ("log.dir", "/x", |c| c.log_dirs[0].display().to_string()),
        ("log.dirs", "/x", |c| c.log_dirs[0].display().to_string()),
        ("etcd.prefix", "/p", |c| c.etcd_prefix.clone()),
        ("num.partitions", "9", |c| c.num_partitions.to_string()),
        ("default.replication.factor", "2", |c| {
            c.default_replication_factor.to_string()
        }),
        ("auto.create.topics.enable", "false", |c| {
            c.auto_create_topics_enable.to_string()
        }),
        ("delete.topic.enable", "false", |c| {
            c.delete_topic_enable.to_string()
        }),
        ("socket.request.max.bytes", "5000", |c| {
            c.socket_request_max_bytes.to_string()
        }),
        ("socket.send.buffer.bytes", "-1", |c| {
            c.socket_send_buffer_bytes.to_string()
        }),
        ("socket.receive.buffer.bytes", "7", |c| {
            c.socket_receive_buffer_bytes.to_string()
        }),
        ("socket.listen.backlog.size", "7", |c| {
            c.socket_listen_backlog_size.to_string()
        }),
        ("queued.max.request.bytes", "999999999", |c| {
            c.queued_max_request_bytes.to_string()
        }),
        ("max.connections", "7", |c| c.max_connections.to_string()),
        ("max.connections.per.ip", "7", |c| {
            c.max_connections_per_ip.to_string()
        }),
        ("max.connections.per.ip.overrides", "h:3", |c| {
            let (host, count) = &c.max_connections_per_ip_overrides[0];
            format!("{host}:{count}")
        }),
        ("max.connection.creation.rate", "7", |c| {
            c.max_connection_creation_rate.to_string()
        }),
        ("connections.max.idle.ms", "7", |c| {
            c.connections_max_idle_ms.to_string()
        }),
        ("fetch.max.bytes", "2048", |c| c.fetch_max_bytes.to_string()),
        ("max.incremental.fetch.session.cache.slots", "7", |c| {
            c.fetch_session_slots.to_string()
        }),
        ("max.request.partition.size.limit", "7", |c| {
            c.max_request_partition_size_limit.to_string()
        }),
        ("offsets.topic.num.partitions", "7", |c| {
            c.offsets_topic_num_partitions.to_string()
        }),
        ("offsets.topic.replication.factor", "1", |c| {
            c.offsets_topic_replication_factor.to_string()
        }),
        ("offsets.topic.segment.bytes", "7", |c| {
            c.offsets_topic_segment_bytes.to_string()
        }),
        ("offsets.retention.minutes", "7", |c| {
            c.offsets_retention_minutes.to_string()
        }),
        ("offsets.retention.check.interval.ms", "7", |c| {
            c.offsets_retention_check_interval_ms.to_string()
        }),
        ("offset.metadata.max.bytes", "7", |c| {
            c.offset_metadata_max_bytes.to_string()
        }),
        ("offsets.commit.timeout.ms", "7", |c| {
            c.offsets_commit_timeout_ms.to_string()
        }),
        ("group.initial.rebalance.delay.ms", "7", |c| {
            c.group_initial_rebalance_delay_ms.to_string()
        }),
        ("group.min.session.timeout.ms", "7", |c| {
            c.group_min_session_timeout_ms.to_string()
        }),
        ("group.max.session.timeout.ms", "7000", |c| {
            c.group_max_session_timeout_ms.to_string()
        }),
        ("group.max.size", "7", |c| c.group_max_size.to_string()),
        ("producer.id.expiration.ms", "7", |c| {
            c.producer_id_expiration_ms.to_string()
        }),
        ("producer.id.expiration.check.interval.ms", "7", |c| {
            c.producer_id_expiration_check_interval_ms.to_string()
        }),
        ("log.initial.task.delay.ms", "7", |c| {
            c.log_initial_task_delay_ms.to_string()
        }),
        ("log.flush.offset.checkpoint.interval.ms", "7", |c| {
            c.log_flush_offset_checkpoint_interval_ms.to_string()
        }),
        ("log.flush.start.offset.checkpoint.interval.ms", "7", |c| {
            c.log_flush_start_offset_checkpoint_interval_ms.to_string()
        }),
        ("log.flush.scheduler.interval.ms", "7", |c| {
            c.log_flush_scheduler_interval_ms.to_string()
        }),
        ("log.retention.check.interval.ms", "7", |c| {
            c.log_retention_check_interval_ms.to_string()
        }),
        ("log.cleaner.enable", "false", |c| {
            c.log_cleaner_enable.to_string()
        }),
        ("log.cleaner.backoff.ms", "7", |c| {
            c.log_cleaner_backoff_ms.to_string()
        }),
        ("num.recovery.threads.per.data.dir", "7", |c| {
            c.num_recovery_threads_per_data_dir.to_string()
        }),
        ("initial.broker.registration.timeout.ms", "7", |c| {
            c.initial_broker_registration_timeout_ms.to_string()
        }),
    ];
    for (key, value, shown) in cases {
        let before = shown_or_empty(&file("").unwrap().config, *shown, key);
        let config = file(&format!("{key}={value}\n")).unwrap().config;
        assert_eq!(shown(&config), *value, "{key}");
        assert_ne!(before, *value, "{key}: the test gives the default");
    }
}

/// The default of a list that is empty cannot be shown.
fn shown_or_empty(config: &BrokerConfig, shown: fn(&BrokerConfig) -> String, key: &str) -> String {
    match key {
        "max.connections.per.ip.overrides" => String::new(),
        _ => shown(config),
    }
}

/// Every broker key that stands behind a topic key, and the topic key itself.
#[test]
fn topics_take_their_own_value_or_else_the_brokers() {
    type Shown = fn(&TopicConfig) -> String;
    let cases: &[(&str, &str, &str, Shown)] = &[
        ("log.cleanup.policy", "cleanup.policy", "compact", |t| {
            let names = [
                (t.cleanup_policy.delete, "delete"),
                (t.cleanup_policy.compact, "compact"),
            ];
            let on: Vec<_> = names
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| *name)
                .collect();
            on.join(",")
        }),
        ("compression.type", "compression.type", "zstd", |t| {
            format!("{:?}", t.compression).replace("Always(Zstd)", "zstd")
        }),
        (
            "compression.gzip.level",
            "compression.gzip.level",
            "7",
            |t| t.compression_gzip_level.to_string(),
        ),
        ("compression.lz4.level", "compression.lz4.level", "7", |t| {
            t.compression_lz4_level.to_string()
        }),
        (
            "compression.zstd.level",
            "compression.zstd.level",
            "7",
            |t| t.compression_zstd_level.to_string(),
        ),
        (
            "log.message.timestamp.type",
            "message.timestamp.type",
            "LogAppendTime",
            |t| format!("{:?}", t.timestamp_type),
        ),
        (
            "log.message.timestamp.before.max.ms",
            "message.timestamp.before.max.ms",
            "7",
            |t| t.timestamp_before_max_ms.to_string(),
        ),
        (
            "log.message.timestamp.after.max.ms",
            "message.timestamp.after.max.ms",
            "7",
            |t| t.timestamp_after_max_ms.to_string(),
        ),
        ("message.max.bytes", "max.message.bytes", "7", |t| {
            t.max_message_bytes.to_string()
        }),
        (
            "max.decompressed.message.bytes",
            "max.decompressed.message.bytes",
            "7",
            |t| t.max_decompressed_message_bytes.to_string(),
        ),
        ("min.insync.replicas", "min.insync.replicas", "7", |t| {
            t.min_insync_replicas.to_string()
        }),
        ("log.segment.bytes", "segment.bytes", "2000000", |t| {
            t.segment_bytes.to_string()
        }),
        ("log.roll.ms", "segment.ms", "7", |t| {
            t.segment_ms.to_string()
        }),
        ("log.roll.jitter.ms", "segment.jitter.ms", "7", |t| {
            t.segment_jitter_ms.to_string()
        }),
        (
            "log.index.size.max.bytes",
            "segment.index.bytes",
            "77",
            |t| t.segment_index_bytes.to_string(),
        ),
        (
            "log.index.interval.bytes",
            "index.interval.bytes",
            "7",
            |t| t.index_interval_bytes.to_string(),
        ),
        ("log.flush.interval.messages", "flush.messages", "7", |t| {
            t.flush_messages.to_string()
        }),
        ("log.flush.interval.ms", "flush.ms", "7", |t| {
            t.flush_ms.to_string()
        }),
        ("log.retention.ms", "retention.ms", "7", |t| {
            t.retention_ms.to_string()
        }),
        ("log.retention.bytes", "retention.bytes", "7", |t| {
            t.retention_bytes.to_string()
        }),
        (
            "log.cleaner.delete.retention.ms",
            "delete.retention.ms",
            "7",
            |t| t.delete_retention_ms.to_string(),
        ),
        (
            "log.segment.delete.delay.ms",
            "file.delete.delay.ms",
            "7",
            |t| t.file_delete_delay_ms.to_string(),
        ),
        (
            "log.cleaner.min.compaction.lag.ms",
            "min.compaction.lag.ms",
            "7",
            |t| t.min_compaction_lag_ms.to_string(),
        ),
        (
            "log.cleaner.max.compaction.lag.ms",
            "max.compaction.lag.ms",
            "7",
            |t| t.max_compaction_lag_ms.to_string(),
        ),
        (
            "log.cleaner.min.cleanable.ratio",
            "min.cleanable.dirty.ratio",
            "0.75",
            |t| t.min_cleanable_dirty_ratio.to_string(),
        ),
        ("log.preallocate", "preallocate", "true", |t| {
            t.preallocate.to_string()
        }),
        (
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            "true",
            |t| t.unclean_leader_election.to_string(),
        ),
    ];
    let set = |key: &str, value: &str| BTreeMap::from([(key.to_string(), value.to_string())]);
    let none = BTreeMap::new();
    for (broker, topic, value, shown) in cases {
        assert_ne!(shown(&TopicConfig::default()), *value, "{topic}");
        let plain = BrokerValues::default();
        let by_topic = TopicConfig::resolve(&plain, &set(topic, value)).unwrap();
        assert_eq!(shown(&by_topic), *value, "{topic}");
        let file = BrokerValues::new(set(broker, value));
        let by_broker = TopicConfig::resolve(&file, &none).unwrap();
        assert_eq!(shown(&by_broker), *value, "{broker}");
        let by_cluster = plain.with_dynamic(&set(broker, value), &none);
        let by_cluster = TopicConfig::resolve(&by_cluster, &none).unwrap();
        assert_eq!(shown(&by_cluster), *value, "dynamic {broker}");
    }
    let small = TopicConfig::resolve(
        &BrokerValues::default(),
        &set("internal.segment.bytes", "99"),
    );
    assert_eq!(small.unwrap().segment_bytes, 99);
}

#[test]
fn stored_overrides_that_do_not_fit_any_more_are_left_out() {
    let overrides = BTreeMap::from([
        ("retention.ms".to_string(), "5".to_string()),
        ("segment.bytes".to_string(), "14".to_string()),
        ("message.format.version".to_string(), "2.0".to_string()),
    ]);
    assert!(TopicConfig::resolve(&BrokerValues::default(), &overrides).is_err());
    let config = TopicConfig::resolve_stored(&BrokerValues::default(), &overrides);
    assert_eq!(config.retention_ms, 5);
    assert_eq!(config.segment_bytes, 1 << 30);
}

#[test]
fn dynamic_values_replace_those_of_the_start_while_the_broker_runs() {
    let config = file("max.connections=100\n").unwrap().config;
    let set = |key: &str, value: &str| BTreeMap::from([(key.to_string(), value.to_string())]);
    let none = BTreeMap::new();
    let all = config.with_dynamic(&set("max.connections", "50"), &none);
    assert_eq!(all.max_connections, 50);
    let own = config.with_dynamic(&set("max.connections", "50"), &set("max.connections", "20"));
    assert_eq!(own.max_connections, 20);
    assert_eq!(own.values.statics(), config.values.statics());
    let unfit = config.with_dynamic(&set("max.connections", "x"), &none);
    assert_eq!(unfit.max_connections, 100);
}
