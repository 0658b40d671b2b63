//! `libra controller`: gathers a cluster, runs one job on it, prints what came of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::Args;
use libra_net::{ControllerNode, NodeError};
use libra_proto::{ControllerEvent, Sizes};
use serde_json::json;

use crate::arguments::{HotPathArguments, SampleArguments, TrainingArguments};
use crate::job::Job;
use crate::progress::Bars;
use crate::report::Report;

/// Gathers a cluster, runs one job on it and prints what came of it.
///
/// Start it first; then, on any machine that reaches it, the servers, switches and workers that it waits for.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Where to listen for the members
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// Workers to wait for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Servers to wait for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    servers: u16,
    /// Switches to wait for; with none, every row goes to the servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=64))]
    switches: u16,
    #[command(flatten)]
    training: TrainingArguments,
    #[command(flatten)]
    sample: SampleArguments,
    #[command(flatten)]
    hot: HotPathArguments,
    /// Writes what came of it to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Reads options from a TOML file: `workers = 4` stands for --workers 4
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let bars = Bars::new(arguments.quiet);
    let sizes =
        Sizes { servers: arguments.servers, switches: arguments.switches, workers: arguments.workers };
    let controller = ControllerNode::bind(arguments.listen)?;
    let address = controller.address();
    let job = Job::prepare(&arguments.training, &arguments.sample, &arguments.hot, sizes, address, bars)?;
    bars.line(&format!(
        "controller: at {address}, waiting for {} servers, {} switches, {} workers",
        sizes.servers, sizes.switches, sizes.workers
    ));
    let (_commands, commands) = tokio::sync::mpsc::unbounded_channel();
    let outcome = controller.run(sizes, job.cluster.clone(), commands, |event| match event {
        ControllerEvent::Joined { peer, remote, missing } => bars.line(&format!(
            "controller: {peer} joined from {remote}; still to come: {} servers, {} switches, {} workers",
            missing.servers, missing.switches, missing.workers
        )),
        ControllerEvent::Started => bars.line("controller: the cluster is complete, training begins"),
        ControllerEvent::Finished(_) | ControllerEvent::Failed { .. } => {}
    });
    let outcome = outcome.map_err(|error| match error {
        NodeError::Ended { reason } => anyhow!("the job failed: {reason}"),
        error => error.into(),
    })?;
    let report = Report::new(&job, &outcome, started.elapsed().as_secs_f64())?;
    if let Some(path) = &arguments.json {
        report.write_json(path, &job, arguments.configuration(&job))?;
    }
    if !arguments.quiet {
        report.print(&job);
    }
    Ok(())
}

impl Arguments {
    fn configuration(&self, job: &Job) -> serde_json::Value {
        json!({
            "command": "controller",
            "workers": self.workers,
            "servers": self.servers,
            "switches": self.switches,
            "data": self.training.model.data,
            "sample": self.sample.sample,
            "hot_share": self.sample.hot_share,
            "memory_share": self.sample.memory_share,
            "arithmetic": self.hot.arithmetic.to_string(),
            "pushes_per_epoch": job.cluster.hot_path.pushes_per_epoch,
            "epoch_ms": self.hot.epoch_ms,
            "mtu": self.hot.mtu,
            "training": job.task.config,
        })
    }
}
