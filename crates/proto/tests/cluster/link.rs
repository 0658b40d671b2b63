//! The network of the virtual world: what happens to a datagram on its way.

use core::time::Duration;

/// SplitMix64: enough for faults, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How bad the network is. Percentages are of datagrams; streams are only late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) reorder: u64,
    /// One way, of datagrams and of messages.
    pub(crate) delay: Duration,
    /// Done to the second copy of a datagram that is doubled: a planted fault, for checking the checkers.
    pub(crate) sabotage: Option<fn(&mut [u8])>,
}

impl Network {
    pub(crate) const GOOD: Self =
        Self { loss: 0, duplicate: 0, reorder: 0, delay: Duration::from_micros(100), sabotage: None };
    pub(crate) const BAD: Self = Self { loss: 10, duplicate: 15, reorder: 15, ..Self::GOOD };

    /// When copies of a datagram arrive, and what they are then.
    pub(crate) fn carry(&self, random: &mut Random, datagram: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        let mut copies = Vec::new();
        if random.percent(self.loss) {
            return copies;
        }
        copies.push((self.time(random), datagram.to_vec()));
        if random.percent(self.duplicate) {
            let mut copy = datagram.to_vec();
            if let Some(sabotage) = self.sabotage {
                sabotage(&mut copy);
            }
            copies.push((self.time(random), copy));
        }
        copies
    }

    fn time(&self, random: &mut Random) -> Duration {
        if random.percent(self.reorder) {
            self.delay + Duration::from_micros(random.below(3000))
        } else {
            self.delay
        }
    }
}
