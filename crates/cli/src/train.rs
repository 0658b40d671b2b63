//! `libra train`: a whole cluster on this machine, each member on a thread of its own, over real sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use libra_net::{ControllerNode, FaultRates, NodeOptions, ServerNode, SwitchNode, WorkerNode};
use libra_proto::{ControllerCommand, ControllerEvent, Outcome};
use libra_train::Quality;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::arguments::FaultArguments;
use crate::job::{Job, JobArguments, failure};
use crate::progress::Bars;
use crate::training::{Step, work};

/// What aggregates the hot rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SwitchKind {
    /// A software switch on a UDP socket
    Udp,
    /// None: every row goes to the servers
    None,
}

/// Starts a whole cluster on this machine and trains a model on it.
///
/// Without options: NeuMF on built-in data, 2 workers, 2 servers and a software switch, in well under a minute.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// What aggregates the hot rows
    #[arg(long, value_enum, default_value = "udp")]
    switch: SwitchKind,
    #[command(flatten)]
    faults: FaultArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let FaultArguments { loss, duplicate, reorder } = arguments.faults;
    let rates = arguments.faults.rates()?;
    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let (switches, kind) = match arguments.switch {
        SwitchKind::Udp => (1, "udp"),
        SwitchKind::None => (0, "none"),
    };
    let job = Job::prepare(&arguments.job, switches, controller.address())?;
    let outcome = Local { rates, job: &job, bars: arguments.job.bars() }.run(controller)?;
    let more = json!({ "command": "train", "switch": kind, "loss": loss, "duplicate": duplicate, "reorder": reorder });
    arguments.job.report(&job, &outcome, started, more)
}

/// A cluster of threads.
struct Local<'a> {
    rates: FaultRates,
    job: &'a Job,
    bars: Bars,
}

/// How a member's thread ended.
type Ending = Result<()>;

impl Local<'_> {
    fn run(&self, controller: ControllerNode) -> Result<Outcome> {
        let address = controller.address();
        let sizes = self.job.sizes;
        let (failed, failures) = mpsc::channel::<anyhow::Error>();
        let (abort, commands) = tokio::sync::mpsc::unbounded_channel();
        let bar = self.bars.bar("train");
        bar.set_length(0);

        let mut members: Vec<(String, Box<dyn FnOnce() -> Ending + Send>)> = Vec::new();
        for number in 0..sizes.servers {
            let node = ServerNode::bind(self.options(address, 0), None)?;
            members.push((format!("server {number}"), Box::new(move || Ok(node.run(|_| ()).map(drop)?))));
        }
        for number in 0..sizes.switches {
            let node = SwitchNode::bind(self.options(address, 1 + u64::from(number)), None)?;
            members.push((format!("switch {number}"), Box::new(move || Ok(node.run(|_| ()).map(drop)?))));
        }
        for number in 0..sizes.workers {
            let options = self.options(address, 1001 + u64::from(number));
            let (task, dataset) = (self.job.task.clone(), Arc::clone(&self.job.dataset));
            let watch = Watch { bar: bar.clone(), epochs: self.job.task.config.epochs, seen: 0 };
            let member = move || {
                let mut watch = watch;
                let worker = WorkerNode::join(options)?;
                work(worker, &task, dataset, &mut |step| watch.see(step))
            };
            members.push((format!("worker {number}"), Box::new(member)));
        }
        for (name, member) in members {
            let failed = failed.clone();
            let body = move || {
                if let Err(error) = member() {
                    let _ = failed.send(error);
                }
            };
            thread::Builder::new().name(name).spawn(body)?;
        }
        drop(failed);
        thread::spawn(move || abort_on_failure(&failures, &abort));

        let outcome = controller.run(sizes, self.job.cluster.clone(), commands, |event| {
            if matches!(event, ControllerEvent::Started) {
                bar.reset_elapsed();
            }
        });
        bar.finish_and_clear();
        outcome.map_err(failure)
    }

    fn options(&self, controller: SocketAddr, stream: u64) -> NodeOptions {
        let faults = self.rates;
        let fault_seed = self.job.cluster.seed.wrapping_mul(0x9e37_79b9).wrapping_add(stream);
        NodeOptions { faults, fault_seed, ..NodeOptions::new(controller) }
    }
}

/// A member that fails before it is part of the cluster is missed by nobody but us.
fn abort_on_failure(failures: &mpsc::Receiver<anyhow::Error>, abort: &UnboundedSender<ControllerCommand>) {
    if let Ok(error) = failures.recv() {
        let _ = abort.send(ControllerCommand::Abort { reason: format!("{error:#}") });
    }
}

/// Moves the one bar on as any of the workers gets on.
struct Watch {
    bar: ProgressBar,
    epochs: u32,
    /// Samples of this worker that the bar has counted.
    seen: u64,
}

impl Watch {
    fn see(&mut self, step: Step) {
        match step {
            Step::Trained(progress) => {
                if self.seen == 0 {
                    self.bar.inc_length(progress.samples_total * u64::from(self.epochs));
                }
                let total = u64::from(progress.epoch) * progress.samples_total + progress.samples;
                self.bar.inc(total - self.seen);
                self.seen = total;
                self.bar.set_message(format!(
                    "loss {:.4} epoch {}/{}",
                    progress.loss,
                    progress.epoch + 1,
                    self.epochs
                ));
            }
            Step::Evaluated { epoch, quality } => self.bar.println(line(epoch, quality)),
        }
    }
}

fn line(epoch: u32, quality: Quality) -> String {
    format!(
        "epoch {:>3}: HR@10 {:.4}, NDCG@10 {:.4} on {} users",
        epoch + 1,
        quality.hit_rate(),
        quality.ndcg(),
        quality.cases
    )
}
