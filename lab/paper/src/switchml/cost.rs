//! Cost of dense streaming, in bytes, packets and slots.

use serde::Serialize;

/// Bytes of a packet that are not values: Ethernet, IPv4 and UDP, 42, and 10 of SwitchML's own. With 32 values that is
/// the packet of 180 bytes of its paper.
pub const HEADERS_BYTES: u32 = 52;
/// Bytes of a value.
const VALUE_BYTES: u64 = 4;

/// Configuration of a switch and its workers for SwitchML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// On-chip memory for values, in bytes. Bitmaps and counters come on top.
    pub memory_bytes: u64,
    /// Values in a packet: the k of its paper, 32 or 64 in what one pass of a pipeline can add.
    pub chunk: u32,
}

impl Profile {
    /// The configuration that the Libra paper compares with, of 1 MB (5% of 20 MB), with 32 values a packet.
    pub const ONE_MEGABYTE: Self = Self { memory_bytes: 1 << 20, chunk: 32 };
    /// The same with the larger memory of its Figure "Aggregation throughput with different memory caps".
    pub const TWO_MEGABYTES: Self = Self { memory_bytes: 2 << 20, chunk: 32 };

    /// Slots of the pool. Each takes memory twice, for its two versions.
    ///
    /// ```
    /// use libra_paper::switchml::Profile;
    ///
    /// assert_eq!(Profile::ONE_MEGABYTE.slots(), 4096);
    /// // The pool that SwitchML's paper finds enough for 10 Gbit/s.
    /// assert_eq!(Profile { memory_bytes: 32 << 10, chunk: 32 }.slots(), 128);
    /// ```
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.memory_bytes / (2 * VALUE_BYTES * self.chunk as u64)
    }

    /// Bytes of a packet on the wire, without preamble, checksum and gap.
    #[must_use]
    pub const fn packet_bytes(&self) -> u64 {
        HEADERS_BYTES as u64 + VALUE_BYTES * self.chunk as u64
    }

    /// Returns the cost of one update of so many parameters, without losses. All are sent, zero or not.
    #[must_use]
    pub const fn cost(&self, parameters: u64) -> Cost {
        let packets = parameters.div_ceil(self.chunk as u64);
        Cost {
            packets,
            bytes: packets * self.packet_bytes(),
            rounds: packets.div_ceil(self.slots()),
            slots: self.slots(),
        }
    }

    /// The share of what is sent that is values.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        1.0 - f64::from(HEADERS_BYTES) / self.packet_bytes() as f64
    }

    /// The most values a second that a worker can stream if a packet is answered after `round_trip_seconds`, however
    /// fast its link is: a pool is a window.
    #[must_use]
    pub fn values_per_second_max(&self, round_trip_seconds: f64) -> f64 {
        self.slots() as f64 * f64::from(self.chunk) / round_trip_seconds
    }
}

/// The cost of one update, for each worker and in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Packets sent; as many results come back.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Number of times that the pool is filled: the update takes this many round trips at least.
    pub rounds: u64,
    /// Slots of the pool.
    pub slots: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_pools_are_those_of_switchmls_paper() {
        let at = |memory_bytes| Profile { memory_bytes, chunk: 32 };
        assert_eq!(at(0).packet_bytes(), 180);
        assert!((at(0).goodput() - (1.0 - 0.289)).abs() < 0.001, "28.9% of a packet are headers");
        assert_eq!((at(32 << 10).slots(), at(128 << 10).slots()), (128, 512));
    }

    /// The paper's online advertising model: 150 million parameters, of which a push touches thousands.
    #[test]
    fn a_sparse_model_is_streamed_whole() {
        let cost = Profile::ONE_MEGABYTE.cost(150_000_000);
        assert_eq!((cost.packets, cost.bytes, cost.rounds), (4_687_500, 843_750_000, 1145));
        assert_eq!(Profile::TWO_MEGABYTES.cost(150_000_000).rounds, 573);
        assert_eq!(Profile::ONE_MEGABYTE.cost(33).packets, 2);
        let round_trip = 100e-6;
        let ratio = Profile::TWO_MEGABYTES.values_per_second_max(round_trip)
            / Profile::ONE_MEGABYTE.values_per_second_max(round_trip);
        assert_eq!(ratio, 2.0);
    }
}
