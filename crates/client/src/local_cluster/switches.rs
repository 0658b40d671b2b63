//! The switches of a cluster in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libra_net::{ControllerHandle, NodeError, SwitchNode};
use libra_proto::{MemberEvent, Peer};
use tokio::sync::oneshot;

/// The switches of a cluster in this process, for trials in which one is lost.
#[derive(Clone)]
pub struct LocalSwitches {
    controller: ControllerHandle,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Senders that kill each live switch, by its number.
    alive: BTreeMap<u16, oneshot::Sender<()>>,
    /// Switches whose rows were moved to others.
    migrated: BTreeSet<u16>,
}

impl State {
    /// Regions go to switches that hold few, so of those that never gave any up the first holds some.
    fn target(&self) -> Option<u16> {
        let owner = self.alive.keys().find(|number| !self.migrated.contains(number));
        owner.or_else(|| self.alive.keys().next()).copied()
    }
}

impl LocalSwitches {
    pub(super) fn new(controller: ControllerHandle) -> Self {
        Self { controller, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills a switch that holds hot rows, as SIGKILL does. Returns its number, or none if no switch is left.
    pub fn kill(&self) -> Option<u16> {
        let mut state = self.state();
        let switch = state.target()?;
        // A switch that has just ended has no receiver.
        let _ = state.alive.remove(&switch).map(|kill| kill.send(()));
        Some(switch)
    }

    /// Moves the hot rows of a switch to the others. Returns its number, or none if no switch is left.
    pub fn migrate(&self) -> Option<u16> {
        let mut state = self.state();
        let switch = state.target()?;
        state.migrated.insert(switch);
        self.controller.migrate(switch);
        Some(switch)
    }

    /// Runs a switch to the end of its job, or until it is killed.
    pub(super) fn run(&self, node: SwitchNode) -> Result<(), NodeError> {
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
        node.run_until(dies, on_event).map(drop)
    }
}
