//! Faults on the way out of a datagram socket, drawn from a seed.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use libra_proto::{Instant, Outgoing};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Geometric};
use thiserror::Error;

/// Longest time for which a datagram is held back to arrive out of order.
const HOLD_TIME: Duration = Duration::from_millis(1);
/// Most datagrams that overtake it.
const OVERTAKING_MAX: u32 = 32;

/// A probability that is none.
#[derive(Debug, Error, Clone, Copy, PartialEq)]
#[error("{rate} is not a probability: expected a number from 0 up to, not including, 1")]
pub struct InvalidRate {
    /// The rate that was given.
    pub rate: f64,
}

/// Probabilities that a datagram is lost, sent twice, or overtaken by later ones. Zeros inject nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FaultRates {
    loss: f64,
    duplicate: f64,
    reorder: f64,
}

impl FaultRates {
    /// Checks probabilities, each in `[0, 1)`.
    pub fn new(loss: f64, duplicate: f64, reorder: f64) -> Result<Self, InvalidRate> {
        for rate in [loss, duplicate, reorder] {
            if !(0.0..1.0).contains(&rate) {
                return Err(InvalidRate { rate });
            }
        }
        Ok(Self { loss, duplicate, reorder })
    }

    fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

struct Held {
    to: SocketAddr,
    datagram: Vec<u8>,
    due: Instant,
    overtaking: u32,
}

/// An event of some probability. How many times it does not happen is drawn at once, as a draw for each datagram would slow
/// down the measured system.
struct Chance {
    spared: Geometric,
    left: u64,
}

impl Chance {
    fn new(rate: f64, random: &mut SmallRng) -> Self {
        let spared = Geometric::new(rate).expect("the rate was checked to be a probability");
        Self { spared, left: spared.sample(random) }
    }

    fn happens(&mut self, random: &mut SmallRng) -> bool {
        let happens = self.left == 0;
        self.left = if happens { self.spared.sample(random) } else { self.left - 1 };
        happens
    }
}

/// Returns true if nothing happens to the next `datagrams`; they are counted then.
fn spare<const EVENTS: usize>(mut chances: [&mut Chance; EVENTS], datagrams: u64) -> bool {
    let spared = chances.iter().all(|chance| chance.left >= datagrams);
    if spared {
        chances.iter_mut().for_each(|chance| chance.left -= datagrams);
    }
    spared
}

/// Injects the faults of a bad network into outgoing datagrams.
pub(crate) struct Faults {
    loss: Chance,
    duplicate: Chance,
    reorder: Chance,
    random: SmallRng,
    held: VecDeque<Held>,
    /// Memory for a burst in another order.
    sent: Outgoing,
}

impl Faults {
    /// `None` if nothing is to be injected.
    pub(crate) fn new(rates: FaultRates, seed: u64) -> Option<Self> {
        let mut random = SmallRng::seed_from_u64(seed);
        (!rates.are_none()).then(|| Self {
            loss: Chance::new(rates.loss, &mut random),
            duplicate: Chance::new(rates.duplicate, &mut random),
            reorder: Chance::new(rates.reorder, &mut random),
            random,
            held: VecDeque::new(),
            sent: Outgoing::default(),
        })
    }

    /// Loses, duplicates and reorders the datagrams of a burst.
    ///
    /// Injection should cost little: a burst from which nothing is lost is not touched, and of one that loses
    /// datagrams, and no more, those behind them move up.
    pub(crate) fn apply(&mut self, now: Instant, outgoing: &mut Outgoing) {
        let datagrams = outgoing.len() as u64;
        if !self.held.is_empty() || !spare([&mut self.duplicate, &mut self.reorder], datagrams) {
            self.disorder(now, outgoing);
        } else if !spare([&mut self.loss], datagrams) {
            outgoing.retain(|_| !self.loss.happens(&mut self.random));
        }
    }

    fn disorder(&mut self, now: Instant, outgoing: &mut Outgoing) {
        let mut sent = core::mem::take(&mut self.sent);
        for (to, datagram) in outgoing.iter() {
            if self.loss.happens(&mut self.random) {
                continue;
            }
            if self.reorder.happens(&mut self.random) {
                let overtaking = self.random.random_range(1..=OVERTAKING_MAX);
                let (datagram, due) = (datagram.to_vec(), now + HOLD_TIME);
                self.held.push_back(Held { to, datagram, due, overtaking });
                continue;
            }
            sent.push(to, datagram);
            if self.duplicate.happens(&mut self.random) {
                sent.push(to, datagram);
            }
            self.overtake(&mut sent);
        }
        self.release(now, &mut sent);
        core::mem::swap(outgoing, &mut sent);
        sent.clear();
        self.sent = sent;
    }

    fn overtake(&mut self, sent: &mut Outgoing) {
        self.held.retain_mut(|held| {
            held.overtaking -= 1;
            if held.overtaking == 0 {
                sent.push(held.to, &held.datagram);
            }
            held.overtaking > 0
        });
    }

    /// Sends what was held long enough.
    fn release(&mut self, now: Instant, sent: &mut Outgoing) {
        while let Some(held) = self.held.pop_front_if(|held| held.due <= now) {
            sent.push(held.to, &held.datagram);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.held.front().map(|held| held.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

    /// Sends `count` numbered datagrams one burst after the other; returns the numbers that come out.
    fn send(rates: FaultRates, count: u32) -> Vec<u32> {
        let mut faults = Faults::new(rates, 7).unwrap();
        let mut numbers = Vec::new();
        let mut now = Instant::ZERO;
        for burst in (0..count).collect::<Vec<_>>().chunks(10) {
            let mut outgoing = Outgoing::default();
            for number in burst {
                outgoing.push(TO, &number.to_be_bytes());
            }
            faults.apply(now, &mut outgoing);
            now = now + HOLD_TIME / 4;
            numbers.extend(outgoing.iter().map(|(_, bytes)| u32::from_be_bytes(bytes.try_into().unwrap())));
        }
        let mut rest = Outgoing::default();
        faults.apply(now + HOLD_TIME, &mut rest);
        numbers.extend(rest.iter().map(|(_, bytes)| u32::from_be_bytes(bytes.try_into().unwrap())));
        numbers
    }

    #[test]
    fn the_rates_are_met() {
        let survivors = send(FaultRates::new(0.1, 0.0, 0.0).unwrap(), 100_000);
        assert!(survivors.is_sorted_by(|before, after| before < after), "what is left moves up");
        let lost = 100_000 - survivors.len();
        assert!((9_000..11_000).contains(&lost), "{lost} of 100000 lost at 10%");
        let lost = 100_000 - send(FaultRates::new(0.005, 0.0, 0.0).unwrap(), 100_000).len();
        assert!((400..600).contains(&lost), "{lost} of 100000 lost at 0.5%, though most bursts are spared");
        let twice = send(FaultRates::new(0.0, 0.1, 0.0).unwrap(), 100_000).len() - 100_000;
        assert!((9_000..11_000).contains(&twice), "{twice} of 100000 doubled at 10%");
    }

    #[test]
    fn reordering_loses_and_doubles_nothing() {
        let numbers = send(FaultRates::new(0.0, 0.0, 0.2).unwrap(), 10_000);
        assert!(!numbers.is_sorted());
        let mut sorted = numbers;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn rates_outside_0_to_1_are_refused() {
        for rate in [-0.1, 1.0, f64::NAN] {
            assert!(FaultRates::new(rate, 0.0, 0.0).is_err());
        }
    }
}
