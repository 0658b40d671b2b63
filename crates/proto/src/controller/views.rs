//! Views: the members and the owner of each region, sent in an order in which nothing is counted twice or lost.

use core::time::Duration;

use super::assignment::{Candidate, assign};
use super::health::PROBE_INTERVAL;
use super::members::{Complaint, Member};
use super::view_messages::ViewMessages;
use super::{Controller, ControllerEvent, Phase, RETIREMENT_MAX, Retirement, SLOW_VIEW_MAX, Step, VIEW_MAX};
use crate::cluster::Peer;
use crate::message::{Kind, Message, Start};
use crate::statistics::Statistics;
use crate::time::Instant;

/// Time for which a complaint about a switch counts; workers repeat it more often.
const COMPLAINT_MAX: Duration = Duration::from_secs(3);
/// Complaints of one worker that come closer together count once: it repeats them every 2 s, so they have waited on the way, or
/// for a controller that slept.
const COMPLAINT_MIN: Duration = Duration::from_secs(1);
/// Number of complaints of one worker after which it is accepted alone.
const COMPLAINTS_OF_ONE: u32 = 3;
/// Datagrams from addresses of no worker, beside none of a worker, that show another address than is known of those: a worker that waits for
/// a switch sends it some 100 in the 2 s before it complains.
const UNKNOWN_DATAGRAMS_MIN: u64 = 40;
/// The way out for a member that others do not find.
const ADVICE: &str = "--advertise HOST[:PORT] names the address by which others reach a member";
/// A worker whose complaints are accepted alone more often than this is at fault itself.
const LONE_COMPLAINTS_PERIOD: Duration = Duration::from_secs(30);

impl Controller {
    /// Makes the next view of the present members, and begins to send it, to servers first.
    pub(super) fn raise(&mut self, now: Instant) {
        if self.step == Step::Settled {
            (self.fault_since, self.moved) = (now, 0);
        }
        let begin = self.cluster.views_begin_after();
        let view = &mut self.cluster.view;
        view.number = view.number.max(begin) + 1;
        self.view_messages = ViewMessages::default();
        view.switches.clear();
        view.workers.clear();
        let (mut candidates, mut retired) = (Vec::new(), Vec::new());
        for (peer, member) in &self.members {
            match *peer {
                Peer::Switch(switch) => {
                    view.switches.insert(switch, member.address);
                    let candidate = Candidate { switch, standby: member.standby, leaves: member.leaves };
                    match (member.retired, member.leaves) {
                        (false, _) => candidates.push(candidate),
                        (true, false) => retired.push(Candidate { standby: false, ..candidate }),
                        (true, true) => {}
                    }
                }
                Peer::Worker(worker) => {
                    view.workers.insert(worker, member.address);
                }
                Peer::Controller | Peer::Server(_) => {}
            }
        }
        if candidates.iter().all(|candidate| candidate.leaves) && !retired.is_empty() {
            // A switch that was asked to retire is better than none. It begins with a new view id, for it takes nothing in the one that it has.
            let is_retired = |owner| retired.iter().any(|candidate: &Candidate| candidate.switch == owner);
            for ownership in view.ownerships.iter_mut().filter(|ownership| ownership.view_id > 0) {
                ownership.owner.take_if(|owner| is_retired(*owner));
            }
            candidates.append(&mut retired);
            self.members
                .values_mut()
                .filter(|member| !member.leaves)
                .for_each(|member| member.retired = false);
        }
        self.moved += assign(&mut view.ownerships, view.number, &candidates);
        self.restart_flows();
        self.step = Step::Servers;
        self.view_until = None;
        self.tell_all(Kind::Server);
        self.advance(now);
    }

    /// Restarts flows that have no numbers left. Their regions begin with a new view id, so that no packet of before counts in it
    /// (rule T18).
    fn restart_flows(&mut self) {
        let view = &mut self.cluster.view;
        self.renewals.retain(|&(region, worker)| {
            let ownership = view.ownerships.get_mut(usize::from(region));
            let Some(ownership) = ownership.filter(|ownership| ownership.owner.is_some()) else {
                // Its rows are cold anyway, until a switch comes.
                return view.workers.contains_key(&worker);
            };
            if view.workers.contains_key(&worker) {
                ownership.view_id = view.number;
                view.flows.insert((region, worker), view.number);
            }
            false
        });
    }

    /// A flow of a worker has no numbers left, and nothing of it is needed any more.
    pub(super) fn handle_renewal(&mut self, now: Instant, peer: Peer, region: u8, view_id: u64) {
        let Peer::Worker(worker) = peer else { return };
        let view = &self.cluster.view;
        // After its restart its worker may still repeat the request from before.
        if usize::from(region) >= view.ownerships.len() || view.flow(region, worker) != view_id {
            return;
        }
        self.renewals.insert((region, worker));
        if self.phase == Phase::Running && view.ownership(region).owner.is_some() {
            self.raise(now);
        }
    }

    pub(super) fn tell_all(&mut self, kind: Kind) {
        let peers: Vec<Peer> = self.of_kind(kind).map(|(peer, _)| peer).collect();
        for peer in peers {
            self.send_view(peer);
        }
    }

    /// Sends a member the present view.
    pub(super) fn send_view(&mut self, peer: Peer) {
        let barrier = self.barrier;
        let Some(member) = self.members.get_mut(&peer).filter(|member| member.link.is_some()) else { return };
        let message = if core::mem::replace(&mut member.started, true) {
            Message::View(self.view_messages.view(&self.cluster, peer))
        } else {
            member.start_view = self.cluster.view.number;
            let (share, cluster) = (member.share, self.view_messages.cluster(&self.cluster, peer));
            Message::Start(Box::new(Start { you: peer, share, barrier, cluster }))
        };
        self.send(peer, message);
    }

    /// Returns true if members of a kind may be sent the present view.
    pub(super) fn is_sent_view(&self, kind: Kind) -> bool {
        match kind {
            Kind::Server => true,
            Kind::Switch => self.step >= Step::Switches,
            Kind::Worker => self.step == Step::Settled,
        }
    }

    pub(super) fn advance(&mut self, now: Instant) {
        let number = self.cluster.view.number;
        let act_on_it = |kind| self.of_kind(kind).all(|(_, member)| member.viewed == number);
        if self.step == Step::Servers && act_on_it(Kind::Server) {
            self.step = Step::Switches;
            self.view_until = Some((now + VIEW_MAX, VIEW_MAX));
            self.tell_all(Kind::Switch);
            // Workers that leave may have waited for the servers to have their record.
            self.let_go(now);
        }
        let act_on_it = |kind| self.of_kind(kind).all(|(_, member)| member.viewed == number);
        if self.step == Step::Switches && act_on_it(Kind::Switch) {
            self.step = Step::Settled;
            self.view_until = None;
            self.tell_all(Kind::Worker);
            if core::mem::replace(&mut self.has_started, true) {
                let took = now.since(self.fault_since);
                self.events.push_back(ControllerEvent::Settled { view: number, moved: self.moved, took });
            } else {
                self.events.push_back(ControllerEvent::Started);
                self.report_added();
                self.first_checkpoint_is_complete();
                self.schedule_checkpoint(now);
            }
            self.release_if_complete();
            self.deal();
            self.let_switches_go(now);
        }
    }

    /// A worker cannot reach a switch (rule M14). If most of them cannot, it is the switch; one alone may be cut off itself, and is accepted when it
    /// repeats the report.
    pub(super) fn handle_complaint(&mut self, now: Instant, worker: Peer, switch: u16) {
        let workers = self.of_kind(Kind::Worker).count();
        let Some(viewed) = self.members.get(&worker).map(|member| member.viewed) else { return };
        let regions = self.cluster.view.ownerships.iter().filter(|ownership| ownership.owner == Some(switch));
        // The packets of a worker that does not act on the present ownership yet are stale there.
        let newest = regions.map(|ownership| ownership.view_id).max();
        let is_answered = newest.is_some_and(|view_id| view_id <= viewed);
        let switch = Peer::Switch(switch);
        let Some(member) =
            self.members.get_mut(&switch).filter(|_| is_answered && self.phase == Phase::Running)
        else {
            return;
        };
        member.complaints.retain(|_, complaint| complaint.last_at + COMPLAINT_MAX >= now);
        let complaint = member.complaints.entry(worker).or_insert(Complaint { last_at: now, times: 0 });
        if complaint.times == 0 || complaint.last_at + COMPLAINT_MIN <= now {
            (complaint.last_at, complaint.times) = (now, complaint.times + 1);
        }
        let times = complaint.times;
        let of_most = 2 * member.complaints.len() > workers;
        if !of_most && times < COMPLAINTS_OF_ONE {
            return;
        }
        let Some(member) = self.members.get_mut(&worker) else { return };
        let again = member
            .lone_complaint_at
            .replace(now)
            .is_some_and(|before| before + LONE_COMPLAINTS_PERIOD >= now);
        if again && !of_most {
            return self.lose(now, worker, "reaches one switch as little as another".to_owned());
        }
        self.lose_unreached(now, switch, worker);
    }

    /// Loses a switch that a worker cannot reach. If nothing of any worker has ever come to it, one of the two is not where it is said to be: under
    /// another number it would be lost again, so it is told that, and ends (rule M14).
    fn lose_unreached(&mut self, now: Instant, switch: Peer, worker: Peer) {
        let reason = format!("could not be reached by {worker}");
        let address_of = |peer| self.members.get(&peer).map(|member: &Member| member.address);
        // A device counts pushes alone.
        let counts = self.members.get(&switch).filter(|member| !member.is_slow);
        let counts = counts.and_then(|member| member.statistics);
        let (Some(Statistics::Switch(counts)), Some(of_switch), Some(of_worker)) =
            (counts, address_of(switch), address_of(worker))
        else {
            return self.lose(now, switch, reason);
        };
        if counts.packets > 0 {
            return self.lose(now, switch, reason);
        }
        let (peer, why) = if counts.unknown_senders >= UNKNOWN_DATAGRAMS_MIN {
            let ip = of_worker.ip();
            (worker, format!("is known by {ip}, and what comes to {switch} is of other addresses: {ADVICE}"))
        } else {
            (switch, format!("{reason}: it is known by {of_switch}, and nothing has come to it: {ADVICE}"))
        };
        self.send(peer, Message::Abort { reason: format!("{peer} {why}") });
        self.lose(now, peer, why);
    }

    /// Goes on without the switches that hold up the present view.
    pub(super) fn lose_late_switches(&mut self, now: Instant) {
        let Some((_, waited)) = self.view_until.take() else { return };
        let number = self.cluster.view.number;
        let late = self.of_kind(Kind::Switch).filter(|(_, member)| member.viewed != number);
        let (late, slow): (Vec<_>, Vec<_>) = late.partition(|(_, member)| member.view_max() <= waited);
        let late: Vec<Peer> = late.into_iter().map(|(peer, _)| peer).collect();
        if late.is_empty() && !slow.is_empty() {
            self.view_until = Some((now + (SLOW_VIEW_MAX - waited), SLOW_VIEW_MAX));
        }
        for peer in late {
            self.lose(now, peer, format!("did not act on a view for {} s", waited.as_secs()));
        }
    }

    /// Asks a switch to bring everything to the shards, so that another can take its regions over (rule V9).
    pub(super) fn migrate(&mut self, now: Instant, switch: u16) {
        let is_other = |(peer, member): (Peer, &Member)| {
            peer != Peer::Switch(switch) && !member.retired && !member.leaves
        };
        let possible = self.phase == Phase::Running
            && self.retirement.is_none()
            && self.members.contains_key(&Peer::Switch(switch))
            && self.of_kind(Kind::Switch).any(is_other);
        if possible {
            self.retire(now, switch);
        }
    }

    fn retire(&mut self, now: Instant, switch: u16) {
        if self.step == Step::Settled {
            self.fault_since = now;
        }
        self.retirement = Some(Retirement { switch, until: now + RETIREMENT_MAX });
        if let Some(member) = self.members.get_mut(&Peer::Switch(switch)) {
            member.retired = true;
        }
        self.send(Peer::Switch(switch), Message::Retire);
    }

    /// Lets switches end that have asked to: those that hold regions one after the other, when the shards have everything, or have had
    /// the time (rule V12).
    pub(super) fn let_switches_go(&mut self, now: Instant) {
        let leaving = self.of_kind(Kind::Switch).filter(|(_, member)| member.leaves);
        let leaving: Vec<(u16, bool)> = leaving
            .filter_map(|(peer, member)| match peer {
                Peer::Switch(switch) => Some((switch, member.retired)),
                _ => None,
            })
            .collect();
        for (switch, retired) in leaving {
            let under_way = self.retirement.map(|retirement| retirement.switch);
            let holds = self.cluster.view.regions_of(switch) > 0;
            if under_way == Some(switch) {
                continue;
            }
            if holds && !retired {
                // One that does not act on the view yet may bring rounds to shards that have fenced it off.
                if under_way.is_none() && self.step == Step::Settled {
                    self.retire(now, switch);
                }
                continue;
            }
            let began = self.fault_since;
            self.release_member(Peer::Switch(switch));
            self.raise(now);
            if holds {
                self.fault_since = began;
            }
        }
    }

    pub(super) fn end_retirement(&mut self, now: Instant, switch: u16) {
        // The controller before may have asked it to.
        self.retirement.take_if(|retirement| retirement.switch == switch);
        let Some(member) = self.members.get_mut(&Peer::Switch(switch)) else { return };
        member.retired = true;
        let leaves = member.leaves;
        let holds = self.cluster.view.regions_of(switch) > 0;
        if self.phase == Phase::Running && holds && !leaves {
            let began = self.fault_since;
            self.raise(now);
            self.fault_since = began;
        }
        // Perhaps this one, or one that has waited for it.
        self.let_go(now);
    }

    pub(super) fn handle_heartbeat(&mut self, now: Instant, peer: Peer, statistics: Statistics, probe: u64) {
        let limits = self.limits;
        let Some(member) = self.members.get_mut(&peer) else { return };
        if member.has_reported {
            return;
        }
        member.statistics = Some(statistics);
        if self.phase == Phase::Finishing {
            member.settled = true;
            return self.finish_if_complete();
        }
        if let Statistics::Server(counts) = statistics {
            return self.consider_log(now, counts.log_bytes);
        }
        let (Peer::Switch(switch), Statistics::Switch(counts)) = (peer, statistics) else { return };
        let failing = member.health.answered(now, probe, &counts, &limits);
        let holds = |switch| self.cluster.view.regions_of(switch) > 0;
        let is_idle = |(peer, member): (Peer, &Member)| {
            !member.retired && matches!(peer, Peer::Switch(other) if !holds(other))
        };
        if failing && holds(switch) && self.of_kind(Kind::Switch).any(is_idle) {
            self.migrate(now, switch);
        }
    }

    pub(super) fn probe_switches(&mut self, now: Instant) {
        let switches: Vec<Peer> = self.of_kind(Kind::Switch).map(|(peer, _)| peer).collect();
        for peer in &switches {
            let member = self.members.get_mut(peer).expect("it was listed a moment ago");
            if member.link.is_some() {
                let number = member.health.probe(now);
                self.send(*peer, Message::Probe { number });
            }
        }
        // While members come back it ticks for itself: a tick that comes late shows a sleep (rule M13).
        let ticks = !switches.is_empty() || self.phase == Phase::Recovering;
        self.probe_at = ticks.then_some(now + PROBE_INTERVAL);
    }
}
