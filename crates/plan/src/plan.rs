//! The plan: which rows are hot, in which order, with which scales.

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frequency::Frequencies;
use crate::hot_set::{Budget, BudgetError, principle_1};
use crate::scale::{HEADROOM_BITS_MAX, Scale, bound};
use crate::table::{ShapeError, TableShape, Tables};

/// A plan: the hot rows, their order and scales, and how they were determined.
///
/// A plan that was read by serde (from a message) is unchecked: call [`Plan::check`].
/// [`Plan::from_toml`], [`Plan::new`] and [`Placement::new`](crate::Placement::new) do so themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The version of the plan, which every hot packet carries; at least 1.
    pub number: u16,
    /// Origin of the plan.
    pub provenance: Provenance,
    /// The tables of the model it is for.
    pub tables: Vec<TableShape>,
    /// The design parameters of Principle 1.
    pub budget: Budget,
    /// A bank takes at most two to this power pushes; see [`bound`](crate::bound()).
    pub headroom_bits: u8,
    /// The share of all row updates that the hot rows are expected to take in a run over the whole data set, 0 to 1: what was
    /// counted of it is known, the rest is [`Frequencies::unseen_share`].
    pub predicted_share: f64,
    /// The hot rows in rank order: by falling count, and by rising key among equals.
    pub rows: Vec<HotRow>,
}

/// Origin of a plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The model that was trained.
    pub model: String,
    /// The data set it was trained on.
    pub data: String,
    /// The share of the data set that was sampled, in \[0, 1\]; 0 for data that has no end.
    pub sample: f64,
    /// The seed of the sample and of the training.
    pub seed: u64,
    /// Records in a batch.
    pub batch: u32,
    /// Pushes that were counted.
    pub pushes: u64,
    /// The program that made the plan, and its version.
    pub tool: String,
}

/// One hot row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotRow {
    /// The row.
    pub key: u64,
    /// In how many of the counted pushes it was.
    pub count: u64,
    /// The scale of its gradients.
    pub scale: Scale,
}

/// A fault of a plan.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum Invalid {
    /// Number 0 means "no plan".
    #[error("the number of a plan is at least 1")]
    Number,
    /// The tables are no tables of one model.
    #[error(transparent)]
    Tables(#[from] ShapeError),
    /// The budget is none.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The sampled share is no share.
    #[error("sample = {sample} is a share of the data set: it must be from 0 to 1")]
    Sample {
        /// The share that was given.
        sample: f64,
    },
    /// Too few bits would be left for a gradient.
    #[error("headroom_bits = {headroom_bits} is above {HEADROOM_BITS_MAX}")]
    Headroom {
        /// The bits that were given.
        headroom_bits: u8,
    },
    /// The predicted share is no share.
    #[error("predicted_share = {share} must be from 0 to 1")]
    PredictedShare {
        /// The share that was given.
        share: f64,
    },
    /// A hot row that no table holds.
    #[error("row {rank}: key {key} belongs to no table")]
    UnknownKey {
        /// Its rank, from 0.
        rank: usize,
        /// Its key.
        key: u64,
    },
    /// A hot row of a table whose rows may not be hot.
    #[error("row {rank}: key {key} is in table {table:?}, which is not hot")]
    NotHot {
        /// Its rank, from 0.
        rank: usize,
        /// Its key.
        key: u64,
        /// Its table.
        table: String,
    },
    /// A row that is hot twice.
    #[error("row {rank}: key {key} is there already")]
    Twice {
        /// The rank of the second, from 0.
        rank: usize,
        /// The key of both.
        key: u64,
    },
    /// A row out of order.
    #[error("row {rank}: key {key} must come before the row above it (falling counts, then rising keys)")]
    Order {
        /// Its rank, from 0.
        rank: usize,
        /// Its key.
        key: u64,
    },
    /// The hot rows do not fit in the memory of the budget.
    #[error("row {rank}: the rows up to this one take {slots} slots, the budget has {slots_max}")]
    Memory {
        /// The rank of the first row that does not fit, from 0.
        rank: usize,
        /// The slots up to and with it.
        slots: u64,
        /// The slots of the budget.
        slots_max: u64,
    },
}

impl Invalid {
    /// The rank, from 0, of the row that is at fault, if one is.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::UnknownKey { rank, .. }
            | Self::NotHot { rank, .. }
            | Self::Twice { rank, .. }
            | Self::Order { rank, .. }
            | Self::Memory { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}

/// Reason why a plan is not for a model.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfit {
    /// A table of the model that the plan does not have.
    #[error("the model has a table {table:?}, the plan has none of that name")]
    NotInPlan {
        /// Its name.
        table: String,
    },
    /// A table of the plan that the model does not have.
    #[error("the plan is for a model with a table {table:?}, this one has none of that name")]
    NotInModel {
        /// Its name.
        table: String,
    },
    /// A table with other keys.
    #[error(
        "table {table:?} has keys {model_first}..{model_end} in the model, {plan_first}..{plan_end} in the plan"
    )]
    Keys {
        /// Its name.
        table: String,
        /// First key in the model.
        model_first: u64,
        /// The key after the last in the model.
        model_end: u64,
        /// First key in the plan.
        plan_first: u64,
        /// The key after the last in the plan.
        plan_end: u64,
    },
    /// A table with other rows.
    #[error("table {table:?} has rows of {model} values in the model and of {plan} in the plan")]
    Width {
        /// Its name.
        table: String,
        /// Its width in the model.
        model: u32,
        /// Its width in the plan.
        plan: u32,
    },
    /// A table whose rows may be hot only in one of the two.
    #[error("table {table:?} has `hot = {model}` in the model and `hot = {plan}` in the plan")]
    Hot {
        /// Its name.
        table: String,
        /// True if its rows may be hot according to the model.
        model: bool,
        /// True if its rows may be hot according to the plan.
        plan: bool,
    },
}

impl Plan {
    /// Makes the plan that the counts call for: the hot rows by Principle 1, each with the scale that its
    /// largest gradient allows. Sets `provenance.pushes`.
    ///
    /// # Errors
    /// The number is 0, or a share or the headroom is out of range.
    pub fn new(
        number: u16,
        provenance: Provenance,
        frequencies: &Frequencies,
        budget: Budget,
        headroom_bits: u8,
    ) -> Result<Self, Invalid> {
        let mut plan = Self {
            number,
            provenance: Provenance { pushes: frequencies.pushes(), ..provenance },
            tables: frequencies.tables().to_vec(),
            budget,
            headroom_bits,
            predicted_share: 0.0,
            rows: Vec::new(),
        };
        plan.check()?;
        let mut ranked = frequencies.ranked();
        let choice = principle_1(&ranked, frequencies.total(), &budget);
        ranked.truncate(choice.rows);
        let largest = frequencies.largest_gradients();
        let bound = bound(headroom_bits);
        // Of the whole data set the sample is known, the rest is estimated.
        let (sample, unseen) = (plan.provenance.sample, frequencies.unseen_share(choice.rows));
        plan.predicted_share = sample * choice.observed_share + (1.0 - sample) * unseen;
        plan.rows = ranked
            .into_iter()
            .map(|row| HotRow {
                key: row.key,
                count: row.count,
                scale: Scale::fit(largest.of(row.key), bound),
            })
            .collect();
        Ok(plan)
    }

    /// # Errors
    /// The first fault of the plan.
    pub fn check(&self) -> Result<(), Invalid> {
        self.checked_tables().map(drop)
    }

    /// Checks the plan, and hands out its tables ordered by key.
    pub(crate) fn checked_tables(&self) -> Result<Tables, Invalid> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        if self.number == 0 {
            return Err(Invalid::Number);
        }
        if self.headroom_bits > HEADROOM_BITS_MAX {
            return Err(Invalid::Headroom { headroom_bits: self.headroom_bits });
        }
        if !share(self.predicted_share) {
            return Err(Invalid::PredictedShare { share: self.predicted_share });
        }
        if !share(self.provenance.sample) {
            return Err(Invalid::Sample { sample: self.provenance.sample });
        }
        self.budget.check()?;
        let tables = Tables::new(self.tables.clone())?;
        self.check_rows(&tables)?;
        Ok(tables)
    }

    fn check_rows(&self, tables: &Tables) -> Result<(), Invalid> {
        let slots_max = self.budget.slots();
        let mut slots = 0;
        let mut keys = HashSet::with_capacity_and_hasher(self.rows.len(), FixedState::default());
        let mut above: Option<&HotRow> = None;
        for (rank, row) in self.rows.iter().enumerate() {
            let key = row.key;
            let Some((_, table)) = tables.find(key) else { return Err(Invalid::UnknownKey { rank, key }) };
            if !table.hot {
                return Err(Invalid::NotHot { rank, key, table: table.name.clone() });
            }
            if !keys.insert(key) {
                return Err(Invalid::Twice { rank, key });
            }
            if above
                .is_some_and(|above| above.count < row.count || (above.count == row.count && above.key > key))
            {
                return Err(Invalid::Order { rank, key });
            }
            above = Some(row);
            slots += u64::from(table.width);
            if slots > slots_max {
                return Err(Invalid::Memory { rank, slots, slots_max });
            }
        }
        Ok(())
    }

    /// The largest magnitude of one quantized value; see [`bound`](crate::bound()).
    ///
    /// # Panics
    /// If the plan has more headroom than [`Plan::check`] allows.
    #[must_use]
    pub fn bound(&self) -> u32 {
        bound(self.headroom_bits)
    }

    /// Returns how many pushes a bank takes at most, so that no slot can overflow.
    ///
    /// # Panics
    /// If the plan has more headroom than [`Plan::check`] allows.
    #[must_use]
    pub fn pushes_per_bank_max(&self) -> u32 {
        assert!(self.headroom_bits <= HEADROOM_BITS_MAX, "the plan was not checked");
        1 << self.headroom_bits
    }

    /// Checks that the plan is for a model of these tables, in any order.
    ///
    /// # Errors
    /// The first difference between the tables of the model and those of the plan.
    pub fn fits(&self, model: &[TableShape]) -> Result<(), Misfit> {
        for theirs in model {
            let table = || theirs.name.clone();
            let Some(ours) = self.tables.iter().find(|ours| ours.name == theirs.name) else {
                return Err(Misfit::NotInPlan { table: table() });
            };
            if ours.keys != theirs.keys {
                return Err(Misfit::Keys {
                    table: table(),
                    model_first: theirs.keys.start,
                    model_end: theirs.keys.end,
                    plan_first: ours.keys.start,
                    plan_end: ours.keys.end,
                });
            }
            if ours.width != theirs.width {
                return Err(Misfit::Width { table: table(), model: theirs.width, plan: ours.width });
            }
            if ours.hot != theirs.hot {
                return Err(Misfit::Hot { table: table(), model: theirs.hot, plan: ours.hot });
            }
        }
        match self.tables.iter().find(|ours| model.iter().all(|theirs| theirs.name != ours.name)) {
            Some(missing) => Err(Misfit::NotInModel { table: missing.name.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
