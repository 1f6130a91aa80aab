//! The names of files and directories, as Apache Kafka gives them. Pure.

use crate::types::{Offset, TopicPartition};

pub(crate) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
pub(crate) const PARTITION_METADATA: &str = "partition.metadata";
pub(crate) const META_PROPERTIES: &str = "meta.properties";
pub(crate) const LOCK: &str = ".lock";
pub(crate) const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
pub(crate) const LOG_START_CHECKPOINT: &str = "log-start-offset-checkpoint";
pub(crate) const REPLICATION_CHECKPOINT: &str = "replication-offset-checkpoint";
/// Kafka's mark of a clean stop.
pub(crate) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// What a clean stop knows about every partition, so that the next start opens none.
pub(crate) const MANIFEST: &str = ".ottla_manifest";
/// Touched while the broker writes.
pub(crate) const LIFE_SIGN: &str = ".ottla_alive";
/// What the broker has seen of a registry outside of it.
pub(crate) const REGISTRY_SEEN: &str = ".ottla_registry";
pub(crate) const DELETED_FILE_SUFFIX: &str = ".deleted";
pub(crate) const DELETED_DIRECTORY_SUFFIX: &str = "-delete";
/// A directory of a topic id that the cluster does not know any more.
pub(crate) const STRAY_DIRECTORY_SUFFIX: &str = "-stray";

/// A segment file that belongs to no log.
pub(crate) const STRAY_FILE_SUFFIX: &str = ".stray";

/// What a file of a segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    ProducerSnapshot,
    TransactionIndex,
}

impl FileKind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Log,
        Self::OffsetIndex,
        Self::TimeIndex,
        Self::ProducerSnapshot,
        Self::TransactionIndex,
    ];

    fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::ProducerSnapshot => "snapshot",
            Self::TransactionIndex => "txnindex",
        }
    }
}

/// `00000000000000000042.log`
pub(crate) fn segment_file(offset: Offset, kind: FileKind) -> String {
    format!("{offset:020}.{}", kind.extension())
}

/// The offset and kind of a segment's file, if the name is one.
pub(crate) fn parse_segment_file(name: &str) -> Option<(Offset, FileKind)> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kind = FileKind::ALL
        .into_iter()
        .find(|kind| kind.extension() == extension)?;
    Some((digits.parse().ok()?, kind))
}

/// The partition that a directory `topic-3` holds. `None` for everything else, also for what is being
/// deleted and for the metadata log of a KRaft node, which is none of ours.
pub(crate) fn parse_partition_directory(name: &str) -> Option<TopicPartition> {
    let (topic, number) = name.rsplit_once('-')?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if topic.is_empty() || topic.len() > 249 || !topic.bytes().all(valid) {
        return None;
    }
    if topic == "__cluster_metadata" || number.is_empty() {
        return None;
    }
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(TopicPartition::new(topic, number.parse().ok()?))
}

/// `topic-3.<32 hex digits>-delete`, cut so that it stays a legal file name.
pub(crate) fn removed_directory(
    partition: &TopicPartition,
    unique: uuid::Uuid,
    suffix: &str,
) -> String {
    let tail = format!("-{}.{}{suffix}", partition.partition, unique.simple());
    let topic = &partition.topic[..partition.topic.len().min(255 - tail.len())];
    format!("{topic}{tail}")
}

/// True for the name of a directory that is to be removed.
pub(crate) fn is_deleted_directory(name: &str) -> bool {
    let Some((_, rest)) = name.rsplit_once('.') else {
        return false;
    };
    let Some(hex) = rest.strip_suffix(DELETED_DIRECTORY_SUFFIX) else {
        return false;
    };
    hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// True for what Kafka or this broker puts into a log directory, or into a partition's directory.
pub(crate) fn is_known(name: &str, is_directory: bool) -> bool {
    const FILES: [&str; 16] = [
        LEADER_EPOCH_CHECKPOINT,
        PARTITION_METADATA,
        META_PROPERTIES,
        LOCK,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_CHECKPOINT,
        REPLICATION_CHECKPOINT,
        CLEAN_SHUTDOWN,
        MANIFEST,
        LIFE_SIGN,
        REGISTRY_SEEN,
        "cleaner-offset-checkpoint",
        "bootstrap.checkpoint",
        "registry.redb",
        "registry.reserve",
        "quorum-state",
    ];
    const SUFFIXES: [&str; 4] = [".tmp", ".new", DELETED_FILE_SUFFIX, STRAY_FILE_SUFFIX];
    if is_directory {
        return parse_partition_directory(name).is_some()
            || [DELETED_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, "-future"]
                .iter()
                .any(|suffix| name.ends_with(suffix))
            || matches!(name, "__cluster_metadata-0" | "lost+found");
    }
    parse_segment_file(name).is_some()
        || FILES.contains(&name)
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || name.starts_with("registry.redb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas() {
        assert_eq!(segment_file(42, FileKind::Log), "00000000000000000042.log");
        assert_eq!(
            parse_segment_file("00000000000000000042.timeindex"),
            Some((42, FileKind::TimeIndex))
        );
        for name in [
            "42.log",
            "00000000000000000042.log.deleted",
            "x.log",
            "99999999999999999999.log",
        ] {
            assert_eq!(parse_segment_file(name), None, "{name}");
        }
    }

    #[test]
    fn directories_of_partitions_are_told_from_others() {
        let parse = |name| parse_partition_directory(name);
        assert_eq!(
            parse("my-topic-12"),
            Some(TopicPartition::new("my-topic", 12))
        );
        for name in [
            "topic",
            "topic-",
            "-1",
            "topic-x",
            "topic-99999999999",
            "__cluster_metadata-0",
            "a b-0",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn strangers_are_told_from_what_belongs_here() {
        for name in [
            "00000000000000000042.log",
            "meta.properties",
            "x.log.deleted",
        ] {
            assert!(is_known(name, false), "{name}");
        }
        assert!(is_known("topic-0", true) && is_known("lost+found", true));
        assert!(!is_known("topic-0", false) && !is_known("notes.txt", false));
        assert!(!is_known("backup", true) && !is_known("00000000000000000042.log", true));
    }

    #[test]
    fn a_deleted_directory_keeps_a_legal_name() {
        let unique = uuid::Uuid::from_u128(7);
        let name = removed_directory(&TopicPartition::new("t", 3), unique, "-delete");
        assert_eq!(name, "t-3.00000000000000000000000000000007-delete");
        assert!(is_deleted_directory(&name));
        assert_eq!(parse_partition_directory(&name), None);
        let long = TopicPartition::new("x".repeat(249), 3);
        assert_eq!(removed_directory(&long, unique, "-delete").len(), 255);
        assert!(!is_deleted_directory("my.topic-delete"));
    }
}
