//! Names and numbers of things.

use std::fmt;
use std::sync::Arc;

/// The name of a topic; cheap to clone.
pub type TopicName = Arc<str>;

/// Kafka's `Topic.validate`: 1 to 249 of `a-zA-Z0-9._-`, and not `.` or `..`.
pub fn is_valid_topic_name(name: &str) -> bool {
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(legal)
}

/// Kafka's `Topic.isInternal`.
pub fn is_internal_topic(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}

/// The name of a listener, upper case as Kafka writes it.
pub type ListenerName = Arc<str>;

/// `node.id` of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerId(pub i32);

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The UUID that a topic keeps through its life (KIP-516). A topic made anew gets another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// What a request or response without a topic id carries.
    pub const ZERO: Self = Self([0; 16]);

    /// True if the two are the same but for one character as it is written. Ids are random: those of two
    /// topics are never so near, so that one of them is damaged.
    pub fn is_damaged(self, whole: Self) -> bool {
        let differing = u128::from_be_bytes(self.0) ^ u128::from_be_bytes(whole.0);
        differing != 0 && u128::BITS - differing.leading_zeros() - differing.trailing_zeros() <= 6
    }

    /// Reads the 22 characters of base64url that Kafka writes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 22 {
            return None;
        }
        let mut bits: u128 = 0;
        for (index, character) in text.bytes().enumerate() {
            let digit = BASE64URL.iter().position(|&c| c == character)? as u128;
            if index < 21 {
                bits = (bits << 6) | digit;
            } else {
                bits = (bits << 2) | (digit >> 4);
            }
        }
        Some(Self(bits.to_be_bytes()))
    }
}

const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    /// Base64url without padding, as `org.apache.kafka.common.Uuid` prints itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = [0u8; 22];
        for (index, character) in text.iter_mut().enumerate() {
            let digit = if index < 21 {
                bits >> (122 - 6 * index)
            } else {
                bits << 4
            };
            *character = BASE64URL[(digit & 0x3f) as usize];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One partition of one topic. Prints as its directory is named: `topic-3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: TopicName,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<TopicName>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_are_what_kafka_allows() {
        let longest = "a".repeat(249);
        for name in ["a", "...", "A-b_c.9", "__consumer_offsets", &longest] {
            assert!(is_valid_topic_name(name), "{name}");
        }
        let too_long = "a".repeat(250);
        for name in ["", ".", "..", "a b", "a/b", "a\0", "é", "a\n", &too_long] {
            assert!(!is_valid_topic_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_topic_id_prints_as_kafka_prints_it() {
        let id = TopicId(*b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff");
        assert_eq!(id.to_string(), "AAECAwQFBgcICQoLDA0O_w");
        assert_eq!(TopicId::parse("AAECAwQFBgcICQoLDA0O_w"), Some(id));
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId::parse("too short"), None);
        assert_eq!(TopicId::parse("AAECAwQFBgcICQoLDA0O.w"), None);
    }

    #[test]
    fn a_damaged_id_is_known_from_that_of_another_topic() {
        let id = TopicId(*b"0123456789abcdef");
        let text = id.to_string();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            let changed = TopicId::parse(std::str::from_utf8(&changed).unwrap()).unwrap();
            assert!(changed == id || changed.is_damaged(id), "character {at}");
        }
        assert!(!TopicId(*b"fedcba9876543210").is_damaged(id));
        assert!(!id.is_damaged(id));
    }
}
