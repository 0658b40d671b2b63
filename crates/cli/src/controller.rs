//! `libra controller`: gathers a cluster, runs one job on it, prints what came of it.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use libra_net::ControllerNode;
use libra_proto::ControllerEvent;
use serde_json::json;

use crate::job::{Job, JobArguments, failure};

/// Gathers a cluster, runs one job on it and prints what came of it.
///
/// Start it first; then, on any machine that reaches it, the servers, switches and workers that it waits for.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Where to listen for the members
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// Switches to wait for; with none, every row goes to the servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=64))]
    switches: u16,
    #[command(flatten)]
    job: JobArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let bars = arguments.job.bars();
    let controller = ControllerNode::bind(arguments.listen)?;
    let address = controller.address();
    let job = Job::prepare(&arguments.job, arguments.switches, address)?;
    let sizes = job.sizes;
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
    let outcome = outcome.map_err(failure)?;
    let more = json!({ "command": "controller", "switches": arguments.switches });
    arguments.job.report(&job, &outcome, started, more)
}
