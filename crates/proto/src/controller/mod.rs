//! The controller: it gathers the members of a cluster, gives each its place, notices when one is gone, and decides which switch holds
//! which region.

mod assignment;
mod awaited_job;
mod checkpoints;
mod clocks;
mod failure_detection;
mod health;
mod interface;
mod joining;
mod leases;
mod members;
mod progress;
mod proposals;
mod recovery;
mod refusals;
mod restoring;
mod status;
mod strangers;
mod view_messages;
mod views;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use self::health::HealthLimits;
pub use self::interface::{ControllerCommand, ControllerEvent, Outcome, Sizes};
pub use self::joining::PROCESS_SHARDS_MAX;
pub use self::refusals::Refusal;

use self::awaited_job::Held;
use self::checkpoints::Checkpoints;
use self::failure_detection::TICK_MAX;
use self::leases::Leases;
use self::members::{Member, kind_of};
use self::proposals::Description;
use self::restoring::Restarted;
use self::status::Tally;
use self::view_messages::ViewMessages;
use crate::cluster::{Cluster, Peer, View};
use crate::message::{Kind, Message, brief};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role, StrangerCount, Strangers};
use crate::statistics::Statistics;
use crate::status::ControllerStatus;
use crate::time::Instant;

/// A server or worker that sends nothing for this long is taken for dead, though its stream is open. Twenty missed heartbeats: a
/// machine with more processes than cores is late, not dead.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// A switch that answers no probe for this long is taken for dead. If it is not, nothing is lost: what it still has is
/// fenced off, and the workers replay it.
pub const SWITCH_HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(700);
/// Time in which a server or worker whose stream broke may come back on another. A server that keeps its state is to be started again, and has
/// [`Cluster::return_max`].
const RETURN_MAX: Duration = Duration::from_secs(2);
/// The same for a switch.
const SWITCH_RETURN_MAX: Duration = Duration::from_millis(200);
/// The same for a switch when the controller is another, which it must notice first.
const SWITCH_REJOIN_MAX: Duration = Duration::from_millis(500);
/// Time in which a retiring switch may bring everything to the shards before it is replaced anyway.
const RETIREMENT_MAX: Duration = Duration::from_secs(1);
/// Time in which a switch may act on a view: it may have lost the shards that send it the contents of its regions.
const VIEW_MAX: Duration = Duration::from_secs(2);
/// The same for a switch that declared itself slow: it may have thousands of entries to write into a device.
const SLOW_VIEW_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Gathering,
    /// Members of a cluster that another controller made come back.
    Recovering,
    Running,
    Finishing,
    Over,
}

/// The kind of members that are sent a new view, and must act on it before the next are sent it (rule V3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Servers,
    Switches,
    Settled,
}

/// A switch that is asked to bring everything to the shards.
#[derive(Debug, Clone, Copy)]
struct Retirement {
    switch: u16,
    until: Instant,
}

/// Deadlines of a new controller that waits for the members of a cluster.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    /// For switches, until they are lost.
    switches_until: Option<Instant>,
    /// For workers, until they are lost. Not before switches.
    workers_until: Option<Instant>,
    /// For servers, without which there is no cluster.
    servers_until: Instant,
}

/// A controller as a state machine without I/O.
#[derive(Debug, Clone)]
pub struct Controller {
    sizes: Sizes,
    cluster: Cluster,
    /// Switches that cannot do MACs are refused.
    requires_macs: bool,
    description: Description,
    /// The callers of a controller that does not know its job yet.
    held: Option<Held>,
    /// The messages about it that members are sent.
    view_messages: ViewMessages,
    limits: HealthLimits,
    phase: Phase,
    step: Step,
    /// When what the present change of view repairs was noticed, and how many regions it moves.
    fault_since: Instant,
    moved: usize,
    has_started: bool,
    members: BTreeMap<Peer, Member>,
    callers: BTreeMap<Link, Caller>,
    strangers: StrangerCount,
    departed: Vec<(Peer, Statistics)>,
    /// Workers that have left.
    left: BTreeSet<Peer>,
    /// The reports of workers, by their share.
    reports: BTreeMap<u16, String>,
    /// Gradients that servers refused, by server, worker and table.
    refusals: BTreeMap<(u16, Option<u16>, u16), Refusal>,
    /// The barriers that were passed, or the phase that the work is in.
    barrier: u64,
    leases: Leases,
    /// The least clock that the workers were sent, and the barrier before which it holds.
    clocks_sent: (u64, u64),
    retirement: Option<Retirement>,
    /// The flows of pushes that are to restart, by region and worker.
    renewals: BTreeSet<(u8, u16)>,
    /// Processes of servers that read their disks, by the address of the server.
    restarted: BTreeMap<SocketAddr, Restarted>,
    /// Reason why the job has failed.
    failure: Option<String>,
    /// Another controller has its cluster (rule M17).
    is_superseded: bool,
    probe_at: Option<Instant>,
    /// When the switches that may take no longer must act on the present view, and how long that was.
    view_until: Option<(Instant, Duration)>,
    recovery: Option<Recovery>,
    checkpoints: Checkpoints,
    /// Until when a cluster without a worker waits for one.
    vacant_until: Option<Instant>,
    /// When the driver was to call at the latest.
    due: Option<Instant>,
    /// When it was last called.
    looked_at: Instant,
    /// Address at which it answers requests over HTTP.
    http: Option<SocketAddr>,
    tally: Tally,
    actions: VecDeque<Action>,
    events: VecDeque<ControllerEvent>,
}

/// The other end of a stream.
#[derive(Debug, Clone, Copy)]
struct Caller {
    remote: SocketAddr,
    peer: Option<Peer>,
}

impl Controller {
    /// A controller of a cluster that begins with these sizes. `cluster` has everything but the members.
    ///
    /// Should members of a cluster call that have lost their controller, it takes over theirs instead.
    pub fn new(sizes: Sizes, cluster: Cluster) -> Self {
        let servers = Self::unknown_servers(sizes);
        let barrier = cluster.first_phase();
        Self {
            sizes,
            cluster: Cluster {
                shares: sizes.workers.max(cluster.shares),
                view: View { servers, ..cluster.view.clone() },
                ..cluster
            },
            requires_macs: false,
            description: Description::Own,
            held: None,
            view_messages: ViewMessages::default(),
            limits: HealthLimits::default(),
            phase: Phase::Gathering,
            step: Step::Settled,
            fault_since: Instant::ZERO,
            moved: 0,
            has_started: false,
            members: BTreeMap::new(),
            callers: BTreeMap::new(),
            strangers: StrangerCount::default(),
            departed: Vec::new(),
            left: BTreeSet::new(),
            reports: BTreeMap::new(),
            refusals: BTreeMap::new(),
            restarted: BTreeMap::new(),
            failure: None,
            is_superseded: false,
            barrier,
            leases: Leases::default(),
            clocks_sent: (0, 0),
            retirement: None,
            renewals: BTreeSet::new(),
            probe_at: None,
            view_until: None,
            recovery: None,
            checkpoints: Checkpoints::default(),
            vacant_until: None,
            due: None,
            looked_at: Instant::ZERO,
            http: None,
            tally: Tally::default(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// One shard for each server, until they have come.
    fn unknown_servers(sizes: Sizes) -> Vec<SocketAddr> {
        vec![SocketAddr::from(([0, 0, 0, 0], 0)); usize::from(sizes.servers)]
    }

    /// The same, which refuses switches whose data plane has no MACs. The job must have a [secret](Cluster::with_secret).
    #[must_use]
    pub fn requiring_macs(mut self) -> Self {
        self.requires_macs = true;
        self
    }

    /// The same, which answers requests over HTTP at this address (rule M21).
    #[must_use]
    pub fn with_http(mut self, http: Option<SocketAddr>) -> Self {
        self.http = http;
        self
    }

    /// The same, with other limits for the health of switches.
    #[must_use]
    pub fn with_limits(mut self, limits: HealthLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the number of members of each kind that are still missing.
    fn missing(&self) -> Sizes {
        let there = |kind| {
            let count = self.members.keys().filter(|peer| kind_of(**peer) == kind).count();
            u16::try_from(count).expect("members are numbered by u16")
        };
        Sizes {
            servers: self.sizes.servers.saturating_sub(self.complete_servers()),
            switches: self.sizes.switches.saturating_sub(there(Kind::Switch)),
            workers: self.sizes.workers.saturating_sub(there(Kind::Worker)),
        }
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (Peer, &Member)> {
        self.members
            .iter()
            .filter(move |(peer, _)| kind_of(**peer) == kind)
            .map(|(peer, member)| (*peer, member))
    }

    fn send(&mut self, peer: Peer, message: Message) {
        if let Some(link) = self.members.get(&peer).and_then(|member| member.link) {
            self.actions.push_back(Action::Send { link, message });
        }
    }

    fn send_to_all(&mut self, message: &Message) {
        let links = self.members.values().filter_map(|member| member.link);
        self.actions.extend(links.map(|link| Action::Send { link, message: message.clone() }));
    }

    fn refuse(&mut self, link: Link, reason: &str) {
        self.actions.push_back(Action::Send { link, message: Message::Abort { reason: reason.to_owned() } });
        self.hang_up(link);
    }
}

impl Role for Controller {
    type Command = ControllerCommand;
    type Event = ControllerEvent;
    type Status = ControllerStatus;

    fn handle_start(&mut self, _now: Instant) {}

    fn handle_datagrams(&mut self, _now: Instant, _from: SocketAddr, _datagrams: &mut [u8], _stride: usize) {}

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        self.account_for_sleep(now);
        match event {
            LinkEvent::Opened { remote } => {
                self.callers.insert(link, Caller { remote, peer: None });
            }
            LinkEvent::Closed { reason } | LinkEvent::Refused { reason } => {
                self.held.iter_mut().for_each(|held| held.retain(|(other, _)| *other != link));
                let Some(Caller { peer: Some(peer), .. }) = self.callers.remove(&link) else { return };
                let Some(member) = self.members.get_mut(&peer).filter(|member| member.link == Some(link))
                else {
                    return;
                };
                member.link = None;
                member.lost_at = Some(now);
                member.closed_because = Some(reason.clone());
                if member.is_restartable && self.phase == Phase::Running {
                    self.events.push_back(ControllerEvent::Away { peer, reason });
                    self.forget_checkpoint_of(now, peer);
                    self.due = self.poll_timeout();
                    return;
                }
                match self.phase {
                    // Its place is free again: the process that started it may start it once more.
                    Phase::Gathering => {
                        self.members.remove(&peer);
                        self.forget_proposal_of(peer);
                    }
                    Phase::Finishing => {
                        member.settled = true;
                        self.finish_if_complete();
                    }
                    Phase::Recovering | Phase::Running | Phase::Over => {}
                }
            }
        }
        self.due = self.poll_timeout();
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        self.account_for_sleep(now);
        if self.is_superseded {
            return self.hang_up(link);
        }
        match message {
            Message::Join(join) => self.handle_join(now, link, &join),
            Message::Rejoin(rejoin) => self.handle_rejoin(now, link, *rejoin),
            Message::Restoring(progress) => self.handle_restoring(now, link, progress),
            Message::Enquire { .. } => self.handle_enquiry(link),
            message => match self.callers.get(&link).and_then(|caller| caller.peer) {
                Some(peer) => self.handle_member(now, peer, message),
                None if self.is_held(link) => {}
                None => self.close_stranger(link),
            },
        }
        self.due = self.poll_timeout();
    }

    fn handle_strangers(&mut self, _now: Instant, strangers: Strangers) {
        self.note_strangers(strangers);
    }

    fn handle_socket_failure(&mut self, _now: Instant, _reason: &str) {}

    fn handle_command(&mut self, now: Instant, command: ControllerCommand) {
        self.account_for_sleep(now);
        match command {
            ControllerCommand::Describe { sizes, cluster } => self.describe(now, sizes, *cluster),
            ControllerCommand::Migrate { switch } => self.migrate(now, switch),
            ControllerCommand::Drain { peer } => self.send(peer, Message::Drain),
            ControllerCommand::Scale { workers } => self.scale(workers),
            ControllerCommand::AddPhases { behind, phases, is_complete } => {
                self.add_phases(now, behind, phases, is_complete);
            }
            ControllerCommand::Checkpoint => self.begin_checkpoint(now),
            ControllerCommand::Abort { reason } => self.fail(reason),
        }
        self.due = self.poll_timeout();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.account_for_sleep(now);
        if self.probe_at.is_some_and(|due| due <= now) {
            self.probe_switches(now);
        }
        if self.recovery.is_some_and(|recovery| recovery.servers_until <= now) {
            self.fail("the servers of the cluster did not come back to its new controller".to_owned());
        }
        self.end_recovery(now);
        if self.vacant_until.is_some_and(|until| until <= now) {
            self.end_vacancy();
        }
        if self.checkpoints.next_at.is_some_and(|due| due <= now) {
            self.begin_checkpoint(now);
        }
        if let Some(Retirement { switch, .. }) = self.retirement.filter(|retirement| retirement.until <= now)
        {
            self.end_retirement(now, switch);
        }
        if self.view_until.is_some_and(|(until, _)| until <= now) {
            self.lose_late_switches(now);
        }
        while let Some((_, peer)) = self.first_overdue().filter(|(due, _)| *due <= now) {
            self.give_up(now, peer);
        }
        self.due = self.poll_timeout();
    }

    fn poll_transmit(&mut self, _now: Instant, _outgoing: &mut Outgoing) {}

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_event(&mut self) -> Option<ControllerEvent> {
        let event = self.events.pop_front()?;
        self.tally.note(self.looked_at, &event);
        Some(event)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.phase == Phase::Over {
            return None;
        }
        let recovery = self.recovery.map(|Recovery { switches_until, workers_until, servers_until }| {
            switches_until.or(workers_until).unwrap_or(servers_until)
        });
        let retirement = self.retirement.map(|retirement| retirement.until);
        let overdue = self.first_overdue().map(|(due, _)| due);
        let checkpoint = self.checkpoints.next_at;
        [
            self.probe_at,
            self.view_until.map(|(until, _)| until),
            self.vacant_until,
            recovery,
            retirement,
            checkpoint,
            overdue,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|due| due.min(self.looked_at + TICK_MAX))
    }

    fn status(&self, now: Instant) -> ControllerStatus {
        self.status_at(now)
    }
}

impl Controller {
    /// A message of a member.
    fn handle_member(&mut self, now: Instant, peer: Peer, message: Message) {
        let lacks_proposal = self.lacks_proposal(peer);
        let Some(member) = self.members.get_mut(&peer) else { return };
        member.received_at = now;
        let is_worker = matches!(peer, Peer::Worker(_));
        match message {
            Message::Heartbeat { .. } if lacks_proposal => self.refuse_without_proposal(peer),
            // Both are about the member that it was: sent before it received its new place, which its number then shows (rule V10).
            Message::Viewed { number } if member.is_renamed && number < member.start_view => {}
            Message::Abort { .. } if member.is_renamed => {}
            Message::Viewed { number } => {
                member.is_renamed = false;
                // No member acts on a view that is still to be made.
                member.viewed = number.min(self.cluster.view.number);
                self.advance(now);
            }
            Message::Heartbeat { statistics, probe } => self.handle_heartbeat(now, peer, statistics, probe),
            Message::Report { text, statistics } if is_worker => {
                member.has_reported = true;
                member.statistics = Some(statistics);
                self.reports.insert(member.share, text);
                self.go_on_without_workers();
            }
            Message::Propose(job) if is_worker => self.handle_proposal(now, peer, *job),
            Message::Barrier { number } if is_worker => self.handle_barrier(peer, number),
            Message::Clock { barrier, clock } if is_worker => self.handle_clock(peer, barrier, clock),
            Message::Lease(request) if is_worker => self.handle_lease(peer, &request),
            Message::Unreachable { switch } if is_worker => self.handle_complaint(now, peer, switch),
            Message::Renew { region, view_id } => self.handle_renewal(now, peer, region, view_id),
            Message::Leave { returns } if !matches!(peer, Peer::Server(_)) => {
                (member.leaves, member.returns) = (true, returns);
                self.let_go(now);
            }
            Message::CheckpointBegun { number } => self.handle_checkpoint_begun(peer, number),
            Message::Checkpointed { number, is_on_disk, failure } => {
                self.handle_checkpointed(now, peer, number, is_on_disk, failure.map(brief));
            }
            Message::GradientsRefused { worker, table, key, count } => {
                self.handle_refused(peer, worker, table, key, count);
            }
            Message::Retired => {
                if let Peer::Switch(switch) = peer {
                    self.end_retirement(now, switch);
                }
            }
            // Once all members have reported, they go as they are told, and those that go later miss those that went first.
            Message::Abort { reason } if self.phase < Phase::Finishing => match peer {
                // It cannot do its part, and others can: it starts again, as a standby.
                Peer::Switch(_) if self.phase == Phase::Recovering => self.forget_member(peer),
                Peer::Switch(_) if self.has_started => {
                    self.lose(now, peer, format!("gave up: {}", brief(reason)));
                }
                _ => self.fail_by(peer, brief(reason)),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
