//! What `/readyz` and `/config` say.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::config::effective;
use crate::handlers::Context;
use crate::metadata::Image;
use crate::registry::BrokerLease;
use crate::replication::LogDirState;
use crate::telemetry::Readiness;
use crate::types::BrokerId;

/// Partitions that are named; of the others there is a number.
const NAMED_MAX: usize = 5;

/// Registered, caught up, and every log directory there; or what of it is missing.
pub(super) fn readiness(context: &Context, lease: &BrokerLease) -> Readiness {
    let mut missing = Vec::new();
    let image = context.metadata.current();
    let me = context.config.node_id;
    if !context.metrics.is_running() {
        let state = context.metrics.state();
        missing.push(format!(
            "broker: it is starting or stopping (state {state})"
        ));
    }
    let epoch = lease.broker_epoch();
    let is_registered = image.brokers.get(&me).is_some_and(|own| own.epoch == epoch);
    if !lease.is_held() || lease.answering_since().is_none() {
        missing.push("registration: the registry does not answer".to_string());
    } else if !is_registered {
        missing.push("registration: this broker is not registered".to_string());
    }
    if !context.metadata.is_followed() {
        missing.push("metadata: changes of the registry do not arrive".to_string());
    }
    missing.extend(out_of_sync(&image, me));
    for (path, state) in context.replicas.log_dir_states() {
        if state == LogDirState::Offline {
            missing.push(format!("log directory {} is offline", path.display()));
        }
    }
    Readiness { missing }
}

/// Replicas here that have a leader and are not in sync with it.
fn out_of_sync(image: &Image, me: BrokerId) -> Option<String> {
    let mut count = 0;
    let mut names = String::new();
    for topic in image.topics.values() {
        for (index, partition) in topic.partitions.iter().enumerate() {
            let behind = partition.replicas.contains(&me) && !partition.isr.contains(&me);
            if !behind || partition.leader.is_none() {
                continue;
            }
            count += 1;
            if count <= NAMED_MAX {
                // Writing to a `String` cannot fail.
                let _ = write!(names, " {}-{index}", topic.name);
            }
        }
    }
    let more = if count > NAMED_MAX { " …" } else { "" };
    (count > 0).then(|| format!("replicas: {count} not in sync:{names}{more}"))
}

/// Every key with its value and source, as JSON.
pub(super) fn config(context: &Context) -> String {
    let image = context.metadata.current();
    let id = context.config.node_id;
    let own = image.broker_configs.get(&id).cloned().unwrap_or_default();
    let values = context
        .config
        .values
        .with_dynamic(&image.broker_defaults, &own);
    let keys = effective(&values).into_iter().map(|key| {
        let mut shown = json!({ "value": key.value, "source": key.source });
        if key.is_hidden {
            shown["value"] = match key.source.as_str() {
                "default" => Value::Null,
                _ => "[hidden]".into(),
            };
        }
        if let Some(by) = key.given_by {
            shown["given_by"] = by.into();
        }
        if key.is_unknown {
            shown["unknown"] = true.into();
        }
        (key.name, shown)
    });
    let keys: serde_json::Map<String, Value> = keys.collect();
    let page = json!({
        "node.id": id.0,
        "cluster.id": &*image.cluster_id,
        "version": env!("CARGO_PKG_VERSION"),
        "config": keys,
    });
    match serde_json::to_string_pretty(&page) {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"error\": \"{error}\"}}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::config::TopicConfig;
    use crate::metadata::{Partition, Topic};
    use crate::types::TopicId;

    #[test]
    fn replicas_that_are_behind_are_named_and_those_without_a_leader_are_not() {
        let partition = |leader: Option<i32>, isr: &[i32]| {
            Arc::new(Partition {
                leader: leader.map(BrokerId),
                isr: isr.iter().copied().map(BrokerId).collect(),
                ..Partition::made(&[BrokerId(1), BrokerId(2)])
            })
        };
        let topic = |partitions| {
            Arc::new(Topic {
                name: "t".into(),
                id: TopicId([7; 16]),
                partitions,
                overrides: BTreeMap::new(),
                config: Arc::new(TopicConfig::default()),
            })
        };
        let mut image = Image::default();
        let partitions = vec![
            partition(Some(2), &[2]),
            partition(Some(1), &[1]),
            partition(None, &[2]),
        ];
        image.topics.insert("t".into(), topic(partitions));
        assert_eq!(
            out_of_sync(&image, BrokerId(1)).as_deref(),
            Some("replicas: 1 not in sync: t-0")
        );
        assert_eq!(
            out_of_sync(&image, BrokerId(2)).as_deref(),
            Some("replicas: 1 not in sync: t-1")
        );
        assert_eq!(out_of_sync(&image, BrokerId(3)), None);
        let many = (0..9).map(|_| partition(Some(2), &[2])).collect();
        image.topics.insert("t".into(), topic(many));
        let told = out_of_sync(&image, BrokerId(1)).unwrap();
        assert_eq!(told, "replicas: 9 not in sync: t-0 t-1 t-2 t-3 t-4 …");
    }
}
