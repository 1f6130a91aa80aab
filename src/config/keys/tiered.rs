//! Tiered storage: known and shown, without effect.

use super::keys;

keys! { TIERED:
    BOOLEAN "follower.fetch.last.tiered.offset.enable" = "false", Any, I, Dynamic,
        "";
    LONG "log.local.retention.bytes" = "-2", AtLeast(-2), I, Dynamic,
        "";
    LONG "log.local.retention.ms" = "-2", AtLeast(-2), I, Dynamic,
        "";
    LONG "log.remote.copy.lag.bytes" = "-1", AtLeast(-1), I, Dynamic,
        "";
    LONG "log.remote.copy.lag.ms" = "0", AtLeast(-1), I, Dynamic,
        "";
    INT "remote.fetch.max.wait.ms" = "500", AtLeast(1), I, Dynamic,
        "";
    LONG "remote.list.offsets.request.timeout.ms" = "30000", AtLeast(1), I, Dynamic,
        "";
    LONG "remote.log.index.file.cache.total.size.bytes" = "1073741824", AtLeast(1), I, Dynamic,
        "";
    LONG "remote.log.index.file.cache.ttl.ms" = "900000", AtLeast(-1), I, Internal,
        "";
    INT "remote.log.manager.copier.thread.pool.size" = "10", AtLeast(1), I, Dynamic,
        "";
    LONG "remote.log.manager.copy.max.bytes.per.second" = "9223372036854775807", AtLeast(1), I, Dynamic,
        "";
    INT "remote.log.manager.copy.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "";
    INT "remote.log.manager.copy.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "";
    INT "remote.log.manager.expiration.thread.pool.size" = "10", AtLeast(1), I, Dynamic,
        "";
    LONG "remote.log.manager.fetch.max.bytes.per.second" = "9223372036854775807", AtLeast(1), I, Dynamic,
        "";
    INT "remote.log.manager.fetch.quota.window.num" = "11", AtLeast(1), I, ReadOnly,
        "";
    INT "remote.log.manager.fetch.quota.window.size.seconds" = "1", AtLeast(1), I, ReadOnly,
        "";
    INT "remote.log.manager.follower.thread.pool.size" = "2", AtLeast(1), I, Dynamic,
        "";
    LONG "remote.log.manager.task.interval.ms" = "30000", AtLeast(1), I, ReadOnly,
        "";
    LONG "remote.log.manager.task.retry.backoff.max.ms" = "30000", AtLeast(1), I, Internal,
        "";
    LONG "remote.log.manager.task.retry.backoff.ms" = "500", AtLeast(1), I, Internal,
        "";
    DOUBLE "remote.log.manager.task.retry.jitter" = "0.2", Ratio(0.0, 0.5), I, Internal,
        "";
    INT "remote.log.manager.thread.pool.size" = "2", AtLeast(1), I, ReadOnly,
        "";
    INT "remote.log.metadata.custom.metadata.max.bytes" = "128", AtLeast(0), I, ReadOnly,
        "";
    STRING "remote.log.metadata.manager.class.name" = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NonEmpty, I, ReadOnly,
        "";
    STRING "remote.log.metadata.manager.class.path" = null, Any, I, ReadOnly,
        "";
    STRING "remote.log.metadata.manager.impl.prefix" = "rlmm.config.", NonEmpty, I, ReadOnly,
        "";
    STRING "remote.log.metadata.manager.listener.name" = null, NonEmpty, I, ReadOnly,
        "";
    INT "remote.log.reader.max.pending.tasks" = "100", AtLeast(1), I, ReadOnly,
        "";
    INT "remote.log.reader.threads" = "10", AtLeast(1), I, Dynamic,
        "";
    STRING "remote.log.storage.manager.class.name" = null, NonEmpty, I, ReadOnly,
        "";
    STRING "remote.log.storage.manager.class.path" = null, Any, I, ReadOnly,
        "";
    STRING "remote.log.storage.manager.impl.prefix" = "rsm.config.", NonEmpty, I, ReadOnly,
        "";
    BOOLEAN "remote.log.storage.system.enable" = "false", Any, I, ReadOnly,
        "";
}
