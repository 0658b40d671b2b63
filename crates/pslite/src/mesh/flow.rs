//! Messages of one direction of a stream, each once and in order, although the receiver may lose any frame.
//!
//! TCP loses nothing; `PS_DROP_MSG` does, behind it. A receiver holds messages that come too early, and names the one that is missing; the sender
//! sends that one again. A sender without an acknowledgement asks. Nothing here waits, reads or writes.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

/// Time without an acknowledgement before a sender first asks for one: longer than most answers take, which bring one.
const ACK_TIMEOUT: Duration = Duration::from_millis(10);
/// And at most between two questions.
const ACK_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// A receiver reports the missing message again when so many more have come: the repeated one may have been lost, too.
const TELL_EVERY: u32 = 16;
/// A receiver holds no more messages that came too early: others are as good as lost, and sent again when it is their turn. TCP makes
/// no gaps, so there are none but by `PS_DROP_MSG`, and by a peer that leaves a number out.
const EARLY_MAX: usize = 4096;

/// The end that sends.
#[derive(Debug)]
pub(super) struct Sending<M> {
    /// Messages that were not acknowledged, with consecutive numbers.
    kept: VecDeque<M>,
    /// The number of the first of them.
    first: u64,
    /// Number of them that were written.
    written: usize,
    /// Numbers of those that are to be written again.
    again: VecDeque<u64>,
    ack_timeout: Duration,
    /// Time of the last progress.
    since: Instant,
}

impl<M: Clone> Sending<M> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kept: VecDeque::new(),
            first: 1,
            written: 0,
            again: VecDeque::new(),
            ack_timeout: ACK_TIMEOUT,
            since: now,
        }
    }

    pub(super) fn push(&mut self, now: Instant, message: M) {
        if self.kept.is_empty() {
            self.progress(now);
        }
        self.kept.push_back(message);
    }

    /// The next message to write, with its number.
    pub(super) fn next(&mut self) -> Option<(u64, M)> {
        while let Some(number) = self.again.pop_front() {
            let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
            if let Some(message) = at.and_then(|at| self.kept.get(at)) {
                return Some((number, message.clone()));
            }
        }
        let message = self.kept.get(self.written)?.clone();
        let number = self.first + self.written as u64;
        self.written += 1;
        Some((number, message))
    }

    pub(super) fn has_next(&self) -> bool {
        self.written < self.kept.len() || !self.again.is_empty()
    }

    /// Returns true if everything is acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.kept.is_empty()
    }

    /// The number of the newest message.
    pub(super) fn newest(&self) -> u64 {
        self.first + self.kept.len() as u64 - 1
    }

    /// The receiver has all up to this one. Returns what need not be kept any more: to drop it may take long.
    pub(super) fn acknowledged(&mut self, now: Instant, taken: u64) -> Vec<M> {
        // A number that was never given does not count.
        let count = taken.saturating_add(1).saturating_sub(self.first).min(self.kept.len() as u64);
        let count = usize::try_from(count).expect("no more than are kept");
        if count == 0 {
            return Vec::new();
        }
        self.first += count as u64;
        self.written = self.written.saturating_sub(count);
        self.progress(now);
        self.kept.drain(..count).collect()
    }

    /// The receiver lacks the one after this.
    pub(super) fn missing(&mut self, now: Instant, taken: u64) -> Vec<M> {
        let done = self.acknowledged(now, taken);
        let number = taken.saturating_add(1);
        if number == self.first && self.written > 0 && !self.again.contains(&number) {
            self.again.push_back(number);
            self.progress(now);
        }
        done
    }

    fn progress(&mut self, now: Instant) {
        self.since = now;
        self.ack_timeout = ACK_TIMEOUT;
    }

    /// Time to ask for an acknowledgement; never while something waits to be written.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        (!self.kept.is_empty() && !self.has_next()).then(|| self.since + self.ack_timeout)
    }

    pub(super) fn asked(&mut self, now: Instant) {
        self.since = now;
        self.ack_timeout = (2 * self.ack_timeout).min(ACK_TIMEOUT_MAX);
    }
}

/// The end that receives.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    taken: u64,
    /// Those that came too early, and are held.
    early: BTreeSet<u64>,
    /// Number that came too early since the sender was told.
    since_told: u32,
}

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the next one. Some that are held may follow.
    Take,
    /// It came before, or so much too early that it must come again.
    Again,
    /// One before it is missing: it is to be held.
    Hold {
        /// True if the sender is to be told.
        tell: bool,
    },
}

impl Receiving {
    pub(super) fn offer(&mut self, number: u64) -> Verdict {
        if number <= self.taken || self.early.contains(&number) {
            return Verdict::Again;
        }
        if number == self.taken + 1 {
            self.taken = number;
            return Verdict::Take;
        }
        if self.early.len() >= EARLY_MAX {
            return Verdict::Again;
        }
        let is_first = self.early.is_empty();
        self.early.insert(number);
        self.since_told += 1;
        let tell = is_first || self.since_told >= TELL_EVERY;
        if tell {
            self.since_told = 0;
        }
        Verdict::Hold { tell }
    }

    /// The number of a message that was held and is the next one now.
    pub(super) fn follow(&mut self) -> Option<u64> {
        let next = self.taken + 1;
        self.early.remove(&next).then(|| {
            self.taken = next;
            next
        })
    }

    /// Returns true if another one is missing.
    pub(super) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// All up to this one were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Sends numbers through a stream whose receiver loses each frame with a probability. Returns how many frames it took.
    fn send_all(count: u64, loss: f64, seed: u64) -> usize {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut now = Instant::now();
        let (mut sending, mut receiving) = (Sending::new(now), Receiving::default());
        let mut got = Vec::new();
        let mut frames = 0;
        for number in 1..=count {
            sending.push(now, number);
        }
        while !sending.is_done() {
            frames += 1;
            assert!(frames < 100_000, "no progress with seed {seed}");
            let lost = random.random_bool(loss);
            if let Some((number, message)) = sending.next() {
                assert_eq!(number, message);
                if lost {
                    continue;
                }
                let verdict = receiving.offer(number);
                if verdict == Verdict::Take {
                    got.push(message);
                    got.extend(core::iter::from_fn(|| receiving.follow()));
                }
                let tells = match verdict {
                    Verdict::Take => receiving.has_gap(),
                    Verdict::Hold { tell } => tell,
                    Verdict::Again => false,
                };
                if tells && !random.random_bool(loss) {
                    sending.missing(now, receiving.taken());
                }
                if random.random_bool(0.2) && !random.random_bool(loss) {
                    sending.acknowledged(now, receiving.taken());
                }
            } else {
                now = sending.ask_at().unwrap();
                sending.asked(now);
                if lost || random.random_bool(loss) {
                    continue;
                }
                if sending.newest() > receiving.taken() {
                    sending.missing(now, receiving.taken());
                } else {
                    sending.acknowledged(now, receiving.taken());
                }
            }
        }
        assert!(got.iter().copied().eq(1..=count), "seed {seed}: {got:?}");
        frames
    }

    #[test]
    fn a_lost_message_is_the_only_one_sent_again() {
        let frames = (0..20).map(|seed| send_all(1000, 0.1, seed)).max().unwrap();
        assert!(frames < 1500, "{frames} frames for 1000 messages at a loss of 10%");
    }

    #[test]
    fn every_message_arrives_once_and_in_order_whatever_is_lost() {
        for seed in 0..200 {
            send_all(50, 0.3, seed);
            send_all(3, 0.7, seed);
        }
    }

    #[test]
    fn nothing_is_sent_again_where_nothing_is_lost() {
        assert!(send_all(1000, 0.0, 1) <= 1001);
    }

    #[test]
    fn acknowledgements_of_what_was_never_sent_do_no_harm() {
        let now = Instant::now();
        let mut sending = Sending::new(now);
        sending.push(now, 'a');
        assert_eq!(sending.next(), Some((1, 'a')));
        sending.acknowledged(now, 1_000);
        assert!(sending.is_done());
        sending.push(now, 'b');
        assert_eq!(sending.next(), Some((2, 'b')));
        sending.missing(now, 0);
        assert!(!sending.has_next(), "the first was acknowledged: there is nothing to go back to");
    }

    #[test]
    fn messages_far_too_early_are_not_held() {
        let mut receiving = Receiving::default();
        let most = u64::try_from(EARLY_MAX).unwrap();
        for number in 2..3 * most {
            receiving.offer(number);
        }
        assert_eq!(receiving.early.len(), EARLY_MAX);
        assert_eq!(receiving.offer(1), Verdict::Take);
        while receiving.follow().is_some() {}
        assert_eq!(receiving.taken(), most + 1);
        assert_eq!(receiving.offer(most + 2), Verdict::Take, "it was sent again");
    }

    #[test]
    fn questions_become_rarer_and_restart_with_progress() {
        let mut now = Instant::now();
        let mut sending = Sending::new(now);
        sending.push(now, 'a');
        assert_eq!(sending.ask_at(), None);
        sending.next();
        for milliseconds in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert_eq!(sending.ask_at(), Some(now + Duration::from_millis(milliseconds)));
            now += Duration::from_millis(milliseconds);
            sending.asked(now);
        }
        sending.push(now, 'b');
        sending.acknowledged(now, 1);
        sending.next();
        assert_eq!(sending.ask_at(), Some(now + Duration::from_millis(10)));
    }
}
