//! Options that several subcommands share.

use core::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libra_client::Mode;
use libra_dataplane::CELLS_MAX;
use libra_models::{ModelKind, TrainConfig, Workload};
use libra_net::FaultRates;
use libra_plan::{Budget, DEFAULT_C, DEFAULT_HEADROOM_BITS, DEFAULT_P, FOLDS, Plan, SLOT_BYTES};
use libra_proto::{ArithmeticMode, CheckpointAt, ColdPath, Durability, ValueFormat};
use serde::Serialize;

use crate::models::ModelOptions;
use crate::progress::Bars;
use crate::resume::{Resume, find_rows, split_number};
use crate::rule::RuleArguments;

/// Model, data and batch of a training step.
#[derive(Args, Debug, Clone)]
pub struct ModelArguments {
    /// Model to train: gmf, mlp, neumf (Neural Collaborative Filtering, He et al. 2017), deeplight (Deng et al. 2021), lstm (language
    /// model, Jozefowicz et al. 2016), ads-lr or search-lr (logistic regression with 150 and 9 million weights on synthetic clicks, as uneven as those of on-line advertising and search in Libra's paper)
    #[arg(long, value_name = "MODEL", default_value = "neumf")]
    pub model: ModelKind,
    /// The model's data, or `synthetic` for built-in data
    ///
    /// gmf, mlp, neumf: MovieLens, a directory with the NCF split or with u.data. deeplight: Criteo's log of display advertising (train.txt, 40 columns,
    /// of any size), or rows of hashed features; a file, or a directory with one; or a data set in Parquet or Criteo's text, on disk, at s3://, gs://,
    /// az:// or https://, as of libra data. lstm: a directory with *.train.txt and *.valid.txt, as in Penn Treebank,
    /// or with the files of the One Billion Word Benchmark.
    #[arg(long, value_name = "PATH|URL", default_value = "synthetic")]
    pub data: String,
    /// Samples of a step of one worker [default: depends on the model; neumf 1024]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Decides initial values, order, and whatever else is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    rules: RuleArguments,
}

/// Largest distance between workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeKind {
    /// No step waits for other workers: the fastest, and a slow worker does not block the others
    Async,
    /// The values that a step reads lack at most so many steps of any worker (--staleness): a slow worker blocks the others when they are that far ahead
    Ssp,
    /// A step reads the results of all workers in all steps before it, so N workers train as one would with all their batches as one; each step takes as long as its slowest worker
    Sync,
}

/// Enough that workers seldom wait when they are equally fast.
const STALENESS: u32 = 3;

/// Workload, and length of the training.
#[derive(Args, Debug, Clone)]
pub struct TrainingArguments {
    /// The workload and its optimizers.
    #[command(flatten)]
    pub model: ModelArguments,
    /// Largest distance between workers
    #[arg(long, value_enum, default_value = "async")]
    pub mode: ModeKind,
    /// With --mode ssp: so many steps of any worker may be missing in the values that a step reads [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    staleness: Option<u32>,
    /// Passes over the training data [default: depends on the model; neumf 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,
    /// deeplight: --data is a directory or URL to which files are added; each is tested on and then trained on once, in the order of names, until there is a
    /// _SUCCESS, or SIGTERM ends `libra train`
    #[arg(long, conflicts_with = "epochs")]
    pub(crate) follow: bool,
    /// Seconds between two looks for files
    #[arg(long, value_name = "S", default_value = "5", requires = "follow", value_parser = positive_seconds)]
    pub(crate) follow_every: Duration,
}

impl TrainingArguments {
    /// Returns the settings of a training.
    pub fn config(&self) -> Result<TrainConfig> {
        let config = self.model.config()?;
        let mode = match (self.mode, self.staleness) {
            (ModeKind::Ssp, staleness) => Mode::Ssp { staleness: staleness.unwrap_or(STALENESS) },
            (ModeKind::Async, None) => Mode::Async,
            (ModeKind::Sync, None) => Mode::Sync,
            (ModeKind::Async, Some(staleness)) => {
                bail!("--staleness {staleness} needs --mode ssp: in mode async nothing bounds it")
            }
            (ModeKind::Sync, Some(staleness)) => {
                bail!("--staleness {staleness} needs --mode ssp: in mode sync no step misses another")
            }
        };
        let config =
            TrainConfig { epochs: self.epochs.unwrap_or(config.epochs), mode, follow: self.follow, ..config };
        config.check()?;
        Ok(config)
    }
}

impl ModelArguments {
    /// Returns the settings of a training on a sample.
    pub fn config(&self) -> Result<TrainConfig> {
        let mut config = self.model.config();
        config.seed = self.seed;
        config.batch = self.batch.unwrap_or(config.batch);
        config.embeddings = self.rules.embeddings(&config.embeddings, config.batch);
        config.layers = self.rules.layers(&config.layers, config.batch);
        self.options.apply(self.model, &mut config.model)?;
        config.check()?;
        Ok(config)
    }
}

/// Batches that a profile run must have: each of the parts by which a plan is judged then has one.
const PUSHES_MIN: usize = FOLDS;
/// Share of the training data that a profile run trains on.
const SAMPLE: f64 = 0.08;
/// Passes that a sample should have: gradients grow after the first.
const PASSES: u64 = 2;

/// Selection of hot rows.
#[derive(Args, Debug, Clone)]
pub struct SampleArguments {
    /// Share of the training data that the profile run trains on, above 0 and at most 1; at least 16 batches [default: 0.08, of a data
    /// set of deeplight at most 32,768 rows]
    #[arg(long, value_name = "F")]
    pub sample: Option<f64>,
    /// Share of all row updates that the switch should take (p of the paper's Principle 1)
    #[arg(long, value_name = "P", default_value_t = DEFAULT_P)]
    pub hot_share: f64,
    /// Share of the switch's 20 MiB of on-chip memory that may be used (c of Principle 1)
    #[arg(long, value_name = "C", default_value_t = DEFAULT_C)]
    pub memory_share: f64,
    /// So many slots may be used, whatever share of the memory that is; a row takes as many as it has values. The paper takes 30,000 to 60,000
    #[arg(long, value_name = "N", conflicts_with = "memory_share", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub hot_slots: Option<u64>,
}

impl SampleArguments {
    /// Trains on the sample and makes a plan of its pushes.
    pub fn plan(&self, config: &TrainConfig, workload: &Arc<dyn Workload>, bars: &Bars) -> Result<Plan> {
        let sample = self.enough(config, &**workload, bars);
        let budget = match self.hot_slots {
            // A switch that has just these.
            Some(slots) => Budget { p: self.hot_share, c: 1.0, on_chip_bytes: slots * SLOT_BYTES },
            None => Budget { p: self.hot_share, c: self.memory_share, ..Budget::default() },
        };
        budget.check()?;
        let bar = bars.bar("profile");
        let frequencies = libra_models::profile(workload, config, sample, &mut |progress| {
            bar.set_length(progress.samples_total);
            bar.set_position(progress.samples);
            bar.set_message(format!("loss {:.4}", progress.loss));
        })?;
        bar.finish_and_clear();
        let provenance = libra_models::provenance(&**workload, config, sample, &frequencies);
        Ok(Plan::new(1, provenance, &frequencies, budget, DEFAULT_HEADROOM_BITS)?)
    }

    /// Returns the share that was asked for: without one, that of the plan.
    pub(crate) fn share(&self, plan: Option<&Plan>) -> f64 {
        self.sample.unwrap_or_else(|| plan.map_or(SAMPLE, |plan| plan.provenance.sample))
    }

    /// Returns the share to train on: a few pushes more than were asked for, where those would not show how often rows come.
    fn enough(&self, config: &TrainConfig, workload: &dyn Workload, bars: &Bars) -> f64 {
        let samples = workload.samples_per_epoch() as f64;
        let least = ((PUSHES_MIN * config.batch) as f64 / samples).min(1.0);
        let enough = (workload.profile_samples_max() / PASSES) as f64 / samples;
        let Some(share) = self.sample else { return SAMPLE.min(enough).max(least) };
        // Invalid shares are left to the profile run to refuse.
        if !(share > 0.0 && share < least) {
            return share;
        }
        bars.line(&format!(
            "note: the profile run takes {least:.3} of the data, the share {share} has too few batches"
        ));
        least
    }
}

/// Length of IP packets between workers and switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mtu {
    /// As long as each path allows, up to what Ethernet has.
    Auto,
    /// This many bytes at most.
    #[serde(untagged)]
    Bytes(u16),
}

impl Mtu {
    /// The fewest bytes that may be given.
    const LEAST: u16 = 256;

    /// Bytes of the longest packet.
    pub fn bytes_max(self) -> u16 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Auto => 1500,
        }
    }
}

impl FromStr for Mtu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes = text.parse().ok().filter(|bytes| *bytes >= Self::LEAST);
        bytes.map(Self::Bytes).ok_or_else(|| format!("expected auto, or {} to {}", Self::LEAST, u16::MAX))
    }
}

/// Numbers of workers that a job may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// Those with which it begins.
    pub least: u16,
    /// The most at a time.
    pub most: u16,
}

impl Workers {
    const MOST: u16 = 256;
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=Self::MOST).contains(number));
        let workers = match text.split_once("..") {
            None => number(text).map(|number| Self { least: number, most: number }),
            Some((least, most)) => number(least).zip(number(most)).map(|(least, most)| Self { least, most }),
        };
        let wanted = || format!("expected a number from 1 to {0}, or two, as in 2..{0}", Self::MOST);
        let workers = workers.ok_or_else(wanted)?;
        if workers.least > workers.most {
            return Err(format!(
                "a job begins with no more than it may have: {text} has them the other way round"
            ));
        }
        Ok(workers)
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = self;
        if least == most { write!(formatter, "{least}") } else { write!(formatter, "{least}..{most}") }
    }
}

/// Settings of the hot path.
#[derive(Args, Debug, Clone)]
pub struct HotPathArguments {
    /// Arithmetic of switch slots: fixed (planned fixed point, exact in any order), f32 (IEEE 754), or table (f32 by looking
    /// logarithms up, as the paper's switch does; each addition is off by up to 0.8%)
    #[arg(long, value_name = "MODE", default_value = "fixed", value_parser = parse_arithmetic)]
    pub arithmetic: ArithmeticMode,
    /// A plan written by `libra profile`; without it the job begins with a profile run
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Pushes after which a switch ends a round; without it as many as there may be workers
    #[arg(long, alias = "pushes-per-epoch", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub pushes_per_round: Option<u32>,
    /// Largest IP packet that the network between workers and switches lets through, in bytes: a path with less ends the job. Or auto: up to
    /// 1,500, and a worker makes its packets shorter where a path to a switch needs it
    #[arg(long, value_name = "BYTES", default_value = "1500")]
    pub mtu: Mtu,
    /// Lanes of a switch. One of hardware wires each place of a packet to a register: then take as many as it has registers, 16 on a
    /// Tofino. A packet has a value for each lane, and a hot row no more values. In software 1 is fastest; --plane xdp has no more
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub lanes: u8,
    /// Cells of each lane, at most: as many as a register of the switch has. Hot rows that do not fit go to another region
    #[arg(long, alias = "lane-cells", value_name = "N", default_value_t = CELLS_MAX, value_parser = clap::value_parser!(u16).range(2..=i64::from(CELLS_MAX)))]
    pub register_size: u16,
    /// Milliseconds after which a switch ends a round that has fewer [default: 20; with --mode ssp or sync, where workers wait for it, 5]
    #[arg(long, alias = "epoch-ms", value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub round_ms: Option<u64>,
}

/// MB of a checkpoint in a second: other workers' pushes notice it, but not too much.
pub const CHECKPOINT_RATE: u64 = 64;

/// Interval of checkpoints, where there are some and none is given.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// The place of `--resume` that is the URL of `--checkpoints`, if there is a checkpoint.
const AUTO: &str = "auto";

/// State that servers keep on disk.
#[derive(Args, Debug, Clone)]
pub struct DurabilityArguments {
    /// Servers keep a log, and answer when it is on the disk: one that is killed and started again goes on where it was
    #[arg(long)]
    pub log: bool,
    /// Servers write a checkpoint so often, and at the end; one that is killed and has no log goes on from its last
    #[arg(long, value_name = "S", value_parser = positive_seconds)]
    pub checkpoint_every: Option<Duration>,
    /// Number of checkpoints that each shard keeps
    #[arg(long, alias = "keep", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub keep_checkpoints: u16,
    /// Number of checkpoints between two full ones that have only the changes
    #[arg(long, alias = "increments", value_name = "N", default_value_t = 0)]
    pub incremental_checkpoints: u16,
    /// MB of a checkpoint that a server writes in a second while it serves: more is faster, and slows pushes more
    #[arg(long, value_name = "N", default_value_t = CHECKPOINT_RATE, value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_rate: u64,
    /// Begins with the rows of a checkpoint of another job, with any number of servers: DIR, DIR@NUMBER, or a URL as of --checkpoints.
    /// Without a number it is the newest; it is read before, and the one before is taken if it is damaged
    #[arg(long, alias = "load", value_name = "DIR|URL[@N]")]
    pub restore_from: Option<String>,
    /// Goes on where a run of this job was when it wrote its newest checkpoint, with the same model and data and any number of servers and workers: DIR,
    /// DIR@NUMBER, or a URL as of --checkpoints. Chunks of data that are done in it are not trained again. With `auto` it is the newest
    /// checkpoint at the URL of --checkpoints, and a job that has none there yet begins
    #[arg(long, value_name = "DIR|URL[@N]|auto", conflicts_with = "restore_from")]
    pub resume: Option<String>,
    /// Uploads checkpoints, too: to file:///DIR, s3://, gs:// or az://BUCKET/DIR, with credentials in the environment of servers and
    /// controller. Checkpoints of one job alone are there, and of those that begin with them (--restore-from)
    #[arg(long, value_name = "URL")]
    pub checkpoints: Option<String>,
    /// Moments of checkpoints
    #[arg(long, value_enum, default_value = "steps")]
    pub checkpoint_at: CheckpointMoment,
}

/// Moments at which there may be a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointMoment {
    /// Any: the chunks of data that workers are at then are trained again by --resume
    Steps,
    /// When the chunks that workers are at are done, and before they begin the next: --resume trains none again, and workers wait a moment for it
    Chunks,
}

impl From<CheckpointMoment> for CheckpointAt {
    fn from(moment: CheckpointMoment) -> Self {
        match moment {
            CheckpointMoment::Steps => Self::Steps,
            CheckpointMoment::Chunks => Self::Chunks,
        }
    }
}

impl DurabilityArguments {
    /// Returns the options given for which servers need a place.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        let options = [
            ("--log", self.log),
            ("--checkpoint-every", self.checkpoint_every.is_some()),
            ("--restore-from", self.restore_from.is_some()),
            ("--resume", self.resume.is_some()),
            ("--checkpoints", self.checkpoints.is_some()),
        ];
        options.into_iter().filter_map(|(option, is_given)| is_given.then_some(option)).collect()
    }

    /// Refuses a moment of checkpoints for a job that has none: without any of these options, and without a state directory.
    ///
    /// # Errors
    /// It is one.
    pub fn refuse_moment_alone(&self, has_state_dir: bool) -> Result<()> {
        if self.checkpoint_at == CheckpointMoment::Chunks && !has_state_dir && self.asked().is_empty() {
            bail!("--checkpoint-at chunks: the job has no checkpoints: give --checkpoint-every S, too");
        }
        Ok(())
    }

    /// Returns true if the job begins with a checkpoint at this URL, which has no slash at its end.
    pub fn begins_with(&self, url: &str) -> bool {
        let place = self.restore_from.as_deref().or(self.resume.as_deref());
        if place == Some(AUTO) {
            return true;
        }
        place.is_some_and(|place| split_number(place).0.trim_end_matches('/') == url)
    }

    /// Finds the checkpoint that the job resumes at, if it is to.
    ///
    /// # Errors
    /// There is none that it could.
    pub(crate) fn resume(&self) -> Result<Option<Resume>> {
        match self.resume.as_deref() {
            Some(AUTO) => {
                let url = self.checkpoints.as_deref();
                Resume::find_if_any(
                    url.context("--resume auto is for a job with --checkpoints URL: give it")?,
                )
            }
            place => place.map(Resume::find).transpose(),
        }
    }

    /// Returns the directory of the run that is resumed, if it is not at a URL.
    pub fn resumed_directory(&self) -> Option<PathBuf> {
        let (place, _) = split_number(self.resume.as_deref().filter(|place| *place != AUTO)?);
        (!place.contains("://")).then(|| place.into())
    }

    /// Returns the settings for servers, and the seed that the rows must follow from, if it is given.
    pub fn durability(&self, resume: Option<&Resume>) -> Result<(Durability, Option<u64>)> {
        let loaded = match resume {
            Some(resume) => Some((resume.load.clone(), resume.seed)),
            None => {
                let found = self.restore_from.as_deref().map(find_rows).transpose();
                found.context("--restore-from")?
            }
        };
        let seed = loaded.as_ref().map(|(_, seed)| *seed);
        let durability = Durability {
            log: self.log,
            checkpoint_every: self
                .checkpoint_every
                .or_else(|| self.checkpoints.is_some().then_some(CHECKPOINT_EVERY)),
            checkpoint_at: self.checkpoint_at.into(),
            keep: self.keep_checkpoints,
            increments: self.incremental_checkpoints,
            checkpoint_bytes_per_second: self.checkpoint_rate.saturating_mul(1_000_000),
            load: loaded.map(|(load, _)| load),
            ..Durability::NONE
        };
        Ok((durability, seed))
    }
}

/// A time above zero, in seconds.
pub fn positive_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time >= Duration::from_millis(1))
        .ok_or_else(|| "expected a number of seconds above 0, as in 60 or 0.5".to_owned())
}

/// Parses a size in bytes, with the unit that memory is sold in.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const KIB: f64 = 1024.0;
    let units = [("KiB", KIB), ("MiB", KIB * KIB), ("GiB", KIB * KIB * KIB), ("TiB", KIB * KIB * KIB * KIB)];
    let of_unit = |(unit, bytes): &(&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        let bytes = number * bytes;
        #[expect(clippy::cast_possible_truncation, reason = "it is in the range")]
        (1.0..1e18).contains(&bytes).then_some(bytes as u64)
    };
    let expected = || "expected a size above 0 with KiB, MiB, GiB or TiB, as in 512MiB or 1.5GiB".to_owned();
    units.iter().find_map(of_unit).ok_or_else(expected)
}

fn parse_arithmetic(text: &str) -> Result<ArithmeticMode, String> {
    match text {
        "fixed" => Ok(ArithmeticMode::Fixed),
        "f32" => Ok(ArithmeticMode::F32),
        "table" => Ok(ArithmeticMode::Table),
        _ => Err("expected fixed, f32 or table".to_owned()),
    }
}

/// Settings of the cold path.
#[derive(Args, Debug, Clone)]
pub struct ColdPathArguments {
    /// Format of gradients and values in messages to and from servers: f32, or bf16 or f16, which round them to half the bytes
    #[arg(long, alias = "wire", value_name = "FORMAT", default_value_t = ValueFormat::F32)]
    pub wire_dtype: ValueFormat,
}

impl ColdPathArguments {
    /// Returns how rows that are not hot reach the servers.
    pub fn cold_path(&self) -> ColdPath {
        ColdPath { values: self.wire_dtype }
    }
}

/// Empties a file that will be written when long work is done: an error shows now, and the file of an earlier
/// run left cannot be taken for the result.
pub fn clear(path: &Path) -> Result<()> {
    std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a plan, and refuses one that was made for another model.
pub fn read_plan(path: &Path, workload: &dyn Workload) -> Result<Plan> {
    let plan = load_plan(path)?;
    let file = path.display();
    plan.fits(&libra_models::shapes(workload.tables())).with_context(|| {
        format!(
            "the plan {file} does not fit the model; make one with `libra profile` for this model and data"
        )
    })?;
    Ok(plan)
}

/// Reads a plan.
pub fn load_plan(path: &Path) -> Result<Plan> {
    let file = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the plan {file}"))?;
    Plan::from_toml(&text).with_context(|| format!("{file} is not a plan"))
}

/// Faults to inject into the hot path, for tests of the transport.
#[derive(Args, Debug, Clone)]
pub struct FaultArguments {
    /// Probability that a datagram of the hot path is lost on its way out, at both ends
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub loss: f64,
    /// Probability that it is sent twice
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub duplicate: f64,
    /// Probability that it is overtaken by up to 32 later ones
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub reorder: f64,
}

impl FaultArguments {
    /// Returns the rates of the faults. Fails if one is no probability.
    pub fn rates(&self) -> Result<FaultRates> {
        FaultRates::new(self.loss, self.duplicate, self.reorder).context("--loss, --duplicate or --reorder")
    }

    /// The same, for another process.
    pub fn options(&self) -> Vec<String> {
        let options = [("--loss", self.loss), ("--duplicate", self.duplicate), ("--reorder", self.reorder)];
        options.into_iter().flat_map(|(name, rate)| [name.to_owned(), rate.to_string()]).collect()
    }
}
