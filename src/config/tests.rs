//! From file, environment and arguments to what the broker acts on.

use std::collections::BTreeMap;
use std::path::Path;

use super::{BrokerConfig, BrokerValues, ConfigError, LoadedConfig, TopicConfig};
use crate::types::BrokerId;

fn load_with(
    file: Option<&str>,
    env: &[(&str, &str)],
    overrides: &[&str],
) -> Result<LoadedConfig, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.properties");
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
    }
    let env = env.iter().map(|(n, v)| (n.to_string(), v.to_string()));
    let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
    BrokerConfig::load(file.map(|_| path.as_path()), env, &overrides)
}

fn file(text: &str) -> Result<LoadedConfig, ConfigError> {
    load_with(Some(text), &[], &[])
}

fn refused(text: &str) -> String {
    file(text).unwrap_err().to_string()
}

#[test]
fn without_a_file_a_broker_runs_for_this_machine_only() {
    let loaded = load_with(None, &[], &[]).unwrap();
    assert_eq!(loaded.unknown, Vec::<String>::new());
    assert_eq!(loaded.ignored, Vec::<String>::new());
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let config = loaded.config;
    assert_eq!(config.node_id, BrokerId(1));
    assert_eq!(config.listeners.len(), 1);
    let listener = &config.listeners[0];
    assert_eq!(
        (&*listener.name, listener.host.as_str(), listener.port),
        ("PLAINTEXT", "127.0.0.1", 9092)
    );
    assert_eq!(
        (listener.advertised_host.as_str(), listener.advertised_port),
        ("127.0.0.1", 9092)
    );
    assert_eq!(config.log_dirs, [Path::new("ottla-data")]);
    assert_eq!(config.group_initial_rebalance_delay_ms, 0);
    assert_eq!(config.offsets_topic_replication_factor, 3);
    assert_eq!(config.metrics_listeners.len(), 1);
    assert_eq!(config.metrics_listeners[0].port, 9404);
    assert!(!config.metrics_listeners_configured);
    assert!(config.etcd_endpoints.is_empty());
    let topic = TopicConfig::resolve(&config.values, &BTreeMap::new()).unwrap();
    assert_eq!(topic, TopicConfig::default());
}

#[test]
fn every_key_of_the_built_in_file_is_known_and_explained() {
    let mut explained = false;
    for line in super::load::BUILT_IN.lines() {
        match line.strip_prefix("# ") {
            Some(_) => explained = true,
            None if line.is_empty() => explained = false,
            None => {
                let (key, _) = line.trim_start_matches('#').split_once('=').unwrap();
                assert!(super::keys::broker_key(key).is_some(), "{key}");
                assert!(explained, "{key} has no comment");
            }
        }
    }
}

#[test]
fn the_built_in_file_has_every_key_that_is_acted_on_with_its_default() {
    let lines: Vec<&str> = super::load::BUILT_IN.lines().collect();
    for key in super::keys::broker_keys() {
        if key.honour != super::keys::Honour::Act || key.is_internal() {
            continue;
        }
        let set = format!("{}=", key.name);
        let shown = lines.iter().find_map(|line| {
            let line = line.strip_prefix('#').unwrap_or(line);
            line.strip_prefix(&set)
        });
        let Some(shown) = shown else {
            panic!("{} is not in config/server.properties", key.name);
        };
        let is_set = lines.iter().any(|line| line.starts_with(&set));
        let is_example = matches!(
            key.name,
            "broker.id" | "config.providers" | "etcd.endpoints"
        );
        if let Some(default) = key.default.filter(|_| !is_set && !is_example) {
            assert_eq!(shown, default, "{}", key.name);
        }
    }
}

#[test]
fn the_clusters_file_starts_a_broker() {
    let text = include_str!("../../config/cluster.properties");
    let loaded = load_with(Some(text), &[], &[]).unwrap();
    assert_eq!(loaded.config.etcd_endpoints.len(), 3);
    assert_eq!(loaded.config.default_replication_factor, 3);
    assert_eq!((loaded.unknown.len(), loaded.ignored.len()), (0, 0));
    assert_eq!(super::explain(text, &[]), []);
    let unit = include_str!("../../config/ottla.service");
    assert!(unit.contains("ExecStartPre=/usr/local/bin/ottla config check "));
}

#[test]
fn arguments_win_over_the_environment_over_the_file() {
    let text = "node.id=7\nnum.partitions=2\nlog.dirs=/a\ndefault.replication.factor=1\n";
    let loaded = load_with(
        Some(text),
        &[
            ("KAFKA_NUM_PARTITIONS", "3"),
            ("KAFKA_CFG_LOG_DIRS", "/b,/c"),
            ("KAFKA_HEAP_OPTS", "-Xmx1G"),
            ("HOME", "/root"),
        ],
        &["num.partitions=4"],
    )
    .unwrap();
    assert_eq!(loaded.config.node_id, BrokerId(7));
    assert_eq!(loaded.config.num_partitions, 4);
    assert_eq!(loaded.config.log_dirs, [Path::new("/b"), Path::new("/c")]);
    assert!(loaded.unknown.is_empty(), "{:?}", loaded.unknown);
    // A file replaces the built-in one altogether.
    assert_eq!(loaded.config.group_initial_rebalance_delay_ms, 3_000);
    let error = load_with(None, &[], &["num.partitions"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--override=num.partitions: give it as key=value"
    );
}

#[test]
fn a_wrong_value_names_key_value_and_fix() {
    let cases = [
        (
            "num.partitions=0",
            "num.partitions=0: give a whole number of at least 1",
        ),
        (
            "num.partitions=many",
            "num.partitions=many: give a whole number of at least 1",
        ),
        (
            "log.cleanup.policy=shred",
            "log.cleanup.policy=shred: give one or more of compact, delete",
        ),
        (
            "auto.create.topics.enable=yes",
            "auto.create.topics.enable=yes: give true or false",
        ),
        (
            "ssl.client.auth=maybe",
            "ssl.client.auth=maybe: give one of required, requested, none",
        ),
        (
            "node.id=1\nbroker.id=2",
            "broker.id=2: node.id is 1: both mean the same, leave broker.id out",
        ),
        (
            "log.dirs=/a,/a",
            "log.dirs=/a,/a: name each directory once, separated by commas",
        ),
        (
            "log.retention.ms=0",
            "log.retention.ms=0: give -1 or at least 1",
        ),
        (
            "group.coordinator.rebalance.protocols=consumer",
            "group.coordinator.rebalance.protocols=consumer: keep classic among them: it cannot be switched off",
        ),
        (
            "max.connections.per.ip=0",
            "max.connections.per.ip=0: 0 is allowed only beside max.connections.per.ip.overrides",
        ),
        (
            "max.connections.per.ip.overrides=127.0.0.1",
            "max.connections.per.ip.overrides=127.0.0.1: give pairs as host:count, separated by commas",
        ),
        (
            "group.min.session.timeout.ms=9\ngroup.max.session.timeout.ms=8",
            "group.min.session.timeout.ms=9: give at most group.max.session.timeout.ms",
        ),
        (
            "queued.max.request.bytes=1000",
            "queued.max.request.bytes=1000: give -1 or at least socket.request.max.bytes, or no large \
             request ever fits",
        ),
        (
            "log.cleaner.min.compaction.lag.ms=5\nlog.cleaner.max.compaction.lag.ms=4",
            "min.compaction.lag.ms=5: give at most max.compaction.lag.ms (4)",
        ),
        (
            "metrics.listeners=9404",
            "metrics.listeners=9404: give host:port, such as 127.0.0.1:9404, or nothing",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused(text), message);
    }
    let missing = BrokerConfig::load(Some(Path::new("/no/such/file")), std::iter::empty(), &[]);
    let missing = missing.unwrap_err().to_string();
    assert!(
        missing.starts_with("server.properties=/no/such/file: "),
        "{missing}"
    );
    let cluster = refused("etcd.endpoints=http://127.0.0.1:2379");
    assert!(cluster.starts_with("node.id=: "), "{cluster}");
}

#[test]
fn unknown_and_useless_keys_are_reported_and_do_no_harm() {
    let loaded = load_with(
        Some(
            "my.own=1\nzookeeper.connect=z:2181\nmetric.reporters=com.example.X\n\
             controller.quorum.voters=1@localhost:9093\nprocess.roles=broker,controller\n\
             listener.name.plaintext.max.connections=5\n\
             listener.name.plaintext.max.connection.creation.rate=6\nlistener.name.x.ssl.keystore.type=PEM\n\
             principal.builder.class=com.example.Principals\n",
        ),
        &[
            ("KAFKA_JMX_PORT", "9999"),
            ("KAFKA_ZOOKEEPER_SESSION_TIMEOUT_MS", "1"),
        ],
        &[],
    )
    .unwrap();
    assert_eq!(loaded.unknown, ["jmx.port", "my.own"]);
    assert_eq!(
        loaded.ignored,
        [
            "controller.quorum.voters",
            "listener.name.x.ssl.keystore.type",
            "metric.reporters",
            "principal.builder.class",
            "zookeeper.connect",
            "zookeeper.session.timeout.ms",
        ]
    );
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert_eq!(loaded.config.listeners[0].max_connections, Some(5));
    let rate = loaded.config.listeners[0].max_connection_creation_rate;
    assert_eq!(rate, Some(6));
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    let cases = [
        (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "authorizer.class.name=org.",
        ),
        ("process.roles=controller", "process.roles=controller: "),
        (
            "process.roles=controller\nnode.id=1\netcd.endpoints=http://e:2379",
            "process.roles=controller: ",
        ),
        ("process.roles=broker", "process.roles=broker: "),
        (
            "controller.quorum.voters=1@a:9093,2@b:9093",
            "controller.quorum.voters=1@a:9093,2@b:9093: each of these",
        ),
        (
            "listeners=SSL://:9092",
            "listeners=SSL://:9092: security protocol SSL",
        ),
    ];
    for (text, message) in cases {
        let refused = refused(text);
        assert!(refused.starts_with(message), "{text}: {refused}");
    }
    let accepted = [
        "process.roles=broker,controller\ncontroller.quorum.voters=1@localhost:9093,",
        "process.roles=broker\nnode.id=4\netcd.endpoints=http://e:2379\n\
         controller.quorum.voters=1@a:9093,2@b:9093",
        "authorizer.class.name=\nsuper.users=User:admin",
    ];
    for text in accepted {
        assert!(file(text).is_ok(), "{text}: {}", refused(text));
    }
}

/// Names, bound and advertised addresses of the listeners of `text`.
fn listeners(text: &str) -> Vec<String> {
    let config = file(text).unwrap().config;
    let listeners = config.listeners.iter();
    listeners
        .map(|l| {
            format!(
                "{} {}:{} {}:{}",
                l.name, l.host, l.port, l.advertised_host, l.advertised_port
            )
        })
        .collect()
}

#[test]
fn listeners_are_read_as_testcontainers_and_compose_files_write_them() {
    assert_eq!(
        listeners(
            "listeners=PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             advertised.listeners=PLAINTEXT://localhost:32768,BROKER://abc123:9093,\n\
             inter.broker.listener.name=BROKER\n"
        ),
        [
            "PLAINTEXT 0.0.0.0:9092 localhost:32768",
            "BROKER 0.0.0.0:9093 abc123:9093"
        ]
    );
    assert_eq!(
        listeners(
            "listeners=PLAINTEXT://:9092, tc-0://[::1]:19092\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,tc-0:plaintext\n\
             advertised.listeners=PLAINTEXT://kafka-1.local:9092,TC-0://host.docker.internal:7\n"
        ),
        [
            "PLAINTEXT :9092 kafka-1.local:9092",
            "TC-0 ::1:19092 host.docker.internal:7"
        ]
    );
    assert_eq!(
        listeners("listeners=PLAINTEXT://127.0.0.1:0"),
        ["PLAINTEXT 127.0.0.1:0 127.0.0.1:0"]
    );
    let unnamed = listeners("listeners=PLAINTEXT://:9092");
    assert!(unnamed[0].starts_with("PLAINTEXT :9092 "), "{unnamed:?}");
    assert!(
        !unnamed[0].ends_with(" :9092"),
        "the machine's name is told: {unnamed:?}"
    );
    let inter = file(
        "listeners=A://127.0.0.1:1,B://127.0.0.1:2\ninter.broker.listener.name=b\n\
         listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n",
    );
    assert_eq!(&*inter.unwrap().config.inter_broker_listener, "B");
}

#[test]
fn listeners_that_cannot_work_are_refused() {
    let cases = [
        ("listeners=PLAINTEXT://0.0.0.0:9092", "meta-address 0.0.0.0"),
        (
            "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "meta-address 0.0.0.0",
        ),
        ("listeners=", "name at least one listener"),
        (
            "listeners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER",
            "name at least one listener",
        ),
        (
            "listeners=PLAINTEXT:9092",
            "not of the form NAME://host:port",
        ),
        (
            "listeners=PLAINTEXT://a:b:9092",
            "not of the form NAME://host:port",
        ),
        (
            "listeners=PLAINTEXT://:99999",
            "not of the form NAME://host:port",
        ),
        (
            "listeners=PLAINTEXT://:1,PLAINTEXT://:2",
            "listener name PLAINTEXT occurs twice",
        ),
        (
            "listeners=PLAINTEXT://:1,X://:1\nlistener.security.protocol.map=X:PLAINTEXT",
            "port 1 occurs twice",
        ),
        (
            "listeners=EXTRA://127.0.0.1:1",
            "add EXTRA:PLAINTEXT to listener.security",
        ),
        (
            "listeners=PLAINTEXT://:1\nadvertised.listeners=OTHER://h:1",
            "listener OTHER is not among `listeners`",
        ),
        (
            "listeners=PLAINTEXT://:1\nlistener.security.protocol.map=PLAINTEXT:TLS",
            "not of the form NAME:PROTOCOL",
        ),
        (
            "listeners=PLAINTEXT://:1\ninter.broker.listener.name=NOPE",
            "name one of the listeners",
        ),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            "only one of this key",
        ),
    ];
    for (text, part) in cases {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn security_protocols_are_refused_by_name() {
    for protocol in ["SSL", "SASL_PLAINTEXT", "SASL_SSL"] {
        let direct = refused(&format!("listeners={protocol}://127.0.0.1:9092"));
        assert!(direct.contains(&format!(
            "security protocol {protocol} is not supported yet"
        )));
        let mapped = refused(&format!(
            "listeners=X://127.0.0.1:9092\nlistener.security.protocol.map=X:{protocol}"
        ));
        assert!(mapped.contains(&format!(
            "security protocol {protocol} is not supported yet"
        )));
        let brokers = refused(&format!("security.inter.broker.protocol={protocol}"));
        assert!(brokers.starts_with(&format!("security.inter.broker.protocol={protocol}: ")));
    }
}

#[test]
fn metrics_listeners_are_optional_and_many() {
    let of = |text: &str| {
        let config = file(text).unwrap().config;
        let ports: Vec<_> = config
            .metrics_listeners
            .iter()
            .map(|l| (l.host.clone(), l.port))
            .collect();
        (ports, config.metrics_listeners_configured)
    };
    assert_eq!(of(""), (vec![("127.0.0.1".to_string(), 9404)], false));
    assert_eq!(of("metrics.listeners="), (vec![], true));
    assert_eq!(
        of("metrics.listeners=HTTP://:9404,127.0.0.1:0"),
        (
            vec![(String::new(), 9404), ("127.0.0.1".to_string(), 0)],
            true
        )
    );
}

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
