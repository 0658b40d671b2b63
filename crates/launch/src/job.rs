//! A training job before it runs: data, task, plan, and the cluster it asks for.

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Error, Result, anyhow, bail};
use clap::Args;
use libra_client::{ControllerCommand, HotPath, JobSpec, Mode, NodeError, Outcome, Plan, Sizes, round_time};
use libra_dataplane::{entries_in, packet_bytes};
use libra_models::{Chunks, TrainConfig, Workload};
use libra_proto::{AddedPhases, Work, WorkDone, packet_header_bytes};
use serde_json::{Value, json};

use crate::arguments::{
    ColdPathArguments, DurabilityArguments, HotPathArguments, Mtu, SampleArguments, TrainingArguments,
    Workers, clear, read_plan,
};
use crate::counts::Counts;
use crate::document::write_json;
use crate::event_log::{EventLog, milliseconds};
use crate::follow::{self, Follower};
use crate::parent_guard;
use crate::progress::Bars;
use crate::report::Report;
use crate::resume::Resume;
use crate::task::Task;
use crate::watching::ControllerWatch;

/// Options of whatever runs a whole job.
#[derive(Args, Debug)]
pub struct JobArguments {
    #[command(flatten)]
    training: TrainingArguments,
    /// Workers; or MIN..MAX: the job begins when MIN are there, and up to MAX may join and leave while it runs
    #[arg(long, value_name = "N|MIN..MAX", default_value = "2")]
    workers: Workers,
    /// Servers; the rows are dealt to their shards
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    servers: u16,
    #[command(flatten)]
    sample: SampleArguments,
    #[command(flatten)]
    hot: HotPathArguments,
    /// State that servers keep on disk.
    #[command(flatten)]
    pub durability: DurabilityArguments,
    #[command(flatten)]
    cold: ColdPathArguments,
    /// Writes its results to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Reads options from a TOML file: `batch = 4096` stands for --batch 4096
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ends with its standard input: for processes that another one has started
    #[arg(long, hide = true, alias = "leashed")]
    exit_with_parent: bool,
}

impl JobArguments {
    /// Returns the progress bars, which are hidden with `--quiet`.
    pub fn bars(&self) -> Bars {
        Bars::new(self.quiet)
    }

    /// Does what comes before all else: ends with its parent, if it is to, and clears the file for the results.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&self) -> Result<()> {
        if self.exit_with_parent {
            parent_guard::exit_with_parent(|_| ())?;
        }
        self.json.as_deref().map_or(Ok(()), clear)
    }

    /// Refuses a number of workers that may change, where all members are in this process.
    ///
    /// # Errors
    /// There is room for more workers than the job begins with.
    pub fn refuse_elastic(&self) -> Result<()> {
        if self.workers.least < self.workers.most {
            bail!(
                "--workers {}: all workers of `libra train` are in its process; `libra controller` has a job that others join",
                self.workers
            );
        }
        Ok(())
    }

    /// Returns how many members the job begins with.
    pub fn sizes(&self, switches: u16) -> Sizes {
        Sizes { servers: self.servers, switches, workers: self.workers.least }
    }

    /// Returns the job of a controller that takes its tables from workers: its sizes, and settings that are no matter of front ends.
    ///
    /// # Errors
    /// Options of a model, a plan or a restored checkpoint were given, which such a controller does not read.
    pub fn without_tables(
        &self,
        resume: Option<&Resume>,
        switches: u16,
        controller: SocketAddr,
    ) -> Result<JobSpec> {
        let (durability, _) = self.durability.durability(resume)?;
        if self.hot.plan.is_some() {
            bail!("--tables workers: the workers bring the plan, too (LIBRA_PLAN): leave out --plan");
        }
        if self.durability.restore_from.is_some() {
            bail!("--tables workers: a worker loads rows that were saved: leave out --restore-from");
        }
        if self.exit_with_parent {
            parent_guard::exit_with_parent(|_| ())?;
        }
        let sizes = self.sizes(switches);
        let workers_max = self.workers.most;
        let hot_path = hot_path(&self.hot, Mode::Async, workers_max, controller)?;
        let cold_path = self.cold.cold_path();
        let mut spec =
            JobSpec { workers_max, hot_path, cold_path, durability, ..JobSpec::new(sizes, Vec::new()) };
        if let Some(resume) = resume {
            resume.check_of_program()?;
            self.bars().line(&resume.describe_of_program());
            spec.work = Some(resume.work.clone());
            spec.front_end.clone_from(&resume.task);
            spec.seed = resume.seed;
        }
        Ok(spec)
    }

    /// Finds the checkpoint that the job resumes at, if it is to.
    ///
    /// # Errors
    /// There is none that it could.
    pub fn resume(&self) -> Result<Option<Resume>> {
        let found = self.durability.resume()?;
        if let (None, Some(_), Some(url)) = (&found, &self.durability.resume, &self.durability.checkpoints) {
            self.bars().line(&format!("{url} has no checkpoint yet: the job begins"));
        }
        Ok(found)
    }

    /// Returns the job if it resumes one whose epochs are all done, with its outcome.
    ///
    /// # Errors
    /// The checkpoint, the data or the options cannot be used.
    pub fn done_before(
        &self,
        resume: Option<&Resume>,
        controller: SocketAddr,
    ) -> Result<Option<(Job, Outcome)>> {
        let phases = phases(&self.training.config()?);
        let Some(resume) = resume.filter(|resume| resume.is_done(phases)) else { return Ok(None) };
        // None of its members starts, and a switch would need a plan.
        let job = Job::of_running(self, Some(resume), 0, controller, None)?;
        self.bars().line(&format!("all epochs are done in checkpoint {}", resume.load.number));
        let WorkDone { records, repeated, .. } = resume.work.done.clone();
        Ok(Some((job, Outcome { work: records, repeated_chunks: repeated, ..Outcome::default() })))
    }

    /// Reports a job without a model: counts of its members.
    pub fn report_counts(&self, outcome: &Outcome, started: Instant, watch: &ControllerWatch) -> Result<()> {
        watch.ended(Ok((outcome, Value::Null)));
        let counts = Counts::new(outcome, started.elapsed().as_secs_f64());
        if !self.quiet {
            println!("{}", counts.table());
        }
        match &self.json {
            Some(path) => write_json(path, &json!({ "command": "controller", "counts": counts })),
            None => Ok(()),
        }
    }

    /// Follows the data of a job, if they are to be.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn follow(
        &self,
        follower: Follower,
        job: &Job,
        tell: impl Fn(ControllerCommand) + Send + 'static,
    ) -> Result<()> {
        follower.start(job, self.training.follow_every, self.bars(), tell)
    }

    /// Returns true if the job follows its data.
    pub fn follows(&self) -> bool {
        self.training.follow
    }

    /// Makes the report of a job that has ended, and hands it to the person and to the machine.
    pub fn report(
        &self,
        job: &Job,
        outcome: &Outcome,
        events: &EventLog,
        started: Instant,
        more: Value,
        watch: &ControllerWatch,
    ) -> Result<()> {
        let report = Report::new(job, outcome, events, started.elapsed().as_secs_f64())?;
        watch.ended(Ok((outcome, report.epochs_json())));
        if !self.quiet {
            report.print(job);
        }
        match &self.json {
            Some(path) => report.write_json(path, job, self.configuration(job, more)),
            None => Ok(()),
        }
    }

    /// Returns the settings, with `more` of the subcommand's own.
    fn configuration(&self, job: &Job, more: Value) -> Value {
        let (mode, staleness) = match job.task.config.mode {
            Mode::Async => ("async", None),
            Mode::Ssp { staleness } => ("ssp", Some(staleness)),
            Mode::Sync => ("sync", None),
        };
        let mut configuration = json!({
            "model": self.training.model.model.to_string(),
            "data": self.training.model.data,
            "workers": self.workers.least,
            "workers_max": self.workers.most,
            "servers": self.servers,
            "epochs": (!job.task.config.follow).then_some(job.task.config.epochs),
            "follow": job.task.config.follow,
            "batch": job.task.config.batch,
            "mode": mode,
            "staleness": staleness,
            "seed": self.training.model.seed,
            "sample": self.sample.share(job.plan()),
            "hot_share": self.sample.hot_share,
            "memory_share": self.sample.memory_share,
            "hot_slots": self.sample.hot_slots,
            "arithmetic": self.hot.arithmetic.to_string(),
            "pushes_per_round": job.spec.hot_path.pushes_per_round,
            "round_ms": milliseconds(job.spec.hot_path.round_time_max),
            "mtu": self.hot.mtu,
            "lanes": self.hot.lanes,
            "register_size": self.hot.register_size,
            "log": self.durability.log,
            "checkpoint_every": self.durability.checkpoint_every.map(|every| every.as_secs_f64()),
            "restore_from": self.durability.restore_from,
            "resume": self.durability.resume,
            "checkpoints": self.durability.checkpoints,
            "wire_dtype": self.cold.wire_dtype.to_string(),
            "training": job.task.config,
        });
        if let (Some(fields), Value::Object(more)) = (configuration.as_object_mut(), more) {
            fields.extend(more);
        }
        configuration
    }
}

/// A job that is ready to run.
pub struct Job {
    /// Model and data.
    pub workload: Arc<dyn Workload>,
    /// The task of the workers.
    pub task: Task,
    /// The job of the controller.
    pub spec: JobSpec,
}

impl Job {
    /// Reads the data and finds the hot rows.
    ///
    /// # Errors
    /// The data cannot be read, are not those of the job that it resumes, or the options do not go together.
    pub fn prepare(
        arguments: &JobArguments,
        resume: Option<&Resume>,
        switches: u16,
        controller: SocketAddr,
    ) -> Result<Self> {
        Self::with_plan(arguments, resume, switches, controller, |config, workload| {
            let bars = arguments.bars();
            let plan = match (&arguments.hot.plan, switches) {
                (_, 0) => None,
                (Some(path), _) => Some(read_plan(path, &**workload)?),
                (None, _) => Some(arguments.sample.plan(config, workload, &bars)?),
            };
            if let Some(plan) = plan.as_ref().filter(|plan| plan.rows.is_empty()) {
                bail!("plan {} has no hot row, so a switch has nothing to do: run without one", plan.number);
            }
            if let Some(plan) = plan.as_ref().filter(|plan| plan.provenance.batch as usize != config.batch) {
                let (planned, batch) = (plan.provenance.batch, config.batch);
                bars.line(&format!(
                    "note: the plan was made with batches of {planned}; with {batch} its prediction does not hold"
                ));
            }
            Ok(plan)
        })
    }

    /// Reads the data of a job that runs already, with this plan, for its report.
    ///
    /// # Errors
    /// The data cannot be read, or the options do not go together.
    pub fn of_running(
        arguments: &JobArguments,
        resume: Option<&Resume>,
        switches: u16,
        controller: SocketAddr,
        plan: Option<Plan>,
    ) -> Result<Self> {
        Self::with_plan(arguments, resume, switches, controller, |_, _| Ok(plan))
    }

    fn with_plan(
        arguments: &JobArguments,
        resume: Option<&Resume>,
        switches: u16,
        controller: SocketAddr,
        find: impl FnOnce(&TrainConfig, &Arc<dyn Workload>) -> Result<Option<Plan>>,
    ) -> Result<Self> {
        let JobArguments { training, hot, cold, .. } = arguments;
        let sizes = arguments.sizes(switches);
        let config = training.config()?;
        if config.follow {
            follow::wait_for_first(&training.model.data, training.follow_every, arguments.bars())?;
        }
        let workload = libra_models::open(&config, &training.model.data)?;
        let tables = workload.tables();
        let hot_path = hot_path(hot, config.mode, arguments.workers.most, controller)?;
        let entries = usize::from(hot_path.entries_max);
        let shapes = libra_models::shapes(tables.clone());
        let widest = shapes.iter().filter(|shape| shape.hot).max_by_key(|shape| shape.width);
        if let Some(widest) = widest.filter(|shape| sizes.switches > 0 && shape.width as usize > entries) {
            let (why, larger) = if hot.lanes > 1 {
                (format!("with {} lanes", hot.lanes), "more --lanes")
            } else {
                (format!("at an MTU of {}", hot.mtu.bytes_max()), "a larger --mtu")
            };
            bail!(
                "a row of table \"{}\" of {} has {} values, a packet to a switch holds {entries} {why}: \
                 take a narrower model, {larger} (at most 255 values fit), or no switch",
                widest.name,
                workload.model(),
                widest.width
            );
        }
        let task = Task::new(&training.model.data, &*workload, &config);
        if let Some(resume) = resume {
            let bars = arguments.bars();
            resume.compare(&task)?.iter().for_each(|note| bars.line(&format!("note: {note}")));
            if !resume.is_done(phases(&config)) {
                bars.line(&resume.describe(phases(&config)));
            }
        }
        let plan = find(&config, &workload)?;
        let (durability, seed) = arguments.durability.durability(resume)?;
        let (work, added) = match resume {
            Some(resume) => (resume.work(phases(&config)), resume.added()),
            None => (work(&config, &*workload, arguments.workers.most), AddedPhases::default()),
        };
        let spec = JobSpec {
            plan,
            hot_path,
            cold_path: cold.cold_path(),
            durability,
            mode: config.mode,
            // Rows that were never updated are not in a checkpoint: they follow from its seed.
            seed: seed.unwrap_or(training.model.seed),
            front_end: task.to_text()?,
            workers_max: arguments.workers.most,
            work: Some(work),
            added,
            ..JobSpec::new(sizes, tables)
        };
        spec.check()?;
        Ok(Self { workload, task, spec })
    }

    /// Returns the plan of hot rows, if there is one.
    pub fn plan(&self) -> Option<&Plan> {
        self.spec.plan.as_ref()
    }
}

/// Number of phases of a training job: the training of each epoch, and its evaluation.
fn phases(config: &TrainConfig) -> u64 {
    2 * u64::from(config.epochs)
}

/// The work of a training job.
fn work(config: &TrainConfig, workload: &dyn Workload, workers: u16) -> Work {
    if config.follow {
        return Work { is_open: true, ..Work::default() };
    }
    let Chunks { training, evaluation } = workload.chunks(workers);
    Work { phases: phases(config), chunks: vec![training, evaluation], ..Work::default() }
}

/// Returns the error, for a person, of a job that a controller could not bring to its end.
pub fn failure(error: NodeError) -> Error {
    match error {
        NodeError::Ended { reason, .. } => anyhow!("the job failed: {reason}"),
        error => error.into(),
    }
}

fn hot_path(
    arguments: &HotPathArguments,
    mode: Mode,
    workers: u16,
    controller: SocketAddr,
) -> Result<HotPath> {
    let standard = HotPath::for_workers(workers);
    // The cluster talks as it reaches its controller; then comes UDP.
    let headers_bytes = usize::from(packet_header_bytes(controller));
    let HotPathArguments { mtu, lanes, .. } = *arguments;
    if mtu == Mtu::Auto && lanes > 1 {
        bail!(
            "--mtu auto: with --lanes {lanes} all packets have one value for each lane, and none can be shorter: \
             give --mtu the bytes that the network lets through"
        );
    }
    let bytes_max = mtu.bytes_max();
    let entries_max = entries_in(usize::from(bytes_max) - headers_bytes);
    if lanes > entries_max {
        let bytes = headers_bytes + packet_bytes(lanes);
        bail!(
            "--lanes {lanes}: its packets have {bytes} bytes, and --mtu {bytes_max} lets {entries_max} lanes through: \
             take fewer lanes or, if the network has it, a larger --mtu"
        );
    }
    let hot_path = HotPath {
        arithmetic: arguments.arithmetic,
        pushes_per_round: arguments.pushes_per_round.unwrap_or(standard.pushes_per_round),
        round_time_max: arguments.round_ms.map_or_else(|| round_time(mode, workers), Duration::from_millis),
        entries_max,
        adapts_to_paths: mtu == Mtu::Auto,
        cells_max: arguments.register_size,
        ..standard
    };
    Ok(hot_path.with_lanes(lanes))
}
