//! The cores of a machine, who waits for one, and how evenly they work.

use core::time::Duration;
use std::collections::VecDeque;

use libra_proto::Instant;

use crate::member::Pid;
use libra_faultsim::Random;

/// Time that a process keeps a core that others wait for: what a kernel of today gives a thread that does not ask for less.
const SLICE: Duration = Duration::from_millis(3);

/// A machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// Cores for the processes of the simulation.
    pub cores: usize,
    /// Speed of each core, relative to the one that was measured.
    pub speed: f64,
    /// True if idle processes poll for work instead of sleeping until they are woken.
    pub polls: bool,
}

#[derive(Debug)]
pub(crate) struct Cores {
    pub(crate) host: Host,
    /// Idle cores, and since when; the last to become idle is the last.
    idle: Vec<(usize, Instant)>,
    /// Users that wait go before roles.
    users: VecDeque<Pid>,
    roles: VecDeque<Pid>,
}

impl Cores {
    pub(crate) fn new(host: Host, now: Instant) -> Self {
        let idle = (0..host.cores).rev().map(|core| (core, now)).collect();
        Self { host, idle, users: VecDeque::new(), roles: VecDeque::new() }
    }

    /// A core for a process: the one it had, or the last to become idle. Returns it with the time since when it is idle.
    pub(crate) fn take(&mut self, last: usize) -> Option<(usize, Instant)> {
        let own = self.idle.iter().position(|(core, _)| *core == last);
        own.map(|place| self.idle.remove(place)).or_else(|| self.idle.pop())
    }

    /// Gives a core back; no process waits for it.
    pub(crate) fn leave(&mut self, core: usize, now: Instant) {
        self.idle.push((core, now));
    }

    /// A process waits for a core.
    pub(crate) fn wait(&mut self, pid: Pid, is_user: bool) {
        if is_user { &mut self.users } else { &mut self.roles }.push_back(pid);
    }

    /// Removes and returns the process that gets the next free core.
    pub(crate) fn next(&mut self) -> Option<Pid> {
        self.users.pop_front().or_else(|| self.roles.pop_front())
    }

    /// True if a process that has held its core for so long must let another have it.
    pub(crate) fn wants_core(&self, is_user: bool, held_ns: f64) -> bool {
        let others_wait = !self.users.is_empty() || !self.roles.is_empty();
        (!is_user && !self.users.is_empty()) || (others_wait && held_ns >= SLICE.as_nanos() as f64)
    }
}

/// Random factor of the duration of a turn. Two turns that do the same do not take the same time; if they did, processes would wait for each other in a
/// step that real ones do not keep.
#[derive(Debug)]
pub(crate) struct Pace {
    spread: f64,
    random: Random,
}

impl Pace {
    /// With this standard deviation of logarithms; 0 draws nothing.
    pub(crate) fn new(spread: f64, seed: u64) -> Self {
        Self { spread, random: Random::new(seed).fork(0x00f0_5e11) }
    }

    /// That of the next turn: around 1.
    pub(crate) fn factor(&mut self) -> f64 {
        if self.spread == 0.0 {
            return 1.0;
        }
        // Twelve numbers below one have a sum that is as good as normal, and a variance of one.
        let normal = (0..12).map(|_| self.random.unit()).sum::<f64>() - 6.0;
        (self.spread * normal - self.spread * self.spread / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_cost_their_price_on_average_and_differ_by_the_spread() {
        let mut pace = Pace::new(0.2, 1);
        let factors: Vec<f64> = (0..100_000).map(|_| pace.factor()).collect();
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        assert!((mean(&factors) - 1.0).abs() < 0.01, "{}", mean(&factors));
        let squares: Vec<f64> = factors.iter().map(|factor| factor.ln().powi(2)).collect();
        assert!((mean(&squares).sqrt() - 0.2).abs() < 0.01, "{}", mean(&squares).sqrt());
        assert!((0..100).all(|seed| Pace::new(0.0, seed).factor() == 1.0));
    }

    #[test]
    fn roles_give_way_to_users_and_after_a_slice_to_each_other() {
        let mut cores = Cores::new(Host { cores: 2, speed: 1.0, polls: false }, Instant::ZERO);
        assert_eq!([1, 7, 7].map(|last| cores.take(last).map(|(core, _)| core)), [Some(1), Some(0), None]);
        assert!(!cores.wants_core(false, 1e9), "no other process waits");
        cores.wait(3, false);
        assert!(!cores.wants_core(false, 2e6) && cores.wants_core(false, 3e6));
        cores.wait(4, true);
        assert!(cores.wants_core(false, 0.0) && !cores.wants_core(true, 0.0));
        cores.wait(5, true);
        assert_eq!([(); 4].map(|()| cores.next()), [Some(4), Some(5), Some(3), None]);
        cores.leave(0, Instant::from_nanos(9));
        assert_eq!(cores.take(1), Some((0, Instant::from_nanos(9))));
    }
}
