//! What the tools do, whichever face asks: each job takes a client and yields what it found.

pub(crate) mod configs;
pub(crate) mod consume;
pub(crate) mod format;
pub(crate) mod groups;
pub(crate) mod lines;
pub(crate) mod offsets;
pub(crate) mod pattern;
pub(crate) mod produce;
mod terminal;
pub(crate) mod time;
pub(crate) mod topics;

pub(crate) use terminal::{Stopped, Terminal};
pub(crate) use time::{local_time, now_ms};
