//! `libra data convert`: another format.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use libra_data::{Columns, DataError, Writer};

use super::{Source, Target, Written, rows_bar};
use crate::output::Output;

/// Rows that are read at once.
const BATCH: usize = 1 << 13;
/// Batches between the thread that reads and the one that writes.
const BATCHES: usize = 4;

/// Writes the rows in another format, in the same order
///
/// Texts of categories become their ids: with them, and with the dataset.toml that is written, a job trains on the same rows.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { source, target, output } = arguments;
    output.begin()?;
    let to = target.open()?;
    let (set, schema) = source.open_for_copy(output)?;
    let mut writer = Writer::create_at(&to, &schema, &target.output())?;
    let bar = rows_bar(output, "convert", set.rows());
    let started = Instant::now();
    thread::scope(|scope| {
        let (full, batches) = sync_channel::<Columns>(BATCHES);
        let (empty, free) = sync_channel::<Columns>(BATCHES + 2);
        let set = &set;
        let reading = scope.spawn(move || -> Result<(), DataError> {
            for chunk in set.chunks() {
                let mut reader = set.read(chunk)?;
                loop {
                    let mut batch = free.try_recv().unwrap_or_else(|_| set.schema().columns());
                    batch.clear();
                    if reader.read(BATCH, &mut batch)? == 0 {
                        break;
                    }
                    // A writer that failed takes no more.
                    if full.send(batch).is_err() {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        let write = || -> Result<(), DataError> {
            for batch in batches {
                writer.write(&batch)?;
                bar.inc(batch.rows() as u64);
                let _ = empty.try_send(batch);
            }
            Ok(())
        };
        let written = write();
        reading.join().expect("reading does not panic")?;
        written
    })?;
    let bytes = writer.finish()?;
    bar.finish_and_clear();
    Written::report(set.rows(), bytes, target, started.elapsed().as_secs_f64(), output)
}
