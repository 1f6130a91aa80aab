//! `ottla cluster`.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::show::{Table, or_dash};
use super::{Connection, Done, run};
use crate::cli::tools::Terminal;

/// What there is to tell of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ClusterCommand {
    /// The cluster's id and its brokers.
    Info {
        #[command(flatten)]
        connection: Connection,
    },
    /// The versions of APIs that each broker serves.
    Apis {
        #[command(flatten)]
        connection: Connection,
    },
}

impl ClusterCommand {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| match self {
            Self::Info { connection } => info(connection, terminal).await,
            Self::Apis { connection } => apis(connection, terminal).await,
        })
    }
}

async fn info(connection: &Connection, terminal: &mut Terminal) -> Done {
    let mut client = connection.client()?;
    let cluster = client.describe_cluster(true).await?;
    let mut table = Table::new(&["BROKER", "HOST", "PORT", "RACK", "STATE", ""]);
    let mut json = Vec::new();
    for broker in &cluster.brokers {
        let state = if broker.fenced { "fenced" } else { "serving" };
        let role = if broker.id == cluster.controller {
            "controller"
        } else {
            ""
        };
        table.row([
            broker.id.to_string(),
            broker.host.clone(),
            broker.port.to_string(),
            or_dash(broker.rack.as_ref()),
            state.to_owned(),
            role.to_owned(),
        ]);
        json.push(json!({
            "id": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "fenced": broker.fenced,
        }));
    }
    if !connection.json {
        terminal.line(&format!("cluster {}", cluster.cluster_id))?;
    }
    let json = json!({
        "clusterId": cluster.cluster_id,
        "controller": cluster.controller,
        "brokers": json,
    });
    connection.show(terminal, &table, &json)
}

async fn apis(connection: &Connection, terminal: &mut Terminal) -> Done {
    let mut client = connection.client()?;
    let mut table = Table::new(&["BROKER", "KEY", "API", "FROM", "TO"]);
    let mut json = Vec::new();
    for versions in client.api_versions().await? {
        let id = versions.broker.id;
        for api in versions
            .apis
            .map_err(|error| format!("broker {id}: {error}"))?
        {
            let name = api.name();
            table.row([
                id.to_string(),
                api.api_key.to_string(),
                or_dash(name),
                api.min.to_string(),
                api.max.to_string(),
            ]);
            json.push(json!({
                "broker": id,
                "key": api.api_key,
                "api": name,
                "min": api.min,
                "max": api.max,
            }));
        }
    }
    connection.show(terminal, &table, &json.into())
}
