//! What the controller does: from what it sees to the changes of partitions. Pure.
//!
//! It keeps no plan. Every step looks at the whole image, so that a new controller finishes what the
//! last one began, and a step that was lost is done again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::election::{self, Answer, Election, Origin, Question};
use crate::metadata::{Image, Partition, Topic};
use crate::registry::Revision;
use crate::registry::value::PartitionValue;
use crate::types::rules::{Rule, holds};
use crate::types::{BrokerId, PartitionId, TopicId, TopicName};

/// Kafka's `ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE`.
const BALANCED_AT_ONCE: usize = 1_000;
/// When the rest of them follows.
const BALANCE_SOON: Duration = Duration::from_secs(1);

/// Who and how patient.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    pub broker: BrokerId,
    /// A lease's time.
    pub ttl: Duration,
    /// `leader.imbalance.check.interval.seconds`; `None`: leaders stay where they are.
    pub balance_interval: Option<Duration>,
}

/// A change of one partition, as one compare-and-swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub topic: TopicId,
    pub name: TopicName,
    pub partition: PartitionId,
    /// R1: the mod revision of the partition that the change starts from.
    pub revision: Revision,
    pub value: PartitionValue,
    /// The new leader, with the registration that the change counts on.
    pub elected: Option<(BrokerId, i64, Origin)>,
}

/// What a step comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub changes: Vec<Change>,
    /// Look again then, even if nothing has happened.
    pub wake_at: Option<Instant>,
    /// Brokers that are gone and not fenced yet (R14).
    pub spared: BTreeSet<BrokerId>,
}

/// Runs on every broker, so that each knows who vanished when; decides where this broker is the
/// controller.
#[derive(Debug)]
pub struct Machine {
    config: MachineConfig,
    since: Instant,
    registered: BTreeSet<BrokerId>,
    /// When they vanished.
    vanished: BTreeMap<BrokerId, Instant>,
    /// This broker's seat, and when it was first seen there.
    seat: Option<(Revision, Instant)>,
    balance_at: Instant,
}

impl Machine {
    pub fn new(config: MachineConfig, now: Instant) -> Self {
        Self {
            config,
            since: now,
            registered: BTreeSet::new(),
            vanished: BTreeMap::new(),
            seat: None,
            balance_at: now,
        }
    }

    /// `answering_since`: etcd has answered this broker without a break since then.
    pub fn step(&mut self, image: &Image, answering_since: Option<Instant>, now: Instant) -> Step {
        self.observe(image, now);
        let Some((_, won)) = self.seat else {
            return Step::default();
        };
        let needed = needed(image);
        let guard = Guard {
            machine: self,
            image,
            needed: &needed,
            won,
            answering_since,
            now,
        };
        let mut step = Step::default();
        let mut leaving = BTreeSet::new();
        for &id in &needed {
            match image.brokers.get(&id) {
                Some(broker) if broker.shutting_down => {
                    leaving.insert(id);
                }
                Some(_) => {}
                None => match guard.fenced_from(id) {
                    Some(from) if from > now => {
                        step.spared.insert(id);
                        wake(&mut step, from);
                    }
                    Some(_) => {
                        leaving.insert(id);
                    }
                    None => {
                        step.spared.insert(id);
                    }
                },
            }
        }
        for topic in image.topics.values() {
            fail_over(image, topic, &leaving, &mut step.changes);
        }
        self.balance(image, now, &mut step);
        step
    }

    fn observe(&mut self, image: &Image, now: Instant) {
        for id in &self.registered {
            if !image.brokers.contains_key(id) {
                self.vanished.insert(*id, now);
            }
        }
        self.registered = image.brokers.keys().copied().collect();
        self.vanished.retain(|id, _| !self.registered.contains(id));
        let is_mine = image.controller == Some(self.config.broker);
        let seat = is_mine.then_some(image.controller_registration);
        if self.seat.map(|(seat, _)| seat) != seat {
            self.seat = seat.map(|seat| (seat, now));
            self.balance_at = now + self.config.balance_interval.unwrap_or_default();
        }
    }

    /// Leadership goes back to the first replicas where these are in sync again.
    fn balance(&mut self, image: &Image, now: Instant, step: &mut Step) {
        let Some(interval) = self.config.balance_interval else {
            return;
        };
        // What fails over has changed already.
        if now >= self.balance_at && step.changes.is_empty() {
            for topic in image.topics.values() {
                prefer(image, topic, &mut step.changes);
            }
            let more = step.changes.len() > BALANCED_AT_ONCE;
            step.changes.truncate(BALANCED_AT_ONCE);
            self.balance_at = now + if more { BALANCE_SOON } else { interval };
        }
        // Where something has to fail over first, what becomes of that is looked at anyway.
        if self.balance_at > now {
            wake(step, self.balance_at);
        }
    }
}

fn wake(step: &mut Step, at: Instant) {
    step.wake_at = Some(step.wake_at.map_or(at, |before| before.min(at)));
}

/// R14: when a broker that is gone may be taken for dead.
struct Guard<'a> {
    machine: &'a Machine,
    image: &'a Image,
    needed: &'a BTreeSet<BrokerId>,
    won: Instant,
    answering_since: Option<Instant>,
    now: Instant,
}

impl Guard<'_> {
    /// `None`: not while etcd does not answer.
    fn fenced_from(&self, id: BrokerId) -> Option<Instant> {
        if !holds(Rule::R14) {
            return Some(self.now);
        }
        let ttl = self.machine.config.ttl;
        let answering = self.answering_since?;
        let recent =
            |(id, at): &(&BrokerId, &Instant)| **at + ttl > self.now && self.needed.contains(id);
        let vanished = self.machine.vanished.iter().filter(recent).count();
        let known_since = self.machine.since.max(answering);
        let Some(vanished_at) = self.machine.vanished.get(&id) else {
            // Never seen: it may be about to come (back).
            return Some(known_since + ttl);
        };
        // Etcd was away: that may be the reason, and it may come back by itself.
        if answering > *vanished_at || answering + ttl > self.now && answering > self.machine.since
        {
            return Some(answering + ttl);
        }
        if vanished <= 1 {
            return Some(*vanished_at); // the lone death, of the last controller or another
        }
        if self.won + ttl > self.now {
            return Some(self.won + ttl);
        }
        // Most at once: rather the registry's fault than theirs.
        let all = self.image.brokers.len() + vanished;
        if vanished * 2 > all {
            return Some(*vanished_at + ttl);
        }
        Some(*vanished_at)
    }
}

/// Leaders and members of ISRs.
fn needed(image: &Image) -> BTreeSet<BrokerId> {
    let mut needed = BTreeSet::new();
    for topic in image.topics.values() {
        for partition in &topic.partitions {
            needed.extend(partition.leader);
            needed.extend(partition.isr.iter().copied());
        }
    }
    needed
}

/// Whom `leaving` led gets another leader, whoever can lead a partition without one does, and the ISRs
/// lose them.
fn fail_over(
    image: &Image,
    topic: &Arc<Topic>,
    leaving: &BTreeSet<BrokerId>,
    changes: &mut Vec<Change>,
) {
    for (index, partition) in (0..).zip(&topic.partitions) {
        let has_to = match partition.leader {
            None => true,
            Some(leader) => {
                leaving.contains(&leader) || partition.isr.iter().any(|id| leaving.contains(id))
            }
        };
        if !has_to {
            continue;
        }
        let election = match topic.config.unclean_leader_election {
            true => Election::Unclean,
            false => Election::Online,
        };
        changes.extend(change(image, topic, index, leaving, election));
    }
}

fn prefer(image: &Image, topic: &Arc<Topic>, changes: &mut Vec<Change>) {
    let nobody = BTreeSet::new();
    for (index, partition) in (0..).zip(&topic.partitions) {
        if is_imbalanced(partition) {
            changes.extend(change(image, topic, index, &nobody, Election::Preferred));
        }
    }
}

fn is_imbalanced(partition: &Partition) -> bool {
    partition.leader.is_some() && partition.leader != partition.replicas.first().copied()
}

/// The change of one partition; `None`: there is nothing to change.
pub(super) fn change(
    image: &Image,
    topic: &Topic,
    index: PartitionId,
    leaving: &BTreeSet<BrokerId>,
    election: Election,
) -> Option<Change> {
    let partition = topic.partitions.get(usize::try_from(index).ok()?)?;
    let answer = election::change(&Question {
        partition,
        min_insync_replicas: min_insync_replicas(topic),
        leaving,
        forgetful: &BTreeSet::new(),
        election,
        active: &|id| {
            let broker = image.brokers.get(&id)?;
            (!broker.shutting_down && !leaving.contains(&id)).then_some(broker.epoch)
        },
    })?;
    Some(of(topic, index, partition, answer))
}

fn of(topic: &Topic, index: PartitionId, partition: &Partition, answer: Answer) -> Change {
    Change {
        topic: topic.id,
        name: Arc::clone(&topic.name),
        partition: index,
        revision: partition.revision,
        value: answer.value,
        elected: answer.elected,
    }
}

fn min_insync_replicas(topic: &Topic) -> usize {
    usize::try_from(topic.config.min_insync_replicas).unwrap_or(1)
}

/// R5: what this broker, registered with `broker_epoch`, still leads in an epoch of before.
pub fn resume(image: &Image, id: BrokerId, broker_epoch: i64) -> Vec<Change> {
    let mut changes = Vec::new();
    for topic in image.topics.values() {
        for (index, partition) in (0..).zip(&topic.partitions) {
            let Some(value) = election::resume(partition, id, broker_epoch) else {
                continue;
            };
            let elected = Some((id, broker_epoch, Origin::Isr));
            changes.push(of(topic, index, partition, Answer { value, elected }));
        }
    }
    changes
}

/// R10: the changes by which a broker leaves the ISRs and ELRs where it may lack what it had: of topics
/// that do not sync each message, or of all where `everything` is gone. Before it registers.
pub fn forget(image: &Image, id: BrokerId, everything: bool) -> Vec<Change> {
    let forgetful = BTreeSet::from([id]);
    let mut changes = Vec::new();
    for topic in image.topics.values() {
        if !everything && topic.config.flush_messages <= 1 {
            continue;
        }
        for (index, partition) in (0..).zip(&topic.partitions) {
            // The only replica: what it has is all there is.
            if partition.replicas == [id] {
                continue;
            }
            let answer = election::change(&Question {
                partition,
                min_insync_replicas: min_insync_replicas(topic),
                leaving: &BTreeSet::new(),
                forgetful: &forgetful,
                election: Election::Online,
                active: &|other| {
                    let broker = image.brokers.get(&other)?;
                    (other != id && !broker.shutting_down).then_some(broker.epoch)
                },
            });
            let Some(answer) = answer else { continue };
            let was_in = partition.isr.contains(&id) || partition.elr.contains(&id);
            if was_in || partition.leader == Some(id) {
                changes.push(of(topic, index, partition, answer));
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests;
