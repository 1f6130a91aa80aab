//! `kafka-configs`.

use super::options::{OptionSpec, Options, flag, value};
use super::{Failure, Outcome, Terminal};
use crate::cli::tools::configs::{self, Entity, EntityKind};
use crate::client::{Client, ClientError, ConfigChange, ConfigEntry};
use crate::types::is_valid_topic_name;

const ABOUT: &str = "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or group";

const SPECS: &[OptionSpec] = &[
    value(
        "add-config",
        "k1=v1,k2=[v1,v2]",
        "Configurations to set; brackets keep values with commas together.",
    ),
    value(
        "add-config-file",
        "file",
        "A properties file with configurations to set.",
    ),
    flag("all", "With --describe: defaults too."),
    flag("alter", "Changes configurations."),
    value(
        "bootstrap-controller",
        "controller to connect to",
        "Ottla has no controllers apart from its brokers.",
    ),
    value(
        "bootstrap-server",
        "server to connect to",
        "The servers to ask.",
    ),
    value("broker", "id", "The id of a broker."),
    flag("broker-defaults", "What holds for all brokers."),
    value(
        "broker-logger",
        "id",
        "The id of a broker whose log levels are meant.",
    ),
    value("client", "id", "A client's id."),
    flag("client-defaults", "What holds for all clients."),
    value(
        "client-metrics",
        "name",
        "A subscription of client metrics.",
    ),
    value(
        "command-config",
        "command config property file",
        "A file of client properties.",
    ),
    value("delete-config", "k1,k2", "Configurations to take back."),
    flag("describe", "Tells configurations."),
    flag(
        "entity-default",
        "The default of clients, users, brokers or ips.",
    ),
    value("entity-name", "name", "The name of the topic, broker …"),
    value(
        "entity-type",
        "type",
        "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.",
    ),
    value("group", "group", "A group."),
    flag("help", "Prints this text."),
    value("ip", "ip", "An address."),
    flag("ip-defaults", "What holds for all addresses."),
    value("topic", "topic", "A topic."),
    value("user", "user", "A user."),
    flag("user-defaults", "What holds for all users."),
    flag("version", "Prints the version."),
];

/// As Kafka names them in its messages, in its order.
const TYPES: &[&str] = &[
    "broker-loggers",
    "topics",
    "clients",
    "users",
    "brokers",
    "ips",
    "client-metrics",
    "groups",
];

/// Options that name an entity, and the type of it.
const FLAGS: &[(&str, &str)] = &[
    ("topic", "topics"),
    ("client", "clients"),
    ("user", "users"),
    ("broker", "brokers"),
    ("broker-logger", "broker-loggers"),
    ("ip", "ips"),
    ("client-metrics", "client-metrics"),
    ("group", "groups"),
];

const DEFAULT_FLAGS: &[(&str, &str)] = &[
    ("client-defaults", "clients"),
    ("user-defaults", "users"),
    ("broker-defaults", "brokers"),
    ("ip-defaults", "ips"),
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let options = Options::parse(SPECS, &arguments).map_err(Failure::Message)?;
    if options.is_empty {
        return Err(options.usage(ABOUT));
    }
    options.help_or_version(ABOUT)?;
    let (types, names) = check(&options)?;
    let failed = |error: ClientError| failed(&arguments, &error);
    let file = options.value("command-config").map_err(Failure::Message)?;
    let properties = super::properties(file, &[]).map_err(failed)?;
    if options.has("bootstrap-controller") {
        return Err(Failure::Message(
            "Ottla has no controllers apart from its brokers: give --bootstrap-server.".to_owned(),
        ));
    }
    if options.has("alter") && types.len() != names.len() {
        return message("An entity name must be specified for every entity type");
    }
    let kind = match types.first().map(String::as_str) {
        Some("topics") => EntityKind::Topics,
        Some("brokers") => EntityKind::Brokers,
        Some("broker-loggers") => EntityKind::BrokerLoggers,
        Some("client-metrics") => EntityKind::ClientMetrics,
        Some("groups") => EntityKind::Groups,
        other => {
            return Err(Failure::Message(format!(
                "Ottla has no quotas and no users yet: --entity-type {} cannot be described or altered.",
                other.unwrap_or_default()
            )));
        }
    };
    let servers = options
        .value("bootstrap-server")
        .map_err(Failure::Message)?;
    let mut client = super::client(servers.unwrap_or(""), &properties)
        .await
        .map_err(failed)?;
    let name = names.first().map(String::as_str);
    let outcome = match options.has("alter") {
        true => {
            let changes = changes(&options)?;
            let name = name.unwrap_or_default().to_owned();
            alter(&mut client, Entity { kind, name }, changes, &mut terminal).await
        }
        false => describe(&mut client, kind, name, options.has("all"), &mut terminal).await,
    };
    match outcome {
        Ok(()) => Ok(terminal.flush()?),
        Err(Problem::Client(error)) => {
            terminal.flush()?;
            Err(failed(error))
        }
        Err(Problem::Other(failure)) => {
            terminal.flush()?;
            Err(failure)
        }
    }
}

enum Problem {
    Client(ClientError),
    Other(Failure),
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<crate::cli::tools::Stopped> for Problem {
    fn from(_: crate::cli::tools::Stopped) -> Self {
        Self::Other(Failure::Stopped)
    }
}

fn message<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Message(text.into()))
}

/// What Kafka prints for what it did not expect.
fn failed(arguments: &[String], error: &ClientError) -> Failure {
    if let ClientError::UnsupportedVersion(what) = error {
        return Failure::Message(what.clone());
    }
    let exception = error.qualified_exception();
    Failure::Message(format!(
        "Error while executing config command with args '{}'\njava.util.concurrent.ExecutionException: {exception}: {error}",
        arguments.join(" ")
    ))
}

/// The types and the names of what is meant; `""` is the default.
fn check(options: &Options) -> Result<(Vec<String>, Vec<String>), Failure> {
    if options.has("alter") == options.has("describe") {
        return Err(options.usage("Command must include exactly one action: --describe, --alter"));
    }
    options.check_invalid("describe", &["alter", "add-config", "delete-config"])?;
    let types = types(options);
    let mut twice: Vec<&str> = Vec::new();
    for (index, one) in types.iter().enumerate() {
        if types[..index].contains(one) && !twice.contains(&one.as_str()) {
            twice.push(one);
        }
    }
    if !twice.is_empty() {
        return message(format!(
            "Duplicate entity type(s) specified: {}",
            twice.join(",")
        ));
    }
    if !options.has("bootstrap-server") && !options.has("bootstrap-controller") {
        return message("Either --bootstrap-server or --bootstrap-controller must be specified.");
    }
    if let Some(unknown) = types.iter().find(|one| !TYPES.contains(&one.as_str())) {
        return message(format!(
            "Invalid entity type {unknown}, the entity type must be one of {} with a --bootstrap-server or --bootstrap-controller argument",
            TYPES.join(", ")
        ));
    }
    if types.is_empty() {
        return message("At least one entity type must be specified");
    }
    let both = types.len() == 2
        && types.iter().any(|one| one == "users")
        && types.iter().any(|one| one == "clients");
    if types.len() > 1 && !both {
        return message("Only 'users' and 'clients' entity types may be specified together");
    }
    let by_flag = FLAGS
        .iter()
        .chain(DEFAULT_FLAGS)
        .any(|(flag, _)| options.has(flag));
    let by_name = ["entity-name", "entity-type", "entity-default"];
    if by_flag && by_name.iter().any(|name| options.has(name)) {
        return message(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
        );
    }
    let names = names(options);
    check_names(options, &types, &names)?;
    Ok((types, names))
}

fn types(options: &Options) -> Vec<String> {
    let named = options.values("entity-type").into_iter();
    let flags = FLAGS.iter().chain(DEFAULT_FLAGS);
    let flags = flags
        .filter(|(flag, _)| options.has(flag))
        .map(|(_, kind)| *kind);
    named.chain(flags).map(str::to_owned).collect()
}

fn names(options: &Options) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    names.extend(options.values("entity-name").into_iter().map(str::to_owned));
    if options.has("entity-default") {
        names.push(String::new());
    }
    for (flag, _) in FLAGS {
        names.extend(options.values(flag).into_iter().map(str::to_owned));
    }
    let defaults = DEFAULT_FLAGS.iter().filter(|(flag, _)| options.has(flag));
    names.extend(defaults.map(|_| String::new()));
    names
}

fn check_names(options: &Options, types: &[String], names: &[String]) -> Outcome {
    let has = |kind: &str| types.iter().any(|one| one == kind);
    let has_name = names.iter().any(|name| !name.is_empty());
    let has_default = names.iter().any(String::is_empty);
    if options.has("bootstrap-server") && options.has("bootstrap-controller") {
        return message(
            "Only one of --bootstrap-server or --bootstrap-controller can be specified",
        );
    }
    if has("brokers") || has("broker-loggers") {
        let wrong = names
            .iter()
            .find(|name| !name.is_empty() && name.parse::<i32>().is_err());
        if let Some(wrong) = wrong {
            return message(format!(
                "The entity name for {} must be a valid integer broker id, but it is: {wrong}",
                types[0]
            ));
        }
    }
    let with_default = ["users", "clients", "brokers", "ips"]
        .iter()
        .any(|kind| has(kind));
    if options.has("describe") {
        if !with_default && options.has("entity-default") {
            return message(format!(
                "--entity-default must not be specified with --describe of {}",
                types.join(",")
            ));
        }
        if has("broker-loggers") && !has_name {
            return message(format!(
                "An entity name must be specified with --describe of {}",
                types.join(",")
            ));
        }
        return Ok(());
    }
    if with_default && !has_name && !has_default {
        return message(
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
        );
    }
    if !with_default && !has_name {
        return message(format!(
            "An entity name must be specified with --alter of {}",
            types.join(",")
        ));
    }
    if options.has("add-config") && options.has("add-config-file") {
        return message("Only one of --add-config or --add-config-file must be specified");
    }
    let change = ["add-config", "add-config-file", "delete-config"];
    if !change.iter().any(|name| options.has(name)) {
        return message(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
        );
    }
    Ok(())
}

/// What is to be deleted, then what is to be set.
fn changes(options: &Options) -> Result<Vec<ConfigChange>, Failure> {
    let mut set: Vec<(String, String)> = Vec::new();
    let mut put = |key: String, value: String| {
        set.retain(|(known, _)| *known != key);
        set.push((key, value));
    };
    if let Some(path) = options.value("add-config-file").map_err(Failure::Message)? {
        let properties = super::properties(Some(path), &[]);
        let properties = properties.map_err(|error| Failure::Message(error.to_string()))?;
        for (key, value) in properties {
            put(key, value);
        }
    }
    if let Some(text) = options.value("add-config").map_err(Failure::Message)? {
        for pair in split_outside_brackets(text, ',') {
            let parts = split_outside_brackets(pair, '=');
            let [key, value] = parts[..] else {
                return message(
                    "Invalid entity config: all configs to be added must be in the format \"key=val\" or  \"key=[val1,val2]\" to group values which contain commas.",
                );
            };
            let value = value.replace(['[', ']'], "");
            put(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '$' | '.' | '_' | '-');
    if let Some((key, _)) = set.iter().find(|(key, _)| !key.chars().all(legal)) {
        return message(format!("Invalid character found for config key: {key}"));
    }
    let deleted = options.values("delete-config").into_iter();
    let deleted = deleted.flat_map(|keys| keys.split(',')).map(str::trim);
    let deleted = deleted.map(|key| ConfigChange::Delete(key.to_owned()));
    let set = set
        .into_iter()
        .map(|(key, value)| ConfigChange::Set(key, value));
    Ok(deleted.chain(set).collect())
}

/// Splits where a separator is not followed by a closing bracket without an opening one before it.
fn split_outside_brackets(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(separator) {
        let rest = &text[at + separator.len_utf8()..];
        let inside = match rest.find(['[', ']']) {
            Some(bracket) => rest[bracket..].starts_with(']'),
            None => false,
        };
        if !inside {
            parts.push(&text[start..at]);
            start = at + separator.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}

async fn alter(
    client: &mut Client,
    entity: Entity,
    changes: Vec<ConfigChange>,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    check_topic(&entity)?;
    let missing = configs::missing_loggers(client, &entity, &changes).await?;
    if !missing.is_empty() {
        let text = format!("Invalid broker logger(s): {}", missing.join(","));
        return Err(Problem::Other(Failure::Message(text)));
    }
    client.alter_configs(&entity.resource(), &changes).await?;
    let kind = entity.kind;
    let line = match entity.name.as_str() {
        "" => format!(
            "Completed updating default config for {} in the cluster.",
            kind.plural()
        ),
        name => format!("Completed updating config for {} {name}.", kind.singular()),
    };
    Ok(terminal.line(&line)?)
}

fn check_topic(entity: &Entity) -> Result<(), Problem> {
    if entity.kind != EntityKind::Topics || is_valid_topic_name(&entity.name) {
        return Ok(());
    }
    Err(Problem::Client(ClientError::Api {
        code: crate::types::ErrorCode::InvalidTopicException.code(),
        message: Some(configs::invalid_topic(&entity.name)),
    }))
}

async fn describe(
    client: &mut Client,
    kind: EntityKind,
    name: Option<&str>,
    all: bool,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    if let Some(name) = name {
        let entity = Entity {
            kind,
            name: name.to_owned(),
        };
        check_topic(&entity)?;
        if !all && !configs::exists(client, &entity).await? {
            let line = format!(
                "The {} '{name}' doesn't exist and doesn't have dynamic config.",
                kind.singular()
            );
            return Ok(terminal.line(&line)?);
        }
    }
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => configs::names(client, kind).await?,
    };
    for name in names {
        let heading = match (name.as_str(), all) {
            ("", _) => format!("Default configs for {} in the cluster are:", kind.plural()),
            (name, true) => format!("All configs for {} {name} are:", kind.singular()),
            (name, false) => format!("Dynamic configs for {} {name} are:", kind.singular()),
        };
        terminal.line(&heading)?;
        let entity = Entity { kind, name };
        for entry in configs::entries(client, &entity, all).await? {
            terminal.line(&entry_line(&entry))?;
        }
    }
    Ok(())
}

fn entry_line(entry: &ConfigEntry) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    let synonyms = entry.synonyms.iter().map(|synonym| {
        format!(
            "{}:{}={}",
            synonym.source.name(),
            synonym.name,
            shown(&synonym.value)
        )
    });
    let synonyms: Vec<String> = synonyms.collect();
    format!(
        "  {}={} sensitive={} synonyms={{{}}}",
        entry.name,
        shown(&entry.value),
        entry.sensitive,
        synonyms.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_keep_commas_together() {
        let split = |text| split_outside_brackets(text, ',');
        assert_eq!(split("a=1,b=[x,y],c="), ["a=1", "b=[x,y]", "c="]);
        assert_eq!(split("a=[x],b=2"), ["a=[x]", "b=2"]);
        let arguments = [
            "--alter",
            "--add-config",
            "a=[x,y=z],b=",
            "--delete-config",
            "c,d",
        ];
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let options = Options::parse(SPECS, &arguments).unwrap();
        let set = |key: &str, value: &str| ConfigChange::Set(key.to_owned(), value.to_owned());
        let delete = |key: &str| ConfigChange::Delete(key.to_owned());
        assert_eq!(
            changes(&options).unwrap(),
            [delete("c"), delete("d"), set("a", "x,y=z"), set("b", "")]
        );
    }
}
