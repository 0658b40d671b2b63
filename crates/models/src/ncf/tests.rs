use std::mem;

use libra_client::{ClientError, LocalParameters, Optimizer, PullId, Pulled, Store, Tick, Widths};

use super::*;
use crate::{
    ModelConfig, ModelKind,
    data::DataError,
    testing::{assert_chunks_are_the_same_for_any_worker, epoch_in_order, evaluation_in_parts},
};

fn dataset() -> Arc<Dataset> {
    let recipe = Synthetic { users: 60, items: 150, picks_min: 10, ..Synthetic::default() };
    Arc::new(recipe.generate())
}

fn config() -> TrainConfig {
    let adam = Optimizer::Adam { rate: 0.02, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let ncf = NcfConfig { factors: 4, ..NcfConfig::default() };
    TrainConfig {
        model: ModelConfig::Ncf(ncf),
        batch: 64,
        epochs: 4,
        embeddings: adam.into(),
        layers: adam.into(),
        ..ModelKind::Neumf.config()
    }
}

fn workload(config: &TrainConfig, dataset: &Arc<Dataset>) -> Result<Arc<Ncf>, TrainError> {
    let ModelConfig::Ncf(ncf) = &config.model else { panic!("{config:?}") };
    Ok(Arc::new(Ncf::new(ncf, config, dataset.clone())?))
}

fn training(config: &TrainConfig, dataset: &Arc<Dataset>) -> Box<dyn Training> {
    workload(config, dataset).unwrap().training(1.0).unwrap()
}

fn local(config: &TrainConfig, dataset: &Arc<Dataset>) -> LocalParameters {
    LocalParameters::new(Store::new(workload(config, dataset).unwrap().tables(), config.seed).unwrap())
}

fn ranking(training: &mut dyn Training, parameters: &mut dyn Parameters) -> Ranking {
    match training.evaluate(parameters, 0, 2).unwrap().quality {
        Quality::Ranking(ranking) => ranking,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_model_learns() {
    let dataset = dataset();
    for branches in Branches::ALL {
        let ncf = NcfConfig { factors: 4, branches, ..NcfConfig::default() };
        let config = TrainConfig { model: ModelConfig::Ncf(ncf), ..config() };
        let mut training = training(&config, &dataset);
        let mut parameters = local(&config, &dataset);
        let mut losses = Vec::new();
        for epoch in 0..8 {
            let mut last = 0;
            let report = training
                .train_epoch(&mut parameters, epoch, 3, &mut |progress| {
                    assert!(progress.samples > last && progress.samples <= progress.samples_total);
                    last = progress.samples;
                })
                .unwrap();
            assert_eq!((report.samples, report.epoch), (training.samples_per_epoch(), epoch));
            assert_eq!(report.batches, report.samples.div_ceil(64));
            losses.push(report.loss);
        }
        assert!(losses[0] < 0.75 && losses[7] < losses[0] - 0.02, "{branches}: {losses:?}");
        let quality = ranking(&mut *training, &mut parameters);
        assert!(quality.cases == 60 && quality.hit_rate() > 0.2, "{branches}: {quality:?}");
    }
}

#[test]
fn a_run_can_be_repeated_to_the_bit() {
    let dataset = dataset();
    let run = || {
        let mut training = training(&config(), &dataset);
        let mut parameters = local(&config(), &dataset);
        let report = training.train_epoch(&mut parameters, 0, 1, &mut |_| ()).unwrap();
        (report, ranking(&mut *training, &mut parameters))
    };
    assert_eq!(run(), run());
}

#[test]
fn parts_of_the_evaluation_add_up_to_the_whole() {
    let dataset = dataset();
    let mut whole = training(&config(), &dataset);
    let mut parameters = local(&config(), &dataset);
    whole.train_epoch(&mut parameters, 0, 1, &mut |_| ()).unwrap();
    let expected = ranking(&mut *whole, &mut parameters);
    let workload: Arc<dyn Workload> = workload(&config(), &dataset).unwrap();
    let Quality::Ranking(sum) = evaluation_in_parts(&workload, &mut parameters) else { panic!() };
    assert_eq!((sum.hits, sum.cases), (expected.hits, expected.cases));
    assert!((sum.gain - expected.gain).abs() < 1e-9);
}

#[test]
fn chunks_are_the_same_for_any_worker() {
    let workload: Arc<dyn Workload> = workload(&config(), &dataset()).unwrap();
    assert_chunks_are_the_same_for_any_worker(&workload);
    assert!(epoch_in_order(&workload, 1) == epoch_in_order(&workload, 13));
}

/// Records the calls, and answers with rows of one value.
struct Script {
    value: f32,
    answer_missing: usize,
    calls: Vec<&'static str>,
    pulls: Vec<Vec<u64>>,
    widths: Widths,
}

impl Script {
    fn new(config: &TrainConfig, dataset: &Arc<Dataset>, value: f32) -> Self {
        let widths = Widths::new(&workload(config, dataset).unwrap().tables());
        Self { value, answer_missing: 0, calls: Vec::new(), pulls: Vec::new(), widths }
    }
}

impl Parameters for Script {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.calls.push("start");
        self.pulls.push(keys);
        Ok(PullId(self.pulls.len() as u64 - 1))
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        self.calls.push("finish");
        let keys = mem::take(&mut self.pulls[usize::try_from(pull.0).unwrap()]);
        let values = vec![self.value; self.widths.sum(&keys) - self.answer_missing];
        Ok(Pulled { keys, values })
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.calls.push("push");
        assert_eq!(gradients.len(), self.widths.sum(&keys));
        let mut distinct = keys.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.calls.push("flush");
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
}

#[test]
fn the_next_pull_is_under_way_while_a_batch_is_computed() {
    let dataset = Dataset {
        name: "tiny".into(),
        users: 3,
        items: 5,
        train: vec![(0, 0), (1, 1), (2, 2)],
        test: vec![TestCase { user: 0, item: 1, negatives: vec![2, 3, 1, 2] }],
        files: Vec::new(),
    };
    let config = TrainConfig { batch: 5, ..config() };
    let dataset = Arc::new(dataset);
    let mut script = Script::new(&config, &dataset, 0.1);
    training(&config, &dataset).train_epoch(&mut script, 0, 1, &mut |_| ()).unwrap();
    let expected = "start start finish push start finish push finish push flush";
    assert_eq!(script.calls.join(" "), expected);
}

#[test]
fn equal_scores_have_a_hit_rate_of_zero() {
    let dataset = dataset();
    let mut script = Script::new(&config(), &dataset, 0.5);
    let quality = ranking(&mut *training(&config(), &dataset), &mut script);
    assert_eq!(quality, Ranking { hits: 0, gain: 0.0, cases: 60 });
}

#[test]
fn a_score_that_is_not_a_number_is_an_error() {
    let dataset = dataset();
    let mut training = training(&config(), &dataset);
    let mut script = Script::new(&config(), &dataset, f32::NAN);
    let error = training.train_epoch(&mut script, 3, 1, &mut |_| ()).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { epoch: 3, batch: 0, .. }), "{error}");
    assert!(!script.calls.contains(&"push"));
    let error = training.evaluate(&mut script, 0, 1).unwrap_err();
    assert!(matches!(error, TrainError::Score { .. }), "{error}");

    let mut script = Script::new(&config(), &dataset, 0.1);
    script.answer_missing = 1;
    let error = training.train_epoch(&mut script, 0, 1, &mut |_| ()).unwrap_err();
    assert!(matches!(error, TrainError::Answer { .. }), "{error}");
}

#[test]
fn a_rate_that_is_too_high_ends_as_an_error() {
    let sgd = Optimizer::Sgd { rate: 1e30 };
    let config = TrainConfig { embeddings: sgd.into(), layers: sgd.into(), ..config() };
    let mut training = training(&config, &dataset());
    let mut parameters = local(&config, &dataset());
    let mut train = || training.train_epoch(&mut parameters, 0, 1, &mut |_| ());
    let error = train().and_then(|_| train()).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { .. } | TrainError::Client(_)), "{error}");
}

#[test]
fn settings_that_cannot_be_trained_are_refused() {
    let new = |config: &TrainConfig, dataset: &Dataset, sample| {
        let workload = workload(config, &Arc::new(dataset.clone()));
        workload.and_then(|workload| workload.training(sample)).map(|_| ()).unwrap_err()
    };
    let good = dataset();
    let error = new(&TrainConfig { batch: 0, ..config() }, &good, 1.0);
    assert!(matches!(error, TrainError::Config(_)), "{error}");
    assert!(matches!(new(&config(), &good, 0.0), TrainError::Sample { .. }));
    let empty = Dataset { train: Vec::new(), ..(*good).clone() };
    assert!(matches!(new(&config(), &empty, 1.0), TrainError::Data(DataError::NothingToLearn { .. })));
    let beyond = Dataset { items: 2, ..(*good).clone() };
    assert!(matches!(new(&config(), &beyond, 1.0), TrainError::Data(DataError::OutOfRange { .. })));
    let full = Dataset { users: 1, items: 1, train: vec![(0, 0)], ..(*good).clone() };
    let full = Dataset { test: vec![TestCase { user: 0, item: 0, negatives: vec![] }], ..full };
    assert!(matches!(new(&config(), &full, 1.0), TrainError::Negatives(NoNegatives { user: 0 })));
}
