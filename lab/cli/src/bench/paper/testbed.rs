//! The paper's testbed, in virtual time, with what real tasks push.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use foldhash::fast::FixedState;
use libra_paper::switchml::Profile;
use libra_perfsim::{
    Costs, DenseReport, DenseSetting, LinkSpec, Model, PowerLaw, Push, Pushes, Report, Setting, System,
    Topology,
};

use super::tasks::{Counts, Task};
use libra_launch::progress::Bars;

/// The paper's switch, for packets of at most 192 bytes.
const ENTRIES: u32 = 16;
const MACHINES: usize = 8;
/// From port to port.
const FORWARDING: Duration = Duration::from_micros(1);
/// Pushes of a worker that are under way at once.
const OPEN: usize = 4;
/// Pushes that are dealt to workers, in turn.
const PUSHES: u64 = 256;
/// Values of a packet of SwitchML.
const VALUES_OF_A_PACKET: u32 = 32;

/// A task on the testbed.
pub(super) struct Testbed {
    pub(super) name: String,
    /// Ranks of the rows in each push.
    pushes: Vec<Vec<u64>>,
    /// Rows of the model, and their values, of those embeddings that are updated most.
    rows: u64,
    width: usize,
}

impl Testbed {
    /// Takes what a task pushes. Layers are left out: they are in every push, and no system aggregates them in the network.
    pub(super) fn of(task: &Task, quick: bool, bars: Bars) -> Result<Self> {
        let counted = if quick { PUSHES } else { 4 * PUSHES };
        let (mut first, mut counts) = (Vec::new(), Counts::default());
        task.pushes(1.0, counted, bars, |keys| {
            counts.count(keys);
            if counts.pushes <= PUSHES {
                first.push(keys.to_vec());
            }
        })?;
        let ranks: HashMap<u64, u64, FixedState> =
            (0u64..).zip(counts.ranked()).map(|(rank, (key, _))| (key, rank)).collect();
        let pushes: Vec<Vec<u64>> = first
            .iter()
            .map(|keys| keys.iter().filter_map(|key| ranks.get(key).copied()).collect())
            .collect();
        let tables = task.embeddings();
        let rows = tables.iter().map(|table| table.keys.end - table.keys.start).sum();
        // One table is simulated; where widths differ it is by a lane for the bias.
        let width = tables.iter().map(|table| table.width as usize).max().unwrap_or(1);
        if pushes.is_empty() {
            bail!("{} pushes nothing", task.label());
        }
        Ok(Self { name: task.label(), pushes, rows, width })
    }

    /// Distinct rows of a push, on average.
    fn batch(&self) -> usize {
        (self.pushes.iter().map(Vec::len).sum::<usize>() / self.pushes.len()).max(1)
    }

    /// Values of all embeddings.
    pub(super) fn parameters(&self) -> u64 {
        self.rows * self.width as u64
    }

    /// Values that a push updates, on average.
    pub(super) fn updated(&self) -> usize {
        self.batch() * self.width
    }

    /// Rows that so many parameters are.
    pub(super) fn rows_of(&self, parameters: u64) -> u64 {
        (parameters / self.width as u64).clamp(1, self.rows)
    }

    /// Rows of a push that are among the hottest.
    pub(super) fn hot_share(&self, rows: u64) -> f64 {
        let all = self.pushes.iter().flatten();
        all.clone().filter(|rank| **rank < rows).count() as f64 / all.count().max(1) as f64
    }

    /// Simulates it.
    pub(super) fn run(
        &self,
        system: System,
        workers: u16,
        hot_parameters: u64,
        measured: Duration,
    ) -> Result<Report> {
        let setting =
            Setting { warm_up: measured, measured, ..self.setting(system, workers, hot_parameters)? };
        setting.run_with(self.deal(&setting, usize::MAX)).map_err(|reason| self.failed(workers, &reason))
    }

    /// Simulates so many pushes of each worker, to the last one, on links that lose packets. The seed decides which.
    pub(super) fn run_through(
        &self,
        system: System,
        workers: u16,
        hot_parameters: u64,
        pushes: usize,
        loss: f64,
        seed: u64,
    ) -> Result<Report> {
        let topology = Topology::paper_with(LinkSpec { loss, ..LinkSpec::DUAL_100G });
        let setting = Setting { topology, seed, ..self.setting(system, workers, hot_parameters)? };
        let pushes = self.deal(&setting, pushes);
        setting.run_through(pushes).map_err(|reason| self.failed(workers, &reason))
    }

    fn failed(&self, workers: u16, reason: &str) -> Error {
        anyhow!("{}, {workers} workers: {reason}", self.name)
    }

    fn setting(&self, system: System, workers: u16, hot_parameters: u64) -> Result<Setting> {
        let model = Model {
            rows: self.rows,
            width: self.width,
            law: PowerLaw::new(self.rows, 1.0),
            batch: self.batch(),
        };
        let entries = u32::try_from(self.width).unwrap_or(ENTRIES).max(ENTRIES);
        Ok(Setting {
            system,
            workers,
            servers: 1,
            topology: Topology::PAPER,
            model,
            hot: self.rows_of(hot_parameters),
            open: OPEN,
            pushes_per_round: 2 * u32::from(workers),
            entries_max: u8::try_from(entries).map_err(|_| anyhow!("{}: rows are too wide", self.name))?,
            costs: Costs::measured(),
            warm_up: Duration::ZERO,
            measured: Duration::ZERO,
            drawn: 1,
            seed: 1,
        })
    }

    /// Deals pushes to all workers, so many to each.
    fn deal(&self, setting: &Setting, each: usize) -> Vec<Pushes> {
        let workers = usize::from(setting.workers);
        (0..workers).map(|worker| self.dealt(worker, workers, &setting.model, each)).collect()
    }

    /// The pushes of one of so many workers, again and again.
    fn dealt(&self, worker: usize, workers: usize, model: &Model, each: usize) -> Pushes {
        let width = self.width;
        let own: Vec<Vec<u64>> = self
            .pushes
            .iter()
            .skip(worker % self.pushes.len())
            .step_by(workers)
            .map(|ranks| ranks.iter().map(|rank| model.key(*rank)).collect())
            .collect();
        Pushes::new(own.into_iter().cycle().take(each).map(move |keys: Vec<u64>| Push {
            gradients: vec![0.25; keys.len() * width],
            pairs: keys.len() as u64,
            keys,
        }))
    }

    /// Simulates SwitchML, which sends every parameter, with a pool of so many bytes.
    pub(super) fn run_dense(&self, workers: u16, memory_bytes: u64) -> DenseReport {
        DenseSetting { batch: self.batch() as u64, ..dense(workers, memory_bytes, self.parameters()) }.run()
    }
}

/// SwitchML on the testbed, for a model of so many parameters.
pub(super) fn dense(workers: u16, memory_bytes: u64, parameters: u64) -> DenseSetting {
    DenseSetting {
        workers,
        machines: MACHINES,
        link: LinkSpec::DUAL_100G,
        forwarding: FORWARDING,
        profile: Profile { memory_bytes, chunk: VALUES_OF_A_PACKET },
        parameters,
        batch: parameters,
        packet_ns: 0.0,
        rounds: 8,
    }
}
