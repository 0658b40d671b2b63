//! `libra controller`: gathers a cluster, runs one job on it, prints what came of it.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use libra_net::ControllerNode;
use libra_proto::{ControllerCommand, ControllerEvent, Refusal, Sizes, Strangers};
use serde_json::json;

use crate::chronicle::{Chronicle, milliseconds};
use crate::interrupt;
use crate::job::{Job, JobArguments, failure};

/// Gathers a cluster, runs one job on it and prints what came of it.
///
/// Start it first; then, on any machine that reaches it, the servers, switches and workers that it waits for. Switches that
/// come beyond those are standbys. Should the controller be lost, start it again with the same options: members look for it
/// for 30 s, and it goes on with the cluster that they are.
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
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    // Members would look for a controller that is only gone; of one that ends the job they hear so.
    interrupt::on_first(move || {
        let _ = ask.send(ControllerCommand::Abort { reason: "the controller was interrupted".to_owned() });
    });
    let mut chronicle = Chronicle::default();
    let outcome = controller.run(sizes, job.cluster.clone(), commands, |event| {
        chronicle.note(event);
        if let Some(news) = news(event) {
            bars.line(&format!("controller: {news}"));
        }
    });
    let outcome = outcome.map_err(failure)?;
    let more = json!({ "command": "controller", "switches": arguments.switches });
    arguments.job.report(&job, &outcome, &chronicle, started, more)
}

/// What a person should hear of an event; the end of the job is told by what came of it.
pub(crate) fn news(event: &ControllerEvent) -> Option<String> {
    Some(match event {
        ControllerEvent::Joined { peer, remote, missing: Sizes { servers: 0, switches: 0, workers: 0 } } => {
            format!("{peer} joined from {remote}")
        }
        ControllerEvent::Joined { peer, remote, missing } => format!(
            "{peer} joined from {remote}; still to come: {} servers, {} switches, {} workers",
            missing.servers, missing.switches, missing.workers
        ),
        ControllerEvent::Started => "the cluster is complete, training begins".to_owned(),
        ControllerEvent::Recovered => "took over the cluster of a controller that is gone".to_owned(),
        ControllerEvent::Lost { peer, reason } => format!("{peer} {reason}; the others go on"),
        ControllerEvent::Settled { moved: 0, .. } => return None,
        ControllerEvent::Settled { moved, took, .. } => {
            format!("{moved} regions have moved, {:.1} ms after that was noticed", milliseconds(*took))
        }
        ControllerEvent::Away { peer, reason } => {
            format!("{peer} is away ({reason}); it can be started again with what it keeps")
        }
        ControllerEvent::Returned { peer, took } => {
            format!("{peer} is back after {:.1} s", took.as_secs_f64())
        }
        ControllerEvent::Checkpointed { number, took } => {
            format!("checkpoint {number} is there, after {:.1} s", took.as_secs_f64())
        }
        ControllerEvent::CheckpointFailed { number, reason } => {
            format!("nothing came of checkpoint {number}: {reason}")
        }
        ControllerEvent::Refused(refusal) => refused(refusal),
        ControllerEvent::Strangers(strangers) => turned_away(strangers),
        ControllerEvent::Finished(_) | ControllerEvent::Failed { .. } => return None,
    })
}

/// What a person should hear of the first gradient that a server refused of a worker and table.
pub(crate) fn refused(Refusal { server, worker, table, key, .. }: &Refusal) -> String {
    match worker {
        Some(worker) => format!(
            "worker {worker} pushed a gradient that is not finite for row {key} of table \"{table}\": refused by server \
             {server}"
        ),
        None => format!(
            "finite gradients of row {key} of table \"{table}\" have a sum that is not: refused by server {server}"
        ),
    }
}

/// What a person should hear of streams that were closed.
pub(crate) fn turned_away(Strangers { count, remote, reason }: &Strangers) -> String {
    format!("{count} streams were closed that are of no member so far; the last one, from {remote}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_hears_whose_gradient_was_refused_and_of_which_row() {
        let refusal = Refusal { server: 1, worker: Some(3), table: "item".into(), key: 17, count: 1 };
        assert_eq!(
            news(&ControllerEvent::Refused(refusal.clone())).unwrap(),
            "worker 3 pushed a gradient that is not finite for row 17 of table \"item\": refused by server 1"
        );
        let of_nobody = Refusal { worker: None, ..refusal };
        assert_eq!(
            refused(&of_nobody),
            "finite gradients of row 17 of table \"item\" have a sum that is not: refused by server 1"
        );
    }
}
