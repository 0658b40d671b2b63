//! Virtual time: what leaves a process when, what comes to another, and who has a core.
//!
//! A process is ready when something waits for it. Ready processes of a host queue for its cores, first come first served; one that has a core
//! takes turn after turn until nothing waits for it, or others wait and it has held the core for a slice. A turn is not interrupted. Users go before
//! roles, which give way to them after the turn they are in: threads of roles wait for their turn (`SCHED_BATCH`, see `libra_net`), those of users do not. Kernels
//! put who is woken beside the one that woke it, so a user runs where its worker runs (of 5,156 wakes a second of a user 4,865 pushed its worker aside,
//! while the other core was idle for more than half of the time). What a user leaves goes to the role that has waited longest.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use libra_proto::{Callee, Instant, Link, LinkEvent, WorkerCommand, WorkerEvent};

use crate::cores::{Cores, Host, Pace};
use crate::costs::{CostKind, CostModel, Costs, WakeLatency, Work};
use crate::fabric::{Fabric, Hop, LinkCounts, LinkSpec, Place, Train, instant};
use crate::member::{Member, Output, Pid, Process, Run, State, Streamed, Turn};
use crate::user::User;
use libra_faultsim::address_of;
use libra_faultsim::{AnyRole, Event};

/// The controller's process.
pub(crate) const CONTROLLER: Pid = 0;
/// Timers of a thread that sleeps fire at multiples of this: those of the runtime do.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// Contents of a train.
#[derive(Debug)]
enum Payload {
    Run(Run),
    Streamed(Link, Streamed),
}

#[derive(Debug)]
enum Happening {
    /// A process has done enough to let this go.
    Leaves {
        from: Pid,
        output: Output,
    },
    AtSwitch {
        from: Pid,
        to: Pid,
        payload: Payload,
        train: Train,
        tail: Instant,
    },
    Arrives {
        from: Pid,
        to: Pid,
        payload: Payload,
        bytes: usize,
    },
    Command {
        to: Pid,
        command: WorkerCommand,
    },
    Event {
        to: Pid,
        event: WorkerEvent,
    },
    Timer {
        of: Pid,
        due: Instant,
    },
    /// A process that has a core takes a turn.
    Turn {
        of: Pid,
    },
    Connected {
        by: Pid,
        link: Link,
        to: Pid,
    },
}

/// A process is a role, or the user of a worker.
#[derive(Debug)]
pub(crate) enum Program {
    Member(Member),
    User(User),
}

/// All processes, and what will happen.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) now: Instant,
    queue: BTreeMap<(Instant, u64), Happening>,
    numbered: u64,
    pub(crate) processes: Vec<Process>,
    pub(crate) programs: Vec<Program>,
    places: Vec<Cores>,
    fabric: Fabric,
    /// For each stream the two ends.
    streams: Vec<[(Pid, Link); 2]>,
    /// For an end of a stream that was sent something late: nothing behind it comes earlier.
    held_until: BTreeMap<(Pid, Link), Instant>,
    /// Messages that came to a process on each of its links, while it was measured.
    pub(crate) messages_in: BTreeMap<(Pid, Link), u64>,
    wake_latency: WakeLatency,
    pace: Pace,
    /// Bytes on the wire of what is on its way between machines.
    pub(crate) bytes_under_way: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_delivered: u64,
    pub(crate) bytes_dropped: u64,
    /// Of datagrams that links lost.
    pub(crate) bytes_lost: u64,
    pub(crate) steps: u64,
}

impl Engine {
    pub(crate) fn new(costs: &Costs, link: LinkSpec, forwarding: Duration, seed: u64) -> Self {
        Self {
            now: Instant::ZERO + Duration::from_millis(1),
            queue: BTreeMap::new(),
            numbered: 0,
            processes: Vec::new(),
            programs: Vec::new(),
            places: Vec::new(),
            pace: Pace::new(costs.spread, seed),
            fabric: Fabric::new(link, forwarding, seed),
            streams: Vec::new(),
            held_until: BTreeMap::new(),
            messages_in: BTreeMap::new(),
            wake_latency: costs.wake_latency_ns.clone(),
            bytes_under_way: 0,
            bytes_sent: 0,
            bytes_delivered: 0,
            bytes_dropped: 0,
            bytes_lost: 0,
            steps: 0,
        }
    }

    /// One more machine, or the place of the switch itself.
    pub(crate) fn add_place(&mut self, host: Host, is_machine: bool) -> Place {
        self.places.push(Cores::new(host, self.now));
        self.fabric.add(is_machine);
        self.places.len() - 1
    }

    /// Starts a role on a machine.
    pub(crate) fn start(
        &mut self,
        place: Place,
        role: AnyRole,
        prices: CostModel,
        line_rate: bool,
        recorded: bool,
    ) -> Pid {
        let pid = self.processes.len();
        self.processes.push(Process::new(place, prices, line_rate));
        let mut member = Member::new(role, address_of(pid));
        member.recorded = recorded.then(Vec::new);
        let turn = member.start(self.now);
        self.programs.push(Program::Member(member));
        self.carry_out(pid, turn);
        self.set_timer(pid);
        pid
    }

    /// Starts the user of a worker, on its machine.
    pub(crate) fn start_user(&mut self, user: User, prices: CostModel) -> Pid {
        let pid = self.processes.len();
        self.processes.push(Process::new(self.processes[user.worker].place, prices, false));
        self.programs.push(Program::User(user));
        pid
    }

    /// Number of places.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn host(&self, place: Place) -> Host {
        self.places[place].host
    }

    pub(crate) fn link_counts(&self, place: Place) -> Option<[LinkCounts; 2]> {
        self.fabric.counts(place, self.now)
    }

    /// Bytes on the wire of what will still happen between machines.
    #[cfg(test)]
    pub(crate) fn bytes_queued(&self) -> u64 {
        let bytes = self.queue.values().map(|happening| match happening {
            Happening::AtSwitch { train, .. } => train.bytes as u64,
            Happening::Arrives { from, to, bytes, .. }
                if self.processes[*from].place != self.processes[*to].place =>
            {
                *bytes as u64
            }
            _ => 0,
        });
        bytes.sum()
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.numbered += 1;
        self.queue.insert((at.max(self.now), self.numbered), happening);
    }

    /// Everything until a time.
    pub(crate) fn run_until(&mut self, end: Instant) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 >= end {
                break;
            }
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            self.steps += 1;
            self.happen(happening);
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Leaves { from, output } => self.leaves(from, output),
            Happening::AtSwitch { from, to, payload, mut train, tail } => {
                let place = self.processes[to].place;
                let (hop, lost) = self.fabric.forward(place, &mut train, self.now, tail);
                self.hop(from, to, payload, train, hop, &lost);
            }
            Happening::Arrives { from, to, payload, bytes } => {
                if self.processes[from].place != self.processes[to].place {
                    self.bytes_delivered += bytes as u64;
                    self.bytes_under_way -= bytes as u64;
                }
                let inbox = &mut self.processes[to].inbox;
                match payload {
                    Payload::Run(run) => inbox.runs.push_back(run),
                    Payload::Streamed(link, streamed) => {
                        if matches!(streamed, Streamed::Message(_)) {
                            *self.messages_in.entry((to, link)).or_default() += 1;
                        }
                        inbox.streamed.push_back((link, streamed));
                    }
                }
                self.notify(to);
            }
            Happening::Command { to, command } => {
                self.processes[to].inbox.commands.push_back(command);
                self.notify(to);
            }
            Happening::Event { to, event } => {
                self.processes[to].inbox.events.push_back(event);
                self.notify(to);
            }
            Happening::Timer { of, due } => {
                if self.processes[of].timer == Some(due) {
                    self.processes[of].timer = None;
                    self.notify(of);
                }
            }
            Happening::Turn { of } if self.processes[of].line_rate => {
                self.processes[of].state = State::Asleep;
                self.pass_at_line_rate(of);
            }
            Happening::Turn { of } => self.take_turn(of),
            Happening::Connected { by, link, to } => self.connected(by, link, to),
        }
    }

    /// Something waits for a process.
    fn notify(&mut self, pid: Pid) {
        if self.processes[pid].line_rate {
            return self.pass_at_line_rate(pid);
        }
        if self.processes[pid].state != State::Asleep {
            return;
        }
        let cores = &mut self.places[self.processes[pid].place];
        let is_of_waker = match &self.programs[pid] {
            Program::User(user) => !cores.host.polls && self.processes[user.worker].state == State::Running,
            Program::Member(_) => false,
        };
        if is_of_waker {
            self.wait(pid);
        } else if let Some((core, since)) = cores.take(self.processes[pid].core) {
            self.processes[pid].core = core;
            if cores.host.polls {
                return self.begin(pid, self.now, Work::default());
            }
            let latency = self.wake_latency.after(self.now.since(since).as_nanos() as f64);
            let at = self.now + Duration::from_nanos(instant(latency).as_nanos());
            self.begin(pid, at, Work::of(CostKind::Wake, 1.0).with(CostKind::IdleWake, 1.0));
        } else {
            self.wait(pid);
        }
    }

    /// A process waits for a core.
    fn wait(&mut self, pid: Pid) {
        let is_user = self.is_user(pid);
        self.places[self.processes[pid].place].wait(pid, is_user);
        self.processes[pid].state = State::Ready;
    }

    fn is_user(&self, pid: Pid) -> bool {
        matches!(self.programs[pid], Program::User(_))
    }

    /// A process gets a core.
    fn begin(&mut self, pid: Pid, at: Instant, woken: Work) {
        let factor = self.pace.factor();
        let nanos = self.charge(pid, woken, factor);
        let process = &mut self.processes[pid];
        process.state = State::Running;
        process.held_ns = 0.0;
        self.schedule(at + Duration::from_nanos(instant(nanos).as_nanos()), Happening::Turn { of: pid });
    }

    /// Counts work and the time that it takes on the core that the process has, `factor` times what its price is. Returns that time.
    fn charge(&mut self, pid: Pid, work: Work, factor: f64) -> f64 {
        let process = &mut self.processes[pid];
        let nanos = factor * process.prices.of(&work) / self.places[process.place].host.speed;
        process.work += work;
        process.busy_ns += nanos;
        process.held_ns += nanos;
        process.charged =
            (process.charged.0.max(self.now) + Duration::from_nanos(instant(nanos).as_nanos()), nanos);
        nanos
    }

    /// Returns the time that a process was busy until now, without the rest of its turn.
    pub(crate) fn busy_ns(&self, pid: Pid) -> f64 {
        let Process { busy_ns, charged: (until, nanos), .. } = &self.processes[pid];
        busy_ns - (until.since(self.now).as_nanos() as f64).min(*nanos)
    }

    fn take_turn(&mut self, pid: Pid) {
        let place = self.processes[pid].place;
        if self.places[place].wants_core(self.is_user(pid), self.processes[pid].held_ns) {
            // Who comes next has the core before this one waits.
            self.give_core(pid);
            self.wait(pid);
            self.processes[pid].pushed_aside = true;
            return;
        }
        let now = self.now;
        let inbox = &mut self.processes[pid].inbox;
        let nanos = match &mut self.programs[pid] {
            Program::Member(member) => member.next_turn(now, inbox).map(|turn| self.carry_out(pid, turn)),
            Program::User(user) => {
                let worker = user.worker;
                user.next_turn(now, &mut inbox.events).map(|(work, command)| {
                    let factor = self.pace.factor();
                    let nanos = self.charge(pid, work, factor);
                    let done = now + Duration::from_nanos(instant(nanos).as_nanos());
                    if let Some(command) = command {
                        self.schedule(done, Happening::Command { to: worker, command });
                    }
                    nanos
                })
            }
        };
        match nanos {
            Some(nanos) => {
                let done = now + Duration::from_nanos(instant(nanos).as_nanos());
                self.schedule(done, Happening::Turn { of: pid });
            }
            None => {
                self.processes[pid].state = State::Asleep;
                self.set_timer(pid);
                self.give_core(pid);
            }
        }
    }

    /// The next process gets the core that another has left.
    fn give_core(&mut self, left_by: Pid) {
        let Process { place, core, .. } = self.processes[left_by];
        match self.places[place].next() {
            Some(next) => {
                self.processes[next].core = core;
                let was_awake = core::mem::take(&mut self.processes[next].pushed_aside);
                let woken = if was_awake { Work::default() } else { Work::of(CostKind::Wake, 1.0) };
                self.begin(next, self.now, woken);
            }
            None => self.places[place].leave(core, self.now),
        }
    }

    fn set_timer(&mut self, pid: Pid) {
        let Program::Member(member) = &self.programs[pid] else { return };
        let step = u64::try_from(TIMER_STEP.as_nanos()).unwrap_or(1);
        let exact = self.processes[pid].line_rate || self.places[self.processes[pid].place].host.polls;
        let due = member
            .due()
            .map(|due| if exact { due } else { Instant::from_nanos(due.as_nanos().next_multiple_of(step)) });
        let due = due.map(|due| due.max(self.now));
        if let Some(due) = due.filter(|due| self.processes[pid].timer != Some(*due)) {
            self.schedule(due, Happening::Timer { of: pid, due });
        }
        self.processes[pid].timer = due;
    }

    /// Sends what left in a turn, each thing when the work before it was done. Returns how long the turn took.
    fn carry_out(&mut self, pid: Pid, turn: Turn) -> f64 {
        let factor = self.pace.factor();
        let speed = self.places[self.processes[pid].place].host.speed;
        for (work, output) in turn.outputs {
            let nanos = factor * self.processes[pid].prices.of(&work) / speed;
            let at = self.now + Duration::from_nanos(instant(nanos).as_nanos());
            self.schedule(at, Happening::Leaves { from: pid, output });
        }
        self.charge(pid, turn.work, factor)
    }

    /// A pipeline of hardware takes packets when they come; messages wait for the processor beside it, which also makes them.
    fn pass_at_line_rate(&mut self, pid: Pid) {
        let now = self.now;
        if !self.processes[pid].inbox.streamed.is_empty() && self.processes[pid].agent_free_at > now {
            // Packets do not wait for it.
            if self.processes[pid].state == State::Asleep {
                self.processes[pid].state = State::Ready;
                self.schedule(self.processes[pid].agent_free_at, Happening::Turn { of: pid });
            }
            let streamed = core::mem::take(&mut self.processes[pid].inbox.streamed);
            self.take_turns_at_line_rate(pid);
            self.processes[pid].inbox.streamed = streamed;
            return;
        }
        self.take_turns_at_line_rate(pid);
    }

    fn take_turns_at_line_rate(&mut self, pid: Pid) {
        let now = self.now;
        loop {
            let Program::Member(member) = &mut self.programs[pid] else { return };
            let Some(turn) = member.next_turn(now, &mut self.processes[pid].inbox) else { break };
            let factor = self.pace.factor();
            let mut free_at = self.processes[pid].agent_free_at.max(now);
            for (work, output) in turn.outputs {
                let at = if matches!(output, Output::Run { .. }) {
                    now
                } else {
                    let nanos = factor * self.processes[pid].prices.of(&work);
                    free_at + Duration::from_nanos(instant(nanos).as_nanos())
                };
                self.schedule(at, Happening::Leaves { from: pid, output });
            }
            let nanos = self.charge(pid, turn.work, factor);
            free_at = free_at + Duration::from_nanos(instant(nanos).as_nanos());
            self.processes[pid].agent_free_at = free_at;
        }
        self.set_timer(pid);
    }

    fn pid_of(&self, address: SocketAddr) -> Option<Pid> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let [_, high, middle, low] = ip.octets();
        let number = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        number.checked_sub(1).filter(|pid| *pid < self.processes.len())
    }

    fn leaves(&mut self, from: Pid, output: Output) {
        match output {
            Output::Run { to, run } => {
                let Some(to) = self.pid_of(to) else { return };
                let train = Train::of_datagrams(run.bytes.len(), run.stride);
                self.depart(from, to, Payload::Run(run), train);
            }
            Output::Message { link, bytes } => {
                let Some((to, far)) = self.far_end(from, link) else { return };
                let train = Train::of_message(bytes.len());
                self.depart(from, to, Payload::Streamed(far, Streamed::Message(bytes)), train);
            }
            Output::Connect { link, to } => {
                let to = match to {
                    Callee::Controller => Some(CONTROLLER),
                    Callee::Server(address) => self.pid_of(address),
                };
                let Some(to) = to else { return };
                let train = Train::of_message(0);
                self.depart(from, to, Payload::Streamed(link, Streamed::Message(Vec::new())), train);
            }
            Output::Close { link } => {
                let far = self.far_end(from, link);
                if let Program::Member(member) = &mut self.programs[from] {
                    member.links.remove(&link);
                }
                if let Some((to, far)) = far {
                    let closed = LinkEvent::Closed { reason: "closed by the other end".to_owned() };
                    self.depart(
                        from,
                        to,
                        Payload::Streamed(far, Streamed::Event(closed)),
                        Train::of_message(0),
                    );
                }
            }
            Output::Event(Event::Worker(event)) => {
                if let Some(user) = self.user_of(from) {
                    self.schedule(self.now, Happening::Event { to: user, event });
                }
            }
            Output::Event(_) => {}
        }
    }

    fn user_of(&self, worker: Pid) -> Option<Pid> {
        self.programs
            .iter()
            .position(|program| matches!(program, Program::User(user) if user.worker == worker))
    }

    fn far_end(&self, pid: Pid, link: Link) -> Option<(Pid, Link)> {
        let Program::Member(member) = &self.programs[pid] else { return None };
        let (stream, end) = *member.links.get(&link)?;
        Some(self.streams[stream][1 - end])
    }

    fn depart(&mut self, from: Pid, to: Pid, payload: Payload, mut train: Train) {
        let (near, far) = (self.processes[from].place, self.processes[to].place);
        if near != far {
            self.bytes_sent += train.bytes as u64;
            self.bytes_under_way += train.bytes as u64;
        }
        let (hop, lost) = self.fabric.leave(self.now, near, far, &mut train);
        self.hop(from, to, payload, train, hop, &lost);
    }

    fn hop(&mut self, from: Pid, to: Pid, payload: Payload, train: Train, hop: Hop, lost: &[usize]) {
        let Some((payload, train)) = self.survivors(payload, train, lost) else { return };
        match hop {
            Hop::AtSwitch(head, tail) => {
                self.schedule(head, Happening::AtSwitch { from, to, payload, train, tail });
            }
            // A stream that is asked for: it is there with its first packet.
            Hop::Arrives(at) => match payload {
                Payload::Streamed(link, Streamed::Message(bytes)) if bytes.is_empty() => {
                    if self.processes[from].place != self.processes[to].place {
                        self.bytes_under_way -= train.bytes as u64;
                        self.bytes_delivered += train.bytes as u64;
                    }
                    self.schedule(at + train.late, Happening::Connected { by: from, link, to });
                }
                payload => {
                    let at = self.in_order(to, &payload, at, train.late);
                    self.schedule(at, Happening::Arrives { from, to, payload, bytes: train.bytes });
                }
            },
            Hop::Dropped => {
                self.bytes_under_way -= train.bytes as u64;
                self.bytes_dropped += train.bytes as u64;
            }
        }
    }

    /// Returns what is left of a train after these datagrams were lost, or `None` if all were.
    fn survivors(&mut self, payload: Payload, train: Train, lost: &[usize]) -> Option<(Payload, Train)> {
        let Payload::Run(mut run) = payload else { return Some((payload, train)) };
        if lost.is_empty() {
            return Some((Payload::Run(run), train));
        }
        let datagrams = run.bytes.chunks(run.stride.max(1)).enumerate();
        run.bytes = datagrams
            .filter(|(place, _)| !lost.contains(place))
            .flat_map(|(_, datagram)| datagram.iter().copied())
            .collect();
        let left = (!run.bytes.is_empty()).then(|| Train::of_datagrams(run.bytes.len(), run.stride));
        let gone = (train.bytes - left.map_or(0, |left| left.bytes)) as u64;
        self.bytes_under_way -= gone;
        self.bytes_lost += gone;
        left.map(|left| (Payload::Run(run), left))
    }

    /// When something is there that would come at a time, and is late: nothing on a stream passes what comes late.
    fn in_order(&mut self, to: Pid, payload: &Payload, at: Instant, late: Duration) -> Instant {
        let Payload::Streamed(link, _) = payload else { return at };
        let held_until = self.held_until.get(&(to, *link)).copied();
        if late > Duration::ZERO || held_until.is_some() {
            let at = (at + late).max(held_until.unwrap_or(at));
            self.held_until.insert((to, *link), at);
            return at;
        }
        at
    }

    fn connected(&mut self, by: Pid, link: Link, to: Pid) {
        let stream = self.streams.len();
        let Program::Member(callee) = &mut self.programs[to] else { return };
        let accepted = Link(Link::ACCEPTED + callee.accepted);
        callee.accepted += 1;
        callee.links.insert(accepted, (stream, 1));
        let there = callee.address;
        let Program::Member(caller) = &mut self.programs[by] else { return };
        caller.links.insert(link, (stream, 0));
        let remote = caller.address;
        self.streams.push([(by, link), (to, accepted)]);
        let opened = |remote| Streamed::Event(LinkEvent::Opened { remote });
        self.processes[to].inbox.streamed.push_back((accepted, opened(remote)));
        self.notify(to);
        self.depart(to, by, Payload::Streamed(link, opened(there)), Train::of_message(0));
    }
}
