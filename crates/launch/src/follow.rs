//! Data that are followed: files that are added to a directory become phases of the work (rule K9).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libra_client::{ControllerCommand, ControllerEvent};
use libra_models::{Chunks, DataOptions, FileChunks, Followed, FollowedFile, Workload, order_of_names};
use libra_proto::{AddedPhase, AddedPhases};
use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::job::Job;
use crate::progress::Bars;

/// Interval of lines about what is waited for.
const REMIND_EVERY: Duration = Duration::from_secs(10);
/// Files that become phases at a time: each is opened for the number of its rows.
const FILES_MAX: usize = 64;

/// A file as the text of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Path below the directory of the data.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
}

impl File {
    /// Reads the text of a phase.
    ///
    /// # Errors
    /// It is not of this build.
    pub fn of(phase: &AddedPhase) -> Result<Self> {
        serde_json::from_str(&phase.text)
            .context("the file of a phase is not one that this build understands")
    }

    /// The phases that it adds: the model is tested on it, unless it is the first, and trained.
    fn phases(&self, chunks: Chunks, is_first: bool) -> impl Iterator<Item = AddedPhase> {
        let text = serde_json::to_string(self).expect("a file is a name and numbers");
        let evaluation = (!is_first).then_some(chunks.evaluation);
        let chunks = evaluation.into_iter().chain([chunks.training]);
        chunks.map(move |chunks| AddedPhase { chunks, text: text.clone() })
    }
}

/// Waits until there is a file.
///
/// # Errors
/// The place cannot be listed.
pub fn wait_for_first(place: &str, every: Duration, bars: Bars) -> Result<()> {
    let followed = Followed::open(place, &DataOptions::default())?;
    let mut told: Option<Instant> = None;
    while followed.list()?.files.is_empty() {
        if told.is_none_or(|told| told.elapsed() >= REMIND_EVERY) {
            bars.line(&format!("waiting for the first file of {place}"));
            told = Some(Instant::now());
        }
        thread::sleep(every);
    }
    Ok(())
}

#[derive(Debug)]
enum Notice {
    Added(AddedPhases),
    Close,
}

/// The way of events to the follower of the data.
#[derive(Debug, Clone)]
pub struct FollowerEvents(Sender<Notice>);

/// The follower of the data of a job, before the job begins.
#[derive(Debug)]
pub struct Follower(Receiver<Notice>);

impl Follower {
    /// Follows none yet.
    pub fn new() -> (FollowerEvents, Self) {
        let (sender, notices) = channel();
        (FollowerEvents(sender), Self(notices))
    }

    /// Follows the data of a job in a thread, if they are to be.
    ///
    /// # Errors
    /// The place cannot be listed, or there is no thread for it.
    pub(crate) fn start(
        self,
        job: &Job,
        every: Duration,
        bars: Bars,
        tell: impl Fn(ControllerCommand) + Send + 'static,
    ) -> Result<()> {
        if !job.task.config.follow {
            return Ok(());
        }
        let mut following = Following {
            followed: Followed::open(&job.task.data, &DataOptions::default())?,
            workload: job.workload.clone(),
            workers: job.spec.workers_max,
            bars,
            seen: None,
            told: None,
            is_closed: false,
        };
        let work = move || following.run(&self.0, every, &tell);
        thread::Builder::new().name("follow".to_owned()).spawn(work).context("cannot start a thread")?;
        Ok(())
    }
}

impl FollowerEvents {
    /// Takes note of an event of the controller.
    pub fn note(&self, event: &ControllerEvent) {
        if let ControllerEvent::PhasesAdded(added) = event {
            // Data that are not followed have no phases to be added.
            let _ = self.0.send(Notice::Added(added.clone()));
        }
    }

    /// SIGTERM ends the job in order: files that it has begun with are its last ones.
    pub fn close_when_terminated(&self) {
        let follower = self.0.clone();
        interrupt::on_terminate(move || {
            let _ = follower.send(Notice::Close);
        });
    }
}

/// State of the thread.
struct Following {
    followed: Followed,
    workload: Arc<dyn Workload>,
    workers: u16,
    bars: Bars,
    /// Names that were listed, when it looked before.
    seen: Option<BTreeSet<String>>,
    /// The last line about what is wrong, and its time.
    told: Option<(String, Instant)>,
    is_closed: bool,
}

impl Following {
    fn run(&mut self, notices: &Receiver<Notice>, every: Duration, tell: &dyn Fn(ControllerCommand)) {
        let mut known: Option<AddedPhases> = None;
        loop {
            match notices.recv_timeout(every) {
                Ok(Notice::Added(added)) => known = Some(added),
                Ok(Notice::Close) => self.is_closed = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(added) = &known else { continue };
            if added.is_complete {
                return;
            }
            match self.look(added) {
                // The controller tells which phases there are then, or were already.
                Ok(Some(command)) => tell(command),
                Ok(None) => {}
                Err(error) => self.remind(format!("note: {error:#}; tries again")),
            }
        }
    }

    /// Returns the command that adds what is new.
    fn look(&mut self, added: &AddedPhases) -> Result<Option<ControllerCommand>> {
        let behind = added.count();
        let close = || Some(ControllerCommand::AddPhases { behind, phases: Vec::new(), is_complete: true });
        if self.is_closed {
            return Ok(close());
        }
        let listing = self.followed.list()?;
        let last = added.phases.last().map(File::of).transpose()?;
        let is_new = |name: &str| {
            last.as_ref().is_none_or(|last| order_of_names(name, &last.name) == Ordering::Greater)
        };
        self.note_late(&listing.files, |name| !is_new(name));
        let mut new = listing.files.iter().filter(|file| is_new(&file.name)).peekable();
        let mut phases = Vec::new();
        for _ in 0..FILES_MAX {
            let Some(file) = new.peek() else { break };
            match self.workload.file(&file.name, self.workers) {
                Ok(FileChunks { rows, chunks }) => {
                    let is_first = behind == 0 && phases.is_empty();
                    let file = File { name: file.name.clone(), bytes: file.bytes, rows };
                    phases.extend((rows > 0).then(|| file.phases(chunks, is_first)).into_iter().flatten());
                    new.next();
                }
                // Perhaps it is not complete yet. Those behind it wait.
                Err(error) if !listing.is_complete => {
                    self.remind(format!("note: {error}; the files behind it wait for it"));
                    break;
                }
                Err(error) if phases.is_empty() => {
                    let reason = format!("{error}, and the directory is complete (_SUCCESS)");
                    return Ok(Some(ControllerCommand::Abort { reason }));
                }
                Err(_) => break,
            }
        }
        let is_complete = listing.is_complete && new.peek().is_none();
        let is_news = is_complete || !phases.is_empty();
        Ok(is_news.then_some(ControllerCommand::AddPhases { behind, phases, is_complete }))
    }

    /// Says which files have come too late: in the order of their names they are before one that was taken.
    fn note_late(&mut self, files: &[FollowedFile], is_old: impl Fn(&str) -> bool) {
        let names: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
        if let Some(seen) = &self.seen {
            for name in names.difference(seen).filter(|name| is_old(name)) {
                self.bars.line(&format!(
                    "note: {name} is left out: it came after a file that is behind it in the order of names"
                ));
            }
        }
        self.seen.get_or_insert_default().extend(names);
    }

    fn remind(&mut self, line: String) {
        let is_due = |(told, at): &(String, Instant)| *told != line || at.elapsed() >= REMIND_EVERY;
        if self.told.as_ref().is_none_or(is_due) {
            self.bars.line(&line);
            self.told = Some((line, Instant::now()));
        }
    }
}
