//! Which partitions are meant.

use super::pattern::TopicPattern;
use crate::client::{Client, ClientError};
use crate::types::TopicPartition;

/// A pattern of topics and some of their partitions.
#[derive(Debug, Clone)]
pub(crate) struct PartitionRule {
    topics: TopicPattern,
    partitions: Partitions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Partitions {
    /// The end is excluded.
    Range(i32, i32),
    /// None: all.
    These(Vec<i32>),
}

impl PartitionRule {
    /// `TOPIC`, `TOPIC:N`, `TOPIC:N-M`, `TOPIC:N-`, `TOPIC:-M`; without a topic all.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (topic, partitions) = text.split_once(':').unwrap_or((text, ""));
        let invalid = || format!("Invalid rule specification: {text}");
        let number = |digits: &str, default| match digits {
            "" => Ok(default),
            digits if digits.bytes().all(|c| c.is_ascii_digit()) => {
                digits.parse().map_err(|_| invalid())
            }
            _ => Err(invalid()),
        };
        let partitions = match partitions.split_once('-') {
            Some((low, high)) => Partitions::Range(number(low, 0)?, number(high, i32::MAX)?),
            None if partitions.is_empty() => Partitions::Range(0, i32::MAX),
            None => Partitions::These(vec![number(partitions, 0)?]),
        };
        let topic = if topic.is_empty() { ".*" } else { topic };
        Ok(Self {
            topics: TopicPattern::parse(topic)?,
            partitions,
        })
    }

    /// All of these partitions of some topics; all of them if none is named.
    pub(crate) fn of_topic(topic: &str, partitions: Vec<i32>) -> Result<Self, String> {
        Ok(Self {
            topics: TopicPattern::parse(topic)?,
            partitions: Partitions::These(partitions),
        })
    }

    fn allows(&self, topic: &str, partition: i32) -> bool {
        let fits = match &self.partitions {
            Partitions::Range(low, high) => (*low..*high).contains(&partition),
            Partitions::These(some) => some.is_empty() || some.contains(&partition),
        };
        fits && self.topics.allows(topic, false)
    }
}

/// The partitions that one of the rules allows.
pub(crate) async fn partitions(
    client: &mut Client,
    rules: &[PartitionRule],
    exclude_internal: bool,
) -> Result<Vec<TopicPartition>, ClientError> {
    let listed = client.list_topics().await?;
    let fits = |name: &str| rules.iter().any(|rule| rule.topics.allows(name, false));
    let names = listed
        .into_iter()
        .filter(|topic| !(exclude_internal && topic.internal) && fits(&topic.name))
        .map(|topic| topic.name);
    let names: Vec<String> = names.collect();
    let mut partitions = Vec::new();
    for (topic, located) in client.locate(&names, false).await? {
        for partition in located?.partitions {
            let number = partition.partition;
            if rules.iter().any(|rule| rule.allows(&topic, number)) {
                partitions.push(TopicPartition::new(topic.as_str(), number));
            }
        }
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_partitions() {
        let allowed = |rule: &str| {
            let rule = PartitionRule::parse(rule).unwrap();
            let all = (0..4).filter(move |partition| rule.allows("t", *partition));
            all.collect::<Vec<_>>()
        };
        assert_eq!(allowed("t"), [0, 1, 2, 3]);
        assert_eq!(allowed("t:2"), [2]);
        assert_eq!(allowed("t:1-3"), [1, 2]);
        assert_eq!(allowed(":2-"), [2, 3]);
        assert_eq!(allowed("t:-1"), [0]);
        assert_eq!(allowed("u"), [0; 0]);
        for bad in ["t:x", "t:1-x", "t:1:2"] {
            assert_eq!(
                PartitionRule::parse(bad).unwrap_err(),
                format!("Invalid rule specification: {bad}")
            );
        }
    }
}
