//! Exhaustively, in a small scope: whatever the network does, every push is in the sums exactly once.
//!
//! Two workers, two slots, banks that take few packets; every order of sending, losing a packet or its answer, sending
//! again, flipping and draining, up to a depth.

use libra_dataplane::{Kind, NackReason, RegionConfig, round_newer};

use crate::scene::{JOB, TestPipeline, answer, entries, header, pipeline, small_config, write};

const FLOWS: u16 = 2;
const SLOTS: usize = 2;

#[derive(Clone)]
struct World {
    pipeline: TestPipeline,
    workers: [Worker; FLOWS as usize],
    /// Drained sums, slot by slot.
    drained: [u32; SLOTS],
    /// For each flow, the sequence numbers that some arrival was acknowledged for, with the round that took them.
    taken: Vec<(u16, u32, u16)>,
}

#[derive(Clone, Copy, Default)]
struct Worker {
    /// Sequence numbers below it were sent at least once.
    sent: u32,
    /// Those that an answer came for, as bits.
    acknowledged: u32,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// A packet is sent, for the first time or again, and what becomes of it.
    Send {
        flow: u16,
        seq: u32,
        path: Path,
    },
    Flip,
    /// The agent drains through its own door, or by packets.
    Drain {
        by_packet: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Path {
    LosesPacket,
    LosesAnswer,
    Delivers,
    /// The packet arrives twice.
    Duplicates,
}

/// Returns the gradient of packet `seq` of a flow for each slot: sums of different sets of packets differ.
fn gradient(flow: u16, seq: u32) -> [u32; SLOTS] {
    let weight = 1 << (u32::from(flow) * 8 + seq);
    if seq.is_multiple_of(2) { [weight, 0] } else { [weight, weight] }
}

fn packet(flow: u16, seq: u32) -> Vec<u8> {
    let [first, second] = gradient(flow, seq).map(u32::cast_signed);
    let list = if second == 0 { vec![(0, first)] } else { vec![(0, first), (1, second)] };
    write(header(Kind::Push, flow, seq), &entries(&list))
}

impl World {
    fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::Flip];
        // Draining a clean bank changes nothing.
        if !self.pipeline.region(JOB, 0).unwrap().is_idle_clean() {
            actions.extend([Action::Drain { by_packet: false }, Action::Drain { by_packet: true }]);
        }
        for flow in 0..FLOWS {
            let worker = &self.workers[usize::from(flow)];
            for seq in 0..=worker.sent {
                let fresh = seq == worker.sent;
                // Losing a packet that was sent before changes nothing.
                if fresh {
                    actions.push(Action::Send { flow, seq, path: Path::LosesPacket });
                    actions.push(Action::Send { flow, seq, path: Path::Duplicates });
                }
                actions.push(Action::Send { flow, seq, path: Path::LosesAnswer });
                if worker.acknowledged >> seq & 1 == 0 {
                    actions.push(Action::Send { flow, seq, path: Path::Delivers });
                }
            }
        }
        actions
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Flip => {
                let region = self.pipeline.region_mut(JOB, 0).unwrap();
                let clean = region.is_idle_clean();
                assert_eq!(region.flip().is_ok(), clean);
            }
            Action::Drain { by_packet: false } => {
                let drained = &mut self.drained;
                self.pipeline.region_mut(JOB, 0).unwrap().drain(|first_slot, sums| {
                    assert_eq!(first_slot, 0);
                    drained.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
                });
            }
            Action::Drain { by_packet: true } => {
                let drain = write(header(Kind::Drain, 0, 0), &entries(&[(0, 0), (1, 0)]));
                let (_, sums) = answer(&mut self.pipeline, &drain);
                self.drained.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum.value);
                assert!(self.pipeline.region(JOB, 0).unwrap().is_idle_clean());
            }
            Action::Send { flow, seq, path } => {
                let sent = &mut self.workers[usize::from(flow)].sent;
                *sent = (*sent).max(seq + 1);
                match path {
                    Path::LosesPacket => {}
                    Path::LosesAnswer => drop(self.arrive(flow, seq)),
                    Path::Delivers => {
                        let accepted = self.arrive(flow, seq);
                        self.workers[usize::from(flow)].acknowledged |= u32::from(accepted) << seq;
                    }
                    Path::Duplicates => {
                        let first = self.arrive(flow, seq);
                        let second = self.arrive(flow, seq);
                        assert!(second || !first);
                    }
                }
            }
        }
    }

    /// A packet arrives; whether it was acknowledged.
    fn arrive(&mut self, flow: u16, seq: u32) -> bool {
        let before = self.taken.iter().find(|taken| (taken.0, taken.1) == (flow, seq)).copied();
        let region = self.pipeline.region(JOB, 0).unwrap();
        let (round, full) = (region.round(), region.pushes_in_bank() == region.config().bank_packets_max);
        assert_eq!(region.window(flow).unwrap().contains(seq), before.is_some());

        let (answer, _) = answer(&mut self.pipeline, &packet(flow, seq));
        if answer.kind == Kind::Nack {
            assert_eq!(answer.nack_reason(), Some(NackReason::BankFull));
            assert!(full && before.is_none());
            return false;
        }
        assert_eq!((answer.kind, answer.seq, answer.worker), (Kind::Ack, seq, flow));
        match before {
            // The worker may let go of a packet when its round is reported as durable: never too early.
            Some((_, _, taken)) => assert!(!round_newer(taken, answer.round)),
            None => {
                assert!(!full);
                assert_eq!(answer.round, round);
                self.taken.push((flow, seq, round));
            }
        }
        true
    }

    /// The invariant: what was drained and what is in the banks is what was taken, each packet once.
    fn check(&self) {
        let mut found = self.drained;
        let mut copy = self.pipeline.clone();
        let region = copy.region_mut(JOB, 0).unwrap();
        for _ in 0..2 {
            region.drain(|_, sums| found.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum));
            region.flip().unwrap();
        }
        let mut expected = [0; SLOTS];
        for &(flow, seq, _) in &self.taken {
            expected.iter_mut().zip(gradient(flow, seq)).for_each(|(total, value)| *total += value);
        }
        assert_eq!(found, expected);
        for flow in 0..FLOWS {
            let mut taken: Vec<u32> =
                self.taken.iter().filter(|taken| taken.0 == flow).map(|taken| taken.1).collect();
            taken.sort_unstable();
            assert!(region.window(flow).unwrap().accepted().flatten().eq(taken));
        }
    }

    fn explore(&self, depth: u32, visited: &mut u64) {
        *visited += 1;
        self.check();
        if depth == 0 {
            return;
        }
        for action in self.actions() {
            let mut next = self.clone();
            next.act(action);
            next.explore(depth - 1, visited);
        }
    }
}

fn explore(bank_packets_max: u32, depth: u32) -> u64 {
    let config = RegionConfig { bank_packets_max, flows: FLOWS, ..small_config() };
    let world = World {
        pipeline: pipeline(&[config]),
        workers: [Worker::default(); FLOWS as usize],
        drained: [0; SLOTS],
        taken: Vec::new(),
    };
    let mut visited = 0;
    world.explore(depth, &mut visited);
    visited
}

// rules D1, D2, D3
#[test]
fn every_push_counts_exactly_once() {
    assert!(explore(8, 6) > 100_000);
}

// rule D4
#[test]
fn every_push_counts_exactly_once_when_banks_are_soon_full() {
    assert!(explore(2, 5) > 100_000);
    assert!(explore(1, 4) > 10_000);
}
