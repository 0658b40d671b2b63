//! The vectors in `conformance/`, on the program as this crate has it and, where that can be run, in bmv2.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Instant;

use libra_conformance::{Need, Outcome, Vector, folder, read_folder, run, run_in_bursts};
use libra_p4::Sizes;
use libra_p4model::Switch;

use crate::bmv2::in_bmv2;
use crate::device::{Device, Here};
use crate::target::P4Target;

fn vectors() -> Vec<Vector> {
    let vectors = read_folder(&folder()).unwrap_or_else(|error| panic!("{error}"));
    assert!(vectors.len() > 60);
    vectors
}

/// Order in which datagrams of one sender that follow each other are handed over.
enum Mode {
    OneByOne,
    InBursts,
}

/// Runs every vector, in bursts or not, and prints those that were skipped.
fn reproduce(what: &str, mut device: impl Device, sizes: Sizes, modes: &[Mode]) {
    let begun = Instant::now();
    let mut passed = 0;
    let mut skipped: BTreeMap<Need, Vec<String>> = BTreeMap::new();
    'vectors: for vector in vectors() {
        for mode in modes {
            let mut target = P4Target::new(&mut device, sizes);
            let outcome = match mode {
                Mode::OneByOne => run(&vector, &mut target),
                Mode::InBursts => run_in_bursts(&vector, &mut target),
            };
            match outcome {
                Ok(Outcome::Passed) => device.reset(sizes),
                Ok(Outcome::Skipped(need)) => {
                    skipped.entry(need).or_default().push(vector.file);
                    continue 'vectors;
                }
                Err(failure) => panic!("{what}: {failure}"),
            }
        }
        passed += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let count: usize = skipped.values().map(Vec::len).sum();
    let mut text =
        format!("\nconformance, {what}: {passed} vectors passed in {seconds:.1} s, SKIPPED {count}\n");
    for (need, files) in skipped {
        text += &format!("    does not offer {need} ({}): {}\n", files.len(), files.join(" "));
    }
    say(&text);
    assert!(passed >= 25, "{passed} vectors are for switches that wire lanes");
}

/// Says something that must be seen though the test passes, which hides what is printed.
pub(crate) fn say(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

fn here() -> (Here, Sizes) {
    let sizes = Sizes::default();
    (Here(Switch::new(sizes)), sizes)
}

// rules A5, W2, W3, W4, W5, W6, W7, W9, W10, W11, W13, D1, D2, D3, D4, D5, D6, D7, E2, V2
#[test]
fn the_program_reproduces_the_vectors() {
    let (device, sizes) = here();
    reproduce("the program in Rust", device, sizes, &[Mode::OneByOne, Mode::InBursts]);
}

#[test]
fn bmv2_reproduces_the_vectors() {
    // One by one it would do the same, and take twice as long.
    in_bmv2(|(bmv2, sizes), _| reproduce("bmv2", bmv2, sizes, &[Mode::InBursts]));
}

/// A need of a vector is no excuse: a target that runs it all the same fails.
#[test]
fn the_program_cannot_do_what_it_does_not_offer() {
    for vector in vectors() {
        let (mut device, sizes) = here();
        if let Ok(Outcome::Skipped(need)) = run(&vector, &mut P4Target::new(&mut device, sizes)) {
            let mut claiming = P4Target::new(&mut device, sizes);
            claiming.claims_all = true;
            let all_the_same = run(&vector, &mut claiming);
            assert!(all_the_same.is_err(), "{} needs {need}, and passes without", vector.file);
        }
    }
}
