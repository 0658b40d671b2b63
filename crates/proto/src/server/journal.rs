//! Log records of a server, written before it answers: everything that changes its state, in the order in which it was applied.

use std::collections::VecDeque;

use libra_dataplane::mutants::{Mutant, is_enabled};
use serde::{Deserialize, Serialize};

use crate::bulk::{Bulk, BulkOf, encode_onto};
use crate::cluster::View;
use crate::keys::Keys;
use crate::message::{Assign, Drained, Replay, Reset, RoundContents};
use crate::storage::StorageRequest;

/// A record of the log: applied to the state before, it gives the state after, to the bit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) enum Record {
    View(View),
    Push { worker: u16, number: u64, keys: Keys, gradients: Bulk<f32> },
    Round(Drained),
    Replay { worker: u16, replay: Replay },
    Forgotten { region: u8, round: u64, contents: RoundContents },
    Evicted { keys: Bulk<u64> },
    Assign { worker: u16, assign: Assign },
    Reset { worker: u16, reset: Reset },
}

/// A [`Record`] of what is elsewhere. Must be serialized as that is.
#[derive(Debug, Serialize)]
pub(super) enum RecordOf<'a> {
    View(&'a View),
    Push { worker: u16, number: u64, keys: &'a Keys, gradients: BulkOf<'a, f32> },
    Round(&'a Drained),
    Replay { worker: u16, replay: &'a Replay },
    Forgotten { region: u8, round: u64, contents: &'a RoundContents },
    Evicted { keys: BulkOf<'a, u64> },
    Assign { worker: u16, assign: &'a Assign },
    Reset { worker: u16, reset: &'a Reset },
}

impl RecordOf<'_> {
    /// Bytes that the record takes, or a few more; of what is rare a guess.
    fn bytes_about(&self) -> usize {
        let large = match self {
            Self::Push { keys, gradients, .. } => keys.bytes() + 4 * gradients.0.len(),
            Self::Round(drained) => drained.bytes_about(),
            Self::Replay { replay, .. } => replay.bytes_about(),
            Self::Forgotten { contents, .. } => contents.bytes_about(),
            Self::Evicted { keys } => 8 * keys.0.len(),
            Self::Assign { assign, .. } => assign.bytes_about(),
            Self::View(_) | Self::Reset { .. } => 0,
        };
        large + 64
    }
}

/// State of the log, and the records that wait for it.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    mode: Mode,
    /// Records are numbered without gaps, written or not.
    newest: u64,
    durable: u64,
    /// Bytes of records: all, those before the checkpoint that is being written, and those that one covers that is there.
    written: u64,
    begun: u64,
    covered: u64,
    pub(super) requests: VecDeque<StorageRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// There is no log.
    Off,
    On,
    /// The disk does not take it. Nothing waits for it, and nothing is written (rule L6).
    Suspended,
    /// As suspended, but a checkpoint is on its way that the log can restart after.
    Resuming,
    /// The checkpoint is there, and the log was asked to restart. It is asked once, however long it takes: what was appended since would
    /// be lost if it restarted once more.
    Restarting,
}

impl Journal {
    /// A log that goes on after a record.
    pub(super) fn new(is_on: bool, newest: u64) -> Self {
        let mode = if is_on { Mode::On } else { Mode::Off };
        Self { mode, newest, durable: newest, written: 0, begun: 0, covered: 0, requests: VecDeque::new() }
    }

    /// As if the log were durable only up to a record: the disk has not taken what was read after it.
    pub(super) fn with_durable(self, durable: u64) -> Self {
        Self { durable: durable.min(self.newest), ..self }
    }

    /// As if so many bytes were written since the newest checkpoint.
    pub(super) fn with_bytes(self, written: u64) -> Self {
        Self { written, ..self }
    }

    /// Writes a record. Replies that follow from it may be sent when [`Journal::has`] the newest record.
    pub(super) fn write(&mut self, record: &RecordOf<'_>) {
        self.newest += 1;
        if matches!(self.mode, Mode::On | Mode::Resuming | Mode::Restarting) {
            let record = encode_onto(Vec::with_capacity(record.bytes_about()), record);
            self.written += record.len() as u64;
            self.requests.push_back(StorageRequest::Append { number: self.newest, record });
        }
    }

    /// The newest record.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Bytes that no checkpoint covers.
    pub(super) fn bytes(&self) -> u64 {
        self.written - self.covered
    }

    /// Returns true if everything up to a record survives the server, as far as it is to.
    pub(super) fn has(&self, record: u64) -> bool {
        record <= self.kept()
    }

    /// The newest record that it has: beyond all of them if nothing waits for the disk.
    pub(super) fn kept(&self) -> u64 {
        let waits = self.mode == Mode::On && !is_enabled(Mutant::AnswerBeforeDurable);
        if waits { self.durable } else { u64::MAX }
    }

    /// The log is durable up to here.
    pub(super) fn synced(&mut self, record: u64) {
        if self.mode == Mode::Restarting {
            self.mode = Mode::On;
        }
        self.durable = self.durable.max(record.min(self.newest));
    }

    /// The disk does not take the log.
    pub(super) fn suspend(&mut self) {
        if self.mode != Mode::Off {
            self.mode = Mode::Suspended;
        }
    }

    /// Returns true if a crash now would lose what was answered, though there should be a log.
    pub(super) fn is_suspended(&self) -> bool {
        matches!(self.mode, Mode::Suspended | Mode::Resuming | Mode::Restarting)
    }

    /// Returns true if the log was asked to restart, and has not reported yet that it did.
    pub(super) fn is_restarting(&self) -> bool {
        self.mode == Mode::Restarting
    }

    /// A checkpoint of this moment begins: the log may go on after it.
    pub(super) fn checkpoint_begins(&mut self) {
        self.begun = self.written;
        if self.mode == Mode::Suspended {
            self.mode = Mode::Resuming;
        }
    }

    /// A checkpoint that covers a record is there, or it failed.
    pub(super) fn checkpoint_ended(&mut self, covers: Option<u64>) {
        if covers.is_some() {
            self.covered = self.begun;
        }
        if self.mode == Mode::Resuming {
            match covers {
                Some(covers) => {
                    self.requests.push_back(StorageRequest::RestartLog { from: covers + 1 });
                    self.mode = Mode::Restarting;
                }
                None => self.mode = Mode::Suspended,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Ownership;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let view =
            View { number: 3, ownerships: vec![Ownership { owner: Some(1), view_id: 2 }], ..View::default() };
        let (keys, gradients) = (Keys::from([1u64, 9].as_slice()), vec![0.5, -1.0]);
        let contents = RoundContents::default();
        let drained = Drained {
            region: 1,
            view_id: 2,
            round: 3,
            contents: contents.clone(),
            slots: vec![(0, 2)],
            sums: Bulk(vec![1, 2]),
        };
        let replay = Replay { region: 1, view_id: 4, below: 5, packets: vec![Bulk(vec![1, 2, 3])] };
        let assign = Assign {
            number: 4,
            table: 1,
            keys: keys.clone(),
            values: Bulk(vec![0.5, 1.0]),
            states: Bulk(vec![2.0, 3.0]),
        };
        let reset = Reset { number: 5, table: 1, steps: 6 };
        let pairs = [
            (RecordOf::View(&view), Record::View(view.clone())),
            (
                RecordOf::Push { worker: 2, number: 7, keys: &keys, gradients: BulkOf(&gradients) },
                Record::Push { worker: 2, number: 7, keys: keys.clone(), gradients: Bulk(gradients.clone()) },
            ),
            (RecordOf::Round(&drained), Record::Round(drained.clone())),
            (
                RecordOf::Replay { worker: 2, replay: &replay },
                Record::Replay { worker: 2, replay: replay.clone() },
            ),
            (
                RecordOf::Forgotten { region: 1, round: 9, contents: &contents },
                Record::Forgotten { region: 1, round: 9, contents: contents.clone() },
            ),
            (RecordOf::Evicted { keys: BulkOf(&[5, 3]) }, Record::Evicted { keys: Bulk(vec![5, 3]) }),
            (
                RecordOf::Assign { worker: 2, assign: &assign },
                Record::Assign { worker: 2, assign: assign.clone() },
            ),
            (RecordOf::Reset { worker: 2, reset: &reset }, Record::Reset { worker: 2, reset: reset.clone() }),
        ];
        for (written, read) in pairs {
            let bytes = encode_onto(Vec::new(), &written);
            assert!(bytes.len() <= written.bytes_about(), "{written:?}");
            assert_eq!(postcard::from_bytes::<Record>(&bytes).unwrap(), read);
        }
    }
}
