//! Tells the death of a process from that of a machine: where the page cache lives on, all that was
//! written is there, synced or not, and recovery need not read it again.
//!
//! A broker leaves a sign of life in each log directory, and touches it now and then when it has written. A file that was
//! last written to between the first sign on this page cache and the last one is as a broker left it: a
//! later change, by whomever, has a later time. What was written after the last sign is checked.
//!
//! ```text
//! 0
//! <page cache, see Disk::page_cache>
//! <when the first broker found this page cache here, in milliseconds>
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile, OpenMode, read_small_file, replace_file};
use super::names;
use crate::types::TimestampMs;

const VERSION: &str = "0";
const BYTES_MAX: u64 = 4096;
/// How often a sign is given at most: what was written since the last is checked after a death.
const SIGN_EVERY: Duration = Duration::from_millis(100);

/// What is known of the run before this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LastLife {
    /// First and last sign on the page cache of today; both zero where it is another.
    first_ms: TimestampMs,
    last_ms: TimestampMs,
}

impl LastLife {
    /// Whether a file that was last written to at this time holds what a broker wrote, to the last byte
    /// (but for a write in whose middle it died).
    pub(super) fn covers(self, modified_ms: TimestampMs) -> bool {
        self.first_ms < modified_ms && modified_ms < self.last_ms
    }
}

/// The sign of a directory.
#[derive(Debug, Default)]
pub(super) struct LifeSign {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` where there is nothing to promise.
    file: Option<Arc<dyn DiskFile>>,
    /// When the next is due.
    due: Option<Instant>,
}

impl LifeSign {
    /// Takes up the sign that the last run left, or begins a new one. One that cannot be read or written
    /// promises nothing.
    pub(super) fn begin(disk: &dyn Disk, directory: &Path) -> (Self, LastLife) {
        let path = directory.join(names::LIFE_SIGN);
        let begun = disk
            .page_cache(directory)
            .map(|page_cache| take_up(disk, &path, &page_cache));
        let (file, last) = match begun {
            Some(Ok((file, last))) => (Some(file), last),
            Some(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "the sign of life cannot be used");
                (None, LastLife::default())
            }
            None => (None, LastLife::default()),
        };
        let state = Mutex::new(State { file, due: None });
        (Self { path, state }, last)
    }

    /// Something was written: says, if it was not said just before, that all was well until now.
    pub(super) fn give(&self, now: Instant) {
        // Another thread is about to say it.
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if state.due.is_some_and(|due| now < due) {
            return;
        }
        state.due = Some(now + SIGN_EVERY);
        if let Some(Err(error)) = state.file.as_ref().map(|file| file.touch()) {
            tracing::warn!(path = %self.path.display(), %error, "no sign of life can be given");
            state.file = None;
        }
    }

    /// The disk has failed: what is in its page cache is no longer what was written.
    pub(super) fn end(&self, disk: &dyn Disk) {
        if self.state.lock().file.take().is_some() {
            let _ = disk.remove_file(&self.path);
        }
    }
}

fn take_up(
    disk: &dyn Disk,
    path: &Path,
    page_cache: &str,
) -> io::Result<(Arc<dyn DiskFile>, LastLife)> {
    if let Ok(content) = read_small_file(disk, path, BYTES_MAX)
        && let Some((known, first_ms)) = parse(&content)
        && known == page_cache
    {
        let file = disk.open(path, OpenMode::Write)?;
        let last_ms = file.modified_ms()?;
        return Ok((file, LastLife { first_ms, last_ms }));
    }
    // Not synced: after a power cut the page cache is another, whatever is left of this.
    replace_file(disk, path, b"", false)?;
    let file = disk.open(path, OpenMode::Write)?;
    let first_ms = file.modified_ms()?;
    let content = format!("{VERSION}\n{page_cache}\n{first_ms}\n");
    file.write_at(content.as_bytes(), &[], 0)?;
    Ok((file, LastLife::default()))
}

fn parse(content: &[u8]) -> Option<(&str, TimestampMs)> {
    let mut lines = std::str::from_utf8(content).ok()?.lines();
    if lines.next()? != VERSION {
        return None;
    }
    let page_cache = lines.next()?;
    let first_ms = lines.next()?.parse().ok()?;
    lines.next().is_none().then_some((page_cache, first_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::RealDisk;
    use crate::time::{Clock, ManualClock};

    fn set_modified(path: &Path, ms: u64) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_millis(ms);
        file.set_modified(time).unwrap();
    }

    #[test]
    fn a_file_is_believed_that_was_written_between_two_signs() {
        let last = LastLife {
            first_ms: 10,
            last_ms: 20,
        };
        assert!(last.covers(11) && last.covers(19));
        assert!(!last.covers(10) && !last.covers(20), "in the same moment");
        assert!(!last.covers(0) && !last.covers(21));
        let unknown = LastLife::default();
        assert!(!unknown.covers(0) && !unknown.covers(1));
    }

    #[test]
    fn the_next_run_on_the_same_page_cache_takes_the_sign_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(names::LIFE_SIGN);
        let (sign, last) = LifeSign::begin(&RealDisk, directory.path());
        assert_eq!(last, LastLife::default());
        if RealDisk.page_cache(directory.path()).is_none() {
            assert!(!path.exists(), "nothing to promise here");
            return;
        }
        let (_, first_ms) = parse(&std::fs::read(&path).unwrap())
            .map(|(page_cache, first)| (page_cache.to_owned(), first))
            .unwrap();
        let after = u64::try_from(first_ms).unwrap() + 5_000;
        set_modified(&path, after);
        let (_, last) = LifeSign::begin(&RealDisk, directory.path());
        assert!(last.covers(first_ms + 1) && last.covers(first_ms + 4_999));
        assert!(!last.covers(first_ms) && !last.covers(first_ms + 5_000));
        let now = ManualClock::new(0).now();
        sign.give(now);
        let given = RealDisk.open(&path, OpenMode::Read).unwrap();
        assert!(given.modified_ms().unwrap() < first_ms + 5_000, "now");
        set_modified(&path, 1_000);
        sign.give(now + SIGN_EVERY / 2);
        assert_eq!(given.modified_ms().unwrap(), 1_000, "said just before");
        sign.give(now + SIGN_EVERY);
        assert!(given.modified_ms().unwrap() > 1_000);
        sign.end(&RealDisk);
        assert!(!path.exists());
        sign.give(now + SIGN_EVERY * 2);
        assert!(!path.exists());
    }

    #[test]
    fn a_sign_of_another_page_cache_or_none_at_all_promises_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(names::LIFE_SIGN);
        for content in ["", "0\nanother\n5\n", "1\n", "\u{0}\u{0}", "0\nx\ny\n"] {
            std::fs::write(&path, content).unwrap();
            let (_, last) = LifeSign::begin(&RealDisk, directory.path());
            assert_eq!(last, LastLife::default(), "{content:?}");
        }
        assert_eq!(parse(b"0\na b\n7\n"), Some(("a b", 7)));
        assert_eq!(parse(b"0\na b\n7\nmore\n"), None);
    }
}
