//! A cluster of threads that trains a model.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Error, Result, anyhow};
use indicatif::ProgressBar;
use libra_client::{
    ControllerEvent, LocalCluster, LocalEvent, LocalOptions, LocalOutcome, Outcome, PushObserver,
    ServerEvent, StartError, Worker,
};
use libra_launch::commits::Commits;
use libra_launch::event_log::EventLog;
use libra_launch::follow::Follower;
use libra_launch::job::{Job, JobArguments, failure};
use libra_launch::progress::{Bars, EpochPlan};
use libra_launch::report::quality_line;
use libra_launch::training::{Step, work};
use libra_launch::watching::{ControllerWatch, report, report_quality};
use libra_monitor::EventSender;
use libra_proto::Peer;

use super::faults::{Injected, ScheduledFault};
use super::recorders::Recorders;

pub(super) struct Local<'a> {
    pub(super) job: &'a Job,
    pub(super) options: LocalOptions,
    /// Faults of the switches.
    pub(super) faults: Vec<ScheduledFault>,
    /// Files of the pushes of workers.
    pub(super) recorders: Option<Recorders>,
    pub(super) bars: Bars,
    /// Commits of checkpoints at a URL.
    pub(super) commits: Commits,
    /// The job's options.
    pub(super) arguments: &'a JobArguments,
}

impl Local<'_> {
    /// Returns the outcome of the job, its events, and why its last checkpoint could not be written.
    pub(super) fn run(self, watch: &mut ControllerWatch) -> Result<(Outcome, EventLog, Option<String>)> {
        let bar = self.bars.bar("train");
        bar.set_length(0);
        let log = Arc::new(Mutex::new(EventLog::default()));
        let (start, started) = mpsc::channel();
        let (follower_events, follower) = Follower::new();
        let written = watch.events();
        let of_workers = written.clone();
        let on_event = {
            let (log, bar, bars, commits) = (Arc::clone(&log), bar.clone(), self.bars, self.commits.clone());
            let follower = follower_events.clone();
            move |event: LocalEvent<'_>| match event {
                LocalEvent::Controller(event) => {
                    log.lock().unwrap_or_else(PoisonError::into_inner).note(event);
                    report(written.as_ref(), event);
                    commits.note(event);
                    follower.note(event);
                    if matches!(event, ControllerEvent::Started) {
                        bar.reset_elapsed();
                        // Without faults the receiver is gone.
                        let _ = start.send(Instant::now());
                    }
                }
                LocalEvent::Server(ServerEvent::LogSuspended { reason }) => {
                    bars.line(&format!("note: a log cannot be written, training goes on without: {reason}"));
                }
                _ => {}
            }
        };
        let cluster =
            LocalCluster::start(&self.job.spec, self.options.clone(), on_event).map_err(not_started)?;
        let controller = cluster.controller();
        if self.arguments.follows() {
            follower_events.close_when_terminated();
            let controller = controller.clone();
            self.arguments.follow(follower, self.job, move |command| {
                // A controller that has ended takes none.
                controller.command(command);
            })?;
        }
        watch.serve(move |command| controller.command(command))?;
        for number in 0..self.job.spec.sizes.workers {
            self.start_worker(&cluster, number, &bar, of_workers.clone())?;
        }
        let scheduled = self.faults.len();
        let injected = Injected::start(self.faults, started, cluster.switches().clone(), self.bars)?;
        let ended = cluster.finish();
        bar.finish_and_clear();
        let injected = injected.list();
        let missed = scheduled - injected.len();
        if ended.is_ok() && missed > 0 {
            self.bars.line(&format!("note: the job was over before {missed} of the kills and migrations"));
        }
        let mut events = core::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
        events.add(&injected);
        let LocalOutcome { outcome, unwritten } = ended.map_err(failure)?;
        Ok((outcome, events, unwritten.map(|error| error.to_string())))
    }

    fn start_worker(
        &self,
        cluster: &LocalCluster,
        number: u16,
        bar: &ProgressBar,
        events: Option<EventSender>,
    ) -> Result<()> {
        let (options, controller) = (cluster.worker_options(), cluster.controller());
        let (task, workload) = (self.job.task.clone(), Arc::clone(&self.job.workload));
        let plan = EpochPlan::new(&self.job.task.config);
        let mut progress = JobProgress { bar: bar.clone(), plan, seen: (0, 0) };
        let recorders = self.recorders.clone();
        let train = move || -> Result<()> {
            let worker = Worker::join(options)?;
            let mut recorder = recorders.and_then(|recorders| recorders.of(worker.share()));
            let observer = recorder.as_mut().map(|recorder| recorder as &mut dyn PushObserver);
            let peer = Peer::Worker(worker.number());
            work(worker, &task, workload, observer, &mut |step| {
                if let Step::Evaluated { epoch, quality } = &step {
                    report_quality(events.as_ref(), peer, *epoch, quality);
                }
                progress.advance(step);
            })
        };
        let run = move || {
            if let Err(error) = train() {
                controller.abort(format!("{error:#}"));
            }
        };
        thread::Builder::new().name(format!("worker {number}")).spawn(run)?;
        Ok(())
    }
}

fn not_started(error: StartError) -> Error {
    match error {
        StartError::Unfinished { found } => anyhow!(
            "--state-dir: the job of {found} was not done, and its cluster is gone; to go on with it, --resume this directory; \
             to begin with its rows alone, take another one and --restore-from this"
        ),
        // Its exit code follows from the kind of it.
        StartError::Node(error) => error.into(),
        error => error.into(),
    }
}

/// The one progress bar of all workers.
struct JobProgress {
    bar: ProgressBar,
    plan: EpochPlan,
    /// An epoch, and samples of this worker in it that the bar has counted.
    seen: (u32, u64),
}

impl JobProgress {
    fn advance(&mut self, step: Step) {
        match step {
            Step::Trained(progress) => {
                self.bar.set_length(self.plan.samples(progress.epoch, progress.samples_total));
                let (epoch, samples) = self.seen;
                let counted = if epoch == progress.epoch { samples } else { 0 };
                self.bar.inc(progress.samples - counted);
                self.seen = (progress.epoch, progress.samples);
                self.bar.set_message(format!(
                    "loss {:.4} {}",
                    progress.loss,
                    self.plan.epoch(progress.epoch)
                ));
            }
            Step::Evaluated { epoch, quality } => self.bar.println(quality_line(epoch, &quality)),
        }
    }
}
