//! The broker's values from their three sources: the start, the cluster's dynamic defaults, and this
//! broker's dynamic values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::keys::{self, BrokerSource};

/// Where a value comes from, as DescribeConfigs numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefault = 3,
    Static = 4,
    Default = 5,
    BrokerLogger = 6,
    ClientMetrics = 7,
    Group = 8,
}

impl Source {
    /// The number on the wire.
    pub fn code(self) -> i8 {
        self as i8
    }
}

/// Where a value of the start was set; what comes later wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    File,
    Environment,
    Argument,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BuiltIn => "built-in",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Argument => "argument",
        })
    }
}

/// All values of this broker, as text. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerValues {
    statics: Arc<BTreeMap<String, String>>,
    origins: Arc<BTreeMap<String, Origin>>,
    dynamic_defaults: Arc<BTreeMap<String, String>>,
    dynamic_broker: Arc<BTreeMap<String, String>>,
}

impl BrokerValues {
    /// What was set at the start; nothing dynamic yet.
    pub fn new(statics: BTreeMap<String, String>) -> Self {
        Self {
            statics: Arc::new(statics),
            ..Self::default()
        }
    }

    /// The same, with where each value was set.
    pub fn with_origins(self, origins: BTreeMap<String, Origin>) -> Self {
        Self {
            origins: Arc::new(origins),
            ..self
        }
    }

    /// Where the value of the start was set, if it is known.
    pub fn origin(&self, key: &str) -> Option<Origin> {
        self.origins.get(key).copied()
    }

    /// The same start, with these dynamic values: the cluster's, and this broker's.
    pub fn with_dynamic(
        &self,
        defaults: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> Self {
        Self {
            statics: Arc::clone(&self.statics),
            origins: Arc::clone(&self.origins),
            dynamic_defaults: Arc::new(defaults.clone()),
            dynamic_broker: Arc::new(broker.clone()),
        }
    }

    /// What was set at the start.
    pub fn statics(&self) -> &BTreeMap<String, String> {
        &self.statics
    }

    /// What is set for every broker while it runs.
    pub fn dynamic_defaults(&self) -> &BTreeMap<String, String> {
        &self.dynamic_defaults
    }

    /// What is set on this broker while it runs.
    pub fn dynamic_broker(&self) -> &BTreeMap<String, String> {
        &self.dynamic_broker
    }

    /// The value that was set for exactly this key, by the strongest source that sets it.
    pub fn explicit(&self, key: &str) -> Option<&str> {
        self.dynamic_broker
            .get(key)
            .or_else(|| self.dynamic_defaults.get(key))
            .or_else(|| self.statics.get(key))
            .map(String::as_str)
    }

    /// The value of exactly this key: set, or its default.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.explicit(key)
            .or_else(|| keys::broker_key(key).and_then(|key| key.default))
    }

    /// The value behind a topic key, before the topic's own: in the topic key's unit.
    pub fn for_topic(&self, topic_key: &str) -> Option<String> {
        let sources = keys::topic_sources(topic_key);
        let set = sources
            .iter()
            .find_map(|source| Some((source, self.explicit(source.name)?)));
        let (source, value) = set.or_else(|| {
            sources
                .iter()
                .find_map(|source| Some((source, keys::broker_key(source.name)?.default?)))
        })?;
        let converted = convert(*source, value);
        // A negative retention has no limit, in whatever unit it is given.
        match topic_key == "retention.ms" && converted.starts_with('-') {
            true => Some("-1".to_string()),
            false => Some(converted),
        }
    }

    /// Every source that gives `name` (or one of the keys that say the same) a value, the strongest
    /// first, as DescribeConfigs lists synonyms: `(name, value, source)`. What stands before the
    /// first entry of `name` itself is left out, as Kafka does.
    pub fn synonyms(&self, name: &str) -> Vec<(String, String, Source)> {
        let own = [name];
        let names: &[&str] = match keys::broker_synonyms(name) {
            [] => &own,
            names => names,
        };
        let layers = [
            (&self.dynamic_broker, Source::DynamicBroker),
            (&self.dynamic_defaults, Source::DynamicDefault),
            (&self.statics, Source::Static),
        ];
        let mut found = Vec::new();
        for (layer, source) in layers {
            for &name in names {
                if let Some(value) = layer.get(name) {
                    found.push((name.to_string(), value.clone(), source));
                }
            }
        }
        for &name in names {
            if let Some(value) = keys::broker_key(name).and_then(|key| key.default) {
                found.push((name.to_string(), value.to_string(), Source::Default));
            }
        }
        let skip = found
            .iter()
            .take_while(|(found, _, _)| found != name)
            .count();
        found.split_off(skip)
    }
}

/// Minutes and hours to milliseconds.
fn convert(source: BrokerSource, value: &str) -> String {
    if source.multiplier == 1 {
        return value.to_string();
    }
    match value.parse::<i64>() {
        Ok(number) => number.saturating_mul(source.multiplier).to_string(),
        Err(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn milliseconds_win_over_minutes_over_hours() {
        let retention = |pairs| BrokerValues::new(map(pairs)).for_topic("retention.ms");
        assert_eq!(retention(&[]).as_deref(), Some("604800000"));
        assert_eq!(
            retention(&[("log.retention.hours", "2")]).as_deref(),
            Some("7200000")
        );
        assert_eq!(
            retention(&[("log.retention.hours", "2"), ("log.retention.minutes", "3")]).as_deref(),
            Some("180000")
        );
        assert_eq!(
            retention(&[
                ("log.retention.ms", "77"),
                ("log.retention.hours", "2"),
                ("log.retention.minutes", "3")
            ])
            .as_deref(),
            Some("77")
        );
        assert_eq!(
            retention(&[("log.retention.hours", "-1")]).as_deref(),
            Some("-1")
        );
        let other = BrokerValues::new(map(&[
            ("log.flush.scheduler.interval.ms", "9"),
            ("log.roll.hours", "1"),
            ("log.roll.jitter.hours", "2"),
        ]));
        assert_eq!(other.for_topic("flush.ms").as_deref(), Some("9"));
        assert_eq!(other.for_topic("segment.ms").as_deref(), Some("3600000"));
        assert_eq!(
            other.for_topic("segment.jitter.ms").as_deref(),
            Some("7200000")
        );
        assert_eq!(other.for_topic("remote.storage.enable"), None);
    }

    #[test]
    fn this_brokers_value_wins_over_the_clusters_over_the_files() {
        let values = BrokerValues::new(map(&[("log.retention.ms", "1")]))
            .with_dynamic(&map(&[("log.retention.ms", "2")]), &map(&[]));
        assert_eq!(values.get("log.retention.ms"), Some("2"));
        let values = values.with_dynamic(
            &map(&[("log.retention.ms", "2")]),
            &map(&[("log.retention.ms", "3")]),
        );
        assert_eq!(values.get("log.retention.ms"), Some("3"));
        let synonyms = values.synonyms("log.retention.ms");
        let seen: Vec<(&str, &str, i8)> = synonyms
            .iter()
            .map(|(name, value, source)| (&**name, &**value, source.code()))
            .collect();
        assert_eq!(
            seen,
            [
                ("log.retention.ms", "3", 2),
                ("log.retention.ms", "2", 3),
                ("log.retention.ms", "1", 4),
                ("log.retention.hours", "168", 5),
            ]
        );
    }

    #[test]
    fn synonyms_begin_with_the_key_itself() {
        let values = BrokerValues::new(map(&[("log.retention.hours", "1")]));
        assert!(values.synonyms("log.retention.ms").is_empty());
        assert_eq!(values.synonyms("log.roll.hours").len(), 1);
        assert_eq!(values.synonyms("num.partitions").len(), 1);
    }
}
