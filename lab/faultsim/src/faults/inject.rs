//! Fault injection: applies the faults of a scenario to the members that run.

use core::time::Duration;

use libra_dataplane::{Flags, HEADER_BYTES, Header, Kind as PacketKind};
use libra_proto::{ControllerCommand, FLOW_PACKETS_MAX, Instant, Peer, Role};

use crate::network::{Host, Quality};
use crate::process::AnyRole;
use crate::runner::{Kind, ScenarioRunner, Scheduled};
use crate::scenario::{CutOff, Fault, Side};
use crate::workload::{Progress, User};

/// After a fault, a member may be given up for so long: a machine that is gone is noticed by its
/// silence.
pub(crate) const EXEMPTION: Duration = Duration::from_secs(16);
/// Servers, and workers that must live to the end, are never away for longer: their place is kept for 2 s.
pub(super) const SHORT: Duration = Duration::from_millis(900);
/// After a controller has come back, it takes this long until its members have rejoined.
const RECOVERY: Duration = Duration::from_millis(3500);

impl ScenarioRunner {
    pub(crate) fn inject(&mut self, fault: Fault) {
        let now = self.now();
        self.world.note(&format!("fault: {fault:?}"));
        match fault {
            Fault::SwitchDies { machine, returns } => {
                if let Some(host) = self.pick(Kind::Switch, true) {
                    self.count_fault(if machine { "switch machine fails" } else { "switch crashes" });
                    self.kill(host, Kind::Switch, machine, returns);
                }
            }
            Fault::SwitchSleeps(lasts) => {
                if let Some(host) = self.pick(Kind::Switch, true) {
                    self.count_fault("switch sleeps");
                    self.put_to_sleep(host, lasts);
                }
            }
            Fault::SwitchCutOff(cut_off) => {
                if let Some(host) = self.pick(Kind::Switch, false) {
                    self.count_fault("switch is cut off");
                    self.cut_off(host, cut_off);
                }
            }
            Fault::SwitchJoins => {
                self.count_fault("switch joins");
                let host = self.add_host(Kind::Switch);
                self.start(host, Kind::Switch);
            }
            Fault::Migration => self.migrate(),
            Fault::SwitchDegrades(lasts) => {
                if let Some(host) = self.pick(Kind::Switch, false) {
                    self.count_fault("switch degrades");
                    self.degrade(host, lasts);
                }
            }
            Fault::WorkerDies { machine, returns } => {
                if let Some(host) = self.pick(Kind::Worker, true) {
                    self.count_fault(if machine { "worker machine fails" } else { "worker crashes" });
                    self.kill(host, Kind::Worker, machine, returns);
                }
            }
            Fault::AllWorkersDie { machine, returns } => {
                // Each that comes takes a number, and a job without numbers is over.
                let given = self.world.observer.roster.newest().map_or(0, |view| view.next_worker);
                let left = self.scenario.cluster().worker_numbers().saturating_sub(given);
                if usize::from(left) > 2 * self.hosts_of(Kind::Worker).len() {
                    self.count_fault("all workers die");
                    for host in self.alive(Kind::Worker) {
                        self.kill(host, Kind::Worker, machine, Some(returns));
                    }
                }
            }
            Fault::WorkerSleeps(lasts) => {
                if let Some(host) = self.pick(Kind::Worker, true) {
                    self.count_fault("worker sleeps");
                    self.put_to_sleep(host, lasts);
                }
            }
            Fault::WorkerCutOff(cut_off) => {
                if let Some(host) = self.pick(Kind::Worker, true) {
                    self.count_fault("worker is cut off");
                    self.cut_off(host, cut_off);
                }
            }
            Fault::WorkerJoins => {
                self.count_fault("worker joins");
                let host = self.add_host(Kind::Worker);
                self.start(host, Kind::Worker);
            }
            Fault::WorkerLeaves => {
                if let Some(host) = self.pick(Kind::Worker, true)
                    && let Some(user) = self.users.get_mut(&host)
                {
                    user.leaving = true;
                    self.count_fault("worker leaves");
                }
            }
            Fault::ControllerDies { machine, returns } => self.kill_controller(machine, returns),
            Fault::ControllerSleeps(lasts) => {
                let controller = self.controller;
                if self.world.is_awake(controller) {
                    self.count_fault("controller sleeps");
                    self.world.pause(controller);
                    self.schedule(now + lasts, Scheduled::Resume(controller));
                }
            }
            Fault::ServerSleeps(lasts) => self.put_server_to_sleep(lasts),
            Fault::ServerCutOff(cut_off) => self.cut_server_off(cut_off),
            Fault::ServerDies { machine, returns } => {
                self.kill_server(machine, returns);
            }
            Fault::SwitchDrains { returns } => self.drain_switch(returns),
            Fault::ServerDrains { returns, moves, machine } => self.drain_server(returns, moves, machine),
            Fault::ServerMoves { returns } => {
                if let Some(host) = self.kill_server(false, returns) {
                    self.move_server(host);
                }
            }
            Fault::DiskFull(lasts) => self.fill_disk(lasts),
            Fault::StreamsBreak => self.break_streams(),
            Fault::Foreign => self.send_foreign_packets(),
            Fault::ForgedAnswers => self.forge_answers(),
            Fault::ForgedPackets => self.forge_packets(),
            Fault::Impostor => self.send_impostor(),
            Fault::SyncsFail { files, directories, kept } => {
                if let Some(host) = self.pick_disk() {
                    self.count_fault("syncs fail");
                    let disk = self.world.disk(host);
                    disk.fail_syncs(disk.syncs()..disk.syncs() + files);
                    disk.fail_directory_syncs(directories);
                    disk.keep_after_failed_syncs(kept);
                }
            }
            Fault::DiskSlow { lasts, by } => {
                if let Some(host) = self.pick_disk() {
                    self.count_fault("disk is slow");
                    let random = self.random_of_disks.fork(host as u64);
                    self.world.slow_disk(host, now + lasts, by, random);
                    // A switch gives up when a shard has not committed for 2 s what it was sent.
                    self.switches_exempt_until = self.switches_exempt_until.max(now + lasts + EXEMPTION);
                }
            }
            severe => self.inject_severe(severe),
        }
    }

    /// Picks a member of a kind that runs and is awake. The worker that must live to the end is exempt from fatal faults.
    pub(crate) fn pick(&mut self, kind: Kind, fatal: bool) -> Option<Host> {
        let protected = self.protected().filter(|_| fatal);
        let mut there = self.alive(kind);
        there.retain(|host| Some(*host) != protected && self.world.is_awake(*host));
        (!there.is_empty()).then(|| *self.random.pick(&there))
    }

    pub(crate) fn exempt(&mut self, host: Host, lasts: Duration) {
        let until = self.now() + lasts + EXEMPTION;
        let exempt = self.exempt.entry(host).or_insert(Instant::ZERO);
        *exempt = until.max(*exempt);
    }

    fn kill(&mut self, host: Host, kind: Kind, machine: bool, returns: Option<Duration>) {
        self.exempt(host, Duration::ZERO);
        self.down.insert(host);
        if let Some(user) = self.users.get_mut(&host) {
            user.end();
        }
        if machine {
            self.world.fail_machine(host);
        } else {
            self.world.crash(host);
        }
        if let Some(returns) = returns {
            let at = self.now() + returns;
            self.schedule(at, Scheduled::Start(host, kind));
        }
    }

    pub(crate) fn put_to_sleep(&mut self, host: Host, lasts: Duration) {
        let at = self.now() + lasts;
        for shard in self.world.shards_of(host) {
            self.exempt(shard, lasts);
            self.world.pause(shard);
            self.schedule(at, Scheduled::Resume(shard));
        }
    }

    pub(super) fn hosts_of(&self, kind: Kind) -> Vec<Host> {
        (0..self.kinds.len()).filter(|host| self.kinds[*host] == kind).collect()
    }

    fn cut_off(&mut self, host: Host, cut_off: CutOff) {
        let CutOff { from, both, lasts, breaks } = cut_off;
        let ones = self.world.shards_of(host);
        ones.iter().for_each(|one| self.exempt(*one, lasts));
        let others: Vec<Host> = match (from, self.kinds[host]) {
            (Side::Controller, _) => vec![self.controller],
            (Side::Servers, Kind::Server) | (Side::Peers, Kind::Switch) => self.hosts_of(Kind::Worker),
            (Side::Servers, _) => self.hosts_of(Kind::Server),
            (Side::Peers, Kind::Server) => {
                [Kind::Switch, Kind::Worker].map(|kind| self.hosts_of(kind)).concat()
            }
            (Side::Peers, _) => self.hosts_of(Kind::Switch),
            (Side::All, _) => (0..self.kinds.len()).filter(|other| !ones.contains(other)).collect(),
        };
        self.world.partition(&ones, &others, both);
        if breaks {
            for (one, other) in ones.iter().flat_map(|one| others.iter().map(move |other| (*one, *other))) {
                self.world.reset_streams(one, other);
            }
        }
        let at = self.now() + lasts;
        self.schedule(at, Scheduled::Heal { ones, others, both });
    }

    fn cut_server_off(&mut self, cut_off: CutOff) {
        let now = self.now();
        if now < self.servers_busy_until {
            return;
        }
        if let Some(host) = self.pick(Kind::Server, false) {
            self.count_fault("server is cut off");
            self.servers_busy_until = now + cut_off.lasts + SHORT;
            // A switch that cannot bring its rounds to a shard gives up.
            for switch in self.alive(Kind::Switch) {
                self.exempt(switch, cut_off.lasts);
            }
            self.cut_off(host, cut_off);
        }
    }

    fn degrade(&mut self, host: Host, lasts: Duration) {
        // What comes late is late for its heartbeats, too.
        self.exempt(host, lasts);
        let quality = self.world.network.quality();
        let worse = Quality {
            loss: quality.loss.max(0.05 + 0.4 * self.random.unit()),
            delay: quality.delay + self.random.up_to(Duration::from_millis(60)),
            ..quality
        };
        self.world.network.set_quality_of(host, Some(worse));
        let at = self.now() + lasts;
        self.schedule(at, Scheduled::Mend(host));
    }

    fn migrate(&mut self) {
        let Some(host) = self.pick(Kind::Switch, false) else { return };
        let peer = self.world.actor(host).and_then(|actor| self.world.observer.roster.peer(actor));
        let Some(Peer::Switch(switch)) = peer else { return };
        self.count_fault("migration");
        self.world.act(self.controller, |role, now| {
            if let AnyRole::Controller(controller) = role {
                controller.handle_command(now, ControllerCommand::Migrate { switch });
            }
        });
        // Who is to hold a region finds its stream to the shard broken.
        if self.random.chance(0.3) {
            self.switches_exempt_until = self.now() + EXEMPTION;
            let switches = self.alive(Kind::Switch);
            if let Some(server) = self.pick(Kind::Server, false) {
                switches.into_iter().for_each(|switch| self.world.reset_streams(server, switch));
            }
        }
    }

    fn kill_controller(&mut self, machine: bool, returns: Duration) {
        let now = self.now();
        if !self.world.is_alive(self.controller) || now < self.servers_busy_until {
            return;
        }
        self.count_fault(if machine { "controller machine fails" } else { "controller crashes" });
        self.servers_busy_until = now + returns + RECOVERY;
        // The new one gives up members that are disturbed when it looks for them.
        let disturbed: Vec<Host> = self.exempt.keys().copied().collect();
        disturbed.into_iter().for_each(|host| self.exempt(host, returns));
        if machine {
            self.world.fail_machine(self.controller);
        } else {
            self.world.crash(self.controller);
        }
        self.schedule(now + returns, Scheduled::Start(self.controller, Kind::Controller));
    }

    fn put_server_to_sleep(&mut self, lasts: Duration) {
        let now = self.now();
        let lasts = lasts.min(SHORT);
        if now < self.servers_busy_until {
            return;
        }
        if let Some(host) = self.pick(Kind::Server, false) {
            self.count_fault("server sleeps");
            self.servers_busy_until = now + lasts + SHORT;
            for shard in self.world.shards_of(host) {
                self.world.pause(shard);
                self.schedule(now + lasts, Scheduled::Resume(shard));
            }
        }
    }

    /// A server dies, and comes back with what is on its disk. One that goes on without its log would have lost something.
    fn kill_server(&mut self, machine: bool, returns: Duration) -> Option<Host> {
        let now = self.now();
        if !self.scenario.durability.log || now < self.servers_busy_until {
            return None;
        }
        let host = self.pick(Kind::Server, false)?;
        let shards = self.world.shards_of(host);
        if shards.iter().any(|shard| self.without_log.contains(shard) || self.full.contains(shard)) {
            return None;
        }
        self.count_fault(if machine { "server machine fails" } else { "server crashes" });
        let away = returns + self.draw_restore_time(host);
        self.servers_busy_until = now + away + SHORT;
        self.miss_server(away);
        // All of its shards die with the process, and come back with it.
        for shard in shards.into_iter().rev() {
            self.kill(shard, Kind::Server, machine, Some(returns));
        }
        Some(host)
    }

    /// One of those who have a disk, drawn so that nothing else is drawn in another way.
    fn pick_disk(&mut self) -> Option<Host> {
        let there = self.alive(Kind::Server);
        (!there.is_empty()).then(|| *self.random_of_disks.pick(&there))
    }

    fn fill_disk(&mut self, lasts: Duration) {
        if !self.scenario.durability.needs_disk() {
            return;
        }
        let Some(host) = self.pick(Kind::Server, false) else { return };
        if !self.full.insert(host) {
            return;
        }
        self.count_fault("disk is full");
        let room = self.random.within(0..=3000);
        let disk = self.world.disk(host);
        disk.set_capacity(Some(disk.used() + room));
        self.schedule(self.now() + lasts, Scheduled::MakeRoom(host));
    }

    /// The disk of a machine works as it should, if it has one.
    pub(crate) fn mend_disk(&mut self, host: Host) {
        if self.kinds[host] == Kind::Server && self.scenario.durability.needs_disk() {
            let disk = self.world.disk(host);
            disk.fail_syncs(0..0);
            disk.fail_directory_syncs(0);
            self.world.mend_slow_disk(host);
        }
        self.make_room(host);
    }

    pub(crate) fn make_room(&mut self, host: Host) {
        if self.full.remove(&host) {
            self.world.disk(host).set_capacity(None);
        }
    }

    fn break_streams(&mut self) {
        self.count_fault("streams break");
        let armed = self.random.within(0..=4);
        self.world.break_under_way(armed);
        // A switch whose stream breaks has 200 ms to come back, which are over soon on a network that loses datagrams.
        self.switches_exempt_until = self.now() + EXEMPTION;
        for _ in 0..self.random.within(1..=6) {
            let server = self.random.chance(0.7);
            let Some(one) = self.pick(if server { Kind::Server } else { Kind::Controller }, false) else {
                return;
            };
            let worker = self.random.chance(0.6);
            let Some(other) = self.pick(if worker { Kind::Worker } else { Kind::Switch }, false) else {
                return;
            };
            self.world.reset_streams(one, other);
        }
    }

    /// The number of a worker that runs, and not on this host.
    fn another_worker(&self, host: Host) -> Option<u16> {
        let runs = |user: &&User| user.is_there() && user.progress > Progress::Starting && user.host != host;
        self.users.values().find(runs).map(|user| user.worker)
    }

    /// Answers that must not count: an attacker that sees an answer of a switch arrive can write another with the same header, but for what it
    /// says, and send it from the address of the switch. What its number names has been answered.
    fn forge_answers(&mut self) {
        self.count_fault("forged answers");
        for _ in 0..40 {
            let answers = self.world.observer.answers();
            if answers.is_empty() {
                return;
            }
            let (switch, worker, header) = answers[self.random.index(answers.len())];
            let ahead = self.random.within(1..=0x7fff);
            let durable = header.durable.wrapping_add(u16::try_from(ahead).expect("it has 15 bits"));
            let forged = Header { durable, entries: 0, ..header };
            let forged = match self.random.below(4) {
                // What was refused is not accepted, so an acceptance of it would be new: without a MAC it cannot be detected.
                0 if header.kind == PacketKind::Ack || header.seq >= FLOW_PACKETS_MAX => {
                    Header { kind: PacketKind::Ack, flags: Flags::NONE, ..forged }
                }
                1 => Header { kind: PacketKind::Pull, flags: Flags::VALUES, ..forged },
                _ => {
                    let reason = self.random.small(0..=8);
                    Header { kind: PacketKind::Nack, flags: Flags::NONE, round: reason, ..forged }
                }
            };
            if self.world.is_awake(worker) {
                self.world.inject(switch, worker, forged.to_bytes().to_vec());
            }
        }
    }

    /// Packets that must not count: of other jobs, other workers, other plans and views, and from strangers.
    fn send_foreign_packets(&mut self) {
        self.count_fault("foreign packets");
        for _ in 0..20 {
            let captured = self.world.observer.captured();
            if captured.is_empty() {
                return;
            }
            let (from, to, mut bytes) = captured[self.random.index(captured.len())].clone();
            let Ok(mut header) = Header::parse(&bytes) else { continue };
            let mut sender = self.world.address(from);
            let mut changed = true;
            match self.random.below(8) {
                0 => header.job ^= 1,
                1 => match self.another_worker(from) {
                    Some(other) => header.worker = other,
                    None => continue,
                },
                2 => header.plan = header.plan.wrapping_add(1),
                3 => header.view ^= 0x8000,
                4 => header.kind = PacketKind::Install,
                5 => header.kind = PacketKind::Drain,
                6 => {
                    sender = self.world.address(self.random.index(self.kinds.len()));
                    changed = sender != self.world.address(from);
                }
                // Nothing but late.
                _ => changed = false,
            }
            if header.kind != PacketKind::Push {
                header.flags = Flags::NONE;
            }
            if changed {
                // One that the window would take.
                header.seq = header.seq.saturating_add(1 + u32::from(self.random.small(0..=40)));
            }
            header.emit(&mut bytes);
            if changed {
                // Were it added, it would show.
                for value in bytes[HEADER_BYTES..].chunks_exact_mut(6) {
                    value[5] ^= 1;
                }
            }
            if self.world.is_awake(to) {
                self.world.inject(sender, to, bytes);
            }
        }
    }
}
