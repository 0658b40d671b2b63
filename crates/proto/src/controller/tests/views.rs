//! Order in which members are sent a change, and the owners that result.

use super::harness::{ControllerHarness, ms};
use crate::cluster::{Ownership, Peer, View};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::{Kind, Message};
use crate::statistics::{Statistics, SwitchStatistics};

use Peer::{Server, Switch, Worker};

/// Tests rule V3.
#[test]
fn a_cluster_begins_servers_first_and_workers_last() {
    let mut harness = ControllerHarness::new(2, 1, 2);
    for peer in [Switch(0), Worker(0), Server(0), Worker(1)] {
        harness.join(peer);
    }
    assert_eq!(harness.recipients(), []);
    harness.join(Server(1));
    assert_eq!(harness.recipients(), [Server(0), Server(1)]);
    harness.viewed(Server(1));
    // An early answer changes nothing.
    harness.viewed(Worker(0));
    harness.viewed(Switch(0));
    assert_eq!(harness.recipients(), []);
    harness.viewed(Server(0));
    assert_eq!(harness.recipients(), [Switch(0), Worker(0), Worker(1)], "the switch sent that it is ready");
    assert_eq!(harness.events().last(), Some(&ControllerEvent::Started));
    let ownership = Ownership { owner: Some(0), view_id: 1 };
    assert_eq!(harness.ownerships(), [ownership; 2]);
}

/// Tests rule V1.
#[test]
fn a_standby_takes_over_and_views_are_sent_in_order() {
    let mut harness = ControllerHarness::running(2, 2, 1, 2);
    assert_eq!(harness.owners(), [Some(0), Some(1)]);
    harness.break_stream(Switch(0));
    harness.pass(ms(199), &[]);
    assert_eq!((harness.recipients(), harness.lost()), (vec![], vec![]));
    harness.pass(ms(1), &[]);
    assert_eq!(harness.lost(), [Switch(0)]);
    assert_eq!(harness.owners(), [Some(2), Some(1)]);
    let view_id: Vec<u64> = harness.ownerships().iter().map(|ownership| ownership.view_id).collect();
    assert_eq!(view_id, [2, 1], "what has a good owner stays");
    assert_eq!(harness.recipients(), [Server(0), Server(1)]);
    harness.viewed(Server(0));
    // It acts on the view before.
    harness.from(Server(1), Message::Viewed { number: 1 });
    assert_eq!(harness.recipients(), []);
    harness.viewed(Server(1));
    assert_eq!(harness.recipients(), [Switch(1), Switch(2)]);
    harness.viewed(Switch(2));
    assert_eq!(harness.recipients(), []);
    assert_eq!(harness.events(), []);
    harness.pass(ms(30), &[]);
    harness.viewed(Switch(1));
    assert_eq!(harness.received_view(Worker(0)), Some(harness.view().of(Kind::Worker)));
    assert_eq!(harness.recipients(), [Worker(1)]);
    let Some(ControllerEvent::Settled { view: 2, moved: 1, took }) = harness.events().pop() else { panic!() };
    assert!(took >= ms(30) && took < ms(300));
    assert!(!harness.view().switches.contains_key(&0));
}

#[test]
fn a_switch_lost_before_the_servers_answered_gets_its_own_view() {
    let mut harness = ControllerHarness::running(2, 2, 1, 1);
    harness.break_stream(Switch(0));
    harness.pass(ms(100), &[]);
    harness.break_stream(Switch(1));
    harness.pass(ms(100), &[]);
    assert_eq!(harness.view().number, 2);
    harness.viewed(Server(0));
    harness.pass(ms(100), &[]);
    assert_eq!(harness.view().number, 3);
    assert_eq!(harness.owners(), [Some(2), Some(2)]);
    for server in [Server(0), Server(1)] {
        assert_eq!(harness.received(server).len(), 2, "both views");
        harness.from(server, Message::Viewed { number: 2 });
    }
    assert_eq!(harness.recipients(), [], "the servers act on the view before");
    harness.viewed(Server(0));
    harness.viewed(Server(1));
    assert_eq!(harness.recipients(), [Switch(2)]);
    harness.viewed(Switch(2));
    assert_eq!(harness.received_view(Worker(0)).map(|view| view.number), Some(3), "and of no view before");
    let settled = harness.events().pop();
    assert!(matches!(settled, Some(ControllerEvent::Settled { view: 3, moved: 2, took }) if took >= ms(100)));
}

#[test]
fn a_standby_that_dies_while_it_takes_over_is_replaced_too() {
    let mut harness = ControllerHarness::running(1, 1, 2, 1);
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    harness.viewed(Server(0));
    assert_eq!(harness.owners(), [Some(1)]);
    assert_eq!(harness.recipients(), [Server(0), Switch(1), Switch(2)]);
    // It never sends that it has the values; the other one does.
    harness.viewed(Switch(2));
    harness.pass(ms(800), &[Switch(1)]);
    assert_eq!(harness.lost(), [Switch(0), Switch(1)]);
    assert_eq!(harness.owners(), [Some(2)]);
    harness.viewed(Switch(2));
    assert_eq!(harness.recipients(), [Server(0)], "first the old view is fenced at the servers, again");
    harness.settle();
    assert!(matches!(harness.events().pop(), Some(ControllerEvent::Settled { view: 3, .. })));
}

/// Tests rule V8.
#[test]
fn regions_have_no_owner_until_a_switch_comes() {
    let mut harness = ControllerHarness::running(2, 1, 0, 1);
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    assert_eq!(harness.ownerships(), [Ownership { owner: None, view_id: 2 }; 2]);
    harness.links_of.remove(&Switch(0));
    harness.viewed(Server(0));
    assert_eq!(harness.recipients(), [Server(0), Server(1)]);
    harness.viewed(Server(1));
    assert_eq!(harness.recipients(), [Worker(0)], "there is no switch to wait for");
    harness.settle();
    let link = harness.join(Switch(1));
    assert_eq!(harness.view().switches.keys().copied().collect::<Vec<_>>(), [1], "no number is given twice");
    assert_eq!(harness.ownerships(), [Ownership { owner: Some(1), view_id: 3 }; 2]);
    assert_eq!(harness.received_on(link), [], "servers first");
    harness.viewed(Server(0));
    harness.viewed(Server(1));
    let started = harness.received_on(link);
    assert!(matches!(started.as_slice(), [Message::Start(start)] if start.you == Switch(1)));
}

#[test]
fn another_standby_moves_nothing() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    let before = harness.ownerships();
    harness.join(Switch(1));
    harness.settle();
    assert_eq!(harness.ownerships(), before);
    assert!(matches!(harness.events().pop(), Some(ControllerEvent::Settled { moved: 0, .. })));
}

/// Tests rule V9.
#[test]
fn a_migration_waits_for_the_last_drain() {
    let mut harness = ControllerHarness::running(2, 1, 1, 1);
    harness.command(ControllerCommand::Migrate { switch: 0 });
    assert_eq!(harness.received(Switch(0)), [Message::Retire]);
    harness.command(ControllerCommand::Migrate { switch: 1 });
    harness.command(ControllerCommand::Migrate { switch: 0 });
    assert_eq!((harness.recipients(), harness.view().number), (vec![], 1), "one at a time");
    harness.pass(ms(500), &[]);
    harness.from(Switch(0), Message::Retired);
    assert_eq!(harness.recipients(), [Server(0), Server(1)]);
    assert_eq!(harness.ownerships(), [Ownership { owner: Some(1), view_id: 2 }; 2]);
    assert!(harness.view().switches.contains_key(&0), "it is still there");
    // It comes too late to count again.
    harness.from(Switch(0), Message::Retired);
    assert_eq!(harness.view().number, 2);
    harness.settle();
    let settled = harness.events().pop();
    assert!(matches!(settled, Some(ControllerEvent::Settled { moved: 2, took, .. }) if took >= ms(500)));
}

#[test]
fn a_switch_that_does_not_retire_in_time_is_replaced_anyway() {
    let mut harness = ControllerHarness::running(1, 1, 1, 1);
    harness.command(ControllerCommand::Migrate { switch: 0 });
    harness.pass(ms(999), &[]);
    assert_eq!(harness.view().number, 1);
    harness.pass(ms(1), &[]);
    assert_eq!(harness.owners(), [Some(1)]);
    assert_eq!(harness.lost(), []);
}

#[test]
fn a_migration_that_has_nowhere_to_go_is_none() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    for switch in [0, 1, u16::MAX] {
        harness.command(ControllerCommand::Migrate { switch });
    }
    assert_eq!(harness.recipients(), []);
}

#[test]
fn a_switch_that_dies_in_retirement_is_lost_and_the_next_may() {
    let mut harness = ControllerHarness::running(1, 1, 2, 1);
    harness.command(ControllerCommand::Migrate { switch: 0 });
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    assert_eq!((harness.lost(), harness.owners()), (vec![Switch(0)], vec![Some(1)]));
    harness.settle();
    harness.pass(ms(1000), &[]);
    harness.recipients();
    harness.command(ControllerCommand::Migrate { switch: 1 });
    assert_eq!(harness.received(Switch(1)), [Message::Retire]);
    assert_eq!(harness.view().number, 2, "the end of the other retirement has changed nothing");
}

// rule V11
#[test]
fn a_member_is_sent_the_part_of_the_view_that_it_needs() {
    let mut harness = ControllerHarness::running(2, 2, 1, 3);
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    let whole = harness.view();
    let addresses = |view: &View| (view.switches.keys().copied().collect::<Vec<_>>(), view.workers.len());
    assert_eq!(addresses(&whole), (vec![1, 2], 3));
    for server in [Server(0), Server(1)] {
        assert_eq!(
            harness.received_view(server).as_ref(),
            Some(&whole),
            "what a restarted controller goes by"
        );
        harness.viewed(server);
    }
    let sent = harness.received_view(Switch(2)).unwrap();
    assert_eq!((addresses(&sent), &sent.workers), ((vec![], 3), &whole.workers));
    assert_eq!((sent.number, &sent.ownerships), (whole.number, &whole.ownerships));
    harness.viewed(Switch(1));
    harness.viewed(Switch(2));
    let sent = harness.received_view(Worker(1)).unwrap();
    assert_eq!((addresses(&sent), &sent.switches), ((vec![1, 2], 0), &whole.switches), "both hold a region");
    assert_eq!((sent.number, &sent.ownerships), (whole.number, &whole.ownerships));
    // A worker is not sent a switch that holds nothing.
    harness.settle();
    harness.join(Switch(3));
    for peer in [Server(0), Server(1), Switch(1), Switch(2), Switch(3)] {
        harness.viewed(peer);
    }
    let sent = harness.received_view(Worker(0)).unwrap();
    assert_eq!((addresses(&sent), harness.view().switches.len()), ((vec![1, 2], 0), 3));
}

#[test]
fn a_worker_takes_a_free_share_once_all_act_on_the_view() {
    let mut harness = ControllerHarness::running(1, 1, 0, 2);
    harness.break_stream(Worker(0));
    harness.pass(ms(2000), &[]);
    assert_eq!(harness.lost(), [Worker(0)]);
    harness.settle();
    harness.join(Worker(2));
    assert_eq!(harness.recipients(), [Server(0)]);
    harness.viewed(Server(0));
    assert_eq!(harness.recipients(), [Switch(0)]);
    harness.viewed(Switch(0));
    let received = harness.received(Worker(2));
    let [Message::Start(start)] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!((start.you, start.share), (Worker(2), 0));
    assert_eq!(start.cluster.view, harness.view().of(Kind::Worker));
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let link = harness.join(Worker(3));
    assert!(
        matches!(harness.received_on(link).as_slice(), [Message::NoPlace { .. }]),
        "both shares are taken"
    );
    assert!(harness.closed.contains(&link));
}

#[test]
fn a_switch_that_answers_only_probes_does_not_block_for_long() {
    let mut harness = ControllerHarness::running(1, 1, 2, 1);
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    harness.viewed(Server(0));
    harness.viewed(Switch(1));
    harness.pass(ms(1999), &[]);
    assert_eq!(harness.lost(), [Switch(0)]);
    harness.pass(ms(1), &[]);
    assert_eq!(harness.lost(), [Switch(2)]);
    assert_eq!((harness.view().number, harness.owners()), (3, vec![Some(1)]));
    harness.settle();
    harness.pass(ms(5000), &[]);
    assert_eq!(harness.lost(), []);
}

/// Tests rule M14.
#[test]
fn a_switch_is_lost_if_most_cannot_reach_it_or_one_repeats_it() {
    let complain = |harness: &mut ControllerHarness, worker, switch| {
        harness.from(Worker(worker), Message::Unreachable { switch })
    };
    let mut harness = ControllerHarness::running(1, 1, 1, 4);
    // Reports about one that holds nothing, or that does not exist, have no effect.
    for switch in [1, 1, 1, 9] {
        complain(&mut harness, 0, switch);
    }
    harness.from(Switch(1), Message::Unreachable { switch: 0 });
    for worker in 0..2 {
        complain(&mut harness, worker, 0);
    }
    assert_eq!(harness.lost(), []);
    complain(&mut harness, 2, 0);
    assert_eq!((harness.lost(), harness.owners()), (vec![Switch(0)], vec![Some(1)]));
    // A late report about one that is gone has no effect.
    complain(&mut harness, 3, 0);
    harness.settle();

    complain(&mut harness, 0, 1);
    harness.pass(ms(3100), &[]);
    for _ in 0..2 {
        complain(&mut harness, 0, 1);
        harness.pass(ms(2000), &[]);
    }
    assert_eq!(harness.lost(), [], "the first was too long ago");
    complain(&mut harness, 0, 1);
    assert_eq!((harness.lost(), harness.owners()), (vec![Switch(1)], vec![None]));
}

/// Two workers that cannot reach a switch with these counts complain. Returns the lost, and what the second of them and the switch received.
fn unreached(counts: SwitchStatistics) -> (Vec<Peer>, Vec<Message>, Vec<Message>) {
    let mut harness = ControllerHarness::running(1, 1, 1, 2);
    let probe = harness.newest_probe(Switch(0));
    harness.from(Switch(0), Message::Heartbeat { statistics: Statistics::Switch(counts), probe });
    for worker in 0..2 {
        harness.from(Worker(worker), Message::Unreachable { switch: 0 });
    }
    (harness.lost(), harness.received(Worker(1)), harness.received(Switch(0)))
}

// rule M14
#[test]
fn a_switch_to_which_nothing_has_come_is_told_and_ends() {
    let (lost, to_worker, to_switch) = unreached(SwitchStatistics::default());
    assert_eq!((lost, to_worker), (vec![Switch(0)], vec![]));
    let [Message::Abort { reason }] = to_switch.as_slice() else { panic!("{to_switch:?}") };
    for word in ["switch 0", "worker 1", "10.0.1.1:5000", "--advertise"] {
        assert!(reason.contains(word), "{word} is not in {reason:?}");
    }
    // One that has worked is only lost, and comes again.
    let (lost, to_worker, to_switch) = unreached(SwitchStatistics { packets: 1, ..Default::default() });
    assert_eq!((lost, to_worker, to_switch), (vec![Switch(0)], vec![], vec![]));
}

// rule M14
#[test]
fn a_worker_with_another_address_than_known_is_told_and_ends() {
    let counts = SwitchStatistics { unknown_senders: 40, ..Default::default() };
    let (lost, to_worker, to_switch) = unreached(counts);
    assert_eq!((lost, to_switch), (vec![Worker(1)], vec![]));
    let [Message::Abort { reason }] = to_worker.as_slice() else { panic!("{to_worker:?}") };
    for word in ["worker 1", "switch 0", "10.0.1.1", "--advertise"] {
        assert!(reason.contains(word), "{word} is not in {reason:?}");
    }
}

// rule M14
#[test]
fn complaints_that_come_at_once_count_once() {
    let mut harness = ControllerHarness::running(1, 2, 1, 4);
    for _ in 0..8 {
        for switch in [0, 1] {
            harness.from(Worker(2), Message::Unreachable { switch });
        }
        harness.pass(ms(10), &[]);
    }
    assert_eq!(harness.lost(), []);
}

// rule M14
#[test]
fn workers_without_the_view_of_a_switch_do_not_blame_it() {
    let mut harness = ControllerHarness::running(2, 1, 1, 2);
    // The flow restarts with an ownership that the switch acts on before its workers do.
    harness.from(Worker(1), Message::Renew { region: 0, view_id: 0 });
    for peer in [Server(0), Server(1), Switch(0)] {
        harness.viewed(peer);
    }
    let complain = |harness: &mut ControllerHarness| {
        for worker in 0..2 {
            harness.from(Worker(worker), Message::Unreachable { switch: 0 });
        }
        harness.lost()
    };
    assert_eq!(complain(&mut harness), []);
    harness.settle();
    assert_eq!(complain(&mut harness), [Switch(0)]);
}

#[test]
fn a_worker_that_can_reach_neither_switch_is_lost_itself() {
    let mut harness = ControllerHarness::running(1, 1, 1, 4);
    for switch in [0, 1] {
        for _ in 0..3 {
            harness.from(Worker(2), Message::Unreachable { switch });
            harness.pass(ms(2000), &[]);
        }
        harness.settle();
    }
    assert_eq!((harness.lost(), harness.owners()), (vec![Switch(0), Worker(2)], vec![Some(1)]));
}

// rule T3
#[test]
fn packets_on_their_way_are_as_many_as_a_switch_has_room_for() {
    // The switches of these tests have room for 1,820.
    for (workers, expected) in [(1, 512), (3, 512), (4, 455), (64, 28)] {
        let harness = ControllerHarness::running(1, 1, 0, workers);
        let found = harness.controller.cluster.hot_path.packets_in_flight_max;
        assert_eq!(found, expected, "{workers} workers");
    }
}

// rule T18
#[test]
fn a_flow_restarts_with_a_new_owner_of_its_region() {
    let mut harness = ControllerHarness::running(2, 1, 0, 2);
    harness.from(Worker(1), Message::Renew { region: 0, view_id: 0 });
    let view = harness.view();
    assert_eq!(
        view.ownerships,
        [Ownership { owner: Some(0), view_id: 2 }, Ownership { owner: Some(0), view_id: 1 }]
    );
    assert_eq!(view.flows, [((0, 1), 2)].into());
    // It may repeat that until it receives the view, and others may send invalid requests.
    harness.from(Worker(1), Message::Renew { region: 0, view_id: 0 });
    harness.from(Worker(0), Message::Renew { region: 0, view_id: 7 });
    harness.from(Worker(0), Message::Renew { region: 9, view_id: 0 });
    harness.from(Switch(0), Message::Renew { region: 0, view_id: 0 });
    assert_eq!(harness.view(), view);
    for peer in [Server(0), Server(1), Switch(0)] {
        harness.viewed(peer);
    }
    assert_eq!(harness.received_view(Worker(1)), Some(view.of(Kind::Worker)));
    harness.from(Worker(1), Message::Renew { region: 0, view_id: 2 });
    assert_eq!(harness.view().flows, [((0, 1), 3)].into());
}

// rule T18
#[test]
fn a_flow_of_a_region_without_owner_restarts_with_a_switch() {
    let mut harness = ControllerHarness::running(1, 1, 0, 1);
    harness.break_stream(Switch(0));
    harness.pass(ms(200), &[]);
    assert_eq!(harness.owners(), [None]);
    harness.from(Worker(0), Message::Renew { region: 0, view_id: 0 });
    assert_eq!((harness.view().number, harness.view().flows), (2, [].into()));
    harness.join(Switch(1));
    assert_eq!(harness.ownerships(), [Ownership { owner: Some(1), view_id: 3 }]);
    assert_eq!(harness.view().flows, [((0, 0), 3)].into());
}
