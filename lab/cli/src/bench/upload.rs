//! `libra-lab bench upload`: the rate at which a server uploads a checkpoint.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use libra_launch::document::write_json;
use libra_objects::Environment;
use libra_storage::archive::{Archive, Owner, Rate, Uploader};
use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo};
use libra_storage::disk::RealDisk;
use libra_storage::wal::RecordNumber;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::report::print;

const NUMBER: u64 = 1;
const WIDTH: u32 = 16;
/// Bytes of a row: its key, its values, and as much state.
const ROW_BYTES: u64 = 8 + 2 * 4 * WIDTH as u64;
const ROWS_AT_ONCE: u64 = 8192;

/// Uploads the checkpoint of one shard, as a server does, without a job beside it.
///
/// The checkpoint has rows of 16 values with as many of an optimizer, in files of 64 MiB. It is read from its directory, which other
/// clients of the store can be measured with. Settings of the store and credentials are in the environment, as for `libra train
/// --checkpoints`.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Directory for the checkpoint; one that is there is uploaded
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// Place that it is uploaded to, where there is none: `file:///DIR`, `s3://`, `gs://` or `az://BUCKET/DIR`
    #[arg(long, value_name = "URL")]
    to: String,
    /// MB of the checkpoint
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    megabytes: u64,
    /// MB that are sent in a second, at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { directory, to, megabytes, rate, json, quiet } = arguments;
    let checkpoints = Checkpoints::new(RealDisk::open(directory)?);
    if checkpoints.list()?.is_empty() {
        write(&checkpoints, 1_000_000 * megabytes / ROW_BYTES)?;
    }
    let archive = Archive::open(to, &Environment::of_process())?;
    let owner = u64::from(std::process::id());
    archive.claim(&Owner::of_process(owner), false)?;
    let mut uploader = Uploader::new(archive, owner, Rate(rate.saturating_mul(1_000_000)), Arc::default());
    let begun = Instant::now();
    let bytes = uploader.upload(&checkpoints, NUMBER)?;
    let figures = Figures::new(bytes, begun.elapsed());
    if !quiet {
        figures.print(to);
    }
    if let Some(path) = json {
        write_json(path, &figures)?;
    }
    Ok(())
}

/// Writes a checkpoint of so many rows.
fn write(checkpoints: &Checkpoints<RealDisk>, rows: u64) -> Result<()> {
    let table = TableInfo {
        name: "rows".to_owned(),
        keys: 0..rows,
        width: WIDTH,
        state: WIDTH,
        rule: serde_json::Value::Null,
    };
    let description = Description {
        number: NUMBER,
        job: 1,
        seed: 1,
        shards: 1,
        shard: 0,
        covers: RecordNumber(0),
        steps: BTreeMap::new(),
        tables: vec![table],
        position: None,
    };
    let mut writer = checkpoints.begin(description, None, PartSettings::default())?;
    let (mut random, mut values) = (SmallRng::seed_from_u64(NUMBER), Vec::new());
    for first in (0..rows).step_by(usize::try_from(ROWS_AT_ONCE)?) {
        let keys: Vec<u64> = (first..rows.min(first + ROWS_AT_ONCE)).collect();
        values.clear();
        // No store or network makes less of them.
        values.extend((0..keys.len() * WIDTH as usize).map(|_| random.random::<f32>()));
        writer.write_rows(0, &keys, &values, &values)?;
    }
    writer.finish(&[])?;
    Ok(())
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    fn new(bytes: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        Self { bytes, seconds, bytes_per_second: bytes as f64 / seconds }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    fn print(&self, to: &str) {
        let rate = format!("{:.0} MB/s", self.bytes_per_second / 1e6);
        let sent = format!("{:.0} MB in {:.2} s", self.bytes as f64 / 1e6, self.seconds);
        print(to, vec![("upload", rate, sent)]);
    }
}
