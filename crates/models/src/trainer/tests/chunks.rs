//! The order of what a worker does with the chunks that it gets.

use std::collections::VecDeque;

use super::*;
use crate::EpochReport;

/// A sample is a row, and a batch has one of them.
struct Counting {
    samples: u64,
    next: Range<u64>,
}

impl Learner for Counting {
    type Batch = ();

    fn start_epoch(&mut self, _: u32) {}

    fn start_chunk(&mut self, chunk: Chunk) -> Result<(), TrainError> {
        self.next = chunk.samples(self.samples, 1);
        Ok(())
    }

    fn samples_per_epoch(&self) -> u64 {
        self.samples
    }

    fn next_batch(&mut self, (): &mut (), keys: &mut Vec<u64>) -> Result<usize, TrainError> {
        keys.extend(self.next.next());
        Ok(keys.len())
    }

    fn step(&mut self, (): &(), values: &[f32], gradients: &mut Vec<f32>) -> Result<f64, TrainError> {
        *gradients = vec![0.0; values.len()];
        Ok(1.0)
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

/// Deals chunks as a script has them, and writes down the calls.
struct Script {
    answers: VecDeque<Option<u32>>,
    /// The chunk that the worker must name as its last one.
    last: Option<u32>,
    calls: Vec<String>,
    pulls: Vec<Vec<u64>>,
    accounts: Vec<EpochReport>,
}

impl Parameters for Script {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.calls.push(format!("pull {}", keys[0]));
        self.pulls.push(keys);
        Ok(PullId(self.pulls.len() as u64 - 1))
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        let keys = self.pulls[usize::try_from(pull.0).unwrap()].clone();
        Ok(Pulled { values: vec![0.0; keys.len()], keys })
    }

    fn push(&mut self, keys: Vec<u64>, _: Vec<f32>) -> Result<(), ClientError> {
        self.calls.push(format!("push {}", keys[0]));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.calls.push("flush".to_owned());
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        Ok(())
    }

    fn tick(&mut self, _: Tick) -> Result<(), ClientError> {
        Ok(())
    }

    fn wait_for_clocks(&mut self, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn next_chunk(&mut self, _: u32, last: Option<u32>) -> Result<Option<u32>, ClientError> {
        assert_eq!(last, self.last);
        let answer = self.answers.pop_front().expect("asked too often");
        self.last = answer.or(self.last);
        self.calls.push(answer.map_or_else(|| "none".to_owned(), |chunk| format!("get {chunk}")));
        Ok(answer)
    }

    fn finish_chunk(&mut self, chunk: u32, account: String) -> Result<(), ClientError> {
        self.calls.push(format!("finish {chunk}"));
        self.accounts.push(serde_json::from_str(&account).unwrap());
        Ok(())
    }
}

fn train(
    mode: Mode,
    samples: u64,
    chunks: u32,
    answers: impl IntoIterator<Item = Option<u32>>,
) -> (EpochReport, Script) {
    let answers = answers.into_iter().collect();
    let mut script =
        Script { answers, last: None, calls: Vec::new(), pulls: Vec::new(), accounts: Vec::new() };
    let mut training = Trainer::new(Counting { samples, next: 0..0 }, &tables(0.1), mode);
    let report = training.train_epoch(&mut script, 7, chunks, &mut |_| ()).unwrap();
    assert!(script.answers.is_empty());
    (report, script)
}

/// Two chunks, none to be had until the second is finished, then one that comes back.
const ANSWERS: [Option<u32>; 5] = [Some(2), Some(0), None, Some(1), None];

#[test]
fn a_worker_asks_ahead_and_again_when_it_has_finished() {
    let answers = ANSWERS.into_iter().chain([None]);
    let (report, script) = train(Mode::Async, 6, 3, answers);
    let expected = [
        "get 2, pull 4, pull 5, push 4, get 0, pull 0, push 5, finish 2",
        "pull 1, push 0, none, push 1, finish 0",
        "get 1, pull 2, pull 3, push 2, none, push 3, finish 1, none, flush",
    ];
    assert_eq!(script.calls.join(", "), expected.join(", "));
    let done: Vec<(u64, u64)> =
        script.accounts.iter().map(|account| (account.batches, account.samples)).collect();
    assert_eq!(done, [(2, 2), (4, 4), (6, 6)]);
    assert_eq!((script.accounts[2], report.epoch), (report, 7));
}

#[test]
fn in_sync_nothing_is_dealt_ahead() {
    let answers = ANSWERS.into_iter().chain([None]);
    let (_, script) = train(Mode::Sync, 6, 3, answers);
    let expected = [
        "get 2, pull 4, push 4, pull 5, push 5, get 0, pull 0, finish 2",
        "push 0, pull 1, push 1, none, finish 0",
        "get 1, pull 2, push 2, pull 3, push 3, none, finish 1, none, flush",
    ];
    assert_eq!(script.calls.join(", "), expected.join(", "));
}

#[test]
fn chunks_without_samples_are_finished_too() {
    for mode in [Mode::Async, Mode::Sync] {
        let answers = (0..10).map(Some).chain([None, None]);
        let (report, script) = train(mode, 4, 10, answers);
        let of = |call: &str| script.calls.iter().filter(|found| found.starts_with(call)).count();
        assert_eq!((of("finish"), of("push"), report.samples), (10, 4, 4));
        let (report, script) = train(mode, 4, 10, [None]);
        assert_eq!(
            (report, script.calls.join(", ")),
            (EpochReport { epoch: 7, ..report }, "none, flush".into())
        );
    }
}

#[test]
fn reports_of_workers_are_added() {
    let part = |samples, loss| EpochReport { epoch: 7, batches: 2, samples, rows: 30, loss };
    let mut sum = part(100, 0.5);
    sum.add(&part(300, 0.1));
    sum.add(&EpochReport { epoch: 7, ..EpochReport::default() });
    assert_eq!((sum.batches, sum.samples, sum.rows), (4, 400, 60));
    assert!((sum.loss - 0.2).abs() < 1e-12, "{}", sum.loss);
}
