//! The index of one segment: entries in its two files, the newest ones still in memory.

use std::io;
use std::sync::Arc;

use super::disk::{DiskFile, OpenMode};
use super::index::{
    self, IndexEntry, OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry,
};
use super::names::FileKind;
use super::segment::LogFiles;
use super::survey::Damage;
use super::walk::{Located, WalkError, Walker, crc_matches};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader};
use crate::types::{NO_TIMESTAMP, Offset, TimestampMs};

/// Entries kept in memory before they are written: a segment at rest costs little, and a busy one a
/// system call per so many entries.
pub(crate) const PENDING_MAX: usize = 32;
/// Entries read at once at the end of a search in the file.
const SEARCH_PAGE: u32 = 512;

/// Where the search for entries stands between memory and file.
#[derive(Debug, Default)]
pub(crate) struct SegmentIndex {
    /// False until the files were looked at.
    pub loaded: bool,
    pub offsets_on_disk: u32,
    pub times_on_disk: u32,
    pub offsets: Vec<OffsetEntry>,
    pub times: Vec<TimeEntry>,
    /// The timestamp of the last time entry, wherever it is.
    last_time: Option<TimestampMs>,
    bytes_since_entry: u64,
    /// Largest timestamp in the segment and the last offset of the (first) batch that has it.
    pub max_timestamp: Option<(TimestampMs, Offset)>,
    /// What rolling by time counts from.
    pub first_timestamp: Option<TimestampMs>,
}

/// What a walk through a segment found.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub index: SegmentIndex,
    /// Position behind the last good batch.
    pub bytes: u64,
    pub last: Option<BatchHeader>,
    /// Offsets are missing before the last batch.
    pub gap_before_last: bool,
    /// Why the walk ended before the end of the file.
    pub damage: Option<String>,
}

/// How a segment is walked.
#[derive(Debug, Clone)]
pub(crate) struct WalkPlan {
    pub base_offset: Offset,
    /// Bytes of the file.
    pub bytes: u64,
    pub index_interval_bytes: u64,
    /// Index entries at or past this offset are not believed.
    pub trusted_below: Offset,
    /// Whether the CRC of batches past the last believed entry, and not below `trusted_below`, is checked.
    pub check_crc: bool,
    /// What is known to be damaged and walked around.
    pub damage: Option<Arc<[Damage]>>,
}

impl SegmentIndex {
    /// The index of a segment that is made now.
    pub(crate) fn empty() -> Self {
        Self {
            loaded: true,
            ..Self::default()
        }
    }

    /// Takes up a batch at `position`: the entry for it, if one is due, points to its start.
    pub(crate) fn add(&mut self, base_offset: Offset, batch: &Located, interval_bytes: u64) {
        let header = &batch.header;
        self.note_timestamp(header);
        if self.bytes_since_entry > interval_bytes
            && let Some(relative_offset) = index::relative(base_offset, header.last_offset())
            && let Ok(position) = u32::try_from(batch.position)
        {
            self.offsets.push(OffsetEntry {
                relative_offset,
                position,
            });
            self.add_time_entry(base_offset);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.total_bytes() as u64;
    }

    fn note_timestamp(&mut self, header: &BatchHeader) {
        if self
            .max_timestamp
            .is_none_or(|(timestamp, _)| header.max_timestamp > timestamp)
        {
            self.max_timestamp = Some((header.max_timestamp, header.last_offset()));
        }
        self.first_timestamp.get_or_insert(header.max_timestamp);
    }

    /// Adds the largest timestamp to the time index if it is not there: also when a segment is closed.
    pub(crate) fn add_time_entry(&mut self, base_offset: Offset) {
        let Some((timestamp, offset)) = self.max_timestamp else {
            return;
        };
        if timestamp == NO_TIMESTAMP || self.last_time.is_some_and(|last| timestamp <= last) {
            return;
        }
        if let Some(relative_offset) = index::relative(base_offset, offset) {
            self.times.push(TimeEntry {
                timestamp,
                relative_offset,
            });
            self.last_time = Some(timestamp);
        }
    }

    pub(crate) fn offset_count(&self) -> u32 {
        self.offsets_on_disk + u32::try_from(self.offsets.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn time_count(&self) -> u32 {
        self.times_on_disk + u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Reads the files as far as they can be believed and walks the rest of the segment.
    pub(crate) fn load(
        files: &LogFiles,
        file: &dyn DiskFile,
        plan: &WalkPlan,
    ) -> Result<Loaded, io::Error> {
        let offsets = believed_offsets(files, plan)?;
        let times = believed_times(files, plan)?;
        let mut buffer = Vec::new();
        if let Some(loaded) = continue_walk(file, plan, &offsets, &times, &mut buffer)? {
            trim(
                files,
                plan.base_offset,
                FileKind::OffsetIndex,
                offsets.len() * OFFSET_ENTRY_BYTES,
            )?;
            trim(
                files,
                plan.base_offset,
                FileKind::TimeIndex,
                times.len() * TIME_ENTRY_BYTES,
            )?;
            return Ok(loaded);
        }
        // The files contradict the batches: begin anew.
        trim(files, plan.base_offset, FileKind::OffsetIndex, 0)?;
        trim(files, plan.base_offset, FileKind::TimeIndex, 0)?;
        match continue_walk(file, plan, &[], &[], &mut buffer)? {
            Some(loaded) => Ok(loaded),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Cuts an index file to its believed entries, so that new ones land behind them.
fn trim(files: &LogFiles, base: Offset, kind: FileKind, bytes: usize) -> io::Result<()> {
    match files.open(base, kind, OpenMode::Write) {
        Ok(file) if file.bytes()? != bytes as u64 => file.truncate(bytes as u64),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn read_entries<E: IndexEntry>(
    files: &LogFiles,
    plan: &WalkPlan,
    kind: FileKind,
) -> io::Result<Vec<E>> {
    let file = match files.open(plan.base_offset, kind, OpenMode::Write) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // No more entries than batches, and one for the closing of the time index.
    let entries_max = plan.bytes / BATCH_HEADER_BYTES as u64 + 2;
    let bytes = file.bytes()?.min(entries_max * E::BYTES as u64);
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
    let read = file.read_at(&mut content, 0)?;
    Ok(index::decode(&content[..read]))
}

fn believed_offsets(files: &LogFiles, plan: &WalkPlan) -> io::Result<Vec<OffsetEntry>> {
    let mut entries = read_entries::<OffsetEntry>(files, plan, FileKind::OffsetIndex)?;
    entries.truncate(index::sane_offsets(&entries, plan.bytes));
    entries.truncate(entries.partition_point(|entry| {
        plan.base_offset + Offset::from(entry.relative_offset) < plan.trusted_below
    }));
    Ok(entries)
}

fn believed_times(files: &LogFiles, plan: &WalkPlan) -> io::Result<Vec<TimeEntry>> {
    let mut entries = read_entries::<TimeEntry>(files, plan, FileKind::TimeIndex)?;
    entries.truncate(index::sane_times(&entries));
    entries.truncate(entries.partition_point(|entry| {
        plan.base_offset + Offset::from(entry.relative_offset) < plan.trusted_below
    }));
    Ok(entries)
}

/// Walks from the last believed entry to the end. `None` if a batch contradicts the entries.
fn continue_walk(
    file: &dyn DiskFile,
    plan: &WalkPlan,
    offsets: &[OffsetEntry],
    times: &[TimeEntry],
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Loaded>> {
    let absolute = |relative: u32| plan.base_offset + Offset::from(relative);
    let last_entry = offsets
        .last()
        .map(|entry| (entry.position, absolute(entry.relative_offset)));
    let last_time = times
        .last()
        .map(|entry| (entry.timestamp, absolute(entry.relative_offset)));
    let mut index = SegmentIndex {
        loaded: true,
        offsets_on_disk: u32::try_from(offsets.len()).unwrap_or(u32::MAX),
        times_on_disk: u32::try_from(times.len()).unwrap_or(u32::MAX),
        last_time: last_time.map(|(timestamp, _)| timestamp),
        max_timestamp: last_time,
        first_timestamp: first_timestamp(file, plan)?,
        ..SegmentIndex::default()
    };
    // Timestamps behind the last time entry are not in it, even where the offset index goes further.
    let start = match last_time {
        Some((_, offset)) => {
            let after = offsets.partition_point(|entry| absolute(entry.relative_offset) <= offset);
            after
                .checked_sub(1)
                .map_or(0, |floor| offsets[floor].position)
        }
        None => 0,
    };
    let mut time_entry_seen = last_time.is_none();
    let mut offset_entry_seen = last_entry.is_none();
    let mut walker = Walker::new(file, u64::from(start), plan.bytes, plan.base_offset)
        .around(plan.damage.clone());
    let mut last = None;
    let mut bytes = u64::from(start);
    let mut damage = None;
    let mut gap_before_last = false;
    let mut next_offset = (start == 0).then_some(plan.base_offset);
    loop {
        let batch = match walker.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(WalkError::Io(error)) => return Err(error),
            Err(error) => {
                damage = Some(error.to_string());
                break;
            }
        };
        let offset = batch.header.last_offset();
        if index::relative(plan.base_offset, offset).is_none() {
            damage = Some(format!("offset {offset} is out of the segment's span"));
            break;
        }
        let past_entries =
            last_entry.is_none_or(|(position, _)| batch.position >= u64::from(position));
        let doubted = plan.check_crc && past_entries && offset >= plan.trusted_below;
        if doubted && !crc_matches(file, &batch, buffer)? {
            damage = Some(format!(
                "the CRC of the batch at offset {} is wrong",
                batch.header.base_offset
            ));
            break;
        }
        if last_time == Some((batch.header.max_timestamp, offset)) {
            time_entry_seen = true;
        }
        match last_entry {
            Some((position, _)) if batch.position < u64::from(position) => {
                index.note_timestamp(&batch.header);
            }
            Some((position, entry_offset)) if batch.position == u64::from(position) => {
                if offset != entry_offset {
                    return Ok(None);
                }
                offset_entry_seen = true;
                index.note_timestamp(&batch.header);
                index.bytes_since_entry = batch.header.total_bytes() as u64;
            }
            _ => index.add(plan.base_offset, &batch, plan.index_interval_bytes),
        }
        gap_before_last = next_offset.is_some_and(|next| next != batch.header.base_offset);
        next_offset = Some(offset + 1);
        bytes = batch.end();
        last = Some(batch.header);
    }
    if !time_entry_seen || !offset_entry_seen {
        // Nothing to begin anew from where even the first walk began at the start.
        return Ok((offsets.is_empty() && times.is_empty()).then_some(Loaded {
            index,
            bytes,
            last,
            gap_before_last,
            damage,
        }));
    }
    Ok(Some(Loaded {
        index,
        bytes,
        last,
        gap_before_last,
        damage,
    }))
}

fn first_timestamp(file: &dyn DiskFile, plan: &WalkPlan) -> io::Result<Option<TimestampMs>> {
    let mut walker = Walker::new(file, 0, plan.bytes, plan.base_offset).around(plan.damage.clone());
    match walker.next() {
        Ok(batch) => Ok(batch.map(|batch| batch.header.max_timestamp)),
        Err(WalkError::Io(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The last of `count` entries in an index file for which `holds`; it must hold for all before it.
pub(crate) fn last_in_file<E: IndexEntry>(
    file: &dyn DiskFile,
    count: u32,
    holds: &dyn Fn(&E) -> bool,
) -> io::Result<Option<E>> {
    let mut low = 0;
    let mut high = count;
    let mut best = None;
    while high - low > SEARCH_PAGE {
        let middle = low + (high - low) / 2;
        let mut bytes = vec![0; E::BYTES];
        let read = file.read_at(&mut bytes, u64::from(middle) * E::BYTES as u64)?;
        match E::read(&bytes[..read]) {
            Some(entry) if holds(&entry) => {
                best = Some(entry);
                low = middle + 1;
            }
            _ => high = middle,
        }
    }
    let mut page = vec![0; (high - low) as usize * E::BYTES];
    let read = file.read_at(&mut page, u64::from(low) * E::BYTES as u64)?;
    for entry in index::decode::<E>(&page[..read]) {
        if !holds(&entry) {
            break;
        }
        best = Some(entry);
    }
    Ok(best)
}
