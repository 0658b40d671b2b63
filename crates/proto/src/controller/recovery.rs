//! A member that comes back to its controller, and a controller that takes over the members of another.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use libra_dataplane::mutants::{Mutant, is_enabled};

use super::health::PROBE_INTERVAL;
use super::joining::{reachable, seen_from};
use super::members::{Member, kind_of};
use super::proposals::Description;
use super::{Controller, ControllerEvent, Phase, RETURN_MAX, Recovery, SWITCH_REJOIN_MAX};
use crate::cluster::{Cluster, Peer};
use crate::message::{Kind, Message, Rejoin, VERSION};
use crate::role::{Action, Link};
use crate::time::Instant;

impl Controller {
    /// A member of a cluster that lost its stream to the controller, or the controller itself, is back (rule M8).
    pub(super) fn handle_rejoin(&mut self, now: Instant, link: Link, rejoin: Rejoin) {
        let Some(caller) = self.callers.get(&link).copied() else { return };
        if rejoin.join.version != VERSION {
            return self.handle_join(now, link, &rejoin.join);
        }
        let peer = rejoin.you;
        if caller.peer.is_some() {
            return self.refuse(link, "a stream carries one member only");
        }
        if !matches!(
            (peer, rejoin.join.kind),
            (Peer::Server(_), Kind::Server)
                | (Peer::Switch(_), Kind::Switch)
                | (Peer::Worker(_), Kind::Worker)
        ) {
            return self.refuse(link, "a member must rejoin as the kind that it joined as");
        }
        // No honest member comes near such numbers, and sums with them must not overflow.
        if (rejoin.view | rejoin.barriers | rejoin.work_done.phase) >> 63 != 0 {
            return self.refuse(link, "a member that rejoins must name fewer than 2^63 views and barriers");
        }
        // A caller from another job has lost its controller, and finds another one at the address.
        if rejoin.instance != self.cluster.instance && self.phase != Phase::Gathering {
            return match peer {
                Peer::Switch(_) => self.handle_join(now, link, &rejoin.join),
                _ => self
                    .refuse(link, &format!("the job of {peer} is over: another one runs at this controller")),
            };
        }
        // A controller that takes over has nothing to check it by yet, and does that when its servers are back.
        let has_cluster = !matches!(self.phase, Phase::Gathering | Phase::Recovering);
        if has_cluster && !self.cluster.admits(peer, Peer::Controller, rejoin.pass) {
            return self.refuse(link, &format!("{peer} has another pass than this caller"));
        }
        if let Some(reason) = rejoin.cluster.as_deref().and_then(unsound) {
            return self.refuse(link, reason);
        }
        if self.is_superseded_by(&rejoin) {
            self.hang_up(link);
            return self.stand_down();
        }
        match self.phase {
            // Only its servers can tell if there is a cluster to take over. The others try again.
            Phase::Gathering if rejoin.cluster.is_none() => return self.hang_up(link),
            Phase::Gathering => self.begin_recovery(now, rejoin.instance),
            Phase::Finishing | Phase::Over => return self.turn_away(link),
            Phase::Recovering | Phase::Running => {}
        }
        if self.phase == Phase::Recovering {
            self.recover(now, link, rejoin, caller.remote);
            self.end_restoring(peer);
            self.admit(link, caller.remote, peer);
            return self.end_recovery(now);
        }
        let Some(member) = self.members.get_mut(&peer) else {
            // A switch has nothing to lose: what it holds was replayed to another. It starts again, under another number (rule V10).
            return match peer {
                _ if self.left.contains(&peer) => self.finish(link),
                Peer::Switch(_) => {
                    self.handle_join(now, link, &rejoin.join);
                    let renamed = self.members.values_mut().find(|member| member.link == Some(link));
                    renamed.into_iter().for_each(|member| member.is_renamed = true);
                }
                // Perhaps it trains on with another controller, as the servers do. It calls again.
                Peer::Worker(_) if !self.may_pass_without_the_lost() => self.hang_up(link),
                _ => self
                    .refuse(link, &format!("{peer} was taken for dead, and the others went on without it")),
            };
        };
        let before = member.link.replace(link);
        let lost_at = member.lost_at.take();
        member.progress_at = None;
        member.received_at = now;
        member.http = rejoin.join.http.map(|http| seen_from(http, caller.remote));
        if member.is_restartable
            && let Some(lost_at) = lost_at
        {
            self.events.push_back(ControllerEvent::Returned { peer, took: now.since(lost_at) });
        }
        if let Some(before) = before {
            self.hang_up(before);
        }
        self.forget_checkpoint_of(now, peer);
        self.end_restoring(peer);
        self.admit(link, caller.remote, peer);
        if self.has_moved(peer, reachable(&rejoin.join, caller.remote)) {
            self.raise(now);
        } else if self.is_sent_view(kind_of(peer)) {
            self.send_view(peer);
        }
        self.send_leases(peer);
        self.resend_clocks(peer);
        if let Some(retirement) = self.retirement
            && peer == Peer::Switch(retirement.switch)
        {
            self.send(peer, Message::Retire);
        }
    }

    /// Notes the address of a server that has come back. Returns true if it is another than before, which all members must learn (rule V13).
    fn has_moved(&mut self, peer: Peer, address: Option<SocketAddr>) -> bool {
        let (Peer::Server(server), Some(address)) = (peer, address) else { return false };
        if self.phase != Phase::Running {
            return false;
        }
        let known = self.cluster.view.servers.get_mut(usize::from(server));
        let Some(known) = known.filter(|known| **known != address) else { return false };
        *known = address;
        if let Some(member) = self.members.get_mut(&peer) {
            member.address = address;
        }
        true
    }

    /// Members of a cluster call: this controller takes the place of one that is gone. Callers that came to begin another job must wait (rule M9).
    pub(super) fn begin_recovery(&mut self, now: Instant, instance: u64) {
        self.phase = Phase::Recovering;
        self.let_held_go();
        if self.takes_tables() {
            // Its servers have the tables.
            self.description = Description::Of(Peer::Controller);
        }
        self.cluster.instance = instance;
        self.probe_at.get_or_insert(now + PROBE_INTERVAL);
        self.recovery = Some(Recovery {
            switches_until: Some(now + SWITCH_REJOIN_MAX),
            workers_until: Some(now + RETURN_MAX),
            servers_until: now + self.cluster.return_max,
        });
        for member in core::mem::take(&mut self.members).into_values() {
            self.actions.extend(member.link.map(|link| Action::Close { link }));
            self.callers.retain(|link, _| Some(*link) != member.link);
        }
    }

    /// Returns true if a member has a view of another controller, which took over its cluster from this one (rule M17). A server may have one that
    /// its log has not yet, and then acts on it without having sent `Viewed`.
    fn is_superseded_by(&self, rejoin: &Rejoin) -> bool {
        let has_cluster = matches!(self.phase, Phase::Running | Phase::Finishing | Phase::Over);
        let known = rejoin.cluster.as_ref().map_or(0, |cluster| cluster.view.number);
        has_cluster
            && rejoin.view.max(known) > self.cluster.view.number
            && !is_enabled(Mutant::OldControllerBelieved)
    }

    /// Ends without a message to the members: they have another controller, or will have one.
    fn stand_down(&mut self) {
        if self.phase == Phase::Over {
            return;
        }
        (self.phase, self.is_superseded) = (Phase::Over, true);
        self.members.values_mut().for_each(|member| member.link = None);
        // Also the callers that have not identified themselves yet.
        let links = core::mem::take(&mut self.callers).into_keys();
        self.actions.extend(links.map(|link| Action::Close { link }));
        let reason = "another controller has taken over the cluster".to_owned();
        self.failure = Some(reason.clone());
        self.events.push_back(ControllerEvent::Failed { reason });
    }

    /// A stream on which nothing was received for too long is as good as broken, and a member that can come back has as long for it (rule M7).
    pub(super) fn end_stream_of(&mut self, now: Instant, peer: Peer) {
        let Some(member) = self.members.get_mut(&peer) else { return };
        let reason = format!("sent nothing for {:?}", Member::heartbeat_timeout(kind_of(peer)));
        let link = member.link.take();
        member.lost_at = Some(now);
        member.closed_because = Some(reason.clone());
        if let Some(link) = link {
            self.hang_up(link);
        }
        self.events.push_back(ControllerEvent::Away { peer, reason });
        self.forget_checkpoint_of(now, peer);
    }

    /// Fails the job if no worker came to train.
    pub(super) fn end_vacancy(&mut self) {
        self.vacant_until = None;
        if self.has_no_worker() {
            self.fail("no worker came in the place of those that were there".to_owned());
        }
    }

    pub(super) fn recover(&mut self, now: Instant, link: Link, rejoin: Rejoin, remote: SocketAddr) {
        let Rejoin { join, you, pass, share, view, barriers, cluster, work_done, instance: _ } = rejoin;
        self.barrier = self.barrier.max(barriers);
        let instance = self.cluster.instance;
        let newest = self.cluster.view.number;
        let is_newer = |cluster: &Cluster| cluster.instance == instance && cluster.view.number > newest;
        if let Some(cluster) = cluster.filter(|cluster| is_newer(cluster)) {
            self.cluster = *cluster;
        }
        let mut member = Member::new(link, reachable(&join, remote).unwrap_or(remote), share, now);
        member.started = true;
        member.leases.is_unknown = true;
        member.viewed = view;
        if !is_enabled(Mutant::WorkDoneNotLearned) {
            member.work_done = work_done;
        }
        self.set_return(&mut member, &join);
        member.is_slow = join.is_slow;
        member.http = join.http.map(|http| seen_from(http, remote));
        member.pass = pass;
        if let Some(before) = self.members.insert(you, member).and_then(|member| member.link) {
            self.hang_up(before);
        }
        if join.kind == Kind::Switch {
            self.probe_at.get_or_insert(now + PROBE_INTERVAL);
        }
    }

    /// Forgets callers that are not the members that they claim to be, once a server has brought what passes are checked by (rule S7).
    fn refuse_impostors(&mut self) {
        if self.recovery.is_none() || self.cluster.view.number == 0 {
            return;
        }
        let is_impostor = |(&peer, member): (&Peer, &Member)| {
            let is_admitted = self.cluster.admits(peer, Peer::Controller, member.pass);
            (!is_admitted).then_some((peer, member.link))
        };
        let impostors: Vec<(Peer, Option<Link>)> = self.members.iter().filter_map(is_impostor).collect();
        for (peer, link) in impostors {
            self.members.remove(&peer);
            if let Some(link) = link {
                self.refuse(link, &format!("{peer} has another pass than this caller"));
            }
        }
    }

    /// Goes on once all servers are back, and all others are, too, or had the time.
    pub(super) fn end_recovery(&mut self, now: Instant) {
        self.refuse_impostors();
        let Some(recovery) = &mut self.recovery else { return };
        recovery.switches_until.take_if(|until| *until <= now);
        recovery.workers_until.take_if(|until| *until <= now);
        let Recovery { switches_until, workers_until, .. } = *recovery;
        let view = &self.cluster.view;
        let servers = (0..self.cluster.shards()).map(Peer::Server);
        let switches = view.switches.keys().copied().map(Peer::Switch);
        let workers = view.workers.keys().copied().map(Peer::Worker);
        let is_back = |peer| self.members.contains_key(&peer);
        // Before a server has sent it, the cluster has a view of number 0.
        let servers_are_back = view.number > 0 && servers.clone().all(is_back);
        let switches_are_awaited = switches_until.is_some() && !switches.clone().all(is_back);
        let workers_are_awaited = workers_until.is_some() && !workers.clone().all(is_back);
        if !servers_are_back || switches_are_awaited || workers_are_awaited {
            return;
        }
        let processes: BTreeSet<SocketAddr> =
            self.of_kind(Kind::Server).map(|(_, member)| member.address).collect();
        self.sizes.servers = u16::try_from(processes.len()).expect("servers are numbered by u16");
        self.sizes.workers = self.cluster.shares;
        let lost: Vec<Peer> = switches.chain(workers).filter(|peer| !is_back(*peer)).collect();
        // The addresses as the others have them. That of a server is the one that it has now: it may have come back elsewhere.
        let mut servers = view.servers.clone();
        for (peer, member) in &mut self.members {
            let known = match peer {
                Peer::Switch(switch) => view.switches.get(switch),
                Peer::Worker(worker) => view.workers.get(worker),
                Peer::Server(server) => {
                    if let Some(known) = servers.get_mut(usize::from(*server)) {
                        *known = member.address;
                    }
                    None
                }
                Peer::Controller => None,
            };
            if let Some(known) = known {
                member.address = *known;
            }
            member.standby = matches!(peer, Peer::Switch(switch) if view.regions_of(*switch) == 0);
        }
        self.cluster.view.servers = servers;
        self.take_over_work();
        // A member that was given up before is not in the view of the servers, and another may have its place.
        let unknown: Vec<Peer> =
            self.members.keys().copied().filter(|peer| !self.cluster.contains(*peer)).collect();
        for peer in unknown {
            self.forget_member(peer);
        }
        for peer in lost {
            let reason = "it did not come back to the new controller".to_owned();
            self.events.push_back(ControllerEvent::Lost { peer, reason });
        }
        // Above every number that any member can have. The lower half counts on: packets carry the lowest bits of it.
        let newest = self.members.values().map(|member| member.viewed).max().unwrap_or(0);
        let newest = newest.max(self.cluster.view.number);
        self.cluster.view.number = newest + (1 << 32);
        self.recovery = None;
        self.phase = Phase::Running;
        self.has_started = true;
        self.events.push_back(ControllerEvent::Recovered);
        self.report_added();
        self.schedule_checkpoint(now);
        if self.has_no_worker() {
            // Others may come in the place of those that are lost, and one that had not been sent its place yet joins now.
            self.wait_for_worker(now);
        }
        self.raise(now);
        self.go_on_without_workers();
        self.let_go(now);
    }
}

/// Returns the reason why a cluster from a server is not acceptable: numbers that could not be counted on from.
fn unsound(cluster: &Cluster) -> Option<&'static str> {
    if cluster.view.number >> 63 != 0 {
        return Some("a cluster has fewer than 2^63 views");
    }
    (cluster.view.servers.len() > usize::from(u16::MAX)).then_some("a cluster has fewer than 2^16 servers")
}
