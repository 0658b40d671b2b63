use libra_store::{Optimizer, Store};

use super::*;
use crate::{LocalParameters, data::Synthetic, model::ModelKind};

fn dataset() -> Arc<Dataset> {
    let recipe = Synthetic { users: 60, items: 150, picks_min: 10, ..Synthetic::default() };
    Arc::new(recipe.generate())
}

fn config() -> TrainConfig {
    let adam = Optimizer::Adam { rate: 0.02, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    TrainConfig {
        factors: 4,
        batch: 64,
        epochs: 4,
        embeddings: adam.into(),
        layers: adam.into(),
        ..TrainConfig::default()
    }
}

fn local(trainer: &Trainer, config: &TrainConfig) -> LocalParameters {
    LocalParameters::new(Store::new(trainer.model().tables(), config.seed).unwrap())
}

#[test]
fn every_model_learns() {
    let dataset = dataset();
    for model in ModelKind::ALL {
        let config = TrainConfig { model, ..config() };
        let mut trainer = Trainer::new(&config, dataset.clone(), 0, 1).unwrap();
        let mut parameters = local(&trainer, &config);
        let mut losses = Vec::new();
        for epoch in 0..8 {
            let mut last = 0;
            let report = trainer
                .train_epoch(&mut parameters, epoch, &mut |progress| {
                    assert!(progress.samples > last && progress.samples <= progress.samples_total);
                    last = progress.samples;
                })
                .unwrap();
            assert_eq!((report.samples, report.epoch), (trainer.samples_per_epoch(), epoch));
            assert_eq!(report.batches, report.samples.div_ceil(64));
            losses.push(report.loss);
        }
        assert!(losses[0] < 0.75 && losses[7] < losses[0] - 0.02, "{model}: {losses:?}");
        let quality = trainer.evaluate(&mut parameters, &dataset.test).unwrap();
        assert!(quality.cases == 60 && quality.hit_rate() > 0.2, "{model}: {quality:?}");
    }
}

#[test]
fn a_run_can_be_repeated_to_the_bit() {
    let dataset = dataset();
    let run = || {
        let mut trainer = Trainer::new(&config(), dataset.clone(), 0, 1).unwrap();
        let mut parameters = local(&trainer, &config());
        let report = trainer.train_epoch(&mut parameters, 0, &mut |_| ()).unwrap();
        (report, trainer.evaluate(&mut parameters, &dataset.test).unwrap())
    };
    assert_eq!(run(), run());
}

#[test]
fn parts_of_the_evaluation_add_up_to_the_whole() {
    let dataset = dataset();
    let mut whole = Trainer::new(&config(), dataset.clone(), 0, 1).unwrap();
    let mut parameters = local(&whole, &config());
    whole.train_epoch(&mut parameters, 0, &mut |_| ()).unwrap();
    let expected = whole.evaluate(&mut parameters, &dataset.test).unwrap();
    let mut sum = Quality::default();
    for worker in 0..7 {
        let mut trainer = Trainer::new(&config(), dataset.clone(), worker, 7).unwrap();
        let cases = trainer.own_cases().to_vec();
        sum += trainer.evaluate(&mut parameters, &cases).unwrap();
    }
    assert_eq!((sum.hits, sum.cases), (expected.hits, expected.cases));
    assert!((sum.gain - expected.gain).abs() < 1e-9);
    assert_eq!(whole.evaluate(&mut parameters, &[]).unwrap(), Quality::default());
}

/// Says what is asked of it, and answers with rows of one value.
struct Script {
    value: f32,
    answer_missing: usize,
    calls: Vec<&'static str>,
    pulls: Vec<Vec<u64>>,
    widths: Model,
}

impl Script {
    fn new(trainer: &Trainer, value: f32) -> Self {
        Self { value, answer_missing: 0, calls: Vec::new(), pulls: Vec::new(), widths: *trainer.model() }
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
        let values = vec![self.value; self.widths.values_of(&keys) - self.answer_missing];
        Ok(Pulled { keys, values })
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.calls.push("push");
        assert_eq!(gradients.len(), self.widths.values_of(&keys));
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
}

#[test]
fn the_next_pull_is_under_way_while_a_batch_is_computed() {
    let dataset = Dataset {
        name: "tiny".into(),
        users: 3,
        items: 5,
        train: vec![(0, 0), (1, 1), (2, 2)],
        test: vec![TestCase { user: 0, item: 1, negatives: vec![2, 3, 1, 2] }],
    };
    let config = TrainConfig { batch: 5, ..config() };
    let mut trainer = Trainer::new(&config, Arc::new(dataset), 0, 1).unwrap();
    let mut script = Script::new(&trainer, 0.1);
    trainer.train_epoch(&mut script, 0, &mut |_| ()).unwrap();
    let expected = "start start finish push start finish push finish push flush";
    assert_eq!(script.calls.join(" "), expected);
}

#[test]
fn a_model_that_knows_nothing_scores_nothing() {
    let dataset = dataset();
    let mut trainer = Trainer::new(&config(), dataset.clone(), 0, 1).unwrap();
    let mut script = Script::new(&trainer, 0.5);
    let quality = trainer.evaluate(&mut script, &dataset.test).unwrap();
    assert_eq!(quality, Quality { hits: 0, gain: 0.0, cases: 60 });
}

#[test]
fn what_is_not_a_number_is_an_error() {
    let dataset = dataset();
    let mut trainer = Trainer::new(&config(), dataset.clone(), 0, 1).unwrap();
    let mut script = Script::new(&trainer, f32::NAN);
    let error = trainer.train_epoch(&mut script, 3, &mut |_| ()).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { epoch: 3, batch: 0, .. }), "{error}");
    assert!(!script.calls.contains(&"push"));
    let error = trainer.evaluate(&mut script, &dataset.test).unwrap_err();
    assert!(matches!(error, TrainError::Score { .. }), "{error}");

    let mut script = Script::new(&trainer, 0.1);
    script.answer_missing = 1;
    let error = trainer.train_epoch(&mut script, 0, &mut |_| ()).unwrap_err();
    assert!(matches!(error, TrainError::Answer { .. }), "{error}");
}

#[test]
fn a_rate_that_is_too_high_ends_as_an_error() {
    let sgd = Optimizer::Sgd { rate: 1e30 };
    let config = TrainConfig { embeddings: sgd.into(), layers: sgd.into(), ..config() };
    let mut trainer = Trainer::new(&config, dataset(), 0, 1).unwrap();
    let mut parameters = local(&trainer, &config);
    let mut train = || trainer.train_epoch(&mut parameters, 0, &mut |_| ());
    let error = train().and_then(|_| train()).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { .. } | TrainError::Client(_)), "{error}");
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let new = |config: &TrainConfig, dataset: &Dataset, worker| {
        Trainer::new(config, Arc::new(dataset.clone()), worker, 2).map(|_| ()).unwrap_err()
    };
    let good = dataset();
    let error = new(&TrainConfig { batch: 0, ..config() }, &good, 0);
    assert!(matches!(error, TrainError::Config(_)), "{error}");
    assert!(matches!(new(&config(), &good, 2), TrainError::Worker { worker: 2, workers: 2 }));
    let empty = Dataset { train: Vec::new(), ..(*good).clone() };
    assert!(matches!(new(&config(), &empty, 0), TrainError::Data(DataError::NothingToLearn { .. })));
    let beyond = Dataset { items: 2, ..(*good).clone() };
    assert!(matches!(new(&config(), &beyond, 0), TrainError::Data(DataError::OutOfRange { .. })));
    let full = Dataset { users: 1, items: 1, train: vec![(0, 0)], ..(*good).clone() };
    let full = Dataset { test: vec![TestCase { user: 0, item: 0, negatives: vec![] }], ..full };
    assert!(matches!(new(&config(), &full, 0), TrainError::Negatives(NoNegatives { user: 0 })));
}
