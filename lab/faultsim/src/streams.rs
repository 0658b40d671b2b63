//! The streams between processes: ordered and reliable, as long as both ends are there.

use core::time::Duration;
use std::collections::VecDeque;

use libra_proto::{FIRST_BYTES_MAX, Instant, Link, REJOIN_BYTES_MAX, may_be_long};

use crate::network::Host;
use crate::process::{Actor, Item};

/// A machine that is gone sends nothing; this long after, the keep-alive of the other end notices.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(11);

/// One end of a stream.
#[derive(Debug)]
pub(crate) struct End {
    /// The process there, also when it is gone.
    pub(crate) actor: Actor,
    /// Link by which the process there refers to it.
    pub(crate) link: Link,
    /// True while the process there still has it.
    pub(crate) open: bool,
    /// True if the notice that the other end is gone is on its way here.
    pub(crate) closing: bool,
    /// No earlier than this arrives here what is sent later.
    pub(crate) clear_at: Instant,
    /// Messages that wait for a partition to end, and then for this end.
    pub(crate) held: VecDeque<Item>,
    /// Messages that arrived here while no acknowledgement of them could go back.
    pub(crate) unacknowledged: usize,
    /// True if the caller has named another shard of the process here, which is gone: what it sends reaches no member.
    pub(crate) is_missed: bool,
    /// Messages on their way here, held or not.
    pub(crate) waiting: usize,
    /// True if messages that are still on their way here are lost: the other end was reset.
    pub(crate) discards: bool,
    /// Limit of the next message of the other end.
    pub(crate) takes: Takes,
}

/// Limit of messages that one end of a stream accepts from the other, as the driver of real streams does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Everything: this end has opened it.
    All,
    /// The first message.
    First,
    /// Nothing until the role has admitted or refused the caller, which it must do in the same turn.
    Nothing,
    /// Messages of so many bytes.
    Bounded(usize),
}

impl Takes {
    /// A message comes. `None` if the driver of real streams would not have taken it.
    pub(crate) fn take(&mut self, message: &[u8]) -> Option<()> {
        // rules S1, S2
        let bytes_max = match *self {
            Self::All => usize::MAX,
            Self::First if message.first().is_some_and(|first| may_be_long(*first)) => REJOIN_BYTES_MAX,
            Self::First => FIRST_BYTES_MAX,
            Self::Nothing => return None,
            Self::Bounded(bytes_max) => bytes_max,
        };
        if *self == Self::First {
            *self = Self::Nothing;
        }
        (message.len() <= bytes_max).then_some(())
    }
}

/// A stream between two processes.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) ends: [End; 2],
}

/// Every stream that there ever was, by number.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
}

impl Streams {
    /// A new stream, opened by the first of the two.
    pub(crate) fn open(&mut self, now: Instant, ends: [(Actor, Link); 2]) -> usize {
        let end = |(actor, link): (Actor, Link)| End {
            actor,
            link,
            open: true,
            closing: false,
            clear_at: now,
            held: VecDeque::new(),
            unacknowledged: 0,
            is_missed: false,
            waiting: 0,
            discards: false,
            takes: if link.0 < Link::ACCEPTED { Takes::All } else { Takes::First },
        };
        self.all.push(Stream { ends: ends.map(end) });
        self.all.len() - 1
    }

    pub(crate) fn end(&mut self, stream: usize, end: usize) -> &mut End {
        &mut self.all[stream].ends[end]
    }

    /// The hosts of the two ends, this one first.
    pub(crate) fn hosts(&self, stream: usize, end: usize) -> (Host, Host) {
        let (near, far) = self.actors(stream, end);
        (near.host, far.host)
    }

    /// The processes of the two ends, this one first.
    pub(crate) fn actors(&self, stream: usize, end: usize) -> (Actor, Actor) {
        let ends = &self.all[stream].ends;
        (ends[end].actor, ends[1 - end].actor)
    }

    /// Streams whose ends match.
    pub(crate) fn find(&self, matches: impl Fn(&End, &End) -> bool) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (stream, Stream { ends: [first, second] }) in self.all.iter().enumerate() {
            if matches(first, second) {
                found.push((stream, 0));
            }
            if matches(second, first) {
                found.push((stream, 1));
            }
        }
        found
    }
}
