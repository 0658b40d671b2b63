//! `libra-lab bench join`: the time that a worker takes to join a job that runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use libra_net::{ControllerNode, NodeOptions, WorkerNode};
use libra_proto::{Cluster, ControllerCommand, HotPath, Sizes};
use libra_store::{Init, Optimizer, TableSpec};
use serde::Serialize;

use super::latency::Latency;
use super::processes::{ClusterSpec, Processes, abort_on_interrupt};
use super::report::print;
use crate::security::{RunToken, StreamSecurity};
use libra_launch::arguments::clear;
use libra_launch::document::write_json;
use libra_launch::job::failure;
use libra_launch::progress::Bars;

/// Workers of the job: one stays, and another joins and leaves again.
const WORKERS: u16 = 2;

/// Joins a job that runs as a worker, and leaves it, again and again.
///
/// The time goes from the call to connect until all members act on the view with the new worker, and it has its tables and its number. The controller
/// and the workers are threads of this process, servers have processes of their own: the start of a process is not in it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Times to join
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    times: u16,
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: u16,
    /// Protection of the streams between members
    #[arg(long, value_enum, default_value = "off")]
    security: StreamSecurity,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    servers: u16,
    security: StreamSecurity,
    times: u16,
    join_us: Latency,
    leave_us: Latency,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { times, servers, security, json, quiet } = arguments;
    if let Some(path) = json {
        clear(path)?;
    }
    let token = RunToken::new(*security)?;
    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let controller = controller.with_security(token.security());
    let address = controller.address();
    let spec = ClusterSpec {
        // Workers are threads of this process.
        sizes: Sizes { servers: *servers, switches: 0, workers: 0 },
        shards_per_server: 1,
        token,
        switch: (&[], None),
        worker: &[],
        state: None,
        is_scraped: false,
    };
    let _processes = Processes::start(spec, address)?;
    let bar = Bars::new(*quiet).bar("joins");
    bar.set_length((*times).into());
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    abort_on_interrupt(ask.clone());
    let sizes = Sizes { servers: *servers, switches: 0, workers: WORKERS };
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table =
        TableSpec { name: "rows".into(), keys: 0..(*servers).into(), width: 1, rule, init: Init::Zero };
    let mut cluster = Cluster::new(1, vec![table], None, HotPath::for_workers(WORKERS));
    // A job gives a few numbers of workers for each share, and each number once.
    cluster.shares = WORKERS.max(*times);
    let (turns, abort) = (*times, ask);
    let options = move || NodeOptions { security: token.security(), ..NodeOptions::new(address) };
    let shown = bar.clone();
    let workers = thread::spawn(move || {
        let measured = join_and_leave(turns, options, &shown);
        if let Err(error) = &measured {
            // The job may have ended before.
            let _ = abort.send(ControllerCommand::Abort { reason: format!("{error:#}") });
        }
        measured
    });
    let outcome = controller.run(sizes, cluster, commands, |_| ());
    let Ok(measured) = workers.join() else { bail!("the workers panicked") };
    bar.finish_and_clear();
    let [join_us, leave_us] = measured?;
    outcome.map_err(failure)?;
    let figures = Figures { servers: *servers, security: *security, times: *times, join_us, leave_us };
    if !quiet {
        figures.print();
    }
    if let Some(path) = json {
        write_json(path, &figures)?;
    }
    Ok(())
}

/// Returns the times of joining and of leaving.
fn join_and_leave(
    times: u16,
    options: impl Fn() -> NodeOptions + Send + Clone + 'static,
    bar: &ProgressBar,
) -> Result<[Latency; 2]> {
    let (end, ended) = mpsc::channel::<()>();
    let first = options.clone();
    let resident = thread::spawn(move || -> Result<()> {
        let worker = WorkerNode::join(first())?;
        // Until the other end is dropped.
        let _ = ended.recv();
        Ok(worker.report(String::new())?)
    });
    // The job begins with it.
    WorkerNode::join(options())?.leave()?;
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let began = Instant::now();
        let worker = WorkerNode::join(options())?;
        joins.push(u32::try_from(began.elapsed().as_micros())?);
        let began = Instant::now();
        worker.leave()?;
        leaves.push(u32::try_from(began.elapsed().as_micros())?);
        bar.inc(1);
    }
    drop(end);
    match resident.join() {
        Ok(reported) => reported?,
        Err(_) => bail!("the worker that stays panicked"),
    }
    Ok([Latency::of(joins)?, Latency::of(leaves)?])
}

impl Figures {
    fn print(&self) {
        let security = match self.security {
            StreamSecurity::Off => "no protection",
            StreamSecurity::Tls => "TLS 1.3",
        };
        let title =
            format!("a worker joins and leaves {} times; {} servers, {security}", self.times, self.servers);
        let lines = [("join", self.join_us), ("leave", self.leave_us)].map(|(name, latency)| {
            let (_, median, remark) = latency.line();
            (name, median, remark)
        });
        print(&title, lines.into());
    }
}
