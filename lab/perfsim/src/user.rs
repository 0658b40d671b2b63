//! The user of a worker: it keeps some pushes under way, and records their completions.

use std::collections::{BTreeMap, VecDeque};

use libra_proto::{Instant, Level, WorkerCommand, WorkerEvent};

use crate::costs::{CostKind, Work};
use crate::member::Pid;
use crate::trace::Pushes;

/// A push that is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Done {
    pub(crate) begun: Instant,
    pub(crate) at: Instant,
    pub(crate) pairs: u64,
}

/// The thread that has the handle of a worker.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) worker: Pid,
    pushes: Pushes,
    open_max: usize,
    started: bool,
    /// True if there is nothing more to push.
    exhausted: bool,
    numbered: u64,
    open: BTreeMap<u64, (Instant, u64)>,
    pub(crate) done: Vec<Done>,
    /// The reason why it cannot go on, if it cannot.
    pub(crate) failed: Option<String>,
}

impl User {
    pub(crate) fn new(worker: Pid, pushes: Pushes, open_max: usize) -> Self {
        let (open, done) = (BTreeMap::new(), Vec::new());
        Self {
            worker,
            pushes,
            open_max,
            started: false,
            exhausted: false,
            numbered: 0,
            open,
            done,
            failed: None,
        }
    }

    /// True if it has pushed something.
    pub(crate) fn has_begun(&self) -> bool {
        self.numbered > 0
    }

    /// True if all that it had to push is done.
    pub(crate) fn is_done(&self) -> bool {
        self.exhausted && self.open.is_empty()
    }

    /// Takes an event of its worker, or begins the next push. `None` if it waits.
    pub(crate) fn next_turn(
        &mut self,
        now: Instant,
        events: &mut VecDeque<WorkerEvent>,
    ) -> Option<(Work, Option<WorkerCommand>)> {
        let mut work = Work::default();
        for event in events.drain(..) {
            work += Work::of(CostKind::Command, 0.5);
            match event {
                WorkerEvent::Started { .. } => self.started = true,
                WorkerEvent::Pushed { number } => {
                    if let Some((begun, pairs)) = self.open.remove(&number) {
                        self.done.push(Done { begun, at: now, pairs });
                    }
                }
                WorkerEvent::Refused { error, .. } => self.failed = Some(error.to_string()),
                WorkerEvent::Ended { reason, .. } => self.failed = Some(reason),
                _ => {}
            }
        }
        if !self.started || self.failed.is_some() || self.open.len() >= self.open_max {
            return (work != Work::default()).then_some((work, None));
        }
        let Some(push) = self.pushes.0.next() else {
            self.exhausted = true;
            return (work != Work::default()).then_some((work, None));
        };
        self.numbered += 1;
        let pairs = push.pairs;
        self.open.insert(self.numbered, (now, pairs));
        work += Work::of(CostKind::Command, 0.5)
            .with(CostKind::Pair, pairs as f64)
            .with(CostKind::Value, push.gradients.len() as f64);
        let command = WorkerCommand::Push {
            number: self.numbered,
            keys: push.keys,
            gradients: push.gradients,
            level: Level::Accepted,
        };
        Some((work, Some(command)))
    }
}
