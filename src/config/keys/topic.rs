//! What can be set on a topic.

use super::keys;

keys! { TOPIC:
    LIST "cleanup.policy" = "delete", EachOf(&["compact", "delete"]), Y, Dynamic,
        "What happens to old records: delete drops whole segments by age and size, compact keeps the newest record of each key; both may be given.";
    INT "compression.gzip.level" = "-1", GzipLevel, Y, Dynamic,
        "Effort of gzip where the broker compresses itself: 1 (fast) to 9 (small), -1 for the library's choice.";
    INT "compression.lz4.level" = "9", Range(1, 17), Y, Dynamic,
        "Effort of lz4 where the broker compresses itself: 1 (fast) to 17 (small).";
    STRING "compression.type" = "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Y, Dynamic,
        "Codec that record batches are kept in: producer keeps what was sent, uncompressed or a codec's name brings every batch into that form.";
    INT "compression.zstd.level" = "3", Range(-131072, 22), Y, Dynamic,
        "Effort of zstd where the broker compresses itself: higher is smaller and slower.";
    LONG "delete.retention.ms" = "86400000", AtLeast(0), Y, Dynamic,
        "How long a compacted log keeps tombstones, counted from when the cleaner first passed them.";
    BOOLEAN "errors.deadletterqueue.group.enable" = "false", Any, A, Dynamic,
        "Whether share groups may use this topic as a dead letter queue.";
    LONG "file.delete.delay.ms" = "60000", AtLeast(0), Y, Dynamic,
        "Time between a segment's removal from the log and the deletion of its files.";
    LONG "flush.messages" = "1", AtLeast(1), Y, Dynamic,
        "Records that may be appended before they are forced to disk. 1 makes acks=all wait for the disk; a larger number flushes in the background.";
    LONG "flush.ms" = "9223372036854775807", AtLeast(0), Y, Dynamic,
        "Longest time that a record may wait to be forced to disk in the background.";
    LIST "follower.replication.throttled.replicas" = "", ThrottledReplicas, A, Dynamic,
        "Replicas whose fetching is throttled, as partition:broker pairs, or * for all.";
    INT "index.interval.bytes" = "4096", AtLeast(0), Y, Dynamic,
        "Bytes of records between two entries of the offset index.";
    INT "internal.segment.bytes" = null, Any, Y, InternalDynamic,
        "Size at which a segment is closed, without the lower bound of segment.bytes; for tests.";
    LIST "leader.replication.throttled.replicas" = "", ThrottledReplicas, A, Dynamic,
        "Replicas that are served with throttled replication, as partition:broker pairs, or * for all.";
    LONG "local.retention.bytes" = "-2", AtLeast(-2), A, Dynamic,
        "Size up to which a tiered partition stays on local disk; -2 means the same as retention.bytes.";
    LONG "local.retention.ms" = "-2", AtLeast(-2), A, Dynamic,
        "Time for which a tiered partition stays on local disk; -2 means the same as retention.ms.";
    LONG "max.compaction.lag.ms" = "9223372036854775807", AtLeast(1), Y, Dynamic,
        "Time after which a record is compacted at the latest.";
    INT "max.decompressed.message.bytes" = "2147483639", Range(1, 2147483639), Y, Dynamic,
        "Largest size of a record batch once it is decompressed.";
    INT "max.message.bytes" = "1048588", AtLeast(0), Y, Dynamic,
        "Largest record batch that is accepted, in bytes as sent, compressed if it is.";
    LONG "message.timestamp.after.max.ms" = "3600000", AtLeast(0), Y, Dynamic,
        "How far ahead of the broker's clock a record's timestamp may be.";
    LONG "message.timestamp.before.max.ms" = "9223372036854775807", AtLeast(0), Y, Dynamic,
        "How far behind the broker's clock a record's timestamp may be.";
    STRING "message.timestamp.type" = "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]), Y, Dynamic,
        "Whether a record keeps the time its producer gave (CreateTime) or gets that of its append (LogAppendTime).";
    DOUBLE "min.cleanable.dirty.ratio" = "0.5", Ratio(0.0, 1.0), Y, Dynamic,
        "Part of a log that must be uncompacted before the cleaner takes it up.";
    LONG "min.compaction.lag.ms" = "0", AtLeast(0), Y, Dynamic,
        "Time for which a record stays uncompacted at least.";
    INT "min.insync.replicas" = "1", AtLeast(1), Y, Dynamic,
        "In-sync replicas without which produce requests with acks=all are refused.";
    BOOLEAN "preallocate" = "false", Any, A, Dynamic,
        "Whether a new segment's file gets its full size at once in Kafka; files grow as they are written here.";
    LONG "remote.copy.lag.bytes" = "-1", AtLeast(-1), A, Dynamic,
        "Bytes that may accumulate before segments are copied to remote storage; -1 for no such bound.";
    LONG "remote.copy.lag.ms" = "0", AtLeast(-1), A, Dynamic,
        "Time for which a segment may wait to be copied to remote storage.";
    BOOLEAN "remote.log.copy.disable" = "false", Any, A, Dynamic,
        "Whether a tiered topic stops copying segments to remote storage.";
    BOOLEAN "remote.log.delete.on.disable" = "false", Any, A, Dynamic,
        "Whether remote segments are deleted when tiering is switched off.";
    BOOLEAN "remote.storage.enable" = "false", Any, A, Dynamic,
        "Whether closed segments are moved to remote storage.";
    LONG "retention.bytes" = "-1", Any, Y, Dynamic,
        "Size up to which a partition is kept by cleanup.policy=delete; -1 for no bound.";
    LONG "retention.ms" = "604800000", AtLeast(-1), Y, Dynamic,
        "Age up to which records are kept by cleanup.policy=delete; -1 for no bound.";
    INT "segment.bytes" = "1073741824", AtLeast(1048576), Y, Dynamic,
        "Size at which a segment is closed and the next one is begun.";
    INT "segment.index.bytes" = "10485760", AtLeast(4), Y, Dynamic,
        "Largest size of a segment's offset index; a full index closes the segment.";
    LONG "segment.jitter.ms" = "0", AtLeast(0), Y, Dynamic,
        "Largest random time by which segment.ms is shortened, so that segments do not close together.";
    LONG "segment.ms" = "604800000", AtLeast(1), Y, Dynamic,
        "Age at which a segment is closed even if it is not full.";
    BOOLEAN "unclean.leader.election.enable" = "false", Any, Y, Dynamic,
        "Whether a replica that is not in sync may become leader when none other is left, losing records.";
}
