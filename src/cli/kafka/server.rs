//! `kafka-server-start` and `kafka-server-stop`.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser as _;
use rustix::process::{Pid, Signal, kill_process};

use super::Invocation;
use crate::cli::Arguments;
use crate::config::BrokerConfig;

const USAGE: &str =
    "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*";

/// The broker's own arguments; with `-daemon` it is started beside this process, which ends.
pub(super) fn start(arguments: &[String], program: &str) -> Invocation {
    let (daemon, rest) = match arguments.split_first() {
        Some((first, rest)) if matches!(first.as_str(), "-daemon" | "--daemon") => (true, rest),
        _ => (false, arguments),
    };
    if rest.first().is_none_or(|file| file.starts_with('-')) {
        eprintln!("{USAGE}");
        return Invocation::Ended(ExitCode::FAILURE);
    }
    if daemon {
        return Invocation::Ended(start_beside(rest));
    }
    let mut same = vec![program.to_owned()];
    same.extend(rest.iter().cloned());
    Invocation::Same(same)
}

fn start_beside(arguments: &[String]) -> ExitCode {
    let started = std::env::current_exe().and_then(|ottla| {
        Command::new(ottla)
            .arg0("ottla")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    });
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kafka-server-start: cannot start the broker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks brokers on this machine that run this very program to stop, as Kafka's script does with its own: all of
/// them, or with `--node-id=` or `--process-role=` those that are configured so. `SIGNAL` names another signal.
pub(super) fn stop(arguments: &[String]) -> Invocation {
    Invocation::Ended(match stop_brokers(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(said) => {
            println!("{said}");
            ExitCode::FAILURE
        }
    })
}

fn stop_brokers(arguments: &[String]) -> Result<(), String> {
    let given = |option: &str| {
        let mut values = arguments
            .iter()
            .filter_map(|word| word.strip_prefix(option));
        values.next().filter(|value| !value.is_empty())
    };
    let (node_id, role) = (given("--node-id="), given("--process-role="));
    if node_id.is_some() && role.is_some() {
        println!(
            "When both node-id and process-role are provided, the value for node-id will take precedence"
        );
    }
    let signal = std::env::var("SIGNAL").unwrap_or_default();
    let signal = signal_of(&signal).ok_or_else(|| format!("SIGNAL={signal}: no such signal"))?;
    let brokers = brokers();
    if brokers.is_empty() {
        return Err("No kafka server to stop".to_owned());
    }
    let is_meant = |broker: &Running| match (node_id, role) {
        (None, None) => true,
        (Some(id), _) => broker.configured("node.id").as_deref() == Some(id),
        (None, Some(role)) => broker.configured("process.roles").as_deref() == Some(role),
    };
    for broker in brokers.iter().filter(|broker| is_meant(broker)) {
        // One that has ended meanwhile is stopped as well.
        let _ = kill_process(broker.pid, signal);
    }
    Ok(())
}

/// By the name that `kill -s` takes; empty: SIGTERM.
fn signal_of(name: &str) -> Option<Signal> {
    Some(match name.strip_prefix("SIG").unwrap_or(name) {
        "" | "TERM" | "15" => Signal::TERM,
        "INT" | "2" => Signal::INT,
        "QUIT" | "3" => Signal::QUIT,
        "KILL" | "9" => Signal::KILL,
        _ => return None,
    })
}

/// A broker of this program.
struct Running {
    pid: Pid,
    arguments: Vec<String>,
}

impl Running {
    fn place(&self) -> PathBuf {
        Path::new("/proc").join(self.pid.as_raw_nonzero().to_string())
    }

    /// What it was started with for a key: by an argument, its environment or its file.
    fn configured(&self, key: &str) -> Option<String> {
        let names = |word: &String| super::tool_of(word).is_some();
        let own = match self.arguments.get(1).is_some_and(names) {
            true => &self.arguments[1..],
            false => &self.arguments[..],
        };
        let arguments = Arguments::try_parse_from(own).ok()?;
        let start = arguments.start().ok()?;
        let directory = std::fs::read_link(self.place().join("cwd")).ok()?;
        let file = start.file.map(|file| directory.join(file));
        let environment = std::fs::read(self.place().join("environ")).ok()?;
        let environment = words_of(&environment).into_iter().filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        let loaded = BrokerConfig::load(file.as_deref(), environment, start.overrides).ok()?;
        match key {
            "node.id" => Some(loaded.config.node_id.0.to_string()),
            _ => loaded.config.values.get(key).map(str::to_owned),
        }
    }
}

/// What the kernel separates and ends by zeros.
fn words_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_suffix('\0').unwrap_or(&text);
    text.split('\0').map(str::to_owned).collect()
}

fn brokers() -> Vec<Running> {
    let Ok(ours) = std::fs::metadata("/proc/self/exe") else {
        return Vec::new();
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let running = |pid: i32| {
        let process = Path::new("/proc").join(pid.to_string());
        let theirs = std::fs::metadata(process.join("exe")).ok()?;
        let same = (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino());
        let arguments = words_of(&std::fs::read(process.join("cmdline")).ok()?);
        let other = pid != std::process::id().cast_signed();
        let pid = Pid::from_raw(pid)?;
        (same && other && runs_a_broker(&arguments)).then_some(Running { pid, arguments })
    };
    pids.filter_map(running).collect()
}

/// Whether a command line of this program is that of a broker and not of a tool.
fn runs_a_broker(arguments: &[String]) -> bool {
    let named = super::tool_of(arguments.first().map_or("", String::as_str));
    if let Some(tool) = named {
        return tool.name == "kafka-server-start";
    }
    match arguments.get(1).map(String::as_str) {
        None | Some("" | "kafka-server-start" | "container") => true,
        Some(first) => first.starts_with("--override") || first.contains(['.', '/']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_known_by_its_command_line() {
        let is_broker = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            runs_a_broker(&arguments)
        };
        for line in [
            "ottla",
            "/usr/bin/ottla server.properties",
            "ottla --override a=b",
            "/opt/kafka/bin/kafka-server-start.sh /etc/server.properties",
            "ottla container launch f",
        ] {
            assert!(is_broker(line), "{line}");
        }
        for line in [
            "kafka-topics.sh --list",
            "ottla kafka-topics --list",
            "ottla topic list",
            "ottla log verify d",
        ] {
            assert!(!is_broker(line), "{line}");
        }
    }

    #[test]
    fn a_start_needs_a_file() {
        let start = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            start(&arguments, "kafka-server-start.sh")
        };
        assert!(matches!(start(""), Invocation::Ended(_)));
        assert!(matches!(start("-daemon"), Invocation::Ended(_)));
        let Invocation::Same(same) = start("f.properties --override a=b") else {
            panic!("not a broker");
        };
        assert_eq!(same[1..], ["f.properties", "--override", "a=b"]);
    }
}
