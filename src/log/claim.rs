//! Taking log directories for this process, before anything in them is believed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::directory::is_disk_fault;
use super::disk::{Disk, DiskLock};
use super::log::LogError;
use super::names;

const ANOTHER: &str = "or take it out of log.dirs";

/// A log directory that this process has for itself, or whose disk does not answer.
#[derive(Debug)]
pub struct ClaimedDirectory {
    pub path: PathBuf,
    pub(super) lock: io::Result<Box<dyn DiskLock>>,
}

/// Makes and locks all of `log.dirs`. What an operator can mend (a directory that cannot be made or
/// written, one that another process has) is an error; a disk that fails is not while there is another
/// one, as in Kafka.
pub(super) fn claim(disk: &dyn Disk, paths: &[PathBuf]) -> Result<Vec<ClaimedDirectory>, LogError> {
    let mut claimed: Vec<ClaimedDirectory> = Vec::with_capacity(paths.len());
    for path in paths {
        let lock = disk
            .create_directory(path)
            .and_then(|()| disk.lock(&path.join(names::LOCK)));
        if let Err(error) = &lock
            && !(is_dead_disk(error) && paths.len() > 1)
        {
            return Err(refused(path, error));
        }
        let path = path.clone();
        claimed.push(ClaimedDirectory { path, lock });
    }
    if let [.., last] = &claimed[..]
        && claimed.iter().all(|directory| directory.lock.is_err())
        && let Err(error) = &last.lock
    {
        return Err(refused(&last.path, error));
    }
    Ok(claimed)
}

/// A fault of the disk itself: nothing in the configuration is wrong.
pub(super) fn is_dead_disk(error: &io::Error) -> bool {
    is_disk_fault(error) && error.kind() != ErrorKind::ReadOnlyFilesystem
}

/// Says why a directory cannot be used, and what to do.
pub(super) fn refused(path: &Path, error: &io::Error) -> LogError {
    let (reason, fix) = match error.kind() {
        ErrorKind::WouldBlock => (
            "another process is using it".to_owned(),
            "stop that one, or give this broker a directory of its own".to_owned(),
        ),
        ErrorKind::ReadOnlyFilesystem => (
            "its file system is read-only".to_owned(),
            format!("mount it writable, {ANOTHER}"),
        ),
        ErrorKind::PermissionDenied => (
            "this user may not write there".to_owned(),
            format!("give it to the user that runs the broker, {ANOTHER}"),
        ),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => (
            "it is, or lies below, something that is no directory".to_owned(),
            "name a directory".to_owned(),
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
            "its disk is full".to_owned(),
            format!("make room, {ANOTHER}"),
        ),
        _ => (
            format!("it cannot be used: {error}"),
            format!("mend it, {ANOTHER}"),
        ),
    };
    LogError::Unusable {
        path: path.to_owned(),
        reason,
        fix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::RealDisk;

    fn message(path: &Path) -> String {
        claim(&RealDisk, &[path.to_owned()])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named_with_reason_and_fix() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let line = message(&path);
            assert!(
                line.contains(&format!("log.dirs={}: ", path.display())),
                "{line}"
            );
            assert!(line.ends_with("no directory; name a directory"), "{line}");
        }
        let line = message(Path::new("/proc/nowhere"));
        assert!(
            line.starts_with("log.dirs=/proc/nowhere: it cannot be used: "),
            "{line}"
        );
        assert!(
            line.ends_with("; mend it, or take it out of log.dirs"),
            "{line}"
        );
        let path = directory.path().join("held");
        let held = claim(&RealDisk, std::slice::from_ref(&path)).unwrap();
        assert_eq!(
            message(&path),
            format!(
                "log.dirs={}: another process is using it; stop that one, or give this broker a \
                 directory of its own",
                path.display()
            )
        );
        drop(held);
        claim(&RealDisk, &[path]).unwrap();
    }

    #[test]
    fn a_dead_disk_is_an_error_only_where_no_other_works() {
        #[derive(Debug)]
        struct Dead;
        impl Disk for Dead {
            fn open(
                &self,
                _: &Path,
                _: crate::log::OpenMode,
            ) -> io::Result<std::sync::Arc<dyn crate::log::DiskFile>> {
                Err(eio())
            }
            fn create_directory(&self, path: &Path) -> io::Result<()> {
                if path.ends_with("dead") {
                    return Err(eio());
                }
                RealDisk.create_directory(path)
            }
            fn list(&self, _: &Path) -> io::Result<Vec<crate::log::DirectoryEntry>> {
                Err(eio())
            }
            fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
                Err(eio())
            }
            fn remove_file(&self, _: &Path) -> io::Result<()> {
                Err(eio())
            }
            fn remove_directory(&self, _: &Path) -> io::Result<()> {
                Err(eio())
            }
            fn sync_directory(&self, _: &Path) -> io::Result<()> {
                Err(eio())
            }
            fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
                RealDisk.lock(path)
            }
            fn space(&self, _: &Path) -> io::Result<(u64, u64)> {
                Err(eio())
            }
        }
        fn eio() -> io::Error {
            io::Error::from_raw_os_error(libc::EIO)
        }
        let directory = tempfile::tempdir().unwrap();
        let (dead, alive) = (
            directory.path().join("dead"),
            directory.path().join("alive"),
        );
        let claimed = claim(&Dead, &[dead.clone(), alive]).unwrap();
        assert_eq!(
            claimed.iter().map(|d| d.lock.is_ok()).collect::<Vec<_>>(),
            [false, true]
        );
        assert!(claim(&Dead, std::slice::from_ref(&dead)).is_err());
        assert!(claim(&Dead, &[dead.clone(), dead]).is_err());
    }
}
