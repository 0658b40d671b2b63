//! Regions and their holders: fencing, adoption, commits.

use super::counter::{CONTROLLER, Counter, address, cut, drained, push, values};
use crate::cluster::{Peer, Tenure, View};
use crate::message::{Committed, Cut, Drained, FlowCut, Message, SlotValues};
use crate::role::{Action, Link, LinkEvent, Role};
use crate::server::tests::counter::NOW;

use Peer::{Switch, Worker};

/// Tests rule V4.
#[test]
fn a_holder_gets_the_cut_and_the_values_of_all_rows() {
    let mut counter = Counter::new();
    let (switch, worker) = (counter.call(Switch(0)), counter.call(Worker(1)));
    let first = counter.adopt(switch, 1).unwrap();
    assert_eq!((first.epoch, first.cut, first.change, first.values), (0, Cut::default(), 0, values(0.0)));
    assert!(counter.commit(switch, 1, 1, 5).is_some());
    let since = counter.give(Some(1));
    let answer = counter.ask(worker, push(1, &[0], 2.0));
    assert_eq!(answer.len(), 1, "no switch has the region yet");
    let next = counter.call(Switch(1));
    let adopted = counter.adopt(next, since).unwrap();
    assert_eq!((adopted.region, adopted.since, adopted.epoch), (0, since, 1));
    assert_eq!((adopted.cut, adopted.values), (cut(1), values(-7.0)));
}

// rules E2, E5
#[test]
fn a_cut_names_what_changed_and_the_region_keeps_the_rest() {
    let mut counter = Counter::new();
    let switch = counter.call(Switch(0));
    counter.adopt(switch, 1);
    let of = |worker: u16, below: u32| -> (u16, FlowCut) { (worker, FlowCut { below, above: Vec::new() }) };
    for (epoch, flows) in [(1, vec![of(0, 5), of(2, 7)]), (2, vec![of(2, 9)]), (3, vec![of(300, 1)])] {
        let Message::Drained(drained) = drained(1, epoch, 1) else { panic!("an epoch") };
        let drained = Drained { cut: Cut { flows: flows.into_iter().collect() }, ..drained };
        let once = counter.ask(switch, Message::Drained(drained.clone()));
        assert!(matches!(once.as_slice(), [Message::Committed(_)]), "{once:?}");
        assert_eq!(counter.ask(switch, Message::Drained(drained)), once, "sent again, it is answered again");
    }
    let since = counter.give(Some(1));
    let next = counter.call(Switch(1));
    let adopted = counter.adopt(next, since).unwrap();
    assert_eq!((adopted.epoch, adopted.cut.flows), (3, [of(0, 5), of(2, 9), of(300, 1)].into()));
}

#[test]
fn rounds_of_a_former_holder_are_neither_taken_nor_answered() {
    let mut counter = Counter::new();
    let (former, next) = (counter.call(Switch(0)), counter.call(Switch(1)));
    counter.adopt(former, 1);
    assert!(counter.commit(former, 1, 1, 5).is_some());
    let since = counter.give(Some(1));
    for switch in [former, next] {
        assert_eq!(counter.commit(switch, 1, 2, 50), None);
        assert_eq!(counter.commit(switch, 1, 1, 50), None, "not even what it had brought");
    }
    assert_eq!(
        counter.commit(next, since, 2, 50),
        None,
        "a switch that has not adopted it does not have its contents"
    );
    assert!(counter.adopt(former, 1).is_none());
    assert!(counter.adopt(former, since).is_none(), "it is not the holder");
    assert!(counter.adopt(next, 1).is_none());
    assert_eq!((counter.statistics().fenced, counter.closed.len()), (8, 0));
    assert_eq!(counter.adopt(next, since).unwrap().epoch, 1);
    assert_eq!(counter.commit(next, since, 2, 7).map(|committed| committed.epoch), Some(2));
    assert_eq!(counter.commit(former, 1, 3, 50), None);
    assert_eq!(counter.commit(former, since, 3, 50), None, "not on another stream");
    assert_eq!(counter.value(0), -12.0);
}

/// Tests rule E3.
#[test]
fn an_epoch_is_applied_once_and_none_is_skipped() {
    let mut counter = Counter::new();
    let switch = counter.call(Switch(0));
    counter.adopt(switch, 1);
    let committed = |epoch, value: f32| {
        let values = SlotValues { slots: vec![(0, 2)], values: crate::bulk::Bulk(vec![value.to_bits(); 2]) };
        Some(Committed { region: 0, since: 1, epoch, values })
    };
    assert_eq!(counter.commit(switch, 1, 1, 5), committed(1, -5.0));
    assert_eq!(counter.commit(switch, 1, 1, 5), committed(1, -5.0), "it comes again, and is answered again");
    assert_eq!(counter.commit(switch, 1, 2, 1), committed(2, -6.0));
    assert_eq!(counter.statistics().duplicates, 1);
    assert_eq!(counter.commit(switch, 1, 4, 1), None, "epoch 3 is missing");
    assert_eq!(counter.closed, [switch]);
    assert_eq!(counter.value(0), -6.0);
}

#[test]
fn a_holder_whose_stream_broke_comes_again_and_goes_on() {
    let mut counter = Counter::new();
    let before = counter.call(Switch(0));
    counter.adopt(before, 1);
    counter.commit(before, 1, 1, 5);
    counter.hang_up(before);
    let switch = counter.call(Switch(0));
    assert_eq!(counter.commit(switch, 1, 2, 3), None, "first it must receive what it has missed");
    let adopted = counter.adopt(switch, 1).unwrap();
    assert_eq!((adopted.epoch, adopted.cut, adopted.values), (1, cut(1), values(-5.0)));
    assert!(counter.commit(switch, 1, 2, 3).is_some());
    // The end of the old stream is reported late.
    counter.hang_up(before);
    assert!(counter.commit(switch, 1, 3, 3).is_some());
    // Two streams at once: the newer one counts.
    let newer = counter.call(Switch(0));
    assert!(counter.adopt(newer, 1).is_some());
    counter.hang_up(switch);
    assert!(counter.commit(newer, 1, 4, 3).is_some());
}

#[test]
fn an_older_view_is_ignored_and_answered_with_the_newest() {
    let mut counter = Counter::new();
    let since = counter.give(Some(1));
    let older = View { number: 1, tenures: vec![Tenure { holder: Some(0), since: 1 }], ..View::default() };
    let answer = counter.ask(CONTROLLER, Message::View(older.into()));
    assert_eq!(answer, [Message::Viewed { number: since }]);
    let switches = [counter.call(Switch(0)), counter.call(Switch(1))];
    assert!(counter.adopt(switches[0], 1).is_none());
    assert!(counter.adopt(switches[1], since).is_some());
}

#[test]
fn a_view_that_moves_nothing_interrupts_no_stream() {
    let mut counter = Counter::new();
    let switch = counter.call(Switch(0));
    counter.adopt(switch, 1);
    let view = View { number: 9, tenures: vec![Tenure { holder: Some(0), since: 1 }], ..View::default() };
    assert_eq!(counter.ask(CONTROLLER, Message::View(view.into())), [Message::Viewed { number: 9 }]);
    assert!(counter.commit(switch, 1, 1, 5).is_some());
}

#[test]
fn drains_that_make_no_sense_change_nothing() {
    let bad: [fn(&mut Drained); 5] = [
        |drained| drained.region = 7,
        |drained| drained.slots = vec![(0, 3)],
        |drained| drained.slots = vec![(2, 1), (1, 1)],
        |drained| drained.slots = vec![(u16::MAX, 2)],
        |drained| drained.sums.0.clear(),
    ];
    for edit in bad {
        let mut counter = Counter::new();
        let switch = counter.call(Switch(0));
        counter.adopt(switch, 1);
        let Message::Drained(mut drained) = drained(1, 1, 5) else { unreachable!() };
        edit(&mut drained);
        assert_eq!(counter.ask(switch, Message::Drained(drained)), []);
        assert_eq!((counter.value(0), counter.closed.as_slice()), (0.0, [switch].as_slice()));
    }
}

#[test]
fn a_server_without_controller_sends_the_next_one_its_state() {
    let mut counter = Counter::new();
    let switch = counter.call(Switch(1));
    let since = counter.give(Some(1));
    counter.adopt(switch, since);
    counter.hang_up(CONTROLLER);
    assert!(counter.commit(switch, since, 1, 5).is_some());
    let due = counter.server.poll_timeout().unwrap();
    assert!(due.since(NOW) <= core::time::Duration::from_millis(100));
    counter.server.handle_timeout(due);
    let Some(Action::Connect { link, address: to }) = counter.server.poll_action() else { panic!() };
    assert_eq!(to, address(0));
    counter.server.handle_link(due, link, LinkEvent::Opened { remote: to });
    let Some(Action::Send { message: Message::Rejoin(rejoin), .. }) = counter.server.poll_action() else {
        panic!()
    };
    assert_eq!((rejoin.you, rejoin.view), (Peer::Server(0), since));
    let cluster = rejoin.cluster.unwrap();
    assert_eq!((cluster.view.number, cluster.view.tenures), (since, vec![Tenure { holder: Some(1), since }]));
    assert_eq!(cluster.plan, crate::testing::cluster(4).plan);
    // Messages on the old stream come from no peer.
    counter.say(CONTROLLER, Message::Abort { reason: "late".into() });
    assert_eq!(counter.closed, [CONTROLLER]);
    assert_eq!(Link(1), link);
}

#[test]
fn a_holder_that_gets_a_region_back_starts_again() {
    let mut counter = Counter::new();
    let switch = counter.call(Switch(0));
    counter.adopt(switch, 1);
    counter.give(None);
    let since = counter.give(Some(0));
    assert!(counter.adopt(switch, since).is_some());
    assert_eq!(counter.commit(switch, 1, 1, 50), None);
    assert_eq!(counter.commit(switch, since, 1, 5).map(|committed| committed.since), Some(since));
    assert_eq!(counter.value(0), -5.0);
}

#[test]
fn an_adoption_on_a_broken_stream_does_not_take_the_region() {
    let mut counter = Counter::new();
    // The switch sent Adopt on `older`, lost the stream, and sent it again on `newer`; what it sent first comes last.
    let (older, newer) = (counter.call(Switch(0)), counter.call(Switch(0)));
    counter.adopt(newer, 1).unwrap();
    counter.say(older, Message::Adopt { region: 0, since: 1, epoch: 0, cut: Cut::default() });
    counter.hang_up(older);
    assert!(counter.commit(newer, 1, 1, 5).is_some(), "the switch waits for this answer for ever");
}
