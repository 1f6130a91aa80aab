//! Lines of text as records, as Kafka's `LineMessageReader` reads them.

use std::collections::BTreeMap;

use super::now_ms;
use crate::client::OutgoingRecord;

/// A key and a nullable value.
type Header = (Vec<u8>, Option<Vec<u8>>);

/// How lines are read.
#[derive(Debug, Clone)]
pub(crate) struct LineReader {
    parse_key: bool,
    key_separator: Vec<u8>,
    parse_headers: bool,
    headers_delimiter: Vec<u8>,
    headers_separator: Vec<u8>,
    headers_key_separator: Vec<u8>,
    ignore_error: bool,
    null_marker: Option<Vec<u8>>,
    line_number: u64,
}

impl LineReader {
    /// From the properties that Kafka's tool takes.
    pub(crate) fn new(properties: &BTreeMap<String, String>) -> Result<Self, String> {
        let text = |key: &str| properties.get(key).map(|value| value.clone().into_bytes());
        let is_true = |key: &str| {
            let value = properties.get(key);
            value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        };
        let or = |key: &str, default: &[u8]| text(key).unwrap_or_else(|| default.to_vec());
        let reader = Self {
            parse_key: is_true("parse.key"),
            key_separator: or("key.separator", b"\t"),
            parse_headers: is_true("parse.headers"),
            headers_delimiter: or("headers.delimiter", b"\t"),
            headers_separator: or("headers.separator", b","),
            headers_key_separator: or("headers.key.separator", b":"),
            ignore_error: is_true("ignore.error"),
            null_marker: text("null.marker"),
            line_number: 0,
        };
        reader.check()?;
        Ok(reader)
    }

    fn check(&self) -> Result<(), String> {
        let marker = self.null_marker.as_ref();
        let delimiter = &self.headers_delimiter;
        let (separator, inner) = (&self.headers_separator, &self.headers_key_separator);
        let clashes = [
            (
                delimiter == separator,
                "headers.delimiter and headers.separator",
            ),
            (
                delimiter == inner,
                "headers.delimiter and headers.key.separator",
            ),
            (
                separator == inner,
                "headers.separator and headers.key.separator",
            ),
            (
                marker == Some(&self.key_separator),
                "null.marker and key.separator",
            ),
            (
                marker == Some(separator),
                "null.marker and headers.separator",
            ),
            (
                marker == Some(delimiter),
                "null.marker and headers.delimiter",
            ),
            (
                marker == Some(inner),
                "null.marker and headers.key.separator",
            ),
        ];
        match clashes.iter().find(|(clash, _)| *clash) {
            Some((_, which)) => Err(format!("{which} may not be equal")),
            None => Ok(()),
        }
    }

    /// The record of a line, its end left out.
    pub(crate) fn record(&mut self, line: &[u8]) -> Result<OutgoingRecord, String> {
        self.line_number += 1;
        let (headers, rest) = match self.parse_headers {
            true => self.part(line, line, &self.headers_delimiter, "headers delimiter")?,
            false => (None, line),
        };
        let (key, value) = match self.parse_key {
            true => self.part(line, rest, &self.key_separator, "key separator")?,
            false => (None, rest),
        };
        let or_null = |bytes: &[u8]| match self.null_marker.as_deref() == Some(bytes) {
            true => None,
            false => Some(bytes.to_vec()),
        };
        let headers = match headers.and_then(or_null) {
            Some(headers) => self.headers(&headers)?,
            None => Vec::new(),
        };
        Ok(OutgoingRecord {
            key: key.and_then(or_null),
            value: or_null(value),
            headers,
            timestamp: now_ms(),
        })
    }

    fn part<'a>(
        &self,
        line: &[u8],
        rest: &'a [u8],
        separator: &[u8],
        name: &str,
    ) -> Result<(Option<&'a [u8]>, &'a [u8]), String> {
        match find(rest, separator) {
            Some(at) => Ok((Some(&rest[..at]), &rest[at + separator.len()..])),
            None if self.ignore_error => Ok((None, rest)),
            None => Err(format!(
                "No {name} found on line number {}: '{}'",
                self.line_number,
                String::from_utf8_lossy(line)
            )),
        }
    }

    fn headers(&self, headers: &[u8]) -> Result<Vec<Header>, String> {
        let mut parsed = Vec::new();
        let mut rest = headers;
        loop {
            let (pair, more) = match find(rest, &self.headers_separator) {
                Some(at) => (
                    &rest[..at],
                    Some(&rest[at + self.headers_separator.len()..]),
                ),
                None => (rest, None),
            };
            parsed.push(self.header(pair)?);
            match more {
                Some(more) => rest = more,
                None => return Ok(parsed),
            }
        }
    }

    fn header(&self, pair: &[u8]) -> Result<Header, String> {
        let Some(at) = find(pair, &self.headers_key_separator) else {
            return match self.ignore_error {
                true => Ok((pair.to_vec(), None)),
                false => Err(format!(
                    "No header key separator found in pair '{}' on line number {}",
                    String::from_utf8_lossy(pair),
                    self.line_number
                )),
            };
        };
        let (key, value) = (&pair[..at], &pair[at + self.headers_key_separator.len()..]);
        let marker = self.null_marker.as_deref();
        if marker == Some(key) {
            return Err(format!(
                "Header keys should not be equal to the null marker '{}' as they can't be null",
                String::from_utf8_lossy(key)
            ));
        }
        let value = (marker != Some(value)).then(|| value.to_vec());
        Ok((key.to_vec(), value))
    }
}

fn find(bytes: &[u8], separator: &[u8]) -> Option<usize> {
    if separator.is_empty() {
        return Some(0);
    }
    bytes
        .windows(separator.len())
        .position(|window| window == separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(properties: &[(&str, &str)]) -> Result<LineReader, String> {
        let owned = properties
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()));
        LineReader::new(&owned.collect())
    }

    #[test]
    fn lines_are_read_as_kafka_reads_them() {
        let mut plain = reader(&[]).unwrap();
        let record = plain.record(b"a\tb").unwrap();
        assert_eq!((record.key, record.value), (None, Some(b"a\tb".to_vec())));
        let mut all = reader(&[
            ("parse.key", "true"),
            ("parse.headers", "TRUE"),
            ("key.separator", ":"),
            ("headers.key.separator", "="),
            ("null.marker", "NULL"),
        ])
        .unwrap();
        let record = all.record(b"h=1,i=NULL\tk:v:w").unwrap();
        assert_eq!(record.key, Some(b"k".to_vec()));
        assert_eq!(record.value, Some(b"v:w".to_vec()));
        let headers = [(b"h".to_vec(), Some(b"1".to_vec())), (b"i".to_vec(), None)];
        assert_eq!(record.headers, headers);
        let record = all.record(b"NULL\tNULL:NULL").unwrap();
        assert_eq!(
            (record.key, record.value, record.headers.len()),
            (None, None, 0)
        );
        assert_eq!(
            all.record(b"no tab").unwrap_err(),
            "No headers delimiter found on line number 3: 'no tab'"
        );
        assert_eq!(
            all.record(b"h\tk:v").unwrap_err(),
            "No header key separator found in pair 'h' on line number 4"
        );
        assert!(
            reader(&[("headers.delimiter", ",")])
                .unwrap_err()
                .contains("may not be equal")
        );
    }

    #[test]
    fn errors_can_be_ignored() {
        let mut lax = reader(&[("parse.key", "true"), ("ignore.error", "true")]).unwrap();
        let record = lax.record(b"no key").unwrap();
        assert_eq!((record.key, record.value), (None, Some(b"no key".to_vec())));
    }
}
