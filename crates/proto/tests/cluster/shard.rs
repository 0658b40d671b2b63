//! The shard of a server, asked directly.

use core::time::Duration;

use libra_proto::{Action, Bulk, ColdPush, Cut, Drained, Link, Message, Role};

use crate::traffic::{EMBEDDING_WIDTH, setup};
use crate::world::{AnyRole, World};

/// The streams of a cluster of one each, in the order they were opened.
const SWITCH: Link = Link(Link::ACCEPTED);
const WORKER: Link = Link(Link::ACCEPTED + 1);

/// A cluster of one each, in which everybody has said who it is.
fn one_of_each() -> World {
    let mut world = World::started(setup(1, 1, 1));
    world.run_for(Duration::from_millis(1));
    world
}

/// What the server answers to a message on one of its streams.
fn ask(world: &mut World, link: Link, message: Message) -> Option<Message> {
    let mut answer = None;
    world.deliver(world.servers().start, |role, now| {
        let AnyRole::Server(server) = role else { panic!("{role:?} is no server") };
        server.handle_message(now, link, message);
        answer = match server.poll_action() {
            Some(Action::Send { link: to, message }) if to == link => Some(message),
            Some(Action::Close { link: closed }) if closed == link => None,
            other => panic!("{other:?}"),
        };
    });
    answer
}

fn push(number: u64, keys: &[u64], gradients: &[f32]) -> Message {
    Message::Push(ColdPush {
        number,
        keys: Bulk(keys.into()),
        gradients: Bulk(gradients.into()),
        answer: true,
    })
}

/// An epoch in which the first eight slots got 5 each.
fn drained(epoch: u64) -> Message {
    Message::Drained(Drained {
        region: 0,
        epoch,
        cut: Cut::default(),
        slots: vec![(0, 8)],
        sums: Bulk(vec![5; 8]),
    })
}

#[test]
fn a_push_that_makes_no_sense_is_not_applied_in_part() {
    let mut world = one_of_each();
    let (row, rows) = ([1.0; EMBEDDING_WIDTH], [1.0; 2 * EMBEDDING_WIDTH]);
    let bad = [
        push(1, &[50, 999], &rows),
        push(1, &[50, 51], &rows[1..]),
        push(1, &[50], &rows),
        push(1, &[50, 51], &[1.0, 1.0, 1.0, 1.0, 1.0, f32::NAN]),
    ];
    for message in bad {
        assert_eq!(ask(&mut world, WORKER, message), None, "the stream is closed");
    }
    // The same number again is good: nothing was applied under it. And again: it is applied once.
    for _ in 0..2 {
        let answer = ask(&mut world, WORKER, push(1, &[50], &row));
        assert_eq!(answer, Some(Message::Pushed { number: 1, values: Bulk(vec![-1.0; EMBEDDING_WIDTH]) }));
    }
}

#[test]
fn each_does_what_it_may() {
    let mut world = one_of_each();
    assert_eq!(ask(&mut world, SWITCH, push(1, &[50], &[1.0; EMBEDDING_WIDTH])), None);
    assert_eq!(ask(&mut world, WORKER, drained(1)), None);
    assert_eq!(ask(&mut world, Link(Link::ACCEPTED + 7), push(1, &[50], &[1.0; EMBEDDING_WIDTH])), None);
}

#[test]
fn an_epoch_is_applied_once_and_none_is_skipped() {
    let mut world = one_of_each();
    let mut commit = |epoch| match ask(&mut world, SWITCH, drained(epoch)) {
        Some(Message::Committed(committed)) => Some((committed.epoch, f32::from_bits(committed.values.0[0]))),
        _ => None,
    };
    assert_eq!(commit(2), None, "epoch 1 is missing");
    assert_eq!(commit(1), Some((1, -5.0)));
    assert_eq!(commit(1), Some((1, -5.0)), "it comes again, and is answered again");
    assert_eq!(commit(2), Some((2, -10.0)));
}

#[test]
fn a_commit_also_holds_hot_rows_that_came_the_cold_way() {
    let mut world = one_of_each();
    ask(&mut world, WORKER, push(1, &[20], &[2.0; EMBEDDING_WIDTH]));
    for (epoch, far) in [(1, Some(-2.0)), (2, None)] {
        let Some(Message::Committed(committed)) = ask(&mut world, SWITCH, drained(epoch)) else { panic!() };
        let slots = committed.slots.iter().flat_map(|&(first, count)| first..first + count);
        let row = slots.zip(&committed.values.0).find(|(slot, _)| usize::from(*slot) == 20 * EMBEDDING_WIDTH);
        assert_eq!(row.map(|(_, bits)| f32::from_bits(*bits)), far);
    }
}
