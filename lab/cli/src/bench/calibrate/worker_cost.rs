//! Cost of a worker and its user, in time of their threads: both as they ship, on real sockets, before one other thread that acknowledges everything.

use core::time::Duration;
use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use libra_dataplane::{ENTRY_BYTES, HEADER_BYTES};
use libra_net::probe::ProbeNode;
use libra_net::{NodeOptions, WorkerNode};
use libra_perfsim::{
    CostKind, CostModel, Costs, Counters, Host, Model, PowerLaw, Pushes, Setting, System, Topology, Work, fit,
};
use procfs::process::{Process, Task};
use rustix::thread::gettid;

use super::replay::print_fit;
use crate::bench::usage::processor_time;

/// The name that `libra-net` gives the thread of a worker.
const THREAD: &str = "worker-network";
/// Pushes of a worker that are under way at once.
const OPEN: usize = 8;
/// Duration of a load before it is measured, and while it is.
const WARM_UP: Duration = Duration::from_millis(80);
const MEASURED: Duration = Duration::from_millis(200);

/// A load: rows of the table, of a push, and values of each, how many of all rows are hot, and how long packets are.
struct Shape {
    rows: u64,
    batch: usize,
    width: usize,
    hot: f64,
    entries_max: u8,
}

const fn shape(rows: u64, batch: usize, width: usize, hot: f64, entries_max: u8) -> Shape {
    Shape { rows, batch, width, hot, entries_max }
}

/// Between these prices hold.
const SHAPES: &[Shape] = &[
    shape(30_000, 10_000, 1, 1.0, 240),
    shape(30_000, 3000, 1, 1.0, 240),
    shape(30_000, 500, 1, 1.0, 240),
    shape(9000, 3000, 1, 1.0, 240),
    shape(1500, 500, 1, 1.0, 240),
    shape(30_000, 10_000, 1, 1.0, 64),
    shape(30_000, 4000, 1, 1.0, 16),
    shape(1875, 1000, 16, 1.0, 240),
    shape(1875, 200, 16, 1.0, 240),
    shape(30_000, 10_000, 1, 0.1, 240),
    shape(30_000, 3000, 1, 0.3, 240),
    shape(30_000, 10_000, 1, 0.0, 240),
    shape(30_000, 3000, 1, 0.0, 240),
    shape(30_000, 500, 1, 0.0, 240),
    shape(1875, 1000, 16, 0.0, 240),
];

const WORKER: &[CostKind] = &[
    CostKind::Command,
    CostKind::Pair,
    CostKind::Line,
    CostKind::Mixed,
    CostKind::RunOut,
    CostKind::PacketOut,
    CostKind::PacketByteOut,
    CostKind::MessageOut,
    CostKind::MessageByteOut,
];
const USER: &[CostKind] = &[CostKind::Command, CostKind::Pair, CostKind::Value];

/// Work of a push for worker and user, and its cost for each, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Sample {
    worker: (Work, f64),
    user: (Work, f64),
}

/// A sample of each shape.
#[derive(Debug, Clone)]
pub(super) struct Pass(Vec<Sample>);

/// Measures each shape once, for a moment: many passes see more of what a machine is like from one minute to the next than one long one.
pub(super) fn pass() -> Result<Pass> {
    SHAPES.iter().map(sample).collect::<Result<_>>().map(Pass)
}

/// The prices of a worker and of its user, but for their being woken: those that explain what each shape took in most passes.
pub(super) fn prices(kernel: &CostModel, passes: &[Pass]) -> (CostModel, CostModel) {
    let wake = kernel.of(&Work::of(CostKind::Wake, 1.0));
    // To be woken has a price of its own.
    let awake =
        |(work, nanos): (Work, f64)| (work, (nanos - wake * work.count(CostKind::Wake)).max(nanos / 2.0));
    let worker = medians(passes, |sample| awake(sample.worker));
    let user = medians(passes, |sample| awake(sample.user));
    let price = |name, items, totals: &[(Work, f64)]| {
        // All shapes count alike.
        let samples: Vec<_> = totals.iter().map(|(work, nanos)| (work.times(1.0 / nanos), 1.0)).collect();
        let prices = fit(items, &samples);
        print_fit(name, &prices, totals);
        prices
    };
    (price("worker", WORKER, &worker), price("user", USER, &user))
}

/// For each shape what took a time in the middle, or the mean of the two in the middle.
fn medians(passes: &[Pass], of: impl Fn(&Sample) -> (Work, f64)) -> Vec<(Work, f64)> {
    let shapes = passes.first().map_or(0, |pass| pass.0.len());
    let median = |shape: usize| {
        let mut all: Vec<(Work, f64)> = passes.iter().map(|pass| of(&pass.0[shape])).collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        let [low, high] = [(all.len() - 1) / 2, all.len() / 2].map(|place| all[place]);
        ((low.0 + high.0).times(0.5), f64::midpoint(low.1, high.1))
    };
    (0..shapes).map(median).collect()
}

fn setting(shape: &Shape) -> Setting {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of few rows")]
    let hot = (shape.rows as f64 * shape.hot) as u64;
    Setting {
        system: if hot > 0 { System::Libra } else { System::PsSparse },
        workers: 1,
        servers: 1,
        topology: Topology::OneMachine(Host { cores: 2, speed: 1.0, polls: false }),
        model: Model {
            rows: shape.rows,
            width: shape.width,
            law: PowerLaw::new(shape.rows, 1.05),
            batch: shape.batch,
        },
        hot,
        open: OPEN,
        pushes_per_round: 64,
        entries_max: shape.entries_max,
        costs: Costs::default(),
        warm_up: WARM_UP,
        measured: MEASURED,
        drawn: 64,
        seed: 1,
    }
}

fn sample(shape: &Shape) -> Result<Sample> {
    let setting = setting(shape);
    let node = ProbeNode::bind()?;
    let (streams, others) = (node.streams(), setting.acking_peer(node.streams(), node.datagrams()));
    let counters = others.counters();
    let others = thread::spawn(move || node.run(others));
    let worker = WorkerNode::join(NodeOptions::new(streams))?;
    let thread = thread_of_worker()?;
    let own = Process::myself()?.task_from_tid(gettid().as_raw_nonzero().get())?;
    let mut load = Load { worker, counters, thread, own, pushes: setting.pushes(0), open: VecDeque::new() };
    load.go_on(setting.warm_up)?;
    let begin = load.counts()?;
    let pushes = load.go_on(setting.measured)? as f64;
    let end = load.counts()?;
    load.end()?;
    others.join().map_err(|_| anyhow!("the thread that answers is gone"))?.context("it cannot answer")?;
    let (rows, values) = (shape.batch as f64, (shape.batch * shape.width) as f64);
    let of_push = |commands: f64| {
        Work::of(CostKind::Command, commands).with(CostKind::Pair, rows).with(CostKind::Value, values)
    };
    let work = (end.work + begin.work.times(-1.0)).times(1.0 / pushes) + of_push(2.0);
    let headers = HEADER_BYTES as f64 * work.count(CostKind::PacketOut);
    let entries = (work.count(CostKind::PacketByteOut) - headers) / ENTRY_BYTES as f64;
    let hot = entries / shape.width as f64;
    let mixed = if work.count(CostKind::MessageOut) > 0.0 { hot.min(rows - hot).max(0.0) } else { 0.0 };
    let work = work.with(CostKind::Mixed, mixed);
    Ok(Sample {
        worker: (work, (end.worker_ns - begin.worker_ns) / pushes),
        user: (
            of_push(1.0).with(CostKind::Wake, (end.user_sleeps - begin.user_sleeps) / pushes),
            (end.user_ns - begin.user_ns) / pushes,
        ),
    })
}

/// The thread of the only worker of this process.
fn thread_of_worker() -> Result<Task> {
    // Of one that has just ended there may be something left, under an older number.
    let tasks = Process::myself()?.tasks()?.filter_map(Result::ok);
    let named = tasks.filter(|task| task.stat().is_ok_and(|stat| stat.comm == THREAD));
    named.max_by_key(|task| task.tid).context("a worker has no thread")
}

/// Returns the number of times that a thread has slept.
fn sleeps(thread: &Task) -> Result<f64> {
    Ok(thread.status()?.voluntary_ctxt_switches.unwrap_or(0) as f64)
}

/// A worker, and its pushes.
struct Load {
    worker: WorkerNode,
    counters: Counters,
    thread: Task,
    /// The thread of its user: this one.
    own: Task,
    pushes: Pushes,
    open: VecDeque<u64>,
}

/// Counters at some moment.
struct Counts {
    work: Work,
    worker_ns: f64,
    user_ns: f64,
    user_sleeps: f64,
}

impl Load {
    /// Pushes for some time. Returns how many were begun.
    fn go_on(&mut self, time: Duration) -> Result<usize> {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < time {
            let push = self.pushes.0.next().context("pushes have no end")?;
            self.open.push_back(self.worker.start_push(push.keys, push.gradients)?);
            count += 1;
            while self.open.len() >= OPEN {
                self.finish()?;
            }
        }
        Ok(count)
    }

    fn finish(&mut self) -> Result<()> {
        let done = self.worker.finish_push()?.context("a push is under way")?;
        self.open.retain(|push| *push != done.push);
        Ok(())
    }

    fn counts(&self) -> Result<Counts> {
        let used =
            self.thread.schedstat().context("this kernel does not report the processor time of a thread")?;
        let work = self.counters.work().with(CostKind::Wake, sleeps(&self.thread)?);
        Ok(Counts {
            // Both ways, but answers are short.
            work: work.with(CostKind::MessageByteOut, self.worker.stream_bytes() as f64),
            worker_ns: used.sum_exec_runtime as f64,
            user_ns: processor_time().as_nanos() as f64,
            user_sleeps: sleeps(&self.own)?,
        })
    }

    fn end(mut self) -> Result<()> {
        while !self.open.is_empty() {
            self.finish()?;
        }
        Ok(self.worker.report(String::new())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_alone_does_what_it_is_told_and_takes_time() {
        let Sample { worker: (work, nanos), user: (_, of_user) } =
            sample(&shape(30_000, 500, 1, 0.1, 240)).unwrap();
        assert!(nanos > 0.0 && of_user > 0.0);
        assert!(work.count(CostKind::Command) == 2.0 && work.count(CostKind::Pair) == 500.0);
        // But for what is under way when it begins and when it ends.
        // Some rows leave as packets, more than one holds, and the others as a message.
        for (item, count) in [(CostKind::MessageOut, 1.0), (CostKind::PacketOut, 2.0)] {
            assert!((work.count(item) / count - 1.0).abs() < 0.5, "{item:?}: {work:?}");
        }
        assert!((1.0..3000.0 / 16.0).contains(&work.count(CostKind::Line)), "{work:?}");
        let bytes = [CostKind::MessageByteOut, CostKind::PacketByteOut].map(|item| work.count(item));
        assert!(
            bytes.iter().all(|bytes| *bytes > 500.0) && bytes.iter().sum::<f64>() < 500.0 * 8.0,
            "{bytes:?}"
        );
    }

    #[test]
    fn of_passes_the_one_in_the_middle_counts_for_each_shape() {
        let of =
            |nanos| Sample { worker: (Work::of(CostKind::Pair, 10.0), nanos), user: (Work::default(), 1.0) };
        let passes = [[50.0, 9.0], [10.0, 7.0], [40.0, 8.0]].map(|pass| Pass(pass.map(of).to_vec()));
        let nanos: Vec<f64> =
            medians(&passes, |sample| sample.worker).iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!(nanos, [40.0, 8.0]);
        let (_, of_two) = medians(&passes[..2], |sample| sample.worker)[0];
        assert_eq!(of_two, 30.0);
        let (worker, _) = prices(&CostModel::default(), &[Pass(vec![of(50.0)])]);
        assert!((worker.0[&CostKind::Pair] - 5.0).abs() < 1e-6, "{worker:?}");
        let mut woken = of(50.0);
        woken.worker.0 = woken.worker.0.with(CostKind::Wake, 2.0);
        let kernel = CostModel([(CostKind::Wake, 10.0)].into());
        let (worker, _) = prices(&kernel, &[Pass(vec![woken])]);
        assert!((worker.0[&CostKind::Pair] - 3.0).abs() < 1e-6, "{worker:?}");
    }
}
