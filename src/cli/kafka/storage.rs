//! `kafka-storage`.

use std::path::{Path, PathBuf};

use super::argparse::{Command, Given, Spec, parse, required, spec};
use super::{Failure, Outcome, Terminal};
use crate::config::BrokerConfig;
use crate::log::{DirectoryOwner, directory_owner, format_directory};
use crate::types::TopicId;

const FORMAT: &[Spec] = &[
    required("config", 'c'),
    required("cluster-id", 't'),
    spec("add-scram", 'S', true),
    spec("ignore-formatted", 'g', false),
    spec("release-version", 'r', true),
    spec("feature", 'f', true),
    spec("standalone", 's', false),
    spec("no-initial-controllers", 'N', false),
    spec("initial-controllers", 'I', true),
];

const COMMANDS: &[Command] = &[
    Command {
        name: "info",
        help: "Tells whose the log directories of a configuration are.",
        specs: &[required("config", 'c')],
    },
    Command {
        name: "format",
        help: "Gives the log directories of a configuration to a cluster.",
        specs: FORMAT,
    },
    Command {
        name: "random-uuid",
        help: "Prints a random UUID.",
        specs: &[],
    },
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let given = parse(
        "kafka-storage",
        "The Kafka storage tool.",
        COMMANDS,
        &arguments,
    )?;
    match given.command {
        "info" => info(&given, &mut terminal),
        "format" => format(&given, &mut terminal),
        _ => {
            terminal.line(&random_id().to_string())?;
            Ok(terminal.flush()?)
        }
    }
}

/// As Kafka makes them: none begins with a dash, which command lines would take for an option.
fn random_id() -> TopicId {
    loop {
        let id = TopicId(*uuid::Uuid::new_v4().as_bytes());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}

fn config(given: &Given) -> Result<BrokerConfig, Failure> {
    let file = Path::new(given.value("config").unwrap_or_default());
    let loaded = BrokerConfig::load(Some(file), std::iter::empty(), &[]);
    let loaded = loaded.map_err(|error| Failure::Message(error.to_string()))?;
    Ok(loaded.config)
}

fn directories(config: &BrokerConfig) -> Vec<PathBuf> {
    let mut directories = config.log_dirs.clone();
    directories.sort_unstable();
    directories.dedup();
    directories
}

fn format(given: &Given, terminal: &mut Terminal) -> Outcome {
    if given.has("add-scram") {
        return Err(Failure::Message(
            "--add-scram: Ottla has no SCRAM credentials yet.".to_owned(),
        ));
    }
    let cluster_id = given.value("cluster-id").unwrap_or_default();
    if cluster_id.trim().is_empty() {
        return Err(Failure::Message(
            "You must specify the cluster id.".to_owned(),
        ));
    }
    let config = config(given)?;
    let mut new = Vec::new();
    for directory in directories(&config) {
        match owner(&directory)? {
            None => new.push(directory),
            Some(_) if !given.has("ignore-formatted") => {
                return Err(Failure::Message(format!(
                    "Log directory {} is already formatted. Use --ignore-formatted to ignore this directory and format the others.",
                    directory.display()
                )));
            }
            Some(owner) => check(&directory, &owner, cluster_id, config.node_id.0)?,
        }
    }
    if new.is_empty() {
        terminal.line("All of the log directories are already formatted.")?;
        return Ok(terminal.flush()?);
    }
    for (number, directory) in new.iter().enumerate() {
        format_directory(directory, cluster_id, config.node_id.0).map_err(|error| {
            Failure::Message(format!(
                "Error while writing meta.properties file {}: {error}",
                directory.display()
            ))
        })?;
        let kind = if number == 0 { "metadata" } else { "data" };
        terminal.line(&format!(
            "Formatting {kind} directory {} with metadata.version {}.",
            directory.display(),
            given.value("release-version").unwrap_or("4.4-IV2")
        ))?;
    }
    Ok(terminal.flush()?)
}

fn owner(directory: &Path) -> Result<Option<DirectoryOwner>, Failure> {
    directory_owner(directory).map_err(|error| {
        Failure::Message(format!(
            "Error reading meta.properties of {}: {error}",
            directory.display()
        ))
    })
}

/// A directory that is passed over must be this node's all the same.
fn check(directory: &Path, owner: &DirectoryOwner, cluster_id: &str, node_id: i32) -> Outcome {
    let directory = directory.display();
    if let Some(theirs) = owner.cluster_id.as_ref().filter(|id| *id != cluster_id) {
        return Err(Failure::Message(format!(
            "Invalid cluster.id in: {directory}/meta.properties. Expected {cluster_id}, but read {theirs}"
        )));
    }
    if let Some(theirs) = owner.node_id.filter(|id| *id != node_id) {
        return Err(Failure::Message(format!(
            "Stored node id {theirs} doesn't match previous node id {node_id} in {directory}"
        )));
    }
    Ok(())
}

fn info(given: &Given, terminal: &mut Terminal) -> Outcome {
    let config = config(given)?;
    let mut problems = Vec::new();
    let mut found = Vec::new();
    let mut first: Option<DirectoryOwner> = None;
    for directory in directories(&config) {
        let shown = directory.display();
        if !directory.is_dir() {
            problems.push(match directory.exists() {
                true => format!("{shown} is not a directory"),
                false => format!("{shown} does not exist"),
            });
            continue;
        }
        found.push(directory.clone());
        match (owner(&directory)?, &first) {
            (None, _) => problems.push(format!("{shown} is not formatted.")),
            (Some(owner), None) => first = Some(owner),
            (Some(owner), Some(first)) if owner.cluster_id != first.cluster_id => {
                problems.push("Mismatched cluster IDs between storage directories.".to_owned());
            }
            (Some(owner), Some(first)) if owner.node_id != first.node_id => {
                problems.push("Mismatched node IDs between storage directories.".to_owned());
            }
            _ => {}
        }
    }
    let several = |what: &str, many: &str, count| match count {
        1 => format!("Found {what}:"),
        _ => format!("Found {many}:"),
    };
    if !found.is_empty() {
        terminal.line(&several("log directory", "log directories", found.len()))?;
        for directory in &found {
            terminal.line(&format!("  {}", directory.display()))?;
        }
        terminal.line("")?;
    }
    if let Some(owner) = first {
        terminal.line(&format!("Found metadata: {}", metadata(&owner)))?;
        terminal.line("")?;
    }
    if problems.is_empty() {
        return Ok(terminal.flush()?);
    }
    terminal.line(&several("problem", "problems", problems.len()))?;
    for problem in &problems {
        terminal.line(&format!("  {problem}"))?;
    }
    terminal.line("")?;
    terminal.flush()?;
    Err(Failure::Told {
        out: String::new(),
        err: String::new(),
    })
}

fn metadata(owner: &DirectoryOwner) -> String {
    let mut fields = Vec::new();
    if let Some(id) = &owner.cluster_id {
        fields.push(format!("cluster.id={id}"));
    }
    if let Some(id) = &owner.directory_id {
        fields.push(format!("directory.id={id}"));
    }
    if let Some(id) = owner.node_id {
        fields.push(format!("node.id={id}"));
    }
    fields.push("version=1".to_owned());
    format!("{{{}}}", fields.join(", "))
}
