//! The pushes and pulls of a worker that are under way, and how far each of them is.

use core::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::rows::HotRow;
use crate::client::{ClientError, Pulled};
use crate::time::Instant;

/// When a push counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Every row of it is acknowledged: by a switch, or applied by its shard.
    Accepted,
    /// Every row of it is applied, and its new value can be read.
    Visible,
}

/// The answer that a push asks for beside being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushAnswer {
    Level(Level),
    Values,
}

/// A push, a pull, or both in one trip.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) keys: Vec<u64>,
    /// The collected values; empty before the first have come.
    values: Vec<f32>,
    /// Number of values that there will be.
    expected: usize,
    /// The rows that packets of the hot path carry: a packet names a range of this list.
    pub(crate) hot: Vec<HotRow>,
    /// Packets and messages whose answers are still to come.
    pub(crate) missing: u32,
    /// The answer to a push; `None` for a pull.
    pub(crate) push: Option<PushAnswer>,
    /// Reason for which a shard refused a part of it as not finite; the first reason if there are more (rule C11).
    pub(crate) refused: Option<ClientError>,
    /// When it began, if it is timed.
    pub(crate) began: Option<Instant>,
}

impl Operation {
    /// An operation that waits for no answer yet.
    pub(crate) fn new(keys: Vec<u64>, expected: usize, hot: Vec<HotRow>, push: Option<PushAnswer>) -> Self {
        Self { keys, values: Vec::new(), expected, hot, missing: 0, push, refused: None, began: None }
    }

    /// The same, which is timed.
    pub(crate) fn begun(self, now: Instant) -> Self {
        Self { began: Some(now), ..self }
    }

    /// Returns the collected values.
    pub(crate) fn values(&mut self) -> &mut [f32] {
        if self.values.is_empty() {
            self.values = vec![0.0; self.expected];
        }
        &mut self.values
    }

    /// The hot rows, and where values are collected.
    pub(crate) fn hot_and_values(&mut self) -> (&[HotRow], &mut [f32]) {
        self.values();
        (&self.hot, &mut self.values)
    }

    /// Values have come that belong to these places. Those of all rows at once, as most pulls get them, are not copied.
    pub(crate) fn take_values(&mut self, values: Vec<f32>, spans: impl Iterator<Item = Range<usize>>) {
        let mut spans = spans.peekable();
        if self.values.is_empty() && spans.peek() == Some(&(0..self.expected)) {
            self.values = values;
            return;
        }
        let mut rest = values.as_slice();
        for span in spans {
            let (values, later) = rest.split_at(span.len());
            self.values()[span].copy_from_slice(values);
            rest = later;
        }
    }

    /// Keys and values, when there is no more to come.
    pub(crate) fn into_pulled(mut self) -> Pulled {
        self.values();
        Pulled { keys: self.keys, values: self.values }
    }

    /// Returns true if answers must hold the values of its rows.
    pub(crate) fn wants_values(&self) -> bool {
        !matches!(self.push, Some(PushAnswer::Level(_)))
    }
}

/// The operations under way, by the number their caller gave them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operations {
    open: HashMap<u64, Operation, FixedState>,
}

impl Operations {
    pub(crate) fn insert(&mut self, number: u64, operation: Operation) {
        let before = self.open.insert(number, operation);
        assert!(before.is_none(), "the caller numbers its operations without repeating itself");
    }

    pub(crate) fn operation(&mut self, number: u64) -> &mut Operation {
        self.open.get_mut(&number).expect("an operation stays open while it misses an answer")
    }

    /// Returns true if no operation is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns true if an operation of this number misses an answer.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// The pushes that are not acknowledged in full.
    pub(crate) fn pushes(&self) -> impl Iterator<Item = u64> {
        self.open.iter().filter(|(_, operation)| operation.push.is_some()).map(|(number, _)| *number)
    }

    /// One answer of the operation has come. Returns the operation if that was the last.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Operation> {
        let operation = self.operation(number);
        operation.missing -= 1;
        if operation.missing == 0 { self.open.remove(&number) } else { None }
    }
}
