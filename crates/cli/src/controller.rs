//! `libra controller`: gathers a cluster, runs one job on it, prints its report.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use libra_client::{Controller, ControllerCommand, ControllerEvent, JobSpec, Outcome, PacketTags};
use serde_json::json;

use libra_launch::event_log::EventLog;
use libra_launch::exit::ExitArguments;
use libra_launch::interrupt;
use libra_launch::job::{Job, JobArguments, failure};
use libra_launch::notices::news;
use libra_launch::security::SecurityArguments;

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
    /// Origin of the tables, the plan and the mode of the job
    #[arg(long, value_enum, default_value = "model")]
    tables: Tables,
    #[command(flatten)]
    job: JobArguments,
    #[command(flatten)]
    exit: ExitArguments,
    #[command(flatten)]
    security: SecurityArguments,
    /// Tags of packets between workers and switches, which show who has sent them and what
    #[arg(long, value_enum, default_value = "auto", help_heading = "Security")]
    packet_tags: Tags,
}

/// Tags of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tags {
    /// MACs where streams are in TLS, or cookies if a switch is of hardware, which cannot compute MACs
    Auto,
    /// Always MACs; switches that cannot compute them are refused
    Mac,
    /// None
    Off,
}

impl From<Tags> for PacketTags {
    fn from(tags: Tags) -> Self {
        match tags {
            Tags::Auto => Self::Auto,
            Tags::Mac => Self::Mac,
            Tags::Off => Self::Off,
        }
    }
}

/// Origin of the description of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tables {
    /// --model and its options: the workers are `libra worker`
    Model,
    /// The workers themselves: programs in Python (LIBRA_CONTROLLER) or of libra-client, which must agree
    Workers,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.exit.begin()?;
    let started = Instant::now();
    let controller = Controller::bind(arguments.listen)?;
    let address = controller.address();
    let security = arguments.security.of_controller(address, arguments.job.bars())?;
    let controller = controller.with_security(security).with_packet_tags(arguments.packet_tags.into());
    if arguments.tables == Tables::Workers {
        let spec = arguments.job.without_tables(arguments.switches, address)?;
        let outcome = serve(arguments, controller.with_tables_of_workers(), &spec, |_event| ())?;
        return arguments.job.report_counts(&outcome, started);
    }
    let job = Job::prepare(&arguments.job, arguments.switches, address)?;
    let mut events = EventLog::default();
    let outcome = serve(arguments, controller, &job.spec, |event| events.note(event))?;
    let more = json!({ "command": "controller", "switches": arguments.switches });
    arguments.job.report(&job, &outcome, &events, started, more)
}

/// Runs a job to its end.
fn serve(
    arguments: &Arguments,
    controller: Controller,
    spec: &JobSpec,
    mut on_event: impl FnMut(&ControllerEvent),
) -> Result<Outcome> {
    let (bars, sizes, address) = (arguments.job.bars(), spec.sizes, controller.address());
    bars.line(&format!(
        "controller: at {address}, waiting for {} servers, {} switches, {} workers",
        sizes.servers, sizes.switches, sizes.workers
    ));
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    // Members would look for a controller that is only gone; one that ends the job notifies them.
    interrupt::on_first(move || {
        let _ = ask.send(ControllerCommand::Abort { reason: "the controller was interrupted".to_owned() });
    });
    let outcome = controller.run(sizes, spec.cluster(), commands, |event| {
        on_event(event);
        if let Some(news) = news(event) {
            bars.line(&format!("controller: {news}"));
        }
    });
    outcome.map_err(failure)
}
