//! The `server.properties` of a container, put together as Apache Kafka's image does it: from a file
//! that was mounted, the environment, and the image's own file.

use super::{ConfigError, environment, properties};

/// What `CLUSTER_ID` is where nobody sets it, as in Apache Kafka's image.
pub const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";

/// Names that Confluent's image refuses, because they have not said enough for a long time.
const TOO_OLD: [&str; 4] = [
    "KAFKA_ADVERTISED_PORT",
    "KAFKA_ADVERTISED_HOST",
    "KAFKA_HOST",
    "KAFKA_PORT",
];

/// Where Bitnami's image keeps its data.
const BITNAMI_DATA: &str = "/bitnami/kafka/data";

/// Whose image is stood in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `apache/kafka`: data where the file or the environment says; where that speaks Bitnami's names
    /// (`KAFKA_CFG_…`) and says nothing, in Bitnami's volume.
    Apache,
    /// `confluentinc/cp-kafka`: data in its volume where the environment says nothing.
    Confluent,
}

/// The text of the file to start with: what was mounted with the environment's keys behind it; only
/// the environment's keys where nothing was mounted; `shipped` where there is neither.
pub fn server_properties(
    layout: Layout,
    mounted: Option<&str>,
    shipped: &str,
    env: impl Iterator<Item = (String, String)>,
) -> Result<String, ConfigError> {
    let env: Vec<(String, String)> = env.collect();
    let set = |name: &str| {
        let found = env
            .iter()
            .find(|(found, value)| found == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    let too_old = TOO_OLD
        .into_iter()
        .filter_map(|name| Some((name, set(name)?)));
    // Kubernetes sets KAFKA_PORT=tcp://… by itself where a service is called kafka.
    let mut too_old = too_old.filter(|(_, value)| !value.contains("://"));
    if let (Layout::Confluent, Some((name, value))) = (layout, too_old.next()) {
        let fix = "set KAFKA_ADVERTISED_LISTENERS instead";
        return Err(ConfigError::new(name, value, fix));
    }
    let mut keys = environment::keys(env.iter().cloned());
    // The cluster's id alone is no configuration: Apache Kafka's image always has one.
    let configures = keys.iter().any(|(key, _)| key != "cluster.id");
    if let (None, Some(advertised)) = (set("KAFKA_LISTENERS"), set("KAFKA_ADVERTISED_LISTENERS")) {
        keys.retain(|(key, _)| key != "listeners");
        keys.push(("listeners".to_owned(), everywhere(advertised)));
    }
    if layout == Layout::Confluent {
        // `kafka-storage format` decides it; scripts run that with ids of their own.
        keys.retain(|(key, _)| key != "cluster.id");
        if set("KAFKA_LOG_DIRS").is_none() {
            keys.retain(|(key, _)| key != "log.dirs");
            keys.push(("log.dirs".to_owned(), "/var/lib/kafka/data".to_owned()));
        }
    }
    let mut text = match mounted.filter(|text| !text.trim().is_empty()) {
        Some(mounted) => format!("{mounted}\n"),
        None if env.iter().any(|(name, _)| name.starts_with("KAFKA_CFG_")) => {
            format!("log.dirs={BITNAMI_DATA}\n")
        }
        None if configures => String::new(),
        None => format!("{shipped}\n"),
    };
    for (key, value) in keys {
        text.push_str(&properties::line(&key, &value));
    }
    Ok(text)
}

/// The same ports on all interfaces.
fn everywhere(advertised: &str) -> String {
    let bound = advertised.split(',').map(|endpoint| {
        let port = endpoint.split_once("://").and_then(|(name, address)| {
            let (_, port) = address.rsplit_once(':')?;
            Some(format!("{name}://0.0.0.0:{port}"))
        });
        port.unwrap_or_else(|| endpoint.to_owned())
    });
    bound.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::properties::parse;

    const SHIPPED: &str = "node.id=1\nlog.dirs=/tmp/kraft-combined-logs\n";

    fn text(layout: Layout, mounted: Option<&str>, env: &[(&str, &str)]) -> String {
        let env = env.iter().map(|(n, v)| (n.to_string(), v.to_string()));
        server_properties(layout, mounted, SHIPPED, env).unwrap()
    }

    fn apache(mounted: Option<&str>, env: &[(&str, &str)]) -> Vec<(String, String)> {
        parse(&text(Layout::Apache, mounted, env))
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn the_environment_comes_behind_what_was_mounted() {
        assert_eq!(
            apache(
                Some("a=1\nnum.partitions=2"),
                &[("KAFKA_NUM_PARTITIONS", "3")]
            ),
            [
                pair("a", "1"),
                pair("num.partitions", "2"),
                pair("num.partitions", "3")
            ]
        );
        assert_eq!(apache(Some("a=1"), &[]), [pair("a", "1")]);
    }

    #[test]
    fn without_a_mounted_file_the_environment_is_all_there_is() {
        assert_eq!(
            apache(None, &[("KAFKA_NODE_ID", "7"), ("CLUSTER_ID", "c")]),
            [pair("cluster.id", "c"), pair("node.id", "7")]
        );
        assert_eq!(
            apache(Some(" \n"), &[("KAFKA_NODE_ID", "7")]),
            [pair("node.id", "7")]
        );
    }

    #[test]
    fn who_speaks_bitnamis_names_has_the_data_in_its_volume() {
        let node = ("KAFKA_CFG_NODE_ID", "7");
        let data = pair("log.dirs", "/bitnami/kafka/data");
        assert_eq!(apache(None, &[node]), [data.clone(), pair("node.id", "7")]);
        let own = apache(None, &[node, ("KAFKA_CFG_LOG_DIRS", "/own")]);
        assert_eq!(
            own.iter().rfind(|(key, _)| key == "log.dirs"),
            Some(&pair("log.dirs", "/own"))
        );
        assert!(!apache(Some("log.dirs=/mine"), &[node]).contains(&data));
    }

    #[test]
    fn the_images_own_file_is_for_those_who_say_nothing() {
        let shipped = [
            pair("node.id", "1"),
            pair("log.dirs", "/tmp/kraft-combined-logs"),
        ];
        assert_eq!(apache(None, &[]), shipped);
        assert_eq!(
            apache(Some("\n"), &[("KAFKA_HEAP_OPTS", "-Xmx1G")]),
            shipped
        );
        let named = apache(None, &[("CLUSTER_ID", "c")]);
        assert_eq!(named[..2], shipped);
        assert_eq!(named[2], pair("cluster.id", "c"));
    }

    #[test]
    fn listeners_follow_from_what_is_advertised() {
        let advertised = "PLAINTEXT://broker:29092,PLAINTEXT_HOST://[::1]:9092,";
        assert_eq!(
            apache(None, &[("KAFKA_ADVERTISED_LISTENERS", advertised)]),
            [
                pair("advertised.listeners", advertised),
                pair(
                    "listeners",
                    "PLAINTEXT://0.0.0.0:29092,PLAINTEXT_HOST://0.0.0.0:9092,"
                )
            ]
        );
        let both = [
            ("KAFKA_LISTENERS", "A://:1"),
            ("KAFKA_ADVERTISED_LISTENERS", "A://h:2"),
        ];
        assert!(apache(None, &both).contains(&pair("listeners", "A://:1")));
    }

    #[test]
    fn confluents_image_keeps_data_in_its_volume() {
        let written = |env| parse(&text(Layout::Confluent, None, env));
        assert!(
            written(&[("KAFKA_NODE_ID", "1")]).contains(&pair("log.dirs", "/var/lib/kafka/data"))
        );
        let own = written(&[("KAFKA_LOG_DIRS", "/own"), ("CLUSTER_ID", "c")]);
        assert_eq!(own, [pair("log.dirs", "/own")]);
    }

    #[test]
    fn values_survive_the_file() {
        for value in ["", "a b", "a\\b\nc", "User:x;User:y", "#1", "é\t\\"] {
            let read = apache(None, &[("KAFKA_X", value)]);
            assert_eq!(read, [pair("x", value)], "{value:?}");
        }
    }

    #[test]
    fn names_that_say_too_little_are_refused() {
        let written = |layout, value: &str| {
            let env = [("KAFKA_PORT".to_owned(), value.to_owned())];
            server_properties(layout, None, SHIPPED, env.into_iter())
        };
        assert_eq!(
            written(Layout::Confluent, "9092").unwrap_err().to_string(),
            "KAFKA_PORT=9092: set KAFKA_ADVERTISED_LISTENERS instead"
        );
        assert!(written(Layout::Confluent, "tcp://10.0.0.1:9092").is_ok());
        assert!(written(Layout::Apache, "9092").is_ok());
    }
}
