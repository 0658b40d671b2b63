use libra_client::{LocalParameters, Store};

use super::*;
use crate::{
    ModelConfig, ModelKind,
    testing::{assert_chunks_are_the_same_for_any_worker, epoch_in_order, evaluation_in_parts},
};

fn config() -> TrainConfig {
    let synthetic_lr = SyntheticLrConfig {
        features: 20_000,
        drawn: 20,
        samples: 20_000,
        test: 4000,
        ..SyntheticLrConfig::search_engine()
    };
    TrainConfig { model: ModelConfig::SyntheticLr(synthetic_lr), batch: 256, ..ModelKind::SearchLr.config() }
}

fn clicks(quality: Quality) -> Clicks {
    match quality {
        Quality::Clicks(clicks) => clicks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_learns_planted_weights_and_test_parts_add_up() {
    let config = config();
    let workload = crate::open(&config, SOURCE).unwrap();
    let mut parameters = LocalParameters::new(Store::new(workload.tables(), config.seed).unwrap());
    let mut training = workload.clone().training(1.0).unwrap();
    assert!((clicks(training.evaluate(&mut parameters, 0, 1).unwrap().quality).auc() - 0.5).abs() < 1e-9);
    for epoch in 0..3 {
        let report = training.train_epoch(&mut parameters, epoch, 5, &mut |_| ()).unwrap();
        assert_eq!((report.samples, report.batches), (20_000, 79));
    }
    let whole = clicks(training.evaluate(&mut parameters, 0, 1).unwrap().quality);
    let best = workload.baselines()[1].value;
    assert!(best > 0.75 && whole.auc() > best - 0.08, "{} of {best}", whole.auc());
    assert_eq!(whole.cases(), 4000);

    let parts = clicks(evaluation_in_parts(&workload, &mut parameters));
    assert!((parts.auc() - whole.auc()).abs() < 1e-12 && (parts.log_loss() - whole.log_loss()).abs() < 1e-9);
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let workload = Arc::new(match &config().model {
        ModelConfig::SyntheticLr(synthetic_lr) => SyntheticLr::open(synthetic_lr, &config(), SOURCE).unwrap(),
        other => panic!("{other:?}"),
    });
    let samples = Samples { rows: vec![0, 2, 1, 0, 1], ends: vec![2, 2, 5], labels: vec![1.0, 0.0, 1.0] };
    let mut learner = SyntheticLrLearner {
        workload,
        samples: 0,
        next: 0..0,
        epoch: 0,
        sample: Sample::default(),
        distinct: HashMap::default(),
        logits: Vec::new(),
        widths: Widths::new(&[]),
    };
    let values = [0.3, -0.7, 0.2, 0.1];
    let mut gradients = Vec::new();
    learner.step(&samples, &values, &mut gradients).unwrap();
    for place in 0..values.len() {
        let mut at = |change: f32| {
            let mut values = values;
            values[place] += change;
            learner.step(&samples, &values, &mut Vec::new()).unwrap()
        };
        let difference = (at(1e-2) - at(-1e-2)) / 2e-2;
        assert!((f64::from(gradients[place]) - difference).abs() < 1e-4, "{place}: {difference}");
    }
}

#[test]
fn chunks_are_the_same_for_any_worker_and_a_sample_is_a_part() {
    let workload = crate::open(&config(), SOURCE).unwrap();
    assert_chunks_are_the_same_for_any_worker(&workload);
    assert!(epoch_in_order(&workload, 1) == epoch_in_order(&workload, 13));
    let samples = |sample| workload.clone().training(sample).unwrap().samples_per_epoch();
    assert_eq!([samples(1.0), samples(0.01)], [20_000, 200]);
}

#[test]
fn other_data_are_refused() {
    let error = crate::open(&config(), "/somewhere").err().unwrap();
    assert!(error.to_string().contains("--data synthetic"), "{error}");
}
