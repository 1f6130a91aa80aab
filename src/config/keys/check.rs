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
            Kind::List => elements(text).collect::<Vec<_>>().join(","),
            Kind::String | Kind::Class | Kind::Password | Kind::Unknown => text.to_string(),
        };
        match self.check.violated_by(&canonical) {
            None => Ok(canonical),
            Some((value, reason)) => Err(Violation {
                value,
                reason,
                fix: self.fix(),
            }),
        }
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
    /// The offending value and Kafka's reason, if `value` (canonical) does not pass.
    fn violated_by(self, value: &str) -> Option<(String, String)> {
        let whole = || Some(value.to_string());
        match self {
            Self::Any => None,
            Self::NonEmpty => value
                .is_empty()
                .then(|| (String::new(), "String must be non-empty".to_string())),
            Self::AtLeast(min) => too_small(value, min),
            Self::Range(min, max) => too_small(value, min).or_else(|| {
                let number = value.parse::<i64>().ok()?;
                (number > max).then(|| {
                    (
                        value.to_string(),
                        format!("Value must be no more than {max}"),
                    )
                })
            }),
            Self::Ratio(min, max) => {
                let number = value.parse::<f64>().ok()?;
                if number < min {
                    return Some((whole()?, format!("Value must be at least {}", short(min))));
                }
                (number > max).then(|| {
                    (
                        value.to_string(),
                        format!("Value must be no more than {}", short(max)),
                    )
                })
            }
            Self::OneOf(names) => (!names.contains(&value)).then(|| {
                (
                    value.to_string(),
                    format!("String must be one of: {}", names.join(", ")),
                )
            }),
            Self::OneOfNoCase(names) => {
                (!names.iter().any(|name| name.eq_ignore_ascii_case(value))).then(|| {
                    (
                        value.to_string(),
                        format!(
                            "String must be one of (case insensitive): {}",
                            names.join(", ")
                        ),
                    )
                })
            }
            Self::EachOf(names) => each_of(value, names),
            Self::GzipLevel => {
                (value != "-1" && !matches!(value.parse::<i64>(), Ok(1..=9))).then(|| {
                    (
                        value.to_string(),
                        "Value must be between 1 and 9 or equal to -1".to_string(),
                    )
                })
            }
            Self::ThrottledReplicas => throttled_replicas(value),
            Self::OffsetReset => (!matches!(value, "earliest" | "latest")
                && !value
                    .strip_prefix("by_duration:")
                    .is_some_and(|rest| rest.starts_with('P') && rest.len() > 2))
            .then(|| {
                (
                    value.to_string(),
                    "Invalid value for share.auto.offset.reset".to_string(),
                )
            }),
        }
    }
}

/// Kafka writes its bounds of ratios as whole numbers where they are.
fn short(bound: f64) -> String {
    format!("{bound}")
}

fn too_small(value: &str, min: i64) -> Option<(String, String)> {
    let number = value.parse::<i64>().ok()?;
    (number < min).then(|| (value.to_string(), format!("Value must be at least {min}")))
}

fn each_of(value: &str, names: &[&str]) -> Option<(String, String)> {
    let mut seen = Vec::new();
    for element in elements(value) {
        if !names.contains(&element) {
            return Some((
                element.to_string(),
                format!("String must be one of: {}", names.join(", ")),
            ));
        }
        if seen.contains(&element) {
            return Some((
                format!("[{}]", value.replace(',', ", ")),
                "Duplicate values are not allowed".to_string(),
            ));
        }
        seen.push(element);
    }
    None
}

fn throttled_replicas(value: &str) -> Option<(String, String)> {
    let pair = |element: &str| {
        element.split_once(':').is_some_and(|(partition, broker)| {
            [partition, broker]
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    (value != "*" && !elements(value).all(pair)).then(|| {
        (
            value.to_string(),
            "must be the literal '*' or a list of replicas in the following format: \
             [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                .to_string(),
        )
    })
}
