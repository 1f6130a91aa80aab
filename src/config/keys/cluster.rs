//! Identity, the registry, replication, the controller.

use super::keys;

keys! { CLUSTER:
    CLASS "alter.config.policy.class.name" = null, Any, I, ReadOnly,
        "";
    BOOLEAN "auto.create.topics.enable" = "true", Any, Y, ReadOnly,
        "";
    BOOLEAN "auto.leader.rebalance.enable" = "true", Any, A, ReadOnly,
        "";
    INT "broker.heartbeat.interval.ms" = "2000", Any, A, ReadOnly,
        "";
    INT "broker.id" = "-1", Any, Y, ReadOnly,
        "";
    BOOLEAN "broker.id.generation.enable" = null, Any, A, Internal,
        "";
    STRING "broker.rack" = null, Any, Y, ReadOnly,
        "";
    INT "broker.session.timeout.ms" = "9000", Any, A, ReadOnly,
        "";
    STRING "cluster.id" = null, Any, Y, ReadOnly,
        "";
    LIST "config.providers" = "", Any, Y, Dynamic,
        "";
    STRING "control.plane.listener.name" = null, Any, I, Internal,
        "";
    BOOLEAN "controlled.shutdown.enable" = "true", Any, A, ReadOnly,
        "";
    INT "controlled.shutdown.max.retries" = null, Any, A, Internal,
        "";
    LONG "controlled.shutdown.retry.backoff.ms" = null, Any, A, Internal,
        "";
    LIST "controller.listener.names" = null, Any, A, ReadOnly,
        "";
    LONG "controller.performance.always.log.threshold.ms" = "2000", AtLeast(0), I, Internal,
        "";
    LONG "controller.performance.sample.period.ms" = "60000", AtLeast(100), I, Internal,
        "";
    INT "controller.quorum.append.linger.ms" = "25", AtLeast(0), I, ReadOnly,
        "";
    BOOLEAN "controller.quorum.auto.join.enable" = "false", Any, I, ReadOnly,
        "";
    LIST "controller.quorum.bootstrap.servers" = "", Any, I, ReadOnly,
        "";
    INT "controller.quorum.election.backoff.max.ms" = "1000", AtLeast(0), I, ReadOnly,
        "";
    INT "controller.quorum.election.timeout.ms" = "1000", AtLeast(0), I, ReadOnly,
        "";
    INT "controller.quorum.fetch.max.bytes" = "1048576", AtLeast(1), I, ReadOnly,
        "";
    INT "controller.quorum.fetch.snapshot.max.bytes" = "1048576", AtLeast(1), I, ReadOnly,
        "";
    INT "controller.quorum.fetch.timeout.ms" = "2000", AtLeast(0), I, ReadOnly,
        "";
    INT "controller.quorum.request.timeout.ms" = "2000", AtLeast(0), I, ReadOnly,
        "";
    INT "controller.quorum.retry.backoff.ms" = "20", AtLeast(0), I, ReadOnly,
        "";
    LIST "controller.quorum.voters" = "", Any, I, ReadOnly,
        "";
    INT "controller.socket.timeout.ms" = "30000", Any, I, ReadOnly,
        "";
    CLASS "create.topic.policy.class.name" = null, Any, I, ReadOnly,
        "";
    INT "default.replication.factor" = "1", Any, Y, ReadOnly,
        "";
    BOOLEAN "delete.topic.enable" = "true", Any, Y, ReadOnly,
        "";
    LIST "etcd.endpoints" = "", Any, Y, ReadOnly,
        "";
    STRING "etcd.prefix" = "/ottla", Any, Y, ReadOnly,
        "";
    LONG "follower.replication.throttled.rate" = "9223372036854775807", AtLeast(0), I, InternalDynamic,
        "";
    INT "initial.broker.registration.timeout.ms" = "60000", Any, Y, ReadOnly,
        "";
    LONG "internal.metadata.delete.delay.millis" = "60000", Any, I, Internal,
        "";
    INT "internal.metadata.log.segment.bytes" = null, Any, I, Internal,
        "";
    INT "internal.metadata.max.batch.size.in.bytes" = "8388608", Any, I, Internal,
        "";
    LONG "leader.imbalance.check.interval.seconds" = "300", AtLeast(1), A, ReadOnly,
        "";
    INT "leader.imbalance.per.broker.percentage" = null, Any, A, Internal,
        "";
    LONG "leader.replication.throttled.rate" = "9223372036854775807", AtLeast(0), I, InternalDynamic,
        "";
    STRING "metadata.log.dir" = null, Any, I, ReadOnly,
        "";
    LONG "metadata.log.max.record.bytes.between.snapshots" = "20971520", AtLeast(1), I, ReadOnly,
        "";
    LONG "metadata.log.max.snapshot.interval.ms" = "3600000", AtLeast(0), I, ReadOnly,
        "";
    INT "metadata.log.segment.bytes" = "1073741824", AtLeast(8388608), I, ReadOnly,
        "";
    LONG "metadata.log.segment.ms" = "604800000", Any, I, ReadOnly,
        "";
    INT "metadata.max.idle.interval.ms" = "500", AtLeast(0), I, ReadOnly,
        "";
    LONG "metadata.max.retention.bytes" = "104857600", Any, I, ReadOnly,
        "";
    LONG "metadata.max.retention.ms" = "604800000", Any, I, ReadOnly,
        "";
    INT "node.id" = null, AtLeast(0), Y, ReadOnly,
        "";
    INT "num.partitions" = "1", AtLeast(1), Y, ReadOnly,
        "";
    INT "num.replica.alter.log.dirs.threads" = null, Any, I, ReadOnly,
        "";
    INT "num.replica.fetchers" = "1", AtLeast(1), A, Dynamic,
        "";
    LIST "process.roles" = null, EachOf(&["broker", "controller"]), A, ReadOnly,
        "";
    LONG "replica.alter.log.dirs.io.max.bytes.per.second" = "9223372036854775807", AtLeast(0), I, InternalDynamic,
        "";
    INT "replica.fetch.backoff.ms" = "1000", AtLeast(0), A, ReadOnly,
        "";
    INT "replica.fetch.max.bytes" = "1048576", AtLeast(0), A, ReadOnly,
        "";
    INT "replica.fetch.min.bytes" = "1", Any, A, ReadOnly,
        "";
    INT "replica.fetch.response.max.bytes" = "10485760", AtLeast(0), A, ReadOnly,
        "";
    INT "replica.fetch.wait.max.ms" = "500", Any, A, ReadOnly,
        "";
    LONG "replica.high.watermark.checkpoint.interval.ms" = "5000", Any, A, ReadOnly,
        "";
    LONG "replica.lag.time.max.ms" = "30000", Any, A, ReadOnly,
        "";
    STRING "replica.selector.class" = null, Any, A, ReadOnly,
        "";
    INT "replica.socket.receive.buffer.bytes" = "65536", Any, I, ReadOnly,
        "";
    INT "replica.socket.timeout.ms" = "30000", Any, I, ReadOnly,
        "";
    INT "reserved.broker.max.id" = null, AtLeast(0), A, Internal,
        "";
    LONG "server.max.startup.time.ms" = "9223372036854775807", AtLeast(0), A, Internal,
        "";
    BOOLEAN "unstable.api.versions.enable" = "false", Any, I, Internal,
        "";
    BOOLEAN "unstable.feature.versions.enable" = "false", Any, I, Internal,
        "";
    STRING "zookeeper.connect" = null, Any, I, Internal,
        "";
}
