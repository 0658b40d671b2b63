//! Pools and streams over a network that loses, duplicates and reorders, all from a seed.

use proptest::prelude::*;

use super::*;
use crate::random::Random;

/// Faults of the network.
#[derive(Debug, Clone, Copy)]
struct Faults {
    /// Of 100 packets, this many are lost.
    lost: u32,
    /// Of 100 packets, this many come twice.
    twice: u32,
    order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// Only packets of different links or slots overtake each other, as SwitchML assumes.
    WithinSlots,
    /// Any packet may overtake any other.
    None,
}

/// Destination of a packet.
#[derive(Debug, Clone)]
enum Way {
    ToSwitch(Packet),
    ToWorker(u16, Packet),
}

impl Way {
    /// The packets that are not to overtake each other.
    fn lane(&self) -> (bool, u16, u32) {
        match self {
            Self::ToSwitch(packet) => (true, packet.worker, packet.slot),
            Self::ToWorker(worker, packet) => (false, *worker, packet.slot),
        }
    }
}

struct Network {
    flying: Vec<Way>,
    faults: Faults,
    random: Random,
}

impl Network {
    fn send(&mut self, way: Way) {
        if self.random.below(100) < self.faults.lost {
            return;
        }
        if self.random.below(100) < self.faults.twice {
            self.flying.push(way.clone());
        }
        self.flying.push(way);
    }

    fn deliver(&mut self) -> Option<Way> {
        if self.flying.is_empty() {
            return None;
        }
        let picked = self.random.below(u32::try_from(self.flying.len()).unwrap()) as usize;
        let lane = self.flying[picked].lane();
        let first = match self.faults.order {
            Order::WithinSlots => self.flying.iter().position(|way| way.lane() == lane).unwrap(),
            Order::None => picked,
        };
        Some(self.flying.remove(first))
    }
}

/// Streams an update of each worker; timers run out at any moment. Returns the streams when all are done, or nothing if
/// they stand still.
fn run(pool: &mut Pool, mut streams: Vec<Stream>, faults: Faults, seed: u64) -> Option<Vec<Stream>> {
    let mut network = Network { flying: Vec::new(), faults, random: Random::new(seed) };
    for stream in &mut streams {
        stream.start().into_iter().for_each(|packet| network.send(Way::ToSwitch(packet)));
    }
    let workers = u32::try_from(streams.len()).unwrap();
    let slots = u32::try_from(streams[0].slots()).unwrap();
    let mut steps = 0_u64;
    while !streams.iter().all(Stream::is_done) {
        steps += 1;
        if steps == 50_000 {
            return None;
        }
        // A timer now and then, far too early as often as not; always if nothing is on its way.
        if network.flying.is_empty() || network.random.below(8) == 0 {
            let stream = &streams[network.random.below(workers) as usize];
            let again = stream.handle_timeout(network.random.below(slots));
            again.into_iter().for_each(|packet| network.send(Way::ToSwitch(packet)));
        }
        match network.deliver() {
            Some(Way::ToSwitch(packet)) => match pool.handle(&packet) {
                Action::Drop => {}
                Action::Unicast(result) => network.send(Way::ToWorker(result.worker, result)),
                Action::Multicast(result) => {
                    for worker in 0..u16::try_from(workers).unwrap() {
                        network.send(Way::ToWorker(worker, result.clone()));
                    }
                }
            },
            Some(Way::ToWorker(worker, result)) => {
                let next = streams[usize::from(worker)].handle_result(&result);
                next.into_iter().for_each(|packet| network.send(Way::ToSwitch(packet)));
            }
            None => {}
        }
    }
    Some(streams)
}

/// Updates of all workers and their right sum.
fn updates(workers: u16, length: usize, seed: u64) -> (Vec<Vec<i32>>, Vec<i32>) {
    let mut random = Random::new(seed);
    let updates: Vec<Vec<i32>> =
        (0..workers).map(|_| (0..length).map(|_| random.word().cast_signed()).collect()).collect();
    let sums = (0..length)
        .map(|at| updates.iter().fold(0_i32, |sum, update| sum.wrapping_add(update[at])))
        .collect();
    (updates, sums)
}

/// Two updates, one after the other, over one pool: whether all sums of all workers are right.
fn are_exact(
    mut pool: Pool,
    workers: u16,
    slots: u32,
    chunk: usize,
    length: usize,
    faults: Faults,
    seed: u64,
) -> bool {
    let mut done: Option<Vec<Stream>> = None;
    for update in 0..2 {
        let (updates, right) = updates(workers, length, seed ^ update);
        let streams = updates
            .into_iter()
            .zip(0..)
            .map(|(update, worker)| {
                let stream = Stream::new(worker, slots, chunk, update);
                match &done {
                    Some(before) => stream.following(&before[usize::from(worker)]),
                    None => stream,
                }
            })
            .collect();
        let Some(streams) = run(&mut pool, streams, faults, seed.wrapping_add(update)) else { return false };
        if streams.iter().any(|stream| stream.sums() != right) {
            return false;
        }
        done = Some(streams);
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sums_are_exact_under_loss_and_duplication(
        workers in 1_u16..6, slots in 1_u32..6, chunk in 1_usize..5, length in 0_usize..80,
        lost in 0_u32..40, twice in 0_u32..40, seed: u64,
    ) {
        let pool = Pool::new(workers, slots, chunk);
        let faults = Faults { lost, twice, order: Order::WithinSlots };
        prop_assert!(are_exact(pool, workers, slots, chunk, length, faults, seed));
    }

    #[test]
    fn a_pool_that_remembers_offsets_bears_any_order(
        workers in 1_u16..6, slots in 1_u32..6, chunk in 1_usize..5, length in 0_usize..80,
        lost in 0_u32..40, twice in 0_u32..40, seed: u64,
    ) {
        let pool = Pool::new(workers, slots, chunk).remembering_offsets();
        let faults = Faults { lost, twice, order: Order::None };
        prop_assert!(are_exact(pool, workers, slots, chunk, length, faults, seed));
    }
}

/// The limit that the documentation names, and the proof that these tests would find it.
#[test]
fn switchmls_own_pool_does_not_bear_any_order() {
    let faults = Faults { lost: 10, twice: 30, order: Order::None };
    let wrong = (0..20).filter(|seed| !are_exact(Pool::new(3, 2, 1), 3, 2, 1, 40, faults, *seed)).count();
    assert!(wrong > 0, "a delayed duplicate was never taken for a new update");
}

#[test]
fn more_workers_than_a_word_has_bits() {
    let faults = Faults { lost: 5, twice: 5, order: Order::WithinSlots };
    assert!(are_exact(Pool::new(130, 2, 4), 130, 2, 4, 24, faults, 9));
}

#[test]
fn packets_without_values_take_the_same_way() {
    let mut pool = Pool::new(2, 3, 4);
    let streams = (0..2).map(|worker| Stream::of_traffic(worker, 3, 4, 1000)).collect();
    let faults = Faults { lost: 20, twice: 20, order: Order::WithinSlots };
    for stream in run(&mut pool, streams, faults, 5).unwrap() {
        assert!(stream.is_done() && stream.sums().is_empty());
    }
}

#[test]
fn nothing_to_send_is_done_at_once() {
    let mut stream = Stream::new(0, 4, 8, Vec::new());
    assert!(stream.is_done() && stream.start().is_empty());
    assert_eq!(stream.handle_timeout(0), None);
}

#[test]
fn a_result_that_comes_twice_sends_nothing() {
    let mut stream = Stream::new(0, 1, 1, vec![5, 6]);
    let first = stream.start().remove(0);
    let next = stream.handle_result(&first).unwrap();
    assert_eq!((next.version, next.offset, &next.values[..]), (true, 1, &[6][..]));
    assert_eq!(stream.handle_result(&first), None);
    assert_eq!(stream.handle_timeout(0), Some(next));
}
