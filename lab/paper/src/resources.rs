//! Resources of a switch that the data plane takes: the paper's section "Resource consumption on Switches", and the same of ours.
//!
//! Computed and quoted figures are different types, so that a quotation is not taken for a result.
//! KB are 1,024 bytes here, as in the paper: only then are its tables 408.5 KB and 656.5 KB 3.21% of 20 MB.

use libra_dataplane::{CELLS_MAX, ConfigError, FloatTables, RegionConfig};
use libra_plan::{DEFAULT_ON_CHIP_BYTES, SLOT_BYTES};
use serde::Serialize;

/// A figure that follows from sizes in this repository.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Computed<T>(pub T);

/// A figure that the paper reports, and that nothing here can confirm; or one that has such a term.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quoted<T>(pub T);

/// Amount of a resource, and the part of it that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Used part.
    pub used: u32,
    /// Whole amount.
    pub of: u32,
}

/// Resources that the paper's Libra takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaperResources {
    /// A slot of 4 bytes for each hot parameter. The paper says "about 118KB" of 30,000, which are 117.2.
    pub hot_bytes: Computed<u64>,
    /// The seven tables of the addition of floats: 408.5 KB.
    pub tables_bytes: Computed<u64>,
    /// "Logic control": 130 KB.
    pub logic_bytes: Quoted<u64>,
    /// Stages of the pipeline.
    pub stages: Quoted<Used>,
    /// VLIW instructions.
    pub vliw_instructions: Quoted<Used>,
    /// Hash dist units.
    pub hash_dist_units: Quoted<Used>,
}

impl PaperResources {
    /// For so many hot parameters. What is quoted was seen with 30,000 of them; how it depends on their number the
    /// paper does not say.
    ///
    /// ```
    /// let resources = libra_paper::PaperResources::of(30_000);
    /// assert_eq!(resources.hot_bytes.0, 120_000);
    /// assert_eq!(resources.tables_bytes.0 as f64 / 1024.0, 408.5);
    /// // 3.21% in the paper, whose 117.2 KB are 118.
    /// let share = resources.share_of(20 << 20).0;
    /// assert_eq!(format!("{:.2}%", 100.0 * share), "3.20%");
    /// ```
    #[must_use]
    pub fn of(hot_parameters: u64) -> Self {
        Self {
            hot_bytes: Computed(hot_parameters * SLOT_BYTES),
            tables_bytes: Computed(size_of::<FloatTables>() as u64),
            logic_bytes: Quoted(130 << 10),
            stages: Quoted(Used { used: 9, of: 12 }),
            vliw_instructions: Quoted(Used { used: 37, of: 384 }),
            hash_dist_units: Quoted(Used { used: 16, of: 32 }),
        }
    }

    /// On-chip memory in all. Quoted, since a term is.
    #[must_use]
    pub fn total_bytes(&self) -> Quoted<u64> {
        Quoted(self.hot_bytes.0 + self.tables_bytes.0 + self.logic_bytes.0)
    }

    /// The share of a switch's on-chip memory, 0 to 1.
    #[must_use]
    pub fn share_of(&self, on_chip_bytes: u64) -> Quoted<f64> {
        Quoted(self.total_bytes().0 as f64 / on_chip_bytes as f64)
    }
}

/// Resources that our data plane takes: the arrays of its regions, as [`RegionConfig::memory_words`] has them. The logic is not in
/// it; `docs/operating/p4.md` has what a compiler for Tofino took. There are no tables: integers are added.
///
/// 30,000 hot parameters take 412.9 KB with 8 workers, 444.9 KB with 16 and 509.0 KB with 32: 2.02%, 2.17% and 2.49% of
/// 20 MB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OurResources {
    /// Two accumulators for each slot: one is drained while the other takes packets.
    pub sums_bytes: Computed<u64>,
    /// A value for each slot, which workers read.
    pub values_bytes: Computed<u64>,
    /// Marks of the blocks of slots that were added to, of both banks.
    pub marks_bytes: Computed<u64>,
    /// Windows of the packets that were taken, for each worker and region: they make a retransmission harmless. The paper keeps this
    /// on the processor beside the pipeline.
    pub windows_bytes: Computed<u64>,
    /// Regions of [`CELLS_MAX`] cells at most, each with a cell for padding.
    pub regions: Computed<u64>,
}

impl OurResources {
    /// For so many hot parameters of width 1, in as few regions as they fit in, and so many workers.
    ///
    /// ```
    /// let ours = libra_paper::OurResources::of(30_000, 8)?;
    /// // Three words for each slot instead of one: two banks and the value.
    /// assert_eq!(ours.sums_bytes.0 + ours.values_bytes.0, 3 * 4 * 30_001);
    /// assert_eq!(ours.windows_bytes.0, 8 * 4 * 1025);
    /// # Ok::<(), libra_dataplane::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// There are no workers.
    pub fn of(hot_parameters: u64, workers: u16) -> Result<Self, ConfigError> {
        let mut words = [0_u64; 4];
        let mut regions = 0;
        let mut left = hot_parameters;
        while left > 0 {
            let slots = u16::try_from(left).unwrap_or(u16::MAX).min(CELLS_MAX - 1);
            let config = RegionConfig {
                job: 0,
                region: 0,
                plan: 1,
                view: 1,
                lanes: 1,
                cells: slots + 1,
                flows: workers,
                bank_packets_max: 1,
                arithmetic: libra_dataplane::Arithmetic::F32,
            };
            config.check()?;
            let size = config.memory_words();
            let arrays = [2 * size.sums, size.values, 2 * size.dirty, size.windows];
            words.iter_mut().zip(arrays).for_each(|(sum, words)| *sum += words as u64);
            regions += 1;
            left -= u64::from(slots);
        }
        let [sums, values, marks, windows] = words.map(|words| Computed(words * size_of::<u32>() as u64));
        Ok(Self {
            sums_bytes: sums,
            values_bytes: values,
            marks_bytes: marks,
            windows_bytes: windows,
            regions: Computed(regions),
        })
    }

    /// On-chip memory in all.
    #[must_use]
    pub fn total_bytes(&self) -> Computed<u64> {
        Computed(self.sums_bytes.0 + self.values_bytes.0 + self.marks_bytes.0 + self.windows_bytes.0)
    }

    /// The share of a switch's on-chip memory, 0 to 1.
    #[must_use]
    pub fn share_of(&self, on_chip_bytes: u64) -> Computed<f64> {
        Computed(self.total_bytes().0 as f64 / on_chip_bytes as f64)
    }
}

/// On-chip memory of the paper's switch, 20 MB.
pub const ON_CHIP_BYTES: u64 = DEFAULT_ON_CHIP_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_tables_are_the_sum_that_it_writes() {
        let formula = 256 * 2 + 3 * 4096 * 2 + 65_536 * 2 + 65_536 * 2 + 65_536 * 2;
        assert_eq!(PaperResources::of(1).tables_bytes, Computed(formula));
    }

    #[test]
    fn with_its_own_rounding_the_papers_total_is_3_21_percent() {
        let resources = PaperResources::of(30_000);
        let kilobytes = |bytes: u64| bytes as f64 / 1024.0;
        assert_eq!(format!("{:.1}", kilobytes(resources.hot_bytes.0)), "117.2");
        assert_eq!(format!("{:.1}", kilobytes(resources.total_bytes().0)), "655.7");
        let as_rounded = 118 * 1024 + resources.tables_bytes.0 + resources.logic_bytes.0;
        assert_eq!(kilobytes(as_rounded), 656.5);
        assert_eq!(format!("{:.2}", 100.0 * as_rounded as f64 / ON_CHIP_BYTES as f64), "3.21");
    }

    #[test]
    fn more_parameters_than_a_region_has_take_another() {
        let full = OurResources::of(32_767, 1).unwrap();
        assert_eq!(full.regions, Computed(1));
        let more = OurResources::of(32_768, 1).unwrap();
        assert_eq!(more.regions, Computed(2));
        assert_eq!(more.windows_bytes.0, 2 * full.windows_bytes.0);
        assert_eq!(more.values_bytes.0, 4 * (32_768 + 2), "a padding cell each");
    }

    #[test]
    fn without_workers_there_is_no_region() {
        assert_eq!(OurResources::of(10, 0), Err(ConfigError::Flows));
        assert_eq!(OurResources::of(0, 8).unwrap().total_bytes(), Computed(0));
    }

    #[test]
    fn the_documentation_says_what_ours_takes() {
        for (workers, kilobytes, percent) in
            [(8, "412.9", "2.02"), (16, "444.9", "2.17"), (32, "509.0", "2.49")]
        {
            let ours = OurResources::of(30_000, workers).unwrap();
            assert_eq!(format!("{:.1}", ours.total_bytes().0 as f64 / 1024.0), kilobytes);
            assert_eq!(format!("{:.2}", 100.0 * ours.share_of(ON_CHIP_BYTES).0), percent);
        }
    }
}
