//! Numbers of probes: packets that ask for nothing but an answer.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use libra_dataplane::{Header, Kind, SEQ_MAX};

use crate::time::Instant;

/// Probes have this number and those above it, which no flow uses. Planes do not look at the number of a `PULL` without entries.
pub(super) const PROBES_BEGIN: u32 = 1 << 31;

/// Returns the bytes of an IP packet to this address that are not of its datagram: headers of IP without options, and of UDP (RFC 791, RFC
/// 8200, RFC 768).
#[must_use]
pub fn packet_header_bytes(to: SocketAddr) -> u16 {
    if to.is_ipv6() { 40 + 8 } else { 20 + 8 }
}

/// Returns true if a datagram is a probe of the length of its path (rule T19): it may be too long for it.
#[must_use]
pub fn is_length_probe(datagram: &[u8]) -> bool {
    Header::parse_without_entries(datagram)
        .is_ok_and(|header| header.kind == Kind::Pull && header.entries > 0 && header.seq >= PROBES_BEGIN)
}

/// The probes of a region that may still be answered. Each has a number of its own, so that the answer to one is no answer to
/// another (rule T17).
#[derive(Debug, Clone)]
pub(super) struct Probes {
    /// When the probes with the numbers from `first` on were sent.
    sent: VecDeque<Instant>,
    first: u32,
}

impl Default for Probes {
    fn default() -> Self {
        Self { sent: VecDeque::new(), first: PROBES_BEGIN }
    }
}

impl Probes {
    /// The number of a probe that is sent now. Those that were sent longer than `fresh_for` ago are given up, which bounds the list:
    /// a worker sends one in 500 us at most.
    pub(super) fn send(&mut self, now: Instant, fresh_for: Duration) -> u32 {
        while self.sent.front().is_some_and(|sent| now.since(*sent) >= fresh_for) {
            self.advance(1);
        }
        self.sent.push_back(now);
        // At one in 500 us the numbers last for 12 days, and then begin again, long after the first of them were given up.
        nth(self.first, self.sent.len() - 1)
    }

    /// Returns true if this is the first answer to a probe that was sent less than `fresh_for` ago, and none later has been answered.
    pub(super) fn answered(&mut self, now: Instant, seq: u32, fresh_for: Duration) -> bool {
        let Some(place) = (0..self.sent.len()).find(|place| nth(self.first, *place) == seq) else {
            return false;
        };
        let is_fresh = now.since(self.sent[place]) < fresh_for;
        self.advance(place + 1);
        is_fresh
    }

    /// Gives up all that were sent: the region has another owner.
    pub(super) fn forget(&mut self) {
        self.advance(self.sent.len());
    }

    fn advance(&mut self, count: usize) {
        self.sent.drain(..count);
        self.first = nth(self.first, count);
    }
}

/// The number that is `count` after another one.
fn nth(first: u32, count: usize) -> u32 {
    const NUMBERS: u64 = (SEQ_MAX - PROBES_BEGIN) as u64 + 1;
    let place = u64::from(first - PROBES_BEGIN) + count as u64;
    PROBES_BEGIN + u32::try_from(place % NUMBERS).expect("it is below the count of numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::ZERO + SECONDS * seconds
    }

    // rule T17
    #[test]
    fn a_probe_is_answered_once_and_soon() {
        let mut probes = Probes::default();
        let sent: Vec<u32> = (0..4).map(|second| probes.send(at(second), 10 * SECONDS)).collect();
        assert_eq!(sent, [1 << 31, (1 << 31) + 1, (1 << 31) + 2, (1 << 31) + 3]);
        let mut answered = |second, seq| probes.answered(at(second), seq, 10 * SECONDS);
        assert!(!answered(3, sent[3] + 1), "it was not sent yet");
        assert!(answered(3, sent[1]));
        assert!(!answered(3, sent[1]), "a copy of that answer");
        assert!(!answered(3, sent[0]), "a later one was answered");
        assert!(!answered(12, sent[2]), "the answer is 10 s old");
        assert!(answered(12, sent[3]));
    }

    #[test]
    fn probes_without_answers_are_given_up() {
        let mut probes = Probes::default();
        for second in 0..1000 {
            probes.send(at(second), 10 * SECONDS);
        }
        assert_eq!(probes.sent.len(), 10);
        probes.forget();
        assert!(!probes.answered(at(1000), (1 << 31) + 999, 10 * SECONDS), "of the owner before");
        assert_eq!(probes.send(at(1000), 10 * SECONDS), (1 << 31) + 1000);
    }

    // rule T17
    #[test]
    fn numbers_of_probes_begin_again_after_the_last_one() {
        let mut probes = Probes { first: SEQ_MAX - 1, ..Probes::default() };
        let sent = [0; 4].map(|second| probes.send(at(second), 10 * SECONDS));
        assert_eq!(sent, [SEQ_MAX - 1, SEQ_MAX, 1 << 31, (1 << 31) + 1]);
        assert!(probes.answered(at(1), sent[2], 10 * SECONDS));
        assert!(!probes.answered(at(1), sent[1], 10 * SECONDS));
        assert!(probes.answered(at(1), sent[3], 10 * SECONDS));
    }
}
