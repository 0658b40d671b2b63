//! A worker that pushes known numbers until it is time to stop, and then reads every row.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libra_net::{Accepted, NodeError, WorkerNode};
use libra_proto::{Parameters, PullId};

use super::records::{Record, Records, Step, wall_clock};
use super::{Settings, Task};

/// Pushes under way at once.
const PUSHES_OPEN: usize = 4;
/// One push in so many has a pull beside it.
const PUSHES_PER_PULL: u32 = 8;
/// Timeout of joining: the place of a worker that was killed is free only when the controller has noticed.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(super) fn run(directory: &Path) -> Result<()> {
    let settings = Settings::read(directory)?;
    let Some(worker) = join(&settings)? else { return Ok(()) };
    let number = worker.number();
    let task = Task::from_text(&worker.cluster().task)?;
    if number >= task.load.lanes {
        let reason = format!("worker {number} has no lane: rows have {}", task.load.lanes);
        worker.abort(reason.clone());
        bail!(reason);
    }
    let records = Records::create(directory, number)?;
    let mut pusher = Pusher { worker, number, task, records, open: BTreeMap::new(), clock: Clock::start() };
    match pusher.run().and_then(|rows| write_rows(directory, number, &rows)) {
        Ok(()) => Ok(pusher.worker.report(String::new())?),
        Err(error) => {
            pusher.worker.abort(format!("{error:#}"));
            Err(error)
        }
    }
}

/// Joins the cluster. `None` if there is nothing to do any more.
fn join(settings: &Settings) -> Result<Option<WorkerNode>> {
    let deadline = Instant::now() + JOIN_TIMEOUT;
    loop {
        match WorkerNode::join(settings.options()?) {
            Err(NodeError::Ended { .. }) if wall_clock() >= settings.task.end => return Ok(None),
            Err(NodeError::Ended { .. }) if Instant::now() < deadline => thread::sleep(RETRY_PAUSE),
            joined => return Ok(Some(joined?)),
        }
    }
}

/// The wall clock, as it goes on from one reading: pushes are timed by a clock that is never set.
struct Clock {
    wall: u64,
    instant: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { wall: wall_clock(), instant: Instant::now() }
    }

    fn at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.instant);
        self.wall + u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

struct Pusher {
    worker: WorkerNode,
    number: u16,
    task: Task,
    records: Records,
    /// Pushes under way: their numbers at the worker, and ours.
    open: BTreeMap<u64, u32>,
    clock: Clock,
}

impl Pusher {
    /// Returns the values of all rows.
    fn run(&mut self) -> Result<Vec<f32>> {
        let mut pull = None;
        let mut push = 0;
        while self.clock.at(Instant::now()) < self.task.end {
            while let Some(accepted) = self.worker.try_finish_push()? {
                self.acknowledged(accepted)?;
            }
            if self.open.len() >= PUSHES_OPEN {
                self.wait()?;
                continue;
            }
            if push % PUSHES_PER_PULL == 0 {
                let keys = self.task.load.push(self.number, push).into_iter().map(|(key, _)| key);
                let next = self.start_pull(keys.collect())?;
                if let Some(before) = pull.replace(next) {
                    self.finish_pull(before)?;
                }
            }
            self.push(push)?;
            push += 1;
        }
        while !self.open.is_empty() {
            self.wait()?;
        }
        if let Some(pull) = pull {
            self.finish_pull(pull)?;
        }
        self.worker.flush()?;
        self.worker.barrier()?;
        let all = self.start_pull((0..self.task.load.rows()).collect())?;
        self.finish_pull(all)
    }

    fn push(&mut self, push: u32) -> Result<()> {
        let parts = self.task.load.push(self.number, push);
        let (keys, gradients) = self.task.load.gradients(self.number, &parts);
        self.records.write(Record { at: self.clock.at(Instant::now()), push, step: Step::Issued })?;
        self.open.insert(self.worker.start_push(keys, gradients)?, push);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let accepted = self.worker.finish_push()?.context("no push is under way")?;
        self.acknowledged(accepted)
    }

    fn acknowledged(&mut self, Accepted { push, at }: Accepted) -> Result<()> {
        let push = self.open.remove(&push).context("a push was acknowledged twice")?;
        self.records.write(Record { at: self.clock.at(at), push, step: Step::Acknowledged })
    }

    /// Asks for rows, each once.
    fn start_pull(&mut self, mut keys: Vec<u64>) -> Result<PullId> {
        keys.sort_unstable();
        keys.dedup();
        Ok(self.worker.start_pull(keys)?)
    }

    /// Whatever a row holds while pushes are under way, it is sums of integers.
    fn finish_pull(&mut self, pull: PullId) -> Result<Vec<f32>> {
        let values = self.worker.finish_pull(pull)?.values;
        if let Some(value) = values.iter().find(|value| value.fract() != 0.0) {
            bail!("a pull brought {value}, which is no sum of whole numbers");
        }
        Ok(values)
    }
}

fn rows_path(directory: &Path, worker: u16) -> PathBuf {
    directory.join(format!("rows-{worker}"))
}

fn write_rows(directory: &Path, worker: u16, rows: &[f32]) -> Result<()> {
    let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    let path = rows_path(directory, worker);
    let unfinished = path.with_extension("unfinished");
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// The values of all rows as a worker has read them at the end; `None` of one that did not come that far.
pub(super) fn read_rows(directory: &Path, worker: u16) -> Result<Option<Vec<f32>>> {
    let path = rows_path(directory, worker);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()))
}
