//! `libra-lab bench store --memory-limit`: batches of which some rows are on disk, beside the same batches with all rows in memory.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libra_launch::progress::Bars;
use libra_storage::RowFiles;
use libra_store::{DiskCounts, Store};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::super::disk::{DEPTH, RandomReads};
use super::super::report::{million, print};
use super::super::usage::processor_time;
use super::{Load, ROUNDS, fill};

/// Of the rows in memory, this share is used again and again.
const HOT_SHARE: f64 = 0.5;
/// Times that these are used before anything is measured.
const WARM_UP: u32 = 3;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    load: Load,
    memory_limit: u64,
    /// Of a batch, rows that were not used for long.
    cold_share: f64,
    reads: Compared,
    updates: Compared,
    rows: u64,
    rows_on_disk: u64,
    store_bytes: usize,
    /// Random reads of 4 KiB, 32 at once.
    disk_reads_per_second: f64,
}

/// Times of the same batches in two stores.
#[derive(Debug, Default, Serialize)]
struct Compared {
    /// Of those that were asked for, rows that were read from disk.
    from_disk_share: f64,
    in_memory: Speed,
    limited: Speed,
    /// Of the limited store to the other.
    ratio: f64,
    ratio_by_processor_time: f64,
    #[serde(skip)]
    rows: usize,
    #[serde(skip)]
    from_disk: u64,
}

#[derive(Debug, Default, Serialize)]
struct Speed {
    rows_per_second: f64,
    #[serde(skip)]
    spent: Duration,
    #[serde(skip)]
    processor: Duration,
}

impl Speed {
    fn time(&mut self, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let (began, processor) = (Instant::now(), processor_time());
        step()?;
        self.spent += began.elapsed();
        self.processor += processor_time() - processor;
        Ok(())
    }
}

impl Compared {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    fn finish(&mut self) {
        let rows = self.rows as f64;
        for speed in [&mut self.in_memory, &mut self.limited] {
            speed.rows_per_second = rows / speed.spent.as_secs_f64();
        }
        self.from_disk_share = self.from_disk as f64 / rows;
        self.ratio = self.limited.rows_per_second / self.in_memory.rows_per_second;
        self.ratio_by_processor_time =
            self.in_memory.processor.as_secs_f64() / self.limited.processor.as_secs_f64();
    }
}

/// Batches of rows that are used all the time, and of others one after the other.
struct Batches<'l> {
    load: &'l Load,
    random: SmallRng,
    hot: u64,
    /// Of a batch.
    cold_rows: usize,
    next_cold: u64,
}

impl Batches<'_> {
    fn next(&mut self) -> Vec<u64> {
        let rows = &self.load.rows;
        let mut ranks = HashSet::with_capacity(rows.batch);
        while ranks.len() < rows.batch - self.cold_rows {
            ranks.insert(self.random.random_range(0..self.hot));
        }
        for _ in 0..self.cold_rows {
            ranks.insert(self.next_cold);
            self.next_cold = if self.next_cold + 1 < rows.keys { self.next_cold + 1 } else { self.hot };
        }
        let mut keys: Vec<u64> =
            ranks.into_iter().flat_map(|rank| rows.keys_of_ranks(rank..rank + 1)).collect();
        keys.sort_unstable();
        keys
    }
}

pub(super) fn measure(
    load: Load,
    memory_limit: u64,
    cold_share: f64,
    directory: &Path,
    bars: Bars,
) -> Result<Report> {
    let rows = &load.rows;
    let directory = tempfile::Builder::new().prefix("libra-bench-").tempdir_in(directory);
    let directory = directory.context("cannot make a directory for the file of rows")?;
    let files = RowFiles::new(directory.path(), memory_limit)?;
    let new = || Store::new(vec![rows.table()], rows.seed);
    let (mut in_memory, mut limited) = (new()?, new()?);
    let limit = files.limit_of_shard(1)?;
    limited.limit_memory(limit.bytes, limit.file)?;
    fill(&mut in_memory, &load, bars)?;
    fill(&mut limited, &load, bars)?;
    check(&limited)?;
    let filed = limited.disk_counts().rows;
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    let (kept, batch) = ((limited.rows() as u64 - filed) as f64, rows.batch as f64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shares of counts")]
    let (hot, cold_rows) = ((kept * HOT_SHARE) as u64, (batch * cold_share).round() as usize);
    if filed < cold_rows as u64 || hot < (rows.batch - cold_rows) as u64 {
        bail!(
            "--memory-limit: of {} rows {filed} are on disk, and {hot} should be used all the time: that is no comparison",
            rows.keys
        );
    }
    let random = SmallRng::seed_from_u64(rows.seed);
    // The last ranks were made last, and are still in memory.
    let mut batches = Batches { load: &load, random, hot, cold_rows, next_cold: hot };
    let disk = RandomReads::new(directory.path(), rows.keys * rows.payload_bytes())?;
    let spinner = bars.spinner("bench");
    spinner.set_message("reads and updates");
    let (mut reads, mut updates, mut disk_reads_per_second) = (Compared::default(), Compared::default(), 0.0);
    let gradients = vec![0.001; rows.batch * rows.width()];
    let mut values = [vec![0.0; gradients.len()], vec![0.0; gradients.len()]];
    let turn = Duration::from_secs_f64(load.seconds / f64::from(ROUNDS));
    // What is used all the time comes to memory, and stays there.
    for first in (0..WARM_UP).flat_map(|_| (0..hot).step_by(rows.batch)) {
        let keys = rows.keys_of_ranks(first..hot.min(first + rows.batch as u64));
        for store in [&mut in_memory, &mut limited] {
            store.update_many(&keys, &gradients[..keys.len() * rows.width()])?;
        }
    }
    for _ in 0..ROUNDS {
        disk_reads_per_second = disk.per_second(turn / 2)?.max(disk_reads_per_second);
        let began = Instant::now();
        while began.elapsed() < 4 * turn {
            let keys = batches.next();
            let [of_memory, of_limited] = &mut values;
            reads.compare(&mut in_memory, &mut limited, keys.len(), |store, is_limited| {
                let values = if is_limited { &mut *of_limited } else { &mut *of_memory };
                Ok(store.read_many(&keys, values)?)
            })?;
            if of_memory != of_limited {
                bail!("the two stores have other values");
            }
            let keys = batches.next();
            updates.compare(&mut in_memory, &mut limited, keys.len(), |store, _| {
                Ok(store.update_many(&keys, &gradients)?)
            })?;
        }
    }
    spinner.finish_and_clear();
    reads.finish();
    updates.finish();
    Ok(Report {
        memory_limit,
        cold_share,
        reads,
        updates,
        rows: limited.rows() as u64,
        rows_on_disk: limited.disk_counts().rows,
        store_bytes: limited.memory_bytes(),
        disk_reads_per_second,
        load,
    })
}

impl Compared {
    fn compare(
        &mut self,
        in_memory: &mut Store,
        limited: &mut Store,
        rows: usize,
        mut step: impl FnMut(&mut Store, bool) -> Result<()>,
    ) -> Result<()> {
        self.in_memory.time(|| step(in_memory, false))?;
        let DiskCounts { records_read: before, .. } = limited.disk_counts();
        self.limited.time(|| step(limited, true))?;
        self.from_disk += limited.disk_counts().records_read - before;
        self.rows += rows;
        check(limited)
    }
}

fn check(store: &Store) -> Result<()> {
    store.fault().map_or(Ok(()), |fault| Err(fault.clone().into()))
}

impl Report {
    pub(super) fn print(&self) {
        let line = |compared: &Compared| {
            format!(
                "{:.2} of {} with all rows in memory, {:.2} by processor time; {:.2}% of the rows came from disk",
                compared.ratio,
                million(compared.in_memory.rows_per_second),
                compared.ratio_by_processor_time,
                100.0 * compared.from_disk_share
            )
        };
        #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
        let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
        let lines = vec![
            ("reads", million(self.reads.limited.rows_per_second), line(&self.reads)),
            ("updates", million(self.updates.limited.rows_per_second), line(&self.updates)),
            (
                "memory",
                mib(self.store_bytes as u64),
                format!(
                    "as the store counts; {} are the limit; {} of {} rows are on disk",
                    mib(self.memory_limit),
                    self.rows_on_disk,
                    self.rows
                ),
            ),
            (
                "limit",
                million(self.disk_reads_per_second),
                format!("random reads of 4 KiB of this disk alone, {DEPTH} at once"),
            ),
        ];
        print(&self.load.title(), lines);
    }
}
