//! What a client has to know, from Kafka's own client properties.

use std::time::Duration;

use super::{ClientError, Result};

const REQUEST_TIMEOUT_MS: u64 = 30_000;
const API_TIMEOUT_MS: u64 = 60_000;

/// How brokers are reached.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Host and port, at least one.
    pub bootstrap: Vec<(String, u16)>,
    pub client_id: String,
    /// For one answer.
    pub request_timeout: Duration,
    /// For a call with all its retries.
    pub api_timeout: Duration,
    /// Called with a host and port that cannot be reached (id −1: a bootstrap server).
    pub unreachable: fn(i32, &str, u16, &str),
}

impl ClientConfig {
    /// From a `bootstrap.servers` list and the properties of a client (`command.config`). Properties that
    /// a Java client would need and this one does not are ignored; ones that it could not honour are
    /// refused by name.
    pub fn new(bootstrap: &str, properties: &[(String, String)]) -> Result<Self> {
        let value = |key: &str| {
            let found = properties.iter().rev().find(|(name, _)| name == key);
            found.map(|(_, value)| value.trim())
        };
        let protocol = value("security.protocol").unwrap_or("PLAINTEXT");
        if !protocol.eq_ignore_ascii_case("PLAINTEXT") {
            return Err(ClientError::Config(format!(
                "security.protocol={protocol} is not supported by this tool yet: only PLAINTEXT is"
            )));
        }
        let number = |key: &str, default: u64| match value(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                let what = format!(
                    "Invalid value {text} for configuration {key}: Not a number of type INT"
                );
                ClientError::Config(what)
            }),
        };
        let api_timeout_ms = number("default.api.timeout.ms", API_TIMEOUT_MS)?;
        let request_timeout_ms = number("request.timeout.ms", REQUEST_TIMEOUT_MS)?;
        Ok(Self {
            bootstrap: addresses(bootstrap)?,
            client_id: value("client.id").unwrap_or("ottla-tools").to_owned(),
            request_timeout: Duration::from_millis(request_timeout_ms),
            api_timeout: Duration::from_millis(api_timeout_ms.max(request_timeout_ms)),
            unreachable: |_, _, _, _| {},
        })
    }
}

/// `host:port,[::1]:port,PROTOCOL://host:port`, as Kafka's clients read it.
fn addresses(list: &str) -> Result<Vec<(String, u16)>> {
    let urls = list.split(',').map(str::trim).filter(|url| !url.is_empty());
    let addresses = urls.map(|url| {
        let address = url.split_once("://").map_or(url, |(_, address)| address);
        let parsed = address.rsplit_once(':').and_then(|(host, port)| {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let port = port.parse().ok().filter(|_| !bare.is_empty())?;
            Some((bare.to_owned(), port))
        });
        parsed
            .ok_or_else(|| ClientError::Config(format!("Invalid url in bootstrap.servers: {url}")))
    });
    let addresses = addresses.collect::<Result<Vec<_>>>()?;
    match addresses.is_empty() {
        true => Err(ClientError::Config(
            "No resolvable bootstrap urls given in bootstrap.servers".to_owned(),
        )),
        false => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_servers() {
        let read = |list| addresses(list).map_err(|error| error.to_string());
        assert_eq!(
            read(" a:1, [::1]:9092,PLAINTEXT://b.c:3,"),
            Ok(vec![
                ("a".to_owned(), 1),
                ("::1".to_owned(), 9092),
                ("b.c".to_owned(), 3)
            ])
        );
        for bad in ["a", "a:b", ":1", "a:70000"] {
            let error = read(bad).unwrap_err();
            assert_eq!(error, format!("Invalid url in bootstrap.servers: {bad}"));
        }
        assert!(read(",").unwrap_err().starts_with("No resolvable"));
    }

    #[test]
    fn properties_of_a_client() {
        let set = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let config = ClientConfig::new("a:1", &set("default.api.timeout.ms", "5000")).unwrap();
        assert_eq!(config.api_timeout, Duration::from_secs(30));
        let config = ClientConfig::new("a:1", &set("client.id", "me")).unwrap();
        assert_eq!(config.client_id, "me");
        let refused = ClientConfig::new("a:1", &set("security.protocol", "SASL_SSL"));
        assert!(refused.unwrap_err().to_string().contains("SASL_SSL"));
        assert!(ClientConfig::new("a:1", &set("request.timeout.ms", "soon")).is_err());
    }
}
