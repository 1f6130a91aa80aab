//! One partition's bytes on one disk, and all of them. Synchronous: no runtime in this folder.
//!
//! A partition's directory `<topic>-<partition>` is made with its first record and is Apache Kafka's,
//! byte for byte: `<base offset>.log` holds batches, `.index` and `.timeindex` point into it,
//! `.snapshot` holds producer state, `leader-epoch-checkpoint` says where epochs begin. All but the
//! `.log` can be made anew from it, and is where it is missing or damaged.
//!
//! Invariants: batches are on disk as they were sent but for base offset and leader epoch; nothing
//! below `flushed_offset` is lost by a power cut; a file is changed by one thread at a time, and
//! readers see only what is published.

mod ahead;
mod append;
mod append_replica;
mod callers;
mod checked;
mod checkpoint;
mod claim;
mod cleanup;
mod closing;
mod directory;
mod disk;
mod epoch_recovery;
mod executor;
mod files;
mod flush;
mod format;
mod housekeeping;
mod index;
pub mod inspect;
mod inventory;
mod leader_epochs;
mod life;
#[allow(clippy::module_inception)] // Kafka's word for it
mod log;
mod manager;
mod manifest;
mod names;
mod note;
mod owner;
mod producer_state;
mod producers;
mod read;
mod recovery;
mod retention;
mod room;
mod scrub;
mod segment;
mod segment_index;
mod segment_read;
mod survey;
mod tail_cache;
mod tasks;
mod truncate;
mod walk;

pub use callers::Callers;
pub use claim::ClaimedDirectory;
pub use disk::{DirectoryEntry, Disk, DiskFile, DiskLock, OpenMode, RealDisk};
pub use executor::{Executor, InlineExecutor, Job, ThreadPool};
pub use format::{DirectoryOwner, directory_owner, format_directory};
pub use inventory::{LogAtRest, LogDirDescription, LogDirState, PartitionOnDisk};
pub use log::{
    AppendError, Appended, FileRange, Log, LogError, LogRead, LogSlice, ProducerView,
    TimestampOffset,
};
pub use manager::{FlushListener, LogManager, LogManagerConfig, open_files_most};
pub use note::registry_notes;
#[cfg(test)]
pub(crate) use owner::incarnation_in;
pub use owner::{cluster_id_of, directory_ids, has_partitions, stopped_incarnation};

#[cfg(test)]
pub(crate) mod gated_disk;
#[cfg(test)]
pub(crate) mod tests;
