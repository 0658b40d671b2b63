//! Clocks of users, and what must be true when a worker receives them: bounded staleness, as its user sees it.

use core::ops::Range;
use std::collections::BTreeMap;

use crate::check::Verdict;
use crate::network::Host;
use crate::rows::{Rows, Sums};
use crate::runner::ScenarioRunner;
use crate::workload::{Progress, User};

/// State of clocks as a user sees it, its own and those of others.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Its ticks since the last barrier.
    ticks: u64,
    /// Operations since the last tick.
    pub(crate) operations: u32,
    /// The tick that all have reached since the last barrier, as its worker reported.
    least: u64,
    /// True if that was reported and the user has not acted on it yet.
    pub(crate) is_news: bool,
    /// Pushes since the last barrier: the tick that covers each, keys and gradients.
    pushed: Vec<(u64, Vec<u64>, Vec<f32>)>,
    /// All that it had pushed before.
    before: Sums,
    /// Updates that the clocks of others stand for, by worker: a pull reads no less.
    others: BTreeMap<u16, Sums>,
}

impl Clocks {
    pub(crate) fn new(rows: &Rows) -> Self {
        let before = Sums::zero(rows);
        Self {
            ticks: 0,
            operations: 0,
            least: 0,
            is_news: false,
            pushed: Vec::new(),
            before,
            others: BTreeMap::new(),
        }
    }

    /// True if the user is as far ahead of others as it may be.
    pub(crate) fn must_wait(&self, staleness: u64) -> bool {
        self.ticks > self.least.saturating_add(staleness)
    }

    /// True if so many operations have passed since the last tick.
    pub(crate) fn is_due(&self, tick_every: u32) -> bool {
        self.operations >= tick_every
    }

    /// Takes the tick that all have reached.
    pub(crate) fn set_least(&mut self, least: u64) {
        (self.least, self.is_news) = (least, true);
    }

    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        self.operations = 0;
    }

    pub(crate) fn pushed(&mut self, keys: &[u64], gradients: &[f32]) {
        self.pushed.push((self.ticks + 1, keys.to_vec(), gradients.to_vec()));
    }

    /// All that was pushed is visible, and clocks restart at zero.
    pub(crate) fn pass_barrier(&mut self, rows: &Rows) {
        self.before = self.up_to(u64::MAX, rows);
        self.pushed.clear();
        (self.ticks, self.operations, self.least) = (0, 0, 0);
    }

    /// Returns what is visible when so many of its ticks count.
    fn up_to(&self, ticks: u64, rows: &Rows) -> Sums {
        let mut sums = self.before.clone();
        for (_, keys, gradients) in self.pushed.iter().filter(|(tick, ..)| *tick <= ticks) {
            sums.add(rows, keys, gradients);
        }
        sums
    }

    /// So much others have made visible, by worker.
    pub(crate) fn observe(&mut self, seen: impl IntoIterator<Item = (u16, Sums)>) {
        self.others.extend(seen);
    }

    /// Adds what others have made visible in some values of rows.
    pub(crate) fn add_others(&self, values: Range<usize>, least: &mut [f64]) {
        for sums in self.others.values() {
            least.iter_mut().zip(&sums.0[values.clone()]).for_each(|(least, sum)| *least += sum);
        }
    }
}

impl ScenarioRunner {
    /// A worker receives that no other is behind this: none must be, and from now on it reads what their ticks stand for.
    pub(crate) fn check_clocks(&mut self, host: Host, least: u64) {
        let Some(hearer) = self.users.get(&host) else { return };
        let mut seen = Vec::new();
        let mut verdict: Verdict = Ok(());
        for (&other, user) in self.users.iter().filter(|(other, _)| **other != host) {
            if user.next_barrier != hearer.next_barrier || !self.is_waited_for(other, user) {
                continue;
            }
            if user.clocks.ticks < least && !user.waits_at_barrier() {
                verdict = Err(format!(
                    "worker {} is told that all have reached {least}, and worker {} has not: {}",
                    hearer.worker, user.worker, user.clocks.ticks
                ));
            }
            seen.push((user.worker, user.clocks.up_to(least, &self.account.rows)));
        }
        if let Some(hearer) = self.users.get_mut(&host) {
            hearer.clocks.observe(seen);
        }
        if let Err(text) = verdict {
            self.violate("clocks", text);
        }
    }

    /// True if others wait for this worker: it is there, not given up, and did not come while they trained.
    fn is_waited_for(&self, host: Host, user: &User) -> bool {
        let view = self.world.observer.roster.newest();
        matches!(user.progress, Progress::Working | Progress::Ending)
            && user.worker < self.scenario.sizes.workers
            && self.world.is_alive(host)
            && !self.given_up.contains(&user.worker)
            && view.is_some_and(|view| view.workers.contains_key(&user.worker))
    }
}
