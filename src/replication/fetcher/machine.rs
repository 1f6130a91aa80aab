//! What one fetcher does next: which partitions it asks its leader for, and what it makes of the answers
//! (Kafka's `AbstractFetcherThread`, KIP-320, KIP-595). Pure.
//!
//! R6: a follower's position counts at its leader only with the leader's own epoch in the request and
//! the epoch of the last record fetched; where the logs part the leader says so, and the follower cuts its
//! log by epochs, never to its own high watermark.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::session::Session;
use crate::protocol::TopicKey;
use crate::protocol::fetch::{FetchAnswer, FetchPartition, FetchRequest, FetchedPartition};
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, ErrorCode, LeaderEpoch, NO_EPOCH, Offset, PartitionId, TopicId};

/// The first pause after something failed; the next ones are twice as long each.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);

/// A partition, as Fetch names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) topic: TopicId,
    pub(crate) partition: PartitionId,
}

/// What of the broker's configuration a fetcher goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchRules {
    pub(crate) node_id: BrokerId,
    /// `replica.fetch.max.bytes`
    pub(crate) partition_bytes_max: i32,
    /// `replica.fetch.response.max.bytes`
    pub(crate) response_bytes_max: i32,
    /// `replica.fetch.min.bytes`
    pub(crate) bytes_min: i32,
    /// `replica.fetch.wait.max.ms`
    pub(crate) wait_max_ms: i32,
    /// `replica.fetch.backoff.ms`: the longest pause.
    pub(crate) backoff_max: Duration,
}

/// Where a follower's log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) log_start: Offset,
    pub(crate) log_end: Offset,
    /// What is asked for next, and so what is reported: all below is on this broker's side, and on its
    /// disk where the topic waits for that.
    pub(crate) fetch_offset: Offset,
    /// Of the last record before; −1 if there is none.
    pub(crate) last_epoch: LeaderEpoch,
}

/// Something to be done with one partition, under this leader epoch. Until [`Machine::done`] tells how it
/// went the partition is not asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Find out where the log stands.
    Locate,
    /// Take over records.
    Append(FetchedPartition),
    /// No records: take over high watermark and log start. Nobody waits for it.
    Note {
        high_watermark: Offset,
        log_start: Offset,
    },
    /// The logs part: at the leader the epoch ends there.
    Cut(LeaderEpoch, Offset),
    /// The leader's log does not hold what was asked for: ask it for its start and end.
    AskRange,
    /// Cut to where the leader's log ends: records were lost at an unclean election.
    CutToLeaderEnd(Offset),
    /// Let go of everything and begin there.
    BeginAnew(Offset),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A step is under way, or waits to be taken.
    Busy,
    Ready,
    Delayed(Instant),
}

#[derive(Debug)]
struct Following {
    leader_epoch: LeaderEpoch,
    phase: Phase,
    /// `None` until it was located.
    position: Option<Position>,
    /// In a row.
    failures: u32,
}

/// One fetcher of one leader.
#[derive(Debug)]
pub(crate) struct Machine {
    rules: FetchRules,
    partitions: BTreeMap<Key, Following>,
    session: Session,
    steps: Vec<Step>,
    /// Requests that failed in a row.
    failures: u32,
    /// No request before that.
    quiet_until: Option<Instant>,
}

impl Machine {
    pub(crate) fn new(rules: FetchRules) -> Self {
        Self {
            rules,
            partitions: BTreeMap::new(),
            session: Session::default(),
            steps: Vec::new(),
            failures: 0,
            quiet_until: None,
        }
    }

    /// The partition is to be followed in this leader epoch. What is under way in an earlier one comes to
    /// nothing.
    pub(crate) fn follow(&mut self, key: Key, leader_epoch: LeaderEpoch) {
        let known = self.partitions.get(&key);
        if known.is_some_and(|known| known.leader_epoch == leader_epoch) {
            return;
        }
        let following = Following {
            leader_epoch,
            phase: Phase::Busy,
            position: None,
            failures: 0,
        };
        self.partitions.insert(key, following);
        self.step(key, leader_epoch, What::Locate);
    }

    pub(crate) fn leave(&mut self, key: Key) {
        self.partitions.remove(&key);
        self.steps.retain(|step| step.key != key);
    }

    /// What is to be done now.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    fn step(&mut self, key: Key, leader_epoch: LeaderEpoch, what: What) {
        self.steps.push(Step {
            key,
            leader_epoch,
            what,
        });
    }

    /// Ends pauses. Returns when the next one ends.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Instant> {
        let mut next = self.quiet_until.filter(|until| *until > now);
        self.quiet_until = next;
        for (key, following) in &mut self.partitions {
            let Phase::Delayed(until) = following.phase else {
                continue;
            };
            if until > now {
                next = Some(next.map_or(until, |next| next.min(until)));
                continue;
            }
            if following.position.is_some() {
                following.phase = Phase::Ready;
            } else {
                following.phase = Phase::Busy;
                self.steps.push(Step {
                    key: *key,
                    leader_epoch: following.leader_epoch,
                    what: What::Locate,
                });
            }
        }
        next
    }

    /// The next request; `None` if there is nothing to ask for, or not yet.
    pub(crate) fn request(&mut self, broker_epoch: i64) -> Option<FetchRequest> {
        if self.quiet_until.is_some() {
            return None;
        }
        let ready = self.partitions.iter().filter_map(|(key, following)| {
            let position = following.position?;
            let asked = FetchPartition {
                partition: key.partition,
                current_leader_epoch: following.leader_epoch,
                fetch_offset: position.fetch_offset,
                last_fetched_epoch: match holds(Rule::R6) {
                    true => position.last_epoch,
                    false => NO_EPOCH,
                },
                log_start_offset: position.log_start,
                max_bytes: self.rules.partition_bytes_max,
                replica_directory_id: TopicId::ZERO,
                high_watermark: i64::MAX,
            };
            (following.phase == Phase::Ready).then_some((*key, asked))
        });
        let wanted: BTreeMap<Key, FetchPartition> = ready.collect();
        if wanted.is_empty() {
            return None;
        }
        let session = self.session.request(wanted);
        Some(FetchRequest {
            replica_id: self.rules.node_id.0,
            // R3
            replica_epoch: broker_epoch,
            cluster_id: None,
            max_wait_ms: self.rules.wait_max_ms,
            min_bytes: self.rules.bytes_min,
            max_bytes: self.rules.response_bytes_max,
            isolation_level: 0,
            session_id: session.id,
            session_epoch: session.epoch,
            topics: session.topics,
            forgotten_topics: session.forgotten,
            rack_id: String::new(),
        })
    }

    /// Whether a partition could be asked for and is not in the request that is under way.
    pub(crate) fn leaves_out(&self) -> bool {
        self.partitions.iter().any(|(key, following)| {
            let asked = self.session.asked(key);
            let is_asked = asked.is_some_and(|asked| {
                asked.current_leader_epoch == following.leader_epoch
                    && following.position.map(|at| at.fetch_offset) == Some(asked.fetch_offset)
            });
            following.phase == Phase::Ready && !is_asked
        })
    }

    /// The leader did not answer, or not to be understood.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.session.reset();
        self.quiet_until = Some(now + self.backoff(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// The request was given up for a better one.
    pub(crate) fn interrupted(&mut self) {
        self.session.reset();
    }

    /// The leader answered; the code of an error that concerns the whole request is returned.
    pub(crate) fn answered(&mut self, now: Instant, answer: FetchAnswer) -> Option<i16> {
        if answer.error != 0 {
            let session_is_gone = matches!(
                ErrorCode::from_code(answer.error),
                Some(
                    ErrorCode::FetchSessionIdNotFound
                        | ErrorCode::InvalidFetchSessionEpoch
                        | ErrorCode::FetchSessionTopicIdError
                )
            );
            if session_is_gone {
                self.session.reset(); // once more, at once
                return None;
            }
            self.failed(now);
            return Some(answer.error);
        }
        self.failures = 0;
        self.session.answered(answer.session_id);
        for fetched in answer.partitions {
            self.fetched(now, fetched);
        }
        None
    }

    fn fetched(&mut self, now: Instant, fetched: FetchedPartition) {
        let TopicKey::Id(topic) = fetched.topic else {
            return;
        };
        let key = Key {
            topic,
            partition: fetched.partition,
        };
        let asked = self.session.asked(&key).copied();
        let Some((following, asked)) = self.partitions.get_mut(&key).zip(asked) else {
            return;
        };
        // Of another term, or of before it was cut.
        let is_answer = following.phase == Phase::Ready
            && following.leader_epoch == asked.current_leader_epoch
            && following.position.map(|at| at.fetch_offset) == Some(asked.fetch_offset);
        if !is_answer {
            return;
        }
        let leader_epoch = following.leader_epoch;
        let what = match fetched.error_code() {
            Some(ErrorCode::None) => match fetched.diverging_epoch {
                Some((epoch, end)) => What::Cut(epoch, end),
                None if fetched.records.is_empty() => {
                    following.failures = 0;
                    let what = What::Note {
                        high_watermark: fetched.high_watermark,
                        log_start: fetched.log_start_offset,
                    };
                    self.step(key, leader_epoch, what);
                    return;
                }
                None => What::Append(fetched),
            },
            Some(ErrorCode::OffsetOutOfRange) => What::AskRange,
            // FENCED_ and UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER: one of us does not know yet.
            _ => {
                self.delay(now, key);
                return;
            }
        };
        following.phase = Phase::Busy;
        self.step(key, leader_epoch, what);
    }

    /// Where the leader's log begins and ends, that did not hold what was asked for.
    pub(crate) fn range(
        &mut self,
        now: Instant,
        key: Key,
        leader_epoch: LeaderEpoch,
        range: Option<(Offset, Offset)>,
    ) {
        let Some(following) = self.following(key, leader_epoch) else {
            return;
        };
        let (Some(position), Some((start, end))) = (following.position, range) else {
            self.delay(now, key);
            return;
        };
        let what = match out_of_range(position, start, end) {
            Some(what) => what,
            None => What::Locate, // it has moved meanwhile
        };
        self.step(key, leader_epoch, what);
    }

    /// A step was taken: where the log stands now, or `None` if it failed.
    pub(crate) fn done(
        &mut self,
        now: Instant,
        key: Key,
        leader_epoch: LeaderEpoch,
        position: Option<Position>,
    ) {
        let Some(following) = self.following(key, leader_epoch) else {
            return;
        };
        match position {
            Some(position) => {
                following.position = Some(position);
                following.phase = Phase::Ready;
                following.failures = 0;
            }
            None => {
                // What is in the log by now is to be found out.
                following.position = None;
                self.delay(now, key);
            }
        }
    }

    /// The log starts later than before, as its leader's does: that is to be reported.
    pub(crate) fn noted(&mut self, key: Key, leader_epoch: LeaderEpoch, log_start: Offset) {
        let following = self.following(key, leader_epoch);
        if let Some(position) = following.and_then(|it| it.position.as_mut()) {
            position.log_start = position.log_start.max(log_start);
        }
    }

    fn following(&mut self, key: Key, leader_epoch: LeaderEpoch) -> Option<&mut Following> {
        let following = self.partitions.get_mut(&key)?;
        (following.leader_epoch == leader_epoch).then_some(following)
    }

    fn delay(&mut self, now: Instant, key: Key) {
        let backoff = match self.partitions.get(&key) {
            Some(following) => self.backoff(following.failures),
            None => return,
        };
        if let Some(following) = self.partitions.get_mut(&key) {
            following.failures = following.failures.saturating_add(1);
            following.phase = Phase::Delayed(now + backoff);
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let longer = BACKOFF_FIRST.saturating_mul(1 << failures.min(16));
        longer.min(self.rules.backoff_max)
    }
}

/// What a follower does whose offset the leader's log does not hold; `None` if it does by now.
fn out_of_range(follower: Position, leader_start: Offset, leader_end: Offset) -> Option<What> {
    let is_empty = follower.log_start == follower.log_end;
    if follower.log_end < leader_start || is_empty && follower.log_end > leader_end {
        return Some(What::BeginAnew(leader_start));
    }
    (follower.log_end > leader_end).then_some(What::CutToLeaderEnd(leader_end))
}

/// Where a follower cuts its log, whose leader's `epoch` ends at `leader_end`; `follower` is the largest
/// epoch up to that one in its own log, with its end (Kafka's `getOffsetTruncationState`). Where that is
/// a smaller one the next fetch tells more.
pub(crate) fn truncation_offset(
    (epoch, leader_end): (LeaderEpoch, Offset),
    follower: Option<(LeaderEpoch, Offset)>,
    log_end: Offset,
) -> Offset {
    match follower {
        Some((known, end)) if known == epoch => end.min(leader_end).min(log_end),
        Some((known, end)) if known != NO_EPOCH => end.min(log_end),
        _ => leader_end.min(log_end),
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
