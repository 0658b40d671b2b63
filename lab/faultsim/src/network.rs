//! The network: what happens to a datagram on its way, and who cannot reach whom.

use core::time::Duration;

use libra_proto::Instant;

use crate::random::Random;

/// A machine, by its number.
pub type Host = usize;

/// A burst is over when nothing was sent for so long: it is a matter of time, too, not of datagrams alone.
const BURST_PAUSE: Duration = Duration::from_millis(50);

/// Loss in bursts, after Gilbert and Elliott: a link is in a good or a bad state, and each datagram may change it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// The chance that a datagram on a good link finds it bad.
    pub begin: f64,
    /// The chance that a datagram on a bad link finds it good again.
    pub end: f64,
    /// The chance that a datagram on a bad link is lost.
    pub loss: f64,
}

/// Quality of the links of a network, or of those of one host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Bytes a second.
    pub rate: u64,
    /// One way, without queue.
    pub delay: Duration,
    /// Up to this is added to the delay. It changes no order.
    pub jitter: Duration,
    /// Bytes that wait for the link at most; what comes then is dropped.
    pub queue_bytes: u64,
    /// The chance that a datagram is lost.
    pub loss: f64,
    /// Loss in bursts, if any.
    pub bursts: Option<Bursts>,
    /// The chance that a datagram arrives twice.
    pub duplicate: f64,
    /// The chance that a datagram, or its second copy, is overtaken.
    pub reorder: f64,
    /// By how much at most.
    pub reorder_delay: Duration,
    /// The chance that one bit is flipped.
    pub corrupt: f64,
    /// The chance that a copy also comes to a host it is not for.
    pub misdeliver: f64,
    /// Datagrams arrive at multiples of this, as from a card that gathers interrupts, and so in bursts. Zero: at any time.
    pub tick: Duration,
}

impl Quality {
    /// A network without faults.
    pub const GOOD: Self = Self {
        rate: 1_000_000_000,
        delay: Duration::from_micros(100),
        jitter: Duration::ZERO,
        queue_bytes: 1 << 20,
        loss: 0.0,
        bursts: None,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_delay: Duration::from_millis(3),
        corrupt: 0.0,
        misdeliver: 0.0,
        tick: Duration::ZERO,
    };
    /// Loses 10% of all datagrams, doubles 15% and delays 15%.
    pub const BAD: Self = Self { loss: 0.10, duplicate: 0.15, reorder: 0.15, ..Self::GOOD };
}

/// Counters of datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Handed to the network.
    pub datagrams: u64,
    /// Lost at random, alone or in a burst.
    pub lost: u64,
    /// Lost because the link's queue was full.
    pub queue_full: u64,
    /// Lost in a partition, or sent to an address without a host.
    pub unreachable: u64,
    /// Lost because they are too long for the link.
    pub too_long: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Delayed so that others overtake.
    pub reordered: u64,
    /// Hit by a flipped bit.
    pub corrupted: u64,
    /// Copied to a host they were not for.
    pub misdelivered: u64,
}

/// A copy of a datagram that will arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// The host that it reaches.
    pub to: Host,
    /// The bit of it that is flipped, if one is.
    pub flipped: Option<usize>,
}

/// One direction between two hosts.
#[derive(Debug, Clone, Copy, Default)]
struct Direction {
    /// When the link has sent all that waits for it.
    free_at: Instant,
    /// No earlier than this arrives what is sent later, unless it is reordered on purpose.
    last_arrival: Instant,
    in_burst: bool,
    /// When the last datagram asked.
    asked_at: Instant,
    /// Number of partitions between the two.
    blocked: u32,
    /// Bytes of the longest datagrams that come through, if there is a bound.
    bytes_max: Option<usize>,
}

/// The links between all hosts.
#[derive(Debug)]
pub struct Network {
    quality: Quality,
    of_hosts: Vec<Option<Quality>>,
    /// By sender, then by receiver.
    directions: Vec<Vec<Direction>>,
    random: Random,
    counts: NetworkCounts,
}

impl Network {
    /// A network without hosts.
    pub fn new(quality: Quality, random: Random) -> Self {
        Self {
            quality,
            of_hosts: Vec::new(),
            directions: Vec::new(),
            random,
            counts: NetworkCounts::default(),
        }
    }

    /// Connects one more host.
    pub(crate) fn add_host(&mut self) {
        self.of_hosts.push(None);
        let hosts = self.of_hosts.len();
        self.directions.resize_with(hosts, Vec::new);
        self.directions.iter_mut().for_each(|row| row.resize(hosts, Direction::default()));
    }

    /// Counters of datagrams so far.
    pub fn counts(&self) -> NetworkCounts {
        self.counts
    }

    /// Quality of links, unless a host has links of its own quality.
    pub fn quality(&self) -> Quality {
        self.quality
    }

    /// Makes the network better or worse.
    pub fn set_quality(&mut self, quality: Quality) {
        self.quality = quality;
    }

    /// Gives the links of one host a quality of their own, or takes it away.
    pub fn set_quality_of(&mut self, host: Host, quality: Option<Quality>) {
        self.of_hosts[host] = quality;
    }

    fn quality_between(&self, from: Host, to: Host) -> Quality {
        self.of_hosts[to].or(self.of_hosts[from]).unwrap_or(self.quality)
    }

    /// Nothing that `from` sends reaches `to`, until [`heal`](Self::heal) is called as often.
    pub(crate) fn block(&mut self, from: Host, to: Host) {
        self.directions[from][to].blocked += 1;
    }

    /// Takes back one [`block`](Self::block).
    pub(crate) fn heal(&mut self, from: Host, to: Host) {
        let blocked = &mut self.directions[from][to].blocked;
        *blocked = blocked.saturating_sub(1);
    }

    /// Datagrams of `from` to `to` that have more bytes are lost, and nothing says so.
    pub fn narrow(&mut self, from: Host, to: Host, bytes_max: usize) {
        self.directions[from][to].bytes_max = Some(bytes_max);
    }

    /// True if datagrams of `from` reach `to`.
    pub fn reaches(&self, from: Host, to: Host) -> bool {
        self.directions[from][to].blocked == 0
    }

    /// True if a stream between the two makes progress: it needs both directions, one for its acknowledgements.
    pub fn streams_flow(&self, one: Host, other: Host) -> bool {
        self.reaches(one, other) && self.reaches(other, one)
    }

    /// When something on a stream arrives, if nothing holds it up.
    pub(crate) fn stream_delay(&mut self, from: Host, to: Host, bytes: usize) -> Duration {
        let quality = self.quality_between(from, to);
        let lost = quality.loss + quality.bursts.map_or(0.0, |bursts| bursts.loss * bursts.begin);
        let mut delay = quality.delay + self.random.up_to(quality.jitter) + time_of(bytes, quality.rate);
        // A lost segment is sent again: late, and with all that is behind it.
        if self.random.chance(lost) {
            delay += quality.delay * 2 + Duration::from_millis(self.random.within(1..=20));
        }
        delay
    }

    /// A datagram of `bytes` bytes begins its way. Calls `arrive` for each copy of it that will arrive.
    pub(crate) fn carry(
        &mut self,
        now: Instant,
        from: Host,
        to: Host,
        bytes: usize,
        mut arrive: impl FnMut(Arrival),
    ) {
        self.counts.datagrams += 1;
        if !self.reaches(from, to) {
            self.counts.unreachable += 1;
            return;
        }
        if self.directions[from][to].bytes_max.is_some_and(|bytes_max| bytes > bytes_max) {
            self.counts.too_long += 1;
            return;
        }
        let quality = self.quality_between(from, to);
        let Some(sent_at) = self.enqueue(now, from, to, bytes, &quality) else {
            self.counts.queue_full += 1;
            return;
        };
        if self.is_lost(now, from, to, &quality) {
            self.counts.lost += 1;
            return;
        }
        let in_order = sent_at + quality.delay + self.random.up_to(quality.jitter);
        let direction = &mut self.directions[from][to];
        let in_order = in_order.max(direction.last_arrival);
        direction.last_arrival = in_order;
        arrive(self.copy(in_order, to, bytes, &quality));
        if self.random.chance(quality.duplicate) {
            self.counts.duplicated += 1;
            arrive(self.copy(in_order, to, bytes, &quality));
        }
        if self.random.chance(quality.misdeliver) {
            let other = self.random.index(self.of_hosts.len());
            if other != to && other != from {
                self.counts.misdelivered += 1;
                arrive(self.copy(in_order, other, bytes, &quality));
            }
        }
    }

    /// When the last bit of a datagram has left; `None` if it does not fit in the queue.
    fn enqueue(
        &mut self,
        now: Instant,
        from: Host,
        to: Host,
        bytes: usize,
        quality: &Quality,
    ) -> Option<Instant> {
        let direction = &mut self.directions[from][to];
        let begin = direction.free_at.max(now);
        if begin.since(now)
            > time_of(usize::try_from(quality.queue_bytes).unwrap_or(usize::MAX), quality.rate)
        {
            return None;
        }
        direction.free_at = begin + time_of(bytes, quality.rate);
        Some(direction.free_at)
    }

    fn is_lost(&mut self, now: Instant, from: Host, to: Host, quality: &Quality) -> bool {
        if let Some(bursts) = quality.bursts {
            let direction = &mut self.directions[from][to];
            direction.in_burst &= now.since(direction.asked_at) < BURST_PAUSE;
            direction.asked_at = now;
            let change = if direction.in_burst { bursts.end } else { bursts.begin };
            direction.in_burst ^= self.random.chance(change);
            if direction.in_burst && self.random.chance(bursts.loss) {
                return true;
            }
        }
        self.random.chance(quality.loss)
    }

    fn copy(&mut self, in_order: Instant, to: Host, bytes: usize, quality: &Quality) -> Arrival {
        let mut at = in_order;
        if self.random.chance(quality.reorder) {
            self.counts.reordered += 1;
            at = at + self.random.up_to(quality.reorder_delay);
        }
        let tick = u64::try_from(quality.tick.as_nanos()).unwrap_or(0);
        if tick > 0 {
            at = Instant::from_nanos(at.as_nanos().next_multiple_of(tick));
        }
        let flipped = self.random.chance(quality.corrupt) && bytes > 0;
        self.counts.corrupted += u64::from(flipped);
        Arrival { at, to, flipped: flipped.then(|| self.random.index(bytes * 8)) }
    }
}

/// Transmission time of so many bytes. A rate of zero is one without limit.
fn time_of(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u64).saturating_mul(1_000_000_000).checked_div(rate).unwrap_or(0);
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(quality: Quality) -> Network {
        let mut network = Network::new(quality, Random::new(3));
        (0..3).for_each(|_| network.add_host());
        network
    }

    /// Sends `count` datagrams of 100 bytes, one each microsecond, and returns what arrives.
    fn send(network: &mut Network, count: u64) -> Vec<Arrival> {
        let mut arrived = Vec::new();
        for number in 0..count {
            network.carry(Instant::from_nanos(number * 1000), 0, 1, 100, |copy| arrived.push(copy));
        }
        arrived
    }

    fn share(part: usize, whole: u64) -> f64 {
        part as f64 / whole as f64
    }

    #[test]
    fn a_good_network_delivers_everything_once_and_in_order() {
        let mut network = network(Quality { jitter: Duration::from_micros(50), ..Quality::GOOD });
        let arrived = send(&mut network, 1000);
        assert_eq!(arrived.len(), 1000);
        assert!(arrived.is_sorted_by_key(|copy| copy.at));
        assert!(arrived.iter().all(|copy| copy.to == 1 && copy.flipped.is_none()));
    }

    #[test]
    fn each_fault_happens_as_often_as_it_should() {
        let base = Quality { loss: 0.2, ..Quality::GOOD };
        let count = 20_000;
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02, "{found}");
        close(share(send(&mut network(base), count).len(), count), 0.8);
        let doubled = Quality { duplicate: 0.3, ..Quality::GOOD };
        close(share(send(&mut network(doubled), count).len(), count), 1.3);
        let corrupt = send(&mut network(Quality { corrupt: 0.1, ..Quality::GOOD }), count);
        close(share(corrupt.iter().filter(|copy| copy.flipped.is_some()).count(), count), 0.1);
        assert!(corrupt.iter().all(|copy| copy.flipped.is_none_or(|bit| bit < 800)));
        let astray = send(&mut network(Quality { misdeliver: 0.3, ..Quality::GOOD }), count);
        // A third of the copies go to the one host that is neither sender nor receiver.
        close(share(astray.iter().filter(|copy| copy.to == 2).count(), count), 0.1);
        let late = send(&mut network(Quality { reorder: 0.5, ..Quality::GOOD }), count);
        assert!(!late.is_sorted_by_key(|copy| copy.at));
    }

    #[test]
    fn bursts_lose_neighbours() {
        let bursts = Some(Bursts { begin: 0.01, end: 0.1, loss: 1.0 });
        let mut network = network(Quality { bursts, ..Quality::GOOD });
        let arrived = send(&mut network, 20_000);
        let lost = 20_000 - arrived.len();
        let bursts =
            arrived.windows(2).filter(|pair| pair[1].at.since(pair[0].at) > Duration::from_micros(1));
        let bursts = bursts.count();
        // The state is bad for 1 / (1 + 10) of all datagrams, and ten of them long.
        assert!((1200..2500).contains(&lost) && lost > 6 * bursts, "{lost} in {bursts}");
    }

    #[test]
    fn a_slow_link_queues_and_then_drops() {
        let slow = Quality { rate: 1_000_000, queue_bytes: 1000, ..Quality::GOOD };
        let mut network = network(slow);
        let arrived = send(&mut network, 100);
        // 100 bytes take 100 us, and in the 100 us in which all are sent the queue takes ten and a few.
        assert!((10..=13).contains(&arrived.len()), "{}", arrived.len());
        assert_eq!(network.counts().queue_full, 100 - arrived.len() as u64);
        assert!(arrived.windows(2).all(|pair| pair[1].at.since(pair[0].at) == Duration::from_micros(100)));
    }

    #[test]
    fn ticks_make_bursts() {
        let mut network = network(Quality { tick: Duration::from_micros(50), ..Quality::GOOD });
        let arrived = send(&mut network, 100);
        let times: std::collections::BTreeSet<_> = arrived.iter().map(|copy| copy.at).collect();
        assert!(times.len() <= 3 && times.iter().all(|at| at.as_nanos() % 50_000 == 0));
    }

    #[test]
    fn partitions_have_a_direction_and_add_up() {
        let mut network = network(Quality::GOOD);
        network.block(0, 1);
        network.block(0, 1);
        network.heal(0, 1);
        assert!(!network.reaches(0, 1) && network.reaches(1, 0) && !network.streams_flow(1, 0));
        assert_eq!(send(&mut network, 10), []);
        network.heal(0, 1);
        assert_eq!(send(&mut network, 10).len(), 10);
        assert_eq!(network.counts().unreachable, 10);
    }

    #[test]
    fn a_narrow_link_drops_what_is_too_long_one_way() {
        let mut network = network(Quality::GOOD);
        network.narrow(0, 1, 99);
        assert_eq!((send(&mut network, 10), network.counts().too_long), (Vec::new(), 10));
        network.narrow(0, 1, 100);
        network.narrow(1, 0, 99);
        assert_eq!(send(&mut network, 10).len(), 10);
    }

    #[test]
    fn one_host_may_have_worse_links() {
        let mut network = network(Quality::GOOD);
        network.set_quality_of(1, Some(Quality { loss: 1.0, ..Quality::GOOD }));
        assert_eq!(send(&mut network, 10), []);
        let mut arrived = 0;
        network.carry(Instant::ZERO, 0, 2, 100, |_| arrived += 1);
        assert_eq!(arrived, 1);
    }
}
