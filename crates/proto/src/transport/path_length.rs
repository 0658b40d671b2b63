//! The longest packets that come through a path and back, found by probes (rule T19): path MTU discovery without a word of routers
//! (RFC 8899).

use core::time::Duration;
use std::collections::VecDeque;

use libra_dataplane::mutants::{Mutant, is_enabled};

use crate::time::Instant;

/// Interval of the probes of a search.
const INTERVAL: Duration = Duration::from_millis(50);
/// Entries of the short probe that goes with each long one.
pub(super) const SHORT: u8 = 1;
/// Answers to short probes, none to the long ones sent with them, after which the job's longest packets are taken for too long. A network
/// that loses long packets as it does short ones looks so once in 2^20 searches.
const SILENT_MAX: usize = 20;
/// The same of lengths between, once that is known.
const STEP_SILENT_MAX: usize = 10;
/// Short probes that may be answered, at most: those of 3 s.
const ASKED_MAX: usize = 60;

/// The length of packets of one worker on its path to one switch.
#[derive(Debug, Clone)]
pub(crate) struct PathLength {
    /// Entries of the longest packets of the job.
    most: u8,
    /// True if packets are to be as long as the path allows; else all have the length of the job.
    is_adaptive: bool,
    /// Entries that a packet may have.
    usable: u8,
    /// The most entries that came through since the search began.
    passes: u8,
    /// The fewest that do not come through, as far as is known.
    fails: Option<u8>,
    /// The short probes that went with those of the length in question, by region and number.
    asked: VecDeque<(u8, u32)>,
    /// Answers to them, while none to a long one came.
    silent: usize,
    /// Time of the next probes; none: the search is over.
    due: Option<Instant>,
    is_due: bool,
    /// Entries that packets were last reported to have.
    reported: u8,
}

impl PathLength {
    /// A length that is not looked for.
    pub(crate) fn given() -> Self {
        Self { usable: u8::MAX, ..Self::new(SHORT, false) }
    }

    /// The length of a new path in a job whose packets have so many entries at most. No packet goes there before a length is known, if it
    /// is adaptive: packets never change once they have a number (rule T1).
    pub(crate) fn new(most: u8, is_adaptive: bool) -> Self {
        let is_unknown = is_adaptive && most > SHORT && !is_enabled(Mutant::PathTakenForWide);
        Self {
            most,
            is_adaptive,
            usable: if is_unknown { 0 } else { most },
            passes: 0,
            fails: None,
            asked: VecDeque::new(),
            silent: 0,
            due: (most > SHORT).then_some(Instant::ZERO),
            is_due: false,
            reported: most,
        }
    }

    /// Entries that a packet may have; none before any is known to come through.
    pub(crate) const fn usable(&self) -> u8 {
        self.usable
    }

    /// Returns true if packets of the job may be too long.
    pub(super) const fn is_reduced(&self) -> bool {
        self.is_adaptive && self.due.is_none() && self.usable < self.most
    }

    /// Returns the entries that packets had and those that they have, once for each search that has changed them.
    pub(crate) fn take_change(&mut self) -> Option<(u8, u8)> {
        let is_changed = self.is_adaptive && self.due.is_none() && self.usable != self.reported;
        is_changed.then(|| (core::mem::replace(&mut self.reported, self.usable), self.usable))
    }

    /// Returns the most entries that come through and the fewest that do not, if a search has shown that packets of the job are too long.
    pub(crate) fn too_short(&self) -> Option<(u8, u8)> {
        self.fails.filter(|_| self.due.is_none()).map(|fails| (self.passes, fails))
    }

    /// Begins a search, unless one is under way, has ended the job, or no length is looked for: a packet stays without an answer.
    pub(super) fn suspect(&mut self) {
        if self.due.is_none() && self.most > SHORT && (self.is_adaptive || self.fails.is_none()) {
            (self.passes, self.fails, self.due) = (0, None, Some(Instant::ZERO));
            self.ask_anew();
        }
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Draws the conclusions of a silence; then probes are due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let silent_max = if self.fails.is_some() { STEP_SILENT_MAX } else { SILENT_MAX };
        if self.silent >= silent_max {
            self.fails = Some(self.question());
            self.ask_anew();
        }
        if self.fails == Some(self.passes + 1) {
            self.due = None;
            if self.is_adaptive {
                self.usable = self.passes;
            }
        } else {
            (self.due, self.is_due) = (Some(now + INTERVAL), true);
        }
    }

    /// Returns the entries of the long probe that is to be sent now, if one is.
    pub(super) fn take_due(&mut self) -> Option<u8> {
        core::mem::take(&mut self.is_due).then(|| self.question())
    }

    /// A short probe with this number was sent with a long one.
    pub(super) fn asked(&mut self, region: u8, seq: u32) {
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((region, seq));
    }

    /// A probe of so many entries came back.
    pub(super) fn answered(&mut self, region: u8, seq: u32, entries: u8) {
        if self.due.is_none() {
            return;
        }
        let question = self.question();
        if entries > self.passes {
            self.passes = entries.min(self.most);
            if self.is_adaptive {
                self.usable = self.usable.max(self.passes);
            }
        }
        if entries > SHORT && entries >= question {
            self.ask_anew();
        }
        if self.fails.is_some_and(|fails| fails <= self.passes) {
            self.fails = None;
        }
        if self.passes == self.most {
            self.due = None;
        } else if let Some(place) = self.asked.iter().position(|asked| *asked == (region, seq)) {
            self.asked.remove(place);
            self.silent += 1;
        }
    }

    /// The entries of the length in question: the longest, then by halves.
    const fn question(&self) -> u8 {
        match self.fails {
            Some(fails) => self.passes.midpoint(fails),
            None => self.most,
        }
    }

    /// What was answered so far says nothing of the next length.
    fn ask_anew(&mut self) {
        self.asked.clear();
        self.silent = 0;
    }
}

#[cfg(test)]
mod tests;
