//! Groups: who is in them, how far they are, and setting them back.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{
    Client, ClientError, CommittedOffset, GroupDescription, GroupListing, GroupMemberDescription,
    OffsetSpec,
};
use crate::types::{ErrorCode, Offset, TimestampMs, TopicPartition};

/// A partition that a group has an offset for, or a member is to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionLag {
    pub(crate) partition: TopicPartition,
    pub(crate) committed: Option<CommittedOffset>,
    pub(crate) log_end: Option<Offset>,
    /// `None`: nobody reads it.
    pub(crate) member: Option<GroupMemberDescription>,
}

impl PartitionLag {
    pub(crate) fn lag(&self) -> Option<Offset> {
        Some(self.log_end? - self.committed.as_ref()?.offset)
    }
}

/// Where to go back (or on) to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResetTo {
    Earliest,
    Latest,
    Current,
    Offset(Offset),
    ShiftBy(Offset),
    Time(TimestampMs),
    /// Offsets of this group, from a file.
    Plan(BTreeMap<TopicPartition, Offset>),
}

/// New offsets, and what should be said about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResetPlan {
    pub(crate) offsets: BTreeMap<TopicPartition, Offset>,
    /// Offsets that lie outside of the log: the one that was asked for, the one that is taken.
    pub(crate) clamped: Vec<(TopicPartition, Offset, Offset)>,
    /// Nothing was written at or after the time: the end is taken.
    pub(crate) nothing_later: Vec<TopicPartition>,
}

/// Why a reset is not possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResetError {
    Client(ClientError),
    /// There is no committed offset to shift.
    NothingCommitted(TopicPartition),
    /// A partition has no leader that tells.
    NoOffset(TopicPartition),
}

impl From<ClientError> for ResetError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Groups of consumers, as Kafka's tool counts them: those of the consumer protocol and classic ones whose members
/// are consumers or that have none.
pub(crate) async fn consumer_groups(
    client: &mut Client,
    states: &[String],
    kinds: &[String],
) -> Result<Vec<GroupListing>, ClientError> {
    let groups = client.list_groups(states, kinds).await?;
    let is_consumer = |group: &GroupListing| {
        matches!(group.protocol_type.as_str(), "consumer" | "")
            && !matches!(
                group.kind.to_ascii_lowercase().as_str(),
                "share" | "streams"
            )
    };
    Ok(groups.into_iter().filter(is_consumer).collect())
}

/// What each member reads and how far the group is, then what nobody reads.
pub(crate) async fn lags(
    client: &mut Client,
    group: &GroupDescription,
) -> Result<Vec<PartitionLag>, ClientError> {
    let committed = client.committed_offsets(&group.group).await?;
    let mut members: Vec<&GroupMemberDescription> = group.members.iter().collect();
    members.retain(|member| !member.assignment.is_empty());
    members.sort_by_key(|member| std::cmp::Reverse(member.assignment.len()));
    let mut rows: Vec<(TopicPartition, Option<&GroupMemberDescription>)> = Vec::new();
    for member in members {
        let mut partitions = member.assignment.clone();
        partitions.sort_unstable();
        rows.extend(
            partitions
                .into_iter()
                .map(|partition| (partition, Some(member))),
        );
    }
    let assigned: BTreeSet<TopicPartition> = rows.iter().map(|row| row.0.clone()).collect();
    let unassigned = committed
        .keys()
        .filter(|partition| !assigned.contains(*partition));
    rows.extend(unassigned.map(|partition| (partition.clone(), None)));
    let wanted = rows
        .iter()
        .map(|(partition, _)| (partition.clone(), OffsetSpec::Latest));
    let ends = client.list_offsets(&wanted.collect(), false).await?;
    let lags = rows.into_iter().map(|(partition, member)| PartitionLag {
        committed: committed.get(&partition).cloned(),
        log_end: match ends.get(&partition) {
            Some(Ok(listed)) => Some(listed.offset),
            _ => None,
        },
        member: member.cloned(),
        partition,
    });
    Ok(lags.collect())
}

/// All partitions of topics; an unknown topic fails.
pub(crate) async fn partitions_of(
    client: &mut Client,
    topics: &[String],
) -> Result<Vec<TopicPartition>, ClientError> {
    let mut partitions = Vec::new();
    for (topic, located) in client.locate(topics, false).await? {
        let all = located?.partitions.into_iter();
        partitions.extend(all.map(|p| TopicPartition::new(topic.as_str(), p.partition)));
    }
    Ok(partitions)
}

/// Where these partitions would go.
pub(crate) async fn plan_reset(
    client: &mut Client,
    group: &str,
    partitions: &[TopicPartition],
    to: &ResetTo,
) -> Result<ResetPlan, ResetError> {
    let all = |spec| {
        partitions
            .iter()
            .map(move |partition| (partition.clone(), spec))
    };
    match to {
        ResetTo::Earliest => found(client, all(OffsetSpec::Earliest).collect()).await,
        ResetTo::Latest => found(client, all(OffsetSpec::Latest).collect()).await,
        ResetTo::Offset(offset) => {
            let asked = partitions
                .iter()
                .map(|partition| (partition.clone(), *offset));
            clamped(client, asked.collect()).await
        }
        ResetTo::Plan(offsets) => clamped(client, offsets.clone()).await,
        ResetTo::ShiftBy(by) => {
            let committed = client.committed_offsets(group).await?;
            let mut asked = BTreeMap::new();
            for partition in partitions {
                let current = committed.get(partition);
                let current =
                    current.ok_or_else(|| ResetError::NothingCommitted(partition.clone()))?;
                asked.insert(partition.clone(), current.offset.saturating_add(*by));
            }
            clamped(client, asked).await
        }
        ResetTo::Current => {
            let committed = client.committed_offsets(group).await?;
            let (with, without): (Vec<_>, Vec<_>) = partitions
                .iter()
                .cloned()
                .partition(|p| committed.contains_key(p));
            let ends = without
                .into_iter()
                .map(|partition| (partition, OffsetSpec::Latest));
            let mut plan = found(client, ends.collect()).await?;
            for partition in with {
                if let Some(current) = committed.get(&partition) {
                    plan.offsets.insert(partition, current.offset);
                }
            }
            Ok(plan)
        }
        ResetTo::Time(time) => {
            let listed = client
                .list_offsets(&all(OffsetSpec::At(*time)).collect(), false)
                .await?;
            let mut plan = ResetPlan::default();
            let mut rest = BTreeMap::new();
            for (partition, outcome) in listed {
                let listed = outcome?;
                if listed.offset >= 0 {
                    plan.offsets.insert(partition, listed.offset);
                } else {
                    plan.nothing_later.push(partition.clone());
                    rest.insert(partition, OffsetSpec::Latest);
                }
            }
            plan.offsets.extend(found(client, rest).await?.offsets);
            Ok(plan)
        }
    }
}

async fn found(
    client: &mut Client,
    wanted: BTreeMap<TopicPartition, OffsetSpec>,
) -> Result<ResetPlan, ResetError> {
    let mut plan = ResetPlan::default();
    for (partition, outcome) in client.list_offsets(&wanted, false).await? {
        match outcome {
            Ok(listed) => plan.offsets.insert(partition, listed.offset),
            Err(error) if error.is(ErrorCode::LeaderNotAvailable) => {
                return Err(ResetError::NoOffset(partition));
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(plan)
}

/// Offsets within their logs.
async fn clamped(
    client: &mut Client,
    asked: BTreeMap<TopicPartition, Offset>,
) -> Result<ResetPlan, ResetError> {
    let of = |spec| asked.keys().map(move |partition| (partition.clone(), spec));
    let starts = found(client, of(OffsetSpec::Earliest).collect()).await?;
    let ends = found(client, of(OffsetSpec::Latest).collect()).await?;
    let mut plan = ResetPlan::default();
    for (partition, offset) in asked {
        let start = starts.offsets.get(&partition).copied().unwrap_or(offset);
        let end = ends.offsets.get(&partition).copied().unwrap_or(offset);
        let taken = offset.min(end).max(start);
        if taken != offset {
            plan.clamped.push((partition.clone(), offset, taken));
        }
        plan.offsets.insert(partition, taken);
    }
    Ok(plan)
}
