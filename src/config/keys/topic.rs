//! What can be set on a topic.

use super::keys;

keys! { TOPIC:
    LIST "cleanup.policy" = "delete", EachOf(&["compact", "delete"]), Y, Dynamic,
        "";
    INT "compression.gzip.level" = "-1", GzipLevel, A, Dynamic,
        "";
    INT "compression.lz4.level" = "9", Range(1, 17), A, Dynamic,
        "";
    STRING "compression.type" = "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Y, Dynamic,
        "";
    INT "compression.zstd.level" = "3", Range(-131072, 22), A, Dynamic,
        "";
    LONG "delete.retention.ms" = "86400000", AtLeast(0), Y, Dynamic,
        "";
    BOOLEAN "errors.deadletterqueue.group.enable" = "false", Any, A, Dynamic,
        "";
    LONG "file.delete.delay.ms" = "60000", AtLeast(0), Y, Dynamic,
        "";
    LONG "flush.messages" = "1", AtLeast(1), Y, Dynamic,
        "";
    LONG "flush.ms" = "9223372036854775807", AtLeast(0), Y, Dynamic,
        "";
    LIST "follower.replication.throttled.replicas" = "", ThrottledReplicas, A, Dynamic,
        "";
    INT "index.interval.bytes" = "4096", AtLeast(0), Y, Dynamic,
        "";
    LIST "leader.replication.throttled.replicas" = "", ThrottledReplicas, A, Dynamic,
        "";
    LONG "local.retention.bytes" = "-2", AtLeast(-2), A, Dynamic,
        "";
    LONG "local.retention.ms" = "-2", AtLeast(-2), A, Dynamic,
        "";
    LONG "max.compaction.lag.ms" = "9223372036854775807", AtLeast(1), Y, Dynamic,
        "";
    INT "max.decompressed.message.bytes" = "2147483639", Range(1, 2147483639), Y, Dynamic,
        "";
    INT "max.message.bytes" = "1048588", AtLeast(0), Y, Dynamic,
        "";
    LONG "message.timestamp.after.max.ms" = "3600000", AtLeast(0), Y, Dynamic,
        "";
    LONG "message.timestamp.before.max.ms" = "9223372036854775807", AtLeast(0), Y, Dynamic,
        "";
    STRING "message.timestamp.type" = "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]), Y, Dynamic,
        "";
    DOUBLE "min.cleanable.dirty.ratio" = "0.5", Ratio(0.0, 1.0), Y, Dynamic,
        "";
    LONG "min.compaction.lag.ms" = "0", AtLeast(0), Y, Dynamic,
        "";
    INT "min.insync.replicas" = "1", AtLeast(1), Y, Dynamic,
        "";
    BOOLEAN "preallocate" = "false", Any, Y, Dynamic,
        "";
    LONG "remote.copy.lag.bytes" = "-1", AtLeast(-1), A, Dynamic,
        "";
    LONG "remote.copy.lag.ms" = "0", AtLeast(-1), A, Dynamic,
        "";
    BOOLEAN "remote.log.copy.disable" = "false", Any, A, Dynamic,
        "";
    BOOLEAN "remote.log.delete.on.disable" = "false", Any, A, Dynamic,
        "";
    BOOLEAN "remote.storage.enable" = "false", Any, A, Dynamic,
        "";
    LONG "retention.bytes" = "-1", Any, Y, Dynamic,
        "";
    LONG "retention.ms" = "604800000", AtLeast(-1), Y, Dynamic,
        "";
    INT "segment.bytes" = "1073741824", AtLeast(1048576), Y, Dynamic,
        "";
    INT "segment.index.bytes" = "10485760", AtLeast(4), Y, Dynamic,
        "";
    LONG "segment.jitter.ms" = "0", AtLeast(0), Y, Dynamic,
        "";
    LONG "segment.ms" = "604800000", AtLeast(1), Y, Dynamic,
        "";
    BOOLEAN "unclean.leader.election.enable" = "false", Any, Y, Dynamic,
        "";
}
