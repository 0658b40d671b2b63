//! All that decides how gradients change the rows of a table.

use serde::{Deserialize, Serialize};

use crate::table::OutOfRange;
use crate::{Optimizer, RowLifecycle, Schedule, Update};

/// Update rule of a table, and the rows it has: the optimizer, its input, and growth.
///
/// A gradient is clipped, then the weight decay is added to it, then the optimizer takes it. A plain optimizer is
/// a rule too:
///
/// ```
/// use libra_store::{Clip, Decay, Optimizer, UpdateRule, Schedule};
///
/// let plain: UpdateRule = Optimizer::Sgd { rate: 0.1 }.into();
/// let rule = UpdateRule {
///     schedule: Schedule { warmup: 1000, decay: Decay::InverseRoot },
///     clip: Clip::Norm { limit: 1.0 },
///     ..plain
/// };
/// let mut row = [1.0, 1.0];
/// rule.prepare(999).apply(&mut row, &mut [], &[3.0, 4.0]);
/// assert_eq!(row, [0.94, 0.92]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateRule {
    /// The formula.
    pub optimizer: Optimizer,
    /// Change of its rate with the steps of the table.
    #[serde(default)]
    pub schedule: Schedule,
    /// At least 0. So many times the row are added to each gradient, the gradient of so many times half its sum of
    /// squares; with [`Optimizer::AdamW`], the row is made smaller directly. A row without a gradient does not
    /// decay.
    #[serde(default)]
    pub weight_decay: f32,
    /// Treatment of large gradients.
    #[serde(default)]
    pub clip: Clip,
    /// Rows that there are.
    #[serde(default)]
    pub growth: RowLifecycle,
}

/// Treatment of the gradient of a row that is too large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum Clip {
    /// Nothing.
    #[default]
    None,
    /// Each value is moved to the nearest between `-limit` and `limit`.
    Value {
        /// Above 0.
        limit: f32,
    },
    /// The gradient of a row whose Euclidean norm is larger than `limit` is scaled to that norm.
    Norm {
        /// Above 0.
        limit: f32,
    },
}

impl From<Optimizer> for UpdateRule {
    fn from(optimizer: Optimizer) -> Self {
        Self {
            optimizer,
            schedule: Schedule::default(),
            weight_decay: 0.0,
            clip: Clip::None,
            growth: RowLifecycle::default(),
        }
    }
}

impl UpdateRule {
    /// Returns the number of words of state of a row of `width` values: those of [`Optimizer::state_len`], then what the eviction needs to
    /// know of it, which are not numbers but bits of an f32.
    #[must_use]
    pub fn state_len(&self, width: usize) -> usize {
        self.optimizer.state_len(width) + self.growth.words()
    }

    /// Returns the update of each row of a batch, where `step` batches have touched the table before.
    #[must_use]
    pub fn prepare(&self, step: u64) -> Update {
        Update::new(self, step)
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first one that training cannot use.
    pub fn check(&self) -> Result<(), OutOfRange> {
        self.optimizer.check()?;
        self.schedule.check()?;
        OutOfRange::unless_not_negative("weight_decay", self.weight_decay)?;
        self.growth.check()?;
        match self.clip {
            Clip::None => Ok(()),
            Clip::Value { limit } | Clip::Norm { limit } => OutOfRange::unless_positive("limit", limit),
        }
    }

    /// Returns true if a formula that needs its own rate was given another one.
    pub(crate) fn schedules_ftrl(&self) -> bool {
        matches!(self.optimizer, Optimizer::Ftrl { .. }) && self.schedule != Schedule::default()
    }
}
