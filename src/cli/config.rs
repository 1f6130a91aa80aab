//! `ottla config`: configuration files, and the configuration of a cluster that runs.

use std::process::ExitCode;

use clap::Subcommand;

use super::config_check::Check;
use super::friendly::{Set, Show, Unset};

/// What can be done with configurations.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Says of each key of a file what is wrong with it, and how to mend it. Starts nothing.
    Check(Check),
    /// Shows what is configured in a cluster, and where each value comes from.
    Show(Show),
    /// Sets keys of a topic, a broker, all brokers, a group or a broker's loggers, while they run.
    Set(Set),
    /// Takes keys back to what holds without them.
    Unset(Unset),
}

impl ConfigCommand {
    pub(super) fn run(&self) -> ExitCode {
        match self {
            Self::Check(check) => check.run(),
            Self::Show(show) => show.run(),
            Self::Set(set) => set.run(),
            Self::Unset(unset) => unset.run(),
        }
    }
}
