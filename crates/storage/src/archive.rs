//! Checkpoints at a URL: files of shards, and an object for each checkpoint of the job that makes them count.
//!
//! ```text
//! URL/shard-0/checkpoint-7/manifest.json, *.safetensors, state.bin     as on the disks of servers, which upload them
//! URL/shard-0/checkpoint-7/FILE.upload                                 while FILE is uploaded in parts: the identity of that
//! URL/job-7.json                                                       the commit, written last, by the controller
//! URL/owner.json                                                       the job that writes here
//! ```
//!
//! A checkpoint is there when `job-<n>.json` is, and has the files that it lists. A reader counts nothing else, so an upload
//! that was interrupted is never read, and [`prune`](Archive::prune) removes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use libra_objects::{Fault, Kind, Object, Objects, Place, normal};

use crate::checkpoint::{CheckpointError, directory_name};
use crate::place::shard_in;

mod commit;
mod disk;
mod error;
mod owner;
mod prune;
mod upload;

pub use commit::{Commit, CommittedFile, Look};
pub use disk::ArchiveDisk;
pub use error::ArchiveError;
pub use libra_objects::Environment;
pub use owner::{Claim, Owner};
pub use prune::{Pruned, Removal};
pub use upload::{Rate, Uploader};

/// The place of checkpoints at a URL. All calls wait for the store, and must not be made by a task of a loop.
#[derive(Debug, Clone)]
pub struct Archive {
    objects: Arc<Objects>,
    /// Without a slash at the end.
    url: String,
    /// The path of the URL, as the store spells it.
    root: String,
}

/// The checkpoints that count.
#[derive(Debug, Default)]
pub struct View {
    /// By number.
    pub commits: BTreeMap<u64, Commit>,
    /// Commits that cannot be read, and the damage in words.
    pub damaged: BTreeMap<u64, CheckpointError>,
    /// The time of each commit.
    pub written: BTreeMap<u64, SystemTime>,
    /// All objects below the URL, by their path from there.
    objects: BTreeMap<String, Object>,
}

/// An object below the URL, by its path from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// `job-<n>.json`.
    Commit(u64),
    /// A file of a checkpoint of a shard.
    File { checkpoint: u64 },
    /// An object that a probe has left.
    Probe,
}

impl Archive {
    /// The checkpoints at a URL. Sends nothing yet.
    ///
    /// # Errors
    /// It is no URL of a store, has a secret in it, or the settings in the environment do not go together.
    pub fn open(url: &str, environment: &Environment) -> Result<Self, ArchiveError> {
        let place = Place::parse(url)?;
        let bad = |reason| ArchiveError::Place { place: place.name_of(&place.path), reason };
        if !Place::is_url(url) {
            return Err(bad("checkpoints are kept at a URL: a directory is file:///DIR"));
        }
        if matches!(place.kind, Kind::Http(_)) {
            return Err(bad("a server of HTTP lists no directories"));
        }
        if let Some(at) = place.path.find(['?', '#', '*', '[', '{']) {
            let without = ArchiveError::Place {
                place: place.name_of(&place.path[..at]),
                reason: "it is no place for checkpoints: give the URL of a directory, without query and pattern",
            };
            return Err(without);
        }
        let shown = url.trim_end_matches('/').to_owned();
        let objects = Objects::open(&place.kind, environment, None)
            .map_err(|fault| ArchiveError::Object { name: shown.clone(), fault })?;
        Ok(Self { objects: Arc::new(objects), url: shown, root: normal(&place.path) })
    }

    /// The checkpoints among objects, below a path, which messages call by this URL.
    pub fn over(objects: Arc<Objects>, root: &str, url: &str) -> Self {
        Self { objects, url: url.trim_end_matches('/').to_owned(), root: normal(root) }
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn at(&self, name: &str) -> String {
        if self.root.is_empty() { name.to_owned() } else { format!("{}/{name}", self.root) }
    }

    /// Adds the name of an object to a fault.
    fn fail(&self, name: &str) -> impl Fn(Fault) -> ArchiveError {
        let name = format!("{}/{name}", self.url).trim_end_matches('/').to_owned();
        move |fault| ArchiveError::Object { name: name.clone(), fault }
    }

    /// Lists all objects, by their path from the URL.
    fn list(&self, below: &str) -> Result<BTreeMap<String, Object>, ArchiveError> {
        let listed = self.objects.list(&self.at(below)).map_err(self.fail(below))?;
        let named = |object: Object| {
            let name = object.path.strip_prefix(&self.root)?.trim_start_matches('/').to_owned();
            Some((name, object))
        };
        Ok(listed.into_iter().filter_map(named).collect())
    }

    /// Reads all commits.
    ///
    /// # Errors
    /// The store refused.
    pub fn view(&self) -> Result<View, ArchiveError> {
        let mut view = View { objects: self.list("")?, ..View::default() };
        let commits: Vec<u64> = view.objects.keys().filter_map(|name| committed(name)).collect();
        for number in commits {
            let name = Commit::name(number);
            view.written.insert(number, view.objects[&name].modified);
            match self.read_commit(number) {
                Ok(Ok(commit)) => drop(view.commits.insert(number, commit)),
                Ok(Err(damage)) => drop(view.damaged.insert(number, damage)),
                // It was pruned a moment ago.
                Err(ArchiveError::Object { fault: Fault::Missing, .. }) => drop(view.written.remove(&number)),
                Err(error) => return Err(error),
            }
        }
        Ok(view)
    }

    /// Reads one commit, and takes the objects that it lists for there.
    ///
    /// # Errors
    /// There is none that can be read, or the store refused.
    pub fn view_of(&self, number: u64) -> Result<View, ArchiveError> {
        let commit = match self.read_commit(number) {
            Ok(commit) => commit?,
            Err(ArchiveError::Object { fault: Fault::Missing, .. }) => {
                return Err(CheckpointError::Missing { number }.into());
            }
            Err(error) => return Err(error),
        };
        let object = |file: &CommittedFile| Object {
            path: self.at(&file.name),
            bytes: file.bytes,
            version: String::new(),
            modified: SystemTime::UNIX_EPOCH,
        };
        let objects = commit.files.iter().map(|file| (file.name.clone(), object(file))).collect();
        Ok(View { commits: [(number, commit)].into(), objects, ..View::default() })
    }

    fn read_commit(&self, number: u64) -> Result<Result<Commit, CheckpointError>, ArchiveError> {
        let name = Commit::name(number);
        let bytes = self.objects.read(&self.at(&name)).map_err(self.fail(&name))?;
        let file = format!("{}/{name}", self.url);
        Ok(Commit::read(&bytes, number, file))
    }

    /// The files of a shard that count in this view, for reading alone.
    pub fn disk(&self, view: &View, shard: u16) -> ArchiveDisk {
        let prefix = format!("shard-{shard}/");
        let files = view.commits.values().flat_map(|commit| &commit.files);
        let own = files.filter_map(|file| {
            let object = view.objects.get(&file.name)?;
            Some((file.name.strip_prefix(&prefix)?.to_owned(), (object.clone(), Some(file.checksum))))
        });
        ArchiveDisk::new(Arc::clone(&self.objects), self.shard_url(shard), own.collect())
    }

    /// All files of a shard, whether they count or not.
    fn raw_disk(&self, objects: &BTreeMap<String, Object>, shard: u16) -> ArchiveDisk {
        let prefix = format!("shard-{shard}/");
        let own = objects.iter().filter_map(|(name, object)| {
            Some((name.strip_prefix(&prefix)?.to_owned(), (object.clone(), None)))
        });
        ArchiveDisk::new(Arc::clone(&self.objects), self.shard_url(shard), own.collect())
    }

    /// The URL of the files of a shard.
    pub fn shard_url(&self, shard: u16) -> PathBuf {
        Path::new(&self.url).join(format!("shard-{shard}"))
    }
}

impl View {
    /// The shards of all checkpoints.
    pub fn shards(&self) -> u16 {
        let shards = self.commits.values().map(|commit| commit.shards).max().unwrap_or(0);
        u16::try_from(shards).unwrap_or(u16::MAX)
    }
}

/// The number of a commit, by its name.
fn committed(name: &str) -> Option<u64> {
    match named(name) {
        Some(Named::Commit(number)) => Some(number),
        _ => None,
    }
}

/// Tells objects that are ours by their names.
fn named(name: &str) -> Option<Named> {
    if let Some(digits) = name.strip_prefix("job-").and_then(|rest| rest.strip_suffix(".json")) {
        let number = digits.parse().ok().filter(|number: &u64| number.to_string() == digits)?;
        return Some(Named::Commit(number));
    }
    if name.strip_prefix(owner::PROBE).is_some_and(|rest| !rest.contains('/')) {
        return Some(Named::Probe);
    }
    let mut parts = name.split('/');
    let (shard, directory, file) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = !file.is_empty() && !file.starts_with('.');
    let is_file = parts.next().is_none() && is_plain && shard_in(shard).is_some();
    let checkpoint: u64 = directory.strip_prefix("checkpoint-")?.parse().ok()?;
    (is_file && directory == directory_name(checkpoint)).then_some(Named::File { checkpoint })
}
