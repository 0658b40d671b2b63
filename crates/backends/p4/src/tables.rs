//! Contents of the tables of the program, and the changes of them that are sent to a switch.

use core::fmt;
use std::net::SocketAddrV4;

use libra_dataplane::{Arithmetic, RegionConfig};
use thiserror::Error;

use crate::sizes::{Sizes, Sums};

/// A region in a switch. Its cells begin at `base`, its flows at `flows`; both are multiples of how many there are, powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionEntry {
    /// The tenant.
    pub job: u16,
    /// Its number in the job.
    pub region: u8,
    /// Its number in this switch.
    pub index: u8,
    /// The plan that packets must be made for.
    pub plan: u16,
    /// The view under which this switch holds it.
    pub view: u16,
    /// Its first cell.
    pub base: u16,
    /// Its cells, a power of two; the last is for padding.
    pub cells: u16,
    /// Its first flow.
    pub flows: u8,
    /// The most packets that a bank takes, duplicates included.
    pub room: u32,
}

/// The tag of all packets between a worker and the switch; zero in a job without keys.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

impl fmt::Debug for Cookie {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cookie(secret)")
    }
}

/// A change of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableChange {
    /// Datagrams from this address, with this cookie, are those of this worker.
    AddWorker {
        /// Address that it sends from.
        address: SocketAddrV4,
        /// Its job.
        job: u16,
        /// Its number.
        worker: u16,
        /// The tag of its packets.
        cookie: Cookie,
    },
    /// No more.
    RemoveWorker {
        /// Address that it sends from.
        address: SocketAddrV4,
        /// Its job.
        job: u16,
        /// Its number.
        worker: u16,
        /// The tag of its packets.
        cookie: Cookie,
    },
    /// The region is here.
    AddRegion(RegionEntry),
    /// No more.
    RemoveRegion {
        /// The tenant.
        job: u16,
        /// Its number in the job.
        region: u8,
        /// Its number in this switch.
        index: u8,
        /// Its plan.
        plan: u16,
        /// Its view.
        view: u16,
    },
}

/// Reason why a region does not fit a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DoesNotFit {
    /// The program is compiled for another number of lanes.
    #[error(
        "region {region} has {found} lanes, the program of the switch has {lanes}: start the job with `--lanes {lanes}`"
    )]
    Lanes {
        /// Number of the region.
        region: u8,
        /// Its lanes.
        found: u8,
        /// Those of the program.
        lanes: u8,
    },
    /// The program adds something else.
    #[error(
        "region {region} adds something else than the program of the switch, which adds {adds}: start the job with `--arithmetic {wanted}`"
    )]
    Arithmetic {
        /// Number of the region.
        region: u8,
        /// Numbers that the program adds.
        adds: &'static str,
        /// Value of the option of jobs for these.
        wanted: &'static str,
    },
    /// The bound of the region is not what the parser checks.
    #[error("region {region} has values up to {found}, the program of the switch is compiled for {bound}")]
    Bound {
        /// Number of the region.
        region: u8,
        /// Its bound.
        found: u32,
        /// That of the program.
        bound: u32,
    },
    /// A bank would take more packets than the switch can count.
    #[error("a bank of region {region} takes up to {found} packets, the switch counts no more than 65535")]
    Packets {
        /// Number of the region.
        region: u8,
        /// Maximum of the bank.
        found: u32,
    },
    /// No room is left.
    #[error("region {region} needs {wanted} of {what}, the switch has no room for them")]
    Full {
        /// Number of the region.
        region: u8,
        /// Of what.
        what: &'static str,
        /// Number of them that it needs.
        wanted: usize,
    },
}

/// Cells, flows and numbers of a switch that are taken.
#[derive(Debug, Clone)]
pub struct Rooms {
    sizes: Sizes,
    held: Vec<RegionEntry>,
    /// For each of them how many flows it has, a power of two.
    flows: Vec<usize>,
    /// Cells, flows and numbers from here on were never those of a region: their registers are as they were made, zero.
    fresh: (usize, usize, u8),
}

impl Rooms {
    /// Those of a switch without a region.
    #[must_use]
    pub const fn new(sizes: Sizes) -> Self {
        Self { sizes, held: Vec::new(), flows: Vec::new(), fresh: (0, 0, 0) }
    }

    /// Regions that are here.
    #[must_use]
    pub fn held(&self) -> &[RegionEntry] {
        &self.held
    }

    /// Returns true if the registers that a region would get were never another's.
    ///
    /// # Errors
    /// There is no room, or it is not one of this program.
    pub fn is_fresh_for(&self, config: &RegionConfig) -> Result<bool, DoesNotFit> {
        let entry = self.clone().take(config)?;
        let (cells, flows, numbers) = self.fresh;
        let begins_fresh = usize::from(entry.base) >= cells && usize::from(entry.flows) >= flows;
        Ok(begins_fresh && entry.index >= numbers)
    }

    /// Finds room for a region.
    ///
    /// # Errors
    /// There is none, or it is not one of this program.
    pub fn take(&mut self, config: &RegionConfig) -> Result<RegionEntry, DoesNotFit> {
        let region = config.region;
        let lanes = self.sizes.lanes;
        if config.lanes != lanes {
            return Err(DoesNotFit::Lanes { region, found: config.lanes, lanes });
        }
        match (config.arithmetic, self.sizes.sums) {
            (Arithmetic::Fixed { bound: found }, Sums::Fixed { bound_bits }) => {
                let bound = (1 << bound_bits) - 1;
                if found != bound {
                    return Err(DoesNotFit::Bound { region, found, bound });
                }
            }
            (Arithmetic::Table, Sums::Table) => {}
            (_, Sums::Fixed { .. }) => {
                return Err(DoesNotFit::Arithmetic { region, adds: "integers", wanted: "fixed" });
            }
            (_, Sums::Table) => {
                return Err(DoesNotFit::Arithmetic { region, adds: "floats by tables", wanted: "table" });
            }
        }
        if config.bank_packets_max > 0xffff {
            return Err(DoesNotFit::Packets { region, found: config.bank_packets_max });
        }
        let cells = usize::from(config.cells).next_power_of_two();
        let flows = usize::from(config.flows).next_power_of_two();
        let taken = |first: &dyn Fn(&RegionEntry) -> usize, count: &dyn Fn(usize) -> usize| {
            (0..self.held.len()).map(|at| (first(&self.held[at]), count(at))).collect::<Vec<_>>()
        };
        let full = |what, wanted| DoesNotFit::Full { region, what, wanted };
        let cells_taken = taken(&|held| held.base.into(), &|at| self.held[at].cells.into());
        let base = free(self.sizes.cells(), cells, &cells_taken).ok_or_else(|| full("cells", cells))?;
        let flows_taken = taken(&|held| held.flows.into(), &|at| self.flows[at]);
        let first = free(self.sizes.flows(), flows, &flows_taken).ok_or_else(|| full("flows", flows))?;
        let is_free = |index: &u8| self.held.iter().all(|held| held.index != *index);
        let most = u8::try_from(self.sizes.regions - 1).unwrap_or(u8::MAX);
        let index = (0..=most).find(is_free).ok_or_else(|| full("regions", 1))?;
        let number =
            |number: usize| u16::try_from(number).expect("a switch has fewer than 2^16 cells and flows");
        let entry = RegionEntry {
            job: config.job,
            region,
            index,
            plan: config.plan,
            view: config.view_on_wire(),
            base: number(base),
            cells: number(cells),
            flows: u8::try_from(first).expect("a switch has at most 64 flows"),
            room: config.bank_packets_max,
        };
        let used = (base + cells, first + flows, index + 1);
        self.fresh = (self.fresh.0.max(used.0), self.fresh.1.max(used.1), self.fresh.2.max(used.2));
        self.held.push(entry);
        self.flows.push(flows);
        Ok(entry)
    }

    /// Frees the room of a region, and returns the change of its tables.
    pub fn give_back(&mut self, job: u16, region: u8) -> Option<TableChange> {
        let at = self.held.iter().position(|held| (held.job, held.region) == (job, region))?;
        self.flows.remove(at);
        let RegionEntry { index, plan, view, .. } = self.held.remove(at);
        Some(TableChange::RemoveRegion { job, region, index, plan, view })
    }
}

/// The first of `wanted` places in a row that are free, a multiple of `wanted`, which is a power of two.
fn free(places: usize, wanted: usize, taken: &[(usize, usize)]) -> Option<usize> {
    let overlaps = |first: usize| taken.iter().any(|&(at, count)| first < at + count && at < first + wanted);
    (0..places / wanted).map(|place| place * wanted).find(|&first| !overlaps(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: RegionConfig = RegionConfig {
        job: 1,
        region: 0,
        plan: 3,
        view: 9,
        lanes: 16,
        cells: 500,
        flows: 3,
        bank_packets_max: 4096,
        arithmetic: Arithmetic::Fixed { bound: (1 << 19) - 1 },
    };

    #[test]
    fn regions_do_not_overlap_and_room_is_used_again() {
        let mut rooms = Rooms::new(Sizes::default());
        let bases: Vec<_> = (0..4)
            .map(|region| rooms.take(&RegionConfig { region, ..CONFIG }).unwrap())
            .map(|entry| (entry.index, entry.base, entry.cells, entry.flows))
            .collect();
        assert_eq!(bases, [(0, 0, 512, 0), (1, 512, 512, 4), (2, 1024, 512, 8), (3, 1536, 512, 12)]);
        let error = rooms.take(&RegionConfig { region: 4, ..CONFIG }).unwrap_err();
        assert_eq!(error.to_string(), "region 4 needs 512 of cells, the switch has no room for them");
        assert!(rooms.give_back(1, 2).is_some() && rooms.give_back(1, 2).is_none());
        let entry = rooms.take(&RegionConfig { region: 4, cells: 257, flows: 4, ..CONFIG }).unwrap();
        assert_eq!((entry.index, entry.base, entry.cells, entry.flows), (2, 1024, 512, 8));
    }

    #[test]
    fn regions_that_do_not_fit_are_refused_with_a_remedy() {
        let refusal =
            |config: RegionConfig| Rooms::new(Sizes::default()).take(&config).unwrap_err().to_string();
        assert!(refusal(RegionConfig { lanes: 1, ..CONFIG }).contains("--lanes 16"));
        assert!(
            refusal(RegionConfig { arithmetic: Arithmetic::F32, ..CONFIG }).contains("--arithmetic fixed")
        );
        assert!(
            refusal(RegionConfig { arithmetic: Arithmetic::Fixed { bound: 7 }, ..CONFIG })
                .contains("values up to 7")
        );
        assert!(refusal(RegionConfig { bank_packets_max: 1 << 16, ..CONFIG }).contains("65536 packets"));
    }
}
