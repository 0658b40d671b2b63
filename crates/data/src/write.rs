//! Data sets that are written: a directory with files of rows, `dataset.toml`, and `_SUCCESS` once it is complete.

mod parquet_writer;
mod text_writer;

use std::fs::{self, File};
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

use crate::columns::Columns;
use crate::dataset::Schema;
use crate::description::FILE_NAME;
use crate::destination::Destination;
use crate::error::{DataError, Fault};
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

/// Writes a data set. Dropped before it is finished, it removes what it wrote, so that a second attempt finds nothing there.
#[derive(Debug)]
pub struct Writer {
    to: Destination,
    schema: Schema,
    output: Output,
    files: u64,
    file: Option<(Box<dyn FileWriter>, u64)>,
    /// All files that were begun; the last one may be open.
    names: Vec<String>,
    /// Bytes of complete files.
    bytes: u64,
    has_made_directory: bool,
    is_finished: bool,
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
        Self::create_at(&directory.into(), schema, output)
    }

    /// The same at any destination. A store gets the description at once, which shows whether it takes objects.
    ///
    /// # Errors
    /// Those of [`Writer::create`], or the store refused.
    pub fn create_at(to: &Destination, schema: &Schema, output: &Output) -> Result<Self, DataError> {
        if output.format != OutputFormat::Parquet {
            crate::text_file::TextColumns::new(&schema.description)
                .map_err(|fault| to.at("").error(fault))?;
        }
        if to.has_files()? {
            return Err(to.at("").error(Fault::NotEmpty));
        }
        let has_made_directory = !to.directory().exists();
        fs::create_dir_all(to.directory()).map_err(|error| to.at("").error(Fault::io("creating", error)))?;
        let mut writer = Self {
            to: to.clone(),
            schema: schema.clone(),
            output: *output,
            files: 0,
            file: None,
            names: Vec::new(),
            bytes: 0,
            has_made_directory,
            is_finished: false,
        };
        writer.write_whole(FILE_NAME, &schema.description.to_toml())?;
        Ok(writer)
    }

    fn write_whole(&mut self, name: &str, text: &str) -> Result<(), DataError> {
        self.names.push(name.to_owned());
        let written = fs::write(self.to.directory().join(name), text);
        written.map_err(|error| self.to.at(name).error(Fault::io("writing", error)))?;
        self.complete()
    }

    /// The last file is complete.
    fn complete(&mut self) -> Result<(), DataError> {
        self.bytes += self.to.complete(self.names.last().expect("a file was begun"))?;
        Ok(())
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
            if rows == room {
                writer.finish()?;
                self.complete()?;
            } else {
                self.file = Some((writer, written + rows as u64));
            }
        }
        Ok(())
    }

    /// Completes the data set, and returns the bytes of its files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(mut self) -> Result<u64, DataError> {
        if let Some((writer, _)) = self.file.take() {
            writer.finish()?;
            self.complete()?;
        }
        self.write_whole(SUCCESS, "")?;
        self.is_finished = true;
        Ok(self.bytes)
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
        let at = self.to.at(&name);
        let path = self.to.directory().join(&name);
        self.names.push(name);
        let file = File::create(&path).map_err(|error| at.clone().error(Fault::io("creating", error)))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(match packing {
            None => Box::new(ParquetWriter::new(file, &self.schema, self.output.group_rows, at)?),
            Some(packing) => Box::new(TextWriter::new(file, packing, at)?),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            self.file = None;
            self.to.remove(&self.names, self.has_made_directory);
        }
    }
}
