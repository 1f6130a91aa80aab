//! `kafka-server-start` and `kafka-server-stop`.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Invocation;

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

/// Asks all brokers on this machine that run this very program to stop, as Kafka's script does with its own.
pub(super) fn stop() -> Invocation {
    let brokers = brokers();
    if brokers.is_empty() {
        println!("No kafka server to stop");
        return Invocation::Ended(ExitCode::FAILURE);
    }
    for broker in brokers {
        // One that has ended meanwhile is stopped as well.
        let _ = kill_process(broker, Signal::TERM);
    }
    Invocation::Ended(ExitCode::SUCCESS)
}

fn brokers() -> Vec<Pid> {
    let Ok(ours) = std::fs::metadata("/proc/self/exe") else {
        return Vec::new();
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_broker = |pid: &i32| {
        let process = Path::new("/proc").join(pid.to_string());
        let same = std::fs::metadata(process.join("exe")).is_ok_and(|theirs| {
            use std::os::unix::fs::MetadataExt as _;
            (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino())
        });
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let arguments: Vec<String> = line.split('\0').map(str::to_owned).collect();
        same && *pid != std::process::id().cast_signed() && runs_a_broker(&arguments)
    };
    pids.filter(is_broker).filter_map(Pid::from_raw).collect()
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
