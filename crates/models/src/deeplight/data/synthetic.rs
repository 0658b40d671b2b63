//! A log made from a seed, so that everything can be tried without a download.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, StandardNormal, Zipf};

use super::{Dataset, Reading, rows::RawRow, vocabulary::Value};
use crate::data::DataError;

/// Recipe of a synthetic log.
///
/// Every field has values after Zipf's law, of which some rows have none. A value has a weight and a hidden vector, a pair of fields a
/// strength; the logit of a click is `bias + weights + sum over pairs of strength * agreement of vectors`, which is what a
/// field-weighted factorisation machine can find.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Rows.
    pub rows: usize,
    /// Values of each field.
    pub values: Vec<u32>,
    /// Length of the hidden vectors.
    pub lanes: usize,
    /// Standard deviation of the sum of the weights.
    pub linear: f32,
    /// Standard deviation of the sum over the pairs.
    pub pairs: f32,
    /// The logit of a click, if nothing else is known.
    pub bias: f32,
    /// Exponent of the law: the value of rank r is drawn with weight `r^-exponent`.
    pub exponent: f64,
    /// Partition of values that are missing.
    pub missing: f64,
    /// Everything follows from it.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            rows: 20_000,
            values: vec![10, 10, 20, 20, 50, 50, 100, 200, 500, 1000],
            lanes: 3,
            linear: 1.0,
            pairs: 1.5,
            bias: -1.2,
            exponent: 1.1,
            missing: 0.05,
            seed: 1,
        }
    }
}

/// Planted weights of one field.
struct Field {
    ranks: Zipf<f64>,
    weights: Vec<f32>,
    vectors: Vec<f32>,
}

impl Synthetic {
    /// Makes the data set. A recipe whose numbers make no sense (no fields, a field without values) is bent to the nearest one
    /// that does.
    ///
    /// # Errors
    /// There are not two rows.
    pub fn generate(&self, reading: Reading) -> Result<Dataset, DataError> {
        let mut random = SmallRng::seed_from_u64(self.seed ^ 0x0c11_c4ed_7e57_da7a);
        let mut sizes: Vec<u32> = self.values.iter().map(|&size| size.max(1)).collect();
        if sizes.is_empty() {
            sizes.push(1);
        }
        let lanes = self.lanes.max(1);
        let pairs = (sizes.len() * (sizes.len() - 1) / 2).max(1);
        let linear = self.linear / (sizes.len() as f32).sqrt();
        let strength = self.pairs / ((pairs * lanes) as f32).sqrt();
        let mut normal =
            |deviation: f32| deviation * Distribution::<f32>::sample(&StandardNormal, &mut random);
        let fields: Vec<Field> = sizes
            .iter()
            .map(|&size| Field {
                ranks: Zipf::new(f64::from(size), self.exponent.max(0.0)).expect("at least one value"),
                weights: (0..size).map(|_| normal(linear)).collect(),
                vectors: (0..size as usize * lanes).map(|_| normal(1.0)).collect(),
            })
            .collect();
        let strengths: Vec<f32> = (0..pairs).map(|_| normal(strength)).collect();
        let rows: Vec<RawRow> =
            (0..self.rows).map(|_| self.row(&fields, &strengths, lanes, &mut random)).collect();
        Dataset::of_rows("synthetic", fields.len(), &rows, reading)
    }

    fn row(&self, fields: &[Field], strengths: &[f32], lanes: usize, random: &mut SmallRng) -> RawRow {
        let mut values = Vec::with_capacity(fields.len());
        let mut vectors: Vec<&[f32]> = Vec::with_capacity(fields.len());
        let mut logit = self.bias;
        for (number, field) in fields.iter().enumerate() {
            if random.random::<f64>() < self.missing {
                values.push(Value::missing(number));
                vectors.push(&[]);
                continue;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranks count from 1")]
            let value = (field.ranks.sample(random) as usize - 1).min(field.weights.len() - 1);
            values.push(Value::new(number, value as u64));
            vectors.push(&field.vectors[value * lanes..][..lanes]);
            logit += field.weights[value];
        }
        let mut strengths = strengths.iter();
        for (place, left) in vectors.iter().enumerate() {
            for (right, strength) in vectors[place + 1..].iter().zip(&mut strengths) {
                logit += strength * left.iter().zip(*right).map(|(a, b)| a * b).sum::<f32>();
            }
        }
        let probability = 1.0 / (1.0 + (-logit).exp());
        RawRow { clicked: random.random::<f32>() < probability, values }
    }
}
