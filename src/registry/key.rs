//! The layout of the registry's keys: one key per fact. Pure.
//!
//! ```text
//! /layout                         version of this layout
//! /cluster/id                     22 characters of base64url
//! /cluster/imported               which import made this registry, if one did
//! /brokers/<id>                   lease; endpoints, rack; its create revision is the broker epoch
//! /brokers-meta/<id>              the last registration of a broker, and whether it ended well
//! /controller                     lease; the broker that is the controller
//! /epoch/controller               counts controllers
//! /topics/<name>                  id, replica lists, configs
//! /partitions/<topic id>/<n>      leader, leader epoch, isr, partition epoch
//! /config/brokers/<id>            dynamic configs of one broker
//! /config/broker-defaults         dynamic configs of every broker
//! /config/groups/<group>          configs of a group
//! /config/client-metrics/<name>   a client metrics subscription
//! /producer_ids/next              the first producer id that no broker holds
//! ```
//! Names are percent-escaped down to `[A-Za-z0-9._-]`, so that no name contains a `/` or is mistaken
//! for another key. Under etcd all of them stand behind `etcd.prefix`.

use std::fmt::{self, Write as _};

use crate::types::{BrokerId, PartitionId, TopicId, TopicName};

/// The version of this layout, behind `/layout`. A broker that finds a higher one does not start.
pub const LAYOUT: i32 = 1;

/// A fact's place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Layout,
    ClusterId,
    Imported,
    Broker(BrokerId),
    BrokerMeta(BrokerId),
    Controller,
    ControllerEpoch,
    Topic(TopicName),
    Partition(TopicId, PartitionId),
    BrokerConfig(BrokerId),
    BrokerDefaults,
    GroupConfig(String),
    ClientMetrics(String),
    ProducerIdsNext,
}

impl Key {
    /// Returns the fact that `key` holds, or `None` for a key that is not written like this.
    pub fn parse(key: &str) -> Option<Self> {
        Some(match key {
            "/layout" => Self::Layout,
            "/cluster/id" => Self::ClusterId,
            "/cluster/imported" => Self::Imported,
            "/controller" => Self::Controller,
            "/epoch/controller" => Self::ControllerEpoch,
            "/config/broker-defaults" => Self::BrokerDefaults,
            "/producer_ids/next" => Self::ProducerIdsNext,
            _ => {
                let (folder, name) = key.rsplit_once('/')?;
                match folder {
                    "/brokers" => Self::Broker(BrokerId(number(name)?)),
                    "/brokers-meta" => Self::BrokerMeta(BrokerId(number(name)?)),
                    "/topics" => Self::Topic(unescape(name)?.into()),
                    "/config/brokers" => Self::BrokerConfig(BrokerId(number(name)?)),
                    "/config/groups" => Self::GroupConfig(unescape(name)?),
                    "/config/client-metrics" => Self::ClientMetrics(unescape(name)?),
                    _ => {
                        let topic = TopicId::parse(folder.strip_prefix("/partitions/")?)?;
                        Self::Partition(topic, number(name)?)
                    }
                }
            }
        })
    }

    /// What all partition keys of a topic begin with.
    pub fn partitions_of(topic: TopicId) -> String {
        format!("/partitions/{topic}/")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout => f.write_str("/layout"),
            Self::ClusterId => f.write_str("/cluster/id"),
            Self::Imported => f.write_str("/cluster/imported"),
            Self::Broker(id) => write!(f, "/brokers/{id}"),
            Self::BrokerMeta(id) => write!(f, "/brokers-meta/{id}"),
            Self::Controller => f.write_str("/controller"),
            Self::ControllerEpoch => f.write_str("/epoch/controller"),
            Self::Topic(name) => write!(f, "/topics/{}", Escaped(name)),
            Self::Partition(topic, partition) => write!(f, "/partitions/{topic}/{partition}"),
            Self::BrokerConfig(id) => write!(f, "/config/brokers/{id}"),
            Self::BrokerDefaults => f.write_str("/config/broker-defaults"),
            Self::GroupConfig(group) => write!(f, "/config/groups/{}", Escaped(group)),
            Self::ClientMetrics(name) => write!(f, "/config/client-metrics/{}", Escaped(name)),
            Self::ProducerIdsNext => f.write_str("/producer_ids/next"),
        }
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

/// Reads a number that is written the one way `Display` writes it: no sign `+`, no leading zero.
fn number(text: &str) -> Option<i32> {
    let number: i32 = text.parse().ok()?;
    (number >= 0 && number.to_string() == text).then_some(number)
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if is_plain(byte) {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let high = upper_hex(rest.next()?)?;
                let low = upper_hex(rest.next()?)?;
                let byte = high << 4 | low;
                if is_plain(byte) {
                    return None; // the same name must not have two keys
                }
                bytes.push(byte);
            }
            byte if is_plain(byte) => bytes.push(byte),
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn upper_hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_written_as_the_layout_says() {
        let id = TopicId(*b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff");
        for (key, text) in [
            (Key::ClusterId, "/cluster/id"),
            (Key::Broker(BrokerId(3)), "/brokers/3"),
            (Key::BrokerMeta(BrokerId(3)), "/brokers-meta/3"),
            (Key::Topic("a.b_c-d".into()), "/topics/a.b_c-d"),
            (
                Key::Partition(id, 17),
                "/partitions/AAECAwQFBgcICQoLDA0O_w/17",
            ),
            (
                Key::GroupConfig("a/b ü".into()),
                "/config/groups/a%2Fb%20%C3%BC",
            ),
            (Key::GroupConfig(String::new()), "/config/groups/"),
            (Key::BrokerDefaults, "/config/broker-defaults"),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(Key::parse(text), Some(key));
        }
        assert_eq!(
            Key::partitions_of(id),
            "/partitions/AAECAwQFBgcICQoLDA0O_w/"
        );
    }

    #[test]
    fn what_is_written_otherwise_is_no_key() {
        for text in [
            "",
            "/",
            "/brokers/",
            "/brokers/+1",
            "/brokers/01",
            "/brokers/-1",
            "/topics/a/b",
            "/topics/a b",
            "/topics/%61",
            "/topics/%2f",
            "/topics/%F",
            "/topics/%FF",
            "/partitions/short/1",
            "/partitions/AAECAwQFBgcICQoLDA0O_w/x",
            "/cluster/other",
        ] {
            assert_eq!(Key::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_name_comes_back_and_stays_in_its_folder(name in ".*") {
            let text = Key::GroupConfig(name.clone()).to_string();
            prop_assert_eq!(text.matches('/').count(), 3);
            prop_assert_eq!(Key::parse(&text), Some(Key::GroupConfig(name)));
        }

        #[test]
        fn parsing_accepts_only_what_display_writes(text in "/(topics|config/groups|brokers|partitions)/[a-zA-Z0-9%/+-]{0,30}") {
            if let Some(key) = Key::parse(&text) {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
