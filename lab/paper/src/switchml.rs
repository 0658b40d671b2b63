//! SwitchML, the paper's baseline: streaming aggregation of dense updates in a small pool of slots.
//!
//! Sapio et al., Scaling Distributed Machine Learning with In-Network Aggregation (NSDI 2021, arXiv:1903.06701): its
//! switch program with packet loss recovery is [`Pool`], its worker program [`Stream`]. Nothing here has a clock or a
//! network: the caller delivers packets and reports when a timer has run out.
//!
//! ```text
//!  Stream                              Pool
//!  start ─── update of slot 0..s ────► handle ─► Drop, until the last worker's
//!  handle_result ◄── the sums ──────── Multicast to all workers
//!  the update s chunks further on ───► handle, in the other version of the slot
//!  handle_timeout ── the same again ─► Drop, or Unicast if the sums are there already
//! ```
//!
//! Each slot exists twice, as version 0 and 1: a worker that has the sums of one may use the other, while the first
//! keeps them for workers whose result was lost (the *shadow copy*). It is used again only after all workers were seen
//! in the other, which shows that all have the result. A worker sends the next chunk for a slot when it has the result of
//! the last one, and never before: the stream is clocked by itself, and workers that are ahead wait for the others.
//!
//! # What a network may do
//!
//! Packets may be lost and duplicated, and packets of different slots may overtake each other. The two programs rely
//! on one thing: of the packets that one worker sends for one slot none overtakes another, as on links of one rack.
//! A retransmission that is delayed until its worker has gone on to the other version would be taken for a new update,
//! since the switch distinguishes versions by one bit: sums are wrong then, or the stream stands still. [`Pool::remembering_offsets`] does not rely on it: it keeps the offset of
//! each slot, which SwitchML's does not, and drops what is older.

mod cost;
mod pool;
mod stream;

pub use cost::{Cost, HEADERS_BYTES, Profile};
pub use pool::{Action, Pool};
pub use stream::Stream;

/// A packet of a worker, or the switch's answer with the sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The worker that sent it, below their number. In an answer, the one whose packet was answered.
    pub worker: u16,
    /// Version of the slot: 0 or 1, as one bit.
    pub version: bool,
    /// The slot.
    pub slot: u32,
    /// The place of its first value in all that is streamed over the pool.
    pub offset: u64,
    /// Integers to add, or their sums: a chunk of the update, the last one padded with zeros. None at all in a
    /// simulation of traffic alone.
    pub values: Vec<i32>,
}

#[cfg(test)]
mod tests;
