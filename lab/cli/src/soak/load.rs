//! Pushes of the workers of a soak. All of them follow from the seed, so that the sums can be computed independently.

use anyhow::{Context, Result};
use libra_plan::{
    Budget, DEFAULT_HEADROOM_BITS, Frequencies, Plan, Provenance, SplitMix64, TableShape, splitmix64,
};
use libra_store::{Init, Optimizer, TableSpec};
use serde::{Deserialize, Serialize};

const HOT_ROWS: u64 = 3_000;
const COLD_ROWS: u64 = 500;
/// Values of a row that servers with a memory limit do not keep in memory for its size alone, with the state of Adagrad.
const LIMITED_WIDTH: u16 = 16;
/// Bytes that such a row takes in memory, with its key and its place in the index; a few more or less do not matter here.
const LIMITED_ROW_BYTES: u64 = 2 * 4 * LIMITED_WIDTH as u64 + 16;
/// Rows of all servers take so many times the memory that they may.
const OVERLOAD: u64 = 4;
/// Neighbouring rows of a push that come again only when all others did.
const WALKED_ROWS: u64 = 1_024;
/// The first rows are pushed far more often than the others.
const FAVOURITES: u64 = 256;
const ROWS_OF_A_PUSH: usize = 96;
/// Bound of gradients in the plan. It leaves room for 64 times as much.
const GRADIENT_PLANNED: f32 = 1.0;

/// Integers for rows that have a lane for each worker: worker w adds to lane w only, so each lane shows what became of the
/// pushes of one worker. They are small enough for f32 to add them up without rounding. With a memory limit the rows that no plan has are
/// updated by Adagrad, whose steps follow from the order of the pushes of the worker of a lane, which a shard keeps (rule C1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) seed: u64,
    /// Values of a row. Workers are numbered below this.
    pub(super) lanes: u16,
    /// Rows that no plan has.
    pub(super) cold_rows: u64,
    /// Each push has so many of these, one after the other.
    pub(super) walked_rows: u64,
}

/// A row, and what is added to the worker's lane of it.
pub(super) type Part = (u64, i32);

impl Load {
    /// A load with so many lanes at least. With a limit of the memory of all servers together, in bytes, its rows take four times as much.
    pub(super) fn new(seed: u64, lanes: u16, memory_limit: Option<u64>) -> Self {
        match memory_limit {
            None => Self { seed, lanes, cold_rows: COLD_ROWS, walked_rows: 0 },
            Some(bytes) => Self {
                seed,
                lanes: lanes.max(LIMITED_WIDTH),
                cold_rows: (OVERLOAD * bytes / LIMITED_ROW_BYTES).max(COLD_ROWS + WALKED_ROWS),
                walked_rows: WALKED_ROWS,
            },
        }
    }

    pub(super) fn rows(&self) -> u64 {
        HOT_ROWS + self.cold_rows
    }

    /// The rows below this are minus the sums of their gradients; those above take steps of Adagrad.
    pub(super) fn summed_rows(&self) -> u64 {
        if self.walked_rows == 0 { self.rows() } else { HOT_ROWS }
    }

    /// Stochastic gradient descent, and Adagrad for rows with a memory limit. All begin at zero.
    pub(super) fn tables(&self) -> Vec<TableSpec> {
        let table = |name: &str, keys, optimizer: Optimizer| TableSpec {
            name: name.to_owned(),
            keys,
            width: self.lanes.into(),
            rule: optimizer.into(),
            init: Init::Zero,
        };
        let (summed, rows) = (self.summed_rows(), self.rows());
        let sums = table("sums", 0..summed, Optimizer::Sgd { rate: 1.0 });
        let steps = || table("steps", summed..rows, Optimizer::Adagrad { rate: 1.0, epsilon: 1.0 });
        [sums].into_iter().chain((summed < rows).then(steps)).collect()
    }

    /// A plan that has all but the last rows as hot.
    pub(super) fn plan(&self) -> Result<Plan> {
        let shapes = self.tables().into_iter().map(|table| TableShape {
            hot: table.name == "sums",
            name: table.name,
            keys: table.keys,
            width: self.lanes.into(),
        });
        let mut frequencies = Frequencies::new(shapes.collect()).context("the tables make no plan")?;
        frequencies.record_push(0..HOT_ROWS);
        (0..HOT_ROWS).for_each(|key| frequencies.record_gradient(key, GRADIENT_PLANNED));
        let budget = Budget { p: 1.0, c: 0.5, ..Budget::default() };
        Ok(Plan::new(1, Provenance::default(), &frequencies, budget, DEFAULT_HEADROOM_BITS)?)
    }

    /// The parts of a push. A row may occur more than once. Two workers walk over all cold rows, half of them each before they meet. Now and then a gradient is too large for the plan.
    pub(super) fn push(&self, worker: u16, number: u32) -> Vec<Part> {
        let mut draws = draws(self.seed, u64::from(worker) << 32 | u64::from(number));
        let first = u64::from(worker) * self.cold_rows / 2 + u64::from(number) * self.walked_rows;
        let walked = (first..first + self.walked_rows).map(|at| (HOT_ROWS + at % self.cold_rows, 1));
        let part = |_| {
            let key = match draws.below(10) {
                0..5 => draws.below(FAVOURITES),
                5..9 => draws.below(HOT_ROWS),
                _ => HOT_ROWS + draws.below(self.cold_rows),
            };
            let size = if draws.below(64) == 0 { 200 + draws.below(800) } else { 1 + draws.below(9) };
            let size = i32::try_from(size).expect("it is below 1,000");
            (key, if draws.below(2) == 0 { size } else { -size })
        };
        (0..ROWS_OF_A_PUSH).map(part).chain(walked).collect()
    }

    /// A push as a worker submits it: keys, and the gradients of their rows.
    pub(super) fn gradients(&self, worker: u16, parts: &[Part]) -> (Vec<u64>, Vec<f32>) {
        let mut gradients = vec![0.0; parts.len() * usize::from(self.lanes)];
        for (row, (_, value)) in gradients.chunks_exact_mut(self.lanes.into()).zip(parts) {
            row[usize::from(worker)] = small(*value);
        }
        (parts.iter().map(|(key, _)| *key).collect(), gradients)
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is below 1,000")]
fn small(value: i32) -> f32 {
    value as f32
}

/// The draws of one of many streams of a seed.
fn draws(seed: u64, stream: u64) -> SplitMix64 {
    SplitMix64::new(splitmix64(seed) ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_parts_are_hot_and_some_are_too_large() {
        let load = Load::new(1, 4, None);
        let parts: Vec<Part> = (0..500).flat_map(|number| load.push(2, number)).collect();
        let hot = parts.iter().filter(|(key, _)| *key < HOT_ROWS).count();
        let large = parts.iter().filter(|(_, value)| value.abs() >= 200).count();
        assert!((42_000..45_000).contains(&hot) && (500..1_000).contains(&large), "{hot}, {large}");
        assert_eq!(load.push(2, 7), load.push(2, 7));
        assert_ne!(load.push(2, 7), load.push(1, 7));
        assert_ne!(load.push(2, 7), Load::new(2, 4, None).push(2, 7));
        let plan = load.plan().unwrap();
        assert_eq!(plan.rows.len() as u64, HOT_ROWS);
        let (keys, gradients) = load.gradients(2, &[(7, -3), (9, 4)]);
        assert_eq!((keys, gradients), (vec![7, 9], vec![0.0, 0.0, -3.0, 0.0, 0.0, 0.0, 4.0, 0.0]));
    }

    #[test]
    fn two_workers_walk_over_all_rows_with_a_memory_limit() {
        let load = Load::new(1, 2, Some(1 << 20));
        assert_eq!((load.lanes, load.cold_rows), (16, 29_127));
        let keys =
            |worker| (0..15).flat_map(move |number| Load::new(1, 2, Some(1 << 20)).push(worker, number));
        let walked: std::collections::BTreeSet<u64> = (0..2).flat_map(keys).map(|(key, _)| key).collect();
        assert!((HOT_ROWS..load.rows()).all(|key| walked.contains(&key)));
    }
}
