//! The clock of a worker: the ticks that it reports, and the least clock of all workers.

use crate::message::Message;

/// A tick of the clock: the barrier before which it is, and which one, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TickNumber {
    barrier: u64,
    number: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    /// Number of barriers that this worker has passed, or was not there for: the number of the next one.
    barriers: u64,
    /// Ticks since then, and how many of them count.
    ticks: u64,
    done: u64,
    /// The least clock of all workers that train.
    least: u64,
}

impl Clock {
    /// Behind so many barriers a clock restarts.
    pub(super) fn behind(barriers: u64) -> Self {
        Self { barriers, ..Self::default() }
    }

    pub(super) fn barriers(&self) -> u64 {
        self.barriers
    }

    /// The clock goes on from this, if it is behind, and all ticks so far count. Returns by how much it has advanced.
    pub(super) fn go_on_from(&mut self, clock: u64) -> u64 {
        if self.done < self.ticks || clock <= self.ticks {
            return 0;
        }
        let skipped = clock - self.ticks;
        (self.ticks, self.done) = (clock, clock);
        skipped
    }

    /// One more tick, which does not count yet.
    pub(super) fn tick(&mut self) -> TickNumber {
        self.ticks += 1;
        TickNumber { barrier: self.barriers, number: self.ticks }
    }

    /// Returns true if a tick is the next one to count.
    pub(super) fn is_next(&self, tick: TickNumber) -> bool {
        tick == TickNumber { barrier: self.barriers, number: self.done + 1 }
    }

    /// A tick counts, and so do all before it. Returns the message for the controller, if the clock has changed.
    pub(super) fn done(&mut self, tick: TickNumber) -> Option<Message> {
        // One from before a barrier that was passed meanwhile changes nothing.
        let is_news = tick.barrier == self.barriers && tick.number > self.done;
        if is_news {
            self.done = tick.number;
        }
        self.message().filter(|_| is_news)
    }

    /// Returns the message for a controller that has received nothing of it.
    pub(super) fn message(&self) -> Option<Message> {
        (self.done > 0).then_some(Message::Clock { barrier: self.barriers, clock: self.done })
    }

    /// All workers that train before a barrier have reached this. Whether that is news.
    pub(super) fn learn(&mut self, barrier: u64, least: u64) -> bool {
        // It may come twice, from the controller before and from the one that took over, and behind a barrier.
        let is_news = barrier == self.barriers && least > self.least;
        if is_news {
            self.least = least;
        }
        is_news
    }
}
