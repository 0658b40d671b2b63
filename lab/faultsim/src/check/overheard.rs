//! The datagrams that an eavesdropper on the path has seen: some of the first, and the last.

use std::collections::VecDeque;

use crate::network::Host;

/// Number of datagrams that are kept.
const KEPT: usize = 96;
/// Of them, those of the beginning.
const KEPT_EARLY: usize = 24;
/// Of so many one is seen.
const EVERY: u64 = 5;

/// A datagram as it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Overheard {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) bytes: Vec<u8>,
}

/// Those that were seen.
#[derive(Debug, Default)]
pub(crate) struct Eavesdropper {
    seen: VecDeque<Overheard>,
    sent: u64,
}

impl Eavesdropper {
    pub(super) fn listen(&mut self, from: Host, to: Host, datagram: &[u8]) {
        self.sent += 1;
        if !self.sent.is_multiple_of(EVERY) {
            return;
        }
        if self.seen.len() == KEPT {
            self.seen.remove(KEPT_EARLY);
        }
        self.seen.push_back(Overheard { from, to, bytes: datagram.to_vec() });
    }

    pub(crate) fn seen(&self) -> &VecDeque<Overheard> {
        &self.seen
    }
}
