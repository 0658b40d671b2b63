//! A checkpoint while it is exported.

use super::error::ServingError;
use crate::checkpoint::{Checkpoint, Checkpoints, Description, Manifest};
use crate::disk::Disk;

/// A checkpoint of a job, of all its shards.
#[derive(Debug)]
pub(super) struct Source<D> {
    pub(super) description: Description,
    pub(super) parts: Vec<(String, Checkpoint<D>)>,
    /// Checksums of the manifests, by shard.
    pub(super) checksums: Vec<u32>,
}

impl<D: Disk + Clone> Source<D> {
    pub(super) fn open(shards: &[(String, Checkpoints<D>)], number: u64) -> Result<Self, ServingError> {
        let (mut parts, mut checksums) = (Vec::new(), Vec::new());
        for (name, checkpoints) in shards {
            let fail = |cause| ServingError::Checkpoint { file: name.clone(), cause };
            parts.push((name.clone(), checkpoints.open_rows(number).map_err(fail)?));
            checksums.push(checkpoints.manifest(number).map_err(fail)?.1);
        }
        let description = parts[0].1.manifest().description.clone();
        for (shard, (_, part)) in parts.iter().enumerate() {
            let other = &part.manifest().description;
            let field = if other.job != description.job {
                "job"
            } else if other.seed != description.seed {
                "seed"
            } else if other.tables != description.tables {
                "tables"
            } else {
                continue;
            };
            return Err(ServingError::Shard { number, shard, field });
        }
        Ok(Self { description, parts, checksums })
    }

    /// True if the checkpoint builds on that of the newest version, with these checksums.
    pub(super) fn builds_on(
        &self,
        shards: &[(String, Checkpoints<D>)],
        version: u64,
        checksums: &[u32],
    ) -> bool {
        let mut found = Vec::new();
        for ((_, part), (_, checkpoints)) in self.parts.iter().zip(shards) {
            if !part.manifests().iter().any(|manifest| manifest.description.number == version) {
                return false;
            }
            let Ok((_, checksum)) = checkpoints.manifest(version) else { return false };
            found.push(checksum);
        }
        found == checksums
    }

    /// Rows of a table in the checkpoints above a number.
    pub(super) fn rows(&self, position: usize, above: u64) -> u64 {
        let manifests = self.parts.iter().flat_map(|(_, part)| part.manifests());
        manifests
            .filter(|manifest| above == 0 || manifest.description.number > above)
            .map(|manifest: &Manifest| manifest.rows_of(position))
            .sum()
    }
}
