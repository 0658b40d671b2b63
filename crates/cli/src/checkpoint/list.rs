//! `libra checkpoint list`: the checkpoints and logs of a job.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use libra_storage::checkpoint::Manifest;
use libra_storage::wal::segments;
use serde::Serialize;

use super::{Output, bytes};
use libra_launch::job_directory::{JobCheckpoint, JobDirectory, PartState};
use libra_launch::report::group;

/// Lists the checkpoints of a job, newest first, and its logs
///
/// Reads manifests, and lengths of files; what is in the files is compared by `verify`.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The data directory of a job, or of one shard; or a URL
    dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// A checkpoint as a machine reads it.
#[derive(Serialize)]
struct Line {
    number: u64,
    complete: bool,
    /// Shards without it.
    missing: Vec<String>,
    /// Damage of the parts that are there.
    damaged: Vec<String>,
    /// The checkpoint that it builds on, the same in all shards; none if it is a full one.
    base: Option<u64>,
    /// In an increment, those that changed.
    rows: u64,
    bytes: u64,
    tables: Vec<String>,
    /// Seconds since 1970.
    written: Option<u64>,
}

/// The log of a shard as a machine reads it.
#[derive(Serialize)]
struct Log {
    shard: String,
    segments: usize,
    /// Its oldest record.
    first_record: Option<u64>,
    bytes: u64,
}

#[derive(Serialize)]
struct Listing {
    checkpoints: Vec<Line>,
    logs: Vec<Log>,
    leftovers: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let output = &arguments.output;
    let directory = JobDirectory::open(&arguments.dir)?;
    output.begin()?;
    let checkpoints = directory.list()?.iter().map(|checkpoint| line(checkpoint, &directory)).collect();
    let mut logs = Vec::new();
    for shard in &directory.shards {
        let segments = segments(shard.checkpoints.disk())
            .with_context(|| format!("cannot read the log in {}", shard.path.display()))?;
        logs.push(Log {
            shard: shard.name(),
            segments: segments.len(),
            first_record: segments.first().map(|segment| segment.first.0),
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
        });
    }
    let leftovers: Vec<_> =
        directory.leftovers()?.iter().map(|left| left.path.display().to_string()).collect();
    let listing = Listing { checkpoints, logs, leftovers };
    print(&listing, output);
    output.write(&listing)
}

fn line(checkpoint: &JobCheckpoint, directory: &JobDirectory) -> Line {
    let (mut missing, mut damaged) = (Vec::new(), Vec::new());
    for part in &checkpoint.parts {
        match &part.state {
            PartState::Whole(_) => {}
            PartState::Missing => missing.push(part.shard.clone()),
            PartState::Damaged(fault) => damaged.push(fault.clone()),
        }
    }
    let tables = checkpoint.manifests().next().map(|manifest| &manifest.description.tables);
    Line {
        number: checkpoint.number,
        complete: checkpoint.is_complete(),
        missing,
        damaged,
        base: checkpoint.manifests().find_map(|manifest| manifest.base).map(|base| base.number),
        rows: checkpoint.manifests().map(Manifest::rows).sum(),
        bytes: checkpoint.manifests().map(Manifest::bytes).sum(),
        tables: tables.into_iter().flatten().map(|table| table.name.clone()).collect(),
        written: checkpoint.written(directory).map(seconds),
    }
}

fn print(listing: &Listing, output: &Output) {
    if listing.checkpoints.is_empty() {
        output.print("no checkpoint");
    } else {
        let header = ["checkpoint", "", "kind", "rows", "bytes", "tables", "written (UTC)"];
        let rows = listing.checkpoints.iter().map(|line| {
            vec![
                line.number.to_string(),
                state(line),
                line.base.map_or_else(|| "full".to_owned(), |base| format!("changes since {base}")),
                group(line.rows),
                bytes(line.bytes),
                line.tables.join(", "),
                line.written.map(date).unwrap_or_default(),
            ]
        });
        output.print_table(&header, &[0, 3, 4], rows);
    }
    for fault in listing.checkpoints.iter().flat_map(|line| &line.damaged) {
        output.print(fault);
    }
    if listing.logs.iter().any(|log| log.segments > 0) {
        let rows = listing.logs.iter().map(|log| {
            let first = log.first_record.map(|first| format!("from {} on", group(first)));
            vec![log.shard.clone(), log.segments.to_string(), first.unwrap_or_default(), bytes(log.bytes)]
        });
        output.print_table(&["log of", "files", "records", "bytes"], &[1, 2, 3], rows);
    }
    for leftover in &listing.leftovers {
        output.print(&format!("{leftover} is being written or removed, or was when that was interrupted"));
    }
}

fn state(line: &Line) -> String {
    let mut state = Vec::new();
    if line.complete {
        state.push("complete".to_owned());
    }
    if !line.missing.is_empty() {
        state.push(format!("{} missing", line.missing.join(", ")));
    }
    if !line.damaged.is_empty() {
        state.push("damaged".to_owned());
    }
    state.join("; ")
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The date and time of a number of seconds since 1970, in UTC.
fn date(seconds: u64) -> String {
    let timestamp = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    // Of a year above 9999, which a damaged clock makes.
    timestamp.map_or_else(|| "?".to_owned(), |timestamp| timestamp.strftime("%F %T").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59:59");
        assert_eq!(date(1_795_252_398), "2026-11-21 09:13:18");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00:00");
        assert_eq!(date(u64::MAX), "?");
    }
}
