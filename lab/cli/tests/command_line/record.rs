//! `libra train --record`, and `libra-lab bench simulate --recording`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use libra_models::record::{PushReader, RecordError, file_name};
use tempfile::TempDir;

use crate::process::{assert_refused, json, run, tiny_data};
use crate::program;

/// Runs `libra`, which is the program of another package.
fn libra(arguments: &[&str]) -> Output {
    Command::new(program::libra()).args(arguments).output().unwrap()
}

/// Pushes and rows of a worker's file.
fn recorded(directory: &Path, worker: u32) -> Result<(u64, u64), RecordError> {
    let mut reader = PushReader::open(&directory.join(file_name(worker)))?;
    assert_eq!((reader.head().worker, reader.head().workers), (worker, 2));
    let (mut pushes, mut rows) = (0, 0);
    while let Some(push) = reader.next_push()? {
        assert!(push.gradients.iter().any(|value| *value != 0.0), "gradients are real");
        pushes += 1;
        rows += push.keys.len() as u64;
    }
    Ok((pushes, rows))
}

#[test]
fn pushes_of_a_training_are_recorded_and_replayed() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let recording = directory.path().join("recording");
    let (told, replayed) = (directory.path().join("told.json"), directory.path().join("replayed.json"));
    let [recording_path, told_path, replayed_path] =
        [&recording, &told, &replayed].map(|path| path.to_str().unwrap());
    let train =
        ["train", "--data", &data, "--epochs", "2", "--batch", "64", "--factors", "4", "--sample", "1"];
    let train = [&train[..], &["--record", recording_path, "--quiet", "--json", told_path]].concat();
    let output = libra(&train);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let both = [0, 1].map(|worker| recorded(&recording, worker).unwrap());
    let (pushes, rows) = (both[0].0 + both[1].0, both[0].1 + both[1].1);
    let told = json(&told);
    assert_eq!(told["pushes"]["rows"], rows, "{told:#}");

    // All of it, by as many workers as there were, and by others.
    let simulate = |more: &[&str]| {
        let simulate = ["bench", "simulate", "--recording", recording_path, "--json", replayed_path];
        let output = run(&[&simulate[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (json(&replayed), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for more in [&["--workers", "2,3", "--loss", "0.01"][..], &["--workers", "1,8", "--system", "ps-sparse"]]
    {
        let (figures, said) = simulate(more);
        for figures in figures["runs"].as_array().unwrap() {
            let figures = &figures["replayed"];
            assert_eq!((&figures["rows"], &figures["pushes"]), (&rows.into(), &pushes.into()), "{figures:#}");
            assert!(figures["rows_per_second"].as_f64().unwrap() > 0.0);
        }
        assert!(said.is_empty(), "{said}");
    }
    let (figures, _) = simulate(&["--workers", "2", "--pushes", "3"]);
    assert_eq!(figures["runs"][0]["replayed"]["pushes"], 6);

    // Nothing is overwritten.
    let again = libra(&train);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(1) && said.contains("worker-0.pushes is there already"), "{said}");
    assert_eq!(recorded(&recording, 0).unwrap(), both[0]);

    // A file that was cut off is replayed as far as it goes, one that was changed is not.
    let file = recording.join(file_name(1));
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(recorded(&recording, 1), Err(RecordError::Cut { .. })));
    let (figures, said) = simulate(&["--workers", "2"]);
    assert_eq!(figures["runs"][0]["replayed"]["pushes"], pushes - 1);
    assert!(said.contains("worker-1.pushes is cut off"), "{said}");
    let mut changed = bytes;
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&file, changed).unwrap();
    let simulate = ["bench", "simulate", "--recording", recording_path, "--workers", "2"];
    assert_refused(&simulate, 1, &["--recording", "worker-1.pushes is damaged"]);
    fs::remove_file(&file).unwrap();
    assert_refused(&simulate, 1, &["--recording", "cannot read", "worker-1.pushes"]);
}

#[test]
fn a_simulation_refuses_what_it_cannot_do() {
    let here = TempDir::new().unwrap();
    let here = here.path().to_str().unwrap();
    let simulate = |more: &[&'static str]| [&["bench", "simulate"][..], more].concat();
    assert_refused(
        &[&simulate(&[])[..], &["--recording", here]].concat(),
        1,
        &["--recording", "worker-0.pushes"],
    );
    assert_refused(&simulate(&["--recording", "x", "--zipf", "1"]), 2, &["--recording", "--zipf"]);
    assert_refused(
        &simulate(&["--recording", "x", "--system", "het"]),
        1,
        &["--recording", "libra and ps-sparse"],
    );
    assert_refused(&simulate(&["--recording", "x", "--by", "formula"]), 1, &["--recording", "formula"]);
    assert_refused(&simulate(&["--pushes", "3"]), 2, &["required arguments"]);
    assert_refused(&simulate(&["--loss", "1"]), 1, &["--loss 1"]);
    assert_refused(&simulate(&["--loss", "0.1", "--by", "formula"]), 1, &["--loss 0.1", "formula"]);
}
