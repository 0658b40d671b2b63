//! A training job before it runs: data, task, plan, and the cluster it asks for.

use core::time::Duration;
use std::sync::Arc;

use anyhow::{Result, bail};
use libra_plan::Plan;
use libra_proto::{Cluster, HotPath, Sizes};
use libra_train::{Dataset, Model};

use crate::arguments::{HotPathArguments, SampleArguments, TrainingArguments, read_plan};
use crate::progress::Bars;
use crate::task::Task;

pub(crate) struct Job {
    pub(crate) sizes: Sizes,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) task: Task,
    /// Everything but who is there.
    pub(crate) cluster: Cluster,
}

impl Job {
    /// Reads the data and finds the hot rows.
    pub(crate) fn prepare(
        training: &TrainingArguments,
        sample: &SampleArguments,
        hot: &HotPathArguments,
        sizes: Sizes,
        bars: Bars,
    ) -> Result<Self> {
        let config = training.config()?;
        let dataset = training.dataset()?;
        let model = Model::new(&config, &dataset);
        let plan = match (&hot.plan, sizes.switches) {
            (_, 0) => None,
            (Some(path), _) => Some(read_plan(path, &model)?),
            (None, _) => Some(sample.plan(&config, &dataset, &bars)?),
        };
        if let Some(plan) = plan.as_ref().filter(|plan| plan.rows.is_empty()) {
            bail!("plan {} has no hot row, so a switch has nothing to do: run without one", plan.number);
        }
        let task = Task::new(&training.data, &dataset, &config);
        let cluster = Cluster {
            job: 1,
            seed: training.seed,
            tables: model.tables(),
            plan,
            hot_path: hot_path(hot, sizes.workers),
            task: task.to_text()?,
            servers: Vec::new(),
            switches: Vec::new(),
            workers: Vec::new(),
        };
        Ok(Self { sizes, dataset, task, cluster })
    }

    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.cluster.plan.as_ref()
    }
}

fn hot_path(arguments: &HotPathArguments, workers: u16) -> HotPath {
    let standard = HotPath::for_workers(workers);
    HotPath {
        arithmetic: arguments.arithmetic,
        pushes_per_epoch: arguments.pushes_per_epoch.unwrap_or(standard.pushes_per_epoch),
        epoch_time_max: Duration::from_millis(arguments.epoch_ms),
        ..standard
    }
}
