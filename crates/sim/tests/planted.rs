//! The swarm finds every bug that is planted, within a stated number of seeds.
//!
//! `cargo test -p libra-sim --release --features planted-bugs --test planted -- --nocapture` prints the table.

use libra_dataplane::planted::{PlantedBug, clear, plant};
use libra_sim::{Options, run};

/// How many seeds the swarm may need for each bug.
const SEEDS_MAX: u64 = 400;

#[test]
fn the_swarm_finds_every_planted_bug() {
    // A planted bug may make a role panic; that is a find like any other, and no reason to print a trace.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    println!("{:<28} {:<10} {:>6}  what it says", "bug", "checker", "seeds");
    for bug in PlantedBug::ALL {
        plant(bug);
        let found = (0..SEEDS_MAX).find_map(|seed| Some((seed, run(seed, Options::default()).violation?)));
        clear();
        match found {
            Some((seed, violation)) => {
                println!("{bug:<28} {:<10} {:>6}  {}", violation.checker, seed + 1, violation.text);
            }
            None => missed.push(bug),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds: {missed:?}");
}
