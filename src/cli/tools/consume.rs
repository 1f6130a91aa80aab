//! Reading records: partitions of one's own choice, all of some topics, or what a group gives.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::pattern::TopicPattern;
use crate::client::{
    Client, ClientError, FetchedRecord, GroupMember, GroupMemberConfig, GroupTurn, OffsetSpec,
};
use crate::time::{Clock, SystemClock};
use crate::types::{ErrorCode, Offset, TopicPartition};

/// Longest wait at a broker.
const FETCH_WAIT: Duration = Duration::from_millis(500);
/// Between two looks at what is not there yet.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(300);

/// Which topics.
#[derive(Debug, Clone)]
pub(crate) enum Subscription {
    Topic(String),
    Pattern(TopicPattern),
}

/// Where to begin in a partition for which nothing else is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Earliest,
    Latest,
    Offset(Offset),
    /// The first record at or after a time.
    At(i64),
}

/// What is to be read.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) subscription: Subscription,
    /// Only this one.
    pub(crate) partition: Option<i32>,
    pub(crate) start: Start,
    pub(crate) group: Option<String>,
    pub(crate) instance_id: Option<String>,
    pub(crate) session_timeout: Duration,
    /// `None`: never.
    pub(crate) commit_interval: Option<Duration>,
    pub(crate) read_committed: bool,
    /// Makes the topic, if the broker allows that.
    pub(crate) create: bool,
}

/// A record and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) partition: TopicPartition,
    pub(crate) record: FetchedRecord,
}

/// Somebody who reads.
#[derive(Debug)]
pub(crate) struct Consumer {
    client: Client,
    wanted: Wanted,
    member: Option<GroupMember>,
    joined: bool,
    /// The next offset to fetch.
    positions: BTreeMap<TopicPartition, Offset>,
    leaders: BTreeMap<TopicPartition, i32>,
    /// Behind the last record that was taken.
    consumed: BTreeMap<TopicPartition, Offset>,
    committed: BTreeMap<TopicPartition, Offset>,
    look_at: Instant,
    commit_at: Instant,
}

impl Consumer {
    pub(crate) fn new(client: Client, wanted: Wanted) -> Self {
        let member = wanted.group.clone().map(|group| {
            GroupMember::new(GroupMemberConfig {
                group,
                instance_id: wanted.instance_id.clone(),
                session_timeout: wanted.session_timeout,
                rebalance_timeout: REBALANCE_TIMEOUT,
                heartbeat_interval: HEARTBEAT_INTERVAL.min(wanted.session_timeout / 3),
            })
        });
        let now = SystemClock.now();
        Self {
            commit_at: now + wanted.commit_interval.unwrap_or_default(),
            client,
            wanted,
            member,
            joined: false,
            positions: BTreeMap::new(),
            leaders: BTreeMap::new(),
            consumed: BTreeMap::new(),
            committed: BTreeMap::new(),
            look_at: now,
        }
    }

    /// What there is to read; nothing if nothing came within `wait`.
    pub(crate) async fn poll(&mut self, wait: Duration) -> Result<Vec<Received>, ClientError> {
        self.attend().await?;
        if self.positions.is_empty() || self.leaders.is_empty() {
            tokio::time::sleep(LOOK_AGAIN.min(wait)).await;
            return Ok(Vec::new());
        }
        let wait = wait.min(FETCH_WAIT);
        let fetched = self
            .client
            .fetch(
                &self.positions,
                &self.leaders,
                self.wanted.read_committed,
                wait,
            )
            .await?;
        if fetched.is_empty() {
            // Nobody answered.
            self.leaders.clear();
            tokio::time::sleep(LOOK_AGAIN.min(wait)).await;
        }
        let mut received = Vec::new();
        for fetch in fetched {
            match fetch.outcome {
                Ok((next, records)) => {
                    self.positions.insert(fetch.partition.clone(), next);
                    received.extend(records.into_iter().map(|record| Received {
                        partition: fetch.partition.clone(),
                        record,
                    }));
                }
                Err(error) if error.is(ErrorCode::OffsetOutOfRange) => {
                    let start = match self.wanted.start {
                        Start::Earliest => OffsetSpec::Earliest,
                        _ => OffsetSpec::Latest,
                    };
                    let position = self.offset_of(&fetch.partition, start).await?;
                    self.positions.insert(fetch.partition, position);
                }
                Err(_) => {
                    // The leader has moved, or the topic is gone.
                    self.leaders.remove(&fetch.partition);
                    self.look_at = SystemClock.now() + LOOK_AGAIN;
                }
            }
        }
        Ok(received)
    }

    /// The record has been taken: a commit covers it.
    pub(crate) fn take(&mut self, received: &Received) {
        let next = received.record.offset + 1;
        self.consumed.insert(received.partition.clone(), next);
    }

    /// Commits and leaves the group.
    pub(crate) async fn close(mut self) -> Result<(), ClientError> {
        let committed = match self.wanted.commit_interval {
            Some(_) => self.commit().await,
            None => Ok(()),
        };
        if let Some(member) = &mut self.member {
            member.leave(&mut self.client).await;
        }
        committed
    }

    async fn attend(&mut self) -> Result<(), ClientError> {
        let now = SystemClock.now();
        if self.wanted.commit_interval.is_some() && now >= self.commit_at {
            self.commit().await?;
            self.commit_at = now + self.wanted.commit_interval.unwrap_or_default();
        }
        if let Some(member) = &mut self.member
            && self.joined
            && member.heartbeat(&mut self.client).await? == GroupTurn::Rejoin
        {
            if self.wanted.commit_interval.is_some() {
                // Whoever is out of the group already cannot commit any more.
                let _ = self.commit().await;
            }
            self.joined = false;
        }
        let is_incomplete = self.positions.is_empty()
            || self
                .positions
                .keys()
                .any(|partition| !self.leaders.contains_key(partition));
        let look = now >= self.look_at && is_incomplete;
        if self.member.is_some() && !self.joined {
            self.join().await
        } else if look {
            self.look_at = now + LOOK_AGAIN;
            self.look().await
        } else {
            Ok(())
        }
    }

    async fn topics(&mut self) -> Result<Vec<String>, ClientError> {
        Ok(match &self.wanted.subscription {
            Subscription::Topic(topic) => vec![topic.clone()],
            Subscription::Pattern(pattern) => {
                let pattern = pattern.clone();
                let listed = self.client.list_topics().await?;
                let fitting = listed
                    .into_iter()
                    .filter(|topic| pattern.allows(&topic.name, true));
                fitting.map(|topic| topic.name).collect()
            }
        })
    }

    /// Finds partitions and their leaders.
    async fn look(&mut self) -> Result<(), ClientError> {
        let topics = match self.member {
            Some(_) => {
                let topics = self
                    .positions
                    .keys()
                    .map(|partition| partition.topic.to_string());
                let mut topics: Vec<String> = topics.collect();
                topics.dedup();
                topics
            }
            None => self.topics().await?,
        };
        let mut found = Vec::new();
        for (topic, located) in self.client.locate(&topics, self.wanted.create).await? {
            let located = match located {
                Ok(located) => located,
                Err(error) if error.is(ErrorCode::InvalidTopicException) => return Err(error),
                Err(_) => continue,
            };
            for partition in located.partitions {
                let key = TopicPartition::new(topic.as_str(), partition.partition);
                if self
                    .wanted
                    .partition
                    .is_some_and(|only| only != key.partition)
                {
                    continue;
                }
                if let Some(leader) = partition.leader {
                    self.leaders.insert(key.clone(), leader);
                    found.push(key);
                }
            }
        }
        if self.member.is_none() {
            for partition in found {
                if !self.positions.contains_key(&partition) {
                    let position = self.start_of(&partition).await?;
                    self.positions.insert(partition, position);
                }
            }
        }
        Ok(())
    }

    async fn join(&mut self) -> Result<(), ClientError> {
        let topics = self.topics().await?;
        // A topic that is made on first use is made now.
        self.client.locate(&topics, self.wanted.create).await?;
        let Some(member) = &mut self.member else {
            return Ok(());
        };
        let assigned = member.join(&mut self.client, &topics).await?;
        let group = member.group().to_owned();
        let committed = self.client.committed_offsets(&group).await?;
        self.positions.clear();
        self.leaders.clear();
        self.consumed.clear();
        for partition in assigned {
            let position = match committed.get(&partition) {
                Some(committed) => committed.offset,
                None => self.start_of(&partition).await?,
            };
            self.positions.insert(partition, position);
        }
        self.joined = true;
        self.look().await
    }

    async fn start_of(&mut self, partition: &TopicPartition) -> Result<Offset, ClientError> {
        match self.wanted.start {
            Start::Offset(offset) => Ok(offset),
            Start::Earliest => self.offset_of(partition, OffsetSpec::Earliest).await,
            Start::Latest => self.offset_of(partition, OffsetSpec::Latest).await,
            Start::At(time) => match self.offset_of(partition, OffsetSpec::At(time)).await? {
                found @ 0.. => Ok(found),
                _ => self.offset_of(partition, OffsetSpec::Latest).await,
            },
        }
    }

    async fn offset_of(
        &mut self,
        partition: &TopicPartition,
        spec: OffsetSpec,
    ) -> Result<Offset, ClientError> {
        let wanted = BTreeMap::from([(partition.clone(), spec)]);
        let read_committed = self.wanted.read_committed;
        let mut listed = self.client.list_offsets(&wanted, read_committed).await?;
        match listed.remove(partition) {
            Some(outcome) => outcome.map(|listed| listed.offset),
            None => Err(ClientError::code(ErrorCode::UnknownTopicOrPartition.code())),
        }
    }

    /// Commits what has been taken since the last time.
    async fn commit(&mut self) -> Result<(), ClientError> {
        let Some(member) = self.member.as_ref().filter(|_| self.joined) else {
            return Ok(());
        };
        // Behind what was read to its end lie records that nobody gets to see.
        if self.consumed == self.committed || self.consumed.is_empty() {
            return Ok(());
        }
        let (member_id, generation) = member.identity();
        self.client
            .commit_offsets(
                member.group(),
                Some((member_id, generation)),
                &self.consumed,
            )
            .await?;
        self.committed = self.consumed.clone();
        Ok(())
    }
}
