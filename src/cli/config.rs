//! `ottla config`: configuration files.

use std::process::ExitCode;

use clap::Subcommand;

use super::config_check::Check;

/// What can be done with configurations.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Says of each key of a file what is wrong with it, and how to mend it. Starts nothing.
    Check(Check),
}

impl ConfigCommand {
    pub(super) fn run(&self) -> ExitCode {
        match self {
            Self::Check(check) => check.run(),
        }
    }
}
