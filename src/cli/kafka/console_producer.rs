//! `kafka-console-producer`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read};
use std::time::Duration;

use super::options::{OptionSpec, Options, flag, optional, usage, value};
use super::{Failure, Outcome, Terminal, log_line};
use crate::cli::tools::lines::LineReader;
use crate::cli::tools::produce::Sender;
use crate::client::{Acks, ClientError, OutgoingRecord, ProduceOptions, ProducedBatch, Producer};
use crate::types::Compression;

const ABOUT: &str = "This tool helps to read data from standard input and publish it to Kafka.";
const CALLBACK: &str = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback";
const INPUT_BYTES: usize = 1 << 16;
const BATCH_BYTES: usize = 16 << 10;

const SPECS: &[OptionSpec] = &[
    value("batch-size", "size", "Bytes of records in one batch."),
    value(
        "bootstrap-server",
        "server to connect to",
        "REQUIRED: The servers to connect to.",
    ),
    value(
        "command-config",
        "config file",
        "A file of producer properties.",
    ),
    value(
        "command-property",
        "producer_prop",
        "A producer property, key=value.",
    ),
    optional(
        "compression-codec",
        "compression-codec",
        "none, gzip, snappy, lz4 or zstd; gzip where none is named.",
    ),
    flag("help", "Prints this text."),
    value(
        "line-reader",
        "reader_class",
        "Only Kafka's own LineMessageReader is there.",
    ),
    value(
        "max-block-ms",
        "max block on send",
        "How long to wait for the topic.",
    ),
    value(
        "max-memory-bytes",
        "total memory in bytes",
        "Accepted; records are written as they come.",
    ),
    value(
        "max-partition-memory-bytes",
        "memory in bytes per partition",
        "As --batch-size, which it overrides.",
    ),
    value(
        "message-send-max-retries",
        "retries",
        "How often a batch is sent again.",
    ),
    value(
        "metadata-expiry-ms",
        "metadata expiration interval",
        "Accepted.",
    ),
    value(
        "producer-property",
        "producer_prop",
        "(DEPRECATED) As --command-property.",
    ),
    value(
        "producer.config",
        "config file",
        "(DEPRECATED) As --command-config.",
    ),
    value("property", "prop", "(DEPRECATED) As --reader-property."),
    value(
        "reader-config",
        "config file",
        "A file of properties of the reader.",
    ),
    value(
        "reader-property",
        "prop",
        "How lines are read: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, headers.key.separator, ignore.error, null.marker.",
    ),
    value(
        "request-required-acks",
        "request required acks",
        "0, 1 or all (-1).",
    ),
    value(
        "request-timeout-ms",
        "request timeout ms",
        "How long an answer may take.",
    ),
    value("retry-backoff-ms", "ms", "Accepted."),
    value("socket-buffer-size", "size", "Accepted."),
    flag("sync", "Waits for each record to be acknowledged."),
    value(
        "timeout",
        "timeout_ms",
        "Accepted: what is there is written at once.",
    ),
    value("topic", "topic", "REQUIRED: The topic."),
    flag("version", "Prints the version."),
];

/// An old option, and the one that takes its place.
const RENAMED: &[(&str, &str)] = &[
    ("property", "reader-property"),
    ("producer-property", "command-property"),
    ("producer.config", "command-config"),
];

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let options = Options::parse(SPECS, &arguments).map_err(|error| usage(SPECS, error))?;
    if options.is_empty {
        return Err(options.usage(ABOUT));
    }
    options.help_or_version(ABOUT)?;
    options.check_required(&["topic", "bootstrap-server"])?;
    super::renamed(&options, RENAMED, "Warning:", &mut terminal)?;
    terminal.flush()?;
    let properties = producer_properties(&options)?;
    let reader = reader(&options)?;
    let settings = settings(&options, &properties)?;
    let servers = text(&options, "bootstrap-server")?.unwrap_or_default();
    let mut client = super::client(&servers, &properties).await.map_err(failed)?;
    if let Some(ms) = number::<u64>(&options, "max-block-ms")? {
        client = super::with_timeout(&client, Duration::from_millis(ms));
    }
    let topic = text(&options, "topic")?.unwrap_or_default();
    let producer = Producer::new(settings.options, settings.retries);
    let mut input = BufReader::with_capacity(INPUT_BYTES, std::io::stdin());
    let sender = Sender::open(client, producer, &topic, settings.batch_bytes, None).await;
    let mut sender = match sender {
        Ok(sender) => sender,
        Err(error) if options.has("sync") => return Err(failed(error)),
        // Each record fails for itself.
        Err(error) => return lost(reader, &mut input, &topic, &error),
    };
    let mut producing = Producing {
        sync: options.has("sync"),
        topic,
        prompt: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
    };
    producing
        .all(reader, &mut input, &mut sender, &mut terminal)
        .await?;
    Ok(terminal.flush()?)
}

struct Producing {
    sync: bool,
    topic: String,
    prompt: bool,
}

impl Producing {
    async fn all<R: Read>(
        &mut self,
        mut reader: LineReader,
        input: &mut BufReader<R>,
        sender: &mut Sender,
        terminal: &mut Terminal,
    ) -> Outcome {
        let mut line = Vec::new();
        loop {
            // Whoever types sees each line written before the next is waited for.
            if self.sync || !input.buffer().contains(&b'\n') {
                self.flush(sender).await?;
            }
            if self.prompt {
                terminal.print(">")?;
                terminal.flush()?;
            }
            line.clear();
            let read = input
                .read_until(b'\n', &mut line)
                .map_err(|error| Failure::Message(format!("java.io.IOException: {error}")))?;
            if read == 0 {
                return self.flush(sender).await;
            }
            let record = match reader.record(without_end(&line)) {
                Ok(record) => record,
                Err(message) => {
                    self.flush(sender).await?;
                    return Err(Failure::Message(format!(
                        "org.apache.kafka.common.KafkaException: {message}"
                    )));
                }
            };
            if sender.add(record) {
                self.flush(sender).await?;
            }
        }
    }

    async fn flush(&self, sender: &mut Sender) -> Outcome {
        for (batch, records) in sender.flush().await.map_err(failed)? {
            self.told(&batch, &records)?;
        }
        Ok(())
    }

    fn told(&self, batch: &ProducedBatch, records: &[OutgoingRecord]) -> Outcome {
        let Err(error) = &batch.outcome else {
            return Ok(());
        };
        if self.sync {
            return Err(failed(error.clone()));
        }
        for record in records {
            eprintln!("{}", not_sent(&self.topic, record, error));
        }
        Ok(())
    }
}

/// Kafka's log of a record that was not written.
fn not_sent(topic: &str, record: &OutgoingRecord, error: &ClientError) -> String {
    let size = |field: &Option<Vec<u8>>| match field {
        Some(bytes) => format!("{} bytes", bytes.len()),
        None => "null".to_owned(),
    };
    let message = format!(
        "Error when sending message to topic {topic} with key: {}, value: {} with error:",
        size(&record.key),
        size(&record.value)
    );
    let line = log_line("ERROR", &message, CALLBACK);
    format!("{line}\n{}: {error}", error.qualified_exception())
}

fn lost(
    mut reader: LineReader,
    input: &mut BufReader<impl Read>,
    topic: &str,
    error: &ClientError,
) -> Outcome {
    let mut line = Vec::new();
    while input
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        if let Ok(record) = reader.record(without_end(&line)) {
            eprintln!("{}", not_sent(topic, &record, error));
        }
        line.clear();
    }
    Ok(())
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn failed(error: ClientError) -> Failure {
    Failure::Message(format!(
        "java.util.concurrent.ExecutionException: {}: {error}",
        error.qualified_exception()
    ))
}

fn text(options: &Options, name: &str) -> Result<Option<String>, Failure> {
    let value = options.value(name).map_err(|error| options.usage(error))?;
    Ok(value.map(str::to_owned))
}

fn number<T: std::str::FromStr>(options: &Options, name: &str) -> Result<Option<T>, Failure> {
    options.number(name).map_err(|error| options.usage(error))
}

fn producer_properties(options: &Options) -> Result<Vec<(String, String)>, Failure> {
    let file = match text(options, "command-config")? {
        Some(file) => Some(file),
        None => text(options, "producer.config")?,
    };
    let mut single = options.values("command-property");
    single.extend(options.values("producer-property"));
    super::properties(file.as_deref(), &single).map_err(failed)
}

fn reader(options: &Options) -> Result<LineReader, Failure> {
    if let Some(class) = text(options, "line-reader")?
        && !class.ends_with("LineMessageReader")
    {
        return Err(Failure::Message(format!(
            "java.lang.ClassNotFoundException: {class}: only org.apache.kafka.tools.LineMessageReader is there"
        )));
    }
    let mut single = options.values("reader-property");
    single.extend(options.values("property"));
    let file = text(options, "reader-config")?;
    let properties = super::properties(file.as_deref(), &single).map_err(failed)?;
    let properties: BTreeMap<String, String> = properties.into_iter().collect();
    LineReader::new(&properties).map_err(|message| {
        Failure::Message(format!("org.apache.kafka.common.KafkaException: {message}"))
    })
}

struct Settings {
    options: ProduceOptions,
    retries: u32,
    batch_bytes: usize,
}

fn settings(options: &Options, properties: &[(String, String)]) -> Result<Settings, Failure> {
    let property = |key: &str| {
        let found = properties.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value.trim().to_owned())
    };
    let wrong = |key: &str, value: &str, why: &str| {
        Failure::Message(format!(
            "org.apache.kafka.common.config.ConfigException: Invalid value {value} for configuration {key}: {why}"
        ))
    };
    let acks = match text(options, "request-required-acks")? {
        Some(acks) => Some(acks),
        None => property("acks"),
    };
    let acks = match acks.as_deref().unwrap_or("all") {
        "0" => Acks::None,
        "1" => Acks::Leader,
        "all" | "-1" => Acks::All,
        other => {
            let why = "String must be one of: all, -1, 0, 1";
            return Err(wrong("acks", other, why));
        }
    };
    let codec = match options.has("compression-codec") {
        true => Some(text(options, "compression-codec")?.unwrap_or_else(|| "gzip".to_owned())),
        false => property("compression.type"),
    };
    let compression = match codec.as_deref().unwrap_or("none") {
        "none" => Compression::None,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        other => {
            let why = "String must be one of: none, gzip, snappy, lz4, zstd";
            return Err(wrong("compression.type", other, why));
        }
    };
    let batch = match number::<usize>(options, "max-partition-memory-bytes")? {
        Some(bytes) => Some(bytes),
        None => number(options, "batch-size")?,
    };
    let timeout_ms = number::<u64>(options, "request-timeout-ms")?.unwrap_or(30_000);
    let idempotent = property("enable.idempotence").is_none_or(|value| value != "false");
    Ok(Settings {
        options: ProduceOptions {
            acks,
            compression,
            timeout: Duration::from_millis(timeout_ms),
            idempotent,
        },
        retries: number(options, "message-send-max-retries")?.unwrap_or(3),
        batch_bytes: batch.unwrap_or(BATCH_BYTES),
    })
}
