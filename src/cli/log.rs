//! `ottla log dump` and `ottla log verify`.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::log::inspect::{DumpOptions, Finding, Report, dump, verify};

const OUTPUT_BUFFER_BYTES: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum LogCommand {
    /// Prints segments, indexes, producer snapshots and epochs as kafka-dump-log does.
    Dump(DumpArguments),
    /// Checks CRCs, offsets, indexes, snapshots and checkpoints; says where a file is damaged. Exit
    /// status 1 if one is.
    Verify(VerifyArguments),
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DumpArguments {
    /// Files, or directories with all that is in them.
    #[arg(value_name = "DIR|FILE", required_unless_present = "files")]
    paths: Vec<PathBuf>,
    /// The same, separated by commas, as kafka-dump-log takes them.
    #[arg(long, value_delimiter = ',', value_name = "FILE,...")]
    files: Vec<PathBuf>,
    /// Each record of each batch.
    #[arg(long)]
    deep_iteration: bool,
    /// Each record with its key and value.
    #[arg(long)]
    print_data_log: bool,
    /// Keys and values only.
    #[arg(long)]
    skip_record_metadata: bool,
    /// Checks the entries of indexes without printing them.
    #[arg(long)]
    verify_index_only: bool,
    /// Makes only the check of indexes that a broker makes when it starts.
    #[arg(long)]
    index_sanity_check: bool,
    /// Reads so much of each segment.
    #[arg(long, value_name = "BYTES", default_value_t = u64::MAX, hide_default_value = true)]
    max_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct VerifyArguments {
    /// Log directories, directories of partitions, or files.
    #[arg(value_name = "DIR|FILE", required = true)]
    paths: Vec<PathBuf>,
    /// A line of JSON for each finding and one for the sum.
    #[arg(long)]
    json: bool,
}

impl LogCommand {
    pub(super) fn run(&self) -> ExitCode {
        let outcome = match self {
            Self::Dump(arguments) => arguments.run(),
            Self::Verify(arguments) => arguments.run(),
        };
        match outcome {
            Ok(code) => code,
            // Whoever read it has had enough: `| head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ottla: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

impl DumpArguments {
    fn run(&self) -> io::Result<ExitCode> {
        let options = DumpOptions {
            deep_iteration: self.deep_iteration,
            print_data_log: self.print_data_log,
            skip_record_metadata: self.skip_record_metadata,
            verify_index_only: self.verify_index_only,
            index_sanity_check: self.index_sanity_check,
            max_bytes: self.max_bytes,
        };
        let mut paths = self.paths.clone();
        paths.extend_from_slice(&self.files);
        readable(&paths)?;
        let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, io::stdout().lock());
        dump(&paths, options, &mut out, &mut io::stderr().lock())?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

impl VerifyArguments {
    fn run(&self) -> io::Result<ExitCode> {
        readable(&self.paths)?;
        let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, io::stdout().lock());
        let mut damaged = false;
        for path in &self.paths {
            let report = verify(path).map_err(|error| at(path, &error))?;
            for finding in &report.findings {
                match self.json {
                    true => writeln!(out, "{}", finding_json(finding))?,
                    false => writeln!(out, "{}", finding_text(finding))?,
                }
            }
            match self.json {
                true => writeln!(out, "{}", sum_json(path, &report))?,
                false => writeln!(out, "{}", sum_text(path, &report))?,
            }
            damaged |= report.is_damaged();
        }
        out.flush()?;
        Ok(match damaged {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }
}

fn readable(paths: &[PathBuf]) -> io::Result<()> {
    for path in paths {
        std::fs::metadata(path).map_err(|error| at(path, &error))?;
    }
    Ok(())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn finding_text(finding: &Finding) -> String {
    let kind = if finding.damage { "damaged" } else { "note" };
    let mut text = format!("{kind}: {}", finding.path.display());
    if let Some(position) = finding.position {
        text.push_str(&format!(": position {position}"));
    }
    if let Some((first, next)) = finding.offsets {
        match next - first {
            ..=0 => {}
            1 => text.push_str(&format!(", offset {first}")),
            _ => text.push_str(&format!(", offsets {first} to {}", next - 1)),
        }
    }
    text.push_str(&format!(": {}", finding.what));
    text
}

fn finding_json(finding: &Finding) -> serde_json::Value {
    serde_json::json!({
        "path": finding.path.display().to_string(),
        "damage": finding.damage,
        "position": finding.position,
        "firstOffset": finding.offsets.map(|(first, _)| first),
        "nextOffset": finding.offsets.map(|(_, next)| next),
        "what": finding.what,
    })
}

fn sum_text(path: &Path, report: &Report) -> String {
    let damaged = report.findings.iter().filter(|f| f.damage).count();
    format!(
        "{}: {} partitions, {} segments, {} batches, {} records, {} bytes: {}",
        path.display(),
        report.partitions,
        report.segments,
        report.batches,
        report.records,
        report.bytes,
        match damaged {
            0 => "all is well".to_owned(),
            1 => "1 damaged place".to_owned(),
            count => format!("{count} damaged places"),
        },
    )
}

fn sum_json(path: &Path, report: &Report) -> serde_json::Value {
    serde_json::json!({
        "path": path.display().to_string(),
        "partitions": report.partitions,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.bytes,
        "damaged": report.findings.iter().filter(|f| f.damage).count(),
    })
}
