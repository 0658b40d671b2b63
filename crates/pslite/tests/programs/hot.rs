//! Programs whose hot keys go through a switch: a real `libra switch`, and a plan of the program's own pushes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, TIMEOUT, TOKEN, compile, own_address, run};
use crate::kill_one;
use crate::program::libra;

const SERVERS: usize = 2;
const WORKERS: usize = 2;
/// Of the program: keys that are in every push, and rounds of a run.
const OFTEN: u64 = 300;
const ROUNDS: u64 = 60;

/// The program and a plan for it; none without a compiler.
fn program_and_plan(directory: &Path) -> Option<(PathBuf, String)> {
    let program = compile("c++", "tests/programs/hot.cc", &["-std=c++14"])?;
    let plan = directory.join("plan.toml").to_str().unwrap().to_owned();
    let printed = run(&program, SERVERS, WORKERS, &["40"], &[("LIBRA_PROFILE", &plan)]);
    assert_eq!(printed.matches("every sum is right").count(), WORKERS, "{printed}");
    Some((program, plan))
}

fn start_switch(controller: &str) -> Child {
    start_switch_with(controller, "")
}

fn start_switch_with(controller: &str, token: &str) -> Child {
    let mut switch = Command::new(libra());
    switch.env("LIBRA_TOKEN", token);
    switch
        .args(["switch", "--connect-timeout", "120", "--controller", controller])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    switch.spawn().unwrap()
}

/// The output of all processes; panics if one of them did not end well.
fn all_well(ended: Vec<((&'static str, usize), Output)>) -> String {
    let mut said = String::new();
    for (who, output) in ended {
        let its = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{who:?} ended with {}: {its}", output.status);
        said += &String::from_utf8_lossy(&output.stdout);
        said += &its;
    }
    said
}

/// The numbers of the scheduler's line about switches, in their order.
fn summary(said: &str) -> Vec<u64> {
    let line = said.lines().find(|line| line.contains("switches added"));
    let line = line.unwrap_or_else(|| panic!("there is no line about switches: {said}"));
    let numbers = line.split("switches added").nth(1).unwrap().split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn hot_keys_go_through_the_switch_and_sums_are_right_to_the_bit() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, plan)) = program_and_plan(directory.path()) else { return };
    for (drop, token) in [("0", ""), ("10", TOKEN)] {
        let switches = format!("{}:7700", own_address());
        let mut switch = start_switch_with(&switches, token);
        let variables = [
            ("LIBRA_TOKEN", token),
            ("LIBRA_PLAN", plan.as_str()),
            ("LIBRA_SWITCH", &switches),
            ("PS_VERBOSE", "1"),
            ("PS_DROP_MSG", drop),
            ("LIBRA_DROP_SEED", "7"),
        ];
        let cluster = Cluster::start(&program, SERVERS, WORKERS, &[&ROUNDS.to_string()], &variables);
        let said = all_well(cluster.finish());
        assert_eq!(said.matches("every sum is right").count(), WORKERS, "{said}");
        assert!(switch.wait().unwrap().success(), "a switch ends when its job does");
        let [packets, rounds, pulls, pushed_hot, pulled_hot, pushed_past, pulled_past] = summary(&said)[..]
        else {
            panic!("{said}")
        };
        assert!(packets > 0 && rounds > 0 && pulls > 0, "{said}");
        // A plan of nine tenths of all updates has nearly all keys that are in every push.
        let often = OFTEN * ROUNDS * WORKERS as u64;
        assert!(pushed_hot > often * 9 / 10 && pulled_hot > 0, "{said}");
        // Nothing goes past a switch that is there, but the one value of each worker that is too large.
        assert_eq!((pushed_past, pulled_past), (WORKERS as u64, 0), "{said}");
    }
}

#[test]
fn a_switch_that_is_killed_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, plan)) = program_and_plan(directory.path()) else { return };
    let switches = format!("{}:7700", own_address());
    let mut switch = start_switch(&switches);
    let variables = [("LIBRA_PLAN", plan.as_str()), ("LIBRA_SWITCH", &switches), ("PS_VERBOSE", "1")];
    let arguments = [&ROUNDS.to_string(), directory.path().to_str().unwrap()];
    let mut cluster = Cluster::start(&program, SERVERS, WORKERS, &arguments, &variables);
    let deadline = Instant::now() + TIMEOUT;
    while !directory.path().join("half").exists() {
        let has_ended = cluster.processes.values_mut().any(|child| child.try_wait().unwrap().is_some());
        if has_ended || Instant::now() > deadline {
            cluster.processes.values_mut().for_each(|child| drop(child.kill()));
            panic!("no worker came to the middle: {:?}", cluster.finish());
        }
        thread::sleep(Duration::from_millis(2));
    }
    switch.kill().unwrap();
    switch.wait().unwrap();
    fs::write(directory.path().join("on"), "").unwrap();
    let said = all_well(cluster.finish());
    assert_eq!(said.matches("every sum is right").count(), WORKERS, "{said}");
    assert!(said.contains("switch 0 of the job disappeared"), "{said}");
    let [_, _, _, pushed_hot, _, pushed_past, pulled_past] = summary(&said)[..] else { panic!("{said}") };
    assert!(pushed_hot > 0 && pushed_past > WORKERS as u64 && pulled_past > 0, "{said}");
}

#[test]
fn handlers_other_than_the_default_get_hot_keys_too() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, plan)) = program_and_plan(directory.path()) else { return };
    let Some(with_own) = compile("c++", "examples/sums.cc", &["-std=c++11"]) else { return };
    for (program, expected) in [(program, "every sum is right"), (with_own, "every weight is -10")] {
        let switches = format!("{}:7700", own_address());
        let mut switch = start_switch(&switches);
        let variables = [
            ("LIBRA_PLAN", plan.as_str()),
            ("LIBRA_SWITCH", &switches),
            ("PS_VERBOSE", "1"),
            ("BEGIN_WITH_A_VALUE", "yes"),
        ];
        let said = all_well(Cluster::start(&program, SERVERS, WORKERS, &[], &variables).finish());
        assert_eq!(said.matches(expected).count(), WORKERS, "{said}");
        // Pulls by which workers have probed their paths (rule T19) are the only packets.
        let [added, rounds, _, of_keys @ ..] = &summary(&said)[..] else { panic!("{said}") };
        assert_eq!((added, rounds, of_keys), (&0, &0, [0; 4].as_slice()), "{said}");
        assert!(switch.wait().unwrap().success());
    }
}

#[test]
fn a_death_ends_every_wait_and_the_switch() {
    for (dead, expected) in
        [("server1", "server 1 (node 10) at 127."), ("worker0", "worker 0 (node 9) at 127.")]
    {
        let directory = tempfile::tempdir().unwrap();
        let Some((_, plan)) = program_and_plan(directory.path()) else { return };
        let switches = format!("{}:7700", own_address());
        let switch = start_switch(&switches);
        kill_one("death", dead, expected, &[("LIBRA_PLAN", &plan), ("LIBRA_SWITCH", &switches)]);
        let output = switch.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(dead.trim_end_matches(char::is_numeric)), "{said}");
    }
}

#[test]
fn a_missing_part_of_a_plan_is_reported_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let Some((program, plan)) = program_and_plan(directory.path()) else { return };
    let switches = format!("{}:7700", own_address());
    let expected = format!("no switch has come to {switches}");
    let no_plan = directory.path().join("nowhere.toml").to_str().unwrap().to_owned();
    let cases = [
        (vec![("LIBRA_PLAN", &plan), ("LIBRA_SWITCH", &switches)], expected.as_str(), true),
        (vec![("LIBRA_PLAN", &plan)], "LIBRA_SWITCH is not set, and LIBRA_PLAN is", false),
        (vec![("LIBRA_SWITCH", &switches)], "LIBRA_PLAN is not set, and LIBRA_SWITCH is", false),
        (
            vec![("LIBRA_PLAN", &no_plan), ("LIBRA_SWITCH", &switches)],
            "nowhere.toml, which cannot be read",
            false,
        ),
    ];
    for (variables, expected, all) in cases {
        let mut variables: Vec<(&str, &str)> =
            variables.into_iter().map(|(name, value)| (name, value.as_str())).collect();
        variables.push(("LIBRA_PATIENCE", "1"));
        for ((role, number), output) in Cluster::start(&program, 1, 1, &["1"], &variables).finish() {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{role} {number} ended well: {said}");
            assert!(said.contains(expected) || (role != "scheduler" && !all), "{role} {number}: {said}");
        }
    }
}

#[test]
fn a_plan_expected_of_a_scheduler_without_one_is_an_error() {
    let Some(program) = compile("c++", "tests/programs/hot.cc", &["-std=c++14"]) else { return };
    let of_workers =
        |role: &str| if role == "worker" { vec![("LIBRA_PLAN", "plan.toml")] } else { Vec::new() };
    for ((role, _), output) in Cluster::start_each(&program, 1, 1, &["1"], of_workers).finish() {
        let said = String::from_utf8_lossy(&output.stderr);
        let expected =
            if role == "worker" { "LIBRA_PLAN is set here, and not for the scheduler" } else { "has died" };
        assert!(!output.status.success() && said.contains(expected), "{role}: {said}");
    }
}
