//! Kills and relieves the switches of a cluster of threads, at set times.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use libra_net::SwitchNode;
use libra_proto::{ControllerCommand, MemberEvent, Peer};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use libra_launch::chronicle::{Deed, Struck};
use libra_launch::progress::Bars;

/// What is to befall a switch, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strike {
    deed: Deed,
    pub(super) at: Duration,
}

impl Strike {
    pub(super) fn kill(at: Duration) -> Self {
        Self { deed: Deed::Killed, at }
    }

    pub(super) fn migrate(at: Duration) -> Self {
        Self { deed: Deed::Migrated, at }
    }
}

/// The switches of this process that are alive.
#[derive(Debug, Clone, Default)]
pub(super) struct Switches(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What kills each, by its number.
    alive: BTreeMap<u16, oneshot::Sender<()>>,
    /// They hold nothing any more.
    relieved: BTreeSet<u16>,
    struck: Vec<Struck>,
}

impl Switches {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a switch to the end of its job, or until it is killed.
    pub(super) fn run(&self, node: SwitchNode) -> Result<()> {
        let (kill, killed) = oneshot::channel();
        let (mut kill, mut before) = (Some(kill), None);
        let on_event = |event: &MemberEvent| {
            let MemberEvent::Started { you: Peer::Switch(number) } = *event else { return };
            let mut state = self.state();
            // One that was taken for dead starts again under another number.
            let kill = kill.take().or_else(|| before.and_then(|before| state.alive.remove(&before)));
            state.alive.extend(kill.map(|kill| (number, kill)));
            before = Some(number);
        };
        let dies = async {
            if killed.await.is_err() {
                core::future::pending::<()>().await;
            }
        };
        node.run_until(dies, on_event)?;
        Ok(())
    }

    /// Does what is to be done, each at its time after `began` says that training has.
    pub(super) fn strike(
        &self,
        strikes: Vec<Strike>,
        began: mpsc::Receiver<Instant>,
        ask: UnboundedSender<ControllerCommand>,
        bars: Bars,
    ) -> Result<()> {
        let switches = self.clone();
        let strike = move || {
            let Ok(began) = began.recv() else { return };
            for Strike { deed, at } in strikes {
                thread::sleep((began + at).saturating_duration_since(Instant::now()));
                switches.state().strike(deed, &ask, bars);
            }
        };
        thread::Builder::new().name("strikes".to_owned()).spawn(strike)?;
        Ok(())
    }

    /// What was done so far.
    pub(super) fn struck(&self) -> Vec<Struck> {
        self.state().struck.clone()
    }
}

impl State {
    fn strike(&mut self, deed: Deed, ask: &UnboundedSender<ControllerCommand>, bars: Bars) {
        // Regions go to switches that hold few, so of those that never gave any up the first holds some.
        let holder = self.alive.keys().find(|number| !self.relieved.contains(number));
        let Some(switch) = holder.or_else(|| self.alive.keys().next()).copied() else {
            return bars.line("note: no switch is left to kill or to relieve");
        };
        self.struck.push(Struck { deed, switch, at: Instant::now() });
        match deed {
            Deed::Killed => {
                let _ = self.alive.remove(&switch).map(|kill| kill.send(()));
            }
            Deed::Migrated => {
                self.relieved.insert(switch);
                let _ = ask.send(ControllerCommand::Migrate { switch });
            }
        }
    }
}
