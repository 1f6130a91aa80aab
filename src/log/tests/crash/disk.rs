//! The disk seam over an [`Image`]: counts operations, fails where it is told to, and dies with the power.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::image::{Image, NodeId};
use super::random::Random;
use crate::log::{DirectoryEntry, Disk, DiskFile, DiskLock, OpenMode};

/// What changes a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    MakeDirectory,
    Write,
    Truncate,
    Sync,
    SyncDirectory,
    Rename,
    Remove,
}

/// How an operation goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// `EIO`; of a write a part is done.
    Io,
    /// `ENOSPC`, the same.
    Full,
}

/// Syncs that do nothing and say that all is well: for showing that the histories notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Of segment files.
    Segments,
    /// Of `partition.metadata`.
    Metadata,
    /// Of producer snapshots.
    Snapshots,
    /// Of the log start checkpoint.
    LogStarts,
    /// Of the directories of partitions.
    PartitionDirectories,
    /// Of the log directory itself.
    LogDirectory,
    /// None; but a damaged batch has the right checksum, as if recovery did not look at it.
    Checksums,
    /// None; but a start after a power cut takes the page cache for the one from before.
    PageCache,
}

/// Sees every operation before it is done.
pub(super) trait Watcher: std::fmt::Debug + Send + Sync {
    fn before(&self, kind: Kind, path: &Path);
}

#[derive(Debug, Clone)]
pub(crate) struct CrashDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    image: Mutex<Image>,
    control: Mutex<Control>,
    watcher: RwLock<Option<Arc<dyn Watcher>>>,
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
    lie: Option<Lie>,
}

#[derive(Debug)]
struct Control {
    random: Random,
    /// Operations so far.
    count: u64,
    faults: BTreeMap<u64, Fault>,
    /// One of them happened.
    failed: bool,
    power_off_at: Option<u64>,
    off: bool,
    /// Nothing fails, nothing counts: somebody compares.
    paused: bool,
    /// Bytes that may still be written.
    space: Option<usize>,
}

impl CrashDisk {
    pub(crate) fn new(image: Image, seed: u64, lie: Option<Lie>) -> Self {
        Self(Arc::new(Shared {
            image: Mutex::new(image),
            control: Mutex::new(Control {
                random: Random::new(seed),
                count: 0,
                faults: BTreeMap::new(),
                failed: false,
                power_off_at: None,
                off: false,
                paused: false,
                space: None,
            }),
            watcher: RwLock::new(None),
            locked: Arc::default(),
            lie,
        }))
    }

    pub(crate) fn image(&self) -> Image {
        self.0.image.lock().clone()
    }

    /// What a start finds if the power goes now.
    pub(crate) fn after_power_cut(&self, seed: u64) -> Image {
        let forged = self.0.lie == Some(Lie::Checksums);
        let image = self.0.image.lock();
        let mut after = image.after_power_cut(seed, forged);
        if self.0.lie == Some(Lie::PageCache) {
            after.page_cache = image.page_cache;
        }
        after
    }

    pub(super) fn watch(&self, watcher: Option<Arc<dyn Watcher>>) {
        *self.0.watcher.write() = watcher;
    }

    pub(super) fn count(&self) -> u64 {
        self.0.control.lock().count
    }

    /// The operation after `more` others is the last: in part it may be done, all later ones fail.
    pub(crate) fn power_off_after(&self, more: Option<u64>) {
        let mut control = self.0.control.lock();
        control.power_off_at = more.map(|more| control.count + more);
    }

    /// While paused nothing fails.
    pub(super) fn pause(&self, paused: bool) {
        self.0.control.lock().paused = paused;
    }

    pub(crate) fn is_off(&self) -> bool {
        self.0.control.lock().off
    }

    pub(super) fn fail_after(&self, more: u64, fault: Fault) {
        let mut control = self.0.control.lock();
        let at = control.count + more;
        control.faults.insert(at, fault);
    }

    /// Takes the faults back that did not happen.
    pub(super) fn clear_faults(&self) {
        let mut control = self.0.control.lock();
        control.faults.clear();
        control.failed = false;
    }

    /// True if something failed in this step, or may for lack of room.
    pub(super) fn is_foul(&self) -> bool {
        let control = self.0.control.lock();
        control.failed || control.space.is_some()
    }

    pub(super) fn set_space(&self, bytes: Option<usize>) {
        self.0.control.lock().space = bytes;
    }

    /// Counts an operation, shows it, and says how it goes: whether it is done, and the error.
    fn begin(&self, kind: Kind, path: &Path) -> Outcome {
        if self.is_off() {
            return Outcome::Failed(power_is_off());
        }
        let watcher = self.0.watcher.read().clone();
        if let Some(watcher) = watcher {
            watcher.before(kind, path);
        }
        let mut control = self.0.control.lock();
        if control.off {
            return Outcome::Failed(power_is_off()); // went off in the watcher
        }
        if control.paused {
            return Outcome::Done;
        }
        let number = control.count;
        control.count += 1;
        if control.power_off_at.is_some_and(|at| number >= at) {
            control.off = true;
            return Outcome::Partly(power_is_off());
        }
        let fault = control.faults.remove(&number);
        control.failed |= fault.is_some();
        match fault {
            Some(Fault::Io) => Outcome::Partly(io::Error::from_raw_os_error(libc::EIO)),
            Some(Fault::Full) if kind == Kind::Sync || kind == Kind::SyncDirectory => Outcome::Done,
            Some(Fault::Full) => Outcome::Partly(io::Error::from_raw_os_error(libc::ENOSPC)),
            None => Outcome::Done,
        }
    }

    fn random(&self) -> Random {
        Random::new(self.0.control.lock().random.next())
    }

    /// An operation that is done or not done.
    fn whole<R>(
        &self,
        kind: Kind,
        path: &Path,
        work: impl FnOnce(&mut Image) -> io::Result<R>,
    ) -> io::Result<R> {
        match self.begin(kind, path) {
            Outcome::Done => work(&mut self.0.image.lock()),
            Outcome::Partly(error) => {
                let full = error.raw_os_error() == Some(libc::ENOSPC);
                if !full && self.random().one_in(2) {
                    work(&mut self.0.image.lock())?;
                }
                Err(error)
            }
            Outcome::Failed(error) => Err(error),
        }
    }

    fn no_space(&self) -> io::Result<()> {
        match self.0.control.lock().space {
            Some(0) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }
}

enum Outcome {
    Done,
    /// Done in part, or wholly, or not: the caller hears of an error.
    Partly(io::Error),
    Failed(io::Error),
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

#[derive(Debug)]
struct Locked(PathBuf, Arc<Mutex<BTreeSet<PathBuf>>>);

impl DiskLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        self.1.lock().remove(&self.0);
    }
}

impl Disk for CrashDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if self.is_off() {
            return Err(power_is_off());
        }
        let found = self.0.image.lock().find(path);
        let node = match found {
            Some(node) => node,
            None if mode == OpenMode::Create => {
                self.no_space()?;
                self.whole(Kind::Create, path, |image| image.open(path, true))?
                    .0
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(CrashFile {
            disk: self.clone(),
            path: path.to_owned(),
            node,
        }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if self.0.image.lock().find(path).is_some() {
            return Ok(());
        }
        self.no_space()?;
        self.whole(Kind::MakeDirectory, path, |image| {
            image.create_directory(path)
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        if self.is_off() {
            return Err(power_is_off());
        }
        self.0.image.lock().list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole(Kind::Rename, from, |image| image.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if self.0.image.lock().find(path).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.whole(Kind::Remove, path, |image| image.remove_file(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.whole(Kind::Remove, path, |image| image.remove_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let of_partition = path.components().count() > 2;
        match self.begin(Kind::SyncDirectory, path) {
            Outcome::Done => match (self.0.lie, of_partition) {
                (Some(Lie::PartitionDirectories), true) | (Some(Lie::LogDirectory), false) => {
                    Ok(())
                }
                _ => self.0.image.lock().sync_directory(path),
            },
            Outcome::Partly(error) => {
                // What is not synced when the process or the machine ends is not synced, no more.
                if !self.is_off() {
                    let mut random = self.random();
                    self.0.image.lock().fail_directory_sync(path, &mut random);
                }
                Err(error)
            }
            Outcome::Failed(error) => Err(error),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.open(path, OpenMode::Create)?;
        if !self.0.locked.lock().insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Locked(
            path.to_owned(),
            Arc::clone(&self.0.locked),
        )))
    }

    fn page_cache(&self, _directory: &Path) -> Option<String> {
        Some(self.0.image.lock().page_cache.to_string())
    }

    fn space(&self, _path: &Path) -> io::Result<(u64, u64)> {
        let space = self.0.control.lock().space;
        Ok((1 << 40, space.map_or(1 << 39, |space| space as u64)))
    }
}

#[derive(Debug)]
struct CrashFile {
    disk: CrashDisk,
    path: PathBuf,
    node: NodeId,
}

impl CrashFile {
    fn is_lied_about(&self) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default();
        match self.disk.0.lie {
            Some(Lie::Segments) => name.ends_with(".log"),
            Some(Lie::Metadata) => name.starts_with("partition.metadata"),
            Some(Lie::Snapshots) => name.contains(".snapshot"),
            Some(Lie::LogStarts) => name.starts_with("log-start"),
            _ => false,
        }
    }
}

impl DiskFile for CrashFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if self.disk.is_off() {
            return Err(power_is_off());
        }
        let image = self.disk.0.image.lock();
        let content = image.content(self.node);
        let start = usize::try_from(position).unwrap().min(content.len());
        let bytes = &content[start..content.len().min(start + buffer.len())];
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, head: &[u8], tail: &[u8], position: u64) -> io::Result<()> {
        let whole = [head, tail].concat();
        let (bytes, result) = match self.disk.begin(Kind::Write, &self.path) {
            Outcome::Done => {
                let mut control = self.disk.0.control.lock();
                match control.space {
                    Some(space) if space < whole.len() && !control.paused => {
                        control.space = Some(0);
                        let full = io::Error::from_raw_os_error(libc::ENOSPC);
                        (space, Err(full))
                    }
                    space => {
                        control.space = space.map(|space| space - whole.len());
                        (whole.len(), Ok(()))
                    }
                }
            }
            Outcome::Partly(error) => {
                let part = self.disk.random().below(whole.len() + 1);
                (part, Err(error))
            }
            Outcome::Failed(error) => return Err(error),
        };
        if bytes > 0 {
            let mut image = self.disk.0.image.lock();
            image.write(self.node, position, &whole[..bytes]);
        }
        result
    }

    fn bytes(&self) -> io::Result<u64> {
        if self.disk.is_off() {
            return Err(power_is_off());
        }
        Ok(self.disk.0.image.lock().content(self.node).len() as u64)
    }

    fn modified_ms(&self) -> io::Result<i64> {
        Ok(self.disk.0.image.lock().modified(self.node))
    }

    fn touch(&self) -> io::Result<()> {
        if self.disk.is_off() {
            return Err(power_is_off());
        }
        self.disk.0.image.lock().touch(self.node);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        if self.disk.0.image.lock().content(self.node).len() as u64 == bytes {
            return Ok(());
        }
        self.disk.whole(Kind::Truncate, &self.path, |image| {
            image.truncate(self.node, bytes);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        match self.disk.begin(Kind::Sync, &self.path) {
            Outcome::Done if self.is_lied_about() => Ok(()),
            Outcome::Done => {
                self.disk.0.image.lock().sync(self.node);
                Ok(())
            }
            Outcome::Partly(error) => {
                if !self.disk.is_off() {
                    let mut random = self.disk.random();
                    self.disk.0.image.lock().fail_sync(self.node, &mut random);
                }
                Err(error)
            }
            Outcome::Failed(error) => Err(error),
        }
    }

    fn as_file(&self) -> Option<&Arc<File>> {
        None
    }
}
