//! Timeouts after which a member is taken for dead.

use core::time::Duration;

use super::desk::{Desk, ms};
use crate::cluster::Peer;
use crate::controller::ControllerCommand;
use crate::message::Message;
use crate::role::Role;
use crate::statistics::{Statistics, SwitchStatistics};

use Peer::{Server, Switch, Worker};

fn probes(desk: &mut Desk, peer: Peer) -> Vec<u64> {
    let probe = |message| if let Message::Probe { number } = message { Some(number) } else { None };
    desk.heard_on(desk.links_of[&peer]).into_iter().filter_map(probe).collect()
}

#[test]
fn every_switch_is_probed_ten_times_a_second() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.pass(ms(500), &[]);
    assert_eq!(probes(&mut desk, Switch(0)), [1, 2, 3, 4, 5]);
    assert_eq!(probes(&mut desk, Switch(1)), [1, 2, 3, 4, 5]);
    assert_eq!(probes(&mut desk, Server(0)), [0; 0]);
}

#[test]
fn a_switch_times_out_after_700_ms() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.pass(ms(699), &[Switch(0)]);
    assert_eq!(desk.lost(), []);
    desk.pass(ms(1), &[Switch(0)]);
    assert_eq!(desk.lost(), [Switch(0)]);
    assert!(desk.closed.contains(&desk.links_of[&Switch(0)]));
}

#[test]
fn a_timeout_of_10_s_loses_a_worker_and_a_server_ends_the_job() {
    let mut desk = Desk::running(1, 1, 0, 2);
    desk.pass(ms(9999), &[Worker(0)]);
    assert_eq!(desk.lost(), []);
    desk.pass(ms(1), &[Worker(0)]);
    assert_eq!(desk.lost(), [Worker(0)]);
    desk.settle();
    desk.events();
    desk.pass(ms(9999), &[Server(0)]);
    assert_eq!(desk.events(), []);
    desk.pass(ms(1), &[Server(0)]);
    assert!(desk.failure().is_some_and(|reason| reason.starts_with("server 0")));
    assert!(matches!(desk.heard(Worker(1)).as_slice(), [Message::Abort { .. }]));
    assert_eq!(desk.controller.poll_timeout(), None);
}

#[test]
fn a_broken_stream_may_be_opened_again_in_time() {
    let mut desk = Desk::running(1, 1, 1, 2);
    for peer in [Switch(0), Worker(0), Server(0)] {
        desk.break_stream(peer);
    }
    desk.pass(ms(199), &[]);
    desk.rejoin(Switch(0));
    desk.pass(ms(1800), &[]);
    desk.rejoin(Worker(0));
    desk.rejoin(Server(0));
    desk.pass(ms(5000), &[]);
    assert_eq!((desk.events(), desk.view().number), (vec![], 1));
}

/// Tests rule M13.
#[test]
fn a_controller_that_slept_loses_no_member() {
    let mut desk = Desk::running(1, 1, 1, 2);
    for first in 0..3 {
        desk.now = desk.now + Duration::from_secs(60);
        let now = desk.now;
        // Whatever it is that wakes it.
        match first {
            0 => desk.controller.handle_timeout(now),
            1 => desk.viewed(Server(0)),
            _ => desk.command(ControllerCommand::Migrate { switch: 77 }),
        }
        desk.controller.handle_timeout(now);
        assert_eq!((desk.events(), desk.view().number), (vec![], 1));
        desk.pass(ms(2000), &[]);
    }
    assert_eq!((desk.events(), desk.view().number), (vec![], 1));
    // Dead members are still detected.
    desk.now = desk.now + Duration::from_secs(60);
    desk.controller.handle_timeout(desk.now);
    desk.pass(ms(701), &[Switch(0)]);
    assert_eq!(desk.lost(), [Switch(0)]);
}

// rule M13
#[test]
fn a_sleep_shorter_than_the_timeout_does_not_count_either() {
    let mut desk = Desk::running(1, 0, 0, 2);
    desk.break_stream(Server(0));
    desk.pass(ms(76), &[Server(0)]);
    desk.now = desk.now + ms(1923);
    desk.controller.handle_timeout(desk.now);
    desk.pass(ms(100), &[Server(0)]);
    desk.rejoin(Server(0));
    assert_eq!((desk.failure(), desk.events()), (None, vec![]));
}

#[test]
fn a_timer_that_is_a_little_late_is_no_sleep() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.pass(ms(600), &[Switch(0)]);
    desk.now = desk.now + ms(190);
    desk.controller.handle_timeout(desk.now);
    assert_eq!(desk.lost(), [Switch(0)]);
}

/// Each probe of switch 0 is answered `hundreds` tenths of a second and 20 ms later.
fn slow(desk: &mut Desk, seconds: u64, hundreds: u64) {
    let statistics = Statistics::Switch(SwitchStatistics::default());
    for _ in 0..10 * seconds {
        desk.pass(ms(20), &[Switch(0)]);
        let probe = desk.newest_probe(Switch(0)).saturating_sub(hundreds);
        desk.from(Switch(0), Message::Heartbeat { statistics, probe });
        desk.pass(ms(80), &[Switch(0)]);
    }
}

#[test]
fn a_slow_switch_retires_when_a_standby_is_there() {
    let mut desk = Desk::running(1, 1, 1, 1);
    slow(&mut desk, 6, 3);
    assert!(desk.heard(Switch(0)).contains(&Message::Retire));
    // Without one it goes on as it is.
    let mut desk = Desk::running(1, 1, 0, 1);
    slow(&mut desk, 6, 3);
    assert_eq!(desk.heard(Switch(0)), []);
}

#[test]
fn a_cluster_that_gathers_lets_members_go_and_others_come() {
    let mut desk = Desk::new(1, 1, 1);
    desk.join(Server(0));
    desk.join(Switch(0));
    desk.break_stream(Server(0));
    desk.join(Server(0));
    desk.break_stream(Switch(0));
    desk.join(Switch(0));
    desk.join(Worker(0));
    assert_eq!(desk.who_heard(), [Server(0)]);
    desk.settle();
    assert_eq!(desk.holders(), [Some(0)]);
}

#[test]
fn a_controller_without_members_waits_for_ever() {
    assert_eq!(Desk::new(1, 1, 1).controller.poll_timeout(), None);
}
