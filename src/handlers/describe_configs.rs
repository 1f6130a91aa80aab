//! DescribeConfigs: every key of a resource with its value and where that is from.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::config_change::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::{Context, RequestInfo, topic_names};
use crate::config::keys::{self, Key, Kind};
use crate::config::{BrokerConfig, BrokerValues, Source};
use crate::metadata::Image;
use crate::telemetry::logging;
use crate::types::{ApiError, ErrorCode};

/// A short request can name the same broker or any group over and over, and each answer is long: so
/// many entries are given beyond one answer for each topic that exists.
const EXTRA_ENTRIES_MAX: usize = 50_000;
/// What Kafka says of a resource type that it does not know.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the \
                         client library or the message was sent to an incompatible broker. See the \
                         broker logs for more details.";
const TOO_MANY: &str = "Too many resources in one request";

/// One key as it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    value: Option<String>,
    read_only: bool,
    sensitive: bool,
    kind: Kind,
    source: Source,
    synonyms: Vec<(String, Option<String>, Source)>,
    documentation: Option<&'static str>,
}

pub(crate) async fn handle(
    context: &Context,
    request: &RequestInfo,
    body: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = context.metadata.current();
    let view = View::new(&context.config, &image);
    let form = Form {
        version: request.api_version,
        synonyms: body.include_synonyms,
        documentation: body.include_documentation,
    };
    let mut results = Vec::with_capacity(body.resources.len());
    let mut seen = BTreeSet::new();
    let mut spent = 0;
    for resource in body.resources {
        let DescribeConfigsResource {
            resource_type,
            resource_name,
            configuration_keys,
            ..
        } = resource;
        let wanted: Option<BTreeSet<StrBytes>> = configuration_keys
            .filter(|keys| !keys.is_empty())
            .map(|keys| keys.into_iter().collect());
        let is_wanted = |name: &str| {
            let wanted = wanted.as_ref();
            wanted.is_none_or(|wanted| wanted.contains(&StrBytes::from_string(name.to_string())))
        };
        let entries = match spent > EXTRA_ENTRIES_MAX {
            true => Err(invalid_request(TOO_MANY.to_string())),
            false => view.entries(resource_type, resource_name.as_str(), &is_wanted),
        };
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource_type)
            .with_resource_name(resource_name.clone());
        results.push(match entries {
            Ok(entries) => {
                if resource_type != TOPIC || !seen.insert(resource_name) {
                    spent += entries.len();
                }
                result
                    .with_error_message(Some(StrBytes::default()))
                    .with_configs(entries.into_iter().map(|entry| form.write(entry)).collect())
            }
            Err(error) => result
                .with_error_code(error.code.code())
                .with_error_message(Some(StrBytes::from_string(
                    error.message.unwrap_or_default(),
                ))),
        });
    }
    DescribeConfigsResponse::default().with_results(results)
}

/// How entries are written for a request.
struct Form {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

impl Form {
    fn write(&self, entry: Entry) -> DescribeConfigsResourceResult {
        let text = |value: Option<String>| value.map(StrBytes::from_string);
        let mut result = DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_string(entry.name))
            .with_value(text(entry.value))
            .with_read_only(entry.read_only)
            .with_config_source(entry.source.code())
            .with_is_sensitive(entry.sensitive);
        if self.synonyms {
            let synonyms = entry.synonyms.into_iter().map(|(name, value, source)| {
                DescribeConfigsSynonym::default()
                    .with_name(StrBytes::from_string(name))
                    .with_value(text(value))
                    .with_source(source.code())
            });
            result = result.with_synonyms(synonyms.collect());
        }
        if self.version >= 3 {
            let always = entry.source == Source::BrokerLogger;
            let documentation = entry.documentation.filter(|_| self.documentation || always);
            result = result
                .with_config_type(entry.kind.code())
                .with_documentation(documentation.map(StrBytes::from_static_str));
        }
        result
    }
}

/// The configuration of this broker and the image, together.
struct View<'a> {
    config: &'a BrokerConfig,
    image: &'a Image,
    values: BrokerValues,
}

fn invalid_request(message: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

impl<'a> View<'a> {
    fn new(config: &'a BrokerConfig, image: &'a Image) -> Self {
        let none = BTreeMap::new();
        let own = image.broker_configs.get(&config.node_id).unwrap_or(&none);
        Self {
            config,
            image,
            values: config.values.with_dynamic(&image.broker_defaults, own),
        }
    }

    fn entries(
        &self,
        resource_type: i8,
        name: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Entry>, ApiError> {
        match resource_type {
            TOPIC => self.topic(name, is_wanted),
            BROKER if name.is_empty() => Ok(self.broker_defaults(is_wanted)),
            BROKER => {
                self.check_id(name, " or empty string, but")?;
                Ok(self.broker(is_wanted))
            }
            BROKER_LOGGER if name.is_empty() => {
                Err(invalid_request("Broker id must not be empty".to_string()))
            }
            BROKER_LOGGER => {
                self.check_id(name, " but")?;
                Ok(loggers(is_wanted))
            }
            GROUP if name.is_empty() => {
                Err(invalid_request("Group name must not be empty".to_string()))
            }
            GROUP => Ok(self.group(name, is_wanted)),
            CLIENT_METRICS if name.is_empty() => Err(invalid_request(
                "Client metrics subscription name must not be empty".to_string(),
            )),
            CLIENT_METRICS => Ok(self.client_metrics(name, is_wanted)),
            _ => Err(invalid_request(MALFORMED.to_string())),
        }
    }

    /// Clients send a broker's configuration to that broker.
    fn check_id(&self, name: &str, or: &str) -> Result<(), ApiError> {
        let id: i32 = name.parse().map_err(|_| {
            invalid_request(format!("Broker id must be an integer, but it is: {name}"))
        })?;
        match id == self.config.node_id.0 {
            true => Ok(()),
            false => Err(invalid_request(format!(
                "Unexpected broker id, expected {}{or} received {name}",
                self.config.node_id
            ))),
        }
    }

    fn topic(&self, name: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Entry>, ApiError> {
        topic_names::check(name)?;
        let Some(topic) = self.image.topics.get(name) else {
            return Err(ApiError::new(ErrorCode::UnknownTopicOrPartition, ""));
        };
        let shown = keys::topic_keys().iter().filter(|key| {
            let shown = !key.is_internal() || topic.overrides.contains_key(key.name);
            shown && is_wanted(key.name)
        });
        Ok(shown
            .map(|key| {
                let own = topic.overrides.get(key.name);
                let mut synonyms = Vec::new();
                synonyms.extend(own.map(|value| {
                    let value = canonical(key, value);
                    (key.name.to_string(), Some(value), Source::Topic)
                }));
                if let Some(source) = keys::topic_sources(key.name).first() {
                    synonyms.extend(self.synonyms(source.name));
                }
                let value = match own {
                    Some(value) => Some(canonical(key, value)),
                    None => self
                        .values
                        .for_topic(key.name)
                        .or_else(|| key.default.map(str::to_string)),
                };
                entry(key, value, synonyms)
            })
            .collect())
    }

    /// What is set for every broker while they run.
    fn broker_defaults(&self, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Entry> {
        let set = self.image.broker_defaults.iter();
        set.filter(|(name, _)| is_wanted(name))
            .map(|(name, value)| {
                let mut entry = self.broker_entry(name, Some(value.clone()));
                entry
                    .synonyms
                    .retain(|(_, _, source)| *source == Source::DynamicDefault);
                entry.source = Source::DynamicDefault;
                entry
            })
            .collect()
    }

    /// Every key with a value or a place in Kafka's documentation, and whatever else is set.
    fn broker(&self, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Entry> {
        let mut names: Vec<&str> = keys::broker_keys()
            .filter(|key| !key.is_internal())
            .map(|key| key.name)
            .chain(self.values.statics().keys().map(String::as_str))
            .chain(self.values.dynamic_defaults().keys().map(String::as_str))
            .chain(self.values.dynamic_broker().keys().map(String::as_str))
            .filter(|name| is_wanted(name))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .map(|name| self.broker_entry(name, self.values.get(name).map(str::to_string)))
            .collect()
    }

    fn broker_entry(&self, name: &str, value: Option<String>) -> Entry {
        if let Some(key) = keys::broker_key(name) {
            let value = match name {
                // Both are the id, whichever of them is set.
                "node.id" | "broker.id" => Some(self.config.node_id.to_string()),
                _ => value,
            };
            let mut entry = entry(key, value, self.synonyms(name));
            entry.read_only = !key.is_dynamic();
            return entry;
        }
        // `listener.name.<name>.<key>` has the type of its key; what is not known is kept secret.
        let base = name
            .strip_prefix("listener.name.")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(_, base)| keys::broker_key(base));
        let sensitive = base.is_none_or(Key::is_sensitive);
        let mut synonyms = self.synonyms(name);
        synonyms.extend(base.iter().flat_map(|base| self.synonyms(base.name)));
        Entry {
            name: name.to_string(),
            value: value.filter(|_| !sensitive),
            read_only: true,
            sensitive,
            kind: base.map_or(Kind::Unknown, |base| base.kind),
            source: synonyms
                .first()
                .map_or(Source::Default, |(_, _, source)| *source),
            synonyms,
            documentation: None,
        }
    }

    /// The synonyms of a broker key, the secret ones without their values.
    fn synonyms(&self, name: &str) -> Vec<(String, Option<String>, Source)> {
        let prefixed = name.starts_with("listener.name.");
        self.values
            .synonyms(name)
            .into_iter()
            .map(|(name, value, source)| {
                let secret = match keys::broker_key(&name) {
                    Some(key) => key.is_sensitive(),
                    None => !prefixed || name.ends_with("password") || name.ends_with(".config"),
                };
                (name, (!secret).then_some(value), source)
            })
            .collect()
    }

    fn group(&self, name: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Entry> {
        let none = BTreeMap::new();
        let set = self.image.group_configs.get(name).unwrap_or(&none);
        let shown = keys::group_keys()
            .iter()
            .filter(|key| !key.is_internal() && is_wanted(key.name));
        shown
            .map(|key| {
                let mut synonyms = Vec::new();
                let own = set.get(key.name).cloned();
                synonyms.extend(
                    own.clone()
                        .map(|value| (key.name.to_string(), Some(value), Source::Group)),
                );
                let fallback = match keys::group_synonym(key.name) {
                    Some(broker) => {
                        synonyms.extend(self.synonyms(broker));
                        self.values.get(broker).map(str::to_string)
                    }
                    None => {
                        let default = key.default.map(str::to_string);
                        synonyms.push((key.name.to_string(), default.clone(), Source::Default));
                        default
                    }
                };
                entry(key, own.or(fallback), synonyms)
            })
            .collect()
    }

    fn client_metrics(&self, name: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Entry> {
        let none = BTreeMap::new();
        let set = self.image.client_metrics_configs.get(name).unwrap_or(&none);
        let shown = keys::client_metrics_keys()
            .iter()
            .filter(|key| is_wanted(key.name));
        shown
            .map(|key| {
                let own = set.get(key.name).cloned();
                let synonyms = own
                    .iter()
                    .map(|value| {
                        (
                            key.name.to_string(),
                            Some(value.clone()),
                            Source::ClientMetrics,
                        )
                    })
                    .collect();
                let value = own.or_else(|| key.default.map(str::to_string));
                entry(key, value, synonyms)
            })
            .collect()
    }
}

/// What was stored may be older than the rule for it.
fn canonical(key: &Key, value: &str) -> String {
    key.parse(value).unwrap_or_else(|_| value.to_string())
}

/// The strongest synonym names the source.
fn entry(
    key: &'static Key,
    value: Option<String>,
    synonyms: Vec<(String, Option<String>, Source)>,
) -> Entry {
    Entry {
        name: key.name.to_string(),
        value: value.filter(|_| !key.is_sensitive()),
        read_only: false,
        sensitive: key.is_sensitive(),
        kind: key.kind,
        source: synonyms
            .first()
            .map_or(Source::Default, |(_, _, source)| *source),
        synonyms,
        documentation: Some(key.documentation),
    }
}

fn loggers(is_wanted: &dyn Fn(&str) -> bool) -> Vec<Entry> {
    logging::levels()
        .into_iter()
        .filter(|(logger, _)| is_wanted(logger))
        .map(|(logger, level)| Entry {
            name: logger.to_string(),
            value: Some(level.to_string()),
            read_only: false,
            sensitive: false,
            kind: Kind::Unknown,
            source: Source::BrokerLogger,
            synonyms: Vec::new(),
            documentation: Some(""),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metadata::Topic;
    use crate::types::TopicId;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    fn image() -> Image {
        let topic = Topic {
            name: "t1".into(),
            id: TopicId([7; 16]),
            partitions: Vec::new(),
            overrides: map(&[("retention.ms", "1000")]),
            config: Arc::default(),
        };
        Image {
            topics: [("t1".into(), Arc::new(topic))].into(),
            broker_defaults: map(&[("log.retention.ms", "2000")]),
            broker_configs: [(
                crate::types::BrokerId(1),
                map(&[("my.own.key", "3"), ("log.segment.bytes", "2000000")]),
            )]
            .into(),
            group_configs: [(
                "g".to_string(),
                map(&[("consumer.session.timeout.ms", "50000")]),
            )]
            .into(),
            ..Image::default()
        }
    }

    fn ask(kind: i8, name: &str, wanted: &[&str]) -> Result<Vec<Entry>, (i16, String)> {
        let config = BrokerConfig::for_tests("/data");
        let image = image();
        let view = View::new(&config, &image);
        let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
        view.entries(kind, name, &is_wanted)
            .map_err(|error| (error.code.code(), error.message.unwrap_or_default()))
    }

    fn synonyms(entry: &Entry) -> Vec<(&str, Option<&str>, i8)> {
        let synonyms = entry.synonyms.iter();
        synonyms
            .map(|(name, value, source)| (name.as_str(), value.as_deref(), source.code()))
            .collect()
    }

    #[test]
    fn a_topic_has_every_key_and_the_whole_chain_of_values() {
        let all = ask(TOPIC, "t1", &[]).unwrap();
        assert_eq!(all.len(), 37);
        assert!(all.iter().all(|entry| entry.value.is_some()));
        assert!(!all.iter().any(|entry| keys::is_ours(&entry.name)));
        let some = ask(TOPIC, "t1", &["retention.ms", "segment.bytes", "nope"]).unwrap();
        assert_eq!(some.len(), 2);
        assert_eq!(some[0].value.as_deref(), Some("1000"));
        assert_eq!(
            synonyms(&some[0]),
            [
                ("retention.ms", Some("1000"), 1),
                ("log.retention.ms", Some("2000"), 3),
                ("log.retention.hours", Some("168"), 5),
            ]
        );
        assert_eq!(some[1].value.as_deref(), Some("2000000"));
        assert_eq!(some[1].source, Source::DynamicBroker);
        let segment_ms = &ask(TOPIC, "t1", &["segment.ms"]).unwrap()[0];
        assert_eq!(segment_ms.value.as_deref(), Some("604800000"));
        assert_eq!(
            (segment_ms.source, segment_ms.synonyms.len()),
            (Source::Default, 0)
        );
        let flush = &ask(TOPIC, "t1", &["flush.messages"]).unwrap()[0];
        assert_eq!(flush.value.as_deref(), Some("1"));
    }

    #[test]
    fn a_broker_shows_its_own_and_the_cluster_the_shared_values() {
        let all = ask(BROKER, "1", &[]).unwrap();
        let entry = |name: &str| all.iter().find(|entry| entry.name == name);
        assert!(entry("etcd.prefix").is_some_and(|entry| entry.read_only));
        assert!(entry("log.initial.task.delay.ms").is_none());
        assert!(entry("log.segment.bytes").is_some_and(|entry| !entry.read_only));
        let own = entry("my.own.key").unwrap();
        assert_eq!((own.value.clone(), own.sensitive), (None, true));
        assert_eq!(synonyms(own), [("my.own.key", None, 2)]);
        let password = entry("ssl.keystore.password").unwrap();
        assert_eq!((password.value.clone(), password.sensitive), (None, true));
        let listeners = entry("listeners").unwrap();
        assert_eq!(listeners.source, Source::Static);
        let defaults = ask(BROKER, "", &[]).unwrap();
        assert_eq!(defaults.len(), 1);
        assert_eq!(
            synonyms(&defaults[0]),
            [("log.retention.ms", Some("2000"), 3)]
        );
        assert_eq!(ask(BROKER, "", &["log.segment.bytes"]).unwrap(), []);
    }

    #[test]
    fn groups_metrics_and_loggers_are_described() {
        let group = ask(GROUP, "g", &["consumer.session.timeout.ms"]).unwrap();
        assert_eq!(
            synonyms(&group[0]),
            [
                ("consumer.session.timeout.ms", Some("50000"), 8),
                ("group.consumer.session.timeout.ms", Some("45000"), 5)
            ]
        );
        assert_eq!(ask(GROUP, "other", &[]).unwrap().len(), 21);
        assert_eq!(ask(CLIENT_METRICS, "m", &[]).unwrap().len(), 3);
        let loggers = ask(BROKER_LOGGER, "1", &["root"]).unwrap();
        assert_eq!(loggers[0].source, Source::BrokerLogger);
    }

    #[test]
    fn faults_are_kafkas() {
        let code = |kind, name: &str| ask(kind, name, &[]).unwrap_err();
        assert_eq!(code(TOPIC, "nope"), (3, String::new()));
        assert_eq!(code(TOPIC, "bad name").0, 17);
        assert_eq!(
            code(BROKER, "2"),
            (
                42,
                "Unexpected broker id, expected 1 or empty string, but received 2".to_string()
            )
        );
        assert_eq!(
            code(BROKER, "x").1,
            "Broker id must be an integer, but it is: x"
        );
        assert_eq!(
            code(BROKER_LOGGER, "2").1,
            "Unexpected broker id, expected 1 but received 2"
        );
        assert_eq!(code(BROKER_LOGGER, "").0, 42);
        assert_eq!(code(GROUP, "").0, 42);
        assert_eq!(code(CLIENT_METRICS, "").0, 42);
        assert_eq!(code(77, "x").0, 42);
    }
}
