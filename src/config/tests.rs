//! From file, environment and arguments to what the broker acts on.

use std::collections::BTreeMap;
use std::path::Path;

use super::{BrokerConfig, BrokerValues, ConfigError, LoadedConfig, TopicConfig};
use crate::types::BrokerId;

mod effective;
mod listeners;

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
