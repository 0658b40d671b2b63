//! Several workers on one store in memory, each on a thread.

mod chunks;

use std::{
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

use libra_client::{Init, LocalParameters, Optimizer, PullId, Pulled, Store, TableSpec, Tick};

use super::*;
use crate::{Learner, Quality, TrainError, Training, trainer::Trainer};

const WEIGHTS: u64 = 20;
const SAMPLES: u64 = 600;

fn tables(rate: f32) -> Vec<TableSpec> {
    let rule = Optimizer::Sgd { rate }.into();
    vec![TableSpec { name: "weight".into(), keys: 0..WEIGHTS, width: 1, rule, init: Init::Zero }]
}

/// Linear regression with three weights a sample. A step of all workers takes the next samples, each worker its part of them: one chunk that each has for itself.
struct Regression {
    batch: u64,
    worker: u64,
    workers: u64,
    /// First sample of its next batch.
    next: u64,
    /// End of its samples, if it has fewer than others.
    end: u64,
}

impl Regression {
    fn new(batch: u64, worker: u64, workers: u64) -> Self {
        Self { batch, worker, workers, next: worker * batch, end: SAMPLES }
    }

    fn features(sample: u64) -> [u64; 3] {
        let first = sample * 7 % WEIGHTS;
        [first, (first + 3 + sample % 5) % WEIGHTS, (first + 11 + sample % 2) % WEIGHTS]
    }

    /// Returns the target of a sample, which the weights can fit exactly.
    fn target(sample: u64) -> f32 {
        Self::features(sample).iter().map(|key| *key as f32 / 8.0 - 1.0).sum()
    }
}

impl Learner for Regression {
    type Batch = (Range<u64>, Vec<u64>);

    fn start_epoch(&mut self, _: u32) {}

    fn start_chunk(&mut self, _: Chunk) -> Result<(), TrainError> {
        self.next = self.worker * self.batch;
        Ok(())
    }

    fn samples_per_epoch(&self) -> u64 {
        SAMPLES
    }

    fn next_batch(&mut self, batch: &mut Self::Batch, keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        let samples = self.next..(self.next + self.batch).min(self.end.max(self.next));
        self.next += self.batch * self.workers;
        keys.extend(samples.clone().flat_map(Self::features));
        keys.sort_unstable();
        keys.dedup();
        let count = usize::try_from(samples.end - samples.start).unwrap();
        *batch = (samples, keys.clone());
        Ok(count)
    }

    fn step(
        &mut self,
        (samples, keys): &Self::Batch,
        values: &[f32],
        gradients: &mut Vec<f32>,
    ) -> Result<f64, TrainError> {
        let count = (samples.end - samples.start) as f32;
        *gradients = vec![0.0; values.len()];
        let mut loss = 0.0;
        for sample in samples.clone() {
            let places = Self::features(sample).map(|key| keys.binary_search(&key).unwrap());
            let error = places.iter().map(|place| values[*place]).sum::<f32>() - Self::target(sample);
            places.iter().for_each(|place| gradients[*place] += 2.0 * error / count);
            loss += f64::from(error * error / count);
        }
        Ok(loss)
    }

    fn quality_of_nothing(&self) -> Quality {
        unreachable!("no test evaluates it")
    }

    fn start_evaluation(&mut self, _: u32, _: &mut dyn Parameters) -> Result<Vec<Measure>, TrainError> {
        unreachable!("no test evaluates it")
    }

    fn evaluate(&mut self, _: Chunk, _: &mut dyn Parameters) -> Result<Quality, TrainError> {
        unreachable!("no test evaluates it")
    }
}

/// State that the workers of a job share.
struct Shared {
    job: Mutex<Job>,
    changed: Condvar,
}

struct Job {
    store: LocalParameters,
    clocks: Vec<u64>,
    /// Workers that wait at the barrier.
    waits: Vec<bool>,
    barriers: u64,
    pulls: u64,
    pushes: u64,
    /// Workers that wait for the clocks of others.
    held_up: usize,
}

impl Shared {
    fn new(workers: usize, rate: f32) -> Arc<Self> {
        let job = Job {
            store: LocalParameters::new(Store::new(tables(rate), 1).unwrap()),
            clocks: vec![0; workers],
            waits: vec![false; workers],
            barriers: 0,
            pulls: 0,
            pushes: 0,
            held_up: 0,
        };
        Arc::new(Self { job: Mutex::new(job), changed: Condvar::new() })
    }

    fn job(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap()
    }

    /// Waits until the others have changed something so that this holds.
    fn wait(&self, done: impl Fn(&Job) -> bool) -> MutexGuard<'_, Job> {
        self.changed.wait_while(self.job(), |job| !done(job)).unwrap()
    }

    fn weights(&self) -> Vec<f32> {
        let store = &mut self.job().store;
        let pull = store.start_pull((0..WEIGHTS).collect()).unwrap();
        store.finish_pull(pull).unwrap().values
    }
}

/// One worker of them.
struct Member {
    shared: Arc<Shared>,
    worker: usize,
}

impl Parameters for Member {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        let mut job = self.shared.job();
        job.pulls += 1;
        job.store.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.shared.job().store.finish_pull(pull)
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        let mut job = self.shared.job();
        job.pushes += 1;
        job.store.push(keys, gradients)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        let mut job = self.shared.job();
        let barriers = job.barriers;
        job.waits[self.worker] = true;
        if job.waits.iter().all(|waits| *waits) {
            job.waits.fill(false);
            job.clocks.fill(0);
            job.barriers += 1;
        }
        drop(job);
        self.shared.changed.notify_all();
        drop(self.shared.wait(|job| job.barriers > barriers));
        Ok(())
    }

    fn tick(&mut self, _: Tick) -> Result<(), ClientError> {
        // A push is visible when it returns.
        self.shared.job().clocks[self.worker] += 1;
        self.shared.changed.notify_all();
        Ok(())
    }

    fn wait_for_clocks(&mut self, least: u64) -> Result<(), ClientError> {
        self.shared.job().held_up += 1;
        self.shared.changed.notify_all();
        let reached = |job: &Job| job.clocks.iter().zip(&job.waits).all(|(at, waits)| *waits || *at >= least);
        self.shared.wait(reached).held_up -= 1;
        Ok(())
    }
}

/// Trains on a thread for some epochs, with barriers as `libra` has them.
fn train(shared: &Arc<Shared>, worker: usize, learner: Regression, mode: Mode) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut member = Member { shared, worker };
        let mut training = Trainer::new(learner, &tables(0.0), mode);
        for epoch in 0..2 {
            member.barrier().unwrap();
            training.train_epoch(&mut member, epoch, 1, &mut |_| ()).unwrap();
        }
        member.barrier().unwrap();
    })
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The weights that so many workers come to together.
fn trained(workers: u64, batch: u64, rate: f32, mode: Mode) -> Vec<f32> {
    let count = usize::try_from(workers).unwrap();
    let shared = Shared::new(count, rate);
    let learner = |worker: usize| Regression::new(batch, worker as u64, workers);
    join((0..count).map(|worker| train(&shared, worker, learner(worker), mode)).collect::<Vec<_>>());
    shared.weights()
}

#[test]
fn workers_in_step_are_one_worker_with_all_their_batches() {
    // A push is the gradient of the mean of a batch, and pushes are added up. One alone pulls ahead in other modes.
    let one = trained(1, 24, 0.06, Mode::Sync);
    let three = trained(3, 8, 0.02, Mode::Sync);
    for (one, three) in one.iter().zip(&three) {
        assert!((one - three).abs() < 1e-5, "{one} and {three}");
    }
    // It has learnt something: all of them would be equal as zeros, too.
    assert!(one.iter().any(|weight| weight.abs() > 0.3), "{one:?}");
}

/// Returns the number of pulls and pushes that a worker begins in a mode while another is idle, before it waits; none if it never waits.
fn held_up_after(mode: Mode) -> Option<(u64, u64)> {
    let shared = Shared::new(2, 0.01);
    let fast = train(&shared, 0, Regression::new(20, 0, 1), mode);
    let mut slow = Member { shared: Arc::clone(&shared), worker: 1 };
    slow.barrier().unwrap();
    let job = shared.wait(|job| job.held_up > 0 || job.waits[0]);
    let held_up = (job.held_up > 0).then_some((job.pulls, job.pushes));
    drop(job);
    // It reaches the barrier without a step, so the other no longer waits for it.
    slow.barrier().unwrap();
    slow.barrier().unwrap();
    join([fast]);
    held_up
}

#[test]
fn a_slow_worker_blocks_others_as_the_mode_demands() {
    assert_eq!(held_up_after(Mode::Async), None);
    // Steps 0 to 3 have read, 0 to 2 are done; what step 4 reads would miss four steps of the slow one.
    assert_eq!(held_up_after(Mode::Ssp { staleness: 3 }), Some((4, 3)));
    assert_eq!(held_up_after(Mode::Ssp { staleness: 1 }), Some((2, 1)));
    assert_eq!(held_up_after(Mode::Ssp { staleness: 1000 }), None);
    assert_eq!(held_up_after(Mode::Sync), Some((1, 0)));
}

#[test]
fn workers_with_fewer_batches_do_not_block_the_others() {
    for mode in [Mode::Sync, Mode::Ssp { staleness: 1 }] {
        let shared = Shared::new(3, 0.02);
        let ends = [SAMPLES, SAMPLES / 4, 0];
        let learner =
            |worker: usize| Regression { end: ends[worker], ..Regression::new(8, worker as u64, 3) };
        join((0..3).map(|worker| train(&shared, worker, learner(worker), mode)).collect::<Vec<_>>());
    }
}

#[test]
fn modes_are_printed_in_words() {
    let printed = [Mode::Async, Mode::Ssp { staleness: 3 }, Mode::Sync].map(|mode| mode.to_string());
    assert_eq!(printed, ["async", "ssp, staleness 3", "sync"]);
}
