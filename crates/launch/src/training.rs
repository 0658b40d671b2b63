//! A worker's part of a training job, from the first barrier to its account.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use libra_client::{Cluster, NodeError, Observed, Parameters, PushObserver, TrainingNote, Worker};
use libra_models::{Evaluation, Progress, Quality, Workload};

use crate::event_log::milliseconds;
use crate::exit::is_drained;
use crate::follow::File;
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
    let is_open = work
        .as_ref()
        .context("the controller deals no work to workers of a model: its job is that of other programs")?
        .is_open;
    worker.note(TrainingNote::Reads);
    let mut training = workload.training(1.0)?;
    worker.note(TrainingNote::Computes);
    // About: a worker trains what it gets.
    let mut planned = 0;
    if !is_open {
        let epochs = u64::from(task.config.epochs);
        let epochs_left = epochs - (worker.phase() / 2).min(epochs);
        planned = epochs_left * training.samples_per_epoch().div_ceil(shares);
        worker.note(TrainingNote::Plans { samples: planned });
    }
    let mut account = Account::default();
    while let Some(phase) = worker.next_phase()? {
        let started = Instant::now();
        let (epoch, chunks) = (epoch_of(phase), worker.cluster().chunks(phase));
        if let Some(added) = worker.cluster().view.added.get(phase) {
            let file = File::of(added)?;
            worker.note(TrainingNote::Reads);
            training.start_file(&file.name)?;
            worker.note(TrainingNote::Computes);
            if is_training(phase) {
                planned += file.rows.div_ceil(shares);
                worker.note(TrainingNote::Plans { samples: planned });
            }
        }
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
