//! Lines of a text, unpacked on the way.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;

use super::Run;
use crate::error::{At, DataError, Fault, Row};
use crate::place::Packing;
use crate::store::OpenFile;

/// Longest line, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// Lines from a place in a file on, of which one is held at a time.
pub(crate) struct Lines {
    source: Box<dyn BufRead + Send>,
    file: Arc<OpenFile>,
    line: Vec<u8>,
    /// Bytes in front of the next line, unpacked.
    offset: u64,
    number: u64,
}

impl Lines {
    pub(crate) fn open(file: &Arc<OpenFile>, packing: Packing, run: Run) -> Result<Self, DataError> {
        let bytes = Windows { file: file.clone(), next: run.offset, window: Bytes::new() };
        let source: Box<dyn BufRead + Send> = match packing {
            Packing::Plain => Box::new(bytes),
            Packing::Gzip => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(bytes))),
            Packing::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
                let decoder = decoder.map_err(|error| file.info.at().error(Fault::io("unpacking", error)))?;
                Box::new(BufReader::with_capacity(1 << 16, decoder))
            }
        };
        Ok(Self { source, file: file.clone(), line: Vec::new(), offset: run.offset, number: run.line })
    }

    /// The file.
    pub(crate) fn at(&self) -> At {
        self.file.info.at()
    }

    /// Bytes and lines in front of the next line.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.offset, self.number)
    }

    /// The next line that is not blank, with its number, counted from 1.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, DataError> {
        loop {
            self.line.clear();
            let read = (&mut self.source).take(LINE_MAX).read_until(b'\n', &mut self.line);
            let bytes = read.map_err(|error| self.failed(error))?;
            if bytes == 0 {
                return Ok(None);
            }
            self.offset += bytes as u64;
            self.number += 1;
            if !self.line.iter().all(u8::is_ascii_whitespace) || self.line.contains(&b'\t') {
                break;
            }
        }
        let whole = self.line.strip_suffix(b"\n");
        if whole.is_none() && self.line.len() as u64 == LINE_MAX {
            let found = String::from_utf8_lossy(&self.line[..100]).into_owned();
            let fault = Fault::bad_value("a line of text, shorter than 1 MiB", found);
            return Err(self.at().row(Row::Line(self.number)).error(fault));
        }
        let line = whole.unwrap_or(&self.line);
        Ok(Some((self.number, line.strip_suffix(b"\r").unwrap_or(line))))
    }

    /// Errors of the file come through the decoders; others are their own.
    fn failed(&self, error: io::Error) -> DataError {
        let at = || self.at().row(Row::Line(self.number + 1));
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return at().error(Fault::Cut { reason: "the packed text has no end".to_owned() });
        }
        match error.downcast::<DataError>() {
            Ok(error) => error,
            Err(error) => at().error(Fault::io("unpacking", error)),
        }
    }
}

/// The bytes of a file from a place on, by windows.
struct Windows {
    file: Arc<OpenFile>,
    next: u64,
    window: Bytes,
}

impl BufRead for Windows {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.window.is_empty() && self.next < self.file.info.bytes {
            let end = (self.next + 4 * self.file.window()).min(self.file.info.bytes);
            self.window = self.file.read(self.next..end).map_err(io::Error::other)?;
            self.next = end;
        }
        Ok(&self.window)
    }

    fn consume(&mut self, amount: usize) {
        self.window.advance(amount);
    }
}

impl Read for Windows {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let filled = self.fill_buf()?;
        let length = filled.len().min(into.len());
        into[..length].copy_from_slice(&filled[..length]);
        self.consume(length);
        Ok(length)
    }
}
