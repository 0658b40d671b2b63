//! The job that writes at a URL.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use libra_objects::{Created, Fault};
use serde::{Deserialize, Serialize};

use super::{Archive, ArchiveError, committed};

pub(super) const OWNER: &str = "owner.json";
/// First part of the name of an object that only shows whether one can be written.
pub(super) const PROBE: &str = "probe-";

/// A job that writes checkpoints at a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A number that no other job has.
    pub owner: u64,
    /// The machine of its controller.
    pub host: String,
    /// The process of its controller.
    pub process: u32,
    /// Seconds since 1970 at which it took the URL.
    pub since: u64,
}

/// Result of [`Archive::claim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// False if the store has no conditional put: then two jobs that begin at the same moment do not notice each other.
    pub is_conditional: bool,
    /// The newest checkpoint that is there; 0 if none is.
    pub newest: u64,
}

impl Owner {
    /// This process, for a job with this number.
    pub fn of_process(owner: u64) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { owner, host: host.trim().to_owned(), process: std::process::id(), since }
    }

    /// Words for a person.
    fn describe(&self) -> String {
        let now = SystemTime::now();
        let began = UNIX_EPOCH + Duration::from_secs(self.since);
        let minutes = now.duration_since(began).map_or(0, |ago| ago.as_secs() / 60);
        let ago = if minutes < 60 { format!("{minutes} min") } else { format!("{} h", minutes / 60) };
        format!("of process {} on {}, begun {ago} ago", self.process, self.host)
    }
}

impl Archive {
    /// Looks that objects can be written, and makes the URL that of this job. A job that goes on from the checkpoints that are
    /// there takes it over, and removes what no commit lists.
    ///
    /// # Errors
    /// Nothing can be written, or the URL is that of another job.
    pub fn claim(&self, owner: &Owner, takes_over: bool) -> Result<Claim, ArchiveError> {
        let is_conditional = self.probe(owner.owner)?;
        let bytes = Bytes::from(serde_json::to_vec_pretty(owner).expect("numbers and a name"));
        let at = self.at(OWNER);
        // A store without conditional put would replace it.
        let is_new = match self.objects.head(&at) {
            Ok(_) => false,
            Err(Fault::Missing) => {
                self.objects.create(&at, bytes.clone()).map_err(self.fail(OWNER))? != Created::Taken
            }
            Err(fault) => return Err(self.fail(OWNER)(fault)),
        };
        if !is_new {
            let other = self.owner()?;
            if !takes_over && other.as_ref().is_none_or(|other| other.owner != owner.owner) {
                let owner = other.map_or_else(|| "which cannot be read".to_owned(), |other| other.describe());
                return Err(ArchiveError::Taken { url: self.url.clone(), owner });
            }
            self.objects.put(&at, bytes).map_err(self.fail(OWNER))?;
        }
        if takes_over {
            self.remove_uncommitted()?;
        }
        let newest = self.list("")?.keys().filter_map(|name| committed(name)).max().unwrap_or(0);
        Ok(Claim { is_conditional, newest })
    }

    /// Writes an object and removes it. Returns whether the store has conditional puts.
    fn probe(&self, owner: u64) -> Result<bool, ArchiveError> {
        let name = format!("{PROBE}{owner:016x}");
        let at = self.at(&name);
        let create = |text: &'static str| {
            self.objects.create(&at, Bytes::from_static(text.as_bytes())).map_err(self.fail(&name))
        };
        let results = (create("Libra can write here")?, create("Libra can write here twice")?);
        // Where nothing may be removed, it stays.
        let _ = self.objects.delete(&at);
        Ok(results == (Created::New, Created::Taken))
    }

    /// The job that writes here; `None` if it cannot be told.
    fn owner(&self) -> Result<Option<Owner>, ArchiveError> {
        match self.objects.read(&self.at(OWNER)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(Fault::Missing) => Ok(None),
            Err(fault) => Err(self.fail(OWNER)(fault)),
        }
    }

    /// The number of the job that writes here.
    ///
    /// # Errors
    /// None does, or the store refused.
    pub fn owner_number(&self) -> Result<u64, ArchiveError> {
        let owner = self.owner()?.ok_or_else(|| self.fail(OWNER)(Fault::Missing))?;
        Ok(owner.owner)
    }

    /// Makes the URL that of the job again whose bucket was removed and made again. Another job that has it keeps it.
    ///
    /// # Errors
    /// The store refused.
    pub fn renew(&self, owner: &Owner) -> Result<(), ArchiveError> {
        if self.owner()?.is_some() {
            return Ok(());
        }
        let bytes = Bytes::from(serde_json::to_vec_pretty(owner).expect("numbers and a name"));
        self.objects.create(&self.at(OWNER), bytes).map(drop).map_err(self.fail(OWNER))
    }

    /// Looks that the URL is still that of a job.
    pub(super) fn check_owner(&self, owner: u64) -> Result<(), ArchiveError> {
        match self.owner()? {
            Some(other) if other.owner != owner => {
                Err(ArchiveError::Lost { url: self.url.clone(), owner: other.describe() })
            }
            Some(_) => Ok(()),
            None => Err(self.fail(OWNER)(Fault::Missing)),
        }
    }
}
