//! A worker of the benchmark: first it makes all rows, then it pushes and pulls for the time of its task.

use core::ops::Range;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use libra_monitor::{HttpPort, Kind, MemberWatch};
use libra_net::{NodeOptions, Security, WorkerNode};
use libra_proto::{Outcome, Parameters, PullId};
use serde::{Deserialize, Serialize};

use super::load::{Load, Operation};
use libra_launch::arguments::FaultArguments;
use libra_launch::parent_guard;

/// Operations before those that are measured: streams are slow at first.
const WARM_UP: Duration = Duration::from_millis(500);

/// Values of a push that makes rows, at most, unless one row has more.
const VALUES_OF_NEW: usize = 1 << 14;
/// Line to the parent at the beginning of the measurement.
pub(super) const MEASURING: &str = "measuring";
/// Interval at which a worker reports to its parent the number of rows that it has made.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[arg(long)]
    controller: SocketAddr,
    #[command(flatten)]
    faults: FaultArguments,
    #[arg(long)]
    http: Option<SocketAddr>,
}

/// Report of a worker to the controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Account {
    /// When it began and ended to measure, in nanoseconds since 1970.
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// Rows of operations that were begun and done meanwhile.
    pub(super) rows: u64,
    /// Latency of each of them, in microseconds.
    pub(super) latencies: Vec<u32>,
    /// When each of them got done, in microseconds since the beginning.
    pub(super) done: Vec<u32>,
    /// Bytes of messages from and to this worker meanwhile.
    pub(super) bytes: u64,
}

impl Account {
    /// Those of all workers.
    pub(super) fn of(outcome: &Outcome) -> Result<Vec<Self>> {
        let account = |report: &String| {
            serde_json::from_str(report).context("a worker's account is not that of a benchmark")
        };
        outcome.reports.iter().map(account).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    pub(super) fn rows_per_second(&self) -> f64 {
        self.rows as f64 / ((self.ended - self.begun) as f64 / 1e9)
    }
}

/// Totals of all workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aggregate {
    /// When all of them measured, in nanoseconds since 1970.
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) rows_per_second: f64,
    /// Between those two.
    pub(super) rows: f64,
}

impl Aggregate {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    pub(super) fn of(accounts: &[Account]) -> Result<Self> {
        let begun = accounts.iter().map(|account| account.begun).max().context("no worker has reported")?;
        let ended = accounts.iter().map(|account| account.ended).min().context("no worker has reported")?;
        let rows_per_second = accounts.iter().map(Account::rows_per_second).sum();
        Ok(Self { begun, ended, rows_per_second, rows: rows_per_second * (ended - begun) as f64 / 1e9 })
    }
}

pub(super) fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    parent_guard::exit_with_parent(|_| ())?;
    let (faults, fault_seed) = (arguments.faults.rates()?, u64::from(std::process::id()));
    let security = Security::from_environment()?;
    let port = arguments.http.map(HttpPort::bind).transpose()?;
    let watch = MemberWatch::start(Kind::Worker, port, None, |_| ())?;
    let inspector = watch.inspector.clone();
    let node = NodeOptions::new(arguments.controller);
    let options = NodeOptions { faults, fault_seed, security, inspector, ..node };
    let mut worker = WorkerNode::join(options)?;
    let account = Load::from_text(&worker.cluster().task).and_then(|load| measure(&mut worker, &load));
    match account.and_then(|account| Ok(serde_json::to_string(&account)?)) {
        Ok(text) => Ok(worker.report(text)?),
        Err(error) => {
            worker.abort(format!("{error:#}"));
            Err(error)
        }
    }
}

fn measure(worker: &mut WorkerNode, load: &Load) -> Result<Account> {
    let batches = load.rows.batches(worker.share())?;
    make_rows(worker, load)?;
    worker.barrier()?;
    let mut operations = Operations { worker, load, pulls: VecDeque::new(), pushes: HashMap::new() };
    let mut batches = batches.iter().cycle();
    let warm = Instant::now() + WARM_UP;
    while Instant::now() < warm {
        operations.turn(batches.next().context("there are batches")?)?;
    }
    let bytes = operations.worker.stream_bytes();
    println!("{MEASURING}");
    let (begun, started) = (wall_clock(), Instant::now());
    let (mut rows, mut latencies, mut done) = (0, Vec::new(), Vec::new());
    while started.elapsed().as_secs_f64() < load.seconds {
        if let Some(took) = operations.turn(batches.next().context("there are batches")?)? {
            rows += load.rows.batch as u64;
            latencies.push(u32::try_from(took.as_micros())?);
            done.push(u32::try_from(started.elapsed().as_micros())?);
        }
    }
    let (ended, bytes) = (wall_clock(), operations.worker.stream_bytes() - bytes);
    while operations.finish()?.is_some() {}
    Ok(Account { begun, ended, rows, latencies, done, bytes })
}

/// Pushes every row of this worker's share once, so that it is there, and reports to its parent how many it has pushed.
fn make_rows(worker: &mut WorkerNode, load: &Load) -> Result<()> {
    let rows = &load.rows;
    let Range { mut start, end } = load.share(worker.share());
    let (mut open, mut unreported) = (0, 0);
    let mut reported = Instant::now();
    while start < end {
        let keys = rows.keys_of(start..end.min(start + (VALUES_OF_NEW / rows.width()).max(1) as u64));
        let count = keys.len() as u64;
        let gradients = vec![1.0; keys.len() * rows.width()];
        worker.start_push(keys, gradients)?;
        (start, open, unreported) = (start + count, open + 1, unreported + count);
        if open > load.open {
            worker.finish_push()?.context("a push is under way")?;
            open -= 1;
        }
        if reported.elapsed() > REPORT_INTERVAL || start == end {
            println!("{unreported}");
            (reported, unreported) = (Instant::now(), 0);
        }
    }
    while worker.finish_push()?.is_some() {}
    Ok(worker.flush()?)
}

/// Operations under way.
struct Operations<'w> {
    worker: &'w mut WorkerNode,
    load: &'w Load,
    /// Oldest first.
    pulls: VecDeque<(PullId, Instant)>,
    /// When each push was begun.
    pushes: HashMap<u64, Instant>,
}

impl Operations<'_> {
    /// Begins one, and waits until one is done if there are enough: until the oldest is, of pulls. Returns how long that took.
    fn turn(&mut self, keys: &[u64]) -> Result<Option<Duration>> {
        let began = Instant::now();
        let gradients = || vec![0.001; keys.len() * self.load.rows.width()];
        match self.load.operation {
            Operation::Push => {
                self.pushes.insert(self.worker.start_push(keys.to_vec(), gradients())?, began);
            }
            Operation::Pull => self.pulls.push_back((self.worker.start_pull(keys.to_vec())?, began)),
            Operation::PushPull => {
                let pull = self.worker.start_push_pull(keys.to_vec(), gradients())?;
                self.pulls.push_back((pull, began));
            }
        }
        if self.pushes.len() + self.pulls.len() < self.load.open { Ok(None) } else { self.finish() }
    }

    fn finish(&mut self) -> Result<Option<Duration>> {
        let (began, done) = if let Some((pull, began)) = self.pulls.pop_front() {
            self.worker.finish_pull(pull)?;
            (began, Instant::now())
        } else if let Some(accepted) = self.worker.finish_push()? {
            let began = self.pushes.remove(&accepted.push).context("a push is done that was not begun")?;
            (began, accepted.at)
        } else {
            return Ok(None);
        };
        Ok(Some(done.saturating_duration_since(began)))
    }
}
