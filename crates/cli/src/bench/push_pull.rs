//! `libra bench push-pull`: servers and workers in processes of their own, over TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use libra_net::ControllerNode;
use libra_proto::{Cluster, ColdPath, ControllerCommand, ControllerEvent, HotPath, Outcome, Sizes};

use super::limits::Limits;
use super::load::{Load, Operation};
use super::report::Report;
use super::usage::Watch;
use super::worker::Account;
use crate::arguments::{ColdPathArguments, clear, write_json};
use crate::interrupt;
use crate::job::failure;
use crate::progress::Bars;

/// Pushes and pulls rows of servers over TCP, each in a process of its own.
///
/// Before anything is measured every row is pushed once. Then each worker keeps a few operations under way, of rows that it
/// draws by Zipf's law, distinct and sorted in each operation. Limits of the machine are measured in the same run.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Servers; each owns one shard of the rows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: u16,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Exponent of Zipf's law: 0 makes all rows equally likely
    #[arg(long, value_name = "S", default_value_t = 1.05)]
    zipf: f64,
    /// Rows of one operation
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    batch: usize,
    /// Values of a row
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    width: u16,
    #[command(flatten)]
    cold: ColdPathArguments,
    /// What workers do
    #[arg(long = "op", value_name = "OP", value_enum, default_value_t = Operation::Push)]
    operation: Operation,
    /// Operations of a worker that are under way at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    open: u16,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Decides which rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let load = arguments.load();
    let bars = Bars::new(arguments.quiet);
    let spinner = bars.spinner("bench");
    spinner.set_message("limits of this machine");
    let limits = Limits::measure(load.keys, load.width)?;
    spinner.set_message(format!("{} rows are made, then {} s", load.keys, load.seconds));
    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let mut processes = Processes::start(arguments, controller.address())?;
    let watch = Watch::start(processes.servers())?;
    let outcome = processes.run(controller, arguments.sizes(), &load);
    spinner.finish_and_clear();
    let outcome = outcome?;
    let accounts: Vec<Account> = outcome
        .reports
        .iter()
        .map(|report| serde_json::from_str(report).context("a worker's account is not that of a benchmark"))
        .collect::<Result<_>>()?;
    let report = Report::new(arguments.servers, &load, &accounts, watch, limits)?;
    if !arguments.quiet {
        report.print();
    }
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

impl Arguments {
    fn check(&self) -> Result<()> {
        if self.batch == 0 || self.batch as u64 > self.keys {
            bail!("--batch {}: an operation has at least 1 row and at most --keys {}", self.batch, self.keys);
        }
        if self.batch as u64 > self.keys / 2 && self.zipf > 0.0 {
            bail!("--batch {}: more than half of all rows are not drawn in any sensible time", self.batch);
        }
        if !(self.zipf >= 0.0 && self.zipf.is_finite()) {
            bail!("--zipf {}: expected a number from 0 up", self.zipf);
        }
        if !(self.seconds >= 0.1 && self.seconds <= 86_400.0) {
            bail!("--seconds {}: expected a number from 0.1 up to a day", self.seconds);
        }
        Ok(())
    }

    fn sizes(&self) -> Sizes {
        Sizes { servers: self.servers, switches: 0, workers: self.workers }
    }

    fn load(&self) -> Load {
        Load {
            operation: self.operation,
            keys: self.keys,
            width: self.width.into(),
            wire: self.cold.wire,
            batch: self.batch,
            zipf: self.zipf,
            open: self.open.into(),
            seconds: self.seconds,
            workers: self.workers,
            seed: self.seed,
        }
    }
}

/// The processes of a run. They end with it, however it ends.
struct Processes {
    servers: Vec<Child>,
    workers: Vec<Child>,
}

impl Processes {
    fn start(arguments: &Arguments, controller: SocketAddr) -> Result<Self> {
        let mut processes = Self { servers: Vec::new(), workers: Vec::new() };
        for _ in 0..arguments.servers {
            processes.servers.push(start(&["server", "--leashed", "--quiet"], controller)?);
        }
        for _ in 0..arguments.workers {
            processes.workers.push(start(&["bench", "worker"], controller)?);
        }
        Ok(processes)
    }

    fn servers(&self) -> Vec<u32> {
        self.servers.iter().map(Child::id).collect()
    }

    fn run(&mut self, controller: ControllerNode, sizes: Sizes, load: &Load) -> Result<Outcome> {
        let mut cluster = Cluster::new(1, load.tables(), None, HotPath::for_workers(sizes.workers));
        cluster.cold_path = ColdPath { values: load.wire };
        cluster.task = load.to_text()?;
        let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
        interrupt::on_first(move || {
            let reason = "the benchmark was interrupted".to_owned();
            let _ = ask.send(ControllerCommand::Abort { reason });
        });
        let mut ended = None;
        let outcome = controller.run(sizes, cluster, commands, |event| {
            if let ControllerEvent::Lost { peer, reason } = event {
                ended.get_or_insert_with(|| format!("{peer} {reason}"));
            }
        });
        match ended {
            Some(ended) => bail!("{ended}: what the others did is no figure"),
            None => outcome.map_err(failure),
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.servers.iter_mut().chain(&mut self.workers) {
            // They end by themselves when the job is done; of one that does not, nobody wants to know why.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn start(arguments: &[&str], controller: SocketAddr) -> Result<Child> {
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let mut command = Command::new(program);
    command.args(arguments).args(["--controller", &controller.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().with_context(|| format!("cannot start a {}", arguments[0]))
}
