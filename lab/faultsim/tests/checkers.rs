//! Each checker notices what it is there for.
#![expect(clippy::unwrap_used, reason = "a test that panics has found something")]

use libra_dataplane::{Flags, Header, Kind, PacketWriter, packet_bytes};
use libra_faultsim::check::{Checkers, Finale};
use libra_faultsim::{Actor, Observer, Rows, Sums};
use libra_proto::Kind as Member;
use libra_proto::{
    Adopted, Bulk, Cluster, ColdPush, Committed, Cut, Drained, EPOCHS_BEGIN_AFTER, FlowCut, HotPath, Instant,
    Keys, Message, Peer, Start, Tenure, Values, View,
};

/// One shard, whose region has ten rows of one value; beside them there is one cold row.
const ROWS: Rows = Rows { embedding: (10, 1), dense: (1, 1), hot: 10, scale: 0, headroom_bits: 12 };
const COLD: u64 = 1000;
const SERVER: Actor = Actor { host: 1, before: 0 };
const SWITCH: Actor = Actor { host: 2, before: 0 };
const WORKER: Actor = Actor { host: 3, before: 0 };
const NOW: Instant = Instant::ZERO;

/// A cluster of one each, as its checkers see it.
struct Scene(Checkers);

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::new(9, ROWS.tables(), Some(ROWS.plan()), HotPath::for_workers(1));
        let mut scene = Self(Checkers::new(&ROWS, &cluster, 1));
        for (actor, you, kind) in [
            (SERVER, Peer::Server(0), Member::Server),
            (SWITCH, Peer::Switch(0), Member::Switch),
            (WORKER, Peer::Worker(0), Member::Worker),
        ] {
            let cluster = Cluster { view: view(1, 0).of(kind), ..cluster.clone() };
            let start = Start { you, share: 0, barrier: 0, cluster: cluster.into() };
            scene.arrives(SERVER, actor, &Message::Start(Box::new(start)));
        }
        scene
    }

    fn arrives(&mut self, from: Actor, to: Actor, message: &Message) {
        self.0.message_arrives(NOW, from, to, message);
    }

    fn says(&mut self, from: Actor, to: Actor, message: &Message) {
        self.0.message_sent(NOW, from, Some(to), message);
    }

    /// The worker sends a packet that adds `value` to the first row.
    fn push(&mut self, seq: u32, value: u32, flags: Flags) {
        self.0.datagram_sent(NOW, WORKER, Some(SWITCH.host), &packet(Kind::Push, flags, seq, &[(0, value)]));
    }

    /// The switch acknowledges a packet.
    fn ack(&mut self, seq: u32, epoch: u64, durable: u64) {
        let mut bytes = packet(Kind::Ack, Flags::NONE, seq, &[]);
        let header = Header::parse(&bytes).unwrap();
        Header { epoch: on_wire(epoch), durable: on_wire(durable), ..header }.emit(&mut bytes);
        self.0.datagram_sent(NOW, SWITCH, Some(WORKER.host), &bytes);
    }

    /// The switch drains an epoch with everything below `below`, and the shard commits it.
    fn epoch(&mut self, epoch: u64, below: u32, sum: u32) {
        self.arrives(SWITCH, SERVER, &drained(1, epoch, below, sum));
        self.says(SERVER, SWITCH, &committed(1, epoch));
    }

    fn finale(&self, pushed: f64, read: f64) -> Result<(), String> {
        let sums = |value| {
            let mut sums = Sums::zero(&ROWS);
            sums.0[0] = value;
            sums
        };
        let live = [(0, sums(pushed))].into();
        let gone = [].into();
        self.0.finale(&Finale { rows: &ROWS, live: &live, gone: &gone, positive: true, read: &sums(read) })
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

fn view(number: u64, holder: u16) -> View {
    View {
        number,
        switches: [(holder, "10.0.0.3:4000".parse().unwrap())].into(),
        workers: [(0, "10.0.0.4:4000".parse().unwrap())].into(),
        tenures: vec![Tenure { holder: Some(holder), since: number }],
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

fn cut(below: u32) -> Cut {
    Cut { flows: [(0, FlowCut { below, above: Vec::new() })].into() }
}

// In what follows and in `Scene`, epochs are counted from 1.

fn on_wire(epoch: u64) -> u16 {
    u16::try_from((EPOCHS_BEGIN_AFTER + epoch) & 0xffff).unwrap()
}

fn drained(since: u64, epoch: u64, below: u32, sum: u32) -> Message {
    let epoch = EPOCHS_BEGIN_AFTER + epoch;
    let sums = Bulk(vec![sum]);
    Message::Drained(Drained { region: 0, since, epoch, cut: cut(below), slots: vec![(0, 1)], sums })
}

fn committed(since: u64, epoch: u64) -> Message {
    let epoch = EPOCHS_BEGIN_AFTER + epoch;
    Message::Committed(Committed { region: 0, since, epoch, values: Default::default() })
}

fn adopted(since: u64, epoch: u64, below: u32) -> Message {
    let epoch = EPOCHS_BEGIN_AFTER + epoch;
    let values = Default::default();
    Message::Adopted(Adopted { region: 0, since, epoch, cut: cut(below), change: 0, values })
}

fn cold_push(number: u64, gradient: f32) -> Message {
    let (keys, gradients) = (Keys::from([COLD].as_slice()), Values::from(vec![gradient]));
    Message::Push(ColdPush { number, keys, gradients, answer: false })
}

#[test]
fn a_correct_run_is_accepted() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.push(1, 6, Flags::NONE);
    scene.push(0, 5, Flags::RETRANSMIT);
    scene.ack(0, 1, 0);
    scene.ack(1, 2, 0);
    scene.epoch(1, 1, 5);
    scene.epoch(2, 2, 6);
    scene.ack(0, 2, 2);
    scene.expect_none();
    assert_eq!(scene.finale(11.0, 11.0), Ok(()));
}

#[test]
fn a_number_that_names_two_packets() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.push(0, 6, Flags::RETRANSMIT);
    scene.expect("packets", "names two packets");
}

#[test]
fn a_packet_that_is_sent_again_without_a_mark() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.push(0, 5, Flags::NONE);
    scene.expect("packets", "without a mark");
}

#[test]
fn a_packet_beyond_the_window() {
    let mut scene = Scene::new();
    scene.push(1023, 5, Flags::NONE);
    scene.expect_none();
    scene.push(1024, 5, Flags::NONE);
    scene.expect("packets", "is not acknowledged");
}

#[test]
fn a_worker_that_speaks_for_another() {
    let mut scene = Scene::new();
    let mut bytes = packet(Kind::Push, Flags::NONE, 0, &[]);
    let header = Header::parse(&bytes).unwrap();
    Header { worker: 1, ..header }.emit(&mut bytes);
    scene.0.datagram_sent(NOW, WORKER, None, &bytes);
    scene.expect("packets", "sends as worker 1");
}

#[test]
fn sums_that_are_not_those_of_the_packets() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.epoch(1, 1, 10);
    scene.expect("epochs", "its packets make 0x5");
}

#[test]
fn a_packet_in_two_epochs() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.epoch(1, 1, 5);
    scene.epoch(2, 1, 5);
    scene.expect("epochs", "its packets make 0x0");
}

#[test]
fn a_cut_that_forgets() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.epoch(1, 1, 5);
    scene.epoch(2, 0, 0);
    scene.expect("epochs", "1 was reached before");
}

#[test]
fn a_cut_that_names_a_packet_that_was_never_sent() {
    let mut scene = Scene::new();
    scene.epoch(1, 1, 0);
    scene.expect("epochs", "never sent");
}

#[test]
fn an_epoch_that_is_left_out_or_was_never_drained() {
    let mut scene = Scene::new();
    scene.epoch(2, 0, 0);
    scene.expect("epochs", "epoch 65410 is committed after 65408");
    let mut scene = Scene::new();
    scene.says(SERVER, SWITCH, &committed(1, 1));
    scene.expect("epochs", "no switch sent it");
}

#[test]
fn one_epoch_with_two_contents() {
    let mut scene = Scene::new();
    scene.arrives(SWITCH, SERVER, &drained(1, 1, 0, 0));
    scene.arrives(SWITCH, SERVER, &drained(1, 1, 0, 7));
    scene.expect("epochs", "is two epochs");
}

#[test]
fn a_holder_that_commits_after_it_was_replaced() {
    for fenced_by in [Message::Viewed { number: 2 }, adopted(2, 0, 0)] {
        let mut scene = Scene::new();
        scene.arrives(SERVER, SERVER, &Message::View(view(2, 1).into()));
        scene.says(SERVER, SWITCH, &fenced_by);
        scene.expect_none();
        scene.epoch(1, 0, 0);
        scene.expect("epochs", "is committed after 0x2 began");
    }
}

#[test]
fn a_new_holder_that_is_told_the_wrong_cut() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.epoch(1, 1, 5);
    scene.says(SERVER, SWITCH, &adopted(2, 1, 0));
    scene.expect("epochs", "the adopted cut of worker 0");
}

#[test]
fn an_epoch_that_is_called_durable_too_early() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.ack(0, 1, 1);
    scene.expect("frontiers", "calls epoch 65409 durable, 65408 is committed");
}

#[test]
fn durability_that_goes_back() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.epoch(1, 1, 5);
    scene.ack(0, 1, 1);
    scene.ack(0, 1, 0);
    scene.expect("frontiers", "went back from 65409 to 65408");
}

#[test]
fn an_acknowledgement_for_the_wrong_epoch() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.ack(0, 1, 0);
    scene.epoch(1, 0, 0);
    scene.expect("frontiers", "65409 is committed without it");
}

#[test]
fn an_answer_of_a_switch_that_does_not_hold_the_region() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    let mut bytes = packet(Kind::Ack, Flags::NONE, 0, &[]);
    let header = Header::parse(&bytes).unwrap();
    Header { view: 2, ..header }.emit(&mut bytes);
    scene.0.datagram_sent(NOW, SWITCH, None, &bytes);
    scene.expect("frontiers", "answers for region 0 in view 2");
}

#[test]
fn a_packet_of_another_view_that_is_taken() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.arrives(SERVER, SERVER, &Message::View(view(2, 0).into()));
    scene.arrives(SERVER, SWITCH, &Message::View(view(2, 0).of(Member::Switch).into()));
    let mut bytes = packet(Kind::Ack, Flags::NONE, 0, &[]);
    let header = Header::parse(&bytes).unwrap();
    Header { view: 2, epoch: on_wire(1), durable: on_wire(0), ..header }.emit(&mut bytes);
    scene.0.datagram_sent(NOW, SWITCH, None, &bytes);
    scene.expect("frontiers", "is taken in view 2");
}

#[test]
fn views_that_cannot_be_told_apart() {
    let mut scene = Scene::new();
    scene.arrives(SERVER, SERVER, &Message::View(view(1 << 32 | 1, 1).into()));
    scene.expect("roster", "are the same on the wire");
    let mut scene = Scene::new();
    scene.arrives(SERVER, SWITCH, &Message::View(view(1, 1).of(Member::Switch).into()));
    scene.expect("roster", "have one number");
}

#[test]
fn a_view_that_is_told_out_of_order_or_to_the_wrong_member() {
    let told = |view: View, to| {
        let mut scene = Scene::new();
        scene.arrives(SERVER, to, &Message::View(view.into()));
        scene
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
    let mut scene = Scene::new();
    scene.says(WORKER, SERVER, &cold_push(1, 2.0));
    scene.says(WORKER, SERVER, &cold_push(1, 2.0));
    scene.expect_none();
    scene.says(SERVER, WORKER, &Message::Pushed { number: 1, view: 1, values: Values::default() });
    scene.expect("cold", "is answered before shard 0 has it");
    let mut scene = Scene::new();
    scene.says(WORKER, SERVER, &cold_push(1, 2.0));
    scene.says(WORKER, SERVER, &cold_push(1, 3.0));
    scene.expect("cold", "is two pushes");
}

#[test]
fn in_the_end_nothing_may_be_missing() {
    let mut scene = Scene::new();
    scene.push(0, 5, Flags::NONE);
    scene.ack(0, 1, 0);
    assert!(scene.finale(5.0, 0.0).unwrap_err().contains("0 is not applied, and was acknowledged"));
    scene.epoch(1, 1, 5);
    assert_eq!(scene.finale(5.0, 5.0), Ok(()));
    assert!(scene.finale(5.0, 4.0).unwrap_err().contains("nothing that may have been applied explains it"));
    assert!(scene.finale(6.0, 5.0).unwrap_err().contains("pushed 6 to value 0, 5 of it is applied"));
}

#[test]
fn pushes_of_a_dead_worker_are_explained_or_not() {
    let mut scene = Scene::new();
    for (number, gradient) in [(1, 1.0), (2, 2.0), (3, 4.0)] {
        scene.says(WORKER, SERVER, &cold_push(number, gradient));
        scene.arrives(WORKER, SERVER, &cold_push(number, gradient));
    }
    scene.says(SERVER, WORKER, &Message::Pushed { number: 1, view: 1, values: Values::default() });
    let read = |value: f64| {
        let mut read = Sums::zero(&ROWS);
        read.0[ROWS.range(COLD).start] = value;
        let (live, gone) = ([].into(), [].into());
        scene.0.finale(&Finale { rows: &ROWS, live: &live, gone: &gone, positive: true, read: &read })
    };
    // The first is applied for certain; of the others none, the first, or both: never the last alone.
    let explained: Vec<f64> = (0..9).map(f64::from).filter(|value| read(*value).is_ok()).collect();
    assert_eq!(explained, [1.0, 3.0, 7.0]);
}
