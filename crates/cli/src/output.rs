//! Output of subcommands: standard output, which may be a pipe, and files in JSON.

use std::io::{self, Write, stdout};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use indicatif::BinaryBytes;
use serde::Serialize;

use libra_launch::arguments::clear;
use libra_launch::document::write_json;
use libra_launch::progress::Bars;
use libra_launch::table::{paragraph, table};

/// Prints lines. A reader that has enough ends the process in order.
pub(crate) fn print(lines: &str) -> Result<()> {
    match writeln!(stdout(), "{lines}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}

/// Destinations of the result.
#[derive(Args, Debug)]
pub(crate) struct Output {
    /// Writes the result to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

impl Output {
    pub(crate) fn bars(&self) -> Bars {
        Bars::new(self.quiet)
    }

    /// Fails early if the file cannot be written.
    pub(crate) fn begin(&self) -> Result<()> {
        self.json.as_deref().map_or(Ok(()), clear)
    }

    /// Prints a sentence, on as many lines as it takes.
    pub(crate) fn print(&self, text: &str) {
        if !self.quiet {
            print(&paragraph(text)).expect("standard output takes lines");
        }
    }

    pub(crate) fn print_table(
        &self,
        header: &[&str],
        numbers: &[usize],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) {
        if !self.quiet {
            print(&table(header, numbers, rows)).expect("standard output takes lines");
        }
    }

    pub(crate) fn write(&self, content: &impl Serialize) -> Result<()> {
        self.json.as_deref().map_or(Ok(()), |path| write_json(path, content))
    }
}

pub(crate) fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

/// A count and its noun.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", libra_launch::report::group(number), if number == 1 { one } else { many })
}
