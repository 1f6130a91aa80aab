//! The log, its retention and its flushing; most are the defaults of topic keys.

use super::keys;

keys! { STORAGE:
    INT "compression.gzip.level" = "-1", GzipLevel, Y, Dynamic,
        "Effort of gzip where the broker compresses itself: 1 (fast) to 9 (small), -1 for the library's choice.";
    INT "compression.lz4.level" = "9", Range(1, 17), Y, Dynamic,
        "Effort of lz4 where the broker compresses itself: 1 (fast) to 17 (small).";
    STRING "compression.type" = "producer", OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Y, Dynamic,
        "Codec that record batches are kept in: producer keeps what was sent, uncompressed or a codec's name brings every batch into that form.";
    INT "compression.zstd.level" = "3", Range(-131072, 22), Y, Dynamic,
        "Effort of zstd where the broker compresses itself: higher is smaller and slower.";
    LIST "cordoned.log.dirs" = "", Any, I, PerBroker,
        "Log directories that get no new partitions.";
    LONG "log.cleaner.backoff.ms" = "15000", AtLeast(0), A, Dynamic,
        "Pause of the cleaner when no log needs it.";
    LONG "log.cleaner.dedupe.buffer.size" = "134217728", Any, A, Dynamic,
        "Memory of all cleaner threads for the keys of the log they clean.";
    LONG "log.cleaner.delete.retention.ms" = "86400000", AtLeast(0), A, Dynamic,
        "How long compacted logs keep tombstones, where the topic does not say.";
    BOOLEAN "log.cleaner.enable" = "true", Any, A, ReadOnly,
        "Whether compacted topics are cleaned at all.";
    DOUBLE "log.cleaner.io.buffer.load.factor" = "0.9", Any, A, Dynamic,
        "How full the cleaner's table of keys may become.";
    INT "log.cleaner.io.buffer.size" = "524288", AtLeast(0), A, Dynamic,
        "Memory of all cleaner threads for reading and writing.";
    DOUBLE "log.cleaner.io.max.bytes.per.second" = "1.7976931348623157E308", Any, A, Dynamic,
        "Bytes per second that the cleaner reads and writes at most.";
    LONG "log.cleaner.max.compaction.lag.ms" = "9223372036854775807", AtLeast(1), Y, Dynamic,
        "Time after which records are compacted at the latest, where the topic does not say.";
    DOUBLE "log.cleaner.min.cleanable.ratio" = "0.5", Ratio(0.0, 1.0), A, Dynamic,
        "Part of a log that must be uncompacted before it is cleaned, where the topic does not say.";
    LONG "log.cleaner.min.compaction.lag.ms" = "0", AtLeast(0), A, Dynamic,
        "Time for which records stay uncompacted at least, where the topic does not say.";
    INT "log.cleaner.threads" = "1", AtLeast(0), A, Dynamic,
        "Threads that clean compacted logs.";
    LIST "log.cleanup.policy" = "delete", EachOf(&["compact", "delete"]), Y, Dynamic,
        "What happens to old records, where the topic does not say: delete, compact, or both.";
    LIST "log.dir" = "/tmp/kafka-logs", Any, Y, ReadOnly,
        "Directory of the logs, where log.dirs is not set.";
    LONG "log.dir.failure.timeout.ms" = "30000", AtLeast(1), A, ReadOnly,
        "How long a broker that could not report a failed log directory goes on.";
    LONG "log.dir.reserved.bytes" = "67108864", AtLeast(0), Y, ReadOnly,
        "Room on the disk of each log directory, at most a 20th of it, that users' records leave free for groups, checkpoints and metadata.";
    LIST "log.dirs" = null, Any, Y, ReadOnly,
        "Directories of the logs, separated by commas.";
    LONG "log.flush.interval.messages" = "1", AtLeast(1), Y, Dynamic,
        "Records that may be appended before they are forced to disk, where the topic does not say. 1, the default here, makes acks=all wait for the disk.";
    LONG "log.flush.interval.ms" = null, Any, Y, Dynamic,
        "Longest time that records may wait to be forced to disk in the background, where the topic does not say.";
    INT "log.flush.offset.checkpoint.interval.ms" = "60000", AtLeast(0), Y, ReadOnly,
        "How often the offsets from which recovery starts are written to disk.";
    LONG "log.flush.scheduler.interval.ms" = "9223372036854775807", Any, Y, ReadOnly,
        "How often logs are looked over for records to force to disk.";
    INT "log.flush.start.offset.checkpoint.interval.ms" = "60000", AtLeast(0), Y, ReadOnly,
        "How often the first offsets of the logs are written to disk.";
    INT "log.index.interval.bytes" = "4096", AtLeast(0), Y, Dynamic,
        "Bytes of records between two entries of an offset index, where the topic does not say.";
    INT "log.index.size.max.bytes" = "10485760", AtLeast(4), Y, Dynamic,
        "Largest size of an offset index, where the topic does not say.";
    LONG "log.initial.task.delay.ms" = "30000", AtLeast(0), Y, Internal,
        "Pause after the start before the first retention, flush and checkpoint rounds.";
    BOOLEAN "log.message.downconversion.enable" = null, Any, I, Internal,
        "Whether batches were rewritten for old consumers in Kafka before 4.0; accepted for old files.";
    STRING "log.message.format.version" = null, Any, I, Internal,
        "Format of batches in Kafka before 4.0; accepted for old files.";
    LONG "log.message.timestamp.after.max.ms" = "3600000", AtLeast(0), Y, Dynamic,
        "How far ahead of the broker's clock timestamps may be, where the topic does not say.";
    LONG "log.message.timestamp.before.max.ms" = "9223372036854775807", AtLeast(0), Y, Dynamic,
        "How far behind the broker's clock timestamps may be, where the topic does not say.";
    LONG "log.message.timestamp.difference.max.ms" = null, Any, I, Internal,
        "How far from the broker's clock timestamps could be in Kafka before 4.0; accepted for old files.";
    STRING "log.message.timestamp.type" = "CreateTime", OneOf(&["CreateTime", "LogAppendTime"]), Y, Dynamic,
        "Which time records carry, where the topic does not say: CreateTime or LogAppendTime.";
    BOOLEAN "log.preallocate" = "false", Any, A, Dynamic,
        "Whether new segment files get their full size at once in Kafka, where the topic does not say; files grow as they are written here.";
    LONG "log.retention.bytes" = "-1", Any, Y, Dynamic,
        "Size up to which partitions are kept, where the topic does not say; -1 for no bound.";
    LONG "log.retention.check.interval.ms" = "300000", AtLeast(1), Y, ReadOnly,
        "How often logs are looked over for segments to delete.";
    INT "log.retention.hours" = "168", Any, Y, ReadOnly,
        "Age in hours up to which records are kept, where nothing finer is set; negative for no bound.";
    INT "log.retention.minutes" = null, Any, Y, ReadOnly,
        "Age in minutes up to which records are kept, where log.retention.ms is not set; negative for no bound.";
    LONG "log.retention.ms" = null, Any, Y, Dynamic,
        "Age up to which records are kept, where the topic does not say; -1 for no bound.";
    INT "log.roll.hours" = "168", AtLeast(1), Y, ReadOnly,
        "Age in hours at which segments are closed, where log.roll.ms is not set.";
    INT "log.roll.jitter.hours" = "0", AtLeast(0), Y, ReadOnly,
        "Hours of random shortening of that age, where log.roll.jitter.ms is not set.";
    LONG "log.roll.jitter.ms" = null, Any, Y, Dynamic,
        "Random shortening of the age at which segments are closed, where the topic does not say.";
    LONG "log.roll.ms" = null, Any, Y, Dynamic,
        "Age at which segments are closed, where the topic does not say.";
    LONG "log.scrub.interval.ms" = "-1", AtLeast(-1), Y, ReadOnly,
        "Pause between two rounds in which closed segments are read and their CRCs checked; -1 for none.";
    INT "log.segment.bytes" = "1073741824", AtLeast(1048576), Y, Dynamic,
        "Size at which segments are closed, where the topic does not say.";
    LONG "log.segment.delete.delay.ms" = "60000", AtLeast(0), Y, Dynamic,
        "Time between a segment's removal and the deletion of its files, where the topic does not say.";
    INT "max.decompressed.message.bytes" = "2147483639", Range(1, 2147483639), Y, Dynamic,
        "Largest size of a record batch once it is decompressed.";
    INT "message.max.bytes" = "1048588", AtLeast(0), Y, Dynamic,
        "Largest record batch that is accepted, where the topic does not say.";
    INT "min.insync.replicas" = "1", AtLeast(1), Y, Dynamic,
        "In-sync replicas without which produce requests with acks=all are refused.";
    INT "num.recovery.threads.per.data.dir" = "2", AtLeast(1), Y, Dynamic,
        "Threads per log directory that recover logs at the start.";
    INT "producer.id.expiration.check.interval.ms" = "600000", AtLeast(1), Y, Internal,
        "How often idle producer ids are looked for.";
    INT "producer.id.expiration.ms" = "86400000", AtLeast(1), Y, Dynamic,
        "Time after its last write for which a partition remembers an idempotent producer.";
    BOOLEAN "unclean.leader.election.enable" = "false", Any, Y, Dynamic,
        "Whether a replica that is not in sync may become leader when none other is left, losing records.";
    LONG "unclean.leader.election.interval.ms" = "300000", AtLeast(1), I, Internal,
        "How often partitions without a leader are looked over for an unclean election.";
}
