//! `libra data check`: reads all rows.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use libra_data::{CategoryFigures, Check, NumberFigures};
use libra_launch::report::group;

use super::inspect::percent;
use super::{Source, count, count_of, rows_bar};
use crate::output::Output;

/// Rows that are read at once.
const BATCH: usize = 1 << 13;
/// Bad chunks that are named.
const SHOWN_MAX: usize = 20;

/// Reads all rows: bad values, missing values, ranges and skew
///
/// The exit code is 1 if a row is bad. The first bad row of each chunk is named with file, row group, column and row.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Report {
    rows: u64,
    click_rate: f64,
    seconds: f64,
    rows_per_second: f64,
    retries: u64,
    numbers: Vec<Named<NumberFigures>>,
    categories: Vec<Named<CategoryFigures>>,
    bad_chunks: usize,
    /// The first bad rows.
    errors: Vec<String>,
}

#[derive(Serialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    figures: T,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { source, output } = arguments;
    output.begin()?;
    let set = source.open(&source.options()?, output)?;
    let schema = set.schema();
    let mut check = Check::new(schema.numbers.len(), schema.categories.len());
    let mut columns = schema.columns();
    let (mut errors, mut bad_chunks) = (Vec::new(), 0);
    let bar = rows_bar(output, "check", set.rows());
    let started = Instant::now();
    for chunk in set.chunks() {
        let mut read = || -> Result<(), libra_data::DataError> {
            let mut reader = set.read(chunk)?;
            loop {
                columns.clear();
                if reader.read(BATCH, &mut columns)? == 0 {
                    return Ok(());
                }
                check.add(&columns);
                bar.inc(columns.rows() as u64);
            }
        };
        if let Err(error) = read() {
            bad_chunks += 1;
            if errors.len() < SHOWN_MAX {
                errors.push(error.to_string());
            }
        }
    }
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let (rows, clicks) = check.rows();
    let description = &schema.description;
    let numbers = description.numbers.iter().zip(check.numbers());
    let categories = description.categories.iter().zip(check.categories());
    let report = Report {
        rows,
        click_rate: clicks as f64 / rows.max(1) as f64,
        seconds,
        rows_per_second: rows as f64 / seconds.max(1e-9),
        retries: set.counts().retries,
        numbers: numbers.map(|(name, figures)| Named { name: name.clone(), figures: *figures }).collect(),
        categories: categories
            .map(|(column, figures)| Named { name: column.name.clone(), figures })
            .collect(),
        bad_chunks,
        errors,
    };
    report.print(clicks, output);
    output.write(&report)?;
    match &report.errors[..] {
        [] => Ok(()),
        [one] => bail!("{one}"),
        [one, ..] => bail!("{one}, and {} more of {} chunks are bad", bad_chunks - 1, set.chunks().len()),
    }
}

impl Report {
    fn print(&self, clicks: u64, output: &Output) {
        output.print(&format!(
            "{}, {} with label 1, {:.1} s, {} rows/s, {} of requests",
            count(self.rows, "row", "rows"),
            percent(clicks, self.rows),
            self.seconds,
            count_of(self.rows_per_second),
            count(self.retries, "retry", "retries"),
        ));
        let numbers = self.numbers.iter().map(|Named { name, figures }| {
            let range = if figures.min > figures.max {
                "-".to_owned()
            } else {
                format!("{} to {}", figures.min, figures.max)
            };
            vec![name.clone(), percent(figures.missing, self.rows), range]
        });
        if !self.numbers.is_empty() {
            output.print_table(&["number", "missing", "range"], &[1, 2], numbers);
        }
        let categories = self.categories.iter().map(|Named { name, figures }| {
            vec![
                name.clone(),
                percent(figures.missing, self.rows),
                group(figures.ids),
                group(figures.distinct),
                format!("{:.1}%", 100.0 * figures.most_frequent),
            ]
        });
        if !self.categories.is_empty() {
            let header = ["category", "missing", "ids", "different", "most frequent"];
            output.print_table(&header, &[1, 2, 3, 4], categories);
        }
        for error in &self.errors {
            output.print(error);
        }
    }
}
