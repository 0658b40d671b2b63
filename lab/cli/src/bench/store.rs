//! `libra-lab bench store`: the rows of one shard in this process, without sockets and messages.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use libra_store::Store;
use serde::Serialize;

use super::latency::Latency;
use super::limits::{RandomAccesses, memcpy};
use super::report::{million, print};
use super::rows::Rows;
use super::usage::{processor_time, resident_bytes};
use libra_launch::arguments::clear;
use libra_launch::document::write_json;
use libra_launch::progress::Bars;

/// Reads, updates and random accesses take turns, so that all of them have the same neighbours on the machine; the best turn
/// counts.
const ROUNDS: u32 = 4;

/// Reads and updates rows of a store in this process, without sockets and messages.
///
/// First the rows of --fill are made, in batches and in an order without a pattern, as training makes them; the longest batch
/// is the pause of growth. Then batches are read and updated, of rows drawn by Zipf's law, distinct and sorted in each.
/// Beside it stands what the memory of the machine does: independent accesses to random places of as many bytes, and memcpy.
/// Times are those of the processor: what others take of the machine does not count.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rows: Rows,
    /// Makes the rows in the order of their keys
    #[arg(long)]
    ordered: bool,
    /// How long to read, and how long to update
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    seconds: f64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    load: Load,
    reads_per_second: f64,
    updates_per_second: f64,
    fill: Option<Filled>,
    /// Of one batch.
    latency_us: Latencies,
    memory: Memory,
    limits: Limits,
}

#[derive(Debug, Serialize)]
struct Load {
    #[serde(flatten)]
    rows: Rows,
    ordered: bool,
    seconds: f64,
}

/// What it took to make the rows.
#[derive(Debug, Serialize)]
struct Filled {
    rows_per_second: f64,
    latency_us: Latency,
}

#[derive(Debug, Serialize)]
struct Latencies {
    read: Latency,
    update: Latency,
}

#[derive(Debug, Serialize)]
struct Memory {
    rows: usize,
    /// Of values and state.
    payload_bytes_per_row: f64,
    /// As the store counts.
    store_bytes_per_row: f64,
    /// As the kernel counts.
    resident_bytes_per_row: f64,
}

#[derive(Debug, Serialize)]
struct Limits {
    random_accesses_per_second: f64,
    memcpy_bytes_per_second: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { rows, ordered, seconds, json, quiet } = arguments;
    rows.check()?;
    super::check_seconds(*seconds)?;
    // The random accesses have memory of their own.
    rows.check_memory(2)?;
    if let Some(path) = json {
        clear(path)?;
    }
    let bars = Bars::new(*quiet);
    let batches = rows.batches(0)?;
    let before = resident_bytes()?;
    let mut store = Store::new(vec![rows.table()], rows.seed)?;
    let filled = fill(&mut store, rows, *ordered, bars)?;
    let spinner = bars.spinner("bench");
    spinner.set_message(format!("reads and updates, {seconds} s each"));
    let mut random = RandomAccesses::new(rows)?;
    let memory_of_random = rows.keys * rows.payload_bytes();
    let turn = Duration::from_secs_f64(seconds / f64::from(ROUNDS));
    let mut limits = Limits { random_accesses_per_second: 0.0, memcpy_bytes_per_second: 0.0 };
    let (mut reads, mut updates) = (Turns::default(), Turns::default());
    let gradients = vec![0.001; rows.batch * rows.width()];
    let mut values = vec![0.0; rows.batch * rows.width()];
    let mut of_reads = batches.iter().cycle();
    let mut of_updates = batches.iter().cycle();
    for _ in 0..ROUNDS {
        let accesses = random.per_second(turn / 2);
        limits.random_accesses_per_second = limits.random_accesses_per_second.max(accesses);
        reads.turn(turn, &mut of_reads, |keys| Ok(store.read_many(keys, &mut values)?))?;
        updates.turn(turn, &mut of_updates, |keys| Ok(store.update_many(keys, &gradients)?))?;
    }
    let resident = resident_bytes()?.saturating_sub(before + memory_of_random);
    limits.memcpy_bytes_per_second = memcpy();
    spinner.finish_and_clear();
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    let per_row = |bytes: u64| bytes as f64 / store.rows().max(1) as f64;
    let report = Report {
        load: Load { rows: rows.clone(), ordered: *ordered, seconds: *seconds },
        reads_per_second: reads.best,
        updates_per_second: updates.best,
        fill: filled,
        latency_us: Latencies { read: Latency::of(reads.took)?, update: Latency::of(updates.took)? },
        memory: Memory {
            rows: store.rows(),
            payload_bytes_per_row: per_row(store.rows() as u64 * rows.payload_bytes()),
            store_bytes_per_row: per_row(store.memory_bytes() as u64),
            resident_bytes_per_row: per_row(resident),
        },
        limits,
    };
    if !quiet {
        report.print();
    }
    if let Some(path) = json {
        write_json(path, &report)?;
    }
    Ok(())
}

/// Makes the rows that are to be there.
fn fill(store: &mut Store, rows: &Rows, ordered: bool, bars: Bars) -> Result<Option<Filled>> {
    let made = rows.made();
    if made == 0 {
        return Ok(None);
    }
    let bar = bars.bar("rows");
    bar.set_length(made);
    let gradients = vec![0.001; rows.batch * rows.width()];
    let (mut took, mut spent, mut first) = (Vec::new(), Duration::ZERO, 0);
    while first < made {
        let until = made.min(first + rows.batch as u64);
        let keys = if ordered { rows.keys_of(first..until) } else { rows.keys_of_ranks(first..until) };
        let began = processor_time();
        store.update_many(&keys, &gradients[..keys.len() * rows.width()])?;
        let batch = processor_time() - began;
        spent += batch;
        took.push(u32::try_from(batch.as_micros())?);
        bar.set_position(until);
        first = until;
    }
    bar.finish_and_clear();
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    let rows_per_second = made as f64 / spent.as_secs_f64();
    Ok(Some(Filled { rows_per_second, latency_us: Latency::of(took)? }))
}

/// What came of all turns of one thing.
#[derive(Default)]
struct Turns {
    /// Rows a second.
    best: f64,
    /// Each batch, in microseconds.
    took: Vec<u32>,
}

impl Turns {
    fn turn<'b>(
        &mut self,
        time: Duration,
        batches: &mut impl Iterator<Item = &'b Vec<u64>>,
        mut step: impl FnMut(&[u64]) -> Result<()>,
    ) -> Result<()> {
        let (mut rows, mut spent) = (0, Duration::ZERO);
        for keys in batches {
            let began = processor_time();
            step(keys)?;
            let took = processor_time() - began;
            self.took.push(u32::try_from(took.as_micros())?);
            rows += keys.len();
            spent += took;
            if spent >= time {
                break;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
        let rate = rows as f64 / spent.as_secs_f64();
        self.best = self.best.max(rate);
        Ok(())
    }
}

impl Report {
    fn print(&self) {
        let Self { load, fill, latency_us, memory, limits, .. } = self;
        let rows = &load.rows;
        let title = format!(
            "{} rows of width {}, {}{}; batches of {}; Zipf {}; {} s",
            rows.keys,
            rows.width,
            rows.optimizer.name(),
            if rows.sparse { ", keys of 64 bits" } else { "" },
            rows.batch,
            rows.zipf,
            load.seconds
        );
        let of_limit = |rate: f64, latency: &Latency| {
            format!(
                "{:.2} of the random accesses; a batch {} us, 99% {} us, longest {} us",
                rate / limits.random_accesses_per_second,
                latency.p50,
                latency.p99,
                latency.max
            )
        };
        let beyond = memory.resident_bytes_per_row - memory.payload_bytes_per_row;
        let mut lines = vec![
            ("reads", million(self.reads_per_second), of_limit(self.reads_per_second, &latency_us.read)),
            (
                "updates",
                million(self.updates_per_second),
                of_limit(self.updates_per_second, &latency_us.update),
            ),
            (
                "memory",
                format!("{:.2} bytes", memory.resident_bytes_per_row),
                format!(
                    "resident, of each of {} rows; {beyond:.2} beyond values and state; the store counts {:.2}",
                    memory.rows, memory.store_bytes_per_row
                ),
            ),
        ];
        if let Some(Filled { rows_per_second, latency_us }) = fill {
            let remark = format!("new rows; a batch {} us, longest {} us", latency_us.p50, latency_us.max);
            lines.push(("filling", million(*rows_per_second), remark));
        }
        let random = limits.random_accesses_per_second;
        lines.push(("limits", million(random), "random accesses to as much memory, one core".to_owned()));
        let copied = format!("{:.1} GB/s", limits.memcpy_bytes_per_second / 1e9);
        lines.push(("", copied, "memcpy".to_owned()));
        print(&title, lines);
    }
}
