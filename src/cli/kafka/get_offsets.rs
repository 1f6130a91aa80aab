//! `kafka-get-offsets`.

use std::collections::BTreeMap;

use super::options::{OptionSpec, Options, flag, usage, value};
use super::{Failure, Outcome, Terminal};
use crate::cli::tools::offsets::{self, PartitionRule};
use crate::client::{ClientError, OffsetSpec};

const ABOUT: &str = "An interactive shell for getting topic-partition offsets.";

const SPECS: &[OptionSpec] = &[
    value(
        "bootstrap-server",
        "HOST1:PORT1,...,HOST3:PORT3",
        "REQUIRED. The servers to ask.",
    ),
    value(
        "command-config",
        "config file",
        "A file of client properties.",
    ),
    flag("exclude-internal-topics", "Leaves internal topics out."),
    flag("help", "Prints this text."),
    value(
        "partitions",
        "partition ids",
        "Numbers of partitions, between commas; all without it.",
    ),
    value(
        "time",
        "<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload",
        "Which offset.",
    ),
    value(
        "topic",
        "topic",
        "A regular expression; all topics without it.",
    ),
    value(
        "topic-partitions",
        "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
        "Patterns of topics and ranges of partitions, between commas.",
    ),
    flag("version", "Prints the version."),
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    if arguments.is_empty() {
        return Err(usage(SPECS, ABOUT));
    }
    let options = Options::parse(SPECS, &arguments).map_err(terse)?;
    options.help_or_version(ABOUT)?;
    options.check_required(&["bootstrap-server"])?;
    let servers = options
        .value("bootstrap-server")
        .map_err(terse)?
        .unwrap_or("");
    if !servers.split(',').all(|server| server.contains(':')) {
        return Err(options.usage("Please provide valid host:port like host1:9091,host2:9092"));
    }
    let spec = spec_of(options.value("time").map_err(terse)?.unwrap_or("latest"))?;
    let rules = rules(&options)?;
    let file = options.value("command-config").map_err(terse)?;
    let properties = super::properties(file, &[]).map_err(failed)?;
    let mut client = super::client(servers, &properties).await.map_err(failed)?;
    let exclude_internal = options.has("exclude-internal-topics");
    let partitions = offsets::partitions(&mut client, &rules, exclude_internal);
    let partitions = partitions.await.map_err(failed)?;
    if partitions.is_empty() {
        return Err(terse(
            "Could not match any topic-partitions with the specified filters".to_owned(),
        ));
    }
    let wanted = partitions.into_iter().map(|partition| (partition, spec));
    let listed = client
        .list_offsets(&wanted.collect(), false)
        .await
        .map_err(failed)?;
    // Kafka sorts them as text.
    let mut lines = BTreeMap::new();
    for (partition, outcome) in listed {
        match outcome {
            Ok(found) if found.offset >= 0 => {
                let line = format!(
                    "{}:{}:{}",
                    partition.topic, partition.partition, found.offset
                );
                lines.insert(partition.to_string(), line);
            }
            Ok(_) => {}
            Err(error) => eprintln!(
                "Skip getting offsets for topic-partition {partition} due to error: {}: {error}",
                error.qualified_exception()
            ),
        }
    }
    for line in lines.values() {
        terminal.line(line)?;
    }
    Ok(terminal.flush()?)
}

fn rules(options: &Options) -> Result<Vec<PartitionRule>, Failure> {
    let patterns = options.value("topic-partitions").map_err(terse)?;
    let topic = options.value("topic").map_err(terse)?;
    let partitions = options.value("partitions").map_err(terse)?;
    if let Some(patterns) = patterns {
        if topic.is_some() || partitions.is_some() {
            return Err(terse(
                "--topic-partitions cannot be used with --topic or --partitions".to_owned(),
            ));
        }
        let rules = patterns.split(',').map(PartitionRule::parse);
        return rules.collect::<Result<_, _>>().map_err(terse);
    }
    let mut numbers = Vec::new();
    for number in partitions
        .unwrap_or("")
        .split(',')
        .filter(|n| !n.is_empty())
    {
        match number.parse() {
            Ok(number) => numbers.push(number),
            Err(_) => {
                return Err(terse(format!(
                    "--partitions expects a comma separated list of numeric partition ids, but received: {}",
                    partitions.unwrap_or("")
                )));
            }
        }
    }
    let rule = PartitionRule::of_topic(topic.unwrap_or(".*"), numbers).map_err(terse)?;
    Ok(vec![rule])
}

fn spec_of(text: &str) -> Result<OffsetSpec, Failure> {
    let spec = match text {
        "latest" | "-1" => OffsetSpec::Latest,
        "earliest" | "-2" => OffsetSpec::Earliest,
        "max-timestamp" | "-3" => OffsetSpec::MaxTimestamp,
        "earliest-local" | "-4" => OffsetSpec::EarliestLocal,
        "latest-tiered" | "-5" => OffsetSpec::LatestTiered,
        "earliest-pending-upload" | "-6" => OffsetSpec::EarliestPendingUpload,
        other => match other.parse() {
            Ok(timestamp) => OffsetSpec::At(timestamp),
            Err(_) => {
                return Err(terse(format!(
                    "Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
                )));
            }
        },
    };
    Ok(spec)
}

fn terse(message: String) -> Failure {
    Failure::Message(format!("Error occurred: {message}"))
}

fn failed(error: ClientError) -> Failure {
    Failure::Message(format!(
        "Error occurred: {error}\n{}: {error}",
        error.qualified_exception()
    ))
}
