//! Open files of all logs, under one budget.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile, OpenMode};
use super::names::FileKind;
use crate::types::Offset;

/// Which file of which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub log: u64,
    pub base_offset: Offset,
    pub kind: FileKind,
}

/// Keeps files open, the least used are closed past the budget ("second chance"). Whoever holds an
/// `Arc` of a file goes on using it.
#[derive(Debug)]
pub(crate) struct FilePool {
    disk: Arc<dyn Disk>,
    open_max: usize,
    slots: Mutex<Slots>,
    held: Arc<AtomicUsize>,
}

/// A file that stays open until it is synced: an error of the write-back is reported to whoever had it
/// open.
#[derive(Debug)]
pub(crate) struct HeldFile {
    pub file: Arc<dyn DiskFile>,
    held: Arc<AtomicUsize>,
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Slots {
    by_key: HashMap<FileKey, usize>,
    entries: Vec<Entry>,
    hand: usize,
    /// How often somebody said that a file, open or not, is no longer the one of its name.
    forgotten: u64,
}

#[derive(Debug)]
struct Entry {
    key: FileKey,
    file: Arc<dyn DiskFile>,
    used: bool,
}

impl FilePool {
    pub(crate) fn new(disk: Arc<dyn Disk>, open_max: usize) -> Self {
        Self {
            disk,
            open_max: open_max.max(1),
            slots: Mutex::new(Slots::default()),
            held: Arc::default(),
        }
    }

    /// The file, from the pool or opened. `path` is asked for only where it must be opened.
    pub(crate) fn open<P: AsRef<Path>>(
        &self,
        key: FileKey,
        mode: OpenMode,
        path: impl FnOnce() -> P,
    ) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.opened(&key) {
            return Ok(file);
        }
        // A file in the pool may be written whoever asked for it first.
        let mode = if mode == OpenMode::Read {
            OpenMode::Write
        } else {
            mode
        };
        let path = path();
        loop {
            let forgotten = self.slots.lock().forgotten;
            let file = self.disk.open(path.as_ref(), mode)?;
            let closed = {
                let mut slots = self.slots.lock();
                if slots.forgotten != forgotten {
                    continue; // this one may have got another name since, or none
                }
                slots.insert(key, Arc::clone(&file), self.open_max)
            };
            drop(closed); // closing is a system call: not under the lock
            return Ok(file);
        }
    }

    /// The file, if it is open.
    pub(crate) fn opened(&self, key: &FileKey) -> Option<Arc<dyn DiskFile>> {
        self.slots.lock().get(key)
    }

    /// Keeps a file open beyond the pool's budget. `None` where that is done for many already: it is
    /// opened again when it is synced.
    pub(crate) fn hold(&self, file: Arc<dyn DiskFile>) -> Option<HeldFile> {
        let held = HeldFile {
            file,
            held: Arc::clone(&self.held),
        };
        let others = self.held.fetch_add(1, Ordering::Relaxed);
        (others < held_max(self.open_max)).then_some(held)
    }

    /// Closes one file, after it got another name or none.
    pub(crate) fn forget(&self, key: &FileKey) {
        let closed = {
            let mut slots = self.slots.lock();
            slots.forgotten += 1;
            slots.remove(key)
        };
        drop(closed);
    }

    /// Closes all files of a log.
    pub(crate) fn forget_log(&self, log: u64) {
        let mut closed = Vec::new();
        {
            let mut slots = self.slots.lock();
            slots.forgotten += 1;
            let keys: Vec<FileKey> = slots
                .by_key
                .keys()
                .filter(|key| key.log == log)
                .copied()
                .collect();
            for key in keys {
                closed.extend(slots.remove(&key));
            }
        }
        drop(closed);
    }
}

/// Files that are kept open until they are synced, beside the pool.
fn held_max(open_max: usize) -> usize {
    open_max.div_ceil(4)
}

/// Files that a pool of this size has open at most.
pub(crate) fn open_files_most(open_max: usize) -> usize {
    open_max + held_max(open_max)
}

impl Slots {
    fn get(&mut self, key: &FileKey) -> Option<Arc<dyn DiskFile>> {
        let index = *self.by_key.get(key)?;
        let entry = self.entries.get_mut(index)?;
        entry.used = true;
        Some(Arc::clone(&entry.file))
    }

    fn insert(
        &mut self,
        key: FileKey,
        file: Arc<dyn DiskFile>,
        open_max: usize,
    ) -> Option<Arc<dyn DiskFile>> {
        if self.by_key.contains_key(&key) {
            return None; // somebody else opened it meanwhile; this one lives with its user
        }
        let entry = Entry {
            key,
            file,
            used: true,
        };
        if self.entries.len() < open_max {
            self.by_key.insert(key, self.entries.len());
            self.entries.push(entry);
            return None;
        }
        let count = self.entries.len();
        loop {
            self.hand = (self.hand + 1) % count;
            let candidate = &mut self.entries[self.hand];
            if candidate.used {
                candidate.used = false;
                continue;
            }
            let old = std::mem::replace(candidate, entry);
            self.by_key.remove(&old.key);
            self.by_key.insert(key, self.hand);
            return Some(old.file);
        }
    }

    fn remove(&mut self, key: &FileKey) -> Option<Arc<dyn DiskFile>> {
        let index = self.by_key.remove(key)?;
        let removed = self.entries.swap_remove(index);
        if let Some(moved) = self.entries.get(index) {
            self.by_key.insert(moved.key, index);
        }
        Some(removed.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::disk::RealDisk;

    fn key(base_offset: Offset) -> FileKey {
        FileKey {
            log: 1,
            base_offset,
            kind: FileKind::Log,
        }
    }

    #[test]
    fn the_least_used_file_is_closed_past_the_budget_and_stays_readable() {
        let directory = tempfile::tempdir().unwrap();
        let pool = FilePool::new(Arc::new(RealDisk), 2);
        let open = |offset: Offset| {
            pool.open(key(offset), OpenMode::Create, || {
                directory.path().join(offset.to_string())
            })
            .unwrap()
        };
        let first = open(1);
        first.write_at(b"one", b"", 0).unwrap();
        open(2);
        open(3);
        open(4);
        assert_eq!(pool.slots.lock().entries.len(), 2);
        let mut buffer = [0; 3];
        assert_eq!(first.read_at(&mut buffer, 0).unwrap(), 3);
        assert_eq!(open(1).bytes().unwrap(), 3);
        pool.forget(&key(1));
        pool.forget_log(1);
        let slots = pool.slots.lock();
        assert!(slots.by_key.is_empty() && slots.entries.is_empty());
    }

    #[test]
    fn a_missing_file_is_an_error_unless_it_is_to_be_made() {
        let pool = FilePool::new(Arc::new(RealDisk), 2);
        let missing = pool.open(key(1), OpenMode::Read, || "/nonexistent/file");
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// While a file is opened the first time, it gets another name, and another one its own.
    #[derive(Debug, Default)]
    struct Renaming(std::sync::OnceLock<std::sync::Weak<FilePool>>, AtomicUsize);

    impl Disk for Renaming {
        fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
            let file = RealDisk.open(path, mode)?;
            if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                std::fs::rename(path, path.with_extension("deleted"))?;
                self.0.get().unwrap().upgrade().unwrap().forget(&key(1));
                std::fs::write(path, b"new")?;
            }
            Ok(file)
        }
        fn create_directory(&self, _path: &Path) -> io::Result<()> {
            Ok(())
        }
        fn list(&self, _path: &Path) -> io::Result<Vec<crate::log::DirectoryEntry>> {
            Ok(Vec::new())
        }
        fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
            Ok(())
        }
        fn remove_file(&self, _path: &Path) -> io::Result<()> {
            Ok(())
        }
        fn remove_directory(&self, _path: &Path) -> io::Result<()> {
            Ok(())
        }
        fn sync_directory(&self, _path: &Path) -> io::Result<()> {
            Ok(())
        }
        fn lock(&self, path: &Path) -> io::Result<Box<dyn crate::log::DiskLock>> {
            RealDisk.lock(path)
        }
        fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
            RealDisk.space(path)
        }
    }

    #[test]
    fn a_file_that_is_renamed_while_it_is_opened_is_not_kept_under_its_old_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1");
        std::fs::write(&path, b"old one").unwrap();
        let disk = Arc::new(Renaming::default());
        let pool = Arc::new(FilePool::new(Arc::clone(&disk) as Arc<dyn Disk>, 2));
        disk.0.set(Arc::downgrade(&pool)).unwrap();
        for _ in 0..2 {
            let file = pool.open(key(1), OpenMode::Write, || &path).unwrap();
            assert_eq!(file.bytes().unwrap(), 3, "the new one");
        }
        assert_eq!(disk.1.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn only_so_many_files_are_held_beside_the_pool() {
        let directory = tempfile::tempdir().unwrap();
        let pool = FilePool::new(Arc::new(RealDisk), 8);
        let file = RealDisk
            .open(&directory.path().join("f"), OpenMode::Create)
            .unwrap();
        let hold = || pool.hold(Arc::clone(&file));
        let held = [hold(), hold()];
        assert!(held.iter().all(Option::is_some));
        assert!(hold().is_none());
        drop(held);
        assert!(hold().is_some());
        assert_eq!(open_files_most(8), 10);
    }
}
