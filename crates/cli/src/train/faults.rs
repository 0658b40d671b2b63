//! Injects scheduled faults into the switches of a cluster of threads.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use libra_client::LocalSwitches;
use libra_launch::event_log::{FaultKind, InjectedFault};
use libra_launch::progress::Bars;

/// A fault of a switch, and its time after the cluster is complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduledFault {
    pub(super) kind: FaultKind,
    pub(super) at: Duration,
}

/// The faults that were injected so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Injected(Arc<Mutex<Vec<InjectedFault>>>);

impl Injected {
    /// Starts the thread that injects the faults of a schedule, in its order, after `started` names the time that they are counted from.
    pub(super) fn start(
        schedule: Vec<ScheduledFault>,
        started: mpsc::Receiver<Instant>,
        switches: LocalSwitches,
        bars: Bars,
    ) -> Result<Self> {
        let injected = Self::default();
        let of_thread = injected.clone();
        let inject = move || {
            let Ok(started) = started.recv() else { return };
            for ScheduledFault { kind, at } in schedule {
                thread::sleep((started + at).saturating_duration_since(Instant::now()));
                let at = Instant::now();
                let switch = match kind {
                    FaultKind::Killed => switches.kill(),
                    FaultKind::Migrated => switches.migrate(),
                };
                match switch {
                    Some(switch) => of_thread.with(|faults| faults.push(InjectedFault { kind, switch, at })),
                    None => bars.line("note: no switch is left to kill or to migrate"),
                }
            }
        };
        thread::Builder::new().name("faults".to_owned()).spawn(inject)?;
        Ok(injected)
    }

    /// Returns the faults that were injected so far.
    pub(super) fn list(&self) -> Vec<InjectedFault> {
        self.with(|faults| faults.clone())
    }

    fn with<T>(&self, what: impl FnOnce(&mut Vec<InjectedFault>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
