//! Configuration of a region, and the memory that it needs.

use core::fmt;

use crate::arithmetic::Arithmetic;
use crate::dirty;
use crate::entries::Shape;
use crate::window::WINDOW_WORDS;
use crate::wire::CELLS_MAX;

/// Words of memory, supplied by the owner of a region: this crate allocates nothing.
pub trait Memory: AsRef<[u32]> + AsMut<[u32]> {}

impl<T: AsRef<[u32]> + AsMut<[u32]>> Memory for T {}

/// Slots that share one mark "something was added here since the last drain".
pub const DIRTY_BLOCK: usize = 8;

/// Configuration of a region, fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionConfig {
    /// The tenant.
    pub job: u16,
    /// Number of the region in its job.
    pub region: u8,
    /// The plan that its packets must be made for.
    pub plan: u16,
    /// The number of the view since which this switch holds the region. Packets have its lower 16 bits, and are refused with others;
    /// their tags cover all of it. A move is a new region.
    pub view: u64,
    /// Entry p of a packet addresses `slot = cell * lanes + p % lanes`. At least 1.
    pub lanes: u8,
    /// Cells, 2 up to [`CELLS_MAX`]; the last one is reserved for padding.
    pub cells: u16,
    /// Flows into the region, numbered from 0: as workers are, unless the caller assigns them. At least 1.
    pub flows: u16,
    /// The most packets that one bank takes between two flips. At least 1.
    pub bank_packets_max: u32,
    /// Arithmetic of the slots.
    pub arithmetic: Arithmetic,
}

impl RegionConfig {
    /// Slots of the region, those of the padding cell included.
    #[must_use]
    pub fn slots(&self) -> usize {
        usize::from(self.cells).wrapping_mul(usize::from(self.lanes))
    }

    /// Returns the memory that the region needs.
    #[must_use]
    pub fn memory_words(&self) -> MemoryWords {
        MemoryWords {
            values: self.slots(),
            sums: self.slots(),
            dirty: dirty::words(self.slots()),
            windows: usize::from(self.flows).wrapping_mul(WINDOW_WORDS),
            changed: usize::from(self.flows),
        }
    }

    /// Checks that these numbers make a region.
    ///
    /// # Errors
    /// The first number that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.lanes == 0 {
            return Err(ConfigError::Lanes);
        }
        if self.cells < 2 || self.cells > CELLS_MAX {
            return Err(ConfigError::Cells { cells: self.cells });
        }
        if self.flows == 0 {
            return Err(ConfigError::Flows);
        }
        if self.bank_packets_max == 0 {
            return Err(ConfigError::BankPackets);
        }
        if let Arithmetic::Fixed { bound } = self.arithmetic {
            let sum_max = u64::from(self.bank_packets_max).saturating_mul(u64::from(bound));
            if sum_max > u64::from(i32::MAX.unsigned_abs()) {
                return Err(ConfigError::Headroom { bank_packets_max: self.bank_packets_max, bound });
            }
        }
        Ok(())
    }

    /// The view as packets carry it.
    #[must_use]
    pub const fn view_on_wire(&self) -> u16 {
        let [.., high, low] = self.view.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    pub(crate) const fn shape(&self) -> Shape {
        Shape { lanes: self.lanes, padding: self.cells.saturating_sub(1) }
    }
}

/// Words of each array of a region's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryWords {
    /// The values that workers read: one word per slot.
    pub values: usize,
    /// The sums of one bank: one word per slot.
    pub sums: usize,
    /// The marks of one bank: one word per block of [`DIRTY_BLOCK`] slots.
    pub dirty: usize,
    /// All windows: [`WINDOW_WORDS`] per flow.
    pub windows: usize,
    /// The marks of flows: one word per flow.
    pub changed: usize,
}

/// The memory of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionMemory<M> {
    /// Values that workers read.
    pub values: M,
    /// The sums of the even and of the odd bank.
    pub sums: [M; 2],
    /// Blocks of the even and of the odd bank that were added to.
    pub dirty: [M; 2],
    /// The windows of all flows, one after the other.
    pub windows: M,
    /// Flows that have taken a packet since that was last forgotten.
    pub changed: M,
}

impl<M> RegionMemory<M> {
    /// Asks for each array in turn, by its number of words.
    ///
    /// ```
    /// # use libra_dataplane::*;
    /// # let config = RegionConfig {
    /// #     job: 1, region: 0, plan: 1, view: 1, lanes: 1, cells: 9, flows: 1, bank_packets_max: 1,
    /// #     arithmetic: Arithmetic::F32,
    /// # };
    /// let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
    /// let region = Region::new(config, memory)?;
    /// # Ok::<(), ConfigError>(())
    /// ```
    #[must_use]
    pub fn allocate(config: &RegionConfig, mut words: impl FnMut(usize) -> M) -> Self {
        let size = config.memory_words();
        Self {
            values: words(size.values),
            sums: [words(size.sums), words(size.sums)],
            dirty: [words(size.dirty), words(size.dirty)],
            windows: words(size.windows),
            changed: words(size.changed),
        }
    }
}

/// Reason why a region cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigError {
    /// A region has at least one lane.
    Lanes,
    /// A region has 2 to [`CELLS_MAX`] cells.
    Cells {
        /// Cells that were asked for.
        cells: u16,
    },
    /// A region has at least one flow.
    Flows,
    /// A bank takes at least one packet.
    BankPackets,
    /// A full bank could overflow a slot: `bank_packets_max * bound` must stay below 2^31.
    Headroom {
        /// Packets that were asked for.
        bank_packets_max: u32,
        /// Bound that was asked for.
        bound: u32,
    },
    /// An array of the memory does not have the length of [`RegionConfig::memory_words`].
    Memory {
        /// Name of the array.
        array: &'static str,
        /// Words that it must have.
        expected: usize,
        /// Words that it has.
        found: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lanes => write!(formatter, "a region needs at least one lane"),
            Self::Cells { cells } => {
                write!(formatter, "a region has 2 to {CELLS_MAX} cells, {cells} were asked for")
            }
            Self::Flows => write!(formatter, "a region needs at least one flow"),
            Self::BankPackets => write!(formatter, "a bank must take at least one packet"),
            Self::Headroom { bank_packets_max, bound } => {
                write!(formatter, "{bank_packets_max} packets of values up to {bound} can overflow a slot")
            }
            Self::Memory { array, expected, found } => {
                write!(formatter, "the memory of {array} needs {expected} words, it has {found}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}
