//! The vectors find every bug that is planted in the data plane.
//!
//! `cargo test -p libra-conformance --features planted-bugs --test planted -- --nocapture` prints who found which.

use libra_conformance::{folder, read_folder, run};
use libra_dataplane::planted::{PlantedBug, clear, plant};

#[path = "vectors/pipeline.rs"]
mod pipeline;
use pipeline::PipelineTarget;

#[test]
fn the_vectors_find_every_bug_of_the_data_plane() {
    let vectors = read_folder(&folder()).unwrap_or_else(|error| panic!("{error}"));
    let failures = || vectors.iter().filter_map(|vector| run(vector, &mut PipelineTarget::new()).err());
    assert_eq!(failures().next(), None, "nothing is planted yet");
    let mut missed = Vec::new();
    for &bug in PlantedBug::OF_DATA_PLANE {
        plant(bug);
        let found: Vec<_> = failures().collect();
        clear();
        match found.first() {
            Some(failure) => println!("{bug}: {} vectors, first {failure}", found.len()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
