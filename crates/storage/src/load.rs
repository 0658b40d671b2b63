//! The rows of a whole checkpoint, of however many shards.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::archive::ArchiveError;
use crate::checkpoint::{CheckpointError, Checkpoints, TableInfo};
use crate::disk::DiskError;
use libra_store::{RowBlock, TableSpec};
use thiserror::Error;

use crate::restore::rows_of;
use crate::shard_checkpoints::info;
use crate::source::Source;

/// Rows that are read at once.
const ROWS: usize = 8192;

/// The reason for which a checkpoint cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A URL cannot be read, or does not have the checkpoint.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The directory of a shard cannot be read.
    #[error("{directory}: {cause}")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Error of the system.
        cause: DiskError,
    },
    /// A shard does not have the checkpoint, or it is damaged.
    #[error("{directory}: {cause}")]
    Checkpoint {
        /// The shard.
        directory: PathBuf,
        /// The error.
        cause: CheckpointError,
    },
    /// A table of the job is not in the checkpoint, or is another one there.
    #[error("table {table:?} of this job is not as in the checkpoint: {difference}")]
    Table {
        /// The table.
        table: String,
        /// The difference.
        difference: String,
    },
    /// Rows that were never updated follow from the seed, and this is another one.
    #[error(
        "the seed of this job is {found}, that of the checkpoint is {expected}: start the job with that one"
    )]
    Seed {
        /// Of the checkpoint.
        expected: u64,
        /// Of the job.
        found: u64,
    },
}

/// The parts of a checkpoint beside its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Number of steps of each table.
    pub steps: Vec<u64>,
    /// The states of its shards.
    pub states: Vec<Vec<u8>>,
}

/// Reads checkpoint `number` in a data directory, or at a URL, and gives `take` the rows of all its shards, as rows of these tables of a job;
/// for a shard, which is one of so many, only its own if the checkpoint has as many.
/// Returns what it has besides; `None` if `take` wanted no more.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    data: &Path,
    number: u64,
    seed: u64,
    tables: &[TableSpec],
    (own, of): (u16, u16),
    mut take: impl FnMut(RowBlock) -> ControlFlow<()>,
) -> Result<Option<Loaded>, LoadError> {
    let source = Source::open(data, Some(number))?;
    let (mut steps, mut states) = (vec![0; tables.len()], Vec::new());
    let (mut shard, mut shards) = (0, 1);
    while shard < shards {
        let directory = source.path(shard);
        let disk = source
            .disk(shard)
            .map_err(|cause| LoadError::Directory { directory: directory.clone(), cause })?;
        let fail = |cause| LoadError::Checkpoint { directory: directory.clone(), cause };
        // Damage that is found later ends the job, and rows of it are nowhere then.
        let checkpoint = Checkpoints::new(disk).open_rows(number).map_err(fail)?;
        let description = &checkpoint.manifest().description;
        if description.seed != seed {
            return Err(LoadError::Seed { expected: description.seed, found: seed });
        }
        let positions = positions(&description.tables, tables)?;
        shards = u16::try_from(description.shards).unwrap_or(u16::MAX);
        if shards == of && shard != own {
            shard += 1;
            continue;
        }
        for (table, spec) in tables.iter().enumerate() {
            steps[table] = steps[table].max(description.steps.get(&spec.name).copied().unwrap_or(0));
        }
        states.push(checkpoint.state().to_vec());
        let mut blocks = checkpoint.blocks(ROWS);
        while let Some(block) = blocks.next_block().map_err(fail)? {
            let mut rows = rows_of(block);
            rows.table = positions[rows.table];
            if take(rows).is_break() {
                return Ok(None);
            }
        }
        shard += 1;
    }
    Ok(Some(Loaded { steps, states }))
}

/// Returns the positions of the tables of a checkpoint among those of the job.
fn positions(there: &[TableInfo], tables: &[TableSpec]) -> Result<Vec<usize>, LoadError> {
    let wrong = |table: &str, difference: String| LoadError::Table { table: table.to_owned(), difference };
    for spec in tables {
        let own = info(spec);
        let Some(other) = there.iter().find(|info| info.name == own.name) else {
            return Err(wrong(&own.name, "the checkpoint has none of this name".to_owned()));
        };
        let differs = |what: &str, here: String, there: String| {
            wrong(&own.name, format!("its {what} here is {here}, there it is {there}"))
        };
        if own.keys != other.keys {
            return Err(differs("range of keys", format!("{:?}", own.keys), format!("{:?}", other.keys)));
        }
        if own.width != other.width {
            return Err(differs("width", own.width.to_string(), other.width.to_string()));
        }
        if own.state != other.state {
            return Err(differs("update rule", own.rule.to_string(), other.rule.to_string()));
        }
    }
    let position = |info: &TableInfo| {
        let found = tables.iter().position(|spec| spec.name == info.name);
        found.ok_or_else(|| wrong(&info.name, "this job has none of this name".to_owned()))
    };
    there.iter().map(position).collect()
}
