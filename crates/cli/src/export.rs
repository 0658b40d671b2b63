//! `libra export`: what changes from checkpoint to checkpoint, for those who serve a model.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use indicatif::ProgressBar;
use libra_launch::arguments::positive_seconds;
use libra_launch::interrupt;
use libra_launch::job_directory::{JobCheckpoint, JobDirectory};
use libra_launch::report::group;
use libra_launch::resume::{pick, split_number};
use libra_storage::archive::{Archive, Environment};
use libra_storage::checkpoint::Checkpoints;
use libra_storage::disk::Disk;
use libra_storage::is_url;
use libra_storage::serving::{
    BaseRule, Exporter, ExporterId, Format, Progress, ServingError, Settings, Stage, Target, Version,
};
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::Serialize;

use crate::output::{Output, bytes};

/// Longest sleep: an exporter that should end does so after it.
const SLEEP: Duration = Duration::from_millis(100);
/// Versions in the document of `--json`, newest last.
const VERSIONS: usize = 1000;

/// Exports the rows of checkpoints for serving: a base with all of them, and deltas with what has changed
///
/// The first version is a base. Each later one has a delta: rows that have changed or are new since the version before (key and
/// values), and keys of rows that are no more. Some have a base as well, for readers that begin or have fallen far behind. A version
/// has the number of its checkpoint, and is there when current.json names it, which is written last. Layers are in all of
/// them, the state of optimizers in none. Without --follow it exports the newest checkpoint, and ends.
///
/// An exporter that is started again goes on from current.json; what one that was killed has left is removed. A place has one
/// exporter: a second one is refused. SIGTERM and Ctrl-C end it cleanly.
///
/// The rows that were exported are also on the local disk while it runs (--spool), once or twice the bytes of a base; memory is
/// about 200 MB whatever the size of tables. Settings and credentials of stores are in the environment.
///
/// In Python, with numpy alone:
///
///   from libra_ps.serve import Export
///   export = Export("/models/run1")
///   rows = export.look_up("user", [7, 4711])
///   export.refresh()
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  libra export --from run1 --to /models/run1                       the newest checkpoint of a state directory, once
  libra export --from s3://ckpt/run1@7 --to /models/run1           checkpoint 7 at a URL
  libra export --follow --from s3://ckpt/run1 --to s3://models/run1 --every 30
                                                                   each checkpoint from now on, at most 30 s later
  libra export --from run1 --to small --format i8 --tables user    one table and the layers, a byte for each value"
)]
pub(crate) struct Arguments {
    /// The checkpoints: the state directory of a job, or the URL of its --checkpoints; @N for number N
    #[arg(long, value_name = "DIR|URL[@N]")]
    from: String,
    /// The place of the export: a directory, or file://, s3://, gs:// or az://BUCKET/DIR
    #[arg(long, value_name = "DIR|URL")]
    to: String,
    /// Goes on with each checkpoint that comes, until it is terminated
    #[arg(long)]
    follow: bool,
    /// With --follow: seconds between two looks for checkpoints
    #[arg(long, value_name = "S", default_value = "60", value_parser = positive_seconds, requires = "follow")]
    every: Duration,
    /// Only these tables, and the layers [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    tables: Option<Vec<String>>,
    /// Form of the values of rows: f32, bf16, or i8 with a scale for each row. Layers are f32
    #[arg(long, value_name = "FORMAT", default_value = "f32")]
    format: Format,
    /// A base each N versions [default: when the deltas since the last one have more than half its bytes, or are 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    base_every: Option<u64>,
    /// Bases that are kept, with the deltas after the oldest of them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    keep: u16,
    /// Directory on the local disk for the rows that were exported [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct Exports<'a> {
    from: &'a str,
    to: &'a str,
    /// The newest version, and its base.
    version: Option<u64>,
    base: Option<u64>,
    /// Versions of this run, newest last.
    versions: &'a VecDeque<Line>,
}

/// A version of this run.
#[derive(Debug, Serialize)]
struct Line {
    version: u64,
    previous: Option<u64>,
    rows: u64,
    changed: u64,
    removed: u64,
    delta_bytes: u64,
    base_bytes: Option<u64>,
    /// True if only what was written since the checkpoint before was read.
    incremental: bool,
    seconds: f64,
}

struct Run<'a> {
    arguments: &'a Arguments,
    exporter: Exporter,
    versions: VecDeque<Line>,
    given_up: Arc<AtomicBool>,
    bar: ProgressBar,
    /// The last note, which is not repeated.
    note: String,
    has_noted_condition: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (from, number) = split_number(&arguments.from);
    if number.is_some() && arguments.follow {
        bail!("--from {}: --follow goes on with the newest checkpoint: leave out the number", arguments.from);
    }
    let environment = Environment::of_process();
    if is_url(from) {
        Archive::open(from, &environment).context("--from")?;
    }
    let target = Target::open(&arguments.to, &environment).context("--to")?;
    let output = &arguments.output;
    output.begin()?;
    let given_up = Arc::new(AtomicBool::new(false));
    let give_up = || {
        let given_up = Arc::clone(&given_up);
        move || given_up.store(true, Ordering::Relaxed)
    };
    interrupt::on_first(give_up());
    interrupt::on_terminate(give_up());
    // What cannot be read is found before the place is taken.
    let once = if arguments.follow {
        None
    } else {
        let directory = JobDirectory::open(Path::new(from))?;
        let checkpoint = pick(&directory, number)?;
        Some((directory, checkpoint))
    };
    let id = OsRng.try_next_u64().context("the machine has no random number for the exporter")?;
    let bar = output.bars().bar("export");
    let begun = Exporter::begin(
        &target,
        ExporterId::of_process(id),
        settings(arguments),
        &spool(arguments)?,
        Arc::clone(&given_up),
        &mut |progress| show(&bar, progress),
    );
    let exporter = match begun {
        Err(ServingError::GivenUp) => return ended(arguments),
        begun => begun?,
    };
    let (versions, note) = (VecDeque::new(), String::new());
    let mut run = Run { arguments, exporter, versions, given_up, bar, note, has_noted_condition: false };
    let result = match once {
        Some((directory, checkpoint)) => run.once(&directory, &checkpoint),
        None => run.follow(Path::new(from)),
    };
    run.bar.finish_and_clear();
    // The reason why it ends says more than what may come of this.
    let released = run.exporter.end();
    result?;
    if run.given_up.load(Ordering::Relaxed) {
        return ended(arguments);
    }
    Ok(released?)
}

/// The end of an exporter that was asked to.
fn ended(arguments: &Arguments) -> Result<()> {
    if arguments.follow || interrupt::happened() {
        return Ok(());
    }
    bail!("terminated before the export was there; what is there is as before")
}

fn settings(arguments: &Arguments) -> Settings {
    Settings {
        format: arguments.format,
        tables: arguments.tables.clone(),
        base: arguments.base_every.map_or(BaseRule::Size, BaseRule::Every),
        keep: arguments.keep.into(),
        ..Settings::default()
    }
}

/// The directory for the rows that were exported: one for each place, so that it is found when a process was killed.
fn spool(arguments: &Arguments) -> Result<PathBuf> {
    let parent = arguments.spool.clone().unwrap_or_else(std::env::temp_dir);
    let to = if is_url(&arguments.to) {
        PathBuf::from(&arguments.to)
    } else {
        std::path::absolute(&arguments.to).with_context(|| format!("--to {}", arguments.to))?
    };
    let mut hasher = DefaultHasher::new();
    to.hash(&mut hasher);
    Ok(parent.join(format!("libra-export-{:016x}", hasher.finish())))
}

fn show(bar: &ProgressBar, Progress { stage, done, rows }: Progress) {
    bar.set_prefix(match stage {
        Stage::ReadBack => "read back",
        Stage::Read => "read",
        Stage::Compare => "compare",
        Stage::Base => "base",
    });
    bar.set_length(rows.max(done));
    bar.set_position(done);
}

impl Run<'_> {
    /// Exports one checkpoint, unless it is the newest version already.
    fn once(&mut self, directory: &JobDirectory, checkpoint: &JobCheckpoint) -> Result<()> {
        if self.exporter.version() == Some(checkpoint.number) {
            self.bar.finish_and_clear();
            let text = format!("version {} is at {} already", checkpoint.number, self.arguments.to);
            self.arguments.output.print(&text);
            return self.write();
        }
        match self.export(directory, checkpoint) {
            Err(ServingError::GivenUp) => Ok(()),
            exported => Ok(exported?),
        }
    }

    /// Exports checkpoints as they come, until this process is asked to end.
    fn follow(&mut self, from: &Path) -> Result<()> {
        self.write()?;
        loop {
            let due = Instant::now() + self.arguments.every;
            match self.look(from) {
                Ok(()) => self.note.clear(),
                Err(error) => {
                    let serving = error.downcast_ref::<ServingError>();
                    match serving {
                        Some(ServingError::GivenUp) => return Ok(()),
                        Some(fault) if fault.is_final() => return Err(error),
                        _ => self.tell(format!("{error:#}")),
                    }
                }
            }
            // At least once: a look may take longer than the time between two.
            loop {
                match self.exporter.beat() {
                    Err(ServingError::GivenUp) => return Ok(()),
                    Err(fault) if fault.is_final() => return Err(fault.into()),
                    Err(fault) => self.tell(fault.to_string()),
                    Ok(()) => {}
                }
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                sleep(SLEEP.min(left));
            }
        }
    }

    /// Exports the checkpoints above the newest version; before the first, the newest one.
    fn look(&mut self, from: &Path) -> Result<()> {
        let directory = JobDirectory::open(from)?;
        let mut list = directory.list()?;
        list.retain(JobCheckpoint::is_complete);
        let Some(newest) = list.first().map(|checkpoint| checkpoint.number) else {
            bail!("{} has no checkpoint yet that all shards have", from.display());
        };
        match self.exporter.version() {
            Some(version) if newest < version => bail!(
                "the newest checkpoint of {} is {newest}, and version {version} is at {}: for checkpoints of another run choose another --to",
                from.display(),
                self.arguments.to
            ),
            Some(version) => list.retain(|checkpoint| checkpoint.number > version),
            None => list.truncate(1),
        }
        let mut failed = None;
        for checkpoint in list.iter().rev() {
            match self.export(&directory, checkpoint) {
                Ok(()) => {}
                Err(fault) if fault.is_final() => return Err(fault.into()),
                // The next one may be sound.
                Err(fault) => failed = Some(anyhow!("checkpoint {}: {fault}", checkpoint.number)),
            }
        }
        match failed {
            // One that was passed over is not missed.
            Some(failed) if self.exporter.version() < Some(newest) => Err(failed),
            Some(failed) => {
                self.tell(format!("{failed}; it was passed over"));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn export(&mut self, directory: &JobDirectory, checkpoint: &JobCheckpoint) -> Result<(), ServingError> {
        let begun = Instant::now();
        let of_part = |shard: usize| -> (String, Checkpoints<Arc<dyn Disk>>) {
            let shard = &directory.shards[shard];
            (shard.path.display().to_string(), shard.checkpoints.clone())
        };
        let shards: Vec<_> = checkpoint.parts.iter().filter_map(|part| part.position.map(of_part)).collect();
        let bar = &self.bar;
        let version =
            self.exporter.export(&shards, checkpoint.number, &mut |progress| show(bar, progress))?;
        self.bar.finish_and_clear();
        let seconds = begun.elapsed().as_secs_f64();
        let output = &self.arguments.output;
        output.print(&describe(&version, seconds));
        if !version.is_conditional && !std::mem::replace(&mut self.has_noted_condition, true) {
            self.arguments.output.bars().line(&format!(
                "note: the store of {} has no conditional put: that this is its only exporter is looked at before, not at, each write",
                self.arguments.to
            ));
        }
        if self.versions.len() == VERSIONS {
            self.versions.pop_front();
        }
        self.versions.push_back(Line {
            version: version.version,
            previous: version.previous,
            rows: version.rows,
            changed: version.changed,
            removed: version.removed,
            delta_bytes: version.delta_bytes,
            base_bytes: version.base_bytes,
            incremental: version.is_incremental,
            seconds,
        });
        if let Err(error) = self.write() {
            self.tell(format!("{error:#}"));
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        let current = self.exporter.current();
        self.arguments.output.write(&Exports {
            from: &self.arguments.from,
            to: &self.arguments.to,
            version: current.map(|current| current.version),
            base: current.map(|current| current.base),
            versions: &self.versions,
        })
    }

    /// Tells of something that may pass, once.
    fn tell(&mut self, note: String) {
        if note != self.note {
            self.arguments.output.bars().line(&format!("note: {note}"));
            self.note = note;
        }
    }
}

fn describe(version: &Version, seconds: f64) -> String {
    let base = version.base_bytes.map(|base| format!("base {}, ", bytes(base))).unwrap_or_default();
    let number = version.version;
    let rows = group(version.rows);
    match version.previous {
        None => format!("version {number}: {rows} rows; {base}{seconds:.1} s"),
        Some(previous) => format!(
            "version {number}: {} of {rows} rows changed since {previous}, {} removed; delta {}, {base}{seconds:.1} s",
            group(version.changed),
            group(version.removed),
            bytes(version.delta_bytes)
        ),
    }
}
