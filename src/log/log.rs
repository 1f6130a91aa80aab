//! The log of one partition.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::directory::Directory;
use super::disk::replace_file;
use super::flush::SyncState;
use super::leader_epochs::LeaderEpochs;
use super::names;
use super::producer_state::ProducerState;
use super::segment::{LogFiles, Segment};
use super::walk::WalkError;
use crate::config::TopicConfig;
use crate::types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId, TopicPartition,
    is_internal_topic,
};

/// What the broker must do about a failed log operation.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directory went offline with this operation, or what was asked for is not there.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The directory went offline earlier, and said so then.
    #[error("log directory {} is offline", .0.display())]
    Offline(PathBuf),
    /// No room: nothing was written, and nothing is wrong with the directory.
    #[error("the disk of log directory {} is full", .0.display())]
    Full(PathBuf),
    /// A directory that cannot be used at all; an operator has to do something.
    #[error("log.dirs={}: {reason}; {fix}", .path.display())]
    Unusable {
        path: PathBuf,
        reason: String,
        fix: String,
    },
    #[error("offset {offset} is not in {log_start_offset}..={log_end_offset}")]
    OffsetOutOfRange {
        offset: Offset,
        log_start_offset: Offset,
        log_end_offset: Offset,
    },
    #[error("{0}")]
    Corrupt(String),
    /// What was asked for is damaged, and was told of when it was found; what lies around it is well.
    #[error("offsets {first_offset} to {} are damaged", next_offset - 1)]
    Damaged {
        first_offset: Offset,
        next_offset: Offset,
    },
}

impl From<WalkError> for LogError {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io(error) => Self::Io(error),
            bad @ WalkError::Bad { .. } => Self::Corrupt(bad.to_string()),
            WalkError::Damaged {
                first_offset,
                next_offset,
            } => Self::Damaged {
                first_offset,
                next_offset,
            },
        }
    }
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("{0}")]
    Log(#[from] LogError),
    /// OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, RECORD_LIST_TOO_LARGE ...
    #[error("{0}")]
    Refused(#[from] crate::types::ApiError),
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// Only where the topic stamps LogAppendTime, else −1.
    pub log_append_time_ms: TimestampMs,
    pub log_start_offset: Offset,
    /// The batch was there already (idempotence): the offsets are those of its first write.
    pub duplicate: bool,
}

/// A piece of a segment file, to be sent as it is. Holding the file keeps it readable after deletion.
#[derive(Debug, Clone)]
pub struct FileRange {
    pub file: Arc<File>,
    pub position: u64,
    pub bytes: u64,
    /// To be set by whoever cannot read it: reads come from memory then, and fail where it is.
    pub unreadable: Arc<AtomicBool>,
}

/// Bytes of whole batches.
#[derive(Debug, Clone)]
pub enum LogSlice {
    Memory(Vec<Bytes>),
    File(FileRange),
}

/// What a read found.
#[derive(Debug, Clone)]
pub struct LogRead {
    pub slice: LogSlice,
    pub bytes: usize,
    /// True if more batches below the bound follow the ones returned.
    pub more: bool,
}

/// An offset with its timestamp and leader epoch, as ListOffsets answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// One producer's state, as DescribeProducers answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerView {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub last_sequence: i32,
    pub last_timestamp: TimestampMs,
    pub coordinator_epoch: i32,
    pub current_txn_start_offset: Offset,
}

/// One partition's log. All methods are synchronous and may block on the disk unless said otherwise;
/// `log_start_offset <= flushed_offset <= log_end_offset` always.
///
/// Locks, in this order where more than one is held: `truncating`, `flushing`, `writer`, `producers`, then
/// `view` or `sync`. Only those before `view` are held during I/O; readers take only `view`.
#[derive(Debug)]
pub struct Log {
    pub(super) me: Weak<Log>,
    pub(super) partition: TopicPartition,
    pub(super) topic_id: TopicId,
    /// The broker's own topics may use the room that users' records leave.
    pub(super) is_internal: bool,
    pub(super) directory: Arc<Directory>,
    pub(super) files: LogFiles,
    pub(super) config: RwLock<Arc<TopicConfig>>,
    pub(super) log_start: AtomicI64,
    pub(super) log_end: AtomicI64,
    pub(super) flushed: AtomicI64,
    /// After a crash what is past it is checked: all below is on disk, indexes included.
    pub(super) recovery_point: AtomicI64,
    pub(super) view: Mutex<View>,
    pub(super) writer: Mutex<Writer>,
    /// `None` until it is needed.
    pub(super) producers: Mutex<Option<ProducerState>>,
    pub(super) sync: Mutex<SyncState>,
    /// Held by the one who syncs.
    pub(super) flushing: Mutex<()>,
    /// Held by the one who cuts the log, and by whoever makes a promise durable that a cut takes back.
    pub(super) truncating: Mutex<()>,
    /// How often the log was cut.
    pub(super) truncations: AtomicU64,
    /// When a reader was last at the end, by the wall clock.
    pub(super) read_at_end_ms: AtomicI64,
    /// In the flusher's queue.
    pub(super) dirty: AtomicBool,
    /// The time of a flush by `flush.ms` is set.
    pub(super) timed: AtomicBool,
    pub(super) deleted: AtomicBool,
}

/// What readers see.
#[derive(Debug, Default)]
pub(super) struct View {
    /// By base offset; the last one is written to. Empty before the first record.
    pub segments: Vec<Arc<Segment>>,
    pub epochs: LeaderEpochs,
}

/// Whether an error says that there is no room, and not that the disk is broken.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What only the writer touches.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The partition's directory exists.
    pub on_disk: bool,
    /// Offset of the newest producer snapshot.
    pub snapshot: Offset,
    /// Bytes appended since the recovery point was moved.
    pub bytes_since_recovery_point: u64,
    pub appended_since_tick: bool,
    pub appended: bool,
    /// Opened by looking at the files: their indexes may have been made anew.
    pub looked_at: bool,
    /// Something of it may be in the tail cache.
    pub cached: bool,
    /// The log's first epoch is not in its file yet.
    pub epochs_to_write: bool,
}

/// How a log begins: as found on disk, or empty.
#[derive(Debug, Default)]
pub(super) struct Opened {
    pub on_disk: bool,
    pub log_start: Offset,
    pub log_end: Offset,
    pub segments: Vec<Arc<Segment>>,
    pub epochs: LeaderEpochs,
    pub looked_at: bool,
    pub epochs_to_write: bool,
    /// Recovered, and not synced yet: where it began, and the segments.
    pub unsynced: Option<(Offset, Vec<Offset>)>,
}

impl Log {
    pub(super) fn new(
        directory: &Arc<Directory>,
        partition: TopicPartition,
        topic_id: TopicId,
        config: Arc<TopicConfig>,
        files: LogFiles,
        opened: Opened,
    ) -> Arc<Self> {
        let (flushed, sync) = match &opened.unsynced {
            Some((on_disk, segments)) => (*on_disk, SyncState::unsynced(segments, opened.log_end)),
            None => (opened.log_end, SyncState::default()),
        };
        let log = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            is_internal: is_internal_topic(&partition.topic),
            partition,
            topic_id,
            directory: Arc::clone(directory),
            files,
            config: RwLock::new(config),
            log_start: AtomicI64::new(opened.log_start),
            log_end: AtomicI64::new(opened.log_end),
            flushed: AtomicI64::new(flushed),
            recovery_point: AtomicI64::new(flushed),
            view: Mutex::new(View {
                segments: opened.segments,
                epochs: opened.epochs,
            }),
            writer: Mutex::new(Writer {
                on_disk: opened.on_disk,
                snapshot: -1,
                looked_at: opened.looked_at,
                epochs_to_write: opened.epochs_to_write,
                ..Writer::default()
            }),
            producers: Mutex::new(None),
            sync: Mutex::new(sync),
            flushing: Mutex::new(()),
            truncating: Mutex::new(()),
            truncations: AtomicU64::new(0),
            read_at_end_ms: AtomicI64::new(0),
            dirty: AtomicBool::new(false),
            timed: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
        });
        if flushed < log.log_end_offset() {
            log.flush_in_a_while();
        }
        log
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.partition
    }

    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Takes effect at the next append, roll or flush.
    pub fn set_config(&self, config: Arc<TopicConfig>) {
        let waits_for_disk = config.flush_messages == 1;
        *self.config.write() = config;
        if waits_for_disk && self.flushed_offset() < self.log_end_offset() {
            self.request_flush();
        }
    }

    pub(super) fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.config.read())
    }

    pub(super) fn index_interval(&self) -> u64 {
        u64::try_from(self.config.read().index_interval_bytes).unwrap_or(0)
    }

    /// Does not block.
    pub fn log_start_offset(&self) -> Offset {
        self.log_start.load(Ordering::Acquire)
    }

    /// Does not block.
    pub fn log_end_offset(&self) -> Offset {
        self.log_end.load(Ordering::Acquire)
    }

    /// All below is on disk. Does not block.
    pub fn flushed_offset(&self) -> Offset {
        self.flushed.load(Ordering::Acquire)
    }

    /// Epoch of the record at `offset`, or of the last before it.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.view.lock().epochs.epoch_for(offset)
    }

    /// Largest epoch `<= epoch` that has records, with the offset at which it ends, by the rules of
    /// Kafka's `LeaderEpochFileCache`. Knows only epochs that were appended: for a leader epoch without
    /// records yet the caller answers the log end offset.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let end = self.log_end_offset();
        self.view.lock().epochs.end_offset_for(epoch, end)
    }

    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.view.lock().epochs.latest()
    }

    /// Bytes of all segments. Does not block.
    pub fn size_bytes(&self) -> u64 {
        let view = self.view.lock();
        view.segments.iter().map(|segment| segment.bytes()).sum()
    }

    /// Damaged places that are known. Does not block.
    pub fn damaged_places(&self) -> usize {
        let segments = self.view.lock().segments.clone();
        let places = segments.iter().filter_map(|segment| segment.damage());
        places.map(|places| places.len()).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.view.lock().segments.len()
    }

    /// Moves the log start up (DeleteRecords), durably, and drops segments wholly below.
    pub fn advance_log_start_offset(&self, to: Offset) -> Result<Offset, LogError> {
        self.directory.check_online()?;
        let end = self.log_end_offset();
        let start = self.log_start_offset();
        if to > end || to < 0 {
            return Err(LogError::OffsetOutOfRange {
                offset: to,
                log_start_offset: start,
                log_end_offset: end,
            });
        }
        if to <= start {
            return Ok(start);
        }
        if to > self.flushed_offset() {
            self.flush()?;
        }
        let first_kept = {
            let view = self.view.lock();
            let after = view.segments.partition_point(|s| s.base_offset <= to);
            let first = after.checked_sub(1).filter(|first| *first > 0);
            first.map(|first| view.segments[first].base_offset)
        };
        if let Some(base_offset) = first_kept {
            self.keep_producers(base_offset)?;
        }
        let me = self.me.upgrade().map(|me| (me, to));
        match self.directory.store_log_starts(me.as_slice()) {
            Ok(()) => self.drop_below(to, false)?,
            Err(LogError::Io(error)) if is_full(&error) => self.make_room_below(to, error)?,
            Err(error) => return Err(error),
        }
        Ok(self.log_start_offset())
    }

    /// There is no room to store the new start, and deleting is what would make room: whole segments go,
    /// whose renamed files say where the log starts. An error if that is not all that was asked for.
    fn make_room_below(&self, to: Offset, error: io::Error) -> Result<(), LogError> {
        let base_offset = {
            let view = self.view.lock();
            let bases = view.segments.iter().map(|segment| segment.base_offset);
            bases.take_while(|base| *base <= to).last()
        };
        if let Some(base_offset) = base_offset
            && base_offset > self.log_start_offset()
        {
            self.drop_below(base_offset, true)?;
        }
        match base_offset == Some(to) {
            true => Ok(()),
            false => Err(self.directory.failed_write("store a log start", error)),
        }
    }

    /// The file is a cache: it is not synced, and what is missing in it is found in the batches.
    pub(super) fn write_epochs(&self, text: &str) {
        let path = self.files.path.join(names::LEADER_EPOCH_CHECKPOINT);
        if let Err(error) = replace_file(&*self.files.disk, &path, text.as_bytes(), false) {
            tracing::warn!(partition = %self.partition, %error, "write the leader epochs");
        }
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Writes what the first append put off: a short log costs one file less.
    pub(super) fn write_first_epoch(&self, writer: &mut Writer) {
        if std::mem::take(&mut writer.epochs_to_write) {
            let text = self.view.lock().epochs.to_text();
            self.write_epochs(&text);
        }
    }

    pub(super) fn check_usable(&self) -> Result<(), LogError> {
        self.directory.check_online()?;
        if self.deleted.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the log was deleted").into());
        }
        Ok(())
    }
}
