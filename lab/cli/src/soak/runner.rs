//! The course of a soak: processes start, are killed at their times, start again, and come to the end together.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use super::controller::{Event, LogEntry};
use super::history::{FaultKind, History, InjectedFault};
use super::processes::{Kind, Processes};
use super::records::{self, wall_clock};
use super::{Arguments, Settings};
use libra_launch::event_log::milliseconds;
use libra_launch::fault_schedule::Target;
use libra_launch::interrupt;

/// Interval of the check that all processes live.
const LOOK: Duration = Duration::from_millis(50);
/// Time that the cluster may take to assemble.
const GATHERING_MAX: Duration = Duration::from_secs(20);
/// After this long a switch or a worker that has ended starts again.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Time that the cluster may take to end once workers push no more, besides that for the rows, which each worker reads then.
const ENDING_MAX: Duration = Duration::from_secs(30);
/// Values that a worker reads in a second at least, of rows on disk, and from a server that has just come back; and that servers write,
/// which end with the checkpoint that they are at.
const VALUES_PER_SECOND_MIN: u64 = 2_000_000;
/// Time that processes may take to exit once the job is done and nothing is to be written.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Event for the parent.
pub(super) enum Signal {
    Entry(LogEntry),
    Interrupted,
}

/// Action of the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Kill(Target),
    Drain(Target),
    Migrate,
    Start(Kind),
}

pub(super) struct SoakRunner<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) settings: &'a Settings,
    pub(super) directory: &'a Path,
}

impl SoakRunner<'_> {
    pub(super) fn run(&self) -> Result<History> {
        let (sender, signals) = mpsc::channel();
        let interrupted = sender.clone();
        interrupt::on_first(move || drop(interrupted.send(Signal::Interrupted)));
        let processes = Processes::new(self.settings, self.directory, sender)?;
        let bars = self.arguments.bars();
        let bar = bars.spinner("soak");
        let mut soak = ActiveSoak { runner: self, processes, signals, bar, history: History::default() };
        soak.gather()?;
        soak.play()?;
        soak.processes.wait(EXIT_TIMEOUT + soak.all_values_max(1))?;
        soak.bar.finish_and_clear();
        let mut history = soak.history;
        history.read_stalls(self.directory, self.settings.task.load.lanes)?;
        Ok(history)
    }

    /// The start of a process in the place of another, and how much later.
    fn start_again(&self, kind: Kind) -> (Duration, Act) {
        let after = match kind {
            Kind::Switch | Kind::Worker => RESTART_AFTER,
            Kind::Server => Duration::ZERO,
            Kind::Controller => self.arguments.away.unwrap_or_default(),
        };
        (after, Act::Start(kind))
    }

    /// Returns the actions and their times, in order.
    fn acts(&self) -> VecDeque<(Duration, Act)> {
        let kills = self.arguments.kill.iter().map(|kill| (kill.at, Act::Kill(kill.target)));
        let drains = self.arguments.drain.iter().map(|drain| (drain.at, Act::Drain(drain.target)));
        let migrations = self.arguments.migrate.iter().map(|moment| (moment.0, Act::Migrate));
        let mut acts: Vec<_> = kills.chain(drains).chain(migrations).collect();
        acts.sort_by_key(|(at, _)| *at);
        acts.into()
    }
}

/// A soak that is under way.
struct ActiveSoak<'a> {
    runner: &'a SoakRunner<'a>,
    processes: Processes<'a>,
    signals: Receiver<Signal>,
    bar: ProgressBar,
    history: History,
}

impl ActiveSoak<'_> {
    /// Starts everybody, standbys last, and waits until the cluster is complete.
    fn gather(&mut self) -> Result<()> {
        let sizes = self.runner.settings.sizes;
        self.processes.start(Kind::Controller)?;
        for _ in 0..sizes.servers {
            self.processes.start(Kind::Server)?;
        }
        for _ in 0..sizes.switches {
            self.processes.start(Kind::Switch)?;
        }
        for _ in 0..sizes.workers {
            self.processes.start(Kind::Worker)?;
        }
        let deadline = Instant::now() + GATHERING_MAX;
        while self.history.count(|event| matches!(event, Event::Started)) == 0 {
            if Instant::now() >= deadline {
                bail!("the cluster did not come together within {GATHERING_MAX:?}");
            }
            self.listen(LOOK)?;
        }
        for _ in 0..self.runner.arguments.standby {
            self.processes.start(Kind::Switch)?;
        }
        Ok(())
    }

    /// The longest time that it takes to read or to write the values of all rows, so many times.
    fn all_values_max(&self, times: u16) -> Duration {
        let load = &self.runner.settings.task.load;
        let values = load.rows() * u64::from(load.lanes) * u64::from(times);
        Duration::from_secs(values / VALUES_PER_SECOND_MIN)
    }

    /// Does what is to be done, until the job is done.
    fn play(&mut self) -> Result<()> {
        let lasts = Duration::from_secs(self.runner.arguments.seconds);
        let end = self.runner.settings.task.end;
        let left = Duration::from_micros(end.saturating_sub(wall_clock()));
        let now = Instant::now();
        let begin = (now + left).checked_sub(lasts).unwrap_or(now);
        self.history.began = end - u64::try_from(lasts.as_micros())?;
        let away = self.runner.arguments.away.unwrap_or_default();
        let ending_max = ENDING_MAX + away + self.all_values_max(self.runner.settings.sizes.workers);
        let deadline = begin + lasts + ending_max;
        let mut acts = self.runner.acts();
        loop {
            let now = Instant::now();
            while let Some((_, act)) = acts.pop_front_if(|(at, _)| begin + *at <= now) {
                let next = self.act(act)?;
                self.plan(&mut acts, begin, lasts, next);
            }
            for kind in self.take_drained()? {
                self.plan(&mut acts, begin, lasts, Some(self.runner.start_again(kind)));
            }
            if self.history.count(|event| matches!(event, Event::Finished(_))) > 0 {
                return Ok(());
            }
            if now >= deadline {
                bail!(
                    "the cluster did not come to its end within {ending_max:?}; there are still {}",
                    self.processes.names()
                );
            }
            self.show(lasts);
            let next = acts.front().map_or(LOOK, |(at, _)| (begin + *at).saturating_duration_since(now));
            self.listen(next.min(LOOK))?;
        }
    }

    /// Puts what must follow in its place.
    fn plan(
        &self,
        acts: &mut VecDeque<(Duration, Act)>,
        begin: Instant,
        lasts: Duration,
        next: Option<(Duration, Act)>,
    ) {
        let Some((after, next)) = next else { return };
        let at = begin.elapsed() + after;
        // A process that starts when the others end would only be turned away.
        if at < lasts || matches!(next, Act::Start(Kind::Controller | Kind::Server)) {
            let place = acts.partition_point(|(other, _)| *other <= at);
            acts.insert(place, (at, next));
        }
    }

    /// Returns the kinds of processes that have ended since they were asked to.
    fn take_drained(&mut self) -> Result<Vec<Kind>> {
        let drained = self.processes.take_drained()?;
        for (_, process, took) in &drained {
            let seconds = self.history.seconds(wall_clock());
            self.print(&format!("{seconds:6.2} s: {process} has ended after {:.0} ms", milliseconds(*took)));
            self.history.drains.push((process.clone(), *took));
        }
        Ok(drained.into_iter().map(|(kind, ..)| kind).collect())
    }

    /// Returns what must follow, and how much later.
    fn act(&mut self, act: Act) -> Result<Option<(Duration, Act)>> {
        let at = wall_clock();
        match act {
            Act::Start(kind) => {
                self.processes.start(kind)?;
                Ok(None)
            }
            Act::Migrate => {
                let process = self.processes.migrate()?.map(|switch| format!("switch {switch}"));
                self.record_fault(at, FaultKind::Migrated, process);
                Ok(None)
            }
            Act::Kill(target) => {
                let kind = Kind::from(target);
                let process = self.processes.kill(kind)?;
                let next = process.is_some().then(|| self.runner.start_again(kind));
                self.record_fault(at, FaultKind::Killed(target), process);
                Ok(next)
            }
            Act::Drain(target) => {
                let process = self.processes.drain(target.into())?;
                self.record_fault(at, FaultKind::Drained(target), process);
                Ok(None)
            }
        }
    }

    fn record_fault(&mut self, at: u64, kind: FaultKind, process: Option<String>) {
        let what = match kind {
            FaultKind::Killed(_) => "killed",
            FaultKind::Drained(_) => "terminated",
            FaultKind::Migrated => "relieved",
        };
        let seconds = self.history.seconds(at);
        let Some(process) = process else {
            return self.print(&format!("{seconds:6.2} s: no process is left to be {what}"));
        };
        self.print(&format!("{seconds:6.2} s: {what} {process}"));
        self.history.injected.push(InjectedFault { at, kind, process });
    }

    /// Waits for what happens next, but not for long.
    fn listen(&mut self, timeout: Duration) -> Result<()> {
        let mut next = self.signals.recv_timeout(timeout);
        loop {
            match next {
                Ok(Signal::Entry(entry)) => self.on_entry(entry)?,
                Ok(Signal::Interrupted) => bail!("interrupted"),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RecvTimeoutError::Disconnected)
                        .context("the controller's process reports no events any more");
                }
            }
            next = self.signals.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        if self.history.count(|event| matches!(event, Event::Finished(_))) > 0 {
            return Ok(());
        }
        self.processes.check()
    }

    fn on_entry(&mut self, entry: LogEntry) -> Result<()> {
        let seconds = self.history.seconds(entry.at);
        match &entry.event {
            Event::Joined { peer } => self.processes.joined(*peer),
            Event::Finished(counts) => self.history.counts = **counts,
            Event::Failed { reason } => bail!("the job failed: {reason}"),
            Event::Recovered => self.print(&format!("{seconds:6.2} s: the new controller has taken over")),
            Event::Lost { peer, reason } => self.print(&format!("{seconds:6.2} s: {peer} {reason}")),
            Event::Settled { moved, .. } if *moved > 0 => {
                self.print(&format!("{seconds:6.2} s: {moved} regions have moved"));
            }
            Event::Away { peer } => self.print(&format!("{seconds:6.2} s: {peer} is away")),
            Event::Returned { peer, took_us } => {
                let took = Duration::from_micros(*took_us);
                self.print(&format!("{seconds:6.2} s: {peer} is back after {:.0} ms", milliseconds(took)));
            }
            Event::CheckpointFailed { reason } => {
                self.print(&format!("{seconds:6.2} s: a checkpoint failed: {reason}"));
            }
            Event::Note { what } => self.print(&format!("{seconds:6.2} s: {what}")),
            Event::Started | Event::Settled { .. } | Event::Checkpointed { .. } => {}
        }
        self.history.entries.push(entry);
        Ok(())
    }

    fn print(&self, text: &str) {
        self.bar.suspend(|| self.runner.arguments.bars().line(text));
    }

    fn show(&self, lasts: Duration) {
        let pushes = records::count(self.runner.directory, self.runner.settings.task.load.lanes) / 2;
        let seconds = self.history.seconds(wall_clock()).min(lasts.as_secs_f64());
        self.bar.set_message(format!("{seconds:.0} s of {:.0}, {pushes} pushes", lasts.as_secs_f64()));
    }
}
