//! Packets that links lose at random.

use libra_faultsim::Random;

/// Random losses: each packet is lost with the same probability, independently. The number of packets up to the next loss is drawn at once, so that what is
/// lost rarely costs little; without losses nothing is drawn at all.
#[derive(Debug)]
pub(crate) struct Losses {
    rate: f64,
    random: Random,
    /// Packets that come through before the next one that does not.
    spared: u64,
}

impl Losses {
    /// A rate below zero or not below one loses nothing, or everything but one packet now and then: who takes rates from people checks them.
    pub(crate) fn new(rate: f64, seed: u64) -> Self {
        let mut losses = Self { rate, random: Random::new(seed).fork(0x10_55), spared: u64::MAX };
        losses.spared = losses.run();
        losses
    }

    /// The places of those that are lost, of so many packets one behind the other.
    pub(crate) fn of(&mut self, packets: usize) -> Vec<usize> {
        let mut lost = Vec::new();
        if self.rate <= 0.0 {
            return lost;
        }
        let mut next = 0;
        let end = packets as u64;
        while self.spared < end - next {
            next += self.spared;
            lost.push(usize::try_from(next).expect("it is below a usize"));
            next += 1;
            self.spared = self.run();
        }
        self.spared -= end - next;
        lost
    }

    /// Packets between two losses: a geometric distribution.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    fn run(&mut self) -> u64 {
        if self.rate <= 0.0 {
            return u64::MAX;
        }
        ((1.0 - self.random.unit()).ln() / (1.0 - self.rate).ln()).floor() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However packets are divided into trains, the same ones are lost, and as many as the rate says.
    #[test]
    fn the_rate_is_met_and_trains_make_no_difference() {
        for rate in [0.001, 0.1, 0.9] {
            let places = |train: usize| -> Vec<usize> {
                let mut losses = Losses::new(rate, 7);
                let trains = 300_000 / train;
                (0..trains)
                    .flat_map(|number| losses.of(train).into_iter().map(move |place| number * train + place))
                    .collect()
            };
            let alone = places(1);
            assert_eq!(alone, places(60));
            let found = alone.len() as f64 / 300_000.0;
            assert!((found / rate - 1.0).abs() < 0.15, "{found} for {rate}");
        }
        assert!(Losses::new(0.0, 7).of(usize::MAX).is_empty());
    }
}
