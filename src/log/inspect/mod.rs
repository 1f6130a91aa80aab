//! Looking at the files of a log without a broker, live or stopped, read-only: what
//! `ottla log dump` and `ottla log verify` do.

mod dump;
mod verify;

use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, OpenMode, RealDisk, read_small_file};

pub use dump::{DumpOptions, dump};
pub use verify::{Finding, Report, verify};

/// Longest index, snapshot or checkpoint that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_small_file(&RealDisk, path, FILE_BYTES_MAX)
}

fn open(path: &Path) -> io::Result<std::sync::Arc<dyn super::disk::DiskFile>> {
    RealDisk.open(path, OpenMode::Read)
}

/// The files under `path`, in order; itself if it is one.
fn files_under(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries = RealDisk.list(path)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut files = Vec::new();
    for entry in entries {
        let path = path.join(&entry.name);
        match entry.is_directory {
            true => files.extend(files_under(&path)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

fn name_of(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}
