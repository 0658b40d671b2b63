//! A log with a vocabulary.

use std::{ops::Range, sync::Arc};

use libra_client::ReadCounts;

use super::{
    super::{
        data::{Cursor, Dataset, Layout, Row},
        model::Samples,
        shuffle::Shuffle,
    },
    Feed, Source,
};
use crate::{
    Chunk, Chunks, DataFile, Measure, TrainError,
    learner::{chunks_of, whole_chunks},
    rows::DistinctRows,
};

impl Source for Dataset {
    fn name(&self) -> &str {
        &self.name
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn keys(&self) -> Range<u64> {
        0..u64::from(self.vocabulary.rows())
    }

    fn size(&self) -> Vec<(u64, &'static str)> {
        let Self { layout, vocabulary, train, test, .. } = self;
        let mut size = vec![(train.rows as u64, "rows to train on"), (test.rows as u64, "to test on")];
        if let Layout::Fields(fields) = layout {
            size.push((*fields as u64, "fields"));
        }
        size.push((vocabulary.values() as u64, "values"));
        size
    }

    fn files(&self) -> Vec<DataFile> {
        self.files.clone()
    }

    fn rows(&self) -> u64 {
        self.train.rows as u64
    }

    /// Returns chance, and the loss of always predicting the share of clicks among the training rows.
    fn baselines(&self) -> Vec<Measure> {
        let rate = self.train.rate();
        let clicks = self.test.clicks as f64 / self.test.rows as f64;
        let loss = -(clicks * rate.ln() + (1.0 - clicks) * (1.0 - rate).ln());
        vec![
            Measure::new("auc_of_chance", "chance", 0.5),
            Measure::new("log_loss_of_mean", "log loss of the mean click rate", loss),
        ]
    }

    fn chunks(&self, batch: usize, workers: u16) -> Chunks {
        let chunks = |rows, per_worker| chunks_of(rows, batch as u64, workers, per_worker);
        Chunks { training: chunks(self.rows(), 64), evaluation: chunks(self.test.rows as u64, 16) }
    }

    fn feed(self: Arc<Self>, sample: f64, batch: usize, seed: u64) -> Result<Box<dyn Feed>, TrainError> {
        let distinct = DistinctRows::new(self.vocabulary.rows() as usize);
        let shuffle = Shuffle::new(&self, sample, seed)?;
        Ok(Box::new(LogFeed { dataset: self, batch, shuffle, test: None, row: Row::default(), distinct }))
    }
}

struct LogFeed {
    dataset: Arc<Dataset>,
    batch: usize,
    shuffle: Shuffle,
    /// Test rows that are left, and how many are taken at once.
    test: Option<(Cursor, usize)>,
    row: Row,
    distinct: DistinctRows,
}

/// Adds a row to the samples, and its features to `keys`.
fn add_row(row: &Row, distinct: &mut DistinctRows, samples: &mut Samples, keys: &mut Vec<u64>) {
    let features = row.parameters.iter().map(|&feature| distinct.index(u64::from(feature), keys));
    samples.push(features, row.clicked);
}

impl Feed for LogFeed {
    fn rows(&self) -> u64 {
        self.shuffle.rows() as u64
    }

    fn chunks_alone(&self) -> u32 {
        whole_chunks(self.rows())
    }

    fn reads(&self) -> ReadCounts {
        ReadCounts::default()
    }

    fn start_epoch(&mut self, epoch: u32) {
        self.shuffle.start_epoch(epoch);
    }

    /// The order of the rows is drawn from it.
    fn epoch_seed(&self) -> u64 {
        self.shuffle.epoch_seed()
    }

    fn start_chunk(&mut self, chunk: Chunk) -> Result<u64, TrainError> {
        let rows = chunk.samples(self.rows(), self.batch);
        let first = rows.start / self.batch as u64;
        self.shuffle.start_chunk(rows)?;
        Ok(first)
    }

    fn next_batch(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError> {
        self.distinct.start();
        while samples.len() < self.batch
            && let Some(row) = self.shuffle.next()
        {
            add_row(row, &mut self.distinct, samples, keys);
        }
        Ok(())
    }

    fn start_test(&mut self, chunk: Chunk, at_once: usize) -> Result<u64, TrainError> {
        let all = self.dataset.test_rows();
        let rows = chunk.places(all.len());
        let rows = all.start + rows.start..all.start + rows.end;
        let first = rows.start as u64;
        self.test = Some((Cursor::new(&self.dataset, rows)?, at_once));
        Ok(first)
    }

    fn next_test(&mut self, samples: &mut Samples, keys: &mut Vec<u64>) -> Result<(), TrainError> {
        let Self { test, row, distinct, .. } = self;
        distinct.start();
        let Some((cursor, at_once)) = test else { return Ok(()) };
        while samples.len() < *at_once && cursor.read(row, |_| true)? {
            add_row(row, distinct, samples, keys);
        }
        Ok(())
    }
}
