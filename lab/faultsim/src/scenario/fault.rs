//! The faults of a scenario, and how they are drawn.

use core::time::Duration;

use crate::flips::FlippedBits;
use crate::random::Random;

/// A fault of a member, which is drawn when it happens, from those that run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A switch's process is killed, or its machine loses power. It may come back.
    SwitchDies {
        /// The machine, so that no stream is reset.
        machine: bool,
        /// After how long another process starts in its place.
        returns: Option<Duration>,
    },
    /// A switch sleeps.
    SwitchSleeps(Duration),
    /// A switch is cut off.
    SwitchCutOff(CutOff),
    /// Another switch comes.
    SwitchJoins,
    /// The controller moves everything from a switch to others.
    Migration,
    /// The links of a switch get worse for a while.
    SwitchDegrades(Duration),
    /// A worker's process is killed, or its machine loses power. Another worker may come in its place.
    WorkerDies {
        /// The machine, so that no stream is reset.
        machine: bool,
        /// After how long another process starts in its place.
        returns: Option<Duration>,
    },
    /// The processes of all workers are killed, or their machines lose power. Others come in their places.
    AllWorkersDie {
        /// The machines, so that no stream is reset.
        machine: bool,
        /// After how long.
        returns: Duration,
    },
    /// A worker sleeps.
    WorkerSleeps(Duration),
    /// A worker is cut off.
    WorkerCutOff(CutOff),
    /// Another worker comes, if a share is free.
    WorkerJoins,
    /// A worker leaves.
    WorkerLeaves,
    /// The controller dies, and another starts after a while.
    ControllerDies {
        /// The machine, so that no stream is reset.
        machine: bool,
        /// After how long.
        returns: Duration,
    },
    /// The controller sleeps.
    ControllerSleeps(Duration),
    /// A server sleeps.
    ServerSleeps(Duration),
    /// A server is cut off.
    ServerCutOff(CutOff),
    /// A server's process is killed, or its machine loses power and forgets what was not synced. It comes back.
    ServerDies {
        /// The machine, so that no stream is reset.
        machine: bool,
        /// After how long another process starts in its place.
        returns: Duration,
    },
    /// A switch is asked to end. It may come back.
    SwitchDrains {
        /// After how long another process starts in its place.
        returns: Option<Duration>,
    },
    /// A server is asked to end. It comes back.
    ServerDrains {
        /// After how long another process starts in its place.
        returns: Duration,
        /// True if that has another address.
        moves: bool,
        /// True if its machine fails when it has ended.
        machine: bool,
    },
    /// A server's process is killed, and the one that comes back has another address.
    ServerMoves {
        /// After how long.
        returns: Duration,
    },
    /// The disk of a server takes no more, for so long.
    DiskFull(Duration),
    /// Streams break, some of them just when something is on its way.
    StreamsBreak,
    /// Datagrams come from strangers, and copies of old datagrams of the job.
    Foreign,
    /// Forged answers come, with the header of an answer of a switch and another `durable`.
    ForgedAnswers,
    /// An adversary who has read packets sends others that it has no keys for.
    ForgedPackets,
    /// A process that is no member calls a server in the name of a worker.
    Impostor,
    /// So many syncs of the disk of a server fail. The next one succeeds, whatever became of what they were about.
    SyncsFail {
        /// Of files.
        files: u64,
        /// Of directories.
        directories: u64,
        /// True if what they were about is left to the next sync, rather than forgotten.
        kept: bool,
    },
    /// The disk of a server is slow for a while.
    DiskSlow {
        /// For how long.
        lasts: Duration,
        /// Delay that is added to a sync.
        by: Duration,
    },
    /// Of one member nothing arrives any more, or nothing arrives at it; the other direction passes, as far as a stream goes without
    /// acknowledgements.
    OneWay {
        /// The kind of member.
        victim: Target,
        /// True if it receives nothing; else nothing that it sends arrives.
        receives: bool,
        /// For how long.
        lasts: Duration,
    },
    /// A member sleeps for longer than the timeouts of others.
    SleepsLong {
        /// The kind of member.
        victim: Target,
        /// With its machine, so that its streams are given up.
        machine: bool,
        /// For how long.
        lasts: Duration,
    },
    /// The clock of a process jumps ahead between two calls.
    ClockJumps {
        /// The kind of member.
        victim: Target,
        /// By how much.
        by: Duration,
    },
    /// Streams end at one end, and what was under way to the other arrives after another one is open.
    StreamsStranded {
        /// By how much it is late at most.
        late: Duration,
    },
    /// The address of the controller moves to another while it still runs.
    SecondController {
        /// True if the first one sleeps meanwhile.
        sleeps: bool,
        /// True if the address goes back to it.
        returns: bool,
    },
    /// Bits of datagrams flip where no checksum sees it.
    BitsFlip {
        /// The fields.
        bits: FlippedBits,
        /// The chance that a datagram is hit.
        chance: f64,
        /// For how long.
        lasts: Duration,
    },
}

/// Kind of member that a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The controller.
    Controller,
    /// A server.
    Server,
    /// A switch.
    Switch,
    /// A worker.
    Worker,
}

/// A partition between a member and others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutOff {
    /// From whom.
    pub from: Side,
    /// True if nothing passes in either direction; else only what it sends is lost.
    pub both: bool,
    /// For how long.
    pub lasts: Duration,
    /// True if its streams break meanwhile.
    pub breaks: bool,
}

/// The other side of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The controller.
    Controller,
    /// The servers.
    Servers,
    /// The workers; the switches if it is a worker; both if it is a server.
    Peers,
    /// Everybody.
    All,
}

/// Number of kinds of faults.
pub(super) const KINDS: u8 = 19;

/// Draws the number of faults of a scenario, and the kinds of faults that it has at all.
pub(super) fn draw_faults(random: &mut Random, safety: Duration, planned: bool) -> Vec<(Duration, Fault)> {
    let kinds: Vec<u8> = (0..KINDS).filter(|_| random.chance(0.4)).collect();
    let count = if kinds.is_empty() { 0 } else { random.within(0..=14) };
    let mut faults: Vec<(Duration, Fault)> = (0..count)
        .map(|_| {
            let at = random.up_to(safety.mul_f64(0.9));
            let kind = *random.pick(&kinds);
            (at, draw_fault(random, kind))
        })
        .filter(|(_, fault)| planned || !matches!(fault, Fault::SwitchJoins))
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn draw_fault(random: &mut Random, kind: u8) -> Fault {
    let ms = Duration::from_millis;
    let returns = |random: &mut Random| random.chance(0.7).then(|| random.duration(ms(1)..ms(2000)));
    match kind {
        0 => Fault::SwitchDies { machine: random.chance(0.5), returns: returns(random) },
        1 => Fault::SwitchSleeps(random.duration(ms(20)..ms(3000))),
        2 => Fault::SwitchCutOff(draw_cut_off(random, ms(3000))),
        3 => Fault::SwitchJoins,
        4 => Fault::Migration,
        5 => Fault::SwitchDegrades(random.duration(ms(300)..ms(6000))),
        6 => Fault::WorkerDies { machine: random.chance(0.3), returns: returns(random) },
        7 => Fault::WorkerSleeps(random.duration(ms(20)..ms(4000))),
        8 => Fault::WorkerCutOff(draw_cut_off(random, ms(3000))),
        9 => Fault::WorkerJoins,
        10 => Fault::WorkerLeaves,
        11 => {
            Fault::ControllerDies { machine: random.chance(0.3), returns: random.duration(ms(10)..ms(3000)) }
        }
        12 => Fault::ControllerSleeps(random.duration(ms(20)..ms(2000))),
        13 => Fault::ServerSleeps(random.duration(ms(20)..ms(1200))),
        14 => Fault::StreamsBreak,
        15 => Fault::ServerCutOff(draw_cut_off(random, ms(900))),
        16 => Fault::ServerDies { machine: random.chance(0.5), returns: random.duration(ms(1)..ms(3000)) },
        17 => Fault::DiskFull(random.duration(ms(20)..ms(6000))),
        _ => Fault::Foreign,
    }
}

/// Number of kinds of severe faults.
pub(super) const SEVERE_KINDS: u8 = 6;

pub(super) fn draw_severe_fault(random: &mut Random, kind: u8, lasts_long: bool) -> Fault {
    let ms = Duration::from_millis;
    let victim = *random.pick(&[Target::Controller, Target::Server, Target::Switch, Target::Worker]);
    let longest = ms(if lasts_long { 38_000 } else { 5000 });
    let lasts = random.duration(longest / 20..longest);
    match kind {
        0 => Fault::OneWay { victim, receives: random.chance(0.5), lasts },
        1 => Fault::SleepsLong { victim, machine: random.chance(0.5), lasts },
        2 => Fault::ClockJumps { victim, by: random.duration(ms(200)..ms(600_000)) },
        3 => Fault::StreamsStranded { late: random.duration(ms(10)..ms(3000)) },
        4 => Fault::SecondController { sleeps: random.chance(0.5), returns: random.chance(0.5) },
        _ => Fault::BitsFlip {
            bits: FlippedBits::Compared,
            chance: 0.3 * random.unit() * random.unit(),
            lasts,
        },
    }
}

fn draw_cut_off(random: &mut Random, longest: Duration) -> CutOff {
    CutOff {
        from: *random.pick(&[Side::Controller, Side::Servers, Side::Peers, Side::All]),
        both: random.chance(0.7),
        lasts: random.duration(Duration::from_millis(50)..longest),
        breaks: random.chance(0.4),
    }
}
