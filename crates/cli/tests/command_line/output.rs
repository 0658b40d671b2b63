//! Output for people: no line is wider than 100 columns.

use std::process::Output;

use tempfile::TempDir;

use crate::process::{run, tiny_data};

const WIDTH_MAX: usize = 100;

/// Checks the width of every line of both streams, and returns what was printed to the first.
fn text_within_100_columns(output: Output) -> String {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    for line in stdout.lines().chain(stderr.lines()) {
        assert!(line.chars().count() <= WIDTH_MAX, "{} columns: {line}", line.chars().count());
    }
    stdout
}

#[test]
fn train_prints_no_line_wider_than_100_columns() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let state = directory.path().join("state");
    let options =
        ["train", "--data", &data, "--batch", "64", "--epochs", "2", "--state-dir", state.to_str().unwrap()];
    let table = text_within_100_columns(run(&options));
    assert!(table.contains("samples/s") && table.contains("checkpoints"), "{table}");
    for subcommand in ["list", "inspect", "verify"] {
        text_within_100_columns(run(&["checkpoint", subcommand, state.to_str().unwrap()]));
    }
}

// The job that the README begins with.
#[test]
fn train_without_options_fits_100_columns() {
    let table = text_within_100_columns(run(&["train", "--epochs", "1", "--sample", "0.04"]));
    assert!(table.contains("server updates avoided") && table.contains("untrained loss"), "{table}");
}

#[test]
fn plans_and_p4_resources_fit_100_columns() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let plan = directory.path().join("plan.toml");
    let plan = plan.to_str().unwrap();
    let written = run(&["profile", "--data", &data, "--sample", "1", "--out", plan]);
    assert!(text_within_100_columns(written).contains("pushes per row"));
    assert!(text_within_100_columns(run(&["plan", "show", plan])).contains("pushes per row"));
    let resources = text_within_100_columns(run(&["p4", "resources"]));
    assert!(resources.contains("first stage") && resources.contains("a Tofino 1 has"), "{resources}");
    text_within_100_columns(run(&["train", "--help"]));
}
