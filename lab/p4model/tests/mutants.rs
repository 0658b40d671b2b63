//! The vectors find every mutant of the program: those of the data plane in software, in the controls that have its place.
//!
//! `cargo test -p libra-p4 --features mutants --test mutants -- --nocapture` prints who found which.

use libra_conformance::{Vector, folder, read_folder, run};
use libra_dataplane::mutants::{Mutant, clear, enable};
use libra_p4::Sizes;
use libra_p4model::Switch;

#[path = "reference/device.rs"]
mod device;
#[path = "reference/target.rs"]
mod target;
use device::{Device as _, Here};
use target::P4Target;

#[test]
fn the_vectors_find_every_bug_of_the_program() {
    let vectors = read_folder(&folder()).unwrap_or_else(|error| panic!("{error}"));
    let sizes = Sizes::default();
    let mut here = Here(Switch::new(sizes));
    let mut failure = |vector: &Vector| {
        here.reset(sizes);
        run(vector, &mut P4Target::new(&mut here, sizes)).err()
    };
    assert_eq!(vectors.iter().find_map(&mut failure), None, "no mutant is enabled yet");
    let mut missed = Vec::new();
    for &bug in Mutant::OF_DATA_PLANE.iter().chain([&Mutant::TagIgnored]) {
        enable(bug);
        let found: Vec<_> = vectors.iter().filter_map(&mut failure).collect();
        clear();
        match found.first() {
            Some(failure) => println!("{bug}: {} vectors, first {failure}", found.len()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
