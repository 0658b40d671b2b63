//! `libra checkpoint inspect`: the content of one checkpoint.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use libra_storage::checkpoint::{Content, Manifest};
use serde_json::{Value, json};

use super::{Output, bytes};
use libra_launch::job_directory::{JobCheckpoint, JobDirectory, PartState};
use libra_launch::report::group;
use libra_launch::resume::{describe_position, position};

/// Shows what is in a checkpoint: tables, steps, files; or one row of it
///
/// Reads manifests. With --key it also reads files of rows, and compares those with their checksums.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The data directory of a job, or of one shard; or a URL
    dir: PathBuf,
    /// The checkpoint; without it the newest complete one
    number: Option<u64>,
    /// Prints only the row of this key, its values and the state of its optimizer, wherever it was written last
    #[arg(long, value_name = "K")]
    key: Option<u64>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let directory = JobDirectory::open(&arguments.dir)?;
    let checkpoint = directory.pick(arguments.number)?;
    let number = checkpoint.number;
    let problems = checkpoint.problems();
    let output = &arguments.output;
    if checkpoint.manifests().next().is_none() {
        bail!("checkpoint {number} of {} cannot be read: {}", arguments.dir.display(), problems.join("; "));
    }
    output.begin()?;
    if let Some(key) = arguments.key {
        return output.write(&row(&directory, &checkpoint, key, output)?);
    }
    print(&checkpoint, output);
    output.write(&described(&checkpoint))?;
    if problems.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "checkpoint {number} of {} is not complete: {}",
        arguments.dir.display(),
        problems.join("; ")
    ))
}

/// The shards that can be read: their names, and the manifests of what they build on, the full one first.
fn readable(checkpoint: &JobCheckpoint) -> impl Iterator<Item = (&str, &[Manifest])> {
    checkpoint.parts.iter().filter_map(|part| match &part.state {
        PartState::Whole(manifests) => Some((part.shard.as_str(), &manifests[..])),
        PartState::Missing | PartState::Damaged(_) => None,
    })
}

/// Rows of the table at this position; in an increment, those that changed.
fn rows_of(manifest: &Manifest, position: usize) -> (u64, u64) {
    let of = |content: Content| match content {
        Content::Rows { table, rows } if table == position => (rows, 0),
        Content::Removed { table, rows } if table == position => (0, rows),
        _ => (0, 0),
    };
    manifest
        .files
        .iter()
        .map(|file| of(file.content))
        .fold((0, 0), |sums, (rows, removed)| (sums.0 + rows, sums.1 + removed))
}

fn described(checkpoint: &JobCheckpoint) -> Value {
    let shards: Vec<_> = readable(checkpoint)
        .map(|(shard, manifests)| {
            let builds_on: Vec<_> = manifests.iter().map(|manifest| manifest.description.number).collect();
            json!({ "shard": shard, "manifest": manifests.last(), "numbers": builds_on })
        })
        .collect();
    json!({ "number": checkpoint.number, "complete": checkpoint.is_complete(), "problems": checkpoint.problems(), "shards": shards })
}

fn print(checkpoint: &JobCheckpoint, output: &Output) {
    let Some((_, manifests)) = readable(checkpoint).next() else { return };
    let first = &manifests.last().expect("the chain has itself").description;
    let numbers: Vec<_> = manifests.iter().map(|manifest| manifest.description.number.to_string()).collect();
    let kind = if manifests.len() == 1 {
        "full".to_owned()
    } else {
        format!(
            "what changed since checkpoint {}; together with {}",
            numbers[numbers.len() - 2],
            numbers[..numbers.len() - 1].join(", ")
        )
    };
    output.print(&format!(
        "checkpoint {} of job {}, seed {}: {kind}",
        checkpoint.number, first.job, first.seed
    ));
    if let Ok(position) = position(checkpoint) {
        output.print(&format!("position: {}", describe_position(&position)));
    }
    let tables = first.tables.iter().enumerate().map(|(position, info)| {
        let sums = checkpoint.manifests().map(|manifest| rows_of(manifest, position));
        let (rows, removed) = sums.fold((0, 0), |sums, (rows, removed)| (sums.0 + rows, sums.1 + removed));
        let removed = if removed > 0 { format!(", {} removed", group(removed)) } else { String::new() };
        vec![
            info.name.clone(),
            format!("{}..{}", info.keys.start, info.keys.end),
            info.width.to_string(),
            info.state.to_string(),
            format!("{}{removed}", group(rows)),
            info.rule.to_string(),
        ]
    });
    output.print_table(&["table", "keys", "width", "state", "rows", "rule"], &[2, 3, 4], tables);
    let shards = readable(checkpoint).map(|(shard, manifests)| {
        let manifest = manifests.last().expect("the chain has itself");
        let steps =
            manifest.description.steps.iter().map(|(name, steps)| format!("{name} {}", group(*steps)));
        vec![
            shard.to_owned(),
            group(manifest.rows()),
            bytes(manifest.bytes()),
            format!("records up to {}", group(manifest.description.covers.0)),
            steps.collect::<Vec<_>>().join(", "),
        ]
    });
    output.print_table(&["shard", "rows", "bytes", "covers of the log", "steps"], &[1, 2], shards);
    let files = readable(checkpoint).flat_map(|(shard, manifests)| {
        let manifest = manifests.last().expect("the chain has itself");
        manifest.files.iter().map(move |file| {
            let content = match file.content {
                Content::Rows { rows, .. } => format!("{} rows", group(rows)),
                Content::Removed { rows, .. } => format!("keys of {} removed rows", group(rows)),
                Content::State => "state of the server".to_owned(),
            };
            vec![shard.to_owned(), file.name.clone(), content, bytes(file.bytes)]
        })
    });
    output.print_table(&["shard", "file", "content", "bytes"], &[3], files);
}

/// Finds the row of a key, in whichever shard it is.
fn row(directory: &JobDirectory, checkpoint: &JobCheckpoint, key: u64, output: &Output) -> Result<Value> {
    let number = checkpoint.number;
    let tables = &checkpoint.manifests().next().expect("it was asked for").description.tables;
    let Some((position, info)) = tables.iter().enumerate().find(|(_, info)| info.keys.contains(&key)) else {
        let ranges: Vec<_> = tables
            .iter()
            .map(|info| format!("{} {}..{}", info.name, info.keys.start, info.keys.end))
            .collect();
        bail!("no table of checkpoint {number} has key {key}; their keys are {}", ranges.join(", "));
    };
    for part in checkpoint.parts.iter().filter(|part| part.manifest().is_some()) {
        let shard = &directory.shards[part.position.expect("a part that is there has a directory")];
        let found =
            shard.checkpoints.find(number, position, key).map_err(|error| anyhow!(shard.tell(&error)))?;
        let Some(found) = found else { continue };
        output.print(&format!(
            "key {key} of table {:?}, in {}, written in checkpoint {}\nvalues {:?}\nstate  {:?}",
            info.name, part.shard, found.number, found.values, found.state
        ));
        return Ok(json!({
            "key": key,
            "table": info.name,
            "shard": part.shard,
            "written_in": found.number,
            "values": found.values,
            "state": found.state,
        }));
    }
    let problems = checkpoint.problems();
    if problems.is_empty() {
        bail!(
            "checkpoint {number} has no row {key} of table {:?}: it was never written, and has its initial values",
            info.name
        );
    }
    bail!(
        "row {key} of table {:?} is in no part of checkpoint {number} that can be read: {}",
        info.name,
        problems.join("; ")
    );
}
