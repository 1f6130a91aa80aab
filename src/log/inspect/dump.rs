//! What is in the files of a log, in the words of Kafka's `kafka-dump-log`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{files_under, name_of, open, read_file};
use crate::log::disk::DiskFile;
use crate::log::index::{self, IndexEntry, OffsetEntry, TimeEntry};
use crate::log::leader_epochs::LeaderEpochs;
use crate::log::names::{self, FileKind};
use crate::log::producer_state::SnapshotEntry;
use crate::log::survey::{SurveyPlan, survey};
use crate::log::walk::{Located, crc_matches, header_at, read_payload};
use crate::record::{BatchHeader, Records, decompress};
use crate::types::{Compression, Offset, TimestampType};

const TRANSACTION_ENTRY_BYTES: usize = 34;
/// Records of one batch beyond are told of and not printed.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// Kafka's options of the same names.
#[derive(Debug, Clone, Copy)]
pub struct DumpOptions {
    pub deep_iteration: bool,
    /// Records with keys and values; means `deep_iteration`.
    pub print_data_log: bool,
    pub skip_record_metadata: bool,
    pub verify_index_only: bool,
    pub index_sanity_check: bool,
    pub max_bytes: u64,
}

/// Prints the files, those in directories too. What does not fit together goes to `errors`; returns
/// whether there was any such.
pub fn dump(
    paths: &[PathBuf],
    options: DumpOptions,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<bool> {
    let mut dump = Dump {
        options,
        out,
        errors,
        late: Vec::new(),
        found: false,
    };
    for path in paths {
        let is_directory = std::fs::metadata(path)?.is_dir();
        for file in files_under(path)? {
            dump.file(&file, is_directory)?;
        }
    }
    dump.found |= !dump.late.is_empty();
    for line in std::mem::take(&mut dump.late) {
        writeln!(dump.errors, "{line}")?;
    }
    Ok(dump.found)
}

struct Dump<'a> {
    options: DumpOptions,
    out: &'a mut dyn Write,
    errors: &'a mut dyn Write,
    /// Told at the end, as Kafka does.
    late: Vec<String>,
    found: bool,
}

impl Dump<'_> {
    fn file(&mut self, path: &Path, from_directory: bool) -> io::Result<()> {
        let name = name_of(path);
        let parsed = names::parse_segment_file(name);
        if parsed.is_none() && name != names::LEADER_EPOCH_CHECKPOINT {
            if !from_directory {
                writeln!(self.errors, "Ignoring unknown file {}", path.display())?;
            }
            return Ok(());
        }
        writeln!(self.out, "Dumping {}", path.display())?;
        match parsed {
            Some((base, FileKind::Log)) => self.log(path, base),
            Some((base, FileKind::OffsetIndex)) => self.offset_index(path, base),
            Some((base, FileKind::TimeIndex)) => self.time_index(path, base),
            Some((_, FileKind::ProducerSnapshot)) => self.snapshot(path),
            Some((_, FileKind::TransactionIndex)) => self.transaction_index(path),
            None => self.epochs(path),
        }
    }

    fn error(&mut self, line: &str) -> io::Result<()> {
        self.found = true;
        writeln!(self.errors, "{line}")
    }

    fn log(&mut self, path: &Path, base: Offset) -> io::Result<()> {
        writeln!(self.out, "Log starting offset: {base}")?;
        let file = open(path)?;
        let end = file.bytes()?.min(self.options.max_bytes);
        let mut position = 0;
        let mut last_offset = -1;
        let mut gaps = Vec::new();
        let mut buffer = Vec::new();
        while let Some(header) = header_at(&*file, position, end)? {
            let batch = Located { header, position };
            let valid = crc_matches(&*file, &batch, &mut buffer)?;
            self.batch(&batch, valid)?;
            if self.options.deep_iteration || self.options.print_data_log {
                self.records(&*file, &batch, &mut last_offset, &mut gaps)?;
            }
            position = batch.end();
        }
        if position < end && self.options.max_bytes >= file.bytes()? {
            self.found = true;
            let left = end - position;
            writeln!(
                self.out,
                "Found {left} invalid bytes at the end of {}",
                name_of(path)
            )?;
            self.behind_damage(&*file, base, position, end)?;
        }
        if !gaps.is_empty() {
            self.late
                .push(format!("Non-consecutive offsets in {}", absolute(path)));
            self.late.extend(gaps);
        }
        Ok(())
    }

    /// Kafka's tool ends at damage; this says where the log goes on.
    fn behind_damage(
        &mut self,
        file: &dyn DiskFile,
        base_offset: Offset,
        position: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let plan = SurveyPlan {
            base_offset,
            bytes,
            end_offset: Offset::MAX,
            dense_end: false,
        };
        let mut told = false;
        let mut line = String::new();
        survey(file, plan, &mut |batch| {
            if batch.position > position && !told {
                told = true;
                line = format!(
                    "Whole batches go on at position {} with offset {}",
                    batch.position, batch.header.base_offset
                );
            }
            Ok(())
        })?;
        if told {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Located, valid: bool) -> io::Result<()> {
        let header = &batch.header;
        let horizon = optional(header.delete_horizon_ms());
        writeln!(
            self.out,
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} \
             producerId: {} producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} \
             isControl: {} deleteHorizonMs: {horizon} position: {} {}: {} size: {} magic: 2 \
             compresscodec: {} crc: {} isvalid: {valid}",
            header.base_offset,
            header.last_offset(),
            header.record_count,
            header.base_sequence,
            header.last_sequence(),
            header.producer_id,
            header.producer_epoch,
            header.partition_leader_epoch,
            header.is_transactional(),
            header.is_control(),
            batch.position,
            timestamp_type(header),
            header.max_timestamp,
            header.total_bytes(),
            codec(header),
            header.crc,
        )?;
        self.found |= !valid;
        Ok(())
    }

    fn records(
        &mut self,
        file: &dyn DiskFile,
        batch: &Located,
        last_offset: &mut Offset,
        gaps: &mut Vec<String>,
    ) -> io::Result<()> {
        let header = &batch.header;
        let payload = read_payload(file, batch)?;
        let Some(compression) = header.compression() else {
            return self.error(&format!(
                "unknown codec in the batch at offset {}",
                header.base_offset
            ));
        };
        let payload = decompress(compression, &Bytes::from(payload), DECOMPRESSED_BYTES_MAX);
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => {
                return self.error(&format!(
                    "the batch at offset {}: {error}",
                    header.base_offset
                ));
            }
        };
        for record in Records::new(&payload, header.record_count) {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    return self.error(&format!(
                        "a record of the batch at offset {}: {error}",
                        header.base_offset
                    ));
                }
            };
            let offset = header.base_offset + i64::from(record.offset_delta);
            if offset != *last_offset + 1 {
                gaps.push(format!("  {last_offset} is followed by {offset}"));
            }
            *last_offset = offset;
            self.record(header, offset, &record)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        header: &BatchHeader,
        offset: Offset,
        record: &crate::record::Record<'_>,
    ) -> io::Result<()> {
        let skip = self.options.skip_record_metadata;
        if !skip {
            let keys: Vec<_> = record
                .headers
                .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
                .collect();
            write!(
                self.out,
                "| offset: {offset} {}: {} keySize: {} valueSize: {} sequence: {} headerKeys: [{}]",
                timestamp_type(header),
                header.record_timestamp(record.timestamp_delta),
                size(record.key),
                size(record.value),
                sequence(header, record.offset_delta),
                keys.join(","),
            )?;
            if header.is_control() {
                self.control(record)?;
            }
        }
        if self.options.print_data_log && !header.is_control() {
            let mut prefix = if skip { "| " } else { " " };
            if let Some(key) = record.key {
                write!(self.out, "{prefix}key: {}", String::from_utf8_lossy(key))?;
                prefix = " ";
            }
            if let Some(value) = record.value {
                write!(
                    self.out,
                    "{prefix}payload: {}",
                    String::from_utf8_lossy(value)
                )?;
            }
        }
        writeln!(self.out)
    }

    fn control(&mut self, record: &crate::record::Record<'_>) -> io::Result<()> {
        let number = |bytes: Option<&[u8]>, at: usize| {
            let bytes = bytes?.get(at..at + 2)?.try_into().ok()?;
            Some(i16::from_be_bytes(bytes))
        };
        let kind = number(record.key, 2).unwrap_or(-1);
        let marker = match kind {
            0 => "ABORT",
            1 => "COMMIT",
            _ => return write!(self.out, " controlType: UNKNOWN({kind})"),
        };
        let epoch = record
            .value
            .and_then(|value| value.get(2..6)?.try_into().ok());
        let epoch = epoch.map_or(-1, i32::from_be_bytes);
        write!(
            self.out,
            " endTxnMarker: {marker} coordinatorEpoch: {epoch}"
        )
    }

    /// The entries of an index with the batches' own file; `None` if there is nothing to print.
    fn entries<E: IndexEntry>(
        &mut self,
        path: &Path,
        base: Offset,
        last: impl Fn(&E) -> u32,
    ) -> io::Result<Option<Vec<E>>> {
        let content = read_file(path)?;
        let entries = index::decode::<E>(&content);
        if self.options.index_sanity_check {
            let whole = content.len() % E::BYTES == 0;
            // A time index may hold an entry for its first record alone.
            if whole
                && entries
                    .last()
                    .is_none_or(|entry| last(entry) > 0 || E::BYTES > 8)
            {
                writeln!(self.out, "{} passed sanity check.", path.display())?;
            } else {
                self.error(&format!(
                    "Index file {} is corrupt: {} bytes, base offset {base}",
                    path.display(),
                    content.len()
                ))?;
            }
            return Ok(None);
        }
        Ok(Some(entries))
    }

    fn offset_index(&mut self, path: &Path, base: Offset) -> io::Result<()> {
        let log = open(&path.with_extension("log"))?;
        let bytes = log.bytes()?;
        if read_file(path)?.is_empty() {
            return writeln!(self.out, "{} is empty.", path.display());
        }
        let last = |entry: &OffsetEntry| entry.relative_offset;
        let Some(entries) = self.entries(path, base, last)? else {
            return Ok(());
        };
        let mut mismatches = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            // Preallocated, and not written yet.
            if entry.relative_offset == 0 && number > 0 {
                break;
            }
            let offset = base + Offset::from(entry.relative_offset);
            let header = header_at(&*log, entry.position.into(), bytes)?;
            let found = header.map_or(-1, |header| header.last_offset());
            if found != offset {
                mismatches.push(format!("  Index offset: {offset}, log offset: {found}"));
            }
            if !self.options.verify_index_only {
                writeln!(self.out, "offset: {offset} position: {}", entry.position)?;
            }
        }
        if !mismatches.is_empty() {
            self.late.push(format!("Mismatches in :{}", absolute(path)));
            self.late.extend(mismatches.into_iter().rev());
        }
        Ok(())
    }

    fn time_index(&mut self, path: &Path, base: Offset) -> io::Result<()> {
        let log = open(&path.with_extension("log"))?;
        let bytes = log.bytes()?;
        let last = |entry: &TimeEntry| entry.relative_offset;
        let Some(entries) = self.entries(path, base, last)? else {
            return Ok(());
        };
        let mut mismatches = Vec::new();
        let mut out_of_order = Vec::new();
        let mut not_found = Vec::new();
        let mut before = -1;
        let mut position = 0;
        for (number, entry) in entries.iter().enumerate() {
            if entry.relative_offset == 0 && number > 0 {
                break;
            }
            let offset = base + Offset::from(entry.relative_offset);
            let timestamp = entry.timestamp;
            let mut found = None;
            while let Some(header) = header_at(&*log, position, bytes)? {
                if header.last_offset() >= offset {
                    found = Some(header);
                    break;
                }
                position += header.total_bytes() as u64;
            }
            match found {
                Some(header) if header.last_offset() == offset => {
                    let largest = header.max_timestamp;
                    if largest != timestamp {
                        mismatches.push(format!(
                            "  Index timestamp: {timestamp}, log timestamp: {largest}"
                        ));
                    }
                    if before >= timestamp {
                        out_of_order.push(format!(
                            "  Index timestamp: {timestamp}, Previously indexed timestamp: {before}"
                        ));
                    }
                }
                other => not_found.push(format!(
                    "Indexed offset: {offset}, found log offset: {}",
                    other.map_or(-1, |header| header.last_offset())
                )),
            }
            if !self.options.verify_index_only {
                writeln!(self.out, "timestamp: {timestamp} offset: {offset}")?;
            }
            before = timestamp;
        }
        let file = absolute(path);
        for (title, lines) in [
            (format!("Found timestamp mismatch in :{file}"), mismatches),
            (
                format!("Found out of order timestamp in :{file}"),
                out_of_order,
            ),
            (
                "The following indexed offsets are not found in the log.".to_owned(),
                not_found,
            ),
        ] {
            if !lines.is_empty() {
                self.late.push(title);
                self.late.extend(lines);
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, path: &Path) -> io::Result<()> {
        let Some(entries) = SnapshotEntry::read_all(&read_file(path)?) else {
            return self.error(&format!("Snapshot {} is corrupt", path.display()));
        };
        for entry in entries {
            write!(
                self.out,
                "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} \
                 lastTimestamp: {}",
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                optional(entry.transaction_start()),
                entry.last_timestamp,
            )?;
            if entry.last_offset >= 0 {
                write!(
                    self.out,
                    " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                    entry.first_sequence(),
                    entry.last_sequence,
                    entry.last_offset,
                    entry.offset_delta,
                    entry.last_timestamp,
                )?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn transaction_index(&mut self, path: &Path) -> io::Result<()> {
        let content = read_file(path)?;
        let (entries, rest) = content.as_chunks::<TRANSACTION_ENTRY_BYTES>();
        for entry in entries {
            let version = i16::from_be_bytes([entry[0], entry[1]]);
            let mut numbers = entry[2..]
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| i64::from_be_bytes(*bytes));
            let mut next = || numbers.next().unwrap_or(-1);
            writeln!(
                self.out,
                "version: {version} producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                next(),
                next(),
                next(),
                next(),
            )?;
        }
        match rest.is_empty() {
            true => Ok(()),
            false => self.error(&format!(
                "Transaction index {} ends inside an entry",
                path.display()
            )),
        }
    }

    fn epochs(&mut self, path: &Path) -> io::Result<()> {
        let content = read_file(path)?;
        let epochs = std::str::from_utf8(&content)
            .ok()
            .and_then(LeaderEpochs::from_text);
        let Some(epochs) = epochs else {
            return self.error(&format!("Checkpoint {} is corrupt", path.display()));
        };
        for (epoch, start) in epochs.entries() {
            writeln!(self.out, "leaderEpoch: {epoch} startOffset: {start}")?;
        }
        Ok(())
    }
}

/// As Java prints an `OptionalLong`.
fn optional(number: Option<i64>) -> String {
    number.map_or_else(
        || "OptionalLong.empty".to_owned(),
        |number| format!("OptionalLong[{number}]"),
    )
}

fn size(field: Option<&[u8]>) -> i64 {
    field.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

fn sequence(header: &BatchHeader, offset_delta: i32) -> i64 {
    if header.base_sequence < 0 {
        return -1;
    }
    (i64::from(header.base_sequence) + i64::from(offset_delta)) & i64::from(i32::MAX)
}

fn timestamp_type(header: &BatchHeader) -> &'static str {
    match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

fn codec(header: &BatchHeader) -> String {
    let name = match header.compression() {
        Some(Compression::None) => "none",
        Some(Compression::Gzip) => "gzip",
        Some(Compression::Snappy) => "snappy",
        Some(Compression::Lz4) => "lz4",
        Some(Compression::Zstd) => "zstd",
        None => "unknown",
    };
    name.to_owned()
}

fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}
