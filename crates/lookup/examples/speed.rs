//! Time of look-ups: `cargo run --release --package libra-lookup --example speed`.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it measures time; what it measures does not"
)]
#![expect(clippy::cast_possible_truncation, reason = "synthetic ids are small")]

use std::hint::black_box;
use std::time::Instant;

use libra_lookup::{Accumulator, Bags, IdSpace, Mode, Pass, Rows, WorkingSet};

const TURNS: usize = 200;

/// Ids that are skewed as in logs of clicks: the product of uniform numbers.
fn skewed(count: usize, rows: u64) -> Vec<i64> {
    let mut state = 1_u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    (0..count).map(|_| (uniform() * uniform() * uniform() * rows as f64) as i64).collect()
}

fn main() {
    println!(
        "{:>8} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "ids", "bag", "width", "slots", "pool", "backward", "commit"
    );
    println!("{:>30} {:>9} {:>9} {:>9}", "ns per id", "", "", "");
    for (count, bag, width) in [(1024, 1, 8), (4096, 1, 16), (2048 * 20, 20, 16), (2048 * 20, 20, 64)] {
        measure(count, bag, width);
    }
}

fn measure(count: usize, bag: usize, width: usize) {
    let ids = skewed(count, 100_000);
    let (mut set, mut accumulator) = (WorkingSet::new(width), Accumulator::new(width));
    let bags = Bags::even(count / bag, bag);
    let mut output = vec![0.0; bags.len() * width];
    let mut nanoseconds = [u128::MAX; 4];
    for turn in 0..TURNS {
        let pass = Pass { task: turn as i64, thread: 0 };
        let begin = Instant::now();
        let lookup = set.assign(&ids, IdSpace::Bounded { rows: 100_000 }, None).expect("ids are in range");
        let of_slots = begin.elapsed();
        set.load(|_, values| {
            values.fill(1.0);
            Ok::<(), ()>(())
        })
        .expect("it cannot fail");
        let begin = Instant::now();
        bags.pool(Mode::Sum, set.values(), width, lookup.slots(), None, black_box(&mut output));
        let of_pool = begin.elapsed();
        let begin = Instant::now();
        accumulator.add(pass, &mut set, &lookup, |slots, ids, sums| {
            bags.add_gradient(Mode::Sum, slots, None, Rows::new(&output, width), ids, sums);
        });
        let of_backward = begin.elapsed();
        let begin = Instant::now();
        accumulator.commit(pass, 0.0, &mut set).expect("there is one thread");
        let of_commit = begin.elapsed();
        for (least, now) in nanoseconds.iter_mut().zip([of_slots, of_pool, of_backward, of_commit]) {
            *least = (*least).min(now.as_nanos());
        }
        accumulator.renew(&mut set);
    }
    let [slots, pool, backward, commit] = nanoseconds.map(|least| least as f64 / count as f64);
    println!("{count:>8} {bag:>5} {width:>6} {slots:>9.2} {pool:>9.2} {backward:>9.2} {commit:>9.2}");
}
