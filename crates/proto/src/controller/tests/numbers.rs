//! Numbers near their bounds, and texts without a bound.

use super::harness::{ControllerHarness, join, ms};
use crate::cluster::Peer;
use crate::controller::ControllerCommand;
use crate::message::{Kind, Message, REASON_BYTES_MAX};
use crate::statistics::{ServerStatistics, Statistics};

use Peer::{Server, Switch, Worker};

/// A switch joins. Returns its number, or the reason of the refusal.
fn switch_joins(harness: &mut ControllerHarness) -> Result<u16, String> {
    let link = harness.call();
    let before = harness.view().switches;
    harness.deliver(link, Message::Join(join(Kind::Switch, link)));
    if let Some(Message::Abort { reason }) = harness.received_on(link).pop() {
        return Err(reason);
    }
    let number = *harness.view().switches.keys().find(|number| !before.contains_key(number)).unwrap();
    harness.links_of.insert(Switch(number), link);
    Ok(number)
}

// rule M2
#[test]
fn the_last_switch_number_is_given_once_and_then_refused() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    // A switch that came and went every 200 ms for three and a half hours.
    harness.controller.cluster.view.next_switch = u16::MAX - 1;
    assert_eq!(switch_joins(&mut harness), Ok(u16::MAX - 1));
    harness.settle();
    let reason = switch_joins(&mut harness).unwrap_err();
    assert!(reason.starts_with("all 65535 numbers of switches have been given"), "{reason}");
    // The job goes on with those that are there.
    harness.break_stream(Switch(0));
    harness.pass(ms(300), &[]);
    assert_eq!(harness.owners(), [Some(u16::MAX - 1)]);
    assert_eq!(harness.failure(), None);
}

// rule M2
#[test]
fn a_member_that_joins_again_on_its_stream_uses_no_number_up() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    let next = |harness: &ControllerHarness| (harness.view().next_switch, harness.view().next_worker);
    let before = next(&harness);
    let link = harness.links_of[&Switch(0)];
    for _ in 0..10 {
        harness.deliver(link, Message::Join(join(Kind::Switch, link)));
    }
    harness.break_stream(Worker(1));
    harness.pass(ms(2100), &[]);
    let link = harness.links_of[&Worker(0)];
    for _ in 0..40 {
        harness.deliver(link, Message::Join(join(Kind::Worker, link)));
    }
    assert_eq!(next(&harness), before);
    // So the share is still there for a worker that comes.
    harness.join(Worker(2));
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [0, 2]);
}

// rules V1, M9
#[test]
fn a_cluster_whose_view_number_cannot_grow_is_refused() {
    for number in [1 << 63, u64::MAX - 1, u64::MAX] {
        let mut cluster = ControllerHarness::running(1, 1, 0, 1).cluster();
        cluster.view.number = number;
        let mut harness = ControllerHarness::new(1, 1, 1);
        let link = harness.rejoin_with(Server(0), |rejoin| rejoin.cluster = Some(Box::new(cluster)));
        let received = harness.received_on(link);
        assert!(matches!(received.as_slice(), [Message::Abort { .. }]), "{number}: {received:?}");
        // No member is kept waiting for the members of a cluster that does not exist.
        harness.join(Worker(0));
        harness.join(Switch(0));
        harness.join(Server(0));
        harness.settle();
        assert_eq!(harness.view().number, 1);
    }
}

// rule L2
#[test]
fn a_checkpoint_of_the_highest_number_is_no_panic() {
    let mut harness = ControllerHarness::running(1, 0, 0, 1);
    harness.controller.cluster.durability.log = true;
    let statistics =
        Statistics::Server(ServerStatistics { checkpoint: u64::MAX, ..ServerStatistics::default() });
    harness.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    harness.command(ControllerCommand::Checkpoint);
    assert_eq!(harness.received(Server(0)).last(), Some(&Message::Checkpoint { number: 2 }));
}

#[test]
fn a_reason_is_not_told_to_everybody_at_any_length() {
    let mut harness = ControllerHarness::running(1, 0, 0, 2);
    // Of characters of two bytes, of which one would be cut.
    harness.from(Worker(1), Message::Abort { reason: format!("a{}", "é".repeat(1 << 20)) });
    let failure = harness.failure().unwrap();
    assert!((REASON_BYTES_MAX..REASON_BYTES_MAX + 8).contains(&failure.len()), "{}", failure.len());
    for peer in [Server(0), Worker(0)] {
        assert_eq!(harness.received(peer), [Message::Abort { reason: failure.clone() }]);
    }
}
