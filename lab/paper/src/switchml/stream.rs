//! The worker: an update in chunks, one on its way for each slot.

use super::Packet;

/// One update of one worker, and the worker program with packet loss recovery.
///
/// Chunk i of the update uses slot i modulo the slots. All workers of a pool stream updates of one length; a pool that
/// was used before goes on with the versions that the last stream [ended with](Stream::following).
///
/// ```
/// use libra_paper::switchml::{Action, Pool, Stream};
///
/// // One worker alone, two slots of two values: what comes back is what it sent.
/// let mut pool = Pool::new(1, 2, 2);
/// let mut stream = Stream::new(0, 2, 2, vec![1, 2, 3, 4, 5]);
/// let mut packets = stream.start();
/// while let Some(packet) = packets.pop() {
///     let Action::Multicast(result) = pool.handle(&packet) else { panic!("there is no other worker") };
///     packets.extend(stream.handle_result(&result));
/// }
/// assert!(stream.is_done());
/// assert_eq!(stream.sums(), [1, 2, 3, 4, 5]);
/// ```
#[derive(Debug, Clone)]
pub struct Stream {
    worker: u16,
    chunk: usize,
    update: Vec<i32>,
    /// Sums, as far as they are known; padded to whole chunks.
    sums: Vec<i32>,
    slots: Vec<Sending>,
    /// Chunks without a result.
    left: u64,
    /// The offset of its first value: offsets go on from one stream to the next.
    first: u64,
    length: u64,
    carries_values: bool,
}

/// Use of a slot.
#[derive(Debug, Clone, Copy)]
struct Sending {
    /// The version of the chunk on its way, or of the next one.
    version: bool,
    /// The offset of the chunk on its way; `None` if none is.
    offset: Option<u64>,
}

impl Stream {
    /// A stream of an update over a pool of `slots` slots of `chunk` values.
    ///
    /// # Panics
    /// If there are no slots or they have no values.
    #[must_use]
    pub fn new(worker: u16, slots: u32, chunk: usize, update: Vec<i32>) -> Self {
        let length = update.len() as u64;
        let sums = vec![0; update.len().next_multiple_of(chunk)];
        Self { update, sums, ..Self::without_values(worker, slots, chunk, length, true) }
    }

    /// A stream of an update of `length` values that are never looked at: packets without any, for a simulation of
    /// traffic alone.
    ///
    /// # Panics
    /// If there are no slots or they have no values.
    #[must_use]
    pub fn of_traffic(worker: u16, slots: u32, chunk: usize, length: u64) -> Self {
        Self::without_values(worker, slots, chunk, length, false)
    }

    fn without_values(worker: u16, slots: u32, chunk: usize, length: u64, carries_values: bool) -> Self {
        assert!(slots > 0 && chunk > 0, "a stream has slots, and they have values");
        let sending = Sending { version: false, offset: None };
        Self {
            worker,
            chunk,
            update: Vec::new(),
            sums: Vec::new(),
            slots: vec![sending; slots as usize],
            left: length.div_ceil(chunk as u64),
            first: 0,
            length,
            carries_values,
        }
    }

    /// The stream with the versions that another one, which is done, has left in the pool, and with offsets that go on
    /// from its.
    ///
    /// # Panics
    /// If the other one is not done, or was for another pool.
    #[must_use]
    pub fn following(mut self, other: &Self) -> Self {
        assert!(other.is_done(), "the stream before is not done");
        assert_eq!(self.slots.len(), other.slots.len(), "streams of one pool have the same slots");
        self.slots.clone_from(&other.slots);
        self.first = other.first + other.length;
        self
    }

    /// The first packets: one for each slot, or fewer if there are fewer chunks. To be called once.
    #[must_use]
    pub fn start(&mut self) -> Vec<Packet> {
        let slots = u32::try_from(self.slots.len()).expect("they were counted by a u32");
        let first = self.first;
        (0..slots).filter_map(|slot| self.send(slot, first + u64::from(slot) * self.chunk as u64)).collect()
    }

    /// Takes a result, and goes on with the next chunk of its slot, if there is one. A result that was there already
    /// is ignored.
    ///
    /// # Panics
    /// If there is no such slot, or the result has not the values of a chunk.
    #[must_use]
    pub fn handle_result(&mut self, result: &Packet) -> Option<Packet> {
        let sending = &mut self.slots[result.slot as usize];
        if sending.offset != Some(result.offset) || sending.version != result.version {
            return None;
        }
        *sending = Sending { version: !sending.version, offset: None };
        self.left -= 1;
        if self.carries_values {
            let at = self.index(result.offset);
            self.sums[at..at + self.chunk].copy_from_slice(&result.values);
        }
        self.send(result.slot, result.offset + (self.slots.len() * self.chunk) as u64)
    }

    /// The packet of a slot again, as its result has not come in time; `None` if nothing is on its way.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn handle_timeout(&self, slot: u32) -> Option<Packet> {
        let sending = self.slots[slot as usize];
        sending.offset.map(|offset| self.packet(slot, sending.version, offset))
    }

    /// Returns true if all sums are known.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The sums of all workers, as far as they are known; zero otherwise.
    #[must_use]
    pub fn sums(&self) -> &[i32] {
        &self.sums[..self.update.len()]
    }

    /// Slots of its pool.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    fn send(&mut self, slot: u32, offset: u64) -> Option<Packet> {
        if offset - self.first >= self.length {
            return None;
        }
        let sending = &mut self.slots[slot as usize];
        sending.offset = Some(offset);
        let version = sending.version;
        Some(self.packet(slot, version, offset))
    }

    /// Returns the index of an offset in the update.
    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.first).expect("an update in memory has a usize of values")
    }

    fn packet(&self, slot: u32, version: bool, offset: u64) -> Packet {
        let mut values = Vec::new();
        if self.carries_values {
            let at = self.index(offset);
            values.extend_from_slice(&self.update[at..self.update.len().min(at + self.chunk)]);
            values.resize(self.chunk, 0);
        }
        Packet { worker: self.worker, version, slot, offset, values }
    }
}
