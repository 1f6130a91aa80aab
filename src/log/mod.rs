//! One partition's bytes on one disk, and all of them. Synchronous: no runtime in this folder.

mod executor;
mod log;
mod manager;

pub use executor::{Executor, InlineExecutor, Job, ThreadPool};
pub use log::{
    AppendError, Appended, FileRange, Log, LogError, LogRead, LogSlice, ProducerView,
    TimestampOffset,
};
pub use manager::{FlushListener, LogDirDescription, LogManager, LogManagerConfig};
