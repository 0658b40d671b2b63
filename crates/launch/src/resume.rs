//! Checkpoints that jobs begin with: the rows of one alone, or its position, too, for a job that goes on where a run before it stopped.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use libra_models::TrainConfig;
use libra_proto::{AddedPhases, Load, Position, Work, WorkDone};
use libra_storage::without_secrets;

use crate::differences::{self, Rows};
use crate::follow::File;
use crate::job_directory::{JobCheckpoint, JobDirectory};
use crate::report::group;
use crate::task::{EpochAccount, Task, epoch_of, is_training};

/// A checkpoint with a position.
#[derive(Debug)]
pub struct Resume {
    /// The checkpoint, for servers.
    pub load: Load,
    /// The seed of the job.
    pub seed: u64,
    /// The work, with the part that was done until then.
    pub work: Work,
    /// Its phases, if it is open.
    pub added: AddedPhases,
    /// Text of the front end of the run before.
    pub task: String,
}

impl Resume {
    /// Finds the checkpoint that is meant by `DIR` or `DIR@NUMBER`: without a number the newest one that all shards have and that is not
    /// damaged.
    ///
    /// # Errors
    /// There is none, it is not complete, or it has no position.
    pub fn find(place: &str) -> Result<Self> {
        let find = || {
            let (directory, wanted) = split_number(place);
            Self::find_in(&JobDirectory::open(Path::new(directory))?, wanted)
        };
        find().with_context(|| format!("--resume {}", without_secrets(place)))
    }

    /// Finds the newest checkpoint at a URL; nothing if none was committed there yet.
    ///
    /// # Errors
    /// The store does not answer, or no checkpoint there is sound and has a position.
    pub fn find_if_any(url: &str) -> Result<Option<Self>> {
        let find = || match JobDirectory::open_if_any(Path::new(url))? {
            Some(job) => Self::find_in(&job, None).map(Some),
            None => Ok(None),
        };
        find().with_context(|| format!("--resume auto, {}", without_secrets(url)))
    }

    fn find_in(job: &JobDirectory, wanted: Option<u64>) -> Result<Self> {
        let list = job.list()?;
        let highest = list.first().map_or(0, |checkpoint| checkpoint.number);
        let (checkpoint, Position { task, work, added }) = if wanted.is_some() || job.is_url() {
            let checkpoint = pick(job, wanted)?;
            let position = position(&checkpoint)?;
            (checkpoint, position)
        } else {
            newest(job, list)?
        };
        let (load, seed) = load_of(job, &checkpoint, Some(highest + 1))?;
        Ok(Self { load, seed, work, added, task })
    }

    /// Compares the task of the run before with that of this one. Returns what differs and may, in words.
    ///
    /// # Errors
    /// It has other data or another model: what was done then cannot be gone on with.
    pub fn compare(&self, task: &Task) -> Result<Vec<String>> {
        self.differences(task).with_context(|| format!("--resume: checkpoint {}", self.load.number))
    }

    fn differences(&self, task: &Task) -> Result<Vec<String>> {
        let (before, now) = (&Task::from_text(&self.task).map_err(|_| self.is_of_program())?, task);
        let (was, is): (&TrainConfig, &TrainConfig) = (&before.config, &now.config);
        if was.follow != is.follow {
            let (was, say) = if was.follow { ("followed", "give") } else { ("did not follow", "leave out") };
            bail!("it is of a job that {was} its data: {say} --follow");
        }
        if was.model != is.model {
            let differences = differences::of_models(&was.model, &is.model).join("; ");
            bail!(
                "it is of another model: {differences}. To begin another job with these rows use --restore-from"
            );
        }
        if let Some(difference) = before.difference_of_data(now) {
            bail!(
                "it is of a job with other data: {difference}. To begin with its rows alone: --restore-from"
            );
        }
        if was.seed != is.seed {
            bail!(
                "it is of a job with --seed {}, which the order of the data follows from: give that",
                was.seed
            );
        }
        let mut notes = Vec::new();
        let mut note = |what: &str, was: String, is: String| {
            if was != is {
                notes.push(format!("{what} is {is}, and was {was} before"));
            }
        };
        note("the batch", was.batch.to_string(), is.batch.to_string());
        note("the mode", was.mode.to_string(), is.mode.to_string());
        note("the number of epochs", was.epochs.to_string(), is.epochs.to_string());
        notes.extend(differences::of_rules(Rows::Embeddings, &was.embeddings, &is.embeddings));
        notes.extend(differences::of_rules(Rows::Layers, &was.layers, &is.layers));
        Ok(notes)
    }

    fn is_of_program(&self) -> anyhow::Error {
        anyhow!(
            "it is of a job of programs that had {}, or of another version: their controller has --tables workers",
            self.task
        )
    }

    /// Fails if the checkpoint is of a model of `libra train`, for a controller whose workers bring what they train.
    ///
    /// # Errors
    /// It is.
    pub fn check_of_program(&self) -> Result<()> {
        match Task::from_text(&self.task) {
            Ok(task) => bail!(
                "--resume: checkpoint {} is of {} on {}: leave out --tables workers",
                self.load.number,
                differences::name_of_model(&task.config.model),
                task.data
            ),
            Err(_) => Ok(()),
        }
    }

    /// Returns the work that is left of so many phases, or what is left of open work, for the controller.
    pub fn work(&self, phases: u64) -> Work {
        let phases = if self.work.is_open { 0 } else { phases.max(self.work.done.phase) };
        Work { phases, ..self.work.clone() }
    }

    /// Returns the phases of open work that are there already. Others may follow, even if there were to be none.
    pub fn added(&self) -> AddedPhases {
        AddedPhases { is_complete: false, ..self.added.clone() }
    }

    /// Returns true if so many phases were done. Of open work there may be more.
    pub fn is_done(&self, phases: u64) -> bool {
        !self.work.is_open && self.work.done.phase >= phases
    }

    /// Describes the position in the work of programs, for a person.
    pub fn describe_of_program(&self) -> String {
        format!("goes on from checkpoint {}: {}", self.load.number, describe_of_program(&self.work))
    }

    /// Describes the position in a work of so many phases, for a person.
    pub fn describe(&self, phases: u64) -> String {
        format!("goes on from checkpoint {}: {}", self.load.number, describe(&self.work(phases), &self.added))
    }
}

/// Describes a position, for a person.
pub fn describe_position(position: &Position) -> String {
    let Position { task, work, added } = position;
    match Task::from_text(task) {
        Ok(_) => describe(work, added),
        Err(_) => format!("{task}: {}", describe_of_program(work)),
    }
}

/// Describes what is done of the work of programs, whose first phase sets rows and whose others are epochs.
fn describe_of_program(work: &Work) -> String {
    let (phase, epochs) = (work.done.phase, work.phases.saturating_sub(1));
    if phase >= work.phases {
        return format!("all {epochs} epochs are done");
    }
    let chunks = work.chunks(&AddedPhases::default(), phase);
    format!("epoch {} of {epochs}, {} are done", phase.max(1), chunks_done(work, chunks, ""))
}

/// Describes what is done of the work of a training job, for a person.
fn describe(work: &Work, added: &AddedPhases) -> String {
    let (phase, phases) = (work.done.phase, work.phases_with(added));
    if work.is_open && phase >= phases {
        return format!("{} files are done", group(phases.div_ceil(2)));
    }
    if phase >= phases {
        return format!("all {} epochs are done", phases / 2);
    }
    let of = if is_training(phase) { " of its training" } else { " of its evaluation" };
    let done = chunks_done(work, work.chunks(added, phase), of);
    match added.get(phase).map(File::of) {
        Some(Ok(file)) => format!("file {}, {done} are done", file.name),
        Some(Err(_)) => format!("a file that this build does not know, {done} are done"),
        None => format!("epoch {} of {}, {done} are done", epoch_of(phase) + 1, phases / 2),
    }
}

/// Chunks of the present phase that are done, for a person.
fn chunks_done(work: &Work, chunks: u32, of: &str) -> String {
    let WorkDone { phase, records, .. } = &work.done;
    let done: usize = records.iter().map(|(_, record)| record.done_in(*phase).count()).sum();
    format!("{} of {} chunks{of}", group(done as u64), group(chunks.into()))
}

/// Samples that were trained before, by the accounts of workers.
pub fn samples_of(done: &WorkDone) -> Result<u64> {
    let mut samples = 0;
    for epoch in 0..=u32::try_from(done.phase / 2)? {
        samples += EpochAccount::of(&done.records, epoch)?.map_or(0, |account| account.trained.samples);
    }
    Ok(samples)
}

/// Splits off the number of a checkpoint: `DIR@7`.
pub fn split_number(place: &str) -> (&str, Option<u64>) {
    let numbered = place.rsplit_once('@').and_then(|(place, number)| Some((place, number.parse().ok()?)));
    numbered.map_or((place, None), |(place, number)| (place, Some(number)))
}

/// Finds the checkpoint that is meant by `DIR`, `DIR@NUMBER` or a URL, and its seed, for a job that begins with its rows alone.
///
/// # Errors
/// There is none, or it is not complete.
pub fn find_rows(place: &str) -> Result<(Load, u64)> {
    let (directory, wanted) = split_number(place);
    let job = JobDirectory::open(Path::new(directory))?;
    load_of(&job, &pick(&job, wanted)?, None)
}

/// Finds the checkpoint with this number; without one the newest complete one that is not damaged, which is read before.
///
/// # Errors
/// There is none, or it is not complete.
pub fn pick(job: &JobDirectory, wanted: Option<u64>) -> Result<JobCheckpoint> {
    match wanted {
        Some(_) => job.pick_complete(wanted),
        None => job.pick_sound(|number, damage| pass_over(job, number, &damage)),
    }
}

fn pass_over(job: &JobDirectory, number: u64, damage: &str) {
    eprintln!("libra: checkpoint {number} of {} is passed over: {damage}", job.path.display());
}

/// A checkpoint as servers are told of it, and its seed.
fn load_of(job: &JobDirectory, checkpoint: &JobCheckpoint, resumes_with: Option<u64>) -> Result<(Load, u64)> {
    let seed = checkpoint.manifests().next().map(|manifest| manifest.description.seed);
    let seed = seed.context("a checkpoint has a shard")?;
    let path = if job.is_url() { job.path.clone() } else { std::path::absolute(&job.path)? };
    let directory = path.display().to_string();
    Ok((Load { directory, number: checkpoint.number, resumes_with }, seed))
}

/// The newest checkpoint that all shards have with the same position, and that is not damaged.
fn newest(job: &JobDirectory, list: Vec<JobCheckpoint>) -> Result<(JobCheckpoint, Position)> {
    let (mut reason, mut has_damage) = (None, false);
    for checkpoint in list {
        let position = if checkpoint.is_complete() { Some(position(&checkpoint)) } else { None };
        if let Some(Err(error)) = position {
            reason = reason.or(Some(error));
        } else if let Some(damage) = job.damage(&checkpoint) {
            pass_over(job, checkpoint.number, &damage);
            has_damage = true;
        } else if let Some(Ok(position)) = position {
            return Ok((checkpoint, position));
        }
    }
    if has_damage && reason.is_none() {
        bail!("{} has no checkpoint that is sound", job.path.display());
    }
    match reason {
        Some(reason) => Err(reason),
        // Says which there are.
        None => {
            let checkpoint = job.pick(None)?;
            let position = position(&checkpoint)?;
            Ok((checkpoint, position))
        }
    }
}

/// Returns the position that all parts of a checkpoint have.
///
/// # Errors
/// They have none, or different ones.
pub fn position(checkpoint: &JobCheckpoint) -> Result<Position> {
    let number = checkpoint.number;
    let mut positions = checkpoint.manifests().map(|manifest| manifest.description.position.as_ref());
    let Some(first) = positions.next().flatten() else {
        bail!(
            "checkpoint {number} has no position in the data, as its workers divided the data themselves or an earlier version wrote it: \
             --restore-from begins with its rows"
        );
    };
    if positions.any(|other| other != Some(first)) {
        bail!(
            "the shards of checkpoint {number} have different positions in the data, as they were written one by one: choose one before"
        );
    }
    serde_json::from_value(first.clone()).with_context(|| {
        format!("the position of checkpoint {number} is not one that this build understands")
    })
}
