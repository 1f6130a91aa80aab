//! `kafka-topics`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::options::{OptionSpec, Options, exception, flag, terse, usage, value};
use super::{Failure, Outcome, Terminal, log_line};
use crate::cli::tools::pattern::TopicPattern;
use crate::cli::tools::topics::{self, Described, PARTITIONS_MAX};
use crate::client::{Client, ClientError, NewTopic, PartitionDescription};
use crate::config::keys;
use crate::types::{ErrorCode, TopicId};

const CLASS: &str = "org.apache.kafka.tools.TopicCommand";
const ABOUT: &str = "This tool helps to create, delete, describe, or change a topic.";
const CONFIGS_ELSEWHERE: &str =
    " (To alter topic configurations, the kafka-configs tool can be used.)";

const SPECS: &[OptionSpec] = &[
    flag("alter", "Raises the number of partitions of topics."),
    flag(
        "at-min-isr-partitions",
        "With --describe: only partitions with as many in-sync replicas as they must have.",
    ),
    value(
        "bootstrap-server",
        "server to connect to",
        "REQUIRED: The servers to ask, host:port and more of them after commas.",
    ),
    value(
        "command-config",
        "command config property file",
        "A file of client properties.",
    ),
    value(
        "config",
        "name=value",
        "With --create: a configuration of the topic. Can be given many times.",
    ),
    flag("create", "Makes a topic."),
    flag("delete", "Deletes topics."),
    value(
        "delete-config",
        "name",
        "Not supported any more, as in Kafka 4.",
    ),
    flag("describe", "Tells where the partitions of topics are."),
    flag(
        "exclude-internal",
        "Leaves internal topics out of --list and --describe.",
    ),
    flag("help", "Prints this text."),
    flag(
        "if-exists",
        "With --alter, --delete and --describe: a topic that does not exist is no failure.",
    ),
    flag(
        "if-not-exists",
        "With --create: a topic that exists is no failure.",
    ),
    flag("list", "Lists topics."),
    value(
        "partition-size-limit-per-response",
        "maximum number of partitions per response",
        "Partitions in one answer of the broker.",
    ),
    value(
        "partitions",
        "# of partitions",
        "The number of partitions, with --create and --alter.",
    ),
    value(
        "replica-assignment",
        "broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , ...",
        "The replicas of each partition, with --create and --alter.",
    ),
    value(
        "replication-factor",
        "replication factor",
        "The number of replicas, with --create.",
    ),
    value(
        "topic",
        "topic",
        "The topic; a regular expression where it is not to be created.",
    ),
    value("topic-id", "topic-id", "The id of the topic to describe."),
    flag(
        "topics-with-overrides",
        "With --describe: only topics whose configuration is not the default.",
    ),
    flag(
        "unavailable-partitions",
        "With --describe: only partitions without a leader that serves.",
    ),
    flag(
        "under-min-isr-partitions",
        "With --describe: only partitions with fewer in-sync replicas than they must have.",
    ),
    flag(
        "under-replicated-partitions",
        "With --describe: only partitions with replicas that are not in sync.",
    ),
    flag("version", "Prints the version."),
];

const ACTIONS: &[&str] = &["alter", "create", "describe", "list", "delete"];
const REPORTS: &[&str] = &[
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let options = Options::parse(SPECS, &arguments).map_err(terse)?;
    check(&options, &mut terminal)?;
    let bootstrap = options.value("bootstrap-server").map_err(executing)?;
    let file = options.value("command-config").map_err(executing)?;
    let properties = super::properties(file, &[]).map_err(unread)?;
    let mut client = super::client(bootstrap.unwrap_or(""), &properties)
        .await
        .map_err(not_created)?;
    if options.has("create") {
        create(&mut client, &options, &mut terminal).await?;
    } else if options.has("alter") {
        alter(&mut client, &options).await?;
    } else if options.has("list") {
        list(&mut client, &options, &mut terminal).await?;
    } else if options.has("describe") {
        describe(&mut client, &options, &mut terminal).await?;
    } else {
        delete(&mut client, &options).await?;
    }
    Ok(terminal.flush()?)
}

/// Kafka's last word on what went wrong: a line on standard output, the exception in its log.
fn failed(error: ClientError) -> Failure {
    let exception = format!("{}: {error}", error.qualified_exception());
    told(&error.to_string(), &exception)
}

/// A properties file that is not there: its name, and what Java calls that.
fn unread(error: ClientError) -> Failure {
    Failure::Message(format!(
        "{error}\njava.nio.file.NoSuchFileException: {error}"
    ))
}

fn not_created(error: ClientError) -> Failure {
    let what = "Failed to create new KafkaAdminClient";
    let cause = format!("{}: {error}", error.qualified_exception());
    Failure::Message(format!(
        "{what}\norg.apache.kafka.common.KafkaException: {what}\nCaused by: {cause}"
    ))
}

/// What is wrong with an argument, found while the command is carried out.
fn illegal(message: impl Into<String>) -> Failure {
    let message = message.into();
    told(
        &message,
        &format!("java.lang.IllegalArgumentException: {message}"),
    )
}

fn executing(message: String) -> Failure {
    let exception = exception(&message);
    told(&message, &exception)
}

fn told(message: &str, exception: &str) -> Failure {
    Failure::Told {
        out: format!("Error while executing topic command : {message}\n"),
        err: format!("{}\n", log_line("ERROR", exception, CLASS)),
    }
}

fn check(options: &Options, terminal: &mut Terminal) -> Outcome {
    if options.is_empty {
        return Err(usage(SPECS, "Create, delete, describe, or change a topic."));
    }
    options.help_or_version(ABOUT)?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        return Err(options.usage(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
        ));
    }
    if options.has("delete-config") {
        eprintln!(
            "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully removed in future releases."
        );
    }
    if !options.has("bootstrap-server") {
        let what = "--bootstrap-server must be specified";
        return Err(Failure::Message(format!(
            "{what}\njava.lang.IllegalArgumentException: {what}"
        )));
    }
    if options.has("describe") && options.has("if-exists") {
        if !options.has("topic") && !options.has("topic-id") {
            return Err(options.usage("--topic or --topic-id is required to describe a topic"));
        }
        if options.has("topic") && options.has("topic-id") {
            terminal.line("Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID")?;
        }
    }
    if !options.has("list") && !options.has("describe") {
        options.check_required(&["topic"])?;
    }
    if options.has("alter") {
        if options.has("config") {
            return Err(options.usage(format!(
                "Option combination \"[[bootstrap-server], [config]]\" can't be used with option \"[alter]\"{CONFIGS_ELSEWHERE}"
            )));
        }
        options.check_required(&["partitions"])?;
    }
    check_combinations(options)
}

fn check_combinations(options: &Options) -> Outcome {
    let but = |allowed: &[&str]| -> Vec<&str> {
        let others = ACTIONS.iter().filter(|action| !allowed.contains(action));
        others.copied().collect()
    };
    options.check_invalid("config", &but(&["alter", "create"]))?;
    options.check_invalid("partitions", &but(&["alter", "create"]))?;
    options.check_invalid("replication-factor", &but(&["create"]))?;
    options.check_invalid("replica-assignment", &but(&["alter", "create"]))?;
    if options.has("create") {
        options.check_invalid("replica-assignment", &["partitions", "replication-factor"])?;
    }
    for report in REPORTS {
        let mut others = but(&["describe"]);
        others.push("topics-with-overrides");
        options.check_invalid(report, &others)?;
    }
    let mut others = but(&["describe"]);
    others.extend(REPORTS);
    options.check_invalid("topics-with-overrides", &others)?;
    options.check_invalid("if-exists", &but(&["alter", "delete", "describe"]))?;
    options.check_invalid("if-not-exists", &but(&["create"]))?;
    options.check_invalid("exclude-internal", &but(&["list", "describe"]))
}

async fn create(client: &mut Client, options: &Options, terminal: &mut Terminal) -> Outcome {
    let name = options.value("topic").map_err(executing)?.unwrap_or("");
    let topic = NewTopic {
        name: name.to_owned(),
        partitions: options.number("partitions").map_err(executing)?,
        replication_factor: replication_factor(options)?,
        assignment: assignment(options)?,
        configs: configs(options)?,
    };
    if topic.name.contains(['.', '_']) {
        terminal.line("WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid issues it is best to use either, but not both.")?;
        terminal.flush()?;
    }
    if topic.partitions.is_some_and(|count| count < 1) {
        return Err(illegal("The partitions must be greater than 0"));
    }
    match client.create_topic(&topic, false).await {
        Ok(()) => Ok(terminal.line(&format!("Created topic {name}."))?),
        Err(error) if error.is(ErrorCode::TopicAlreadyExists) && options.has("if-not-exists") => {
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

fn replication_factor(options: &Options) -> Result<Option<i16>, Failure> {
    let Some(number) = options
        .number::<i32>("replication-factor")
        .map_err(executing)?
    else {
        return Ok(None);
    };
    let factor = i16::try_from(number).ok().filter(|factor| *factor >= 1);
    match factor {
        Some(factor) => Ok(Some(factor)),
        None => Err(illegal(
            "The replication factor must be between 1 and 32767 inclusive",
        )),
    }
}

/// `1:2,2:3`: the replicas of each partition.
fn assignment(options: &Options) -> Result<Vec<Vec<i32>>, Failure> {
    let text = options.value("replica-assignment").map_err(executing)?;
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut all: Vec<Vec<i32>> = Vec::new();
    for (index, partition) in text.split(',').enumerate() {
        let mut replicas = Vec::new();
        for id in partition.split(':') {
            let id = id.trim();
            let parsed = id.parse::<i32>();
            // Kafka's NumberFormatException is an IllegalArgumentException.
            replicas.push(parsed.map_err(|_| illegal(format!("For input string: \"{id}\"")))?);
        }
        let distinct: BTreeSet<i32> = replicas.iter().copied().collect();
        if distinct.len() != replicas.len() {
            let twice = distinct
                .iter()
                .filter(|id| replicas.iter().filter(|other| other == id).count() > 1);
            let twice: Vec<String> = twice.map(ToString::to_string).collect();
            let message = format!(
                "Partition replica lists may not contain duplicate entries: {}",
                twice.join(",")
            );
            let exception =
                format!("org.apache.kafka.server.common.AdminCommandFailedException: {message}");
            return Err(told(&message, &exception));
        }
        if all
            .first()
            .is_some_and(|first| first.len() != replicas.len())
        {
            let message =
                format!("Partition {index} has different replication factor: {replicas:?}");
            let exception =
                format!("org.apache.kafka.server.common.AdminOperationException: {message}");
            return Err(told(&message, &exception));
        }
        all.push(replicas);
    }
    Ok(all)
}

/// `--config name=value`, checked here as Kafka checks it there: before anybody is asked.
fn configs(options: &Options) -> Result<Vec<(String, String)>, Failure> {
    let mut configs: Vec<(String, String)> = Vec::new();
    for pair in options.values("config") {
        let parts: Vec<&str> = pair.split('=').map(str::trim).collect();
        // Java's split drops empty parts at the end.
        let end = parts
            .iter()
            .rposition(|part| !part.is_empty())
            .map_or(1, |last| last + 1);
        let [name, value] = parts[..end] else {
            return Err(illegal(
                "requirement failed: Invalid topic config: all configs to be added must be in the format \"key=val\".",
            ));
        };
        configs.retain(|(known, _)| known != name);
        configs.push((name.to_owned(), value.to_owned()));
    }
    for (name, value) in &configs {
        let (message, class) = match keys::topic_key(name) {
            None => (
                format!("Unknown topic config name: {name}"),
                "errors.InvalidConfigurationException",
            ),
            Some(key) => match key.parse(value) {
                Ok(_) => continue,
                Err(violation) => (violation.kafka_message(name), "config.ConfigException"),
            },
        };
        let exception = format!("org.apache.kafka.common.{class}: {message}");
        return Err(told(&message, &exception));
    }
    Ok(configs)
}

fn pattern(options: &Options) -> Result<Option<TopicPattern>, Failure> {
    let Some(text) = options.value("topic").map_err(executing)? else {
        return Ok(None);
    };
    let parsed = TopicPattern::parse(text);
    parsed
        .map(Some)
        .map_err(|message| told(&message, &format!("java.lang.RuntimeException: {message}")))
}

async fn list(client: &mut Client, options: &Options, terminal: &mut Terminal) -> Outcome {
    let pattern = pattern(options)?;
    let names = topics::names(client, pattern.as_ref(), options.has("exclude-internal"));
    let names = names.await.map_err(failed)?;
    Ok(terminal.line(&names.join("\n"))?)
}

/// The topics that `--topic` names; none of them is a failure unless `--if-exists` is given.
async fn existing(client: &mut Client, options: &Options) -> Result<Vec<String>, Failure> {
    let pattern = pattern(options)?;
    let names = topics::names(client, pattern.as_ref(), options.has("exclude-internal"));
    let names = names.await.map_err(failed)?;
    let asked = options.value("topic").map_err(executing)?;
    if let Some(asked) = asked.filter(|asked| !asked.is_empty())
        && names.is_empty()
        && !options.has("if-exists")
    {
        return Err(illegal(format!(
            "Topic '{asked}' does not exist as expected"
        )));
    }
    Ok(names)
}

async fn alter(client: &mut Client, options: &Options) -> Outcome {
    let count: i32 = options
        .number("partitions")
        .map_err(executing)?
        .unwrap_or(0);
    let assignment = assignment(options)?;
    let names = existing(client, options).await?;
    if names.is_empty() {
        return Ok(());
    }
    let described = client
        .describe_topics(&names, PARTITIONS_MAX)
        .await
        .map_err(failed)?;
    for topic in described {
        let new = match assignment.is_empty() {
            true => None,
            false => Some(assignment.get(topic.partitions.len()..).unwrap_or(&[])),
        };
        let created = client.create_partitions(&topic.name, count, new).await;
        created.map_err(failed)?;
    }
    Ok(())
}

async fn delete(client: &mut Client, options: &Options) -> Outcome {
    let names = existing(client, options).await?;
    if names.is_empty() {
        return Ok(());
    }
    let outcomes = client.delete_topics(&names).await.map_err(failed)?;
    for (_, outcome) in outcomes {
        outcome.map_err(failed)?;
    }
    Ok(())
}

async fn describe(client: &mut Client, options: &Options, terminal: &mut Terminal) -> Outcome {
    let limit = options
        .number("partition-size-limit-per-response")
        .map_err(executing)?
        .unwrap_or(PARTITIONS_MAX);
    let found = match topic_id(options)? {
        Some(id) => of_id(client, options, id).await?,
        None => {
            let names = existing(client, options).await?;
            match names.is_empty() {
                true => Vec::new(),
                false => client
                    .describe_topics(&names, limit)
                    .await
                    .map_err(failed)?,
            }
        }
    };
    let all = topics::describe(client, found).await.map_err(failed)?;
    let reports = REPORTS.iter().any(|report| options.has(report));
    for described in &all.described {
        let with_overrides = options.has("topics-with-overrides");
        if !reports && (!with_overrides || described.overrides().next().is_some()) {
            terminal.line(&topic_line(described))?;
        }
        if with_overrides {
            continue;
        }
        for partition in &described.topic.partitions {
            let unavailable = partition
                .leader
                .is_none_or(|leader| !all.live.contains(&leader));
            let fits = !reports
                || options.has("under-replicated-partitions")
                    && described.is_under_replicated(partition)
                || options.has("unavailable-partitions") && unavailable
                || options.has("under-min-isr-partitions") && described.is_under_min_isr(partition)
                || options.has("at-min-isr-partitions") && described.is_at_min_isr(partition);
            if fits {
                terminal.line(&partition_line(described, partition))?;
            }
        }
    }
    Ok(())
}

fn topic_id(options: &Options) -> Result<Option<TopicId>, Failure> {
    let Some(text) = options.value("topic-id").map_err(executing)? else {
        return Ok(None);
    };
    let Some(id) = TopicId::parse(text) else {
        return Err(illegal(format!("Input string `{text}` is not a topic id")));
    };
    Ok(Some(id).filter(|id| *id != TopicId::ZERO))
}

async fn of_id(
    client: &mut Client,
    options: &Options,
    id: TopicId,
) -> Result<Vec<crate::client::TopicDescription>, Failure> {
    let listings = client.list_topics().await.map_err(failed)?;
    let exclude_internal = options.has("exclude-internal");
    let fits = |listed: &crate::client::TopicListing| {
        listed.id == id && !(exclude_internal && listed.internal)
    };
    if listings.iter().any(fits) {
        let described = client.describe_topic_id(id).await.map_err(failed)?;
        return Ok(vec![described]);
    }
    match options.has("if-exists") {
        true => Ok(Vec::new()),
        false => Err(illegal(format!(
            "TopicId '{id}' does not exist as expected"
        ))),
    }
}

fn topic_line(described: &Described) -> String {
    let topic = &described.topic;
    let configs: Vec<String> = described
        .overrides()
        .map(|entry| {
            format!(
                "{}={}",
                entry.name,
                entry.value.as_deref().unwrap_or("null")
            )
        })
        .collect();
    let mut line = format!("Topic: {}", topic.name);
    if topic.id != TopicId::ZERO {
        let _ = write!(line, "\tTopicId: {}", topic.id);
    }
    let factor = topic.partitions.first();
    let factor = factor.map_or(0, |first| described.replication_factor(first));
    let _ = write!(
        line,
        "\tPartitionCount: {}\tReplicationFactor: {factor}\tConfigs: {}",
        topic.partitions.len(),
        configs.join(",")
    );
    line
}

fn partition_line(described: &Described, partition: &PartitionDescription) -> String {
    let leader = partition
        .leader
        .map_or("none".to_owned(), |id| id.to_string());
    let mut line = format!(
        "\tTopic: {}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}",
        described.topic.name,
        partition.partition,
        joined(&partition.replicas),
        joined(&partition.isr)
    );
    if let Some(ongoing) = described.reassignments.get(&partition.partition) {
        let _ = write!(
            line,
            "\tAdding Replicas: {}\tRemoving Replicas: {}",
            joined(&ongoing.adding),
            joined(&ongoing.removing)
        );
    }
    let or_none = |ids: &Option<Vec<i32>>| ids.as_deref().map_or("N/A".to_owned(), joined);
    let _ = write!(
        line,
        "\tElr: {}\tLastKnownElr: {}",
        or_none(&partition.elr),
        or_none(&partition.last_known_elr)
    );
    line
}

fn joined(ids: &[i32]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(",")
}
