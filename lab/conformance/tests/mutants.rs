//! The vectors find every mutant of the data plane.
//!
//! `cargo test -p libra-conformance --features mutants --test mutants -- --nocapture` prints who found which.

use libra_conformance::{folder, read_folder, run};
use libra_dataplane::mutants::{Mutant, clear, enable};

#[path = "vectors/pipeline.rs"]
mod pipeline;
use pipeline::PipelineTarget;

/// Those of its tags.
const OF_TAGS: [Mutant; 5] = [
    Mutant::TagIgnored,
    Mutant::SinceNotInTag,
    Mutant::OneKeyBothWays,
    Mutant::PaddingNotHashed,
    Mutant::StaleAnsweredBeforeTag,
];

#[test]
fn the_vectors_find_every_bug_of_the_data_plane() {
    let vectors = read_folder(&folder()).unwrap_or_else(|error| panic!("{error}"));
    let failures = || vectors.iter().filter_map(|vector| run(vector, &mut PipelineTarget::new()).err());
    assert_eq!(failures().next(), None, "no mutant is enabled yet");
    let mut missed = Vec::new();
    for &bug in Mutant::OF_DATA_PLANE.iter().chain(&OF_TAGS) {
        enable(bug);
        let found: Vec<_> = failures().collect();
        clear();
        match found.first() {
            Some(failure) => println!("{bug}: {} vectors, first {failure}", found.len()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
