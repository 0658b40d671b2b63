//! Batches of hot parameters with the skew that the paper measured in its two industrial models, whose data is not
//! public.

use crate::random::Random;

/// A Zipf-like distribution of updates over parameters: that of rank i, from 0, has a share in proportion to
/// (i + 1)^-s.
///
/// The paper gives two numbers for each model, and they determine s: how many parameters there are, and which share
/// of the updates the top 30,000 have. That updates follow a power law at all, and are drawn independently of each
/// other, is assumed here; real batches repeat some parameters together.
#[derive(Debug, Clone)]
pub struct Skew {
    exponent: f64,
    share: f64,
    /// For each hot parameter the share of it and of all before it, of the updates of hot ones.
    cumulative: Vec<f64>,
}

/// Parameters that the paper's Figure "Cumulative distribution of the parameter update frequency" calls hot.
pub const HOT_PARAMETERS: u32 = 30_000;

impl Skew {
    /// The paper's online advertising model (OA, Task 1): 150 million parameters, the top 30,000 have half of all
    /// updates.
    #[must_use]
    pub fn online_advertising() -> Self {
        Self::with_share(150_000_000, HOT_PARAMETERS, 0.5)
    }

    /// The paper's search engine model (SE, Task 2): 9 million parameters, the top 30,000 have 70% of all updates.
    #[must_use]
    pub fn search_engine() -> Self {
        Self::with_share(9_000_000, HOT_PARAMETERS, 0.7)
    }

    /// The distribution over `parameters` of which the first `hot` have this share.
    ///
    /// # Panics
    /// If `hot` is not in 1 to `parameters`, or the share is none that a falling distribution can have: it is above
    /// hot / parameters and below 1.
    #[must_use]
    pub fn with_share(parameters: u64, hot: u32, share: f64) -> Self {
        assert!(hot > 0 && u64::from(hot) <= parameters, "{hot} of {parameters} parameters cannot be hot");
        let even = f64::from(hot) / parameters as f64;
        assert!(share > even && share < 1.0, "a share of {share} is not between {even} and 1");
        // The share rises with s; 60 halvings are more than an f64 can tell.
        let (mut low, mut high) = (0.0, 16.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            let found = power_sum(u64::from(hot), middle) / power_sum(parameters, middle);
            if found < share { low = middle } else { high = middle }
        }
        let mut cumulative = Vec::with_capacity(hot as usize);
        let mut sum = 0.0;
        for rank in 1..=hot {
            sum += f64::from(rank).powf(-low);
            cumulative.push(sum);
        }
        cumulative.iter_mut().for_each(|entry| *entry /= sum);
        Self { exponent: low, share, cumulative }
    }

    /// The exponent s.
    #[must_use]
    pub fn exponent(&self) -> f64 {
        self.exponent
    }

    /// The share that hot parameters have of all updates.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Returns the number of hot parameters.
    #[must_use]
    pub fn hot(&self) -> usize {
        self.cumulative.len()
    }

    /// The pushes of a worker, each from a batch of `updates` draws: the hot ranks in it, each once because a worker
    /// adds up its gradients before it sends them, in the order in which they first occurred. A seed names the
    /// sequence, which has no end.
    pub fn pushes(&self, updates: u32, seed: u64) -> impl Iterator<Item = Vec<u32>> + '_ {
        let mut random = Random::new(seed);
        let mut drawn = vec![false; self.hot()];
        std::iter::repeat_with(move || {
            let mut push = Vec::new();
            for _ in 0..updates {
                if random.unit() >= self.share {
                    continue;
                }
                let at = random.unit();
                let rank = self.cumulative.partition_point(|entry| *entry <= at).min(self.hot() - 1);
                if !std::mem::replace(&mut drawn[rank], true) {
                    push.push(u32::try_from(rank).expect("there are at most 2^32 hot parameters"));
                }
            }
            push.iter().for_each(|rank| drawn[*rank as usize] = false);
            push
        })
    }
}

/// The sum of i^-s for i from 1 to `end`: the first 10,000 one by one, the others by the formula of Euler and
/// Maclaurin, which is right to 10 digits there.
fn power_sum(end: u64, s: f64) -> f64 {
    const EXACT: u64 = 10_000;
    let head: f64 = (1..=end.min(EXACT)).map(|index| (index as f64).powf(-s)).sum();
    if end <= EXACT {
        return head;
    }
    let (from, to) = (EXACT as f64, end as f64);
    let integral = if (s - 1.0).abs() < 1e-9 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - s) - from.powf(1.0 - s)) / (1.0 - s)
    };
    head + integral + f64::midpoint(to.powf(-s), -from.powf(-s))
        - s / 12.0 * (to.powf(-s - 1.0) - from.powf(-s - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_powers_are_those_of_their_terms() {
        for s in [0.5, 0.93, 1.0, 1.2] {
            let exact: f64 = (1..=200_000_u32).map(|index| f64::from(index).powf(-s)).sum();
            assert!((power_sum(200_000, s) / exact - 1.0).abs() < 1e-10, "{s}");
        }
    }

    #[test]
    fn the_hot_ones_have_their_share_and_its_skew() {
        for (skew, share) in [(Skew::online_advertising(), 0.5), (Skew::search_engine(), 0.7)] {
            let found: f64 = power_sum(u64::from(HOT_PARAMETERS), skew.exponent());
            let all = power_sum(if share < 0.6 { 150_000_000 } else { 9_000_000 }, skew.exponent());
            assert!((found / all - share).abs() < 1e-9);
        }
        assert!(
            Skew::search_engine().exponent() > Skew::online_advertising().exponent(),
            "SE is more biased"
        );
    }

    #[test]
    fn pushes_hold_distinct_ranks_and_the_expected_number_of_them() {
        let skew = Skew::search_engine();
        let pushes: Vec<Vec<u32>> = skew.pushes(1000, 7).take(50).collect();
        for push in &pushes {
            let mut sorted = push.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), push.len());
        }
        let mut before = 0.0;
        let mut expected = 0.0;
        for cumulative in &skew.cumulative {
            expected += 1.0 - (1.0 - skew.share * (cumulative - before)).powi(1000);
            before = *cumulative;
        }
        let mean = pushes.iter().map(Vec::len).sum::<usize>() as f64 / 50.0;
        assert!((mean / expected - 1.0).abs() < 0.02, "{mean} {expected}");
        assert_eq!(pushes, skew.pushes(1000, 7).take(50).collect::<Vec<_>>(), "a seed names the sequence");
    }

    #[test]
    #[should_panic(expected = "is not between")]
    fn a_share_that_no_falling_distribution_has_is_a_bug() {
        let _ = Skew::with_share(100, 50, 0.4);
    }
}
