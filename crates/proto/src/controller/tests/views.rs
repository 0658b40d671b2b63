//! Order in which members are sent a change, and the holders that result.

use super::desk::{Desk, ms};
use crate::cluster::{Peer, Tenure, View};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::{Kind, Message};

use Peer::{Server, Switch, Worker};

/// Tests rule V3.
#[test]
fn a_cluster_begins_servers_first_and_workers_last() {
    let mut desk = Desk::new(2, 1, 2);
    for peer in [Switch(0), Worker(0), Server(0), Worker(1)] {
        desk.join(peer);
    }
    assert_eq!(desk.who_heard(), []);
    desk.join(Server(1));
    assert_eq!(desk.who_heard(), [Server(0), Server(1)]);
    desk.viewed(Server(1));
    // An early answer changes nothing.
    desk.viewed(Worker(0));
    desk.viewed(Switch(0));
    assert_eq!(desk.who_heard(), []);
    desk.viewed(Server(0));
    assert_eq!(desk.who_heard(), [Switch(0), Worker(0), Worker(1)], "the switch sent that it is ready");
    assert_eq!(desk.events().last(), Some(&ControllerEvent::Started));
    let tenure = Tenure { holder: Some(0), since: 1 };
    assert_eq!(desk.tenures(), [tenure; 2]);
}

/// Tests rule V1.
#[test]
fn a_standby_takes_over_and_views_are_sent_in_order() {
    let mut desk = Desk::running(2, 2, 1, 2);
    assert_eq!(desk.holders(), [Some(0), Some(1)]);
    desk.break_stream(Switch(0));
    desk.pass(ms(199), &[]);
    assert_eq!((desk.who_heard(), desk.lost()), (vec![], vec![]));
    desk.pass(ms(1), &[]);
    assert_eq!(desk.lost(), [Switch(0)]);
    assert_eq!(desk.holders(), [Some(2), Some(1)]);
    let since: Vec<u64> = desk.tenures().iter().map(|tenure| tenure.since).collect();
    assert_eq!(since, [2, 1], "what has a good holder stays");
    assert_eq!(desk.who_heard(), [Server(0), Server(1)]);
    desk.viewed(Server(0));
    // It acts on the view before.
    desk.from(Server(1), Message::Viewed { number: 1 });
    assert_eq!(desk.who_heard(), []);
    desk.viewed(Server(1));
    assert_eq!(desk.who_heard(), [Switch(1), Switch(2)]);
    desk.viewed(Switch(2));
    assert_eq!(desk.who_heard(), []);
    assert_eq!(desk.events(), []);
    desk.pass(ms(30), &[]);
    desk.viewed(Switch(1));
    assert_eq!(desk.heard_view(Worker(0)), Some(desk.view().of(Kind::Worker)));
    assert_eq!(desk.who_heard(), [Worker(1)]);
    let Some(ControllerEvent::Settled { view: 2, moved: 1, took }) = desk.events().pop() else { panic!() };
    assert!(took >= ms(30) && took < ms(300));
    assert!(!desk.view().switches.contains_key(&0));
}

#[test]
fn a_switch_lost_before_the_servers_answered_gets_its_own_view() {
    let mut desk = Desk::running(2, 2, 1, 1);
    desk.break_stream(Switch(0));
    desk.pass(ms(100), &[]);
    desk.break_stream(Switch(1));
    desk.pass(ms(100), &[]);
    assert_eq!(desk.view().number, 2);
    desk.viewed(Server(0));
    desk.pass(ms(100), &[]);
    assert_eq!(desk.view().number, 3);
    assert_eq!(desk.holders(), [Some(2), Some(2)]);
    for server in [Server(0), Server(1)] {
        assert_eq!(desk.heard(server).len(), 2, "both views");
        desk.from(server, Message::Viewed { number: 2 });
    }
    assert_eq!(desk.who_heard(), [], "the servers act on the view before");
    desk.viewed(Server(0));
    desk.viewed(Server(1));
    assert_eq!(desk.who_heard(), [Switch(2)]);
    desk.viewed(Switch(2));
    assert_eq!(desk.heard_view(Worker(0)).map(|view| view.number), Some(3), "and of no view before");
    let settled = desk.events().pop();
    assert!(matches!(settled, Some(ControllerEvent::Settled { view: 3, moved: 2, took }) if took >= ms(100)));
}

#[test]
fn a_standby_that_dies_while_it_takes_over_is_replaced_too() {
    let mut desk = Desk::running(1, 1, 2, 1);
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    desk.viewed(Server(0));
    assert_eq!(desk.holders(), [Some(1)]);
    assert_eq!(desk.who_heard(), [Server(0), Switch(1), Switch(2)]);
    // It never sends that it has the values; the other one does.
    desk.viewed(Switch(2));
    desk.pass(ms(800), &[Switch(1)]);
    assert_eq!(desk.lost(), [Switch(0), Switch(1)]);
    assert_eq!(desk.holders(), [Some(2)]);
    desk.viewed(Switch(2));
    assert_eq!(desk.who_heard(), [Server(0)], "first the old view is fenced at the servers, again");
    desk.settle();
    assert!(matches!(desk.events().pop(), Some(ControllerEvent::Settled { view: 3, .. })));
}

/// Tests rule V8.
#[test]
fn regions_have_no_holder_until_a_switch_comes() {
    let mut desk = Desk::running(2, 1, 0, 1);
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    assert_eq!(desk.tenures(), [Tenure { holder: None, since: 2 }; 2]);
    desk.links_of.remove(&Switch(0));
    desk.viewed(Server(0));
    assert_eq!(desk.who_heard(), [Server(0), Server(1)]);
    desk.viewed(Server(1));
    assert_eq!(desk.who_heard(), [Worker(0)], "there is no switch to wait for");
    desk.settle();
    let link = desk.join(Switch(1));
    assert_eq!(desk.view().switches.keys().copied().collect::<Vec<_>>(), [1], "no number is given twice");
    assert_eq!(desk.tenures(), [Tenure { holder: Some(1), since: 3 }; 2]);
    assert_eq!(desk.heard_on(link), [], "servers first");
    desk.viewed(Server(0));
    desk.viewed(Server(1));
    let started = desk.heard_on(link);
    assert!(matches!(started.as_slice(), [Message::Start(start)] if start.you == Switch(1)));
}

#[test]
fn another_standby_moves_nothing() {
    let mut desk = Desk::running(1, 1, 0, 1);
    let before = desk.tenures();
    desk.join(Switch(1));
    desk.settle();
    assert_eq!(desk.tenures(), before);
    assert!(matches!(desk.events().pop(), Some(ControllerEvent::Settled { moved: 0, .. })));
}

/// Tests rule V9.
#[test]
fn a_migration_waits_for_the_last_drain() {
    let mut desk = Desk::running(2, 1, 1, 1);
    desk.command(ControllerCommand::Migrate { switch: 0 });
    assert_eq!(desk.heard(Switch(0)), [Message::Retire]);
    desk.command(ControllerCommand::Migrate { switch: 1 });
    desk.command(ControllerCommand::Migrate { switch: 0 });
    assert_eq!((desk.who_heard(), desk.view().number), (vec![], 1), "one at a time");
    desk.pass(ms(500), &[]);
    desk.from(Switch(0), Message::Retired);
    assert_eq!(desk.who_heard(), [Server(0), Server(1)]);
    assert_eq!(desk.tenures(), [Tenure { holder: Some(1), since: 2 }; 2]);
    assert!(desk.view().switches.contains_key(&0), "it is still there");
    // It comes too late to count again.
    desk.from(Switch(0), Message::Retired);
    assert_eq!(desk.view().number, 2);
    desk.settle();
    let settled = desk.events().pop();
    assert!(matches!(settled, Some(ControllerEvent::Settled { moved: 2, took, .. }) if took >= ms(500)));
}

#[test]
fn a_switch_that_does_not_retire_in_time_is_replaced_anyway() {
    let mut desk = Desk::running(1, 1, 1, 1);
    desk.command(ControllerCommand::Migrate { switch: 0 });
    desk.pass(ms(999), &[]);
    assert_eq!(desk.view().number, 1);
    desk.pass(ms(1), &[]);
    assert_eq!(desk.holders(), [Some(1)]);
    assert_eq!(desk.lost(), []);
}

#[test]
fn a_migration_that_has_nowhere_to_go_is_none() {
    let mut desk = Desk::running(1, 1, 0, 1);
    for switch in [0, 1, u16::MAX] {
        desk.command(ControllerCommand::Migrate { switch });
    }
    assert_eq!(desk.who_heard(), []);
}

#[test]
fn a_switch_that_dies_in_retirement_is_lost_and_the_next_may() {
    let mut desk = Desk::running(1, 1, 2, 1);
    desk.command(ControllerCommand::Migrate { switch: 0 });
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    assert_eq!((desk.lost(), desk.holders()), (vec![Switch(0)], vec![Some(1)]));
    desk.settle();
    desk.pass(ms(1000), &[]);
    desk.who_heard();
    desk.command(ControllerCommand::Migrate { switch: 1 });
    assert_eq!(desk.heard(Switch(1)), [Message::Retire]);
    assert_eq!(desk.view().number, 2, "the end of the other retirement has changed nothing");
}

// rule V11
#[test]
fn a_member_is_sent_the_part_of_the_view_that_it_needs() {
    let mut desk = Desk::running(2, 2, 1, 3);
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    let whole = desk.view();
    let addresses = |view: &View| (view.switches.keys().copied().collect::<Vec<_>>(), view.workers.len());
    assert_eq!(addresses(&whole), (vec![1, 2], 3));
    for server in [Server(0), Server(1)] {
        assert_eq!(desk.heard_view(server).as_ref(), Some(&whole), "what a restarted controller goes by");
        desk.viewed(server);
    }
    let told = desk.heard_view(Switch(2)).unwrap();
    assert_eq!((addresses(&told), &told.workers), ((vec![], 3), &whole.workers));
    assert_eq!((told.number, &told.tenures), (whole.number, &whole.tenures));
    desk.viewed(Switch(1));
    desk.viewed(Switch(2));
    let told = desk.heard_view(Worker(1)).unwrap();
    assert_eq!((addresses(&told), &told.switches), ((vec![1, 2], 0), &whole.switches), "both hold a region");
    assert_eq!((told.number, &told.tenures), (whole.number, &whole.tenures));
    // A worker is not sent a switch that holds nothing.
    desk.settle();
    desk.join(Switch(3));
    for peer in [Server(0), Server(1), Switch(1), Switch(2), Switch(3)] {
        desk.viewed(peer);
    }
    let told = desk.heard_view(Worker(0)).unwrap();
    assert_eq!((addresses(&told), desk.view().switches.len()), ((vec![1, 2], 0), 3));
}

#[test]
fn a_worker_takes_a_free_share_once_all_act_on_the_view() {
    let mut desk = Desk::running(1, 1, 0, 2);
    desk.break_stream(Worker(0));
    desk.pass(ms(2000), &[]);
    assert_eq!(desk.lost(), [Worker(0)]);
    desk.settle();
    desk.join(Worker(2));
    assert_eq!(desk.who_heard(), [Server(0)]);
    desk.viewed(Server(0));
    assert_eq!(desk.who_heard(), [Switch(0)]);
    desk.viewed(Switch(0));
    let heard = desk.heard(Worker(2));
    let [Message::Start(start)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((start.you, start.share), (Worker(2), 0));
    assert_eq!(start.cluster.view, desk.view().of(Kind::Worker));
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let link = desk.join(Worker(3));
    assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]), "both shares are taken");
    assert!(desk.closed.contains(&link));
}

#[test]
fn a_switch_that_answers_only_probes_does_not_block_for_long() {
    let mut desk = Desk::running(1, 1, 2, 1);
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    desk.viewed(Server(0));
    desk.viewed(Switch(1));
    desk.pass(ms(1999), &[]);
    assert_eq!(desk.lost(), [Switch(0)]);
    desk.pass(ms(1), &[]);
    assert_eq!(desk.lost(), [Switch(2)]);
    assert_eq!((desk.view().number, desk.holders()), (3, vec![Some(1)]));
    desk.settle();
    desk.pass(ms(5000), &[]);
    assert_eq!(desk.lost(), []);
}

/// Tests rule M14.
#[test]
fn a_switch_is_lost_if_most_cannot_reach_it_or_one_repeats_it() {
    let complain =
        |desk: &mut Desk, worker, switch| desk.from(Worker(worker), Message::Unreachable { switch });
    let mut desk = Desk::running(1, 1, 1, 4);
    // Reports about one that holds nothing, or that does not exist, have no effect.
    for switch in [1, 1, 1, 9] {
        complain(&mut desk, 0, switch);
    }
    desk.from(Switch(1), Message::Unreachable { switch: 0 });
    for worker in 0..2 {
        complain(&mut desk, worker, 0);
    }
    assert_eq!(desk.lost(), []);
    complain(&mut desk, 2, 0);
    assert_eq!((desk.lost(), desk.holders()), (vec![Switch(0)], vec![Some(1)]));
    // A late report about one that is gone has no effect.
    complain(&mut desk, 3, 0);
    desk.settle();

    complain(&mut desk, 0, 1);
    desk.pass(ms(3100), &[]);
    for _ in 0..2 {
        complain(&mut desk, 0, 1);
        desk.pass(ms(2000), &[]);
    }
    assert_eq!(desk.lost(), [], "the first was too long ago");
    complain(&mut desk, 0, 1);
    assert_eq!((desk.lost(), desk.holders()), (vec![Switch(1)], vec![None]));
}

#[test]
fn a_worker_that_can_reach_neither_switch_is_lost_itself() {
    let mut desk = Desk::running(1, 1, 1, 4);
    for switch in [0, 1] {
        for _ in 0..3 {
            desk.from(Worker(2), Message::Unreachable { switch });
            desk.pass(ms(2000), &[]);
        }
        desk.settle();
    }
    assert_eq!((desk.lost(), desk.holders()), (vec![Switch(0), Worker(2)], vec![Some(1)]));
}

// rule T3
#[test]
fn packets_on_their_way_are_as_many_as_a_switch_has_room_for() {
    // The switches of these tests have room for 1,820.
    for (workers, expected) in [(1, 512), (3, 512), (4, 455), (64, 28)] {
        let desk = Desk::running(1, 1, 0, workers);
        let found = desk.controller.cluster.hot_path.packets_in_flight_max;
        assert_eq!(found, expected, "{workers} workers");
    }
}

// rule T18
#[test]
fn a_flow_restarts_with_a_new_tenure_of_its_region() {
    let mut desk = Desk::running(2, 1, 0, 2);
    desk.from(Worker(1), Message::Renew { region: 0, since: 0 });
    let view = desk.view();
    assert_eq!(view.tenures, [Tenure { holder: Some(0), since: 2 }, Tenure { holder: Some(0), since: 1 }]);
    assert_eq!(view.flows, [((0, 1), 2)].into());
    // It may repeat that until it receives the view, and others may send invalid requests.
    desk.from(Worker(1), Message::Renew { region: 0, since: 0 });
    desk.from(Worker(0), Message::Renew { region: 0, since: 7 });
    desk.from(Worker(0), Message::Renew { region: 9, since: 0 });
    desk.from(Switch(0), Message::Renew { region: 0, since: 0 });
    assert_eq!(desk.view(), view);
    for peer in [Server(0), Server(1), Switch(0)] {
        desk.viewed(peer);
    }
    assert_eq!(desk.heard_view(Worker(1)), Some(view.of(Kind::Worker)));
    desk.from(Worker(1), Message::Renew { region: 0, since: 2 });
    assert_eq!(desk.view().flows, [((0, 1), 3)].into());
}

// rule T18
#[test]
fn a_flow_of_a_region_without_holder_restarts_with_a_switch() {
    let mut desk = Desk::running(1, 1, 0, 1);
    desk.break_stream(Switch(0));
    desk.pass(ms(200), &[]);
    assert_eq!(desk.holders(), [None]);
    desk.from(Worker(0), Message::Renew { region: 0, since: 0 });
    assert_eq!((desk.view().number, desk.view().flows), (2, [].into()));
    desk.join(Switch(1));
    assert_eq!(desk.tenures(), [Tenure { holder: Some(1), since: 3 }]);
    assert_eq!(desk.view().flows, [((0, 0), 3)].into());
}
