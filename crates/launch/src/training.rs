//! A worker's part of a training job, from the first barrier to its account.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use libra_client::{Cluster, NodeError, Observed, Parameters, PushObserver, TrainingNote, Worker};
use libra_models::{Evaluation, Progress, Quality, Workload};

use crate::event_log::milliseconds;
use crate::exit::is_drained;
use crate::task::{Account, Task, epoch_of, is_training};

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
        // What it has leases of is dealt to others.
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
    let Cluster { work, shares, .. } = worker.cluster();
    let shares = u64::from((*shares).max(1));
    let work = work
        .clone()
        .context("the controller deals no work to workers of a model: its job is that of other programs")?;
    worker.note(TrainingNote::Reads);
    let mut training = workload.training(1.0)?;
    worker.note(TrainingNote::Computes);
    let epochs = task.config.epochs;
    let epochs_left = u64::from(epochs) - (worker.phase() / 2).min(epochs.into());
    // About: a worker trains what it gets.
    let samples = training.samples_per_epoch().div_ceil(shares);
    worker.note(TrainingNote::Plans { samples: epochs_left * samples });
    let mut account = Account::default();
    while worker.phase() < work.phases {
        let (phase, started) = (worker.phase(), Instant::now());
        let (epoch, chunks) = (epoch_of(phase), work.chunks(phase));
        if is_training(phase) {
            let progress = &mut |progress| watch(Step::Trained(progress));
            match &mut observer {
                Some(observer) => {
                    training.train_epoch(&mut Observed::new(worker, observer), epoch, chunks, progress)?
                }
                None => training.train_epoch(worker, epoch, chunks, progress)?,
            };
        } else {
            let Evaluation { quality, .. } = training.evaluate(worker, epoch, chunks)?;
            watch(Step::Evaluated { epoch, quality });
            // Fails once this worker was asked to end.
            worker.flush()?;
        }
        account.seconds.insert(phase, started.elapsed().as_secs_f64());
    }
    account.stall_ms_max = milliseconds(worker.longest_stall());
    Ok(account)
}
