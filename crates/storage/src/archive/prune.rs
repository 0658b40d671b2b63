//! Removal of checkpoints at a URL that are not wanted any more, and of what no commit lists.

use std::collections::BTreeSet;

use libra_objects::{Fault, Upload};
use tracing::debug;

use super::upload::NOTE;
use super::{Archive, ArchiveError, Commit, Named, View, named};

/// An object that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its path from the URL.
    pub name: String,
    /// The reason.
    pub why: &'static str,
    /// Its length.
    pub bytes: u64,
}

/// Result of [`Archive::prune`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Numbers of the checkpoints that are kept, newest first.
    pub kept: Vec<u64>,
    /// The objects that are gone, in the order of their removal.
    pub removed: Vec<Removal>,
}

impl Archive {
    /// Removes all checkpoints but those with these numbers, and all files that none of them lists, uploads that were not finished
    /// among them: no job may write there meanwhile. A commit goes before its files, so that none is ever left without.
    ///
    /// # Errors
    /// The store refused. Another call goes on.
    pub fn prune(&self, keep: &BTreeSet<u64>, dry_run: bool) -> Result<Pruned, ArchiveError> {
        let view = self.view()?;
        let removed = superfluous(&view, keep, u64::MAX);
        if !dry_run {
            self.remove(&removed)?;
            self.objects.sweep(&self.root).map_err(self.fail(""))?;
        }
        Ok(Pruned { kept: kept(&view, keep), removed })
    }

    /// Removes all but the newest `keep` checkpoints, and what else is older than the newest: for the job that writes there,
    /// whose servers may upload the next one meanwhile.
    ///
    /// # Errors
    /// The store refused. Another call goes on.
    pub fn retain(&self, keep: usize) -> Result<Pruned, ArchiveError> {
        let view = self.view()?;
        let keep: BTreeSet<u64> = view.commits.keys().rev().take(keep.max(1)).copied().collect();
        let Some(newest) = keep.last().copied() else { return Ok(Pruned::default()) };
        let removed = superfluous(&view, &keep, newest);
        self.remove(&removed)?;
        Ok(Pruned { kept: kept(&view, &keep), removed })
    }

    /// Removes what no commit lists.
    pub(super) fn remove_uncommitted(&self) -> Result<(), ArchiveError> {
        let view = self.view()?;
        let keep = view.commits.keys().chain(view.damaged.keys()).copied().collect();
        self.remove(&superfluous(&view, &keep, u64::MAX))?;
        self.objects.sweep(&self.root).map_err(self.fail(""))
    }

    fn remove(&self, removals: &[Removal]) -> Result<(), ArchiveError> {
        for Removal { name, .. } in removals {
            if let Some(file) = name.strip_suffix(NOTE) {
                self.abort(name, file)?;
            }
            debug!(name, url = self.url, "an object is removed");
            self.objects.delete(&self.at(name)).map_err(self.fail(name))?;
        }
        let directories: BTreeSet<&str> =
            removals.iter().filter_map(|removal| Some(removal.name.rsplit_once('/')?.0)).collect();
        directories.into_iter().for_each(|directory| self.objects.remove_empty(&self.at(directory)));
        Ok(())
    }

    /// Gives up an upload that has left its note.
    pub(super) fn abort(&self, note: &str, file: &str) -> Result<(), ArchiveError> {
        let id = match self.objects.read(&self.at(note)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(Fault::Missing) => return Ok(()),
            Err(fault) => return Err(self.fail(note)(fault)),
        };
        self.objects.abort_upload(Upload::new(&self.at(file), id)).map_err(self.fail(file))
    }
}

fn kept(view: &View, keep: &BTreeSet<u64>) -> Vec<u64> {
    view.commits.keys().rev().filter(|number| keep.contains(number)).copied().collect()
}

/// The objects to remove: commits first, newest first, then files of checkpoints below a number that no kept commit lists.
fn superfluous(view: &View, keep: &BTreeSet<u64>, below: u64) -> Vec<Removal> {
    let commits = || view.commits.values().filter(|commit| keep.contains(&commit.number));
    let needed: BTreeSet<&str> =
        commits().flat_map(|commit| &commit.files).map(|file| file.name.as_str()).collect();
    let listed: BTreeSet<&str> =
        view.commits.values().flat_map(|commit| &commit.files).map(|file| file.name.as_str()).collect();
    let removal = |name: &String, why| Removal { name: name.clone(), why, bytes: view.objects[name].bytes };
    let numbers = view.commits.keys().chain(view.damaged.keys()).copied().collect::<BTreeSet<_>>();
    let mut removals: Vec<Removal> = numbers
        .into_iter()
        .rev()
        .filter(|number| *number < below && !keep.contains(number))
        .map(|number| {
            removal(
                &Commit::name(number),
                if view.damaged.contains_key(&number) { "damaged" } else { "older" },
            )
        })
        .collect();
    for name in view.objects.keys() {
        match named(name) {
            Some(Named::File { checkpoint }) => {
                // What a damaged commit lists is not known.
                let is_of_damaged = view.damaged.contains_key(&checkpoint) && keep.contains(&checkpoint);
                if checkpoint < below && !needed.contains(name.as_str()) && !is_of_damaged {
                    let why = if listed.contains(name.as_str()) { "older" } else { "not committed" };
                    removals.push(removal(name, why));
                }
            }
            Some(Named::Probe) if below == u64::MAX => removals.push(removal(name, "not committed")),
            _ => {}
        }
    }
    removals
}
