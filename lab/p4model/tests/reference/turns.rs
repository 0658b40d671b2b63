//! Pushes of floats pass twice, and others come between: whatever the order, and whatever is lost on the way, it is as if each that was answered had
//! been carried out at once, when it was answered.

use std::collections::BTreeMap;

use libra_dataplane::{Arithmetic, Header, Kind, Pipeline, Region, RegionConfig, RegionMemory};
use libra_p4::{Agent, Cookie, Sizes, TableChange};
use libra_p4model::{Again, Passed, Port, Switch};
use proptest::prelude::*;

use crate::device::Here;
use crate::pair::{WORKERS, address, packet};

const CELLS: u16 = 4;
const CONFIG: RegionConfig = RegionConfig {
    job: 1,
    region: 0,
    plan: 1,
    view: 1,
    lanes: 4,
    cells: CELLS,
    flows: WORKERS,
    bank_packets_max: 12,
    arithmetic: Arithmetic::Table,
};
const NAME: (u16, u8) = (CONFIG.job, CONFIG.region);

/// The next step.
#[derive(Debug, Clone)]
enum Step {
    /// A worker sends its next number, or one that it has sent before.
    Send {
        worker: u16,
        back: u32,
        cells: [u16; 4],
        values: [f32; 4],
    },
    /// One of the pushes between two passes passes again.
    Pass(prop::sample::Index),
    /// One of them is lost.
    Lose(prop::sample::Index),
    CloseRound,
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![-8.0_f32..8.0, Just(0.0), any::<f32>()];
    // A push of nothing but zeros ends no turn, so that its duplicates may use up room, as those of integers do.
    let values = prop::array::uniform4(value)
        .prop_filter("nothing", |values| values.iter().any(|value| value.to_bits() != 0));
    prop_oneof![
        8 => (0..WORKERS, 0..3_u32, prop::array::uniform4(0..CELLS - 1), values)
            .prop_map(|(worker, back, cells, values)| Step::Send { worker, back, cells, values }),
        10 => any::<prop::sample::Index>().prop_map(Step::Pass),
        1 => any::<prop::sample::Index>().prop_map(Step::Lose),
        1 => Just(Step::CloseRound),
    ]
}

fn push(worker: u16, seq: u32, cells: [u16; 4], values: [f32; 4]) -> Vec<u8> {
    let RegionConfig { job, region, plan, .. } = CONFIG;
    let view = CONFIG.view_on_wire();
    let header = Header { job, region, plan, view, worker, seq, ..Header::of_kind(Kind::Push) };
    packet(
        header,
        &std::array::from_fn::<_, 4, _>(|lane| (cells[lane], values[lane].to_bits().cast_signed())),
    )
}

/// A push between two passes.
struct Waiting {
    worker: u16,
    packet: Vec<u8>,
    again: Again,
}

struct Bench {
    agent: Agent<Here>,
    reference: Pipeline<Vec<Region<Vec<u32>>>, Vec<u32>>,
    sent: BTreeMap<(u16, u32), Vec<u8>>,
    waiting: Vec<Waiting>,
    next: [u32; WORKERS as usize],
    passed_again: u64,
}

impl Bench {
    fn new() -> Self {
        let sizes =
            Sizes { lanes: CONFIG.lanes, cell_bits: 4, flow_bits: 3, regions: 4, ..Sizes::of_tables() };
        let mut agent = Agent::new(Here(Switch::new(sizes)), sizes);
        agent.open(CONFIG, 0, []).expect("it fits");
        let (job, cookie) = (CONFIG.job, Cookie::default());
        let add = |worker| TableChange::AddWorker { address: address(worker), job, worker, cookie };
        agent.change(&(0..WORKERS).map(add).collect::<Vec<_>>()).expect("here nothing fails");
        let memory = RegionMemory::allocate(&CONFIG, |words| vec![0; words]);
        let region = Region::new(CONFIG, memory).expect("it is sound");
        let reference = Pipeline::new(vec![region]).expect("one region");
        Self { agent, reference, sent: BTreeMap::new(), waiting: Vec::new(), next: [0; 3], passed_again: 0 }
    }

    fn pass(&mut self, worker: u16, packet: Vec<u8>, again: Option<Again>) {
        match self.agent.link().0.pass(Port::Worker(address(worker)), &packet, again) {
            Passed::Again(again) => {
                self.passed_again += 1;
                self.waiting.push(Waiting { worker, packet, again });
            }
            Passed::Answered(answer) => assert_eq!(Some(answer), self.expected(worker, &packet)),
            Passed::Dropped => assert_eq!(None, self.expected(worker, &packet)),
        }
    }

    /// Returns the answer of the reference, which carries the push out now.
    fn expected(&mut self, worker: u16, packet: &[u8]) -> Option<Vec<u8>> {
        let (mut buffer, mut expected) = (packet.to_vec(), None);
        self.reference.process_burst((CONFIG.job, worker), [buffer.as_mut_slice()], |answer| {
            expected = Some(answer.to_vec());
        });
        let is_taken = |answer: &[u8]| Header::parse(answer).is_ok_and(|header| header.kind == Kind::Ack);
        if expected.as_deref().is_some_and(is_taken) {
            let seq = Header::parse(packet).expect("we made it").seq;
            let next = &mut self.next[usize::from(worker)];
            *next = (*next).max(seq + 1);
        }
        expected
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Send { worker, back, cells, values } => {
                let seq = self.next[usize::from(worker)].saturating_sub(back);
                // What is sent again is the same.
                let packet =
                    self.sent.entry((worker, seq)).or_insert_with(|| push(worker, seq, cells, values));
                let packet = packet.clone();
                self.pass(worker, packet, None);
            }
            Step::Pass(index) if !self.waiting.is_empty() => {
                let Waiting { worker, packet, again } = self.waiting.remove(index.index(self.waiting.len()));
                self.pass(worker, packet, Some(again));
            }
            Step::Lose(index) if !self.waiting.is_empty() => {
                self.waiting.remove(index.index(self.waiting.len()));
            }
            Step::Pass(_) | Step::Lose(_) => {}
            Step::CloseRound => self.close_round(),
        }
    }

    fn close_round(&mut self) {
        let region = self.reference.region_mut(NAME.0, NAME.1).expect("it is there");
        let closed = region.flip().ok().map(|round| (round, region.idle_packets()));
        let mut expected = BTreeMap::new();
        region.drain(|first, sums| expected.extend((first..).zip(sums.iter().copied())));
        expected.retain(|_, sum| *sum != 0);
        assert_eq!(self.agent.flip(NAME).expect("here nothing fails"), closed);
        let drained = self.agent.drain(NAME).expect("here nothing fails");
        assert_eq!(BTreeMap::from_iter(drained), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_push_is_added_once_and_at_once(steps in prop::collection::vec(step(), 0..300)) {
        let mut bench = Bench::new();
        for step in steps {
            bench.carry_out(step);
        }
        bench.close_round();
        bench.close_round();
    }
}

/// All of them have read the same sums: one is carried out, and the others pass once more.
#[test]
fn of_those_that_come_together_one_ends_the_turn() {
    let mut bench = Bench::new();
    for worker in 0..WORKERS {
        bench.pass(worker, push(worker, 0, [0; 4], [1.5; 4]), None);
    }
    assert_eq!(bench.waiting.len(), 3);
    for passes in [1, 2, 3] {
        for _ in 0..passes {
            if bench.waiting.is_empty() {
                continue;
            }
            let Waiting { worker, packet, again } = bench.waiting.remove(0);
            bench.pass(worker, packet, Some(again));
        }
    }
    while let Some(Waiting { worker, packet, again }) = bench.waiting.pop() {
        bench.pass(worker, packet, Some(again));
    }
    assert!(bench.passed_again > 3, "those that came too late have passed once more");
    bench.close_round();
}
