//! Pairs of users and items they touched: the set that negatives are drawn outside of.

use std::{hint, ops::Range};

use rand::Rng;

/// Largest size of the bitmap, in bits: 64 MB.
const BITS_MAX: u64 = 1 << 29;

/// Number of times that a touched item is drawn again before the exact method is used.
const DRAWS_MAX: usize = 4;

/// For every user the sorted set of its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interactions {
    items: u32,
    /// A bit for each user and item, unless that would be too large. Looking there costs one access to memory, a search in
    /// the sorted set several that wait for each other.
    bits: Option<Vec<u64>>,
    /// Start of the items of each user in `touched`; one longer than there are users.
    starts: Vec<usize>,
    touched: Vec<u32>,
}

impl Interactions {
    /// Collects `pairs` of (user, item); a pair that occurs twice counts once.
    ///
    /// # Panics
    /// When a user is not below `users` or an item not below `items`.
    pub fn new(users: u32, items: u32, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut counts = vec![0usize; users as usize + 1];
        for (user, item) in pairs.clone() {
            assert!(user < users && item < items, "the pair ({user}, {item}) is outside the data set");
            counts[user as usize + 1] += 1;
        }
        let mut starts = counts;
        for user in 0..users as usize {
            starts[user + 1] += starts[user];
        }
        let mut touched = vec![0; starts[users as usize]];
        let mut next = starts.clone();
        for (user, item) in pairs {
            touched[next[user as usize]] = item;
            next[user as usize] += 1;
        }
        // Sorting and closing the gaps that repeated pairs leave, in place.
        let mut kept = 0;
        for user in 0..users as usize {
            let range = starts[user]..starts[user + 1];
            touched[range.clone()].sort_unstable();
            starts[user] = kept;
            for place in range {
                if kept == starts[user] || touched[kept - 1] != touched[place] {
                    touched[kept] = touched[place];
                    kept += 1;
                }
            }
        }
        starts[users as usize] = kept;
        touched.truncate(kept);
        let mut interactions = Self { items, bits: None, starts, touched };
        if u64::from(users) * u64::from(items) <= BITS_MAX {
            interactions.fill_bits(users);
        }
        interactions
    }

    fn fill_bits(&mut self, users: u32) {
        let mut bits = vec![0u64; (users as usize * self.items as usize).div_ceil(64)];
        for user in 0..users {
            for &item in self.of(user) {
                let place = self.bit(user, item);
                bits[place / 64] |= 1 << (place % 64);
            }
        }
        self.bits = Some(bits);
    }

    fn bit(&self, user: u32, item: u32) -> usize {
        user as usize * self.items as usize + item as usize
    }

    fn range(&self, user: u32) -> Range<usize> {
        self.starts[user as usize]..self.starts[user as usize + 1]
    }

    /// The items that `user` touched, ascending.
    pub fn of(&self, user: u32) -> &[u32] {
        &self.touched[self.range(user)]
    }

    /// Returns true if `user` touched `item`.
    pub fn contains(&self, user: u32, item: u32) -> bool {
        match &self.bits {
            Some(bits) => {
                let place = self.bit(user, item);
                bits[place / 64] >> (place % 64) & 1 == 1
            }
            None => self.of(user).binary_search(&item).is_ok(),
        }
    }

    /// Returns the number of items that `user` never touched.
    pub fn untouched(&self, user: u32) -> u32 {
        // The set holds distinct items below `items`, so its length fits and is not larger.
        self.items - u32::try_from(self.range(user).len()).expect("a set of u32 items")
    }

    /// The item with `rank` items before it that `user` never touched either.
    ///
    /// The caller keeps `rank < self.untouched(user)`; then the answer is below the number of items.
    pub fn untouched_item(&self, user: u32, rank: u32) -> u32 {
        debug_assert!(rank < self.untouched(user));
        let touched = self.of(user);
        // Before touched[k] there are touched[k] - k untouched items: non-decreasing in k, so it can be searched.
        // Without branches, as no processor predicts where a random rank lies.
        let mut low = 0;
        let mut size = u32::try_from(touched.len()).expect("a set of u32 items");
        while size > 0 {
            let half = size.div_ceil(2);
            let middle = low + half - 1;
            let before = touched[middle as usize] - middle;
            low = hint::select_unpredictable(before <= rank, low + half, low);
            size -= half;
        }
        rank + low
    }

    /// An item that `user` never touched, each with the same probability; `None` when there is none.
    ///
    /// As few items are touched, as a rule, most draws succeed at once. A user who touched nearly all costs no more than
    /// a few draws and a binary search.
    pub fn draw_untouched(&self, user: u32, random: &mut impl Rng) -> Option<u32> {
        if self.items == 0 {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let item = random.random_range(0..self.items);
            if !self.contains(user, item) {
                return Some(item);
            }
        }
        match self.untouched(user) {
            0 => None,
            count => Some(self.untouched_item(user, random.random_range(0..count))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_naive_set(pairs in prop::collection::vec((0u32..4, 0u32..12), 0..60)) {
            let interactions = Interactions::new(4, 12, pairs.iter().copied());
            let without_bits = Interactions { bits: None, ..interactions.clone() };
            for user in 0..4 {
                let naive: Vec<u32> = (0..12).filter(|&item| pairs.contains(&(user, item))).collect();
                prop_assert_eq!(interactions.of(user), &naive[..]);
                let others: Vec<u32> = (0..12).filter(|item| !naive.contains(item)).collect();
                prop_assert_eq!(interactions.untouched(user) as usize, others.len());
                for (rank, &item) in (0u32..).zip(&others) {
                    prop_assert_eq!(interactions.untouched_item(user, rank), item);
                }
                for item in 0..12 {
                    prop_assert_eq!(interactions.contains(user, item), naive.contains(&item));
                    prop_assert_eq!(without_bits.contains(user, item), naive.contains(&item));
                }
                let mut random = SmallRng::seed_from_u64(1);
                let drawn = interactions.draw_untouched(user, &mut random);
                prop_assert_eq!(drawn.is_some(), !others.is_empty());
                prop_assert!(drawn.is_none_or(|item| others.contains(&item)));
            }
        }
    }
}
