//! Parts of a step, while one thing at a time is made slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libra_client::{
    ClientError, FaultRates, Inspector, MemberStatus, NodeOptions, Parameters, PullId, Pulled, Statistics,
    Tick, TrainingNote, Worker,
};
use libra_launch::task::Task;
use libra_models::TrainError;
use libra_net::Endpoint;
use libra_proto::StepTimes;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::{Member, controller, data_of};

/// Time for which a worker is measured; an epoch may end before.
const TIME: Duration = Duration::from_millis(1_500);
/// Time that a slow reader takes for a batch.
const READING: Duration = Duration::from_millis(40);
/// Share of datagrams that are lost: so many that the machine's own noise does not matter.
const LOSS: f64 = 0.2;
/// A process with a quota runs for `RUNS` of each `PERIOD`, as with CPU quotas of control groups.
const PERIOD: Duration = Duration::from_millis(100);
const RUNS: Duration = Duration::from_millis(5);
/// Parts of a step, as metrics call them.
const PARTS: [&str; 5] = ["data", "pull", "compute", "push", "clock"];

/// A thing that is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slow {
    Nothing,
    Reader,
    Network,
    Server,
    OtherWorker,
}

/// A worker whose reader may be slow, and whose training ends when it was measured for long enough.
struct Measured {
    worker: Worker,
    reading: Duration,
    until: Instant,
    steps: u32,
}

impl Parameters for Measured {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.worker.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        if Instant::now() >= self.until { Err(ClientError::Drained) } else { self.worker.finish_pull(pull) }
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.steps += 1;
        self.worker.push(keys, gradients)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.worker.flush()
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        self.worker.barrier()
    }

    fn tick(&mut self, tick: Tick) -> Result<(), ClientError> {
        self.worker.tick(tick)
    }

    fn wait_for_clocks(&mut self, least: u64) -> Result<(), ClientError> {
        self.worker.wait_for_clocks(least)
    }

    fn next_chunk(&mut self, chunks: u32, last: Option<u32>) -> Result<Option<u32>, ClientError> {
        self.worker.next_chunk(chunks, last)
    }

    fn expected_chunk(&self, chunks: u32, last: Option<u32>) -> Option<u32> {
        self.worker.expected_chunk(chunks, last)
    }

    fn finish_chunk(&mut self, chunk: u32, account: String) -> Result<(), ClientError> {
        self.worker.finish_chunk(chunk, account)
    }

    fn note(&mut self, note: TrainingNote) {
        self.worker.note(note);
        if note == TrainingNote::Reads {
            thread::sleep(self.reading);
        }
    }
}

/// A process that is stopped for most of the time, until this is dropped.
struct Quota {
    ends: Arc<AtomicBool>,
    pulses: Option<JoinHandle<()>>,
}

impl Quota {
    fn of(member: &Member) -> Self {
        let process = Pid::from_raw(member.id().try_into().unwrap()).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let pulses = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                kill_process(process, Signal::STOP).unwrap();
                thread::sleep(PERIOD - RUNS);
                kill_process(process, Signal::CONT).unwrap();
                thread::sleep(RUNS);
            }
        });
        Self { ends, pulses: Some(pulses) }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(pulses) = self.pulses.take() {
            // A panic of the test itself goes on.
            let _ = pulses.join();
        }
    }
}

/// Trains with two workers, one of which is measured. Returns the microseconds of each part of its mean step.
fn mean_step(data: &str, mode: &str, slow: Slow) -> [f64; 5] {
    let loss = if slow == Slow::Network { LOSS } else { 0.0 };
    let lossy = loss.to_string();
    let options = ["--data", data, "--batch", "256", "--servers", "1", "--mode", mode];
    let (_controller, address) = controller(&options);
    let start =
        |kind: &str, options: &[&str]| Member::start(&[&[kind, "--controller", &address], options].concat());
    let server = start("server", &["--shards-per-server", "1"]);
    let _switch = start("switch", &["--loss", &lossy]);
    let other = start("worker", &["--loss", &lossy]);

    let inspector = Inspector::new(None);
    let faults = FaultRates::new(loss, 0.0, 0.0).unwrap();
    let endpoint: Endpoint = address.parse().unwrap();
    let options = NodeOptions { inspector: Some(inspector.clone()), faults, ..NodeOptions::new(endpoint) };
    let worker = Worker::join(options).unwrap();
    let joined = Instant::now();
    let task = Task::from_text(&worker.cluster().task).unwrap();
    let workload = libra_models::open(&task.config, &task.data).unwrap();
    let chunks = workload.chunks(worker.cluster().shares);
    let mut training = workload.training(1.0).unwrap();

    let quota = match slow {
        Slow::Server => Some(Quota::of(&server)),
        Slow::OtherWorker => Some(Quota::of(&other)),
        Slow::Nothing | Slow::Reader | Slow::Network => None,
    };
    let reading = if slow == Slow::Reader { READING } else { Duration::ZERO };
    let mut measured = Measured { worker, reading, until: Instant::now() + TIME, steps: 0 };
    match training.train_epoch(&mut measured, 0, chunks.training, &mut |_| ()) {
        Ok(_) | Err(TrainError::Client(ClientError::Drained)) => {}
        Err(error) => panic!("{slow:?}: {error}"),
    }
    let trained = joined.elapsed().as_micros() as f64;
    measured.worker.leave().unwrap();
    let left = joined.elapsed().as_micros() as f64;
    drop(quota);

    let StepTimes { data, pull, compute, push, clock } = step_times(&inspector);
    let times = [data, pull, compute, push, clock].map(|micros| micros as f64);
    let sum: f64 = times.iter().sum();
    assert!(sum >= 0.97 * trained && sum <= 1.03 * left, "{slow:?}: {times:?} of {trained} to {left}");
    assert!(measured.steps > 0, "{slow:?}");
    times.map(|micros| micros / f64::from(measured.steps))
}

/// The last counts of a worker that has left.
fn step_times(inspector: &Inspector<MemberStatus>) -> StepTimes {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let inspected = runtime.block_on(inspector.ask(Duration::from_secs(5)));
    match inspected.statuses[0].counts {
        Statistics::Worker(counts) => counts.training.step_us,
        ref counts => panic!("no worker: {counts:?}"),
    }
}

#[test]
fn the_part_of_a_step_that_grows_names_what_is_slow() {
    let directory = TempDir::new().unwrap();
    let data = data_of(directory.path(), 6_000);
    let [free, synced] = ["async", "sync"].map(|mode| (mode, mean_step(&data, mode, Slow::Nothing)));
    for (slow, (mode, usual), expected) in [
        (Slow::Reader, free, ["data"].as_slice()),
        (Slow::Network, free, &["pull", "push"]),
        (Slow::Server, free, &["pull", "push"]),
        (Slow::OtherWorker, synced, &["clock"]),
    ] {
        let found = mean_step(&data, mode, slow);
        println!("{mode} {slow:?}: {found:.0?} us, usually {usual:.0?}");
        let growth = |part: &usize| found[*part] - usual[*part];
        let grown = (0..PARTS.len()).max_by(|one, other| growth(one).total_cmp(&growth(other)));
        let grown = PARTS[grown.unwrap()];
        assert!(expected.contains(&grown), "{mode} {slow:?}: {grown} has grown: {found:?} from {usual:?}");
    }
}
