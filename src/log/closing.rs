//! The end of a clean stop: everything is on disk, and what the next start needs to know of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::Directory;
use super::disk::replace_file;
use super::log::{Log, LogError};
use super::manifest::{Manifest, ManifestEntry, SegmentEntry};
use super::{names, owner};

/// More logs than these that have something to write are synced together, with all that the file system
/// holds: file by file a hundred thousand of them take minutes.
const ONE_BY_ONE_MAX: usize = 256;

/// The marks come last: without them the next start checks everything.
pub(super) fn close_directory(directory: &Directory, incarnation: &str) -> Result<(), LogError> {
    let mut manifest = std::mem::take(&mut *directory.manifest.lock());
    let mut failed = None;
    let logs = directory.logs();
    let changed = logs.iter().filter(|log| log.is_changed()).count();
    let together = changed > ONE_BY_ONE_MAX && directory.disk.syncs_all();
    for log in &logs {
        let entry = match log.close(!together) {
            Ok(Some(entry)) => entry,
            Ok(None) => continue, // nothing on disk
            Err(error) => {
                // The others are closed all the same; only the marks are not made.
                failed.get_or_insert(error);
                continue;
            }
        };
        let partition = log.topic_partition().clone();
        directory
            .recovery_points
            .lock()
            .insert(partition.clone(), entry.log_end);
        manifest.insert(partition, entry);
    }
    if together {
        sync_together(directory, &logs)?;
    }
    directory.write_recovery_points(true);
    directory.write_log_starts();
    directory.write_high_watermarks(true);
    directory.check_online()?;
    if let Some(error) = failed {
        return Err(error);
    }
    if !directory.knows_all()? {
        // Partitions that nobody asked for since a crash are still to be checked.
        return Ok(());
    }
    write_marks(directory, &manifest, incarnation)
}

/// All that was written, in one go.
fn sync_together(directory: &Directory, logs: &[Arc<Log>]) -> Result<(), LogError> {
    if let Err(error) = directory.disk.sync_all(&directory.path) {
        directory.fail("sync the file system", &error);
        return Err(error.into());
    }
    for log in logs
        .iter()
        .filter(|log| log.flushed_offset() < log.log_end_offset())
    {
        log.flush()?; // tells who waits; the disk has nothing left to do
    }
    Ok(())
}

fn write_marks(
    directory: &Directory,
    manifest: &Manifest,
    incarnation: &str,
) -> Result<(), LogError> {
    let disk = &*directory.disk;
    let path = directory.path.join(names::MANIFEST);
    replace_file(disk, &path, manifest.to_text().as_bytes(), true)?;
    let path = directory.path.join(names::CLEAN_SHUTDOWN);
    let mark = owner::clean_mark(incarnation);
    replace_file(disk, &path, mark.as_bytes(), true)?;
    Ok(())
}

impl Log {
    /// True if closing it writes anything.
    fn is_changed(&self) -> bool {
        let writer = self.writer.lock();
        writer.on_disk && (writer.appended || writer.looked_at)
    }

    /// Leaves everything written (and `durable`) and returns what the manifest says of it.
    fn close(&self, durable: bool) -> Result<Option<ManifestEntry>, LogError> {
        if durable {
            self.flush()?;
        }
        let mut writer = self.writer.lock();
        if !writer.on_disk || self.deleted.load(Ordering::Acquire) {
            return Ok(None);
        }
        let log_end = self.log_end_offset();
        let (segments, epochs) = {
            let view = self.view.lock();
            (view.segments.clone(), view.epochs.clone())
        };
        self.write_first_epoch(&mut writer);
        let touched = writer.appended || writer.looked_at;
        if let Some(active) = segments.last().filter(|_| touched) {
            active.ensure_loaded(&self.files, self.index_interval())?;
            active.give_room_back(|| active.log_file(&self.files));
            active.finish_index(&self.files)?;
            if durable {
                for kind in [names::FileKind::OffsetIndex, names::FileKind::TimeIndex] {
                    self.sync_file(active.base_offset, kind)?;
                }
            }
            self.write_snapshot(&mut writer, log_end, durable)?;
            self.remove_stray_snapshots(log_end)?;
        }
        Ok(Some(ManifestEntry {
            topic_id: self.topic_id,
            log_start: self.log_start_offset(),
            log_end,
            segments: segments
                .iter()
                .map(|segment| SegmentEntry {
                    base_offset: segment.base_offset,
                    bytes: segment.bytes(),
                    largest_timestamp: segment.known_timestamp(),
                })
                .collect(),
            epochs,
        }))
    }
}
