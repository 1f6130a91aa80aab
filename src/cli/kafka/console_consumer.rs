//! `kafka-console-consumer`.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::options::{OptionSpec, Options, flag, usage, value};
use super::{Failure, Outcome, Terminal, log_line};
use crate::cli::tools::consume::{Consumer, Start, Subscription, Wanted};
use crate::cli::tools::format::RecordFormat;
use crate::cli::tools::now_ms;
use crate::cli::tools::pattern::TopicPattern;
use crate::cli::tools::time::duration_ms;
use crate::client::ClientError;
use crate::time::{Clock, SystemClock};

const ABOUT: &str =
    "This tool helps to read data from Kafka topics and outputs it to standard output.";
const CLASS: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const POLL: Duration = Duration::from_millis(500);
const SESSION_TIMEOUT_MS: u64 = 45_000;
const COMMIT_INTERVAL_MS: u64 = 5_000;

const SPECS: &[OptionSpec] = &[
    value(
        "bootstrap-server",
        "server to connect to",
        "REQUIRED: The servers to connect to.",
    ),
    value(
        "command-config",
        "config file",
        "A file of consumer properties.",
    ),
    value(
        "command-property",
        "consumer_prop",
        "A consumer property, key=value.",
    ),
    value(
        "consumer-property",
        "consumer_prop",
        "(DEPRECATED) As --command-property.",
    ),
    value(
        "consumer.config",
        "config file",
        "(DEPRECATED) As --command-config.",
    ),
    flag(
        "enable-systest-events",
        "Says on standard output when it ends.",
    ),
    value(
        "formatter",
        "class",
        "Kafka's DefaultMessageFormatter or NoOpMessageFormatter.",
    ),
    value(
        "formatter-config",
        "config file",
        "A file of properties of the formatter.",
    ),
    value(
        "formatter-property",
        "prop",
        "What is printed: print.timestamp, print.key, print.offset, print.epoch, print.partition, print.headers, print.value, key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer, headers.deserializer.",
    ),
    flag(
        "from-beginning",
        "Begins with the first record where the group has no offset.",
    ),
    value("group", "consumer group id", "The group to read in."),
    flag("help", "Prints this text."),
    value(
        "include",
        "Java regex (String)",
        "A regular expression of the topics to read.",
    ),
    value(
        "isolation-level",
        "level",
        "read_committed or read_uncommitted.",
    ),
    value(
        "key-deserializer",
        "deserializer for keys",
        "Kafka's class for what keys are.",
    ),
    value(
        "max-messages",
        "num_messages",
        "Ends after so many records.",
    ),
    value(
        "offset",
        "consume offset",
        "With --partition: an offset, earliest or latest.",
    ),
    value("partition", "partition", "Reads only this partition."),
    value("property", "prop", "(DEPRECATED) As --formatter-property."),
    flag(
        "skip-message-on-error",
        "Goes on behind a record that cannot be printed.",
    ),
    value(
        "timeout-ms",
        "timeout_ms",
        "Ends when no record came for so long.",
    ),
    value("topic", "topic", "The topic to read."),
    value(
        "value-deserializer",
        "deserializer for values",
        "Kafka's class for what values are.",
    ),
    flag("version", "Prints the version."),
];

const RENAMED: &[(&str, &str)] = &[
    ("consumer-property", "command-property"),
    ("consumer.config", "command-config"),
    ("property", "formatter-property"),
];

/// How reading ended.
enum End {
    Enough,
    /// Nothing came.
    TimedOut,
    Signal(u8),
    /// Nobody reads what is printed.
    Stopped,
    /// A record that cannot be printed.
    Unprintable(String),
    Failed(ClientError),
}

pub(super) async fn run(arguments: Vec<String>, mut terminal: Terminal) -> Outcome {
    let options = Options::parse(SPECS, &arguments).map_err(|error| usage(SPECS, error))?;
    options.help_or_version(ABOUT)?;
    check(&options)?;
    super::renamed(&options, RENAMED, "Option", &mut terminal)?;
    terminal.flush()?;
    let settings = Settings::of(&options)?;
    let servers = text(&options, "bootstrap-server")?.unwrap_or_default();
    let client = super::client(&servers, &settings.properties).await;
    let client = client.map_err(|error| {
        let exception = format!("{}: {error}", error.qualified_exception());
        Failure::Message(log_line(
            "ERROR",
            &format!("Unknown error when running consumer:  {exception}"),
            CLASS,
        ))
    })?;
    let consumer = Consumer::new(client, settings.wanted.clone());
    reading(consumer, &options, &settings, &mut terminal).await
}

async fn reading(
    mut consumer: Consumer,
    options: &Options,
    settings: &Settings,
    terminal: &mut Terminal,
) -> Outcome {
    let mut count = 0;
    let end = read(&mut consumer, settings, terminal, &mut count).await;
    let flushed = terminal.flush();
    if let End::TimedOut = end {
        let message = "Error processing message, terminating consumer process: ";
        eprintln!("{}", log_line("ERROR", message, CLASS));
        // As log4j prints an exception without a message.
        eprintln!("org.apache.kafka.common.errors.TimeoutException: null");
    }
    if matches!(end, End::Stopped) || flushed.is_err() {
        eprintln!("Unable to write to standard out, closing consumer.");
    }
    if let End::Failed(error) = &end {
        let message = "Error processing message, terminating consumer process: ";
        eprintln!("{}", log_line("ERROR", message, CLASS));
        eprintln!("{}: {error}", error.qualified_exception());
    }
    if let Err(error) = consumer.close().await {
        let message = format!("Offset commit failed: {error}");
        eprintln!("{}", log_line("WARN", &message, CLASS));
    }
    eprintln!("Processed a total of {count} messages");
    if options.has("enable-systest-events") && flushed.is_ok() {
        terminal.line("shutdown_complete")?;
        terminal.flush()?;
    }
    match end {
        End::Unprintable(what) => Err(Failure::Message(format!(
            "{}\norg.apache.kafka.common.errors.SerializationException: {what}",
            log_line("ERROR", "Unknown error when running consumer: ", CLASS)
        ))),
        End::Signal(code) => Err(Failure::Code(code)),
        _ => Ok(()),
    }
}

async fn read(
    consumer: &mut Consumer,
    settings: &Settings,
    terminal: &mut Terminal,
    count: &mut u64,
) -> End {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return End::Enough;
    };
    let mut deadline = settings.timeout.map(|timeout| SystemClock.now() + timeout);
    loop {
        if settings.max_messages.is_some_and(|max| *count >= max) {
            return End::Enough;
        }
        let now = SystemClock.now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left.is_some_and(|left| left.is_zero()) {
            return End::TimedOut;
        }
        let polled = tokio::select! {
            polled = consumer.poll(left.map_or(POLL, |left| left.min(POLL))) => polled,
            _ = interrupt.recv() => return End::Signal(130),
            _ = terminate.recv() => return End::Signal(143),
        };
        let received = match polled {
            Ok(received) => received,
            Err(error) => return End::Failed(error),
        };
        if !received.is_empty() {
            deadline = settings.timeout.map(|timeout| SystemClock.now() + timeout);
        }
        for one in &received {
            if settings.max_messages.is_some_and(|max| *count >= max) {
                break;
            }
            *count += 1;
            consumer.take(one);
            let Some(format) = &settings.format else {
                continue;
            };
            match format.write(one) {
                Ok(text) => {
                    if terminal.bytes(&text).is_err() {
                        return End::Stopped;
                    }
                }
                Err(what) if settings.skip_errors => {
                    let message =
                        format!("Error processing message, skipping this message:  {what}");
                    eprintln!("{}", log_line("ERROR", &message, CLASS));
                }
                Err(what) => return End::Unprintable(what),
            }
        }
        if terminal.flush().is_err() {
            return End::Stopped;
        }
    }
}

fn text(options: &Options, name: &str) -> Result<Option<String>, Failure> {
    let value = options.value(name).map_err(|error| options.usage(error))?;
    Ok(value.map(str::to_owned))
}

fn number<T: std::str::FromStr>(options: &Options, name: &str) -> Result<Option<T>, Failure> {
    options.number(name).map_err(|error| options.usage(error))
}

fn check(options: &Options) -> Outcome {
    if options.has("topic") == options.has("include") {
        return Err(
            options.usage("Exactly one of the following arguments is required: [topic], [include]")
        );
    }
    if options.has("partition") {
        number::<i32>(options, "partition")?;
        if !options.has("topic") {
            return Err(options.usage("The topic is required when partition is specified."));
        }
        if options.has("from-beginning") && options.has("offset") {
            return Err(
                options.usage("Options from-beginning and offset cannot be specified together.")
            );
        }
    } else if options.has("offset") {
        return Err(options.usage("The partition is required when offset is specified."));
    }
    options.check_required(&["bootstrap-server"])
}

struct Settings {
    properties: Vec<(String, String)>,
    wanted: Wanted,
    /// `None`: nothing is printed.
    format: Option<RecordFormat>,
    max_messages: Option<u64>,
    timeout: Option<Duration>,
    skip_errors: bool,
}

impl Settings {
    fn of(options: &Options) -> Result<Self, Failure> {
        let file = match text(options, "command-config")? {
            Some(file) => Some(file),
            None => text(options, "consumer.config")?,
        };
        let mut single = options.values("command-property");
        single.extend(options.values("consumer-property"));
        let properties = super::properties(file.as_deref(), &single)
            .map_err(|error| Failure::Message(error.to_string()))?;
        let map: BTreeMap<String, String> = properties.iter().cloned().collect();
        let timeout = number::<i64>(options, "timeout-ms")?;
        let timeout = timeout.and_then(|ms| u64::try_from(ms).ok());
        let max_messages = number::<i64>(options, "max-messages")?;
        Ok(Self {
            wanted: wanted(options, &map)?,
            format: format(options)?,
            max_messages: max_messages.and_then(|max| u64::try_from(max).ok()),
            timeout: timeout.map(Duration::from_millis),
            skip_errors: options.has("skip-message-on-error"),
            properties,
        })
    }
}

fn wanted(options: &Options, properties: &BTreeMap<String, String>) -> Result<Wanted, Failure> {
    let group = text(options, "group")?;
    let from_properties = properties.get("group.id").cloned();
    if let (Some(one), Some(other)) = (&group, &from_properties)
        && one != other
    {
        return Err(options.usage(format!(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') do not match. Detected group ids: '{one}', '{other}'"
        )));
    }
    let group = group.or(from_properties);
    let partition = number::<i32>(options, "partition")?;
    if group.is_some() && partition.is_some() {
        return Err(options.usage("Options group and partition cannot be specified together."));
    }
    let ms = |key: &str, default: u64| match properties.get(key) {
        Some(text) => text
            .trim()
            .parse()
            .map_err(|_| Failure::Message(format!("Invalid value {text} for configuration {key}"))),
        None => Ok(default),
    };
    let subscription = match text(options, "include")? {
        Some(include) => {
            let pattern = TopicPattern::parse(&include);
            Subscription::Pattern(pattern.map_err(|error| options.usage(error))?)
        }
        None => Subscription::Topic(text(options, "topic")?.unwrap_or_default()),
    };
    let commits = properties
        .get("enable.auto.commit")
        .is_none_or(|value| value != "false");
    let interval = ms("auto.commit.interval.ms", COMMIT_INTERVAL_MS)?;
    let isolation = match text(options, "isolation-level")? {
        Some(level) => Some(level),
        None => properties.get("isolation.level").cloned(),
    };
    Ok(Wanted {
        subscription,
        partition,
        start: start(options, properties)?,
        commit_interval: (group.is_some() && commits).then(|| Duration::from_millis(interval)),
        group,
        instance_id: properties.get("group.instance.id").cloned(),
        session_timeout: Duration::from_millis(ms("session.timeout.ms", SESSION_TIMEOUT_MS)?),
        read_committed: isolation.as_deref() == Some("read_committed"),
        create: properties
            .get("allow.auto.create.topics")
            .is_none_or(|value| value != "false"),
    })
}

fn start(options: &Options, properties: &BTreeMap<String, String>) -> Result<Start, Failure> {
    let from_beginning = options.has("from-beginning");
    if let Some(offset) = text(options, "offset")? {
        return match offset.to_lowercase().as_str() {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            digits => match digits.parse() {
                Ok(offset @ 0..) => Ok(Start::Offset(offset)),
                _ => Err(options.usage(format!(
                    "The provided offset value '{offset}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
                ))),
            },
        };
    }
    match properties.get("auto.offset.reset").map(String::as_str) {
        Some(reset) if from_beginning && reset != "earliest" => Err(Failure::Message(format!(
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        ))),
        Some("earliest") => Ok(Start::Earliest),
        Some(reset) if reset.starts_with("by_duration:") => {
            let duration = duration_ms(reset.trim_start_matches("by_duration:"));
            let duration = duration.ok_or_else(|| {
                Failure::Message(format!(
                    "Invalid value {reset} for configuration auto.offset.reset"
                ))
            })?;
            Ok(Start::At(now_ms() - duration))
        }
        _ if from_beginning => Ok(Start::Earliest),
        _ => Ok(Start::Latest),
    }
}

fn format(options: &Options) -> Result<Option<RecordFormat>, Failure> {
    let file = text(options, "formatter-config")?;
    let mut single = options.values("formatter-property");
    single.extend(options.values("property"));
    let properties = super::properties(file.as_deref(), &[])
        .map_err(|error| options.usage(error.to_string()))?;
    let mut properties: BTreeMap<String, String> = properties.into_iter().collect();
    for (option, key) in [
        ("key-deserializer", "key.deserializer"),
        ("value-deserializer", "value.deserializer"),
    ] {
        if let Some(class) = text(options, option)? {
            properties.insert(key.to_owned(), class);
        }
    }
    for pair in single {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        properties.insert(key.to_owned(), value.to_owned());
    }
    let format = RecordFormat::new(&properties);
    for class in &format.unknown_classes {
        let message = format!("Unable to instantiate a deserializer from {class}");
        let class = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";
        eprintln!("{}", log_line("ERROR", &message, class));
    }
    match text(options, "formatter")?.as_deref() {
        None => Ok(Some(format)),
        Some(class) if class.ends_with(".DefaultMessageFormatter") => Ok(Some(format)),
        Some(class) if class.ends_with(".NoOpMessageFormatter") => Ok(None),
        Some(class) => Err(options.usage(class)),
    }
}
