//! Gradients that servers refused: the user gets the first one of a worker and table as an event, and in the end their number.

use super::{Controller, ControllerEvent};
use crate::cluster::Peer;
use crate::server::REFUSALS_MAX;

/// Gradients that are not finite, and that a server refused (rule C11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The server.
    pub server: u16,
    /// The worker that pushed them. None if finite gradients of one round have a sum that is not.
    pub worker: Option<u16>,
    /// The name of the table.
    pub table: String,
    /// The first row.
    pub key: u64,
    /// Number of pushes, or sums of rows, since the server's process started; or since the one before it, if that had more.
    pub count: u64,
}

impl Controller {
    pub(super) fn handle_refused(
        &mut self,
        peer: Peer,
        worker: Option<u16>,
        table: u16,
        key: u64,
        count: u64,
    ) {
        let Peer::Server(server) = peer else { return };
        let Some(spec) = self.cluster.tables.get(usize::from(table)) else { return };
        if let Some(known) = self.refusals.get_mut(&(server, worker, table)) {
            known.count = known.count.max(count);
            return;
        }
        if self.refusals.keys().filter(|(of, ..)| *of == server).count() >= REFUSALS_MAX {
            return;
        }
        let refusal = Refusal { server, worker, table: spec.name.clone(), key, count };
        self.refusals.insert((server, worker, table), refusal.clone());
        self.events.push_back(ControllerEvent::Refused(refusal));
    }
}
