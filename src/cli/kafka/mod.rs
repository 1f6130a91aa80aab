//! The names of Kafka's own scripts: the same options, the same output, the same exit codes.
//!
//! Which one is meant is the file name of `argv[0]`, with or without `.sh`, or the first argument
//! (`ottla kafka-topics …`). Names that have no implementation say so and fail.

mod argparse;
mod broker_api_versions;
mod cluster;
mod configs;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod get_offsets;
pub(crate) mod options;
mod server;
mod storage;
mod topics;

use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::tools::{Stopped, Terminal};
use crate::client::{Client, ClientConfig, ClientError};

/// How a tool ends before its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// `--version`: on standard output, no failure.
    Done(String),
    /// A message and the help text, on standard error.
    Usage(String),
    /// On standard error.
    Message(String),
    /// A last word on standard output, and one on standard error.
    Told { out: String, err: String },
    /// Nobody reads the output any more.
    Stopped,
    /// Everything has been said.
    Code(u8),
}

impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

type Outcome = Result<(), Failure>;

/// One of Kafka's scripts.
struct Tool {
    name: &'static str,
    /// Its main class; what it logs names it.
    kind: Kind,
}

type Main = fn(Vec<String>, Terminal) -> Pin<Box<dyn Future<Output = Outcome>>>;

enum Kind {
    /// Runs in a runtime of its own.
    Async(Main),
    /// Another subcommand of this binary.
    Same(&'static [&'static str]),
    Start,
    Stop,
    /// Not there yet.
    Missing,
}

macro_rules! tool {
    ($name:literal, $module:ident) => {
        Tool {
            name: $name,
            kind: Kind::Async(|arguments, terminal| Box::pin($module::run(arguments, terminal))),
        }
    };
}

const fn missing(name: &'static str) -> Tool {
    Tool {
        name,
        kind: Kind::Missing,
    }
}

/// All that stands in Kafka's `bin/`, without `.sh`.
const TOOLS: &[Tool] = &[
    missing("connect-distributed"),
    missing("connect-mirror-maker"),
    missing("connect-plugin-path"),
    missing("connect-standalone"),
    missing("kafka-acls"),
    tool!("kafka-broker-api-versions", broker_api_versions),
    missing("kafka-client-metrics"),
    tool!("kafka-cluster", cluster),
    tool!("kafka-configs", configs),
    tool!("kafka-console-consumer", console_consumer),
    tool!("kafka-console-producer", console_producer),
    missing("kafka-console-share-consumer"),
    tool!("kafka-consumer-groups", consumer_groups),
    missing("kafka-consumer-perf-test"),
    missing("kafka-delegation-tokens"),
    missing("kafka-delete-records"),
    Tool {
        name: "kafka-dump-log",
        kind: Kind::Same(&["log", "dump"]),
    },
    missing("kafka-e2e-latency"),
    missing("kafka-features"),
    tool!("kafka-get-offsets", get_offsets),
    missing("kafka-groups"),
    missing("kafka-jmx"),
    missing("kafka-leader-election"),
    missing("kafka-log-dirs"),
    missing("kafka-metadata-quorum"),
    missing("kafka-metadata-shell"),
    missing("kafka-producer-perf-test"),
    missing("kafka-reassign-partitions"),
    missing("kafka-replica-verification"),
    missing("kafka-run-class"),
    Tool {
        name: "kafka-server-start",
        kind: Kind::Start,
    },
    Tool {
        name: "kafka-server-stop",
        kind: Kind::Stop,
    },
    missing("kafka-share-consumer-perf-test"),
    missing("kafka-share-groups"),
    tool!("kafka-storage", storage),
    missing("kafka-streams-application-reset"),
    missing("kafka-streams-groups"),
    tool!("kafka-topics", topics),
    missing("kafka-transactions"),
    missing("kafka-verifiable-consumer"),
    missing("kafka-verifiable-producer"),
    missing("trogdor"),
];

/// The names of all scripts, and whether each has an implementation.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, bool)> {
    let is_there = |tool: &Tool| !matches!(tool.kind, Kind::Missing);
    TOOLS.iter().map(move |tool| (tool.name, is_there(tool)))
}

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// None of Kafka's scripts.
    Ottla,
    /// A script that has run.
    Ended(ExitCode),
    /// The arguments of Ottla that mean the same.
    Same(Vec<String>),
}

/// Looks at the program's name and its first argument, and runs the script that they name.
pub(crate) fn invoke(arguments: &[String]) -> Invocation {
    let Some((program, rest)) = arguments.split_first() else {
        return Invocation::Ottla;
    };
    if let Some(tool) = tool_of(program) {
        return run(tool, rest, program);
    }
    match rest.split_first() {
        Some((first, rest)) if !first.contains('/') => match tool_of(first) {
            Some(tool) => run(tool, rest, program),
            None => Invocation::Ottla,
        },
        _ => Invocation::Ottla,
    }
}

fn tool_of(program: &str) -> Option<&'static Tool> {
    let name = Path::new(program).file_name()?.to_str()?;
    let name = name.strip_suffix(".sh").unwrap_or(name);
    TOOLS.iter().find(|tool| tool.name == name)
}

fn run(tool: &Tool, arguments: &[String], program: &str) -> Invocation {
    match &tool.kind {
        Kind::Async(main) => {
            Invocation::Ended(run_async(main(arguments.to_vec(), Terminal::new())))
        }
        Kind::Same(command) => {
            let mut same = vec![program.to_owned()];
            same.extend(command.iter().map(ToString::to_string));
            same.extend(arguments.iter().cloned());
            Invocation::Same(same)
        }
        Kind::Start => server::start(arguments, program),
        Kind::Stop => server::stop(arguments),
        Kind::Missing => {
            eprintln!(
                "{}: this tool of Apache Kafka is not part of Ottla yet. Apache Kafka's own works with this broker.",
                tool.name
            );
            Invocation::Ended(ExitCode::FAILURE)
        }
    }
}

fn run_async(main: impl Future<Output = Outcome>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(main),
        Err(error) => Err(Failure::Message(format!(
            "the runtime does not start: {error}"
        ))),
    };
    ended(outcome)
}

fn ended(outcome: Outcome) -> ExitCode {
    let (out, err) = match outcome {
        Ok(()) | Err(Failure::Stopped) => return ExitCode::SUCCESS,
        Err(Failure::Code(code)) => return ExitCode::from(code),
        Err(Failure::Done(out)) => {
            let _ = std::io::stdout().write_all(out.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Failure::Usage(text)) => (String::new(), text),
        Err(Failure::Message(text)) => (String::new(), format!("{text}\n")),
        Err(Failure::Told { out, err }) => (out, err),
    };
    let _ = std::io::stdout().write_all(out.as_bytes());
    let _ = std::io::stderr().write_all(err.as_bytes());
    ExitCode::FAILURE
}

/// The properties of a client, from a file and from single ones.
fn properties(file: Option<&str>, single: &[&str]) -> Result<Vec<(String, String)>, ClientError> {
    let mut properties = Vec::new();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let told = match error.kind() {
                std::io::ErrorKind::NotFound => path.to_owned(),
                _ => format!("{path} ({error})"),
            };
            ClientError::Config(told)
        })?;
        properties = crate::config::properties_of(&text);
    }
    for pair in single {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        properties.push((key.to_owned(), value.to_owned()));
    }
    Ok(properties)
}

/// A client of the cluster behind these servers. Who cannot be reached is told of as Kafka's client logs it.
async fn client(bootstrap: &str, properties: &[(String, String)]) -> Result<Client, ClientError> {
    let mut config = ClientConfig::new(bootstrap, properties)?;
    config.unreachable = |id, host, port, error| {
        let line = format!(
            "Connection to node {id} ({host}:{port}) could not be established: {error}. Node may not be available."
        );
        eprintln!(
            "{}",
            log_line("WARN", &line, "org.apache.kafka.clients.NetworkClient")
        );
    };
    let client = Client::new(config);
    client.resolve_bootstrap().await?;
    Ok(client)
}

/// The same client with another time-out for its calls.
fn with_timeout(client: &Client, timeout: Duration) -> Client {
    let mut config = client.config().clone();
    config.api_timeout = timeout;
    config.request_timeout = config.request_timeout.min(timeout);
    Client::new(config)
}

/// Options that have got other names: one of both may be given, and the old one is told of.
fn renamed(
    options: &options::Options,
    pairs: &[(&str, &str)],
    prefix: &str,
    terminal: &mut Terminal,
) -> Outcome {
    for (old, new) in pairs.iter().filter(|(old, _)| options.has(old)) {
        if options.has(new) {
            let (one, other) = match prefix {
                "Option" => (old, new),
                _ => (new, old),
            };
            return Err(options.usage(format!(
                "Options --{one} and --{other} cannot be specified together."
            )));
        }
        terminal.line(&format!(
            "{prefix} --{old} is deprecated and will be removed in a future version. Use --{new} instead."
        ))?;
    }
    Ok(())
}

/// A line as Kafka's tools log it.
fn log_line(level: &str, message: &str, class: &str) -> String {
    let time = crate::cli::tools::local_time(crate::cli::tools::now_ms());
    format!("[{time}] {level} {message} ({class})")
}
