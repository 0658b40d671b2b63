//! A worker's part of a training job, from the first barrier to its account.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use libra_client::{NodeError, Observed, Parameters, PushObserver, TrainingNote, Worker};
use libra_models::{Evaluation, Progress, Quality, Workload};

use crate::event_log::milliseconds;
use crate::exit::is_drained;
use crate::task::{Account, EpochAccount, Task};

/// Progress of a worker.
pub enum Step {
    /// Batches were trained.
    Trained(Progress),
    /// An epoch of training was evaluated.
    Evaluated {
        /// Its number, from 1 on.
        epoch: u32,
        /// The result.
        quality: Quality,
    },
}

/// Trains, sends the result to the controller, and waits until the job is over. A failure ends the job for all. An observer sees all pushes.
pub fn work(
    mut worker: Worker,
    task: &Task,
    workload: Arc<dyn Workload>,
    observer: Option<&mut dyn PushObserver>,
    watch: &mut dyn FnMut(Step),
) -> Result<()> {
    match train(&mut worker, task, workload, observer, watch).and_then(|account| account.to_text()) {
        Ok(account) => Ok(worker.report(account)?),
        // Its share is free for another, which begins with the next epoch.
        Err(error) if is_drained(&error) => {
            worker.drain()?;
            Err(NodeError::Drained { unsaved: None }.into())
        }
        Err(error) => {
            worker.abort(format!("{error:#}"));
            Err(error)
        }
    }
}

fn train(
    worker: &mut Worker,
    task: &Task,
    workload: Arc<dyn Workload>,
    mut observer: Option<&mut dyn PushObserver>,
    watch: &mut dyn FnMut(Step),
) -> Result<Account> {
    let shares = worker.cluster().shares;
    let chunks = workload.chunks(shares);
    worker.note(TrainingNote::Reads);
    let mut training = workload.training(1.0)?;
    worker.note(TrainingNote::Computes);
    let mut epochs = Vec::new();
    let (first_epoch, barriers) = entry(worker.next_barrier(), task.config.epochs);
    let epochs_left = u64::from(task.config.epochs - first_epoch);
    // About: a worker trains what it gets.
    let samples = training.samples_per_epoch().div_ceil(u64::from(shares.max(1)));
    worker.note(TrainingNote::Plans { samples: epochs_left * samples });
    for _ in 0..barriers {
        worker.barrier()?;
    }
    for epoch in first_epoch..task.config.epochs {
        let started = Instant::now();
        let progress = &mut |progress| watch(Step::Trained(progress));
        let report = match &mut observer {
            Some(observer) => {
                let mut observed = Observed::new(worker, observer);
                training.train_epoch(&mut observed, epoch, chunks.training, progress)?
            }
            None => training.train_epoch(worker, epoch, chunks.training, progress)?,
        };
        // Evaluation must see the pushes of all workers, and none of the next epoch.
        worker.barrier()?;
        let trained = Instant::now();
        let Evaluation { quality, findings } = training.evaluate(worker, epoch, chunks.evaluation)?;
        worker.barrier()?;
        epochs.push(EpochAccount {
            samples: report.samples,
            loss: report.loss * report.samples as f64,
            quality: quality.clone(),
            findings,
            train_seconds: (trained - started).as_secs_f64(),
            evaluate_seconds: trained.elapsed().as_secs_f64(),
        });
        watch(Step::Evaluated { epoch, quality });
    }
    Ok(Account { first_epoch, epochs, stall_ms_max: milliseconds(worker.longest_stall()) })
}

/// The first epoch of a worker whose first barrier has this number, and how many barriers it takes part in before.
///
/// Barrier 0 comes before the first epoch, barrier 2e + 1 after the training of epoch e, and 2e + 2 after its evaluation: who
/// joins in between waits for the next epoch to begin.
fn entry(next_barrier: u64, epochs: u32) -> (u32, u64) {
    let epoch = next_barrier.div_ceil(2);
    if epoch > epochs.into() {
        // The others are through.
        return (epochs, 0);
    }
    let first_epoch = u32::try_from(epoch).expect("it is at most the number of epochs");
    (first_epoch, 2 * epoch + 1 - next_barrier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_worker_begins_with_the_next_epoch() {
        assert_eq!(entry(0, 10), (0, 1));
        // While the others train in epoch 0, or evaluate it.
        assert_eq!([1, 2].map(|barrier| entry(barrier, 10)), [(1, 2), (1, 1)]);
        assert_eq!([3, 4].map(|barrier| entry(barrier, 10)), [(2, 2), (2, 1)]);
        // Nothing is left to train, but those who wait at the last barriers wait for all.
        assert_eq!([19, 20, 21].map(|barrier| entry(barrier, 10)), [(10, 2), (10, 1), (10, 0)]);
    }
}
