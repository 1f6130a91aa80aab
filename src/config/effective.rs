//! What a broker runs with, value by value, and where each is from: what `/config` shows.

use super::keys;
use super::values::{BrokerValues, Source};

/// One key in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    pub name: String,
    /// `None`: there is none, or it is a secret.
    pub value: Option<String>,
    pub is_hidden: bool,
    /// `default`, `built-in`, `file`, `environment`, `argument`, `dynamic for all brokers`, `dynamic`.
    pub source: String,
    /// The key that gave the value, where that is another.
    pub given_by: Option<String>,
    /// Nobody knows the key.
    pub is_unknown: bool,
}

/// Every key that has a value or that is set, sorted by name.
pub fn effective(values: &BrokerValues) -> Vec<Effective> {
    let layers = [
        values.statics(),
        values.dynamic_defaults(),
        values.dynamic_broker(),
    ];
    let mut names: Vec<&str> = keys::broker_keys()
        .filter(|key| !key.is_internal())
        .map(|key| key.name)
        .chain(layers.into_iter().flatten().map(|(name, _)| name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| one(values, name)).collect()
}

fn one(values: &BrokerValues, name: &str) -> Effective {
    let strongest = values.synonyms(name).into_iter().next();
    let source = match &strongest {
        Some((by, _, Source::Static)) => values
            .origin(by)
            .map_or_else(|| "start".to_string(), |origin| origin.to_string()),
        Some((_, _, Source::DynamicDefault)) => "dynamic for all brokers".to_string(),
        Some((_, _, Source::DynamicBroker)) => "dynamic".to_string(),
        _ => "default".to_string(),
    };
    let is_hidden = is_secret(name);
    Effective {
        name: name.to_string(),
        is_hidden,
        source,
        is_unknown: key_of(name).is_none() && !name.starts_with("config.providers."),
        value: strongest
            .as_ref()
            .map(|(_, value, _)| value.clone())
            .filter(|_| !is_hidden),
        given_by: strongest.map(|(by, _, _)| by).filter(|by| by != name),
    }
}

/// A key, or what `listener.name.<name>.<key>` is an override of.
fn key_of(name: &str) -> Option<&'static keys::Key> {
    let base = name
        .strip_prefix("listener.name.")
        .and_then(|rest| rest.split_once('.'))
        .map(|(_, base)| base);
    keys::broker_key(name).or_else(|| keys::broker_key(base?))
}

/// Passwords; and what nobody knows may be one.
pub fn is_secret(name: &str) -> bool {
    match key_of(name) {
        Some(key) => key.is_sensitive(),
        // Where a provider reads secrets from is none itself.
        None => !name.starts_with("config.providers.") && !name.ends_with(".class"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Origin;

    #[test]
    fn each_value_has_its_source_and_secrets_none() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            owned.collect()
        };
        let statics = map(&[
            ("log.retention.hours", "2"),
            ("num.partitions", "3"),
            ("etcd.password", "hush"),
            ("listener.name.x.ssl.keystore.password", "hush"),
            ("listener.name.x.max.connections", "9"),
            ("who.knows", "hush"),
        ]);
        let origins = BTreeMap::from([
            ("num.partitions".to_string(), Origin::Environment),
            ("etcd.password".to_string(), Origin::File),
        ]);
        let values = BrokerValues::new(statics)
            .with_origins(origins)
            .with_dynamic(
                &map(&[("log.roll.ms", "5")]),
                &map(&[("log.segment.bytes", "1048577")]),
            );
        let all = effective(&values);
        let shown = |name: &str| {
            let one = all.iter().find(|one| one.name == name).unwrap();
            (one.value.as_deref(), one.source.as_str())
        };
        assert_eq!(shown("num.partitions"), (Some("3"), "environment"));
        assert_eq!(shown("num.io.threads"), (Some("8"), "default"));
        assert_eq!(shown("log.roll.ms"), (Some("5"), "dynamic for all brokers"));
        assert_eq!(shown("log.segment.bytes"), (Some("1048577"), "dynamic"));
        assert_eq!(shown("etcd.password"), (None, "file"));
        assert_eq!(shown("listener.name.x.ssl.keystore.password").0, None);
        assert_eq!(shown("listener.name.x.max.connections").0, Some("9"));
        assert_eq!(shown("who.knows"), (None, "start"));
        assert!(all.iter().all(|one| one.value.as_deref() != Some("hush")));
        assert!(
            all.iter()
                .any(|one| one.name == "who.knows" && one.is_unknown)
        );
    }
}
