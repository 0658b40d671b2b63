//! The processes of a benchmark.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use anyhow::Result;
use indicatif::ProgressBar;
use libra_proto::{ControllerCommand, ControllerEvent, Sizes};
use tokio::sync::mpsc::UnboundedSender;

use super::usage::UsageMonitor;
use super::worker::MEASURING;
use crate::security::RunToken;
use libra_launch::interrupt;
use libra_launch::network::inside_of;
use libra_launch::parent_guard;
use libra_launch::process::Process;

/// Sizes of the cluster, and options of its members.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterSpec<'a> {
    pub(super) sizes: Sizes,
    /// Options of switches, and the network namespace that they are in.
    pub(super) switch: (&'a [String], Option<&'a str>),
    /// Options of workers.
    pub(super) worker: &'a [String],
    pub(super) shards_per_server: u16,
    pub(super) token: RunToken,
    /// Directory for the state of servers.
    pub(super) state: Option<&'a Path>,
    /// Members answer requests over HTTP.
    pub(super) is_scraped: bool,
}

/// The processes of a run. Most end by themselves when the job is done, and all with this.
pub(super) struct Processes {
    servers: Vec<Process>,
    switches: Vec<Process>,
    workers: Vec<Process>,
}

impl Processes {
    pub(super) fn start(spec: ClusterSpec<'_>, controller: SocketAddr) -> Result<Self> {
        let mut processes = Self { servers: Vec::new(), switches: Vec::new(), workers: Vec::new() };
        let http: &[&str] = if spec.is_scraped { &["--http", "127.0.0.1:0"] } else { &[] };
        for _ in 0..spec.sizes.servers {
            let mut server = member(&["server", "--exit-with-parent", "--quiet"], controller)?;
            server.arg("--shards-per-server").arg(spec.shards_per_server.to_string());
            server.args(spec.state.iter().flat_map(|state| [OsStr::new("--state-dir"), state.as_os_str()]));
            server.args(http);
            spec.token.give_to_member(&mut server);
            processes.servers.push(start(server, Stdio::null())?);
        }
        for _ in 0..spec.sizes.switches {
            let (options, namespace) = spec.switch;
            let mut switch = member_in(namespace, &["switch", "--exit-with-parent", "--quiet"], controller)?;
            switch.args(options).args(http);
            spec.token.give_to_member(&mut switch);
            processes.switches.push(start(switch, Stdio::null())?);
        }
        for _ in 0..spec.sizes.workers {
            let mut worker = member(&["bench", "worker"], controller)?;
            worker.args(spec.worker).args(http);
            spec.token.give(&mut worker);
            processes.workers.push(start(worker, Stdio::piped())?);
        }
        Ok(processes)
    }

    /// Watches what the servers use.
    pub(super) fn monitor_servers(&self) -> Result<UsageMonitor> {
        monitor(&self.servers)
    }

    pub(super) fn monitor_switches(&self) -> Result<UsageMonitor> {
        monitor(&self.switches)
    }

    pub(super) fn monitor_workers(&self) -> Result<UsageMonitor> {
        monitor(&self.workers)
    }

    /// Shows the number of rows that the workers report to have made. The receiver is notified when they measure.
    pub(super) fn show_progress(&mut self, bar: &ProgressBar, seconds: f64) -> mpsc::Receiver<()> {
        let (begun, measuring) = mpsc::channel();
        for worker in &mut self.workers {
            let (bar, begun) = (bar.clone(), begun.clone());
            worker.read_stdout(move |line| {
                if line == MEASURING {
                    bar.set_message(format!("now {seconds} s are measured"));
                    // The receiver may be gone.
                    let _ = begun.send(());
                } else if let Ok(made) = line.parse() {
                    bar.inc(made);
                }
                true
            });
        }
        measuring
    }
}

fn member(arguments: &[&str], controller: SocketAddr) -> Result<Command> {
    member_in(None, arguments, controller)
}

fn member_in(namespace: Option<&str>, arguments: &[&str], controller: SocketAddr) -> Result<Command> {
    let program = parent_guard::this_program()?;
    let mut command = match namespace {
        Some(namespace) => inside_of(namespace, &program),
        None => Command::new(program),
    };
    command.args(arguments).args(["--controller", &controller.to_string()]);
    Ok(command)
}

fn start(mut command: Command, stdout: Stdio) -> Result<Process> {
    Process::start("a member of the cluster", command.stdin(Stdio::piped()).stdout(stdout))
}

/// Ends the job on an interrupt.
pub(super) fn abort_on_interrupt(ask: UnboundedSender<ControllerCommand>) {
    interrupt::on_first(move || {
        let reason = "the benchmark was interrupted".to_owned();
        let _ = ask.send(ControllerCommand::Abort { reason });
    });
}

/// Describes the loss of a member, after which the run has no valid figures.
pub(super) fn went(event: &ControllerEvent) -> Option<String> {
    match event {
        ControllerEvent::Lost { peer, reason } | ControllerEvent::Away { peer, reason } => {
            Some(format!("{peer} {reason}"))
        }
        _ => None,
    }
}

fn monitor(processes: &[Process]) -> Result<UsageMonitor> {
    UsageMonitor::start(processes.iter().map(Process::id).collect())
}
