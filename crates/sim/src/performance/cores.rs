//! The cores of a machine, and who waits for one.

use core::time::Duration;
use std::collections::VecDeque;

use libra_proto::Instant;

use crate::performance::member::Pid;

/// How long a process keeps a core that others wait for: what a kernel of today gives a thread that does not ask for less.
const SLICE: Duration = Duration::from_millis(3);

/// A machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// Cores for the processes of the simulation.
    pub cores: usize,
    /// How fast each is, of the one that was measured.
    pub speed: f64,
    /// Whether processes that have nothing to do look for it again and again, instead of sleeping until they are woken.
    pub polls: bool,
}

#[derive(Debug)]
pub(crate) struct Cores {
    pub(crate) host: Host,
    /// Those that nobody has, and since when; the last to become idle is the last.
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

    /// Nobody wants this core.
    pub(crate) fn leave(&mut self, core: usize, now: Instant) {
        self.idle.push((core, now));
    }

    /// A process waits for a core.
    pub(crate) fn wait(&mut self, pid: Pid, is_user: bool) {
        if is_user { &mut self.users } else { &mut self.roles }.push_back(pid);
    }

    /// Who gets the next core that is free.
    pub(crate) fn next(&mut self) -> Option<Pid> {
        self.users.pop_front().or_else(|| self.roles.pop_front())
    }

    /// Whether a process that has held its core for so long must let another have it.
    pub(crate) fn wants_core(&self, is_user: bool, held_ns: f64) -> bool {
        let others_wait = !self.users.is_empty() || !self.roles.is_empty();
        (!is_user && !self.users.is_empty()) || (others_wait && held_ns >= SLICE.as_nanos() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_give_way_to_users_and_after_a_slice_to_each_other() {
        let mut cores = Cores::new(Host { cores: 2, speed: 1.0, polls: false }, Instant::ZERO);
        assert_eq!([1, 7, 7].map(|last| cores.take(last).map(|(core, _)| core)), [Some(1), Some(0), None]);
        assert!(!cores.wants_core(false, 1e9), "nobody else does");
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
