//! Each checker notices what it is there for.

use libra_dataplane::{Arithmetic, Flags, Header, Kind, PacketWriter, packet_bytes};
use libra_faultsim::check::{Checkers, FinalState};
use libra_faultsim::{Actor, Observer, Rows, Sums};
use libra_proto::Kind as Member;
use libra_proto::{
    AckedSet, Adopted, ArithmeticMode, Bulk, Cluster, ColdPush, Committed, Drained, HotPath, Instant, Keys,
    Message, Ownership, Peer, ROUNDS_BEGIN_AFTER, Replay, RoundContents, Start, Values, View,
};

/// One shard, whose region has ten rows of one value; beside them there is one cold row.
const ROWS: Rows =
    Rows { embedding: (10, 1), dense: (1, 1), hot: 10, scale: 0, headroom_bits: 12, set: None };
const COLD: u64 = 1000;
const SERVER: Actor = Actor { host: 1, before: 0 };
const SWITCH: Actor = Actor { host: 2, before: 0 };
const WORKER: Actor = Actor { host: 3, before: 0 };
const NOW: Instant = Instant::ZERO;

/// A cluster of one each, as its checkers see it.
struct CheckerHarness(Checkers);

impl CheckerHarness {
    fn new() -> Self {
        Self::with(HotPath::for_workers(1))
    }

    fn with(hot_path: HotPath) -> Self {
        let cluster = Cluster::new(9, ROWS.tables(), Some(ROWS.plan()), hot_path);
        let mut harness = Self(Checkers::new(&ROWS, &cluster, 1));
        for (actor, you, kind) in [
            (SERVER, Peer::Server(0), Member::Server),
            (SWITCH, Peer::Switch(0), Member::Switch),
            (WORKER, Peer::Worker(0), Member::Worker),
        ] {
            let cluster = Cluster { view: view(1, 0).of(kind), ..cluster.clone() };
            let start = Start { you, share: 0, barrier: 0, cluster: cluster.into() };
            harness.arrives(SERVER, actor, &Message::Start(Box::new(start)));
        }
        harness
    }

    fn arrives(&mut self, from: Actor, to: Actor, message: &Message) {
        self.0.message_arrives(NOW, from, to, message);
    }

    fn sends(&mut self, from: Actor, to: Actor, message: &Message) {
        self.0.message_sent(NOW, from, Some(to), message);
    }

    /// The worker sends a packet that adds `value` to the first row.
    fn push(&mut self, seq: u32, value: u32, flags: Flags) {
        self.0.datagram_sent(NOW, WORKER, Some(SWITCH.host), &packet(Kind::Push, flags, seq, &[(0, value)]));
    }

    /// The switch acknowledges a packet.
    fn ack(&mut self, seq: u32, round: u64, durable: u64) {
        let mut bytes = packet(Kind::Ack, Flags::NONE, seq, &[]);
        let header = Header::parse(&bytes).unwrap();
        Header { round: on_wire(round), durable: on_wire(durable), ..header }.emit(&mut bytes);
        self.0.datagram_sent(NOW, SWITCH, Some(WORKER.host), &bytes);
    }

    /// The worker brings a packet to the shard, whose region has no owner in view 2.
    fn replay(&mut self, seq: u32, value: u32) {
        let packets = vec![Bulk(packet(Kind::Push, Flags::RETRANSMIT, seq, &[(0, value)]))];
        let replay = Message::Replay(Replay { region: 0, view_id: 2, below: seq + 1, packets });
        self.sends(WORKER, SERVER, &replay);
        self.arrives(WORKER, SERVER, &replay);
        self.sends(SERVER, WORKER, &Message::Replayed { region: 0, view_id: 2, below: seq + 1 });
    }

    /// The server acts on a view.
    fn acts_on(&mut self, view: View) {
        let viewed = Message::Viewed { number: view.number };
        self.arrives(SERVER, SERVER, &Message::View(view.into()));
        self.sends(SERVER, SERVER, &viewed);
    }

    /// The switch drains a round with everything below `below`, and the shard commits it.
    fn round(&mut self, round: u64, below: u32, sum: u32) {
        self.arrives(SWITCH, SERVER, &drained(1, round, below, sum));
        self.sends(SERVER, SWITCH, &committed(1, round));
    }

    fn final_state(&self, pushed: f64, read: f64) -> Result<(), String> {
        let sums = |value| {
            let mut sums = Sums::zero(&ROWS);
            sums.0[0] = value;
            sums
        };
        let live = [(0, sums(pushed))].into();
        let gone = [].into();
        self.0.final_state(&FinalState {
            rows: &ROWS,
            live: &live,
            gone: &gone,
            positive: true,
            read: &sums(read),
        })
    }

    #[track_caller]
    fn expect(&self, checker: &str, text: &str) {
        let violation = self.0.violation().expect("something was violated");
        assert!(violation.checker == checker && violation.text.contains(text), "{violation}");
    }

    #[track_caller]
    fn expect_none(&self) {
        assert_eq!(self.0.violation(), None);
    }
}

fn view(number: u64, owner: u16) -> View {
    View {
        number,
        switches: [(owner, "10.0.0.3:4000".parse().unwrap())].into(),
        workers: [(0, "10.0.0.4:4000".parse().unwrap())].into(),
        ownerships: vec![Ownership { owner: Some(owner), view_id: number }],
        ..View::default()
    }
}

fn packet(kind: Kind, flags: Flags, seq: u32, entries: &[(u16, u32)]) -> Vec<u8> {
    let header = Header { flags, job: 9, plan: 4, view: 1, seq, ..Header::of_kind(kind) };
    let mut bytes = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
    let mut writer = PacketWriter::new(header, &mut bytes);
    assert!(entries.iter().all(|&(cell, value)| writer.push(cell, value)));
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

fn contents(below: u32) -> RoundContents {
    RoundContents { flows: [(0, AckedSet { below, above: Vec::new() })].into() }
}

// In what follows and in `Scene`, rounds are counted from 1.

fn on_wire(round: u64) -> u16 {
    u16::try_from((ROUNDS_BEGIN_AFTER + round) & 0xffff).unwrap()
}

fn drained(view_id: u64, round: u64, below: u32, sum: u32) -> Message {
    let round = ROUNDS_BEGIN_AFTER + round;
    let sums = Bulk(vec![sum]);
    Message::Drained(
        Drained { region: 0, view_id, round, contents: contents(below), slots: vec![(0, 1)], sums }.into(),
    )
}

fn committed(view_id: u64, round: u64) -> Message {
    let round = ROUNDS_BEGIN_AFTER + round;
    Message::Committed(Committed { region: 0, view_id, round, values: Default::default() })
}

fn adopted(view_id: u64, round: u64, below: u32) -> Message {
    let round = ROUNDS_BEGIN_AFTER + round;
    let values = Default::default();
    Message::Adopted(Adopted { region: 0, view_id, round, contents: contents(below), change: 0, values })
}

fn cold_push(number: u64, gradient: f32) -> Message {
    let (keys, gradients) = (Keys::from([COLD].as_slice()), Values::from(vec![gradient]));
    Message::Push(ColdPush { number, keys, gradients, answer: false })
}

#[test]
fn a_correct_run_is_accepted() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.push(1, 6, Flags::NONE);
    harness.push(0, 5, Flags::RETRANSMIT);
    harness.ack(0, 1, 0);
    harness.ack(1, 2, 0);
    harness.round(1, 1, 5);
    harness.round(2, 2, 6);
    harness.ack(0, 2, 2);
    harness.expect_none();
    assert_eq!(harness.final_state(11.0, 11.0), Ok(()));
}

#[test]
fn a_number_that_names_two_packets() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.push(0, 6, Flags::RETRANSMIT);
    harness.expect("packets", "names two packets");
}

#[test]
fn a_packet_that_is_sent_again_without_a_mark() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.push(0, 5, Flags::NONE);
    harness.expect("packets", "without a mark");
}

#[test]
fn a_packet_beyond_the_window() {
    let mut harness = CheckerHarness::new();
    harness.push(1023, 5, Flags::NONE);
    harness.expect_none();
    harness.push(1024, 5, Flags::NONE);
    harness.expect("packets", "is not acknowledged");
}

#[test]
fn a_worker_that_speaks_for_another() {
    let mut harness = CheckerHarness::new();
    let mut bytes = packet(Kind::Push, Flags::NONE, 0, &[]);
    let header = Header::parse(&bytes).unwrap();
    Header { worker: 1, ..header }.emit(&mut bytes);
    harness.0.datagram_sent(NOW, WORKER, None, &bytes);
    harness.expect("packets", "sends as worker 1");
}

#[test]
fn sums_that_are_not_those_of_the_packets() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.round(1, 1, 10);
    harness.expect("rounds", "its packets make 0x5");
}

#[test]
fn a_packet_in_two_rounds() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.round(1, 1, 5);
    harness.round(2, 1, 5);
    harness.expect("rounds", "its packets make 0x0");
}

#[test]
fn a_cut_that_forgets() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.round(1, 1, 5);
    harness.round(2, 0, 0);
    harness.expect("rounds", "1 was reached before");
}

#[test]
fn a_cut_that_names_a_packet_that_was_never_sent() {
    let mut harness = CheckerHarness::new();
    harness.round(1, 1, 0);
    harness.expect("rounds", "never sent");
}

#[test]
fn a_round_that_is_left_out_or_was_never_drained() {
    let mut harness = CheckerHarness::new();
    harness.round(2, 0, 0);
    harness.expect("rounds", "round 65410 is committed after 65408");
    let mut harness = CheckerHarness::new();
    harness.sends(SERVER, SWITCH, &committed(1, 1));
    harness.expect("rounds", "no switch sent it");
}

#[test]
fn one_round_with_two_contents() {
    let mut harness = CheckerHarness::new();
    harness.arrives(SWITCH, SERVER, &drained(1, 1, 0, 0));
    harness.arrives(SWITCH, SERVER, &drained(1, 1, 0, 7));
    harness.expect("rounds", "is two rounds");
}

#[test]
fn an_owner_that_commits_after_it_was_replaced() {
    for fenced_by in [Message::Viewed { number: 2 }, adopted(2, 0, 0)] {
        let mut harness = CheckerHarness::new();
        harness.arrives(SERVER, SERVER, &Message::View(view(2, 1).into()));
        harness.sends(SERVER, SWITCH, &fenced_by);
        harness.expect_none();
        harness.round(1, 0, 0);
        harness.expect("rounds", "is committed after 0x2 began");
    }
}

/// 104 and 26 are in a round, with this sum by tables, that the shard applies and does not answer. Then the region has no owner, and they come
/// again, each in a replay of its own.
fn after_an_unanswered_round(sum: u32) -> CheckerHarness {
    let tables = HotPath { arithmetic: ArithmeticMode::Table, ..HotPath::for_workers(1) };
    let mut harness = CheckerHarness::with(tables);
    harness.acts_on(view(1, 0));
    let values = [104.0_f32, 26.0].map(f32::to_bits);
    (0..).zip(values).for_each(|(seq, value)| harness.push(seq, value, Flags::NONE));
    harness.arrives(SWITCH, SERVER, &drained(1, 1, 2, sum));
    let ownerships = vec![Ownership { owner: None, view_id: 2 }];
    harness.acts_on(View { ownerships, ..view(2, 0) });
    (0..).zip(values).for_each(|(seq, value)| harness.replay(seq, value));
    harness
}

#[test]
fn tables_are_off_in_a_round_that_was_not_answered() {
    let sum = Arithmetic::Table.add(104.0_f32.to_bits(), 26.0_f32.to_bits());
    let applied = f64::from(f32::from_bits(sum));
    assert_ne!(applied, 130.0, "the tables are exact here");
    let harness = after_an_unanswered_round(sum);
    harness.expect_none();
    for read in [applied, 130.0] {
        assert_eq!(harness.final_state(130.0, read), Ok(()), "{read} was read");
    }
    let further = 130.0 + 1.1 * (applied - 130.0);
    assert!(harness.final_state(130.0, further).unwrap_err().contains("nothing that may have been applied"));
}

#[test]
fn an_unanswered_round_with_the_wrong_sum() {
    let harness = after_an_unanswered_round(156.0_f32.to_bits());
    harness.expect("rounds", "region 0, round 65409: slot 0 holds 0x431c0000, its packets make");
}

#[test]
fn a_new_owner_that_is_told_the_wrong_contents() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.round(1, 1, 5);
    harness.sends(SERVER, SWITCH, &adopted(2, 1, 0));
    harness.expect("rounds", "the adopted set of worker 0");
}

#[test]
fn a_round_that_is_called_durable_too_early() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.ack(0, 1, 1);
    harness.expect("frontiers", "calls round 65409 durable, 65408 is committed");
}

#[test]
fn durability_that_goes_back() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.round(1, 1, 5);
    harness.ack(0, 1, 1);
    harness.ack(0, 1, 0);
    harness.expect("frontiers", "went back from 65409 to 65408");
}

#[test]
fn an_acknowledgement_for_the_wrong_round() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.ack(0, 1, 0);
    harness.round(1, 0, 0);
    harness.expect("frontiers", "65409 is committed without it");
}

#[test]
fn an_answer_of_a_switch_that_does_not_hold_the_region() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    let mut bytes = packet(Kind::Ack, Flags::NONE, 0, &[]);
    let header = Header::parse(&bytes).unwrap();
    Header { view: 2, ..header }.emit(&mut bytes);
    harness.0.datagram_sent(NOW, SWITCH, None, &bytes);
    harness.expect("frontiers", "answers for region 0 in view 2");
}

#[test]
fn a_packet_of_another_view_that_is_taken() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.arrives(SERVER, SERVER, &Message::View(view(2, 0).into()));
    harness.arrives(SERVER, SWITCH, &Message::View(view(2, 0).of(Member::Switch).into()));
    let mut bytes = packet(Kind::Ack, Flags::NONE, 0, &[]);
    let header = Header::parse(&bytes).unwrap();
    Header { view: 2, round: on_wire(1), durable: on_wire(0), ..header }.emit(&mut bytes);
    harness.0.datagram_sent(NOW, SWITCH, None, &bytes);
    harness.expect("frontiers", "is taken in view 2");
}

#[test]
fn views_that_cannot_be_told_apart() {
    let mut harness = CheckerHarness::new();
    harness.arrives(SERVER, SERVER, &Message::View(view(1 << 32 | 1, 1).into()));
    harness.expect("roster", "are the same on the wire");
    let mut harness = CheckerHarness::new();
    harness.arrives(SERVER, SWITCH, &Message::View(view(1, 1).of(Member::Switch).into()));
    harness.expect("roster", "have one number");
}

#[test]
fn a_view_that_is_told_out_of_order_or_to_the_wrong_member() {
    let told = |view: View, to| {
        let mut harness = CheckerHarness::new();
        harness.arrives(SERVER, to, &Message::View(view.into()));
        harness
    };
    told(view(1, 0).of(Member::Worker), WORKER).expect_none();
    told(view(1, 0).of(Member::Switch), SWITCH).expect_none();
    told(view(1, 0), WORKER).expect("roster", "have one number");
    told(view(1, 0).of(Member::Worker), SWITCH).expect("roster", "have one number");
    told(view(1, 0).of(Member::Switch), SERVER).expect("roster", "have one number");
    told(view(2, 0).of(Member::Switch), SWITCH)
        .expect("roster", "view 0x2 reaches a switch before any server");
}

#[test]
fn a_cold_push_that_is_two_or_that_is_answered_too_early() {
    let mut harness = CheckerHarness::new();
    harness.sends(WORKER, SERVER, &cold_push(1, 2.0));
    harness.sends(WORKER, SERVER, &cold_push(1, 2.0));
    harness.expect_none();
    harness.sends(SERVER, WORKER, &Message::Pushed { number: 1, view: 1, values: Values::default() });
    harness.expect("cold", "is answered before shard 0 has it");
    let mut harness = CheckerHarness::new();
    harness.sends(WORKER, SERVER, &cold_push(1, 2.0));
    harness.sends(WORKER, SERVER, &cold_push(1, 3.0));
    harness.expect("cold", "is two pushes");
}

#[test]
fn in_the_end_nothing_may_be_missing() {
    let mut harness = CheckerHarness::new();
    harness.push(0, 5, Flags::NONE);
    harness.ack(0, 1, 0);
    assert!(harness.final_state(5.0, 0.0).unwrap_err().contains("0 is not applied, and was acknowledged"));
    harness.round(1, 1, 5);
    assert_eq!(harness.final_state(5.0, 5.0), Ok(()));
    assert!(
        harness.final_state(5.0, 4.0).unwrap_err().contains("nothing that may have been applied explains it")
    );
    assert!(harness.final_state(6.0, 5.0).unwrap_err().contains("pushed 6 to value 0, 5 of it is applied"));
}

#[test]
fn pushes_of_a_dead_worker_are_explained_or_not() {
    let mut harness = CheckerHarness::new();
    for (number, gradient) in [(1, 1.0), (2, 2.0), (3, 4.0)] {
        harness.sends(WORKER, SERVER, &cold_push(number, gradient));
        harness.arrives(WORKER, SERVER, &cold_push(number, gradient));
    }
    harness.sends(SERVER, WORKER, &Message::Pushed { number: 1, view: 1, values: Values::default() });
    let read = |value: f64| {
        let mut read = Sums::zero(&ROWS);
        read.0[ROWS.range(COLD).start] = value;
        let (live, gone) = ([].into(), [].into());
        harness.0.final_state(&FinalState {
            rows: &ROWS,
            live: &live,
            gone: &gone,
            positive: true,
            read: &read,
        })
    };
    // The first is applied for certain; of the others none, the first, or both: never the last alone.
    let explained: Vec<f64> = (0..9).map(f64::from).filter(|value| read(*value).is_ok()).collect();
    assert_eq!(explained, [1.0, 3.0, 7.0]);
}
