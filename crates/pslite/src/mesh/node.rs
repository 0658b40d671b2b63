//! One process in a mesh.

mod events;
mod streams;

use core::fmt::Display;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use self::streams::listen;
use super::control::{Control, Join};
use super::error::MeshError;
use super::link::Link;
use super::message::{OutgoingMessage, Payload, Received};
use super::roster::{EVERYBODY, NodeRole, Roster, SCHEDULER, ids_of, is_in};
use super::scheduler::{Envelope, Scheduler};
use libra_net::{BlockingDoor, Security};
use parking_lot::{Condvar, Mutex, RwLock};

/// Time at the end for everything that was sent to be acknowledged.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// Role of this process.
    pub role: NodeRole,
    /// Number of workers.
    pub workers: u16,
    /// Number of servers.
    pub servers: u16,
    /// Address of the scheduler: a name or an address, and a port.
    pub scheduler: (String, u16),
    /// Under which name or address others reach this node; none: the one with which it reaches the scheduler.
    pub host: Option<String>,
    /// Port at which a server listens; 0: any.
    pub port: u16,
    /// Percentage of incoming messages that are dropped, to test that they are sent again.
    pub drop_percent: u8,
    /// Seed that decides which.
    pub drop_seed: u64,
    /// Each stream carries something at least so often.
    pub heartbeat: Duration,
    /// A node that was silent for so long has died; none: only a broken stream counts.
    pub silence_max: Option<Duration>,
    /// Time to wait for a scheduler or server that does not listen yet.
    pub connect_timeout: Duration,
    /// Text of the scheduler for all that join; not interpreted here. Empty elsewhere.
    pub notice: String,
    /// Protection of all streams; all processes need the same.
    pub security: Security,
}

/// Receives what comes for a node.
pub trait Mailbox: Send + Sync + 'static {
    /// A message. Those of one sender come in its order, of different senders from different threads. It should not take long:
    /// the sender's next message waits. May give back the memory of the message.
    fn deliver(&self, received: Received) -> Option<Payload>;

    /// A process has died: no request to any process is certain to be answered.
    fn fail(&self, error: &MeshError);

    /// A node has finalized: requests to it that are not answered never will be.
    fn left(&self, node: i32, error: &MeshError);

    /// A line for a log; `level` 1 for processes that come and go, 2 for every message.
    fn note(&self, level: u8, text: &dyn Display);
}

/// A process in a mesh. Clones are handles of the same one.
#[derive(Clone)]
pub struct Node(Arc<Shared>);

struct Shared {
    settings: NodeSettings,
    mailbox: Arc<dyn Mailbox>,
    /// The first node of this process, once it has one.
    id: AtomicI32,
    listener: Option<TcpListener>,
    state: Mutex<State>,
    changed: Condvar,
    /// The stream by which each node is reached.
    routes: RwLock<BTreeMap<i32, Arc<Link>>>,
    /// A stream may hold requests.
    holds: AtomicBool,
    numbered: AtomicU64,
    /// Streams that were closed because their other end is none of this program.
    strangers: AtomicU64,
    closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// All streams but those of strangers that have ended.
    links: BTreeMap<u64, Arc<Link>>,
    scheduler: Option<Scheduler>,
    roster: Option<Roster>,
    /// A thread is connecting to the servers.
    is_dialing: bool,
    is_ready: bool,
    refused: Option<String>,
    failure: Option<MeshError>,
    /// The same, as it is sent to others.
    cause: Option<Control>,
    /// Nodes that have died.
    dead: Vec<i32>,
    /// Number of times that the barrier of a group has opened.
    opened: BTreeMap<i32, u64>,
    /// Reason for which that of a group never will.
    closed: BTreeMap<i32, String>,
    joins: u32,
}

impl Node {
    /// Opens the sockets of a node, and for all but the scheduler the stream to it.
    ///
    /// # Errors
    /// A port cannot be had, or the scheduler cannot be reached.
    pub fn open(settings: NodeSettings, mailbox: Arc<dyn Mailbox>) -> Result<Self, MeshError> {
        let listener = match settings.role {
            NodeRole::Scheduler => Some(listen(&settings.scheduler.0, settings.scheduler.1)?),
            NodeRole::Server => {
                Some(listen(settings.host.as_deref().unwrap_or(&settings.scheduler.0), settings.port)?)
            }
            NodeRole::Worker => None,
        };
        let is_scheduler = settings.role == NodeRole::Scheduler;
        let scheduler =
            is_scheduler.then(|| Scheduler::new(settings.workers, settings.servers, settings.notice.clone()));
        let shared = Arc::new(Shared {
            id: AtomicI32::new(if is_scheduler { SCHEDULER } else { 0 }),
            mailbox,
            listener,
            state: Mutex::new(State { scheduler, ..State::default() }),
            changed: Condvar::new(),
            routes: RwLock::default(),
            holds: AtomicBool::new(false),
            numbered: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            threads: Mutex::default(),
            settings,
        });
        let node = Self(shared);
        if !is_scheduler {
            let (host, port) = &node.0.settings.scheduler;
            let scheduler = node.0.dial(host, *port, "the scheduler")?;
            scheduler.set_peer(SCHEDULER);
            node.0.route(SCHEDULER, &scheduler);
        }
        if let Some(listener) = &node.0.listener {
            let shared = Arc::clone(&node.0);
            let door = listener.try_clone();
            let door =
                door.and_then(|listener| BlockingDoor::new(listener, shared.settings.security.clone()));
            let door = door.map_err(MeshError::io("cannot accept streams"))?;
            node.0.spawn("mesh-accept", move || shared.accept(door))?;
        }
        if node.0.settings.silence_max.is_some() {
            let shared = Arc::clone(&node.0);
            node.0.spawn("mesh-watch", move || shared.watch())?;
        }
        Ok(node)
    }

    /// Takes a place in the mesh, and waits until all have. Called again in a worker, it takes another place.
    ///
    /// # Errors
    /// There is no place, a process that was there has died, or a server cannot be reached.
    pub fn join(&self) -> Result<(), MeshError> {
        let shared = &self.0;
        let role = shared.settings.role;
        let scheduler = if role == NodeRole::Scheduler { None } else { Some(shared.link_to(SCHEDULER)?) };
        let mut state = shared.state.lock();
        let is_first = state.joins == 0;
        state.joins += 1;
        if let Some(scheduler) = scheduler.filter(|_| is_first || role == NodeRole::Worker) {
            scheduler.send_control(&if is_first {
                shared.join_message(&scheduler)
            } else {
                Control::JoinAgain
            });
        }
        loop {
            if let Some(reason) = &state.refused {
                return Err(MeshError::Refused { reason: reason.clone() });
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.is_ready {
                return Ok(());
            }
            if let Some(roster) = state.roster.clone() {
                if role == NodeRole::Worker && !state.is_dialing {
                    state.is_dialing = true;
                    drop(state);
                    shared.call_servers(&roster)?;
                    state = shared.state.lock();
                    continue;
                }
                if shared.reaches_everybody(&roster) {
                    state.is_ready = true;
                    shared.changed.notify_all();
                    continue;
                }
            }
            shared.changed.wait(&mut state);
        }
    }

    /// Role of this process.
    #[must_use]
    pub fn role(&self) -> NodeRole {
        self.0.settings.role
    }

    /// Number of workers in the mesh.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.0.settings.workers
    }

    /// Number of servers in the mesh.
    #[must_use]
    pub fn servers(&self) -> u16 {
        self.0.settings.servers
    }

    /// Number of processes of a role, each with all its customers; none before this node has joined.
    #[must_use]
    pub fn processes(&self, role: NodeRole) -> usize {
        self.0.state.lock().roster.as_ref().map_or(0, |roster| roster.processes(role).count())
    }

    /// Text of the scheduler for all processes; empty before this node has joined.
    #[must_use]
    pub fn notice(&self) -> String {
        self.0.state.lock().roster.as_ref().map(|roster| roster.notice.clone()).unwrap_or_default()
    }

    /// By which address this node reaches the scheduler; none at the scheduler itself.
    #[must_use]
    pub fn scheduler_ip(&self) -> Option<IpAddr> {
        self.0.link_to(SCHEDULER).ok()?.remote_host()?.parse().ok()
    }

    /// The first node of this process; 0 as long as it has none.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.0.id.load(Ordering::Acquire)
    }

    /// The nodes of a group, or this node alone.
    ///
    /// # Errors
    /// There is no such group or node.
    pub fn ids_of(&self, group: i32) -> Result<Vec<i32>, MeshError> {
        let Self(shared) = self;
        ids_of(group, shared.settings.workers, shared.settings.servers)
            .ok_or(MeshError::UnknownNode { node: group })
    }

    /// Sends a message to a node. It arrives after all that this process has sent to it before. A small request may be held for up to 10 ms after
    /// others without an answer, until one comes or [`Node::flush`] is called.
    ///
    /// # Errors
    /// There is no such node, no stream to it, or a process has died.
    pub fn send(&self, to: i32, outgoing: OutgoingMessage) -> Result<(), MeshError> {
        let shared = &self.0;
        shared.mailbox.note(2, &format_args!("to {to}: {:?}", outgoing.meta));
        if to != self.id() {
            match shared.link_to(to) {
                Ok(link) => {
                    if link.send(outgoing) {
                        shared.holds.store(true, Ordering::Release);
                    }
                    return Ok(());
                }
                Err(MeshError::UnknownNode { .. }) if shared.is_own(to) => {}
                Err(error) => return Err(error),
            }
        }
        let payload = Payload::copied(&outgoing).ok_or(MeshError::TooLarge)?;
        drop(shared.mailbox.deliver(Received { sender: self.id(), meta: outgoing.meta, payload }));
        Ok(())
    }

    /// Sends the requests that are held: the caller is about to wait for answers.
    pub fn flush(&self) {
        if self.0.holds.swap(false, Ordering::AcqRel) {
            self.0.routes.read().values().for_each(|link| link.flush());
        }
    }

    /// Waits until all nodes of a group have come here.
    ///
    /// # Errors
    /// This node is not of the group, a process has died, or a node of the group has left.
    pub fn barrier(&self, group: i32) -> Result<(), MeshError> {
        let shared = &self.0;
        if self.ids_of(group)?.len() <= 1 {
            return Ok(());
        }
        if !is_in(self.id(), group) {
            return Err(MeshError::NotInGroup { group });
        }
        self.flush();
        let is_scheduler = shared.settings.role == NodeRole::Scheduler;
        let scheduler = if is_scheduler { None } else { Some(shared.link_to(SCHEDULER)?) };
        let mut state = shared.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let before = state.opened.get(&group).copied().unwrap_or(0);
        match scheduler {
            Some(scheduler) => scheduler.send_control(&Control::Barrier { group }),
            None => {
                let envelopes =
                    state.scheduler.as_mut().map(|scheduler| scheduler.barrier(group)).unwrap_or_default();
                shared.send_all(&mut state, envelopes);
            }
        }
        loop {
            if state.opened.get(&group).copied().unwrap_or(0) > before {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if let Some(reason) = state.closed.get(&group) {
                return Err(MeshError::BarrierFailed { reason: reason.clone() });
            }
            shared.changed.wait(&mut state);
        }
    }

    /// Nodes that have died, or that were silent for so long: of all at the scheduler, of the scheduler elsewhere.
    #[must_use]
    pub fn dead_nodes(&self, silence: Duration) -> Vec<i32> {
        let mut dead = self.0.state.lock().dead.clone();
        let routes = self.0.routes.read();
        for (&id, link) in &*routes {
            let is_watched = self.role() == NodeRole::Scheduler || id == SCHEDULER;
            if is_watched && !link.is_bye_taken() && link.silence() > silence && !dead.contains(&id) {
                dead.push(id);
            }
        }
        dead.sort_unstable();
        dead
    }

    /// The failure that ended the mesh, if there is one.
    #[must_use]
    pub fn failure(&self) -> Option<MeshError> {
        self.0.state.lock().failure.clone()
    }

    /// Sends the last message to all processes, and ends all streams when they have it.
    pub fn close(&self) {
        let shared = &self.0;
        if shared.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let links: Vec<Arc<Link>> = shared.state.lock().links.values().cloned().collect();
        // A process that gets this one's end first must not take it for the cause.
        let cause = shared.state.lock().cause.clone();
        for link in &links {
            if let Some(cause) = &cause {
                link.send_control(cause);
            }
            link.send_control(&Control::Bye);
        }
        let until = Instant::now() + DRAIN_TIMEOUT;
        for link in &links {
            link.settle(until);
        }
        if let Some(listener) = &shared.listener {
            let _ = socket2::SockRef::from(listener).shutdown(std::net::Shutdown::Both);
        }
        for handle in core::mem::take(&mut *shared.threads.lock()) {
            let _ = handle.join();
        }
        // A stream that was accepted meanwhile ends with them.
        let links = core::mem::take(&mut shared.state.lock().links);
        for link in links.values() {
            link.shut();
        }
        shared.changed.notify_all();
        for link in links.values() {
            link.join();
        }
        shared.routes.write().clear();
    }

    /// Returns true if a stream may hold requests.
    #[cfg(test)]
    pub(super) fn holds(&self) -> bool {
        self.0.holds.load(Ordering::Acquire)
    }

    /// Number of times that the barrier of a group has opened.
    #[cfg(test)]
    pub(super) fn opened(&self, group: i32) -> u64 {
        self.0.state.lock().opened.get(&group).copied().unwrap_or(0)
    }

    /// Ends as a process does that is killed.
    #[cfg(test)]
    pub(super) fn scheduler_address(&self) -> (String, u16) {
        self.0.settings.scheduler.clone()
    }

    #[cfg(test)]
    pub(super) fn streams_and_routes(&self) -> (usize, usize) {
        let routes = self.0.routes.read().len();
        (self.0.state.lock().links.len(), routes)
    }

    #[cfg(test)]
    pub(super) fn vanish(&self) {
        self.0.closing.store(true, Ordering::Release);
        self.0.state.lock().links.values().for_each(|link| link.shut());
    }
}

impl Shared {
    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), MeshError> {
        let handle = thread::Builder::new().name(name.to_owned()).spawn(body);
        self.threads.lock().push(handle.map_err(MeshError::io("cannot start a thread"))?);
        Ok(())
    }

    fn join_message(&self, scheduler: &Link) -> Control {
        let NodeSettings { role, workers, servers, .. } = self.settings;
        let address = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        // A process that listens at one address alone is reached by no other: 127.0.1.1 is called from 127.0.0.1.
        let only = address.map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        let host = self.settings.host.clone().or_else(|| only.map(|ip| ip.to_string()));
        let host = host.or_else(|| scheduler.local_host());
        Control::Join(Join {
            role,
            workers,
            servers,
            host,
            port: address.map_or(0, |address| address.port()),
        })
    }

    /// Returns true if this is the number of one of the workers or servers.
    fn is_numbered(&self, node: i32) -> bool {
        let NodeSettings { workers, servers, .. } = self.settings;
        node > EVERYBODY && ids_of(node, workers, servers).is_some()
    }

    fn is_own(&self, node: i32) -> bool {
        let id = self.id.load(Ordering::Acquire);
        let state = self.state.lock();
        let member = state.roster.as_ref().and_then(|roster| roster.find(node));
        member.is_some_and(|member| member.owner == id)
    }

    fn send_all(&self, state: &mut State, envelopes: Vec<Envelope>) {
        for (stream, control) in envelopes {
            match stream {
                Some(number) => {
                    if let Some(link) = state.links.get(&number) {
                        link.send_control(&control);
                    }
                }
                None => Self::take_note(state, &control),
            }
        }
        self.changed.notify_all();
    }

    /// Handles a message of the scheduler to a node, its own included.
    fn take_note(state: &mut State, control: &Control) {
        match control {
            Control::Released { group } => *state.opened.entry(*group).or_default() += 1,
            Control::BarrierFailed { group, reason } => drop(state.closed.insert(*group, reason.clone())),
            Control::Refused { reason } => state.refused = Some(reason.clone()),
            _ => {}
        }
    }

    fn name_of(&self, link: &Link) -> String {
        let state = self.state.lock();
        if let Some(scheduler) = &state.scheduler {
            return scheduler.name_of(link.number);
        }
        match link.peer() {
            Some(SCHEDULER) => {
                let (host, port) = &self.settings.scheduler;
                format!("the scheduler at {host}:{port}")
            }
            Some(node) => {
                let member = state.roster.as_ref().and_then(|roster| roster.find(node));
                member.map_or_else(|| format!("node {node}"), ToString::to_string)
            }
            None => "a process that never identified itself".to_owned(),
        }
    }

    fn link_broke(&self, link: &Link, reason: &io::Error) {
        if self.closing.load(Ordering::Acquire) || link.is_bye_taken() {
            return;
        }
        let node = match &self.state.lock().scheduler {
            Some(scheduler) => scheduler.node_of(link.number),
            None => link.peer(),
        };
        let has_joined =
            self.state.lock().scheduler.as_ref().is_none_or(|scheduler| scheduler.has_joined(link.number));
        if has_joined && (node.is_some() || self.settings.role == NodeRole::Scheduler) {
            let (peer, is_stranger) = (self.name_of(link), reason.kind() == io::ErrorKind::PermissionDenied);
            let reason = reason.to_string();
            let error = if is_stranger {
                MeshError::Unidentified { peer, reason: reason.clone() }
            } else {
                MeshError::Died { peer, reason: reason.clone() }
            };
            self.fail(node.unwrap_or(0), error, &reason);
        }
    }

    /// A process has died. The scheduler tells all others.
    fn fail(&self, node: i32, error: MeshError, reason: &str) {
        let mut state = self.state.lock();
        if node != 0 && !state.dead.contains(&node) {
            state.dead.push(node);
        }
        if state.failure.is_some() {
            return;
        }
        let died = Control::Died { node, peer: error.peer().to_owned(), reason: reason.to_owned() };
        state.failure = Some(error.clone());
        state.cause = Some(died.clone());
        self.changed.notify_all();
        // The scheduler tells all the others, and before anything that it sends because of it.
        let is_scheduler = self.settings.role == NodeRole::Scheduler;
        let told = state.links.values().filter(|link| is_scheduler || link.peer() == Some(SCHEDULER));
        for link in told.filter(|link| !link.has_ended()) {
            link.send_control(&died);
        }
        drop(state);
        self.mailbox.note(0, &error);
        self.mailbox.fail(&error);
    }
}
