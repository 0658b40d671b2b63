//! The distinct rows of a batch, and which of them each sample uses.

use crate::{
    model::{Model, SampleRows},
    sampling::Batch,
};

/// Finds distinct rows with an array that is as long as there are rows, so that nothing is hashed.
///
/// An entry is valid while its stamp is the current one: moving to the next batch is one addition, not a pass over the array.
#[derive(Debug)]
pub(crate) struct DistinctRows {
    entries: Vec<Entry>,
    stamp: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    stamp: u32,
    index: u32,
}

impl DistinctRows {
    /// For keys `0..rows`.
    pub(crate) fn new(rows: usize) -> Self {
        Self { entries: vec![Entry::default(); rows], stamp: 0 }
    }

    /// Forgets all rows.
    pub(crate) fn start(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.entries.fill(Entry::default());
            self.stamp = 1;
        }
    }

    /// The index of `key` in `keys`, to which it is added when it is not there yet.
    pub(crate) fn index(&mut self, key: u64, keys: &mut Vec<u64>) -> u32 {
        let place = usize::try_from(key).expect("keys of users and items are indices of an array");
        let entry = &mut self.entries[place];
        if entry.stamp != self.stamp {
            let index = u32::try_from(keys.len()).expect("fewer than 2^32 rows");
            *entry = Entry { stamp: self.stamp, index };
            keys.push(key);
        }
        entry.index
    }

    /// Replaces `keys` by the distinct rows of `batch` in order of their first use and behind them the layers, and `samples`
    /// by the indices into them.
    pub(crate) fn collect(
        &mut self,
        model: &Model,
        batch: &Batch,
        keys: &mut Vec<u64>,
        samples: &mut SampleRows,
    ) {
        self.start();
        keys.clear();
        samples.clear();
        for (&user, &item) in batch.users.iter().zip(&batch.items) {
            let user = self.index(model.user_key(user), keys);
            let item = self.index(model.item_key(item), keys);
            samples.push(user, item);
        }
        keys.extend(model.layer_keys());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TrainConfig, data::Synthetic, model::LAYER_KEYS};

    #[test]
    fn each_row_is_there_once() {
        let dataset = Synthetic { users: 10, items: 20, picks_min: 2, ..Synthetic::default() }.generate();
        let model = Model::new(&TrainConfig::default(), &dataset);
        let mut distinct = DistinctRows::new(model.embedding_rows());
        // The stamp is about to wrap: what is left of earlier batches must not be taken for this one's.
        distinct.stamp = u32::MAX - 1;
        let (mut keys, mut samples) = (Vec::new(), SampleRows::default());
        let batch = Batch { users: vec![3, 3, 9, 3], items: vec![0, 19, 0, 0], labels: vec![0.0; 4] };
        for _ in 0..3 {
            distinct.collect(&model, &batch, &mut keys, &mut samples);
            assert_eq!(keys, [3, 10, 29, 9, LAYER_KEYS, LAYER_KEYS + 1, LAYER_KEYS + 2]);
            assert_eq!(samples, SampleRows { users: vec![0, 0, 3, 0], items: vec![1, 2, 1, 1] });
        }
    }
}
