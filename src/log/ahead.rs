//! Room on the disk that a segment takes before its records come. A file system that hands it out in large
//! pieces neither looks for it nor accounts for it page by page: on ext4 that is a quarter of what a write of
//! records costs.
//!
//! The file grows only with its records. What was taken and not used is given back when the segment is
//! full or its log is closed (which makes that the time of its last write). After a crash the log goes on in
//! it; if it does not, the room goes with the segment.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::disk::DiskFile;
use super::segment::Segment;

/// A smaller segment takes none: thousands of small partitions would take more than they hold.
const SEGMENT_BYTES_MIN: u64 = 4 << 20;
/// So much of what a segment holds is taken at once, up to `AHEAD_BYTES_MAX`.
const AHEAD_DIVISOR: u64 = 4;
const AHEAD_BYTES_MAX: u64 = 2 << 20;
/// As if there were enough: a file system that cannot is not asked again.
const NEVER: u64 = u64::MAX;

impl Segment {
    /// Takes room for the bytes from `start` to `end`, and for some behind them if `spare` grants it, where there
    /// is none yet. A disk that has none says so when it is written to.
    pub(super) fn take_room_ahead(
        &self,
        file: &dyn DiskFile,
        (start, end): (u64, u64),
        spare: impl FnOnce(u64) -> bool,
    ) {
        if start < SEGMENT_BYTES_MIN || end <= self.room_end.load(Ordering::Relaxed) {
            return;
        }
        let ahead = (start / AHEAD_DIVISOR).min(AHEAD_BYTES_MAX);
        if !spare(ahead) {
            return;
        }
        let room_end = match file.reserve(start, end - start + ahead) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => NEVER,
            // Some may have been taken before it failed.
            Ok(()) | Err(_) => end + ahead,
        };
        self.room_end.store(room_end, Ordering::Relaxed);
    }

    /// Gives back the room that was not used. Where that fails, the file has a little more than it needs.
    pub(super) fn give_room_back(&self, file: impl FnOnce() -> io::Result<Arc<dyn DiskFile>>) {
        if matches!(self.room_end.swap(0, Ordering::Relaxed), 0 | NEVER) {
            return;
        }
        // Cutting a file at its end frees what lies behind it.
        let given = file().and_then(|file| file.truncate(file.bytes()?));
        if let Err(error) = given {
            let base_offset = self.base_offset;
            tracing::warn!(base_offset, %error, "give back room on the disk");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::log::disk::{Disk, OpenMode, RealDisk};
    use crate::log::segment::Findings;
    use crate::types::TopicPartition;

    const MIB: u64 = 1 << 20;

    fn segment() -> Segment {
        let partition = TopicPartition::new("t", 0);
        let findings = Arc::new(Findings {
            partition,
            total: Arc::default(),
            unreadable: Arc::default(),
        });
        Segment::new(0, 0, &findings)
    }

    #[test]
    fn room_is_taken_in_steps_and_what_is_left_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000000.log");
        let file = RealDisk.open(&path, OpenMode::Create).unwrap();
        if file.reserve(0, MIB).is_err() {
            let segment = segment();
            segment.take_room_ahead(&*file, (4 * MIB, 5 * MIB), |_| true);
            let room_end = segment.room_end.load(Ordering::Relaxed);
            assert_eq!(room_end, NEVER, "this file system takes none");
            return;
        }
        let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let segment = segment();
        let append = |start: u64, end: u64| {
            segment.take_room_ahead(&*file, (start, end), |_| true);
            let bytes = vec![1; usize::try_from(end - start).unwrap()];
            file.write_at(&bytes, &[], start).unwrap();
            assert_eq!(file.bytes().unwrap(), end, "it grows with its records");
            segment.room_end.load(Ordering::Relaxed)
        };
        assert_eq!(append(0, 4 * MIB), 0, "a small one takes none");
        assert_eq!(append(4 * MIB, 5 * MIB), 6 * MIB);
        assert!(taken() >= 6 * MIB, "{}", taken());
        assert_eq!(append(5 * MIB, 6 * MIB), 6 * MIB, "there is room");
        assert_eq!(append(6 * MIB, 30 * MIB), 30 * MIB + 6 * MIB / 4);
        assert_eq!(append(30 * MIB, 32 * MIB), 34 * MIB);
        assert_eq!(append(32 * MIB, 33 * MIB), 34 * MIB);
        assert_eq!(append(33 * MIB, 35 * MIB), 37 * MIB);
        segment.give_room_back(|| Ok(Arc::clone(&file)));
        assert_eq!(file.bytes().unwrap(), 35 * MIB);
        assert!(taken() < 36 * MIB, "{}", taken());
    }

    /// A file of a disk that answers so when it is asked for room, and counts how often it was.
    #[derive(Debug)]
    struct Unable(io::ErrorKind, AtomicU32);

    impl DiskFile for Unable {
        fn read_at(&self, _buffer: &mut [u8], _position: u64) -> io::Result<usize> {
            Ok(0)
        }
        fn write_at(&self, _head: &[u8], _tail: &[u8], _position: u64) -> io::Result<()> {
            Ok(())
        }
        fn bytes(&self) -> io::Result<u64> {
            Ok(0)
        }
        fn truncate(&self, _bytes: u64) -> io::Result<()> {
            Ok(())
        }
        fn reserve(&self, _position: u64, _bytes: u64) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Err(self.0.into())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn as_file(&self) -> Option<&Arc<File>> {
            None
        }
    }

    #[test]
    fn a_disk_that_cannot_is_asked_once_and_one_that_has_none_now_and_then() {
        for (kind, asked, given_back) in [
            (io::ErrorKind::Unsupported, 1, false),
            (io::ErrorKind::StorageFull, 2, true),
        ] {
            let (segment, file) = (segment(), Arc::new(Unable(kind, AtomicU32::new(0))));
            for start in [4 * MIB, 5 * MIB, 100 * MIB] {
                segment.take_room_ahead(&*file, (start, start + MIB), |_| true);
            }
            assert_eq!(file.1.load(Ordering::Relaxed), asked, "{kind}");
            let mut cut = false;
            segment.give_room_back(|| {
                cut = true;
                Ok(Arc::clone(&file) as Arc<dyn DiskFile>)
            });
            assert_eq!(cut, given_back, "some may have been taken before it failed");
        }
    }

    #[test]
    fn nothing_is_taken_that_is_not_to_spare() {
        let file = Unable(io::ErrorKind::StorageFull, AtomicU32::new(0));
        let segment = segment();
        for (asked, to_spare) in [(0, false), (1, true)] {
            let spare = |bytes| {
                assert_eq!(bytes, 2 * MIB);
                to_spare
            };
            segment.take_room_ahead(&file, (100 * MIB, 101 * MIB), spare);
            assert_eq!(file.1.load(Ordering::Relaxed), asked);
        }
    }
}
