//! Groups, offsets, transactions, share groups.

use super::keys;

keys! { COORDINATORS:
    INT "add.partitions.to.txn.retry.backoff.max.ms" = "100", AtLeast(0), I, ReadOnly,
        "";
    INT "add.partitions.to.txn.retry.backoff.ms" = "20", AtLeast(1), I, ReadOnly,
        "";
    BOOLEAN "errors.deadletterqueue.auto.create.topics.enable" = "false", Any, I, Dynamic,
        "";
    STRING "errors.deadletterqueue.topic.name.prefix" = "dlq.", Any, I, Dynamic,
        "";
    INT "group.consumer.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "";
    BOOLEAN "group.consumer.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "";
    LIST "group.consumer.assignors" = "uniform,range", Any, A, ReadOnly,
        "";
    INT "group.consumer.heartbeat.interval.ms" = "5000", AtLeast(1), A, ReadOnly,
        "";
    INT "group.consumer.max.assignment.interval.ms" = "15000", AtLeast(0), I, ReadOnly,
        "";
    INT "group.consumer.max.heartbeat.interval.ms" = "15000", AtLeast(1), A, ReadOnly,
        "";
    INT "group.consumer.max.session.timeout.ms" = "60000", AtLeast(1), A, ReadOnly,
        "";
    INT "group.consumer.max.size" = "2147483647", AtLeast(1), A, ReadOnly,
        "";
    STRING "group.consumer.migration.policy" = "bidirectional", OneOfNoCase(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]), A, ReadOnly,
        "";
    INT "group.consumer.min.assignment.interval.ms" = "0", AtLeast(0), I, ReadOnly,
        "";
    INT "group.consumer.min.heartbeat.interval.ms" = "5000", AtLeast(1), A, ReadOnly,
        "";
    INT "group.consumer.min.session.timeout.ms" = "45000", AtLeast(1), A, ReadOnly,
        "";
    INT "group.consumer.regex.refresh.interval.ms" = "600000", AtLeast(10000), I, Internal,
        "";
    INT "group.consumer.session.timeout.ms" = "45000", AtLeast(1), A, ReadOnly,
        "";
    INT "group.coordinator.append.linger.ms" = "-1", AtLeast(-1), I, ReadOnly,
        "";
    INT "group.coordinator.background.threads" = "2", AtLeast(1), I, ReadOnly,
        "";
    INT "group.coordinator.cached.buffer.max.bytes" = "1048588", AtLeast(524288), I, Dynamic,
        "";
    LIST "group.coordinator.rebalance.protocols" = "classic,consumer,streams", EachOf(&["consumer", "classic", "share", "streams"]), A, ReadOnly,
        "";
    INT "group.coordinator.threads" = "4", AtLeast(1), I, ReadOnly,
        "";
    INT "group.initial.rebalance.delay.ms" = "3000", Any, Y, ReadOnly,
        "";
    INT "group.max.session.timeout.ms" = "1800000", Any, Y, ReadOnly,
        "";
    INT "group.max.size" = "2147483647", AtLeast(1), Y, ReadOnly,
        "";
    INT "group.min.session.timeout.ms" = "6000", Any, Y, ReadOnly,
        "";
    INT "group.share.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "";
    BOOLEAN "group.share.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "";
    LIST "group.share.assignors" = "simple", Any, I, ReadOnly,
        "";
    INT "group.share.delivery.count.limit" = "5", Range(2, 10), I, ReadOnly,
        "";
    STRING "group.share.dlq.manager.class.name" = "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager", Any, I, Internal,
        "";
    INT "group.share.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.share.initialize.retry.interval.ms" = "30000", AtLeast(1), I, Internal,
        "";
    INT "group.share.max.assignment.interval.ms" = "15000", AtLeast(0), I, ReadOnly,
        "";
    INT "group.share.max.delivery.count.limit" = "10", Range(5, 25), I, ReadOnly,
        "";
    INT "group.share.max.heartbeat.interval.ms" = "15000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.share.max.partition.max.record.locks" = "4000", Range(2000, 10000), I, ReadOnly,
        "";
    INT "group.share.max.record.lock.duration.ms" = "60000", Range(30000, 3600000), I, ReadOnly,
        "";
    INT "group.share.max.session.timeout.ms" = "60000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.share.max.share.sessions" = "2000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.share.max.size" = "200", Range(1, 1000), I, ReadOnly,
        "";
    INT "group.share.min.assignment.interval.ms" = "0", AtLeast(0), I, ReadOnly,
        "";
    INT "group.share.min.delivery.count.limit" = "2", Range(2, 5), I, ReadOnly,
        "";
    INT "group.share.min.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.share.min.partition.max.record.locks" = "100", Range(100, 2000), I, ReadOnly,
        "";
    INT "group.share.min.record.lock.duration.ms" = "15000", Range(1000, 30000), I, ReadOnly,
        "";
    INT "group.share.min.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.share.partition.max.record.locks" = "2000", Range(100, 10000), I, ReadOnly,
        "";
    STRING "group.share.persister.class.name" = "org.apache.kafka.server.share.persister.DefaultStatePersister", Any, I, Internal,
        "";
    INT "group.share.record.lock.duration.ms" = "30000", Range(1000, 3600000), I, ReadOnly,
        "";
    INT "group.share.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "";
    LONG "group.streams.acceptable.recovery.lag" = "10000", AtLeast(0), I, Internal,
        "";
    INT "group.streams.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "";
    BOOLEAN "group.streams.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "";
    LIST "group.streams.assignors" = "sticky", Any, I, ReadOnly,
        "";
    INT "group.streams.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.initial.rebalance.delay.ms" = "3000", AtLeast(0), I, ReadOnly,
        "";
    INT "group.streams.max.assignment.interval.ms" = "15000", AtLeast(0), I, ReadOnly,
        "";
    INT "group.streams.max.heartbeat.interval.ms" = "15000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.max.session.timeout.ms" = "60000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.max.size" = "2147483647", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.max.standby.replicas" = "2", AtLeast(0), I, ReadOnly,
        "";
    INT "group.streams.max.warmup.replicas" = "20", AtLeast(0), I, Internal,
        "";
    INT "group.streams.min.assignment.interval.ms" = "0", AtLeast(0), I, ReadOnly,
        "";
    INT "group.streams.min.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.min.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.min.task.offset.interval.ms" = "15000", AtLeast(1), I, Internal,
        "";
    INT "group.streams.num.standby.replicas" = "0", AtLeast(0), I, ReadOnly,
        "";
    INT "group.streams.num.warmup.replicas" = "2", AtLeast(0), I, Internal,
        "";
    LIST "group.streams.rack.aware.assignment.tags" = "", Any, I, ReadOnly,
        "";
    INT "group.streams.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "";
    INT "group.streams.task.offset.interval.ms" = "60000", AtLeast(1), I, Internal,
        "";
    CLASS "group.streams.topology.description.plugin.class" = null, Any, I, ReadOnly,
        "";
    INT "offset.metadata.max.bytes" = "4096", Any, Y, ReadOnly,
        "";
    INT "offsets.commit.timeout.ms" = "5000", AtLeast(1), Y, ReadOnly,
        "";
    INT "offsets.load.buffer.size" = "5242880", AtLeast(1), I, ReadOnly,
        "";
    LONG "offsets.retention.check.interval.ms" = "600000", AtLeast(1), Y, ReadOnly,
        "";
    INT "offsets.retention.minutes" = "10080", AtLeast(1), Y, ReadOnly,
        "";
    INT "offsets.topic.compression.codec" = "0", Any, A, ReadOnly,
        "";
    INT "offsets.topic.num.partitions" = "50", AtLeast(1), Y, ReadOnly,
        "";
    SHORT "offsets.topic.replication.factor" = "3", AtLeast(1), Y, ReadOnly,
        "";
    INT "offsets.topic.segment.bytes" = "104857600", AtLeast(1), Y, ReadOnly,
        "";
    INT "share.coordinator.append.linger.ms" = "-1", AtLeast(-1), I, ReadOnly,
        "";
    INT "share.coordinator.cached.buffer.max.bytes" = "1048588", AtLeast(524288), I, Dynamic,
        "";
    INT "share.coordinator.cold.partition.snapshot.interval.ms" = "300000", AtLeast(1), I, Internal,
        "";
    INT "share.coordinator.load.buffer.size" = "5242880", AtLeast(1), I, ReadOnly,
        "";
    INT "share.coordinator.snapshot.update.records.per.snapshot" = "500", Range(0, 500), I, ReadOnly,
        "";
    INT "share.coordinator.state.topic.compression.codec" = "0", Any, I, ReadOnly,
        "";
    SHORT "share.coordinator.state.topic.min.isr" = "2", AtLeast(1), I, ReadOnly,
        "";
    INT "share.coordinator.state.topic.num.partitions" = "50", AtLeast(1), I, ReadOnly,
        "";
    INT "share.coordinator.state.topic.prune.interval.ms" = "300000", AtLeast(1), I, Internal,
        "";
    SHORT "share.coordinator.state.topic.replication.factor" = "3", AtLeast(1), I, ReadOnly,
        "";
    INT "share.coordinator.state.topic.segment.bytes" = "104857600", AtLeast(1), I, ReadOnly,
        "";
    INT "share.coordinator.threads" = "1", AtLeast(1), I, ReadOnly,
        "";
    INT "share.coordinator.write.timeout.ms" = "5000", AtLeast(1), I, ReadOnly,
        "";
    INT "share.fetch.purgatory.purge.interval.requests" = "1000", Any, I, ReadOnly,
        "";
    INT "transaction.abort.timed.out.transaction.cleanup.interval.ms" = "10000", AtLeast(1), A, ReadOnly,
        "";
    INT "transaction.max.timeout.ms" = "900000", AtLeast(1), A, ReadOnly,
        "";
    BOOLEAN "transaction.partition.verification.enable" = "true", Any, A, Dynamic,
        "";
    INT "transaction.remove.expired.transaction.cleanup.interval.ms" = "3600000", AtLeast(1), A, ReadOnly,
        "";
    INT "transaction.state.log.load.buffer.size" = "5242880", AtLeast(1), I, ReadOnly,
        "";
    INT "transaction.state.log.min.isr" = "2", AtLeast(1), A, ReadOnly,
        "";
    INT "transaction.state.log.num.partitions" = "50", AtLeast(1), A, ReadOnly,
        "";
    SHORT "transaction.state.log.replication.factor" = "3", AtLeast(1), A, ReadOnly,
        "";
    INT "transaction.state.log.segment.bytes" = "104857600", AtLeast(1), A, ReadOnly,
        "";
    BOOLEAN "transaction.two.phase.commit.enable" = "false", Any, I, ReadOnly,
        "";
    INT "transactional.id.expiration.ms" = "604800000", AtLeast(1), A, ReadOnly,
        "";
}
