//! SwitchML on the same machines and links: every parameter of the model, in rounds over a pool.
//!
//! The switch and worker programs are those of `libra-paper`, with packets that carry no values. An iteration of a large model is thousands of rounds that are
//! all alike, so some of them are simulated, and the iteration is as many times as long. A worker's processor takes
//! [`packet_ns`](DenseSetting::packet_ns) for each packet it sends; with zero, what comes out is what links and the pool allow at most.

use core::time::Duration;
use std::collections::BTreeMap;

use libra_paper::switchml::{Action, Packet, Pool, Profile, Stream};
use libra_proto::Instant;
use serde::Serialize;

use crate::fabric::{Fabric, Hop, LinkSpec, Place, Train, instant};

/// Bytes around a packet on the wire that [`Profile`] does not count: preamble, checksum and gap.
const FRAMING: usize = 24;
/// A packet with an exponent and nothing else is the least that Ethernet has, with what is around it.
const EXPONENT_BYTES: usize = 64 + 20;

/// Parameters of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DenseSetting {
    /// Workers, dealt to the machines.
    pub workers: u16,
    /// Machines.
    pub machines: usize,
    /// Their links.
    pub link: LinkSpec,
    /// Time of a packet from port to port.
    pub forwarding: Duration,
    /// Bytes of the pool, and values in a packet.
    pub profile: Profile,
    /// Parameters of the model.
    pub parameters: u64,
    /// Parameters with a gradient in an iteration of a worker: what is aggregated for the sake of.
    pub batch: u64,
    /// Processor time of a worker for a packet.
    pub packet_ns: f64,
    /// Rounds that are simulated, of which the first half warms up.
    pub rounds: u64,
}

/// Result of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DenseReport {
    /// One iteration: all parameters of all workers.
    pub iteration_seconds: f64,
    /// Gradients that are not zero, of all workers.
    pub pairs_per_second: f64,
    /// Values of all workers, most of them zero.
    pub values_per_second: f64,
    /// Rounds of an iteration, and how many of them were simulated.
    pub rounds: u64,
    /// See above.
    pub rounds_simulated: u64,
    /// Share of its time that the busiest link was busy.
    pub link_most: f64,
    /// Packets that were lost, in full queues or at random, and sent again.
    pub packets_lost: u64,
}

#[derive(Debug)]
enum Happening {
    Leaves(Packet),
    AtPool(Packet),
    AtPort(u16, Packet, Instant),
    Result(u16, Packet),
    Timeout { worker: u16, slot: u32, offset: u64 },
}

/// Timeout of a worker for a result.
const RESULT_TIMEOUT: Duration = Duration::from_millis(1);

impl DenseSetting {
    /// Simulates some rounds.
    #[must_use]
    pub fn run(&self) -> DenseReport {
        let bytes = usize::try_from(self.profile.packet_bytes()).unwrap_or(usize::MAX) + FRAMING;
        Rounds::new(self, self.values(), bytes).run(self)
    }

    /// The same for exponents: as many packets, each with the exponent of a chunk in place of its values.
    #[must_use]
    pub fn run_exponents(&self) -> DenseReport {
        Rounds::new(self, self.values(), EXPONENT_BYTES).run(self)
    }

    /// Simulates a negotiation of one exponent for everything: each worker sends its own when it is ready. Returns the time at which all have received the largest.
    #[must_use]
    pub fn negotiate(&self, ready: &[Duration]) -> Duration {
        let mut rounds = Rounds::new(self, self.profile.chunk.into(), EXPONENT_BYTES);
        for (free_at, ready) in rounds.free_at.iter_mut().zip(ready) {
            *free_at = ready.as_secs_f64() * 1e9;
        }
        rounds.start(self.packet_ns);
        while !rounds.is_done() && rounds.step(self.packet_ns).is_some() {}
        rounds.now.since(Instant::ZERO)
    }

    /// Values of the rounds that are simulated.
    fn values(&self) -> u64 {
        self.rounds * self.profile.slots() * u64::from(self.profile.chunk)
    }
}

struct Rounds {
    queue: BTreeMap<(Instant, u64), Happening>,
    numbered: u64,
    now: Instant,
    fabric: Fabric,
    pool: Pool,
    streams: Vec<Stream>,
    /// When the processor of a worker has sent what it is to send.
    free_at: Vec<f64>,
    machines: usize,
    train: Train,
    lost: u64,
}

impl Rounds {
    /// Streams of so many values, in packets of so many bytes.
    fn new(setting: &DenseSetting, length: u64, bytes: usize) -> Self {
        let slots = u32::try_from(setting.profile.slots()).unwrap_or(u32::MAX);
        let chunk = setting.profile.chunk as usize;
        // A queue of the pool's size: as in its paper, nothing is lost if the pool fits the buffers.
        let queue_bytes =
            setting.link.queue_bytes.max((slots as usize * bytes * usize::from(setting.workers)) as f64);
        let mut fabric = Fabric::new(LinkSpec { queue_bytes, ..setting.link }, setting.forwarding, 1);
        (0..setting.machines).for_each(|_| fabric.add(true));
        fabric.add(false);
        Self {
            queue: BTreeMap::new(),
            numbered: 0,
            now: Instant::ZERO,
            fabric,
            pool: Pool::new(setting.workers, slots, chunk),
            streams: (0..setting.workers)
                .map(|worker| Stream::of_traffic(worker, slots, chunk, length))
                .collect(),
            free_at: vec![0.0; setting.workers.into()],
            machines: setting.machines,
            train: Train {
                bytes,
                first: bytes,
                last: bytes,
                packets: 1,
                droppable: true,
                late: Duration::ZERO,
            },
            lost: 0,
        }
    }

    fn place(&self, worker: u16) -> Place {
        usize::from(worker) % self.machines
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.numbered += 1;
        self.queue.insert((at, self.numbered), happening);
    }

    /// The processor of a worker makes a packet when it has made those before.
    fn send(&mut self, packet: Packet, packet_ns: f64) {
        let free_at = &mut self.free_at[usize::from(packet.worker)];
        *free_at = free_at.max(self.now.as_nanos() as f64) + packet_ns;
        let at = instant(*free_at);
        self.schedule(at, Happening::Leaves(packet));
    }

    fn is_done(&self) -> bool {
        self.streams.iter().all(Stream::is_done)
    }

    fn start(&mut self, packet_ns: f64) {
        for worker in 0..self.streams.len() {
            for packet in self.streams[worker].start() {
                self.send(packet, packet_ns);
            }
        }
    }

    /// The next thing happens. Returns whether it was a result that came to a worker; `None` if nothing is left.
    fn step(&mut self, packet_ns: f64) -> Option<bool> {
        let ((at, _), happening) = self.queue.pop_first()?;
        self.now = at;
        let is_result = matches!(happening, Happening::Result(..));
        match happening {
            Happening::Leaves(packet) => self.leaves(packet),
            Happening::AtPool(packet) => self.at_pool(&packet),
            Happening::AtPort(worker, packet, tail) => {
                let mut train = self.train;
                match self.fabric.forward(self.place(worker), &mut train, at, tail) {
                    (Hop::Arrives(at), lost) if lost.is_empty() => {
                        self.schedule(at, Happening::Result(worker, packet));
                    }
                    _ => self.lost += 1,
                }
            }
            Happening::Result(worker, packet) => {
                let next = self.streams[usize::from(worker)].handle_result(&packet);
                if let Some(packet) = next {
                    self.send(packet, packet_ns);
                }
            }
            Happening::Timeout { worker, slot, offset } => {
                let again = self.streams[usize::from(worker)].handle_timeout(slot);
                if let Some(packet) = again.filter(|packet| packet.offset == offset) {
                    self.send(packet, packet_ns);
                }
            }
        }
        Some(is_result)
    }

    fn run(mut self, setting: &DenseSetting) -> DenseReport {
        self.start(setting.packet_ns);
        let whole = setting.rounds * setting.profile.slots() * u64::from(setting.workers);
        let (mut results, mut half, mut busy_at_half) = (0, None, Vec::new());
        while let Some(is_result) = self.step(setting.packet_ns) {
            if !is_result {
                continue;
            }
            results += 1;
            if half.is_none() && results >= whole / 2 {
                (half, busy_at_half) = (Some((self.now, results)), self.busy());
            }
            if self.is_done() {
                break;
            }
        }
        let (begin, before) = half.unwrap_or((Instant::ZERO, 0));
        let seconds = self.now.since(begin).as_secs_f64();
        let rounds =
            (results - before) as f64 / (setting.profile.slots() * u64::from(setting.workers)) as f64;
        let all = setting.profile.cost(setting.parameters).rounds;
        let iteration_seconds = all as f64 * seconds / rounds;
        let workers = f64::from(setting.workers);
        DenseReport {
            iteration_seconds,
            pairs_per_second: workers * setting.batch as f64 / iteration_seconds,
            values_per_second: workers * setting.parameters as f64 / iteration_seconds,
            rounds: all,
            rounds_simulated: setting.rounds,
            link_most: self
                .busy()
                .iter()
                .zip(&busy_at_half)
                .map(|(busy, before)| busy - before)
                .fold(0.0, f64::max)
                / 1e9
                / seconds,
            packets_lost: self.lost,
        }
    }

    /// Returns the busy time of each link.
    fn busy(&self) -> Vec<f64> {
        let links = (0..self.machines).filter_map(|place| self.fabric.counts(place, self.now)).flatten();
        links.map(|link| link.busy_ns).collect()
    }

    fn leaves(&mut self, packet: Packet) {
        let Packet { worker, slot, offset, .. } = packet;
        self.schedule(self.now + RESULT_TIMEOUT, Happening::Timeout { worker, slot, offset });
        let mut train = self.train;
        match self.fabric.leave(self.now, self.place(worker), self.machines, &mut train) {
            // The pool is in the switch: a packet is there when all of it is.
            (Hop::AtSwitch(_, tail), lost) if lost.is_empty() => {
                self.schedule(tail, Happening::AtPool(packet));
            }
            _ => self.lost += 1,
        }
    }

    fn at_pool(&mut self, packet: &Packet) {
        match self.pool.handle(packet) {
            Action::Drop => {}
            Action::Unicast(result) => {
                let worker = result.worker;
                self.schedule(self.now, Happening::AtPort(worker, result, self.now));
            }
            Action::Multicast(result) => {
                for worker in 0..self.streams.len() {
                    let worker = u16::try_from(worker).expect("workers are counted by a u16");
                    self.schedule(self.now, Happening::AtPort(worker, result.clone(), self.now));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(workers: u16, memory_bytes: u64) -> DenseSetting {
        DenseSetting {
            workers,
            machines: 8,
            link: LinkSpec::DUAL_100G,
            forwarding: Duration::from_micros(1),
            profile: Profile { memory_bytes, chunk: 32 },
            parameters: 9_000_000,
            batch: 10_000,
            packet_ns: 0.0,
            rounds: 8,
        }
    }

    /// 204 bytes at 200 Gbit/s are 8.16 ns, so a pool of 4,096 slots is a round trip of links that are never idle: with one worker on each machine
    /// they are the limit.
    #[test]
    fn links_limit_a_pool_that_is_large_enough() {
        let report = setting(8, 1 << 20).run();
        let expected = 9_000_000.0 / 32.0 * 204.0 * 8.0 / 200e9;
        assert!((report.iteration_seconds / expected - 1.0).abs() < 0.1, "{report:?} for {expected}");
        assert!((0.85..=1.001).contains(&report.link_most) && report.packets_lost == 0, "{report:?}");
        let four = setting(32, 1 << 20).run();
        assert!(
            (four.iteration_seconds / report.iteration_seconds / 4.0 - 1.0).abs() < 0.1,
            "four share a link"
        );
    }

    /// With 64 slots a worker waits for answers: 1 us of switch, 1 us of cables and two packets, 64 packets at a time.
    #[test]
    fn round_trips_limit_a_pool_that_is_small() {
        let small = setting(8, 64 * 2 * 4 * 32).run();
        let round_trip = 1e-6 + 2.0 * 0.5e-6 + 2.0 * 204.0 * 8.0 / 200e9;
        let expected = 9_000_000.0 / 32.0 / 64.0 * round_trip;
        assert!((small.iteration_seconds / expected - 1.0).abs() < 0.15, "{small:?} for {expected}");
        let twice = setting(8, 2 * 64 * 2 * 4 * 32).run();
        assert!(small.iteration_seconds / twice.iteration_seconds > 1.6, "{twice:?}");
    }
    /// One factor for everything waits for the slowest worker and then for a round trip; exponents of all chunks are a pass of small packets.
    #[test]
    fn a_negotiation_waits_for_the_slowest() {
        let setting = setting(32, 1 << 20);
        let ready: Vec<Duration> = (0..32).map(|worker| Duration::from_micros(100 + 90 * worker)).collect();
        let slowest = *ready.last().unwrap();
        let beyond = setting.negotiate(&ready) - slowest;
        // 2 us of switch and cables, and two small packets.
        assert!((2.0..2.1).contains(&(beyond.as_secs_f64() * 1e6)), "{beyond:?}");
        let (exponents, values) = (setting.run_exponents(), setting.run());
        let ratio = exponents.iteration_seconds / values.iteration_seconds;
        assert!((ratio / (84.0 / 204.0) - 1.0).abs() < 0.1, "links are the limit: {ratio}");
    }
}
