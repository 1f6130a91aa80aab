//! `kafka-broker-api-versions`.

use super::options::{OptionSpec, Options, flag, usage, value};
use super::{Failure, Outcome, Terminal};
use crate::client::{ApiRange, BrokerVersions, ClientError, known_apis};

const ABOUT: &str = "This tool helps to retrieve broker version information.";

const SPECS: &[OptionSpec] = &[
    value(
        "bootstrap-server",
        "server(s) to use for bootstrapping",
        "REQUIRED: The servers to ask.",
    ),
    value(
        "command-config",
        "command config property file",
        "A file of client properties.",
    ),
    flag("help", "Prints this text."),
    flag("version", "Prints the version."),
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    if arguments.is_empty() {
        return Err(usage(SPECS, ABOUT));
    }
    let options = Options::parse(SPECS, &arguments).map_err(option_error)?;
    options.help_or_version(ABOUT)?;
    options.check_required(&["bootstrap-server"])?;
    let file = options.value("command-config").map_err(option_error)?;
    let properties = super::properties(file, &[]).map_err(failed)?;
    let servers = options.value("bootstrap-server").map_err(option_error)?;
    let mut client = super::client(servers.unwrap_or(""), &properties)
        .await
        .map_err(failed)?;
    for broker in client.api_versions().await.map_err(failed)? {
        terminal.line(&told(&broker))?;
    }
    Ok(terminal.flush()?)
}

pub(super) fn told(broker: &BrokerVersions) -> String {
    let info = &broker.broker;
    let rack = info.rack.as_deref().unwrap_or("null");
    let node = format!(
        "{}:{} (id: {} rack: {rack} isFenced: {})",
        info.host, info.port, info.id, info.fenced
    );
    match &broker.apis {
        Err(error) => format!("{node} -> ERROR: {error}"),
        Ok(apis) => {
            let mut lines: Vec<(i16, String)> = apis
                .iter()
                .map(|range| (range.api_key, api(range)))
                .collect();
            let unsupported =
                known_apis().filter(|(key, _)| apis.iter().all(|r| r.api_key != *key));
            lines.extend(
                unsupported.map(|(key, name)| (key, format!("\t{name}({key}): UNSUPPORTED"))),
            );
            lines.sort_unstable();
            let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
            format!("{node} -> (\n{}\n)", lines.join(",\n"))
        }
    }
}

fn api(range: &ApiRange) -> String {
    let Some(name) = range.name() else {
        return format!("\tUNKNOWN({}): {}", range.api_key, versions(range));
    };
    let usable = match range.usable() {
        Some(version) => format!(" [usable: {version}]"),
        None => " [unusable: node too new]".to_owned(),
    };
    format!("\t{name}({}): {}{usable}", range.api_key, versions(range))
}

fn versions(range: &ApiRange) -> String {
    match range.min == range.max {
        true => range.min.to_string(),
        false => format!("{} to {}", range.min, range.max),
    }
}

fn option_error(message: String) -> Failure {
    super::options::terse(message)
}

fn failed(error: ClientError) -> Failure {
    Failure::Message(format!("{error}\n{}: {error}", error.qualified_exception()))
}
