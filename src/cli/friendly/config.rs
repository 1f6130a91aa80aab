//! `ottla config show|set|unset`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::show::{Table, or_dash};
use super::{Connection, Done, Error, run};
use crate::cli::tools::Terminal;
use crate::cli::tools::configs::{self, Entity, EntityKind};
use crate::client::ConfigChange;

/// What a configuration is of.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[group(required = true, multiple = false)]
struct Of {
    /// A topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// A broker, by its id.
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// All brokers.
    #[arg(long)]
    brokers: bool,
    /// The log levels of a broker, by its id.
    #[arg(long, value_name = "ID")]
    loggers: Option<i32>,
    /// A group.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

impl Of {
    fn entity(&self) -> Entity {
        let (kind, name) = match self {
            Self {
                topic: Some(topic), ..
            } => (EntityKind::Topics, topic.clone()),
            Self {
                broker: Some(id), ..
            } => (EntityKind::Brokers, id.to_string()),
            Self {
                loggers: Some(id), ..
            } => (EntityKind::BrokerLoggers, id.to_string()),
            Self {
                group: Some(group), ..
            } => (EntityKind::Groups, group.clone()),
            _ => (EntityKind::Brokers, String::new()),
        };
        Entity { kind, name }
    }
}

/// What is configured, and where each value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Show {
    #[command(flatten)]
    of: Of,
    /// Only these keys.
    keys: Vec<String>,
    /// Defaults too.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Sets keys while the cluster runs.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Set {
    #[command(flatten)]
    of: Of,
    #[arg(required = true, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Takes keys back to what holds without them.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Unset {
    #[command(flatten)]
    of: Of,
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// `key=value` each.
pub(super) fn pairs(settings: &[String]) -> Result<Vec<(String, String)>, Error> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(Error::Told(format!("{text}: give it as key=value"))),
    };
    settings.iter().map(pair).collect()
}

impl Show {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| self.shown(terminal).await)
    }

    async fn shown(&self, terminal: &mut Terminal) -> Done {
        let mut client = self.connection.client()?;
        let all = self.all || !self.keys.is_empty();
        let entries = configs::entries(&mut client, &self.of.entity(), all).await?;
        let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
        let mut json = Vec::new();
        let wanted = |name: &String| self.keys.is_empty() || self.keys.contains(name);
        for entry in entries.into_iter().filter(|entry| wanted(&entry.name)) {
            let source = entry.source.name().trim_end_matches("_CONFIG");
            let value = match entry.sensitive {
                true => "(hidden)".to_owned(),
                false => or_dash(entry.value.as_ref()),
            };
            let from = source.to_ascii_lowercase().replace('_', " ");
            table.row([entry.name.clone(), value, from]);
            json.push(json!({
                "key": entry.name,
                "value": entry.value,
                "source": source,
                "readOnly": entry.read_only,
                "sensitive": entry.sensitive,
            }));
        }
        self.connection.show(terminal, &table, &json.into())
    }
}

impl Set {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| {
            let changes = pairs(&self.settings)?;
            let changes: Vec<ConfigChange> = changes
                .into_iter()
                .map(|(key, value)| ConfigChange::Set(key, value))
                .collect();
            changed(&self.connection, &self.of, &changes, terminal).await
        })
    }
}

impl Unset {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| {
            let changes: Vec<ConfigChange> = self
                .keys
                .iter()
                .cloned()
                .map(ConfigChange::Delete)
                .collect();
            changed(&self.connection, &self.of, &changes, terminal).await
        })
    }
}

async fn changed(
    connection: &Connection,
    of: &Of,
    changes: &[ConfigChange],
    terminal: &mut Terminal,
) -> Done {
    let mut client = connection.client()?;
    let entity = of.entity();
    client.alter_configs(&entity.resource(), changes).await?;
    let what = match entity.name.as_str() {
        "" => "all brokers".to_owned(),
        name => format!("{} {name}", entity.kind.singular()),
    };
    let json = json!({"of": entity.kind.plural(), "name": entity.name, "changed": changes.len()});
    connection.say(terminal, &format!("changed {what}"), &json)
}
