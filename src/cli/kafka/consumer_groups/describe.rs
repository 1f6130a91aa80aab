//! `--describe`, in Kafka's columns.

use std::collections::BTreeMap;

use super::{Done, Options, Problem, Terminal, print_error};
use crate::cli::tools::groups::{self, PartitionLag};
use crate::client::{Client, ClientError, GroupDescription, GroupMemberDescription};
use crate::types::{ErrorCode, TopicPartition};

const NONE: &str = "-";

pub(super) async fn describe(
    client: &mut Client,
    options: &Options,
    mut names: Vec<String>,
    terminal: &mut Terminal,
) -> Done {
    names.sort_unstable();
    names.dedup();
    let mut described = Vec::new();
    for name in &names {
        let group = client.describe_group(name).await?;
        if let Some(missing) = &group.missing {
            return Err(Problem::Client(ClientError::Api {
                code: ErrorCode::GroupIdNotFound.code(),
                message: Some(missing.clone()),
            }));
        }
        described.push(group);
    }
    let verbose = options.has("verbose");
    for group in described {
        if options.has("members") {
            members(&group, verbose, terminal)?;
        } else if options.has("state") {
            state(&group, verbose, terminal)?;
        } else {
            let lags = groups::lags(client, &group).await?;
            offsets(&group, &lags, verbose, terminal)?;
        }
    }
    Ok(())
}

/// Says what there is to say of the group's state; true if rows should follow.
fn should_print(
    group: &GroupDescription,
    rows: usize,
    terminal: &mut Terminal,
) -> Result<bool, Problem> {
    let name = &group.group;
    match group.state.as_str() {
        "Dead" => {
            print_error(
                terminal,
                &format!("Consumer group '{name}' does not exist."),
            )?;
            return Ok(false);
        }
        "Empty" => eprintln!("\nConsumer group '{name}' has no active members."),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            eprintln!("\nWarning: Consumer group '{name}' is rebalancing.");
        }
        _ => {}
    }
    Ok(rows > 0)
}

fn widest<'a>(least: usize, texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(str::len).max().unwrap_or(0).max(least)
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn offsets(
    group: &GroupDescription,
    lags: &[PartitionLag],
    verbose: bool,
    terminal: &mut Terminal,
) -> Done {
    if !should_print(group, lags.len(), terminal)? {
        return Ok(());
    }
    let members = || lags.iter().filter_map(|lag| lag.member.as_ref());
    let group_width = group.group.len().max(15);
    let topic_width = widest(15, lags.iter().map(|lag| &*lag.partition.topic));
    let member_width = widest(15, members().map(|member| member.member_id.as_str()));
    let host_width = widest(15, members().map(|member| member.host.as_str()));
    let mut row = |columns: [&str; 10]| {
        let [
            name,
            topic,
            partition,
            epoch,
            current,
            end,
            lag,
            member,
            host,
            client_id,
        ] = columns;
        let epoch = match verbose {
            true => format!("{epoch:15} "),
            false => String::new(),
        };
        terminal.print(&format!(
            "\n{name:group_width$} {topic:topic_width$} {partition:10} {epoch}{current:15} {end:15} {lag:15} {member:member_width$} {host:host_width$} {client_id}"
        ))
    };
    row([
        "GROUP",
        "TOPIC",
        "PARTITION",
        "LEADER-EPOCH",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ])?;
    for lag in lags {
        let committed = lag.committed.as_ref();
        let epoch = committed.map(|committed| committed.leader_epoch);
        let member = lag.member.as_ref();
        row([
            &group.group,
            &lag.partition.topic,
            &lag.partition.partition.to_string(),
            &or_none(epoch.filter(|epoch| *epoch >= 0)),
            &or_none(committed.map(|committed| committed.offset)),
            &or_none(lag.log_end),
            &or_none(lag.lag()),
            member.map_or(NONE, |member| &member.member_id),
            member.map_or(NONE, |member| &member.host),
            member.map_or(NONE, |member| &member.client_id),
        ])?;
    }
    Ok(terminal.line("")?)
}

fn members(group: &GroupDescription, verbose: bool, terminal: &mut Terminal) -> Done {
    let members = match should_print(group, group.members.len(), terminal)? {
        true => group.members.as_slice(),
        false => &[],
    };
    let widths = MemberWidths::of(group, members);
    let heading = [
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ];
    terminal.print(&format!("\n{}", widths.row(heading)))?;
    if verbose {
        terminal.print(&widths.more([
            "CURRENT-EPOCH",
            "CURRENT-ASSIGNMENT",
            "TARGET-EPOCH",
            "TARGET-ASSIGNMENT",
        ]))?;
    }
    terminal.line("")?;
    for member in members {
        terminal.print(&widths.row([
            &group.group,
            &member.member_id,
            member.instance_id.as_deref().unwrap_or(""),
            &member.host,
            &member.client_id,
            &member.assignment.len().to_string(),
        ]))?;
        if verbose {
            let current = assignment(member);
            let (epoch, target_epoch, target) = match member.epoch {
                Some(epoch) => (
                    epoch.to_string(),
                    or_none(group.target_epoch),
                    current.clone(),
                ),
                None => (NONE.to_owned(), NONE.to_owned(), NONE.to_owned()),
            };
            terminal.print(&widths.more([&epoch, &current, &target_epoch, &target]))?;
        }
        terminal.line("")?;
    }
    Ok(())
}

struct MemberWidths {
    group: usize,
    member: usize,
    instance: Option<usize>,
    host: usize,
    client_id: usize,
    assignment: usize,
}

impl MemberWidths {
    fn of(group: &GroupDescription, members: &[GroupMemberDescription]) -> Self {
        let instances = || {
            members
                .iter()
                .filter_map(|member| member.instance_id.as_deref())
        };
        let assignments: Vec<String> = members.iter().map(assignment).collect();
        Self {
            group: match members.is_empty() {
                true => 15,
                false => group.group.len().max(15),
            },
            member: widest(15, members.iter().map(|member| member.member_id.as_str())),
            instance: instances().next().map(|_| widest(17, instances())),
            host: widest(15, members.iter().map(|member| member.host.as_str())),
            client_id: widest(15, members.iter().map(|member| member.client_id.as_str())),
            assignment: widest(20, assignments.iter().map(String::as_str)),
        }
    }

    fn row(&self, columns: [&str; 6]) -> String {
        let [group, member, instance, host, client_id, partitions] = columns;
        let instance = match self.instance {
            Some(width) => format!("{instance:width$} "),
            None => String::new(),
        };
        let Self {
            group: group_width,
            member: member_width,
            host: host_width,
            client_id: client_width,
            ..
        } = *self;
        format!(
            "{group:group_width$} {member:member_width$} {instance}{host:host_width$} {client_id:client_width$} {partitions:15} "
        )
    }

    fn more(&self, columns: [&str; 4]) -> String {
        let [epoch, current, target_epoch, target] = columns;
        let width = self.assignment;
        format!("{epoch:15} {current:width$} {target_epoch:15} {target:20}")
    }
}

/// `topic:0,1;other:2`.
fn assignment(member: &GroupMemberDescription) -> String {
    if member.assignment.is_empty() {
        return NONE.to_owned();
    }
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for TopicPartition { topic, partition } in &member.assignment {
        topics.entry(topic).or_default().push(*partition);
    }
    let topics = topics.into_iter().map(|(topic, mut partitions)| {
        partitions.sort_unstable();
        let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
        format!("{topic}:{}", partitions.join(","))
    });
    topics.collect::<Vec<_>>().join(";")
}

fn state(group: &GroupDescription, verbose: bool, terminal: &mut Terminal) -> Done {
    if !should_print(group, 1, terminal)? {
        return Ok(());
    }
    let at = &group.coordinator;
    let coordinator = format!("{}:{}  ({})", at.host, at.port, at.id);
    let group_width = group.group.len().max(15);
    let coordinator_width = coordinator.len().max(25);
    let row = |columns: [&str; 7]| {
        let [name, coordinator, strategy, state, epoch, target, members] = columns;
        let epochs = match verbose {
            true => format!("{epoch:15} {target:25} "),
            false => String::new(),
        };
        format!(
            "\n{name:group_width$} {coordinator:coordinator_width$} {strategy:20} {state:20} {epochs}{members}"
        )
    };
    terminal.print(&row([
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "GROUP-EPOCH",
        "TARGET-ASSIGNMENT-EPOCH",
        "#MEMBERS",
    ]))?;
    let strategy = match group.assignor.as_str() {
        "" => NONE,
        assignor => assignor,
    };
    terminal.print(&row([
        &group.group,
        &coordinator,
        strategy,
        &group.state,
        &or_none(group.epoch),
        &or_none(group.target_epoch),
        &group.members.len().to_string(),
    ]))?;
    Ok(terminal.line("")?)
}
