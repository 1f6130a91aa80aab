//! `KAFKA_*` environment names, as Kafka's container image maps them to keys.

/// Names that speak to Kafka's start scripts, the JVM and Log4j, not to the broker.
const NOT_KEYS: [&str; 11] = [
    "KAFKA_VERSION",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_JMX_HOSTNAME",
];

/// The key that an environment name stands for: without `KAFKA_` (or Bitnami's `KAFKA_CFG_`), in
/// lower case, `___` for `-`, `__` for `_`, `_` for `.`. `CLUSTER_ID` is Kafka's image's own.
pub fn key_of(name: &str) -> Option<String> {
    if name == "CLUSTER_ID" || name == "KAFKA_KRAFT_CLUSTER_ID" {
        return Some("cluster.id".to_string());
    }
    if NOT_KEYS.contains(&name) {
        return None;
    }
    let rest = name
        .strip_prefix("KAFKA_CFG_")
        .or_else(|| name.strip_prefix("KAFKA_"))?;
    if rest.is_empty() {
        return None;
    }
    let dotted = rest.to_lowercase().replace('_', ".");
    Some(dotted.replace("...", "-").replace("..", "_"))
}

/// The keys that `env` sets, in an order that does not depend on the environment's; a plain
/// `KAFKA_` name wins over the alias `KAFKA_CFG_`.
pub fn keys(env: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut found: Vec<(bool, String, String, String)> = env
        .filter_map(|(name, value)| {
            let key = key_of(&name)?;
            let plain = !name.starts_with("KAFKA_CFG_") && name.starts_with("KAFKA_");
            Some((plain, name, key, value))
        })
        .collect();
    found.sort();
    found
        .into_iter()
        .map(|(_, _, key, value)| (key, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mapped_as_kafkas_image_maps_them() {
        let cases = [
            ("KAFKA_NODE_ID", Some("node.id")),
            ("KAFKA_VALID_PROPERTY", Some("valid.property")),
            (
                "KAFKA_VALID___PROPERTY__ALL_CASES",
                Some("valid-property_all.cases"),
            ),
            ("KAFKA_KAFKA_VALID_PROPERTY", Some("kafka.valid.property")),
            ("KAFKA_CFG_LOG_DIRS", Some("log.dirs")),
            ("KAFKA_JMX_PORT", Some("jmx.port")),
            (
                "KAFKA_LISTENER_NAME_TC___0_SASL_ENABLED_MECHANISMS",
                Some("listener.name.tc-0.sasl.enabled.mechanisms"),
            ),
            ("KAFKA_ETCD_ENDPOINTS", Some("etcd.endpoints")),
            ("CLUSTER_ID", Some("cluster.id")),
            ("KAFKA_CLUSTER_ID", Some("cluster.id")),
            ("KAFKA_HEAP_OPTS", None),
            ("KAFKA_OPTS", None),
            ("KAFKA_LOG4J_ROOT_LOGLEVEL", None),
            ("KAFKA_LOG4J_LOGGERS", None),
            ("KAFKA_JMX_HOSTNAME", None),
            ("KAFKA_", None),
            ("PATH", None),
            ("MY_KAFKA_NODE_ID", None),
        ];
        for (name, key) in cases {
            assert_eq!(key_of(name).as_deref(), key, "{name}");
        }
    }

    #[test]
    fn the_plain_name_wins_over_the_alias() {
        let env = [
            ("KAFKA_NUM_PARTITIONS", "3"),
            ("KAFKA_CFG_NUM_PARTITIONS", "5"),
            ("KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM", ""),
        ];
        let found = keys(env.iter().map(|(n, v)| (n.to_string(), v.to_string())));
        assert_eq!(
            found.last(),
            Some(&(
                "ssl.endpoint.identification.algorithm".to_string(),
                String::new()
            ))
        );
        let last = found.iter().rev().find(|(key, _)| key == "num.partitions");
        assert_eq!(last.map(|(_, value)| &**value), Some("3"));
    }
}
