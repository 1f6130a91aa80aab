//! The tools under friendly names: tables for people, `--json` for programs.

mod cluster;
mod config;
mod consume;
mod group;
mod produce;
mod show;
mod topic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

pub use cluster::ClusterCommand;
pub use config::{Set, Show, Unset};
pub use consume::Consume;
pub use group::GroupCommand;
pub use produce::Produce;
pub use topic::TopicCommand;

use super::tools::{Stopped, Terminal};
use crate::client::{Client, ClientConfig, ClientError};
use show::Table;

/// Where the cluster is, and how answers are shown.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Connection {
    /// The brokers to ask, host:port and more after commas.
    #[arg(
        short,
        long,
        value_name = "HOST:PORT,...",
        default_value = "127.0.0.1:9092",
        global = true
    )]
    bootstrap: String,
    /// A file of Kafka client properties.
    #[arg(long, value_name = "FILE", global = true)]
    client_config: Option<PathBuf>,
    /// Seconds until a cluster that does not answer is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, global = true)]
    timeout: u64,
    /// JSON instead of tables.
    #[arg(long, global = true)]
    json: bool,
}

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Error {
    Told(String),
    Stopped,
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Self::Told(error.to_string())
    }
}

impl From<Stopped> for Error {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::Told(text)
    }
}

type Done = Result<(), Error>;

impl Connection {
    fn properties(&self) -> Result<Vec<(String, String)>, Error> {
        let Some(path) = &self.client_config else {
            return Ok(Vec::new());
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(crate::config::properties_of(&text))
    }

    fn client(&self) -> Result<Client, Error> {
        let mut config = ClientConfig::new(&self.bootstrap, &self.properties()?)?;
        config.api_timeout = Duration::from_secs(self.timeout);
        config.request_timeout = config.request_timeout.min(config.api_timeout);
        Ok(Client::new(config))
    }

    /// Prints a table, or the same as JSON.
    fn show(&self, terminal: &mut Terminal, table: &Table, json: &Value) -> Done {
        match self.json {
            true => terminal.line(&json.to_string())?,
            false => terminal.print(&table.text())?,
        }
        Ok(())
    }

    /// Says what has been done; to programs as JSON.
    fn say(&self, terminal: &mut Terminal, text: &str, json: &Value) -> Done {
        match self.json {
            true => terminal.line(&json.to_string())?,
            false => terminal.line(text)?,
        }
        Ok(())
    }
}

/// Runs a command to its end.
fn run(command: impl AsyncFnOnce(&mut Terminal) -> Done) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let mut terminal = Terminal::new();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(command(&mut terminal)),
        Err(error) => Err(Error::Told(format!("the runtime does not start: {error}"))),
    };
    let flushed = terminal.flush();
    match (done, flushed) {
        (Err(Error::Told(text)), _) => {
            eprintln!("ottla: {text}");
            ExitCode::FAILURE
        }
        // Nobody reads any more: `| head`.
        _ => ExitCode::SUCCESS,
    }
}
