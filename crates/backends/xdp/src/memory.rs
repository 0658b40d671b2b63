//! The memory of a region, which the program and the agent share.
//!
//! Nothing here is locked. The agent writes what the program does not: the idle bank, values (a word each), and what belongs
//! to a region that is not open yet. It reads what stands still: the idle bank, and counts that only grow.

use std::fs::File;
use std::os::fd::AsFd;

use aya::maps::MapData;
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use libra_dataplane::{BankPackets, CELLS_MAX, DIRTY_BLOCK, WINDOW, WINDOW_WORDS};
use vm_memory::volatile_memory::VolatileArrayRef;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::error::XdpError;
use crate::layout::{
    BANK_BYTES, BANK_DIRTY_AT, BANK_SUMS_AT, BLOCK_BYTES, FLOW_BYTES, FLOW_NEXT_AT, FLOW_PUSHES_AT,
    FLOWS_PER_BLOCK, VALUES_AT,
};

/// `BPF_F_MMAPABLE | BPF_F_INNER_MAP`, as in the program.
const FLAGS: u32 = 1 << 10 | 1 << 12;
/// Blocks of slots.
const BLOCKS: usize = CELLS_MAX as usize / DIRTY_BLOCK;
const IN_BOUNDS: &str = "the memory was made for it";

pub(crate) struct RegionMemory {
    /// The map through which the program accesses it.
    pub(crate) map: MapData,
    mapped: MmapRegion<()>,
}

impl RegionMemory {
    /// Zeroed memory for so many flows.
    pub(crate) fn new(flows: u16) -> Result<Self, XdpError> {
        const ATTEMPTED: &str = "memory for a region";
        let failed =
            |reason: &dyn ToString| XdpError::Kernel { attempted: ATTEMPTED, reason: reason.to_string() };
        let blocks = 1 + usize::from(flows).div_ceil(FLOWS_PER_BLOCK);
        let number = |size: usize| u32::try_from(size).expect("a region has a few megabytes at most");
        let kind = BPF_MAP_TYPE_ARRAY as u32;
        let object = aya_obj::Map::new_from_params(
            kind,
            number(size_of::<u32>()),
            number(BLOCK_BYTES),
            number(blocks),
            FLAGS,
        );
        let map = MapData::create(object, "region", None).map_err(|error| failed(&error))?;
        let file = File::from(map.fd().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?);
        let mapped = MmapRegion::from_file(FileOffset::new(file, 0), blocks * BLOCK_BYTES)
            .map_err(|error| failed(&error))?;
        Ok(Self { map, mapped })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.mapped.size() as u64
    }

    fn words(&self, at: usize, words: usize) -> VolatileArrayRef<'_, u32> {
        self.mapped.get_array_ref(at, words).expect(IN_BOUNDS)
    }

    fn bank(&self, bank: usize) -> VolatileArrayRef<'_, u32> {
        self.words(bank * BANK_BYTES, 2)
    }

    /// Returns the packets that a bank has taken in its round.
    pub(crate) fn taken(&self, bank: usize) -> BankPackets {
        let counts = self.bank(bank);
        BankPackets { pushes: counts.load(0), last: counts.load(1) }
    }

    /// A bank begins a new round.
    pub(crate) fn begin_round(&self, bank: usize, flows: u16) {
        self.bank(bank).copy_from(&[0, 0]);
        for flow in 0..flows {
            self.flow(flow, FLOW_PUSHES_AT, 2).store(bank, 0);
        }
    }

    fn marks(&self, bank: usize) -> VolatileArrayRef<'_, u8> {
        self.mapped.get_array_ref(bank * BANK_BYTES + BANK_DIRTY_AT, BLOCKS).expect(IN_BOUNDS)
    }

    /// Returns the marks of the blocks of slots that a bank has touched.
    fn dirty(&self, bank: usize) -> [u8; BLOCKS] {
        let mut dirty = [0; BLOCKS];
        self.marks(bank).copy_to(&mut dirty);
        dirty
    }

    /// Returns true if a bank holds nothing.
    pub(crate) fn is_clean(&self, bank: usize) -> bool {
        self.dirty(bank) == [0; BLOCKS]
    }

    /// Hands over the dirty blocks of a bank, and clears it.
    pub(crate) fn drain(&self, bank: usize, cells: u16, mut take: impl FnMut(u32, &[u32])) {
        let cells = usize::from(cells);
        let marks = self.marks(bank);
        for (block, _) in self.dirty(bank).iter().enumerate().filter(|(_, mark)| **mark != 0) {
            let first = block * DIRTY_BLOCK;
            let mut sums = [0; DIRTY_BLOCK];
            let sums = &mut sums[..DIRTY_BLOCK.min(cells - first)];
            let there = self.words(bank * BANK_BYTES + BANK_SUMS_AT + 4 * first, sums.len());
            there.copy_to(sums);
            take(u32::try_from(first).expect("slots are fewer than 2^15"), sums);
            there.copy_from(&[0; DIRTY_BLOCK][..sums.len()]);
            marks.store(block, 0);
        }
    }

    pub(crate) fn install(&self, slots: impl Iterator<Item = (u16, u32)>) {
        let values = self.words(VALUES_AT, usize::from(CELLS_MAX));
        for (slot, value) in slots {
            values.store(usize::from(slot), value);
        }
    }

    pub(crate) fn values(&self, cells: u16) -> Vec<u32> {
        let mut values = vec![0; cells.into()];
        self.words(VALUES_AT, values.len()).copy_to(&mut values);
        values
    }

    fn flow(&self, flow: u16, at: usize, words: usize) -> VolatileArrayRef<'_, u32> {
        let flow = usize::from(flow);
        let block = 1 + flow / FLOWS_PER_BLOCK;
        self.words(block * BLOCK_BYTES + flow % FLOWS_PER_BLOCK * FLOW_BYTES + at, words)
    }

    /// Returns the number of packets of a flow that a bank has taken in its round.
    pub(crate) fn pushes_of(&self, flow: u16, bank: usize) -> u32 {
        self.flow(flow, FLOW_PUSHES_AT, 2).load(bank)
    }

    /// Returns the memory of a bank for a flow: a word for each number of the window, and one past the highest.
    pub(crate) fn window(&self, flow: u16, bank: usize) -> [u32; WINDOW_WORDS] {
        let mut words = [0; WINDOW_WORDS];
        self.flow(flow, 4 * WINDOW * bank, WINDOW).copy_to(&mut words[..WINDOW]);
        words[WINDOW] = self.flow(flow, FLOW_NEXT_AT, 2).load(bank);
        words
    }

    /// Tells a bank what was taken of a flow before it.
    pub(crate) fn restore(&self, flow: u16, bank: usize, words: &[u32; WINDOW_WORDS]) {
        self.flow(flow, 4 * WINDOW * bank, WINDOW).copy_from(&words[..WINDOW]);
        self.flow(flow, FLOW_NEXT_AT, 2).store(bank, words[WINDOW]);
    }
}
