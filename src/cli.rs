//! Arguments.

use std::path::PathBuf;

use clap::Parser;

/// A Kafka broker in one small native binary.
///
/// Settings are Apache Kafka's own. They are read from the file (without one: from a built-in
/// configuration that listens on 127.0.0.1:9092), then from KAFKA_* environment names
/// (KAFKA_NUM_PARTITIONS is num.partitions), then from --override.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "ottla", version)]
pub struct Arguments {
    /// Kafka's configuration file.
    #[arg(value_name = "server.properties")]
    pub file: Option<PathBuf>,

    /// Sets one key, whatever the file and the environment say; can be given many times.
    #[arg(long = "override", value_name = "key=value")]
    pub overrides: Vec<String>,
}

impl Arguments {
    /// The arguments of this process; prints help, version or what is wrong with them, and exits.
    pub fn of_process() -> Self {
        Self::parse()
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
        assert!(parse(&["ottla", "--overide", "x=y"]).is_err());
        let version = parse(&["ottla", "--version"]).unwrap_err().to_string();
        assert_eq!(version.trim(), concat!("ottla ", env!("CARGO_PKG_VERSION")));
    }
}
