//! The processes of a benchmark.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use libra_proto::{ControllerCommand, ControllerEvent, Sizes};
use tokio::sync::mpsc::UnboundedSender;

use super::usage::Watch;
use super::worker::MEASURING;
use libra_launch::interrupt;
use libra_launch::leash;
use libra_launch::network::inside_of;

/// How many processes there are of each kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cast<'a> {
    pub(super) sizes: Sizes,
    /// What switches are told, and the network namespace that they are in.
    pub(super) switch: (&'a [String], Option<&'a str>),
    /// What workers are told.
    pub(super) worker: &'a [String],
    /// Where servers keep what they keep.
    pub(super) state: Option<&'a Path>,
}

/// The processes of a run. They end with it, however it ends.
pub(super) struct Processes {
    servers: Vec<Child>,
    switches: Vec<Child>,
    workers: Vec<Child>,
}

impl Processes {
    pub(super) fn start(cast: Cast<'_>, controller: SocketAddr) -> Result<Self> {
        let mut processes = Self { servers: Vec::new(), switches: Vec::new(), workers: Vec::new() };
        for _ in 0..cast.sizes.servers {
            let mut server = member(&["server", "--leashed", "--quiet"], controller)?;
            server.args(cast.state.iter().flat_map(|state| [OsStr::new("--state-dir"), state.as_os_str()]));
            processes.servers.push(start(server, Stdio::null())?);
        }
        for _ in 0..cast.sizes.switches {
            let (options, namespace) = cast.switch;
            let mut switch = member_in(namespace, &["switch", "--leashed", "--quiet"], controller)?;
            switch.args(options);
            processes.switches.push(start(switch, Stdio::null())?);
        }
        for _ in 0..cast.sizes.workers {
            let mut worker = member(&["bench", "worker"], controller)?;
            worker.args(cast.worker);
            processes.workers.push(start(worker, Stdio::piped())?);
        }
        Ok(processes)
    }

    /// Watches what the servers use.
    pub(super) fn watch_servers(&self) -> Result<Watch> {
        watch(&self.servers)
    }

    pub(super) fn watch_switches(&self) -> Result<Watch> {
        watch(&self.switches)
    }

    pub(super) fn watch_workers(&self) -> Result<Watch> {
        watch(&self.workers)
    }

    /// Shows how many rows the workers have made, which say so. Whoever reads the other end learns when they measure.
    pub(super) fn show_progress(&mut self, bar: &ProgressBar, seconds: f64) -> mpsc::Receiver<()> {
        let (begun, measuring) = mpsc::channel();
        for output in self.workers.iter_mut().filter_map(|worker| worker.stdout.take()) {
            let (bar, begun) = (bar.clone(), begun.clone());
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if line == MEASURING {
                        bar.set_message(format!("now {seconds} s are measured"));
                        // Nobody may want to know.
                        let _ = begun.send(());
                    } else if let Ok(made) = line.parse() {
                        bar.inc(made);
                    }
                }
            });
        }
        measuring
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.servers.iter_mut().chain(&mut self.switches).chain(&mut self.workers) {
            // They end by themselves when the job is done; of one that does not, nobody wants to know why.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn member(arguments: &[&str], controller: SocketAddr) -> Result<Command> {
    member_in(None, arguments, controller)
}

fn member_in(namespace: Option<&str>, arguments: &[&str], controller: SocketAddr) -> Result<Command> {
    let program = leash::this_program()?;
    let mut command = match namespace {
        Some(namespace) => inside_of(namespace, &program),
        None => Command::new(program),
    };
    command.args(arguments).args(["--controller", &controller.to_string()]);
    Ok(command)
}

fn start(mut command: Command, stdout: Stdio) -> Result<Child> {
    command.stdin(Stdio::piped()).stdout(stdout).spawn().context("cannot start a member of the cluster")
}

/// Ends the job if somebody interrupts it.
pub(super) fn abort_on_interrupt(ask: UnboundedSender<ControllerCommand>) {
    interrupt::on_first(move || {
        let reason = "the benchmark was interrupted".to_owned();
        let _ = ask.send(ControllerCommand::Abort { reason });
    });
}

/// What a member has done that goes before its time, in words: then nothing is a figure.
pub(super) fn went(event: &ControllerEvent) -> Option<String> {
    match event {
        ControllerEvent::Lost { peer, reason } | ControllerEvent::Away { peer, reason } => {
            Some(format!("{peer} {reason}"))
        }
        _ => None,
    }
}

fn watch(processes: &[Child]) -> Result<Watch> {
    Watch::start(processes.iter().map(Child::id).collect())
}
