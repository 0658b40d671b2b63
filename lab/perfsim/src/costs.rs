//! Costs of roles and kernels: counted things, and a price in processor time for each.

use core::ops::{Add, AddAssign};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Kinds of things that are counted.
const KINDS: usize = 20;

/// Something that costs processor time. A *run* is datagrams that the kernel takes or gives in one piece (GSO and GRO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostKind {
    /// A turn of the loop that drives a role.
    Turn,
    /// A process is woken.
    Wake,
    /// The core that it gets was idle. This comes on top: to wake a core is work for the one that wakes it, too, and what its caches held is gone.
    IdleWake,
    /// A run arrives.
    RunIn,
    /// A datagram arrives.
    PacketIn,
    /// A byte of a datagram arrives.
    PacketByteIn,
    /// A run leaves.
    RunOut,
    /// A datagram leaves.
    PacketOut,
    /// A byte of a datagram leaves.
    PacketByteOut,
    /// A user asks for something, or is notified that it is done.
    Command,
    /// A row that a user pushes or pulls, or that comes to a server in a push.
    Pair,
    /// A value of such a row.
    Value,
    /// Sixteen neighbouring slots, of which a push in packets has any: what lies side by side comes into a cache together, so some rows of many cost more
    /// than as many of few.
    Line,
    /// A row of a push that leaves as packets while another leaves in a message: no processor foresees which of the two a row will do.
    Mixed,
    /// A message about a round, either way: sums that were drained, or new values.
    #[serde(alias = "epoch")]
    Round,
    /// A byte of such a message.
    #[serde(alias = "epoch_byte")]
    RoundByte,
    /// Any other message arrives.
    MessageIn,
    /// A byte of it.
    MessageByteIn,
    /// Any other message leaves.
    MessageOut,
    /// A byte of it.
    MessageByteOut,
}

impl CostKind {
    /// All of them.
    pub const ALL: [Self; KINDS] = [
        Self::Turn,
        Self::Wake,
        Self::IdleWake,
        Self::RunIn,
        Self::PacketIn,
        Self::PacketByteIn,
        Self::RunOut,
        Self::PacketOut,
        Self::PacketByteOut,
        Self::Command,
        Self::Pair,
        Self::Value,
        Self::Line,
        Self::Mixed,
        Self::Round,
        Self::RoundByte,
        Self::MessageIn,
        Self::MessageByteIn,
        Self::MessageOut,
        Self::MessageByteOut,
    ];
}

/// Number of things of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work([f64; KINDS]);

impl Work {
    /// One kind, so many times.
    #[must_use]
    pub fn of(item: CostKind, count: f64) -> Self {
        Self::default().with(item, count)
    }

    /// The same with more of one kind.
    #[must_use]
    pub fn with(mut self, item: CostKind, count: f64) -> Self {
        self.0[item as usize] += count;
        self
    }

    /// Returns the number of things of a kind.
    #[must_use]
    pub fn count(&self, item: CostKind) -> f64 {
        self.0[item as usize]
    }

    /// The same, each so many times.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        self.0.iter_mut().for_each(|count| *count *= factor);
        self
    }
}

impl Add for Work {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

/// Nanoseconds of a processor for one of each kind; what is not named is free.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CostModel(pub BTreeMap<CostKind, f64>);

impl CostModel {
    /// Returns the time of some work, in nanoseconds.
    #[must_use]
    pub fn of(&self, work: &Work) -> f64 {
        self.0.iter().map(|(item, price)| price * work.count(*item)).sum()
    }

    /// The prices of these things alone.
    #[must_use]
    pub fn only(&self, items: &[CostKind]) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(item, _)| items.contains(item))
                .map(|(item, price)| (*item, *price))
                .collect(),
        )
    }

    /// Both prices for each thing: of a role, and of the kernel beneath it.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut sums = self.clone();
        for (item, price) in &other.0 {
            *sums.0.entry(*item).or_default() += price;
        }
        sums
    }
}

/// Costs as measured on a machine: the input of every simulation, see `libra-lab bench calibrate`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The machine, and when it was measured, in words.
    pub machine: String,
    /// The network thread of a worker, with loop, sockets and kernel, but for being woken.
    pub worker: CostModel,
    /// The thread of a server, without loop and kernel.
    pub server: CostModel,
    /// A switch in software, without them too: its pipeline and its agent.
    pub switch: CostModel,
    /// The thread that a worker's user has, to make a push and to take its completion, with its kernel, but for being woken.
    pub user: CostModel,
    /// Costs of loop, sockets and kernel for the thread of a server or switch, and of a wake for that of any.
    pub kernel: CostModel,
    /// From when something comes for a thread that sleeps on an idle core until it runs.
    pub wake_latency_ns: WakeLatency,
    /// By how much the times of turns differ that do the same: the standard deviation of their logarithms. 0 in files of before it was measured.
    #[serde(default)]
    pub spread: f64,
}

/// Wake-up latency of an idle core: the longer it was idle, the deeper it sleeps. Points of idle time and latency, both in nanoseconds and
/// both rising; between them it is linear, beyond them constant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WakeLatency(pub Vec<[f64; 2]>);

impl WakeLatency {
    /// Of a core that was idle for so long, in nanoseconds.
    #[must_use]
    pub fn after(&self, idle_ns: f64) -> f64 {
        let behind = self.0.partition_point(|[idle, _]| *idle <= idle_ns);
        match (behind.checked_sub(1).map(|last| self.0[last]), self.0.get(behind)) {
            (Some([from, low]), Some([to, high])) => low + (high - low) * (idle_ns - from) / (to - from),
            (Some([_, latency]), None) | (None, Some(&[_, latency])) => latency,
            (None, None) => 0.0,
        }
    }
}

impl Costs {
    /// Costs on the machine that this was developed on: a virtual machine with two cores. The file says when it was measured.
    ///
    /// # Panics
    /// Never: a test reads the file.
    #[must_use]
    pub fn measured() -> Self {
        serde_json::from_str(include_str!("costs.json")).expect("the file in the repository is whole")
    }
}

/// The prices, none of them negative, that explain samples best: the least sum of squares of errors, each divided by the time of its sample, so that many short
/// steps count as much as one long one.
///
/// Coordinate descent on the normal equations: each price in turn is set to what is best if the others stay, or to zero. It
/// converges, as the sum is convex, and no matrix has to be inverted that prices of things that always come together would
/// make singular.
#[must_use]
pub fn fit(items: &[CostKind], samples: &[(Work, f64)]) -> CostModel {
    const ROUNDS: usize = 20_000;
    let count = items.len();
    let (mut products, mut targets) = (vec![vec![0.0; count]; count], vec![0.0; count]);
    for (work, nanos) in samples.iter().filter(|(_, nanos)| *nanos > 0.0) {
        let root = nanos.sqrt();
        let shares: Vec<f64> = items.iter().map(|item| work.count(*item) / root).collect();
        for (row, share) in shares.iter().enumerate() {
            targets[row] += share * root;
            products[row].iter_mut().zip(&shares).for_each(|(product, other)| *product += share * other);
        }
    }
    let mut prices = vec![0.0; count];
    for _ in 0..ROUNDS {
        for place in 0..count {
            let own = products[place][place];
            if own > 0.0 {
                let explained: f64 =
                    products[place].iter().zip(&prices).map(|(product, price)| product * price).sum();
                prices[place] = (prices[place] + (targets[place] - explained) / own).max(0.0);
            }
        }
    }
    CostModel(items.iter().copied().zip(prices).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_the_prices_that_made_the_samples() {
        let truth = CostModel(
            [(CostKind::Turn, 500.0), (CostKind::PacketIn, 60.0), (CostKind::PacketByteIn, 0.2)].into(),
        );
        let samples: Vec<_> = (1..40_u32)
            .map(|number| {
                let packets = f64::from(number % 7 + 1);
                let work = Work::of(CostKind::Turn, 1.0)
                    .with(CostKind::PacketIn, packets)
                    .with(CostKind::PacketByteIn, packets * f64::from(100 + number * 30));
                (work, truth.of(&work))
            })
            .collect();
        let fitted =
            fit(&[CostKind::Turn, CostKind::PacketIn, CostKind::PacketByteIn, CostKind::Round], &samples);
        for (item, price) in &truth.0 {
            assert!((fitted.0[item] / price - 1.0).abs() < 0.01, "{item:?}: {} for {price}", fitted.0[item]);
        }
        assert_eq!(fitted.0[&CostKind::Round], 0.0, "what never happened has no price");
    }

    #[test]
    fn a_core_that_was_idle_for_long_wakes_late() {
        let latency = WakeLatency(vec![[1000.0, 10.0], [2000.0, 30.0]]);
        assert_eq!(
            [0.0, 1000.0, 1500.0, 2000.0, 9000.0].map(|idle| latency.after(idle)),
            [10.0, 10.0, 20.0, 30.0, 30.0]
        );
        assert_eq!(WakeLatency::default().after(5.0), 0.0);
    }

    #[test]
    fn the_file_of_costs_is_whole() {
        let costs = Costs::measured();
        assert!(!costs.machine.is_empty() && costs.wake_latency_ns.after(0.0) > 0.0);
        assert!(costs.wake_latency_ns.0.is_sorted_by(|one, next| one[0] < next[0] && one[1] <= next[1]));
        for prices in [&costs.worker, &costs.server, &costs.switch, &costs.user, &costs.kernel] {
            assert!(prices.0.values().all(|price| price.is_finite() && *price >= 0.0));
            assert!(prices.0.values().any(|price| *price > 0.0));
        }
    }
}
