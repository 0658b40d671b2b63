//! The controller of a soak. It reports events to its parent, line by line.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use libra_net::{ControllerNode, Security};
use libra_proto::{
    Cluster, ControllerCommand, ControllerEvent, HotPath, Outcome, Peer, ServerStatistics, Statistics,
    SwitchStatistics, TagKind, WorkerStatistics,
};
use serde::{Deserialize, Serialize};

use super::Settings;
use super::records::wall_clock;
use libra_launch::job::failure;
use libra_launch::notices::{refused, restoring, tags_reduced, turned_away};
use libra_launch::parent_guard;

/// Something that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LogEntry {
    /// Microseconds since 1970.
    pub(super) at: u64,
    pub(super) event: Event,
}

/// A [`ControllerEvent`], as far as the soak needs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Event {
    Joined {
        peer: Peer,
    },
    Started,
    Recovered,
    Lost {
        peer: Peer,
        reason: String,
    },
    Away {
        peer: Peer,
    },
    Returned {
        peer: Peer,
        took_us: u64,
    },
    Checkpointed {
        number: u64,
    },
    CheckpointFailed {
        reason: String,
    },
    /// A line for a person.
    Note {
        what: String,
    },
    Settled {
        moved: usize,
        took_us: u64,
    },
    Finished(Box<Counts>),
    Failed {
        reason: String,
    },
}

/// The counts of all members, as far as this controller has received them.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) workers: WorkerStatistics,
    pub(super) servers: ServerStatistics,
    pub(super) switches: SwitchStatistics,
    /// Tags that packets had.
    pub(super) tags: TagKind,
}

impl Counts {
    fn of(outcome: &Outcome) -> Self {
        let mut counts = Self { tags: outcome.tags, ..Self::default() };
        for (_, statistics) in &outcome.statistics {
            match statistics {
                Statistics::Worker(worker) => counts.workers += *worker,
                Statistics::Server(server) => counts.servers += *server,
                Statistics::Switch(switch) => counts.switches += *switch,
            }
        }
        counts
    }
}

impl From<&ControllerEvent> for Event {
    fn from(event: &ControllerEvent) -> Self {
        match event {
            ControllerEvent::Joined { peer, .. } => Self::Joined { peer: *peer },
            ControllerEvent::TakesOver => {
                Self::Note { what: "members call that have lost their controller".to_owned() }
            }
            ControllerEvent::Started => Self::Started,
            ControllerEvent::Recovered => Self::Recovered,
            ControllerEvent::Lost { peer, reason } => Self::Lost { peer: *peer, reason: reason.clone() },
            ControllerEvent::Settled { moved, took, .. } => {
                Self::Settled { moved: *moved, took_us: microseconds(*took) }
            }
            ControllerEvent::Away { peer, .. } => Self::Away { peer: *peer },
            ControllerEvent::Restoring(progress) => Self::Note { what: restoring(progress) },
            ControllerEvent::Returned { peer, took } => {
                Self::Returned { peer: *peer, took_us: microseconds(*took) }
            }
            ControllerEvent::Checkpointed { number, .. } => Self::Checkpointed { number: *number },
            ControllerEvent::CheckpointFailed { reason, .. } => {
                Self::CheckpointFailed { reason: reason.clone() }
            }
            ControllerEvent::ScaleAsked { workers } => {
                Self::Note { what: format!("{workers} workers are wanted") }
            }
            ControllerEvent::PhasesAdded(added) => {
                Self::Note { what: format!("the work has {} phases", added.count()) }
            }
            ControllerEvent::Refused(refusal) => Self::Note { what: refused(refusal) },
            ControllerEvent::Strangers(strangers) => Self::Note { what: turned_away(strangers) },
            ControllerEvent::TagsReduced { peer, tags } => Self::Note { what: tags_reduced(*peer, *tags) },
            ControllerEvent::Finished(outcome) => Self::Finished(Box::new(Counts::of(outcome))),
            ControllerEvent::Failed { reason } => Self::Failed { reason: reason.clone() },
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Command that it reads on its standard input.
const MIGRATE: &str = "migrate ";

/// The line that makes the controller move everything from a switch.
pub(super) fn migrate(switch: u16) -> String {
    format!("{MIGRATE}{switch}\n")
}

pub(super) fn run(directory: &Path) -> Result<()> {
    let settings = Settings::read(directory)?;
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    parent_guard::exit_with_parent(move |line| {
        if let Some(switch) = line.strip_prefix(MIGRATE).and_then(|switch| switch.parse().ok()) {
            let _ = ask.send(ControllerCommand::Migrate { switch });
        }
    })?;
    let controller = ControllerNode::bind(settings.controller)?.with_security(Security::from_environment()?);
    let load = &settings.task.load;
    let standard = HotPath::for_workers(settings.sizes.workers).with_lanes(settings.lanes);
    let hot_path = HotPath { flow_packets_max: settings.flow_packets, ..standard };
    let mut cluster = Cluster::new(1, load.tables(), Some(load.plan()?), hot_path);
    cluster.task = settings.task.to_text()?;
    cluster.durability = settings.durability();
    cluster.return_max = settings.return_max;
    let outcome = controller.run(settings.sizes.into(), cluster, commands, |event| {
        // The parent reads it; if the parent is gone, the end of standard input ends this process.
        let _ = write_entry(&LogEntry { at: wall_clock(), event: event.into() });
    });
    outcome.map(drop).map_err(failure)
}

fn write_entry(entry: &LogEntry) -> Result<()> {
    let line = serde_json::to_string(entry).context("a log entry cannot be encoded")? + "\n";
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush())
        .context("the parent does not read the events")
}
