//! `libra checkpoint verify`: compares all files with their checksums.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use libra_storage::checkpoint::{CheckpointError, Manifest};
use libra_storage::wal::{self, OpenError, RecordNumber};
use serde::Serialize;

use super::{Output, bytes, count};
use libra_launch::job_directory::{JobCheckpoint, JobDirectory, PartState, Shard};

/// Reads everything and compares it with its checksums: checkpoints and logs
///
/// Nothing is changed, and servers may run meanwhile. The exit code is 1 if anything is damaged. That a shard has no part of a
/// checkpoint is no damage: it may just be writing it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The data directory of a job, or of one shard; or a URL
    dir: PathBuf,
    /// Only this checkpoint and those that it builds on, and no logs
    number: Option<u64>,
    #[command(flatten)]
    output: Output,
}

/// Counts of the files that were read, and the damage found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    checkpoints: usize,
    files: u64,
    bytes: u64,
    log_files: u64,
    log_records: u64,
    log_bytes: u64,
    /// The damage found, each with its file.
    pub(super) damaged: Vec<String>,
    /// Remarks about the state of files that are not damaged.
    notes: Vec<String>,
    seconds: f64,
    bytes_per_second: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let output = &arguments.output;
    let directory = JobDirectory::open(&arguments.dir)?;
    let checkpoints = match arguments.number {
        None => directory.list()?,
        number => vec![directory.pick(number)?],
    };
    output.begin()?;
    let mut verdict = Verdict::default();
    let started = Instant::now();
    let bar = output.bars().bytes_bar("verify", 0);
    let mut done = Vec::new();
    for checkpoint in &checkpoints {
        verdict.checkpoint(&directory, checkpoint, &mut done, &bar);
    }
    if arguments.number.is_none() {
        for shard in &directory.shards {
            verdict.log(shard, covered(&directory, &checkpoints, shard), &bar)?;
        }
        for left in directory.leftovers()? {
            verdict.notes.push(format!("{} is not complete, and was not read", left.path.display()));
        }
    }
    bar.finish_and_clear();
    verdict.seconds = started.elapsed().as_secs_f64();
    verdict.bytes_per_second = (verdict.bytes + verdict.log_bytes) as f64 / verdict.seconds.max(1e-9);
    print(&verdict, output);
    output.write(&verdict)?;
    match &verdict.damaged[..] {
        [] => Ok(()),
        [one] => bail!("{one}"),
        more => bail!("{} things in {} are damaged", more.len(), arguments.dir.display()),
    }
}

/// The first record of the log of a shard that the newest complete checkpoint does not cover.
fn covered(directory: &JobDirectory, checkpoints: &[JobCheckpoint], shard: &Shard) -> RecordNumber {
    let newest = checkpoints.iter().find(|checkpoint| checkpoint.is_complete());
    let of_shard = newest.and_then(|newest| {
        let own = newest
            .parts
            .iter()
            .find(|part| part.position.is_some_and(|position| directory.shards[position].path == shard.path));
        own?.manifest()
    });
    of_shard.map_or(RecordNumber(1), |manifest| manifest.description.covers.next())
}

impl Verdict {
    /// Reads the parts of a checkpoint, and what they build on unless it is in `done`.
    pub(super) fn checkpoint(
        &mut self,
        directory: &JobDirectory,
        checkpoint: &JobCheckpoint,
        done: &mut Vec<(usize, u64)>,
        bar: &ProgressBar,
    ) {
        for part in &checkpoint.parts {
            let number = checkpoint.number;
            match (&part.state, part.position) {
                (PartState::Missing, _) => {
                    self.notes.push(format!("{} has no checkpoint {number}: it is not complete", part.shard));
                }
                // All damage of the files that are there is named.
                (PartState::Damaged(fault), Some(position)) => {
                    let before = self.damaged.len();
                    self.files(&directory.shards[position], (position, number), done, bar);
                    let known =
                        |found: &String| found.contains(fault.as_str()) || fault.contains(found.as_str());
                    if self.damaged.len() == before && !self.damaged.iter().any(known) {
                        self.damaged.push(fault.clone());
                    }
                }
                (PartState::Damaged(fault), None) => self.damaged.push(fault.clone()),
                (PartState::Whole(manifests), position) => {
                    let position = position.expect("a part that is there has a directory");
                    bar.inc_length(manifests.iter().map(Manifest::bytes).sum());
                    for manifest in manifests.iter().rev() {
                        let number = manifest.description.number;
                        if done.contains(&(position, number)) {
                            bar.inc(manifest.bytes());
                        }
                        self.files(&directory.shards[position], (position, number), done, bar);
                    }
                }
            }
        }
    }

    fn files(
        &mut self,
        shard: &Shard,
        (position, number): (usize, u64),
        done: &mut Vec<(usize, u64)>,
        bar: &ProgressBar,
    ) {
        if done.contains(&(position, number)) {
            return;
        }
        done.push((position, number));
        let (mut files, mut read, mut damaged) = (0, 0, Vec::new());
        let result = shard.checkpoints.verify_files(number, |file, result| {
            files += 1;
            read += file.bytes;
            bar.inc(file.bytes);
            damaged.extend(result.err());
        });
        damaged.extend(result.err());
        if !shard.still_has(number) {
            self.notes.push(format!("checkpoint {number} of {} was removed meanwhile", shard.name()));
            return;
        }
        self.checkpoints += 1;
        self.files += files;
        self.bytes += read;
        self.damaged.extend(damaged.iter().map(|error: &CheckpointError| shard.tell(error)));
    }

    fn log(&mut self, shard: &Shard, from: RecordNumber, bar: &ProgressBar) -> Result<()> {
        let disk = shard.checkpoints.disk();
        bar.inc_length(
            wal::segments(disk).map_or(0, |segments| segments.iter().map(|segment| segment.bytes).sum()),
        );
        let verified = wal::verify(disk, from, |bytes| {
            self.log_files += 1;
            bar.inc(bytes);
        })?;
        self.log_records += verified.records;
        self.log_bytes += verified.bytes;
        let at = |file: &str| shard.path.join(file).display().to_string();
        for fault in &verified.faults {
            self.damaged.push(match fault {
                OpenError::Damaged { file, offset, record, damage } => {
                    format!("{} is damaged at offset {offset}, at record {record}: {damage}", at(file))
                }
                OpenError::Missing { from, to, next } => {
                    format!("records {from} to {to} are missing before {}", at(next))
                }
                fault => format!("{}: {fault}", shard.path.display()),
            });
        }
        if let Some(torn) = verified.torn {
            self.notes.push(format!(
                "{} ends with {} that a server was writing; nothing in them was acknowledged",
                at(&torn.file),
                count(torn.bytes, "byte", "bytes")
            ));
        }
        Ok(())
    }
}

fn print(verdict: &Verdict, output: &Output) {
    for damaged in &verdict.damaged {
        output.print(&format!("DAMAGED: {damaged}"));
    }
    for note in &verdict.notes {
        output.print(&format!("note: {note}"));
    }
    let all = verdict.bytes + verdict.log_bytes;
    output.print(&format!(
        "read {} of {} in shards and {} of logs with {}, {} in {:.1} s: {}/s",
        count(verdict.files, "file", "files"),
        count(verdict.checkpoints as u64, "checkpoint", "checkpoints"),
        count(verdict.log_files, "file", "files"),
        count(verdict.log_records, "record", "records"),
        bytes(all),
        verdict.seconds,
        bytes(libra_launch::report::whole(verdict.bytes_per_second)),
    ));
    output.print(&if verdict.damaged.is_empty() {
        "all of it is as it was written".to_owned()
    } else {
        format!("{} damaged", verdict.damaged.len())
    });
}
