//! The streams of a node: those it opens, those it accepts, and the one by which each node is reached.

use core::fmt::Display;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use libra_net::{Arrival, BlockingDoor, BlockingStream};

use super::{NodeSettings, Shared};
use crate::mesh::control::Control;
use crate::mesh::error::MeshError;
use crate::mesh::link::{Link, LinkSettings, closed};
use crate::mesh::roster::{NodeRole, Roster};

/// Pause between two attempts to reach a process that does not listen yet.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Streams that a process may close before both ends are identified: it has another token or none, or so many call it that it closes the oldest.
const CLOSED_MAX: u32 = 5;

impl Shared {
    fn link_settings(&self, number: u64) -> LinkSettings {
        let NodeSettings { drop_percent, drop_seed, heartbeat, .. } = self.settings;
        let drop_seed = drop_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
        LinkSettings { drop_percent, drop_seed, heartbeat }
    }

    fn start_link(self: &Arc<Self>, stream: BlockingStream) -> Result<Arc<Link>, MeshError> {
        let number = self.numbered.fetch_add(1, Ordering::Relaxed);
        let events = Arc::clone(self);
        // No event of it may come before it is in the list; and this node gets its number either before, or all streams of the list get it.
        let mut state = self.state.lock();
        let id = self.id.load(Ordering::Acquire);
        let link = Link::start(number, stream, id, self.link_settings(number), events);
        let link = link.map_err(MeshError::io("cannot start a stream"))?;
        state.links.insert(number, Arc::clone(&link));
        Ok(link)
    }

    pub(super) fn dial(self: &Arc<Self>, host: &str, port: u16, who: &str) -> Result<Arc<Link>, MeshError> {
        let deadline = Instant::now() + self.settings.connect_timeout;
        let mut times_closed = 0;
        let stream = loop {
            let error = match self.call(host, port) {
                Ok(stream) => break stream,
                Err(error) => error,
            };
            if let Some(failure) = self.state.lock().failure.clone() {
                return Err(failure);
            }
            let peer = || format!("{who} at {host}:{port}");
            let is_closed =
                matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
            times_closed += u32::from(is_closed);
            if error.kind() == io::ErrorKind::PermissionDenied || times_closed >= CLOSED_MAX {
                return Err(MeshError::Unidentified { peer: peer(), reason: error.to_string() });
            }
            if Instant::now() >= deadline {
                return Err(MeshError::Unreachable { peer: peer(), os_error: error.to_string() });
            }
            thread::sleep(RETRY_PAUSE);
        };
        self.start_link(stream)
    }

    fn call(&self, host: &str, port: u16) -> io::Result<BlockingStream> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let address = (host, port).to_socket_addrs()?.next().ok_or_else(missing)?;
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        BlockingStream::call(socket, &self.settings.security)
    }

    pub(super) fn call_servers(self: &Arc<Self>, roster: &Roster) -> Result<(), MeshError> {
        for server in roster.processes(NodeRole::Server) {
            let link = self.dial(&server.host, server.port, &server.to_string())?;
            link.set_peer(server.id);
            link.send_control(&Control::Hello { from: roster.you });
            self.route(server.id, &link);
        }
        Ok(())
    }

    pub(super) fn accept(self: &Arc<Self>, mut door: BlockingDoor) {
        loop {
            match door.arrival() {
                _ if self.closing.load(Ordering::Acquire) => return,
                // One that cannot be served is one that the caller finds broken.
                Ok(Arrival::Identified(stream, _)) => drop(self.start_link(stream)),
                Ok(Arrival::Stranger { remote, reason }) => self.turn_away(remote, reason),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Counts a stream whose other end is none of this program. A person is told each time the number has doubled.
    pub(super) fn turn_away(&self, remote: impl Display, reason: impl Display) {
        let count = self.strangers.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let line = format_args!(
                "{count} streams were closed that are of no process of this program so far; the last one, from {remote}: {reason}"
            );
            self.mailbox.note(0, &line);
        }
    }

    /// Looks for nodes that are silent, although their streams stand.
    pub(super) fn watch(self: &Arc<Self>) {
        let Some(silence_max) = self.settings.silence_max else { return };
        while !self.closing.load(Ordering::Acquire) {
            thread::sleep(RETRY_PAUSE);
            let links: Vec<Arc<Link>> = self.state.lock().links.values().cloned().collect();
            for link in links {
                if !link.is_bye_taken() && link.silence() > silence_max {
                    let seconds = silence_max.as_secs_f64();
                    let reason = format!("nothing came from it for {seconds:.1} s");
                    self.link_broke(&link, &io::Error::new(io::ErrorKind::TimedOut, reason));
                }
            }
        }
    }

    /// The stream by which a node is reached.
    pub(super) fn link_to(&self, node: i32) -> Result<Arc<Link>, MeshError> {
        let route = |node| {
            let routes = self.routes.read();
            routes.get(&node).cloned()
        };
        // Most have one of their own. A node of several customers is reached by its first.
        let link = route(node).or_else(|| {
            let owner = self.state.lock().roster.as_ref()?.find(node)?.owner;
            route(owner)
        });
        let link = link.ok_or(MeshError::UnknownNode { node })?;
        if link.has_ended() || link.is_bye_taken() {
            if let Some(failure) = self.state.lock().failure.clone() {
                return Err(failure);
            }
            let peer = self.name_of(&link);
            if link.is_bye_taken() {
                return Err(MeshError::Left { peer });
            }
            // Its reader is about to report this, too; what this node sends next must not come before it.
            let reason = closed();
            self.link_broke(&link, &reason);
            return Err(MeshError::Died { peer, reason: reason.to_string() });
        }
        Ok(link)
    }

    pub(super) fn route(&self, node: i32, link: &Arc<Link>) {
        self.routes.write().insert(node, Arc::clone(link));
    }

    /// Returns true if all nodes are there to which this one has streams.
    pub(super) fn reaches_everybody(&self, roster: &Roster) -> bool {
        let routes = self.routes.read();
        let wanted: &[NodeRole] = match self.settings.role {
            NodeRole::Scheduler => &[NodeRole::Worker, NodeRole::Server],
            NodeRole::Server => &[NodeRole::Worker],
            NodeRole::Worker => &[NodeRole::Server],
        };
        wanted.iter().flat_map(|role| roster.processes(*role)).all(|member| routes.contains_key(&member.id))
    }
}

/// Listens at the address of a name: on this machine alone if that is a loopback address, everywhere if not, for the name may be one
/// that only others can resolve.
pub(super) fn listen(host: &str, port: u16) -> Result<TcpListener, MeshError> {
    let known = (host, port).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let ip = match known.map(|address| address.ip()) {
        Some(ip) if ip.is_loopback() => ip,
        Some(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let address = SocketAddr::new(ip, port);
    TcpListener::bind(address).map_err(|source| MeshError::Bind { address, os_error: source.to_string() })
}
