//! Job specifications.

use core::time::Duration;

use libra_plan::{Plan, TableShape};
use libra_proto::{AddedPhases, Cluster, ColdPath, Durability, HotPath, Mode, RETURN_MAX, Sizes, Work};
use libra_store::{Store, TableError, TableSpec};
use thiserror::Error;

/// In [`Mode::Ssp`] and [`Mode::Sync`] workers wait for each other in every step: a round that not all of them push to closes by its time,
/// which must be short, and long enough for the pushes of one step.
const ROUND_TIME_AWAITED: Duration = Duration::from_millis(5);

/// A job: everything that all members of a cluster must agree on. It has no model; a front end adds what its own workers must know
/// as [`front_end`](Self::front_end).
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Members that the job begins with.
    pub sizes: Sizes,
    /// Workers that it may have at a time, at least as many as it begins with.
    pub workers_max: u16,
    /// Work that workers are dealt in chunks, if they do not share it out themselves.
    pub work: Option<Work>,
    /// Phases that open work begins with: those of the run that it resumes.
    pub added: AddedPhases,
    /// Tables, with their update rules and initial values.
    pub tables: Vec<TableSpec>,
    /// The hot rows. Without a plan the job needs no switch.
    pub plan: Option<Plan>,
    /// Settings of the hot path.
    pub hot_path: HotPath,
    /// Settings of the cold path.
    pub cold_path: ColdPath,
    /// State that servers write to disk.
    pub durability: Durability,
    /// Largest distance between workers.
    pub mode: Mode,
    /// Seed of initial values.
    pub seed: u64,
    /// Text of the front end for its workers: [`Worker::cluster`](crate::Worker::cluster) has it as `task`.
    pub front_end: String,
    /// Time in which a server that is gone may come back, or another controller.
    pub return_max: Duration,
}

/// A job specification that cannot be run.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum SpecError {
    /// There are no servers, or no workers.
    #[error("a job needs at least one server and one worker, not {servers} and {workers}")]
    Sizes {
        /// Servers of the specification.
        servers: u16,
        /// Workers of the specification.
        workers: u16,
    },
    /// A table cannot be stored.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There are switches, and no hot row for them.
    #[error("a switch needs hot rows, and the job has no plan with any: set `plan`, or take no switch")]
    NoHotRows,
    /// Bounded staleness of no step.
    #[error("a staleness of 0 is below 1: take the mode sync, or at least 1")]
    Staleness,
    /// The tables, the plan and the hot path do not fit each other.
    #[error("{0}")]
    Plan(String),
}

impl JobSpec {
    /// A job in asynchronous mode with the default settings for so many members.
    pub fn new(sizes: Sizes, tables: Vec<TableSpec>) -> Self {
        Self {
            sizes,
            workers_max: sizes.workers,
            work: None,
            added: AddedPhases::default(),
            tables,
            plan: None,
            hot_path: HotPath::for_workers(sizes.workers),
            cold_path: ColdPath::default(),
            durability: Durability::NONE,
            mode: Mode::Async,
            seed: 1,
            front_end: String::new(),
            return_max: RETURN_MAX,
        }
    }

    /// The same in another mode, with the round time that goes with it.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self.hot_path.round_time_max = round_time(mode, self.sizes.workers);
        self
    }

    /// The tables as a plan sees them. A row wider than a packet is never hot.
    pub fn shapes(&self) -> Vec<TableShape> {
        let shape = |table: &TableSpec| TableShape {
            name: table.name.clone(),
            keys: table.keys.clone(),
            width: u32::try_from(table.width).unwrap_or(u32::MAX),
            hot: table.width <= usize::from(self.hot_path.entries_max),
        };
        self.tables.iter().map(shape).collect()
    }

    /// Checks the specification.
    ///
    /// # Errors
    /// The first thing that members would refuse.
    pub fn check(&self) -> Result<(), SpecError> {
        let Sizes { servers, switches, workers } = self.sizes;
        if servers == 0 || workers == 0 {
            return Err(SpecError::Sizes { servers, workers });
        }
        Store::new(self.tables.clone(), self.seed)?;
        if switches > 0 && self.plan.as_ref().is_none_or(|plan| plan.rows.is_empty()) {
            return Err(SpecError::NoHotRows);
        }
        if self.mode == (Mode::Ssp { staleness: 0 }) {
            return Err(SpecError::Staleness);
        }
        let mut begun = self.cluster();
        begun.view.servers = vec![([0, 0, 0, 0], 0).into(); servers.into()];
        begun.check().map_err(SpecError::Plan)
    }

    /// The cluster that a controller begins with.
    pub fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new(1, self.tables.clone(), self.plan.clone(), self.hot_path.clone());
        cluster.cold_path = self.cold_path.clone();
        cluster.durability = self.durability.clone();
        cluster.mode = self.mode;
        cluster.seed = self.seed;
        cluster.return_max = self.return_max;
        cluster.task.clone_from(&self.front_end);
        cluster.shares = self.workers_max;
        cluster.work.clone_from(&self.work);
        cluster.view.added.clone_from(&self.added);
        cluster
    }
}

/// The longest time that a round stays open, where nothing else is asked for.
pub fn round_time(mode: Mode, workers: u16) -> Duration {
    if mode == Mode::Async { HotPath::for_workers(workers).round_time_max } else { ROUND_TIME_AWAITED }
}

#[cfg(test)]
mod tests {
    use libra_plan::{Budget, DEFAULT_HEADROOM_BITS, Provenance};
    use libra_store::{Init, Optimizer};

    use super::*;
    use crate::Profile;

    fn table(name: &str, keys: core::ops::Range<u64>, width: usize) -> TableSpec {
        let rule = Optimizer::Sgd { rate: 1.0 }.into();
        TableSpec { name: name.into(), keys, width, rule, init: Init::Zero }
    }

    fn spec(tables: Vec<TableSpec>) -> JobSpec {
        JobSpec::new(Sizes { servers: 1, switches: 1, workers: 2 }, tables)
    }

    fn planned(mut spec: JobSpec) -> JobSpec {
        let mut profile = Profile::new(spec.shapes()).unwrap();
        profile.record(&[3], &vec![1.0; spec.tables[0].width]);
        let frequencies = profile.finish();
        let (budget, headroom) = (Budget::default(), DEFAULT_HEADROOM_BITS);
        spec.plan = Some(Plan::new(1, Provenance::default(), &frequencies, budget, headroom).unwrap());
        spec
    }

    #[test]
    fn specification_that_fits_is_accepted() {
        assert_eq!(planned(spec(vec![table("rows", 0..10, 2)])).check(), Ok(()));
        let sizes = Sizes { servers: 1, switches: 0, workers: 1 };
        assert_eq!(JobSpec::new(sizes, vec![table("rows", 0..10, 2)]).check(), Ok(()));
    }

    #[test]
    fn mistakes_are_named() {
        let good = spec(vec![table("rows", 0..10, 2)]);
        assert_eq!(good.check(), Err(SpecError::NoHotRows));
        let twice = JobSpec {
            tables: vec![table("rows", 0..10, 2), table("rows", 10..20, 2)],
            ..planned(good.clone())
        };
        assert!(matches!(twice.check(), Err(SpecError::Table(_))));
        let empty = JobSpec { sizes: Sizes { servers: 0, switches: 0, workers: 1 }, ..good.clone() };
        assert_eq!(empty.check(), Err(SpecError::Sizes { servers: 0, workers: 1 }));
        let other = JobSpec { tables: vec![table("rows", 0..10, 3)], ..planned(good.clone()) };
        assert!(matches!(other.check(), Err(SpecError::Plan(reason)) if reason.contains("rows of 3 values")));
        let stale = planned(good).with_mode(Mode::Ssp { staleness: 0 });
        assert_eq!(stale.check(), Err(SpecError::Staleness));
    }

    #[test]
    fn members_receive_what_the_specification_says() {
        let spec = planned(spec(vec![table("rows", 0..10, 2)])).with_mode(Mode::Sync);
        let spec = JobSpec { front_end: "epochs = 3".to_owned(), seed: 7, ..spec };
        let cluster = spec.cluster();
        assert_eq!((cluster.mode, &cluster.task[..], cluster.seed), (Mode::Sync, "epochs = 3", 7));
        assert_eq!((cluster.hot_path.round_time_max, cluster.plan), (ROUND_TIME_AWAITED, spec.plan));
    }
}
