//! `libra-lab bench push-pull`: servers and workers in processes of their own, over TCP.

use core::ops::Range;
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use anyhow::{Result, bail};
use clap::Args;
use libra_net::ControllerNode;
use libra_proto::{Cluster, ColdPath, ControllerCommand, ControllerEvent, HotPath, Outcome, Sizes};

use super::durability::{CheckpointFigures, DurabilityArgs};
use super::limits::Limits;
use super::load::{Load, Operation};
use super::processes::{ClusterSpec, Processes, abort_on_interrupt, went};
use super::report::Report;
use super::rows::Rows;
use super::scraper::Scraper;
use super::worker::{Account, wall_clock};
use crate::security::{RunToken, StreamSecurity};
use libra_launch::arguments::{ColdPathArguments, clear};
use libra_launch::document::write_json;
use libra_launch::job::failure;
use libra_launch::progress::Bars;

/// Pushes and pulls rows of servers over TCP, each in a process of its own.
///
/// Before anything is measured every row of --fill is pushed once, in the order of keys. Then each worker keeps a few operations under way, of rows that it
/// draws by Zipf's law, distinct and sorted in each operation. Limits of the machine are measured in the same run.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Servers; the rows are dealt to their shards
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: u16,
    /// Shards of each server, on a thread each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards_per_server: u16,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    cold: ColdPathArguments,
    #[command(flatten)]
    durability: DurabilityArgs,
    /// Operation of workers
    #[arg(long = "op", value_name = "OP", value_enum, default_value_t = Operation::Push)]
    operation: Operation,
    /// Operations of a worker that are under way at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    open: u16,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Scrapes the metrics of all members once a second meanwhile, as Prometheus does
    #[arg(long)]
    scraped: bool,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Protection of the streams between members
    #[arg(long, value_enum, default_value = "off")]
    security: StreamSecurity,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.rows.check()?;
    super::check_seconds(arguments.seconds)?;
    arguments.durability.check(arguments.seconds)?;
    arguments.rows.check_memory(1)?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let load = arguments.load();
    let bars = Bars::new(arguments.quiet);
    let spinner = bars.spinner("bench");
    spinner.set_message("limits of this machine");
    let limits = Limits::measure(&load.rows)?;
    spinner.finish_and_clear();
    let bar = bars.bar("rows");
    bar.set_length(load.rows.made());
    let token = RunToken::new(arguments.security)?;
    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let scraper = arguments.scraped.then(Scraper::start).transpose()?;
    let inspector = scraper.as_ref().map(Scraper::inspector);
    let controller = controller.with_security(token.security()).with_inspector(inspector);
    let spec = ClusterSpec {
        sizes: arguments.sizes(),
        shards_per_server: arguments.shards_per_server,
        token,
        switch: (&[], None),
        worker: &[],
        state: arguments.durability.state.as_deref(),
        is_scraped: arguments.scraped,
    };
    let mut processes = Processes::start(spec, controller.address())?;
    let measuring = processes.show_progress(&bar, load.seconds);
    let monitor = processes.monitor_servers()?;
    let outcome = run_job(controller, arguments, &load, measuring);
    bar.finish_and_clear();
    let (outcome, checkpoint) = outcome?;
    let accounts = Account::of(&outcome)?;
    let checkpoint = checkpoint.map(|span| CheckpointFigures::new(&accounts, load.rows.batch, &span));
    let (servers, shards) = (arguments.servers, arguments.shards_per_server);
    let report = Report::new(servers, shards, &load, &accounts, monitor, limits, checkpoint)?;
    let scrapes = scraper.map(Scraper::finish).transpose()?;
    if !arguments.quiet {
        report.print();
        scrapes.iter().for_each(|scrapes| println!("{}", scrapes.line()));
    }
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

impl Arguments {
    fn sizes(&self) -> Sizes {
        Sizes { servers: self.servers, switches: 0, workers: self.workers }
    }

    fn load(&self) -> Load {
        Load {
            operation: self.operation,
            rows: self.rows.clone(),
            wire: self.cold.wire_dtype,
            open: self.open.into(),
            seconds: self.seconds,
            workers: self.workers,
        }
    }
}

/// Runs the job. Returns what came of it, and when a checkpoint was written, in nanoseconds since 1970, if one was to be.
fn run_job(
    controller: ControllerNode,
    arguments: &Arguments,
    load: &Load,
    measuring: mpsc::Receiver<()>,
) -> Result<(Outcome, Option<Range<u64>>)> {
    let sizes = arguments.sizes();
    let mut cluster = Cluster::new(1, vec![load.rows.table()], None, HotPath::for_workers(sizes.workers));
    cluster.cold_path = ColdPath { values: load.wire };
    cluster.durability = arguments.durability.durability();
    cluster.task = load.to_text()?;
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    if let Some(at) = arguments.durability.checkpoint_at {
        let ask = ask.clone();
        thread::spawn(move || {
            if measuring.recv().is_ok() {
                thread::sleep(Duration::from_secs_f64(at));
                let _ = ask.send(ControllerCommand::Checkpoint);
            }
        });
    }
    abort_on_interrupt(ask);
    let (mut ended, mut checkpoint) = (None, None);
    let outcome = controller.run(sizes, cluster, commands, |event| match event {
        ControllerEvent::Checkpointed { took, .. } => {
            let end = wall_clock();
            let took = u64::try_from(took.as_nanos()).unwrap_or(end);
            checkpoint = Some(end - took..end);
        }
        ControllerEvent::CheckpointFailed { reason, .. } => {
            ended.get_or_insert_with(|| format!("nothing came of the checkpoint: {reason}"));
        }
        event => ended = ended.take().or_else(|| went(event)),
    });
    match ended {
        Some(ended) => bail!("{ended}: what the others did is no figure"),
        None if arguments.durability.checkpoint_at.is_some() && checkpoint.is_none() && outcome.is_ok() => {
            bail!("the checkpoint was not written within the time that is measured: take more --seconds")
        }
        None => Ok((outcome.map_err(failure)?, checkpoint)),
    }
}
