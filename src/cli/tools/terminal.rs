//! Standard output, buffered; a reader that has gone ends the tool quietly.

use std::io::{self, BufWriter, Write};

const BUFFER_BYTES: usize = 1 << 16;

/// Nobody reads the output any more (`| head`).
#[derive(Debug)]
pub(crate) struct Stopped;

impl From<io::Error> for Stopped {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Where a tool prints.
pub(crate) struct Terminal {
    out: BufWriter<Box<dyn Write>>,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").finish_non_exhaustive()
    }
}

impl Terminal {
    pub(crate) fn new() -> Self {
        Self::to(Box::new(io::stdout()))
    }

    pub(crate) fn to(out: Box<dyn Write>) -> Self {
        Self {
            out: BufWriter::with_capacity(BUFFER_BYTES, out),
        }
    }

    pub(crate) fn print(&mut self, text: &str) -> Result<(), Stopped> {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Stopped> {
        self.print(text)?;
        self.print("\n")
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        Ok(self.out.write_all(bytes)?)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Stopped> {
        Ok(self.out.flush()?)
    }
}
