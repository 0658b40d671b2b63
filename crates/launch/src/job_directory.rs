//! The data directory of a job: a directory for each shard, each with checkpoints and a log. Or a URL, with checkpoints alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use libra_storage::checkpoint::{CheckpointError, Checkpoints, Manifest};
use libra_storage::disk::{Disk, RealDisk};
use libra_storage::{Source, shard_directory, shard_in};

/// The directory of a job, or of one of its shards; or a URL.
pub struct JobDirectory {
    /// Its path, or the URL.
    pub path: PathBuf,
    /// By number. One only if the directory is that of a shard.
    pub shards: Vec<Shard>,
    is_one_shard: bool,
    archived: Option<Archived>,
}

/// The checkpoints that count at a URL.
struct Archived {
    numbers: BTreeSet<u64>,
    /// Commits that cannot be read, and the damage.
    damaged: BTreeMap<u64, String>,
    written: BTreeMap<u64, SystemTime>,
}

/// The directory of a shard.
pub struct Shard {
    /// The number in its name; of a directory that was given as that of one shard, the number in its checkpoints.
    number: Option<u32>,
    /// Its path.
    pub path: PathBuf,
    /// Its checkpoints.
    pub checkpoints: Checkpoints<Arc<dyn Disk>>,
    is_remote: bool,
}

/// The checkpoints of one number of all shards, newest first in a [`JobDirectory::list`].
pub struct JobCheckpoint {
    /// The number of the checkpoint.
    pub number: u64,
    /// One for each shard that there should be.
    pub parts: Vec<Part>,
}

/// A shard's part of a checkpoint.
pub struct Part {
    /// Its shard, as a person calls it.
    pub shard: String,
    /// Its position in [`JobDirectory::shards`]; `None` if that directory is not there.
    pub position: Option<usize>,
    /// Its state.
    pub state: PartState,
}

/// State of a part of a checkpoint.
pub enum PartState {
    /// Its manifest and those of the checkpoints it builds on, the full one first. Of the files only names and lengths were looked at.
    Whole(Vec<Manifest>),
    /// Nothing.
    Missing,
    /// The damage, in words.
    Damaged(String),
}

/// A directory that an interrupted write or removal has left, or that is being written.
pub struct Leftover {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

impl JobDirectory {
    /// Opens a directory to read it, even if a server writes there; or a URL.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_if_any(path)?
            .with_context(|| format!("{} has no checkpoint: there is no job-<number>.json", path.display()))
    }

    /// As [`open`](Self::open), but returns nothing of a URL that has no checkpoint.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open_if_any(path: &Path) -> Result<Option<Self>> {
        match Source::open(path, None)? {
            Source::Directory(path) => {
                Self::open_with(&path, |path| Ok(RealDisk::read_only(path)?)).map(Some)
            }
            source => Self::of_url(path, source),
        }
    }

    fn of_url(path: &Path, source: Source) -> Result<Option<Self>> {
        let Source::Archive(_, view) = &source else { unreachable!("directories are opened as such") };
        let shard = |number| {
            let checkpoints = Checkpoints::new(source.disk(number)?);
            Ok::<_, anyhow::Error>(Shard {
                number: Some(number.into()),
                path: source.path(number),
                checkpoints,
                is_remote: true,
            })
        };
        let shards: Vec<_> = (0..view.shards()).map(shard).collect::<Result<_>>()?;
        if shards.is_empty() && view.damaged.is_empty() {
            return Ok(None);
        }
        let damaged = view.damaged.iter().map(|(number, error)| (*number, error.to_string()));
        let archived = Archived {
            numbers: view.commits.keys().copied().collect(),
            damaged: damaged.collect(),
            written: view.written.clone(),
        };
        Ok(Some(Self { path: path.to_owned(), shards, is_one_shard: false, archived: Some(archived) }))
    }

    /// True if it is a URL.
    pub fn is_url(&self) -> bool {
        self.archived.is_some()
    }

    /// Opens a directory, so that no other process may write to it meanwhile.
    pub fn open_to_write(path: &Path) -> Result<Self> {
        Self::open_with(path, |path| {
            RealDisk::open(path)
                .context("is a server of the job running? Only prune directories that no server writes to")
        })
    }

    fn open_with(path: &Path, open: impl Fn(&Path) -> Result<RealDisk>) -> Result<Self> {
        let shown = path.display();
        let entries = fs::read_dir(path).with_context(|| format!("cannot read the directory {shown}"))?;
        let mut numbers = BTreeSet::new();
        let mut is_one_shard = false;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read the directory {shown}"))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            numbers.extend(shard_in(name).filter(|_| entry.path().is_dir()));
            is_one_shard |= name.starts_with("checkpoint-") || name.starts_with("log-");
        }
        let shard = |number, path: PathBuf| {
            let disk: Arc<dyn Disk> = Arc::new(open(&path)?);
            let checkpoints = Checkpoints::new(disk);
            Ok::<_, anyhow::Error>(Shard { number, checkpoints, path, is_remote: false })
        };
        let shards = match (numbers.is_empty(), is_one_shard) {
            (true, true) => vec![shard(None, path.to_owned())?],
            (true, false) => bail!(
                "{shown} is no directory of checkpoints: it has no shard-<n>, and no checkpoint-<number> or log-* itself"
            ),
            (false, _) => {
                let at = |number| shard(Some(u32::from(number)), shard_directory(path, number));
                numbers.into_iter().map(at).collect::<Result<_>>()?
            }
        };
        let is_one_shard = shards[0].number.is_none();
        Ok(Self { path: path.to_owned(), is_one_shard, shards, archived: None })
    }

    /// All checkpoints, newest first.
    pub fn list(&self) -> Result<Vec<JobCheckpoint>> {
        if let Some(archived) = &self.archived {
            let numbers: BTreeSet<u64> =
                archived.numbers.iter().chain(archived.damaged.keys()).copied().collect();
            return Ok(numbers.into_iter().rev().map(|number| self.checkpoint(number)).collect());
        }
        let mut numbers = BTreeSet::new();
        for shard in &self.shards {
            for listed in shard.checkpoints.list()? {
                if !matches!(listed.manifest, Err(CheckpointError::Unfinished { .. })) {
                    numbers.insert(listed.number);
                }
            }
        }
        Ok(numbers.into_iter().rev().map(|number| self.checkpoint(number)).collect())
    }

    /// Returns the parts of a number.
    pub fn checkpoint(&self, number: u64) -> JobCheckpoint {
        if let Some(damage) = self.archived.as_ref().and_then(|archived| archived.damaged.get(&number)) {
            let state = PartState::Damaged(damage.clone());
            let part = Part { shard: format!("job-{number}.json"), position: None, state };
            return JobCheckpoint { number, parts: vec![part] };
        }
        let mut parts: Vec<Part> = (0..self.shards.len()).map(|shard| self.part(shard, number)).collect();
        agree(&mut parts);
        if self.is_one_shard {
            return JobCheckpoint { number, parts };
        }
        let shards =
            parts.iter().filter_map(Part::manifest).map(|manifest| manifest.description.shards).max();
        match shards {
            Some(shards) => {
                // Directories beyond are of a time when there were more shards.
                let numbers: Vec<_> = self.shards.iter().filter_map(|shard| shard.number).collect();
                parts.retain(|part| {
                    let number = part.position.and_then(|position| self.shards[position].number);
                    number.is_none_or(|number| number < shards) || !matches!(part.state, PartState::Missing)
                });
                for number in (0..shards).filter(|number| !numbers.contains(number)) {
                    let shard = format!("shard-{number}");
                    parts.push(Part { shard, position: None, state: PartState::Missing });
                }
            }
            // No manifest has the number of shards.
            None => parts.retain(|part| !matches!(part.state, PartState::Missing)),
        }
        JobCheckpoint { number, parts }
    }

    /// The checkpoint of this number, or the newest complete one.
    pub fn pick(&self, number: Option<u64>) -> Result<JobCheckpoint> {
        let list = self.list()?;
        let shown = self.path.display();
        let numbers: Vec<String> = list.iter().map(|checkpoint| checkpoint.number.to_string()).collect();
        let there = match numbers.len() {
            0 => "there is none".to_owned(),
            1..=10 => format!("there are: {}", numbers.join(", ")),
            more => format!("there are {more}, from {} to {}", numbers[more - 1], numbers[0]),
        };
        let picked = list.into_iter().find(|checkpoint| match number {
            Some(number) => checkpoint.number == number,
            None => checkpoint.is_complete(),
        });
        match (picked, number) {
            (Some(picked), _) => Ok(picked),
            (None, Some(number)) => bail!("{shown} has no checkpoint {number}; {there}"),
            (None, None) => bail!("{shown} has no checkpoint that all its shards have; {there}"),
        }
    }

    /// As [`pick_complete`](Self::pick_complete) without a number, but reads it before, and passes over those that are damaged:
    /// `skip` gets their numbers and the damage.
    pub fn pick_sound(&self, mut skip: impl FnMut(u64, String)) -> Result<JobCheckpoint> {
        let mut has_damage = false;
        for checkpoint in self.list()? {
            match self.damage(&checkpoint) {
                Some(damage) => {
                    skip(checkpoint.number, damage);
                    has_damage = true;
                }
                None if checkpoint.is_complete() => return Ok(checkpoint),
                // Its servers were killed while they wrote it.
                None => {}
            }
        }
        if has_damage || self.is_url() {
            bail!("{} has no checkpoint that is sound", self.path.display());
        }
        self.pick_complete(None)
    }

    /// Reads a checkpoint and returns the damage, in words. Parts that shards lack are damage at a URL alone: there it counts when it
    /// has all of them.
    pub fn damage(&self, checkpoint: &JobCheckpoint) -> Option<String> {
        let is_damage = |part: &&Part| self.is_url() || !matches!(part.state, PartState::Missing);
        let known = checkpoint.parts.iter().filter(is_damage).find_map(Part::problem);
        if known.is_some() || !checkpoint.is_complete() {
            return known;
        }
        let mut shards = checkpoint.parts.iter().filter_map(|part| Some(&self.shards[part.position?]));
        shards.find_map(|shard| shard.damage(checkpoint.number))
    }

    /// As [`pick`](Self::pick), and refuses one that cannot be used.
    pub fn pick_complete(&self, number: Option<u64>) -> Result<JobCheckpoint> {
        let picked = self.pick(number)?;
        let problems = picked.problems();
        if !problems.is_empty() {
            bail!(
                "checkpoint {} of {} is not complete: {}",
                picked.number,
                self.path.display(),
                problems.join("; ")
            );
        }
        Ok(picked)
    }

    /// Lists directories that are being written or removed, or were when the process ended.
    pub fn leftovers(&self) -> Result<Vec<Leftover>> {
        let mut leftovers = Vec::new();
        if self.is_url() {
            return Ok(leftovers);
        }
        for shard in &self.shards {
            for listed in shard.checkpoints.list()? {
                if let Err(CheckpointError::Unfinished { directory }) = listed.manifest {
                    let path = shard.path.join(directory);
                    leftovers.push(Leftover { bytes: bytes_in(&path), path });
                }
            }
        }
        Ok(leftovers)
    }

    fn part(&self, position: usize, number: u64) -> Part {
        let shard = &self.shards[position];
        let state = match shard.checkpoints.manifests(number) {
            Ok(manifests) => match shard.fault(&manifests) {
                None => PartState::Whole(manifests),
                Some(fault) => PartState::Damaged(fault),
            },
            Err(CheckpointError::Missing { .. }) => PartState::Missing,
            Err(error) => PartState::Damaged(shard.tell(&error)),
        };
        Part { shard: shard.name(), position: Some(position), state }
    }
}

impl Shard {
    /// Returns its name for a person.
    pub fn name(&self) -> String {
        let last = || self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.number
            .map_or_else(|| last().unwrap_or_else(|| ".".to_owned()), |number| format!("shard-{number}"))
    }

    /// Returns false if the checkpoint with this number was removed after the directory was opened.
    pub fn still_has(&self, number: u64) -> bool {
        self.is_remote || self.checkpoint_path(number).exists()
    }

    /// Returns where the checkpoint with this number is, or would be.
    pub fn checkpoint_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("checkpoint-{number}"))
    }

    /// Compares all files of a checkpoint, and of those it builds on, with their checksums. Returns the damage in words.
    pub fn damage(&self, number: u64) -> Option<String> {
        self.checkpoints.verify(number).err().map(|error| self.tell(&error))
    }

    /// Finds faults that can be detected without reading files of rows.
    fn fault(&self, manifests: &[Manifest]) -> Option<String> {
        let own = &manifests.last()?.description;
        if let Some(number) = self.number.filter(|number| *number != own.shard) {
            return Some(format!("{} is of shard {}, not {number}", self.shown(own.number), own.shard));
        }
        for manifest in manifests {
            let number = manifest.description.number;
            for file in &manifest.files {
                let name = format!("checkpoint-{number}/{}", file.name);
                match self.checkpoints.disk().bytes(&name) {
                    Ok(found) if found == file.bytes => {}
                    Ok(found) => {
                        let path = self.path.join(name);
                        return Some(format!("{} has {found} bytes, not {}", path.display(), file.bytes));
                    }
                    Err(error) if error.is_missing() => {
                        return Some(format!("{} is missing", self.path.join(name).display()));
                    }
                    Err(error) => return Some(error.to_string()),
                }
            }
        }
        None
    }

    /// An error with the whole path, and without advice for servers.
    pub fn tell(&self, error: &CheckpointError) -> String {
        match error {
            CheckpointError::Damaged { file, fault } => {
                format!("{} is damaged: {fault}", self.path.join(file).display())
            }
            CheckpointError::Base { number, base, cause } => {
                let cause = self.tell(cause);
                format!("{} has only what changed since checkpoint {base}: {cause}", self.shown(*number))
            }
            CheckpointError::Disk(error) => error.to_string(),
            error => format!("{}: {error}", self.path.display()),
        }
    }

    fn shown(&self, number: u64) -> String {
        self.checkpoint_path(number).display().to_string()
    }
}

impl JobCheckpoint {
    /// Returns whether all parts are there.
    pub fn is_complete(&self) -> bool {
        self.parts.iter().all(|part| part.manifest().is_some())
    }

    /// The manifests that can be used, by shard.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.parts.iter().filter_map(Part::manifest)
    }

    /// Returns the reasons for which it is not complete, in words: empty if it is.
    pub fn problems(&self) -> Vec<String> {
        self.parts.iter().filter_map(Part::problem).collect()
    }

    /// When its newest part was finished; at a URL, when it began to count.
    pub fn written(&self, directory: &JobDirectory) -> Option<SystemTime> {
        if let Some(archived) = &directory.archived {
            return archived.written.get(&self.number).copied();
        }
        let of = |part: &Part| {
            let path = directory.shards[part.position?].checkpoint_path(self.number);
            fs::metadata(path.join("manifest.json")).and_then(|metadata| metadata.modified()).ok()
        };
        self.parts.iter().filter_map(of).max()
    }
}

impl Part {
    /// Returns its manifest, if it can be used.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.state {
            PartState::Whole(manifests) => manifests.last(),
            PartState::Missing | PartState::Damaged(_) => None,
        }
    }

    /// Returns the reason for which it cannot be used, in words.
    fn problem(&self) -> Option<String> {
        match &self.state {
            PartState::Whole(_) => None,
            PartState::Missing => Some(format!("{} has none", self.shard)),
            PartState::Damaged(fault) => Some(fault.clone()),
        }
    }
}

/// Parts that are not of the same job as the first one cannot be used with it.
fn agree(parts: &mut [Part]) {
    let Some((first, shard)) =
        parts.iter().find_map(|part| Some((part.manifest()?.description.clone(), part.shard.clone())))
    else {
        return;
    };
    for part in parts {
        let Some(own) = part.manifest().map(|manifest| &manifest.description) else { continue };
        let field = if own.job != first.job {
            "the job"
        } else if own.seed != first.seed {
            "the seed"
        } else if own.shards != first.shards {
            "the number of shards"
        } else if own.tables != first.tables {
            "a table"
        } else {
            continue;
        };
        part.state = PartState::Damaged(format!("{field} of {} is not that of {shard}", part.shard));
    }
}

/// Bytes of the files in a directory.
pub fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}
