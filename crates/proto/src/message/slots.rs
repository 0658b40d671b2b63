//! Values of hot rows by slots.

use serde::{Deserialize, Serialize};

use crate::bulk::Bulk;

/// A run of neighbouring slots: the first, and how many.
pub type SlotRun = (u16, u16);

/// Values of hot rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotValues {
    /// The slots that have them, ascending.
    pub slots: Vec<SlotRun>,
    /// The bits of their f32 values.
    pub values: Bulk<u32>,
}

impl SlotValues {
    pub(super) fn bytes_about(&self) -> usize {
        6 * self.slots.len() + 4 * self.values.0.len()
    }

    /// The first slot of each run with the values of the run, ascending.
    pub fn by_run(&self) -> impl Iterator<Item = (u16, &[u32])> {
        let mut rest = self.values.0.as_slice();
        self.slots.iter().map(move |&(first, count)| {
            let (values, behind) = rest.split_at(rest.len().min(count.into()));
            rest = behind;
            (first, values)
        })
    }

    /// Each slot with its value, ascending.
    pub fn by_slot(&self) -> impl Iterator<Item = (u16, u32)> {
        self.by_run().flat_map(|(first, values)| (first..).zip(values.iter().copied()))
    }
}
