// Sizes and places of the memory that the program in the kernel shares with the agent. The build script passes them to the program,
// `bpf/memory.h` lays them out in C, and its compiler checks the sizes.

use libra_dataplane::{BODY_KEY_BYTES, CELLS_MAX, DIRTY_BLOCK, FloatTables, WINDOW};

/// Jobs that one program serves.
pub(crate) const JOBS_MAX: u16 = 8;
/// Regions are numbered by a byte.
pub(crate) const REGIONS_OF_JOB: u32 = 256;
pub(crate) const REGIONS_MAX: u32 = JOBS_MAX as u32 * REGIONS_OF_JOB;
/// Addresses of workers that there is room for.
pub(crate) const WORKERS_MAX: u32 = 65_536;
/// Of the ring of wake-ups. It never has more than a few records; the kernel asks for a whole page.
pub(crate) const WAKES_BYTES: u32 = 4096;

/// Words of the terms of a region: see [`Terms`](crate::terms::Terms).
pub(crate) const REGION_WORDS: usize = 18;

/// Words of 8 bytes of what is known of a worker: see [`Workers`](crate::workers::Workers).
pub(crate) const WORKER_WORDS: usize = 6;
/// Words of 4 bytes of the key that compresses entries.
pub(crate) const BODY_KEY_WORDS: usize = BODY_KEY_BYTES / 4;

/// The programs that others go on with, in the order of their map: `libra_` and this.
pub(crate) const PARTS: [&str; 2] = ["verify", "execute"];

/// Codes of the tags of a worker's packets.
pub(crate) const TAGS_OFF: u16 = 0;
pub(crate) const TAGS_COOKIE: u16 = 1;
pub(crate) const TAGS_MAC: u16 = 2;

/// Codes of the arithmetic of a region.
pub(crate) const ARITHMETIC_FIXED: u32 = 0;
pub(crate) const ARITHMETIC_F32: u32 = 1;
pub(crate) const ARITHMETIC_TABLE: u32 = 2;

/// Of all tables for the addition of floats.
pub(crate) const TABLE_BYTES: usize = size_of::<FloatTables>();

/// In a bank: pushes, pushes with `LAST`, the sums, and a byte for each block of slots that was touched.
pub(crate) const BANK_SUMS_AT: usize = 8;
pub(crate) const BANK_DIRTY_AT: usize = BANK_SUMS_AT + 4 * CELLS_MAX as usize;
pub(crate) const BANK_BYTES: usize = BANK_DIRTY_AT + CELLS_MAX as usize / DIRTY_BLOCK;

/// In a flow: words of the even and of the odd bank; one past the highest number that each took; packets that each took in its
/// round.
pub(crate) const FLOW_NEXT_AT: usize = 2 * 4 * WINDOW;
pub(crate) const FLOW_PUSHES_AT: usize = FLOW_NEXT_AT + 2 * 4;
pub(crate) const FLOW_BYTES: usize = FLOW_PUSHES_AT + 2 * 4;
/// A power of two, so that the program shifts and does not divide.
pub(crate) const FLOWS_PER_BLOCK: usize = 32;

/// The first block of a region has the banks and the values.
pub(crate) const VALUES_AT: usize = 2 * BANK_BYTES;
pub(crate) const BLOCK_BYTES: usize = VALUES_AT + 4 * CELLS_MAX as usize;

/// Counters, in this order. Refusals are in the order of their codes.
pub(crate) const COUNTS: [&str; 16] = [
    "UNKNOWN_SENDERS",
    "PUSHES",
    "DUPLICATES",
    "RETRANSMITS",
    "PULLS",
    "MALFORMED",
    "UNEXPECTED",
    "FOREIGN",
    "REFUSED",
    "REFUSED_STALE_PLAN",
    "REFUSED_NOT_INSTALLED",
    "REFUSED_UNKNOWN_FLOW",
    "REFUSED_INACTIVE",
    "REFUSED_STALE_VIEW",
    "FORGED",
    "STALE",
];
