//! Number of packets that may be on their way to one switch: a window that follows loss and delay.
//!
//! Links lose packets without an overload, and the protocol cannot see the reason: so a few lost packets change nothing (as in BBR,
//! draft-ietf-ccwg-bbr, where 2% of a round trip do not), and
//! what changes the window is the *share* that is lost, as with the marks of DCTCP (RFC 8257, section 3.3). Delay is a brake as in
//! Swift (Kumar et al., SIGCOMM 2020), for switches that are slow and have large buffers.

use core::time::Duration;

use super::rtt::TIMEOUT_MAX;
use crate::time::Instant;

/// The first window, if the maximum allows: enough for short jobs, and a few round trips from any maximum.
const INITIAL: usize = 64;
/// So few packets harm no switch, and one of them that is lost is overtaken by the others (rule T5).
const MIN: usize = 4;
/// In so many round trips a window grows from nothing to its maximum without a queue, and with one. The maximum is the same for all
/// workers, so those that share a switch grow alike and shrink in proportion: that makes them equal (Chiu and Jain, 1989).
const GROWTH_ROUNDS: usize = 32;
const GROWTH_ROUNDS_QUEUED: usize = 128;
/// Windows and shares are counted in parts of this.
const WHOLE: usize = 1 << 10;
/// The share that links may lose where nothing queues.
const LOSS_TOLERATED: usize = WHOLE / 8;
/// And that may be lost where packets queue. Without loss they queue at a switch that is busy, which has room for all (rule T3).
const LOSS_TOLERATED_QUEUED: usize = WHOLE / 32;
/// So many lost packets of one round trip make a share; fewer may be chance, and only the share smoothed over round trips counts.
const LOST_SURE: usize = 4;
/// Up to here a loss that does not follow the window is attributed to the link.
const LINK_LOSS_MAX: usize = WHOLE / 2;
/// Smallest part that a window gives up, so that others find room in the queue.
const CUT_MIN: usize = WHOLE / 4;
/// Round trips vary by so much, and an eighth, without a queue.
const QUEUEING_MIN: Duration = Duration::from_micros(100);
/// A quarter of the longest timeout (rule T4): up to here timers distinguish what is lost from what waits. Processes that wait for a processor look
/// like queues, too, and with a smaller window each of them would only have less to do when it is its turn.
const DELAY_TOLERATED: Duration = TIMEOUT_MAX.checked_div(4).expect("4 is not 0");
/// Delay alone leaves a window of this part of the maximum: the delay may come from the network or from other flows.
const DELAY_SHRINKS_TO: usize = 8;
/// Time for which, or for at most twice as long, the shortest round trip is taken for that without a queue.
const BASE_MEMORY: Duration = Duration::from_secs(10);

/// A congestion window, in packets (rule T12). Every call is a few operations on numbers.
#[derive(Debug, Clone)]
pub(crate) struct CongestionWindow {
    /// In parts of a packet, as all that is compared with it.
    size: usize,
    size_max: usize,
    /// Below it the window doubles each round trip.
    slow_start_threshold: usize,
    /// The share that was lost, smoothed over round trips.
    loss: usize,
    /// More than this is overload, though nothing queues: the buffer may be small, or the queue older than this path.
    loss_tolerated: usize,
    /// Size and loss at the first of several cuts for a loss without a queue.
    before_cuts: Option<(usize, usize)>,
    round_trip: RoundTrip,
    base: BaseDelay,
}

/// About a round trip: it is over when something that was sent in it is answered.
#[derive(Debug, Clone, Copy)]
struct RoundTrip {
    began: Instant,
    answered: usize,
    lost: usize,
    /// Its shortest round trip. Others may have waited for a processor; if this one is long, all of them are.
    fastest: Option<Duration>,
    /// True if the window limited the sender.
    was_full: bool,
}

impl RoundTrip {
    const fn begin(now: Instant) -> Self {
        Self { began: now, answered: 0, lost: 0, fastest: None, was_full: false }
    }
}

impl CongestionWindow {
    pub(crate) fn new(packets_max: u32) -> Self {
        let size_max = packets_max.max(1) as usize * WHOLE;
        Self {
            size: (INITIAL * WHOLE).min(size_max),
            size_max,
            slow_start_threshold: size_max,
            loss: 0,
            loss_tolerated: LOSS_TOLERATED,
            before_cuts: None,
            round_trip: RoundTrip::begin(Instant::ZERO),
            base: BaseDelay::default(),
        }
    }

    /// Returns the number of packets that may be on their way.
    pub(crate) fn packets(&self) -> usize {
        self.size / WHOLE
    }

    fn size_min(&self) -> usize {
        (MIN * WHOLE).min(self.size_max)
    }

    /// There was more to send than the window allows.
    pub(crate) fn on_full(&mut self) {
        self.round_trip.was_full = true;
    }

    /// A packet was taken for lost.
    pub(crate) fn on_loss(&mut self) {
        self.round_trip.lost += 1;
    }

    /// A packet was answered that was last sent at `sent_at`, and never before if `was_sent_once`.
    pub(crate) fn on_answer(&mut self, now: Instant, sent_at: Instant, was_sent_once: bool) {
        self.round_trip.answered += 1;
        if was_sent_once {
            let delay = now.since(sent_at);
            self.base.learn(now, delay);
            self.round_trip.fastest =
                Some(self.round_trip.fastest.map_or(delay, |fastest| fastest.min(delay)));
        }
        if sent_at >= self.round_trip.began {
            self.end_round(now);
        }
    }

    /// A timer has fired without an answer since what it waits for was sent (rule T15). What was lost until then is paid for by that.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.size > self.size_min() {
            self.slow_start_threshold = (self.size / 2).max(self.size_min());
            self.size = self.size_min();
        }
        self.loss = 0;
        self.round_trip = RoundTrip::begin(now);
    }

    fn end_round(&mut self, now: Instant) {
        let round_trip = core::mem::replace(&mut self.round_trip, RoundTrip::begin(now));
        let base = self.base.least;
        let fastest = round_trip.fastest.unwrap_or(base);
        let queueing = fastest.saturating_sub(base);
        let is_queued = queueing > QUEUEING_MIN + base / 8;
        let lost = WHOLE * round_trip.lost / (round_trip.lost + round_trip.answered);
        self.loss = (self.loss * 3 + lost) / 4;
        let is_overloaded = self.is_overloaded(is_queued, lost, round_trip.lost);
        if is_overloaded && round_trip.lost > 0 {
            self.cut((self.loss / 2).max(CUT_MIN), 0);
        }
        let excess = queueing.saturating_sub(DELAY_TOLERATED);
        let most = if excess.is_zero() { self.size_max } else { self.size_max / DELAY_SHRINKS_TO };
        if self.size > most {
            // A queue that loses nothing (rule T14).
            self.cut(share_of(excess, fastest) / 2, most);
        } else if round_trip.was_full && (is_queued || !is_overloaded) {
            self.grow(is_queued, most);
        }
    }

    /// Returns true if what is lost is lost because there is too much of it (rule T13).
    fn is_overloaded(&mut self, is_queued: bool, share: usize, packets: usize) -> bool {
        if is_queued || self.loss <= self.loss_tolerated {
            self.before_cuts = None;
            if self.loss < self.loss_tolerated / 2 {
                self.loss_tolerated = LOSS_TOLERATED;
            }
            let is_sure = self.loss > LOSS_TOLERATED_QUEUED || packets >= LOST_SURE;
            return is_queued && share > LOSS_TOLERATED_QUEUED && is_sure;
        }
        let (size, loss) = *self.before_cuts.get_or_insert((self.size, self.loss));
        if loss > LINK_LOSS_MAX {
            self.before_cuts = None;
        } else if self.size <= size / 4 && self.loss >= loss / 4 * 3 {
            // A quarter of the packets, and the same share is lost: that is the link.
            (self.loss_tolerated, self.slow_start_threshold) = (self.loss * 5 / 4, size);
            self.before_cuts = None;
            return false;
        }
        true
    }

    /// Takes a share off the window, but not below `least`.
    fn cut(&mut self, share: usize, least: usize) {
        if share > 0 {
            let size = self.size - self.size * share / WHOLE;
            self.size = size.max(least.min(self.size)).max(self.size_min());
            self.slow_start_threshold = self.size;
        }
    }

    /// Grows, up to `most`, for a round trip in which the window was what limited the sender.
    fn grow(&mut self, is_queued: bool, most: usize) {
        let growth = if self.size < self.slow_start_threshold {
            self.size.min(self.slow_start_threshold - self.size)
        } else {
            self.size_max / if is_queued { GROWTH_ROUNDS_QUEUED } else { GROWTH_ROUNDS }
        };
        self.size = (self.size + growth).min(most);
    }
}

/// `part / whole`, at most 1, in parts of [`WHOLE`].
fn share_of(part: Duration, whole: Duration) -> usize {
    let share = part.as_nanos() * WHOLE as u128 / whole.as_nanos().max(1);
    usize::try_from(share).map_or(WHOLE, |share| share.min(WHOLE))
}

/// The shortest round trip lately, which is one without a queue. A route may become longer, so it is forgotten in time.
#[derive(Debug, Clone)]
struct BaseDelay {
    least: Duration,
    /// The least since `since`: what is left when the rest is forgotten.
    newer: Duration,
    since: Instant,
}

impl Default for BaseDelay {
    fn default() -> Self {
        Self { least: Duration::MAX, newer: Duration::MAX, since: Instant::ZERO }
    }
}

impl BaseDelay {
    fn learn(&mut self, now: Instant, delay: Duration) {
        self.newer = self.newer.min(delay);
        self.least = self.least.min(delay);
        if now.since(self.since) >= BASE_MEMORY {
            (self.least, self.newer, self.since) = (self.newer, delay, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000);
    const ROUND_TRIP: Duration = Duration::from_micros(200);

    /// Round trips of a sender that has always more to send, one after the other.
    #[derive(Clone)]
    struct RoundTrips {
        window: CongestionWindow,
        now: Instant,
    }

    impl RoundTrips {
        fn new(packets_max: u32) -> Self {
            Self { window: CongestionWindow::new(packets_max), now: START }
        }

        /// A window of packets of which this share, in percent, is lost, and the others take so long.
        fn round_trip(&mut self, lost: usize, delay: Duration) -> usize {
            self.window.on_full();
            let packets = self.window.packets();
            let lost = (packets * lost).div_ceil(100);
            (0..lost).for_each(|_| self.window.on_loss());
            let sent_at = self.now;
            self.now = self.now + delay;
            // All but the last were sent just before the round trip began.
            let before = sent_at - Duration::from_nanos(1);
            (lost + 1..packets).for_each(|_| self.window.on_answer(self.now, before, true));
            self.window.on_answer(self.now, sent_at, true);
            self.window.packets()
        }

        fn round_trips(&mut self, count: usize, lost: usize, delay: Duration) -> usize {
            (0..count).for_each(|_| _ = self.round_trip(lost, delay));
            self.window.packets()
        }
    }

    // rule T12
    #[test]
    fn it_doubles_at_first_and_then_stays_at_its_maximum() {
        let mut round_trips = RoundTrips::new(512);
        assert_eq!(round_trips.window.packets(), 64);
        let sizes: Vec<usize> = (0..5).map(|_| round_trips.round_trip(0, ROUND_TRIP)).collect();
        assert_eq!(sizes, [128, 256, 512, 512, 512]);
        assert_eq!(RoundTrips::new(32).window.packets(), 32);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = CongestionWindow::new(512);
        for round_trip in 0..10 {
            let sent_at = START + ROUND_TRIP * round_trip;
            window.on_answer(sent_at + ROUND_TRIP, sent_at, true);
        }
        assert_eq!(window.packets(), 64);
    }

    // rule T13
    #[test]
    fn losses_of_links_change_nothing_without_a_queue() {
        let mut round_trips = RoundTrips::new(512);
        assert_eq!(round_trips.round_trips(100, 10, ROUND_TRIP), 512);
    }

    // rule T13
    #[test]
    fn a_small_loss_with_a_queue_is_free_a_larger_costs_a_quarter() {
        let mut round_trips = RoundTrips::new(512);
        round_trips.round_trips(10, 0, ROUND_TRIP);
        assert_eq!(round_trips.round_trips(20, 2, ROUND_TRIP * 3), 512);
        assert_eq!(round_trips.round_trip(6, ROUND_TRIP * 3), 388);
        assert_eq!(round_trips.round_trip(0, ROUND_TRIP * 3), 392, "and it grows slowly");
    }

    // rule T13
    #[test]
    fn a_few_losses_of_one_round_with_a_queue_are_chance() {
        let mut round_trips = RoundTrips::new(64);
        round_trips.round_trips(10, 0, ROUND_TRIP);
        // Three of 64 are more than 1/32, but not in all round trips.
        for _ in 0..20 {
            round_trips.round_trip(4, ROUND_TRIP * 3);
            assert_eq!(round_trips.round_trips(5, 0, ROUND_TRIP * 3), 64);
        }
        let mut often = round_trips.clone();
        assert!(often.round_trips(10, 4, ROUND_TRIP * 3) < 64);
        assert_eq!(round_trips.round_trip(5, ROUND_TRIP * 3), 48, "four are enough");
        // Of a loss that is over only that round trip has paid.
        round_trips.round_trips(100, 0, ROUND_TRIP * 3);
        round_trips.round_trip(50, ROUND_TRIP * 3);
        let after = round_trips.window.packets();
        assert!(round_trips.round_trip(2, ROUND_TRIP * 3) >= after);
    }

    // rule T13
    #[test]
    fn a_loss_that_does_not_follow_the_window_is_the_links() {
        let mut round_trips = RoundTrips::new(512);
        let sizes: Vec<usize> = (0..60).map(|_| round_trips.round_trip(36, ROUND_TRIP)).collect();
        assert!(sizes.iter().min().is_some_and(|least| *least < 128), "it was tried: {sizes:?}");
        assert_eq!(sizes.last(), Some(&512));
        // And is forgotten with it.
        round_trips.round_trips(20, 0, ROUND_TRIP);
        assert!(round_trips.round_trips(4, 36, ROUND_TRIP) < 512);
    }

    // rule T14
    #[test]
    fn a_long_delay_shrinks_it_to_an_eighth_and_not_below() {
        let mut round_trips = RoundTrips::new(512);
        round_trips.round_trips(10, 0, ROUND_TRIP);
        assert_eq!(
            round_trips.round_trips(10, 0, Duration::from_millis(50)),
            512,
            "it may be that of a processor"
        );
        assert_eq!(round_trips.round_trips(70, 0, Duration::from_millis(100)), 64);
        // After ten seconds or twenty, that is how long round trips are.
        assert_eq!(round_trips.round_trips(1000, 0, Duration::from_millis(100)), 512);
    }

    // rule T14
    #[test]
    fn a_small_window_grows_to_an_eighth_whatever_the_delay() {
        let mut round_trips = RoundTrips::new(2048);
        round_trips.round_trip(0, ROUND_TRIP);
        round_trips.window.on_timeout(round_trips.now);
        assert_eq!(round_trips.round_trips(60, 0, Duration::from_millis(100)), 256);
    }

    // rule T15
    #[test]
    fn a_timeout_shrinks_it_and_the_first_answers_double_it_to_half() {
        let mut round_trips = RoundTrips::new(512);
        round_trips.round_trips(10, 0, ROUND_TRIP);
        for _ in 0..10 {
            round_trips.window.on_timeout(round_trips.now);
            assert_eq!(round_trips.window.packets(), 4);
        }
        assert_eq!(round_trips.round_trips(6, 0, ROUND_TRIP), 256);
        assert_eq!(round_trips.round_trips(16, 0, ROUND_TRIP), 512);
    }

    proptest! {
        // rules T3, T12
        #[test]
        fn it_never_leaves_its_bounds_and_finds_back(
            packets_max in 0u32..2000,
            events in prop::collection::vec((0u8..5, 0u64..40_000_000), 0..200),
        ) {
            let mut round_trips = RoundTrips::new(packets_max);
            let most = packets_max.max(1) as usize;
            for (event, nanos) in events {
                let before = round_trips.now;
                round_trips.now = round_trips.now + Duration::from_nanos(nanos);
                match event {
                    0 => round_trips.window.on_loss(),
                    1 => round_trips.window.on_timeout(round_trips.now),
                    2 => round_trips.window.on_full(),
                    _ => round_trips.window.on_answer(round_trips.now, before, event == 3),
                }
                let packets = round_trips.window.packets();
                prop_assert!((4.min(most)..=most).contains(&packets), "{packets} of {most}");
            }
            round_trips.now = round_trips.now + BASE_MEMORY * 2;
            round_trips.round_trips(2, 0, ROUND_TRIP);
            round_trips.now = round_trips.now + BASE_MEMORY * 2;
            prop_assert_eq!(round_trips.round_trips(1000, 0, ROUND_TRIP), most);
        }
    }
}
