//! `libra-lab bench read`: the rate at which one thread reads a data set.

use core::time::Duration;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use libra_data::{Columns, DataSet, Options, Readers, Selection, Shuffle};
use libra_launch::document::write_json;
use serde::Serialize;

use super::report::print;

/// Rows of a batch.
const BATCH: usize = 2048;

/// Reads a data set in one thread, as a worker does, with nothing beside it.
///
/// It is read in the order of its rows, and in that of an epoch, from the parts that jobs cut it into.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// File, directory, pattern or URL
    #[arg(long, value_name = "PLACE")]
    data: String,
    /// Rows that are read in each order, at most
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    /// Seconds until the set is open.
    open_seconds: f64,
    /// Rows in a second, in the order of the set.
    rows_per_second: f64,
    /// Rows in a second, in the order of an epoch.
    rows_per_second_shuffled: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { data, rows, json, quiet } = arguments;
    let begun = Instant::now();
    let set = DataSet::open(data, &Options::default())?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let figures = Figures {
        open_seconds,
        rows_per_second: rate(|batch| in_order(&set, *rows, batch))?,
        rows_per_second_shuffled: rate(|batch| shuffled(&set, *rows, batch))?,
    };
    if !quiet {
        figures.print(data);
    }
    if let Some(path) = json {
        write_json(path, &figures)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
fn rate(read: impl FnOnce(&mut Columns) -> Result<u64>) -> Result<f64> {
    let begun = Instant::now();
    let rows = read(&mut Columns::default())?;
    Ok(rows as f64 / begun.elapsed().max(Duration::from_nanos(1)).as_secs_f64())
}

/// Reads so many rows from the start, and returns how many there were.
fn in_order(set: &DataSet, rows: u64, batch: &mut Columns) -> Result<u64> {
    *batch = set.schema().columns();
    let (mut readers, mut read) = (Readers::default(), 0);
    for chunk in set.chunks() {
        let mut reader = readers.open(set, chunk)?;
        loop {
            batch.clear();
            if read >= rows || reader.read(BATCH, batch)? == 0 {
                break;
            }
            read += batch.rows() as u64;
        }
        readers.keep(reader);
    }
    Ok(read)
}

/// Reads so many rows of an epoch, and returns how many there were.
fn shuffled(set: &DataSet, rows: u64, batch: &mut Columns) -> Result<u64> {
    let selection = Selection::new(set.chunks().to_vec());
    let parts = u32::try_from(selection.rows().div_ceil(selection.part_rows()))?;
    let mut shuffle = Shuffle::new(set, selection.part(0, parts, 1).into_iter(), 1);
    let (mut part, mut read) = (0, 0);
    while read < rows {
        if shuffle.next_batch(BATCH, batch)? {
            read += batch.rows() as u64;
            continue;
        }
        part += 1;
        if part == parts {
            break;
        }
        shuffle.go_on(selection.part(part, parts, 1).into_iter(), 1);
    }
    Ok(read)
}

impl Figures {
    fn print(&self, data: &str) {
        let rate = |rate: f64| format!("{:.0} thousand rows/s", rate / 1e3);
        let open = format!("{:.2} s", self.open_seconds);
        print(
            data,
            vec![
                ("open", open, String::new()),
                ("rows in their order", rate(self.rows_per_second), String::new()),
                ("rows in the order of an epoch", rate(self.rows_per_second_shuffled), String::new()),
            ],
        );
    }
}
