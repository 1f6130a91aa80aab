//! What AlterConfigs and IncrementalAlterConfigs share.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use crate::config::{Change, Operation, Target};
use crate::controller::ConfigResource;
use crate::telemetry::logging::{self, LevelError};
use crate::types::{ApiError, BrokerId, ErrorCode};

pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const BROKER_LOGGER: i8 = 8;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

pub(super) const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// One resource of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub resource_type: i8,
    pub name: String,
    pub keys: Vec<AskedKey>,
    /// The keys replace all that is set.
    pub replace: bool,
}

/// One key of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AskedKey {
    pub name: String,
    pub operation: i8,
    pub value: Option<String>,
}

fn invalid_request(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

fn invalid_config(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidConfig, message)
}

/// Applies each resource for itself; a resource that comes twice is not touched.
pub(super) async fn apply(
    context: &Context,
    resources: Vec<Asked>,
    validate_only: bool,
) -> Vec<(Asked, Result<(), ApiError>)> {
    let mut counts: BTreeMap<(i8, String), usize> = BTreeMap::new();
    for asked in &resources {
        *counts
            .entry((asked.resource_type, asked.name.clone()))
            .or_default() += 1;
    }
    let mut answers = Vec::with_capacity(resources.len());
    for asked in resources {
        let outcome = match counts.get(&(asked.resource_type, asked.name.clone())) {
            Some(1) => one(context, &asked, validate_only).await,
            _ => Err(invalid_request("Each resource must appear at most once.")),
        };
        answers.push((asked, outcome));
    }
    answers
}

async fn one(context: &Context, asked: &Asked, validate_only: bool) -> Result<(), ApiError> {
    let changes = changes(asked)?;
    if asked.resource_type == BROKER_LOGGER && !asked.replace {
        return loggers(context, asked, &changes, validate_only);
    }
    let image = context.metadata.current();
    let resource = resource(context, asked, |name| image.topics.contains_key(name))?;
    let none = BTreeMap::new();
    let own = image
        .broker_configs
        .get(&context.config.node_id)
        .unwrap_or(&none);
    let values = context
        .config
        .values
        .with_dynamic(&image.broker_defaults, own);
    let target = match &resource {
        ConfigResource::Topic(_) => Target::Topic(&values),
        ConfigResource::Broker(_) => Target::Broker(&context.config, &image.broker_defaults),
        ConfigResource::BrokerDefaults => Target::BrokerDefaults(&context.config, own),
        ConfigResource::Group(_) => Target::Group(&values),
        ConfigResource::ClientMetrics(_) => Target::ClientMetrics,
    };
    let replace = asked.replace;
    let change = |set: &BTreeMap<String, String>| match replace {
        true => target.change(&BTreeMap::new(), &changes),
        false => target.change(set, &changes),
    };
    context
        .admin
        .alter_config(&resource, validate_only, &change)
        .await
        .map_err(|error| match (error.code, &resource) {
            (ErrorCode::UnknownTopicOrPartition, ConfigResource::Topic(name)) => {
                unknown_topic(name)
            }
            _ => error,
        })
}

/// The changes of a resource; each key once, and none without the value it needs.
fn changes(asked: &Asked) -> Result<Vec<Change>, ApiError> {
    let mut names = BTreeSet::new();
    if !asked.keys.iter().all(|key| names.insert(key.name.as_str())) {
        return Err(invalid_request("Error due to duplicate config keys"));
    }
    let nulls: Vec<&str> = asked
        .keys
        .iter()
        .filter(|key| key.operation != DELETE && key.value.is_none())
        .map(|key| key.name.as_str())
        .collect();
    if !nulls.is_empty() {
        return Err(invalid_request(format!(
            "Null value not supported for : {}",
            nulls.join(", ")
        )));
    }
    asked
        .keys
        .iter()
        .map(|key| {
            let value = key.value.clone().unwrap_or_default();
            let operation = match key.operation {
                SET => Operation::Set(value),
                DELETE => Operation::Delete,
                APPEND => Operation::Append(value),
                SUBTRACT => Operation::Subtract(value),
                other if asked.resource_type == BROKER_LOGGER => {
                    return Err(invalid_request(format!(
                        "Unknown operation type {other} is not allowed for the BROKER_LOGGER resource"
                    )));
                }
                other => {
                    return Err(invalid_request(format!("Unknown config operation {other}")));
                }
            };
            Ok(Change {
                name: key.name.clone(),
                operation,
            })
        })
        .collect()
}

fn unknown_topic(name: &str) -> ApiError {
    ApiError::new(
        ErrorCode::UnknownTopicOrPartition,
        format!("The topic '{name}' does not exist."),
    )
}

/// What the request means by type and name.
fn resource(
    context: &Context,
    asked: &Asked,
    topic_exists: impl Fn(&str) -> bool,
) -> Result<ConfigResource, ApiError> {
    let name = asked.name.as_str();
    match asked.resource_type {
        TOPIC if name.is_empty() => {
            Err(invalid_request("Default topic resources are not allowed."))
        }
        TOPIC => {
            super::topic_names::check(name)?;
            match topic_exists(name) {
                true => Ok(ConfigResource::Topic(name.into())),
                false => Err(unknown_topic(name)),
            }
        }
        BROKER if name.is_empty() => Ok(ConfigResource::BrokerDefaults),
        BROKER => {
            let id = node_id(name)?;
            if id != context.config.node_id {
                return Err(invalid_request(format!(
                    "Unexpected broker id, expected {}, but received {name}",
                    context.config.node_id
                )));
            }
            Ok(ConfigResource::Broker(id))
        }
        GROUP if name.is_empty() => {
            Err(invalid_request("Default group resources are not allowed."))
        }
        GROUP => Ok(ConfigResource::Group(name.to_string())),
        CLIENT_METRICS if name.is_empty() => {
            Err(invalid_request("Subscription name can't be empty"))
        }
        CLIENT_METRICS => Ok(ConfigResource::ClientMetrics(name.to_string())),
        other => Err(invalid_request(format!("Unknown resource type {other}"))),
    }
}

fn node_id(name: &str) -> Result<BrokerId, ApiError> {
    name.parse()
        .map(BrokerId)
        .map_err(|_| invalid_request(format!("Node id must be an integer, but it is: {name}")))
}

/// Levels of loggers: checked all, then set all; they last until the broker stops.
fn loggers(
    context: &Context,
    asked: &Asked,
    changes: &[Change],
    validate_only: bool,
) -> Result<(), ApiError> {
    let id = node_id(&asked.name)?;
    if id != context.config.node_id {
        return Err(invalid_request(format!(
            "Unexpected node id. Expected {}, but received {id}",
            context.config.node_id
        )));
    }
    for check in [true, false] {
        if !check && validate_only {
            break;
        }
        for Change { name, operation } in changes {
            let level = match operation {
                Operation::Set(level) => Some(level.as_str()),
                Operation::Delete => None,
                Operation::Append(_) | Operation::Subtract(_) => {
                    let verb = match operation {
                        Operation::Append(_) => "APPEND",
                        _ => "SUBTRACT",
                    };
                    return Err(invalid_request(format!(
                        "{verb} operation is not allowed for the BROKER_LOGGER resource"
                    )));
                }
            };
            let outcome = match check {
                true => logging::check_level(name, level),
                false => logging::set_level(name, level),
            };
            outcome.map_err(|error| level_error(error, name, level.unwrap_or_default()))?;
        }
    }
    Ok(())
}

fn level_error(error: LevelError, logger: &str, level: &str) -> ApiError {
    match error {
        LevelError::UnknownLogger => invalid_config(format!("Logger {logger} does not exist!")),
        LevelError::UnknownLevel => invalid_config(format!(
            "Cannot set the log level of {logger} to {level} as it is not a supported log level. \
             Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
        )),
        LevelError::RootNeedsLevel => {
            invalid_request("Removing the log level of the root logger is not allowed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(keys: &[(&str, i8, Option<&str>)]) -> Asked {
        Asked {
            resource_type: TOPIC,
            name: "t".to_string(),
            keys: keys
                .iter()
                .map(|(name, operation, value)| AskedKey {
                    name: name.to_string(),
                    operation: *operation,
                    value: value.map(str::to_string),
                })
                .collect(),
            replace: false,
        }
    }

    fn refused(keys: &[(&str, i8, Option<&str>)]) -> (i16, String) {
        let error = changes(&asked(keys)).unwrap_err();
        (error.code.code(), error.message.unwrap())
    }

    #[test]
    fn faults_of_the_request_are_named_as_kafka_names_them() {
        assert_eq!(
            refused(&[
                ("retention.ms", SET, Some("1")),
                ("retention.ms", DELETE, None)
            ]),
            (42, "Error due to duplicate config keys".to_string())
        );
        assert_eq!(
            refused(&[("retention.ms", SET, None)]),
            (
                42,
                "Null value not supported for : retention.ms".to_string()
            )
        );
        assert_eq!(refused(&[("retention.ms", 9, Some("1"))]).0, 42);
        let fine = changes(&asked(&[
            ("a", SET, Some("1")),
            ("b", DELETE, None),
            ("c", DELETE, Some("x")),
            ("d", APPEND, Some("2")),
            ("e", SUBTRACT, Some("3")),
        ]));
        assert_eq!(fine.unwrap().len(), 5);
    }
}
