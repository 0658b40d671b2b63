//! Controllers of jobs that a front end describes.

use std::net::SocketAddr;

use libra_net::{ControllerNode, ControllerThread, NodeError};
use libra_proto::ControllerEvent;
use thiserror::Error;

use crate::spec::{JobSpec, SpecError};

/// A job that could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The specification cannot be run.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The machine has no socket or thread for a member.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The state directory has the shard of a job that was not done. Its cluster is gone: its rows can be restored from its checkpoints.
    #[error("the state directory has an unfinished job: {found}")]
    Unfinished {
        /// The shard that was found.
        found: String,
    },
}

impl JobSpec {
    /// Starts the controller of this job at an address, where its members join: `libra server`, `libra switch`, and
    /// [`Worker`](crate::Worker)s. `on_event` is called from the controller's thread.
    ///
    /// # Errors
    /// The specification cannot be run, or the address is in use.
    pub fn start_controller(
        &self,
        address: SocketAddr,
        on_event: impl FnMut(&ControllerEvent) + Send + 'static,
    ) -> Result<ControllerThread, StartError> {
        self.check()?;
        let controller = ControllerNode::bind(address)?;
        Ok(controller.start(self.sizes, self.cluster(), on_event)?)
    }
}
