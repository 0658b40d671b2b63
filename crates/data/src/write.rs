//! Data sets on disk: a directory with files of rows, `dataset.toml`, and `_SUCCESS` once it is complete.

mod parquet_writer;
mod text_writer;

use std::fs::{self, File};
use std::io::BufWriter;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::columns::Columns;
use crate::dataset::Schema;
use crate::description::FILE_NAME;
use crate::error::{At, DataError, Fault};
use crate::place::Packing;

use parquet_writer::ParquetWriter;
use text_writer::TextWriter;

/// Written last.
pub(crate) const SUCCESS: &str = "_SUCCESS";

/// Form of a data set that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// Format of the files.
    pub format: OutputFormat,
    /// Rows of a file but the last; `u64::MAX` puts all into one.
    pub file_rows: u64,
    /// Rows of a row group.
    pub group_rows: usize,
}

/// Format of files that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Parquet with zstd: `part-00000.parquet`.
    Parquet,
    /// Criteo's text: `day_0`, as the terabyte has it, or `train.txt`, as Kaggle has it, if all rows are in one file.
    Text,
    /// The same, packed: `day_0.gz`.
    Gzip,
    /// The same, packed: `day_0.zst`.
    Zstd,
}

impl Default for Output {
    fn default() -> Self {
        Self { format: OutputFormat::Parquet, file_rows: 1 << 23, group_rows: 1 << 16 }
    }
}

/// Writes a data set.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    schema: Schema,
    output: Output,
    files: u64,
    file: Option<(Box<dyn FileWriter>, u64)>,
}

/// Writes the rows of one file.
trait FileWriter: std::fmt::Debug {
    fn write(&mut self, columns: &Columns, rows: Range<usize>) -> Result<(), DataError>;
    fn finish(self: Box<Self>) -> Result<(), DataError>;
}

impl Writer {
    /// Begins a data set in a directory, which must be empty or missing.
    ///
    /// # Errors
    /// The directory has files, or cannot be written; text has another schema than Criteo's.
    pub fn create(directory: &Path, schema: &Schema, output: &Output) -> Result<Self, DataError> {
        let at = || At::file(directory.to_string_lossy());
        fs::create_dir_all(directory).map_err(|error| at().error(Fault::io("creating", error)))?;
        let mut entries = fs::read_dir(directory).map_err(|error| at().error(Fault::io("listing", error)))?;
        if entries.next().is_some() {
            return Err(at().error(Fault::NotEmpty));
        }
        if output.format != OutputFormat::Parquet {
            crate::text_file::TextColumns::new(&schema.description).map_err(|fault| at().error(fault))?;
        }
        let path = directory.join(FILE_NAME);
        let written = fs::write(&path, schema.description.to_toml());
        written.map_err(|error| At::file(path.to_string_lossy()).error(Fault::io("writing", error)))?;
        Ok(Self {
            directory: directory.to_owned(),
            schema: schema.clone(),
            output: *output,
            files: 0,
            file: None,
        })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&mut self, columns: &Columns) -> Result<(), DataError> {
        let mut from = 0;
        while from < columns.rows() {
            let (mut writer, written) = match self.file.take() {
                Some(file) => file,
                None => (self.open()?, 0),
            };
            let room = usize::try_from(self.output.file_rows.max(1) - written).unwrap_or(usize::MAX);
            let rows = room.min(columns.rows() - from);
            writer.write(columns, from..from + rows)?;
            from += rows;
            if rows == room { writer.finish()? } else { self.file = Some((writer, written + rows as u64)) }
        }
        Ok(())
    }

    /// Completes the data set.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(mut self) -> Result<(), DataError> {
        if let Some((writer, _)) = self.file.take() {
            writer.finish()?;
        }
        let path = self.directory.join(SUCCESS);
        let at = || At::file(path.to_string_lossy());
        fs::write(&path, "").map_err(|error| at().error(Fault::io("writing", error)))
    }

    fn open(&mut self) -> Result<Box<dyn FileWriter>, DataError> {
        let number = self.files;
        self.files += 1;
        let text =
            if self.output.file_rows == u64::MAX { "train.txt".to_owned() } else { format!("day_{number}") };
        let (name, packing) = match self.output.format {
            OutputFormat::Parquet => (format!("part-{number:05}.parquet"), None),
            OutputFormat::Text => (text, Some(Packing::Plain)),
            OutputFormat::Gzip => (format!("{text}.gz"), Some(Packing::Gzip)),
            OutputFormat::Zstd => (format!("{text}.zst"), Some(Packing::Zstd)),
        };
        let path = self.directory.join(name);
        let at = At::file(path.to_string_lossy());
        let file = File::create(&path).map_err(|error| at.clone().error(Fault::io("creating", error)))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(match packing {
            None => Box::new(ParquetWriter::new(file, &self.schema, self.output.group_rows, at)?),
            Some(packing) => Box::new(TextWriter::new(file, packing, at)?),
        })
    }
}
