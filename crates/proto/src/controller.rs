//! The controller: it gathers the members of a cluster, gives each its place, and notices when one is gone.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::cluster::{Cluster, Peer};
use crate::message::{Join, Kind, Message, VERSION};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::statistics::Statistics;
use crate::time::Instant;

/// A member that is silent for this long is taken for dead, though its stream is open. Twenty missed heartbeats: a
/// machine with more processes than cores is late, not dead.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What a full packet takes of a receive buffer, with what the kernel keeps beside it.
const RECEIVE_BYTES_OF_A_PACKET: u32 = 2304;

/// How many members a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Servers, one shard each.
    pub servers: u16,
    /// Switches; none is allowed.
    pub switches: u16,
    /// Workers.
    pub workers: u16,
}

/// What the controller tells its user.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerEvent {
    /// A process was taken in.
    Joined {
        /// Its place.
        peer: Peer,
        /// Where it called from.
        remote: SocketAddr,
        /// How many of each kind are still missing.
        missing: Sizes,
    },
    /// Everybody is there and was told to begin.
    Started,
    /// Every worker has reported and every other member has sent its last counts.
    Finished(Outcome),
    /// The job ended before it was done.
    Failed {
        /// Who ended it and why.
        reason: String,
    },
}

/// What came of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The reports of the workers, by their number.
    pub reports: Vec<String>,
    /// The final counts of all members.
    pub statistics: Vec<(Peer, Statistics)>,
}

/// What a user can ask of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerCommand {
    /// End the job for everybody.
    Abort {
        /// Why.
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Gathering,
    StartingServers,
    StartingSwitches,
    Running,
    Finishing,
    Over,
}

#[derive(Debug)]
struct Member {
    peer: Peer,
    heard_at: Instant,
    ready: bool,
    statistics: Option<Statistics>,
    report: Option<String>,
}

/// A controller as a state machine without I/O.
#[derive(Debug)]
pub struct Controller {
    sizes: Sizes,
    cluster: Cluster,
    phase: Phase,
    remotes: BTreeMap<Link, SocketAddr>,
    members: BTreeMap<Link, Member>,
    /// Who has come to the present barrier, and its number.
    waiting: BTreeSet<Peer>,
    barrier: u64,
    actions: VecDeque<Action>,
    events: VecDeque<ControllerEvent>,
}

impl Controller {
    /// A controller of a cluster of these sizes. `cluster` says everything but who is there.
    pub fn new(sizes: Sizes, cluster: Cluster) -> Self {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let places = |count| vec![unknown; usize::from(count)];
        let cluster = Cluster {
            servers: places(sizes.servers),
            switches: places(sizes.switches),
            workers: places(sizes.workers),
            ..cluster
        };
        Self {
            sizes,
            cluster,
            phase: Phase::Gathering,
            remotes: BTreeMap::new(),
            members: BTreeMap::new(),
            waiting: BTreeSet::new(),
            barrier: 0,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// How many of each kind are still missing.
    fn missing(&self) -> Sizes {
        let there = |kind| {
            let count = self.members.values().filter(|member| kind_of(member.peer) == Some(kind)).count();
            u16::try_from(count).expect("members are numbered by u16")
        };
        Sizes {
            servers: self.sizes.servers - there(Kind::Server),
            switches: self.sizes.switches - there(Kind::Switch),
            workers: self.sizes.workers - there(Kind::Worker),
        }
    }

    fn send(&mut self, link: Link, message: Message) {
        self.actions.push_back(Action::Send { link, message });
    }

    fn send_to(&mut self, wanted: impl Fn(Peer) -> bool, message: impl Fn(Peer) -> Message) {
        for (link, member) in &self.members {
            if wanted(member.peer) {
                self.actions.push_back(Action::Send { link: *link, message: message(member.peer) });
            }
        }
    }

    fn refuse(&mut self, link: Link, reason: &str) {
        self.send(link, Message::Abort { reason: reason.to_owned() });
        self.actions.push_back(Action::Close { link });
    }

    fn handle_join(&mut self, now: Instant, link: Link, join: &Join) {
        let Some(remote) = self.remotes.get(&link).copied() else { return };
        if join.version != VERSION {
            let reason = format!(
                "the controller speaks version {VERSION} of the messages, this {} speaks {}",
                join.kind, join.version
            );
            return self.refuse(link, &reason);
        }
        let missing = self.missing();
        let (size, free) = match join.kind {
            Kind::Server => (self.sizes.servers, missing.servers),
            Kind::Switch => (self.sizes.switches, missing.switches),
            Kind::Worker => (self.sizes.workers, missing.workers),
        };
        if free == 0 || self.phase != Phase::Gathering || self.members.contains_key(&link) {
            let reason =
                format!("the cluster has no place for another {}: {size} of {size} are there", join.kind);
            return self.refuse(link, &reason);
        }
        let reachable = |address: Option<SocketAddr>| {
            address.map(|mut address| {
                if address.ip().is_unspecified() {
                    address.set_ip(remote.ip());
                }
                address
            })
        };
        let number = self.free_number(join.kind, size);
        let (peer, places, address) = match join.kind {
            Kind::Server => (Peer::Server(number), &mut self.cluster.servers, reachable(join.stream)),
            Kind::Switch => (Peer::Switch(number), &mut self.cluster.switches, reachable(join.datagrams)),
            Kind::Worker => (Peer::Worker(number), &mut self.cluster.workers, reachable(join.datagrams)),
        };
        let Some(address) = address else {
            return self.refuse(link, "a member must say where it can be reached");
        };
        places[usize::from(number)] = address;
        if join.kind == Kind::Switch {
            let share = join.receive_bytes / RECEIVE_BYTES_OF_A_PACKET / u32::from(self.sizes.workers.max(1));
            let in_flight_max = &mut self.cluster.hot_path.packets_in_flight_max;
            *in_flight_max = share.clamp(1, *in_flight_max);
        }
        let member = Member { peer, heard_at: now, ready: false, statistics: None, report: None };
        self.members.insert(link, member);
        let missing = self.missing();
        self.events.push_back(ControllerEvent::Joined { peer, remote, missing });
        if missing == (Sizes { servers: 0, switches: 0, workers: 0 }) {
            self.advance(Phase::StartingServers);
        }
    }

    fn free_number(&self, kind: Kind, size: u16) -> u16 {
        let taken = |peer| self.members.values().any(|member| member.peer == peer);
        let free = (0..size).find(|&number| !taken(peer_of(kind, number)));
        free.expect("the caller has counted that one is free")
    }

    /// Servers begin first, then the switches, which need them, then the workers, which need both.
    fn advance(&mut self, phase: Phase) {
        self.phase = phase;
        let kind = match phase {
            Phase::StartingServers => Kind::Server,
            Phase::StartingSwitches => Kind::Switch,
            _ => Kind::Worker,
        };
        let cluster = Box::new(self.cluster.clone());
        self.send_to(
            |peer| kind_of(peer) == Some(kind),
            |you| Message::Start { you, cluster: cluster.clone() },
        );
        if phase == Phase::Running {
            self.events.push_back(ControllerEvent::Started);
        }
        self.advance_if_ready();
    }

    fn advance_if_ready(&mut self) {
        let ready =
            |kind| self.members.values().all(|member| kind_of(member.peer) != Some(kind) || member.ready);
        match self.phase {
            Phase::StartingServers if ready(Kind::Server) => self.advance(Phase::StartingSwitches),
            Phase::StartingSwitches if ready(Kind::Switch) => self.advance(Phase::Running),
            _ => {}
        }
    }

    fn handle_barrier(&mut self, peer: Peer, number: u64) {
        if number != self.barrier {
            return self.fail(format!("{peer} came to barrier {number}, the others are at {}", self.barrier));
        }
        self.waiting.insert(peer);
        if self.waiting.len() == usize::from(self.sizes.workers) {
            self.waiting.clear();
            self.barrier += 1;
            self.send_to(|peer| matches!(peer, Peer::Worker(_)), |_| Message::Release { number });
        }
    }

    fn finish_if_complete(&mut self) {
        let workers = |member: &&Member| matches!(member.peer, Peer::Worker(_));
        if self.phase == Phase::Running
            && self.members.values().filter(workers).all(|member| member.report.is_some())
        {
            self.phase = Phase::Finishing;
            for member in self.members.values_mut().filter(|member| !matches!(member.peer, Peer::Worker(_))) {
                member.statistics = None;
            }
            self.send_to(|_| true, |_| Message::Finish);
        }
        if self.phase == Phase::Finishing && self.members.values().all(|member| member.statistics.is_some()) {
            self.phase = Phase::Over;
            let mut members: Vec<&Member> = self.members.values().collect();
            members.sort_unstable_by_key(|member| member.peer);
            let outcome = Outcome {
                reports: members.iter().filter_map(|member| member.report.clone()).collect(),
                statistics: members
                    .iter()
                    .filter_map(|member| Some((member.peer, member.statistics?)))
                    .collect(),
            };
            self.events.push_back(ControllerEvent::Finished(outcome));
        }
    }

    /// The members that must be heard from: all of them, and at the end those whose last counts are still to come.
    fn awaited(&self) -> impl Iterator<Item = &Member> {
        let phase = self.phase;
        self.members.values().filter(move |member| match phase {
            Phase::Over => false,
            Phase::Finishing => member.statistics.is_none(),
            _ => true,
        })
    }

    fn fail(&mut self, reason: String) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.send_to(|_| true, |_| Message::Abort { reason: reason.clone() });
        self.events.push_back(ControllerEvent::Failed { reason });
    }
}

fn kind_of(peer: Peer) -> Option<Kind> {
    match peer {
        Peer::Controller => None,
        Peer::Server(_) => Some(Kind::Server),
        Peer::Switch(_) => Some(Kind::Switch),
        Peer::Worker(_) => Some(Kind::Worker),
    }
}

fn peer_of(kind: Kind, number: u16) -> Peer {
    match kind {
        Kind::Server => Peer::Server(number),
        Kind::Switch => Peer::Switch(number),
        Kind::Worker => Peer::Worker(number),
    }
}

impl Role for Controller {
    type Command = ControllerCommand;
    type Event = ControllerEvent;

    fn handle_start(&mut self, _now: Instant) {}

    fn handle_datagrams(&mut self, _now: Instant, _from: SocketAddr, _datagrams: &mut [u8], _stride: usize) {}

    fn handle_link(&mut self, _now: Instant, link: Link, event: LinkEvent) {
        match event {
            LinkEvent::Opened { remote } => {
                self.remotes.insert(link, remote);
            }
            LinkEvent::Closed { reason } => {
                let remote = self.remotes.remove(&link);
                let Some(member) = self.members.remove(&link) else { return };
                match self.phase {
                    // Its place is free again: whoever started it may start it once more.
                    Phase::Gathering | Phase::Over => {}
                    Phase::Finishing if member.statistics.is_some() => {
                        self.members.insert(link, member);
                    }
                    _ => {
                        let remote = remote.map(|remote| format!(" ({remote})")).unwrap_or_default();
                        self.fail(format!("{}{remote} disappeared: {reason}", member.peer));
                    }
                }
            }
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        if let Message::Join(join) = &message {
            return self.handle_join(now, link, join);
        }
        let Some(member) = self.members.get_mut(&link) else {
            return self.actions.push_back(Action::Close { link });
        };
        member.heard_at = now;
        match message {
            Message::Ready => {
                member.ready = true;
                self.advance_if_ready();
            }
            Message::Heartbeat(statistics) if member.report.is_none() => {
                member.statistics = Some(statistics);
                if self.phase == Phase::Finishing {
                    self.finish_if_complete();
                }
            }
            Message::Report { text, statistics } if matches!(member.peer, Peer::Worker(_)) => {
                member.report = Some(text);
                member.statistics = Some(statistics);
                self.finish_if_complete();
            }
            Message::Barrier { number } if matches!(member.peer, Peer::Worker(_)) => {
                let peer = member.peer;
                self.handle_barrier(peer, number);
            }
            // Once everybody has reported, members go as they are told, and those who go later miss those who went first.
            Message::Abort { reason } if self.phase < Phase::Finishing => self.fail(reason),
            _ => {}
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, _reason: &str) {}

    fn handle_command(&mut self, _now: Instant, command: ControllerCommand) {
        let ControllerCommand::Abort { reason } = command;
        self.fail(reason);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let silent = self.awaited().find(|member| member.heard_at + SILENCE_MAX <= now);
        if let Some(member) = silent.filter(|_| self.phase < Phase::Over) {
            let reason = format!("{} was silent for {} s", member.peer, SILENCE_MAX.as_secs());
            self.fail(reason);
        }
    }

    fn poll_transmit(&mut self, _now: Instant, _outgoing: &mut Outgoing) {}

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_event(&mut self) -> Option<ControllerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.awaited().map(|member| member.heard_at + SILENCE_MAX).min()
    }
}
