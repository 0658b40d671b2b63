//! Rows that workers set, and scans.

use libra_store::{Init, Optimizer, TableSpec};

use super::durability::with_log_in;
use super::harness::{ServerHarness, address, push, pushed};
use crate::bulk::Bulk;
use crate::cluster::{Cluster, Peer};
use crate::message::{Assign, Message, Reset, TablePage};
use crate::role::Link;
use crate::server::Server;
use crate::testing::{self, HOT_ROWS, ROWS, WIDTH};

use Peer::{Switch, Worker};

const COLD: u64 = HOT_ROWS + 1;
/// Steps that a worker sets.
const STEPS: u64 = 70;

fn assign(number: u64, keys: &[u64], value: f32, states: &[f32]) -> Message {
    let values = Bulk(vec![value; keys.len() * WIDTH]);
    Message::Assign(Assign { number, table: 0, keys: keys.into(), values, states: Bulk(states.to_vec()) })
}

fn reset(number: u64) -> Message {
    Message::Reset(Reset { number, table: 0, steps: STEPS })
}

fn momentum() -> Cluster {
    let mut cluster = testing::cluster(4);
    cluster.tables[0].rule = Optimizer::Momentum { rate: 1.0, momentum: 0.5, nesterov: false }.into();
    cluster
}

fn page(harness: &mut ServerHarness, link: Link, after: Option<u64>) -> TablePage {
    let answers = harness.request(link, Message::Scan { number: 99, table: 0, after });
    let [Message::Scanned { number: 99, page }] = answers.as_slice() else { panic!("{answers:?}") };
    page.clone()
}

// rule C12
#[test]
fn rows_are_set_once_and_in_the_order_of_pushes() {
    let mut harness = ServerHarness::new();
    let worker = harness.call(Worker(1));
    assert_eq!(harness.request(worker, push(1, &[COLD], 2.0)), [pushed(1, &[-2.0; 2])]);
    assert_eq!(harness.request(worker, assign(2, &[COLD], 8.0, &[])), [pushed(2, &[])]);
    assert_eq!(harness.request(worker, push(3, &[COLD], 1.0)), [pushed(3, &[7.0; 2])]);
    // The answer was lost, and it comes again on another stream.
    harness.hang_up(worker);
    let again = harness.call(Worker(1));
    assert_eq!(harness.request(again, assign(2, &[COLD], 8.0, &[])), [pushed(2, &[])]);
    assert_eq!(harness.request(again, reset(2)), [pushed(2, &[])]);
    assert_eq!((harness.value(COLD), harness.statistics().duplicates), (7.0, 2));
    assert_eq!(harness.request(again, reset(4)), [pushed(4, &[])]);
    assert_eq!((harness.value(COLD), harness.statistics().rows), (0.0, 0));
}

// rule C12
#[test]
fn rows_are_set_when_their_switch_has_the_values() {
    let mut harness = ServerHarness::new();
    let (switch, worker) = (harness.call(Switch(0)), harness.call(Worker(1)));
    harness.adopt(switch, 1).unwrap();
    for (number, message, value) in [(1, assign(1, &[3, COLD], 5.0, &[]), 5.0), (2, reset(2), 0.0)] {
        assert_eq!(harness.request(worker, message), []);
        let sent = harness.answers(switch);
        let [Message::Changed(changed)] = sent.as_slice() else { panic!("{sent:?}") };
        let has_row = |(first, count): &(u16, u16)| (*first..first + count).contains(&6);
        assert!(changed.values.slots.iter().any(has_row));
        assert_eq!(changed.values.values.0[0], f32::to_bits(value));
        let change = changed.change;
        harness.send(switch, Message::Installed { region: 0, view_id: 1, change });
        assert_eq!(harness.answers(worker), [pushed(number, &[])]);
    }
}

// rule C12
#[test]
fn a_reset_waits_until_switches_have_the_one_before_it() {
    let mut harness = ServerHarness::new();
    let (switch, worker, other) = (harness.call(Switch(0)), harness.call(Worker(1)), harness.call(Worker(2)));
    harness.adopt(switch, 1).unwrap();
    assert_eq!(harness.request(worker, assign(1, &[3], 5.0, &[])), []);
    assert_eq!(harness.request(worker, reset(2)), []);
    assert_eq!(harness.request(other, reset(1)), [], "the switch may still have the row");
    let sent = harness.answers(switch);
    let Some(Message::Changed(changed)) = sent.last() else { panic!("{sent:?}") };
    let change = changed.change;
    harness.send(switch, Message::Installed { region: 0, view_id: 1, change });
    assert_eq!(harness.answers(other), [pushed(1, &[])]);
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let of = |table, keys: &[u64], values: usize, states: usize| {
        let (values, states) = (Bulk(vec![1.0; values]), Bulk(vec![1.0; states]));
        Message::Assign(Assign { number: 1, table, keys: keys.into(), values, states })
    };
    let infinite = Bulk(vec![f32::INFINITY; 2]);
    let bad_state = Assign {
        number: 1,
        table: 0,
        keys: [COLD].as_slice().into(),
        values: Bulk(vec![1.0; 2]),
        states: infinite,
    };
    for message in [
        of(1, &[COLD], 2, 0),
        of(0, &[ROWS], 2, 0),
        of(0, &[COLD], 3, 0),
        of(0, &[COLD], 2, 1),
        of(0, &[COLD], 2, 4),
        Message::Assign(bad_state),
        Message::Reset(Reset { number: 1, table: 1, steps: 0 }),
        Message::Scan { number: 1, table: 1, after: None },
    ] {
        let mut harness = ServerHarness::starting_in(Server::new(address(1)), momentum());
        let worker = harness.call(Worker(1));
        assert_eq!(harness.request(worker, message.clone()), [], "{message:?}");
        assert_eq!(harness.closed, [worker], "{message:?}");
        assert_eq!(harness.statistics().rows, 0);
    }
    // As a push whose gradient is not finite.
    let mut harness = ServerHarness::new();
    let worker = harness.call(Worker(1));
    let bits = f32::NAN.to_bits();
    let refused = Message::PushRefused { number: 1, key: COLD, lane: 0, bits };
    assert_eq!(harness.request(worker, assign(1, &[COLD], f32::NAN, &[])), [refused]);
}

// rules C12, L1
#[test]
fn rows_that_were_set_survive_the_server() {
    let (mut harness, mut disk) = with_log_in(momentum());
    let worker = harness.call(Worker(0));
    let messages = [
        push(1, &[2, COLD], 4.0),
        reset(2),
        assign(3, &[COLD, COLD + 1], 5.0, &[2.0, 2.0, 6.0, 6.0]),
        push(4, &[COLD], 1.0),
    ];
    for message in messages {
        assert_eq!(harness.request(worker, message), [], "it waits for the log");
    }
    disk.serve(&mut harness, usize::MAX);
    assert_eq!(harness.answers(worker).len(), 4);
    let mut restarted = disk.restart(harness.view());
    let (before, reader) = (harness.call(Worker(2)), restarted.call(Worker(2)));
    let kept = page(&mut restarted, reader, None);
    assert_eq!(kept, page(&mut harness, before, None));
    assert_eq!(kept.keys.to_vec(), [COLD, COLD + 1]);
    // The velocity is half of what it was, and the gradient.
    assert_eq!(kept.values.0, [3.0, 3.0, 5.0, 5.0]);
    assert_eq!((kept.states.0.as_slice(), kept.steps), (&[2.0, 2.0, 6.0, 6.0][..], STEPS + 1));
}

// rule C13
#[test]
fn pages_have_each_row_once_and_rows_that_go_are_left_out() {
    /// Three of them are a page.
    const WIDE: usize = 600_000;
    let mut cluster = Cluster { plan: None, ..testing::cluster(4) };
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    cluster.tables.push(TableSpec {
        name: "wide".into(),
        keys: 1000..2000,
        width: WIDE,
        rule,
        init: Init::Zero,
    });
    let mut harness = ServerHarness::starting_in(Server::new(address(1)), cluster);
    let (worker, reader) = (harness.call(Worker(1)), harness.call(Worker(2)));
    let keys: Vec<u64> = (1000..1008).map(|key| if key % 2 == 0 { 2999 - key } else { key }).collect();
    for (number, key) in (1..).zip(&keys) {
        let (keys, values) = ([*key].as_slice().into(), Bulk(vec![1.0; WIDE]));
        harness.request(
            worker,
            Message::Assign(Assign { number, table: 1, keys, values, states: Bulk(vec![]) }),
        );
    }
    let scan = |harness: &mut ServerHarness, after| {
        let answers = harness.request(reader, Message::Scan { number: 1, table: 1, after });
        let [Message::Scanned { page, .. }] = answers.as_slice() else { panic!("no page") };
        assert_eq!(page.values.0.len(), WIDE * page.keys.len());
        (page.keys.to_vec(), page.next)
    };
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (keys, next) = scan(&mut harness, after);
        assert!(keys.len() <= 3);
        found.extend(keys);
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, sorted);
    // All rows of the second page are gone when it is read: the scan goes on behind them.
    let (first, next) = scan(&mut harness, None);
    harness.request(worker, Message::Reset(Reset { number: 20, table: 1, steps: 0 }));
    assert_eq!(scan(&mut harness, next), (vec![], Some(sorted[5])));
    assert_eq!(scan(&mut harness, Some(sorted[5])), (vec![], None));
    assert_eq!(first, sorted[..3]);
}
