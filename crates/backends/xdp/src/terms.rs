//! The terms of a region, for the program.

use libra_dataplane::{Arithmetic, BankPackets, Region, RegionConfig};

use crate::layout::{ARITHMETIC_F32, ARITHMETIC_FIXED, ARITHMETIC_TABLE, REGION_WORDS};

/// Present terms of a region. The agent writes them whole, under the lock of the region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) config: RegionConfig,
    pub(crate) is_open: bool,
    pub(crate) round: u16,
    pub(crate) durable: u16,
    pub(crate) is_active: bool,
    pub(crate) is_readable: bool,
    pub(crate) due: BankPackets,
}

impl Terms {
    /// Those of a region that begins as this one.
    pub(crate) fn new(like: &Region<Vec<u32>>, due: BankPackets) -> Self {
        Self {
            config: *like.config(),
            is_open: true,
            round: like.round(),
            durable: like.durable(),
            is_active: like.is_active(),
            is_readable: like.is_readable(),
            due,
        }
    }

    /// As `struct region` of `bpf/memory.h`.
    pub(crate) fn words(&self) -> [u32; REGION_WORDS] {
        let config = &self.config;
        let (arithmetic, bound) = match config.arithmetic {
            Arithmetic::Fixed { bound } => (ARITHMETIC_FIXED, bound),
            Arithmetic::F32 => (ARITHMETIC_F32, 0),
            Arithmetic::Table => (ARITHMETIC_TABLE, 0),
        };
        let [v0, v1, v2, v3, v4, v5, v6, v7] = config.view.to_ne_bytes();
        [
            // The lock is the kernel's.
            0,
            self.is_open.into(),
            config.job.into(),
            config.plan.into(),
            u32::from_ne_bytes([v0, v1, v2, v3]),
            u32::from_ne_bytes([v4, v5, v6, v7]),
            self.round.into(),
            self.durable.into(),
            self.is_active.into(),
            self.is_readable.into(),
            config.flows.into(),
            config.cells.into(),
            config.bank_packets_max,
            arithmetic,
            bound,
            self.due.pushes,
            self.due.last,
            // The view makes its size a multiple of 8 bytes.
            0,
        ]
    }

    /// The bank that takes packets now.
    pub(crate) fn active_bank(&self) -> usize {
        usize::from(self.round & 1)
    }
}
