//! A real disk that stalls or fails when a test tells it to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{DirectoryEntry, Disk, DiskFile, DiskLock, OpenMode, RealDisk};

/// What `fdatasync` does: goes on, waits, or fails.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    fails: AtomicBool,
}

impl Gate {
    /// Closed, every sync waits until it is opened again.
    pub(crate) fn set_closed(&self, closed: bool) {
        *self.closed.lock() = closed;
        self.opened.notify_all();
    }

    /// Every sync from now on fails.
    pub(crate) fn fail(&self) {
        self.fails.store(true, Ordering::SeqCst);
    }

    fn pass(&self) -> std::io::Result<()> {
        let mut closed = self.closed.lock();
        while *closed {
            self.opened.wait(&mut closed);
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("the test says so"));
        }
        Ok(())
    }
}

/// The real disk behind a gate.
#[derive(Debug)]
pub(crate) struct GatedDisk(pub(crate) Arc<Gate>);

#[derive(Debug)]
struct GatedFile(Arc<dyn DiskFile>, Arc<Gate>);

impl Disk for GatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn DiskFile>> {
        let file = RealDisk.open(path, mode)?;
        Ok(Arc::new(GatedFile(file, Arc::clone(&self.0))))
    }
    fn create_directory(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.create_directory(path)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<DirectoryEntry>> {
        RealDisk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.remove_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.sync_directory(path)
    }
    fn lock(&self, path: &Path) -> std::io::Result<Box<dyn DiskLock>> {
        RealDisk.lock(path)
    }
    fn space(&self, path: &Path) -> std::io::Result<(u64, u64)> {
        RealDisk.space(path)
    }
}

impl DiskFile for GatedFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> std::io::Result<usize> {
        self.0.read_at(buffer, position)
    }
    fn write_at(&self, head: &[u8], tail: &[u8], position: u64) -> std::io::Result<()> {
        self.0.write_at(head, tail, position)
    }
    fn bytes(&self) -> std::io::Result<u64> {
        self.0.bytes()
    }
    fn modified_ms(&self) -> std::io::Result<crate::types::TimestampMs> {
        self.0.modified_ms()
    }
    fn truncate(&self, bytes: u64) -> std::io::Result<()> {
        self.0.truncate(bytes)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.1.pass()?;
        self.0.sync()
    }
    fn as_file(&self) -> Option<&Arc<std::fs::File>> {
        self.0.as_file()
    }
}
