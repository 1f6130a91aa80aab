//! Is this text a value of that key? Kafka's rules, and Kafka's sentences where it is not.

use super::{Key, Kind};

/// What a value must fulfil beyond being of its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Check {
    Any,
    NonEmpty,
    AtLeast(i64),
    /// Both ends included.
    Range(i64, i64),
    Ratio(f64, f64),
    OneOf(&'static [&'static str]),
    OneOfNoCase(&'static [&'static str]),
    /// Each element of a list; the list is not empty and names nothing twice.
    EachOf(&'static [&'static str]),
    /// −1 or 1 to 9.
    GzipLevel,
    /// `partition:broker,…` or `*`.
    ThrottledReplicas,
    /// `earliest`, `latest` or `by_duration:` with an ISO 8601 duration.
    OffsetReset,
}

/// Why a value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub value: String,
    /// What Kafka says after "Invalid value x for configuration y: ".
    pub reason: String,
    /// What to give instead.
    pub fix: String,
}

impl Violation {
    /// The whole sentence, as Kafka puts it into its responses.
    pub fn kafka_message(&self, key: &str) -> String {
        format!(
            "Invalid value {} for configuration {key}: {}",
            self.value, self.reason
        )
    }
}

impl Key {
    /// Checks `text` and brings it into its canonical form: trimmed, numbers without leading zeros,
    /// lists without spaces.
    pub fn parse(&self, text: &str) -> Result<String, Violation> {
        let text = text.trim();
        let fail = |reason: String| Violation {
            value: text.to_string(),
            reason,
            fix: self.fix(),
        };
        let canonical = match self.kind {
            Kind::Boolean => match text.to_ascii_lowercase().as_str() {
                value @ ("true" | "false") => value.to_string(),
                _ => {
                    return Err(fail(
                        "Expected value to be either true or false".to_string(),
                    ));
                }
            },
            Kind::Int => integer::<i32>(text, "INT").map_err(fail)?,
            Kind::Short => integer::<i16>(text, "SHORT").map_err(fail)?,
            Kind::Long => integer::<i64>(text, "LONG").map_err(fail)?,
            Kind::Double => match text.parse::<f64>() {
                Ok(number) if !number.is_nan() => text.to_string(),
                _ => return Err(fail("Not a number of type DOUBLE".to_string())),
            },
            Kind::List => self.list(text),
            Kind::String | Kind::Class | Kind::Password | Kind::Unknown => text.to_string(),
        };
        match self.check.violated_by(self.name, &canonical) {
            None => Ok(canonical),
            Some((value, reason)) => Err(Violation {
                value,
                reason,
                fix: self.fix(),
            }),
        }
    }

    /// The elements without spaces; of a list of fixed names, each once.
    fn list(&self, text: &str) -> String {
        let mut kept: Vec<&str> = Vec::new();
        for element in elements(text) {
            if !matches!(self.check, Check::EachOf(_)) || !kept.contains(&element) {
                kept.push(element);
            }
        }
        kept.join(",")
    }

    /// What a value has to be, in words.
    fn fix(&self) -> String {
        match self.check {
            Check::AtLeast(min) => format!("give a whole number of at least {min}"),
            Check::Range(min, max) => format!("give a whole number from {min} to {max}"),
            Check::Ratio(min, max) => format!("give a number from {min} to {max}"),
            Check::OneOf(names) | Check::OneOfNoCase(names) => {
                format!("give one of {}", names.join(", "))
            }
            Check::EachOf(names) => format!("give one or more of {}", names.join(", ")),
            Check::GzipLevel => "give -1 or a number from 1 to 9".to_string(),
            Check::ThrottledReplicas => {
                "give pairs as partition:broker, separated by commas, or *".to_string()
            }
            Check::OffsetReset => "give earliest, latest or by_duration:PnDTnHnMn.nS".to_string(),
            Check::NonEmpty => "give a text that is not empty".to_string(),
            Check::Any => match self.kind {
                Kind::Boolean => "give true or false".to_string(),
                Kind::Int => "give a whole number of 32 bits".to_string(),
                Kind::Short => "give a whole number of 16 bits".to_string(),
                Kind::Long => "give a whole number of 64 bits".to_string(),
                Kind::Double => "give a number".to_string(),
                _ => "see the documentation of the key".to_string(),
            },
        }
    }
}

/// The elements of a list, trimmed. The empty text is the empty list.
pub(crate) fn elements(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    let empty = text.is_empty();
    text.split(',').map(str::trim).filter(move |_| !empty)
}

/// The canonical text of a whole number, or Kafka's reason.
fn integer<T: std::str::FromStr + std::fmt::Display>(
    text: &str,
    kind: &str,
) -> Result<String, String> {
    text.parse::<T>()
        .map(|number| number.to_string())
        .map_err(|_| format!("Not a number of type {kind}"))
}

impl Check {
    /// The offending value and Kafka's reason, if `value` (canonical) of the key `name` does not pass.
    fn violated_by(self, name: &str, value: &str) -> Option<(String, String)> {
        let fault = |reason: String| Some((value.to_string(), reason));
        match self {
            Self::Any => None,
            Self::NonEmpty if value.is_empty() => fault("String must be non-empty".to_string()),
            Self::NonEmpty => None,
            Self::AtLeast(min) => out_of_range(value, min, i64::MAX),
            Self::Range(min, max) => out_of_range(value, min, max),
            Self::Ratio(min, max) => out_of_ratio(value, min, max),
            Self::OneOf(names) if names.contains(&value) => None,
            Self::OneOf(names) => fault(one_of(names)),
            Self::OneOfNoCase(names) if names.iter().any(|n| n.eq_ignore_ascii_case(value)) => None,
            Self::OneOfNoCase(names) => fault(format!(
                "String must be one of (case insensitive): {}",
                names.join(", ")
            )),
            Self::EachOf(names) => elements(value)
                .find(|element| !names.contains(element))
                .map(|element| (element.to_string(), one_of(names))),
            Self::GzipLevel if value == "-1" || matches!(value.parse(), Ok(1..=9)) => None,
            Self::GzipLevel => fault("Value must be between 1 and 9 or equal to -1".to_string()),
            Self::ThrottledReplicas if is_throttled_replicas(value) => None,
            Self::ThrottledReplicas => Some((
                format!("[{}]", value.replace(',', ", ")),
                format!(
                    "{name} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                ),
            )),
            Self::OffsetReset if is_offset_reset(value) => None,
            Self::OffsetReset => fault(format!(
                "Invalid value `{value}` for configuration {name}. The value must be either \
                 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            )),
        }
    }
}

fn one_of(names: &[&str]) -> String {
    format!("String must be one of: {}", names.join(", "))
}

fn out_of_range(value: &str, min: i64, max: i64) -> Option<(String, String)> {
    let number = value.parse::<i64>().ok()?;
    if number < min {
        return Some((value.to_string(), format!("Value must be at least {min}")));
    }
    (number > max).then(|| {
        (
            value.to_string(),
            format!("Value must be no more than {max}"),
        )
    })
}

/// Bounds are printed as they are in Kafka: without a fraction where there is none, unlike the value.
fn out_of_ratio(value: &str, min: f64, max: f64) -> Option<(String, String)> {
    let number = value.parse::<f64>().ok()?;
    if number < min {
        return Some((
            format!("{number:?}"),
            format!("Value must be at least {min}"),
        ));
    }
    (number > max).then(|| {
        (
            format!("{number:?}"),
            format!("Value must be no more than {max}"),
        )
    })
}

fn is_throttled_replicas(value: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    value == "*"
        || elements(value).all(|element| {
            element
                .split_once(':')
                .is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
        })
}

fn is_offset_reset(value: &str) -> bool {
    let duration = value.strip_prefix("by_duration:");
    matches!(value, "earliest" | "latest")
        || duration.is_some_and(|text| text.starts_with('P') && text.len() > 2)
}

#[cfg(test)]
mod tests {
    use crate::config::keys::{group_key, topic_key};

    /// Each as Apache Kafka 4.4 answered it.
    #[test]
    fn refusals_are_kafkas() {
        let cases = [
            (
                "retention.ms",
                "abc",
                "Invalid value abc for configuration retention.ms: Not a number of type LONG",
            ),
            (
                "retention.ms",
                "-2",
                "Invalid value -2 for configuration retention.ms: Value must be at least -1",
            ),
            (
                "retention.ms",
                "",
                "Invalid value  for configuration retention.ms: Not a number of type LONG",
            ),
            (
                "preallocate",
                "yes",
                "Invalid value yes for configuration preallocate: Expected value to be either true or false",
            ),
            (
                "min.cleanable.dirty.ratio",
                "x",
                "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
            ),
            (
                "min.cleanable.dirty.ratio",
                "2",
                "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
            ),
            (
                "min.cleanable.dirty.ratio",
                "-1",
                "Invalid value -1.0 for configuration min.cleanable.dirty.ratio: Value must be at least 0",
            ),
            (
                "cleanup.policy",
                "delete,foo",
                "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
            ),
            (
                "compression.type",
                "brotli",
                "Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
            ),
            (
                "compression.gzip.level",
                "0",
                "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
            ),
            (
                "compression.lz4.level",
                "99",
                "Invalid value 99 for configuration compression.lz4.level: Value must be no more than 17",
            ),
            (
                "leader.replication.throttled.replicas",
                "a:b",
                "Invalid value [a:b] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            ),
        ];
        for (name, value, message) in cases {
            let violation = topic_key(name).unwrap().parse(value).unwrap_err();
            assert_eq!(violation.kafka_message(name), message);
            assert!(!violation.fix.is_empty());
        }
        let reset = group_key("share.auto.offset.reset").unwrap();
        let violation = reset.parse("x").unwrap_err();
        assert!(
            violation
                .reason
                .starts_with("Invalid value `x` for configuration")
        );
        assert!(reset.parse("by_duration:PT1H").is_ok());
    }

    #[test]
    fn values_are_brought_into_one_form() {
        let cases = [
            ("retention.ms", " 007001 ", "7001"),
            ("preallocate", "TRUE", "true"),
            (
                "cleanup.policy",
                " compact , delete,compact ",
                "compact,delete",
            ),
            ("cleanup.policy", "", ""),
            (
                "leader.replication.throttled.replicas",
                "1:1, 2:2",
                "1:1,2:2",
            ),
            ("leader.replication.throttled.replicas", "*", "*"),
            ("compression.gzip.level", "-1", "-1"),
        ];
        for (name, value, canonical) in cases {
            assert_eq!(topic_key(name).unwrap().parse(value).unwrap(), canonical);
        }
    }
}
