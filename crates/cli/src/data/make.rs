//! `libra data make`: data with a planted model.

use std::time::Instant;

use anyhow::Result;
use clap::Args;

use libra_data::Make;

use super::{Target, Written, rows_bar};
use crate::output::Output;

/// Makes rows in Criteo's form, with a model planted in them
///
/// Categories have as many values as those of Kaggle's set, by Zipf's law; labels follow from a weight of each value and of the
/// numbers. Text in one file (--files 1) is a train.txt, as Kaggle's set; in several, the files are days, as those of the terabyte.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Number of rows
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Everything follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of files, instead of --file-rows; 1 is Kaggle's set, 24 the terabyte
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { target, output, .. } = arguments;
    output.begin()?;
    let mut form = target.output();
    match arguments.files {
        Some(1) => form.file_rows = u64::MAX,
        Some(files) => form.file_rows = arguments.rows.div_ceil(files).max(1),
        None => {}
    }
    let to = target.open()?;
    let bar = rows_bar(output, "make", arguments.rows);
    let started = Instant::now();
    let recipe = Make { rows: arguments.rows, seed: arguments.seed, ..Make::default() };
    let bytes = recipe.write_to(&to, &form, &mut |done| bar.set_position(done))?;
    bar.finish_and_clear();
    Written::report(arguments.rows, bytes, target, started.elapsed().as_secs_f64(), output)
}
