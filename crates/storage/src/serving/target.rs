//! The place of an export: its objects, and the process that writes them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use libra_objects::{Environment, Fault, Kind, Objects, Place, Replaced, Version, normal};
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::error::ServingError;
use super::manifest::{CURRENT, Current, is_directory};

/// Object that names the process that exports.
const OWNER: &str = "exporter.json";
/// So often a process writes that it is still there.
const BEAT: Duration = Duration::from_secs(5);
/// A process that has not written for so long has ended.
const SILENCE: Duration = Duration::from_secs(17);
/// Pause between two looks at another process.
const LOOK: Duration = Duration::from_millis(500);

/// A process that exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExporterId {
    /// A number that no other exporter has.
    pub id: u64,
    /// Its machine, for a person.
    pub host: String,
    /// Identity of its boot and of its name space of processes.
    pub machine: String,
    /// The process.
    pub process: u32,
    /// Its start, as the kernel counts.
    pub started: u64,
    /// Seconds since 1970 at which it took the place.
    pub since: u64,
    /// Rises while it is there.
    pub beats: u64,
}

impl ExporterId {
    /// This process, as the exporter with this number.
    pub fn of_process(id: u64) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let machine = format!("{} {}", read("/proc/sys/kernel/random/boot_id"), space.display());
        let process = std::process::id();
        Self {
            id,
            host: read("/proc/sys/kernel/hostname"),
            machine,
            process,
            started: start_of(process).unwrap_or(0),
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            beats: 0,
        }
    }

    fn to_bytes(&self) -> Bytes {
        serde_json::to_vec_pretty(self).expect("numbers and names").into()
    }

    /// Words for a person.
    fn describe(&self) -> String {
        format!("process {} on {}", self.process, self.host)
    }

    /// True if it certainly has ended; `None` if it cannot be told from here.
    fn has_ended(&self) -> Option<bool> {
        let own = Self::of_process(0);
        (own.machine == self.machine).then(|| start_of(self.process) != Some(self.started))
    }
}

/// The start of a process, in ticks since the boot; `None` if there is no such process.
fn start_of(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may have spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The place of an export.
#[derive(Debug, Clone)]
pub struct Target {
    objects: Arc<Objects>,
    /// Without a slash at the end.
    url: String,
    root: String,
}

/// A place that this process exports to.
#[derive(Debug)]
pub(super) struct Claim {
    target: Target,
    owner: ExporterId,
    beat: Instant,
    /// As `current.json` was read or written last; `None` if there is none.
    current: Option<Version>,
    given_up: Arc<AtomicBool>,
}

impl Target {
    /// The export in a directory, or at a URL. Sends nothing yet.
    ///
    /// # Errors
    /// It is no place to write to, has a secret in it, or the settings in the environment do not go together.
    pub fn open(to: &str, environment: &Environment) -> Result<Self, ServingError> {
        let place = Place::parse(to)?;
        let bad = |reason| ServingError::Place { place: place.name_of(&place.path), reason };
        if matches!(place.kind, Kind::Http(_)) {
            return Err(bad("nothing is exported to a server of HTTP: export to a directory that it serves"));
        }
        if place.path.contains(['?', '#', '*', '[', '{']) {
            return Err(bad("it is no place for an export: give a directory, without query and pattern"));
        }
        let shown = to.trim_end_matches('/').to_owned();
        let root = match place.kind {
            Kind::Local => {
                let path = std::path::absolute(Path::new(&place.path));
                let text = path.ok().and_then(|path| path.to_str().map(str::to_owned));
                text.ok_or_else(|| bad("the path is no text"))?
            }
            _ => place.path.clone(),
        };
        let objects = Objects::open(&place.kind, environment, None)
            .map_err(|fault| ServingError::Object { name: shown.clone(), fault })?;
        Ok(Self { objects: Arc::new(objects), url: shown, root: normal(&root) })
    }

    /// The export among objects, below a path, which messages call by this URL.
    pub fn over(objects: Arc<Objects>, root: &str, url: &str) -> Self {
        Self { objects, url: url.trim_end_matches('/').to_owned(), root: normal(root) }
    }

    /// The place, as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    fn at(&self, name: &str) -> String {
        if self.root.is_empty() { name.to_owned() } else { format!("{}/{name}", self.root) }
    }

    fn fail(&self, name: &str) -> impl Fn(Fault) -> ServingError {
        let name = self.named(name);
        move |fault| ServingError::Object { name: name.clone(), fault }
    }

    /// Reads an object whole.
    ///
    /// # Errors
    /// There is none, or the store refused.
    pub fn read(&self, name: &str) -> Result<Bytes, ServingError> {
        self.objects.read(&self.at(name)).map_err(self.fail(name))
    }

    fn read_with_version(&self, name: &str) -> Result<Option<(Bytes, Version)>, ServingError> {
        match self.objects.read_with_version(&self.at(name)) {
            Ok(read) => Ok(Some(read)),
            Err(Fault::Missing) => Ok(None),
            Err(fault) => Err(self.fail(name)(fault)),
        }
    }

    /// Reads what names the newest version; `None` if nothing was exported.
    ///
    /// # Errors
    /// It is damaged, or the store refused.
    pub fn current(&self) -> Result<Option<Current>, ServingError> {
        let read = self.read_with_version(CURRENT)?;
        read.map(|(bytes, _)| Current::read(&bytes, &self.named(CURRENT))).transpose()
    }

    fn owner(&self) -> Result<Option<(Option<ExporterId>, Bytes, Version)>, ServingError> {
        let read = self.read_with_version(OWNER)?;
        Ok(read.map(|(bytes, version)| (serde_json::from_slice(&bytes).ok(), bytes, version)))
    }

    /// Makes the place that of this process. One that was killed is told from one that is there: on this machine by its process, on
    /// others by what it writes every 5 s.
    pub(super) fn claim(&self, owner: ExporterId, given_up: Arc<AtomicBool>) -> Result<Claim, ServingError> {
        let (bytes, at) = (owner.to_bytes(), self.at(OWNER));
        let mut seen: Option<(Bytes, Instant)> = None;
        loop {
            let condition = match self.owner()? {
                None => None,
                Some((Some(other), _, version)) if other.id == owner.id => Some(version),
                Some((other, found, version)) => {
                    let who = other
                        .as_ref()
                        .map_or_else(|| "which cannot be read".to_owned(), ExporterId::describe);
                    let taken = || ServingError::Taken { url: self.url.clone(), owner: who.clone() };
                    match other.as_ref().and_then(ExporterId::has_ended) {
                        Some(true) => {}
                        Some(false) => return Err(taken()),
                        None => {
                            let (before, since) = seen.get_or_insert_with(|| (found.clone(), Instant::now()));
                            if *before != found {
                                return Err(taken());
                            }
                            if since.elapsed() < SILENCE {
                                sleep(LOOK);
                                if given_up.load(Ordering::Relaxed) {
                                    return Err(ServingError::GivenUp);
                                }
                                continue;
                            }
                        }
                    }
                    debug!(who, url = self.url, "the place of an exporter that has ended is taken over");
                    Some(version)
                }
            };
            let put = self.objects.replace(&at, bytes.clone(), condition.as_ref());
            match put.map_err(self.fail(OWNER))? {
                // Another one was faster.
                Replaced::Other => {}
                Replaced::Done { .. } => break,
            }
        }
        let mut claim = Claim { target: self.clone(), owner, beat: Instant::now(), current: None, given_up };
        // Without conditional put, two that begin at the same moment have both written.
        claim.check_owner()?;
        claim.current = self.read_with_version(CURRENT)?.map(|(_, version)| version);
        Ok(claim)
    }
}

impl Claim {
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn id(&self) -> u64 {
        self.owner.id
    }

    /// Called often: writes now and then that this process is there, and looks whether it should end.
    pub(super) fn beat(&mut self) -> Result<(), ServingError> {
        if self.given_up.load(Ordering::Relaxed) {
            return Err(ServingError::GivenUp);
        }
        if self.beat.elapsed() < BEAT {
            return Ok(());
        }
        let version = self.check_owner()?;
        self.owner.beats += 1;
        let put = self.target.objects.replace(&self.target.at(OWNER), self.owner.to_bytes(), Some(&version));
        self.beat = Instant::now();
        match put.map_err(self.target.fail(OWNER))? {
            Replaced::Done { .. } => Ok(()),
            Replaced::Other => self.check_owner().map(drop),
        }
    }

    /// Looks that the place is still that of this process.
    fn check_owner(&self) -> Result<Version, ServingError> {
        let lost = |owner| ServingError::Lost { url: self.target.url.clone(), owner };
        match self.target.owner()? {
            Some((Some(other), _, version)) if other.id == self.owner.id => Ok(version),
            Some((Some(other), ..)) => Err(lost(other.describe())),
            Some((None, ..)) => Err(lost("which cannot be read".to_owned())),
            None => Err(lost(format!("which has removed {OWNER}"))),
        }
    }

    /// Writes an object that does not count yet.
    pub(super) fn put(&mut self, name: &str, bytes: Bytes) -> Result<(), ServingError> {
        self.beat()?;
        self.target.objects.put(&self.target.at(name), bytes).map_err(self.target.fail(name))
    }

    /// Makes a version count. Returns whether the store has conditional put.
    pub(super) fn commit(&mut self, current: &Current) -> Result<bool, ServingError> {
        self.check_owner()?;
        let (at, bytes) = (self.target.at(CURRENT), Bytes::from(current.to_bytes()));
        let put = self.target.objects.replace(&at, bytes, self.current.as_ref());
        match put.map_err(self.target.fail(CURRENT))? {
            Replaced::Done { version, is_conditional } => {
                self.current = Some(version);
                Ok(is_conditional)
            }
            Replaced::Other => {
                self.check_owner()?;
                Err(ServingError::Lost {
                    url: self.target.url.clone(),
                    owner: format!("which has written {CURRENT}"),
                })
            }
        }
    }

    /// Removes all objects of versions that are not listed. Returns their number and their bytes.
    pub(super) fn prune(&mut self, current: Option<&Current>) -> Result<(u64, u64), ServingError> {
        let listed = current.map(|current| &current.versions[..]).unwrap_or_default();
        let keep: BTreeSet<&str> = listed.iter().map(|listed| listed.directory.as_str()).collect();
        let objects = self.target.objects.list(&self.target.root).map_err(self.target.fail(""))?;
        let mut removed = (0, 0);
        for object in objects {
            let name = object.path.strip_prefix(&self.target.root).map(|name| name.trim_start_matches('/'));
            let Some(name) = name else { continue };
            let Some((directory, _)) = name.split_once('/') else { continue };
            if is_directory(directory) && !keep.contains(directory) {
                self.beat()?;
                self.target.objects.delete(&object.path).map_err(self.target.fail(name))?;
                removed = (removed.0 + 1, removed.1 + object.bytes);
            }
        }
        let is_own = |name: &str| [CURRENT, OWNER].contains(&name) || is_directory(name);
        self.target.objects.sweep_own(&self.target.root, is_own).map_err(self.target.fail(""))?;
        Ok(removed)
    }

    /// Leaves the place to others.
    pub(super) fn release(self) -> Result<(), ServingError> {
        self.check_owner()?;
        self.target.objects.delete(&self.target.at(OWNER)).map_err(self.target.fail(OWNER))
    }
}
