//! Which broker keys stand behind a topic key, and which broker keys are one setting in other units.

/// A broker key that gives a topic key its value, in `multiplier` of the topic key's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerSource {
    pub name: &'static str,
    pub multiplier: i64,
}

const fn plain(name: &'static str) -> BrokerSource {
    BrokerSource {
        name,
        multiplier: 1,
    }
}

const fn minutes(name: &'static str) -> BrokerSource {
    BrokerSource {
        name,
        multiplier: 60_000,
    }
}

const fn hours(name: &'static str) -> BrokerSource {
    BrokerSource {
        name,
        multiplier: 3_600_000,
    }
}

/// The broker keys behind a topic key; the first that is set wins, the default is that of the last
/// that has one. Empty: the topic key stands alone.
pub fn topic_sources(topic_key: &str) -> &'static [BrokerSource] {
    macro_rules! sources {
        ($($source:expr),+) => {{
            const SOURCES: &[BrokerSource] = &[$($source),+];
            SOURCES
        }};
    }
    match topic_key {
        "cleanup.policy" => sources!(plain("log.cleanup.policy")),
        "compression.type" => sources!(plain("compression.type")),
        "compression.gzip.level" => sources!(plain("compression.gzip.level")),
        "compression.lz4.level" => sources!(plain("compression.lz4.level")),
        "compression.zstd.level" => sources!(plain("compression.zstd.level")),
        "delete.retention.ms" => sources!(plain("log.cleaner.delete.retention.ms")),
        "file.delete.delay.ms" => sources!(plain("log.segment.delete.delay.ms")),
        "flush.messages" => sources!(plain("log.flush.interval.messages")),
        "flush.ms" => sources!(
            plain("log.flush.interval.ms"),
            plain("log.flush.scheduler.interval.ms")
        ),
        "index.interval.bytes" => sources!(plain("log.index.interval.bytes")),
        "local.retention.bytes" => sources!(plain("log.local.retention.bytes")),
        "local.retention.ms" => sources!(plain("log.local.retention.ms")),
        "max.compaction.lag.ms" => sources!(plain("log.cleaner.max.compaction.lag.ms")),
        "max.decompressed.message.bytes" => sources!(plain("max.decompressed.message.bytes")),
        "max.message.bytes" => sources!(plain("message.max.bytes")),
        "message.timestamp.after.max.ms" => sources!(plain("log.message.timestamp.after.max.ms")),
        "message.timestamp.before.max.ms" => {
            sources!(plain("log.message.timestamp.before.max.ms"))
        }
        "message.timestamp.type" => sources!(plain("log.message.timestamp.type")),
        "min.cleanable.dirty.ratio" => sources!(plain("log.cleaner.min.cleanable.ratio")),
        "min.compaction.lag.ms" => sources!(plain("log.cleaner.min.compaction.lag.ms")),
        "min.insync.replicas" => sources!(plain("min.insync.replicas")),
        "preallocate" => sources!(plain("log.preallocate")),
        "remote.copy.lag.bytes" => sources!(plain("log.remote.copy.lag.bytes")),
        "remote.copy.lag.ms" => sources!(plain("log.remote.copy.lag.ms")),
        "retention.bytes" => sources!(plain("log.retention.bytes")),
        "retention.ms" => sources!(
            plain("log.retention.ms"),
            minutes("log.retention.minutes"),
            hours("log.retention.hours")
        ),
        "segment.bytes" => sources!(plain("log.segment.bytes")),
        "segment.index.bytes" => sources!(plain("log.index.size.max.bytes")),
        "segment.jitter.ms" => {
            sources!(plain("log.roll.jitter.ms"), hours("log.roll.jitter.hours"))
        }
        "segment.ms" => sources!(plain("log.roll.ms"), hours("log.roll.hours")),
        "unclean.leader.election.enable" => sources!(plain("unclean.leader.election.enable")),
        _ => &[],
    }
}

/// The keys that say the same as `name`, itself included, the strongest first (Kafka's
/// `DynamicBrokerConfig.brokerConfigSynonyms`). Empty: only itself.
pub fn broker_synonyms(name: &str) -> &'static [&'static str] {
    match name {
        "log.retention.ms" | "log.retention.minutes" | "log.retention.hours" => &[
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ],
        "log.roll.ms" | "log.roll.hours" => &["log.roll.ms", "log.roll.hours"],
        "log.roll.jitter.ms" | "log.roll.jitter.hours" => {
            &["log.roll.jitter.ms", "log.roll.jitter.hours"]
        }
        "log.flush.interval.ms" => &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        _ => &[],
    }
}

/// The broker key that gives a group key its default.
pub fn group_synonym(group_key: &str) -> Option<&'static str> {
    Some(match group_key {
        "consumer.assignment.interval.ms" => "group.consumer.assignment.interval.ms",
        "consumer.assignor.offload.enable" => "group.consumer.assignor.offload.enable",
        "consumer.heartbeat.interval.ms" => "group.consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms" => "group.consumer.session.timeout.ms",
        "share.assignment.interval.ms" => "group.share.assignment.interval.ms",
        "share.assignor.offload.enable" => "group.share.assignor.offload.enable",
        "share.delivery.count.limit" => "group.share.delivery.count.limit",
        "share.heartbeat.interval.ms" => "group.share.heartbeat.interval.ms",
        "share.partition.max.record.locks" => "group.share.partition.max.record.locks",
        "share.record.lock.duration.ms" => "group.share.record.lock.duration.ms",
        "share.session.timeout.ms" => "group.share.session.timeout.ms",
        "streams.acceptable.recovery.lag" => "group.streams.acceptable.recovery.lag",
        "streams.assignment.interval.ms" => "group.streams.assignment.interval.ms",
        "streams.assignor.name" => "group.streams.assignors",
        "streams.assignor.offload.enable" => "group.streams.assignor.offload.enable",
        "streams.heartbeat.interval.ms" => "group.streams.heartbeat.interval.ms",
        "streams.initial.rebalance.delay.ms" => "group.streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas" => "group.streams.num.standby.replicas",
        "streams.num.warmup.replicas" => "group.streams.num.warmup.replicas",
        "streams.rack.aware.assignment.tags" => "group.streams.rack.aware.assignment.tags",
        "streams.session.timeout.ms" => "group.streams.session.timeout.ms",
        "streams.task.offset.interval.ms" => "group.streams.task.offset.interval.ms",
        _ => return None,
    })
}
