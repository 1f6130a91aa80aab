//! What can be set on a group, and on a client metrics subscription.

use super::keys;

keys! { GROUP:
    INT "consumer.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "Shortest time between two assignments of a consumer group.";
    BOOLEAN "consumer.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "Whether assignments of consumer groups are computed beside the coordinator's own thread.";
    INT "consumer.heartbeat.interval.ms" = "5000", AtLeast(1), I, Dynamic,
        "How often members of this consumer group send heartbeats.";
    INT "consumer.session.timeout.ms" = "45000", AtLeast(1), I, Dynamic,
        "Time without a heartbeat after which a member of this consumer group is removed.";
    BOOLEAN "errors.deadletterqueue.copy.record.enable" = "false", Any, I, Dynamic,
        "Whether the whole record goes to the dead letter queue, or only its position.";
    STRING "errors.deadletterqueue.topic.name" = "", Any, I, Dynamic,
        "Topic that records go to which this share group gives up; empty for none.";
    INT "share.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "Shortest time between two assignments of a share group.";
    BOOLEAN "share.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "Whether assignments of share groups are computed beside the coordinator's own thread.";
    STRING "share.auto.offset.reset" = "latest", OffsetReset, I, Dynamic,
        "Where a share group starts in a partition it has not read: latest, earliest, or by_duration with a time back.";
    INT "share.delivery.count.limit" = "5", AtLeast(2), I, Dynamic,
        "How many times a record is delivered to this share group before it is given up.";
    INT "share.heartbeat.interval.ms" = "5000", AtLeast(1), I, Dynamic,
        "How often members of this share group send heartbeats.";
    STRING "share.isolation.level" = "read_uncommitted", OneOf(&["read_committed", "read_uncommitted"]), I, Dynamic,
        "Whether this share group sees records of open and aborted transactions.";
    INT "share.partition.max.record.locks" = "2000", AtLeast(100), I, Dynamic,
        "Records of a partition that may be in delivery to this share group at once.";
    INT "share.record.lock.duration.ms" = "30000", AtLeast(1000), I, Dynamic,
        "Time that a member of this share group has to acknowledge a record.";
    BOOLEAN "share.renew.acknowledge.enable" = "true", Any, I, Dynamic,
        "Whether members may extend the time they have for a record.";
    INT "share.session.timeout.ms" = "45000", AtLeast(1), I, Dynamic,
        "Time without a heartbeat after which a member of this share group is removed.";
    LONG "streams.acceptable.recovery.lag" = "10000", AtLeast(0), I, InternalDynamic,
        "Records that a task's copy may lag behind and still take the task over.";
    INT "streams.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "Shortest time between two assignments of a streams group.";
    STRING "streams.assignor.name" = null, Any, I, Dynamic,
        "Assignor that places the tasks of this streams group.";
    BOOLEAN "streams.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "Whether assignments of streams groups are computed beside the coordinator's own thread.";
    INT "streams.heartbeat.interval.ms" = "5000", AtLeast(1), I, Dynamic,
        "How often members of this streams group send heartbeats.";
    INT "streams.initial.rebalance.delay.ms" = "3000", AtLeast(0), I, Dynamic,
        "How long a new streams group waits for more members before its first assignment.";
    INT "streams.num.standby.replicas" = "0", AtLeast(0), I, Dynamic,
        "Standby copies of each stateful task of this streams group.";
    INT "streams.num.warmup.replicas" = "2", AtLeast(0), I, InternalDynamic,
        "Tasks of this streams group that may be warmed up elsewhere at once.";
    LIST "streams.rack.aware.assignment.tags" = "", Any, I, Dynamic,
        "Client tags by which standby tasks are spread.";
    INT "streams.session.timeout.ms" = "45000", AtLeast(1), I, Dynamic,
        "Time without a heartbeat after which a member of this streams group is removed.";
    INT "streams.task.offset.interval.ms" = "60000", AtLeast(1), I, InternalDynamic,
        "How often members of this streams group report the offsets of their tasks.";
}

keys! { CLIENT_METRICS:
    INT "interval.ms" = "300000", Any, I, Dynamic,
        "How often clients push the metrics of this subscription.";
    LIST "match" = "", Any, I, Dynamic,
        "Patterns that choose the clients of this subscription, as selector=expression.";
    LIST "metrics" = "", Any, I, Dynamic,
        "Prefixes of the metrics that clients push for this subscription; * for all.";
}
