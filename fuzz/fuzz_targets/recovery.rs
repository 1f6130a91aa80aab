//! Arbitrary bytes as the files of a partition: opening, reading, searching and appending must end,
//! without a panic, and a log that opened must open again as it was.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ottla::config::TopicConfig;
use ottla::log::{Log, LogManager, LogManagerConfig};
use ottla::record::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, ValidBatch};
use ottla::time::{Clock, SystemClock};
use ottla::types::{Offset, TopicId, TopicPartition};

/// The files of a segment, and of its partition; each gets a part of the input.
const FILES: [&str; 6] = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.snapshot",
    "leader-epoch-checkpoint",
    "00000000000000000009.log",
];

fn open(path: &Path) -> Arc<LogManager> {
    let config = LogManagerConfig {
        directories: vec![path.to_owned()],
        cluster_id: "fuzz".to_owned(),
        node_id: 1,
        tail_cache_bytes: 0,
        initial_task_delay_ms: 3_600_000,
        flush_offset_checkpoint_interval_ms: 3_600_000,
        flush_start_offset_checkpoint_interval_ms: 3_600_000,
        high_watermark_checkpoint_interval_ms: 3_600_000,
        flush_scheduler_interval_ms: i64::MAX,
        retention_check_interval_ms: 3_600_000,
        producer_id_expiration_ms: 86_400_000,
        producer_id_expiration_check_interval_ms: 3_600_000,
        recovery_threads: 1,
        reserved_bytes: 0,
    };
    LogManager::open(config, Arc::new(SystemClock)).expect("the directory is ours")
}

fn log_of(manager: &LogManager) -> Option<Arc<Log>> {
    let config = TopicConfig {
        segment_bytes: 4_096,
        index_interval_bytes: 64,
        ..TopicConfig::default()
    };
    let partition = TopicPartition::new("fuzz", 0);
    manager.log(&partition, TopicId::ZERO, Arc::new(config)).ok()
}

fn walk(log: &Log) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    for offset in [start, start + (end - start) / 2, end] {
        let _ = log.read(offset, 500, Offset::MAX, true);
        let _ = log.epoch_for_offset(offset);
    }
    let _ = log.offset_for_timestamp(1, Offset::MAX);
    let _ = log.offset_of_max_timestamp();
    let _ = log.producers();
}

fn batch() -> ValidBatch {
    let mut builder = BatchBuilder::new();
    builder.push(SystemClock.wall_ms(), None, Some(b"value"));
    let bytes = builder.build();
    ValidBatch {
        header: BatchHeader::parse(&bytes).expect("built here"),
        payload: bytes.slice(BATCH_HEADER_BYTES..),
        max_timestamp_delta: 0,
    }
}

/// Flags, recovery point, the lengths of all files but the last, then their bytes.
fn parse(input: &[u8]) -> Option<(bool, u16, [u16; 5], &[u8])> {
    let (head, bytes) = input.split_first_chunk::<13>()?;
    let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let cuts = std::array::from_fn(|file| number(3 + 2 * file));
    Some((head[0] & 1 != 0, number(1), cuts, bytes))
}

fuzz_target!(|input: &[u8]| {
    let Some((clean, recovery_point, cuts, bytes)) = parse(input) else {
        return;
    };
    let parent = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let root = Path::new(parent).join(format!("ottla-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let topic = root.join("fuzz-0");
    std::fs::create_dir_all(&topic).expect("a directory");
    let mut rest = bytes;
    for (name, cut) in FILES.iter().zip(cuts.iter().map(|&cut| usize::from(cut)).chain([usize::MAX])) {
        let (part, behind) = rest.split_at(cut.min(rest.len()));
        rest = behind;
        if !part.is_empty() {
            std::fs::write(topic.join(name), part).expect("a file");
        }
    }
    if clean {
        std::fs::write(root.join(".kafka_cleanshutdown"), "{}").expect("a file");
    }
    let checkpoint = format!("0\n1\nfuzz 0 {recovery_point}\n");
    std::fs::write(root.join("recovery-point-offset-checkpoint"), checkpoint).expect("a file");

    let manager = open(&root);
    let Some(log) = log_of(&manager) else {
        return;
    };
    walk(&log);
    let appended = log.append(batch(), 1, SystemClock.wall_ms());
    let end = log.log_end_offset();
    manager.close();
    drop((log, manager));
    if appended.is_ok() {
        let manager = open(&root);
        let log = log_of(&manager).expect("it was open before");
        assert_eq!(log.log_end_offset(), end);
        walk(&log);
    }
});
