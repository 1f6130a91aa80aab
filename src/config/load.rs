//! From files, environment and arguments to one set of values.

use std::collections::BTreeMap;
use std::path::Path;

use super::keys::{self, Honour};
use super::providers::Providers;
use super::values::{BrokerValues, Origin};
use super::{BrokerConfig, ConfigError, environment, properties, refusals};

/// What is used where no file is named.
pub const BUILT_IN: &str = include_str!("../../config/server.properties");

/// A configuration, and what of the input has no effect.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedConfig {
    pub config: BrokerConfig,
    /// Keys that nobody knows.
    pub unknown: Vec<String>,
    /// Keys of Apache Kafka that this broker has no use for.
    pub ignored: Vec<String>,
    /// Whatever else the operator should read, one sentence each.
    pub warnings: Vec<String>,
}

pub(super) fn load(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    overrides: &[String],
) -> Result<LoadedConfig, ConfigError> {
    let env: Vec<(String, String)> = env.collect();
    let mut raw = BTreeMap::new();
    let mut origins = BTreeMap::new();
    for (key, value) in environment::keys(env.iter().cloned()) {
        origins.insert(key.clone(), Origin::Environment);
        raw.insert(key, value);
    }
    for text in overrides {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| ConfigError::new("--override", text.as_str(), "give it as key=value"))?;
        origins.insert(key.trim().to_string(), Origin::Argument);
        raw.insert(key.trim().to_string(), value.trim().to_string());
    }
    let mut underneath: BTreeMap<String, String> = BTreeMap::new();
    match file {
        Some(path) => underneath.extend(properties::parse(&read(path)?)),
        None => {
            underneath.extend(properties::parse(BUILT_IN));
            // Nobody wrote these: whoever uses the other name of the same thing is meant.
            underneath.retain(|key, _| !other_name(key).is_some_and(|name| raw.contains_key(name)));
        }
    }
    let from = file.map_or(Origin::BuiltIn, |_| Origin::File);
    for key in underneath.keys() {
        origins.entry(key.clone()).or_insert(from);
    }
    underneath.extend(raw);
    let raw = underneath;
    let providers = Providers::of(&raw, &env);
    let mut statics = BTreeMap::new();
    for (key, value) in &raw {
        statics.insert(key.clone(), providers.resolve(key, value)?);
    }
    if let Some(refusal) = refusals::of(&statics).into_iter().next() {
        return Err(refusal);
    }
    let (unknown, ignored) = without_effect(&statics);
    let warnings = warnings(&statics, &env);
    let values = BrokerValues::new(canonical(statics)?);
    let config = BrokerConfig::from_values(values.with_origins(origins))?;
    Ok(LoadedConfig {
        config,
        unknown,
        ignored,
        warnings,
    })
}

/// What a key of the built-in configuration is called as well.
fn other_name(key: &str) -> Option<&'static str> {
    match key {
        "node.id" => Some("broker.id"),
        "log.dirs" => Some("log.dir"),
        _ => None,
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| {
            ConfigError::new(
                "server.properties",
                path.display().to_string(),
                format!("cannot be read ({error}): name a file that exists, or none"),
            )
        })
}

/// Brings every value of a known key into its canonical form.
fn canonical(statics: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ConfigError> {
    statics
        .into_iter()
        .map(|(name, value)| {
            let value = parse(&name, &value)?;
            Ok((name, value))
        })
        .collect()
}

/// Checks each value by its own key; dynamic ones too.
pub(super) fn check_each(values: &BrokerValues) -> Result<(), ConfigError> {
    let layers = [
        values.statics(),
        values.dynamic_defaults(),
        values.dynamic_broker(),
    ];
    for (name, value) in layers.into_iter().flatten() {
        parse(name, value)?;
    }
    Ok(())
}

fn parse(name: &str, value: &str) -> Result<String, ConfigError> {
    let Some(key) = keys::broker_key(name) else {
        return Ok(value.to_string());
    };
    key.parse(value).map_err(|violation| {
        let shown = match key.is_sensitive() {
            true => "[hidden]",
            false => value,
        };
        ConfigError::new(name, shown, violation.fix)
    })
}

/// Unknown keys, and known ones that are ignored.
fn without_effect(statics: &BTreeMap<String, String>) -> (Vec<String>, Vec<String>) {
    let mut unknown = Vec::new();
    let mut ignored = Vec::new();
    for name in statics.keys() {
        match keys::broker_key(name) {
            Some(key) if key.honour == Honour::Ignore => ignored.push(name.clone()),
            Some(_) => {}
            None if name.starts_with("zookeeper.") => ignored.push(name.clone()),
            None if name.starts_with("listener.name.") => {
                let honoured = [".max.connections", ".max.connection.creation.rate"];
                if !honoured.iter().any(|key| name.ends_with(key)) {
                    ignored.push(name.clone());
                }
            }
            None if name.starts_with("config.providers.") => {}
            None => unknown.push(name.clone()),
        }
    }
    (unknown, ignored)
}

fn warnings(statics: &BTreeMap<String, String>, env: &[(String, String)]) -> Vec<String> {
    let mut warnings = Vec::new();
    if env.iter().any(|(name, _)| name.starts_with("KAFKA_JMX_")) {
        warnings.push(
            "KAFKA_JMX_* has no effect: metrics are served over HTTP at metrics.listeners"
                .to_string(),
        );
    }
    if statics
        .get("principal.builder.class")
        .is_some_and(|value| !value.is_empty())
    {
        warnings.push(
            "principal.builder.class has no effect: Java classes cannot be loaded".to_string(),
        );
    }
    warnings
}
