//! Bytes of a row group, read in windows: a page each would be a request each.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::DataError;
use crate::store::OpenFile;

/// A group whose columns have so many bytes is read at once.
const WHOLE_MAX: u64 = 16 << 20;
/// The head of a page is shorter.
const HEAD_MAX: u64 = 1 << 17;

/// Bytes of a row group, of which some may be there.
pub(super) struct GroupBytes {
    file: Arc<OpenFile>,
    whole: Option<(u64, Bytes)>,
}

impl GroupBytes {
    pub(super) fn open(
        file: &Arc<OpenFile>,
        columns: &[ColumnChunkMetaData],
    ) -> std::result::Result<Self, DataError> {
        let ranges: Vec<(u64, u64)> = columns.iter().map(ColumnChunkMetaData::byte_range).collect();
        let start = ranges.iter().map(|(start, _)| *start).min().unwrap_or(0);
        let end = ranges.iter().map(|(start, length)| start + length).max().unwrap_or(0);
        let needed: u64 = ranges.iter().map(|(_, length)| length).sum();
        let is_worth_it = end - start <= WHOLE_MAX && needed >= (end - start) / 2;
        let whole = is_worth_it.then(|| file.read(start..end).map(|bytes| (start, bytes))).transpose()?;
        Ok(Self { file: file.clone(), whole })
    }

    /// The bytes of one column.
    pub(super) fn column(&self, (start, length): (u64, u64)) -> ColumnBytes {
        let window = match &self.whole {
            Some((first, bytes)) => {
                let from = usize::try_from(start - first).expect("within what was read");
                let length = usize::try_from(length).expect("within what was read");
                (start, bytes.slice(from..from + length))
            }
            None => (start, Bytes::new()),
        };
        ColumnBytes { file: self.file.clone(), range: start..start + length, window: Mutex::new(window) }
    }
}

/// The bytes of a column in a row group, with one window of them in memory.
pub(super) struct ColumnBytes {
    file: Arc<OpenFile>,
    range: Range<u64>,
    window: Mutex<(u64, Bytes)>,
}

impl ColumnBytes {
    /// Returns the bytes of the window from `start` on: `needed` at least, or all up to the end of the column.
    fn from(&self, start: u64, needed: u64) -> Result<Bytes> {
        if !self.range.contains(&start) {
            return Err(ParquetError::EOF("a page lies outside of its column".to_owned()));
        }
        let end = (start + needed).min(self.range.end);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, bytes) = &*window;
        if start < *first || first + (bytes.len() as u64) < end {
            let end = end.max((start + self.file.window()).min(self.range.end));
            let read = self.file.read(start..end).map_err(|error| ParquetError::External(Box::new(error)))?;
            *window = (start, read);
        }
        let (first, bytes) = &*window;
        Ok(bytes.slice(usize::try_from(start - first).expect("within a window")..))
    }
}

impl Length for ColumnBytes {
    fn len(&self) -> u64 {
        self.range.end
    }
}

impl ChunkReader for ColumnBytes {
    type T = io::BufReader<bytes::buf::Reader<Bytes>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(io::BufReader::with_capacity(64, self.from(start, HEAD_MAX)?.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start, length as u64)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF("a page is longer than its column".to_owned()));
        }
        Ok(bytes.slice(..length))
    }
}
