//! `ottla topic`.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::show::{Table, list, or_dash};
use super::{Connection, Done, Error, run};
use crate::cli::tools::Terminal;
use crate::cli::tools::pattern::TopicPattern;
use crate::cli::tools::topics::{self, Described, PARTITIONS_MAX};
use crate::client::{Client, NewTopic};
use crate::types::ErrorCode;

/// What can be done with topics.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum TopicCommand {
    /// Lists topics: partitions, replicas, what of their configuration is not the default.
    List {
        /// Internal topics too.
        #[arg(long)]
        internal: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Tells where the partitions of topics are.
    Describe {
        /// A topic, or a regular expression.
        topic: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Makes a topic.
    Create {
        topic: String,
        /// The cluster's default without it.
        #[arg(short, long)]
        partitions: Option<i32>,
        /// The cluster's default without it.
        #[arg(short, long)]
        replicas: Option<i16>,
        /// A configuration; can be given many times.
        #[arg(short, long, value_name = "KEY=VALUE")]
        config: Vec<String>,
        /// A topic that exists is no failure.
        #[arg(long)]
        if_not_exists: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Raises the number of partitions of a topic.
    Grow {
        topic: String,
        /// How many there shall be.
        #[arg(short, long)]
        partitions: i32,
        #[command(flatten)]
        connection: Connection,
    },
    /// Deletes topics and all that is in them.
    Delete {
        #[arg(required = true)]
        topics: Vec<String>,
        /// A topic that does not exist is no failure.
        #[arg(long)]
        if_exists: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

impl TopicCommand {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| match self {
            Self::List {
                internal,
                connection,
            } => list_topics(connection, *internal, terminal).await,
            Self::Describe { topic, connection } => describe(connection, topic, terminal).await,
            Self::Create {
                topic,
                partitions,
                replicas,
                config,
                if_not_exists,
                connection,
            } => {
                let topic = NewTopic {
                    name: topic.clone(),
                    partitions: *partitions,
                    replication_factor: *replicas,
                    assignment: Vec::new(),
                    configs: super::config::pairs(config)?,
                };
                create(connection, &topic, *if_not_exists, terminal).await
            }
            Self::Grow {
                topic,
                partitions,
                connection,
            } => {
                let mut client = connection.client()?;
                client.create_partitions(topic, *partitions, None).await?;
                let text = format!("{topic} has {partitions} partitions");
                let json = json!({"topic": topic, "partitions": partitions});
                connection.say(terminal, &text, &json)
            }
            Self::Delete {
                topics,
                if_exists,
                connection,
            } => delete(connection, topics, *if_exists, terminal).await,
        })
    }
}

async fn all(
    client: &mut Client,
    pattern: Option<&TopicPattern>,
    internal: bool,
) -> Result<Vec<Described>, Error> {
    let names = topics::names(client, pattern, !internal).await?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let found = client.describe_topics(&names, PARTITIONS_MAX).await?;
    Ok(topics::describe(client, found).await?.described)
}

fn overrides(described: &Described) -> Vec<(String, Option<String>)> {
    let overrides = described.overrides();
    overrides
        .map(|entry| (entry.name.clone(), entry.value.clone()))
        .collect()
}

async fn list_topics(connection: &Connection, internal: bool, terminal: &mut Terminal) -> Done {
    let mut client = connection.client()?;
    let mut table = Table::new(&["TOPIC", "PARTITIONS", "REPLICAS", "NOT IN SYNC", "CONFIG"]);
    let mut json = Vec::new();
    for described in all(&mut client, None, internal).await? {
        let topic = &described.topic;
        let replicas = topic.partitions.first();
        let replicas = replicas.map_or(0, |first| described.replication_factor(first));
        let lagging = topic.partitions.iter();
        let lagging = lagging.filter(|p| described.is_under_replicated(p)).count();
        let configs = overrides(&described);
        let shown: Vec<String> = configs
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_deref().unwrap_or("")))
            .collect();
        table.row([
            topic.name.clone(),
            topic.partitions.len().to_string(),
            replicas.to_string(),
            lagging.to_string(),
            shown.join(" "),
        ]);
        let configs: serde_json::Map<String, serde_json::Value> = configs
            .into_iter()
            .map(|(key, value)| (key, json!(value)))
            .collect();
        json.push(json!({
            "topic": topic.name,
            "id": topic.id.to_string(),
            "internal": topic.internal,
            "partitions": topic.partitions.len(),
            "replicas": replicas,
            "underReplicated": lagging,
            "configs": configs,
        }));
    }
    connection.show(terminal, &table, &json.into())
}

async fn describe(connection: &Connection, topic: &str, terminal: &mut Terminal) -> Done {
    let mut client = connection.client()?;
    let pattern = TopicPattern::parse(topic)?;
    let found = all(&mut client, Some(&pattern), true).await?;
    if found.is_empty() {
        return Err(Error::Told(format!("there is no topic {topic}")));
    }
    let mut table = Table::new(&[
        "TOPIC",
        "PARTITION",
        "LEADER",
        "EPOCH",
        "REPLICAS",
        "IN SYNC",
        "ELIGIBLE",
    ]);
    let mut json = Vec::new();
    for described in found {
        for partition in &described.topic.partitions {
            table.row([
                described.topic.name.clone(),
                partition.partition.to_string(),
                or_dash(partition.leader),
                partition.leader_epoch.to_string(),
                list(&partition.replicas),
                list(&partition.isr),
                list(partition.elr.as_deref().unwrap_or(&[])),
            ]);
            json.push(json!({
                "topic": described.topic.name,
                "partition": partition.partition,
                "leader": partition.leader,
                "leaderEpoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "elr": partition.elr,
                "lastKnownElr": partition.last_known_elr,
            }));
        }
    }
    connection.show(terminal, &table, &json.into())
}

async fn create(
    connection: &Connection,
    topic: &NewTopic,
    if_not_exists: bool,
    terminal: &mut Terminal,
) -> Done {
    let mut client = connection.client()?;
    let created = match client.create_topic(topic, false).await {
        Ok(()) => true,
        Err(error) if if_not_exists && error.is(ErrorCode::TopicAlreadyExists) => false,
        Err(error) => return Err(error.into()),
    };
    let text = match created {
        true => format!("created {}", topic.name),
        false => format!("{} exists", topic.name),
    };
    connection.say(
        terminal,
        &text,
        &json!({"topic": topic.name, "created": created}),
    )
}

async fn delete(
    connection: &Connection,
    topics: &[String],
    if_exists: bool,
    terminal: &mut Terminal,
) -> Done {
    let mut client = connection.client()?;
    let mut failed = Vec::new();
    for (topic, outcome) in client.delete_topics(topics).await? {
        let missing =
            matches!(&outcome, Err(error) if error.is(ErrorCode::UnknownTopicOrPartition));
        match outcome {
            Ok(()) => {
                let json = json!({"topic": topic, "deleted": true});
                connection.say(terminal, &format!("deleted {topic}"), &json)?;
            }
            Err(_) if missing && if_exists => {
                let json = json!({"topic": topic, "deleted": false});
                connection.say(terminal, &format!("there is no {topic}"), &json)?;
            }
            Err(error) => failed.push(format!("{topic}: {error}")),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::Told(failed.join("; "))),
    }
}
