//! The policy of the loop that drives a role: which inputs it takes in a turn, how many of them, and the order of the outputs.
//!
//! All drivers share it, those over sockets (`libra-net`) and those in virtual time (`libra-faultsim`, `libra-perfsim`), so that a
//! simulation runs the loop that ships. A turn takes inputs of one kind, at most as many as the constants here say, so that no kind
//! starves the others; then it [drains](Drain) the role.

use crate::role::{Action, Outgoing, Role};
use crate::time::Instant;

/// Runs of datagrams that one receive call takes. Few, so that the first answers leave before the last requests are read: 16 made a
/// step of training 2% longer, and doubled what a lost packet adds to it; 8 costs no more than 4.
pub const RECEIVED_RUNS_MAX: usize = 8;
/// Messages and events of streams that a turn takes.
pub const STREAM_INPUTS_MAX: usize = 64;
/// Datagrams that a kernel takes or gives in one piece, from Linux 6.10 on.
pub const RUN_DATAGRAMS_MAX: usize = 128;
/// Bytes that a kernel takes in one piece, whatever the size of a datagram.
pub const RUN_BYTES_MAX: usize = 65_000;
/// Turns in a row that read datagrams although a timer is due.
const READS_BEFORE_TIMER_MAX: usize = 64;

/// The order of datagrams and of a timer that is due.
///
/// A thread that waited for a processor finds both, and the timer may be for what the datagrams bring: they are read first, a bounded
/// number of times.
#[derive(Debug, Clone, Copy, Default)]
pub struct DueTimer {
    reads: usize,
}

impl DueTimer {
    /// Returns true if datagrams that are there come before the timer.
    pub fn lets_datagrams_pass(&self) -> bool {
        self.reads < READS_BEFORE_TIMER_MAX
    }

    /// Counts a turn that read datagrams before the timer.
    pub fn datagrams_passed(&mut self) {
        self.reads += 1;
    }

    /// Starts again: the timer is handed in.
    pub fn fired(&mut self) {
        self.reads = 0;
    }
}

/// An output of a role.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are actions")]
pub enum Output<E> {
    /// Datagrams to send. They are in the buffer that was given to [`Drain::next`], which the driver leaves empty.
    Datagrams,
    /// A request about a stream.
    Action(Action),
    /// An event for the user of the role.
    Event(E),
}

impl<E> Output<E> {
    /// Returns the same output with its event converted.
    pub fn map_event<F>(self, convert: impl FnOnce(E) -> F) -> Output<F> {
        match self {
            Self::Datagrams => Output::Datagrams,
            Self::Action(action) => Output::Action(action),
            Self::Event(event) => Output::Event(convert(event)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Datagrams,
    Actions,
    Events,
}

/// All outputs of a role after a turn's inputs: datagrams, then actions, then events.
///
/// Datagrams come first since others wait for them, events last since the user may end the loop.
#[derive(Debug)]
pub struct Drain {
    stage: Stage,
}

impl Drain {
    /// Begins with datagrams.
    pub fn new() -> Self {
        Self { stage: Stage::Datagrams }
    }

    /// Begins with actions: there is no socket for datagrams.
    pub fn without_datagrams() -> Self {
        Self { stage: Stage::Actions }
    }

    /// Returns the next output, or `None` after the last one. `outgoing` must be empty.
    pub fn next<R: Role>(
        &mut self,
        role: &mut R,
        now: Instant,
        outgoing: &mut Outgoing,
    ) -> Option<Output<R::Event>> {
        if self.stage == Stage::Datagrams {
            debug_assert!(outgoing.is_empty(), "the driver has sent the burst before");
            role.poll_transmit(now, outgoing);
            if !outgoing.is_empty() {
                return Some(Output::Datagrams);
            }
            self.stage = Stage::Actions;
        }
        if self.stage == Stage::Actions {
            if let Some(action) = role.poll_action() {
                return Some(Output::Action(action));
            }
            self.stage = Stage::Events;
        }
        role.poll_event().map(Output::Event)
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_pass_a_due_timer_a_bounded_number_of_times() {
        let mut timer = DueTimer::default();
        let mut passed = 0;
        while timer.lets_datagrams_pass() {
            timer.datagrams_passed();
            passed += 1;
        }
        assert_eq!(passed, READS_BEFORE_TIMER_MAX);
        timer.fired();
        assert!(timer.lets_datagrams_pass());
    }
}
