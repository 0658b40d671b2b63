//! Standard output, which may be a pipe.

use std::io::{self, Write, stdout};

use anyhow::Result;

/// Prints lines. A reader that has enough ends the process in order.
pub(crate) fn print(lines: &str) -> Result<()> {
    match writeln!(stdout(), "{lines}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}
