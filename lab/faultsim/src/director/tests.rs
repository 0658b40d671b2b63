//! Violations that the director itself must detect.

use super::*;

fn director(seed: u64) -> Director {
    let mut scenario = Scenario::draw(seed);
    scenario.faults.clear();
    Director::new(scenario, None)
}

#[test]
fn without_faults_everything_comes_to_its_end() {
    assert_eq!(director(2).direct(), None);
}

#[test]
fn a_partition_without_end_violates_liveness() {
    let mut director = director(2);
    director.raise_curtain();
    while director.begun_at.is_none() {
        director.go_on();
    }
    // A partition that is never healed.
    let workers = director.alive(Kind::Worker);
    let others = [director.alive(Kind::Server), director.alive(Kind::Switch)].concat();
    director.world.partition(&workers, &others, true);
    let violation = director.play().expect("nothing can be pushed any more");
    assert_eq!(violation.checker, "liveness");
}

#[test]
fn a_barrier_that_ends_too_early_is_noticed() {
    let mut director = director(2);
    director.raise_curtain();
    while !director.users.values().any(|user| user.progress == Progress::Working) {
        director.go_on();
    }
    director.check_barrier(0);
    assert_eq!(director.world.observer.violation().map(|violation| violation.checker), Some("barriers"));
}

#[test]
fn a_member_that_is_given_up_for_no_reason_is_noticed() {
    let mut director = director(2);
    director.raise_curtain();
    while !director.users.values().any(|user| user.progress == Progress::Working && user.worker == 0) {
        director.go_on();
    }
    director.lost(Peer::Worker(0), "because");
    assert_eq!(director.world.observer.violation().map(|violation| violation.checker), Some("liveness"));
}
