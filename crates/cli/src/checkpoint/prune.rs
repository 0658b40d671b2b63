//! `libra checkpoint prune`: removes superfluous checkpoints.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use super::verify::Verdict;
use super::{Output, bytes, count};
use libra_launch::job_directory::{JobCheckpoint, JobDirectory, PartState, bytes_in};
use libra_storage::archive::{Archive, Environment};

/// Removes all but the newest complete checkpoints, and the leftovers of interrupted ones
///
/// Kept are the newest N that every shard has and in which every checksum is right, which this finds out by reading them; all
/// that they build on; and whatever is newer than the newest of them. Without any sound one, no checkpoint is removed. Logs stay:
/// servers remove what no checkpoint needs. No server of the job may run, except with --dry-run. At a URL, objects that no kept
/// checkpoint lists are removed, and uploads in parts that were not finished.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The data directory of a job, or of one shard; or a URL
    dir: PathBuf,
    /// Complete checkpoints to keep, at least 1
    #[arg(long, alias = "keep", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_checkpoints: u32,
    /// Only lists the directories that would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

/// Something to remove.
#[derive(Debug, Serialize)]
struct Superfluous {
    path: String,
    why: &'static str,
    bytes: u64,
    #[serde(skip)]
    shard: usize,
    /// A checkpoint; a leftover has none.
    #[serde(skip)]
    number: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Pruned {
    #[serde(skip)]
    is_url: bool,
    dry_run: bool,
    /// Newest first.
    kept: Vec<u64>,
    /// Kept although they do not count, because they are newer than those.
    kept_newer: Vec<u64>,
    /// Kept only because one of those builds on them, in some shard.
    kept_as_base: Vec<u64>,
    removed: Vec<Superfluous>,
    freed_bytes: u64,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let output = &arguments.output;
    let dry_run = arguments.dry_run;
    let directory = if dry_run || is_url(arguments) {
        JobDirectory::open(&arguments.dir)?
    } else {
        // A directory without checkpoints is refused before a file is created in it.
        JobDirectory::open(&arguments.dir)?;
        JobDirectory::open_to_write(&arguments.dir)?
    };
    output.begin()?;
    let list = directory.list()?;
    let bar = output.bars().bytes_bar("verify", 0);
    let sound = sound(&directory, &list, arguments.keep_checkpoints as usize, &bar, output);
    bar.finish_and_clear();
    let kept: Vec<u64> = sound.iter().map(|checkpoint| checkpoint.number).collect();
    if directory.is_url() {
        return prune_url(arguments, &list, kept);
    }
    let (superfluous, needed) = superfluous(&directory, &list, &sound)?;
    if !dry_run {
        remove(&directory, &superfluous)?;
    }
    let is_newer = |number: &u64| kept.first().is_none_or(|newest| number > newest);
    let others = needed.into_iter().rev().filter(|number| !kept.contains(number));
    let pruned = Pruned {
        is_url: false,
        dry_run,
        kept_newer: list.iter().map(|checkpoint| checkpoint.number).filter(is_newer).collect(),
        kept_as_base: others.filter(|number| !is_newer(number)).collect(),
        kept,
        freed_bytes: superfluous.iter().map(|one| one.bytes).sum(),
        removed: superfluous,
    };
    print(&pruned, output);
    output.write(&pruned)
}

fn is_url(arguments: &Arguments) -> bool {
    arguments.dir.to_str().is_some_and(libra_storage::is_url)
}

/// Removes objects that no kept checkpoint lists. Those that are newer than the newest sound one stay, too.
fn prune_url(arguments: &Arguments, list: &[JobCheckpoint], kept: Vec<u64>) -> Result<()> {
    let (output, dry_run) = (&arguments.output, arguments.dry_run);
    let url = arguments.dir.to_str().expect("a URL is a text");
    let archive = Archive::open(url, &Environment::of_process())?;
    let is_newer = |number: &u64| kept.first().is_none_or(|newest| number > newest);
    let kept_newer: Vec<u64> = list.iter().map(|checkpoint| checkpoint.number).filter(is_newer).collect();
    let keep: BTreeSet<u64> = kept.iter().chain(&kept_newer).copied().collect();
    let removed: Vec<_> = archive
        .prune(&keep, dry_run)?
        .removed
        .into_iter()
        .map(|one| Superfluous {
            path: format!("{}/{}", archive.url(), one.name),
            why: one.why,
            bytes: one.bytes,
            shard: 0,
            number: None,
        })
        .collect();
    let freed_bytes = removed.iter().map(|one| one.bytes).sum();
    let pruned =
        Pruned { is_url: true, dry_run, kept_newer, kept_as_base: Vec::new(), kept, freed_bytes, removed };
    print(&pruned, output);
    output.write(&pruned)
}

/// The newest complete checkpoints in which everything is as it was written.
fn sound<'a>(
    directory: &JobDirectory,
    list: &'a [JobCheckpoint],
    keep: usize,
    bar: &ProgressBar,
    output: &Output,
) -> Vec<&'a JobCheckpoint> {
    let mut sound = Vec::new();
    for checkpoint in list.iter().filter(|checkpoint| checkpoint.is_complete()) {
        if sound.len() == keep {
            break;
        }
        // What two of them build on is read twice: it must be sound for both.
        let mut verdict = Verdict::default();
        verdict.checkpoint(directory, checkpoint, &mut Vec::new(), bar);
        if verdict.damaged.is_empty() {
            sound.push(checkpoint);
        } else {
            let damaged = verdict.damaged.join("; ");
            output.print(&format!("checkpoint {} does not count: {damaged}", checkpoint.number));
        }
    }
    sound
}

/// Returns the checkpoints to remove, an increment before those it builds on, and the numbers that kept ones need.
fn superfluous(
    directory: &JobDirectory,
    list: &[JobCheckpoint],
    sound: &[&JobCheckpoint],
) -> Result<(Vec<Superfluous>, BTreeSet<u64>)> {
    let mut superfluous = Vec::new();
    // Each shard has increments of its own.
    let mut needed = BTreeSet::new();
    for checkpoint in list {
        // What is as new as the newest sound one stays, and what it builds on.
        let is_new = sound.first().is_none_or(|newest| checkpoint.number >= newest.number);
        if !is_new && !sound.iter().any(|kept| kept.number == checkpoint.number) {
            continue;
        }
        for part in &checkpoint.parts {
            if let (PartState::Whole(manifests), Some(position)) = (&part.state, part.position) {
                needed.extend(manifests.iter().map(|manifest| (position, manifest.description.number)));
            }
        }
    }
    if let Some(newest) = sound.first() {
        for checkpoint in list.iter().filter(|checkpoint| checkpoint.number < newest.number) {
            for (position, shard) in directory.shards.iter().enumerate() {
                let number = checkpoint.number;
                let path = shard.checkpoint_path(number);
                if needed.contains(&(position, number)) || !path.is_dir() {
                    continue;
                }
                superfluous.push(Superfluous {
                    bytes: bytes_in(&path),
                    path: path.display().to_string(),
                    why: if checkpoint.is_complete() { "older" } else { "not complete" },
                    shard: position,
                    number: Some(number),
                });
            }
        }
    }
    for left in directory.leftovers()? {
        let of = |path: &PathBuf| left.path.starts_with(path);
        superfluous.push(Superfluous {
            path: left.path.display().to_string(),
            why: "interrupted",
            bytes: left.bytes,
            shard: directory.shards.iter().position(|shard| of(&shard.path)).expect("it was found there"),
            number: None,
        });
    }
    Ok((superfluous, needed.into_iter().map(|(_, number)| number).collect()))
}

fn remove(directory: &JobDirectory, superfluous: &[Superfluous]) -> Result<()> {
    for one in superfluous {
        if let Some(number) = one.number {
            directory.shards[one.shard].checkpoints.remove(number)?;
        }
    }
    for shard in &directory.shards {
        shard.checkpoints.discard_unfinished()?;
    }
    Ok(())
}

fn print(pruned: &Pruned, output: &Output) {
    let verb = if pruned.dry_run { "would remove" } else { "removed" };
    for one in &pruned.removed {
        output.print(&format!("{verb} {} ({}, {})", one.path, one.why, bytes(one.bytes)));
    }
    let numbers = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let mut kept = if pruned.kept.is_empty() {
        "no checkpoint is complete and sound, so none was removed".to_owned()
    } else {
        format!("kept {}", numbers(&pruned.kept))
    };
    if !pruned.kept_as_base.is_empty() {
        kept += &format!(", which needs {}", numbers(&pruned.kept_as_base));
    }
    if !pruned.kept.is_empty() && !pruned.kept_newer.is_empty() {
        kept += &format!("; and {}, which is newer and does not count", numbers(&pruned.kept_newer));
    }
    let freed = if pruned.dry_run { "would free" } else { "freed" };
    output.print(&format!(
        "{kept}; {freed} {} in {}",
        bytes(pruned.freed_bytes),
        if pruned.is_url {
            count(pruned.removed.len() as u64, "object", "objects")
        } else {
            count(pruned.removed.len() as u64, "directory", "directories")
        }
    ));
}
