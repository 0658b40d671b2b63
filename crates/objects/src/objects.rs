//! Requests for objects, with retries.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    PutResult, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::environment::Environment;
use crate::fault::{Fault, FaultContext, is_transient, is_unknown};
use crate::place::Kind;
use crate::store::{REQUEST_TIMEOUT, client};

/// Attempts after the first one of a request: about 25 s of waiting.
const RETRIES: u32 = 8;
/// Time until the first retry; it doubles.
const BACKOFF: Duration = Duration::from_millis(100);

/// An object, as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Path, or key in the bucket.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// A text that differs when the content differs: the ETag, or the time of the last change.
    pub version: String,
    /// The time of its last change.
    pub modified: SystemTime,
}

/// Result of [`Objects::create`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is there now, and was not before.
    New,
    /// There is one of this path, which stays as it is.
    Taken,
    /// The store has no conditional put. None was there a moment before, and the object is there now.
    Unconditional,
}

/// The version of an object that was read or written, to replace no other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    e_tag: Option<String>,
    version: Option<String>,
}

/// Result of [`Objects::replace`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaced {
    /// The object is there now.
    Done {
        /// Its version.
        version: Version,
        /// False if the store has no such condition, and none was looked at.
        is_conditional: bool,
    },
    /// There is another version, which stays as it is.
    Other,
}

/// A path as stores spell it: without slashes at its ends.
pub fn normal(path: &str) -> String {
    Path::from(path).to_string()
}

/// Counts of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent, retries among them.
    pub requests: u64,
    /// Attempts after the first one of a request.
    pub retries: u64,
}

/// Objects behind a network, or files, and the loop that waits for them. Callers wait, so they must not be tasks of another loop.
pub struct Objects {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) in_parts: Option<Arc<dyn MultipartStore>>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) are_files: bool,
    pub(crate) context: FaultContext,
    retries: u32,
    requests_sent: AtomicU64,
    retries_sent: AtomicU64,
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Objects").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Objects {
    /// Makes a client; sends nothing yet. `retries` is the number of attempts after the first one, 8 by default.
    ///
    /// # Errors
    /// The settings in the environment do not go together, or the machine has no loop for it.
    pub fn open(kind: &Kind, environment: &Environment, retries: Option<u32>) -> Result<Self, Fault> {
        let context = FaultContext { kind: kind.clone(), region: environment.region() };
        environment.check_endpoints(kind)?;
        let built = client(kind, environment).map_err(|error| Fault::of(&error, 0, &context))?;
        // A disk that refuses does so again.
        let are_files = *kind == Kind::Local;
        let retries = retries.unwrap_or(if are_files { 0 } else { RETRIES });
        Ok(Self { context, are_files, retries, ..Self::over(built.0, built.1)? })
    }

    /// Returns the same objects with counts of their own.
    #[must_use]
    pub fn counted_apart(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            in_parts: self.in_parts.clone(),
            runtime: Arc::clone(&self.runtime),
            are_files: self.are_files,
            context: self.context.clone(),
            retries: self.retries,
            requests_sent: AtomicU64::new(0),
            retries_sent: AtomicU64::new(0),
        }
    }

    /// The objects of a store that is there already, without retries: for tests with faults.
    ///
    /// # Errors
    /// The machine has no loop for it.
    pub fn over(
        store: Arc<dyn ObjectStore>,
        in_parts: Option<Arc<dyn MultipartStore>>,
    ) -> Result<Self, Fault> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = Arc::new(runtime.map_err(|source| Fault::Io { doing: "starting a loop", source })?);
        let (requests_sent, retries_sent) = (AtomicU64::new(0), AtomicU64::new(0));
        let context = FaultContext { kind: Kind::Local, region: String::new() };
        let (are_files, retries) = (false, 0);
        Ok(Self { store, in_parts, runtime, are_files, context, retries, requests_sent, retries_sent })
    }

    /// Counts of the requests sent so far.
    pub fn counts(&self) -> Counts {
        Counts {
            requests: self.requests_sent.load(Ordering::Relaxed),
            retries: self.retries_sent.load(Ordering::Relaxed),
        }
    }

    /// Looks for an object.
    ///
    /// # Errors
    /// There is none, or the store refused.
    pub fn head(&self, path: &str) -> Result<Object, Fault> {
        let path = Path::from(path);
        self.request(|| self.store.head(&path)).map(|meta| object(&meta))
    }

    /// Lists all objects below a directory; `""` is all of the bucket.
    ///
    /// # Errors
    /// The store refused.
    pub fn list(&self, directory: &str) -> Result<Vec<Object>, Fault> {
        let prefix = (!directory.is_empty()).then(|| Path::from(directory));
        let listed = self.request(|| self.store.list(prefix.as_ref()).try_collect::<Vec<_>>())?;
        Ok(listed.iter().map(object).collect())
    }

    /// Reads an object whole.
    ///
    /// # Errors
    /// There is none, or the store refused.
    pub fn read(&self, path: &str) -> Result<Bytes, Fault> {
        let path = Path::from(path);
        self.request(|| async { self.store.get(&path).await?.bytes().await })
    }

    /// Reads a range of an object whole.
    ///
    /// # Errors
    /// It is not as it was listed, or the store refused.
    pub fn read_range(&self, object: &Object, range: Range<u64>) -> Result<Bytes, Fault> {
        let path = Path::from(object.path.as_str());
        let is_tag = object.version.contains('"');
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: is_tag.then(|| object.version.clone()),
            ..GetOptions::default()
        };
        self.request(|| async {
            let answer = self.store.get_opts(&path, options.clone()).await?;
            // A server may ignore the condition.
            let changed = answer.meta.e_tag.as_ref().is_some_and(|tag| is_tag && *tag != object.version);
            if changed || answer.meta.size != object.bytes {
                let source = "the file has another size or ETag".into();
                return Err(Error::Precondition { path: object.path.clone(), source });
            }
            let bytes = answer.bytes().await?;
            if bytes.len() as u64 != range.end - range.start {
                let source = "the answer is shorter than the range".into();
                return Err(Error::Generic { store: "HTTP", source });
            }
            Ok(bytes)
        })
    }

    /// Writes an object; one of this path is replaced.
    ///
    /// # Errors
    /// The store refused.
    pub fn put(&self, path: &str, bytes: Bytes) -> Result<(), Fault> {
        let path = Path::from(path);
        self.request(|| self.store.put(&path, PutPayload::from(bytes.clone()))).map(drop)
    }

    /// Writes an object unless one of this path is there.
    ///
    /// # Errors
    /// The store refused.
    pub fn create(&self, path: &str, bytes: Bytes) -> Result<Created, Fault> {
        let at = Path::from(path);
        let options = PutOptions::from(PutMode::Create);
        let put = || self.store.put_opts(&at, PutPayload::from(bytes.clone()), options.clone());
        match self.attempt(put) {
            Ok(_) => Ok(Created::New),
            // It may be of the attempt before, whose answer was lost.
            Err((Error::AlreadyExists { .. } | Error::Precondition { .. }, retries)) => {
                let is_own = retries > 0 && self.read(path)? == bytes;
                Ok(if is_own { Created::New } else { Created::Taken })
            }
            Err((error, _)) if is_unknown(&error) => match self.head(path) {
                Ok(_) => Ok(Created::Taken),
                Err(Fault::Missing) => self.put(path, bytes).map(|()| Created::Unconditional),
                Err(fault) => Err(fault),
            },
            Err((error, retries)) => Err(Fault::of(&error, retries, &self.context)),
        }
    }

    /// Reads an object whole, with its version.
    ///
    /// # Errors
    /// There is none, or the store refused.
    pub fn read_with_version(&self, path: &str) -> Result<(Bytes, Version), Fault> {
        let path = Path::from(path);
        self.request(|| async {
            let answer = self.store.get(&path).await?;
            let version = Version { e_tag: answer.meta.e_tag.clone(), version: answer.meta.version.clone() };
            Ok((answer.bytes().await?, version))
        })
    }

    /// Writes an object if this version is there, or none if it is `None`.
    ///
    /// # Errors
    /// The store refused.
    pub fn replace(&self, path: &str, bytes: Bytes, expected: Option<&Version>) -> Result<Replaced, Fault> {
        let at = Path::from(path);
        let mode = match expected {
            None => PutMode::Create,
            Some(Version { e_tag, version }) => {
                PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: version.clone() })
            }
        };
        let done = |put: PutResult, is_conditional| {
            let version = Version { e_tag: put.e_tag, version: put.version };
            Ok(Replaced::Done { version, is_conditional })
        };
        let put = |options: PutOptions| self.store.put_opts(&at, PutPayload::from(bytes.clone()), options);
        match self.attempt(|| put(PutOptions::from(mode.clone()))) {
            Ok(result) => done(result, true),
            // It may be of the attempt before, whose answer was lost.
            Err((
                Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. },
                retries,
            )) => match self.read_with_version(path) {
                Ok((there, version)) if retries > 0 && there == bytes => {
                    Ok(Replaced::Done { version, is_conditional: true })
                }
                Ok(_) | Err(Fault::Missing) => Ok(Replaced::Other),
                Err(fault) => Err(fault),
            },
            Err((error, _)) if is_unknown(&error) => {
                let result = self.request(|| put(PutOptions::default()))?;
                done(result, false)
            }
            Err((error, retries)) => Err(Fault::of(&error, retries, &self.context)),
        }
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// The store refused.
    pub fn delete(&self, path: &str) -> Result<(), Fault> {
        let path = Path::from(path);
        match self.request(|| self.store.delete(&path)) {
            Err(Fault::Missing) => Ok(()),
            other => other,
        }
    }

    /// Removes a directory if nothing is in it, where objects are files; a store of objects has none.
    pub fn remove_empty(&self, directory: &str) {
        if self.are_files {
            // One with files is kept by the operating system.
            let _ = std::fs::remove_dir(std::path::Path::new("/").join(directory));
        }
    }

    /// Removes what writes of files that were interrupted have left below a directory, and directories that are empty: no list shows
    /// either. Nothing is to be done where objects are no files.
    ///
    /// # Errors
    /// The disk refused.
    pub fn sweep(&self, directory: &str) -> Result<(), Fault> {
        if !self.are_files {
            return Ok(());
        }
        let directory = std::path::Path::new("/").join(directory);
        sweep(&directory).map(drop).map_err(|source| Fault::Io { doing: "removing what was left", source })
    }

    /// As [`sweep`](Self::sweep), but only in directories, and of files, directly there whose names are own ones: others
    /// stay. Such a directory is removed if it is empty.
    ///
    /// # Errors
    /// The disk refused.
    pub fn sweep_own(&self, directory: &str, is_own: impl Fn(&str) -> bool) -> Result<(), Fault> {
        if !self.are_files {
            return Ok(());
        }
        let directory = std::path::Path::new("/").join(directory);
        sweep_own(&directory, is_own).map_err(|source| Fault::Io { doing: "removing what was left", source })
    }

    pub(crate) fn request<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.attempt(attempt).map_err(|(error, retries)| Fault::of(&error, retries, &self.context))
    }

    /// Sends a request until it is answered, or the retries are used up.
    pub(crate) fn attempt<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, (Error, u32)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.runtime.block_on(self.answered(attempt))
    }

    /// As [`attempt`](Self::attempt), in the loop.
    pub(crate) async fn answered<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, (Error, u32)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut retries = 0;
        loop {
            self.requests_sent.fetch_add(1, Ordering::Relaxed);
            let answer = timeout(REQUEST_TIMEOUT, attempt()).await.unwrap_or_else(|_| {
                Err(Error::Generic { store: "HTTP", source: "no answer within 60 s".into() })
            });
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) if retries == self.retries || !is_transient(&error) => {
                    return Err((error, retries));
                }
                Err(_) => {
                    sleep(BACKOFF * 2u32.pow(retries)).await;
                    retries += 1;
                    self.retries_sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

fn sweep_own(directory: &std::path::Path, is_own: impl Fn(&str) -> bool) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if entry.file_type()?.is_dir() {
            if is_own(name) && sweep(&entry.path())? {
                std::fs::remove_dir(entry.path())?;
            }
        } else if staged(name).is_some_and(&is_own) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The name of the file that was not finished under this name: the store names it `FILE#1`.
fn staged(name: &str) -> Option<&str> {
    let (file, number) = name.rsplit_once('#')?;
    number.parse::<u32>().is_ok().then_some(file)
}

/// Removes files that were not finished, and returns whether nothing is left.
fn sweep(directory: &std::path::Path) -> io::Result<bool> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    let mut is_empty = true;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if sweep(&entry.path())? {
                std::fs::remove_dir(entry.path())?;
            } else {
                is_empty = false;
            }
        } else if name.to_str().and_then(staged).is_some() {
            std::fs::remove_file(entry.path())?;
        } else {
            is_empty = false;
        }
    }
    Ok(is_empty)
}

fn object(meta: &ObjectMeta) -> Object {
    Object {
        path: meta.location.to_string(),
        bytes: meta.size,
        version: meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_string()),
        modified: meta.last_modified.into(),
    }
}
