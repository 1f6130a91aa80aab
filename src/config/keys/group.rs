//! What can be set on a group, and on a client metrics subscription.

use super::keys;

keys! { GROUP:
    INT "consumer.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "";
    BOOLEAN "consumer.assignor.offload.enable" = "true", Any, I, Internal,
        "";
    INT "consumer.heartbeat.interval.ms" = "5000", AtLeast(1), I, Dynamic,
        "";
    INT "consumer.session.timeout.ms" = "45000", AtLeast(1), I, Dynamic,
        "";
    BOOLEAN "errors.deadletterqueue.copy.record.enable" = "false", Any, I, Dynamic,
        "";
    STRING "errors.deadletterqueue.topic.name" = "", Any, I, Dynamic,
        "";
    INT "share.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "";
    BOOLEAN "share.assignor.offload.enable" = "true", Any, I, Internal,
        "";
    STRING "share.auto.offset.reset" = "latest", OffsetReset, I, Dynamic,
        "";
    INT "share.delivery.count.limit" = "5", AtLeast(2), I, Dynamic,
        "";
    INT "share.heartbeat.interval.ms" = "5000", AtLeast(1), I, Dynamic,
        "";
    STRING "share.isolation.level" = "read_uncommitted", OneOf(&["read_committed", "read_uncommitted"]), I, Dynamic,
        "";
    INT "share.partition.max.record.locks" = "2000", AtLeast(100), I, Dynamic,
        "";
    INT "share.record.lock.duration.ms" = "30000", AtLeast(1000), I, Dynamic,
        "";
    BOOLEAN "share.renew.acknowledge.enable" = "true", Any, I, Dynamic,
        "";
    INT "share.session.timeout.ms" = "45000", AtLeast(1), I, Dynamic,
        "";
    LONG "streams.acceptable.recovery.lag" = "10000", AtLeast(0), I, Internal,
        "";
    INT "streams.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "";
    STRING "streams.assignor.name" = null, Any, I, Dynamic,
        "";
    BOOLEAN "streams.assignor.offload.enable" = "true", Any, I, Internal,
        "";
    INT "streams.heartbeat.interval.ms" = "5000", AtLeast(1), I, Dynamic,
        "";
    INT "streams.initial.rebalance.delay.ms" = "3000", AtLeast(0), I, Dynamic,
        "";
    INT "streams.num.standby.replicas" = "0", AtLeast(0), I, Dynamic,
        "";
    INT "streams.num.warmup.replicas" = "2", AtLeast(0), I, Internal,
        "";
    LIST "streams.rack.aware.assignment.tags" = "", Any, I, Dynamic,
        "";
    INT "streams.session.timeout.ms" = "45000", AtLeast(1), I, Dynamic,
        "";
    INT "streams.task.offset.interval.ms" = "60000", AtLeast(1), I, Internal,
        "";
}

keys! { CLIENT_METRICS:
    INT "interval.ms" = "300000", Any, I, Dynamic,
        "";
    LIST "match" = "", Any, I, Dynamic,
        "";
    LIST "metrics" = "", Any, I, Dynamic,
        "";
}
