//! Pushes as they were made, in files: what `libra train --record` keeps, and simulations replay.
//!
//! A recording is a directory with a file for each worker. The file of worker 0 is `worker-0.pushes`:
//!
//! ```text
//! file  = head frame*
//! head  = "LIBRAPSH" version:u32 length:u32 text:u8[length] crc:u32     the text is a Head, as postcard writes it
//! frame = step:u64 keys:u32 values:u32 crc:u32                          a push begins
//!         key:u64[keys] value:f32[values] crc:u32                       its rows, and their gradients one behind the other
//! ```
//!
//! Numbers are little-endian. A checksum is CRC-32C of everything in the head, or in the line of the frame, before it. Steps count the pushes of a worker
//! from 0, over all epochs of training. A file grows by one push at a time, so what is left of a job that was killed
//! can be read up to the push that was being written.
//!
//! ```
//! use libra_models::record::{Head, PushReader, PushWriter};
//!
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("worker-0.pushes");
//! let table = libra_client::TableShape { name: "rows".into(), keys: 0..100, width: 2, hot: true };
//! let head = Head { worker: 0, workers: 1, model: "mine".into(), data: "none".into(), batch: 1, tables: vec![table] };
//! let mut writer = PushWriter::create(&path, &head)?;
//! writer.write(&[7, 3], &[0.5, 0.25, -1.0, 0.0])?;
//! let mut reader = PushReader::open(&path)?;
//! assert_eq!(reader.head(), &head);
//! let push = reader.next_push()?.expect("there is one");
//! assert_eq!((push.step, &push.keys[..], &push.gradients[..]), (0, &[7, 3][..], &[0.5, 0.25, -1.0, 0.0][..]));
//! assert!(reader.next_push()?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod reader;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use libra_client::TableShape;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use reader::{PushReader, RecordedPush};

const MAGIC: &[u8; 8] = b"LIBRAPSH";
/// Of the format.
const VERSION: u32 = 1;
/// Bytes of a frame before its keys: step, keys, values and a checksum.
const FRAME_HEAD: usize = 8 + 4 + 4 + 4;

// Arrays are written as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "recordings are in little-endian order");

/// Origin of the pushes in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The worker, by its share of the data.
    pub worker: u32,
    /// Number of workers.
    pub workers: u32,
    /// The model and the data, for people.
    pub model: String,
    /// See above.
    pub data: String,
    /// Samples of a batch.
    pub batch: u64,
    /// The tables of the model.
    pub tables: Vec<TableShape>,
}

/// Pushes cannot be recorded or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is a file of that name.
    #[error("{} is there already: a recording is never overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused to write.
    #[error("cannot write {} any further than {pushes} pushes: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Pushes that are in it.
        pushes: u64,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The operating system refused to read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is no recording of pushes", path.display())]
    NoRecording {
        /// The file.
        path: PathBuf,
    },
    /// Another build has written it.
    #[error("{} is a recording of version {version}, this build reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file ends too early, as if its writer had been killed. What comes before is whole.
    #[error("{} is cut off: it ends at byte {at}, in the middle of push {pushes}, counted from 0", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length.
        at: u64,
        /// Whole pushes before.
        pushes: u64,
    },
    /// Something has changed what was written. Pushes before are whole.
    #[error("{} is damaged: {what} at byte {at}, after {pushes} whole pushes", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damaged part.
        at: u64,
        /// Whole pushes before.
        pushes: u64,
        /// The damage.
        what: &'static str,
    },
}

/// The name of the file of a worker.
pub fn file_name(worker: u32) -> String {
    format!("worker-{worker}.pushes")
}

/// Writes the pushes of one worker, each as soon as it is made. Keeps no more than one in memory.
#[derive(Debug)]
pub struct PushWriter {
    path: PathBuf,
    file: File,
    pushes: u64,
    frame: Vec<u8>,
}

impl PushWriter {
    /// Begins a file that is not there yet.
    ///
    /// # Errors
    /// It is there, or cannot be written.
    pub fn create(path: &Path, head: &Head) -> Result<Self, RecordError> {
        let file = File::create_new(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => RecordError::Exists { path: path.to_owned() },
            _ => RecordError::Unwritable { path: path.to_owned(), pushes: 0, source },
        })?;
        let mut writer = Self { path: path.to_owned(), file, pushes: 0, frame: Vec::new() };
        let text = postcard::to_stdvec(head).expect("a head has nothing that cannot be written");
        let length = u32::try_from(text.len()).expect("a model has few tables");
        writer.frame.extend_from_slice(MAGIC);
        writer.frame.extend_from_slice(&VERSION.to_le_bytes());
        writer.frame.extend_from_slice(&length.to_le_bytes());
        writer.frame.extend_from_slice(&text);
        writer.check_from(0);
        writer.flush()?;
        Ok(writer)
    }

    /// Appends a push.
    ///
    /// # Errors
    /// The file cannot be written.
    ///
    /// # Panics
    /// A push has 2^32 rows or values.
    pub fn write(&mut self, keys: &[u64], gradients: &[f32]) -> Result<(), RecordError> {
        let count = |length| u32::try_from(length).expect("no push is so large");
        self.frame.clear();
        self.frame.extend_from_slice(&self.pushes.to_le_bytes());
        self.frame.extend_from_slice(&count(keys.len()).to_le_bytes());
        self.frame.extend_from_slice(&count(gradients.len()).to_le_bytes());
        self.check_from(0);
        self.frame.extend_from_slice(bytemuck::cast_slice(keys));
        self.frame.extend_from_slice(bytemuck::cast_slice(gradients));
        self.check_from(FRAME_HEAD);
        self.flush()?;
        self.pushes += 1;
        Ok(())
    }

    /// Appends the checksum of what is in the frame from a place on.
    fn check_from(&mut self, start: usize) {
        let sum = crc32c::crc32c(&self.frame[start..]);
        self.frame.extend_from_slice(&sum.to_le_bytes());
    }

    /// Writes the frame in one piece.
    fn flush(&mut self) -> Result<(), RecordError> {
        let (path, pushes) = (&self.path, self.pushes);
        self.file.write_all(&self.frame).map_err(|source| RecordError::Unwritable {
            path: path.clone(),
            pushes,
            source,
        })
    }
}
