//! `libra checkpoint export`: whole tables, for others to read.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use libra_plan::shard_of;
use libra_storage::checkpoint::{Exported, Manifest, export_split};
use libra_storage::disk::RealDisk;
use serde_json::{Value, json};

use super::{Output, bytes, count};
use libra_launch::document::write_json;
use libra_launch::job_directory::{JobCheckpoint, JobDirectory};
use libra_launch::report::group;

/// Memory for rows, beside 16 bytes for each row of the largest table.
const MEMORY_BYTES: usize = 256 << 20;
/// Name of the description of the exported files, beside them.
const INDEX: &str = "export.json";

/// Writes whole tables as safetensors files, which need nothing else to be read
///
/// The rows of all shards are put together, with those that increments build on: one file for each
/// table, POSITION-NAME.safetensors, by rising key: `keys` (U64), `values` and `state` (F32).
/// `export.json` beside them describes them. Every byte is compared with its checksum before.
/// In Python:
///
///   from safetensors.numpy import load_file
///   user = load_file("model/0-user.safetensors")
///   row = dict(zip(user["keys"], user["values"])).get(4711)
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The data directory of a job, or of one shard; or a URL
    dir: PathBuf,
    /// The checkpoint; without it the newest complete one
    number: Option<u64>,
    /// Directory to write to; must not exist, or be empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Divides each table among so many files, as so many servers would divide it
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    shards: u16,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let output = &arguments.output;
    let directory = JobDirectory::open(&arguments.dir)?;
    let checkpoint = directory.pick_complete(arguments.number)?;
    let partial = place(&arguments.to)?;
    output.begin()?;
    let started = Instant::now();
    let result = write(&directory, &checkpoint, &partial, arguments);
    let exported = result.and_then(|exported| {
        fs::rename(&partial, &arguments.to)
            .with_context(|| format!("cannot rename {} to {}", partial.display(), arguments.to.display()))?;
        Ok(exported)
    });
    let exported = exported.inspect_err(|_| {
        // It was made above, by this process.
        let _ = fs::remove_dir_all(&partial);
    })?;
    let rows = exported
        .iter()
        .map(|file| vec![file.table.clone(), file.file.clone(), group(file.rows), bytes(file.bytes)]);
    output.print_table(&["table", "file", "rows", "bytes"], &[2, 3], rows);
    let of_all = checkpoint.manifests().next().map_or(0, |manifest| manifest.description.shards);
    if checkpoint.parts.len() < of_all as usize {
        let shards = count(checkpoint.parts.len() as u64, "shard", "shards");
        output.print(&format!("these are the rows of {shards} of {of_all}"));
    }
    output.print(&format!(
        "checkpoint {} written to {} in {:.1} s",
        checkpoint.number,
        arguments.to.display(),
        started.elapsed().as_secs_f64()
    ));
    output.write(&index(&checkpoint, &exported, arguments.shards))
}

/// Makes the directory that is written to, and renamed in the end.
fn place(to: &Path) -> Result<PathBuf> {
    let shown = to.display();
    match fs::read_dir(to) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                bail!("{shown} is not empty, and nothing is overwritten: name another directory for --to");
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(anyhow!(error).context(format!("cannot write to {shown}"))),
    }
    let name = to.file_name().with_context(|| format!("--to {shown} names no directory"))?;
    let mut partial = name.to_owned();
    partial.push(".partial");
    let partial = to.with_file_name(partial);
    match fs::create_dir(&partial) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
            "{} is there, as an interrupted export leaves it: remove it, or name another directory for --to",
            partial.display()
        ),
        result => result.with_context(|| format!("cannot make {}", partial.display()))?,
    }
    Ok(partial)
}

fn write(
    directory: &JobDirectory,
    checkpoint: &JobCheckpoint,
    partial: &Path,
    arguments: &Arguments,
) -> Result<Vec<Exported>> {
    let bars = arguments.output.bars();
    let line = bars.spinner("export");
    line.enable_steady_tick(std::time::Duration::from_millis(200));
    let mut opened = Vec::new();
    for part in &checkpoint.parts {
        line.set_message(format!("reading {}, and comparing it with its checksums", part.shard));
        let shard = &directory.shards[part.position.expect("a complete checkpoint has all")];
        let open = shard.checkpoints.open(checkpoint.number);
        opened.push(open.map_err(|error| anyhow!(shard.tell(&error)))?);
    }
    let rows: u64 = checkpoint.manifests().map(Manifest::rows).sum();
    line.set_message(format!("writing {}", count(rows, "row", "rows")));
    let shards = arguments.shards;
    let disk = RealDisk::open(partial)?;
    let exported =
        export_split(&opened, &disk, MEMORY_BYTES, shards.into(), |key| shard_of(key, shards).into())?;
    drop(disk);
    // It names the process that writes to a shard: an export is not written any more.
    let _ = fs::remove_file(partial.join("lock"));
    write_json(&partial.join(INDEX), &index(checkpoint, &exported, shards))?;
    line.finish_and_clear();
    Ok(exported)
}

fn index(checkpoint: &JobCheckpoint, exported: &[Exported], shards: u16) -> Value {
    let description = &checkpoint.manifests().next().expect("it is complete").description;
    let tables: Vec<_> = description
        .tables
        .iter()
        .map(|info| {
            let own = exported.iter().filter(|file| file.table == info.name);
            let files: Vec<_> = own
                .map(|file| json!({ "name": file.file, "rows": file.rows, "bytes": file.bytes }))
                .collect();
            json!({
                "name": info.name,
                "keys": info.keys,
                "width": info.width,
                "state": info.state,
                "rule": info.rule,
                "files": files,
            })
        })
        .collect();
    json!({
        "checkpoint": checkpoint.number,
        "job": description.job,
        "seed": description.seed,
        "shards": shards,
        "tables": tables,
    })
}
