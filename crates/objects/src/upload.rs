//! Objects that are uploaded in parts.

use std::fmt;

use bytes::Bytes;
use futures_util::{TryFutureExt, TryStreamExt, stream};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStoreExt};

use crate::fault::Fault;
use crate::objects::Objects;

/// Size of a part, and of what is uploaded whole.
pub const PART_BYTES: u64 = 8 << 20;
/// Parts that are sent at the same time, and are in memory until then.
const PARTS_AT_ONCE: usize = 4;
/// Parts that an object may have, at the strictest store.
const PARTS_MAX: u64 = 10_000;

/// An object that is uploaded in parts.
pub struct Upload {
    path: Path,
    state: State,
}

enum State {
    /// The store keeps the parts under an identity.
    Parts { id: String, sent: Vec<PartId> },
    /// A file beside the place of the object. Dropped, it is removed.
    File(Box<dyn MultipartUpload>),
}

impl fmt::Debug for Upload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Upload").field("path", &self.path).field("id", &self.id()).finish()
    }
}

impl Upload {
    /// One that another process has begun, by its path and identity.
    pub fn new(path: &str, id: String) -> Self {
        Self { path: Path::from(path), state: State::Parts { id, sent: Vec::new() } }
    }

    /// The identity that another process gives it up by. One to a file has none: [`Objects::sweep`] removes what is left of it.
    pub fn id(&self) -> Option<&str> {
        match &self.state {
            State::Parts { id, .. } => Some(id),
            State::File(_) => None,
        }
    }
}

impl Objects {
    /// Begins an object that is uploaded in parts; `None` if the store takes none.
    ///
    /// # Errors
    /// The store refused.
    pub fn begin_upload(&self, path: &str) -> Result<Option<Upload>, Fault> {
        let path = Path::from(path);
        let state = if let Some(store) = &self.in_parts {
            State::Parts { id: self.request(|| store.create_multipart(&path))?, sent: Vec::new() }
        } else if self.are_files {
            State::File(self.request(|| self.store.put_multipart(&path))?)
        } else {
            return Ok(None);
        };
        Ok(Some(Upload { path, state }))
    }

    /// Uploads all parts of an object of so many bytes, some at the same time. `read` returns the next ones, as many as it is asked for,
    /// while those before are on their way. A part has `part_bytes`, at least 5 MiB, or more where there would be too many parts for a store
    /// otherwise.
    ///
    /// # Errors
    /// `read` failed, or the store refused.
    pub fn send_all<E>(
        &self,
        upload: &mut Upload,
        bytes: u64,
        part_bytes: u64,
        mut read: impl FnMut(u64) -> Result<Bytes, E>,
        refused: impl Fn(Fault) -> E,
    ) -> Result<(), E> {
        let size = part_bytes.max(bytes.div_ceil(PARTS_MAX)).max(1);
        let parts = stream::iter((0..bytes.div_ceil(size)).map(|part| read(size.min(bytes - part * size))));
        let Upload { path, state } = upload;
        match state {
            State::Parts { id, sent } => {
                let store = self.in_parts.as_ref().expect("an upload was begun");
                let (path, id, mut number) = (&*path, &*id, sent.len());
                let put = |bytes: Bytes| {
                    let own = number;
                    number += 1;
                    let put = self.answered(move || store.put_part(path, id, own, bytes.clone().into()));
                    put.map_err(|(error, retries)| refused(Fault::of(&error, retries, &self.context)))
                };
                let all = parts.map_ok(put).try_buffered(PARTS_AT_ONCE).try_collect::<Vec<_>>();
                sent.extend(self.runtime.block_on(all)?);
            }
            State::File(file) => {
                let put = |part: Bytes| {
                    let put = file.put_part(part.into());
                    put.map_err(|error| refused(Fault::of(&error, 0, &self.context)))
                };
                let all = parts.map_ok(put).try_buffered(PARTS_AT_ONCE).try_collect::<()>();
                self.runtime.block_on(all)?;
            }
        }
        Ok(())
    }

    /// Makes an object of all parts.
    ///
    /// # Errors
    /// The store refused.
    pub fn finish_upload(&self, upload: &mut Upload) -> Result<(), Fault> {
        match &mut upload.state {
            State::Parts { id, sent } => {
                let store = self.in_parts.as_ref().expect("an upload was begun");
                self.request(|| store.complete_multipart(&upload.path, id, sent.clone())).map(drop)
            }
            State::File(file) => {
                let done = self.runtime.block_on(file.complete());
                done.map(drop).map_err(|error| Fault::of(&error, 0, &self.context))
            }
        }
    }

    /// Gives an upload up, and its parts; one that has ended is none.
    ///
    /// # Errors
    /// The store refused.
    pub fn abort_upload(&self, upload: Upload) -> Result<(), Fault> {
        let (Some(store), State::Parts { id, .. }) = (&self.in_parts, &upload.state) else { return Ok(()) };
        match self.attempt(|| store.abort_multipart(&upload.path, id)) {
            // Stores tell of one that has ended in their own words.
            Err((error, retries)) => {
                let text = error.to_string();
                let is_gone = matches!(error, Error::NotFound { .. })
                    || ["NoSuchUpload", "not found"].iter().any(|known| text.contains(known));
                if is_gone { Ok(()) } else { Err(Fault::of(&error, retries, &self.context)) }
            }
            Ok(()) => Ok(()),
        }
    }
}
