//! The handle of a worker that waits for nothing.

use core::ops::ControlFlow;

use libra_proto::{WorkerCommand, WorkerEvent};
use tokio::sync::mpsc;

use super::network::{Network, start_network};
use crate::node::{NodeError, NodeOptions};

/// A worker of a cluster, for callers that do not block: commands go in, and a function gets the events.
pub struct WorkerClient {
    commands: mpsc::UnboundedSender<WorkerCommand>,
}

impl WorkerClient {
    /// Joins the cluster of a controller. `on_event` is called from the worker's thread, so it should not take long. The first event is
    /// [`WorkerEvent::Started`], or already the last: [`WorkerEvent::Ended`] or [`WorkerEvent::Finished`].
    ///
    /// # Errors
    /// The machine has no socket or no thread for it.
    pub fn start(
        options: NodeOptions,
        mut on_event: impl FnMut(WorkerEvent) + Send + 'static,
    ) -> Result<Self, NodeError> {
        let on_event = move |event| {
            on_event(event);
            ControlFlow::Continue(())
        };
        // Its caller commands it to leave.
        let network = start_network(options, None, on_event, || ());
        let Network { commands, stream_bytes: _ } = network?;
        Ok(Self { commands })
    }

    /// Sends a command. Before the first event and after the last it has no effect.
    pub fn command(&self, command: WorkerCommand) {
        // A thread that is gone has sent its last event.
        let _ = self.commands.send(command);
    }
}

#[cfg(test)]
mod tests;
