//! Members that join: their places, and the start of the job.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::clocks::NOT_STARTED;
use super::health::PROBE_INTERVAL;
use super::members::{Member, kind_of, peer_of};
use super::{Controller, ControllerEvent, Phase, Sizes};
use crate::cluster::{Ownership, Peer, packets_in_flight};
use crate::message::{Join, Kind, Message, VERSION};
use crate::role::{Action, Link};
use crate::time::Instant;

/// Shards of all servers: fewer than a switch can have streams to.
const SHARDS_MAX: u16 = 1 << 14;
/// Most shards of one server: more than machines have cores.
pub const PROCESS_SHARDS_MAX: u16 = 1 << 10;

/// Returns the address at which others reach a member, if it names one. An unspecified one is where it calls from.
pub(super) fn reachable(join: &Join, remote: SocketAddr) -> Option<SocketAddr> {
    let address = if join.kind == Kind::Server { join.stream } else { join.datagrams }?;
    Some(seen_from(address, remote))
}

/// An address that a process gives for itself. An unspecified one is where it calls from.
pub(super) fn seen_from(mut address: SocketAddr, remote: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(remote.ip());
    }
    address
}

impl Controller {
    /// Notes whether another process comes in its place.
    pub(super) fn set_return(&self, member: &mut Member, join: &Join) {
        member.returns = join.kind == Kind::Worker && join.is_restartable;
        let keeps = join.kind == Kind::Server && self.cluster.durability.needs_disk();
        member.is_restartable = keeps && join.is_restartable;
    }

    pub(super) fn handle_join(&mut self, now: Instant, link: Link, join: &Join) {
        let Some(caller) = self.callers.get(&link).copied() else { return };
        let Join { kind, version, .. } = *join;
        if version != VERSION {
            let reason = format!(
                "the controller speaks version {VERSION} of the messages, this {kind} speaks {version}"
            );
            return self.refuse(link, &reason);
        }
        if self.holds(link, join) {
            return;
        }
        match self.phase {
            // Its caller tries again, and finds a controller that has its cluster.
            Phase::Recovering => return self.hang_up(link),
            // It comes too late to do anything, and nothing is wrong.
            Phase::Finishing | Phase::Over => return self.turn_away(link),
            Phase::Gathering | Phase::Running => {}
        }
        let Some(address) = reachable(join, caller.remote) else {
            return self.refuse(link, "a member must give the address at which it can be reached");
        };
        if let Some(peer) = self.undelivered(kind, address) {
            return self.welcome_back(now, link, peer);
        }
        if let Some(refusal) = self.refuses_shard(join, address) {
            return self.refuse(link, &refusal);
        }
        if let Some(refusal) = self.refuses_tags(join) {
            return self.refuse(link, &refusal);
        }
        // A caller that has a place gets no second one. A number that was looked for and not given would be lost, as none is given twice.
        let place = if caller.peer.is_none() { self.free_place(kind, address) } else { None };
        let Some((peer, share)) = place else {
            // Perhaps its place becomes free: another member may be about to be given up.
            if self.of_kind(kind).any(|(_, member)| member.lost_at.is_some()) {
                return self.hang_up(link);
            }
            let workers = self.of_kind(Kind::Worker).count();
            if kind == Kind::Worker && workers < self.cluster.shares.into() && self.has_given_all_numbers() {
                let reason = self.describe_numbers();
                return self.refuse(link, &reason);
            }
            if kind == Kind::Switch && self.has_given_all_switches() {
                let given = self.cluster.view.next_switch;
                let reason = format!(
                    "all {given} numbers of switches have been given, and none is given twice (rule M2): the job goes on \
                     without another switch"
                );
                return self.refuse(link, &reason);
            }
            let size = match kind {
                Kind::Server => self.sizes.servers,
                Kind::Switch => self.sizes.switches,
                Kind::Worker => self.cluster.shares,
            };
            let reason = format!("the cluster has no place for another {kind}: {size} of {size} are there");
            self.actions.push_back(Action::Send { link, message: Message::NoPlace { reason } });
            return self.hang_up(link);
        };
        let mut member = Member::new(link, address, share, now);
        self.set_return(&mut member, join);
        member.is_slow = join.is_slow;
        member.shards = join.shards;
        member.http = join.http.map(|http| seen_from(http, caller.remote));
        if kind == Kind::Worker && self.phase == Phase::Running && self.cluster.work.is_none() {
            member.clock = (self.barrier, NOT_STARTED);
        }
        if kind == Kind::Switch {
            member.standby = self.phase == Phase::Running || self.missing().switches == 0;
            if self.phase == Phase::Gathering {
                // One kind for all switches: the least that any of them can do.
                let before = core::mem::replace(&mut self.cluster.hot_path.tags, join.tags);
                let tags = before.min(join.tags);
                self.cluster.hot_path.tags = tags;
                if tags != before {
                    self.events.push_back(ControllerEvent::TagsReduced { peer, tags });
                }
                let room = packets_in_flight(join.receive_bytes, self.cluster.shares);
                let in_flight_max = &mut self.cluster.hot_path.packets_in_flight_max;
                *in_flight_max = room.min(*in_flight_max);
            }
            self.probe_at.get_or_insert(now + PROBE_INTERVAL);
        }
        self.members.insert(peer, member);
        self.admit(link, caller.remote, peer);
        let missing = self.missing();
        self.events.push_back(ControllerEvent::Joined { peer, remote: caller.remote, missing });
        if self.phase == Phase::Running {
            self.raise(now);
        } else if missing == (Sizes { servers: 0, switches: 0, workers: 0 }) && !self.awaits_proposals() {
            self.begin(now);
        }
    }

    /// Returns the processes of servers by address: how many of their shards are there, and how many they have.
    pub(super) fn server_processes(&self) -> BTreeMap<SocketAddr, (u16, u16)> {
        let mut processes = BTreeMap::new();
        for (_, member) in self.of_kind(Kind::Server) {
            processes.entry(member.address).or_insert((0, member.shards)).0 += 1;
        }
        processes
    }

    /// Returns the number of processes of servers whose shards are all there.
    pub(super) fn complete_servers(&self) -> u16 {
        let complete =
            self.server_processes().into_values().filter(|(there, shards)| there >= shards).count();
        u16::try_from(complete).expect("members are numbered by u16")
    }

    /// Returns the reason why a server is no further shard of a process.
    fn refuses_shard(&self, join: &Join, address: SocketAddr) -> Option<String> {
        if join.kind != Kind::Server || self.phase != Phase::Gathering {
            return None;
        }
        let shards = join.shards;
        if !(1..=PROCESS_SHARDS_MAX).contains(&shards) {
            return Some(format!("a process of a server has 1 to {PROCESS_SHARDS_MAX} shards, not {shards}"));
        }
        let (there, known) = *self.server_processes().get(&address)?;
        (known != shards || there >= known)
            .then(|| format!("the server at {address} has {there} of {known} shards, and no other"))
    }

    /// Returns the reason why a switch cannot be in the job, as it cannot do the tags that packets have, or must have.
    fn refuses_tags(&self, join: &Join) -> Option<String> {
        let asked = self.cluster.hot_path.tags;
        if join.kind != Kind::Switch || join.tags >= asked {
            return None;
        }
        let can = join.tags;
        match self.phase {
            Phase::Gathering if self.requires_macs => Some(format!(
                "the data plane of this switch has tags {can} and no MACs, which the job requires: start the controller with --packet-tags auto"
            )),
            Phase::Gathering => None,
            _ => Some(format!("packets of this job have tags {asked}, and this switch can do {can} at best")),
        }
    }

    /// Numbers the servers from 0, without the gaps that shards left which went before the job has begun, and notes their addresses.
    fn number_servers(&mut self) {
        let servers: Vec<Peer> = self.of_kind(Kind::Server).map(|(peer, _)| peer).collect();
        self.cluster.view.servers.clear();
        for (number, peer) in (0..).zip(servers) {
            let member = self.members.remove(&peer).expect("it is there");
            self.cluster.view.servers.push(member.address);
            let caller = member.link.and_then(|link| self.callers.get_mut(&link));
            caller.into_iter().for_each(|caller| caller.peer = Some(Peer::Server(number)));
            self.members.insert(Peer::Server(number), member);
        }
    }

    /// A member at this address that was sent its place, and whose stream broke before it can have received it.
    fn undelivered(&self, kind: Kind, address: SocketAddr) -> Option<Peer> {
        let undelivered =
            |member: &Member| member.lost_at.is_some() && member.viewed == 0 && member.address == address;
        self.of_kind(kind).find(|(_, member)| undelivered(member)).map(|(peer, _)| peer)
    }

    fn welcome_back(&mut self, now: Instant, link: Link, peer: Peer) {
        let (Some(member), Some(caller)) = (self.members.get_mut(&peer), self.callers.get(&link).copied())
        else {
            return;
        };
        (member.link, member.received_at, member.lost_at, member.started) = (Some(link), now, None, false);
        self.admit(link, caller.remote, peer);
        if self.is_sent_view(kind_of(peer)) {
            self.send_view(peer);
        }
    }

    /// Returns the next member of a kind, and its share of the task.
    fn free_place(&mut self, kind: Kind, address: SocketAddr) -> Option<(Peer, u16)> {
        let gathering = self.phase == Phase::Gathering;
        let free = |size: u16| (0..size).find(|&number| !self.members.contains_key(&peer_of(kind, number)));
        match kind {
            Kind::Server => {
                let processes = self.server_processes();
                let has_place =
                    processes.contains_key(&address) || processes.len() < usize::from(self.sizes.servers);
                free(SHARDS_MAX).filter(|_| gathering && has_place).map(|number| (Peer::Server(number), 0))
            }
            Kind::Switch if self.cluster.plan.is_none() && !self.awaits_tables() => None,
            Kind::Switch if gathering => free(u16::MAX).map(|number| (Peer::Switch(number), 0)),
            Kind::Switch => {
                let number = self.cluster.view.next_switch;
                self.cluster.view.next_switch = number.checked_add(1)?;
                Some((Peer::Switch(number), 0))
            }
            Kind::Worker if gathering => {
                free(self.cluster.shares).map(|number| (Peer::Worker(number), number))
            }
            Kind::Worker => {
                let is_away = |member: &Member| is_enabled(Mutant::ShareGivenTwice) && member.link.is_none();
                let has =
                    |share| move |(_, member): (Peer, &Member)| member.share == share && !is_away(member);
                let taken = |share| self.of_kind(Kind::Worker).any(has(share));
                let open = |share: &u16| !taken(*share) && !self.reports.contains_key(share);
                let share = (0..self.cluster.shares).find(open)?;
                let number = self.cluster.view.next_worker;
                if self.has_given_all_numbers() {
                    return None;
                }
                self.cluster.view.next_worker = number + 1;
                Some((Peer::Worker(number), share))
            }
        }
    }

    /// Returns true if there is no number left for a worker that joins (rule M2).
    pub(super) fn has_given_all_numbers(&self) -> bool {
        self.phase == Phase::Running && self.cluster.view.next_worker >= self.cluster.worker_numbers()
    }

    /// Returns the reason why no other worker can join, in words.
    pub(super) fn describe_numbers(&self) -> String {
        let numbers = self.cluster.worker_numbers();
        format!(
            "the job has given all its {numbers} numbers of workers, each once: start it again from a checkpoint"
        )
    }

    /// Returns true if there is no number left for a switch that joins while the job runs: a switch that comes and goes takes one each time.
    fn has_given_all_switches(&self) -> bool {
        self.phase == Phase::Running
            && self.cluster.plan.is_some()
            && self.cluster.view.next_switch == u16::MAX
    }

    /// Begins the job: all members are there.
    pub(super) fn begin(&mut self, now: Instant) {
        self.number_servers();
        let keys: u64 = self.cluster.tables.iter().map(|table| table.keys.end - table.keys.start).sum();
        let shards = self.cluster.shards();
        if keys > 0 && u64::from(shards) > keys {
            return self.fail(format!(
                "the servers have {shards} shards, and the tables {keys} keys: start fewer servers, or with fewer --shards-per-server"
            ));
        }
        // The first view goes to all in the order of any other (rule M3).
        self.phase = Phase::Running;
        // A plan that cannot be placed is refused by the servers, in words.
        let regions = match self.cluster.placement() {
            Ok(Some(placement)) => placement.regions().len(),
            Ok(None) | Err(_) => 0,
        };
        let view = &mut self.cluster.view;
        view.ownerships = vec![Ownership::default(); regions];
        let number = |peer: &Peer| if let Peer::Switch(number) = peer { number + 1 } else { 0 };
        view.next_switch = self.members.keys().map(number).max().unwrap_or(0);
        let number = |peer: &Peer| if let Peer::Worker(number) = peer { number + 1 } else { 0 };
        view.next_worker = self.members.keys().map(number).max().unwrap_or(0);
        self.raise(now);
    }
}
