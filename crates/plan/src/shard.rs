//! Assignment of rows to shards.

use crate::splitmix::splitmix64;

/// The shard that owns the row `key`, hot or cold: of as many neighbouring keys as there are shards each has one, and a hash
/// decides which.
///
/// A shard can therefore keep the rows of a table side by side, in the order of keys ([`Shard::group_of`]), as if it were the
/// only one. And the load is as even as for keys that are dealt by a hash of their own, or more: that of the fullest shard
/// beside the mean, for 10 M rows of which the lowest key is the most popular by Zipf's law with exponent 1.05 (the first row has
/// 8.6% of all updates); the median of 20 first keys of such a table, and the worst of them:
///
/// | shards | so | each key by hash | runs of 16 keys by hash | runs of 64 | runs of 256 |
/// |---|---|---|---|---|---|
/// | 2 | 1.06, 1.11 | 1.06, 1.18 | 1.25, 1.37 | 1.31, 1.49 | 1.45, 1.58 |
/// | 3 | 1.13, 1.22 | 1.15, 1.28 | 1.46, 1.70 | 1.70, 1.87 | 1.81, 2.04 |
/// | 5 | 1.26, 1.35 | 1.33, 1.64 | 1.86, 2.36 | 2.26, 2.74 | 2.69, 3.11 |
/// | 8 | 1.52, 1.78 | 1.54, 2.06 | 2.73, 3.28 | 3.20, 3.95 | 3.95, 4.58 |
///
/// # Panics
/// If there are no shards.
#[must_use]
#[inline]
pub fn shard_of(key: u64, shards: u16) -> u16 {
    Shards::new(shards).of(key)
}

/// All shards of a job, for many keys: to divide by their number takes longer than the rest of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    count: u64,
    /// 2^64 by `count`, and at most 1 below it.
    reciprocal: u64,
}

impl Shards {
    /// So many shards.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    #[inline]
    pub fn new(count: u16) -> Self {
        assert!(count > 0, "there are no shards");
        let count = u64::from(count);
        Self { count, reciprocal: u64::MAX / count }
    }

    /// Returns the shard that owns a key: [`shard_of`].
    #[must_use]
    #[inline]
    pub fn of(&self, key: u64) -> u16 {
        if self.count == 1 {
            return 0;
        }
        let (group, at) = self.divide(key);
        let (_, hash) = self.divide(splitmix64(group));
        let shard = if at + hash < self.count { at + hash } else { at + hash - self.count };
        u16::try_from(shard).expect("it is below the number of shards")
    }

    /// Quotient and remainder by the number of shards.
    #[inline]
    fn divide(&self, dividend: u64) -> (u64, u64) {
        if self.count.is_power_of_two() {
            return (dividend >> self.count.trailing_zeros(), dividend & (self.count - 1));
        }
        let product = u128::from(dividend) * u128::from(self.reciprocal);
        // The exact quotient, or one less.
        let quotient = u64::try_from(product >> 64).expect("a product of two halves");
        let remainder = dividend - quotient * self.count;
        if remainder < self.count { (quotient, remainder) } else { (quotient + 1, remainder - self.count) }
    }
}

/// One of the shards of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u16,
    shards: u16,
}

impl Shard {
    /// The only shard of a job, which owns all keys.
    pub const ONLY: Self = Self { number: 0, shards: 1 };

    /// The shard of a number, from 0.
    ///
    /// # Panics
    /// If there are not so many shards.
    #[must_use]
    pub fn new(number: u16, shards: u16) -> Self {
        assert!(number < shards, "shards are numbered from 0");
        Self { number, shards }
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The group of a key. Of each group of keys, which are neighbours, the shard owns one.
    #[must_use]
    pub fn group_of(&self, key: u64) -> u64 {
        key / u64::from(self.shards)
    }

    /// The key of a group that the shard owns; none if it is above all keys.
    #[must_use]
    #[inline]
    pub fn key_in(&self, group: u64) -> Option<u64> {
        // Divisions are most of what it takes.
        if self.shards == 1 {
            return Some(group);
        }
        let shards = u64::from(self.shards);
        let at = (u64::from(self.number) + shards - splitmix64(group) % shards) % shards;
        group.checked_mul(shards)?.checked_add(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written down once: workers and shards of different versions must agree who owns a row.
    #[test]
    fn shards_of_keys_never_change() {
        // The first outputs of splitmix64 seeded with 0 and with 1, as other implementations print them.
        let (first, second) = (0xe220_a839_7b1d_cdaf_u64 % 1000, 0x910a_2dec_8902_5cc1_u64 % 1000);
        assert_eq!(first, u64::from(shard_of(0, 1000)));
        assert_eq!((first + 999) % 1000, u64::from(shard_of(999, 1000)));
        assert_eq!(second, u64::from(shard_of(1000, 1000)));
        assert_eq!(shard_of(u64::MAX, 1), 0);
    }

    #[test]
    fn of_each_group_a_shard_owns_one_key() {
        for shards in [1, 2, 3, 5, 8, 64] {
            for group in 0..500 {
                let keys = group * u64::from(shards)..(group + 1) * u64::from(shards);
                let mut owners: Vec<u16> = keys.map(|key| shard_of(key, shards)).collect();
                owners.sort_unstable();
                assert!(owners.into_iter().eq(0..shards));
            }
        }
    }

    /// Tables are often laid out in steps: then all of their popular rows must not be of one shard.
    #[test]
    fn keys_in_steps_are_spread_over_the_shards() {
        for step in [1, 2, 7, 8, 56, 64, 4096] {
            let mut counts = [0_u32; 8];
            for key in (0..80_000).map(|at| at * step) {
                counts[usize::from(shard_of(key, 8))] += 1;
            }
            assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{step}: {counts:?}");
        }
    }

    proptest! {
        #[test]
        fn shards_divide_as_divisions_do(key: u64, near in 0_u64..3, shards in 1_u16..) {
            let count = u64::from(shards);
            for dividend in [key, key / count * count, u64::MAX - near, near, (key / count * count).wrapping_sub(1)] {
                prop_assert_eq!(Shards::new(shards).divide(dividend), (dividend / count, dividend % count));
            }
        }

        #[test]
        fn the_key_of_a_group_is_the_one_that_the_shard_owns(key: u64, shards in 1_u16..) {
            let shard = Shard::new(shard_of(key, shards), shards);
            prop_assert_eq!(shard.key_in(shard.group_of(key)), Some(key));
        }
    }
}
