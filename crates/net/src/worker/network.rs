//! The thread that runs the role of a worker.

use core::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use libra_proto::{Cluster, EndCause, Worker, WorkerCommand, WorkerEvent};
use tokio::sync::mpsc;

use crate::driver::{Ports, drive_watched};
use crate::node::{NodeError, NodeOptions, bind_datagrams, runtime};

/// The connection of a worker's handle to its thread.
pub(super) struct Network {
    pub(super) commands: mpsc::UnboundedSender<WorkerCommand>,
    /// Bytes of messages to and from all members.
    pub(super) stream_bytes: Arc<AtomicU64>,
}

/// Starts a worker that joins the cluster of a controller, to which it may describe the job. `on_event` gets all events on its thread,
/// which ends after the last event ([`WorkerEvent::Finished`] or [`WorkerEvent::Ended`]), or when `on_event` breaks. `on_drain` is called there
/// when the worker is asked to end in order, which its caller sees to.
pub(super) fn start_network(
    options: NodeOptions,
    job: Option<Box<Cluster>>,
    mut on_event: impl FnMut(WorkerEvent) -> ControlFlow<()> + Send + 'static,
    on_drain: impl FnOnce() + Send + 'static,
) -> Result<Network, NodeError> {
    let runtime = runtime()?;
    let (socket, address) = bind_datagrams(&runtime, &options, None)?;
    let (commands, inbox) = mpsc::unbounded_channel();
    let links = options.links();
    let stream_bytes = links.bytes();
    let network = move || {
        let role = Worker::new(options.known_as(address)).with_http(options.http());
        let role = role.with_restarts(options.is_restarted);
        let role = match job {
            Some(job) => role.with_proposal(job),
            None => role,
        };
        let busy_poll = options.busy_poll;
        let pulse = options.pulse();
        let ports = Ports { datagrams: Some(socket), busy_poll, pulse, ..Ports::new(links) };
        let driven = drive_watched(role, ports, inbox, options.inspections(), |event| {
            if event == WorkerEvent::DrainAsked {
                options.drain.begin();
            }
            let over = matches!(event, WorkerEvent::Finished | WorkerEvent::Ended { .. });
            match on_event(event) {
                ControlFlow::Continue(()) if !over => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        let driven = runtime.block_on(options.drain.beside(driven, on_drain));
        if let Err(error) = driven {
            let reason = format!("the worker's sockets failed: {error}");
            let _ = on_event(WorkerEvent::Ended { reason, cause: EndCause::Failed });
        }
    };
    let spawned = thread::Builder::new().name("worker-network".to_owned()).spawn(network);
    spawned.map_err(NodeError::io("cannot start a thread for the worker's network"))?;
    Ok(Network { commands, stream_bytes })
}
