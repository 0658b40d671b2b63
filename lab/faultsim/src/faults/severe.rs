//! Faults of connections, clocks and identity that last longer than the timeouts of members.

use core::time::Duration;

use super::EXEMPTION;
use crate::flips::{FlippedBits, Flips};
use crate::network::Host;
use crate::random::Random;
use crate::runner::{Kind, ScenarioRunner, Scheduled};
use crate::scenario::{Fault, Target};
use crate::world::CONTROLLER;

/// Kernels give a stream up on which nothing was acknowledged for so long.
const TIME_OUT: Duration = Duration::from_secs(11);
/// A server that keeps nothing is given up after 10 s of silence, and ends the job.
const SERVER_AWAY_MAX: Duration = Duration::from_secs(7);
/// One with a disk has 30 s (rule M7), which begin with the first stream that breaks, at the latest after 10 s of silence. Another fault may break one
/// at once, or have kept a worker from it for 3 s before.
const RESTARTABLE_SERVER_AWAY_MAX: Duration = Duration::from_secs(26);
/// A controller that was left behind ends what it has left when its servers have been away for 30 s.
const STRAY: Duration = Duration::from_secs(40);
/// Time that a controller that took over a cluster may need until every member that can has joined it.
const TAKE_OVER: Duration = Duration::from_secs(6);

impl ScenarioRunner {
    pub(crate) fn inject_severe(&mut self, fault: Fault) {
        match fault {
            Fault::OneWay { victim, receives, lasts } => self.cut_one_way(victim, receives, lasts),
            Fault::SleepsLong { victim, machine, lasts } => self.put_to_long_sleep(victim, machine, lasts),
            Fault::ClockJumps { victim, by } => self.jump_clock(victim, by),
            Fault::StreamsStranded { late } => self.strand_streams(late),
            Fault::SecondController { sleeps, returns } => self.start_second_controller(sleeps, returns),
            Fault::BitsFlip { bits, chance, lasts } => self.flip_bits(bits, chance, lasts),
            _ => {}
        }
    }

    /// A member of a kind. It may be given up, and so may switches: a server that is away holds them up.
    fn victim(&mut self, victim: Target, lasts: Duration) -> Option<Host> {
        let host = match victim {
            Target::Controller => Some(self.controller).filter(|host| self.world.is_awake(*host)),
            Target::Server => self.pick(Kind::Server, false),
            Target::Switch => self.pick(Kind::Switch, false),
            Target::Worker => self.pick(Kind::Worker, true),
        }?;
        self.world.shards_of(host).into_iter().for_each(|shard| self.exempt(shard, lasts));
        self.switches_exempt_until = self.switches_exempt_until.max(self.now() + lasts + EXEMPTION);
        Some(host)
    }

    /// No member may be without a controller and a server at once.
    fn keeps_servers_busy(&mut self, victim: Target, lasts: Duration) -> bool {
        let now = self.now();
        if !matches!(victim, Target::Server | Target::Controller) {
            return true;
        }
        if now < self.servers_busy_until {
            return false;
        }
        self.servers_busy_until = now + lasts + TAKE_OVER;
        true
    }

    fn bounded(&self, victim: Target, lasts: Duration) -> Duration {
        // A member without messages of a controller goes on for 30 s.
        match victim {
            Target::Server if self.scenario.durability.needs_disk() => lasts.min(RESTARTABLE_SERVER_AWAY_MAX),
            Target::Server => lasts.min(SERVER_AWAY_MAX),
            Target::Controller | Target::Switch | Target::Worker => lasts,
        }
    }

    fn others(&self, host: Host) -> Vec<Host> {
        let shards = self.world.shards_of(host);
        (0..self.kinds.len()).filter(|other| !shards.contains(other)).collect()
    }

    fn cut_one_way(&mut self, victim: Target, receives: bool, lasts: Duration) {
        let lasts = match victim {
            // Members whose controller is silent for 10 s, or who are silent to it, are given up one and all.
            Target::Controller => lasts.min(Duration::from_millis(1500)),
            _ => self.bounded(victim, lasts),
        };
        if !self.keeps_servers_busy(victim, lasts) {
            return;
        }
        let Some(host) = self.victim(victim, lasts) else { return };
        self.count_fault(if receives { "receives nothing" } else { "sends are lost" });
        if victim == Target::Controller {
            self.exempt_all(lasts);
        }
        let (host, others) = (self.world.shards_of(host), self.others(host));
        let (ones, others) = if receives { (others, host) } else { (host, others) };
        self.cut(ones, others, false, lasts);
    }

    fn cut(&mut self, ones: Vec<Host>, others: Vec<Host>, both: bool, lasts: Duration) {
        self.world.partition(&ones, &others, both);
        let now = self.now();
        if lasts > TIME_OUT {
            self.schedule(now + TIME_OUT, Scheduled::TimeOut { ones: ones.clone(), others: others.clone() });
        }
        self.schedule(now + lasts, Scheduled::Heal { ones, others, both });
    }

    fn put_to_long_sleep(&mut self, victim: Target, machine: bool, lasts: Duration) {
        let lasts = self.bounded(victim, lasts);
        if !self.keeps_servers_busy(victim, lasts) {
            return;
        }
        let Some(host) = self.victim(victim, lasts) else { return };
        self.count_fault(if machine { "machine is suspended" } else { "sleeps for long" });
        if victim == Target::Controller && machine {
            self.exempt_all(lasts);
        }
        self.put_to_sleep(host, lasts);
        if machine {
            // Its kernel sleeps, too: its streams are given up by those at the other end.
            let others = self.others(host);
            self.cut(self.world.shards_of(host), others, true, lasts);
        }
    }

    fn jump_clock(&mut self, victim: Target, by: Duration) {
        let host = match victim {
            Target::Controller => Some(self.controller).filter(|host| self.world.is_alive(*host)),
            Target::Server => self.pick(Kind::Server, false),
            // What a switch has brought to a shard seems to be unanswered for long: it gives up, which is safe.
            Target::Switch => self.pick(Kind::Switch, false),
            // It is not fatal: not even the worker that must live to the end is exempt.
            Target::Worker => self.pick(Kind::Worker, false),
        };
        let Some(host) = host else { return };
        if victim == Target::Switch {
            self.exempt(host, Duration::ZERO);
        }
        self.count_fault("clock jumps");
        // One that just calls another again is the one to blame it.
        if self.random.chance(0.4) {
            let others = self.others(host);
            let other = *self.random.pick(&others);
            if self.kinds[other] == Kind::Switch || self.kinds[host] == Kind::Switch {
                self.switches_exempt_until = self.switches_exempt_until.max(self.now() + EXEMPTION);
            }
            if !self.world.must_keep_streams(host, other) {
                self.world.reset_streams(host, other);
            }
            let at = self.now() + self.random.up_to(Duration::from_millis(120));
            return self.schedule(at, Scheduled::Jump(host, by));
        }
        self.world.shards_of(host).into_iter().for_each(|shard| self.world.jump_clock(shard, by));
    }

    fn strand_streams(&mut self, late: Duration) {
        self.count_fault("streams are stranded");
        self.switches_exempt_until = self.switches_exempt_until.max(self.now() + late + EXEMPTION);
        for _ in 0..self.random.within(1..=6) {
            let server = self.random.chance(0.7);
            let acceptor = self.pick(if server { Kind::Server } else { Kind::Controller }, false);
            let worker = self.random.chance(0.6);
            let caller = self.pick(if worker { Kind::Worker } else { Kind::Switch }, false);
            let (Some(acceptor), Some(caller)) = (acceptor, caller) else { return };
            // The caller calls again at once; the callee is notified late.
            if self.random.chance(0.8) {
                self.world.strand_streams(caller, acceptor, late);
            } else {
                self.world.strand_streams(acceptor, caller, late.min(Duration::from_secs(1)));
            }
        }
    }

    fn exempt_all(&mut self, lasts: Duration) {
        for host in 0..self.kinds.len() {
            self.exempt(host, lasts);
        }
    }

    /// The address of the controller moves to another one, while the first still runs: who must call again reaches the second.
    fn start_second_controller(&mut self, sleeps: bool, returns: bool) {
        let now = self.now();
        let first = self.controller;
        if now < self.servers_busy_until || self.is_split || !self.world.is_awake(first) {
            return;
        }
        self.count_fault(if sleeps {
            "a second controller, the first sleeps"
        } else {
            "a second controller"
        });
        self.is_split = true;
        // Members that stay with the first are notified in the end that it has lost its servers.
        self.exempt_all(STRAY);
        self.servers_busy_until = now + TAKE_OVER * 2;
        if sleeps {
            self.world.pause(first);
            let wakes_at = now + self.random.duration(Duration::from_secs(1)..TAKE_OVER);
            self.schedule(wakes_at, Scheduled::Resume(first));
        }
        let second = self.add_host(Kind::Controller);
        self.controller = second;
        self.world.redirect(CONTROLLER, second);
        self.start(second, Kind::Controller);
        // Some workers and switches stay with the first, and follow it.
        let protected = self.protected();
        for host in 0..self.kinds.len() {
            let may_stay = matches!(self.kinds[host], Kind::Worker | Kind::Switch) && Some(host) != protected;
            if self.kinds[host] != Kind::Controller && !(may_stay && self.random.chance(0.4)) {
                let at = now + self.random.up_to(Duration::from_millis(300));
                self.schedule(at, Scheduled::Part(first, host));
            }
        }
        if returns {
            // The address goes back to the first: members that have seen the second come to it.
            let at = now + self.random.duration(Duration::from_secs(3)..TAKE_OVER);
            self.schedule(at, Scheduled::GoBack { from: second, to: first });
        }
    }

    /// The second controller dies, and its members find the first at its address.
    pub(crate) fn go_back(&mut self, from: Host, to: Host) {
        if self.quiesced_at.is_some() || !self.world.is_alive(to) {
            return;
        }
        self.exempt_all(TAKE_OVER * 2);
        self.world.redirect(CONTROLLER, to);
        self.controller = to;
        self.world.crash(from);
        self.servers_busy_until = self.now() + TAKE_OVER * 2;
    }

    /// A controller has ended, though the job has not: another has its cluster, or none. The operator starts it again if it is to be
    /// called.
    pub(crate) fn controller_failed(&mut self, host: Host, reason: &str) {
        self.finished |= self.scenario.is_unprotected;
        if !self.is_split {
            return self.violate("liveness", format!("the job fails: {reason}"));
        }
        self.world.exit(host);
        if host == self.controller {
            self.start(host, Kind::Controller);
        }
    }

    /// Ends the other controllers once a member has noticed that there are two.
    pub(crate) fn end_other_controllers(&mut self) {
        let others: Vec<Host> = self.alive(Kind::Controller);
        for host in others.into_iter().filter(|host| *host != self.controller) {
            self.world.crash(host);
        }
    }

    fn flip_bits(&mut self, bits: FlippedBits, chance: f64, lasts: Duration) {
        self.count_fault(match bits {
            FlippedBits::Compared => "bits flip in what is compared",
            FlippedBits::Any => "bits flip anywhere",
        });
        let lanes = usize::from(self.scenario.hot_path.lanes);
        let random = Random::new(self.random.bits());
        self.world.flips = Some(Flips { bits, chance, lanes, random });
        // What is refused as stale, and what is lost, takes its time; who flips it may be a switch, as others see it.
        self.switches_exempt_until = self.switches_exempt_until.max(self.now() + lasts + EXEMPTION);
        self.schedule(self.now() + lasts, Scheduled::BitsStay);
    }
}
