//! A controller, and everything that it sent.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::authentication::{Pass, TagKind};
use crate::cluster::{Cluster, Ownership, Peer, View};
use crate::controller::{Controller, ControllerCommand, ControllerEvent, Sizes};
use crate::message::{Join, Kind, Message, Rejoin, VERSION};
use crate::role::{Action, Link, LinkEvent, Role};
use crate::statistics::{Statistics, SwitchStatistics};
use crate::testing;
use crate::time::Instant;
use crate::work::WorkDone;

pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Address of the caller with this link.
pub(super) fn address(link: Link) -> SocketAddr {
    let number = u16::try_from(link.0 - Link::ACCEPTED).unwrap();
    SocketAddr::from(([10, 0, 1, 1], 5000 + number))
}

pub(super) fn join(kind: Kind, link: Link) -> Join {
    let at = |wanted: bool| wanted.then(|| address(link));
    let (stream, datagrams) = (at(kind == Kind::Server), at(kind != Kind::Server));
    Join {
        version: VERSION,
        kind,
        stream,
        shards: 1,
        datagrams,
        receive_bytes: 1 << 22,
        is_restartable: false,
        is_slow: false,
        tags: TagKind::Mac,
        http: None,
    }
}

#[derive(Clone)]
pub(super) struct ControllerHarness {
    pub(super) now: Instant,
    pub(super) controller: Controller,
    links: u64,
    /// The messages on each stream that were not looked at yet.
    sent: BTreeMap<Link, Vec<Message>>,
    /// The newest probe on each stream.
    probes: BTreeMap<Link, u64>,
    pub(super) closed: Vec<Link>,
    /// Streams with an identified peer.
    pub(super) admitted: BTreeSet<Link>,
    /// The streams of the members.
    pub(super) links_of: BTreeMap<Peer, Link>,
}

impl ControllerHarness {
    pub(super) fn new(servers: u16, switches: u16, workers: u16) -> Self {
        let controller = Controller::new(Sizes { servers, switches, workers }, testing::cluster(workers));
        Self {
            now: Instant::ZERO + ms(1),
            controller,
            links: 0,
            sent: BTreeMap::new(),
            probes: BTreeMap::new(),
            closed: Vec::new(),
            admitted: BTreeSet::new(),
            links_of: BTreeMap::new(),
        }
    }

    /// A cluster that has begun, with `standbys` more switches than it asked for.
    pub(super) fn running(servers: u16, switches: u16, standbys: u16, workers: u16) -> Self {
        let mut harness = Self::new(servers, switches, workers);
        for number in 0..switches + standbys {
            harness.join(Peer::Switch(number));
        }
        for number in 0..workers {
            harness.join(Peer::Worker(number));
        }
        for number in 0..servers {
            harness.join(Peer::Server(number));
        }
        harness.settle();
        assert!(harness.events().contains(&ControllerEvent::Started));
        harness
    }

    /// A caller.
    pub(super) fn call(&mut self) -> Link {
        let link = Link(Link::ACCEPTED + self.links);
        self.links += 1;
        self.controller.handle_link(self.now, link, LinkEvent::Opened { remote: address(link) });
        link
    }

    pub(super) fn deliver(&mut self, link: Link, message: Message) {
        self.controller.handle_message(self.now, link, message);
        self.collect();
    }

    pub(super) fn from(&mut self, peer: Peer, message: Message) {
        self.deliver(self.links_of[&peer], message);
    }

    pub(super) fn command(&mut self, command: ControllerCommand) {
        self.controller.handle_command(self.now, command);
        self.collect();
    }

    /// A process joins that is expected to become this member.
    pub(super) fn join(&mut self, peer: Peer) -> Link {
        self.join_with(peer, |_| {})
    }

    pub(super) fn join_with(&mut self, peer: Peer, edit: impl FnOnce(&mut Join)) -> Link {
        let link = self.call();
        let mut join = join(super::super::members::kind_of(peer), link);
        edit(&mut join);
        self.links_of.insert(peer, link);
        self.deliver(link, Message::Join(join));
        link
    }

    /// The message with which a member rejoins on a new stream, with nothing but its name in it.
    pub(super) fn rejoin_message(&self, peer: Peer, link: Link) -> Rejoin {
        let mut join = join(super::super::members::kind_of(peer), link);
        // A server is where it was.
        if let Peer::Server(server) = peer
            && let Some(known) = self.controller.cluster.view.servers.get(usize::from(server))
        {
            join.stream = Some(*known);
        }
        let share = if let Peer::Worker(number) = peer { number } else { 0 };
        let instance = testing::JOB.into();
        Rejoin {
            join,
            pass: Pass::default(),
            instance,
            you: peer,
            share,
            view: 0,
            barriers: 0,
            cluster: None,
            work_done: WorkDone::default(),
        }
    }

    pub(super) fn rejoin(&mut self, peer: Peer) -> Link {
        self.rejoin_with(peer, |_| {})
    }

    pub(super) fn rejoin_with(&mut self, peer: Peer, edit: impl FnOnce(&mut Rejoin)) -> Link {
        let link = self.call();
        let mut rejoin = self.rejoin_message(peer, link);
        edit(&mut rejoin);
        self.links_of.insert(peer, link);
        self.deliver(link, Message::Rejoin(Box::new(rejoin)));
        link
    }

    pub(super) fn break_stream(&mut self, peer: Peer) {
        let closed = LinkEvent::Closed { reason: "reset by peer".into() };
        self.controller.handle_link(self.now, self.links_of[&peer], closed);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Send { link, message } => {
                    if let Message::Probe { number } = message {
                        self.probes.insert(link, number);
                    }
                    self.sent.entry(link).or_default().push(message);
                }
                Action::Close { link } => self.closed.push(link),
                Action::Admit { link, .. } => drop(self.admitted.insert(link)),
                Action::Connect { .. } => panic!("a controller opens no streams"),
            }
        }
    }

    /// The messages that a caller has received since the last look.
    pub(super) fn received_on(&mut self, link: Link) -> Vec<Message> {
        self.sent.remove(&link).unwrap_or_default()
    }

    /// The messages that a member has received since the last look, but for probes.
    pub(super) fn received(&mut self, peer: Peer) -> Vec<Message> {
        let mut received = self.received_on(self.links_of[&peer]);
        received.retain(|message| !matches!(message, Message::Probe { .. }));
        received
    }

    /// The view that a member has received, if it has received one and nothing else.
    pub(super) fn received_view(&mut self, peer: Peer) -> Option<View> {
        let mut received = self.received(peer);
        let last = received.pop()?;
        assert!(received.is_empty(), "{peer} received {received:?} and {last:?}");
        match last {
            Message::View(view) => Some(view.into_inner()),
            Message::Start(start) => {
                assert_eq!(start.you, peer);
                Some(start.cluster.into_inner().view)
            }
            other => panic!("{peer} received {other:?}"),
        }
    }

    /// The members that have received a message other than probes; the messages are dropped.
    pub(super) fn recipients(&mut self) -> Vec<Peer> {
        let peers: Vec<Peer> = self.links_of.keys().copied().collect();
        peers.into_iter().filter(|peer| !self.received(*peer).is_empty()).collect()
    }

    pub(super) fn view(&self) -> View {
        self.controller.cluster.view.clone()
    }

    pub(super) fn ownerships(&self) -> Vec<Ownership> {
        self.view().ownerships
    }

    pub(super) fn owners(&self) -> Vec<Option<u16>> {
        self.ownerships().iter().map(|ownership| ownership.owner).collect()
    }

    pub(super) fn viewed(&mut self, peer: Peer) {
        let number = self.view().number;
        self.from(peer, Message::Viewed { number });
    }

    /// Every member reports that it acts on the present view, until all do. Drops what they have received.
    pub(super) fn settle(&mut self) {
        let members: Vec<Peer> = self.controller.members.keys().copied().collect();
        for peer in members {
            self.viewed(peer);
        }
        self.sent.clear();
    }

    pub(super) fn events(&mut self) -> Vec<ControllerEvent> {
        core::iter::from_fn(|| self.controller.poll_event()).collect()
    }

    /// The members that were lost since the last look.
    pub(super) fn lost(&mut self) -> Vec<Peer> {
        let lost = |event| if let ControllerEvent::Lost { peer, .. } = event { Some(peer) } else { None };
        self.events().into_iter().filter_map(lost).collect()
    }

    /// The reason why the job failed, if it did since the last look.
    pub(super) fn failure(&mut self) -> Option<String> {
        let failed = |event| if let ControllerEvent::Failed { reason } = event { Some(reason) } else { None };
        self.events().into_iter().find_map(failed)
    }

    /// Time passes, timers fire when they should, and every member but `unresponsive` sends heartbeats.
    pub(super) fn pass(&mut self, time: Duration, unresponsive: &[Peer]) {
        let end = self.now + time;
        while self.now < end {
            let due = self.controller.poll_timeout().map_or(end, |due| due.max(self.now)).min(end);
            // No member is without heartbeats for longer than this unless it is in `unresponsive`.
            self.now = due.min(self.now + ms(50));
            if self.controller.poll_timeout().is_some_and(|due| due <= self.now) {
                self.controller.handle_timeout(self.now);
                let next = self.controller.poll_timeout();
                assert!(next.is_none_or(|next| next > self.now), "a timer that was handled is over");
                self.collect();
            }
            let members = self.controller.members.iter();
            let speaking =
                members.filter(|(peer, member)| member.link.is_some() && !unresponsive.contains(peer));
            for peer in speaking.map(|(peer, _)| *peer).collect::<Vec<_>>() {
                let probe = self.newest_probe(peer);
                let statistics = Statistics::Switch(SwitchStatistics::default());
                self.from(peer, Message::Heartbeat { statistics, probe });
            }
        }
    }

    /// The number of the newest probe of a member.
    pub(super) fn newest_probe(&self, peer: Peer) -> u64 {
        self.probes.get(&self.links_of[&peer]).copied().unwrap_or(0)
    }

    pub(super) fn cluster(&self) -> Cluster {
        self.controller.cluster.clone()
    }
}
