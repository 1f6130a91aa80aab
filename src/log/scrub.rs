//! Reads what is at rest before somebody needs it: a thread per log directory that walks closed
//! segments, slowly, and checks every CRC. Off unless `log.scrub.interval.ms` asks for it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::directory::Directory;
use super::disk::DiskFile;
use super::log::Log;
use super::segment::Segment;
use super::survey::{Damage, survey};

/// What a scrub may read: a disk has other work.
const BYTES_PER_SECOND: u64 = 20 << 20;
/// How long a log that nobody has opened yet may take to open.
const OPENING_PATIENCE: Duration = Duration::from_secs(10);
const OPENING_STEP: Duration = Duration::from_millis(50);

/// Stops the scrubs of all directories.
#[derive(Debug, Default)]
pub(super) struct ScrubStop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl ScrubStop {
    pub(super) fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }

    /// Waits; true if it was stopped meanwhile.
    fn wait(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, time);
        }
        *stopped
    }
}

/// The thread's body: a round, a pause, until stopped.
pub(super) fn run(directory: &Directory, interval: Duration, stop: &ScrubStop) {
    while !stop.wait(interval) && directory.is_online() {
        let start = directory.clock.now();
        let (mut segments, mut damaged) = (0_u64, 0_u64);
        for partition in directory.partitions() {
            let Some(log) = opened(directory, &partition, stop) else {
                continue;
            };
            for segment in log.closed_segments() {
                match scrub(&log, &segment, stop) {
                    Ok(places) => damaged += places,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                    // Deleted meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        damaged += 1;
                        log.files
                            .findings
                            .tell(segment.base_offset, &unreadable(&segment, &error));
                    }
                }
                segments += 1;
            }
        }
        let seconds = directory
            .clock
            .now()
            .saturating_duration_since(start)
            .as_secs();
        tracing::info!(
            directory = %directory.path.display(), segments, damaged, seconds, "scrubbed closed segments"
        );
    }
}

/// The log of a partition, opened if it has closed segments.
fn opened(
    directory: &Directory,
    partition: &crate::types::TopicPartition,
    stop: &ScrubStop,
) -> Option<Arc<Log>> {
    let open = || {
        directory
            .slot(partition)?
            .log
            .try_lock()?
            .as_ref()
            .map(Arc::clone)
    };
    if let Some(log) = open() {
        return Some(log);
    }
    let only_active = {
        let manifest = directory.manifest.lock();
        manifest
            .get(partition)
            .is_some_and(|entry| entry.segments.len() < 2)
    };
    if only_active || !directory.open_partition(partition) {
        return None;
    }
    let mut waited = Duration::ZERO;
    while waited < OPENING_PATIENCE {
        if stop.wait(OPENING_STEP) {
            return None;
        }
        if let Some(log) = open() {
            return Some(log);
        }
        waited += OPENING_STEP;
    }
    None
}

/// Reads a segment at leisure; what is wrong is told, and not served from now on. Returns how many
/// places are.
fn scrub(log: &Log, segment: &Segment, stop: &ScrubStop) -> io::Result<u64> {
    let Some(file) = segment.existing_file(&log.files)? else {
        return Ok(1);
    };
    segment.notice_change(&*file);
    let slow = Slow {
        file: &*file,
        stop,
        unpaid: Mutex::new(0),
    };
    let found = survey(&slow, segment.survey_plan(), &mut |_| Ok(()))?.damage;
    if !found.is_empty() {
        segment.survey(&*file)?;
    }
    Ok(found.len() as u64)
}

fn unreadable(segment: &Segment, error: &io::Error) -> Damage {
    Damage {
        start: 0,
        end: segment.bytes(),
        first_offset: segment.base_offset,
        next_offset: segment.end_offset(),
        reason: format!("the disk does not read it: {error}"),
        unwritten: false,
    }
}

impl Log {
    /// All segments but the one that is written to.
    fn closed_segments(&self) -> Vec<Arc<Segment>> {
        let mut segments = self.view.lock().segments.clone();
        segments.pop();
        segments
    }
}

/// A file that is read no faster than a scrub may.
#[derive(Debug)]
struct Slow<'a> {
    file: &'a dyn DiskFile,
    stop: &'a ScrubStop,
    /// Bytes read that no pause was made for.
    unpaid: Mutex<u64>,
}

/// Pauses are not shorter than this.
const PAUSE_BYTES: u64 = BYTES_PER_SECOND / 50;

impl DiskFile for Slow<'_> {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, position)?;
        let mut unpaid = self.unpaid.lock();
        *unpaid += read as u64;
        if *unpaid >= PAUSE_BYTES {
            let pause = Duration::from_micros(*unpaid * 1_000_000 / BYTES_PER_SECOND);
            *unpaid = 0;
            if self.stop.wait(pause) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(read)
    }

    fn write_at(&self, _head: &[u8], _tail: &[u8], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn truncate(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn as_file(&self) -> Option<&Arc<File>> {
        None
    }
}
