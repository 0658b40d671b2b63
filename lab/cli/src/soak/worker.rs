//! A worker that pushes known numbers until it is time to stop, and then reads every row.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libra_launch::{exit, interrupt};
use libra_net::{Accepted, Drain, NodeError, NodeOptions, WorkerNode};
use libra_proto::{Parameters, PullId};

use super::load::Load;
use super::records::{Record, Records, Step, wall_clock};
use super::{Settings, Task};

/// Pushes under way at once.
const PUSHES_OPEN: usize = 4;
/// One push in so many has a pull beside it.
const PUSHES_PER_PULL: u32 = 8;
/// Timeout of joining: the place of a worker that was killed is free only when the controller has noticed.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Rows that are read at once at the end.
const ROWS_PER_READ: usize = 1 << 20;

pub(super) fn run(directory: &Path) -> Result<()> {
    let settings = Settings::read(directory)?;
    let drain = Drain::new();
    let Some(worker) = join(&settings, &drain)? else { return Ok(()) };
    let asked = drain.clone();
    interrupt::on_terminate(move || asked.begin());
    let number = worker.number();
    let task = Task::from_text(&worker.cluster().task)?;
    if number >= task.load.lanes {
        let reason = format!("worker {number} has no lane: rows have {}", task.load.lanes);
        worker.abort(reason.clone());
        bail!(reason);
    }
    let records = Records::create(directory, number)?;
    let (open, clock) = (BTreeMap::new(), Clock::start());
    let mut pusher = Pusher { worker, number, task, records, open, clock, drain };
    match pusher.run().and_then(|()| pusher.write_rows(directory)) {
        Ok(()) => Ok(pusher.worker.report(String::new())?),
        Err(error) if exit::is_drained(&error) => {
            pusher.finish_pushes()?;
            pusher.worker.drain()?;
            let path = left_path(directory, number);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            Err(NodeError::Drained { unsaved: None }.into())
        }
        Err(error) => {
            pusher.worker.abort(format!("{error:#}"));
            Err(error)
        }
    }
}

/// Joins the cluster. `None` if there is nothing to do any more.
fn join(settings: &Settings, drain: &Drain) -> Result<Option<WorkerNode>> {
    let deadline = Instant::now() + JOIN_TIMEOUT;
    loop {
        let options = NodeOptions { drain: drain.clone(), ..settings.options()? };
        match WorkerNode::join(options) {
            Err(NodeError::Done) => return Ok(None),
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
    drain: Drain,
}

impl Pusher {
    /// Pushes until the end, and waits until all rows have everything.
    fn run(&mut self) -> Result<()> {
        let mut pull = None;
        let mut push = 0;
        while self.clock.at(Instant::now()) < self.task.end && !self.drain.has_begun() {
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
        self.finish_pushes()?;
        if let Some(pull) = pull {
            self.finish_pull(pull)?;
        }
        // One that was asked to end leaves here.
        self.worker.flush()?;
        Ok(self.worker.barrier()?)
    }

    fn finish_pushes(&mut self) -> Result<()> {
        while !self.open.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Reads all rows, and writes their values to a file, which has its name when it is complete.
    fn write_rows(&mut self, directory: &Path) -> Result<()> {
        let path = rows_path(directory, self.number);
        let unfinished = path.with_extension("unfinished");
        let cannot_write = || format!("cannot write {}", path.display());
        let mut file = File::create(&unfinished).with_context(cannot_write)?;
        let rows = self.task.load.rows();
        for first in (0..rows).step_by(ROWS_PER_READ) {
            let keys = first..rows.min(first + ROWS_PER_READ as u64);
            let pull = self.start_pull(keys.collect())?;
            let bytes: Vec<u8> =
                self.finish_pull(pull)?.iter().flat_map(|value| value.to_le_bytes()).collect();
            file.write_all(&bytes).with_context(cannot_write)?;
        }
        fs::rename(&unfinished, &path).with_context(cannot_write)
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

    /// Whatever a row holds while pushes are under way, it is a sum of whole numbers, or where steps of Adagrad lead.
    fn finish_pull(&mut self, pull: PullId) -> Result<Vec<f32>> {
        let values = self.worker.finish_pull(pull)?.values;
        let has_steps = self.task.load.summed_rows() < self.task.load.rows();
        let is_possible = |value: &f32| if has_steps { value.is_finite() } else { value.fract() == 0.0 };
        if let Some(value) = values.iter().find(|value| !is_possible(value)) {
            bail!("a pull brought {value}, which no gradients make");
        }
        Ok(values)
    }
}

fn rows_path(directory: &Path, worker: u16) -> PathBuf {
    directory.join(format!("rows-{worker}"))
}

fn left_path(directory: &Path, worker: u16) -> PathBuf {
    directory.join(format!("left-{worker}"))
}

/// Returns true if a worker was asked to end, and has left with all that it had pushed visible.
pub(super) fn has_left(directory: &Path, worker: u16) -> bool {
    left_path(directory, worker).exists()
}

/// The values of all rows as a worker has read them at the end, row by row.
pub(super) struct RowsRead {
    pub(super) worker: u16,
    file: BufReader<File>,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl RowsRead {
    /// `None` if the worker did not come that far.
    pub(super) fn open(directory: &Path, worker: u16, load: &Load) -> Result<Option<Self>> {
        let path = rows_path(directory, worker);
        if !path.exists() {
            return Ok(None);
        }
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (values, found) = (load.rows() * u64::from(load.lanes), file.metadata()?.len() / 4);
        if found != values {
            bail!("worker {worker} has read {found} values instead of {values}");
        }
        let bytes = vec![0; 4 * usize::from(load.lanes)];
        Ok(Some(Self { worker, file: BufReader::with_capacity(1 << 20, file), bytes, values: Vec::new() }))
    }

    pub(super) fn next_row(&mut self) -> Result<&[f32]> {
        self.file.read_exact(&mut self.bytes).context("cannot read the rows of a worker")?;
        self.values.clear();
        self.values.extend(self.bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)));
        Ok(&self.values)
    }
}
