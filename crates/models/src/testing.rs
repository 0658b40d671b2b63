//! A worker that gets certain chunks, for tests.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use libra_client::{ClientError, LocalParameters, Parameters, PullId, Pulled, Store, Tick};

use crate::{Evaluation, Quality, Workload};

/// Keys and gradients of a push.
pub(crate) type Push = (Vec<u64>, Vec<f32>);

/// Parameters that deal the chunks of a list, and keep the pushes of each instead of applying them.
pub(crate) struct Dealt<'p> {
    parameters: &'p mut dyn Parameters,
    chunks: VecDeque<u32>,
    open: Vec<Push>,
    /// The pushes of each chunk that is finished.
    pub(crate) finished: BTreeMap<u32, Vec<Push>>,
    /// The account of the last one.
    pub(crate) account: String,
}

impl<'p> Dealt<'p> {
    pub(crate) fn new(parameters: &'p mut dyn Parameters, chunks: impl IntoIterator<Item = u32>) -> Self {
        let chunks = chunks.into_iter().collect();
        Self { parameters, chunks, open: Vec::new(), finished: BTreeMap::new(), account: String::new() }
    }
}

impl Parameters for Dealt<'_> {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.parameters.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.parameters.finish_pull(pull)
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.open.push((keys, gradients));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        assert!(self.open.is_empty(), "a chunk was not finished");
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

    fn next_chunk(&mut self, _: u32, _: Option<u32>) -> Result<Option<u32>, ClientError> {
        Ok(self.chunks.pop_front())
    }

    fn finish_chunk(&mut self, chunk: u32, account: String) -> Result<(), ClientError> {
        let pushes = std::mem::take(&mut self.open);
        assert_eq!(self.finished.insert(chunk, pushes), None, "chunk {chunk} was finished twice");
        self.account = account;
        Ok(())
    }
}

pub(crate) fn local(workload: &dyn Workload) -> LocalParameters {
    LocalParameters::new(Store::new(workload.tables(), 1).unwrap())
}

/// Returns the pushes of each of some chunks, which a worker gets in this order. All of its pulls are answered with initial values.
fn pushes_of(
    workload: &Arc<dyn Workload>,
    epoch: u32,
    chunks: u32,
    dealt: impl IntoIterator<Item = u32>,
) -> BTreeMap<u32, Vec<Push>> {
    let mut local = local(&**workload);
    let mut parameters = Dealt::new(&mut local, dealt);
    let mut training = workload.clone().training(1.0).unwrap();
    training.train_epoch(&mut parameters, epoch, chunks, &mut |_| ()).unwrap();
    parameters.finished
}

/// Checks that a chunk has the same gradients whatever its worker did before, and that the chunks are the epoch.
pub(crate) fn assert_chunks_are_the_same_for_any_worker(workload: &Arc<dyn Workload>) {
    let (epoch, chunks) = (3, 13);
    let all = pushes_of(workload, epoch, chunks, 0..chunks);
    assert!(all.values().any(|pushes| pushes.len() > 1), "chunks of several batches");
    let backwards = pushes_of(workload, epoch, chunks, (0..chunks).rev());
    assert!(all == backwards, "gradients depend on what was trained before");
    let alone = pushes_of(workload, epoch, chunks, [5]);
    assert!(alone[&5] == all[&5], "the same by another worker");
    let other = pushes_of(workload, epoch + 1, chunks, [5]);
    assert!(other[&5] != all[&5], "another epoch is drawn for itself");
    assert!(pushes_of(workload, epoch, chunks, []).is_empty());
}

/// Returns the pushes of an epoch in order, trained in so many chunks.
pub(crate) fn epoch_in_order(workload: &Arc<dyn Workload>, chunks: u32) -> Vec<Push> {
    pushes_of(workload, 3, chunks, 0..chunks).into_values().flatten().collect()
}

/// Returns the sum of the evaluations of workers that get some of seven chunks each, one of them none.
pub(crate) fn evaluation_in_parts(workload: &Arc<dyn Workload>, parameters: &mut dyn Parameters) -> Quality {
    let mut sum: Option<Evaluation> = None;
    for dealt in [vec![], vec![6, 0, 3], vec![1, 2, 4, 5]] {
        let mut parameters = Dealt::new(parameters, dealt.clone());
        let mut training = workload.clone().training(1.0).unwrap();
        let part = training.evaluate(&mut parameters, 0, 7).unwrap();
        if !dealt.is_empty() {
            let account: Evaluation = serde_json::from_str(&parameters.account).unwrap();
            assert_eq!(account.quality.cases(), part.quality.cases());
        }
        match &mut sum {
            Some(sum) => sum.add(&part).unwrap(),
            None => {
                assert_eq!(part.quality.cases().0, 0);
                sum = Some(part);
            }
        }
    }
    sum.unwrap().quality
}
