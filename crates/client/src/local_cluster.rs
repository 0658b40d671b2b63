//! A cluster in this process: each member on a thread of its own, over real sockets on loopback.

mod switches;

pub use self::switches::LocalSwitches;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use libra_net::{
    ControllerHandle, ControllerNode, ControllerThread, FaultRates, Inspector, NodeError, NodeOptions,
    Security, ServerNode, SwitchNode, WorkerNode,
};
use libra_proto::{ControllerEvent, ControllerStatus, MemberStatus, Outcome, ServerEvent};

use crate::controller::StartError;
use crate::spec::JobSpec;

/// Faults of switches are drawn from streams 1, 2, .., those of workers from here on.
const WORKER_STREAMS: u64 = 1001;

/// Settings of a cluster in this process.
#[derive(Debug, Clone, Default)]
pub struct LocalOptions {
    /// Faults of outgoing datagrams, at switches and workers.
    pub faults: FaultRates,
    /// Directory of the logs and checkpoints of the servers.
    pub state_dir: Option<PathBuf>,
    /// Bytes of memory for the rows of each server; the others are in a file in that directory.
    pub memory_limit: Option<u64>,
    /// Switches beyond those of the job, which take over from one that dies.
    pub standbys: u16,
    /// Shards of each server, on a thread each; 0 is 1.
    pub shards_per_server: u16,
    /// Protection of all streams. Members in other processes need the same.
    pub security: Security,
    /// Asks the controller for its status.
    pub inspector: Option<Inspector<ControllerStatus>>,
    /// Asks the members for theirs.
    pub members: Option<Inspector<MemberStatus>>,
}

/// An event of the cluster.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum LocalEvent<'a> {
    /// Of the controller.
    Controller(&'a ControllerEvent),
    /// Of a server.
    Server(&'a ServerEvent),
}

/// The end of a job.
#[derive(Debug)]
pub struct LocalOutcome {
    /// The outcome of the job.
    pub outcome: Outcome,
    /// The first failure of a server after the job: its last checkpoint could not be written.
    pub unwritten: Option<NodeError>,
}

/// A running cluster of controller, servers and switches. Its workers are those that [`join`](Self::join).
pub struct LocalCluster {
    address: SocketAddr,
    controller: ControllerThread,
    members: Members,
    servers: u16,
    /// Ends of servers.
    ended: Mutex<mpsc::Receiver<Result<(), NodeError>>>,
    workers: AtomicU64,
}

impl LocalCluster {
    /// Starts the controller, the servers and the switches of a job. `on_event` is called from their threads.
    ///
    /// # Errors
    /// The specification cannot be run, or the machine has no sockets or threads for it.
    pub fn start(
        spec: &JobSpec,
        options: LocalOptions,
        on_event: impl Fn(LocalEvent<'_>) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        spec.check()?;
        let node = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let node = node.with_security(options.security.clone()).with_inspector(options.inspector.clone());
        let address = node.address();
        let on_event = Arc::new(on_event);
        let (begun, has_begun) = mpsc::channel();
        let of_controller = Arc::clone(&on_event);
        let controller = node.start(spec.sizes, spec.cluster(), move |event| {
            of_controller(LocalEvent::Controller(event));
            if matches!(event, ControllerEvent::Started) {
                // Without standbys there is no receiver.
                let _ = begun.send(());
            }
        })?;
        let switches = LocalSwitches::new(controller.handle());
        let resumes =
            spec.durability.resumed().zip(options.state_dir.as_ref()).is_some_and(|(load, state)| {
                let place = |path: &Path| path.canonicalize().ok();
                place(state).is_some_and(|state| Some(state) == place(Path::new(&load.directory)))
            });
        let members =
            Members { controller: controller.handle(), switches, seed: spec.seed, resumes, address, options };
        let (ends, ended) = mpsc::channel();
        for index in 0..spec.sizes.servers {
            let on_event = Arc::clone(&on_event);
            members.start_server(index, ends.clone(), move |event| on_event(LocalEvent::Server(event)))?;
        }
        for index in 0..spec.sizes.switches {
            members.start_switch(index)?;
        }
        let standbys = members.bind_standbys(spec.sizes.switches)?;
        let of_standbys = members.clone();
        // A standby that joined before would be one of the switches of the job.
        let start_standbys = move || {
            if has_begun.recv().is_ok() {
                for (index, node) in standbys {
                    if let Err(error) = of_standbys.run_switch(index, node) {
                        of_standbys.controller.abort(error.to_string());
                    }
                }
            }
        };
        spawn("standbys".to_owned(), start_standbys)?;
        let servers = spec.sizes.servers;
        let (ended, workers) = (Mutex::new(ended), AtomicU64::new(0));
        Ok(Self { address, controller, members, servers, ended, workers })
    }

    /// Returns the address of the controller, for members in other processes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the switches of this process.
    pub fn switches(&self) -> &LocalSwitches {
        &self.members.switches
    }

    /// Returns a handle of the controller.
    pub fn controller(&self) -> ControllerHandle {
        self.controller.handle()
    }

    /// Returns the options of the next worker, which [`join`](Self::join) takes, too.
    pub fn worker_options(&self) -> NodeOptions {
        self.members.node_options(WORKER_STREAMS + self.workers.fetch_add(1, Ordering::Relaxed))
    }

    /// Joins the cluster as a worker, and waits until the cluster is complete: with several workers, from a thread each.
    ///
    /// # Errors
    /// The job ended before it began, or has all its workers.
    pub fn join(&self) -> Result<WorkerNode, NodeError> {
        WorkerNode::join(self.worker_options())
    }

    /// Waits until all workers have reported, and until the servers have written their last checkpoints.
    ///
    /// # Errors
    /// The job ended before it was done.
    pub fn finish(self) -> Result<LocalOutcome, NodeError> {
        let outcome = self.controller.finish()?;
        let mut unwritten = None;
        if self.members.options.state_dir.is_some() {
            let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
            for ended in ended.iter().take(self.servers.into()) {
                unwritten = unwritten.or_else(|| ended.err());
            }
        }
        Ok(LocalOutcome { outcome, unwritten })
    }
}

/// Starts members.
#[derive(Clone)]
struct Members {
    controller: ControllerHandle,
    switches: LocalSwitches,
    seed: u64,
    /// The job resumes one in the same state directory.
    resumes: bool,
    address: SocketAddr,
    options: LocalOptions,
}

impl Members {
    fn node_options(&self, stream: u64) -> NodeOptions {
        let fault_seed = self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(stream);
        NodeOptions {
            faults: self.options.faults,
            fault_seed,
            security: self.options.security.clone(),
            inspector: self.options.members.clone(),
            ..NodeOptions::new(self.address)
        }
    }

    fn start_server(
        &self,
        index: u16,
        ends: mpsc::Sender<Result<(), NodeError>>,
        on_event: impl Fn(&ServerEvent) + Send + 'static,
    ) -> Result<(), StartError> {
        let options = self.node_options(0);
        let node = match &self.options.state_dir {
            Some(state) if self.resumes => {
                ServerNode::bind_resuming(options, state.clone(), self.options.memory_limit)?
            }
            Some(state) => {
                ServerNode::bind_with_data(options, None, state.clone(), self.options.memory_limit, |_| ())?
            }
            None => ServerNode::bind(options.clone(), None)?,
        };
        if let Some(found) = node.goes_on_from().next() {
            return Err(StartError::Unfinished { found });
        }
        let node = node.with_shards(self.options.shards_per_server.max(1));
        let controller = self.controller.clone();
        let run = move || {
            let ended = node.run(on_event).map(drop);
            if let Err(error) = &ended {
                controller.abort(error.to_string());
            }
            // The cluster may have been dropped.
            let _ = ends.send(ended);
        };
        Ok(spawn(format!("server {index}"), run)?)
    }

    fn start_switch(&self, index: u16) -> Result<(), NodeError> {
        self.run_switch(index, self.bind_switch(index)?)
    }

    fn bind_switch(&self, index: u16) -> Result<SwitchNode, NodeError> {
        SwitchNode::bind(self.node_options(1 + u64::from(index)), None)
    }

    fn bind_standbys(&self, switches: u16) -> Result<Vec<(u16, SwitchNode)>, NodeError> {
        let indexes = switches..switches + self.options.standbys;
        indexes.map(|index| Ok((index, self.bind_switch(index)?))).collect()
    }

    fn run_switch(&self, index: u16, node: SwitchNode) -> Result<(), NodeError> {
        let (switches, controller) = (self.switches.clone(), self.controller.clone());
        let run = move || {
            if let Err(error) = switches.run(node) {
                controller.abort(error.to_string());
            }
        };
        spawn(format!("switch {index}"), run)
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
    let spawned = thread::Builder::new().name(name).spawn(run);
    spawned.map(drop).map_err(|source| NodeError::Io { attempted: "cannot start a thread", source })
}
