//! Pushes of rows that come past the switches.

use super::harness::{ServerHarness, push, pushed, pushed_in};
use crate::authentication::Pass;
use crate::bulk::Bulk;
use crate::cluster::Peer;
use crate::message::{Answered, Changed, Hello, Message, RoundContents, SlotValues};
use crate::role::Link;
use crate::server::journal::Journal;
use crate::server::shard::Shard;
use crate::testing::{HOT_ROWS, JOB, WIDTH};

use Peer::{Switch, Worker};

/// Not in any region.
const COLD: u64 = HOT_ROWS + 1;

fn changed(harness: &mut ServerHarness, switch: Link) -> Changed {
    let answers = harness.answers(switch);
    let [Message::Changed(changed)] = answers.as_slice() else { panic!("{answers:?}") };
    changed.clone()
}

fn installed(view_id: u64, change: u64) -> Message {
    Message::Installed { region: 0, view_id, change }
}

fn held() -> (ServerHarness, Link, Link) {
    let mut harness = ServerHarness::new();
    let (switch, worker) = (harness.call(Switch(0)), harness.call(Worker(1)));
    let change = harness.adopt(switch, 1).unwrap().change;
    harness.send(switch, installed(1, change));
    (harness, switch, worker)
}

#[test]
fn a_push_of_a_held_row_is_answered_once_the_owner_has_it() {
    let (mut harness, switch, worker) = held();
    assert_eq!(harness.request(worker, push(1, &[3, COLD], 2.0)), []);
    let sent = changed(&mut harness, switch);
    let values = SlotValues { slots: vec![(6, 2)], values: Bulk(vec![(-2f32).to_bits(); 2]) };
    assert_eq!((sent.region, sent.view_id, &sent.values), (0, 1, &values));
    harness.send(switch, installed(1, sent.change - 1));
    harness.send(switch, installed(2, sent.change));
    assert_eq!(harness.answers(worker), []);
    harness.send(switch, installed(1, sent.change));
    assert_eq!(harness.answers(worker), [pushed(1, &[-2.0; 4])]);
    // Rows without an owner need no switch.
    assert_eq!(harness.request(worker, push(2, &[COLD], 1.0)), [pushed(2, &[-3.0; 2])]);
    assert_eq!(harness.answers(switch), []);
}

#[test]
fn one_confirmation_is_enough_for_all_changes_before_it() {
    let (mut harness, switch, worker) = held();
    for number in 1..=3 {
        harness.send(worker, push(number, &[0], 1.0));
    }
    let sent = harness.answers(switch);
    let Some(Message::Changed(second)) = sent.get(1) else { panic!("{sent:?}") };
    harness.send(switch, installed(1, second.change));
    // The values are those of now.
    assert_eq!(harness.answers(worker), [pushed(1, &[-3.0; 2]), pushed(2, &[-3.0; 2])]);
    // A change that was never sent cannot be confirmed.
    harness.send(switch, installed(1, u64::MAX));
    assert_eq!(harness.answers(worker).len(), 1);
    assert_eq!(harness.request(worker, push(4, &[0], 1.0)), []);
}

/// Tests rule C3.
#[test]
fn a_push_does_not_wait_for_an_owner_that_is_fenced() {
    let (mut harness, switch, worker) = held();
    harness.send(worker, push(1, &[0], 2.0));
    let sent = changed(&mut harness, switch);
    let view_id = harness.assign_region(Some(1));
    assert_eq!(harness.answers(worker), [pushed_in(view_id, 1, &[-2.0; 2])]);
    // The next owner is not confirmed by the former one.
    let next = harness.call(Switch(1));
    let adopted = harness.adopt(next, view_id).unwrap();
    assert_eq!(adopted.values, super::harness::values(-2.0));
    assert_eq!(harness.request(worker, push(2, &[0], 2.0)), []);
    let again = changed(&mut harness, next);
    assert!(again.change > sent.change);
    harness.send(switch, installed(1, again.change));
    harness.send(switch, installed(view_id, again.change));
    assert_eq!(harness.answers(worker), []);
    harness.send(next, installed(view_id, adopted.change));
    assert_eq!(harness.answers(worker), []);
    harness.send(next, installed(view_id, again.change));
    assert_eq!(harness.answers(worker), [pushed_in(view_id, 2, &[-4.0; 2])]);
    assert_eq!(harness.answers(switch), []);
}

#[test]
fn a_push_waits_for_an_owner_whose_stream_is_broken() {
    let (mut harness, switch, worker) = held();
    harness.send(worker, push(1, &[0], 2.0));
    harness.hang_up(switch);
    harness.send(worker, push(2, &[0], 2.0));
    assert_eq!(harness.answers(worker), [], "it still answers pulls with the old value");
    let again = harness.call(Switch(0));
    let adopted = harness.adopt(again, 1).unwrap();
    assert_eq!(adopted.values, super::harness::values(-4.0));
    assert_eq!(harness.answers(worker), []);
    harness.send(again, installed(1, adopted.change));
    assert_eq!(harness.answers(worker), [pushed(1, &[-4.0; 2]), pushed(2, &[-4.0; 2])]);
}

#[test]
fn a_repeated_push_is_applied_once_and_answered_where_it_came() {
    let (mut harness, switch, worker) = held();
    harness.send(worker, push(1, &[0], 2.0));
    harness.send(worker, push(2, &[COLD], 1.0));
    harness.hang_up(worker);
    let again = harness.call(Worker(1));
    harness.send(again, push(1, &[0], 2.0));
    harness.send(again, push(2, &[COLD], 1.0));
    harness.send(again, push(3, &[COLD], 1.0));
    assert_eq!(harness.answers(again), [pushed(2, &[-1.0; 2]), pushed(3, &[-2.0; 2])]);
    harness.answers(worker);
    let sent = harness.answers(switch);
    let Some(Message::Changed(last)) = sent.last() else { panic!("{sent:?}") };
    harness.send(switch, installed(1, last.change));
    assert_eq!(harness.answers(again), [pushed(1, &[-2.0; 2])]);
    assert_eq!(harness.answers(worker), [], "nothing goes to a stream that is gone");
    assert_eq!(harness.statistics().duplicates, 2);
    // Another worker counts for itself.
    let other = harness.call(Worker(0));
    assert_eq!(harness.request(other, push(1, &[COLD], 1.0)), [pushed(1, &[-3.0; 2])]);
}

#[test]
fn a_push_that_makes_no_sense_is_not_applied_in_part() {
    let bad = [push(1, &[COLD, 999], 1.0), push(1, &[999], f32::NAN)];
    let short = Message::Push(crate::message::ColdPush {
        number: 1,
        keys: [COLD].as_slice().into(),
        gradients: vec![1.0].into(),
        answer: true,
    });
    for message in bad.into_iter().chain([short]) {
        let (mut harness, _, worker) = held();
        assert_eq!(harness.request(worker, message), []);
        assert_eq!(harness.closed, [worker]);
        let again = harness.call(Worker(1));
        assert_eq!(
            harness.request(again, push(1, &[COLD], 1.0)),
            [pushed(1, &[-1.0; 2])],
            "the number is free"
        );
    }
}

#[test]
fn each_does_what_it_may() {
    let (mut harness, switch, worker) = held();
    let stranger = Link(Link::ACCEPTED + 77);
    let replay = Message::Replay(super::harness::replay(1, 1, 0..1));
    let drained = super::harness::drained(1, 1, 5);
    let adopt = Message::Adopt { region: 0, view_id: 1, round: 0, contents: RoundContents::default() };
    let pull = Message::Pull { number: 1, keys: [COLD].as_slice().into() };
    for (link, message) in [
        (stranger, push(1, &[COLD], 1.0)),
        (stranger, pull),
        (worker, adopt.clone()),
        (switch, push(1, &[COLD], 1.0)),
        (
            stranger,
            Message::Hello(Hello {
                pass: Pass::default(),
                instance: 77,
                from: Worker(1),
                to: 0,
                answered: Answered::default(),
            }),
        ),
    ] {
        harness.send(link, message.clone());
        assert_eq!(harness.closed.last(), Some(&link), "{message:?}");
    }
    assert_eq!(harness.statistics().dropped, 5);
    let (switch, worker) = (harness.call(Switch(0)), harness.call(Worker(1)));
    for (link, message) in [(worker, drained), (switch, replay)] {
        harness.send(link, message);
        assert_eq!(harness.closed.last(), Some(&link));
    }
    let switch = harness.call(Switch(0));
    harness
        .send(switch, Message::Adopt { region: 9, view_id: 1, round: 0, contents: RoundContents::default() });
    assert_eq!(harness.closed.last(), Some(&switch));
    assert_eq!(harness.value(COLD), 0.0);
}

/// Tests rule C8.
#[test]
fn a_request_for_more_than_a_message_holds_is_refused() {
    let rule = libra_store::Optimizer::Sgd { rate: 1.0 }.into();
    let (width, init) = (1 << 20, libra_store::Init::Zero);
    let table = libra_store::TableSpec { name: "layers".into(), keys: 0..100, width, rule, init };
    let mut cluster = crate::Cluster::new(9, vec![table], None, crate::HotPath::for_workers(1));
    cluster.view.servers = vec![super::harness::address(1)];
    let mut shard = Shard::new(0, Box::new(cluster), Journal::new(false, 0), None).unwrap();
    let too_many: Vec<u64> = (0..64).collect();
    assert!(shard.pull(Link(7), 1, &too_many.as_slice().into()).is_err());
    assert_eq!((shard.outbox.len(), shard.statistics.row_reads), (0, 0));
    assert!(shard.pull(Link(7), 1, &[3, 4].as_slice().into()).is_ok());
    assert_eq!((shard.outbox.len(), shard.statistics.row_reads), (1, 2));
}

// rule C4
#[test]
fn a_worker_with_more_pushes_than_there_can_be_makes_no_sense() {
    let mut harness = ServerHarness::new();
    for (newest, count) in [(1, u64::MAX), (u64::MAX, 1)] {
        let answered = Answered { newest, count };
        let link = harness.call_with(Hello {
            pass: Pass::default(),
            instance: JOB.into(),
            from: Worker(1),
            to: 0,
            answered,
        });
        assert_eq!(harness.closed.pop(), Some(link));
    }
    let most = (1 << 63) - 1;
    for worker in 0..4 {
        let answered = Answered { newest: most, count: most };
        let link = harness.call_with(Hello {
            pass: Pass::default(),
            instance: JOB.into(),
            from: Worker(worker),
            to: 0,
            answered,
        });
        assert_eq!(harness.request(link, push(most + 1, &[HOT_ROWS], 1.0)).len(), 1);
    }
    assert_eq!(harness.statistics().lost_pushes, u64::MAX);
}

#[test]
fn a_push_with_answer_allocates_nothing_once_memory_is_there() {
    let mut harness = ServerHarness::new();
    let worker = harness.call(Worker(1));
    let shard = harness.server.shard.as_mut().unwrap();
    for sum in 1..=6_u8 {
        let number = sum.into();
        let Message::Push(push) = push(number, &[COLD, COLD + 1, COLD + 2], 1.0) else { unreachable!() };
        let allocated = allocation_counter::measure(|| shard.push(worker, 1, push).unwrap());
        assert_eq!(allocated.count_total > 0, number == 1, "push {number}: {allocated:?}");
        let answers: Vec<_> = shard.outbox.drain(..).collect();
        assert_eq!(answers, [(worker, pushed(number, &[-f32::from(sum); 3 * WIDTH]))]);
    }
}
