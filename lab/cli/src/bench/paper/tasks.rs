//! The paper's tasks, as they are trained here.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Result, bail};
use foldhash::fast::FixedState;
use libra_client::Mode;
use libra_models::{LAYER_KEYS, ModelKind, TrainConfig, Workload, shapes};
use libra_plan::TableShape;

use super::testbed::Testbed;
use libra_launch::progress::Bars;

/// Data sets that a task can be given.
const FOLDERS: [&str; 3] = ["criteo-head10k", "ml-1m", "ptb"];

/// Refuses a directory that has none of the data sets: a mistyped name would be taken for the wish to make data up.
pub(super) fn check(data: &Path) -> Result<()> {
    if !FOLDERS.iter().any(|folder| data.join(folder).is_dir()) {
        bail!("--data: {} is no directory with any of {}", data.display(), FOLDERS.join(", "));
    }
    Ok(())
}

/// Shared state of the tasks of a report.
pub(super) struct Tasks {
    /// True if a small part of the data is used.
    pub(super) quick: bool,
    pub(super) seed: u64,
    /// A directory of data sets.
    pub(super) data: Option<PathBuf>,
    /// Tasks that were opened, by name: most items use the same.
    opened: RefCell<BTreeMap<&'static str, Rc<Task>>>,
    testbeds: RefCell<BTreeMap<&'static str, Rc<Testbed>>>,
}

/// A task of the paper.
pub(super) struct Task {
    /// The paper's name of it.
    pub(super) name: &'static str,
    kind: ModelKind,
    /// Location of its data.
    source: String,
    seed: String,
    /// Parameters that the paper has in its switch.
    pub(super) hot_parameters: u64,
    /// Epochs of training in a quick run.
    pub(super) epochs_quick: u32,
    /// Synchronization mode if it is trained by several workers.
    pub(super) mode: Mode,
    pub(super) config: TrainConfig,
    pub(super) workload: Arc<dyn Workload>,
}

/// Update counts of rows of embeddings.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) pushes: u64,
    /// Updates of rows of embeddings.
    pub(super) updates: u64,
    pub(super) rows: HashMap<u64, u64, FixedState>,
}

impl Tasks {
    pub(super) fn new(quick: bool, seed: u64, data: Option<PathBuf>) -> Self {
        Self { quick, seed, data, opened: RefCell::default(), testbeds: RefCell::default() }
    }

    /// A task on the testbed.
    pub(super) fn testbed(&self, task: &Task, bars: Bars) -> Result<Rc<Testbed>> {
        if let Some(testbed) = self.testbeds.borrow().get(task.name) {
            return Ok(Rc::clone(testbed));
        }
        let testbed = Rc::new(Testbed::of(task, self.quick, bars)?);
        self.testbeds.borrow_mut().insert(task.name, Rc::clone(&testbed));
        Ok(testbed)
    }

    /// The two industrial tasks: on-line advertising and search.
    pub(super) fn industrial(&self) -> Result<[Rc<Task>; 2]> {
        Ok([
            self.open("OA", ModelKind::AdsLr, 30_000, None)?,
            self.open("SE", ModelKind::SearchLr, 30_000, None)?,
        ])
    }

    /// All tasks.
    pub(super) fn all(&self) -> Result<Vec<Rc<Task>>> {
        let mut tasks = Vec::from(self.industrial()?);
        tasks.push(self.open("DeepLight", ModelKind::Deeplight, 40_000, Some("criteo-head10k"))?);
        tasks.push(self.open("LSTM", ModelKind::Lstm, 60_000, Some("ptb"))?);
        tasks.push(self.open("NCF", ModelKind::Neumf, 60_000, Some("ml-1m"))?);
        Ok(tasks)
    }

    fn open(
        &self,
        name: &'static str,
        kind: ModelKind,
        hot_parameters: u64,
        folder: Option<&str>,
    ) -> Result<Rc<Task>> {
        if let Some(task) = self.opened.borrow().get(name) {
            return Ok(Rc::clone(task));
        }
        let mut config = kind.config();
        config.seed = self.seed;
        let found =
            folder.and_then(|folder| Some(self.data.as_ref()?.join(folder))).filter(|path| path.exists());
        let source = found.and_then(|path| path.to_str().map(str::to_owned));
        let source = source.unwrap_or_else(|| "synthetic".to_owned());
        let workload = libra_models::open(&config, &source)?;
        let seed = self.seed.to_string();
        // Steps of the LSTM are long, so waiting costs it little, and gradients that are a step or two old cost it 2% of its perplexity.
        let mode = if kind == ModelKind::Lstm { Mode::Sync } else { Mode::Async };
        let task = Task { name, kind, source, seed, hot_parameters, epochs_quick: 1, mode, config, workload };
        let task = Rc::new(task);
        self.opened.borrow_mut().insert(name, Rc::clone(&task));
        Ok(task)
    }
}

impl Task {
    /// Its name with that of its data.
    pub(super) fn label(&self) -> String {
        format!("{}, {} data", self.name, self.workload.data())
    }

    /// Options by which a job trains it.
    pub(super) fn options(&self) -> [&str; 6] {
        ["--model", self.kind.name(), "--data", &self.source, "--seed", &self.seed]
    }

    /// The tables of embeddings.
    pub(super) fn embeddings(&self) -> Vec<TableShape> {
        shapes(self.workload.tables()).into_iter().filter(|shape| shape.hot).collect()
    }

    /// Goes through an epoch without training, and hands over the rows of embeddings in each push. Ends after `pushes_max`.
    pub(super) fn pushes(
        &self,
        sample: f64,
        pushes_max: u64,
        bars: Bars,
        mut visit: impl FnMut(&[u64]),
    ) -> Result<()> {
        let mut training = self.workload.clone().training(sample)?;
        let all = training.samples_per_epoch().div_ceil(self.config.batch as u64).min(pushes_max);
        let bar = bars.bar(self.name);
        bar.set_length(all);
        let mut pushes = 0;
        training.visit_epoch(0, &mut |keys| {
            // Layers stand behind the embeddings.
            let embeddings = keys.iter().rposition(|&key| key < LAYER_KEYS).map_or(0, |last| last + 1);
            visit(&keys[..embeddings]);
            pushes += 1;
            bar.set_position(pushes);
            pushes < pushes_max
        })?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Counts the rows of an epoch's pushes, or of the first `pushes_max`.
    pub(super) fn counts(&self, sample: f64, pushes_max: u64, bars: Bars) -> Result<Counts> {
        let mut counts = Counts::default();
        self.pushes(sample, pushes_max, bars, |keys| counts.count(keys))?;
        Ok(counts)
    }
}

impl Counts {
    /// Counts the rows of a push.
    pub(super) fn count(&mut self, keys: &[u64]) {
        self.pushes += 1;
        self.updates += keys.len() as u64;
        for &key in keys {
            *self.rows.entry(key).or_default() += 1;
        }
    }

    /// Rows and their counts, by falling count and rising key.
    pub(super) fn ranked(&self) -> Vec<(u64, u64)> {
        let mut ranked: Vec<(u64, u64)> = self.rows.iter().map(|(&key, &count)| (key, count)).collect();
        ranked.sort_unstable_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
        ranked
    }
}
