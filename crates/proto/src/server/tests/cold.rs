//! Pushes of rows that come past the switches.

use super::counter::{Counter, push, pushed, pushed_in};
use crate::bulk::Bulk;
use crate::cluster::Peer;
use crate::message::{Answered, Changed, Cut, Hello, Message, SlotValues};
use crate::role::Link;
use crate::server::journal::Journal;
use crate::server::shard::Shard;
use crate::testing::{HOT_ROWS, JOB};

use Peer::{Switch, Worker};

/// Not in any region.
const COLD: u64 = HOT_ROWS + 1;

fn changed(counter: &mut Counter, switch: Link) -> Changed {
    let answers = counter.answers(switch);
    let [Message::Changed(changed)] = answers.as_slice() else { panic!("{answers:?}") };
    changed.clone()
}

fn installed(since: u64, change: u64) -> Message {
    Message::Installed { region: 0, since, change }
}

fn held() -> (Counter, Link, Link) {
    let mut counter = Counter::new();
    let (switch, worker) = (counter.call(Switch(0)), counter.call(Worker(1)));
    let change = counter.adopt(switch, 1).unwrap().change;
    counter.say(switch, installed(1, change));
    (counter, switch, worker)
}

#[test]
fn a_push_of_a_held_row_is_answered_once_the_holder_has_it() {
    let (mut counter, switch, worker) = held();
    assert_eq!(counter.ask(worker, push(1, &[3, COLD], 2.0)), []);
    let told = changed(&mut counter, switch);
    let values = SlotValues { slots: vec![(6, 2)], values: Bulk(vec![(-2f32).to_bits(); 2]) };
    assert_eq!((told.region, told.since, &told.values), (0, 1, &values));
    counter.say(switch, installed(1, told.change - 1));
    counter.say(switch, installed(2, told.change));
    assert_eq!(counter.answers(worker), []);
    counter.say(switch, installed(1, told.change));
    assert_eq!(counter.answers(worker), [pushed(1, &[-2.0; 4])]);
    // Rows without a holder need no switch.
    assert_eq!(counter.ask(worker, push(2, &[COLD], 1.0)), [pushed(2, &[-3.0; 2])]);
    assert_eq!(counter.answers(switch), []);
}

#[test]
fn one_confirmation_is_enough_for_all_changes_before_it() {
    let (mut counter, switch, worker) = held();
    for number in 1..=3 {
        counter.say(worker, push(number, &[0], 1.0));
    }
    let told = counter.answers(switch);
    let Some(Message::Changed(second)) = told.get(1) else { panic!("{told:?}") };
    counter.say(switch, installed(1, second.change));
    // The values are those of now.
    assert_eq!(counter.answers(worker), [pushed(1, &[-3.0; 2]), pushed(2, &[-3.0; 2])]);
    // A change that was never sent cannot be confirmed.
    counter.say(switch, installed(1, u64::MAX));
    assert_eq!(counter.answers(worker).len(), 1);
    assert_eq!(counter.ask(worker, push(4, &[0], 1.0)), []);
}

/// Tests rule C3.
#[test]
fn a_push_does_not_wait_for_a_holder_that_is_fenced() {
    let (mut counter, switch, worker) = held();
    counter.say(worker, push(1, &[0], 2.0));
    let told = changed(&mut counter, switch);
    let since = counter.give(Some(1));
    assert_eq!(counter.answers(worker), [pushed_in(since, 1, &[-2.0; 2])]);
    // The next holder is not confirmed by the former one.
    let next = counter.call(Switch(1));
    let adopted = counter.adopt(next, since).unwrap();
    assert_eq!(adopted.values, super::counter::values(-2.0));
    assert_eq!(counter.ask(worker, push(2, &[0], 2.0)), []);
    let again = changed(&mut counter, next);
    assert!(again.change > told.change);
    counter.say(switch, installed(1, again.change));
    counter.say(switch, installed(since, again.change));
    assert_eq!(counter.answers(worker), []);
    counter.say(next, installed(since, adopted.change));
    assert_eq!(counter.answers(worker), []);
    counter.say(next, installed(since, again.change));
    assert_eq!(counter.answers(worker), [pushed_in(since, 2, &[-4.0; 2])]);
    assert_eq!(counter.answers(switch), []);
}

#[test]
fn a_push_waits_for_a_holder_whose_stream_is_broken() {
    let (mut counter, switch, worker) = held();
    counter.say(worker, push(1, &[0], 2.0));
    counter.hang_up(switch);
    counter.say(worker, push(2, &[0], 2.0));
    assert_eq!(counter.answers(worker), [], "it still answers pulls with the old value");
    let again = counter.call(Switch(0));
    let adopted = counter.adopt(again, 1).unwrap();
    assert_eq!(adopted.values, super::counter::values(-4.0));
    assert_eq!(counter.answers(worker), []);
    counter.say(again, installed(1, adopted.change));
    assert_eq!(counter.answers(worker), [pushed(1, &[-4.0; 2]), pushed(2, &[-4.0; 2])]);
}

#[test]
fn a_repeated_push_is_applied_once_and_answered_where_it_came() {
    let (mut counter, switch, worker) = held();
    counter.say(worker, push(1, &[0], 2.0));
    counter.say(worker, push(2, &[COLD], 1.0));
    counter.hang_up(worker);
    let again = counter.call(Worker(1));
    counter.say(again, push(1, &[0], 2.0));
    counter.say(again, push(2, &[COLD], 1.0));
    counter.say(again, push(3, &[COLD], 1.0));
    assert_eq!(counter.answers(again), [pushed(2, &[-1.0; 2]), pushed(3, &[-2.0; 2])]);
    counter.answers(worker);
    let told = counter.answers(switch);
    let Some(Message::Changed(last)) = told.last() else { panic!("{told:?}") };
    counter.say(switch, installed(1, last.change));
    assert_eq!(counter.answers(again), [pushed(1, &[-2.0; 2])]);
    assert_eq!(counter.answers(worker), [], "nothing goes to a stream that is gone");
    assert_eq!(counter.statistics().duplicates, 2);
    // Another worker counts for itself.
    let other = counter.call(Worker(0));
    assert_eq!(counter.ask(other, push(1, &[COLD], 1.0)), [pushed(1, &[-3.0; 2])]);
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
        let (mut counter, _, worker) = held();
        assert_eq!(counter.ask(worker, message), []);
        assert_eq!(counter.closed, [worker]);
        let again = counter.call(Worker(1));
        assert_eq!(counter.ask(again, push(1, &[COLD], 1.0)), [pushed(1, &[-1.0; 2])], "the number is free");
    }
}

#[test]
fn each_does_what_it_may() {
    let (mut counter, switch, worker) = held();
    let stranger = Link(Link::ACCEPTED + 77);
    let replay = Message::Replay(super::counter::replay(1, 1, 0..1));
    let drained = super::counter::drained(1, 1, 5);
    let adopt = Message::Adopt { region: 0, since: 1, epoch: 0, cut: Cut::default() };
    let pull = Message::Pull { number: 1, keys: [COLD].as_slice().into() };
    for (link, message) in [
        (stranger, push(1, &[COLD], 1.0)),
        (stranger, pull),
        (worker, adopt.clone()),
        (switch, push(1, &[COLD], 1.0)),
        (stranger, Message::Hello(Hello { instance: 77, from: Worker(1), answered: Answered::default() })),
    ] {
        counter.say(link, message.clone());
        assert_eq!(counter.closed.last(), Some(&link), "{message:?}");
    }
    assert_eq!(counter.statistics().dropped, 5);
    let (switch, worker) = (counter.call(Switch(0)), counter.call(Worker(1)));
    for (link, message) in [(worker, drained), (switch, replay)] {
        counter.say(link, message);
        assert_eq!(counter.closed.last(), Some(&link));
    }
    let switch = counter.call(Switch(0));
    counter.say(switch, Message::Adopt { region: 9, since: 1, epoch: 0, cut: Cut::default() });
    assert_eq!(counter.closed.last(), Some(&switch));
    assert_eq!(counter.value(COLD), 0.0);
}

/// Tests rule C8.
#[test]
fn a_request_for_more_than_a_message_holds_is_refused() {
    let rule = libra_store::Optimizer::Sgd { rate: 1.0 }.into();
    let (width, init) = (1 << 20, libra_store::Init::Zero);
    let table = libra_store::TableSpec { name: "layers".into(), keys: 0..100, width, rule, init };
    let mut cluster = crate::Cluster::new(9, vec![table], None, crate::HotPath::for_workers(1));
    cluster.servers = vec![super::counter::address(1)];
    let mut shard = Shard::new(0, Box::new(cluster), Journal::new(false, 0)).unwrap();
    let too_many: Vec<u64> = (0..64).collect();
    assert!(shard.pull(Link(7), 1, &too_many.as_slice().into()).is_err());
    assert_eq!((shard.outbox.len(), shard.statistics.row_reads), (0, 0));
    assert!(shard.pull(Link(7), 1, &[3, 4].as_slice().into()).is_ok());
    assert_eq!((shard.outbox.len(), shard.statistics.row_reads), (1, 2));
}

// rule C4
#[test]
fn a_worker_with_more_pushes_than_there_can_be_makes_no_sense() {
    let mut counter = Counter::new();
    for (newest, count) in [(1, u64::MAX), (u64::MAX, 1)] {
        let answered = Answered { newest, count };
        let link = counter.call_with(Hello { instance: JOB.into(), from: Worker(1), answered });
        assert_eq!(counter.closed.pop(), Some(link));
    }
    let most = (1 << 63) - 1;
    for worker in 0..4 {
        let answered = Answered { newest: most, count: most };
        let link = counter.call_with(Hello { instance: JOB.into(), from: Worker(worker), answered });
        assert_eq!(counter.ask(link, push(most + 1, &[HOT_ROWS], 1.0)).len(), 1);
    }
    assert_eq!(counter.statistics().lost_pushes, u64::MAX);
}
