//! Changes of dynamic configurations: what they make of what is set, and whether that may be set.
//!
//! Codes and sentences are Kafka's (`ConfigurationControlManager`, `DynamicBrokerConfig`).

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{self, Key, Kind, Scope, elements};
use super::{BrokerConfig, BrokerValues, TopicConfig};
use crate::types::{ApiError, ErrorCode};

/// What is set on one resource.
type ConfigMap = BTreeMap<String, String>;

/// What happens to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Set(String),
    Delete,
    /// Adds elements to a list.
    Append(String),
    /// Takes elements out of a list.
    Subtract(String),
}

/// One key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    pub operation: Operation,
}

/// What the changes are of, with what must be known to judge them.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    Topic(&'a BrokerValues),
    /// A broker with what is set for every broker.
    Broker(&'a BrokerConfig, &'a ConfigMap),
    /// Every broker, with what is set on the one that judges.
    BrokerDefaults(&'a BrokerConfig, &'a ConfigMap),
    Group(&'a BrokerValues),
    ClientMetrics,
}

impl Target<'_> {
    /// Applies `changes` to what is set and checks the outcome.
    pub fn change(&self, set: &ConfigMap, changes: &[Change]) -> Result<ConfigMap, ApiError> {
        let mut new = set.clone();
        for Change { name, operation } in changes {
            match operation {
                Operation::Set(value) => {
                    new.insert(name.clone(), value.clone());
                }
                Operation::Delete => {
                    new.remove(name);
                }
                Operation::Append(value) => {
                    let mut list = self.list(name, set, "APPEND")?;
                    for element in elements(value) {
                        if !list.iter().any(|had| had == element) {
                            list.push(element.to_string());
                        }
                    }
                    new.insert(name.clone(), list.join(","));
                }
                Operation::Subtract(value) => {
                    let mut list = self.list(name, set, "SUBTRACT")?;
                    list.retain(|had| !elements(value).any(|element| element == had));
                    new.insert(name.clone(), list.join(","));
                }
            }
        }
        self.replace(new)
    }

    /// Checks what is to be set from now on, and brings it into its canonical form.
    pub fn replace(&self, new: ConfigMap) -> Result<ConfigMap, ApiError> {
        match self {
            Self::Topic(values) => topic(values, new),
            Self::Broker(config, defaults) => broker(config, new, Some(defaults), None),
            Self::BrokerDefaults(config, own) => broker(config, new, None, Some(own)),
            Self::Group(values) => group(values, new),
            Self::ClientMetrics => client_metrics(new),
        }
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        match self {
            Self::Topic(_) => keys::topic_key(name),
            Self::Broker(..) | Self::BrokerDefaults(..) => keys::broker_key(base_name(name)),
            Self::Group(_) => keys::group_key(name),
            Self::ClientMetrics => keys::client_metrics_key(name),
        }
    }

    /// The elements that a list has before the change: set here, or what the start says.
    fn list(&self, name: &str, set: &ConfigMap, verb: &str) -> Result<Vec<String>, ApiError> {
        let key = self.key(name);
        if key.is_none_or(|key| key.kind != Kind::List) {
            return Err(ApiError::new(
                ErrorCode::InvalidConfig,
                format!("Can't {verb} to key {name} because its type is not LIST."),
            ));
        }
        let none = BTreeMap::new();
        let before = set.get(name).cloned().or_else(|| match self {
            Self::Topic(values) => values.with_dynamic(&none, &none).for_topic(name),
            Self::Broker(config, _) | Self::BrokerDefaults(config, _) => {
                config.values.get(name).map(str::to_string)
            }
            Self::Group(_) | Self::ClientMetrics => None,
        });
        let default = key.and_then(|key| key.default).unwrap_or_default();
        let before = before.as_deref().unwrap_or(default);
        Ok(elements(before).map(str::to_string).collect())
    }
}

fn invalid_config(message: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidConfig, message)
}

fn invalid_request(message: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

fn topic(values: &BrokerValues, new: ConfigMap) -> Result<ConfigMap, ApiError> {
    let mut checked = ConfigMap::new();
    for (name, value) in new {
        let Some(key) = keys::topic_key(&name) else {
            return Err(invalid_config(format!("Unknown topic config name: {name}")));
        };
        let value = key
            .parse(&value)
            .map_err(|violation| invalid_config(violation.kafka_message(&name)))?;
        checked.insert(name, value);
    }
    if checked
        .get("remote.storage.enable")
        .is_some_and(|value| value == "true")
    {
        return Err(invalid_config(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured \
             with remote log storage."
                .to_string(),
        ));
    }
    if TopicConfig::resolve(values, &checked).is_err() {
        let effective = |name: &str| {
            let set = checked.get(name).cloned();
            set.or_else(|| values.for_topic(name)).unwrap_or_default()
        };
        return Err(invalid_config(format!(
            "conflict topic config setting min.compaction.lag.ms ({}) > max.compaction.lag.ms ({})",
            effective("min.compaction.lag.ms"),
            effective("max.compaction.lag.ms")
        )));
    }
    Ok(checked)
}

/// `listener.name.<name>.<key>` without what comes before the key.
fn base_name(name: &str) -> &str {
    name.strip_prefix("listener.name.")
        .and_then(|rest| rest.split_once('.'))
        .map_or(name, |(_, key)| key)
}

fn is_security(name: &str) -> bool {
    name.starts_with("ssl.") || name.starts_with("sasl.")
}

/// Kafka's lists of keys in a sentence.
fn listed(names: &BTreeSet<&str>) -> String {
    let names: Vec<&str> = names.iter().copied().collect();
    format!("[{}]", names.join(", "))
}

/// With `defaults` the keys of one broker are checked, with `own` those of every broker.
fn broker(
    config: &BrokerConfig,
    new: ConfigMap,
    defaults: Option<&ConfigMap>,
    own: Option<&ConfigMap>,
) -> Result<ConfigMap, ApiError> {
    check_scopes(&new, own.is_some())?;
    let mut checked = ConfigMap::new();
    for (name, value) in new {
        let value = match keys::broker_key(base_name(&name)) {
            Some(key) => key
                .parse(&value)
                .map_err(|violation| invalid_request(violation.kafka_message(&name)))?,
            None => value,
        };
        if name == "log.retention.ms" && value == "0" {
            return Err(invalid_request(format!(
                "requirement failed: {name} must be unlimited (-1) or, greater than or equal to 1"
            )));
        }
        check_threads(config, &name, &value)?;
        checked.insert(name, value);
    }
    let values = match (defaults, own) {
        (_, Some(own)) => config.values.with_dynamic(&checked, own),
        (defaults, None) => {
            let none = ConfigMap::new();
            config
                .values
                .with_dynamic(defaults.unwrap_or(&none), &checked)
        }
    };
    BrokerConfig::from_values(values).map_err(|error| {
        if error.key == "max.connections.per.ip" {
            return invalid_request(format!(
                "requirement failed: {0} can be set to zero only if {0}.overrides property is set.",
                error.key
            ));
        }
        invalid_request(format!(
            "Invalid value {} for configuration {}: {}",
            error.value, error.key, error.fix
        ))
    })?;
    Ok(checked)
}

/// Which keys may change at all, and which only on one broker.
fn check_scopes(new: &ConfigMap, for_every_broker: bool) -> Result<(), ApiError> {
    let mut fixed = BTreeSet::new();
    let mut security = BTreeSet::new();
    let mut per_broker = BTreeSet::new();
    for name in new.keys().map(String::as_str) {
        let base = base_name(name);
        let prefixed = base != name;
        let Some(key) = keys::broker_key(base) else {
            continue;
        };
        if prefixed && is_security(base) {
            // There is no listener yet that it could act on.
            fixed.insert(name);
        } else if !prefixed && !key.is_dynamic() {
            fixed.insert(name);
        } else if is_security(base) {
            security.insert(name);
        } else if prefixed || key.scope == Scope::PerBroker {
            per_broker.insert(name);
        }
    }
    if !fixed.is_empty() {
        return Err(invalid_request(format!(
            "Cannot update these configs dynamically: {}",
            listed(&fixed)
        )));
    }
    if !security.is_empty() {
        return Err(invalid_request(format!(
            "These security configs can be dynamically updated only per-listener using the \
             listener prefix: {}",
            listed(&security)
        )));
    }
    if for_every_broker && !per_broker.is_empty() {
        return Err(invalid_request(format!(
            "Cannot update these configs at default cluster level, broker id must be specified: {}",
            listed(&per_broker)
        )));
    }
    Ok(())
}

/// Kafka lets the number of threads at most double or halve at once.
fn check_threads(config: &BrokerConfig, name: &str, value: &str) -> Result<(), ApiError> {
    const THREADS: [&str; 5] = [
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    ];
    if !THREADS.contains(&name) {
        return Ok(());
    }
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let (Some(now), Some(new)) = (number(config.values.get(name)), number(Some(value))) else {
        return Ok(());
    };
    let bound = match () {
        () if new > now * 2 => "greater than double",
        () if new < now / 2 => "less than half",
        () => return Ok(()),
    };
    Err(invalid_request(format!(
        "Dynamic thread count update validation failed for {name}={new}, value should not be \
         {bound} the current value {now}"
    )))
}

fn group(values: &BrokerValues, new: ConfigMap) -> Result<ConfigMap, ApiError> {
    let mut checked = ConfigMap::new();
    for (name, value) in new {
        let Some(key) = keys::group_key(&name) else {
            return Err(invalid_config(format!("Unknown group config name: {name}")));
        };
        let value = key
            .parse(&value)
            .map_err(|violation| invalid_config(violation.kafka_message(&name)))?;
        // The broker's bounds: group.consumer.min.session.timeout.ms and so on.
        let bound = |which: &str| {
            let (family, rest) = name.split_once('.')?;
            let bound = values.get(&format!("group.{family}.{which}.{rest}"))?;
            bound.parse::<i64>().ok()
        };
        if let (Some(min), Some(max), Ok(number)) = (bound("min"), bound("max"), value.parse())
            && !(min..=max).contains(&number)
        {
            return Err(invalid_config(format!(
                "{name} must be in the range {min} to {max} inclusive."
            )));
        }
        checked.insert(name, value);
    }
    Ok(checked)
}

fn client_metrics(new: ConfigMap) -> Result<ConfigMap, ApiError> {
    const SELECTORS: [&str; 6] = [
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    ];
    let mut checked = ConfigMap::new();
    for (name, value) in new {
        let Some(key) = keys::client_metrics_key(&name) else {
            return Err(invalid_request(format!(
                "Unknown client metrics configuration: {name}"
            )));
        };
        let value = key
            .parse(&value)
            .map_err(|violation| invalid_config(violation.kafka_message(&name)))?;
        if name == "interval.ms"
            && !value
                .parse()
                .is_ok_and(|ms| (100..=3_600_000).contains(&ms))
        {
            return Err(invalid_request(format!(
                "Invalid value {value} for interval.ms, interval must be between 100 and 3600000 \
                 (1 hour)"
            )));
        }
        if name == "match" {
            let fault = elements(&value).find(|pattern| {
                let selector = pattern.split_once('=').map(|(selector, _)| selector.trim());
                !selector.is_some_and(|selector| SELECTORS.contains(&selector))
            });
            if let Some(pattern) = fault {
                return Err(invalid_config(format!(
                    "Illegal client matching pattern: {pattern}"
                )));
            }
        }
        checked.insert(name, value);
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> ConfigMap {
        pairs
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    fn set(name: &str, value: &str) -> Change {
        Change {
            name: name.to_string(),
            operation: Operation::Set(value.to_string()),
        }
    }

    fn with(name: &str, operation: Operation) -> Change {
        Change {
            name: name.to_string(),
            operation,
        }
    }

    fn refused(outcome: Result<ConfigMap, ApiError>) -> (i16, String) {
        let error = outcome.unwrap_err();
        (error.code.code(), error.message.unwrap())
    }

    #[test]
    fn topics_take_what_kafka_takes() {
        let values = BrokerValues::default();
        let target = Target::Topic(&values);
        let none = ConfigMap::new();
        let one = |change: Change| target.change(&none, &[change]);
        assert_eq!(
            one(set("retention.ms", " 7001 ")).unwrap(),
            map(&[("retention.ms", "7001")])
        );
        assert_eq!(
            refused(one(set("nope", "1"))),
            (40, "Unknown topic config name: nope".to_string())
        );
        assert_eq!(one(with("nope", Operation::Delete)).unwrap(), none);
        assert_eq!(
            refused(target.change(
                &map(&[("min.compaction.lag.ms", "100")]),
                &[set("max.compaction.lag.ms", "50")]
            )),
            (
                40,
                "conflict topic config setting min.compaction.lag.ms (100) > \
                 max.compaction.lag.ms (50)"
                    .to_string()
            )
        );
        assert_eq!(refused(one(set("remote.storage.enable", "true"))).0, 40);
        assert!(one(set("remote.storage.enable", "false")).is_ok());
        assert_eq!(
            refused(one(with("retention.ms", Operation::Append("1".into())))).1,
            "Can't APPEND to key retention.ms because its type is not LIST."
        );
    }

    #[test]
    fn lists_grow_and_shrink_from_what_is_set_or_else_from_the_start() {
        let values = BrokerValues::default();
        let target = Target::Topic(&values);
        let policy = |set: &[(&str, &str)], operation: Operation| {
            let changed = target.change(&map(set), &[with("cleanup.policy", operation)]);
            changed.unwrap()["cleanup.policy"].clone()
        };
        let append = |text: &str| Operation::Append(text.to_string());
        let subtract = |text: &str| Operation::Subtract(text.to_string());
        assert_eq!(policy(&[], append("compact")), "delete,compact");
        assert_eq!(
            policy(&[("cleanup.policy", "compact")], append("compact")),
            "compact"
        );
        assert_eq!(policy(&[], subtract("delete")), "");
        let throttled = target
            .change(
                &map(&[("leader.replication.throttled.replicas", "1:1,2:2")]),
                &[with(
                    "leader.replication.throttled.replicas",
                    append("2:2,3:3"),
                )],
            )
            .unwrap();
        assert_eq!(
            throttled["leader.replication.throttled.replicas"],
            "1:1,2:2,3:3"
        );
    }

    #[test]
    fn brokers_take_dynamic_keys_only() {
        let config = BrokerConfig::for_tests("/data");
        let none = ConfigMap::new();
        let one = Target::Broker(&config, &none);
        let all = Target::BrokerDefaults(&config, &none);
        let on = |target: Target<'_>, pairs: &[(&str, &str)]| target.replace(map(pairs));
        let case = |target, pairs: &[(&str, &str)]| refused(on(target, pairs));
        assert!(on(one, &[("log.retention.ms", "3000")]).is_ok());
        assert!(on(all, &[("log.retention.ms", "-5")]).is_ok());
        assert!(on(one, &[("my.own.key", "3")]).is_ok());
        assert_eq!(
            case(one, &[("num.partitions", "3"), ("node.id", "4")]),
            (
                42,
                "Cannot update these configs dynamically: [node.id, num.partitions]".to_string()
            )
        );
        assert_eq!(
            case(one, &[("advertised.listeners", "PLAINTEXT://a:1")]).1,
            "Cannot update these configs dynamically: [advertised.listeners]"
        );
        assert_eq!(
            case(all, &[("cordoned.log.dirs", "/a")]).1,
            "Cannot update these configs at default cluster level, broker id must be specified: \
             [cordoned.log.dirs]"
        );
        assert!(
            case(one, &[("ssl.keystore.password", "x")])
                .1
                .contains("only per-listener")
        );
        assert_eq!(
            case(all, &[("log.segment.bytes", "1")]),
            (
                42,
                "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"
                    .to_string()
            )
        );
        assert_eq!(case(one, &[("log.retention.ms", "0")]).0, 42);
        assert_eq!(case(one, &[("max.connections.per.ip", "0")]).0, 42);
        assert!(
            case(one, &[("num.io.threads", "1000")])
                .1
                .contains("double the current value 8")
        );
        assert!(on(one, &[("listener.name.plaintext.max.connections", "3")]).is_ok());
        assert_eq!(
            case(one, &[("listener.name.plaintext.max.connections", "x")]).0,
            42
        );
    }

    #[test]
    fn groups_and_client_metrics_have_keys_of_their_own() {
        let values = BrokerValues::default();
        let group = |name: &str, value: &str| Target::Group(&values).replace(map(&[(name, value)]));
        assert!(group("consumer.session.timeout.ms", "50000").is_ok());
        assert_eq!(
            refused(group("consumer.session.timeout.ms", "10")),
            (
                40,
                "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."
                    .to_string()
            )
        );
        assert_eq!(
            refused(group("nope", "10")),
            (40, "Unknown group config name: nope".to_string())
        );
        let metrics =
            |name: &str, value: &str| Target::ClientMetrics.replace(map(&[(name, value)]));
        assert!(metrics("match", "client_id=abc,client_software_name=x.*").is_ok());
        assert_eq!(
            refused(metrics("match", "foo=abc")),
            (40, "Illegal client matching pattern: foo=abc".to_string())
        );
        assert_eq!(
            refused(metrics("interval.ms", "1")),
            (
                42,
                "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"
                    .to_string()
            )
        );
        assert_eq!(
            refused(metrics("nope", "x")),
            (42, "Unknown client metrics configuration: nope".to_string())
        );
    }
}
