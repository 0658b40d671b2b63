//! Events of a soak, and the times of recovery.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use libra_proto::Peer;

use super::controller::{Counts, Event, LogEntry};
use super::records::{self, Step};
use libra_launch::fault_schedule::Target;

/// A stall that begins within this time of the recovery from a fault is attributed to it.
const AFTERMATH: Duration = Duration::from_millis(500);
/// Bound of the recovery time if the controller does not report the recovery.
const RECOVERY_MAX: Duration = Duration::from_secs(4);

/// Fault that the parent injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Killed(Target),
    Drained(Target),
    Migrated,
}

#[derive(Debug, Clone)]
pub(super) struct InjectedFault {
    /// Microseconds since 1970.
    pub(super) at: u64,
    pub(super) kind: FaultKind,
    /// Process that was hit, in words.
    pub(super) process: String,
}

/// A time in which pushes of a worker were under way and none was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stall {
    begin: u64,
    end: u64,
}

impl Stall {
    pub(super) fn lasted(self) -> Duration {
        Duration::from_micros(self.end - self.begin)
    }
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// When the time of the soak began.
    pub(super) began: u64,
    pub(super) entries: Vec<LogEntry>,
    pub(super) injected: Vec<InjectedFault>,
    /// Processes that were asked to end, and how long it took.
    pub(super) drains: Vec<(String, Duration)>,
    pub(super) counts: Counts,
    /// Of all workers, longest first.
    pub(super) stalls: Vec<Stall>,
}

impl History {
    pub(super) fn seconds(&self, at: u64) -> f64 {
        Duration::from_micros(at.saturating_sub(self.began)).as_secs_f64()
    }

    /// When switches died, by the hand of the parent or in the eyes of the controller.
    pub(super) fn deaths(&self) -> Deaths {
        let killed = |target| {
            let those =
                self.injected.iter().filter(move |injected| injected.kind == FaultKind::Killed(target));
            those.map(|injected| injected.at)
        };
        let lost = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.event, Event::Lost { peer: Peer::Switch(_), .. }));
        Deaths {
            switches: killed(Target::Switch).chain(lost.map(|entry| entry.at)).collect(),
            workers: killed(Target::Worker).collect(),
        }
    }

    /// Fails if something was lost though all that ended did so in order. Of a switch nothing is left to replay if there is another
    /// for its regions.
    pub(super) fn check_order(&self, has_other_switch: bool) -> Result<()> {
        if self.injected.iter().any(|injected| matches!(injected.kind, FaultKind::Killed(_))) {
            return Ok(());
        }
        let counts = &self.counts.servers;
        let (pushes, rounds, replays) = (counts.lost_pushes, counts.lost_rounds, counts.replays);
        if pushes > 0 || rounds > 0 {
            bail!("servers lost {pushes} acknowledged pushes and {rounds} rounds, and none was killed");
        }
        if replays > 0 && has_other_switch && self.deaths().switches.is_empty() {
            bail!("{replays} replays to shards, and no switch was killed or lost");
        }
        Ok(())
    }

    /// Time from a fault until the cluster had recovered: the regions of a switch have another owner, a worker is
    /// given up, the new controller has all members.
    pub(super) fn recovery(&self, injected: &InjectedFault) -> Option<Duration> {
        let is_over = |event: &Event| match injected.kind {
            FaultKind::Killed(Target::Switch) | FaultKind::Drained(Target::Switch) | FaultKind::Migrated => {
                matches!(event, Event::Settled { moved: 1.., .. })
            }
            FaultKind::Killed(Target::Worker) => matches!(event, Event::Lost { peer: Peer::Worker(_), .. }),
            // The next view is without it.
            FaultKind::Drained(Target::Worker) => matches!(event, Event::Settled { .. }),
            FaultKind::Killed(Target::Server) | FaultKind::Drained(Target::Server) => {
                matches!(event, Event::Returned { .. })
            }
            FaultKind::Killed(Target::Controller) | FaultKind::Drained(Target::Controller) => {
                matches!(event, Event::Recovered)
            }
        };
        let over = self.entries.iter().find(|entry| entry.at > injected.at && is_over(&entry.event))?;
        Some(Duration::from_micros(over.at - injected.at))
    }

    /// The longest stall that began not long after a fault, or was under way then.
    pub(super) fn stall_after(&self, injected: &InjectedFault) -> Option<Duration> {
        let aftermath = self.recovery(injected).unwrap_or(RECOVERY_MAX) + AFTERMATH;
        let aftermath = u64::try_from(aftermath.as_micros()).unwrap_or(u64::MAX);
        let until = self.injected.iter().map(|other| other.at).filter(|at| *at > injected.at);
        let until = until.fold(injected.at + aftermath, u64::min);
        let stall = self.stalls.iter().find(|stall| stall.end > injected.at && stall.begin < until)?;
        Some(stall.lasted())
    }

    pub(super) fn count(&self, is_one: impl Fn(&Event) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_one(&entry.event)).count()
    }

    /// Finds the stalls in the records of all workers.
    pub(super) fn read_stalls(&mut self, directory: &Path, workers: u16) -> Result<()> {
        for worker in 0..workers {
            let mut records = records::read(directory, worker)?;
            records.sort_by_key(|record| record.at);
            self.stalls.extend(stalls(records.iter().map(|record| (record.at, record.step))));
        }
        self.stalls.sort_unstable_by_key(|stall| core::cmp::Reverse(stall.lasted()));
        Ok(())
    }
}

/// When those died whose death can cost something.
#[derive(Debug, Clone, Default)]
pub(super) struct Deaths {
    pub(super) switches: Vec<u64>,
    pub(super) workers: Vec<u64>,
}

/// The times between acknowledgements while pushes were under way.
fn stalls(records: impl Iterator<Item = (u64, Step)>) -> Vec<Stall> {
    let mut stalls = Vec::new();
    let (mut open, mut begin) = (0u32, 0);
    for (at, step) in records {
        match step {
            Step::Issued => {
                if open == 0 {
                    begin = at;
                }
                open += 1;
            }
            Step::Acknowledged => {
                stalls.push(Stall { begin, end: at });
                begin = at;
                open = open.saturating_sub(1);
            }
        }
    }
    stalls
}

/// Returns how often each kind of member was lost, as the controllers reported.
pub(super) fn lost(entries: &[LogEntry]) -> BTreeMap<String, usize> {
    let mut lost = BTreeMap::new();
    for entry in entries {
        if let Event::Lost { peer, .. } = &entry.event {
            *lost.entry(peer.to_string()).or_default() += 1;
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_lie_between_acknowledgements() {
        use Step::{Acknowledged, Issued};
        let records = [
            (0, Issued),
            (3, Issued),
            (10, Acknowledged),
            (12, Acknowledged),
            (90, Issued),
            (95, Acknowledged),
        ];
        let found: Vec<(u64, u64)> =
            stalls(records.into_iter()).iter().map(|stall| (stall.begin, stall.end)).collect();
        assert_eq!(found, [(0, 10), (10, 12), (90, 95)]);
    }

    #[test]
    fn a_stall_is_attributed_to_the_fault_before_it() {
        let injected =
            |at| InjectedFault { at, kind: FaultKind::Killed(Target::Switch), process: String::new() };
        let history = History {
            injected: vec![injected(1_000_000), injected(3_000_000)],
            stalls: vec![
                Stall { begin: 3_100_000, end: 3_900_000 },
                Stall { begin: 990_000, end: 1_200_000 },
            ],
            ..History::default()
        };
        let after = |fault: usize| history.stall_after(&history.injected[fault]);
        assert_eq!(after(0), Some(Duration::from_millis(210)));
        assert_eq!(after(1), Some(Duration::from_millis(800)));
    }

    #[test]
    fn drains_lose_nothing_and_leave_nothing_to_replay() {
        let history = |kind, pushes, replays| {
            let mut history = History::default();
            history.injected.push(InjectedFault { at: 1, kind, process: String::new() });
            history.counts.servers.lost_pushes = pushes;
            history.counts.servers.replays = replays;
            history
        };
        let (drained, killed) = (FaultKind::Drained(Target::Switch), FaultKind::Killed(Target::Switch));
        let error = |history: &History| history.check_order(true).unwrap_err().to_string();
        assert!(error(&history(drained, 3, 0)).contains("3 acknowledged pushes"));
        assert!(error(&history(drained, 0, 5)).contains("5 replays"));
        assert!(history(drained, 0, 0).check_order(true).is_ok());
        assert!(history(drained, 0, 5).check_order(false).is_ok(), "its regions had no other switch");
        assert!(history(killed, 3, 5).check_order(true).is_ok());
        let mut lost = history(drained, 0, 5);
        let event = Event::Lost { peer: Peer::Switch(1), reason: String::new() };
        lost.entries.push(LogEntry { at: 2, event });
        assert!(lost.check_order(true).is_ok(), "it was taken for dead");
    }
}
