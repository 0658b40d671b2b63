//! Layout of parameters in the registers of a switch: the paper's section "Parameter layout in switch registers".

use crate::random::Random;

/// Place of a parameter in the memory of a switch. In the words of `dataplane` a register is a lane and its slot a
/// cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The register, below their number.
    pub register: u32,
    /// The slot in the register.
    pub slot: u32,
}

/// A placement of hot parameters, which are named by their rank from 0.
#[derive(Debug, Clone)]
pub struct Layout {
    parameters: u32,
    registers: u32,
    /// Permutation: rank i gets the heat-based place of position `positions[i]`; `None` is the identity.
    positions: Option<Vec<u32>>,
}

impl Layout {
    /// The paper's heat-based placement: the parameter of rank i is in register i mod m, so that two in one register
    /// differ in rank by m at least.
    ///
    /// ```
    /// use libra_paper::{Layout, Place};
    ///
    /// let layout = Layout::heat(100, 16);
    /// assert_eq!(layout.place(35), Place { register: 3, slot: 2 });
    /// ```
    ///
    /// # Panics
    /// If there are no registers.
    #[must_use]
    pub fn heat(parameters: u32, registers: u32) -> Self {
        assert!(registers > 0, "a switch has at least one register");
        Self { parameters, registers, positions: None }
    }

    /// The paper's baseline: parameters in the same slots, but in random order. All registers hold equally many.
    ///
    /// # Panics
    /// If there are no registers.
    #[must_use]
    pub fn random(parameters: u32, registers: u32, seed: u64) -> Self {
        let mut positions: Vec<u32> = (0..parameters).collect();
        Random::new(seed).shuffle(&mut positions);
        Self { positions: Some(positions), ..Self::heat(parameters, registers) }
    }

    /// Returns the number of parameters that are placed.
    #[must_use]
    pub fn parameters(&self) -> u32 {
        self.parameters
    }

    /// Returns the number of registers, the paper's m.
    #[must_use]
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Returns the place of the parameter of this rank.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn place(&self, rank: u32) -> Place {
        assert!(rank < self.parameters, "rank {rank} of {} is not placed", self.parameters);
        let position = match &self.positions {
            None => rank,
            Some(positions) => positions[rank as usize],
        };
        Place { register: position % self.registers, slot: position / self.registers }
    }

    /// The register of a rank, as an index.
    pub(crate) fn register(&self, rank: u32) -> usize {
        self.place(rank).register as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_two_parameters_share_a_slot(parameters in 0_u32..300, registers in 1_u32..40, seed: u64) {
            for layout in [Layout::heat(parameters, registers), Layout::random(parameters, registers, seed)] {
                let places: BTreeSet<Place> = (0..parameters).map(|rank| layout.place(rank)).collect();
                prop_assert_eq!(places.len(), parameters as usize);
                let fits = |place: &Place| {
                    place.register < registers && place.slot < parameters.div_ceil(registers)
                };
                prop_assert!(places.iter().all(fits));
            }
        }
    }

    #[test]
    fn heat_puts_the_hottest_into_different_registers() {
        let layout = Layout::heat(64, 16);
        let hottest: BTreeSet<u32> = (0..16).map(|rank| layout.place(rank).register).collect();
        assert_eq!(hottest.len(), 16);
        assert_eq!(layout.place(16).register, layout.place(0).register);
    }

    #[test]
    fn a_seed_is_a_placement() {
        let places = |seed| {
            let layout = Layout::random(100, 7, seed);
            (0..100).map(|rank| layout.place(rank)).collect::<Vec<_>>()
        };
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }

    #[test]
    #[should_panic(expected = "rank 5 of 5 is not placed")]
    fn a_rank_that_is_not_placed_is_a_bug() {
        let _ = Layout::heat(5, 2).place(5);
    }
}
