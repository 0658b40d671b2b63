//! The vectors that are checked in: they are what the reference does now, and the runner notices each fault of a target.
//!
//! `cargo xtask conformance` writes them again, by running the first test here with `LIBRA_VECTORS=write`.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod arithmetic;
mod auth;
mod dedup;
mod ip;
mod lanes;
mod malformed;
mod model;
mod pipeline;
mod random;
mod refusals;
mod rounds;
mod runner;
mod scene;
mod values;
mod wired;

use std::collections::BTreeMap;
use std::fs;

use libra_conformance::{Need, Outcome, Vector, folder, read_folder, run, run_in_bursts};

use pipeline::PipelineTarget;

/// The files as they should be.
fn generated() -> BTreeMap<String, String> {
    let scenes = [
        dedup::scenes(),
        refusals::scenes(),
        malformed::scenes(),
        values::scenes(),
        rounds::scenes(),
        arithmetic::scenes(),
        ip::scenes(),
        lanes::scenes(),
        auth::scenes(),
        random::scenes(),
        wired::scenes(),
    ]
    .into_iter()
    .flatten();
    scenes.map(scene::Scene::finish).collect()
}

#[test]
fn checked_in_is_what_the_reference_does() {
    let generated = generated();
    let is_vector = |name: &String| name.ends_with(".txt");
    let names = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).filter(is_vector).collect();
    if std::env::var_os("LIBRA_VECTORS").is_some_and(|what| what == "write") {
        for name in &names {
            fs::remove_file(folder().join(name)).unwrap();
        }
        for (name, text) in &generated {
            fs::write(folder().join(name), text).unwrap();
        }
        return;
    }
    for (name, text) in &generated {
        let found = fs::read_to_string(folder().join(name)).unwrap_or_default();
        let line = found.lines().zip(text.lines()).take_while(|(found, text)| found == text).count() + 1;
        assert!(
            found == *text,
            "conformance/{name}:{line} is not what the reference does: run `cargo xtask conformance`, \
             and look at what it changes"
        );
    }
    for name in names {
        assert!(generated.contains_key(&name), "nothing makes conformance/{name}");
    }
}

#[test]
fn vectors_are_written_as_they_are_read() {
    for vector in read_folder(&folder()).unwrap() {
        let text = fs::read_to_string(folder().join(&vector.file)).unwrap();
        let says_something = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let lines: String = text.lines().filter(says_something).map(|line| format!("{line}\n")).collect();
        assert_eq!(vector.to_string(), lines, "{}", vector.file);
        // The README promises it to parsers with a buffer of fixed length.
        assert!(text.lines().all(|line| line.len() <= 10_000), "{}", vector.file);
    }
}

/// Runs every vector, and says what was skipped.
fn pass_all(mut run: impl FnMut(&Vector) -> Outcome) {
    for vector in read_folder(&folder()).unwrap() {
        match run(&vector) {
            Outcome::Passed => {}
            Outcome::Skipped(need) => {
                // Of what the pipeline is handed, the kernel has seen to IP.
                assert_eq!(need, Need::Ip, "{}", vector.file);
                println!("SKIPPED {}: the pipeline does not offer {need}", vector.file);
            }
        }
    }
}

#[test]
fn the_pipeline_reproduces_every_vector() {
    pass_all(|vector| run(vector, &mut PipelineTarget::new()).unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn the_pipeline_reproduces_every_vector_in_bursts() {
    let run = |vector: &_| run_in_bursts(vector, &mut PipelineTarget::new());
    pass_all(|vector| run(vector).unwrap_or_else(|failure| panic!("{failure}")));
}
