//! A training job before it runs: data, task, plan, and the cluster it asks for.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use libra_dataplane::entries_in;
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
        controller: SocketAddr,
        bars: Bars,
    ) -> Result<Self> {
        let config = training.config()?;
        let dataset = training.model.dataset()?;
        let model = Model::new(&config, &dataset);
        let hot_path = hot_path(hot, sizes.workers, controller);
        let (width, entries) = (model.width(), usize::from(hot_path.entries_max));
        if sizes.switches > 0 && width > entries {
            bail!(
                "a row of {} with {} factors has {width} values, a packet to a switch holds {entries} at an MTU of {}: \
                 take fewer factors, a larger --mtu (at most 255 values fit), or no switch",
                config.model,
                config.factors,
                hot.mtu
            );
        }
        let plan = match (&hot.plan, sizes.switches) {
            (_, 0) => None,
            (Some(path), _) => Some(read_plan(path, &model)?),
            (None, _) => Some(sample.plan(&config, &dataset, &bars)?),
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
        let task = Task::new(&training.model.data, &dataset, &config);
        let cluster = Cluster {
            job: 1,
            seed: training.model.seed,
            tables: model.tables(),
            plan,
            hot_path,
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

fn hot_path(arguments: &HotPathArguments, workers: u16, controller: SocketAddr) -> HotPath {
    let standard = HotPath::for_workers(workers);
    // The cluster talks as it reaches its controller; then comes UDP.
    let headers_bytes = if controller.is_ipv6() { 40 + 8 } else { 20 + 8 };
    HotPath {
        arithmetic: arguments.arithmetic,
        pushes_per_epoch: arguments.pushes_per_epoch.unwrap_or(standard.pushes_per_epoch),
        epoch_time_max: Duration::from_millis(arguments.epoch_ms),
        entries_max: entries_in(usize::from(arguments.mtu) - headers_bytes),
        ..standard
    }
}
