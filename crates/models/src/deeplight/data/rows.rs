//! Rows of a log, one after the other.

use std::{ops::Range, sync::Arc};

use super::{Dataset, Log, Vocabulary, file::RowReader, vocabulary::Value};
use crate::data::DataError;

/// A row as it stands in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RawRow {
    pub(super) clicked: bool,
    pub(super) values: Vec<Value>,
}

/// A row whose values are rows of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) clicked: bool,
    /// The rows of parameters: one of each field in their order, or a bag.
    pub(crate) parameters: Vec<u32>,
}

/// Rows that are held in memory.
#[derive(Debug, Default)]
pub(super) struct Held {
    clicked: Vec<bool>,
    /// End of each row in `parameters`.
    ends: Vec<usize>,
    parameters: Vec<u32>,
}

impl Held {
    /// All rows that `walk` visits.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        walk: impl FnOnce(&mut dyn FnMut(&RawRow)) -> Result<(), DataError>,
    ) -> Result<Self, DataError> {
        let mut held = Self::default();
        walk(&mut |row| {
            held.clicked.push(row.clicked);
            held.parameters.extend(row.values.iter().map(|&value| vocabulary.row(value)));
            held.ends.push(held.parameters.len());
        })?;
        Ok(held)
    }

    /// Replaces `row` by the row of this number.
    pub(super) fn read(&self, number: usize, row: &mut Row) {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        row.clicked = self.clicked[number];
        row.parameters.clear();
        row.parameters.extend_from_slice(&self.parameters[start..self.ends[number]]);
    }
}

/// Reads a run of rows, wherever they are.
pub(crate) struct Cursor {
    dataset: Arc<Dataset>,
    rest: Range<usize>,
    reader: Option<RowReader>,
    raw: RawRow,
}

impl Cursor {
    /// The rows with numbers in `range`.
    pub(crate) fn new(dataset: &Arc<Dataset>, range: Range<usize>) -> Result<Self, DataError> {
        let reader = match &dataset.log {
            Log::Held(_) => None,
            Log::File(_) if range.is_empty() => None,
            Log::File(file) => Some(file.at(range.start)?),
        };
        Ok(Self { dataset: dataset.clone(), rest: range, reader, raw: RawRow::default() })
    }

    /// Replaces `row` by the next one whose number is `wanted`; `false` at the end.
    pub(crate) fn read(&mut self, row: &mut Row, wanted: impl Fn(usize) -> bool) -> Result<bool, DataError> {
        for number in self.rest.by_ref() {
            match (&self.dataset.log, &mut self.reader) {
                (Log::File(file), Some(reader)) => {
                    if !wanted(number) {
                        reader.skip(file.path())?;
                        continue;
                    }
                    reader.read(file.path(), &mut self.raw)?;
                    row.clicked = self.raw.clicked;
                    row.parameters.clear();
                    let vocabulary = &self.dataset.vocabulary;
                    row.parameters.extend(self.raw.values.iter().map(|&value| vocabulary.row(value)));
                }
                (Log::Held(held), _) if wanted(number) => held.read(number, row),
                _ => continue,
            }
            return Ok(true);
        }
        Ok(false)
    }
}
