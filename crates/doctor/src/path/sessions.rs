//! Sessions of a listener. It computes only: what comes, and the time, are arguments.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::time::Instant;

use super::wire::{Answer, Counts, Kind, NoProbe, Probe, Question};

/// Callers that have a session at the same time.
pub(super) const SESSIONS_MAX: usize = 8;
/// Probes of a session that come back; later ones are counted as foreign.
pub(super) const ECHOES_MAX: u32 = 4096;

/// Sessions, and what came of each. None but their probes are answered, and none by more bytes than it has.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<u64, Session>,
}

#[derive(Debug)]
struct Session {
    counts: Counts,
    /// Of all numbers below [`ECHOES_MAX`], whether it came.
    came: Vec<bool>,
    next: u32,
    echoes: u32,
    counted: Option<(Instant, Instant)>,
    /// Of the kernel, for all sockets, when it began.
    kernel_errors: u64,
}

impl Sessions {
    /// Opens a session with a number that strangers cannot guess.
    pub(super) fn open(&mut self, session: u64, caller: SocketAddr, kernel_errors: u64) -> Answer {
        if self.open.len() >= SESSIONS_MAX || self.open.contains_key(&session) {
            return Answer::Busy;
        }
        let state = Session {
            counts: Counts::default(),
            came: vec![false; ECHOES_MAX as usize],
            next: 0,
            echoes: 0,
            counted: None,
            kernel_errors,
        };
        self.open.insert(session, state);
        Answer::Welcome { session, caller }
    }

    /// Answers a later question of a session.
    pub(super) fn answer(&self, session: u64, question: Question, kernel_errors: u64) -> Option<Answer> {
        let state = self.open.get(&session)?;
        match question {
            Question::Hello => None,
            Question::Counts => {
                let refused = kernel_errors.saturating_sub(state.kernel_errors);
                let corrupted = state.counts.corrupted + refused;
                Some(Answer::Counts(Counts { corrupted, ..state.counts }))
            }
        }
    }

    pub(super) fn close(&mut self, session: u64) {
        self.open.remove(&session);
    }

    /// Counts a datagram. Returns true if it is to be returned; its bytes are the answer then.
    pub(super) fn datagram(&mut self, now: Instant, from: SocketAddr, bytes: &mut [u8]) -> bool {
        let probe = match Probe::read(bytes) {
            Ok(probe) => probe,
            Err(NoProbe::Foreign) => return false,
            // Its session may be wrong, too: it counts for all.
            Err(NoProbe::Corrupted) => {
                self.open.values_mut().for_each(|session| session.counts.corrupted += 1);
                return false;
            }
        };
        let Some(session) = self.open.get_mut(&probe.session) else { return false };
        match probe.kind {
            Kind::Echo => {
                session.echo(&probe, bytes.len()) && {
                    Probe { kind: Kind::Echoed, caller: Some(from), ..probe }.write(bytes);
                    true
                }
            }
            Kind::Count => {
                session.count(now, bytes.len());
                false
            }
            Kind::Echoed => false,
        }
    }
}

impl Session {
    fn echo(&mut self, probe: &Probe, length: usize) -> bool {
        let Some(came) = self.came.get_mut(probe.number as usize) else { return false };
        if self.echoes >= ECHOES_MAX {
            return false;
        }
        self.echoes += 1;
        if *came {
            self.counts.duplicates += 1;
        } else {
            self.counts.arrived += 1;
            self.counts.reordered += u32::from(probe.number < self.next);
        }
        *came = true;
        self.next = self.next.max(probe.number + 1);
        self.see(length);
        true
    }

    fn count(&mut self, now: Instant, length: usize) {
        match &mut self.counted {
            None => self.counted = Some((now, now)),
            Some((first, last)) => {
                *last = now;
                self.counts.counted_bytes += length as u64;
                self.counts.counted_ns = u64::try_from((now - *first).as_nanos()).unwrap_or(u64::MAX);
            }
        }
        self.see(length);
    }

    fn see(&mut self, length: usize) {
        self.counts.longest = self.counts.longest.max(u16::try_from(length).unwrap_or(u16::MAX));
    }
}
