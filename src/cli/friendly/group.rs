//! `ottla group`.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::show::{Table, or_dash};
use super::{Connection, Done, Error, run};
use crate::cli::tools::Terminal;
use crate::cli::tools::groups::{self, ResetError, ResetTo};
use crate::cli::tools::time::{date_time, duration_ms, now_ms};

/// What can be done with groups.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum GroupCommand {
    /// Lists groups: their kind and their state.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Tells how far a group is behind in each partition, and who reads it.
    Describe {
        group: String,
        /// The members instead of the partitions.
        #[arg(long)]
        members: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Sets the offsets of a group that has no members. Only shows what it would do unless --execute is given.
    Reset(Reset),
    /// Deletes groups that have no members, with their offsets.
    Delete {
        #[arg(required = true)]
        groups: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Which offsets, and where to.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(group(ArgGroup::new("to").required(true).multiple(false).args(
    ["earliest", "latest", "offset", "by", "time", "ago"]
)))]
pub struct Reset {
    group: String,
    /// Only of these topics; all that the group has offsets for without it.
    #[arg(short, long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// To the first record.
    #[arg(long)]
    earliest: bool,
    /// Behind the last record.
    #[arg(long)]
    latest: bool,
    /// To this offset.
    #[arg(long)]
    offset: Option<i64>,
    /// By so many records, forth or (negative) back.
    #[arg(long, value_name = "RECORDS", allow_negative_numbers = true)]
    by: Option<i64>,
    /// To the first record from then on.
    #[arg(long, value_name = "YYYY-MM-DDTHH:MM:SS.sss")]
    time: Option<String>,
    /// To the first record of the last so long, as PT1H or P2D.
    #[arg(long, value_name = "DURATION")]
    ago: Option<String>,
    /// Does it.
    #[arg(long)]
    execute: bool,
    #[command(flatten)]
    connection: Connection,
}

impl GroupCommand {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| match self {
            Self::List { connection } => list(connection, terminal).await,
            Self::Describe {
                group,
                members: true,
                connection,
            } => members(connection, group, terminal).await,
            Self::Describe {
                group, connection, ..
            } => describe(connection, group, terminal).await,
            Self::Reset(reset) => reset.run(terminal).await,
            Self::Delete { groups, connection } => {
                let mut client = connection.client()?;
                for group in groups {
                    let deleted = client.delete_group(group).await;
                    deleted.map_err(|error| format!("{group}: {error}"))?;
                    let json = json!({"group": group, "deleted": true});
                    connection.say(terminal, &format!("deleted {group}"), &json)?;
                }
                Ok(())
            }
        })
    }
}

async fn list(connection: &Connection, terminal: &mut Terminal) -> Done {
    let mut client = connection.client()?;
    let mut table = Table::new(&["GROUP", "KIND", "PROTOCOL", "STATE"]);
    let mut json = Vec::new();
    for group in client.list_groups(&[], &[]).await? {
        json.push(json!({
            "group": group.group,
            "kind": group.kind,
            "protocolType": group.protocol_type,
            "state": group.state,
        }));
        table.row([group.group, group.kind, group.protocol_type, group.state]);
    }
    connection.show(terminal, &table, &json.into())
}

async fn found(
    connection: &Connection,
    group: &str,
) -> Result<(crate::client::Client, crate::client::GroupDescription), Error> {
    let mut client = connection.client()?;
    let described = client.describe_group(group).await?;
    match &described.missing {
        Some(_) => Err(Error::Told(format!("there is no group {group}"))),
        None => Ok((client, described)),
    }
}

async fn describe(connection: &Connection, group: &str, terminal: &mut Terminal) -> Done {
    let (mut client, described) = found(connection, group).await?;
    let lags = groups::lags(&mut client, &described).await?;
    let mut table = Table::new(&[
        "TOPIC",
        "PARTITION",
        "COMMITTED",
        "END",
        "LAG",
        "CLIENT",
        "HOST",
    ]);
    let mut json = Vec::new();
    for lag in &lags {
        let offset = lag.committed.as_ref().map(|committed| committed.offset);
        let member = lag.member.as_ref();
        table.row([
            lag.partition.topic.to_string(),
            lag.partition.partition.to_string(),
            or_dash(offset),
            or_dash(lag.log_end),
            or_dash(lag.lag()),
            or_dash(member.map(|member| &member.client_id)),
            or_dash(member.map(|member| &member.host)),
        ]);
        json.push(json!({
            "topic": &*lag.partition.topic,
            "partition": lag.partition.partition,
            "committed": offset,
            "end": lag.log_end,
            "lag": lag.lag(),
            "memberId": member.map(|member| &member.member_id),
            "clientId": member.map(|member| &member.client_id),
            "host": member.map(|member| &member.host),
        }));
    }
    if !connection.json {
        let sum: i64 = lags.iter().filter_map(groups::PartitionLag::lag).sum();
        terminal.line(&format!(
            "{group}: {}, {} members, {sum} records behind; coordinator {}",
            described.state,
            described.members.len(),
            described.coordinator.id
        ))?;
    }
    let json = json!({
        "group": group,
        "state": described.state,
        "coordinator": described.coordinator.id,
        "members": described.members.len(),
        "partitions": json,
    });
    connection.show(terminal, &table, &json)
}

async fn members(connection: &Connection, group: &str, terminal: &mut Terminal) -> Done {
    let (_, described) = found(connection, group).await?;
    let mut table = Table::new(&["CLIENT", "HOST", "INSTANCE", "PARTITIONS", "MEMBER"]);
    let mut json = Vec::new();
    for member in described.members {
        let partitions = member.assignment.iter().map(ToString::to_string);
        let partitions: Vec<String> = partitions.collect();
        table.row([
            member.client_id.clone(),
            member.host.clone(),
            or_dash(member.instance_id.as_ref()),
            partitions.join(" "),
            member.member_id.clone(),
        ]);
        json.push(json!({
            "memberId": member.member_id,
            "clientId": member.client_id,
            "host": member.host,
            "instanceId": member.instance_id,
            "partitions": partitions,
        }));
    }
    connection.show(terminal, &table, &json.into())
}

impl Reset {
    fn to(&self) -> Result<ResetTo, Error> {
        if self.earliest {
            return Ok(ResetTo::Earliest);
        }
        if let Some(offset) = self.offset {
            return Ok(ResetTo::Offset(offset));
        }
        if let Some(by) = self.by {
            return Ok(ResetTo::ShiftBy(by));
        }
        if let Some(text) = &self.time {
            let time = date_time(text);
            let time = time.ok_or_else(|| format!("{text} is no time: 2026-11-30T12:00:00"))?;
            return Ok(ResetTo::Time(time));
        }
        if let Some(text) = &self.ago {
            let ago = duration_ms(text);
            let ago = ago.ok_or_else(|| format!("{text} is no duration: PT1H, P2D"))?;
            return Ok(ResetTo::Time(now_ms() - ago));
        }
        Ok(ResetTo::Latest)
    }

    async fn run(&self, terminal: &mut Terminal) -> Done {
        let to = self.to()?;
        let mut client = self.connection.client()?;
        let described = client.describe_group(&self.group).await?;
        if !matches!(described.state.as_str(), "Empty" | "Dead") {
            return Err(Error::Told(format!(
                "{} has members ({}): its offsets can be set when they are gone",
                self.group, described.state
            )));
        }
        let committed = client.committed_offsets(&self.group).await?;
        let partitions = match self.topic.is_empty() {
            true => committed.keys().cloned().collect(),
            false => groups::partitions_of(&mut client, &self.topic).await?,
        };
        let plan = groups::plan_reset(&mut client, &self.group, &partitions, &to).await;
        let plan = plan.map_err(|error| match error {
            ResetError::Client(error) => error.to_string(),
            ResetError::NothingCommitted(partition) => {
                format!("nothing is committed for {partition}")
            }
            ResetError::NoOffset(partition) => format!("{partition} has no leader"),
        })?;
        let mut table = Table::new(&["TOPIC", "PARTITION", "COMMITTED", "NEW"]);
        let mut json = Vec::new();
        for (partition, new) in &plan.offsets {
            let old = committed.get(partition).map(|committed| committed.offset);
            table.row([
                partition.topic.to_string(),
                partition.partition.to_string(),
                or_dash(old),
                new.to_string(),
            ]);
            json.push(json!({
                "topic": &*partition.topic,
                "partition": partition.partition,
                "committed": old,
                "new": new,
            }));
        }
        if self.execute {
            client
                .commit_offsets(&self.group, None, &plan.offsets)
                .await?;
        } else {
            eprintln!("ottla: nothing is changed without --execute");
        }
        let json = json!({"group": self.group, "executed": self.execute, "offsets": json});
        self.connection.show(terminal, &table, &json)
    }
}
