//! Every key that is known, with its type, default, bounds, and what this broker does with it.
//!
//! The names, types, defaults and bounds are Kafka's, except that `log.flush.interval.messages` is 1
//! here, and that the keys of [`is_ours`] are ours.

mod check;
mod cluster;
mod coordinators;
mod group;
mod network;
mod security;
mod storage;
mod synonyms;
mod tiered;
mod topic;

pub(crate) use check::elements;
pub use check::{Check, Violation};
pub use synonyms::{BrokerSource, broker_synonyms, group_synonym, topic_sources};

/// The type of a value, as DescribeConfigs numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unknown = 0,
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

impl Kind {
    /// The number on the wire.
    pub fn code(self) -> i8 {
        self as i8
    }
}

/// What this broker does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honour {
    /// Acts on it.
    Act,
    /// Accepts and shows it; there is nothing here that it would change, or not yet.
    Accept,
    /// Has no such thing: says so once at the start.
    Ignore,
}

/// Whether a broker key can be changed while the broker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    ReadOnly,
    /// On one broker, not for all of them.
    PerBroker,
    /// On one broker or for all of them.
    Dynamic,
    /// Read-only, and DescribeConfigs shows it only where the file sets it.
    Internal,
    /// Dynamic, and shown only where it is set.
    InternalDynamic,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// `None`: no value.
    pub default: Option<&'static str>,
    pub check: Check,
    pub honour: Honour,
    pub scope: Scope,
    pub documentation: &'static str,
}

impl Key {
    /// Passwords, whose values are never shown.
    pub fn is_sensitive(&self) -> bool {
        self.kind == Kind::Password
    }

    /// Shown only where it is set.
    pub fn is_internal(&self) -> bool {
        matches!(self.scope, Scope::Internal | Scope::InternalDynamic)
    }

    /// Can be changed while the broker runs.
    pub fn is_dynamic(&self) -> bool {
        !matches!(self.scope, Scope::ReadOnly | Scope::Internal)
    }
}

/// `TYPE "name" = "default" or null, check, Y|A|I, scope, "documentation";`, one constant a table.
macro_rules! keys {
    ($table:ident: $($kind:ident $name:literal = $default:tt, $check:expr, $honour:ident, $scope:ident, $doc:literal;)*) => {
        pub(super) const $table: &[super::Key] = {
            #[allow(unused_imports)]
            use super::Check::*;
            &[$(super::Key {
                name: $name,
                kind: keys!(@kind $kind),
                default: keys!(@default $default),
                check: $check,
                honour: keys!(@honour $honour),
                scope: super::Scope::$scope,
                documentation: $doc,
            },)*]
        };
    };
    (@kind BOOLEAN) => { super::Kind::Boolean };
    (@kind STRING) => { super::Kind::String };
    (@kind INT) => { super::Kind::Int };
    (@kind SHORT) => { super::Kind::Short };
    (@kind LONG) => { super::Kind::Long };
    (@kind DOUBLE) => { super::Kind::Double };
    (@kind LIST) => { super::Kind::List };
    (@kind CLASS) => { super::Kind::Class };
    (@kind PASSWORD) => { super::Kind::Password };
    (@honour Y) => { super::Honour::Act };
    (@honour A) => { super::Honour::Accept };
    (@honour I) => { super::Honour::Ignore };
    (@default null) => { None };
    (@default $value:literal) => { Some($value) };
}
use keys;

const BROKER_TABLES: [&[Key]; 6] = [
    cluster::CLUSTER,
    coordinators::COORDINATORS,
    network::NETWORK,
    security::SECURITY,
    storage::STORAGE,
    tiered::TIERED,
];

/// Every broker key.
pub fn broker_keys() -> impl Iterator<Item = &'static Key> {
    BROKER_TABLES.into_iter().flatten()
}

/// Every topic key.
pub fn topic_keys() -> &'static [Key] {
    topic::TOPIC
}

/// Every key of a group (resource type 32).
pub fn group_keys() -> &'static [Key] {
    group::GROUP
}

/// Every key of a client metrics subscription (resource type 16).
pub fn client_metrics_keys() -> &'static [Key] {
    group::CLIENT_METRICS
}

/// Looks a broker key up.
pub fn broker_key(name: &str) -> Option<&'static Key> {
    BROKER_TABLES
        .into_iter()
        .find_map(|table| find(table, name))
}

/// Looks a topic key up.
pub fn topic_key(name: &str) -> Option<&'static Key> {
    find(topic::TOPIC, name)
}

/// Looks a group key up.
pub fn group_key(name: &str) -> Option<&'static Key> {
    find(group::GROUP, name)
}

/// Looks a key of a client metrics subscription up.
pub fn client_metrics_key(name: &str) -> Option<&'static Key> {
    find(group::CLIENT_METRICS, name)
}

/// Keys that Apache Kafka does not have. They appear on brokers only.
pub fn is_ours(name: &str) -> bool {
    name.starts_with("etcd.")
        || matches!(
            name,
            "metrics.listeners"
                | "metrics.page.bytes.max"
                | "metrics.series.max"
                | "cluster.id"
                | "log.dir.reserved.bytes"
                | "log.scrub.interval.ms"
        )
}

/// The tables are sorted by name.
fn find(table: &'static [Key], name: &str) -> Option<&'static Key> {
    let index = table.binary_search_by(|key| key.name.cmp(name)).ok()?;
    table.get(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Key> {
        broker_keys()
            .chain(topic_keys())
            .chain(group_keys())
            .chain(client_metrics_keys())
    }

    #[test]
    fn every_default_passes_its_own_check_and_every_key_is_documented() {
        for key in all() {
            if let Some(default) = key.default {
                let parsed = key.parse(default).unwrap_or_else(|violation| {
                    panic!("{}: {}", key.name, violation.kafka_message(key.name))
                });
                assert_eq!(parsed, default, "{} is not in its canonical form", key.name);
            }
            assert!(
                key.documentation.len() > 15 && key.documentation.ends_with('.'),
                "{} has no documentation",
                key.name
            );
        }
    }

    #[test]
    fn tables_are_sorted_and_names_unique() {
        for table in
            BROKER_TABLES
                .into_iter()
                .chain([topic_keys(), group_keys(), client_metrics_keys()])
        {
            for pair in table.windows(2) {
                assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
            }
        }
        let mut names: Vec<_> = broker_keys().map(|key| key.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(topic_key("retention.ms").unwrap().kind, Kind::Long);
        assert!(topic_key("retention").is_none());
        assert!(broker_key("log.retention.hours").is_some());
    }
}
