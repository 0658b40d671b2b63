//! The streams of a node: those it opens, those it accepts, and the one by which each node is reached.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use super::{NodeSettings, Shared};
use crate::mesh::control::Control;
use crate::mesh::error::MeshError;
use crate::mesh::link::{Link, LinkSettings};
use crate::mesh::roster::{NodeRole, Roster};

/// Pause between two attempts to reach a process that does not listen yet.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

impl Shared {
    fn link_settings(&self, number: u64) -> LinkSettings {
        let NodeSettings { drop_percent, drop_seed, heartbeat, .. } = self.settings;
        let drop_seed = drop_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
        LinkSettings { drop_percent, drop_seed, heartbeat }
    }

    fn start_link(self: &Arc<Self>, stream: TcpStream) -> Result<Arc<Link>, MeshError> {
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
        let stream = loop {
            let attempt = (host, port).to_socket_addrs().and_then(|mut addresses| {
                let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
                let address = addresses.next().ok_or_else(missing)?;
                TcpStream::connect_timeout(&address, Duration::from_secs(5))
            });
            match attempt {
                Ok(stream) => break stream,
                Err(source) => {
                    if let Some(failure) = self.state.lock().failure.clone() {
                        return Err(failure);
                    }
                    if Instant::now() >= deadline {
                        let peer = format!("{who} at {host}:{port}");
                        return Err(MeshError::Unreachable { peer, os_error: source.to_string() });
                    }
                }
            }
            thread::sleep(RETRY_PAUSE);
        };
        self.start_link(stream)
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

    pub(super) fn accept(self: &Arc<Self>) {
        let Some(listener) = &self.listener else { return };
        loop {
            match listener.accept() {
                _ if self.closing.load(Ordering::Acquire) => return,
                // One that cannot be served is one that the caller finds broken.
                Ok((stream, _)) => drop(self.start_link(stream)),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
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
                    self.link_broke(&link, &format!("nothing came from it for {seconds:.1} s"));
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
            let reason = "the connection was closed";
            self.link_broke(&link, reason);
            return Err(MeshError::Died { peer, reason: reason.to_owned() });
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
