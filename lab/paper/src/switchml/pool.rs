//! The switch: a pool of slots in two versions.

use super::Packet;

/// Response of the switch to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing leaves.
    Drop,
    /// To all workers.
    Multicast(Packet),
    /// To the worker that the packet names.
    Unicast(Packet),
}

/// The pool of slots, and the switch program with packet loss recovery.
///
/// ```
/// use libra_paper::switchml::{Action, Packet, Pool};
///
/// let mut pool = Pool::new(2, 1, 3);
/// let packet = |worker, values| Packet { worker, version: false, slot: 0, offset: 0, values };
/// assert_eq!(pool.handle(&packet(0, vec![1, 2, 3])), Action::Drop);
/// // Again, as its worker received no answer.
/// assert_eq!(pool.handle(&packet(0, vec![1, 2, 3])), Action::Drop);
/// let sums = packet(1, vec![11, 22, 33]);
/// assert_eq!(pool.handle(&packet(1, vec![10, 20, 30])), Action::Multicast(sums));
/// // The result for worker 0 was lost.
/// assert_eq!(pool.handle(&packet(0, vec![1, 2, 3])), Action::Unicast(packet(0, vec![11, 22, 33])));
/// ```
#[derive(Debug, Clone)]
pub struct Pool {
    workers: u16,
    /// Values in a slot.
    chunk: usize,
    versions: [Version; 2],
    remembers_offsets: bool,
}

/// All slots in one version.
#[derive(Debug, Clone)]
struct Version {
    /// `chunk` values for each slot.
    values: Vec<i32>,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
struct Slot {
    /// Workers whose update is in the values, modulo their number: zero before the first and after the last.
    count: u16,
    /// A bit for each worker that was seen.
    seen: Vec<u64>,
    /// The offset of what was added last, if anything was. Not read by SwitchML's own program.
    offset: Option<u64>,
}

impl Pool {
    /// A pool of `slots` slots, in both versions, of `chunk` values each.
    ///
    /// # Panics
    /// If there are no workers or no slots.
    #[must_use]
    pub fn new(workers: u16, slots: u32, chunk: usize) -> Self {
        assert!(workers > 0 && slots > 0, "a pool has workers and slots");
        let slot = Slot { count: 0, seen: vec![0; usize::from(workers).div_ceil(64)], offset: None };
        let version = Version { values: vec![0; slots as usize * chunk], slots: vec![slot; slots as usize] };
        Self { workers, chunk, versions: [version.clone(), version], remembers_offsets: false }
    }

    /// The same pool, but it also drops an update that is older than what its slot has seen. This is ours: SwitchML
    /// relies on the order of packets instead.
    #[must_use]
    pub fn remembering_offsets(self) -> Self {
        Self { remembers_offsets: true, ..self }
    }

    /// Takes a packet of a worker.
    ///
    /// # Panics
    /// If there is no such worker or slot, or the packet has neither as many values as a slot nor none. A pool and its
    /// workers are made for each other.
    pub fn handle(&mut self, packet: &Packet) -> Action {
        assert!(packet.worker < self.workers, "worker {} of {}", packet.worker, self.workers);
        assert!(packet.values.len() == self.chunk || packet.values.is_empty(), "not a chunk");
        let at = packet.slot as usize;
        let [even, odd] = &mut self.versions;
        let (version, shadow) = if packet.version { (odd, even) } else { (even, odd) };
        let slot = &mut version.slots[at];
        if self.remembers_offsets && slot.is_past(packet) {
            return Action::Drop;
        }
        let sums = &mut version.values[at * self.chunk..(at + 1) * self.chunk];
        let answer = |sums: &[i32]| {
            let values = if packet.values.is_empty() { Vec::new() } else { sums.to_vec() };
            let Packet { worker, version, slot, offset, .. } = *packet;
            Packet { worker, version, slot, offset, values }
        };
        if slot.has_seen(packet.worker) {
            let is_complete = slot.count == 0;
            return if is_complete { Action::Unicast(answer(sums)) } else { Action::Drop };
        }
        slot.set_seen(packet.worker, true);
        // The worker has the result of the other version, so it will never ask for that again.
        shadow.slots[at].set_seen(packet.worker, false);
        let is_first = slot.count == 0;
        if is_first {
            sums[..packet.values.len()].copy_from_slice(&packet.values);
        } else {
            sums.iter_mut().zip(&packet.values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
        }
        slot.count = (slot.count + 1) % self.workers;
        slot.offset = Some(packet.offset);
        let is_complete = slot.count == 0;
        if is_complete { Action::Multicast(answer(sums)) } else { Action::Drop }
    }
}

impl Slot {
    fn has_seen(&self, worker: u16) -> bool {
        self.seen[usize::from(worker / 64)] >> (worker % 64) & 1 == 1
    }

    fn set_seen(&mut self, worker: u16, seen: bool) {
        let (word, bit) = (&mut self.seen[usize::from(worker / 64)], 1 << (worker % 64));
        if seen { *word |= bit } else { *word &= !bit }
    }

    /// Returns true if the update is of a chunk that all workers are done with: one before what the slot holds, or the one
    /// that it holds, if this worker has gone on since.
    fn is_past(&self, packet: &Packet) -> bool {
        let is_complete = self.count == 0;
        self.offset.is_some_and(|offset| {
            packet.offset < offset
                || (packet.offset == offset && is_complete && !self.has_seen(packet.worker))
        })
    }
}
