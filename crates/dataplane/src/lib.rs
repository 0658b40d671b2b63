//! The data plane of Libra, as a switch can run it: a packet in, its answer out, over slots that add up gradients and hold values.
//!
//! It never allocates, blocks, reads a clock, opens a socket, computes with floats, or uses `unsafe` or `std`; its loops
//! are bounded by the packet or by constants, and no packet can make it panic (rule W12). Time, memory and the network belong to
//! its owner; the P4 and XDP data planes do the same in their languages.
//!
//! ```text
//!                       +--------------- Pipeline ----------------+
//!                       |  +-------------- Region -------------+  |
//!  worker -- PUSH ----> |  |  windows: was it taken before?    |  |
//!         <-- ACK ----- |  |  sums: bank of the active round <-+--+-- flip, by the agent
//!                       |  |        bank of the idle round ----+--+-> DRAIN, to the shard
//!         -- PULL ----> |  |  values <-------------------------+--+-- INSTALL, from the shard
//!         <-- values -- |  +-----------------------------------+  |
//!                       +-----------------------------------------+
//! ```
//!
//! ```
//! use libra_dataplane::*;
//!
//! // One region of 9 slots and a padding slot, for two workers.
//! let config = RegionConfig {
//!     job: 1, region: 0, plan: 1, view: 1, lanes: 1, cells: 10, flows: 2, bank_packets_max: 4096,
//!     arithmetic: Arithmetic::Fixed { bound: (1 << 19) - 1 },
//! };
//! let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
//! let mut pipeline = Pipeline::new(vec![Region::new(config, memory)?])?;
//!
//! // Both workers add to slot 3, and the network delivers the packet of the second one twice.
//! let mut buffer = [0; 1472];
//! for (worker, gradient) in [(0, 40), (1, 2), (1, 2)] {
//!     let header = Header {
//!         kind: Kind::Push, flags: Flags::LAST, entries: 0, job: 1, worker, plan: 1, view: 1,
//!         region: 0, round: 0, durable: 0, seq: 0, tag: 0,
//!     };
//!     let mut writer = PacketWriter::new(header, &mut buffer);
//!     assert!(writer.push(3, gradient));
//!     let bytes = writer.finish();
//!
//!     let Verdict::Reply(bytes) = pipeline.process(&mut buffer[..bytes]) else { panic!("dropped") };
//!     assert_eq!(Header::parse(&buffer[..bytes])?.kind, Kind::Ack);
//! }
//!
//! // The agent closes the round and drains it: everything was added exactly once.
//! let region = pipeline.region_mut(1, 0).expect("it was made above");
//! assert_eq!(region.flip()?, 1);
//! let mut sums = Vec::new();
//! region.drain(|first_slot, block| sums.push((first_slot, block.to_vec())));
//! assert_eq!(sums, [(0, vec![0, 0, 0, 42, 0, 0, 0, 0])]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::float_arithmetic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod arithmetic;
mod authentication;
mod coalesce;
mod config;
mod counters;
mod dirty;
mod entries;
mod execute;
pub mod mutants;
mod packet;
mod pipeline;
mod region;
mod simd;
mod table;
mod window;
mod wire;

pub use arithmetic::{Arithmetic, F32_NAN, add_f32};
pub use authentication::{
    BODY_KEY_BYTES, BodyHash, BodyKey, Direction, PathKeys, TAG_KEY_BYTES, TagKey, Tags, set_tag, tag_of,
};
pub use config::{ConfigError, DIRTY_BLOCK, Memory, MemoryWords, RegionConfig, RegionMemory};
pub use counters::{Counters, DropReason, Verdict};
pub use packet::{Entry, Packet, PacketWriter, SeqRange};
pub use pipeline::{DuplicateRegion, Pipeline, Sender};
pub use region::{BankPackets, FlipError, Region};
pub use table::{FLOAT_TABLES, FloatTables, SplitTables};
pub use window::{Bank, DedupWindow, SEQ_MAX, Seen, WINDOW, WINDOW_WORDS};
pub use wire::{
    CELLS_MAX, ENTRIES_MAX, ENTRY_BYTES, Flags, HEADER_BYTES, Header, Kind, MAGIC, Malformed, NackReason,
    VERSION, entries_in, packet_bytes, round_newer,
};
