//! A stream that is opened again when it breaks.

use core::time::Duration;

use libra_dataplane::mutants::{Mutant, is_enabled};

use crate::role::{Action, Callee, Link};
use crate::time::Instant;

/// Pause before a stream that broke is opened again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// An attempt, or the pause before one, counts as no more than this: drivers give up sooner.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

/// One end of a connection to a peer, over one stream after another.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    to: Callee,
    /// Time for which it tries to reach the peer before it gives up ([`Cluster::return_max`](crate::Cluster::return_max)).
    return_max: Duration,
    /// The present stream, open or on its way.
    link: Option<Link>,
    is_open: bool,
    retry_at: Option<Instant>,
    /// Since when there is no open stream.
    lost_at: Option<Instant>,
    /// Up to when it was tried to open one, and for how long in all.
    tried_at: Instant,
    tried: Duration,
}

/// Numbers the streams that a role opens.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkNumbers(u64);

impl LinkNumbers {
    fn next(&mut self) -> Link {
        let link = Link(self.0);
        self.0 += 1;
        assert!(self.0 < Link::ACCEPTED, "a role opens fewer than 2^63 streams");
        link
    }
}

impl Dial {
    pub(crate) fn new(to: Callee, return_max: Duration) -> Self {
        Self {
            to,
            return_max,
            link: None,
            is_open: false,
            retry_at: None,
            lost_at: None,
            tried_at: Instant::ZERO,
            tried: Duration::ZERO,
        }
    }

    pub(crate) fn return_max(&self) -> Duration {
        self.return_max
    }

    pub(crate) fn set_return_max(&mut self, return_max: Duration) {
        self.return_max = return_max;
    }

    pub(crate) fn callee(&self) -> Callee {
        self.to
    }

    /// The peer is at another address from now on: the stream to the one before is given up, and the next is due at once. Nothing happens
    /// if it is the same address.
    pub(crate) fn move_to(&mut self, now: Instant, to: Callee) -> Option<Action> {
        if to == self.to || is_enabled(Mutant::OldAddressCalled) {
            return None;
        }
        self.to = to;
        self.wait_longer();
        let before = self.hang_up();
        self.lost_at.get_or_insert(now);
        self.tried_at = now;
        self.retry_at = Some(now);
        before
    }

    /// Begins to open a stream.
    pub(crate) fn connect(&mut self, now: Instant, numbers: &mut LinkNumbers) -> Action {
        let link = numbers.next();
        self.link = Some(link);
        self.is_open = false;
        self.retry_at = None;
        self.try_until(now);
        Action::Connect { link, to: self.to }
    }

    pub(crate) fn is(&self, link: Link) -> bool {
        self.link == Some(link)
    }

    /// The stream, if something can be sent on it.
    pub(crate) fn open_link(&self) -> Option<Link> {
        self.link.filter(|_| self.is_open)
    }

    pub(crate) fn opened(&mut self) {
        self.is_open = true;
        self.lost_at = None;
        self.tried = Duration::ZERO;
    }

    /// The stream is gone. `false` if the peer was out of reach for too long: it will not be opened again.
    pub(crate) fn closed(&mut self, now: Instant) -> bool {
        self.link = None;
        self.is_open = false;
        self.try_until(now);
        let go_on = self.tried < self.return_max;
        self.retry_at = go_on.then_some(now + RETRY_PAUSE);
        go_on
    }

    /// Counts the time since the last attempt began or ended. Of one that took longer than any does this process has slept through a part, and
    /// no member is to blame for that (rule M13).
    fn try_until(&mut self, now: Instant) {
        let most = if is_enabled(Mutant::WakeUpBlamesOthers) { Duration::MAX } else { ATTEMPT_MAX };
        if self.lost_at.replace(self.lost_at.unwrap_or(now)).is_some() {
            self.tried += now.since(self.tried_at).min(most);
        }
        self.tried_at = now;
    }

    /// The peer is about to be back: it has the whole time again.
    pub(crate) fn wait_longer(&mut self) {
        self.tried = Duration::ZERO;
    }

    /// Returns the time since there was a stream.
    pub(crate) fn lost_for(&self, now: Instant) -> Duration {
        self.lost_at.map_or(Duration::ZERO, |lost_at| now.since(lost_at))
    }

    /// Gives the stream up.
    pub(crate) fn hang_up(&mut self) -> Option<Action> {
        self.retry_at = None;
        self.is_open = false;
        self.link.take().map(|link| Action::Close { link })
    }

    /// Opens the stream again if it is time.
    pub(crate) fn handle_timeout(&mut self, now: Instant, numbers: &mut LinkNumbers) -> Option<Action> {
        self.retry_at.is_some_and(|due| due <= now).then(|| self.connect(now, numbers))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::RETURN_MAX;

    fn lost(now: Instant) -> (Dial, LinkNumbers) {
        let (mut dial, mut numbers) = (Dial::new(Callee::Controller, RETURN_MAX), LinkNumbers::default());
        dial.connect(now, &mut numbers);
        dial.opened();
        assert!(dial.closed(now));
        (dial, numbers)
    }

    // rule M13
    #[test]
    fn time_that_was_slept_is_no_time_in_which_a_peer_was_called() {
        let day = Duration::from_secs(86_400);
        let (mut dial, mut numbers) = lost(Instant::ZERO);
        // Before an attempt, and in the middle of one.
        assert!(dial.handle_timeout(Instant::ZERO + day, &mut numbers).is_some());
        assert!(dial.closed(Instant::ZERO + day * 2));
        assert!(dial.poll_timeout().is_some());
    }

    #[test]
    fn a_peer_that_refuses_for_30_s_is_given_up() {
        let (mut dial, mut numbers) = lost(Instant::ZERO);
        let mut now = Instant::ZERO;
        while let Some(due) = dial.poll_timeout() {
            now = due;
            assert!(dial.handle_timeout(now, &mut numbers).is_some());
            dial.closed(now);
        }
        assert_eq!(now, Instant::ZERO + RETURN_MAX);
    }
}
