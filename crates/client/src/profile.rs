//! Profiles of pushes: how often each row is updated, and how large its gradients are.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use libra_plan::{
    Budget, DEFAULT_HEADROOM_BITS, Frequencies, Invalid, Plan, Provenance, ShapeError, TableShape,
};
use libra_proto::{ClientError, Parameters};
use libra_store::{Store, TableError};
use thiserror::Error;

use crate::local_parameters::LocalParameters;
use crate::observer::{Observed, PushObserver};
use crate::spec::JobSpec;
use crate::widths::Widths;

/// A profile run that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A table cannot be stored.
    #[error(transparent)]
    Table(#[from] TableError),
    /// An operation of the training loop failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl JobSpec {
    /// Returns a plan of the rows that are hot in the pushes of `train`. It trains in memory, without a cluster, on a sample of the data, and with
    /// the batches of a worker.
    ///
    /// # Errors
    /// The tables cannot be stored, or `train` failed.
    pub fn profile(
        &self,
        train: impl FnOnce(&mut dyn Parameters) -> Result<(), ClientError>,
    ) -> Result<Plan, ProfileError> {
        let mut local = LocalParameters::new(Store::new(self.tables.clone(), self.seed)?);
        let profile = Profile::new(self.shapes()).expect("the store took these tables");
        let mut observed = Observed::new(&mut local, profile);
        train(&mut observed)?;
        let plan = observed.observer.plan(Provenance::default(), Budget::default());
        Ok(plan.expect("the default budget is in range"))
    }
}

/// Counts the rows of pushes, from which a [`Plan`](libra_plan::Plan) takes the hot ones.
#[derive(Debug)]
pub struct Profile {
    frequencies: Frequencies,
    is_counting: bool,
    /// The largest magnitude in a gradient of each row that may be hot.
    largest: HashMap<u64, f32, FixedState>,
    widths: Widths,
}

impl Profile {
    /// An empty profile of these tables.
    ///
    /// # Errors
    /// Tables share keys or names.
    pub fn new(shapes: Vec<TableShape>) -> Result<Self, ShapeError> {
        let widths = Widths::of_shapes(&shapes);
        let frequencies = Frequencies::new(shapes)?;
        Ok(Self { frequencies, is_counting: true, largest: HashMap::default(), widths })
    }

    /// Records one push: its keys, and the gradients of their rows one after the other.
    ///
    /// # Panics
    /// If a key is in no table, or if there are fewer gradients than the rows have values.
    pub fn record(&mut self, keys: &[u64], gradients: &[f32]) {
        if self.is_counting {
            self.frequencies.record_push(keys.iter().copied());
        }
        let shapes = self.frequencies.tables();
        for (key, gradient) in self.widths.rows(keys, gradients) {
            if shapes.iter().any(|shape| shape.hot && shape.keys.contains(&key)) {
                let largest = self.largest.entry(key).or_default();
                *largest = gradient.iter().fold(*largest, |largest, value| largest.max(value.abs()));
            }
        }
    }

    /// Counts no more rows from here on; the magnitudes of gradients are still recorded. For further passes over the same sample.
    pub fn stop_counting(&mut self) {
        self.is_counting = false;
    }

    /// Returns a plan of the hot rows, with the default headroom for growing gradients.
    ///
    /// # Errors
    /// A share of the budget is out of range.
    pub fn plan(self, provenance: Provenance, budget: Budget) -> Result<Plan, Invalid> {
        Plan::new(1, provenance, &self.finish(), budget, DEFAULT_HEADROOM_BITS)
    }

    /// Returns the counts, and the magnitude of each row's gradients. A row has at least the median magnitude of its table: the gradients
    /// of rows that were seen a few times have not grown yet.
    pub fn finish(mut self) -> Frequencies {
        for shape in self.frequencies.tables().to_vec().iter().filter(|shape| shape.hot) {
            let rows: Vec<(u64, f32)> = self
                .largest
                .iter()
                .filter(|&(key, &largest)| shape.keys.contains(key) && largest > 0.0)
                .map(|(&key, &largest)| (key, largest))
                .collect();
            let mut seen: Vec<f32> = rows.iter().map(|(_, largest)| *largest).collect();
            let middle = seen.len() / 2;
            if seen.is_empty() {
                continue;
            }
            let median = *seen.select_nth_unstable_by(middle, f32::total_cmp).1;
            for (key, largest) in rows {
                self.frequencies.record_gradient(key, largest.max(median));
            }
        }
        self.frequencies
    }
}

impl PushObserver for Profile {
    fn on_push(&mut self, keys: &[u64], gradients: &[f32]) {
        self.record(keys, gradients);
    }
}
