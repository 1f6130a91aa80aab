//! Arguments and subcommands.

mod config;
mod config_check;
pub mod container;
mod friendly;
mod kafka;
mod log;
mod registry;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kafka broker in one small native binary.
///
/// Settings are Apache Kafka's own. They are read from the file (without one: from a built-in
/// configuration that listens on 127.0.0.1:9092), then from KAFKA_* environment names
/// (KAFKA_NUM_PARTITIONS is num.partitions), then from --override.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "ottla", version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Kafka's configuration file.
    #[arg(value_name = "server.properties")]
    pub file: Option<PathBuf>,

    /// Sets one key, whatever the file and the environment say; can be given many times.
    #[arg(long = "override", value_name = "key=value")]
    pub overrides: Vec<String>,

    /// Something else than a broker.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What there is beside the broker.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Topics: list, describe, create, grow, delete.
    #[command(subcommand)]
    Topic(friendly::TopicCommand),
    /// Groups: list, describe, reset, delete.
    #[command(subcommand)]
    Group(friendly::GroupCommand),
    /// Writes the lines of standard input as records.
    Produce(friendly::Produce),
    /// Prints records as they come.
    Consume(friendly::Consume),
    /// The brokers of a cluster, and what they serve.
    #[command(subcommand)]
    Cluster(friendly::ClusterCommand),
    /// Looks at configuration files.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// The steps of a container's start.
    #[command(subcommand, hide = true)]
    Container(container::ContainerCommand),
    /// Looks at the files of logs, of a broker that runs or has stopped. Changes nothing.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Kafka's own tools, which this program is as well: under their names, or as `ottla kafka-topics …`.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Prints what a shell needs to complete this program's commands: `ottla completions bash`.
    Completions { shell: clap_complete::Shell },
    /// Moves a cluster's metadata between a data directory and etcd.
    #[command(subcommand)]
    Registry(registry::RegistryCommand),
}

/// A broker to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start<'a> {
    pub file: Option<&'a Path>,
    pub overrides: &'a [String],
    /// For the start scripts of a container: metrics are for its network, and it says when it is ready.
    pub in_container: bool,
}

/// What there is to say of Kafka's tools.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ToolsCommand {
    /// The names of all scripts in Kafka's bin, one a line; those that are not there yet only say so.
    List {
        /// Only those that work.
        #[arg(long)]
        implemented: bool,
    },
}

impl ToolsCommand {
    fn run(&self) -> ExitCode {
        let Self::List { implemented } = self;
        let names = kafka::names().filter(|(_, is_there)| *is_there || !implemented);
        let lines: String = names.map(|(name, _)| format!("{name}\n")).collect();
        let _ = std::io::Write::write_all(&mut std::io::stdout(), lines.as_bytes());
        ExitCode::SUCCESS
    }
}

impl Arguments {
    /// Those of the arguments of this process; prints help, version or what is wrong with them, and exits.
    pub fn of(process: &[String]) -> Self {
        Self::parse_from(process)
    }

    /// The broker that is to run, or else the command.
    pub fn start(&self) -> Result<Start<'_>, &Command> {
        match &self.command {
            None => Ok(Start {
                file: self.file.as_deref(),
                overrides: &self.overrides,
                in_container: false,
            }),
            Some(Command::Container(container::ContainerCommand::Launch { file })) => Ok(Start {
                file: Some(file),
                overrides: &[],
                in_container: true,
            }),
            Some(command) => Err(command),
        }
    }
}

/// Runs the Kafka tool that a command line names. `Err`: it names none; these arguments are Ottla's own.
pub fn run_tool(process: Vec<String>) -> Result<ExitCode, Vec<String>> {
    match kafka::invoke(&process) {
        kafka::Invocation::Ended(code) => Ok(code),
        kafka::Invocation::Same(arguments) => Err(arguments),
        kafka::Invocation::Ottla => Err(process),
    }
}

/// The environment of this process, but for what is no text.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.into_string().ok()?))
    })
}

impl Command {
    /// Runs to its end. Failure means that damage was found, or that nothing could be read.
    pub fn run(&self) -> ExitCode {
        match self {
            Self::Config(command) => command.run(),
            Self::Container(command) => command.run(),
            Self::Log(command) => command.run(),
            Self::Registry(command) => command.run(),
            Self::Tools(command) => command.run(),
            Self::Topic(command) => command.run(),
            Self::Group(command) => command.run(),
            Self::Produce(command) => command.run(),
            Self::Consume(command) => command.run(),
            Self::Cluster(command) => command.run(),
            Self::Completions { shell } => {
                let mut command = <Arguments as clap::CommandFactory>::command();
                clap_complete::generate(*shell, &mut command, "ottla", &mut std::io::stdout());
                ExitCode::SUCCESS
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_kafkas_start_script() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from(arguments);
        let none = parse(&["ottla"]).unwrap();
        assert_eq!((none.file, none.overrides), (None, Vec::new()));
        let all = parse(&[
            "ottla",
            "server.properties",
            "--override",
            "node.id=2",
            "--override",
            "log.dirs=/a=b",
        ])
        .unwrap();
        assert_eq!(all.file, Some(PathBuf::from("server.properties")));
        assert_eq!(all.overrides, ["node.id=2", "log.dirs=/a=b"]);
        assert_eq!(all.command, None);
        assert!(parse(&["ottla", "--overide", "x=y"]).is_err());
        let version = parse(&["ottla", "--version"]).unwrap_err().to_string();
        assert_eq!(version.trim(), concat!("ottla ", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_configuration_is_checked_by_a_subcommand() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from(arguments);
        let check = parse(&["ottla", "config", "check", "--json", "server.properties"]);
        assert!(matches!(check.unwrap().command, Some(Command::Config(_))));
        assert!(parse(&["ottla", "config", "check"]).is_err());
    }

    #[test]
    fn the_registry_moves_by_subcommands() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from(arguments);
        let export = ["ottla", "registry", "export", "server.properties"];
        assert!(matches!(
            parse(&export).unwrap().command,
            Some(Command::Registry(_))
        ));
        let import = [
            "ottla",
            "registry",
            "import",
            "--override",
            "a=b",
            "--from",
            "f",
        ];
        assert!(parse(&import).is_ok());
        assert!(parse(&["ottla", "registry"]).is_err());
    }

    #[test]
    fn the_command_line_is_sound() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_tools_have_friendly_names() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        for line in [
            "ottla topic list",
            "ottla topic create t -p 3 -r 1 -c retention.ms=1 --bootstrap a:1",
            "ottla topic describe t --json",
            "ottla group describe g --members",
            "ottla group reset g --by -5 --execute",
            "ottla config show --topic t",
            "ottla config set --brokers log.retention.ms=5",
            "ottla config unset --broker 1 log.retention.ms",
            "ottla produce t -K : -c zstd",
            "ottla consume t --from earliest -n 5 -v",
            "ottla cluster info -b a:1,b:2",
            "ottla tools list",
            "ottla completions zsh",
        ] {
            let parsed = parse(line);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for line in ["ottla group reset g", "ottla config show", "ottla topic"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn kafkas_names_are_known_with_and_without_the_end() {
        let run = |line: &str| run_tool(line.split(' ').map(str::to_owned).collect());
        let own = |line: &str| run(line).unwrap_err();
        assert_eq!(own("ottla topic list"), ["ottla", "topic", "list"]);
        assert_eq!(own("ottla ./kafka-topics"), ["ottla", "./kafka-topics"]);
        let dumped = own("/opt/kafka/bin/kafka-dump-log.sh --files a.log");
        assert_eq!(dumped[1..], ["log", "dump", "--files", "a.log"]);
        let started = own("kafka-server-start.sh f.properties --override a=b");
        assert_eq!(started[1..], ["f.properties", "--override", "a=b"]);
        for missing in [
            "kafka-acls.sh --list",
            "ottla kafka-transactions list",
            "trogdor",
        ] {
            assert_eq!(
                format!("{:?}", run(missing).unwrap()),
                format!("{:?}", ExitCode::FAILURE),
                "{missing}"
            );
        }
    }

    #[test]
    fn the_log_tools_are_subcommands() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from(arguments);
        let dump = parse(&["ottla", "log", "dump", "--deep-iteration", "a.log", "dir"]).unwrap();
        assert!(matches!(dump.command, Some(Command::Log(_))));
        assert!(parse(&["ottla", "log", "verify", "--json", "dir"]).is_ok());
        assert!(parse(&["ottla", "log", "verify"]).is_err());
        assert!(parse(&["ottla", "log", "dump", "--files", "a.log,b.index"]).is_ok());
        assert!(parse(&["ottla", "--override", "a=b", "log", "verify", "dir"]).is_err());
    }
}
