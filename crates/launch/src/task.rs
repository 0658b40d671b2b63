//! Task of the workers from the controller, and their accounts at the end. The roles carry both unread.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use libra_models::{DataFile, EpochReport, Evaluation, TrainConfig, Workload};
use libra_proto::WorkRecord;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::group;

/// The task of a training job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Path of the data at the controller. A worker on another machine may have it elsewhere.
    pub data: String,
    /// Size of the data.
    pub size: String,
    /// The settings of the training.
    pub config: TrainConfig,
    /// The files of the data.
    #[serde(default)]
    pub files: Vec<DataFile>,
}

impl Task {
    /// A task for the workers of a job.
    pub fn new(data: &str, workload: &dyn Workload, config: &TrainConfig) -> Self {
        // A relative path, or a pattern, means something else in the directory of another process.
        let is_path = data != "synthetic" && !data.contains("://");
        let path = Path::new(data).canonicalize().or_else(|_| std::path::absolute(data)).ok();
        let absolute = path.filter(|_| is_path).and_then(|path| path.to_str().map(str::to_owned));
        let data = absolute.unwrap_or_else(|| data.to_owned());
        Self { data, size: size(workload), config: config.clone(), files: workload.files() }
    }

    /// Returns the task as text, as roles carry it.
    pub fn to_text(&self) -> Result<String> {
        toml::to_string(self).context("the task cannot be written down")
    }

    /// Reads a task. Fails if the text is none.
    pub fn from_text(text: &str) -> Result<Self> {
        toml::from_str(text).context("the controller's task is not one that this build understands")
    }

    /// Returns the first difference between the data of this task and of a later one, in words.
    pub fn difference_of_data(&self, later: &Self) -> Option<String> {
        let missing =
            |file: &DataFile, files: &[DataFile]| !files.iter().any(|other| other.name == file.name);
        for file in &self.files {
            match later.files.iter().find(|other| other.name == file.name) {
                None => return Some(format!("it had the file {}, which {} lacks", file.name, later.data)),
                Some(other) if other.bytes != file.bytes => {
                    let (is, was) = (group(other.bytes), group(file.bytes));
                    return Some(format!("{} has {is} bytes now, and had {was}", file.name));
                }
                Some(_) => {}
            }
        }
        if let Some(new) = later.files.iter().find(|file| missing(file, &self.files)) {
            return Some(format!("it did not have the file {}", new.name));
        }
        (self.size != later.size).then(|| format!("it had {}, {} has {}", self.size, later.data, later.size))
    }

    /// Refuses data that are not those of the controller.
    pub fn check(&self, data: &str, workload: &dyn Workload) -> Result<()> {
        let size = size(workload);
        if size != self.size {
            bail!(
                "the data of this worker ({data}) has {size}, the controller's ({}) has {}",
                self.data,
                self.size
            );
        }
        Ok(())
    }
}

/// Describes the size of the data, for people: `6,040 users, 3,706 items`.
pub fn size(workload: &dyn Workload) -> String {
    let parts = workload.size().into_iter().map(|(count, of_what)| format!("{} {of_what}", group(count)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns the epoch of a phase of the work: each has two, its training and then its evaluation.
pub fn epoch_of(phase: u64) -> u32 {
    u32::try_from(phase / 2).expect("epochs are numbered by u32")
}

/// Returns true if a phase is the training of an epoch, not its evaluation.
pub fn is_training(phase: u64) -> bool {
    phase.is_multiple_of(2)
}

/// Account of one worker at its end, beside those of the chunks that it has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The time that it was in a phase, in seconds.
    pub seconds: BTreeMap<u64, f64>,
    /// The longest time in which pushes were under way and none was acknowledged.
    pub stall_ms_max: f64,
}

impl Account {
    /// Returns the account as text, as roles carry it.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context("the account cannot be written down")
    }

    /// Reads an account. Fails if the text is none.
    pub fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("a worker's account is not one that this build understands")
    }
}

/// The account of an epoch, of all workers together.
#[derive(Debug, Clone)]
pub struct EpochAccount {
    /// Number of workers that have trained in it.
    pub workers: usize,
    /// Its training.
    pub trained: EpochReport,
    /// Its evaluation; none before it.
    pub evaluated: Option<Evaluation>,
}

impl EpochAccount {
    /// Adds the accounts of an epoch in the records of workers. None if there are none.
    ///
    /// # Errors
    /// An account is not one that this build understands.
    pub fn of(work: &[(u16, WorkRecord)], epoch: u32) -> Result<Option<Self>> {
        let training = 2 * u64::from(epoch);
        let mut of_workers = accounts::<EpochReport>(work, training)?.into_iter();
        let Some(mut trained) = of_workers.next() else { return Ok(None) };
        let workers = 1 + of_workers.len();
        of_workers.for_each(|report| trained.add(&report));
        let mut evaluated: Option<Evaluation> = None;
        for evaluation in accounts::<Evaluation>(work, training + 1)? {
            match &mut evaluated {
                Some(sum) => sum.add(&evaluation)?,
                None => evaluated = Some(evaluation),
            }
        }
        Ok(Some(Self { workers, trained, evaluated }))
    }
}

/// The accounts of a phase in the records of workers.
fn accounts<T: DeserializeOwned>(work: &[(u16, WorkRecord)], phase: u64) -> Result<Vec<T>> {
    let texts = work.iter().filter_map(|(worker, record)| Some((worker, record.accounts.get(&phase)?)));
    let read = |(worker, text): (&u16, &String)| {
        serde_json::from_str(text)
            .with_context(|| format!("an account of worker {worker} is not one that this build understands"))
    };
    texts.map(read).collect()
}
