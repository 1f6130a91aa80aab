//! Configurations of topics, brokers and the rest.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    DescribeConfigsRequest, IncrementalAlterConfigsRequest, ListConfigResourcesRequest,
};

use super::cluster::{Client, Node};
use super::errors::{checked, checked_code};
use super::topics::text;
use super::{ClientError, Result};

/// Resources in one request.
const RESOURCES_MAX: usize = 500;

/// What can be configured, with Kafka's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ResourceKind {
    Topic = 2,
    Broker = 4,
    BrokerLogger = 8,
    ClientMetrics = 16,
    Group = 32,
}

/// One thing that is configured. The broker `""` stands for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    pub kind: ResourceKind,
    pub name: String,
}

/// Where a value comes from, with Kafka's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    Unknown,
    Topic,
    DynamicBroker,
    DynamicDefaultBroker,
    StaticBroker,
    Default,
    BrokerLogger,
    ClientMetrics,
    Group,
}

impl ConfigSource {
    fn of(number: i8) -> Self {
        match number {
            1 => Self::Topic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicDefaultBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::BrokerLogger,
            7 => Self::ClientMetrics,
            8 => Self::Group,
            _ => Self::Unknown,
        }
    }

    /// As Kafka's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Topic => "DYNAMIC_TOPIC_CONFIG",
            Self::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            Self::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Self::StaticBroker => "STATIC_BROKER_CONFIG",
            Self::Default => "DEFAULT_CONFIG",
            Self::BrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
            Self::ClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Self::Group => "DYNAMIC_GROUP_CONFIG",
        }
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: String,
    /// `None`: not set, or hidden.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub sensitive: bool,
    pub read_only: bool,
    pub synonyms: Vec<ConfigSynonym>,
}

/// One of the places that a value can come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: String,
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    Set(String, String),
    Delete(String),
}

impl Client {
    /// All keys of each resource, in the order of the resources.
    pub async fn describe_configs(
        &mut self,
        resources: &[Resource],
        synonyms: bool,
    ) -> Result<Vec<Vec<ConfigEntry>>> {
        let mut all = Vec::new();
        for some in resources.chunks(RESOURCES_MAX) {
            let mut nodes = Vec::new();
            for resource in some {
                nodes.push(self.node_of(resource, "describeBrokerConfigs").await?);
            }
            // A broker answers for itself only; the rest is asked for together.
            let mut rest = some;
            while let Some(node) = nodes.first().copied() {
                let same = nodes.iter().take_while(|other| **other == node).count();
                let (asked, left) = rest.split_at(same);
                all.extend(self.describe_some(node, asked, synonyms).await?);
                rest = left;
                nodes.drain(..same);
            }
        }
        Ok(all)
    }

    async fn describe_some(
        &mut self,
        node: Node,
        resources: &[Resource],
        synonyms: bool,
    ) -> Result<Vec<Vec<ConfigEntry>>> {
        let asked = resources.iter().map(|resource| {
            DescribeConfigsResource::default()
                .with_resource_type(resource.kind as i8)
                .with_resource_name(text(&resource.name))
                .with_configuration_keys(None)
        });
        let asked: Vec<DescribeConfigsResource> = asked.collect();
        let build = |_| {
            DescribeConfigsRequest::default()
                .with_resources(asked.clone())
                .with_include_synonyms(synonyms)
        };
        let answer = self.send(node, "describeConfigs", build).await?;
        let mut by_name = BTreeMap::new();
        for result in answer.results {
            let name = (result.resource_type, result.resource_name.to_string());
            by_name.insert(name, entries_of(result)?);
        }
        let entries =
            |resource: &Resource| by_name.remove(&(resource.kind as i8, resource.name.clone()));
        Ok(resources
            .iter()
            .map(entries)
            .map(Option::unwrap_or_default)
            .collect())
    }

    /// Who answers for a resource: a broker for itself and its loggers, anybody for the rest.
    async fn node_of(&mut self, resource: &Resource, call: &str) -> Result<Node> {
        let of_broker = matches!(
            resource.kind,
            ResourceKind::Broker | ResourceKind::BrokerLogger
        );
        let id = resource.name.parse().ok().filter(|_| of_broker);
        let Some(id) = id else {
            return Ok(Node::Any);
        };
        if !self.brokers.contains_key(&id) {
            self.brokers(call).await?;
        }
        Ok(Node::Broker(id))
    }

    /// The names of those resources of a kind that are configured. A broker that cannot tell has none.
    pub async fn list_config_resources(&mut self, kind: ResourceKind) -> Result<Vec<String>> {
        let build = |_| ListConfigResourcesRequest::default().with_resource_types(vec![kind as i8]);
        let call = "listConfigResources";
        let answer = match self.send(Node::Any, call, build).await {
            Ok(answer) => answer,
            Err(ClientError::UnsupportedVersion(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        checked_code(answer.error_code)?;
        let names = answer.config_resources.into_iter();
        Ok(names
            .map(|resource| resource.resource_name.to_string())
            .collect())
    }

    /// Changes keys of one resource, all or none.
    pub async fn alter_configs(
        &mut self,
        resource: &Resource,
        changes: &[ConfigChange],
    ) -> Result<()> {
        let alterable = |change: &ConfigChange| match change {
            ConfigChange::Set(name, value) => AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(0)
                .with_value(Some(text(value))),
            ConfigChange::Delete(name) => AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(1)
                .with_value(Some(text(""))),
        };
        let altered = AlterConfigsResource::default()
            .with_resource_type(resource.kind as i8)
            .with_resource_name(text(&resource.name))
            .with_configs(changes.iter().map(alterable).collect());
        let node = self.node_of(resource, "incrementalAlterConfigs").await?;
        let build =
            |_| IncrementalAlterConfigsRequest::default().with_resources(vec![altered.clone()]);
        let answer = self.send(node, "incrementalAlterConfigs", build).await?;
        for result in answer.responses {
            checked(result.error_code, result.error_message)?;
        }
        Ok(())
    }
}

fn entries_of(result: DescribeConfigsResult) -> Result<Vec<ConfigEntry>> {
    checked(result.error_code, result.error_message)?;
    Ok(result.configs.into_iter().map(entry_of).collect())
}

fn entry_of(config: DescribeConfigsResourceResult) -> ConfigEntry {
    let synonyms = config.synonyms.into_iter().map(|synonym| ConfigSynonym {
        name: synonym.name.to_string(),
        value: synonym.value.map(|value| value.to_string()),
        source: ConfigSource::of(synonym.source),
    });
    ConfigEntry {
        name: config.name.to_string(),
        value: config.value.map(|value| value.to_string()),
        source: ConfigSource::of(config.config_source),
        sensitive: config.is_sensitive,
        read_only: config.read_only,
        synonyms: synonyms.collect(),
    }
}
