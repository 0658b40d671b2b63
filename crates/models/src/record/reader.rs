//! Reads pushes back.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use libra_client::TableShape;

use super::{FRAME_HEAD, Head, MAGIC, RecordError, VERSION};

/// Bytes of a checksum.
const CRC: usize = 4;
/// Bytes of a head before its text.
const HEAD_START: usize = 8 + 4 + 4;

/// A push of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedPush {
    /// The push of its worker, from 0.
    pub step: u64,
    /// The rows.
    pub keys: Vec<u64>,
    /// Their gradients, one behind the other.
    pub gradients: Vec<f32>,
}

/// Reads a file push by push, and keeps no more than one in memory.
#[derive(Debug)]
pub struct PushReader<R = BufReader<File>> {
    source: R,
    path: PathBuf,
    head: Head,
    /// Offset of the next frame, and of the end of the file.
    at: u64,
    end: u64,
    pushes: u64,
    body: Vec<u8>,
}

impl PushReader {
    /// Opens the file of a worker.
    ///
    /// # Errors
    /// It cannot be read, or is no recording.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let unreadable = |source| RecordError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let end = file.metadata().map_err(unreadable)?.len();
        Self::of(BufReader::new(file), end, path)
    }
}

impl<R: Read> PushReader<R> {
    /// Reads from anything that is so many bytes long. The path is for messages.
    ///
    /// # Errors
    /// See [`open`](PushReader::open).
    pub fn of(source: R, end: u64, path: &Path) -> Result<Self, RecordError> {
        let head = Head {
            worker: 0,
            workers: 0,
            model: String::new(),
            data: String::new(),
            batch: 0,
            tables: Vec::new(),
        };
        let path = path.to_owned();
        let mut reader = Self { source, path, head, at: 0, end, pushes: 0, body: Vec::new() };
        // A shorter file is no recording.
        let alien = |path: &PathBuf| RecordError::NoRecording { path: path.clone() };
        if end < HEAD_START as u64 {
            return Err(alien(&reader.path));
        }
        reader.read(HEAD_START)?;
        if &reader.body[..8] != MAGIC {
            return Err(alien(&reader.path));
        }
        let version = number(&reader.body[8..]);
        if version != VERSION {
            return Err(RecordError::Version { path: reader.path, version });
        }
        let text = number(&reader.body[12..]) as usize;
        let start = reader.body.clone();
        reader.read(text + CRC)?;
        let (text, sum) = reader.body.split_at(text);
        if crc32c::crc32c_append(crc32c::crc32c(&start), text) != number(sum) {
            return Err(reader.damaged("a head with a wrong checksum"));
        }
        reader.head = postcard::from_bytes(text).map_err(|_| reader.damaged("a malformed head"))?;
        reader.at = (HEAD_START + reader.body.len()) as u64;
        Ok(reader)
    }

    /// Returns the origin of the pushes.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next push; `None` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is cut off or damaged here. There is nothing to be read behind.
    pub fn next_push(&mut self) -> Result<Option<RecordedPush>, RecordError> {
        if self.at == self.end {
            return Ok(None);
        }
        self.read(FRAME_HEAD)?;
        let (numbers, sum) = self.body.split_at(FRAME_HEAD - CRC);
        if crc32c::crc32c(numbers) != number(sum) {
            return Err(self.damaged("the beginning of a push with a wrong checksum"));
        }
        let step = u64::from(number(numbers)) | u64::from(number(&numbers[4..])) << 32;
        let (keys, values) = (number(&numbers[8..]) as usize, number(&numbers[12..]) as usize);
        if step != self.pushes {
            return Err(self.damaged("a push that is out of turn"));
        }
        let (keys_end, values_end) = (8 * keys, 8 * keys + 4 * values);
        self.read(values_end + CRC)?;
        if crc32c::crc32c(&self.body[..values_end]) != number(&self.body[values_end..]) {
            return Err(self.damaged("a push with a wrong checksum"));
        }
        let keys: Vec<u64> = bytemuck::pod_collect_to_vec(&self.body[..keys_end]);
        let expected = keys.iter().map(|key| width(&self.head.tables, *key)).sum::<Option<usize>>();
        if expected != Some(values) {
            return Err(self.damaged("a push that does not fit its tables"));
        }
        let gradients = bytemuck::pod_collect_to_vec(&self.body[keys_end..values_end]);
        self.at += (FRAME_HEAD + self.body.len()) as u64;
        self.pushes += 1;
        Ok(Some(RecordedPush { step, keys, gradients }))
    }

    /// Reads so many bytes into the body. Memory is allocated as they arrive, so a damaged length cannot exhaust it.
    fn read(&mut self, bytes: usize) -> Result<(), RecordError> {
        self.body.clear();
        let read = self.source.by_ref().take(bytes as u64).read_to_end(&mut self.body);
        match read {
            Ok(read) if read == bytes => Ok(()),
            Ok(_) => Err(RecordError::Cut { path: self.path.clone(), at: self.end, pushes: self.pushes }),
            Err(source) => Err(RecordError::Unreadable { path: self.path.clone(), source }),
        }
    }

    fn damaged(&self, what: &'static str) -> RecordError {
        RecordError::Damaged { path: self.path.clone(), at: self.at, pushes: self.pushes, what }
    }
}

/// The first four bytes as a number.
fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The width of a row, if a table has it. Models have few tables.
fn width(tables: &[TableShape], key: u64) -> Option<usize> {
    tables.iter().find(|table| table.keys.contains(&key)).map(|table| table.width as usize)
}
