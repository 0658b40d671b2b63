//! A worker's part of a training job, from the first barrier to its account.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use libra_net::WorkerNode;
use libra_proto::Parameters;
use libra_train::{Dataset, Progress, Quality, Trainer};

use crate::task::{Account, EpochAccount, Task};

/// What a worker tells whoever watches it.
pub(crate) enum Step {
    Trained(Progress),
    Evaluated { epoch: u32, quality: Quality },
}

/// Trains, tells the controller what came of it, and waits until the job is over. A failure ends the job for everybody.
pub(crate) fn work(
    mut worker: WorkerNode,
    task: &Task,
    dataset: Arc<Dataset>,
    watch: &mut dyn FnMut(Step),
) -> Result<()> {
    match train(&mut worker, task, dataset, watch).and_then(|account| account.to_text()) {
        Ok(account) => Ok(worker.report(account)?),
        Err(error) => {
            worker.abort(format!("{error:#}"));
            Err(error)
        }
    }
}

fn train(
    worker: &mut WorkerNode,
    task: &Task,
    dataset: Arc<Dataset>,
    watch: &mut dyn FnMut(Step),
) -> Result<Account> {
    let (number, workers) = (usize::from(worker.number()), worker.cluster().workers.len());
    let mut trainer = Trainer::new(&task.config, dataset.clone(), number, workers)?;
    let cases = dataset.cases_of(number, workers);
    let mut epochs = Vec::new();
    worker.barrier()?;
    for epoch in 0..task.config.epochs {
        let started = Instant::now();
        let report = trainer.train_epoch(worker, epoch, &mut |progress| watch(Step::Trained(progress)))?;
        // Evaluation must see the pushes of all workers, and none of the next epoch.
        worker.barrier()?;
        let trained = Instant::now();
        let quality = trainer.evaluate(worker, cases)?;
        worker.barrier()?;
        epochs.push(EpochAccount {
            samples: report.samples,
            loss: report.loss * report.samples as f64,
            hits: quality.hits,
            gain: quality.gain,
            cases: quality.cases,
            train_seconds: (trained - started).as_secs_f64(),
            evaluate_seconds: trained.elapsed().as_secs_f64(),
        });
        watch(Step::Evaluated { epoch, quality });
    }
    Ok(Account { epochs })
}
