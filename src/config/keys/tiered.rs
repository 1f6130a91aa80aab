//! Tiered storage: known and shown, without effect.

use super::keys;

keys! { TIERED:
    BOOLEAN "follower.fetch.last.tiered.offset.enable" = "false", Any, I, Dynamic,
        "Whether a new follower starts behind what is in remote storage already.";
    LONG "log.local.retention.bytes" = "-2", AtLeast(-2), I, Dynamic,
        "Size up to which tiered partitions stay on local disk, where the topic does not say.";
    LONG "log.local.retention.ms" = "-2", AtLeast(-2), I, Dynamic,
        "Time for which tiered partitions stay on local disk, where the topic does not say.";
    LONG "log.remote.copy.lag.bytes" = "-1", AtLeast(-1), I, Dynamic,
        "Bytes that may accumulate before segments are copied to remote storage, where the topic does not say.";
    LONG "log.remote.copy.lag.ms" = "0", AtLeast(-1), I, Dynamic,
        "Time for which segments may wait to be copied to remote storage, where the topic does not say.";
    INT "remote.fetch.max.wait.ms" = "500", AtLeast(1), I, Dynamic,
        "Longest wait of a fetch for remote storage.";
    LONG "remote.list.offsets.request.timeout.ms" = "30000", AtLeast(1), I, Dynamic,
        "Longest wait of ListOffsets for remote storage.";
    LONG "remote.log.index.file.cache.total.size.bytes" = "1073741824", AtLeast(1), I, Dynamic,
        "Disk space for indexes of remote segments.";
    LONG "remote.log.index.file.cache.ttl.ms" = "900000", AtLeast(-1), I, Internal,
        "Time for which unused indexes of remote segments are kept.";
    INT "remote.log.manager.copier.thread.pool.size" = "10", AtLeast(1), I, Dynamic,
        "Threads that copy segments to remote storage.";
    LONG "remote.log.manager.copy.max.bytes.per.second" = "9223372036854775807", AtLeast(1), I, Dynamic,
        "Bytes per second that are copied to remote storage at most.";
    INT "remote.log.manager.copy.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "Windows over which copies to remote storage are counted.";
    INT "remote.log.manager.copy.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "Length of each window over which copies to remote storage are counted.";
    INT "remote.log.manager.expiration.thread.pool.size" = "10", AtLeast(1), I, Dynamic,
        "Threads that delete expired remote segments.";
    LONG "remote.log.manager.fetch.max.bytes.per.second" = "9223372036854775807", AtLeast(1), I, Dynamic,
        "Bytes per second that are read from remote storage at most.";
    INT "remote.log.manager.fetch.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "Windows over which reads from remote storage are counted.";
    INT "remote.log.manager.fetch.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "Length of each window over which reads from remote storage are counted.";
    INT "remote.log.manager.follower.thread.pool.size" = "2", AtLeast(1), I, Dynamic,
        "Threads that prepare followers of tiered partitions.";
    LONG "remote.log.manager.task.interval.ms" = "30000", AtLeast(1), I, ReadOnly,
        "How often tiered partitions are looked over.";
    LONG "remote.log.manager.task.retry.backoff.max.ms" = "30000", AtLeast(1), I, Internal,
        "Longest pause between attempts to reach remote storage.";
    LONG "remote.log.manager.task.retry.backoff.ms" = "500", AtLeast(1), I, Internal,
        "First pause between attempts to reach remote storage.";
    DOUBLE "remote.log.manager.task.retry.jitter" = "0.2", Ratio(0.0, 0.5), I, Internal,
        "Random part of those pauses.";
    INT "remote.log.manager.thread.pool.size" = "2", AtLeast(1), I, ReadOnly,
        "Threads of tiering that have no pool of their own.";
    INT "remote.log.metadata.custom.metadata.max.bytes" = "128", AtLeast(0), I, ReadOnly,
        "Largest note that a remote storage plugin may keep per segment.";
    STRING "remote.log.metadata.manager.class.name" = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NonEmpty, I, ReadOnly,
        "Java class that keeps the metadata of remote segments; none can be loaded here.";
    STRING "remote.log.metadata.manager.class.path" = null, Any, I, ReadOnly,
        "Where that class is.";
    STRING "remote.log.metadata.manager.impl.prefix" = "rlmm.config.", NonEmpty, I, ReadOnly,
        "What the keys of that class begin with.";
    STRING "remote.log.metadata.manager.listener.name" = null, NonEmpty, I, ReadOnly,
        "Listener by which that class reaches the brokers.";
    INT "remote.log.reader.max.pending.tasks" = "100", AtLeast(1), I, ReadOnly,
        "Reads from remote storage that may wait.";
    INT "remote.log.reader.threads" = "10", AtLeast(1), I, Dynamic,
        "Threads that read from remote storage.";
    STRING "remote.log.storage.manager.class.name" = null, NonEmpty, I, ReadOnly,
        "Java class of the remote storage; none can be loaded here.";
    STRING "remote.log.storage.manager.class.path" = null, Any, I, ReadOnly,
        "Where that class is.";
    STRING "remote.log.storage.manager.impl.prefix" = "rsm.config.", NonEmpty, I, ReadOnly,
        "What the keys of that class begin with.";
    BOOLEAN "remote.log.storage.system.enable" = "false", Any, I, ReadOnly,
        "Whether closed segments can be moved to remote storage at all.";
}
