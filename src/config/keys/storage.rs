//! The log, its retention and its flushing; most are the defaults of topic keys.

use super::keys;

keys! { STORAGE:
    INT "compression.gzip.level" = "-1", GzipLevel, A, Dynamic,
        "";
    INT "compression.lz4.level" = "9", Range(1, 17), A, Dynamic,
        "";
    STRING "compression.type" = "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Y, Dynamic,
        "";
    INT "compression.zstd.level" = "3", Range(-131072, 22), A, Dynamic,
        "";
    LIST "cordoned.log.dirs" = "", Any, I, PerBroker,
        "";
    LONG "log.cleaner.backoff.ms" = "15000", AtLeast(0), Y, Dynamic,
        "";
    LONG "log.cleaner.dedupe.buffer.size" = "134217728", Any, A, Dynamic,
        "";
    LONG "log.cleaner.delete.retention.ms" = "86400000", AtLeast(0), Y, Dynamic,
        "";
    BOOLEAN "log.cleaner.enable" = "true", Any, Y, ReadOnly,
        "";
    DOUBLE "log.cleaner.io.buffer.load.factor" = "0.9", Any, A, Dynamic,
        "";
    INT "log.cleaner.io.buffer.size" = "524288", AtLeast(0), A, Dynamic,
        "";
    DOUBLE "log.cleaner.io.max.bytes.per.second" = "1.7976931348623157E308", Any, A, Dynamic,
        "";
    LONG "log.cleaner.max.compaction.lag.ms" = "9223372036854775807", AtLeast(1), Y, Dynamic,
        "";
    DOUBLE "log.cleaner.min.cleanable.ratio" = "0.5", Ratio(0.0, 1.0), Y, Dynamic,
        "";
    LONG "log.cleaner.min.compaction.lag.ms" = "0", AtLeast(0), Y, Dynamic,
        "";
    INT "log.cleaner.threads" = "1", AtLeast(0), A, Dynamic,
        "";
    LIST "log.cleanup.policy" = "delete", EachOf(&["compact", "delete"]), Y, Dynamic,
        "";
    LIST "log.dir" = "/tmp/kafka-logs", Any, Y, ReadOnly,
        "";
    LONG "log.dir.failure.timeout.ms" = "30000", AtLeast(1), A, ReadOnly,
        "";
    LIST "log.dirs" = null, Any, Y, ReadOnly,
        "";
    LONG "log.flush.interval.messages" = "1", AtLeast(1), Y, Dynamic,
        "";
    LONG "log.flush.interval.ms" = null, Any, Y, Dynamic,
        "";
    INT "log.flush.offset.checkpoint.interval.ms" = "60000", AtLeast(0), Y, ReadOnly,
        "";
    LONG "log.flush.scheduler.interval.ms" = "9223372036854775807", Any, Y, ReadOnly,
        "";
    INT "log.flush.start.offset.checkpoint.interval.ms" = "60000", AtLeast(0), Y, ReadOnly,
        "";
    INT "log.index.interval.bytes" = "4096", AtLeast(0), Y, Dynamic,
        "";
    INT "log.index.size.max.bytes" = "10485760", AtLeast(4), Y, Dynamic,
        "";
    LONG "log.initial.task.delay.ms" = "30000", AtLeast(0), Y, Internal,
        "";
    BOOLEAN "log.message.downconversion.enable" = null, Any, I, Internal,
        "";
    STRING "log.message.format.version" = null, Any, I, Internal,
        "";
    LONG "log.message.timestamp.after.max.ms" = "3600000", AtLeast(0), Y, Dynamic,
        "";
    LONG "log.message.timestamp.before.max.ms" = "9223372036854775807", AtLeast(0), Y, Dynamic,
        "";
    LONG "log.message.timestamp.difference.max.ms" = null, Any, I, Internal,
        "";
    STRING "log.message.timestamp.type" = "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]), Y, Dynamic,
        "";
    BOOLEAN "log.preallocate" = "false", Any, Y, Dynamic,
        "";
    LONG "log.retention.bytes" = "-1", Any, Y, Dynamic,
        "";
    LONG "log.retention.check.interval.ms" = "300000", AtLeast(1), Y, ReadOnly,
        "";
    INT "log.retention.hours" = "168", Any, Y, ReadOnly,
        "";
    INT "log.retention.minutes" = null, Any, Y, ReadOnly,
        "";
    LONG "log.retention.ms" = null, Any, Y, Dynamic,
        "";
    INT "log.roll.hours" = "168", AtLeast(1), Y, ReadOnly,
        "";
    INT "log.roll.jitter.hours" = "0", AtLeast(0), Y, ReadOnly,
        "";
    LONG "log.roll.jitter.ms" = null, Any, Y, Dynamic,
        "";
    LONG "log.roll.ms" = null, Any, Y, Dynamic,
        "";
    INT "log.segment.bytes" = "1073741824", AtLeast(1048576), Y, Dynamic,
        "";
    LONG "log.segment.delete.delay.ms" = "60000", AtLeast(0), Y, Dynamic,
        "";
    INT "max.decompressed.message.bytes" = "2147483639", Range(1, 2147483639), Y, Dynamic,
        "";
    INT "message.max.bytes" = "1048588", AtLeast(0), Y, Dynamic,
        "";
    INT "min.insync.replicas" = "1", AtLeast(1), Y, Dynamic,
        "";
    INT "num.recovery.threads.per.data.dir" = "2", AtLeast(1), Y, Dynamic,
        "";
    INT "producer.id.expiration.check.interval.ms" = "600000", AtLeast(1), Y, Internal,
        "";
    INT "producer.id.expiration.ms" = "86400000", AtLeast(1), Y, Dynamic,
        "";
    BOOLEAN "unclean.leader.election.enable" = "false", Any, Y, Dynamic,
        "";
    LONG "unclean.leader.election.interval.ms" = "300000", AtLeast(1), I, Internal,
        "";
}
