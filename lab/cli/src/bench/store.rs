//! `libra-lab bench store`: the rows of one shard in this process, without sockets and messages.

mod limited;
mod threads;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use libra_store::Store;
use serde::Serialize;

use super::latency::Latency;
use super::limits::{RandomAccesses, memcpy};
use super::report::{million, print};
use super::rows::Rows;
use super::usage::{processor_time, resident_bytes};
use libra_launch::arguments::{clear, parse_bytes};
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
///
/// With --threads, the table is dealt to as many shards, as that of a server with --shards-per-server, and each thread reads
/// and updates the rows of its own. One thread with all rows and all threads take turns; rates of threads are added.
///
/// With --memory-limit, a store that may take so much memory and one with all rows in memory get the same batches in turns. Most rows of a
/// batch are used all the time, a share of them (--cold) was not used for long and is on disk. Beside it stands what the disk does.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rows: Rows,
    /// Makes the rows in the order of their keys
    #[arg(long)]
    ordered: bool,
    /// Seconds to read, and seconds to update
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    seconds: f64,
    /// Shards of the table, on a thread each; more than one are compared with one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Memory for the rows, as in 512MiB, less than they take; the others are in a file. Compared with all rows in memory, by wall time
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "threads")]
    memory_limit: Option<u64>,
    /// With --memory-limit: share of the rows of a batch that were not used for long
    #[arg(long, value_name = "F", default_value_t = 0.01)]
    cold: f64,
    /// With --memory-limit: directory of the file [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
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

/// Cost of making the rows.
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
    let Arguments { rows, ordered, seconds, threads, json, quiet, .. } = arguments;
    rows.check()?;
    super::check_seconds(*seconds)?;
    // The random accesses have memory of their own, and so have the rows of several threads.
    rows.check_memory(2)?;
    if let Some(path) = json {
        clear(path)?;
    }
    let bars = Bars::new(*quiet);
    let load = Load { rows: rows.clone(), ordered: *ordered, seconds: *seconds };
    if let Some(bytes) = arguments.memory_limit {
        if !(0.0..1.0).contains(&arguments.cold) {
            bail!("--cold {}: expected a share, at least 0 and below 1", arguments.cold);
        }
        let directory = arguments.state_dir.clone().unwrap_or_else(std::env::temp_dir);
        let report = limited::measure(load, bytes, arguments.cold, &directory, bars)?;
        if !quiet {
            report.print();
        }
        return json.as_ref().map_or(Ok(()), |path| write_json(path, &report));
    }
    if *threads > 1 {
        let report = threads::measure(load, *threads, bars)?;
        if !quiet {
            report.print();
        }
        return json.as_ref().map_or(Ok(()), |path| write_json(path, &report));
    }
    let batches = rows.batches(0)?;
    let before = resident_bytes()?;
    let mut store = Store::new(vec![rows.table()], rows.seed)?;
    let filled = fill(&mut store, &load, bars)?;
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
        load,
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

impl Load {
    fn title(&self) -> String {
        let rows = &self.rows;
        format!(
            "{} rows of width {}, {}{}; batches of {}; Zipf {}; {} s",
            rows.keys,
            rows.width,
            rows.optimizer.name(),
            if rows.sparse { ", keys of 64 bits" } else { "" },
            rows.batch,
            rows.zipf,
            self.seconds
        )
    }

    /// The keys of the rows that are to be there, in batches as they are made.
    fn fill(&self) -> impl Iterator<Item = Vec<u64>> {
        let made = self.rows.made();
        (0..made).step_by(self.rows.batch).map(move |first| {
            let ranks = first..made.min(first + self.rows.batch as u64);
            if self.ordered { self.rows.keys_of(ranks) } else { self.rows.keys_of_ranks(ranks) }
        })
    }
}

/// Makes the rows that are to be there.
fn fill(store: &mut Store, load: &Load, bars: Bars) -> Result<Option<Filled>> {
    let rows = &load.rows;
    let made = rows.made();
    if made == 0 {
        return Ok(None);
    }
    let bar = bars.bar("rows");
    bar.set_length(made);
    let gradients = vec![0.001; rows.batch * rows.width()];
    let (mut took, mut spent) = (Vec::new(), Duration::ZERO);
    for keys in load.fill() {
        let began = processor_time();
        store.update_many(&keys, &gradients[..keys.len() * rows.width()])?;
        let batch = processor_time() - began;
        spent += batch;
        took.push(u32::try_from(batch.as_micros())?);
        bar.inc(keys.len() as u64);
    }
    bar.finish_and_clear();
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    let rows_per_second = made as f64 / spent.as_secs_f64();
    Ok(Some(Filled { rows_per_second, latency_us: Latency::of(took)? }))
}

/// Results of all turns of one kind.
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
        print(&load.title(), lines);
    }
}
