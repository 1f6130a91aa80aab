//! `kafka-consumer-groups`.

mod describe;
mod reset;

use std::collections::BTreeMap;

use super::options::{OptionSpec, Options, bracketed, exception, flag, optional, value};
use super::{Failure, Outcome, Terminal};
use crate::cli::tools::groups;
use crate::client::{Client, ClientError, GroupListing};
use crate::types::{ErrorCode, TopicPartition};

const ABOUT: &str = "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset consumer group offsets.";

const SPECS: &[OptionSpec] = &[
    flag("all-groups", "All groups."),
    flag(
        "all-topics",
        "With --reset-offsets: all topics that the group has offsets for.",
    ),
    value(
        "bootstrap-server",
        "server to connect to",
        "REQUIRED: The servers to ask.",
    ),
    value(
        "by-duration",
        "duration",
        "Resets to what was written that long ago: PnDTnHnMnS.",
    ),
    value(
        "command-config",
        "command config property file",
        "A file of client properties.",
    ),
    flag("delete", "Deletes groups."),
    flag(
        "delete-offsets",
        "Forgets what a group has committed for topics.",
    ),
    flag("describe", "Tells who is in groups and how far they are."),
    flag(
        "dry-run",
        "With --reset-offsets: only shows what would be done.",
    ),
    flag("execute", "With --reset-offsets: does it."),
    flag("export", "With --reset-offsets: prints a CSV file."),
    value(
        "from-file",
        "path to CSV file",
        "Resets to the offsets of a CSV file.",
    ),
    value(
        "group",
        "consumer group",
        "The group. Can be given many times.",
    ),
    flag("help", "Prints this text."),
    flag("list", "Lists groups."),
    flag("members", "With --describe: the members."),
    flag(
        "offsets",
        "With --describe: the offsets, which is the default.",
    ),
    flag(
        "reset-offsets",
        "Sets the offsets of groups without members.",
    ),
    value(
        "shift-by",
        "number-of-offsets",
        "Resets by so many records, forth or back.",
    ),
    optional(
        "state",
        "state",
        "With --describe: the state; with --list: all states, or groups of some.",
    ),
    value("timeout", "timeout (ms)", "How long it may take."),
    flag("to-current", "Resets to what is committed."),
    value(
        "to-datetime",
        "datetime",
        "Resets to what was written from then on: YYYY-MM-DDTHH:mm:SS.sss.",
    ),
    flag("to-earliest", "Resets to the first record."),
    flag("to-latest", "Resets behind the last record."),
    value("to-offset", "offset", "Resets to an offset."),
    value(
        "topic",
        "topic",
        "A topic, or topic:0,1,2. Can be given many times.",
    ),
    optional("type", "type", "With --list: all types, or groups of some."),
    value(
        "validate-regex",
        "regex",
        "Tells whether a regular expression is valid.",
    ),
    flag("verbose", "With --describe: more."),
    flag("version", "Prints the version."),
];

const ACTIONS: &[&str] = &[
    "list",
    "describe",
    "delete",
    "reset-offsets",
    "delete-offsets",
    "validate-regex",
];

/// In the order of the first that is complained of.
const RESETS: &[&str] = &[
    "to-offset",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "shift-by",
    "from-file",
];

const LISTED_STATES: &[&str] = &[
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
];

/// How an action ends early.
#[derive(Debug)]
enum Problem {
    Client(ClientError),
    /// With the help text.
    Usage(String),
    Stopped,
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<crate::cli::tools::Stopped> for Problem {
    fn from(_: crate::cli::tools::Stopped) -> Self {
        Self::Stopped
    }
}

type Done = Result<(), Problem>;

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let options = Options::parse(SPECS, &arguments).map_err(thrown)?;
    if options.is_empty {
        return Err(options.usage(ABOUT));
    }
    check_availability(&options)?;
    options.help_or_version(ABOUT)?;
    check(&options)?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        let actions: Vec<String> = ACTIONS.iter().map(|action| format!("--{action}")).collect();
        return Err(options.usage(format!(
            "Command must include exactly one action: {}",
            actions.join(", ")
        )));
    }
    if let Some(regex) = options.value("validate-regex").map_err(Failure::Message)? {
        let told = match regex_lite::Regex::new(regex) {
            Ok(_) => format!("The regular expression `{regex}` is valid."),
            Err(error) => format!("The regular expression `{regex}` is invalid: {error}."),
        };
        terminal.line(&told)?;
        return Ok(terminal.flush()?);
    }
    let outcome = act(&options, &mut terminal).await;
    terminal.flush()?;
    match outcome {
        Ok(()) => Ok(()),
        Err(Problem::Usage(message)) => Err(options.usage(message)),
        Err(Problem::Stopped) => Err(Failure::Stopped),
        // Kafka's tool ends well all the same.
        Err(Problem::Client(error)) => {
            let exception = error.qualified_exception();
            let said =
                format!("Executing consumer group command failed due to {exception}: {error}");
            print_error(&mut terminal, &said)?;
            terminal.flush()?;
            eprintln!("java.util.concurrent.ExecutionException: {exception}: {error}");
            Ok(())
        }
    }
}

/// What joptsimple throws leaves Kafka's tool uncaught.
fn thrown(message: String) -> Failure {
    Failure::Message(format!(
        "Exception in thread \"main\" {}",
        exception(&message)
    ))
}

fn print_error(terminal: &mut Terminal, message: &str) -> Result<(), crate::cli::tools::Stopped> {
    terminal.line(&format!("\nError: {message}"))
}

fn check_availability(options: &Options) -> Outcome {
    let only = [
        ("members", &["describe"][..]),
        ("verbose", &["describe"]),
        ("offsets", &["describe"]),
        ("state", &["describe", "list"]),
        ("type", &["list"]),
    ];
    let misplaced = only
        .iter()
        .filter(|(option, with)| options.has(option) && !with.iter().any(|w| options.has(w)));
    let names: Vec<&str> = misplaced.map(|(option, _)| *option).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(thrown(format!(
            "Option(s) [{}] are unavailable given other options on the command line",
            names.join(", ")
        ))),
    }
}

fn check(options: &Options) -> Outcome {
    if !options.has("validate-regex") {
        options.check_required(&["bootstrap-server"])?;
    }
    let has_groups = options.has("group") || options.has("all-groups");
    let takes_groups = |action: &str| {
        options.usage(format!(
            "Option {} takes one of these options: {}, {}",
            bracketed(action),
            bracketed("all-groups"),
            bracketed("group")
        ))
    };
    if options.has("describe") {
        if !has_groups {
            return Err(takes_groups("describe"));
        }
        let some = ["members", "offsets", "state"];
        if some.iter().filter(|option| options.has(option)).count() > 1 {
            return Err(options.usage(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]",
            ));
        }
        if options.value("state").map_err(Failure::Message)?.is_some() {
            return Err(options.usage("Option [describe] does not take a value for [state]"));
        }
    }
    if options.has("delete") {
        if !has_groups {
            return Err(takes_groups("delete"));
        }
        if options.has("topic") {
            return Err(options.usage("The consumer does not support topic-specific offset deletion from a consumer group."));
        }
    }
    if options.has("delete-offsets") && !(options.has("group") && options.has("topic")) {
        return Err(
            options.usage("Option [delete-offsets] takes the following options: [topic], [group]")
        );
    }
    if options.has("reset-offsets") {
        if options.has("dry-run") && options.has("execute") {
            return Err(
                options.usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
            );
        }
        if !options.has("dry-run") && !options.has("execute") {
            eprintln!("{}", reset::NO_ACTION);
        }
        if !has_groups {
            return Err(takes_groups("reset-offsets"));
        }
        for one in RESETS {
            let others: Vec<&str> = RESETS
                .iter()
                .copied()
                .filter(|other| other != one)
                .collect();
            options.check_invalid(one, &others)?;
        }
    }
    options.check_invalid("group", &["all-groups"])?;
    options.check_invalid("group", &["list"])?;
    options.check_invalid("topic", &["list", "describe"])
}

async fn act(options: &Options, terminal: &mut Terminal) -> Done {
    let usage = Problem::Usage;
    let file = options.value("command-config").map_err(usage)?;
    let properties = super::properties(file, &[])?;
    let servers = options.value("bootstrap-server").map_err(usage)?;
    let mut client = super::client(servers.unwrap_or(""), &properties).await?;
    if let Some(timeout_ms) = options.number::<u64>("timeout").map_err(usage)? {
        client = super::with_timeout(&client, std::time::Duration::from_millis(timeout_ms));
    }
    if options.has("list") {
        return list(&mut client, options, terminal).await;
    }
    let groups = match options.has("all-groups") {
        true => {
            let all = groups::consumer_groups(&mut client, &[], &[]).await?;
            all.into_iter().map(|group| group.group).collect()
        }
        false => options
            .values("group")
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    };
    if options.has("describe") {
        describe::describe(&mut client, options, groups, terminal).await
    } else if options.has("delete") {
        delete(&mut client, groups, terminal).await
    } else if options.has("reset-offsets") {
        reset::reset(&mut client, options, groups, terminal).await
    } else {
        delete_offsets(&mut client, options, terminal).await
    }
}

/// `stable,empty`, as `GroupState.parse` reads them.
fn chosen(text: Option<&str>, valid: &[&str], what: &str) -> Result<Vec<String>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    let normal = |name: &str| name.trim().replace(['_', '-'], "").to_ascii_lowercase();
    let find = |name: &str| valid.iter().find(|known| normal(known) == normal(name));
    let found: Option<Vec<String>> = text
        .split(',')
        .map(|name| find(name).map(ToString::to_string))
        .collect();
    found.ok_or_else(|| {
        Problem::Usage(format!(
            "Invalid {what} list '{text}'. Valid {what} are: {}",
            valid.join(", ")
        ))
    })
}

async fn list(client: &mut Client, options: &Options, terminal: &mut Terminal) -> Done {
    let (with_type, with_state) = (options.has("type"), options.has("state"));
    let state = options.value("state").map_err(Problem::Usage)?;
    let kind = options.value("type").map_err(Problem::Usage)?;
    let states = chosen(state, LISTED_STATES, "state")
        .map_err(|problem| named(problem, "state list", "state are", "states are"))?;
    let kinds = chosen(kind, &["Classic", "Consumer"], "types")?;
    let groups = groups::consumer_groups(client, &states, &kinds).await?;
    if !with_type && !with_state {
        for group in groups {
            terminal.line(&group.group)?;
        }
        return Ok(());
    }
    let longest = groups.iter().map(|group| group.group.len().max(15)).max();
    let width = longest.unwrap_or(15) + 10;
    let row = |group: &str, kind: &str, state: &str| {
        let mut row = format!("{group:width$}");
        if with_type {
            row.push_str(&format!(" {kind:20}"));
        }
        if with_state {
            row.push_str(&format!(" {state:20}"));
        }
        row
    };
    terminal.line(&row("GROUP", "TYPE", "STATE"))?;
    for GroupListing {
        group, kind, state, ..
    } in &groups
    {
        terminal.line(&row(group, &capitalized(kind), state))?;
    }
    Ok(())
}

fn named(problem: Problem, _: &str, from: &str, to: &str) -> Problem {
    match problem {
        Problem::Usage(message) => Problem::Usage(message.replace(from, to)),
        other => other,
    }
}

fn capitalized(kind: &str) -> String {
    let mut characters = kind.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

async fn delete(client: &mut Client, groups: Vec<String>, terminal: &mut Terminal) -> Done {
    let mut deleted = Vec::new();
    let mut failed = Vec::new();
    for group in groups {
        match client.delete_group(&group).await {
            Ok(()) => deleted.push(group),
            Err(error) => failed.push((group, error)),
        }
    }
    if failed.is_empty() {
        return Ok(terminal.line(&format!(
            "Deletion of requested consumer groups ('{}') was successful.",
            deleted.join("', '")
        ))?);
    }
    print_error(terminal, "Deletion of some consumer groups failed:")?;
    for (group, error) in failed {
        terminal.line(&format!(
            "* Group '{group}' could not be deleted due to: {}: {error}",
            error.qualified_exception()
        ))?;
    }
    if !deleted.is_empty() {
        terminal.line(&format!(
            "\nThese consumer groups were deleted successfully: '{}'",
            deleted.join("', '")
        ))?;
    }
    Ok(())
}

/// `topic:0,1`.
fn partitions_named(argument: &str) -> Result<Vec<TopicPartition>, Problem> {
    let parts: Vec<&str> = argument.split(':').collect();
    let [topic, partitions] = parts[..] else {
        return Err(Problem::Usage(format!(
            "Invalid topic arg '{argument}', expected topic name and partitions"
        )));
    };
    let number = |text: &str| {
        let number = text.parse::<i32>();
        number
            .map(|number| TopicPartition::new(topic, number))
            .map_err(|_| {
                Problem::Usage(format!(
                    "Invalid partition '{text}' specified in topic arg '{argument}''"
                ))
            })
    };
    partitions.split(',').map(number).collect()
}

async fn delete_offsets(client: &mut Client, options: &Options, terminal: &mut Terminal) -> Done {
    let group = options
        .value("group")
        .map_err(Problem::Usage)?
        .unwrap_or("");
    let mut results: BTreeMap<(String, i32), Option<ClientError>> = BTreeMap::new();
    let mut partitions: Vec<TopicPartition> = Vec::new();
    for topic in options.values("topic") {
        if topic.contains(':') {
            partitions.extend(partitions_named(topic)?);
            continue;
        }
        match groups::partitions_of(client, &[topic.to_owned()]).await {
            Ok(all) => partitions.extend(all),
            Err(error) => {
                results.insert((topic.to_owned(), -1), Some(error));
            }
        }
    }
    partitions.sort_unstable();
    partitions.dedup();
    let outcome = client.delete_offsets(group, &partitions).await;
    let top = match &outcome {
        Err(error) => Some(error.clone()),
        Ok(outcomes) => outcomes.values().find_map(|outcome| outcome.clone().err()),
    };
    for partition in &partitions {
        let error = match &outcome {
            Err(error) => Some(error.clone()),
            Ok(outcomes) => outcomes
                .get(partition)
                .and_then(|outcome| outcome.clone().err()),
        };
        results.insert((partition.topic.to_string(), partition.partition), error);
    }
    match &top {
        None => terminal.line(&format!(
            "Request succeeded for deleting offsets from group {group}."
        ))?,
        Some(error) => {
            let of_partition = [
                ErrorCode::GroupSubscribedToTopic,
                ErrorCode::TopicAuthorizationFailed,
                ErrorCode::UnknownTopicOrPartition,
            ];
            let said = match of_partition.iter().any(|code| error.is(*code)) {
                true => {
                    "Encountered some partition-level error, see the follow-up details.".to_owned()
                }
                false => error.to_string(),
            };
            print_error(terminal, &said)?;
        }
    }
    let longest = results.keys().map(|(topic, _)| topic.len()).max();
    let width = longest.unwrap_or(0).max(15);
    terminal.print(&format!(
        "\n{:width$} {:10} {:15}",
        "TOPIC", "PARTITION", "STATUS"
    ))?;
    for ((topic, partition), error) in &results {
        let partition = match partition {
            0.. => partition.to_string(),
            _ => "-".to_owned(),
        };
        let status = match error {
            None => "Successful".to_owned(),
            Some(error) => format!("Error: {}: {error}", error.qualified_exception()),
        };
        terminal.print(&format!("\n{topic:width$} {partition:10} {status:15}"))?;
    }
    Ok(terminal.line("")?)
}
