//! Events of a cluster while its job ran: members lost, regions moved, and the time until it went on.

use core::time::Duration;
use std::time::Instant;

use libra_proto::{ControllerEvent, Peer};
use serde_json::{Value, json};

/// A fault that this process injected into its own cluster.
#[derive(Debug, Clone, Copy)]
pub struct InjectedFault {
    /// The action.
    pub kind: FaultKind,
    /// The number of the switch.
    pub switch: u16,
    /// When it happened.
    pub at: Instant,
}

/// Actions on a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It was ended.
    Killed,
    /// Its regions were moved to another.
    Migrated,
}

/// A view that all members act on.
#[derive(Debug)]
struct Change {
    at: Instant,
    view: u64,
    moved: usize,
    /// Since the controller noticed that something was amiss.
    took: Duration,
}

/// The events of one controller, in their order.
#[derive(Debug, Default)]
pub struct EventLog {
    began: Option<Instant>,
    recovered: bool,
    changes: Vec<Change>,
    joined: Vec<(Instant, Peer)>,
    lost: Vec<(Instant, Peer, String)>,
    returned: Vec<(Instant, Peer, Duration)>,
    checkpoints: Vec<(Instant, u64, Result<Duration, String>)>,
    injected: Vec<InjectedFault>,
}

/// A line for a person: name, value, and a note.
pub type Line = (&'static str, String, String);

impl EventLog {
    /// Records an event of the controller.
    pub fn note(&mut self, event: &ControllerEvent) {
        let now = Instant::now();
        match event {
            ControllerEvent::Started => self.began = Some(now),
            ControllerEvent::Recovered => {
                self.recovered = true;
                self.began.get_or_insert(now);
            }
            ControllerEvent::TakesOver => {}
            ControllerEvent::Joined { peer, .. } if self.began.is_some() => self.joined.push((now, *peer)),
            ControllerEvent::Lost { peer, reason } => self.lost.push((now, *peer, reason.clone())),
            ControllerEvent::Settled { view, moved, took } => {
                self.changes.push(Change { at: now, view: *view, moved: *moved, took: *took });
            }
            ControllerEvent::Returned { peer, took } => self.returned.push((now, *peer, *took)),
            ControllerEvent::Checkpointed { number, took } => {
                self.checkpoints.push((now, *number, Ok(*took)));
            }
            ControllerEvent::CheckpointFailed { number, reason } => {
                self.checkpoints.push((now, *number, Err(reason.clone())));
            }
            ControllerEvent::Joined { .. }
            | ControllerEvent::Away { .. }
            | ControllerEvent::Restoring(_)
            | ControllerEvent::Refused(_)
            | ControllerEvent::ScaleAsked { .. }
            | ControllerEvent::PhasesAdded(_)
            | ControllerEvent::Strangers(_)
            | ControllerEvent::Finished(_)
            | ControllerEvent::TagsReduced { .. }
            | ControllerEvent::Failed { .. } => {}
        }
    }

    /// Adds the faults that were injected into the cluster.
    pub fn add(&mut self, injected: &[InjectedFault]) {
        self.injected.extend(injected);
    }

    /// Seconds since the cluster was complete.
    fn seconds(&self, at: Instant) -> f64 {
        self.began.map_or(0.0, |began| at.saturating_duration_since(began).as_secs_f64())
    }

    fn regions_moved(&self) -> usize {
        self.changes.iter().map(|change| change.moved).sum()
    }

    /// Time from a fault until the regions of the switch had another owner.
    fn take_over(&self, injected: &InjectedFault) -> Option<(Duration, &Change)> {
        let change = self.changes.iter().find(|change| change.moved > 0 && change.at > injected.at)?;
        Some((change.at - injected.at, change))
    }

    /// Returns the record for a report.
    pub fn json(&self) -> Value {
        let changes = self.changes.iter().map(|change| {
            json!({
                "seconds": self.seconds(change.at),
                "view": change.view,
                "regions_moved": change.moved,
                "duration_ms": milliseconds(change.took),
            })
        });
        let lost = self.lost.iter().map(|(at, peer, reason)| {
            json!({ "seconds": self.seconds(*at), "member": peer.to_string(), "reason": reason })
        });
        let joined = self
            .joined
            .iter()
            .map(|(at, peer)| json!({ "seconds": self.seconds(*at), "member": peer.to_string() }));
        let injected = |kind| {
            let those = self.injected.iter().filter(move |injected| injected.kind == kind);
            let those = those.map(|injected| {
                json!({
                    "seconds": self.seconds(injected.at),
                    "member": Peer::Switch(injected.switch).to_string(),
                    "take_over_ms": self.take_over(injected).map(|(took, _)| milliseconds(took)),
                })
            });
            those.collect::<Vec<_>>()
        };
        let returned = self.returned.iter().map(|(at, peer, took)| {
            json!({
                "seconds": self.seconds(*at),
                "member": peer.to_string(),
                "downtime_ms": milliseconds(*took),
            })
        });
        let checkpoints = self.checkpoints.iter().map(|(at, number, outcome)| {
            json!({
                "seconds": self.seconds(*at),
                "number": number,
                "duration_ms": outcome.as_ref().ok().map(|took| milliseconds(*took)),
                "failure": outcome.as_ref().err(),
            })
        });
        json!({
            "returned": returned.collect::<Vec<_>>(),
            "checkpoints": checkpoints.collect::<Vec<_>>(),
            "views": self.changes.len() + 1,
            "regions_moved": self.regions_moved(),
            "recovered": self.recovered,
            "changes": changes.collect::<Vec<_>>(),
            "lost": lost.collect::<Vec<_>>(),
            "joined_late": joined.collect::<Vec<_>>(),
            "killed": injected(FaultKind::Killed),
            "migrated": injected(FaultKind::Migrated),
        })
    }

    /// Lines for a person; none for a job without failures.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.recovered {
            lines.push((
                "controller",
                "restarted".to_owned(),
                "earlier events are not in this report".to_owned(),
            ));
        }
        for injected in &self.injected {
            let (name, past) = match injected.kind {
                FaultKind::Killed => ("take-over", "killed"),
                FaultKind::Migrated => ("migration", "relieved"),
            };
            let what =
                format!("{} {past} at {:.1} s", Peer::Switch(injected.switch), self.seconds(injected.at));
            lines.push(match self.take_over(injected) {
                Some((took, change)) => {
                    let noticed = match injected.kind {
                        FaultKind::Killed => {
                            let noticed = took.saturating_sub(change.took);
                            format!(", noticed {:.1} ms later", milliseconds(noticed))
                        }
                        FaultKind::Migrated => String::new(),
                    };
                    let note = format!("{what}{noticed}; {} regions moved", change.moved);
                    (name, format!("{:.1} ms", milliseconds(took)), note)
                }
                None => (name, "none".to_owned(), format!("{what}, and nothing had to move")),
            });
        }
        for (at, peer, reason) in &self.lost {
            lines.push(("lost", peer.to_string(), format!("{:.1} s: {reason}", self.seconds(*at))));
        }
        for (at, peer) in self.joined.iter().filter(|(_, peer)| matches!(peer, Peer::Worker(_))) {
            lines.push(("joined late", peer.to_string(), format!("{:.1} s", self.seconds(*at))));
        }
        for (at, peer, took) in &self.returned {
            let note = format!("{:.1} s: it was away for {:.1} s", self.seconds(*at), took.as_secs_f64());
            lines.push(("returned", peer.to_string(), note));
        }
        let written =
            self.checkpoints.iter().filter_map(|(_, number, outcome)| Some((number, outcome.as_ref().ok()?)));
        if let Some((number, _)) = written.clone().max() {
            let slowest = written.clone().map(|(_, took)| *took).max().unwrap_or_default();
            let note = format!("{number} is the newest; the slowest took {:.1} s", slowest.as_secs_f64());
            lines.push(("checkpoints", written.count().to_string(), note));
        }
        let failed: Vec<_> = self
            .checkpoints
            .iter()
            .filter_map(|(at, number, outcome)| Some((self.seconds(*at), number, outcome.as_ref().err()?)))
            .collect();
        match &failed[..] {
            [] => {}
            [(at, number, reason)] => {
                lines.push(("checkpoint failed", number.to_string(), format!("{at:.1} s: {reason}")));
            }
            // A disk that is full stays so, with the same error each time.
            [(first, ..), .., (last, number, reason)] => {
                let note = format!("{first:.1} to {last:.1} s, the last of them number {number}: {reason}");
                lines.push(("checkpoints failed", failed.len().to_string(), note));
            }
        }
        if !self.changes.is_empty() {
            let moved = format!("{} regions moved", self.regions_moved());
            lines.push(("views", (self.changes.len() + 1).to_string(), moved));
        }
        lines
    }
}

/// Returns a duration in milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}
