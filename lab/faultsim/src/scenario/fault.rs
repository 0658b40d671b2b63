//! The faults of a scenario, and how they are drawn.

use core::time::Duration;

use crate::flips::FlippedBits;
use crate::random::Random;

/// Something that befalls a member. Whom it befalls is drawn when it happens, from those who are there.
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
    /// The disk of a server takes no more, for so long.
    DiskFull(Duration),
    /// Streams break, some of them just when something is on its way.
    StreamsBreak,
    /// Packets come that nobody of the job has sent, or that somebody sent long ago.
    Foreign,
    /// Answers come that no switch has given, with the header of one that it gave and another `durable`.
    ForgedAnswers,
    /// So many syncs of the disk of a server fail. The next one succeeds, whatever became of what they were about.
    SyncsFail {
        /// Of files.
        files: u64,
        /// Of directories.
        directories: u64,
        /// Whether what they were about is left to the next sync, rather than forgotten.
        kept: bool,
    },
    /// The disk of a server is slow for a while.
    DiskSlow {
        /// For how long.
        lasts: Duration,
        /// What a sync takes longer.
        by: Duration,
    },
    /// Of one member nothing arrives any more, or nothing arrives at it; the other direction passes, as far as a stream goes without
    /// acknowledgements.
    OneWay {
        /// Which.
        victim: Victim,
        /// Whether it hears nothing; else it is not heard.
        receives: bool,
        /// For how long.
        lasts: Duration,
    },
    /// A member sleeps for longer than others are patient.
    SleepsLong {
        /// Which.
        victim: Victim,
        /// With its machine, so that its streams are given up.
        machine: bool,
        /// For how long.
        lasts: Duration,
    },
    /// The clock of a process jumps ahead between two calls.
    ClockJumps {
        /// Whose.
        victim: Victim,
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
        /// Whether the first one sleeps meanwhile.
        sleeps: bool,
        /// Whether the address goes back to it.
        returns: bool,
    },
    /// Bits of datagrams flip where no checksum sees it.
    BitsFlip {
        /// Which.
        bits: FlippedBits,
        /// The chance that a datagram is hit.
        chance: f64,
        /// For how long.
        lasts: Duration,
    },
}

/// Whom of a cluster something befalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The controller.
    Controller,
    /// A server.
    Server,
    /// A switch.
    Switch,
    /// A worker.
    Worker,
}

/// How a member is cut off from others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutOff {
    /// From whom.
    pub from: Side,
    /// Whether nothing passes in either direction, or only what it sends is lost.
    pub both: bool,
    /// For how long.
    pub lasts: Duration,
    /// Whether its streams break meanwhile.
    pub breaks: bool,
}

/// Whom a member is cut off from.
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

/// How many kinds of faults there are.
pub(super) const KINDS: u8 = 19;

/// How much happens in a scenario, and which kinds of faults there are in it at all.
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

/// How many kinds of severe faults there are.
pub(super) const SEVERE_KINDS: u8 = 6;

pub(super) fn draw_severe_fault(random: &mut Random, kind: u8, lasts_long: bool) -> Fault {
    let ms = Duration::from_millis;
    let victim = *random.pick(&[Victim::Controller, Victim::Server, Victim::Switch, Victim::Worker]);
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
