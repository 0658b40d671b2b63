//! A data set made from a seed, so that everything can be tried without a download.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Gumbel, StandardNormal};

use super::{Dataset, Interactions, TEST_NEGATIVES, TestCase, ratings::draw_negatives};

/// Recipe of a synthetic data set.
///
/// Items have a popularity after Zipf's law, users and items a hidden taste vector each; a user picks items with probability
/// proportional to `popularity * exp(strength * agreement of tastes)`, each item at most once. So there is something that
/// popularity alone cannot predict, and a model of latent factors can learn.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Users.
    pub users: u32,
    /// Items.
    pub items: u32,
    /// Items that a user picks, at least; the mean is twice that. One of them becomes the test item.
    pub picks_min: u32,
    /// Length of the hidden taste vectors.
    pub tastes: usize,
    /// Weight of taste against popularity; 0 is popularity alone.
    pub strength: f32,
    /// Exponent of the popularity: the item of rank r has weight `r^-exponent`.
    pub exponent: f32,
    /// Everything follows from it.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self { users: 3000, items: 2000, picks_min: 20, tastes: 6, strength: 2.0, exponent: 0.8, seed: 1 }
    }
}

impl Synthetic {
    /// Makes the data set. A recipe whose numbers make no sense (no users, fewer items than picks) is bent to the nearest
    /// one that does.
    pub fn generate(&self) -> Dataset {
        let mut random = SmallRng::seed_from_u64(self.seed ^ 0x0005_7a71_c1ea_7a5e);
        let users = self.users.max(1);
        // Two to learn from and to test, one to be ranked against.
        let items = self.items.max(3);
        let popularity = self.log_popularity(items, &mut random);
        let user_tastes = tastes(users, self.tastes, &mut random);
        let item_tastes = tastes(items, self.tastes, &mut random);
        let noise = Gumbel::new(0.0f32, 1.0).expect("the scale 1 is positive");

        let mut train = Vec::new();
        let mut left_out = Vec::new();
        let mut scored: Vec<(f32, u32)> = Vec::with_capacity(items as usize);
        for user in 0..users {
            let extra = random.random::<f32>() * 2.0 * self.picks_min as f32;
            // A float-to-integer conversion saturates, and the clamp does the rest.
            #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, which is what is wanted")]
            let picks = self.picks_min.saturating_add(extra as u32).clamp(2, items - 1) as usize;
            let taste = row(&user_tastes, user, self.tastes);
            // The picks with the largest "log weight plus Gumbel noise" are a draw without replacement by weight.
            scored.clear();
            scored.extend((0..items).map(|item| {
                let agreement: f32 =
                    taste.iter().zip(row(&item_tastes, item, self.tastes)).map(|(a, b)| a * b).sum();
                let weight = popularity[item as usize] + self.strength * agreement;
                (weight + noise.sample(&mut random), item)
            }));
            scored.select_nth_unstable_by(picks, |a, b| b.0.total_cmp(&a.0));
            let held = random.random_range(0..picks);
            for (place, &(_, item)) in scored[..picks].iter().enumerate() {
                if place == held {
                    left_out.push((user, item));
                } else {
                    train.push((user, item));
                }
            }
        }
        let touched = Interactions::new(users, items, train.iter().chain(&left_out).copied());
        let test = left_out
            .iter()
            .map(|&(user, item)| TestCase {
                user,
                item,
                negatives: draw_negatives(&touched, user, TEST_NEGATIVES, &mut random),
            })
            .collect();
        Dataset { name: "synthetic".to_owned(), users, items, train, test, files: Vec::new() }
    }

    /// Returns the logarithm of each item's weight, in random order, so that ids do not correlate with popularity.
    fn log_popularity(&self, items: u32, random: &mut SmallRng) -> Vec<f32> {
        let mut weights: Vec<f32> =
            (0..items).map(|rank| -self.exponent * ((rank + 1) as f32).ln()).collect();
        rand::seq::SliceRandom::shuffle(&mut weights[..], random);
        weights
    }
}

/// Vectors with independent normal entries, scaled so that two of them agree by a normal number of deviation about 1.
fn tastes(count: u32, length: usize, random: &mut SmallRng) -> Vec<f32> {
    let scale = (length.max(1) as f32).powf(-0.25);
    (0..count as usize * length)
        .map(|_| scale * Distribution::<f32>::sample(&StandardNormal, random))
        .collect()
}

fn row(vectors: &[f32], index: u32, length: usize) -> &[f32] {
    &vectors[index as usize * length..][..length]
}
