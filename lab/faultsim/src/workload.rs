//! The users of workers: they push known whole gradients, pull, flush and meet at barriers, and keep what was reported to them.

mod reads;

use core::time::Duration;
use std::collections::BTreeMap;

use libra_proto::{Instant, Level, PullId, Tick, WorkerCommand, WorkerEvent};

use crate::chunks::{Chunks, Next};
use crate::clocks::Clocks;
use crate::network::Host;
use crate::random::Random;
use crate::rows::{Rows, SetTable, Sums};
use crate::set_rows::{SetHistory, SetOperation, SetWorkload};

/// Operations of users, and their rates.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Weights of: pushes that wait to be accepted, pushes that wait to be visible, pushes with pull, pulls, flushes.
    pub mix: [u64; 5],
    /// Rows in an operation, at most.
    pub rows_max: u64,
    /// The share of rows that are drawn from the hot ones.
    pub hot_share: f64,
    /// True if no gradient is negative, so that sums only grow.
    pub positive: bool,
    /// The largest gradient.
    pub gradient_max: u64,
    /// The chance that a gradient is far larger than that, too large for the plan of some scenarios.
    pub large: f64,
    /// Operations of one user under way at most.
    pub under_way: usize,
    /// Time that a user thinks before its next operation, at most.
    pub pause: Duration,
    /// Operations between two barriers; zero: there are none.
    pub barrier_every: u32,
    /// Operations between two ticks of a user's clock; zero: it has none. A user that has one makes all visible before it comes to a barrier.
    pub tick_every: u32,
    /// So many ticks a user may be ahead of others.
    pub staleness: u64,
    /// True if users do their operations in chunks that they get leases of: then they have neither barriers nor clocks.
    pub in_chunks: bool,
    /// Use of the table whose rows users set, if there is one.
    pub set: Option<SetWorkload>,
}

/// Totals of all users.
#[derive(Debug)]
pub(crate) struct Account {
    /// The rows.
    pub(crate) rows: Rows,
    /// All that anyone has pushed.
    pub(crate) pushed: Sums,
    /// Operations that were begun.
    pub(crate) operations: u64,
    /// What was done to the table whose rows users set.
    pub(crate) set: Option<SetHistory>,
}

impl Account {
    pub(crate) fn new(rows: &Rows) -> Self {
        let set = rows.set.map(SetHistory::new);
        Self { rows: rows.clone(), pushed: Sums::zero(rows), operations: 0, set }
    }
}

/// Progress of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Its worker has no place yet.
    Starting,
    /// It works.
    Working,
    /// It was asked to end: it makes everything visible and goes to the last barrier.
    Ending,
    /// All have been at the last barrier; it waits until it is asked to read every row.
    Ended,
    /// It reads every row.
    Reading,
    /// It has read them.
    Read,
    /// It has reported.
    Reported,
    /// Its worker is gone.
    Gone,
}

/// An operation under way.
#[derive(Debug)]
struct Open {
    at: Instant,
    task: Task,
}

#[derive(Debug)]
enum Task {
    Push { visible: bool },
    PushPull { least: Least },
    Pull { least: Least },
    Flush,
    Set,
    Scan { shard: u16, after: Option<u64> },
}

/// Lower bounds of a pull, by row.
type Least = BTreeMap<u64, Vec<f64>>;

/// A push that is not reported as visible yet.
#[derive(Debug)]
struct Unseen {
    number: u64,
    keys: Vec<u64>,
    gradients: Vec<f32>,
}

/// The user of one worker.
#[derive(Debug)]
pub(crate) struct User {
    /// Host of its worker.
    pub(crate) host: Host,
    /// The number of its worker.
    pub(crate) worker: u16,
    /// Its progress.
    pub(crate) progress: Progress,
    /// All that it has pushed.
    pub(crate) pushed: Sums,
    /// Of that, what was reported as visible.
    pub(crate) visible: Sums,
    /// Rows that it has read in the end.
    pub(crate) read: Option<Sums>,
    /// The number of its next barrier.
    pub(crate) next_barrier: u64,
    /// The last barrier of all.
    pub(crate) last_barrier: u64,
    /// True if it leaves as soon as it can.
    pub(crate) leaving: bool,
    /// True once its worker was told to go: the others may go on without it before it learns of that.
    pub(crate) has_left: bool,
    /// Its share of the task.
    pub(crate) share: u16,
    /// The longest time that an operation took.
    pub(crate) slowest: Duration,
    /// The longest time that a push took to be accepted.
    pub(crate) slowest_push: Duration,
    /// When it thinks of its next operation.
    pub(crate) next_at: Instant,
    /// For when it is to be reminded of that.
    pub(crate) thinks_at: Instant,
    random: Random,
    open: BTreeMap<u64, Open>,
    unseen: Vec<Unseen>,
    since_barrier: u32,
    /// The shard that it scans, and the key behind which the next page begins.
    next_page: Option<(u16, u64)>,
    waits_at_barrier: bool,
    flushed: bool,
    /// Its chunks.
    pub(crate) chunks: Chunks,
    /// Its clock, and the state of those of others.
    pub(crate) clocks: Clocks,
}

impl User {
    /// The user of the worker on a host.
    pub(crate) fn new(host: Host, rows: &Rows, random: Random) -> Self {
        Self {
            host,
            worker: 0,
            progress: Progress::Starting,
            pushed: Sums::zero(rows),
            visible: Sums::zero(rows),
            read: None,
            next_barrier: 0,
            last_barrier: 0,
            leaving: false,
            has_left: false,
            share: 0,
            slowest: Duration::ZERO,
            slowest_push: Duration::ZERO,
            next_at: Instant::ZERO,
            thinks_at: Instant::ZERO,
            random,
            open: BTreeMap::new(),
            unseen: Vec::new(),
            since_barrier: 0,
            next_page: None,
            waits_at_barrier: false,
            flushed: false,
            chunks: Chunks::default(),
            clocks: Clocks::new(rows),
        }
    }

    /// True if it waits at a barrier, or to leave: then all that it pushed is visible, if it has a clock.
    pub(crate) fn waits_at_barrier(&self) -> bool {
        self.waits_at_barrier
    }

    /// True if it still has something to do.
    pub(crate) fn is_there(&self) -> bool {
        self.progress != Progress::Gone
    }

    /// True if it has come to a barrier, now or before.
    pub(crate) fn has_come_to(&self, barrier: u64) -> bool {
        // Who leaves waits for nothing else.
        self.next_barrier > barrier || self.waits_at_barrier && (self.leaving || self.next_barrier == barrier)
    }

    /// The oldest operation that is under way, and when it began.
    pub(crate) fn oldest(&self) -> Option<(u64, Instant)> {
        self.open.iter().map(|(number, open)| (*number, open.at)).min_by_key(|(_, at)| *at)
    }

    /// Its worker is gone.
    pub(crate) fn end(&mut self) {
        self.progress = Progress::Gone;
        self.open.clear();
    }

    /// Returns its next request to its worker, if it has one now.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        workload: &Workload,
        account: &mut Account,
    ) -> Option<WorkerCommand> {
        if self.waits_at_barrier {
            return None;
        }
        match self.progress {
            Progress::Starting | Progress::Ended | Progress::Reported | Progress::Gone => None,
            Progress::Working if self.leaving && !self.chunks.is_busy() => {
                self.make_visible(now, account).or_else(|| {
                    (self.open.is_empty() && self.flushed).then(|| {
                        // It receives no event before it is gone.
                        (self.waits_at_barrier, self.has_left) = (true, true);
                        WorkerCommand::Leave { returns: true }
                    })
                })
            }
            Progress::Working => self.work(now, workload, account),
            Progress::Ending if workload.in_chunks && self.next_barrier <= self.last_barrier => {
                self.work(now, workload, account)
            }
            Progress::Ending => self.make_visible(now, account).or_else(|| {
                let quiet = self.open.is_empty() && self.flushed;
                if quiet && self.next_barrier > self.last_barrier {
                    self.progress = Progress::Ended;
                }
                (quiet && self.progress == Progress::Ending).then(|| self.barrier())
            }),
            Progress::Reading => self.open.is_empty().then(|| {
                let keys = account.rows.keys();
                self.pull(now, account, keys)
            }),
            Progress::Read => {
                self.progress = Progress::Reported;
                Some(WorkerCommand::Report { text: format!("worker {}", self.worker) })
            }
        }
    }

    fn work(&mut self, now: Instant, workload: &Workload, account: &mut Account) -> Option<WorkerCommand> {
        if self.open.len() >= workload.under_way {
            return None;
        }
        if core::mem::take(&mut self.clocks.is_news) {
            // At once: what is not visible yet would be soon.
            let keys = account.rows.keys();
            return Some(self.pull(now, account, keys));
        }
        if let Some((shard, after)) = self.next_page.take() {
            return Some(self.scan(now, account, shard, Some(after)));
        }
        if now < self.next_at && self.progress == Progress::Working {
            return None;
        }
        if workload.in_chunks {
            match self.chunks.next(self.next_barrier, &self.pushed, &mut self.random) {
                Next::Operation => {}
                Next::Command(command) => return Some(command),
                Next::Wait => return None,
            }
        }
        if workload.barrier_every > 0 && self.since_barrier >= workload.barrier_every {
            if workload.tick_every == 0 {
                return Some(self.barrier());
            }
            let quiet = self.flushed && self.open.is_empty();
            return if quiet { Some(self.barrier()) } else { self.make_visible(now, account) };
        }
        if workload.tick_every > 0 {
            if self.clocks.must_wait(workload.staleness) {
                return None;
            }
            if self.clocks.is_due(workload.tick_every) {
                self.clocks.tick();
                return Some(WorkerCommand::Tick(Tick::Visible));
            }
            self.clocks.operations += 1;
        }
        self.next_at = now + self.random.up_to(workload.pause);
        let is_first = self.since_barrier == 0;
        self.since_barrier += 1;
        self.flushed = false;
        if let Some(set) = workload.set
            && self.random.chance(set.share)
        {
            return self.work_on_set(now, set, is_first, account);
        }
        let mut draw = self.random.below(workload.mix.iter().sum());
        let kind = workload.mix.iter().position(|weight| {
            let here = draw < *weight;
            draw = draw.saturating_sub(*weight);
            here
        });
        let rows = &account.rows;
        Some(match kind.unwrap_or_default() {
            level @ (0 | 1) => {
                let (keys, gradients) = self.draw_push(workload, rows);
                let visible = level == 1;
                let level = if visible { Level::Visible } else { Level::Accepted };
                let number = self.push(now, account, Task::Push { visible }, &keys, &gradients);
                WorkerCommand::Push { number, keys, gradients, level }
            }
            2 => {
                let (keys, gradients) = self.draw_push(workload, rows);
                let mut distinct = keys.clone();
                distinct.sort_unstable();
                distinct.dedup();
                let least = self.own_least(rows, &distinct);
                let number = self.push(now, account, Task::PushPull { least }, &keys, &gradients);
                WorkerCommand::PushPull { id: PullId(number), keys, gradients }
            }
            3 => {
                let mut keys = self.draw_keys(workload, rows);
                keys.sort_unstable();
                keys.dedup();
                self.pull(now, account, keys)
            }
            _ => WorkerCommand::Flush { number: self.begin(now, account, Task::Flush) },
        })
    }

    /// Its next operation on the table whose rows users set.
    fn work_on_set(
        &mut self,
        now: Instant,
        workload: SetWorkload,
        is_first: bool,
        account: &mut Account,
    ) -> Option<WorkerCommand> {
        let mut keys = account.set.as_ref()?.draw_keys(&mut self.random);
        let worker = self.worker;
        match workload.draw(&mut self.random, is_first) {
            SetOperation::Assign => {
                let number = self.begin(now, account, Task::Set);
                Some(account.set.as_mut()?.assign(&mut self.random, worker, number, keys))
            }
            SetOperation::Reset => {
                let number = self.begin(now, account, Task::Set);
                Some(account.set.as_mut()?.reset(worker, number))
            }
            SetOperation::Scan => {
                let shard = self.random.small(0..=workload.shards - 1);
                Some(self.scan(now, account, shard, None))
            }
            SetOperation::Push => {
                let history = account.set.as_mut()?;
                history.retain_pushable(&mut keys);
                history.pushed(&keys);
                let gradients = vec![1.0; keys.iter().map(|key| account.rows.width(*key)).sum()];
                if self.random.chance(0.3) {
                    let task = Task::PushPull { least: self.own_least(&account.rows, &keys) };
                    let id = PullId(self.push(now, account, task, &keys, &gradients));
                    return Some(WorkerCommand::PushPull { id, keys, gradients });
                }
                let visible = self.random.chance(0.5);
                let level = if visible { Level::Visible } else { Level::Accepted };
                let number = self.push(now, account, Task::Push { visible }, &keys, &gradients);
                Some(WorkerCommand::Push { number, keys, gradients, level })
            }
            SetOperation::Pull => Some(self.pull(now, account, keys)),
        }
    }

    fn scan(&mut self, now: Instant, account: &mut Account, shard: u16, after: Option<u64>) -> WorkerCommand {
        let number = self.begin(now, account, Task::Scan { shard, after });
        WorkerCommand::Scan { number, shard, table: SetTable::POSITION, after }
    }

    fn pull(&mut self, now: Instant, account: &mut Account, keys: Vec<u64>) -> WorkerCommand {
        let task = Task::Pull { least: self.least(&account.rows, &keys) };
        let number = self.begin(now, account, task);
        WorkerCommand::Pull { id: PullId(number), keys }
    }

    /// Makes all that was pushed visible, once.
    fn make_visible(&mut self, now: Instant, account: &mut Account) -> Option<WorkerCommand> {
        if self.flushed {
            return None;
        }
        self.flushed = true;
        Some(WorkerCommand::Flush { number: self.begin(now, account, Task::Flush) })
    }

    fn barrier(&mut self) -> WorkerCommand {
        self.waits_at_barrier = true;
        WorkerCommand::Barrier { number: self.next_barrier }
    }

    fn begin(&mut self, now: Instant, account: &mut Account, task: Task) -> u64 {
        account.operations += 1;
        self.open.insert(account.operations, Open { at: now, task });
        account.operations
    }

    fn push(
        &mut self,
        now: Instant,
        account: &mut Account,
        task: Task,
        keys: &[u64],
        gradients: &[f32],
    ) -> u64 {
        self.pushed.add(&account.rows, keys, gradients);
        account.pushed.add(&account.rows, keys, gradients);
        let number = self.begin(now, account, task);
        self.clocks.pushed(keys, gradients);
        self.unseen.push(Unseen { number, keys: keys.to_vec(), gradients: gradients.to_vec() });
        number
    }

    fn draw_keys(&mut self, workload: &Workload, rows: &Rows) -> Vec<u64> {
        let count = self.random.within(1..=workload.rows_max);
        let draw = |_| {
            let hot = rows.hot > 0 && self.random.chance(workload.hot_share);
            rows.key(self.random.below(if hot { rows.hot } else { rows.len() }))
        };
        (0..count).map(draw).collect()
    }

    /// Some rows, some of them twice.
    fn draw_push(&mut self, workload: &Workload, rows: &Rows) -> (Vec<u64>, Vec<f32>) {
        let keys = self.draw_keys(workload, rows);
        let values: usize = keys.iter().map(|key| rows.width(*key)).sum();
        let gradients = (0..values).map(|_| self.draw_gradient(workload)).collect();
        (keys, gradients)
    }

    fn draw_gradient(&mut self, workload: &Workload) -> f32 {
        if self.random.chance(workload.large) {
            return 3000.0;
        }
        let drawn = i16::try_from(self.random.below(workload.gradient_max + 1)).unwrap_or(i16::MAX);
        let negative = !workload.positive && self.random.chance(0.5);
        f32::from(if negative { -drawn } else { drawn })
    }

    /// Takes an event of its worker. An error is what must not have happened.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        event: WorkerEvent,
        workload: &Workload,
        account: &mut Account,
    ) -> Result<(), String> {
        match event {
            WorkerEvent::Started { worker, barrier, .. } => {
                if self.progress != Progress::Starting {
                    return Err(format!("worker {} starts twice", self.worker));
                }
                self.worker = worker;
                self.next_barrier = barrier;
                self.progress = Progress::Working;
            }
            WorkerEvent::Pulled(PullId(number), pulled) => {
                self.pulled(now, number, &pulled, workload, account)?
            }
            WorkerEvent::Pushed { number } => match self.close(now, number)? {
                Task::Push { visible } => {
                    if visible {
                        self.see(account, |push| push.number == number);
                    }
                }
                Task::Set => {
                    let operations = account.operations;
                    account.set.iter_mut().for_each(|history| history.answered(number, operations));
                }
                other => return Err(format!("operation {number} is {other:?}, and completes as a push")),
            },
            WorkerEvent::Flushed { number } => match self.close(now, number)? {
                Task::Flush => self.see(account, |push| push.number < number),
                other => return Err(format!("operation {number} is {other:?}, and completes as a flush")),
            },
            WorkerEvent::Released { number } if workload.in_chunks => {
                if number < self.next_barrier {
                    return Err(format!("phase {number} of worker {} is over twice", self.worker));
                }
                self.next_barrier = number + 1;
                self.chunks.pass_phase();
            }
            WorkerEvent::Leased { chunks, .. } => self.chunks.leased(chunks),
            WorkerEvent::Released { number } => {
                if number != self.next_barrier || !self.waits_at_barrier {
                    return Err(format!("worker {} is released from barrier {number}", self.worker));
                }
                self.waits_at_barrier = false;
                self.next_barrier += 1;
                self.since_barrier = 0;
                self.clocks.pass_barrier(&account.rows);
            }
            WorkerEvent::Clocks { least } => self.clocks.set_least(least),
            WorkerEvent::Refused { number, error } => {
                return Err(format!("operation {number} of worker {} is refused: {error}", self.worker));
            }
            WorkerEvent::Scanned { number, page } => match self.close(now, number)? {
                Task::Scan { shard, after } => {
                    let keys = page.keys.to_vec();
                    if !after.into_iter().chain(keys.iter().copied()).is_sorted_by(|one, next| one < next) {
                        return Err(format!("behind {after:?} come the rows {keys:?} of shard {shard}"));
                    }
                    self.next_page = page.next.map(|next| (shard, next));
                }
                other => return Err(format!("operation {number} is {other:?}, and completes as a scan")),
            },
            WorkerEvent::DrainAsked | WorkerEvent::PathChanged(_) | WorkerEvent::PhasesAdded(_) => {}
            WorkerEvent::Finished | WorkerEvent::Ended { .. } => self.end(),
        }
        Ok(())
    }

    fn close(&mut self, now: Instant, number: u64) -> Result<Task, String> {
        let open = self.open.remove(&number);
        let open =
            open.ok_or_else(|| format!("operation {number} of worker {} completes twice", self.worker))?;
        let took = now.since(open.at);
        self.slowest = self.slowest.max(took);
        if matches!(open.task, Task::Push { visible: false } | Task::PushPull { .. }) {
            self.slowest_push = self.slowest_push.max(took);
        }
        Ok(open.task)
    }

    /// These pushes are visible.
    fn see(&mut self, account: &mut Account, seen: impl Fn(&Unseen) -> bool) {
        let visible = &mut self.visible;
        self.unseen.retain(|push| {
            if seen(push) {
                visible.add(&account.rows, &push.keys, &push.gradients);
                account.set.iter_mut().for_each(|history| history.seen(&push.keys));
            }
            !seen(push)
        });
    }
}

#[cfg(test)]
mod tests;
