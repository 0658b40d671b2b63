//! Violations that the runner itself must detect.

use super::*;
use crate::scenario::{Fault, Target};

fn runner(seed: u64) -> ScenarioRunner {
    let mut scenario = Scenario::draw(seed);
    scenario.faults.clear();
    ScenarioRunner::new(scenario, None)
}

/// A scenario in which all members have started.
fn begun(seed: u64) -> ScenarioRunner {
    let mut runner = runner(seed);
    runner.start_processes();
    while runner.begun_at.is_none() {
        runner.go_on();
    }
    runner
}

#[test]
fn without_faults_everything_comes_to_its_end() {
    assert_eq!(runner(2).run_to_end(), None);
}

#[test]
fn a_partition_without_end_violates_liveness() {
    let mut runner = begun(2);
    // A partition that is never healed.
    let workers = runner.alive(Kind::Worker);
    let others = [runner.alive(Kind::Server), runner.alive(Kind::Switch)].concat();
    runner.world.partition(&workers, &others, true);
    let violation = runner.run_until_violation().expect("nothing can be pushed any more");
    assert_eq!(violation.checker, "liveness");
}

#[test]
fn a_barrier_that_ends_too_early_is_noticed() {
    let mut runner = runner(2);
    runner.start_processes();
    while !runner.users.values().any(|user| user.progress == Progress::Working) {
        runner.go_on();
    }
    runner.check_barrier(0);
    assert_eq!(runner.world.observer.violation().map(|violation| violation.checker), Some("barriers"));
}

#[test]
fn a_member_that_is_given_up_for_no_reason_is_noticed() {
    let mut runner = runner(2);
    runner.start_processes();
    while !runner.users.values().any(|user| user.progress == Progress::Working && user.worker == 0) {
        runner.go_on();
    }
    runner.lost(Peer::Worker(0), "because");
    assert_eq!(runner.world.observer.violation().map(|violation| violation.checker), Some("liveness"));
}

// rule M7
#[test]
fn a_server_is_away_no_longer_than_a_disk_allows() {
    let lasts = Duration::from_secs(38);
    for receives in [true, false] {
        // Its server has a disk.
        let mut runner = begun(8702);
        runner.inject(Fault::OneWay { victim: Target::Server, receives, lasts });
        // Its 30 s begin at once.
        let server = runner.alive(Kind::Server)[0];
        (0..runner.kinds.len()).for_each(|other| runner.world.reset_streams(server, other));
        assert_eq!(runner.run_until_violation(), None, "it receives nothing: {receives}");
    }
}

// rule M5
#[test]
fn a_server_without_a_disk_keeps_its_streams_while_cut_off() {
    let mut runner = begun(2);
    let (controller, server) = (runner.controller, runner.alive(Kind::Server)[0]);
    assert!(!runner.scenario.durability.needs_disk());
    assert!(!runner.world.must_keep_streams(controller, server));
    runner.world.partition(&[controller], &[server], false);
    assert!(runner.world.must_keep_streams(controller, server));
    runner.world.heal(&[controller], &[server], false);
    runner.world.pause(server);
    assert!(runner.world.must_keep_streams(server, controller));
}

#[test]
fn pushes_to_shards_that_are_gone_are_not_those_of_another() {
    // A server of three shards dies after workers have called it, and before they say which shard they call.
    let scenario = Scenario::draw(18_935);
    assert_eq!(scenario.shards_per_server, 3);
    assert_eq!(ScenarioRunner::new(scenario, None).run_to_end(), None);
}
