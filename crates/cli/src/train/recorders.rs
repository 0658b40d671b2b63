//! Records the pushes of workers in files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use libra_client::PushObserver;
use libra_models::record::{Head, PushWriter, file_name};
use libra_models::shapes;

use libra_launch::job::Job;

/// A file for each worker. They are created before training begins, so that errors are reported at once.
#[derive(Clone)]
pub(super) struct Recorders(Arc<Mutex<State>>);

struct State {
    /// Writers that no worker has yet, by the share of their worker.
    writers: BTreeMap<u16, PushWriter>,
    /// Reason of the first failure to write a push.
    failure: Option<String>,
}

impl Recorders {
    pub(super) fn create(directory: &Path, job: &Job) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("--record: cannot make {}", directory.display()))?;
        let mut writers = BTreeMap::new();
        for share in 0..job.spec.sizes.workers {
            let head = Head {
                worker: share.into(),
                workers: job.spec.sizes.workers.into(),
                model: job.workload.model(),
                data: job.workload.data().to_owned(),
                batch: job.task.config.batch as u64,
                tables: shapes(job.workload.tables()),
            };
            let path = directory.join(file_name(head.worker));
            writers.insert(share, PushWriter::create(&path, &head).context("--record")?);
        }
        Ok(Self(Arc::new(Mutex::new(State { writers, failure: None }))))
    }

    /// Returns the recorder of a worker, by its share.
    pub(super) fn of(&self, share: u16) -> Option<Recorder> {
        let writer = self.with(|state| state.writers.remove(&share))?;
        Some(Recorder { writer: Some(writer), recorders: self.clone() })
    }

    /// Returns the reason of the first failure to write, once.
    pub(super) fn failure(&self) -> Option<String> {
        self.with(|state| state.failure.take())
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Records the pushes of one worker until one cannot be written: training goes on, and the failure is reported at its end.
pub(super) struct Recorder {
    writer: Option<PushWriter>,
    recorders: Recorders,
}

impl PushObserver for Recorder {
    fn on_push(&mut self, keys: &[u64], gradients: &[f32]) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.write(keys, gradients) {
            self.writer = None;
            self.recorders.with(|state| {
                state.failure.get_or_insert_with(|| format!("--record: {error}"));
            });
        }
    }
}
