//! `libra-lab bench store --threads`: the shards of a table on a thread each, beside all of its rows on one.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libra_launch::progress::Bars;
use libra_plan::{Shard, shard_of};
use libra_store::Store;
use serde::Serialize;

use super::super::report::{million, print};
use super::super::usage::processor_time;
use super::{Load, ROUNDS};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    load: Load,
    threads: u16,
    one: Rates,
    all: Rates,
    /// Of all threads to one, by processor time.
    ratio: Ratio,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Rates {
    reads: Rate,
    updates: Rate,
}

#[derive(Debug, Serialize)]
struct Ratio {
    reads: f64,
    updates: f64,
}

/// Rows a second, all threads together.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Rate {
    /// By the time that each thread was on a processor.
    per_second: f64,
    per_second_by_wall_time: f64,
}

impl Rate {
    fn plus(self, other: Self) -> Self {
        Self {
            per_second: self.per_second + other.per_second,
            per_second_by_wall_time: self.per_second_by_wall_time + other.per_second_by_wall_time,
        }
    }

    /// The best turn counts, by each clock.
    fn or_better(self, other: Self) -> Self {
        Self {
            per_second: self.per_second.max(other.per_second),
            per_second_by_wall_time: self.per_second_by_wall_time.max(other.per_second_by_wall_time),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Read,
    Update,
}

pub(super) fn measure(load: Load, threads: u16, bars: Bars) -> Result<Report> {
    let spinner = bars.spinner("bench");
    spinner.set_message("rows");
    let batches = load.rows.batches(0)?;
    let mut one = Shards::new(&load, &batches, 1)?;
    let mut all = Shards::new(&load, &batches, threads)?;
    drop(batches);
    spinner.set_message(format!("reads and updates of 1 and of {threads} threads, {} s each", load.seconds));
    let turn = Duration::from_secs_f64(load.seconds / f64::from(ROUNDS));
    let mut rates = [Rates::default(); 2];
    for _ in 0..ROUNDS {
        for (rates, shards) in rates.iter_mut().zip([&mut one, &mut all]) {
            rates.reads = rates.reads.or_better(shards.turn(turn, Operation::Read)?);
            rates.updates = rates.updates.or_better(shards.turn(turn, Operation::Update)?);
        }
    }
    spinner.finish_and_clear();
    let [one, all] = rates;
    let ratio = Ratio {
        reads: all.reads.per_second / one.reads.per_second,
        updates: all.updates.per_second / one.updates.per_second,
    };
    Ok(Report { load, threads, one, all, ratio })
}

impl Report {
    pub(super) fn print(&self) {
        let Self { load, threads, one, all, ratio } = self;
        let names = [
            ("reads, 1 thread", format!("reads, {threads} threads")),
            ("updates, 1 thread", format!("updates, {threads} threads")),
        ];
        let figures = [(one.reads, all.reads, ratio.reads), (one.updates, all.updates, ratio.updates)];
        let mut lines = Vec::new();
        for ((name_of_one, name_of_all), (one, all, ratio)) in names.iter().zip(figures) {
            let by_wall = million(one.per_second_by_wall_time);
            lines.push((
                *name_of_one,
                million(one.per_second),
                format!("by processor time; {by_wall} by wall time"),
            ));
            let remark = format!(
                "{ratio:.2} of one thread; {} by wall time, {:.2} of one",
                million(all.per_second_by_wall_time),
                all.per_second_by_wall_time / one.per_second_by_wall_time
            );
            lines.push((name_of_all, million(all.per_second), remark));
        }
        print(&load.title(), lines);
    }
}

/// All shards of a table.
struct Shards(Vec<ShardRows>);

/// The rows of one shard, and what operations ask of it.
struct ShardRows {
    store: Store,
    width: usize,
    batches: Vec<Vec<u64>>,
    next: usize,
    /// Of one batch.
    values: Vec<f32>,
    gradients: Vec<f32>,
}

impl Shards {
    /// Deals the table to so many shards, and each batch to all of them. Each thread makes the rows of its shard.
    fn new(load: &Load, batches: &[Vec<u64>], shards: u16) -> Result<Self> {
        let make = |number| ShardRows::new(load, batches, number, shards);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..shards).map(|number| scope.spawn(move || make(number))).collect();
            let made = threads.into_iter().map(|thread| thread.join().ok().context(GONE)?);
            made.collect::<Result<Vec<ShardRows>>>().map(Self)
        })
    }

    /// All threads work until the first of them has had so much processor time.
    fn turn(&mut self, time: Duration, operation: Operation) -> Result<Rate> {
        let (start, over) = (Barrier::new(self.0.len()), AtomicBool::new(false));
        let work = |shard: &mut ShardRows| {
            start.wait();
            shard.turn(time, operation, &over)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = self.0.iter_mut().map(|shard| scope.spawn(|| work(shard))).collect();
            threads
                .into_iter()
                .try_fold(Rate::default(), |sum, thread| Ok(sum.plus(thread.join().ok().context(GONE)??)))
        })
    }
}

/// The error of a thread that panicked, and has reported why.
const GONE: &str = "a thread of the benchmark is gone";

impl ShardRows {
    fn new(load: &Load, batches: &[Vec<u64>], number: u16, shards: u16) -> Result<Self> {
        let rows = &load.rows;
        let own = |keys: &[u64]| -> Vec<u64> {
            keys.iter().copied().filter(|&key| shard_of(key, shards) == number).collect()
        };
        let mut store = Store::of_shard(vec![rows.table()], rows.seed, Shard::new(number, shards))?;
        let gradients = vec![0.001; rows.batch * rows.width()];
        for keys in load.fill() {
            let keys = own(&keys);
            store.update_many(&keys, &gradients[..keys.len() * rows.width()])?;
        }
        let batches = batches.iter().map(|keys| own(keys)).collect();
        Ok(Self { store, width: rows.width(), batches, next: 0, values: gradients.clone(), gradients })
    }

    fn turn(&mut self, time: Duration, operation: Operation, over: &AtomicBool) -> Result<Rate> {
        let (began, began_by_wall, mut rows) = (processor_time(), Instant::now(), 0);
        while !over.load(Ordering::Relaxed) {
            let keys = &self.batches[self.next];
            self.next = (self.next + 1) % self.batches.len();
            match operation {
                Operation::Read => self.store.read_many(keys, &mut self.values[..keys.len() * self.width])?,
                Operation::Update => {
                    self.store.update_many(keys, &self.gradients[..keys.len() * self.width])?
                }
            }
            rows += keys.len();
            if processor_time() - began >= time {
                over.store(true, Ordering::Relaxed);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
        let per_second = |spent: Duration| rows as f64 / spent.as_secs_f64();
        Ok(Rate {
            per_second: per_second(processor_time() - began),
            per_second_by_wall_time: per_second(began_by_wall.elapsed()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::rows::tests::rows;
    use super::*;

    #[test]
    fn shards_have_all_rows_and_all_keys_of_a_batch() {
        for sparse in [false, true] {
            let load = Load { rows: rows(10_000, sparse), ordered: false, seconds: 0.1 };
            let batches = load.rows.batches(0).unwrap();
            let mut shards = Shards::new(&load, &batches, 3).unwrap();
            let made: Vec<usize> = shards.0.iter().map(|shard| shard.store.rows()).collect();
            assert_eq!(made.iter().sum::<usize>(), 10_000);
            assert!(made.iter().all(|rows| *rows > 3000), "{made:?}");
            for (at, batch) in batches.iter().enumerate() {
                let mut keys: Vec<u64> =
                    shards.0.iter().flat_map(|shard| shard.batches[at].iter().copied()).collect();
                keys.sort_unstable();
                assert_eq!(keys, *batch);
            }
            for operation in [Operation::Read, Operation::Update] {
                assert!(shards.turn(Duration::from_millis(5), operation).unwrap().per_second > 0.0);
            }
        }
    }
}
