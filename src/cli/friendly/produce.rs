//! `ottla produce`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{Connection, Done, Error, run};
use crate::cli::tools::Terminal;
use crate::cli::tools::lines::LineReader;
use crate::cli::tools::produce::Sender;
use crate::client::{Acks, ProduceOptions, Producer};
use crate::types::Compression;

const INPUT_BYTES: usize = 1 << 16;
const BATCH_BYTES: usize = 256 << 10;
const RETRIES: u32 = 10;

/// A codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Writes the lines of standard input as records.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Produce {
    topic: String,
    /// Lines are KEY, this, VALUE.
    #[arg(short = 'K', long, value_name = "SEPARATOR")]
    key_separator: Option<String>,
    /// All records have this key.
    #[arg(short, long, conflicts_with = "key_separator")]
    key: Option<String>,
    /// A header of all records; can be given many times.
    #[arg(short = 'H', long, value_name = "KEY=VALUE")]
    header: Vec<String>,
    /// All records go there.
    #[arg(short, long)]
    partition: Option<i32>,
    /// A value that is this text is null: a tombstone.
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    #[arg(short, long, value_enum, default_value_t = Codec::None)]
    compression: Codec,
    #[command(flatten)]
    connection: Connection,
}

impl Produce {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| self.produce(terminal).await)
    }

    fn reader(&self) -> Result<LineReader, Error> {
        let mut properties = BTreeMap::new();
        let mut set = |key: &str, value: &str| properties.insert(key.to_owned(), value.to_owned());
        if let Some(separator) = &self.key_separator {
            set("parse.key", "true");
            set("key.separator", separator);
        }
        if let Some(null) = &self.null {
            set("null.marker", null);
        }
        Ok(LineReader::new(&properties)?)
    }

    async fn produce(&self, terminal: &mut Terminal) -> Done {
        let mut reader = self.reader()?;
        let headers = super::config::pairs(&self.header)?;
        let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = headers
            .into_iter()
            .map(|(key, value)| (key.into_bytes(), Some(value.into_bytes())))
            .collect();
        let options = ProduceOptions {
            acks: Acks::All,
            compression: match self.compression {
                Codec::None => Compression::None,
                Codec::Gzip => Compression::Gzip,
                Codec::Snappy => Compression::Snappy,
                Codec::Lz4 => Compression::Lz4,
                Codec::Zstd => Compression::Zstd,
            },
            timeout: Duration::from_secs(30),
            idempotent: true,
        };
        let client = self.connection.client()?;
        let producer = Producer::new(options, RETRIES);
        let partition = self.partition;
        let sender = Sender::open(client, producer, &self.topic, BATCH_BYTES, partition);
        let mut sender = sender.await?;
        let mut input = BufReader::with_capacity(INPUT_BYTES, std::io::stdin());
        let (mut line, mut count) = (Vec::new(), 0);
        loop {
            if !input.buffer().contains(&b'\n') {
                count += flush(&mut sender).await?;
            }
            line.clear();
            let read = input.read_until(b'\n', &mut line);
            if read.map_err(|error| format!("standard input: {error}"))? == 0 {
                break;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let mut record = reader.record(text)?;
            if let Some(key) = &self.key {
                record.key = Some(key.clone().into_bytes());
            }
            record.headers.clone_from(&headers);
            if sender.add(record) {
                count += flush(&mut sender).await?;
            }
        }
        count += flush(&mut sender).await?;
        match self.connection.json {
            true => terminal.line(&json!({"topic": self.topic, "records": count}).to_string())?,
            false => eprintln!("{count} records written to {}", self.topic),
        }
        Ok(())
    }
}

async fn flush(sender: &mut Sender) -> Result<usize, Error> {
    let mut count = 0;
    for (batch, _) in sender.flush().await? {
        batch
            .outcome
            .map_err(|error| format!("{}: {error}", batch.partition))?;
        count += batch.records;
    }
    Ok(count)
}
