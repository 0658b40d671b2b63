//! Runs a scenario: starts the processes, lets users work and faults happen, and brings everything to its end.

mod members;
mod restoring;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use libra_proto::{
    ControllerEvent, Instant, MemberEvent, Peer, Role, ServerEvent, WorkerCommand, WorkerEvent,
};

use self::restoring::Reader;
use crate::check::{Checkers, Violation};
use crate::faults::Drain;
use crate::network::{Host, Network, Quality};
use crate::open_work::OpenWork;
use crate::process::{AnyRole, Event};
use crate::random::Random;
use crate::run::Counts;
use crate::scenario::Scenario;
use crate::trace::TraceWriter;
use crate::workload::{Account, Progress, User};
use crate::world::{CONTROLLER, Step, World};

/// Everything that is under way when the faults are over, and everything that is begun later, is done after this long.
///
/// Most of it is the 10 s after which a member that is silent is given up, once for the machine that failed last; then a
/// view changes, and what is not durable is replayed.
pub const LIVENESS_BOUND: Duration = Duration::from_secs(30);
/// The job begins after at most this long. Nothing but the network is bad before.
const BEGIN_BOUND: Duration = Duration::from_secs(30);
/// Interval of the check that all members may go on to the end.
const GO_ON_INTERVAL: Duration = Duration::from_millis(20);
/// Pause of a process that found no controller, before it is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(300);

/// Something that is to be done at a time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scheduled {
    Fault(usize),
    Think(Host),
    Start(Host, Kind),
    Resume(Host),
    Heal {
        ones: Vec<Host>,
        others: Vec<Host>,
        both: bool,
    },
    Mend(Host),
    MakeRoom(Host),
    TimeOut {
        ones: Vec<Host>,
        others: Vec<Host>,
    },
    Part(Host, Host),
    Agree(Host),
    GoBack {
        from: Host,
        to: Host,
    },
    BitsStay,
    ReadOn(Reader),
    Jump(Host, Duration),
    Quiesce,
    CheckBegin,
    CheckEnd,
    GoOn,
    /// Add phases to open work, behind so many.
    AddPhases(Host, u64),
}

/// Kind of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Controller,
    Server,
    Switch,
    Worker,
}

/// A scenario that runs.
#[derive(Debug)]
pub(crate) struct ScenarioRunner {
    pub(crate) scenario: Scenario,
    pub(crate) world: World<Checkers>,
    pub(crate) random: Random,
    /// For the faults of disks.
    pub(crate) random_of_disks: Random,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) users: BTreeMap<Host, User>,
    /// Host of the controller that members reach.
    pub(crate) controller: Host,
    /// True if there was ever another one beside it.
    pub(crate) is_split: bool,
    /// Users of workers that are gone.
    pub(crate) departed: Vec<User>,
    pub(crate) account: Account,
    scheduled: Vec<Scheduled>,
    /// When the job began, and when the faults ended.
    pub(crate) begun_at: Option<Instant>,
    pub(crate) quiesced_at: Option<Instant>,
    pub(crate) last_barrier: Option<u64>,
    /// The phase that the work was in at the last checkpoint that all shards had.
    pub(crate) phase_on_disks: u64,
    pub(crate) finished: bool,
    /// Hosts with a fault, which may be given up; and until when that is explained by it.
    pub(crate) exempt: BTreeMap<Host, Instant>,
    /// Until when that holds for any switch.
    pub(crate) switches_exempt_until: Instant,
    /// Until when servers must be left alone.
    pub(crate) servers_busy_until: Instant,
    /// Workers that the controller has given up.
    pub(crate) given_up: BTreeSet<u16>,
    /// Hosts whose process may be missing.
    pub(crate) down: BTreeSet<Host>,
    /// Members that were asked to end, and those shards of servers that have.
    pub(crate) draining: BTreeMap<Host, Drain>,
    pub(crate) drained: BTreeSet<Host>,
    /// Servers that go on without their log, and would lose something.
    pub(crate) without_log: BTreeSet<Host>,
    /// Servers whose disk is full.
    pub(crate) full: BTreeSet<Host>,
    /// For how long servers that have died will read their disks.
    pub(crate) restore_times: BTreeMap<Host, Duration>,
    /// The worker that describes another job than the others.
    disagreeing: Option<Host>,
    /// The front end of the controller, if the work is open.
    pub(crate) open_work: Option<OpenWork>,
    counts: Counts,
}

impl ScenarioRunner {
    pub(crate) fn new(scenario: Scenario, trace: Option<TraceWriter>) -> Self {
        let trunk = Random::new(scenario.seed);
        let network = Network::new(scenario.quality, trunk.fork(11));
        let mut checkers = Checkers::new(&scenario.rows, &scenario.cluster(), scenario.shards());
        if scenario.is_unprotected {
            checkers.stop_reporting();
        }
        let mut world = World::new(network, trunk.fork(12), checkers);
        if let Some(trace) = trace {
            world.set_trace(trace);
        }
        let account = Account::new(&scenario.rows);
        let is_open = scenario.work.as_ref().is_some_and(|work| work.is_open);
        Self {
            world,
            random: trunk.fork(13),
            random_of_disks: trunk.fork(41),
            kinds: Vec::new(),
            users: BTreeMap::new(),
            controller: CONTROLLER,
            is_split: false,
            departed: Vec::new(),
            account,
            scheduled: Vec::new(),
            begun_at: None,
            quiesced_at: None,
            last_barrier: None,
            phase_on_disks: 0,
            finished: false,
            exempt: BTreeMap::new(),
            switches_exempt_until: Instant::ZERO,
            servers_busy_until: Instant::ZERO,
            given_up: BTreeSet::new(),
            down: BTreeSet::new(),
            draining: BTreeMap::new(),
            drained: BTreeSet::new(),
            without_log: BTreeSet::new(),
            full: BTreeSet::new(),
            restore_times: BTreeMap::new(),
            disagreeing: None,
            open_work: is_open.then(|| OpenWork::new(trunk.fork(81))),
            counts: Counts::default(),
            scenario,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.now()
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.world.trace_hash()
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.network = self.world.network.counts();
        counts.world = self.world.counts();
        counts.operations = self.account.operations;
        counts.rounds = self.world.observer.rounds();
        counts.retransmits = self.world.observer.retransmits();
        counts.renewals = self.world.observer.renewals();
        counts.views = self.world.observer.roster.views() as u64;
        for user in self.users.values().chain(&self.departed) {
            counts.push_max = counts.push_max.max(user.slowest_push);
            counts.operation_max = counts.operation_max.max(user.slowest);
        }
        counts
    }

    pub(crate) fn count_fault(&mut self, name: &'static str) {
        *self.counts.faults.entry(name).or_default() += 1;
    }

    pub(crate) fn schedule(&mut self, at: Instant, action: Scheduled) {
        self.world.set_alarm(at, self.scheduled.len() as u64);
        self.scheduled.push(action);
    }

    /// Runs the scenario to its end. Returns what went wrong.
    pub(crate) fn run_to_end(&mut self) -> Option<Violation> {
        self.start_processes();
        self.run_until_violation()
    }

    fn run_until_violation(&mut self) -> Option<Violation> {
        while !self.finished && self.world.observer.violation().is_none() {
            self.go_on();
        }
        self.world.observer.violation().cloned()
    }

    /// The next thing happens.
    fn go_on(&mut self) {
        if let Step::Alarm(token) = self.world.step() {
            let action = self.scheduled[usize::try_from(token).unwrap_or(0)].clone();
            self.carry_out(action);
        }
        while let Some((host, event)) = self.world.next_event() {
            self.handle(host, event);
        }
        // Before that, shards write their first ones.
        if core::mem::take(&mut self.world.checkpointed) && self.begun_at.is_some() {
            self.check_checkpoints();
        }
    }

    /// Whenever all servers die, the job can go on from a checkpoint that is on all their disks (rule L11).
    fn check_checkpoints(&mut self) {
        match self.world.complete_checkpoints().into_values().max() {
            Some(phase) => self.phase_on_disks = self.phase_on_disks.max(phase),
            None => self.violate("checkpoints", "no checkpoint is on the disks of all shards".to_owned()),
        }
    }

    fn carry_out(&mut self, action: Scheduled) {
        match action {
            Scheduled::Fault(number) => {
                let (_, fault) = self.scenario.faults[number];
                if self.quiesced_at.is_none() {
                    self.inject(fault);
                }
            }
            Scheduled::Think(host) => self.let_user_act(host),
            Scheduled::Start(host, kind) => {
                if !self.world.is_alive(host) || self.users.get(&host).is_some_and(|user| !user.is_there()) {
                    self.start(host, kind);
                }
            }
            Scheduled::Resume(host) => self.world.resume(host),
            Scheduled::Heal { ones, others, both } => self.world.heal(&ones, &others, both),
            Scheduled::Mend(host) => self.world.network.set_quality_of(host, None),
            Scheduled::MakeRoom(host) => self.make_room(host),
            Scheduled::TimeOut { ones, others } => {
                for &one in &ones {
                    others.iter().for_each(|&other| self.world.time_out_streams(one, other));
                }
            }
            Scheduled::Agree(host) => self.agree(host),
            Scheduled::AddPhases(host, behind) => self.add_phases(host, behind),
            Scheduled::Part(one, other) => self.world.part(one, other),
            Scheduled::GoBack { from, to } => self.go_back(from, to),
            Scheduled::Jump(host, by) => {
                self.world.shards_of(host).into_iter().for_each(|shard| self.world.jump_clock(shard, by));
            }
            Scheduled::BitsStay => self.world.flips = None,
            Scheduled::ReadOn(reader) => self.read_on(reader),
            Scheduled::Quiesce => self.quiesce(),
            Scheduled::CheckBegin if self.begun_at.is_none() => {
                self.violate("liveness", format!("the job has not begun after {BEGIN_BOUND:?}"));
            }
            Scheduled::CheckBegin => {}
            Scheduled::CheckEnd => self.check_end(),
            Scheduled::GoOn => {
                self.drain();
                let at = self.now() + GO_ON_INTERVAL;
                self.schedule(at, Scheduled::GoOn);
            }
        }
    }

    /// Ends the faults and heals everything. All users go on to the last barrier.
    fn quiesce(&mut self) {
        self.quiesced_at = Some(self.now());
        self.world.note("calm");
        let quality = Quality { tick: self.scenario.quality.tick, ..Quality::GOOD };
        self.world.network.set_quality(quality);
        self.world.flips = None;
        if !self.world.is_alive(self.controller) {
            self.start(self.controller, Kind::Controller);
        }
        self.end_other_controllers();
        for host in 0..self.kinds.len() {
            self.world.network.set_quality_of(host, None);
            self.world.resume(host);
            self.mend_disk(host);
            if self.kinds[host] == Kind::Server && !self.world.is_alive(host) {
                self.start(host, Kind::Server);
            }
        }
        self.set_last_barrier();
        let at = self.now() + LIVENESS_BOUND;
        self.schedule(at, Scheduled::CheckEnd);
        self.schedule(self.now(), Scheduled::GoOn);
    }

    /// Users come to the same last barrier, wherever they are now.
    fn set_last_barrier(&mut self) {
        let next = self.users.values().map(|user| user.next_barrier).max().unwrap_or(0);
        let last = *self.last_barrier.get_or_insert(next + 1);
        for user in self.users.values_mut().filter(|user| user.progress == Progress::Working) {
            user.last_barrier = last;
            user.progress = Progress::Ending;
        }
        let hosts: Vec<Host> = self.users.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.let_user_act(host));
    }

    /// Lets a user do what it wants to do now.
    pub(crate) fn let_user_act(&mut self, host: Host) {
        while self.world.is_awake(host)
            && let Some(user) = self.users.get_mut(&host)
            && let Some(command) = user.next(self.world.now(), &self.scenario.workload, &mut self.account)
        {
            self.command(host, command);
        }
        let now = self.now();
        if let Some(user) = self.users.get_mut(&host).filter(|user| user.progress == Progress::Working)
            && user.next_at > now
            && user.thinks_at != user.next_at
        {
            user.thinks_at = user.next_at;
            let at = user.next_at;
            self.schedule(at, Scheduled::Think(host));
        }
    }

    fn command(&mut self, host: Host, command: WorkerCommand) {
        self.world.act(host, |role, now| {
            if let AnyRole::Worker(worker) = role {
                worker.handle_command(now, command);
            }
        });
    }

    fn handle(&mut self, host: Host, event: Event) {
        let now = self.now();
        match event {
            Event::Controller(ControllerEvent::Started) => self.begin(),
            Event::Controller(ControllerEvent::Settled { took, .. }) => {
                self.counts.take_over_max = self.counts.take_over_max.max(took);
            }
            Event::Controller(ControllerEvent::Finished(_)) if host != self.controller => {
                self.violate(
                    "controllers",
                    "a controller ends the job that another has taken over".to_owned(),
                );
            }
            Event::Controller(ControllerEvent::Finished(outcome)) => self.end(&outcome),
            Event::Controller(ControllerEvent::PhasesAdded(added)) => self.phases_added(host, &added),
            Event::Controller(ControllerEvent::Failed { reason }) => self.controller_failed(host, &reason),
            // The first of two controllers has no members left that count.
            Event::Controller(ControllerEvent::Lost { .. }) if host != self.controller => {}
            Event::Controller(ControllerEvent::Lost { peer, reason }) => self.lost(peer, &reason),
            Event::Controller(_)
            | Event::Member(
                MemberEvent::Started { .. } | MemberEvent::DrainAsked | MemberEvent::Finished(_),
            ) => {}
            Event::Server(ServerEvent::LogSuspended { .. }) => drop(self.without_log.insert(host)),
            Event::Server(ServerEvent::LogResumed) => drop(self.without_log.remove(&host)),
            Event::Server(_) => {}
            Event::Member(MemberEvent::Drained { unsaved }) => self.drained(host, unsaved.as_deref()),
            Event::Member(MemberEvent::Ended { reason, .. }) => self.ended(host, &reason),
            Event::Worker(event) => {
                let ended = match &event {
                    WorkerEvent::Ended { reason, .. } => Some(reason.clone()),
                    _ => None,
                };
                if let WorkerEvent::Released { number } = event {
                    if self.scenario.work.is_some() {
                        self.observe_phase(host, number);
                    } else {
                        self.check_barrier(number);
                    }
                }
                if let WorkerEvent::Started { share, barrier, .. } = event {
                    self.check_share(host, share);
                    self.check_first_phase(host, barrier);
                }
                if let WorkerEvent::Clocks { least } = event {
                    self.check_clocks(host, least);
                }
                let Some(user) = self.users.get_mut(&host) else { return };
                let (before, recovering) = (user.progress, self.quiesced_at);
                let oldest = user.oldest();
                let verdict = user.handle(now, event, &self.scenario.workload, &mut self.account);
                if let (Some(quiesced_at), Some((number, at))) = (recovering, oldest)
                    && user.oldest().is_none_or(|(oldest, _)| oldest != number)
                {
                    let took = now.since(at.max(quiesced_at));
                    self.counts.recovery_max = self.counts.recovery_max.max(took);
                }
                if let Err(text) = verdict {
                    self.violate("reads", text);
                }
                if self.users.get(&host).is_some_and(|user| !user.is_there()) {
                    self.world.exit(host);
                    self.down.insert(host);
                }
                if let Some(reason) = ended {
                    self.worker_ended(host, before, &reason);
                }
                if self.last_barrier.is_some() {
                    self.set_last_barrier();
                    self.drain();
                } else {
                    self.let_user_act(host);
                }
            }
        }
    }

    /// A worker has a share of the task: no other that belongs to the job has the same.
    fn check_share(&mut self, host: Host, share: u16) {
        let has = |user: &&User| {
            let works = matches!(user.progress, Progress::Working | Progress::Ending | Progress::Ended);
            let is_gone = user.has_left || self.given_up.contains(&user.worker);
            user.host != host && works && user.share == share && !is_gone
        };
        let other = self.users.values().find(has).map(|user| user.worker);
        // Of two controllers, one may have given the other worker up.
        if let Some(other) = other.filter(|_| !self.is_split) {
            self.violate("shares", format!("share {share} is that of worker {other}, and given again"));
        }
        self.users.get_mut(&host).into_iter().for_each(|user| user.share = share);
    }

    /// A worker is released from a barrier: all who belong to the job must have come to it.
    fn check_barrier(&mut self, number: u64) {
        let Some(view) = self.world.observer.roster.newest() else { return };
        let behind = self.users.values().find(|user| {
            let counts = matches!(user.progress, Progress::Working | Progress::Ending)
                && view.workers.contains_key(&user.worker)
                && !self.given_up.contains(&user.worker);
            counts && !user.has_come_to(number)
        });
        if let Some(user) = behind {
            let text = format!("barrier {number} ends, and worker {} has not come to it", user.worker);
            self.violate("barriers", text);
        }
    }

    /// All members have started: the faults begin.
    fn begin(&mut self) {
        if self.begun_at.is_some() {
            return;
        }
        let now = self.now();
        self.begun_at = Some(now);
        let times: Vec<Duration> = self.scenario.faults.iter().map(|(at, _)| *at).collect();
        for (number, at) in times.into_iter().enumerate() {
            self.schedule(now + at, Scheduled::Fault(number));
        }
        self.schedule(now + self.scenario.safety, Scheduled::Quiesce);
    }

    pub(crate) fn violate(&mut self, checker: &'static str, text: String) {
        let now = self.now();
        self.world.observer.report(checker, now, text);
    }

    /// The controller has given up a member. There must be a reason.
    fn lost(&mut self, peer: Peer, reason: &str) {
        if let Peer::Worker(worker) = peer {
            self.given_up.insert(worker);
        }
        let Some(host) = self.world.observer.roster.host(peer) else { return };
        // A worker that was away itself may take a switch for silent.
        let blame = reason.strip_prefix("could not be reached by worker ");
        let blamed_by = blame.and_then(|rest| rest.split(':').next()).and_then(|worker| worker.parse().ok());
        let accuser = blamed_by.and_then(|worker| self.world.observer.roster.host(Peer::Worker(worker)));
        let exempt = self.is_exempt(host)
            || accuser.is_some_and(|accuser| self.is_exempt(accuser))
            || matches!(peer, Peer::Switch(_)) && self.switches_exempt_until >= self.now();
        if !exempt && !self.down.contains(&host) {
            self.violate("liveness", format!("{peer} was well, and is given up: {reason}"));
        }
    }

    /// True if a host had a fault that explains why it is given up.
    fn is_exempt(&self, host: Host) -> bool {
        self.exempt.get(&host).is_some_and(|until| *until >= self.now())
    }

    /// A server or switch reports that it has no job any more.
    fn ended(&mut self, host: Host, reason: &str) {
        if self.kinds[host] == Kind::Switch {
            // The operator starts it again, or not: the job goes on.
            self.world.exit(host);
            self.down.insert(host);
            if self.quiesced_at.is_none() {
                let at = self.now() + RESTART_PAUSE;
                self.schedule(at, Scheduled::Start(host, Kind::Switch));
            }
        } else {
            self.violate("liveness", format!("server at host {host} ends: {reason}"));
        }
    }

    fn worker_ended(&mut self, host: Host, before: Progress, reason: &str) {
        let exempt = self.is_exempt(host);
        if before == Progress::Starting && (self.quiesced_at.is_none() || self.alive(Kind::Worker).is_empty())
        {
            // It found no controller, or no free place yet.
            let at = self.now() + RESTART_PAUSE;
            self.schedule(at, Scheduled::Start(host, Kind::Worker));
        } else if before != Progress::Starting && !exempt {
            self.violate("liveness", format!("worker at host {host} was well, and ends: {reason}"));
        }
    }
}

#[cfg(test)]
mod tests;
