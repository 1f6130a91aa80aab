//! Groups, offsets, transactions, share groups.

use super::keys;

keys! { COORDINATORS:
    INT "add.partitions.to.txn.retry.backoff.max.ms" = "100", AtLeast(0), I, ReadOnly,
        "Longest time for which adding a partition to a transaction is retried inside the broker.";
    INT "add.partitions.to.txn.retry.backoff.ms" = "20", AtLeast(1), I, ReadOnly,
        "Pause between such retries.";
    BOOLEAN "errors.deadletterqueue.auto.create.topics.enable" = "false", Any, I, Dynamic,
        "Whether dead letter queues are created where they do not exist.";
    STRING "errors.deadletterqueue.topic.name.prefix" = "dlq.", Any, I, Dynamic,
        "What the names of dead letter queues begin with.";
    INT "group.consumer.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "Shortest time between two assignments of a consumer group, where the group does not say.";
    BOOLEAN "group.consumer.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "Whether assignments of consumer groups are computed beside the coordinator's own thread, where the group does not say.";
    LIST "group.consumer.assignors" = "uniform,range", Any, A, ReadOnly,
        "Assignors of consumer groups, the default first.";
    INT "group.consumer.heartbeat.interval.ms" = "5000", AtLeast(1), A, ReadOnly,
        "How often members of consumer groups send heartbeats, where the group does not say.";
    INT "group.consumer.max.assignment.interval.ms" = "15000", AtLeast(0), I, ReadOnly,
        "Largest value that a group may set for consumer.assignment.interval.ms.";
    INT "group.consumer.max.heartbeat.interval.ms" = "15000", AtLeast(1), A, ReadOnly,
        "Largest value that a group may set for consumer.heartbeat.interval.ms.";
    INT "group.consumer.max.session.timeout.ms" = "60000", AtLeast(1), A, ReadOnly,
        "Largest value that a group may set for consumer.session.timeout.ms.";
    INT "group.consumer.max.size" = "2147483647", AtLeast(1), A, ReadOnly,
        "Members that a consumer group has at most.";
    STRING "group.consumer.migration.policy" = "bidirectional", OneOfNoCase(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]), A, ReadOnly,
        "Whether a group may change between the classic and the consumer protocol while members are in it.";
    INT "group.consumer.min.assignment.interval.ms" = "0", AtLeast(0), I, ReadOnly,
        "Smallest value that a group may set for consumer.assignment.interval.ms.";
    INT "group.consumer.min.heartbeat.interval.ms" = "5000", AtLeast(1), A, ReadOnly,
        "Smallest value that a group may set for consumer.heartbeat.interval.ms.";
    INT "group.consumer.min.session.timeout.ms" = "45000", AtLeast(1), A, ReadOnly,
        "Smallest value that a group may set for consumer.session.timeout.ms.";
    INT "group.consumer.regex.refresh.interval.ms" = "600000", AtLeast(10000), I, Internal,
        "How often subscriptions by pattern are resolved again.";
    INT "group.consumer.session.timeout.ms" = "45000", AtLeast(1), A, ReadOnly,
        "Time without a heartbeat after which members of consumer groups are removed, where the group does not say.";
    INT "group.coordinator.append.linger.ms" = "-1", AtLeast(-1), I, ReadOnly,
        "Time for which Kafka's coordinator gathers writes; -1 lets it choose.";
    INT "group.coordinator.background.threads" = "2", AtLeast(1), I, ReadOnly,
        "Threads of Kafka's coordinator for background work.";
    INT "group.coordinator.cached.buffer.max.bytes" = "1048588", AtLeast(524288), I, Dynamic,
        "Largest buffer that Kafka's coordinator keeps for writing.";
    LIST "group.coordinator.rebalance.protocols" = "classic,consumer,streams", EachOf(&["consumer", "classic", "share", "streams"]), A, ReadOnly,
        "Group protocols that are offered.";
    INT "group.coordinator.threads" = "4", AtLeast(1), I, ReadOnly,
        "Threads of Kafka's coordinator.";
    INT "group.initial.rebalance.delay.ms" = "3000", Any, Y, ReadOnly,
        "How long an empty group waits for more members before its first assignment.";
    INT "group.max.session.timeout.ms" = "1800000", Any, Y, ReadOnly,
        "Longest session timeout that a member of a classic group may ask for.";
    INT "group.max.size" = "2147483647", AtLeast(1), Y, ReadOnly,
        "Members that a classic group has at most.";
    INT "group.min.session.timeout.ms" = "6000", Any, Y, ReadOnly,
        "Shortest session timeout that a member of a classic group may ask for.";
    INT "group.share.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "Shortest time between two assignments of a share group, where the group does not say.";
    BOOLEAN "group.share.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "Whether assignments of share groups are computed beside the coordinator's own thread, where the group does not say.";
    LIST "group.share.assignors" = "simple", Any, I, ReadOnly,
        "Assignors of share groups, the default first.";
    INT "group.share.delivery.count.limit" = "5", Range(2, 10), I, ReadOnly,
        "How many times a record is delivered to a share group before it is given up, where the group does not say.";
    STRING "group.share.dlq.manager.class.name" = "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager", Any, I, Internal,
        "Java class that runs dead letter queues; none can be loaded here.";
    INT "group.share.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "How often members of share groups send heartbeats, where the group does not say.";
    INT "group.share.initialize.retry.interval.ms" = "30000", AtLeast(1), I, Internal,
        "Pause before the state of a share group's partition is initialized again.";
    INT "group.share.max.assignment.interval.ms" = "15000", AtLeast(0), I, ReadOnly,
        "Largest value that a group may set for share.assignment.interval.ms.";
    INT "group.share.max.delivery.count.limit" = "10", Range(5, 25), I, ReadOnly,
        "Largest value that a group may set for share.delivery.count.limit.";
    INT "group.share.max.heartbeat.interval.ms" = "15000", AtLeast(1), I, ReadOnly,
        "Largest value that a group may set for share.heartbeat.interval.ms.";
    INT "group.share.max.partition.max.record.locks" = "4000", Range(2000, 10000), I, ReadOnly,
        "Largest value that a group may set for share.partition.max.record.locks.";
    INT "group.share.max.record.lock.duration.ms" = "60000", Range(30000, 3600000), I, ReadOnly,
        "Largest value that a group may set for share.record.lock.duration.ms.";
    INT "group.share.max.session.timeout.ms" = "60000", AtLeast(1), I, ReadOnly,
        "Largest value that a group may set for share.session.timeout.ms.";
    INT "group.share.max.share.sessions" = "2000", AtLeast(1), I, ReadOnly,
        "Share sessions that a broker keeps at most.";
    INT "group.share.max.size" = "200", Range(1, 1000), I, ReadOnly,
        "Members that a share group has at most.";
    INT "group.share.min.assignment.interval.ms" = "0", AtLeast(0), I, ReadOnly,
        "Smallest value that a group may set for share.assignment.interval.ms.";
    INT "group.share.min.delivery.count.limit" = "2", Range(2, 5), I, ReadOnly,
        "Smallest value that a group may set for share.delivery.count.limit.";
    INT "group.share.min.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "Smallest value that a group may set for share.heartbeat.interval.ms.";
    INT "group.share.min.partition.max.record.locks" = "100", Range(100, 2000), I, ReadOnly,
        "Smallest value that a group may set for share.partition.max.record.locks.";
    INT "group.share.min.record.lock.duration.ms" = "15000", Range(1000, 30000), I, ReadOnly,
        "Smallest value that a group may set for share.record.lock.duration.ms.";
    INT "group.share.min.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "Smallest value that a group may set for share.session.timeout.ms.";
    INT "group.share.partition.max.record.locks" = "2000", Range(100, 10000), I, ReadOnly,
        "Records of a partition that may be in delivery to a share group at once, where the group does not say.";
    STRING "group.share.persister.class.name" = "org.apache.kafka.server.share.persister.DefaultStatePersister", Any, I, Internal,
        "Java class that keeps the state of share groups; none can be loaded here.";
    INT "group.share.record.lock.duration.ms" = "30000", Range(1000, 3600000), I, ReadOnly,
        "Time that a member has to acknowledge a record, where the group does not say.";
    INT "group.share.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "Time without a heartbeat after which members of share groups are removed, where the group does not say.";
    LONG "group.streams.acceptable.recovery.lag" = "10000", AtLeast(0), I, Internal,
        "Records that a task's copy may lag behind and still take the task over, where the group does not say.";
    INT "group.streams.assignment.interval.ms" = "1000", AtLeast(0), I, Dynamic,
        "Shortest time between two assignments of a streams group, where the group does not say.";
    BOOLEAN "group.streams.assignor.offload.enable" = "true", Any, I, InternalDynamic,
        "Whether assignments of streams groups are computed beside the coordinator's own thread, where the group does not say.";
    LIST "group.streams.assignors" = "sticky", Any, I, ReadOnly,
        "Assignors of streams groups, the default first.";
    INT "group.streams.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "How often members of streams groups send heartbeats, where the group does not say.";
    INT "group.streams.initial.rebalance.delay.ms" = "3000", AtLeast(0), I, ReadOnly,
        "How long a new streams group waits for more members, where the group does not say.";
    INT "group.streams.max.assignment.interval.ms" = "15000", AtLeast(0), I, ReadOnly,
        "Largest value that a group may set for streams.assignment.interval.ms.";
    INT "group.streams.max.heartbeat.interval.ms" = "15000", AtLeast(1), I, ReadOnly,
        "Largest value that a group may set for streams.heartbeat.interval.ms.";
    INT "group.streams.max.session.timeout.ms" = "60000", AtLeast(1), I, ReadOnly,
        "Largest value that a group may set for streams.session.timeout.ms.";
    INT "group.streams.max.size" = "2147483647", AtLeast(1), I, ReadOnly,
        "Members that a streams group has at most.";
    INT "group.streams.max.standby.replicas" = "2", AtLeast(0), I, ReadOnly,
        "Largest value that a group may set for streams.num.standby.replicas.";
    INT "group.streams.max.warmup.replicas" = "20", AtLeast(0), I, Internal,
        "Largest value that a group may set for streams.num.warmup.replicas.";
    INT "group.streams.min.assignment.interval.ms" = "0", AtLeast(0), I, ReadOnly,
        "Smallest value that a group may set for streams.assignment.interval.ms.";
    INT "group.streams.min.heartbeat.interval.ms" = "5000", AtLeast(1), I, ReadOnly,
        "Smallest value that a group may set for streams.heartbeat.interval.ms.";
    INT "group.streams.min.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "Smallest value that a group may set for streams.session.timeout.ms.";
    INT "group.streams.min.task.offset.interval.ms" = "15000", AtLeast(1), I, Internal,
        "Smallest value that a group may set for streams.task.offset.interval.ms.";
    INT "group.streams.num.standby.replicas" = "0", AtLeast(0), I, ReadOnly,
        "Standby copies of each stateful task, where the group does not say.";
    INT "group.streams.num.warmup.replicas" = "2", AtLeast(0), I, Internal,
        "Tasks that may be warmed up elsewhere at once, where the group does not say.";
    LIST "group.streams.rack.aware.assignment.tags" = "", Any, I, ReadOnly,
        "Client tags by which standby tasks are spread, where the group does not say.";
    INT "group.streams.session.timeout.ms" = "45000", AtLeast(1), I, ReadOnly,
        "Time without a heartbeat after which members of streams groups are removed, where the group does not say.";
    INT "group.streams.task.offset.interval.ms" = "60000", AtLeast(1), I, Internal,
        "How often members of streams groups report the offsets of their tasks, where the group does not say.";
    CLASS "group.streams.topology.description.plugin.class" = null, Any, I, ReadOnly,
        "Java class that describes topologies; none can be loaded here.";
    INT "offset.metadata.max.bytes" = "4096", Any, Y, ReadOnly,
        "Largest text that a client may store beside a committed offset.";
    INT "offsets.commit.timeout.ms" = "5000", AtLeast(1), Y, ReadOnly,
        "How long an offset commit waits to be on all in-sync replicas.";
    INT "offsets.load.buffer.size" = "5242880", AtLeast(1), I, ReadOnly,
        "Bytes that are read at once while group state is loaded.";
    LONG "offsets.retention.check.interval.ms" = "600000", AtLeast(1), Y, ReadOnly,
        "How often expired offsets are looked for.";
    INT "offsets.retention.minutes" = "10080", AtLeast(1), Y, ReadOnly,
        "Minutes for which the offsets of an empty group are kept.";
    INT "offsets.topic.compression.codec" = "0", Any, A, ReadOnly,
        "Number of the codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.";
    INT "offsets.topic.num.partitions" = "50", AtLeast(1), Y, ReadOnly,
        "Partitions of __consumer_offsets when it is created.";
    SHORT "offsets.topic.replication.factor" = "3", AtLeast(1), Y, ReadOnly,
        "Replicas of __consumer_offsets when it is created, at most one per broker that is there.";
    INT "offsets.topic.segment.bytes" = "104857600", AtLeast(1), Y, ReadOnly,
        "Segment size of __consumer_offsets when it is created.";
    INT "share.coordinator.append.linger.ms" = "-1", AtLeast(-1), I, ReadOnly,
        "Time for which Kafka's share coordinator gathers writes; -1 lets it choose.";
    INT "share.coordinator.cached.buffer.max.bytes" = "1048588", AtLeast(524288), I, Dynamic,
        "Largest buffer that Kafka's share coordinator keeps for writing.";
    INT "share.coordinator.cold.partition.snapshot.interval.ms" = "300000", AtLeast(1), I, Internal,
        "How often the state of quiet share partitions is written in full.";
    INT "share.coordinator.load.buffer.size" = "5242880", AtLeast(1), I, ReadOnly,
        "Bytes that are read at once while share state is loaded.";
    INT "share.coordinator.snapshot.update.records.per.snapshot" = "500", Range(0, 500), I, ReadOnly,
        "Changes of share state between two full copies.";
    INT "share.coordinator.state.topic.compression.codec" = "0", Any, I, ReadOnly,
        "Number of the codec of __share_group_state.";
    SHORT "share.coordinator.state.topic.min.isr" = "2", AtLeast(1), I, ReadOnly,
        "In-sync replicas that writes to __share_group_state need.";
    INT "share.coordinator.state.topic.num.partitions" = "50", AtLeast(1), I, ReadOnly,
        "Partitions of __share_group_state when it is created.";
    INT "share.coordinator.state.topic.prune.interval.ms" = "300000", AtLeast(1), I, Internal,
        "How often records of __share_group_state that are not needed any more are deleted.";
    SHORT "share.coordinator.state.topic.replication.factor" = "3", AtLeast(1), I, ReadOnly,
        "Replicas of __share_group_state when it is created.";
    INT "share.coordinator.state.topic.segment.bytes" = "104857600", AtLeast(1), I, ReadOnly,
        "Segment size of __share_group_state when it is created.";
    INT "share.coordinator.threads" = "1", AtLeast(1), I, ReadOnly,
        "Threads of Kafka's share coordinator.";
    INT "share.coordinator.write.timeout.ms" = "5000", AtLeast(1), I, ReadOnly,
        "How long a write of share state waits to be on all in-sync replicas.";
    INT "share.fetch.purgatory.purge.interval.requests" = "1000", Any, I, ReadOnly,
        "How often Kafka clears finished waits of ShareFetch.";
    INT "transaction.abort.timed.out.transaction.cleanup.interval.ms" = "10000", AtLeast(1), A, ReadOnly,
        "How often transactions that ran out of time are looked for and aborted.";
    INT "transaction.max.timeout.ms" = "900000", AtLeast(1), A, ReadOnly,
        "Longest transaction timeout that a producer may ask for.";
    BOOLEAN "transaction.partition.verification.enable" = "true", Any, A, Dynamic,
        "Whether a partition asks the coordinator about a transaction before it accepts its first write.";
    INT "transaction.remove.expired.transaction.cleanup.interval.ms" = "3600000", AtLeast(1), A, ReadOnly,
        "How often transactional ids that expired are looked for.";
    INT "transaction.state.log.load.buffer.size" = "5242880", AtLeast(1), I, ReadOnly,
        "Bytes that are read at once while transaction state is loaded.";
    INT "transaction.state.log.min.isr" = "2", AtLeast(1), A, ReadOnly,
        "In-sync replicas that writes to __transaction_state need.";
    INT "transaction.state.log.num.partitions" = "50", AtLeast(1), A, ReadOnly,
        "Partitions of __transaction_state when it is created.";
    SHORT "transaction.state.log.replication.factor" = "3", AtLeast(1), A, ReadOnly,
        "Replicas of __transaction_state when it is created, at most one per broker that is there.";
    INT "transaction.state.log.segment.bytes" = "104857600", AtLeast(1), A, ReadOnly,
        "Segment size of __transaction_state when it is created.";
    BOOLEAN "transaction.two.phase.commit.enable" = "false", Any, I, ReadOnly,
        "Whether producers may take part in two-phase commits that do not time out.";
    INT "transactional.id.expiration.ms" = "604800000", AtLeast(1), A, ReadOnly,
        "Time without use after which a transactional id is forgotten.";
}
