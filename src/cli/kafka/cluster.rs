//! `kafka-cluster`.

use super::argparse::{Command, Spec, parse, required, spec};
use super::{Failure, Outcome, Terminal};
use crate::client::ClientError;

const SERVERS: &[Spec] = &[
    spec("bootstrap-server", 'b', true),
    spec("bootstrap-controller", 'C', true),
    spec("config", 'c', true),
    spec("command-config", 'x', true),
];

const COMMANDS: &[Command] = &[
    Command {
        name: "cluster-id",
        help: "Prints the id of the cluster.",
        specs: SERVERS,
    },
    Command {
        name: "unregister",
        help: "Makes the cluster forget a broker.",
        specs: &[
            spec("bootstrap-server", 'b', true),
            spec("bootstrap-controller", 'C', true),
            spec("config", 'c', true),
            spec("command-config", 'x', true),
            required("id", 'i'),
        ],
    },
    Command {
        name: "api-versions",
        help: "Lists which versions of APIs the brokers serve.",
        specs: SERVERS,
    },
    Command {
        name: "list-endpoints",
        help: "Lists the brokers of the cluster.",
        specs: &[
            spec("bootstrap-server", 'b', true),
            spec("bootstrap-controller", 'C', true),
            spec("config", 'c', true),
            spec("command-config", 'x', true),
            spec("include-fenced-brokers", 'F', false),
        ],
    },
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let given = parse(
        "kafka-cluster",
        "The Kafka cluster tool.",
        COMMANDS,
        &arguments,
    )?;
    let file = given.value("command-config").or(given.value("config"));
    let properties = super::properties(file, &[]).map_err(failed)?;
    if given.has("bootstrap-controller") {
        return Err(Failure::Message(
            "Ottla has no controllers apart from its brokers: give --bootstrap-server.".to_owned(),
        ));
    }
    let from_file = properties
        .iter()
        .rev()
        .find(|(key, _)| key == "bootstrap.servers");
    let from_file = from_file.map(|(_, value)| value.as_str());
    let Some(servers) = given.value("bootstrap-server").or(from_file) else {
        return Err(Failure::Message(
            "Please specify either --bootstrap-server or --bootstrap-controller.".to_owned(),
        ));
    };
    let mut client = super::client(servers, &properties).await.map_err(failed)?;
    match given.command {
        "unregister" => {
            return Err(Failure::Message(
                "The target cluster does not support the broker unregistration API: a broker of Ottla is forgotten when its lease ends.".to_owned(),
            ));
        }
        "api-versions" => {
            for broker in client.api_versions().await.map_err(failed)? {
                terminal.line(&super::broker_api_versions::told(&broker))?;
            }
        }
        "list-endpoints" => {
            let fenced = given.has("include-fenced-brokers");
            let cluster = client.describe_cluster(fenced).await.map_err(failed)?;
            list_endpoints(&cluster.brokers, &mut terminal)?;
        }
        _ => {
            let cluster = client.describe_cluster(false).await.map_err(failed)?;
            terminal.line(&format!("Cluster ID: {}", cluster.cluster_id))?;
        }
    }
    Ok(terminal.flush()?)
}

fn list_endpoints(brokers: &[crate::client::BrokerInfo], terminal: &mut Terminal) -> Outcome {
    let longest = brokers.iter().map(|broker| broker.host.len()).max();
    let width = longest.unwrap_or(0);
    let racks = brokers.iter().filter_map(|broker| broker.rack.as_ref());
    let rack_width = racks.map(String::len).max().unwrap_or(0).max(10);
    let row = |id: &str, host: &str, port: &str, rack: &str, state: &str, kind: &str| {
        format!("{id:<10} {host:<width$} {port:<10} {rack:<rack_width$} {state:<10} {kind:<15}")
    };
    terminal.line(&row("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"))?;
    for broker in brokers {
        let rack = broker.rack.as_deref().unwrap_or("null");
        let state = if broker.fenced { "fenced" } else { "unfenced" };
        let (id, port) = (broker.id.to_string(), broker.port.to_string());
        terminal.line(&row(&id, &broker.host, &port, rack, state, "broker"))?;
    }
    Ok(())
}

fn failed(error: ClientError) -> Failure {
    Failure::Message(format!("{error}\n{}: {error}", error.qualified_exception()))
}
