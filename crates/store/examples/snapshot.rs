//! Cost of a snapshot to the updates that go on beside it.
//!
//! `cargo run --release -p libra-store --example snapshot -- [rows] [width] [none|adagrad]`
//!
//! Batches of 4,000 keys, evenly drawn, which is the worst case: nearly every row is touched for the first time. After each
//! batch, as many rows of the snapshot are read.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "an example is a program: it has a clock and takes arguments, and what it computes is small"
)]

use std::error::Error;
use std::time::{Duration, Instant};

use libra_store::{Extent, Init, Optimizer, Store, TableSpec};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const BATCH: usize = 4_000;
const BATCHES: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(Ok(10_000_000), |word| word.parse())?;
    let width: usize = arguments.next().map_or(Ok(16), |word| word.parse())?;
    let optimizer = match arguments.next().as_deref() {
        None | Some("none") => Optimizer::Sgd { rate: 0.1 },
        Some("adagrad") => Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 },
        Some(other) => return Err(format!("{other} is no optimizer of this example").into()),
    };
    let init = Init::Zero;
    let table = TableSpec { name: "row".into(), keys: 0..rows, width, rule: optimizer.into(), init };
    let state = vec![0.5; optimizer.state_len(width) * BATCH];
    let mut load = Load { random: SmallRng::seed_from_u64(1), rows, gradients: vec![0.5; BATCH * width] };

    let mut store = Store::new(vec![table], 1)?;
    let keys: Vec<u64> = (0..rows).collect();
    let start = Instant::now();
    for keys in keys.chunks(BATCH) {
        let state = &state[..optimizer.state_len(width) * keys.len()];
        store.restore(0, keys, &load.gradients[..keys.len() * width], state)?;
    }
    println!(
        "{rows} rows of {width} values, restored at {:.1} M/s",
        per_second(rows as usize, start.elapsed())
    );
    println!("                     batches, M rows/s   slowest batch   slowest read      most copied");
    report("no tracking", &load.run(&mut store, 0)?);
    report("no tracking, again", &load.run(&mut store, 0)?);
    begin(&mut store, Extent::Full);
    report("full", &load.run(&mut store, BATCH)?);
    store.cancel_snapshot();
    store.track_changes();
    report("tracking", &load.run(&mut store, 0)?);
    begin(&mut store, Extent::Full);
    report("tracking, full", &load.run(&mut store, BATCH)?);
    let start = Instant::now();
    let mut read = 0;
    while let Some(block) = store.read_snapshot(BATCH) {
        read += block.keys.len();
    }
    println!("the rest is read at {:.1} M rows/s", per_second(read, start.elapsed()));
    report("tracking", &load.run(&mut store, 0)?);
    begin(&mut store, Extent::Changed);
    report("tracking, changed", &load.run(&mut store, BATCH)?);
    let start = Instant::now();
    store.cancel_snapshot();
    println!("cancelled in {:?}", start.elapsed());
    Ok(())
}

fn begin(store: &mut Store, extent: Extent) {
    let start = Instant::now();
    store.begin_snapshot(extent);
    println!("begun in {:?}", start.elapsed());
}

struct Load {
    random: SmallRng,
    rows: u64,
    gradients: Vec<f32>,
}

struct Outcome {
    rate: f64,
    slowest_batch: Duration,
    slowest_read: Duration,
    copied_most: usize,
}

impl Load {
    fn run(&mut self, store: &mut Store, read: usize) -> Result<Outcome, Box<dyn Error>> {
        let mut outcome = Outcome {
            rate: 0.0,
            slowest_batch: Duration::ZERO,
            slowest_read: Duration::ZERO,
            copied_most: 0,
        };
        let mut spent = Duration::ZERO;
        for _ in 0..BATCHES {
            let keys: Vec<u64> = (0..BATCH).map(|_| self.random.random_range(0..self.rows)).collect();
            let start = Instant::now();
            store.update_many(&keys, &self.gradients)?;
            let took = start.elapsed();
            (spent, outcome.slowest_batch) = (spent + took, outcome.slowest_batch.max(took));
            if read > 0 {
                let start = Instant::now();
                store.read_snapshot(read);
                outcome.slowest_read = outcome.slowest_read.max(start.elapsed());
                outcome.copied_most = outcome.copied_most.max(store.rows_copied());
            }
        }
        outcome.rate = per_second(BATCH * BATCHES, spent);
        Ok(outcome)
    }
}

fn report(name: &str, Outcome { rate, slowest_batch, slowest_read, copied_most }: &Outcome) {
    println!("{name:<20} {rate:>18.1} {slowest_batch:>15.1?} {slowest_read:>14.1?} {copied_most:>16}");
}

fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}
