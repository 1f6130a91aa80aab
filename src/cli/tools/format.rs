//! Records as text, as Kafka's `DefaultMessageFormatter` writes them.

use std::collections::BTreeMap;

use super::consume::Received;
use crate::types::TimestampType;

/// How bytes are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deserializer {
    /// As they are.
    Bytes,
    Text,
    Number {
        bytes: usize,
        name: &'static str,
    },
    Float,
    Double,
    Boolean,
    Uuid,
    Void,
}

impl Deserializer {
    /// By the name of Kafka's class; `None` for another.
    fn of_class(class: &str) -> Option<Self> {
        let name = class.strip_prefix("org.apache.kafka.common.serialization.")?;
        let number = |bytes, name| Self::Number { bytes, name };
        Some(match name {
            "ByteArrayDeserializer" | "BytesDeserializer" | "ByteBufferDeserializer" => Self::Bytes,
            "StringDeserializer" => Self::Text,
            "ShortDeserializer" => number(2, "Short"),
            "IntegerDeserializer" => number(4, "Integer"),
            "LongDeserializer" => number(8, "Long"),
            "FloatDeserializer" => Self::Float,
            "DoubleDeserializer" => Self::Double,
            "BooleanDeserializer" => Self::Boolean,
            "UUIDDeserializer" => Self::Uuid,
            "VoidDeserializer" => Self::Void,
            _ => return None,
        })
    }

    fn show(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let wrong_size = |name: &str, expected: usize| match expected {
            8 if name == "Double" => "Size of data received by Deserializer is not 8".to_owned(),
            4 if name == "Float" => "Size of data received by Deserializer is not 4".to_owned(),
            _ => format!("Size of data received by {name}Deserializer is not {expected}"),
        };
        let text = match self {
            Self::Bytes => return Ok(bytes.to_vec()),
            Self::Text => String::from_utf8_lossy(bytes).into_owned(),
            Self::Number { bytes: size, name } => {
                if bytes.len() != size {
                    return Err(wrong_size(name, size));
                }
                let negative = bytes.first().is_some_and(|first| *first >= 0x80);
                let start: i64 = if negative { -1 } else { 0 };
                let number = bytes
                    .iter()
                    .fold(start, |sum, byte| (sum << 8) | i64::from(*byte));
                number.to_string()
            }
            Self::Float => match bytes.try_into().map(f32::from_be_bytes) {
                Ok(number) => format!("{number:?}"),
                Err(_) => return Err(wrong_size("Float", 4)),
            },
            Self::Double => match bytes.try_into().map(f64::from_be_bytes) {
                Ok(number) => format!("{number:?}"),
                Err(_) => return Err(wrong_size("Double", 8)),
            },
            Self::Boolean => match bytes {
                [0] => "false".to_owned(),
                [1] => "true".to_owned(),
                [other] => {
                    return Err(format!(
                        "Unexpected byte received by BooleanDeserializer: {other}"
                    ));
                }
                _ => return Err(wrong_size("Boolean", 1)),
            },
            Self::Uuid => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                match uuid::Uuid::parse_str(&text) {
                    Ok(uuid) => uuid.to_string(),
                    Err(_) => return Err("Error parsing data into UUID".to_owned()),
                }
            }
            Self::Void => return Err("Data should be null for a VoidDeserializer.".to_owned()),
        };
        Ok(text.into_bytes())
    }
}

/// What of a record is printed, and how.
#[derive(Debug, Clone)]
pub(crate) struct RecordFormat {
    timestamp: bool,
    key: bool,
    value: bool,
    partition: bool,
    offset: bool,
    epoch: bool,
    headers: bool,
    key_separator: Vec<u8>,
    line_separator: Vec<u8>,
    headers_separator: Vec<u8>,
    null_literal: Vec<u8>,
    key_deserializer: Deserializer,
    value_deserializer: Deserializer,
    headers_deserializer: Deserializer,
    /// Classes that are not there: bytes are printed as they are.
    pub(crate) unknown_classes: Vec<String>,
}

impl RecordFormat {
    /// From the properties that Kafka's tool takes.
    pub(crate) fn new(properties: &BTreeMap<String, String>) -> Self {
        let is = |key: &str, default: bool| match properties.get(key) {
            Some(value) => value.trim().eq_ignore_ascii_case("true"),
            None => default,
        };
        let text = |key: &str, default: &str| {
            let value = properties.get(key).map_or(default, String::as_str);
            value.as_bytes().to_vec()
        };
        let mut unknown_classes = Vec::new();
        let mut deserializer = |key: &str| {
            let Some(class) = properties.get(key) else {
                return Deserializer::Bytes;
            };
            Deserializer::of_class(class).unwrap_or_else(|| {
                unknown_classes.push(class.clone());
                Deserializer::Bytes
            })
        };
        Self {
            timestamp: is("print.timestamp", false),
            key: is("print.key", false),
            value: is("print.value", true),
            partition: is("print.partition", false),
            offset: is("print.offset", false),
            epoch: is("print.epoch", false),
            headers: is("print.headers", false),
            key_separator: text("key.separator", "\t"),
            line_separator: text("line.separator", "\n"),
            headers_separator: text("headers.separator", ","),
            null_literal: text("null.literal", "null"),
            key_deserializer: deserializer("key.deserializer"),
            value_deserializer: deserializer("value.deserializer"),
            headers_deserializer: deserializer("headers.deserializer"),
            unknown_classes,
        }
    }

    /// The text of one record; why it cannot be read otherwise.
    pub(crate) fn write(&self, received: &Received) -> Result<Vec<u8>, String> {
        let record = &received.record;
        let mut out = Vec::new();
        let columns = [
            self.timestamp,
            self.partition,
            self.offset,
            self.epoch,
            self.headers,
            self.key,
            self.value,
        ];
        let end = |out: &mut Vec<u8>, column: usize| {
            let more = columns[column + 1..].contains(&true);
            out.extend_from_slice(match more {
                true => &self.key_separator,
                false => &self.line_separator,
            });
        };
        if self.timestamp {
            let kind = match record.timestamp_type {
                TimestampType::CreateTime => "CreateTime",
                TimestampType::LogAppendTime => "LogAppendTime",
            };
            out.extend_from_slice(format!("{kind}:{}", record.timestamp).as_bytes());
            end(&mut out, 0);
        }
        if self.partition {
            let text = format!("Partition:{}", received.partition.partition);
            out.extend_from_slice(text.as_bytes());
            end(&mut out, 1);
        }
        if self.offset {
            out.extend_from_slice(format!("Offset:{}", record.offset).as_bytes());
            end(&mut out, 2);
        }
        if self.epoch {
            out.extend_from_slice(format!("Epoch:{}", record.leader_epoch).as_bytes());
            end(&mut out, 3);
        }
        if self.headers {
            if record.headers.is_empty() {
                out.extend_from_slice(b"NO_HEADERS");
            }
            for (index, (key, value)) in record.headers.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(&self.headers_separator);
                }
                out.extend_from_slice(key);
                out.push(b':');
                out.extend(self.field(value.as_deref(), self.headers_deserializer)?);
            }
            end(&mut out, 4);
        }
        if self.key {
            out.extend(self.field(record.key.as_deref(), self.key_deserializer)?);
            end(&mut out, 5);
        }
        if self.value {
            out.extend(self.field(record.value.as_deref(), self.value_deserializer)?);
            end(&mut out, 6);
        }
        Ok(out)
    }

    fn field(&self, bytes: Option<&[u8]>, deserializer: Deserializer) -> Result<Vec<u8>, String> {
        deserializer.show(bytes.unwrap_or(&self.null_literal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::FetchedRecord;
    use crate::types::TopicPartition;

    fn received() -> Received {
        Received {
            partition: TopicPartition::new("t", 2),
            record: FetchedRecord {
                offset: 7,
                timestamp: 99,
                timestamp_type: TimestampType::CreateTime,
                leader_epoch: 3,
                key: None,
                value: Some(vec![0, 0, 0, 5]),
                headers: vec![(b"h".to_vec(), Some(b"1".to_vec())), (b"i".to_vec(), None)],
            },
        }
    }

    fn format(properties: &[(&str, &str)]) -> RecordFormat {
        let owned = properties
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()));
        RecordFormat::new(&owned.collect())
    }

    #[test]
    fn columns_are_those_of_kafka() {
        let integer = "org.apache.kafka.common.serialization.IntegerDeserializer";
        let all = format(&[
            ("print.timestamp", "true"),
            ("print.key", "true"),
            ("print.offset", "true"),
            ("print.epoch", "true"),
            ("print.partition", "true"),
            ("print.headers", "true"),
            ("key.separator", "|"),
            ("value.deserializer", integer),
        ]);
        let text = String::from_utf8(all.write(&received()).unwrap()).unwrap();
        assert_eq!(
            text,
            "CreateTime:99|Partition:2|Offset:7|Epoch:3|h:1,i:null|null|5\n"
        );
        let keys = format(&[("print.key", "true"), ("print.value", "false")]);
        assert_eq!(keys.write(&received()).unwrap(), b"null\n");
        assert_eq!(format(&[]).write(&received()).unwrap(), [0, 0, 0, 5, b'\n']);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let long = "org.apache.kafka.common.serialization.LongDeserializer";
        let error = format(&[("value.deserializer", long)]).write(&received());
        assert_eq!(
            error.unwrap_err(),
            "Size of data received by LongDeserializer is not 8"
        );
        let unknown = format(&[("value.deserializer", "com.example.Mine")]);
        assert_eq!(unknown.unknown_classes, ["com.example.Mine"]);
        let number = Deserializer::Number {
            bytes: 2,
            name: "Short",
        };
        assert_eq!(number.show(&[0xff, 0xfe]).unwrap(), b"-2");
    }
}
