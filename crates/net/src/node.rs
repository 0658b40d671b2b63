//! A role with its sockets, ready to run on a thread of its own.

mod background;
mod restoring;
mod server;

pub use self::background::{ControllerHandle, ControllerThread};
pub use self::server::ServerNode;

use core::ops::ControlFlow;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use libra_proto::{
    Cluster, Controller, ControllerCommand, ControllerEvent, ControllerStatus, EndCause, HotPath,
    MemberEvent, MemberStatus, Outcome, Plane, Secret, Sizes, SoftPlane, Statistics, Switch, SwitchCommand,
    TagKind,
};
use libra_storage::PlaceError;
use rand::TryRngCore;
use rand::rngs::OsRng;
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::datagrams::DatagramSocket;
use crate::door::{Callers, Entrance};
use crate::drain::Drain;
use crate::driver::{Ports, drive_watched};
use crate::endpoint::Endpoint;
use crate::faults::{FaultRates, Faults};
use crate::inspection::{Inspections, Inspector};
use crate::links::Links;
use crate::security::{Calls, Security, is_local};
use crate::supervisor::{Pulse, Supervisor};
use crate::watch::watch;

/// The reason for which a node could not run to the end of its job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A port cannot be had.
    #[error("cannot listen at {address} (--listen chooses another, with port 0 any free one)")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The name of the controller has no address.
    #[error("the controller {endpoint} cannot be found (tried for {:.1} s)", tried.as_secs_f64())]
    Unknown {
        /// The place that was given.
        endpoint: Endpoint,
        /// Time for which it was looked up.
        tried: Duration,
        /// Error of the last time.
        source: io::Error,
    },
    /// The machine refused something else.
    #[error("{attempted}")]
    Io {
        /// The attempted operation.
        attempted: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The shard in the data directory cannot go on.
    #[error(transparent)]
    Data(#[from] PlaceError),
    /// It was asked to end, and did in order; the job goes on.
    #[error("{}", drained(unsaved.as_deref()))]
    Drained {
        /// The reason for which it could not save what it held.
        unsaved: Option<String>,
    },
    /// The job was done before this worker came (rule M12): there is nothing to do.
    #[error("the job is done")]
    Done,
    /// The job ended before it was done.
    #[error("{reason}")]
    Ended {
        /// The process that ended it, and the reason.
        reason: String,
        /// Whether the member may come back.
        cause: EndCause,
    },
}

fn drained(unsaved: Option<&str>) -> String {
    match unsaved {
        None => "drained: the job goes on without it, and it can be started again".to_owned(),
        Some(reason) => format!("ended as it was asked to, but not everything is saved: {reason}"),
    }
}

impl NodeError {
    /// Returns true if the same process may do better when it is started again, and nothing is changed before.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Drained { .. } => true,
            Self::Bind { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::Unknown { .. } => true,
            Self::Ended { cause, .. } => *cause == EndCause::Lost,
            Self::Data(error) => error.is_busy(),
            Self::Io { .. } | Self::Done => false,
        }
    }

    /// Returns true if the member has ended in order, as it was asked to.
    pub fn is_drained(&self) -> bool {
        matches!(self, Self::Drained { .. })
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::Ended { reason: reason.into(), cause: EndCause::Failed }
    }

    pub(crate) fn io(attempted: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { attempted, source }
    }
}

/// Settings that members of a cluster have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOptions {
    /// Place at which the controller accepts streams.
    pub controller: Endpoint,
    /// Time to try to reach a controller that does not listen yet.
    pub connect_timeout: Duration,
    /// Address by which others know this member, if that is none of its own. Port 0 stands for its own port.
    pub advertise: Option<SocketAddr>,
    /// Faults to inject into outgoing datagrams.
    pub faults: FaultRates,
    /// Seed that decides which of them.
    pub fault_seed: u64,
    /// For how long a loop without inputs looks for new ones before its thread sleeps. Zero: not at all.
    pub busy_poll: Duration,
    /// Service manager that learns whether the member is alive.
    pub supervisor: Option<Supervisor>,
    /// Protection of streams, the same as that of all other members.
    pub security: Security,
    /// Asks this member to end in order.
    pub drain: Drain,
    /// Another process comes in the place of this one if it ends (workers): a job without a worker waits for it.
    pub is_restarted: bool,
    /// Asks its roles for their status.
    pub inspector: Option<Inspector<MemberStatus>>,
}

impl NodeOptions {
    /// No faults, five seconds to reach a peer, loops that sleep, and streams without protection.
    pub fn new(controller: impl Into<Endpoint>) -> Self {
        let (connect_timeout, faults) = (Duration::from_secs(5), FaultRates::default());
        Self {
            controller: controller.into(),
            connect_timeout,
            advertise: None,
            faults,
            fault_seed: 0,
            busy_poll: Duration::ZERO,
            supervisor: None,
            security: Security::NONE,
            drain: Drain::new(),
            is_restarted: false,
            inspector: None,
        }
    }

    pub(crate) fn faults(&self) -> Option<Faults> {
        Faults::new(self.faults, self.fault_seed)
    }

    /// Streams of a member with these options.
    pub(crate) fn links(&self) -> Links {
        let (security, controller) = (self.security.clone(), Some(self.controller.clone()));
        Links::new(self.connect_timeout).with_calls(Calls { security, controller })
    }

    /// Requests for the status of one more role of this member.
    pub(crate) fn inspections(&self) -> Inspections<MemberStatus> {
        Inspections::of(self.inspector.as_ref())
    }

    /// The address at which its process answers requests over HTTP.
    pub(crate) fn http(&self) -> Option<SocketAddr> {
        self.inspector.as_ref().and_then(Inspector::http)
    }

    /// The loop of a role of this member.
    pub(crate) fn pulse(&self) -> Option<Pulse> {
        self.supervisor.as_ref().map(Supervisor::pulse)
    }

    /// Any free port, of the family of addresses by which the controller is reached. Of a controller that has both it is IPv4: all
    /// members must take the same.
    pub(crate) fn any_port(&self) -> Result<SocketAddr, NodeError> {
        let addresses = self.controller.resolve_within(self.connect_timeout)?;
        let is_local = addresses.iter().all(|address| is_local(*address));
        let ip = match (addresses.iter().any(SocketAddr::is_ipv4), is_local) {
            (true, true) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (true, false) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (false, true) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            (false, false) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Ok(SocketAddr::new(ip, 0))
    }

    /// The address by which others know a member that listens at `own`.
    pub(crate) fn known_as(&self, own: SocketAddr) -> SocketAddr {
        match self.advertise {
            Some(known) if known.port() == 0 => SocketAddr::new(known.ip(), own.port()),
            known => known.unwrap_or(own),
        }
    }
}

pub(crate) fn runtime() -> Result<Runtime, NodeError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(NodeError::io("cannot start an event loop"))
}

pub(crate) fn listen(runtime: &Runtime, address: SocketAddr) -> Result<(TcpListener, SocketAddr), NodeError> {
    let bind = |source| NodeError::Bind { address, source };
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(bind)?;
    let local = listener.local_addr().map_err(bind)?;
    Ok((listener, local))
}

/// A controller that listens.
pub struct ControllerNode {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    takes_tables: bool,
    security: Security,
    tags: PacketTags,
    supervisor: Option<Supervisor>,
    inspector: Option<Inspector<ControllerStatus>>,
}

/// Tags of the packets of the hot path, which show who has sent them and what (rules A1 to A5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PacketTags {
    /// MACs, or cookies if a switch can do no MACs, if streams are protected: without that, who reads them has the keys.
    #[default]
    Auto,
    /// Always MACs. Switches that can do none are refused.
    Mac,
    /// None.
    Off,
}

impl ControllerNode {
    /// Listens at `address`; port 0 means any free one.
    pub fn bind(address: SocketAddr) -> Result<Self, NodeError> {
        let runtime = runtime()?;
        let (listener, address) = listen(&runtime, address)?;
        Ok(Self {
            runtime,
            listener,
            address,
            takes_tables: false,
            security: Security::NONE,
            tags: PacketTags::Auto,
            supervisor: None,
            inspector: None,
        })
    }

    /// The same, for a job whose tables, plan, mode and seed the workers bring ([`WorkerNode::join_with_job`](crate::WorkerNode::join_with_job)).
    #[must_use]
    pub fn with_tables_of_workers(self) -> Self {
        Self { takes_tables: true, ..self }
    }

    /// The same, which takes protected streams alone.
    #[must_use]
    pub fn with_security(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// The same with other tags of packets than by default.
    #[must_use]
    pub fn with_packet_tags(self, tags: PacketTags) -> Self {
        Self { tags, ..self }
    }

    /// The same, which tells a service manager that it is alive.
    #[must_use]
    pub fn with_supervisor(self, supervisor: Option<Supervisor>) -> Self {
        Self { supervisor, ..self }
    }

    /// The same, which can be asked for its status. Processes that ask the controller learn where that is answered over HTTP (rule M21).
    #[must_use]
    pub fn with_inspector(self, inspector: Option<Inspector<ControllerStatus>>) -> Self {
        Self { inspector, ..self }
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same cluster with a secret, if members can be told one.
    fn with_secret(&self, cluster: Cluster) -> io::Result<Cluster> {
        if !self.security.is_on() && self.tags != PacketTags::Mac {
            return Ok(cluster);
        }
        let mut secret = [0; 32];
        OsRng.try_fill_bytes(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let mut cluster = cluster.with_secret(Secret::new(secret));
        if self.tags == PacketTags::Off {
            cluster.hot_path.tags = TagKind::Off;
        }
        Ok(cluster)
    }

    /// Runs a job, another one each time (rule M18). `on_event` is called with everything that happens.
    pub fn run(
        self,
        sizes: Sizes,
        cluster: Cluster,
        commands: mpsc::UnboundedReceiver<ControllerCommand>,
        on_event: impl FnMut(&ControllerEvent),
    ) -> Result<Outcome, NodeError> {
        let cluster = self.instance_of(cluster)?;
        self.drive(Controller::new(sizes, cluster), commands, on_event)
    }

    /// Runs a job that is [described](ControllerCommand::Describe) by a command, or, if members of a cluster call before that have lost their
    /// controller, theirs (rule M20).
    ///
    /// # Errors
    /// The job ended before it was done.
    pub fn run_awaiting_job(
        self,
        commands: mpsc::UnboundedReceiver<ControllerCommand>,
        on_event: impl FnMut(&ControllerEvent),
    ) -> Result<Outcome, NodeError> {
        let nothing = Cluster::new(0, Vec::new(), None, HotPath::for_workers(1));
        let cluster = self.instance_of(nothing)?;
        self.drive(Controller::awaiting_job(cluster), commands, on_event)
    }

    /// An instance of a job that no other has.
    fn instance_of(&self, cluster: Cluster) -> Result<Cluster, NodeError> {
        // Neither this job nor the one before has seen the other, so the number that distinguishes them is drawn.
        let instance = OsRng.try_next_u64().map_err(|error| io::Error::other(error.to_string()));
        let instance = instance.map_err(NodeError::io("the machine has no random number for the job"))?;
        let cluster = self.with_secret(cluster.with_instance(instance));
        cluster.map_err(NodeError::io("the machine has no random number for the job"))
    }

    fn drive(
        self,
        role: Controller,
        commands: mpsc::UnboundedReceiver<ControllerCommand>,
        mut on_event: impl FnMut(&ControllerEvent),
    ) -> Result<Outcome, NodeError> {
        let inspector = self.inspector.as_ref();
        let mut role = role.with_http(inspector.and_then(Inspector::http));
        if self.tags == PacketTags::Mac {
            role = role.requiring_macs();
        }
        if self.takes_tables {
            role = role.with_tables_of_workers();
        }
        let inspections = Inspections::of(inspector);
        let links = Links::new(Duration::ZERO);
        let entrance = Entrance::Listener(self.listener, Callers::Members, self.security);
        let pulse = self.supervisor.as_ref().map(Supervisor::pulse);
        let ports = Ports { entrance: Some(entrance), pulse, ..Ports::new(links) };
        let ended = self.runtime.block_on(drive_watched(role, ports, commands, inspections, |event| {
            on_event(&event);
            match event {
                ControllerEvent::Finished(outcome) => ControlFlow::Break(Ok(outcome)),
                ControllerEvent::Failed { reason } => ControlFlow::Break(Err(NodeError::failed(reason))),
                _ => ControlFlow::Continue(()),
            }
        }));
        ended.map_err(NodeError::io("the controller's sockets failed"))?
    }
}

/// Drives a switch to the end of its job, or until it is drained.
pub(crate) async fn run_switch<P: Plane>(
    role: Switch<P>,
    ports: Ports,
    options: &NodeOptions,
    mut on_event: impl FnMut(&MemberEvent),
) -> Result<Statistics, NodeError> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let (role, drain) = (role.with_http(options.http()), &options.drain);
    let driven = drive_watched(role, ports, inbox, options.inspections(), |event| {
        on_event(&event);
        end_of(event, drain)
    });
    let drained = || {
        // A switch that has ended has no use for it.
        let _ = commands.send(SwitchCommand::Drain);
    };
    let ended = drain.beside(driven, drained).await;
    ended.map_err(NodeError::io("the sockets failed"))?
}

/// The result of a member once it is done.
fn end_of(event: MemberEvent, drain: &Drain) -> ControlFlow<Result<Statistics, NodeError>> {
    match event {
        MemberEvent::Started { .. } => ControlFlow::Continue(()),
        MemberEvent::DrainAsked => {
            drain.begin();
            ControlFlow::Continue(())
        }
        MemberEvent::Finished(statistics) => ControlFlow::Break(Ok(statistics)),
        MemberEvent::Drained { unsaved } => ControlFlow::Break(Err(NodeError::Drained { unsaved })),
        MemberEvent::Ended { reason, cause } => ControlFlow::Break(Err(NodeError::Ended { reason, cause })),
    }
}

/// A switch that listens. Its data plane is the one in software, or another.
pub struct SwitchNode<P = SoftPlane> {
    runtime: Runtime,
    socket: DatagramSocket,
    address: SocketAddr,
    options: NodeOptions,
    plane: P,
    wakes: Option<OwnedFd>,
}

impl SwitchNode {
    /// Takes datagrams at `address`; port 0 means any free one.
    pub fn bind(options: NodeOptions, address: Option<SocketAddr>) -> Result<Self, NodeError> {
        let runtime = runtime()?;
        let (socket, address) = bind_datagrams(&runtime, &options, address)?;
        Ok(Self { runtime, socket, address, options, plane: SoftPlane::default(), wakes: None })
    }

    /// Returns what its socket cannot do on this machine, in words for a person; none if it moves bursts.
    pub fn lacks(&self) -> Option<&'static str> {
        self.socket.lacks()
    }

    /// The same with a data plane that packets reach before the socket; `wakes` becomes readable when there is something for the
    /// switch to look at.
    pub fn with_plane<P: Plane>(self, plane: P, wakes: OwnedFd) -> SwitchNode<P> {
        let Self { runtime, socket, address, options, plane: _, wakes: _ } = self;
        SwitchNode { runtime, socket, address, options, plane, wakes: Some(wakes) }
    }
}

impl<P: Plane> SwitchNode<P> {
    /// The same, where packets are for another address than that of its socket: that of a device.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Self {
        Self { address, ..self }
    }

    /// Returns the address at which it takes datagrams.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Aggregates until the job is done.
    pub fn run(self, on_event: impl FnMut(&MemberEvent)) -> Result<Statistics, NodeError> {
        let never = core::future::pending();
        let ended = self.run_until(never, on_event)?;
        Ok(ended.expect("a future that is never ready does not end it"))
    }

    /// Aggregates until the job is done, or until `killed` is ready: then it stops in the midst of its work, as a process does
    /// that gets SIGKILL, and there are no statistics.
    pub fn run_until(
        self,
        killed: impl Future<Output = ()>,
        on_event: impl FnMut(&MemberEvent),
    ) -> Result<Option<Statistics>, NodeError> {
        let receive_bytes =
            self.socket.receive_bytes().map_err(NodeError::io("cannot look at the socket"))?;
        let role = Switch::with_plane(self.options.known_as(self.address), receive_bytes, self.plane);
        let wakes = self.wakes.map(|wakes| {
            let _context = self.runtime.enter();
            watch(wakes, Interest::READABLE)
        });
        let wakes = wakes.transpose().map_err(NodeError::io("cannot watch the data plane"))?;
        let links = self.options.links();
        let pulse = self.options.pulse();
        let busy_poll = self.options.busy_poll;
        let ports = Ports { datagrams: Some(self.socket), wakes, busy_poll, pulse, ..Ports::new(links) };
        let ended = self.runtime.block_on(async {
            tokio::select! {
                ended = run_switch(role, ports, &self.options, on_event) => ended.map(Some),
                () = killed => Ok(None),
            }
        });
        // Tasks that still write to streams go with it.
        self.runtime.shutdown_background();
        ended
    }
}

pub(crate) fn bind_datagrams(
    runtime: &Runtime,
    options: &NodeOptions,
    address: Option<SocketAddr>,
) -> Result<(DatagramSocket, SocketAddr), NodeError> {
    let address = address.map_or_else(|| options.any_port(), Ok)?;
    let bind = |source| NodeError::Bind { address, source };
    let _context = runtime.enter();
    let socket = DatagramSocket::bind(address, options.faults()).map_err(bind)?;
    let local = socket.local_address().map_err(bind)?;
    if let Some(inspector) = &options.inspector {
        inspector.note_socket(socket.inode().map_err(bind)?);
    }
    Ok((socket, local))
}
