//! A log that stays in its file.

use std::path::{Path, PathBuf};

use super::{Layout, bags, criteo, rows::RawRow};
use crate::data::{DataError, DataFile, Line, LinePlace, LineReader};

/// Of every so many rows, the place of the first is known, so that reading can begin there: 50 kB of Criteo's log. Places of the whole log take 3 MB.
pub(in crate::deeplight) const RUN_ROWS: usize = 1 << 8;

const EITHER: &str = "40 columns between tabs, as Criteo has them, or 2, a label and a bag of keys";

/// A file whose rows have been counted.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    data_file: DataFile,
    layout: Layout,
    rows: usize,
    places: Vec<LinePlace>,
}

impl LogFile {
    /// Counts the rows of a file. The first one shows of which kind it is.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let mut lines = LineReader::open(path, LinePlace::START)?;
        let mut file = Self {
            path: path.to_owned(),
            data_file: DataFile::new(path, 0),
            layout: Layout::Bag,
            rows: 0,
            places: Vec::new(),
        };
        while let Some(line) = lines.read()? {
            if file.rows == 0 {
                file.layout = layout(line)?;
            }
            if file.rows.is_multiple_of(RUN_ROWS) {
                file.places.push(lines.place());
            }
            file.rows += 1;
        }
        if file.rows == 0 {
            return Err(DataError::Empty { path: path.to_owned() });
        }
        file.data_file = lines.data_file();
        Ok(file)
    }

    pub(super) fn data_file(&self) -> &DataFile {
        &self.data_file
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Opens the file at a row.
    pub(super) fn at(&self, row: usize) -> Result<RowReader, DataError> {
        let known = (row / RUN_ROWS).min(self.places.len() - 1);
        let mut reader =
            RowReader { lines: LineReader::open(&self.path, self.places[known])?, layout: self.layout };
        for _ in known * RUN_ROWS..row {
            reader.skip(&self.path)?;
        }
        Ok(reader)
    }

    /// Visits all rows.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&RawRow)) -> Result<(), DataError> {
        let mut reader = self.at(0)?;
        let mut row = RawRow::default();
        for _ in 0..self.rows {
            reader.read(&self.path, &mut row)?;
            visit(&row);
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn layout(line: Line<'_>) -> Result<Layout, DataError> {
    const CRITEO: usize = 1 + criteo::FIELDS;
    match line.fields().count() {
        CRITEO => Ok(Layout::Fields(criteo::FIELDS)),
        2 => Ok(Layout::Bag),
        _ => Err(line.malformed(EITHER, line.bytes())),
    }
}

/// Reads the rows of a file, from one on.
pub(super) struct RowReader {
    lines: LineReader,
    layout: Layout,
}

impl RowReader {
    pub(super) fn read(&mut self, path: &Path, row: &mut RawRow) -> Result<(), DataError> {
        let line = self.lines.read()?.ok_or_else(|| DataError::Changed { path: path.to_owned() })?;
        match self.layout {
            Layout::Fields(_) => criteo::parse(line, row),
            Layout::Bag => bags::parse(line, row),
        }
    }

    pub(super) fn skip(&mut self, path: &Path) -> Result<(), DataError> {
        let line = self.lines.read()?;
        line.map(|_| ()).ok_or_else(|| DataError::Changed { path: path.to_owned() })
    }
}
