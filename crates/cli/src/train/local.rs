//! A cluster of threads.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Error, Result, bail};
use indicatif::ProgressBar;
use libra_net::{ControllerNode, FaultRates, NodeOptions, ServerNode, SwitchNode, WorkerNode};
use libra_proto::{ControllerCommand, ControllerEvent, Outcome, ServerEvent};
use libra_train::Witness;
use tokio::sync::mpsc::UnboundedSender;

use super::recorders::Recorders;
use super::strikes::{Strike, Switches};
use libra_launch::chronicle::Chronicle;
use libra_launch::job::{Job, failure};
use libra_launch::progress::Bars;
use libra_launch::report::quality_line;
use libra_launch::training::{Step, work};

pub(super) struct Local<'a> {
    pub(super) rates: FaultRates,
    pub(super) job: &'a Job,
    pub(super) bars: Bars,
    /// Switches that join when all places of switches are taken.
    pub(super) standbys: u16,
    /// What befalls the switches.
    pub(super) strikes: Vec<Strike>,
    /// Where servers keep what they have.
    pub(super) state: Option<PathBuf>,
    /// Who keeps what workers push.
    pub(super) recorders: Option<Recorders>,
}

/// What a thread does.
type Body = Box<dyn FnOnce() -> Result<()> + Send>;
/// A thread before it runs: its name, and what it does.
type Member = (String, Body);

impl Local<'_> {
    /// Returns what came of the job, and why something of it could not be kept.
    pub(super) fn run(self, controller: ControllerNode) -> Result<(Outcome, Chronicle, Option<String>)> {
        let address = controller.address();
        let sizes = self.job.sizes;
        let (failed, failures) = mpsc::channel::<Error>();
        let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
        let bar = self.bars.bar("train");
        bar.set_length(0);

        let switches = Switches::default();
        let (ended, ends) = mpsc::channel();
        let mut members: Vec<Member> = Vec::new();
        for number in 0..sizes.servers {
            members.push((format!("server {number}"), self.server(address, &ended)?));
        }
        for number in 0..sizes.switches {
            members.push(self.switch(address, number, &switches)?);
        }
        for number in 0..sizes.workers {
            members.push(self.worker(address, number, &bar));
        }
        let later = sizes.switches..sizes.switches + self.standbys;
        let mut standbys: Vec<Member> =
            later.map(|number| self.switch(address, number, &switches)).collect::<Result<_>>()?;
        for member in members {
            start(member, &failed)?;
        }
        let (begin, began) = mpsc::channel();
        switches.strike(self.strikes.clone(), began, ask.clone(), self.bars)?;
        thread::spawn(move || abort_on_failure(&failures, &ask));

        let mut chronicle = Chronicle::default();
        let outcome = controller.run(sizes, self.job.cluster.clone(), commands, |event| {
            chronicle.note(event);
            if matches!(event, ControllerEvent::Started) {
                bar.reset_elapsed();
                let _ = begin.send(Instant::now());
                for member in standbys.drain(..) {
                    if let Err(error) = start(member, &failed) {
                        let _ = failed.send(error);
                    }
                }
            }
        });
        bar.finish_and_clear();
        let is_kept = outcome.is_ok() && self.state.is_some();
        let unkept = if is_kept { self.wait_for_servers(&ends)? } else { None };
        let struck = switches.struck();
        let missed = self.strikes.len() - struck.len();
        if outcome.is_ok() && missed > 0 {
            self.bars.line(&format!("note: the job was over before {missed} of the kills and migrations"));
        }
        chronicle.add(&struck);
        Ok((outcome.map_err(failure)?, chronicle, unkept))
    }

    fn server(&self, controller: SocketAddr, ended: &mpsc::Sender<Option<String>>) -> Result<Body> {
        let options = self.options(controller, 0);
        let node = match &self.state {
            Some(state) => ServerNode::bind_with_data(options, None, state.clone())?,
            None => ServerNode::bind(options, None)?,
        };
        if let Some(found) = node.goes_on_from() {
            bail!(
                "--state: the job of {found} was not done, and its cluster is gone; to begin with its rows, \
                 take another directory and --load this one"
            );
        }
        let (ended, bars) = (ended.clone(), self.bars);
        Ok(Box::new(move || {
            let outcome = node.run(|event| {
                if let ServerEvent::LogSuspended { reason } = event {
                    bars.line(&format!("note: a log cannot be written, training goes on without: {reason}"));
                }
            });
            // Nobody may listen any more.
            let _ = ended.send(outcome.as_ref().err().map(ToString::to_string));
            Ok(outcome.map(drop)?)
        }))
    }

    /// Servers write their last checkpoints when the job is done. Returns why the first could not that could not.
    fn wait_for_servers(&self, ends: &mpsc::Receiver<Option<String>>) -> Result<Option<String>> {
        let mut unkept = None;
        for _ in 0..self.job.sizes.servers {
            unkept = unkept.or(ends.recv()?);
        }
        Ok(unkept)
    }

    fn switch(&self, controller: SocketAddr, number: u16, switches: &Switches) -> Result<Member> {
        let node = SwitchNode::bind(self.options(controller, 1 + u64::from(number)), None)?;
        let switches = switches.clone();
        Ok((format!("switch {number}"), Box::new(move || switches.run(node))))
    }

    fn worker(&self, controller: SocketAddr, number: u16, bar: &ProgressBar) -> Member {
        let options = self.options(controller, 1001 + u64::from(number));
        let (task, workload) = (self.job.task.clone(), Arc::clone(&self.job.workload));
        let mut watch = Watch { bar: bar.clone(), epochs: self.job.task.config.epochs, seen: 0 };
        let recorders = self.recorders.clone();
        let member = move || {
            let worker = WorkerNode::join(options)?;
            let mut recorder = recorders.and_then(|recorders| recorders.of(worker.share()));
            let witness = recorder.as_mut().map(|recorder| recorder as &mut dyn Witness);
            work(worker, &task, workload, witness, &mut |step| watch.see(step))
        };
        (format!("worker {number}"), Box::new(member))
    }

    fn options(&self, controller: SocketAddr, stream: u64) -> NodeOptions {
        let faults = self.rates;
        let fault_seed = self.job.cluster.seed.wrapping_mul(0x9e37_79b9).wrapping_add(stream);
        NodeOptions { faults, fault_seed, ..NodeOptions::new(controller) }
    }
}

fn start((name, member): Member, failed: &mpsc::Sender<Error>) -> Result<()> {
    let failed = failed.clone();
    let body = move || {
        if let Err(error) = member() {
            let _ = failed.send(error);
        }
    };
    thread::Builder::new().name(name).spawn(body)?;
    Ok(())
}

/// A member that fails before it is part of the cluster is missed by nobody but us.
fn abort_on_failure(failures: &mpsc::Receiver<Error>, ask: &UnboundedSender<ControllerCommand>) {
    if let Ok(error) = failures.recv() {
        let _ = ask.send(ControllerCommand::Abort { reason: format!("{error:#}") });
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
            Step::Evaluated { epoch, quality } => self.bar.println(quality_line(epoch, &quality)),
        }
    }
}
