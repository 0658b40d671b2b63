//! Recordings of `libra train --record`, for a simulation.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libra_client::Widths;
use libra_models::record::{PushReader, RecordError, RecordedPush, file_name};
use libra_perfsim::{Push, Pushes};
use libra_plan::Frequencies;

/// A recording, and how much of it is used.
pub(super) struct Recorded {
    files: Vec<File>,
    /// Frequency of pushes of each row, and the magnitudes of its gradients.
    pub(super) frequencies: Frequencies,
    /// Updates of rows.
    pub(super) pairs: u64,
    /// Its values, gradients of layers and all.
    pub(super) values: u64,
    /// The model and its data, for people.
    pub(super) of_what: String,
    /// Notes about files that are truncated.
    pub(super) notes: Vec<String>,
}

struct File {
    path: PathBuf,
    pushes: u64,
}

impl Recorded {
    /// Reads all files once, for the frequencies that are needed before anything is pushed, and takes the first `pushes_max` pushes of each. A file that is cut off counts
    /// as far as it goes.
    pub(super) fn open(directory: &Path, pushes_max: u64) -> Result<Self> {
        let first = PushReader::open(&directory.join(file_name(0))).context("--recording")?;
        let head = first.head().clone();
        let frequencies = Frequencies::new(head.tables.clone())
            .with_context(|| format!("--recording: {} has no tables of one model", directory.display()))?;
        let mut recorded = Self {
            files: Vec::new(),
            frequencies,
            pairs: 0,
            values: 0,
            of_what: format!("{}, {} data", head.model, head.data),
            notes: Vec::new(),
        };
        let widths = Widths::of_shapes(&head.tables);
        for worker in 0..head.workers {
            let path = directory.join(file_name(worker));
            let mut reader = PushReader::open(&path).context("--recording")?;
            if (&reader.head().tables, reader.head().worker) != (&head.tables, worker) {
                bail!("--recording: {} is of another job than the file of worker 0", path.display());
            }
            let mut pushes = 0;
            while pushes < pushes_max {
                match reader.next_push() {
                    Ok(Some(push)) => recorded.count(&push, &widths),
                    Ok(None) => break,
                    Err(error @ RecordError::Cut { .. }) => {
                        recorded.notes.push(format!("note: {error}; what is before is replayed"));
                        break;
                    }
                    Err(error) => return Err(error).context("--recording"),
                }
                pushes += 1;
            }
            recorded.files.push(File { path, pushes });
        }
        if recorded.pairs == 0 {
            bail!("--recording: there is no push in {}", directory.display());
        }
        Ok(recorded)
    }

    fn count(&mut self, push: &RecordedPush, widths: &Widths) {
        self.pairs += push.keys.len() as u64;
        self.values += push.gradients.len() as u64;
        self.frequencies.record_push(push.keys.iter().copied());
        for (key, gradient) in widths.rows(&push.keys, &push.gradients) {
            let largest = gradient.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            self.frequencies.record_gradient(key, largest);
        }
    }

    /// Deals the pushes to workers in turn, each to one: first the first push of each file, then the second ones.
    pub(super) fn deal(&self, workers: u16) -> Result<Vec<Pushes>> {
        (0..u64::from(workers)).map(|worker| self.dealt(worker, workers.into())).collect()
    }

    fn dealt(&self, worker: u64, workers: u64) -> Result<Pushes> {
        let files = self.files.len() as u64;
        let is_of = move |step: u64, file: u64| (step * files + file) % workers == worker;
        let mut mine = Vec::new();
        for (number, file) in (0..files).zip(&self.files) {
            // As many steps as there are workers bring every turn that a file ever has.
            if (0..workers).any(|step| is_of(step, number)) {
                mine.push((number, PushReader::open(&file.path).context("--recording")?, file.pushes));
            }
        }
        let mut ready = VecDeque::new();
        let mut step = 0;
        Ok(Pushes::new(std::iter::from_fn(move || {
            while ready.is_empty() && mine.iter().any(|(_, _, pushes)| step < *pushes) {
                for (number, reader, pushes) in &mut mine {
                    // Everything that was read once must be read again, or else pairs are missing in the comparison.
                    let push = if step < *pushes { reader.next_push().ok().flatten() } else { None };
                    ready.extend(push.filter(|_| is_of(step, *number)));
                }
                step += 1;
            }
            let RecordedPush { keys, gradients, .. } = ready.pop_front()?;
            Some(Push { pairs: keys.len() as u64, keys, gradients })
        })))
    }
}
