//! `KVServerDefaultHandle<float>` in the store of Libra: each value is the sum of all pushes to its key.

use std::sync::{Mutex, PoisonError};

use crate::mesh::{Bytes, Meta, OutgoingMessage, Payload};
use libra_store::{Init, Optimizer, Store, TableSpec};

use crate::arrays::{FLOAT, Floats};

/// The sums of one server.
pub(crate) struct Shard {
    rows: Mutex<Rows>,
    /// True if all sums began with zero.
    began_empty: bool,
}

struct Rows {
    store: Store,
    /// The sum of the highest key, which no range of a table reaches.
    last: f32,
    /// Gradients as the store wants them, in memory that is used again.
    negated: Vec<f32>,
}

/// A store finds rows of neighbouring keys by their keys alone, in a third of the time, if the table has no more keys than this.
const NEAR_KEYS: u64 = 1 << 32;

impl Shard {
    /// Of a server whose range of keys begins with this one. Programs number their keys from there, or spread them over the whole range.
    /// Sums of these keys begin with these values, all others with zero.
    pub(crate) fn new(first_key: u64, keys: &[u64], values: &[f32]) -> Self {
        let near_end = first_key.saturating_add(NEAR_KEYS);
        let ranges = [("near", first_key..near_end), ("below", 0..first_key), ("above", near_end..u64::MAX)];
        let sums = ranges.into_iter().filter(|(_, keys)| !keys.is_empty()).map(|(name, keys)| TableSpec {
            name: name.to_owned(),
            keys,
            width: 1,
            rule: Optimizer::Sgd { rate: 1.0 }.into(),
            init: Init::Zero,
        });
        let store =
            Store::new(sums.collect(), 0).expect("tables with keys that are not of another are sound");
        let mut rows = Rows { store, last: 0.0, negated: Vec::new() };
        rows.add(keys, values);
        Self { rows: Mutex::new(rows), began_empty: keys.is_empty() }
    }

    /// Returns true if sums of hot keys may be kept elsewhere, where they begin with zero.
    pub(crate) fn began_empty(&self) -> bool {
        self.began_empty
    }

    /// Carries out a request. Returns the answer, or the reason why there is none.
    pub(crate) fn serve(&self, meta: &Meta, payload: &Payload) -> Result<OutgoingMessage, String> {
        let (keys, bytes) = (payload.keys(), payload.values());
        if meta.value_type != FLOAT && !keys.is_empty() {
            return Err(
                "the default handler of this server has float values, and those of the request are not"
                    .to_owned(),
            );
        }
        if meta.push && bytes.len() != size_of_val(keys) / 2 {
            let values = bytes.len() / size_of::<f32>();
            return Err(format!(
                "the default handler adds one value to each key, and {values} came for {} keys",
                keys.len()
            ));
        }
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if meta.push {
            rows.add(keys, bytemuck::cast_slice(bytes));
        }
        let mut outgoing = OutgoingMessage::default();
        if meta.pull {
            outgoing.values = Bytes::new(Floats(rows.read(keys)));
        }
        Ok(outgoing)
    }
}

impl Rows {
    fn add(&mut self, keys: &[u64], values: &[f32]) {
        if keys.contains(&u64::MAX) {
            for (key, value) in keys.iter().zip(values) {
                if *key == u64::MAX {
                    self.last += *value;
                } else {
                    self.update(&[*key], &[*value]);
                }
            }
        } else {
            self.update(keys, values);
        }
    }

    /// The store subtracts gradients times a rate; to subtract the negative is to add, to the bit.
    fn update(&mut self, keys: &[u64], values: &[f32]) {
        self.negated.clear();
        self.negated.extend(values.iter().map(|value| -value));
        self.store.update_many(keys, &self.negated).expect("all keys but the highest are of the table");
    }

    fn read(&self, keys: &[u64]) -> Vec<f32> {
        let mut values = vec![0.0; keys.len()];
        if keys.contains(&u64::MAX) {
            for (key, value) in keys.iter().zip(&mut values) {
                if *key == u64::MAX {
                    *value = self.last;
                } else {
                    let one = core::slice::from_mut(value);
                    self.store.read(*key, one).expect("all keys but the highest are of the table");
                }
            }
        } else {
            self.store.read_many(keys, &mut values).expect("all keys but the highest are of the table");
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_those_of_a_loop_to_the_bit_up_to_the_highest_key() {
        for first_key in [0, 1 << 40, u64::MAX / 2, u64::MAX - 5, u64::MAX] {
            check(&Shard::new(first_key, &[], &[]));
        }
    }

    fn check(shard: &Shard) {
        let far = [1 << 40, (1 << 40) + 1, u64::MAX / 2 + 7, u64::MAX - 3, u64::MAX - 1, u64::MAX];
        let keys: Vec<u64> = (0..1000).map(|key| key * 7).chain(far).collect();
        let mut sums = vec![0.0_f32; keys.len()];
        for step in 0..50_u8 {
            let values: Vec<f32> =
                (0..keys.len()).map(|at| 0.1 * at as f32 - f32::from(step) / 3.0).collect();
            shard.rows.lock().unwrap().add(&keys, &values);
            sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
        }
        let rows = shard.rows.lock().unwrap();
        let read = rows.read(&keys);
        assert!(read.iter().zip(&sums).all(|(read, sum)| read.to_bits() == sum.to_bits()));
        assert_eq!((rows.read(&keys[..1000]).as_slice(), rows.read(&[5])), (&sums[..1000], vec![0.0]));
    }
}
