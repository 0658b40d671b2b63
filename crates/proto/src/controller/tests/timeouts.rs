//! Timeouts after which a member is taken for dead.

use core::time::Duration;

use super::harness::{ControllerHarness, ms};
use crate::cluster::Peer;
use crate::controller::ControllerCommand;
use crate::message::Message;
use crate::role::Role;
use crate::statistics::{Statistics, SwitchStatistics};

use Peer::{Server, Switch, Worker};

fn probes(harness: &mut ControllerHarness, peer: Peer) -> Vec<u64> {
    let probe = |message| if let Message::Probe { number } = message { Some(number) } else { None };
    harness.received_on(harness.links_of[&peer]).into_iter().filter_map(probe).collect()
}

#[test]
fn every_switch_is_probed_ten_times_a_second() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.pass(ms(500), &[]);
    assert_eq!(probes(&mut harness, Switch(0)), [1, 2, 3, 4, 5]);
    assert_eq!(probes(&mut harness, Switch(1)), [1, 2, 3, 4, 5]);
    assert_eq!(probes(&mut harness, Server(0)), [0; 0]);
}

#[test]
fn a_switch_times_out_after_700_ms() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.pass(ms(699), &[Switch(0)]);
    assert_eq!(harness.lost(), []);
    harness.pass(ms(1), &[Switch(0)]);
    assert_eq!(harness.lost(), [Switch(0)]);
    assert!(harness.closed.contains(&harness.links_of[&Switch(0)]));
}

#[test]
fn a_timeout_of_10_s_loses_a_worker_and_a_server_ends_the_job() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    harness.pass(ms(9999), &[Worker(0)]);
    assert_eq!(harness.lost(), []);
    harness.pass(ms(1), &[Worker(0)]);
    assert_eq!(harness.lost(), [Worker(0)]);
    harness.settle();
    harness.events();
    harness.pass(ms(9999), &[Server(0)]);
    assert_eq!(harness.events(), []);
    harness.pass(ms(1), &[Server(0)]);
    assert!(harness.failure().is_some_and(|reason| reason.starts_with("server 0")));
    assert!(matches!(harness.received(Worker(1)).as_slice(), [Message::Abort { .. }]));
    assert_eq!(harness.controller.poll_timeout(), None);
}

#[test]
fn a_broken_stream_may_be_opened_again_in_time() {
    let mut harness = ControllerHarness::running(1, 1, 1, 2);
    for peer in [Switch(0), Worker(0), Server(0)] {
        harness.break_stream(peer);
    }
    harness.pass(ms(199), &[]);
    harness.rejoin(Switch(0));
    harness.pass(ms(1800), &[]);
    harness.rejoin(Worker(0));
    harness.rejoin(Server(0));
    harness.pass(ms(5000), &[]);
    assert_eq!((harness.events(), harness.view().number), (vec![], 1));
}

/// Tests rule M13.
#[test]
fn a_controller_that_slept_loses_no_member() {
    let mut harness = ControllerHarness::running(1, 1, 1, 2);
    for first in 0..3 {
        harness.now = harness.now + Duration::from_secs(60);
        let now = harness.now;
        // Whatever it is that wakes it.
        match first {
            0 => harness.controller.handle_timeout(now),
            1 => harness.viewed(Server(0)),
            _ => harness.command(ControllerCommand::Migrate { switch: 77 }),
        }
        harness.controller.handle_timeout(now);
        assert_eq!((harness.events(), harness.view().number), (vec![], 1));
        harness.pass(ms(2000), &[]);
    }
    assert_eq!((harness.events(), harness.view().number), (vec![], 1));
    // Dead members are still detected.
    harness.now = harness.now + Duration::from_secs(60);
    harness.controller.handle_timeout(harness.now);
    harness.pass(ms(701), &[Switch(0)]);
    assert_eq!(harness.lost(), [Switch(0)]);
}

// rule M13
#[test]
fn a_sleep_shorter_than_the_timeout_does_not_count_either() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    harness.break_stream(Server(0));
    harness.pass(ms(76), &[Server(0)]);
    harness.now = harness.now + ms(1923);
    harness.controller.handle_timeout(harness.now);
    harness.pass(ms(100), &[Server(0)]);
    harness.rejoin(Server(0));
    assert_eq!((harness.failure(), harness.events()), (None, vec![]));
}

#[test]
fn a_timer_that_is_a_little_late_is_no_sleep() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.pass(ms(600), &[Switch(0)]);
    harness.now = harness.now + ms(190);
    harness.controller.handle_timeout(harness.now);
    assert_eq!(harness.lost(), [Switch(0)]);
}

/// Each probe of switch 0 is answered `hundreds` tenths of a second and 20 ms later.
fn slow(harness: &mut ControllerHarness, seconds: u64, hundreds: u64) {
    let statistics = Statistics::Switch(SwitchStatistics::default());
    for _ in 0..10 * seconds {
        harness.pass(ms(20), &[Switch(0)]);
        let probe = harness.newest_probe(Switch(0)).saturating_sub(hundreds);
        harness.from(Switch(0), Message::Heartbeat { statistics, probe });
        harness.pass(ms(80), &[Switch(0)]);
    }
}

#[test]
fn a_slow_switch_retires_when_a_standby_is_there() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    slow(&mut harness, 6, 3);
    assert!(harness.received(Switch(0)).contains(&Message::Retire));
    // Without one it goes on as it is.
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    slow(&mut harness, 6, 3);
    assert_eq!(harness.received(Switch(0)), []);
}

#[test]
fn a_cluster_that_gathers_lets_members_go_and_others_come() {
    let mut harness = ControllerHarness::new(1, 1, 1);
    harness.join(Server(0));
    harness.join(Switch(0));
    harness.break_stream(Server(0));
    harness.join(Server(0));
    harness.break_stream(Switch(0));
    harness.join(Switch(0));
    harness.join(Worker(0));
    assert_eq!(harness.recipients(), [Server(0)]);
    harness.settle();
    assert_eq!(harness.owners(), [Some(0)]);
}

#[test]
fn a_controller_without_members_waits_for_ever() {
    assert_eq!(ControllerHarness::new(1, 1, 1).controller.poll_timeout(), None);
}
