//! What there is to say about a configuration file before a broker starts with it: keys that nobody
//! knows, keys of the past, keys without a use here, values that do not work; each with what to do.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{self, Honour};
use super::values::BrokerValues;
use super::{BrokerConfig, ConfigError, effective, properties, refusals};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing to do.
    Note,
    /// The broker starts, and does not do what the file may mean.
    Warning,
    /// The broker does not start.
    Error,
}

/// What kind of trouble a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unknown,
    Twice,
    Deprecated,
    /// Of Kafka's own quorum or of ZooKeeper, in whose place the registry stands.
    Quorum,
    Ignored,
    /// Accepted, shown, and without an effect.
    NoEffect,
    Wrong,
}

impl Kind {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Twice => "twice",
            Self::Deprecated => "deprecated",
            Self::Quorum => "quorum",
            Self::Ignored => "ignored",
            Self::NoEffect => "no effect",
            Self::Wrong => "wrong",
        }
    }
}

/// One thing to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// From 1; `None`: the key is not in the file.
    pub line: Option<usize>,
    pub key: String,
    /// Secrets are hidden.
    pub value: String,
    pub severity: Severity,
    pub kind: Kind,
    pub message: String,
    /// What to do about it; empty: nothing.
    pub fix: String,
}

/// Keys of the past: what became of them, and what to write instead.
const DEPRECATED: &[(&str, &str, &str)] = &[
    (
        "advertised.host.name",
        "removed in Kafka 3.0",
        "set advertised.listeners=PLAINTEXT://HOST:PORT",
    ),
    (
        "advertised.port",
        "removed in Kafka 3.0",
        "set advertised.listeners=PLAINTEXT://HOST:PORT",
    ),
    (
        "broker.id",
        "the old name of node.id",
        "write node.id instead",
    ),
    (
        "broker.id.generation.enable",
        "of ZooKeeper's days",
        "remove it and set node.id",
    ),
    (
        "control.plane.listener.name",
        "removed in Kafka 4.0",
        "remove it",
    ),
    (
        "host.name",
        "removed in Kafka 3.0",
        "set listeners=PLAINTEXT://HOST:PORT",
    ),
    (
        "inter.broker.protocol.version",
        "removed in Kafka 4.0: brokers agree by themselves",
        "remove it",
    ),
    (
        "log.message.downconversion.enable",
        "removed in Kafka 4.0",
        "remove it",
    ),
    (
        "log.message.format.version",
        "removed in Kafka 4.0: there is one format",
        "remove it",
    ),
    (
        "log.message.timestamp.difference.max.ms",
        "removed in Kafka 4.0",
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
    ),
    (
        "port",
        "removed in Kafka 3.0",
        "set listeners=PLAINTEXT://HOST:PORT",
    ),
    (
        "quota.consumer.default",
        "removed in Kafka 3.0",
        "remove it: quotas are dynamic, and not there yet",
    ),
    (
        "quota.producer.default",
        "removed in Kafka 3.0",
        "remove it: quotas are dynamic, and not there yet",
    ),
];

/// After so many values that do not work together the search ends.
const CROSS_CHECKS_MAX: usize = 20;

/// Reads a file as the broker would, and says everything at once. `overrides` replace its values.
pub fn explain(text: &str, overrides: &[(String, String)]) -> Vec<Finding> {
    let mut statics: BTreeMap<String, (Option<usize>, String)> = BTreeMap::new();
    let mut findings = Vec::new();
    for (line, key, value) in properties::parse_lines(text) {
        if let Some((Some(first), _)) = statics.get(&key) {
            findings.push(Finding {
                message: format!("it stands in line {first} as well, which has no effect"),
                fix: format!("remove line {first}"),
                ..finding(Some(line), &key, &value, Severity::Warning, Kind::Twice)
            });
        }
        statics.insert(key, (Some(line), value));
    }
    for (key, value) in overrides {
        statics.insert(key.clone(), (None, value.clone()));
    }
    for (key, (line, value)) in &statics {
        findings.extend(by_itself(*line, key, value));
    }
    let errors = together(&statics);
    findings.retain(|one: &Finding| errors.iter().all(|error| error.key != one.key));
    findings.extend(errors);
    findings.sort_by(|a, b| {
        let place = |one: &Finding| (one.line.unwrap_or(0), one.key.clone());
        place(a).cmp(&place(b))
    });
    findings
}

fn finding(line: Option<usize>, key: &str, value: &str, severity: Severity, kind: Kind) -> Finding {
    let value = match effective::is_secret(key) && keys::broker_key(key).is_some() {
        true => "[hidden]",
        false => value,
    };
    Finding {
        line,
        key: key.to_string(),
        value: value.to_string(),
        severity,
        kind,
        message: String::new(),
        fix: String::new(),
    }
}

/// What can be said of a key alone.
fn by_itself(line: Option<usize>, name: &str, value: &str) -> Option<Finding> {
    let say = |severity, kind, message: String, fix: &str| {
        Some(Finding {
            message,
            fix: fix.to_string(),
            ..finding(line, name, value, severity, kind)
        })
    };
    if let Some((_, what, fix)) = DEPRECATED.iter().find(|(key, ..)| *key == name) {
        return say(
            Severity::Warning,
            Kind::Deprecated,
            (*what).to_string(),
            fix,
        );
    }
    if is_of_the_quorum(name) {
        let what =
            "the registry (embedded, or etcd) is in place of Kafka's quorum: this has no effect";
        return say(Severity::Note, Kind::Quorum, what.to_string(), "");
    }
    let key = keys::broker_key(name).or_else(|| listener_key(name));
    let Some(key) = key else {
        if name.starts_with("config.providers.") {
            return None;
        }
        let (message, fix) = unknown(name);
        return say(Severity::Warning, Kind::Unknown, message, &fix);
    };
    if let Err(violation) = key.parse(value)
        && !value.contains("${")
    {
        let message = format!("the value does not work: {}", key.documentation);
        return say(Severity::Error, Kind::Wrong, message, &violation.fix);
    }
    let is_default = key.default == Some(value);
    match key.honour {
        _ if is_default => None,
        Honour::Act => None,
        Honour::Accept => say(
            Severity::Note,
            Kind::NoEffect,
            format!(
                "accepted and shown; it changes nothing here. {}",
                key.documentation
            ),
            "",
        ),
        Honour::Ignore => say(
            Severity::Warning,
            Kind::Ignored,
            format!("there is no such thing here. {}", key.documentation),
            "remove it, if nothing else reads the file",
        ),
    }
}

/// The key behind `listener.name.<name>.<key>`, where it can be set for a listener.
fn listener_key(name: &str) -> Option<&'static keys::Key> {
    let (_, base) = name.strip_prefix("listener.name.")?.split_once('.')?;
    keys::broker_key(base).or_else(|| {
        // `<mechanism>.sasl.jaas.config`
        keys::broker_key(base.split_once('.')?.1)
    })
}

/// KRaft's and ZooKeeper's keys.
pub fn is_of_the_quorum(name: &str) -> bool {
    const PREFIXES: [&str; 6] = [
        "controller.quorum.",
        "metadata.log.",
        "metadata.max.",
        "controller.performance.",
        "internal.metadata.",
        "zookeeper.",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || matches!(
            name,
            "process.roles" | "controller.listener.names" | "controller.socket.timeout.ms"
        )
}

/// A key that nobody knows, and the one that may be meant.
fn unknown(name: &str) -> (String, String) {
    if keys::topic_key(name).is_some()
        && let Some(source) = keys::topic_sources(name).first()
    {
        return (
            "that is a key of topics, not of brokers".to_string(),
            format!("write {}: it is the default for all topics", source.name),
        );
    }
    let message = "nobody knows this key: it has no effect".to_string();
    match nearest(name) {
        Some(known) => (message, format!("is {known} meant?")),
        None => (
            message,
            "remove it, if nothing else reads the file".to_string(),
        ),
    }
}

/// The known key that is most like `name`, if one is like it at all.
pub fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.trim().to_lowercase().replace(['_', '-'], ".");
    let most = (lower.len() / 5).clamp(1, 6);
    keys::broker_keys()
        .filter(|key| !key.is_internal())
        .map(|key| (distance(&lower, key.name), key.name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

/// Letters to insert, remove, replace or swap with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

/// What values do not do together. Values that do not work by themselves are told already, and left out.
fn together(statics: &BTreeMap<String, (Option<usize>, String)>) -> Vec<Finding> {
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for (key, (_, value)) in statics {
        let parsed = keys::broker_key(key).map(|key| key.parse(value));
        match parsed {
            Some(Ok(canonical)) => values.insert(key.clone(), canonical),
            Some(Err(_)) => None,
            None => values.insert(key.clone(), value.clone()),
        };
    }
    let mut findings: Vec<Finding> = Vec::new();
    let mut told = BTreeSet::new();
    let refused = |error: ConfigError| {
        let line = statics.get(&error.key).and_then(|(line, _)| *line);
        Finding {
            message: "the broker does not start with it".to_string(),
            fix: error.fix,
            ..finding(line, &error.key, &error.value, Severity::Error, Kind::Wrong)
        }
    };
    for error in refusals::of(&values) {
        values.remove(&error.key);
        findings.push(refused(error));
    }
    for _ in 0..CROSS_CHECKS_MAX {
        let Err(error) = BrokerConfig::from_values(BrokerValues::new(values.clone())) else {
            break;
        };
        let key = error.key.clone();
        findings.push(refused(error));
        // Without it the rest can be looked at; where it comes again it is not in the file.
        if values.remove(&key).is_none() || !told.insert(key) {
            break;
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn told(text: &str) -> Vec<String> {
        explain(text, &[])
            .into_iter()
            .map(|one| {
                let line = one.line.map_or(0, |line| line);
                format!("{line} {} {}: {}", one.kind.word(), one.key, one.fix)
            })
            .collect()
    }

    #[test]
    fn a_file_that_is_fine_has_nothing_said_about_it() {
        let built_in = explain(load::BUILT_IN, &[]);
        assert!(
            built_in.iter().all(|one| one.severity == Severity::Note),
            "{built_in:?}"
        );
        assert_eq!(
            told("# nothing\n\nnum.partitions = 3\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn every_kind_of_trouble_is_explained() {
        let text = "num.partition=3\n\
                    broker.id=4\n\
                    process.roles=broker,controller\n\
                    retention.ms=5\n\
                    num.partitions=x\n\
                    num.partitions=0\n\
                    metric.reporters=com.example.Reporter\n\
                    num.io.threads=4\n\
                    what.is.this.supposed.to.mean=1\n\
                    log.dirs=/a,\\\n  /b\n\
                    zookeeper.connect=z:2181\n\
                    config.providers=env\n";
        assert_eq!(
            told(text),
            [
                "1 unknown num.partition: is num.partitions meant?",
                "2 deprecated broker.id: write node.id instead",
                "3 quorum process.roles: ",
                "4 unknown retention.ms: write log.retention.ms: it is the default for all topics",
                "6 twice num.partitions: remove line 5",
                "6 wrong num.partitions: give a whole number of at least 1",
                "7 ignored metric.reporters: remove it, if nothing else reads the file",
                "8 no effect num.io.threads: ",
                "9 unknown what.is.this.supposed.to.mean: remove it, if nothing else reads the file",
                "12 quorum zookeeper.connect: ",
            ]
        );
    }

    #[test]
    fn all_that_does_not_work_together_is_told_at_once() {
        let text = "listeners=SSL://:9093\n\
                    etcd.user=me\n\
                    etcd.endpoints=http://e:2379\n\
                    node.id=1\n\
                    replica.fetch.wait.max.ms=50000\n";
        let found = explain(text, &[]);
        let errors: Vec<_> = found
            .iter()
            .filter(|one| one.severity == Severity::Error)
            .map(|one| (one.line, one.key.as_str()))
            .collect();
        assert_eq!(
            errors,
            [
                (Some(1), "listeners"),
                (Some(2), "etcd.user"),
                (Some(5), "replica.fetch.wait.max.ms")
            ]
        );
        assert!(
            found[0].fix.contains("SSL is not supported yet"),
            "{found:?}"
        );
    }

    #[test]
    fn what_cannot_be_had_here_is_refused_by_name() {
        assert_eq!(
            told("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n")
                .iter()
                .map(|line| line.split(':').next().unwrap())
                .collect::<Vec<_>>(),
            ["1 wrong authorizer.class.name"]
        );
        let roles = told("process.roles=controller\n");
        assert_eq!(roles.len(), 1);
        assert!(
            roles[0].starts_with("1 wrong process.roles: there are no controllers"),
            "{roles:?}"
        );
    }

    #[test]
    fn secrets_are_not_repeated() {
        let found = explain("etcd.password=hush\nssl.key.password=hush\n", &[]);
        assert!(!found.is_empty());
        assert!(
            found.iter().all(|one| !format!("{one:?}").contains("hush")),
            "{found:?}"
        );
    }

    #[test]
    fn overrides_count_and_have_no_line() {
        let found = explain(
            "num.partitions=3\n",
            &[("num.partitions".into(), "x".into())],
        );
        assert_eq!((found.len(), found[0].line), (1, None));
    }

    #[test]
    fn what_is_written_nearly_right_is_recognised() {
        assert_eq!(nearest("num.partiitons"), Some("num.partitions"));
        assert_eq!(nearest("log_retention_hours"), Some("log.retention.hours"));
        assert_eq!(nearest("Listeners"), Some("listeners"));
        assert_eq!(nearest("advertised.listener"), Some("advertised.listeners"));
        assert_eq!(nearest("x"), None);
        assert_eq!(nearest("completely.different"), None);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
