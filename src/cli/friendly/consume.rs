//! `ottla consume`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{Connection, Done, Error, run};
use crate::cli::tools::Terminal;
use crate::cli::tools::consume::{Consumer, Received, Start, Subscription, Wanted};
use crate::cli::tools::time::{date_time, duration_ms, local_time, now_ms};
use crate::time::{Clock, SystemClock};

const POLL: Duration = Duration::from_millis(500);
const SESSION_TIMEOUT: Duration = Duration::from_secs(45);
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);
/// How long nothing may come until `--end` believes that this was all.
const QUIET: Duration = Duration::from_millis(1500);

/// Prints records as they come.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Consume {
    topic: String,
    /// Where to begin: earliest, latest, an offset (with --partition), a time (2026-11-30T12:00:00) or a duration
    /// ago (PT1H).
    #[arg(short, long, default_value = "latest")]
    from: String,
    /// Only this one.
    #[arg(short, long)]
    partition: Option<i32>,
    /// Ends after so many records.
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// Ends when there is nothing more.
    #[arg(short, long)]
    end: bool,
    /// Reads in a group, and commits.
    #[arg(short, long, conflicts_with = "partition")]
    group: Option<String>,
    /// Keys, offsets, times and headers too.
    #[arg(short, long)]
    verbose: bool,
    /// Records of aborted and open transactions too.
    #[arg(long)]
    uncommitted: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Consume {
    pub(crate) fn run(&self) -> ExitCode {
        run(async |terminal| self.consume(terminal).await)
    }

    fn start(&self) -> Result<Start, Error> {
        let text = self.from.as_str();
        Ok(match text {
            "earliest" | "beginning" => Start::Earliest,
            "latest" | "end" => Start::Latest,
            _ => match (text.parse(), date_time(text), duration_ms(text)) {
                (Ok(offset @ 0..), _, _) => Start::Offset(offset),
                (_, Some(time), _) => Start::At(time),
                (_, _, Some(ago)) => Start::At(now_ms() - ago),
                _ => {
                    let what = format!(
                        "--from {text}: give earliest, latest, an offset, a time or a duration"
                    );
                    return Err(Error::Told(what));
                }
            },
        })
    }

    async fn consume(&self, terminal: &mut Terminal) -> Done {
        let wanted = Wanted {
            subscription: Subscription::Topic(self.topic.clone()),
            partition: self.partition,
            start: self.start()?,
            group: self.group.clone(),
            instance_id: None,
            session_timeout: SESSION_TIMEOUT,
            commit_interval: self.group.is_some().then_some(COMMIT_INTERVAL),
            read_committed: !self.uncommitted,
            create: false,
        };
        let mut client = self.connection.client()?;
        let topics = [self.topic.clone()];
        let located = client.locate(&topics, false).await?.remove(&self.topic);
        if let Some(Err(error)) = located {
            return Err(Error::Told(format!("{}: {error}", self.topic)));
        }
        let mut consumer = Consumer::new(client, wanted);
        let printed = self.print(&mut consumer, terminal).await;
        let closed = consumer.close().await;
        printed?;
        Ok(closed?)
    }

    async fn print(&self, consumer: &mut Consumer, terminal: &mut Terminal) -> Done {
        let (mut count, mut last) = (0, SystemClock.now());
        loop {
            let polled = tokio::select! {
                polled = consumer.poll(POLL) => polled?,
                _ = tokio::signal::ctrl_c() => return Ok(()),
            };
            if polled.is_empty() && self.end && SystemClock.now() - last > QUIET {
                return Ok(());
            }
            for received in &polled {
                if self.count.is_some_and(|most| count >= most) {
                    break;
                }
                self.one(received, terminal)?;
                consumer.take(received);
                count += 1;
                last = SystemClock.now();
            }
            terminal.flush()?;
            if self.count.is_some_and(|most| count >= most) {
                return Ok(());
            }
        }
    }

    fn one(&self, received: &Received, terminal: &mut Terminal) -> Done {
        let record = &received.record;
        if self.connection.json {
            let headers = record.headers.iter().map(|(key, value)| {
                json!({"key": String::from_utf8_lossy(key), "value": value.as_deref().map(text)})
            });
            let json = json!({
                "topic": &*received.partition.topic,
                "partition": received.partition.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key.as_deref().map(text),
                "value": record.value.as_deref().map(text),
                "headers": headers.collect::<Vec<Value>>(),
            });
            return Ok(terminal.line(&json.to_string())?);
        }
        if self.verbose {
            let key = record
                .key
                .as_deref()
                .map_or("-".into(), String::from_utf8_lossy);
            let headers: Vec<String> = record
                .headers
                .iter()
                .map(|(key, value)| {
                    let value = value.as_deref().map_or("".into(), String::from_utf8_lossy);
                    format!(" {}={value}", String::from_utf8_lossy(key))
                })
                .collect();
            terminal.print(&format!(
                "{} {} {} {key}{}\t",
                received.partition,
                record.offset,
                local_time(record.timestamp).replace(' ', "T"),
                headers.concat()
            ))?;
        }
        terminal.bytes(record.value.as_deref().unwrap_or_default())?;
        Ok(terminal.line("")?)
    }
}

/// Text where it is text, its bytes in hexadecimal otherwise.
fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({"hex": hex.concat()})
        }
    }
}
