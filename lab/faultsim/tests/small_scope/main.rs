//! Every run of the smallest cluster with up to two deviations: two workers push to two slots of one region, a second switch
//! stands by, and at each point of the run each datagram under way is lost, doubled, delayed or reordered to the front, a timer fires early (a
//! round is closed, a packet is sent again), or the switch dies. Whatever happens, every gradient counts once.
//!
//! `DEVIATIONS=3 cargo test -p libra-faultsim --release --test small_scope -- --nocapture` goes further, for some minutes.

mod harness;

use harness::{Deviation, SmallScopeHarness};

/// Explores everything that `deviations` more deviations can make of a run. Returns how many runs that are.
fn explore(mut harness: SmallScopeHarness, deviations: u32, path: &mut Vec<(u32, Deviation)>) -> u64 {
    let mut runs = 1;
    while !harness.is_done() {
        if deviations > 0 {
            for deviation in harness.deviations() {
                let mut other = harness.clone();
                path.push((harness.steps, deviation));
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    other.deviate(deviation);
                    explore(other, deviations - 1, path)
                }));
                runs += outcome.unwrap_or_else(|panic| {
                    eprintln!("with {path:?}:");
                    std::panic::resume_unwind(panic)
                });
                path.pop();
            }
        }
        harness.step();
    }
    runs
}

fn explore_all(deviations: u32) -> u64 {
    let runs = explore(SmallScopeHarness::new(), deviations, &mut Vec::new());
    println!("{runs} runs with up to {deviations} deviations");
    runs
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the depth is an option of the developer who runs it")]
fn deviations_lose_nothing_and_count_nothing_twice() {
    let deviations = std::env::var("DEVIATIONS").ok().map_or(2, |text| text.parse().expect("a number"));
    assert!((0..=deviations).map(explore_all).is_sorted(), "more deviations are more runs");
}
