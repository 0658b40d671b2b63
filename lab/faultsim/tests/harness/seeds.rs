//! Runs of whole scenarios.

use libra_faultsim::{Options, run};

#[test]
fn a_range_of_seeds_passes() {
    for seed in 0..40 {
        let report = run(seed, Options::default());
        assert!(report.violation.is_none(), "{report}\nlibra-lab sim --seed {seed} --trace");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 17, 28] {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
    assert_ne!(run(3, Options::default()).trace_hash, run(4, Options::default()).trace_hash);
}
