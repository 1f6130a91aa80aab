//! Configurations of topics, brokers, their loggers, groups and client metrics.

use crate::client::{
    Client, ClientError, ConfigChange, ConfigEntry, ConfigSource, Resource, ResourceKind,
};

/// What can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntityKind {
    Topics,
    Brokers,
    BrokerLoggers,
    ClientMetrics,
    Groups,
}

/// One thing that can be configured; the broker `""` is all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) kind: EntityKind,
    pub(crate) name: String,
}

impl EntityKind {
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Topics => "topics",
            Self::Brokers => "brokers",
            Self::BrokerLoggers => "broker-loggers",
            Self::ClientMetrics => "client-metrics",
            Self::Groups => "groups",
        }
    }

    /// Kafka takes the last letter away.
    pub(crate) fn singular(self) -> &'static str {
        let plural = self.plural();
        &plural[..plural.len() - 1]
    }
}

impl Entity {
    pub(crate) fn resource(&self) -> Resource {
        let kind = match self.kind {
            EntityKind::Topics => ResourceKind::Topic,
            EntityKind::Brokers => ResourceKind::Broker,
            EntityKind::BrokerLoggers => ResourceKind::BrokerLogger,
            EntityKind::ClientMetrics => ResourceKind::ClientMetrics,
            EntityKind::Groups => ResourceKind::Group,
        };
        Resource {
            kind,
            name: self.name.clone(),
        }
    }

    /// Where a value comes from that was set for this very entity.
    fn own_source(&self) -> Option<ConfigSource> {
        Some(match self.kind {
            EntityKind::Topics => ConfigSource::Topic,
            EntityKind::Brokers if self.name.is_empty() => ConfigSource::DynamicDefaultBroker,
            EntityKind::Brokers => ConfigSource::DynamicBroker,
            EntityKind::BrokerLoggers => return None,
            EntityKind::ClientMetrics => ConfigSource::ClientMetrics,
            EntityKind::Groups => ConfigSource::Group,
        })
    }
}

/// The entries of an entity by name: those that were set for it, or all of them.
pub(crate) async fn entries(
    client: &mut Client,
    entity: &Entity,
    all: bool,
) -> Result<Vec<ConfigEntry>, ClientError> {
    let described = client.describe_configs(&[entity.resource()], true).await?;
    let own = entity.own_source().filter(|_| !all);
    let shown = |entry: &ConfigEntry| own.is_none_or(|own| entry.source == own);
    let mut entries: Vec<ConfigEntry> = described.into_iter().flatten().filter(shown).collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Loggers that a change names and that are not there.
pub(crate) async fn missing_loggers(
    client: &mut Client,
    entity: &Entity,
    changes: &[ConfigChange],
) -> Result<Vec<String>, ClientError> {
    if entity.kind != EntityKind::BrokerLoggers {
        return Ok(Vec::new());
    }
    let known = entries(client, entity, false).await?;
    let asked = changes.iter().map(|change| match change {
        ConfigChange::Delete(name) | ConfigChange::Set(name, _) => name,
    });
    let missing = asked.filter(|name| known.iter().all(|entry| entry.name != **name));
    Ok(missing.cloned().collect())
}

/// Whether there is such an entity.
pub(crate) async fn exists(client: &mut Client, entity: &Entity) -> Result<bool, ClientError> {
    let names = match entity.kind {
        EntityKind::Brokers if entity.name.is_empty() => return Ok(true),
        EntityKind::BrokerLoggers => names(client, EntityKind::Brokers).await?,
        kind => names(client, kind).await?,
    };
    Ok(names.contains(&entity.name))
}

/// All entities of a kind; of brokers the default (`""`) last, as Kafka has it.
pub(crate) async fn names(
    client: &mut Client,
    kind: EntityKind,
) -> Result<Vec<String>, ClientError> {
    Ok(match kind {
        EntityKind::Topics => {
            let topics = client.list_topics().await?;
            topics.into_iter().map(|topic| topic.name).collect()
        }
        EntityKind::Brokers | EntityKind::BrokerLoggers => {
            let cluster = client.describe_cluster(false).await?;
            let ids = cluster.brokers.iter().map(|broker| broker.id.to_string());
            ids.chain([String::new()]).collect()
        }
        EntityKind::Groups => {
            let mut names = client.list_config_resources(ResourceKind::Group).await?;
            let groups = client.list_groups(&[], &[]).await?;
            names.extend(groups.into_iter().map(|group| group.group));
            names.sort_unstable();
            names.dedup();
            names
        }
        EntityKind::ClientMetrics => {
            client
                .list_config_resources(ResourceKind::ClientMetrics)
                .await?
        }
    })
}

/// Kafka's sentence on a name that no topic can have.
pub(crate) fn invalid_topic(name: &str) -> String {
    let reason = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." => "'.' is not allowed".to_owned(),
        ".." => "'..' is not allowed".to_owned(),
        name if name.len() > 249 => {
            format!("the length of '{name}' is longer than the max allowed length 249")
        }
        name => format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ),
    };
    format!("Topic name is invalid: {reason}")
}
