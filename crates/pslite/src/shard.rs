//! `KVServerDefaultHandle<float>` in the store of Libra: each value is the sum of all pushes to its key.

use std::ops::{Range, RangeInclusive};
use std::thread::available_parallelism;

use parking_lot::{Mutex, MutexGuard};

use crate::mesh::{Bytes, Meta, OutgoingMessage, Payload};
use libra_store::{Init, Optimizer, Store, TableSpec};

use crate::arrays::{FLOAT, Floats};

/// The sums of one server.
///
/// They are in stripes, each with a lock of its own, so that requests of several workers are served at once. Of each request a stripe
/// serves all keys that it has, in their order.
pub(crate) struct Shard {
    stripes: Vec<Mutex<Stripe>>,
    split: Split,
    /// The sum of the highest key, which no range of a table reaches.
    last: Mutex<f32>,
    /// True if all sums began with zero.
    began_empty: bool,
}

/// Assignment of keys to stripes.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// The range of keys of the server begins here.
    first_key: u64,
    stripes: u64,
    /// So many neighbouring keys are of one stripe, but for the first [`NEAR_KEYS`] of the server.
    far_keys: u64,
}

/// Sums of some of the keys.
struct Stripe {
    store: Store,
    /// Keys of a request that are of this stripe, and their values, in memory that is used again.
    keys: Vec<u64>,
    values: Vec<f32>,
}

/// Keys of a request, one after the other, that are of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    stripe: usize,
    /// Their positions.
    keys: Range<usize>,
}

/// A store finds rows of neighbouring keys by their keys alone, in a third of the time, if the table has no more keys than this.
const NEAR_KEYS: u64 = 1 << 32;
/// Of so many neighbouring keys at the beginning of a server's range, all are of one stripe: several times as many as a store has in a
/// chunk, and few enough for each stripe to have some of a small model.
const NEAR_RUN: u64 = 1 << 16;
/// The stripes of a request that are still to be served are bits of a word.
const STRIPES_MAX: usize = 64;

impl Split {
    fn new(first_key: u64, servers: u64, stripes: usize) -> Self {
        let stripes = stripes.clamp(1, STRIPES_MAX) as u64;
        Self { first_key, stripes, far_keys: u64::MAX / servers / stripes }
    }

    /// The stripe of a key, and the distances from the first key of the server, of this one and others, that are of it.
    fn stripe_of(self, key: u64) -> (usize, RangeInclusive<u64>) {
        let distance = key.wrapping_sub(self.first_key);
        let (keys, first) = if distance < NEAR_KEYS { (NEAR_RUN, 0) } else { (self.far_keys, NEAR_KEYS) };
        let run = distance / keys;
        let stripe = usize::try_from(run % self.stripes).expect("less than the stripes");
        (stripe, first.max(run * keys)..=(run * keys).saturating_add(keys - 1))
    }

    /// Splits keys into runs of one stripe each.
    fn runs(self, keys: &[u64]) -> Vec<Run> {
        let (mut runs, mut begin) = (Vec::new(), 0);
        while let Some(first) = keys.get(begin) {
            let (stripe, distances) = self.stripe_of(*first);
            let is_other = |key: &u64| !distances.contains(&key.wrapping_sub(self.first_key));
            let end = keys[begin..].iter().position(is_other).map_or(keys.len(), |count| begin + count);
            runs.push(Run { stripe, keys: begin..end });
            begin = end;
        }
        runs
    }
}

impl Shard {
    /// Of a server whose range of keys begins with this one, of so many servers. Programs number their keys from there, or spread them over
    /// the whole range. Sums of these keys begin with these values, all others with zero.
    pub(crate) fn new(first_key: u64, servers: u64, keys: &[u64], values: &[f32]) -> Self {
        // Twice as many as threads that can serve requests at once, so that most find one that is free.
        Self::with_stripes(
            first_key,
            servers,
            2 * available_parallelism().map_or(1, usize::from),
            keys,
            values,
        )
    }

    fn with_stripes(first_key: u64, servers: u64, stripes: usize, keys: &[u64], values: &[f32]) -> Self {
        let split = Split::new(first_key, servers, stripes);
        let stripes = (0..split.stripes).map(|_| Mutex::new(Stripe::new(first_key))).collect();
        let shard = Self { stripes, split, last: Mutex::new(0.0), began_empty: keys.is_empty() };
        shard.add(keys, values);
        shard
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
        if meta.push {
            self.add(keys, bytemuck::cast_slice(bytes));
        }
        let mut outgoing = OutgoingMessage::default();
        if meta.pull {
            outgoing.values = Bytes::new(Floats(self.read(keys)));
        }
        Ok(outgoing)
    }

    fn add(&self, keys: &[u64], values: &[f32]) {
        if keys.contains(&u64::MAX) {
            let pairs = keys.iter().zip(values);
            let (last, others): (Vec<_>, Vec<_>) = pairs.partition(|(key, _)| **key == u64::MAX);
            let mut sum = self.last.lock();
            last.iter().for_each(|(_, value)| *sum += **value);
            drop(sum);
            let (keys, values): (Vec<u64>, Vec<f32>) = others.into_iter().unzip();
            self.add(&keys, &values);
        } else {
            self.visit(&self.split.runs(keys), |stripe, runs| stripe.add(runs, keys, values));
        }
    }

    fn read(&self, keys: &[u64]) -> Vec<f32> {
        let mut values = vec![0.0; keys.len()];
        if keys.contains(&u64::MAX) {
            let others: Vec<u64> = keys.iter().copied().filter(|key| *key != u64::MAX).collect();
            let mut sums = self.read(&others).into_iter();
            let last = *self.last.lock();
            for (key, value) in keys.iter().zip(&mut values) {
                *value = if *key == u64::MAX { last } else { sums.next().expect("one for each") };
            }
        } else {
            self.visit(&self.split.runs(keys), |stripe, runs| stripe.read(runs, keys, &mut values));
        }
        values
    }

    /// Calls a function for each stripe that has runs, with these. Those that no other thread works on come first.
    fn visit(&self, runs: &[Run], mut serve: impl FnMut(&mut Stripe, &[&Run])) {
        let mut left: u64 = runs.iter().fold(0, |left, run| left | 1 << run.stripe);
        let mut of_stripe = Vec::with_capacity(runs.len());
        while left != 0 {
            let (stripe, mut locked) = self.lock_any(left);
            of_stripe.clear();
            of_stripe.extend(runs.iter().filter(|run| run.stripe == stripe));
            serve(&mut locked, &of_stripe);
            left &= !(1 << stripe);
        }
    }

    /// Locks one of the stripes that are bits of a word.
    fn lock_any(&self, wanted: u64) -> (usize, MutexGuard<'_, Stripe>) {
        let mut stripes = (0..self.stripes.len()).filter(|stripe| wanted >> stripe & 1 == 1);
        let free = stripes.clone().find_map(|stripe| Some((stripe, self.stripes[stripe].try_lock()?)));
        free.unwrap_or_else(|| {
            let stripe = stripes.next().expect("some are wanted");
            (stripe, self.stripes[stripe].lock())
        })
    }
}

impl Stripe {
    fn new(first_key: u64) -> Self {
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
        Self { store, keys: Vec::new(), values: Vec::new() }
    }

    /// The store subtracts gradients times a rate; to subtract the negative is to add, to the bit.
    fn add(&mut self, runs: &[&Run], keys: &[u64], values: &[f32]) {
        self.values.clear();
        for run in runs {
            self.values.extend(values[run.keys.clone()].iter().map(|value| -value));
        }
        let keys = one_run(runs, keys, &mut self.keys);
        self.store.update_many(keys, &self.values).expect("all keys but the highest are of a table");
    }

    fn read(&mut self, runs: &[&Run], keys: &[u64], values: &mut [f32]) {
        let keys = one_run(runs, keys, &mut self.keys);
        let read = "all keys but the highest are of a table";
        if let [run] = runs {
            self.store.read_many(keys, &mut values[run.keys.clone()]).expect(read);
            return;
        }
        self.values.clear();
        self.values.resize(keys.len(), 0.0);
        self.store.read_many(keys, &mut self.values).expect(read);
        let mut read = &self.values[..];
        for run in runs {
            let of_run;
            (of_run, read) = read.split_at(run.keys.len());
            values[run.keys.clone()].copy_from_slice(of_run);
        }
    }
}

/// The keys of all runs, one after the other: copied, if there are several.
fn one_run<'k>(runs: &[&Run], keys: &'k [u64], copied: &'k mut Vec<u64>) -> &'k [u64] {
    if let [run] = runs {
        return &keys[run.keys.clone()];
    }
    copied.clear();
    runs.iter().for_each(|run| copied.extend_from_slice(&keys[run.keys.clone()]));
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_KEYS: [u64; 5] = [0, 1 << 40, u64::MAX / 2, u64::MAX - 5, u64::MAX];

    #[test]
    fn sums_equal_those_of_a_loop_to_the_bit_up_to_the_highest_key() {
        for (first_key, stripes) in FIRST_KEYS.into_iter().zip([1, 2, 3, 8, 100]) {
            check(&Shard::with_stripes(first_key, 2, stripes, &[], &[]));
        }
    }

    fn check(shard: &Shard) {
        let far = [1 << 40, (1 << 40) + 1, u64::MAX / 2 + 7, u64::MAX - 3, u64::MAX - 1, u64::MAX];
        let keys: Vec<u64> = (0..1000).map(|key| key * 1007).chain(far).collect();
        let mut sums = vec![0.0_f32; keys.len()];
        for step in 0..50_u8 {
            let values: Vec<f32> =
                (0..keys.len()).map(|at| 0.1 * at as f32 - f32::from(step) / 3.0).collect();
            shard.add(&keys, &values);
            sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
        }
        let read = shard.read(&keys);
        assert!(read.iter().zip(&sums).all(|(read, sum)| read.to_bits() == sum.to_bits()));
        assert_eq!((shard.read(&keys[..1000]).as_slice(), shard.read(&[5])), (&sums[..1000], vec![0.0]));
    }

    #[test]
    fn each_key_is_of_one_stripe_and_of_one_run() {
        let edges = [0, 1, NEAR_KEYS - 1, NEAR_KEYS, 1 << 62, u64::MAX / 2, u64::MAX - 1];
        for (first_key, servers, stripes) in
            [(0, 1, 1), (0, 1, 4), (u64::MAX / 3, 3, 2), (u64::MAX - 9, 1000, 64)]
        {
            let split = Split::new(first_key, servers, stripes);
            let keys: Vec<u64> = edges
                .iter()
                .flat_map(|edge| [*edge, edge.wrapping_add(first_key), edge.wrapping_add(NEAR_RUN)])
                .flat_map(|key| [key.wrapping_sub(1), key, key.wrapping_add(1)])
                .collect();
            let runs = split.runs(&keys);
            let positions: Vec<usize> = runs.iter().flat_map(|run| run.keys.clone()).collect();
            assert_eq!(positions, (0..keys.len()).collect::<Vec<_>>());
            for Run { stripe, keys: run } in &runs {
                assert!(keys[run.clone()].iter().all(|key| split.stripe_of(*key).0 == *stripe));
            }
        }
    }

    #[test]
    fn keys_of_a_small_model_and_spread_ones_are_of_all_stripes() {
        for (first_key, servers) in [(0, 1), (u64::MAX / 3, 3)] {
            let split = Split::new(first_key, servers, 4);
            let share = |keys: &mut dyn Iterator<Item = u64>| {
                let mut counts = [0; 4];
                keys.for_each(|key| counts[split.stripe_of(first_key + key).0] += 1);
                *counts.iter().min().unwrap()
            };
            assert!(share(&mut (0..1_000_000)) > 200_000);
            let width = u64::MAX / servers;
            assert!(share(&mut (0..1000).map(|part| width / 1000 * part)) > 150);
        }
    }

    #[test]
    fn requests_of_several_threads_are_added_once_each() {
        let shard = Shard::with_stripes(0, 1, 4, &[], &[]);
        let keys: Vec<u64> =
            (0..3000).map(|key| key * 9973).chain((1..1000).map(|part| part << 54)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| shard.add(&keys, &vec![1.0; keys.len()])));
            }
        });
        assert!(shard.read(&keys).iter().all(|sum| *sum == 400.0));
    }
}
