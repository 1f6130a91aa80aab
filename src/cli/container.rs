//! `ottla container …`: what the start scripts of the container image do (`docker/etc`).

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;

use crate::config::container::{Layout, server_properties};
use crate::config::{HostPort, LoadedConfig};

/// Where Prometheus finds the broker of a container.
const METRICS_PORT: u16 = 9404;
/// ZooKeeper's, where its file names none.
const ZOOKEEPER_PORT: u16 = 2181;

/// A step of a container's start.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ContainerCommand {
    /// Writes the broker's configuration from the environment and the files of the image.
    Configure {
        /// As Confluent's image does it: data belongs into /var/lib/kafka/data, and what decides the
        /// cluster's id is `kafka-storage format`.
        #[arg(long)]
        confluent: bool,
        /// A file that somebody mounted; the environment comes behind it.
        #[arg(long, value_name = "FILE")]
        mounted: Option<PathBuf>,
        /// The image's own file, for a container to which nobody says anything.
        #[arg(long, value_name = "FILE")]
        shipped: Option<PathBuf>,
        /// The file to write.
        #[arg(value_name = "server.properties")]
        file: PathBuf,
    },
    /// Runs the broker; says on standard output when it is ready, in Kafka's own words.
    Launch {
        /// Kafka's configuration file.
        #[arg(value_name = "server.properties")]
        file: PathBuf,
    },
    /// Listens where ZooKeeper would, for start scripts that wait for its port.
    Zookeeper {
        /// ZooKeeper's configuration file.
        #[arg(value_name = "zookeeper.properties")]
        file: PathBuf,
    },
}

impl ContainerCommand {
    pub(super) fn run(&self) -> ExitCode {
        let done = match self {
            Self::Configure {
                confluent,
                mounted,
                shipped,
                file,
            } => {
                let layout = match confluent {
                    true => Layout::Confluent,
                    false => Layout::Apache,
                };
                configure(layout, mounted.as_deref(), shipped.as_deref(), file)
            }
            // The caller runs it: it is a broker.
            Self::Launch { .. } => Ok(()),
            Self::Zookeeper { file } => stand_in_for_zookeeper(file),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ottla: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

fn configure(
    layout: Layout,
    mounted: Option<&Path>,
    shipped: Option<&Path>,
    file: &Path,
) -> anyhow::Result<()> {
    let mounted = mounted.filter(|path| path.exists()).map(read).transpose()?;
    let shipped = shipped.map(read).transpose()?.unwrap_or_default();
    let env = super::environment();
    let text = server_properties(layout, mounted.as_deref(), &shipped, env)?;
    std::fs::write(file, text).with_context(|| {
        format!(
            "write {}: mount a file of your own at /mnt/shared/config/server.properties, and leave this \
             one to the image",
            file.display()
        )
    })
}

fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Outside a container metrics are for this machine only; here the container's own address is the
/// wall, unless somebody said otherwise.
pub fn open_metrics(loaded: &mut LoadedConfig) {
    let config = &mut loaded.config;
    if !config.metrics_listeners_configured {
        config.metrics_listeners = vec![HostPort {
            host: String::new(),
            port: METRICS_PORT,
        }];
    }
}

/// What Testcontainers and start scripts wait for, each on standard output whatever the log level is.
pub fn announce(id: i32) {
    let lines = format!(
        "[LogManager] Creating new log file where a partition begins (kafka.log.LogManager)\n\
         [BrokerLifecycleManager id={id}] The broker has been unfenced. Transitioning from RECOVERY to \
         RUNNING. (kafka.server.BrokerLifecycleManager)\n\
         [KafkaServer id={id}] started (kafka.server.KafkaServer)\n\
         [KafkaRaftServer nodeId={id}] Kafka Server started (kafka.server.KafkaRaftServer)\n\
         [Controller id={id}] Checking need to trigger auto leader balancing (kafka.controller.KafkaController)\n"
    );
    // Nobody listens: nobody waits.
    let _ = std::io::stdout().write_all(lines.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Accepts and hangs up. Brokers have no need of it, only scripts that look whether it is there.
fn stand_in_for_zookeeper(file: &Path) -> anyhow::Result<()> {
    let text = read(file)?;
    let named = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("clientPort="))
        .next_back();
    let port = match named {
        Some(port) => port.trim().parse().context("clientPort")?,
        None => ZOOKEEPER_PORT,
    };
    let listener = TcpListener::bind(("0.0.0.0", port))
        .with_context(|| format!("clientPort={port}: cannot bind"))?;
    println!(
        "there is no ZooKeeper here, and brokers need none; port {port} is open for those who look"
    );
    for connection in listener.incoming() {
        if connection.is_err() {
            bail!("port {port} takes no more connections");
        }
    }
    Ok(())
}
