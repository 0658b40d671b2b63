//! `libra controller`: gathers a cluster, runs one job on it, prints its report.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use libra_client::{Controller, ControllerCommand};
use serde_json::json;

use libra_launch::event_log::EventLog;
use libra_launch::interrupt;
use libra_launch::job::{Job, JobArguments, failure};
use libra_launch::notices::news;

/// Gathers a cluster, runs one job on it and prints its report.
///
/// Start it first; then, on any machine that reaches it, the servers, switches and workers that it waits for. Switches that
/// come beyond those are standbys. Should the controller be lost, start it again with the same options: members look for it
/// for 30 s, and it goes on with the cluster that they are.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Address to listen on for the members
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
    let controller = Controller::bind(arguments.listen)?;
    let address = controller.address();
    let job = Job::prepare(&arguments.job, arguments.switches, address)?;
    let sizes = job.spec.sizes;
    bars.line(&format!(
        "controller: at {address}, waiting for {} servers, {} switches, {} workers",
        sizes.servers, sizes.switches, sizes.workers
    ));
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    // Members would look for a controller that is only gone; one that ends the job notifies them.
    interrupt::on_first(move || {
        let _ = ask.send(ControllerCommand::Abort { reason: "the controller was interrupted".to_owned() });
    });
    let mut events = EventLog::default();
    let outcome = controller.run(sizes, job.spec.cluster(), commands, |event| {
        events.note(event);
        if let Some(news) = news(event) {
            bars.line(&format!("controller: {news}"));
        }
    });
    let outcome = outcome.map_err(failure)?;
    let more = json!({ "command": "controller", "switches": arguments.switches });
    arguments.job.report(&job, &outcome, &events, started, more)
}
