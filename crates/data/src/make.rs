//! Data in the form of Criteo's, with a model planted in it: for tests and measurements at any size.

use std::path::Path;

use crate::columns::Columns;
use crate::dataset::Schema;
use crate::description::CRITEO_NUMBERS;
use crate::destination::Destination;
use crate::error::DataError;
use crate::hash::{Random, field_key, splitmix64};
use crate::write::{Output, Writer};

/// Different values of the 26 categories of Kaggle's set.
const VALUES: [u64; 26] = [
    1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194, 27, 14_992,
    5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
];
/// Rows that are made at once.
const BATCH: u64 = 1 << 13;

/// Recipe of a data set.
///
/// Values of categories have the numbers of Kaggle's set and are drawn by Zipf's law; numbers are the whole part of a log-normal
/// distribution. The logit of a click is a sum: a weight of each value, which is its hash, and a coefficient of the logarithm of each
/// number. So a logistic regression can find the model, and the best possible AUC follows from the recipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Make {
    /// Rows.
    pub rows: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// Standard deviation of the logit.
    pub strength: f64,
    /// Partition of values that are missing.
    pub missing: f64,
}

impl Default for Make {
    fn default() -> Self {
        Self { rows: 100_000, seed: 1, strength: 1.5, missing: 0.1 }
    }
}

impl Make {
    /// Writes the data set into an empty directory. `progress` gets the rows that are done.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(
        &self,
        directory: &Path,
        output: &Output,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), DataError> {
        self.write_to(&directory.into(), output, progress).map(drop)
    }

    /// The same to any destination; returns the bytes of the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_to(
        &self,
        to: &Destination,
        output: &Output,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, DataError> {
        let schema = Schema::criteo();
        let mut writer = Writer::create_at(to, &schema, output)?;
        let mut batch = schema.columns();
        for start in (0..self.rows).step_by(usize::try_from(BATCH).expect("a small number")) {
            batch.clear();
            let end = (start + BATCH).min(self.rows);
            (start..end).for_each(|row| self.row(row, &mut batch));
            writer.write(&batch)?;
            progress(end);
        }
        writer.finish()
    }

    /// Makes a row; its number and the seed decide all of it.
    fn row(&self, row: u64, into: &mut Columns) {
        let mut random = Random::new(self.seed ^ splitmix64(row));
        let share = self.strength / ((VALUES.len() + CRITEO_NUMBERS) as f64).sqrt();
        let mut logit = -1.0;
        for (field, into) in (0u64..).zip(&mut into.numbers) {
            if random.unit() < self.missing {
                into.push(f64::NAN);
                continue;
            }
            let normal = random.normal();
            into.push((1.0 + 1.5 * normal).exp().floor());
            logit += share * normal * unit_variance(field_key(self.seed ^ field, u64::MAX));
        }
        for ((field, &values), into) in (0u64..).zip(&VALUES).zip(&mut into.categories) {
            if random.unit() >= self.missing {
                // The inverse of the distribution of Zipf's law with exponent 1, as a logarithm.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 1 to the values"
                )]
                let rank = (((values + 1) as f64).ln() * random.unit()).exp() as u64;
                let value = field_key(field, rank);
                // Hashes of Criteo have 32 bits.
                into.ids.push(value >> 32);
                logit += share * unit_variance(field_key(self.seed, value));
            }
            into.end_row();
        }
        let click = random.unit() < 1.0 / (1.0 + (-logit).exp());
        into.labels.push(if click { 1.0 } else { 0.0 });
    }
}

/// A number of variance 1, uniform, that follows from a hash.
fn unit_variance(hash: u64) -> f64 {
    (hash as f64 / u64::MAX as f64 - 0.5) * 12f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_from_their_number_and_the_seed() {
        let row = |seed, row| {
            let mut columns = Schema::criteo().columns();
            Make { seed, ..Make::default() }.row(row, &mut columns);
            columns.checksum()
        };
        assert_eq!(row(1, 7), row(1, 7));
        assert_ne!(row(1, 7), row(1, 8));
        assert_ne!(row(1, 7), row(2, 7));
    }

    #[test]
    fn values_are_skewed_and_clicks_depend_on_them() {
        let mut columns = Schema::criteo().columns();
        (0..20_000).for_each(|row| Make::default().row(row, &mut columns));
        let clicks: f32 = columns.labels.iter().sum();
        assert!((4_000.0..8_000.0).contains(&clicks), "{clicks}");
        let mut third = columns.categories[2].ids.clone();
        third.sort_unstable();
        let most = third.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap();
        assert!((500..2000).contains(&most), "{most} of {}", third.len());
        // Rates of clicks differ between the values of a small category by more than chance.
        let rate = |value: u64| {
            let rows = (0..20_000).filter(|&row| columns.categories[8].row(row) == [value]);
            let labels: Vec<f32> = rows.map(|row| columns.labels[row]).collect();
            labels.iter().sum::<f32>() / labels.len() as f32
        };
        let mut values = columns.categories[8].ids.clone();
        values.sort_unstable();
        values.dedup();
        let rates: Vec<f32> = values.into_iter().map(rate).collect();
        let (least, most) = rates.iter().fold((1f32, 0f32), |(a, b), &rate| (a.min(rate), b.max(rate)));
        assert!(most - least > 0.03, "{rates:?}");
    }
}
