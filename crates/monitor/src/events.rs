//! Events of a process as JSON Lines: what happened, and once a second the counts.
//!
//! Each line has `time` (RFC 3339), `event`, `role` and `member`, and what belongs to the event; `docs/reference/events.schema.json` describes all.
//! A thread of its own writes them: who reports an event waits for no disk. Lines that cannot be written are counted, and so is told once
//! they can be.

mod line;
mod writer;

use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use libra_net::Inspector;
use libra_proto::{ControllerStatus, MemberStatus, Peer};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

pub use self::line::Event;

use self::line::{counts_of_job, counts_of_member};
use self::writer::Writer;

/// Interval of the counts.
const COUNTS_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a loop to answer with its counts.
const COUNTS_TIME: Duration = Duration::from_millis(500);
/// Time for the last event of a process that ends at once, and the pause between looks.
const LAST_TIME: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_millis(1);
/// Lines that wait for the writer.
const WAITING_MAX: usize = 4096;

/// Place of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventsTo {
    /// A file, to whose end they are added.
    File(PathBuf),
    /// Standard output.
    StandardOutput,
}

impl FromStr for EventsTo {
    type Err = core::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "-" { Self::StandardOutput } else { Self::File(PathBuf::from(text)) })
    }
}

/// Events cannot be written.
#[derive(Debug, Error)]
#[error("cannot write events to {}", path.display())]
pub struct EventsError {
    /// The file.
    pub path: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

/// The roles of a process, whose counts are written once a second.
#[derive(Debug, Clone)]
pub enum Watched {
    /// Those of a member.
    Members(Inspector<MemberStatus>),
    /// A controller.
    Controller(Inspector<ControllerStatus>),
}

/// A way to report events. Clones report to the same place.
#[derive(Debug, Clone)]
pub struct EventSender {
    lines: mpsc::Sender<Line>,
    lost: Arc<AtomicU64>,
}

/// A line before it is text.
#[derive(Debug)]
struct Line {
    member: Option<Peer>,
    event: Event,
    time: jiff::Timestamp,
}

impl EventSender {
    /// Reports an event of a member. It never waits: if too many lines wait for the disk, the event is counted as lost.
    pub fn send(&self, member: Option<Peer>, event: Event) {
        let line = Line { member, event, time: jiff::Timestamp::now() };
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports the last event, and waits until it is written, but not for long: the process ends at once, in the midst of its work.
    pub fn send_last(&self, event: Event) {
        self.send(None, event);
        self.send(None, Event::End);
        let until = Instant::now() + LAST_TIME;
        while !self.lines.is_closed() && Instant::now() < until {
            thread::sleep(LAST_PAUSE);
        }
    }
}

/// A thread that writes events.
#[derive(Debug)]
pub struct EventFile {
    sender: Option<EventSender>,
    writing: Option<JoinHandle<()>>,
}

impl EventFile {
    /// Writes events of a process with this role, and the counts of what is watched. `on_trouble` gets a line for a person when events cannot
    /// be written, and when they can again.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(
        to: &EventsTo,
        role: &'static str,
        watched: Watched,
        on_trouble: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, EventsError> {
        let path = || match to {
            EventsTo::File(path) => path.clone(),
            EventsTo::StandardOutput => PathBuf::from("standard output"),
        };
        let failed = |source| EventsError { path: path(), source };
        let writer = Writer::open(to, on_trouble).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let (lines, inbox) = mpsc::channel(WAITING_MAX);
        let lost = Arc::<AtomicU64>::default();
        let sender = EventSender { lines, lost: Arc::clone(&lost) };
        let write = move || runtime.block_on(write(inbox, writer, role, watched, lost));
        let writing = thread::Builder::new().name("events".to_owned()).spawn(write).map_err(failed)?;
        Ok(Self { sender: Some(sender), writing: Some(writing) })
    }

    /// Returns a way to report events.
    ///
    /// # Panics
    /// Never: there is one until it is dropped.
    pub fn sender(&self) -> EventSender {
        self.sender.clone().expect("it is taken when this is dropped")
    }
}

/// All that was reported is written before.
impl Drop for EventFile {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.send(None, Event::End);
        }
        if let Some(writing) = self.writing.take() {
            // Its panic is on standard error, and ends nothing else.
            let _ = writing.join();
        }
    }
}

async fn write(
    mut inbox: mpsc::Receiver<Line>,
    mut writer: Writer,
    role: &'static str,
    watched: Watched,
    lost: Arc<AtomicU64>,
) {
    let mut ticks = tokio::time::interval(COUNTS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            line = inbox.recv() => match line {
                None | Some(Line { event: Event::End, .. }) => return,
                Some(line) => {
                    // The last counts of a member come before its last event.
                    if line.event.ends_member() {
                        write_counts(&mut writer, role, &watched, &lost).await;
                    }
                    writer.write(role, &line, &lost);
                }
            },
            _ = ticks.tick() => write_counts(&mut writer, role, &watched, &lost).await,
        }
    }
}

async fn write_counts(writer: &mut Writer, role: &'static str, watched: &Watched, lost: &AtomicU64) {
    for (member, event) in counts(watched).await {
        writer.write(role, &Line { member, event, time: jiff::Timestamp::now() }, lost);
    }
}

async fn counts(watched: &Watched) -> Vec<(Option<Peer>, Event)> {
    match watched {
        Watched::Members(inspector) => {
            let inspected = inspector.ask(COUNTS_TIME).await;
            inspected.statuses.iter().map(|status| (status.member, counts_of_member(status))).collect()
        }
        Watched::Controller(inspector) => {
            let inspected = inspector.ask(COUNTS_TIME).await;
            inspected.statuses.last().map(|status| (None, counts_of_job(status))).into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests;
