//! How fast the store reads and updates rows, beside what the memory of this machine can do.
//!
//! `cargo run --release -p libra-store --example random_access -- [rows] [width] [none|adagrad]`
//!
//! Keys are drawn by Zipf's law with exponent 1.05 or evenly, in batches of 10,000: sorted, each once, as a
//! worker pushes them, or as they are drawn. Popular keys are spread over all keys and all memory.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an example is a program: it has a clock and takes arguments, and what it computes is small"
)]

use std::error::Error;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libra_store::{Init, Optimizer, Store, TableSpec};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

const BATCH: usize = 10_000;
/// Of the keys of a distribution, all drawn before the clock starts.
const BATCHES: usize = 200;
/// The time of a figure, of which the best of [`ROUNDS`] counts: other programs may use the machine, too.
const ROUND: Duration = Duration::from_millis(400);
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(Ok(10_000_000), |word| word.parse())?;
    let width: usize = arguments.next().map_or(Ok(1), |word| word.parse())?;
    let optimizer = match arguments.next().as_deref() {
        None | Some("none") => Optimizer::Sgd { rate: 0.1 },
        Some("adagrad") => Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 },
        Some(other) => return Err(format!("{other} is no optimizer of this example").into()),
    };

    let table =
        TableSpec { name: "row".into(), keys: 0..rows, width, rule: optimizer.into(), init: Init::Zero };
    let state = optimizer.state_len(width);
    let mut store = Store::new(vec![table], 1)?;
    let fill = fill(&mut store, rows, width)?;
    let bytes = store.memory_bytes() as f64 / rows as f64;
    println!("{rows} rows of {width} values and {state} of state: filled at {fill}");
    println!(
        "{bytes:.2} bytes a row, {:.2} beyond values and state",
        bytes - ((width + state) * size_of::<f32>()) as f64
    );
    println!("limit, of the store's size: {}", random_access(store.memory_bytes() / 8));
    println!("limit, of 8 bytes a row:    {}", random_access(rows as usize));

    let mut map: HashMap<u64, f32, FixedState> = (0..rows).map(|rank| (scatter(rank, rows), 0.0)).collect();
    for (name, keys) in [("Zipf 1.05", zipf(rows)?), ("uniform", uniform(rows))] {
        for (order, keys) in [("sorted", sorted(&keys)), ("as drawn", keys)] {
            println!("{name}, {order}");
            let gradients = vec![0.5; BATCH * width];
            let mut values = vec![0.0; BATCH * width];
            let reads = fastest(&keys, |keys| {
                store.read_many(keys, &mut values[..keys.len() * width]).expect("all keys are there");
            });
            let updates = fastest(&keys, |keys| {
                store.update_many(keys, &gradients[..keys.len() * width]).expect("all keys are there");
            });
            let singles = fastest(&keys, |keys| {
                for key in keys {
                    store.update(*key, &gradients[..width]).expect("all keys are there");
                }
            });
            println!("  read_many   {reads}\n  update_many {updates}\n  update      {singles}");
            if width == 1 {
                let hashbrown = fastest(&keys, |keys| {
                    for key in keys {
                        *map.get_mut(key).expect("all keys are there") += 0.5;
                    }
                });
                println!("  hashbrown   {hashbrown}");
            }
        }
    }
    Ok(())
}

/// Operations in a second.
struct Rate(f64);

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:6.1} M/s", self.0 / 1e6)
    }
}

/// Makes all rows, in an order without a pattern.
fn fill(store: &mut Store, rows: u64, width: usize) -> Result<Rate, Box<dyn Error>> {
    let gradients = vec![0.5; BATCH * width];
    let mut slowest = Duration::ZERO;
    let mut spent = Duration::ZERO;
    let mut rank = 0;
    while rank < rows {
        let until = rows.min(rank + BATCH as u64);
        let keys: Vec<u64> = (rank..until).map(|rank| scatter(rank, rows)).collect();
        let start = now();
        store.update_many(&keys, &gradients[..keys.len() * width])?;
        let took = now() - start;
        (spent, slowest) = (spent + took, slowest.max(took));
        rank = until;
    }
    println!("slowest batch of new rows: {slowest:?}");
    Ok(Rate(rows as f64 / spent.as_secs_f64()))
}

/// The key of a rank: another one for each, without a pattern.
fn scatter(rank: u64, rows: u64) -> u64 {
    // Multiplication by a number without a factor in common with `rows`.
    let mut factor = (rows as f64 * 0.618) as u64 | 1;
    while greatest_common_divisor(factor, rows) > 1 {
        factor += 2;
    }
    (u128::from(rank) * u128::from(factor) % u128::from(rows)) as u64
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

fn zipf(rows: u64) -> Result<Vec<Vec<u64>>, Box<dyn Error>> {
    let zipf = Zipf::new(rows as f64, 1.05)?;
    let mut random = SmallRng::seed_from_u64(1);
    let mut draw = || scatter((zipf.sample(&mut random) as u64 - 1) % rows, rows);
    Ok((0..BATCHES).map(|_| (0..BATCH).map(|_| draw()).collect()).collect())
}

fn uniform(rows: u64) -> Vec<Vec<u64>> {
    let mut random = SmallRng::seed_from_u64(2);
    (0..BATCHES).map(|_| (0..BATCH).map(|_| random.random_range(0..rows)).collect()).collect()
}

/// Each batch in rising order, every key once; so batches of skewed keys are smaller.
fn sorted(batches: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let sorted = |batch: &Vec<u64>| {
        let mut batch = batch.clone();
        batch.sort_unstable();
        batch.dedup();
        batch
    };
    batches.iter().map(sorted).collect()
}

/// The keys of a second, of the best round.
fn fastest(batches: &[Vec<u64>], mut run: impl FnMut(&[u64])) -> Rate {
    let mut batches = batches.iter().cycle();
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let (start, mut keys) = (now(), 0);
        while now() - start < ROUND {
            let batch = batches.next().expect("a cycle has no end");
            run(batch);
            keys += batch.len();
        }
        best = best.max(keys as f64 / (now() - start).as_secs_f64());
    }
    Rate(best)
}

/// The time that this thread has been on a processor, or else any time: others use the machine, too.
fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = spent.and_then(|text| text.split(' ').next()?.parse().ok());
    spent.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// Independent reads and writes of random words: what memory allows, whoever uses it.
fn random_access(words: usize) -> Rate {
    let mut memory = vec![0_u64; words.max(1)];
    memory.fill(1);
    let mut random = SmallRng::seed_from_u64(3);
    let places: Vec<Vec<u64>> = (0..BATCHES)
        .map(|_| (0..BATCH).map(|_| random.random_range(0..memory.len() as u64)).collect())
        .collect();
    let rate = fastest(&places, |places| {
        for place in places {
            memory[*place as usize] += *place;
        }
    });
    black_box(&memory);
    rate
}
