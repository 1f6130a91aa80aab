//! What a configuration asks for and cannot get, and must hear of: who asks would get something else,
//! and not know.

use std::collections::BTreeMap;

use super::ConfigError;

/// One for each key that stops the start, in the order of the keys.
pub(super) fn of(statics: &BTreeMap<String, String>) -> Vec<ConfigError> {
    let set = |key: &str| {
        let value = statics.get(key).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    };
    let refuse = |key: &str, fix: &str| ConfigError::new(key, set(key).unwrap_or_default(), fix);
    let mut refusals = Vec::new();
    if set("authorizer.class.name").is_some() {
        refusals.push(refuse(
            "authorizer.class.name",
            "there is no authorization yet, every client could do everything: leave it out where that \
             is right, or run Apache Kafka",
        ));
    }
    let in_cluster = set("etcd.endpoints").is_some();
    let voters = set("controller.quorum.voters").unwrap_or_default();
    if elements(voters).count() > 1 && !in_cluster {
        refusals.push(refuse(
            "controller.quorum.voters",
            "each of these would be a cluster of its own: set etcd.endpoints (KAFKA_ETCD_ENDPOINTS) on \
             all of them to the etcd that takes the quorum's place",
        ));
    }
    let roles: Vec<&str> = elements(set("process.roles").unwrap_or_default()).collect();
    match roles[..] {
        ["controller"] => refusals.push(refuse(
            "process.roles",
            "there are no controllers to run beside brokers: leave this node out and set etcd.endpoints \
             (KAFKA_ETCD_ENDPOINTS) on the brokers",
        )),
        ["broker"] if !in_cluster => refusals.push(refuse(
            "process.roles",
            "this broker would be a cluster of its own: set etcd.endpoints (KAFKA_ETCD_ENDPOINTS) to the \
             etcd that takes the controllers' place, or process.roles=broker,controller for a single node",
        )),
        _ => {}
    }
    refusals
}

fn elements(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|element| !element.is_empty())
}
