//! A controller on a thread of its own, in a process that does something else.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc as std_mpsc};
use std::thread;

use libra_proto::{Cluster, ControllerCommand, ControllerEvent, Outcome, Sizes};
use tokio::sync::mpsc;

use super::{ControllerNode, NodeError};

/// Commands a running controller. A command after the end of the job has no effect.
#[derive(Debug, Clone)]
pub struct ControllerHandle {
    commands: mpsc::UnboundedSender<ControllerCommand>,
}

impl ControllerHandle {
    /// Ends the job for all members.
    pub fn abort(&self, reason: String) {
        self.command(ControllerCommand::Abort { reason });
    }

    /// Moves all that a switch holds to others.
    pub fn migrate(&self, switch: u16) {
        self.command(ControllerCommand::Migrate { switch });
    }

    /// Lets all servers write a checkpoint, if they have a disk and write none just now.
    pub fn checkpoint(&self) {
        self.command(ControllerCommand::Checkpoint);
    }

    /// Gives it any command. Returns false once the job is over.
    pub fn command(&self, command: ControllerCommand) -> bool {
        self.commands.send(command).is_ok()
    }
}

/// A controller that runs its job.
pub struct ControllerThread {
    handle: ControllerHandle,
    /// In a mutex, so that threads can share the controller.
    ended: Mutex<std_mpsc::Receiver<Result<Outcome, NodeError>>>,
}

impl ControllerNode {
    /// Runs a job on a thread. `on_event` is called there with everything that happens.
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
            // A caller that does not ask has no use for it.
            let _ = outcome.send(self.run(sizes, cluster, inbox, on_event));
        });
        spawned.map_err(NodeError::io("cannot start a thread for the controller"))?;
        Ok(ControllerThread { handle: ControllerHandle { commands }, ended: Mutex::new(ended) })
    }
}

impl ControllerThread {
    /// Returns a handle to command it with.
    pub fn handle(&self) -> ControllerHandle {
        self.handle.clone()
    }

    /// Ends the job for all members.
    pub fn abort(&self, reason: String) {
        self.handle.abort(reason);
    }

    /// Waits until the job is over.
    ///
    /// # Errors
    /// The job ended before it was done.
    pub fn finish(self) -> Result<Outcome, NodeError> {
        let gone = || NodeError::failed("the controller's thread is gone");
        self.ended().recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Waits until the job is over, but no longer than this. `None` if it is not, or was asked for before.
    pub fn wait(&self, timeout: Duration) -> Option<Result<Outcome, NodeError>> {
        self.ended().recv_timeout(timeout).ok()
    }

    fn ended(&self) -> MutexGuard<'_, std_mpsc::Receiver<Result<Outcome, NodeError>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
