//! Criteo's text.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::FileWriter;
use crate::columns::Columns;
use crate::error::{At, DataError, Fault};
use crate::place::Packing;

pub(super) struct TextWriter {
    at: At,
    file: Packed,
    lines: String,
}

enum Packed {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl TextWriter {
    pub(super) fn new(file: BufWriter<File>, packing: Packing, at: At) -> Result<Self, DataError> {
        let file = match packing {
            Packing::Plain => Packed::Plain(file),
            Packing::Gzip => Packed::Gzip(GzEncoder::new(file, Compression::fast())),
            Packing::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(file, 1);
                Packed::Zstd(encoder.map_err(|error| at.clone().error(Fault::io("packing", error)))?)
            }
        };
        Ok(Self { at, file, lines: String::new() })
    }
}

impl FileWriter for TextWriter {
    fn write(&mut self, columns: &Columns, rows: Range<usize>) -> Result<(), DataError> {
        self.lines.clear();
        for row in rows {
            self.lines.push(if columns.labels[row] == 0.0 { '0' } else { '1' });
            for column in &columns.numbers {
                self.lines.push('\t');
                if !column[row].is_nan() {
                    write!(self.lines, "{}", column[row]).expect("a string takes any text");
                }
            }
            for column in &columns.categories {
                self.lines.push('\t');
                if let Some(id) = column.row(row).first() {
                    write!(self.lines, "{id:08x}").expect("a string takes any text");
                }
            }
            self.lines.push('\n');
        }
        let written = match &mut self.file {
            Packed::Plain(file) => file.write_all(self.lines.as_bytes()),
            Packed::Gzip(file) => file.write_all(self.lines.as_bytes()),
            Packed::Zstd(file) => file.write_all(self.lines.as_bytes()),
        };
        written.map_err(|error| self.at.clone().error(Fault::io("writing", error)))
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        let Self { at, file, .. } = *self;
        let finish = || -> io::Result<()> {
            let mut file = match file {
                Packed::Plain(file) => file,
                Packed::Gzip(file) => file.finish()?,
                Packed::Zstd(file) => file.finish()?,
            };
            file.flush()
        };
        finish().map_err(|error| at.error(Fault::io("writing", error)))
    }
}

impl std::fmt::Debug for TextWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TextWriter").field("at", &self.at).finish_non_exhaustive()
    }
}
