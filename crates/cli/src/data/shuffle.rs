//! `libra data shuffle`: a random order of all rows.

use std::time::Instant;

use anyhow::Result;
use clap::Args;

use super::{Source, Target, Written, parse_bytes, rows_bar};
use crate::output::Output;

/// Writes the rows in a random order
///
/// Two passes: rows are dealt to parts that fit into memory, below the target directory, or a temporary one (TMPDIR) if the target is a
/// store, then each part is shuffled. Disk space is needed twice. A set that is sorted, by label or time, is worth it: a job mixes the rows of a few chunks at a time only.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    target: Target,
    /// Decides the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Memory for a part, such as 4GiB
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_bytes)]
    memory: u64,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { source, target, output, .. } = arguments;
    output.begin()?;
    let to = target.open()?;
    let (set, schema) = source.open_for_copy(output)?;
    let bar = rows_bar(output, "shuffle", 2 * set.rows());
    let started = Instant::now();
    let (seed, memory) = (arguments.seed, arguments.memory);
    let mut progress = |done| bar.set_position(done);
    let form = target.output();
    let bytes = libra_data::shuffle_on_disk(&set, &schema, &to, &form, seed, memory, &mut progress)?;
    bar.finish_and_clear();
    Written::report(set.rows(), bytes, target, started.elapsed().as_secs_f64(), output)
}
