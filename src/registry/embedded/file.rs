//! The database's file, as redb sees it.
//!
//! A new database is made under another name and gets its own with its first commit: until then
//! there is nothing to lose, so none of the syncs that redb asks for while it lays out an empty
//! database is done. A start on an empty disk costs two syncs (the commit, the directory), every later
//! transaction one, and one more each time that the file doubles.
//!
//! A full disk fails a transaction and passes. What the file grows by is taken from a reserve beside it
//! then, so that a start and small changes go on for long after the disk is full: redb gives back what
//! it does not use when it is closed, and asks for it again.
//! A failed sync does not: the kernel may have called clean
//! what it lost, so that a second one would succeed and lie. From then on nothing is written any more.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::StorageBackend;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Enough for a registry of some thousand partitions to be changed now and then.
const RESERVE_BYTES: u64 = 1 << 20;
const RESERVE_STEP_BYTES: u64 = 64 << 10;

/// The open file, shared with redb.
#[derive(Debug, Clone)]
pub(super) struct DatabaseFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    path: PathBuf,
    /// Nothing was committed to it yet.
    new: AtomicBool,
    /// Found under its own name, or has got it.
    named: AtomicBool,
    syncs: AtomicU64,
    /// A sync failed.
    lost: AtomicBool,
    /// Room that is given up where the disk has none left.
    reserve: Reserve,
    /// What is written now has to be, for the broker to start: it may have all of the reserve.
    vital: AtomicBool,
    #[cfg(test)]
    pub(super) faults: Faults,
}

/// A file that does nothing but take room.
#[derive(Debug)]
struct Reserve {
    path: PathBuf,
    bytes: AtomicU64,
}

impl Reserve {
    fn new(path: PathBuf) -> Self {
        let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Self {
            path,
            bytes: AtomicU64::new(bytes),
        }
    }

    /// Makes it whole where it is not. Tried again with the next transaction if there is no room now.
    fn fill(&self) {
        if self.bytes.load(Ordering::Relaxed) >= RESERVE_BYTES {
            return;
        }
        let filled = || -> io::Result<()> {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&self.path)?;
            let flags = FallocateFlags::empty();
            Ok(rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES)?)
        };
        if filled().is_ok() {
            self.bytes.store(RESERVE_BYTES, Ordering::Relaxed);
        }
    }

    /// Gives back so many bytes and a little more; false if it has none above `floor`.
    fn give(&self, bytes: u64, floor: u64) -> bool {
        let had = self.bytes.load(Ordering::Relaxed);
        if had <= floor {
            return false;
        }
        let given = bytes.saturating_add(RESERVE_STEP_BYTES);
        let left = had.saturating_sub(given).max(floor);
        let given = || {
            OpenOptions::new()
                .write(true)
                .open(&self.path)?
                .set_len(left)
        };
        if given().is_err() {
            return false;
        }
        self.bytes.store(left, Ordering::Relaxed);
        true
    }
}

/// What a test wants the disk to answer.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Bytes at which the file is when there is no more room for it; 0: the disk is not full.
    full_at: AtomicU64,
    /// Syncs fail.
    pub(super) sync: AtomicBool,
}

impl DatabaseFile {
    /// Opens the file at `path`, or begins a new one. Fails with `WouldBlock` where another process
    /// has it open.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (file, named) = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(unfinished(path))?;
                (file, false)
            }
            Err(error) => return Err(error),
        };
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another process is using it")
            }
            TryLockError::Error(error) => error,
        })?;
        if !named {
            file.set_len(0)?; // what a start that never got to its first commit left
        }
        let new = file.metadata()?.len() == 0;
        Ok(Self(Arc::new(Inner {
            file,
            path: path.to_owned(),
            new: AtomicBool::new(new),
            named: AtomicBool::new(named),
            syncs: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            reserve: Reserve::new(path.with_extension("reserve")),
            vital: AtomicBool::new(true),
            #[cfg(test)]
            faults: Faults::default(),
        })))
    }

    /// Begins anew where a first commit failed: nothing was ever acknowledged from this file.
    pub(super) fn restart_if_unnamed(&self) -> io::Result<()> {
        if self.0.named.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.0.file.set_len(0)?;
        self.0.new.store(true, Ordering::Relaxed);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// From now on the disk is full, or has room again.
    #[cfg(test)]
    pub(super) fn set_full(&self, full: bool) {
        let bytes = self.0.file.metadata().unwrap().len().max(1);
        let full_at = if full { bytes } else { 0 };
        self.0.faults.full_at.store(full_at, Ordering::Relaxed);
    }

    #[cfg(not(test))]
    fn grow(&self, len: u64) -> Result<(), Errno> {
        rustix::fs::fallocate(&self.0.file, FallocateFlags::empty(), 0, len)
    }

    /// On a disk that is full only what the reserve gave up is there to grow into.
    #[cfg(test)]
    fn grow(&self, len: u64) -> Result<(), Errno> {
        let given = RESERVE_BYTES - self.0.reserve.bytes.load(Ordering::Relaxed);
        let full_at = self.0.faults.full_at.load(Ordering::Relaxed);
        if full_at > 0 && len > full_at + given {
            return Err(Errno::NOSPC);
        }
        rustix::fs::fallocate(&self.0.file, FallocateFlags::empty(), 0, len)
    }

    fn check_not_lost(&self) -> io::Result<()> {
        if self.0.lost.load(Ordering::Relaxed) {
            return Err(io::Error::other(
                "an earlier sync failed: nothing is written until a restart",
            ));
        }
        Ok(())
    }

    fn synced(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_not_lost()?;
        #[cfg(test)]
        let sync = || match self.0.faults.sync.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => sync(),
        };
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
        sync().inspect_err(|error| {
            tracing::error!(
                path = %self.0.path.display(), %error,
                "the registry could not be synced: topics and configs cannot be changed until a restart"
            );
            self.0.lost.store(true, Ordering::Relaxed);
        })
    }

    /// Whether the next writes may have all of the reserve: those of opening the database, and of the
    /// first transaction, by which the broker registers. What clients ask for must not take it all.
    pub(super) fn set_vital(&self, vital: bool) {
        self.0.vital.store(vital, Ordering::Relaxed);
    }

    /// From now on what redb asks for is done. To be called before a commit.
    pub(super) fn begin_syncing(&self) {
        self.0.new.store(false, Ordering::Relaxed);
    }

    /// Gives a new file its name, durably. To be called after a commit.
    pub(super) fn name(&self) -> io::Result<()> {
        if self.0.named.load(Ordering::Relaxed) {
            return Ok(());
        }
        match std::fs::rename(unfinished(&self.0.path), &self.0.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.0.path.exists() => {}
            renamed => renamed?, // found renamed: the directory's sync failed the last time
        }
        let directory = match self.0.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        self.synced(|| File::open(directory)?.sync_all())?;
        self.0.named.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether nothing was committed to it yet.
    pub(super) fn is_new(&self) -> bool {
        self.0.new.load(Ordering::Relaxed)
    }

    /// How often the disk was asked to sync.
    pub(super) fn syncs(&self) -> u64 {
        self.0.syncs.load(Ordering::Relaxed)
    }
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("redb.new")
}

impl StorageBackend for DatabaseFile {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.file.read_exact_at(out, offset)
    }

    /// Reserves what the file grows by: a write inside it, such as the one that deletes a topic, must
    /// not fail because the disk is full.
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.check_not_lost()?;
        let before = self.len()?;
        if len > before {
            let floor = match self.0.vital.load(Ordering::Relaxed) {
                true => 0,
                false => RESERVE_BYTES / 2,
            };
            let mut grown = self.grow(len);
            if matches!(grown, Err(Errno::NOSPC | Errno::DQUOT))
                && self.0.reserve.give(len - before, floor)
            {
                grown = self.grow(len);
            }
            match grown {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                grown => return Ok(grown?),
            }
        }
        self.0.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        if self.is_new() {
            return Ok(());
        }
        self.synced(|| self.0.file.sync_data())?;
        #[cfg(test)]
        if self.0.faults.full_at.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        self.0.reserve.fill();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.check_not_lost()?;
        self.0.file.write_all_at(data, offset)
    }
}
