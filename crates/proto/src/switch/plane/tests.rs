//! The plane in software: windows for the workers that are there.

use libra_dataplane::{Arithmetic, Flags, Header, Kind, PacketWriter, packet_bytes};
use proptest::prelude::*;

use super::*;

const JOB: u16 = 3;
/// Numbers of workers that a plane with a window for each would need memory for.
const NUMBERS: [u16; 6] = [0, 1, 2, 40, 41, 65_000];

fn config(region: u8) -> RegionConfig {
    RegionConfig {
        job: JOB,
        region,
        plan: 1,
        view: 1,
        lanes: 1,
        cells: 20,
        flows: u16::MAX,
        bank_packets_max: 64,
        arithmetic: Arithmetic::Fixed { bound: 1000 },
    }
}

fn address(worker: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], worker))
}

fn workers(numbers: impl IntoIterator<Item = u16>) -> BTreeMap<u16, WorkerPath> {
    numbers.into_iter().map(|worker| (worker, address(worker).into())).collect()
}

fn packet(region: u8, worker: u16, seq: u32) -> Vec<u8> {
    let header = Header { job: JOB, worker, plan: 1, view: 1, region, seq, ..Header::of_kind(Kind::Push) };
    let header = Header { flags: Flags::LAST, ..header };
    let mut packet = vec![0; packet_bytes(1)];
    let mut writer = PacketWriter::new(header, &mut packet);
    // The value of a sum identifies its packets, as far as they are few.
    assert!(writer.push(worker % 7, 1 + seq));
    assert_eq!(writer.finish(), packet.len());
    packet
}

/// Returns the answer of a plane to a packet of a worker, if there is one.
fn push(plane: &mut SoftPlane, region: u8, worker: u16, seq: u32) -> Option<Header> {
    let mut packet = packet(region, worker, seq);
    let (stride, mut answers) = (packet.len(), Outgoing::default());
    plane.handle_datagrams(address(worker), &mut packet, stride, &mut answers);
    let (_, answer) = answers.get(0)?;
    Some(Header::parse_without_entries(answer).unwrap())
}

fn plane(regions: u8, there: &BTreeMap<u16, WorkerPath>) -> SoftPlane {
    let mut plane = SoftPlane::default();
    plane.begin(JOB);
    plane.set_workers(there);
    (0..regions)
        .for_each(|region| plane.open(config(region), 9, &RoundContents::default(), BankPackets::default()));
    plane
}

fn flows(plane: &SoftPlane) -> Vec<u16> {
    plane.pipeline.regions().iter().map(|region| region.config().flows).collect()
}

// rule D8
#[test]
fn a_window_is_taken_back_when_no_open_round_needs_it() {
    let mut plane = plane(2, &workers([0, 1]));
    assert_eq!(push(&mut plane, 0, 0, 0).unwrap().round, 10);
    plane.set_workers(&workers([1]));
    assert_eq!(push(&mut plane, 0, 0, 1), None, "it has no place");
    plane.set_workers(&workers([1, 500]));
    assert_eq!(flows(&plane), [3, 3], "the round has a packet of worker 0");
    let round = plane.close_round(0).unwrap();
    let first = AckedSet { below: 1, above: Vec::new() };
    assert_eq!((round.contents.flows, round.sums.first()), ([(0, first)].into(), Some(&1)));
    plane.set_workers(&workers([1, 500, 501]));
    assert_eq!(flows(&plane), [3, 3], "its window is that of another now");
    let answer = push(&mut plane, 0, 501, 0).unwrap();
    assert_eq!((answer.kind, plane.taken(0).pushes), (Kind::Ack, 1), "who has sent nothing before");
}

// rule D8
#[test]
fn a_worker_that_comes_back_finds_what_was_taken_of_it() {
    let mut plane = plane(1, &workers([0, 1]));
    for seq in [0, 1, 3] {
        assert_eq!(push(&mut plane, 0, 0, seq).unwrap().kind, Kind::Ack);
    }
    plane.close_round(0);
    plane.set_workers(&workers([1]));
    plane.set_workers(&workers([1, 2]));
    assert!(push(&mut plane, 0, 2, 3).is_some());
    assert_eq!(plane.taken(0).pushes, 1);
    plane.set_workers(&workers([0, 1, 2]));
    for (seq, taken, round) in [(0, 1, 10), (3, 1, 10), (2, 2, 11), (4, 3, 11)] {
        let answer = push(&mut plane, 0, 0, seq).unwrap();
        assert_eq!((answer.kind, answer.round, plane.taken(0).pushes), (Kind::Ack, round, taken), "{seq}");
    }
}

#[test]
fn windows_take_memory_for_those_who_are_there() {
    let there = workers((0..4096).map(|number| 16 * number + 15));
    let mut plane = plane(1, &there);
    assert!(plane.memory_bytes() < 17 << 20, "{}", plane.memory_bytes());
    let before = plane.memory_bytes();
    for turn in 0..5 {
        plane.set_workers(&workers((0..4096).map(|number| 16 * number + turn)));
    }
    assert_eq!(plane.memory_bytes(), before);
}

/// A step of a test case.
#[derive(Debug, Clone)]
enum Step {
    /// Those whose bits are set are there.
    Workers(u8),
    /// A worker sends its next packet, or one of so many before it again.
    Push {
        region: u8,
        worker: usize,
        back: u32,
    },
    Close(u8),
    /// Another owner takes a region over.
    Reopen(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<u8>().prop_map(Step::Workers),
        20 => (0..2u8, 0..NUMBERS.len(), 0..4u32).prop_map(|(region, worker, back)| Step::Push { region, worker, back }),
        3 => (0..2u8).prop_map(Step::Close),
        1 => (0..2u8).prop_map(Step::Reopen),
    ]
}

/// A plane with a window for each number, and what shards have of its regions.
struct Model {
    pipeline: Pipeline<Vec<SoftRegion>, Vec<u32>>,
    contents: [RoundContents; 2],
    rounds: [u16; 2],
}

impl Model {
    fn open(&self, region: u8) -> SoftRegion {
        let number = |worker: &u16| NUMBERS.iter().position(|other| other == worker).unwrap();
        let contents = &self.contents[usize::from(region)];
        let flows = contents
            .flows
            .iter()
            .map(|(worker, seen)| (u16::try_from(number(worker)).unwrap(), seen.clone()));
        let config = RegionConfig { flows: 6, ..config(region) };
        region::open(config, self.rounds[usize::from(region)], &RoundContents { flows: flows.collect() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    // rules D1, D2, D8, E2
    #[test]
    fn windows_on_demand_are_as_good_as_one_for_each(steps in prop::collection::vec(step(), 1..200)) {
        let mut there = workers(NUMBERS);
        let mut plane = SoftPlane::default();
        plane.begin(JOB);
        plane.set_workers(&there);
        let mut model =
            Model { pipeline: Pipeline::new(Vec::new()).unwrap(), contents: Default::default(), rounds: [9; 2] };
        for region in 0..2 {
            plane.open(config(region), 9, &RoundContents::default(), BankPackets::default());
            let opened = model.open(region);
            model.pipeline.change(|regions| regions.push(opened)).unwrap();
        }
        let mut next = [[0u32; NUMBERS.len()]; 2];
        let mut took = BTreeMap::new();
        for step in steps {
            match step {
                Step::Workers(bits) => {
                    let is_there = |(index, _): &(usize, u16)| bits >> index & 1 != 0;
                    let numbers = NUMBERS.into_iter().enumerate().filter(is_there);
                    there = workers(numbers.map(|(_, number)| number));
                    plane.set_workers(&there);
                }
                Step::Push { region, worker, back } => {
                    let next = &mut next[usize::from(region)][worker];
                    let seq = next.saturating_sub(back);
                    let plane_pushes = plane.taken(region).pushes;
                    let answer = push(&mut plane, region, NUMBERS[worker], seq);
                    if !there.contains_key(&NUMBERS[worker]) {
                        prop_assert_eq!(answer, None);
                        continue;
                    }
                    let mut packet = packet(region, NUMBERS[worker], seq);
                    let flow = u16::try_from(worker).unwrap();
                    let sender = Sender { job: JOB, worker: NUMBERS[worker], flow };
                    let mut expected = None;
                    model.pipeline.process_burst(sender, [packet.as_mut_slice()], |answer| {
                        expected = Header::parse_without_entries(answer).ok();
                    });
                    // For what was taken before, a window may name that round or any later one that is sure to close (rule D2).
                    let (pushes, open) = {
                        let region = model.pipeline.region(JOB, region).unwrap();
                        (region.active_packets().pushes, region.round())
                    };
                    let (answer, mut expected) = (answer.unwrap(), expected.unwrap());
                    if answer.kind == Kind::Ack {
                        let name = (region, worker, seq);
                        if pushes > plane_pushes {
                            took.insert(name, answer.round);
                        }
                        let newest = if pushes > 0 { open } else { open - 1 };
                        prop_assert!((took[&name]..=newest).contains(&answer.round), "{answer:?} of {took:?}");
                        expected.round = answer.round;
                    }
                    prop_assert_eq!((answer, plane.taken(region).pushes), (expected, pushes));
                    // A bank that is full takes it later.
                    if answer.kind == Kind::Ack {
                        *next = (*next).max(seq + 1);
                    }
                }
                Step::Close(region) => {
                    let number = usize::from(region);
                    let round = plane.close_round(region).unwrap();
                    let mut expected = region::close_round(model.pipeline.region_mut(JOB, region).unwrap());
                    let flows = core::mem::take(&mut expected.contents.flows).into_iter();
                    expected.contents.flows = flows.map(|(flow, seen)| (NUMBERS[usize::from(flow)], seen)).collect();
                    prop_assert_eq!(&round, &expected);
                    model.contents[number].advance(round.contents);
                    model.rounds[number] += 1;
                }
                Step::Reopen(region) => {
                    let number = usize::from(region);
                    plane.forget(region);
                    plane.open(config(region), model.rounds[number], &model.contents[number], BankPackets::default());
                    let opened = model.open(region);
                    model.pipeline.change(|regions| regions[number] = opened).unwrap();
                }
            }
        }
    }
}
