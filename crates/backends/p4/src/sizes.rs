//! Sizes of a program: they are fixed when it is compiled.

use libra_dataplane::{HEADER_BYTES, WINDOW, packet_bytes};
use thiserror::Error;

/// Sizes of a program. The default is what one pass through the twelve stages of a Tofino has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Registers of sums, which is how many entries a packet has.
    pub lanes: u8,
    /// Cells of a lane are two to the power of this, for all regions together, the padding of each included.
    pub cell_bits: u8,
    /// Flows are two to the power of this, for all regions together.
    pub flow_bits: u8,
    /// Regions that there may be at once.
    pub regions: u16,
    /// Addition in the lanes.
    pub sums: Sums,
}

/// Addition in the lanes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// Fixed point, in one pass.
    Fixed {
        /// Values of pushes are from -2^b up to 2^b - 1.
        bound_bits: u8,
    },
    /// Single precision by the tables of [`FloatTables`](libra_dataplane::FloatTables): a push passes twice.
    Table,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { lanes: 16, cell_bits: 11, flow_bits: 6, regions: 64, sums: Sums::Fixed { bound_bits: 19 } }
    }
}

/// Sizes that make no program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{field} = {value} must be {wanted}")]
pub struct OutOfRange {
    field: &'static str,
    value: u64,
    wanted: &'static str,
}

impl Sizes {
    /// Those of the program that adds floats by tables, which a Tofino has room for in two lanes.
    #[must_use]
    pub fn of_tables() -> Self {
        Self { lanes: 2, sums: Sums::Table, ..Self::default() }
    }

    /// Checks that these make a program.
    ///
    /// # Errors
    /// The first size that is wrong.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let bound_bits = match self.sums {
            Sums::Fixed { bound_bits } => bound_bits,
            Sums::Table => BOUND_BITS_LEAST,
        };
        let checks = [
            ("lanes", u64::from(self.lanes), 1..=16, "from 1 to 16"),
            ("cell_bits", self.cell_bits.into(), 1..=14, "from 1 to 14"),
            ("flow_bits", self.flow_bits.into(), 1..=6, "from 1 to 6"),
            ("regions", self.regions.into(), 1..=256, "from 1 to 256"),
            ("bound_bits", bound_bits.into(), BOUND_BITS_LEAST.into()..=30, "from 8 to 30"),
        ];
        for (field, value, range, wanted) in checks {
            if !range.contains(&value) {
                return Err(OutOfRange { field, value, wanted });
            }
        }
        Ok(())
    }

    /// Cells of a lane.
    #[must_use]
    pub const fn cells(&self) -> usize {
        1 << self.cell_bits
    }

    /// Flows of all regions.
    #[must_use]
    pub const fn flows(&self) -> usize {
        1 << self.flow_bits
    }

    /// Entries of all windows.
    #[must_use]
    pub const fn window_entries(&self) -> usize {
        self.flows() * WINDOW
    }

    /// Words of the bits of acked sets: one bit for each entry of a window and each bank.
    #[must_use]
    pub const fn acked_words(&self) -> usize {
        2 * self.window_entries() / 32
    }

    /// Bytes of all registers: sums of both banks and values of each lane, and turns where it has them, windows with the bank of each entry, acked sets, and four
    /// words of each region.
    #[must_use]
    pub const fn register_bytes(&self) -> u64 {
        let of_cell = match self.sums {
            Sums::Fixed { .. } => 3,
            Sums::Table => 4,
        };
        let lanes = self.lanes as usize * of_cell * self.cells();
        let flows = 2 * self.window_entries() + self.acked_words() + 2 * self.flows();
        4 * (lanes + flows + 4 * self.regions as usize) as u64
    }

    /// Bytes of a packet with its entries.
    #[must_use]
    pub const fn packet_bytes(&self) -> usize {
        packet_bytes(self.lanes)
    }
}

const BOUND_BITS_LEAST: u8 = 8;

#[expect(clippy::cast_possible_truncation, reason = "1,024")]
pub(crate) const WINDOW_U32: u32 = WINDOW as u32;

/// Bytes of a UDP header (RFC 768).
pub const UDP_HEADER_BYTES: usize = 8;
/// Bytes of an IPv4 header without options (RFC 791).
pub const IP_HEADER_BYTES: usize = 20;

/// Bytes of a packet without entries.
pub const BARE_BYTES: usize = HEADER_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_out_of_range_are_named() {
        let usual = Sizes::default();
        assert_eq!(usual.check(), Ok(()));
        let error = Sizes { lanes: 17, ..usual }.check().unwrap_err();
        assert_eq!(error.to_string(), "lanes = 17 must be from 1 to 16");
        assert!(Sizes { sums: Sums::Fixed { bound_bits: 31 }, ..usual }.check().is_err());
        assert!(Sizes { flow_bits: 0, ..usual }.check().is_err());
    }
}
