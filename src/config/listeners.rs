//! `listeners`, `advertised.listeners` and what belongs to them.

use std::collections::BTreeMap;

use super::broker::{ConfigError, HostPort, Listener};
use super::values::BrokerValues;
use crate::types::ListenerName;

/// One `NAME://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Endpoint {
    name: String,
    host: String,
    port: u16,
}

/// Security protocols by listener name.
type Protocols = BTreeMap<String, String>;

const PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// The client listeners: those of the controller are left out. `hostname` is advertised where no
/// host is given.
pub(super) fn client_listeners(
    values: &BrokerValues,
    hostname: &str,
) -> Result<Vec<Listener>, ConfigError> {
    let text = values.get("listeners").unwrap_or_default();
    let controllers = controller_names(values);
    let is_client = |endpoint: &Endpoint| !controllers.contains(&endpoint.name);
    let mut bound = endpoints("listeners", text)?;
    distinct("listeners", text, &bound)?;
    bound.retain(is_client);
    if bound.is_empty() {
        return Err(ConfigError::new(
            "listeners",
            text,
            "name at least one listener for clients, such as PLAINTEXT://127.0.0.1:9092",
        ));
    }
    let protocols = protocols(values)?;
    for endpoint in &bound {
        check_protocol(endpoint, text, &protocols)?;
    }
    let advertised_text = values.get("advertised.listeners").unwrap_or_default();
    let mut advertised = endpoints("advertised.listeners", advertised_text)?;
    advertised.retain(is_client);
    for endpoint in &advertised {
        if !bound.iter().any(|bound| bound.name == endpoint.name) {
            return Err(ConfigError::new(
                "advertised.listeners",
                advertised_text,
                format!(
                    "listener {} is not among `listeners`: add it there or leave it out here",
                    endpoint.name
                ),
            ));
        }
    }
    let explicit = !advertised.is_empty();
    bound
        .into_iter()
        .map(|endpoint| {
            let (key, text) = match explicit {
                true => ("advertised.listeners", advertised_text),
                false => ("listeners", text),
            };
            let told = advertised.iter().find(|told| told.name == endpoint.name);
            let (host, port) = told.map_or((&endpoint.host, endpoint.port), |told| {
                (&told.host, told.port)
            });
            if told.is_some() || !explicit {
                check_routable(key, text, host)?;
            }
            let unnamed = host.is_empty() || is_meta(host);
            Ok(Listener {
                max_connections: listener_limit(values, &endpoint.name, "max.connections")?,
                max_connection_creation_rate: listener_limit(
                    values,
                    &endpoint.name,
                    "max.connection.creation.rate",
                )?,
                name: ListenerName::from(endpoint.name.as_str()),
                advertised_host: if unnamed { hostname } else { host }.to_string(),
                advertised_port: port,
                host: endpoint.host,
                port: endpoint.port,
            })
        })
        .collect()
}

/// The name of the listener that brokers reach each other by.
pub(super) fn inter_broker_name(
    values: &BrokerValues,
    listeners: &[Listener],
) -> Result<ListenerName, ConfigError> {
    let protocol = values
        .get("security.inter.broker.protocol")
        .unwrap_or("PLAINTEXT");
    if protocol != "PLAINTEXT" {
        return Err(unsupported(
            "security.inter.broker.protocol",
            protocol,
            protocol,
        ));
    }
    let named = values.explicit("inter.broker.listener.name");
    if let Some(name) = named {
        if values.explicit("security.inter.broker.protocol").is_some() {
            return Err(ConfigError::new(
                "inter.broker.listener.name",
                name,
                "only one of this key and security.inter.broker.protocol can be set",
            ));
        }
        let wanted = name.trim().to_uppercase();
        return listeners
            .iter()
            .find(|listener| *listener.name == *wanted)
            .map(|listener| ListenerName::clone(&listener.name))
            .ok_or_else(|| {
                ConfigError::new(
                    "inter.broker.listener.name",
                    name,
                    "name one of the listeners in `listeners`",
                )
            });
    }
    let plain = listeners
        .iter()
        .find(|listener| &*listener.name == protocol);
    // Kafka insists on a listener called PLAINTEXT here; any is as good.
    Ok(plain.or_else(|| listeners.first()).map_or_else(
        || ListenerName::from(protocol),
        |listener| ListenerName::clone(&listener.name),
    ))
}

/// `metrics.listeners`: `host:port`, with or without `NAME://` before it.
pub(super) fn metrics_listeners(values: &BrokerValues) -> Result<Vec<HostPort>, ConfigError> {
    const KEY: &str = "metrics.listeners";
    let text = values.get(KEY).unwrap_or_default();
    elements(text)
        .map(|element| {
            let address = element.split_once("://").map_or(element, |(_, rest)| rest);
            let (host, port) = host_port(address).ok_or_else(|| {
                ConfigError::new(
                    KEY,
                    text,
                    "give host:port, such as 127.0.0.1:9404, or nothing",
                )
            })?;
            Ok(HostPort { host, port })
        })
        .collect()
}

/// Elements of a list of listeners; a trailing comma is tolerated.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

fn controller_names(values: &BrokerValues) -> Vec<String> {
    elements(values.get("controller.listener.names").unwrap_or_default())
        .map(str::to_uppercase)
        .collect()
}

fn endpoints(key: &str, text: &str) -> Result<Vec<Endpoint>, ConfigError> {
    elements(text)
        .map(|element| {
            endpoint(element).ok_or_else(|| {
                ConfigError::new(
                    key,
                    text,
                    format!("`{element}` is not of the form NAME://host:port"),
                )
            })
        })
        .collect()
}

fn endpoint(text: &str) -> Option<Endpoint> {
    let (name, address) = text.split_once("://")?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(valid) {
        return None;
    }
    let (host, port) = host_port(address)?;
    Some(Endpoint {
        name: name.to_uppercase(),
        host,
        port,
    })
}

/// Splits `host:port`, `:port` and `[v6]:port`.
fn host_port(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
    host.bytes().all(valid).then(|| (host.to_string(), port))
}

/// No name twice, no port twice (but for 0, and for one port on an IPv4 and an IPv6 host).
fn distinct(key: &str, text: &str, endpoints: &[Endpoint]) -> Result<(), ConfigError> {
    for (index, endpoint) in endpoints.iter().enumerate() {
        for other in &endpoints[..index] {
            if other.name == endpoint.name {
                return Err(ConfigError::new(
                    key,
                    text,
                    format!(
                        "listener name {} occurs twice: give each its own",
                        other.name
                    ),
                ));
            }
            let families = other.host.contains(':') != endpoint.host.contains(':');
            if other.port == endpoint.port && endpoint.port != 0 && !families {
                return Err(ConfigError::new(
                    key,
                    text,
                    format!(
                        "port {} occurs twice: give each listener its own",
                        other.port
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn protocols(values: &BrokerValues) -> Result<Protocols, ConfigError> {
    const KEY: &str = "listener.security.protocol.map";
    let text = values.get(KEY).unwrap_or_default();
    elements(text)
        .map(|element| {
            let pair = element.split_once(':').map(|(name, protocol)| {
                (name.trim().to_uppercase(), protocol.trim().to_uppercase())
            });
            pair.filter(|(_, protocol)| PROTOCOLS.contains(&protocol.as_str()))
                .ok_or_else(|| {
                    ConfigError::new(
                        KEY,
                        text,
                        format!(
                            "`{element}` is not of the form NAME:PROTOCOL with one of {}",
                            PROTOCOLS.join(", ")
                        ),
                    )
                })
        })
        .collect()
}

fn check_protocol(
    endpoint: &Endpoint,
    listeners: &str,
    protocols: &Protocols,
) -> Result<(), ConfigError> {
    match protocols.get(&endpoint.name).map(String::as_str) {
        Some("PLAINTEXT") => Ok(()),
        Some(protocol) => Err(unsupported("listeners", listeners, protocol)),
        None => Err(ConfigError::new(
            "listeners",
            listeners,
            format!(
                "no security protocol is known for listener {0}: add {0}:{1} to \
                 listener.security.protocol.map",
                endpoint.name,
                PROTOCOLS
                    .iter()
                    .find(|name| **name == endpoint.name)
                    .unwrap_or(&"PLAINTEXT"),
            ),
        )),
    }
}

fn unsupported(key: &str, value: &str, protocol: &str) -> ConfigError {
    ConfigError::new(
        key,
        value,
        format!(
            "security protocol {protocol} is not supported yet: use a PLAINTEXT listener, or run \
             Apache Kafka where encryption or authentication is needed"
        ),
    )
}

fn is_meta(host: &str) -> bool {
    host == "0.0.0.0" || host == "::"
}

fn check_routable(key: &str, text: &str, host: &str) -> Result<(), ConfigError> {
    if is_meta(host) {
        return Err(ConfigError::new(
            key,
            text,
            format!(
                "clients cannot connect to the meta-address {host}: set advertised.listeners to an \
                 address that they can reach"
            ),
        ));
    }
    Ok(())
}

/// `listener.name.<lower name>.<key>`.
fn listener_limit(
    values: &BrokerValues,
    name: &str,
    key: &str,
) -> Result<Option<i32>, ConfigError> {
    let key = format!("listener.name.{}.{key}", name.to_lowercase());
    let Some(text) = values.explicit(&key) else {
        return Ok(None);
    };
    match text.trim().parse::<i32>() {
        Ok(limit) if limit >= 0 => Ok(Some(limit)),
        _ => Err(ConfigError::new(
            key,
            text,
            "give a whole number of at least 0",
        )),
    }
}

/// `max.connections.per.ip.overrides`: `host:count,…`.
pub(super) fn connection_overrides(
    values: &BrokerValues,
) -> Result<Vec<(String, i32)>, ConfigError> {
    const KEY: &str = "max.connections.per.ip.overrides";
    let text = values.get(KEY).unwrap_or_default();
    elements(text)
        .map(|element| {
            element
                .rsplit_once(':')
                .and_then(|(host, count)| {
                    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
                    let count: i32 = count.trim().parse().ok()?;
                    (count >= 0 && !host.is_empty()).then(|| (host.to_string(), count))
                })
                .ok_or_else(|| {
                    ConfigError::new(KEY, text, "give pairs as host:count, separated by commas")
                })
        })
        .collect()
}
