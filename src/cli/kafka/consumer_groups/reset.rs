//! `--reset-offsets`.

use std::collections::BTreeMap;

use super::super::log_line;
use super::{Done, Options, Problem, RESETS, Terminal, bracketed, partitions_named, print_error};
use crate::cli::tools::groups::{self, ResetError, ResetTo};
use crate::cli::tools::time::{date_time, duration_ms, now_ms};
use crate::client::Client;
use crate::types::{Offset, TopicPartition};

pub(super) const NO_ACTION: &str = "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting this command and want to keep the current default behavior without prompting.";
const RESETTER: &str = "org.apache.kafka.tools.GroupOffsetsResetter";

type Plans = BTreeMap<String, BTreeMap<TopicPartition, Offset>>;

pub(super) async fn reset(
    client: &mut Client,
    options: &Options,
    names: Vec<String>,
    terminal: &mut Terminal,
) -> Done {
    let mut plans = Plans::new();
    for name in names {
        let described = client.describe_group(&name).await?;
        if !matches!(described.state.as_str(), "Empty" | "Dead") {
            let said = format!(
                "Assignments can only be reset if the group '{name}' is inactive, but the current state is {}.",
                described.state
            );
            print_error(terminal, &said)?;
            plans.insert(name, BTreeMap::new());
            continue;
        }
        let offsets = of_group(client, options, &name, terminal).await?;
        if options.has("execute") && !options.has("dry-run") {
            client.commit_offsets(&name, None, &offsets).await?;
        }
        plans.insert(name, offsets);
    }
    match options.has("export") {
        true => export(options, &plans, terminal),
        false => print(&plans, terminal),
    }
}

async fn of_group(
    client: &mut Client,
    options: &Options,
    group: &str,
    terminal: &mut Terminal,
) -> Result<BTreeMap<TopicPartition, Offset>, Problem> {
    let partitions = partitions(client, options, group).await?;
    let to = match target(options)? {
        Target::To(to) => to,
        Target::File(plans) => match plans.get(group) {
            Some(plan) => ResetTo::Plan(plan.clone()),
            None => {
                print_error(terminal, &format!("No reset plan for group {group} found"))?;
                return Ok(BTreeMap::new());
            }
        },
    };
    let plan = groups::plan_reset(client, group, &partitions, &to).await;
    let plan = plan.map_err(|error| match error {
        ResetError::Client(error) => Problem::Client(error),
        ResetError::NothingCommitted(partition) => Problem::Usage(format!(
            "Cannot shift offset for partition {partition} since there is no current committed offset"
        )),
        ResetError::NoOffset(partition) => Problem::Usage(format!(
            "The partitions \"{partition}\" have no leader."
        )),
    })?;
    for (partition, asked, taken) in &plan.clamped {
        let (side, end) = match asked > taken {
            true => ("higher", "latest"),
            false => ("lower", "earliest"),
        };
        let said = format!(
            "New offset ({asked}) is {side} than {end} offset for topic partition {partition}. Value will be set to {taken}."
        );
        eprintln!("{}", log_line("WARN", &said, RESETTER));
    }
    for partition in &plan.nothing_later {
        terminal.line(&format!(
            "\nWarn: Partition {} from topic {} is empty. Falling back to latest known offset.",
            partition.partition, partition.topic
        ))?;
    }
    Ok(plan.offsets)
}

async fn partitions(
    client: &mut Client,
    options: &Options,
    group: &str,
) -> Result<Vec<TopicPartition>, Problem> {
    if options.has("all-topics") {
        return Ok(client.committed_offsets(group).await?.into_keys().collect());
    }
    if options.has("topic") {
        let mut partitions = Vec::new();
        let mut whole = Vec::new();
        for topic in options.values("topic") {
            match topic.contains(':') {
                true => partitions.extend(partitions_named(topic)?),
                false => whole.push(topic.to_owned()),
            }
        }
        partitions.extend(groups::partitions_of(client, &whole).await?);
        partitions.sort_unstable();
        partitions.dedup();
        return Ok(partitions);
    }
    if options.has("from-file") {
        return Ok(Vec::new());
    }
    Err(Problem::Usage(
        "One of the reset scopes should be defined: --all-topics, --topic.".to_owned(),
    ))
}

enum Target {
    To(ResetTo),
    File(Plans),
}

fn target(options: &Options) -> Result<Target, Problem> {
    let usage = Problem::Usage;
    let to = if let Some(offset) = options.number("to-offset").map_err(usage)? {
        ResetTo::Offset(offset)
    } else if options.has("to-earliest") {
        ResetTo::Earliest
    } else if options.has("to-latest") {
        ResetTo::Latest
    } else if let Some(by) = options.number("shift-by").map_err(usage)? {
        ResetTo::ShiftBy(by)
    } else if let Some(text) = options.value("to-datetime").map_err(usage)? {
        let time = date_time(text)
            .ok_or_else(|| Problem::Usage(format!("Unparseable date: \"{text}\"")))?;
        ResetTo::Time(time)
    } else if let Some(text) = options.value("by-duration").map_err(usage)? {
        let duration = duration_ms(text)
            .ok_or_else(|| Problem::Usage("Text cannot be parsed to a Duration".to_owned()))?;
        ResetTo::Time(now_ms() - duration)
    } else if let Some(path) = options.value("from-file").map_err(usage)? {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Problem::Usage(format!("{path}: {error}")))?;
        return Ok(Target::File(plans_of(&text, &options.values("group"))?));
    } else if options.has("to-current") {
        ResetTo::Current
    } else {
        let all: Vec<String> = RESETS.iter().map(|name| bracketed(name)).collect();
        return Err(Problem::Usage(format!(
            "Option '{}' requires one of the following scenarios: [{}]",
            bracketed("reset-offsets"),
            all.join(", ")
        )));
    };
    Ok(Target::To(to))
}

/// `topic,partition,offset` for one group, `group,topic,partition,offset` for several.
fn plans_of(text: &str, groups: &[&str]) -> Result<Plans, Problem> {
    let mut plans = Plans::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let fields: Vec<String> = line
            .split(',')
            .map(|field| field.trim().trim_matches('"').to_owned())
            .collect();
        let (group, rest) = match (&fields[..], groups) {
            ([_, _, _], [group]) => ((*group).to_owned(), &fields[..]),
            ([group, _, _, _], _) => (group.clone(), &fields[1..]),
            _ => {
                return Err(Problem::Usage(format!(
                    "No reset plan in the line '{line}'"
                )));
            }
        };
        let [topic, partition, offset] = rest else {
            continue;
        };
        let (Ok(partition), Ok(offset)) = (partition.parse(), offset.parse()) else {
            return Err(Problem::Usage(format!(
                "No reset plan in the line '{line}'"
            )));
        };
        let plan = plans.entry(group).or_default();
        plan.insert(TopicPartition::new(topic.as_str(), partition), offset);
    }
    Ok(plans)
}

fn export(options: &Options, plans: &Plans, terminal: &mut Terminal) -> Done {
    let single = options.values("group").len() == 1;
    for (group, offsets) in plans {
        for (partition, offset) in offsets {
            let line = format!(
                "{},{},{offset}",
                quoted(&partition.topic),
                partition.partition
            );
            match single {
                true => terminal.line(&line)?,
                false => terminal.line(&format!("{},{line}", quoted(group)))?,
            }
        }
    }
    Ok(terminal.line("")?)
}

/// As Jackson writes CSV: quoted if there is something in it that might mean something.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    match text.chars().all(plain) && text.len() <= 24 {
        true => text.to_owned(),
        false => format!("\"{}\"", text.replace('"', "\"\"")),
    }
}

fn print(plans: &Plans, terminal: &mut Terminal) -> Done {
    let groups = plans.keys().map(String::len).max().unwrap_or(0).max(15);
    let topics = plans.values().flat_map(BTreeMap::keys);
    let topics = topics.map(|partition| partition.topic.len()).max();
    let topics = topics.unwrap_or(0).max(15);
    let row = |group: &str, topic: &str, partition: &str, offset: &str| {
        format!("\n{group:groups$} {topic:topics$} {partition:10} {offset}")
    };
    if !plans.is_empty() {
        terminal.print(&row("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"))?;
    }
    for (group, offsets) in plans {
        for (partition, offset) in offsets {
            let (number, offset) = (partition.partition.to_string(), offset.to_string());
            terminal.print(&row(group, &partition.topic, &number, &offset))?;
        }
    }
    Ok(terminal.line("")?)
}
