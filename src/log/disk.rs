//! The disk seam: what the log asks of a file system.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, StatxFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT,
};

use crate::types::TimestampMs;

/// How a file is opened. Every mode may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Fails with `NotFound` where there is no file.
    Read,
    /// As `Read`, and may write.
    Write,
    /// As `Write`, and makes the file where there is none.
    Create,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: String,
    pub is_directory: bool,
    pub bytes: u64,
    /// When a file was last written to, in milliseconds since 1970; 0 if that is not known.
    pub modified_ms: TimestampMs,
}

/// A file system. One virtual call per system call.
pub trait Disk: Debug + Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes the directory and its parents; fine if it is there.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Names that are not UTF-8 are left out: no log file has one.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in the directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Locks a file until the returned guard is dropped; `WouldBlock` if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
    /// Names the page cache that holds what is written to a directory: as long as it is the same, nothing
    /// that was written there is lost, synced or not. `None` where nobody can tell.
    fn page_cache(&self, _directory: &Path) -> Option<String> {
        None
    }
    /// Total and usable bytes of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// Makes everything durable that was written below `path`, names too, in one go.
    fn sync_all(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether [`Disk::sync_all`] works.
    fn syncs_all(&self) -> bool {
        false
    }
}

/// Held while a directory is in use.
pub trait DiskLock: Debug + Send + Sync {}

/// An open file. All methods take positions; there is no cursor.
pub trait DiskFile: Debug + Send + Sync {
    /// Reads until `buffer` is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of both parts, one behind the other, in one system call where the disk allows it.
    fn write_at(&self, head: &[u8], tail: &[u8], position: u64) -> io::Result<()>;
    fn bytes(&self) -> io::Result<u64>;
    /// When it was last written to, in milliseconds since 1970.
    fn modified_ms(&self) -> io::Result<TimestampMs> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes this the time of the last write.
    fn touch(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    /// Takes room on the disk for `bytes` from `position` on; the file stays as long as it is. What lies behind
    /// its end goes with [`DiskFile::truncate`].
    fn reserve(&self, _position: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// `fdatasync`: content and length are durable, the name is not.
    fn sync(&self) -> io::Result<()>;
    /// The real file, for `sendfile`. A simulated disk has none.
    fn as_file(&self) -> Option<&Arc<File>>;
}

/// The machine's own file systems.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(Arc<File>);

#[derive(Debug)]
struct RealLock(#[allow(dead_code)] File); // the lock goes with the descriptor

impl DiskLock for RealLock {}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = File::options()
            .read(true)
            .write(mode != OpenMode::Read)
            .create(mode == OpenMode::Create)
            .truncate(false)
            .open(path)?;
        Ok(Arc::new(RealFile(Arc::new(file))))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_directory = entry.file_type()?.is_dir();
            let metadata = match is_directory {
                true => None,
                false => entry.metadata().ok(),
            };
            let bytes = metadata.as_ref().map_or(0, |metadata| metadata.len());
            let modified_ms = metadata.as_ref().map_or(0, modified_ms);
            entries.push(DirectoryEntry {
                name,
                is_directory,
                bytes,
                modified_ms,
            });
        }
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::fsync(File::open(path)?)?)
    }

    /// The whole file system: strangers' files as well.
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn syncs_all(&self) -> bool {
        true
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // Two kinds of lock that do not see each other: Apache Kafka takes the second, which its own
        // process does not stand in the way of.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock(file)))
    }

    fn page_cache(&self, directory: &Path) -> Option<String> {
        page_cache(directory)
    }

    fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::statvfs(path)?;
        Ok((
            stat.f_blocks.saturating_mul(stat.f_frsize),
            stat.f_bavail.saturating_mul(stat.f_frsize),
        ))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut read = 0;
        while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, position + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, head: &[u8], tail: &[u8], position: u64) -> io::Result<()> {
        let total = head.len() + tail.len();
        let mut written = 0;
        while written < total {
            let parts = [
                IoSlice::new(head.get(written..).unwrap_or(&[])),
                IoSlice::new(
                    tail.get(written.saturating_sub(head.len())..)
                        .unwrap_or(&[]),
                ),
            ];
            match rustix::io::pwritev(&self.0, &parts, position + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn modified_ms(&self) -> io::Result<TimestampMs> {
        Ok(modified_ms(&self.0.metadata()?))
    }

    fn touch(&self) -> io::Result<()> {
        let time = |nanoseconds| Timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time(UTIME_OMIT),
            last_modification: time(UTIME_NOW),
        };
        Ok(rustix::fs::futimens(&self.0, &times)?)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn reserve(&self, position: u64, bytes: u64) -> io::Result<()> {
        let beyond_its_end = FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(
            &self.0,
            beyond_its_end,
            position,
            bytes,
        )?)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn as_file(&self) -> Option<&Arc<File>> {
        Some(&self.0)
    }
}

fn modified_ms(metadata: &std::fs::Metadata) -> TimestampMs {
    let since = metadata
        .modified()
        .map(|time| time.duration_since(UNIX_EPOCH));
    match since {
        Ok(Ok(since)) => TimestampMs::try_from(since.as_millis()).unwrap_or(TimestampMs::MAX),
        _ => 0,
    }
}

/// File systems whose page cache is this kernel's alone: what it holds, no other machine's death takes.
/// ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs, overlayfs (`statfs(2)`).
const LOCAL_FILE_SYSTEMS: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x0102_1994,
    0x794c_7630,
];
/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): never given twice until the kernel ends.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// This run of the kernel, the mount (one that is mounted anew may have lost what was not synced) and the
/// directory in it (a copy of the sign means nothing).
fn page_cache(directory: &Path) -> Option<String> {
    let file_system = rustix::fs::statfs(directory).ok()?.f_type;
    if !LOCAL_FILE_SYSTEMS.contains(&(file_system as u32)) {
        return None;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let wanted = UNIQUE_MOUNT | StatxFlags::INO;
    let stat = rustix::fs::statx(rustix::fs::CWD, directory, AtFlags::empty(), wanted).ok()?;
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted) {
        return None;
    }
    Some(format!(
        "{} {} {}:{} {}",
        boot.trim(),
        stat.stx_mnt_id,
        stat.stx_dev_major,
        stat.stx_dev_minor,
        stat.stx_ino
    ))
}

/// Reads a small file. Longer than `bytes_max` is an error: nothing here trusts a size it is told.
pub(crate) fn read_small_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let bytes = file.bytes()?;
    if bytes > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} has {bytes} bytes, more than {bytes_max}",
                path.display()
            ),
        ));
    }
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
    let read = file.read_at(&mut content, 0)?;
    content.truncate(read);
    Ok(content)
}

/// Replaces a small file in one step: a crash leaves the old content or the new. Durable on return
/// only with `durable`.
pub(crate) fn replace_file(
    disk: &dyn Disk,
    path: &Path,
    content: &[u8],
    durable: bool,
) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let file = disk.open(&temporary, OpenMode::Create)?;
    file.truncate(0)?;
    file.write_at(content, &[], 0)?;
    if durable {
        file.sync()?;
    }
    disk.rename(&temporary, path)?;
    match path.parent() {
        Some(parent) if durable => disk.sync_directory(parent),
        _ => Ok(()),
    }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_two_parts_reads_back_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = RealDisk
            .open(&directory.path().join("f"), OpenMode::Create)
            .unwrap();
        file.write_at(b"head", b"tail", 3).unwrap();
        let mut buffer = [0; 20];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 11);
        assert_eq!(&buffer[..11], b"\0\0\0headtail");
    }

    #[test]
    fn a_replaced_file_is_whole_and_leaves_no_temporary() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        replace_file(&RealDisk, &path, b"a long first content", true).unwrap();
        replace_file(&RealDisk, &path, b"second", true).unwrap();
        assert_eq!(read_small_file(&RealDisk, &path, 100).unwrap(), b"second");
        assert!(read_small_file(&RealDisk, &path, 5).is_err());
        assert_eq!(RealDisk.list(directory.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_locked_file_is_refused_to_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".lock");
        let held = RealDisk.lock(&path).unwrap();
        assert!(RealDisk.lock(&path).is_err());
        drop(held);
        assert!(RealDisk.lock(&path).is_ok());
    }
}
