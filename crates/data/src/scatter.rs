//! A global shuffle on disk, in two passes: rows are dealt to parts that fit into memory, then each part is shuffled.

use std::fs;
use std::path::Path;

use crate::dataset::{DataSet, Options, Schema};
use crate::destination::Destination;
use crate::error::{At, DataError, Fault};
use crate::hash::Random;
use crate::write::{Output, OutputFormat, Writer};

/// Rows that are read at once.
const BATCH: usize = 1 << 12;
/// Parts that are open at once: each is a file, with a buffer.
const PARTS_MAX: u64 = 512;

/// Writes the rows of a set in a random order to an empty destination: every order is equally likely, up to the quality of the
/// generator. About `memory` bytes are taken, and disk space for the parts. `progress` gets the rows that were moved, each twice.
/// Returns the bytes of the files.
///
/// # Errors
/// The set cannot be read, a file cannot be written, or the memory would make too many parts.
pub fn shuffle_on_disk(
    set: &DataSet,
    schema: &Schema,
    to: &Destination,
    output: &Output,
    seed: u64,
    memory: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, DataError> {
    let part_rows = part_rows(set.rows(), schema, memory)?;
    let mut writer = Writer::create_at(to, schema, output)?;
    // Names with an underscore in front are no data.
    let scratch = to.directory().join("_parts");
    let shuffled = scatter(set, schema, &scratch, seed, part_rows, progress)
        .and_then(|parts| gather(set.rows(), &scratch, parts, seed, &mut writer, progress));
    let at = || At::file(scratch.to_string_lossy());
    let removed = fs::remove_dir_all(&scratch).map_err(|error| at().error(Fault::io("removing", error)));
    shuffled?;
    removed?;
    writer.finish()
}

/// Rows of a part.
fn part_rows(rows: u64, schema: &Schema, memory: u64) -> Result<u64, DataError> {
    // Values, offsets, and a list of ids that is longer than one.
    let row_bytes = 32 + 8 * schema.numbers.len() as u64 + 16 * schema.categories.len() as u64;
    // A part is in memory twice, and parts are as long as chance makes them.
    let of_row = 3 * row_bytes;
    let least = rows.div_ceil(PARTS_MAX).max(1);
    if memory / of_row < least {
        let least_kib = (least * of_row).div_ceil(1 << 10);
        return Err(At::file("--memory").error(Fault::TooLittleMemory { least_kib, rows }));
    }
    Ok(memory / of_row)
}

/// Deals the rows to parts, and returns their number.
fn scatter(
    set: &DataSet,
    schema: &Schema,
    scratch: &Path,
    seed: u64,
    part_rows: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, DataError> {
    let parts = set.rows().div_ceil(part_rows).max(1);
    let waiting = usize::try_from(part_rows / parts).unwrap_or(usize::MAX).clamp(64, BATCH);
    let output = Output { format: OutputFormat::Parquet, file_rows: u64::MAX, group_rows: waiting };
    let mut writers = Vec::new();
    for part in 0..parts {
        writers.push(Writer::create(&scratch.join(part.to_string()), schema, &output)?);
    }
    let mut random = Random::new(seed);
    let mut batch = schema.columns();
    let mut picked = schema.columns();
    let mut dealt: Vec<Vec<u32>> = vec![Vec::new(); writers.len()];
    let mut done = 0;
    for chunk in set.chunks() {
        let mut reader = set.read(chunk)?;
        loop {
            batch.clear();
            if reader.read(BATCH, &mut batch)? == 0 {
                break;
            }
            for row in 0..u32::try_from(batch.rows()).expect("a small number") {
                dealt[usize::try_from(random.below(parts)).expect("parts are in memory")].push(row);
            }
            for (writer, rows) in writers.iter_mut().zip(&mut dealt) {
                picked.clear();
                picked.push_rows(&batch, rows);
                writer.write(&picked)?;
                rows.clear();
            }
            done += batch.rows() as u64;
            progress(done);
        }
    }
    writers.into_iter().try_for_each(|writer| writer.finish().map(drop))?;
    Ok(parts)
}

/// Shuffles each part, and appends it.
fn gather(
    mut done: u64,
    scratch: &Path,
    parts: u64,
    seed: u64,
    writer: &mut Writer,
    progress: &mut dyn FnMut(u64),
) -> Result<(), DataError> {
    for part in 0..parts {
        let place = scratch.join(part.to_string());
        let place = place.to_str().ok_or_else(|| {
            At::file(scratch.to_string_lossy()).error(Fault::BadPlace { reason: "the path is no text" })
        })?;
        let options = Options { keys: Some(crate::description::Keys::Values), ..Options::default() };
        let set = match DataSet::open(place, &options) {
            // Chance gave it no rows.
            Err(error) if matches!(error.fault, Fault::NoFiles) => continue,
            set => set?,
        };
        let mut columns = set.schema().columns();
        for chunk in set.chunks() {
            let mut reader = set.read(chunk)?;
            while reader.read(BATCH, &mut columns)? > 0 {}
        }
        let mut order: Vec<u32> = (0..u32::try_from(columns.rows()).expect("a part is in memory")).collect();
        Random::new(seed ^ (part + 1) << 32).shuffle(&mut order);
        let mut batch = set.schema().columns();
        for rows in order.chunks(BATCH) {
            batch.clear();
            batch.push_rows(&columns, rows);
            writer.write(&batch)?;
            done += rows.len() as u64;
            progress(done);
        }
    }
    Ok(())
}
