//! What a request to create topics or partitions comes to: Kafka's checks, in its order and with its
//! words (`ReplicationControlManager`). Pure.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::{NewPartitions, NewTopic};
use crate::config::{BrokerValues, TopicConfig, keys};
use crate::controller::placement::{least_loaded_first, place};
use crate::metadata::{Image, initial_partition};
use crate::registry::value::PartitionValue;
use crate::types::{ApiError, BrokerId, ErrorCode};

/// Kafka's bound for the new partitions of one request.
pub(super) const PARTITIONS_MAX: usize = 10_000;
const NAME_LENGTH_MAX: usize = 249;

/// What counts where a request leaves it open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) num_partitions: i32,
    pub(super) replication_factor: i16,
}

/// Replicas of new partitions, and how these begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) replicas: Vec<Vec<BrokerId>>,
    pub(super) states: Vec<PartitionValue>,
}

/// A topic that may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedTopic {
    pub(super) name: String,
    pub(super) replicas: Vec<Vec<BrokerId>>,
    pub(super) states: Vec<PartitionValue>,
    pub(super) configs: BTreeMap<String, String>,
}

/// Checks the parts of `topic` that do not concern its configs, and places its partitions.
pub(super) fn plan_topic(
    image: &Image,
    defaults: Defaults,
    topic: &NewTopic,
) -> Result<Placed, ApiError> {
    if !topic.assignments.is_empty() {
        return manual(image, topic);
    }
    if topic.replication_factor < -1 || topic.replication_factor == 0 {
        return Err(ApiError::new(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ));
    }
    if topic.num_partitions < -1 || topic.num_partitions == 0 {
        return Err(ApiError::new(
            ErrorCode::InvalidPartitions,
            "Number of partitions was set to an invalid non-positive value.",
        ));
    }
    let (partitions, factor) = counts(defaults, topic);
    placed(image, partitions, factor)
}

/// How many partitions `topic` asks for.
pub(super) fn partitions_asked(defaults: Defaults, topic: &NewTopic) -> usize {
    match topic.assignments.len() {
        0 => counts(defaults, topic).0,
        assigned => assigned,
    }
}

fn counts(defaults: Defaults, topic: &NewTopic) -> (usize, usize) {
    let partitions = match topic.num_partitions {
        -1 => defaults.num_partitions,
        partitions => partitions,
    };
    let factor = match topic.replication_factor {
        -1 => defaults.replication_factor,
        factor => factor,
    };
    (
        usize::try_from(partitions).unwrap_or_default(),
        usize::try_from(factor).unwrap_or_default(),
    )
}

fn placed(image: &Image, partitions: usize, factor: usize) -> Result<Placed, ApiError> {
    let invalid = |message| ApiError::new(ErrorCode::InvalidReplicationFactor, message);
    let replicas = place(&least_loaded_first(image), partitions, factor)
        .map_err(|error| invalid(error.to_string()))?;
    begun(image, replicas, |_| {
        invalid(format!(
            "Unable to replicate the partition {factor} time(s): All brokers are currently fenced or \
             in controlled shutdown."
        ))
    })
}

/// `none_there`: the error where none of a partition's replicas is there.
fn begun(
    image: &Image,
    replicas: Vec<Vec<BrokerId>>,
    none_there: impl Fn(usize) -> ApiError,
) -> Result<Placed, ApiError> {
    let states = replicas.iter().enumerate().map(|(index, replicas)| {
        initial_partition(image, replicas).ok_or_else(|| none_there(index))
    });
    let states = states.collect::<Result<_, _>>()?;
    Ok(Placed { replicas, states })
}

/// The names that a new topic must not have: taken, or different from one only in `.` and `_`.
pub(super) struct TakenNames<'a> {
    image: &'a Image,
    /// Made when it is first needed: one request may name very many topics.
    unified: OnceCell<BTreeMap<String, &'a str>>,
}

impl<'a> TakenNames<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self {
            image,
            unified: OnceCell::new(),
        }
    }

    /// Kafka's `Topic.validate`, and whether the name is free.
    pub(super) fn check(&self, name: &str) -> Result<(), ApiError> {
        if let Some(reason) = name_fault(name) {
            return Err(ApiError::new(
                ErrorCode::InvalidTopicException,
                format!("Topic name is invalid: {reason}"),
            ));
        }
        if self.image.topics.contains_key(name) {
            return Err(ApiError::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        match self.colliding(name) {
            Some(other) => Err(ApiError::new(
                ErrorCode::InvalidTopicException,
                format!("Topic '{name}' collides with existing topic: {other}"),
            )),
            None => Ok(()),
        }
    }

    fn colliding(&self, name: &str) -> Option<&'a str> {
        const ALIKE: [char; 2] = ['.', '_'];
        if !name.contains(ALIKE) {
            return None;
        }
        let unified = self.unified.get_or_init(|| {
            let names = self.image.topics.keys().filter(|name| name.contains(ALIKE));
            names
                .map(|name| (name.replace('.', "_"), &**name))
                .collect()
        });
        unified.get(&name.replace('.', "_")).copied()
    }
}

fn name_fault(name: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Some("the empty string is not allowed".to_owned()),
        "." | ".." => Some(format!("'{name}' is not allowed")),
        // Java counts UTF-16 units.
        _ if name.encode_utf16().count() > NAME_LENGTH_MAX => Some(format!(
            "the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
        )),
        _ if !name.bytes().all(legal) => Some(format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )),
        _ => None,
    }
}

/// Checks what is to be set on a topic, and returns it. `null` is no value to create a topic with.
pub(super) fn check_configs(
    values: &BrokerValues,
    configs: &[(String, Option<String>)],
) -> Result<BTreeMap<String, String>, ApiError> {
    let invalid = |message| Err(ApiError::new(ErrorCode::InvalidConfig, message));
    let mut checked = BTreeMap::new();
    let nulls: Vec<_> = configs
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    if !nulls.is_empty() {
        return invalid(format!(
            "Null value not supported for topic configs: {}",
            nulls.join(",")
        ));
    }
    for (name, value) in configs {
        let value = value.clone().unwrap_or_default();
        let Some(key) = keys::topic_key(name) else {
            return invalid(format!("Unknown topic config name: {name}"));
        };
        if let Err(violation) = key.parse(&value) {
            return invalid(violation.kafka_message(name));
        }
        checked.insert(name.clone(), value);
    }
    if TopicConfig::resolve(values, &checked).is_err() {
        let effective = |name: &str| {
            let set = checked.get(name).cloned();
            set.or_else(|| values.for_topic(name)).unwrap_or_default()
        };
        return invalid(format!(
            "conflict topic config setting min.compaction.lag.ms ({}) > max.compaction.lag.ms ({})",
            effective("min.compaction.lag.ms"),
            effective("max.compaction.lag.ms")
        ));
    }
    Ok(checked)
}

fn manual(image: &Image, topic: &NewTopic) -> Result<Placed, ApiError> {
    if topic.replication_factor != -1 {
        return Err(ApiError::new(
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ));
    }
    if topic.num_partitions != -1 {
        return Err(ApiError::new(
            ErrorCode::InvalidRequest,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ));
    }
    let mut by_index = BTreeMap::new();
    let mut factor = None;
    for (index, replicas) in &topic.assignments {
        if by_index.contains_key(index) {
            return Err(assignment(format!(
                "Found multiple manual partition assignments for partition {index}"
            )));
        }
        check_assignment(image, replicas, factor)?;
        factor = Some(replicas.len());
        by_index.insert(*index, replicas.clone());
    }
    if !(0..)
        .zip(by_index.keys())
        .all(|(expected, index)| *index == expected)
    {
        return Err(assignment(
            "partitions should be a consecutive 0-based integer sequence".to_owned(),
        ));
    }
    assigned(image, by_index.into_values().collect(), 0)
}

/// The assignments of partitions from `first` on.
fn assigned(image: &Image, replicas: Vec<Vec<BrokerId>>, first: usize) -> Result<Placed, ApiError> {
    begun(image, replicas, |index| {
        assignment(format!(
            "All brokers specified in the manual partition assignment for partition {} are fenced or \
             in controlled shutdown.",
            first + index
        ))
    })
}

fn assignment(message: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidReplicaAssignment, message)
}

fn check_assignment(
    image: &Image,
    replicas: &[BrokerId],
    factor: Option<usize>,
) -> Result<(), ApiError> {
    if replicas.is_empty() {
        return Err(assignment(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        ));
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let mut seen = BTreeSet::new();
    for id in &sorted {
        if !image.brokers.contains_key(id) && !image.known_brokers.contains_key(id) {
            return Err(assignment(format!(
                "The manual partition assignment includes broker {id}, but no such broker is \
                 registered."
            )));
        }
        if !seen.insert(id) {
            return Err(assignment(format!(
                "The manual partition assignment includes the broker {id} more than once."
            )));
        }
    }
    match factor {
        Some(factor) if factor != replicas.len() => Err(assignment(format!(
            "The manual partition assignment includes a partition with {} replica(s), but this is \
             not consistent with previous partitions, which have {factor} replica(s).",
            replicas.len()
        ))),
        _ => Ok(()),
    }
}

/// The replicas of the partitions to be added to a topic that has those of `existing`.
pub(super) fn plan_partitions(
    image: &Image,
    topic: &NewPartitions,
    existing: &[Vec<BrokerId>],
) -> Result<Placed, ApiError> {
    let count = usize::try_from(topic.count).unwrap_or_default();
    let has = existing.len();
    let fault = |message| Err(ApiError::new(ErrorCode::InvalidPartitions, message));
    if topic.count >= 0 && count == has {
        return fault(format!("Topic already has {has} partition(s)."));
    }
    if count < has {
        return fault(format!(
            "The topic {} currently has {has} partition(s); {} would not be an increase.",
            topic.name, topic.count
        ));
    }
    let additional = count - has;
    if let Some(assignments) = &topic.assignments
        && assignments.len() != additional
    {
        return Err(assignment(format!(
            "Attempted to add {additional} additional partition(s), but only {} assignment(s) were \
             specified.",
            assignments.len()
        )));
    }
    let factor = existing.first().map_or(1, Vec::len);
    if let Some(assignments) = &topic.assignments {
        for replicas in assignments {
            check_assignment(image, replicas, Some(factor))?;
        }
        return assigned(image, assignments.clone(), has);
    }
    placed(image, additional, factor)
}

/// A request that asks for more partitions than Kafka's controller makes at once; `what` it counts.
pub(super) fn too_many(what: &str) -> ApiError {
    ApiError::new(
        ErrorCode::PolicyViolation,
        format!("Excessively large number of {what} per request."),
    )
}

#[cfg(test)]
mod tests;
