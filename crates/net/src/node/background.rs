//! A controller on a thread of its own, in a process that does something else.

use core::time::Duration;
use std::sync::mpsc as std_mpsc;
use std::thread;

use libra_proto::{Cluster, ControllerCommand, ControllerEvent, Outcome, Sizes};
use tokio::sync::mpsc;

use super::{ControllerNode, NodeError};

/// A controller that runs its job.
pub struct ControllerThread {
    commands: mpsc::UnboundedSender<ControllerCommand>,
    ended: std_mpsc::Receiver<Result<Outcome, NodeError>>,
}

impl ControllerNode {
    /// Runs a job on a thread. `on_event` hears from there of everything that happens.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        self,
        sizes: Sizes,
        cluster: Cluster,
        on_event: impl FnMut(&ControllerEvent) + Send + 'static,
    ) -> Result<ControllerThread, NodeError> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (outcome, ended) = std_mpsc::sync_channel(1);
        let spawned = thread::Builder::new().name("controller".to_owned()).spawn(move || {
            // Whoever does not ask has no use for it.
            let _ = outcome.send(self.run(sizes, cluster, inbox, on_event));
        });
        spawned.map_err(NodeError::io("cannot start a thread for the controller"))?;
        Ok(ControllerThread { commands, ended })
    }
}

impl ControllerThread {
    /// Ends the job for everybody.
    pub fn abort(&self, reason: String) {
        // A job that is over needs no end.
        let _ = self.commands.send(ControllerCommand::Abort { reason });
    }

    /// Waits until the job is over, but no longer than this. `None` if it is not, or was asked for before.
    pub fn wait(&self, patience: Duration) -> Option<Result<Outcome, NodeError>> {
        self.ended.recv_timeout(patience).ok()
    }
}
