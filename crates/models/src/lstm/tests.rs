use libra_client::{ClientError, LocalParameters, Optimizer, PullId, Pulled, Store, Tick};

use super::*;
use crate::{
    ModelConfig, ModelKind,
    data::DataError,
    profile,
    testing::{assert_chunks_are_the_same_for_any_worker, evaluation_in_parts},
};

fn text() -> Arc<Text> {
    let recipe = Synthetic { vocabulary: 300, sentences: 400, ..Synthetic::default() };
    Arc::new(recipe.generate(usize::MAX))
}

fn config(change: impl FnOnce(&mut LstmConfig)) -> TrainConfig {
    let adam = Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let mut lstm = LstmConfig {
        embedding: 16,
        hidden: 24,
        steps: 10,
        samples: 64,
        dropout: 0.1,
        ..LstmConfig::default()
    };
    change(&mut lstm);
    TrainConfig {
        model: ModelConfig::Lstm(lstm),
        batch: 80,
        epochs: 4,
        embeddings: adam.into(),
        layers: adam.into(),
        ..ModelKind::Lstm.config()
    }
}

fn workload(config: &TrainConfig, text: &Arc<Text>) -> Result<Arc<Lstm>, TrainError> {
    let ModelConfig::Lstm(lstm) = &config.model else { panic!("{config:?}") };
    Ok(Arc::new(Lstm::new(lstm, config, text.clone())?))
}

fn training(config: &TrainConfig, text: &Arc<Text>) -> Box<dyn Training> {
    workload(config, text).unwrap().training(1.0).unwrap()
}

fn local(config: &TrainConfig, text: &Arc<Text>) -> LocalParameters {
    LocalParameters::new(Store::new(workload(config, text).unwrap().tables(), config.seed).unwrap())
}

fn language(training: &mut dyn Training, parameters: &mut dyn Parameters) -> Language {
    match training.evaluate(parameters, 0, 2).unwrap().quality {
        Quality::Language(language) => language,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_learns_more_than_frequencies() {
    let text = text();
    for projection in [0, 12] {
        let config = config(|lstm| lstm.projection = projection);
        let workload = workload(&config, &text).unwrap();
        let unigrams = workload.baselines()[0].value;
        assert!(unigrams > 50.0 && unigrams < workload.untrained_loss().exp());
        let mut training = training(&config, &text);
        let mut parameters = local(&config, &text);
        let nothing = language(&mut *training, &mut parameters).perplexity();
        assert!((nothing / text.vocabulary() as f64 - 1.0).abs() < 0.05, "{nothing}");
        let mut losses = Vec::new();
        for epoch in 0..6 {
            let report = training.train_epoch(&mut parameters, epoch, 3, &mut |_| ()).unwrap();
            assert_eq!((report.samples, report.epoch), (workload.samples_per_epoch(), epoch));
            losses.push(report.loss);
        }
        assert!(losses[5] < losses[0] - 0.5, "{losses:?}");
        let quality = language(&mut *training, &mut parameters);
        assert_eq!(quality.words, text.cases() as u64);
        assert!(quality.perplexity() < 0.8 * unigrams, "{} {unigrams}", quality.perplexity());
    }
}

#[test]
fn random_words_are_not_predicted() {
    // A model that saw the next word would do better than chance.
    let recipe = Synthetic {
        vocabulary: 30,
        sentences: 300,
        length: 40,
        strength: 0.0,
        exponent: 0.0,
        ..Synthetic::default()
    };
    let text = Arc::new(recipe.generate(usize::MAX));
    let config = config(|_| ());
    let mut training = training(&config, &text);
    let mut parameters = local(&config, &text);
    for epoch in 0..2 {
        training.train_epoch(&mut parameters, epoch, 3, &mut |_| ()).unwrap();
    }
    let quality = language(&mut *training, &mut parameters);
    // 41 words of a sentence are random, but for its end.
    assert!(quality.nats > 30f64.ln() * (quality.words as f64) * 40.0 / 41.0, "{}", quality.perplexity());
}

#[test]
fn a_run_can_be_repeated_to_the_bit() {
    let text = text();
    let run = || {
        let config = config(|_| ());
        let mut training = training(&config, &text);
        let mut parameters = local(&config, &text);
        let report = training.train_epoch(&mut parameters, 0, 1, &mut |_| ()).unwrap();
        (report, language(&mut *training, &mut parameters))
    };
    assert_eq!(run(), run());
}

#[test]
fn parts_of_the_evaluation_add_up_to_the_whole() {
    // Three runs, the last of them short.
    let recipe = Synthetic { vocabulary: 2000, sentences: 1100, ..Synthetic::default() };
    let text = Arc::new(recipe.generate(usize::MAX));
    assert_eq!(text.cases(), 2200);
    let config = config(|_| ());
    let mut parameters = local(&config, &text);
    let expected = language(&mut *training(&config, &text), &mut parameters);
    let workload: Arc<dyn Workload> = workload(&config, &text).unwrap();
    let Quality::Language(sum) = evaluation_in_parts(&workload, &mut parameters) else { panic!() };
    assert_eq!((sum.words, expected.words), (2200, 2200));
    // Outputs come in several blocks; a word that were left out would make all others more probable.
    assert!((expected.perplexity() / text.vocabulary() as f64 - 1.0).abs() < 0.02);
    assert!(text.vocabulary() > 1024);
    assert!((sum.nats - expected.nats).abs() < 1e-6 * expected.nats);
}

#[test]
fn chunks_are_the_same_for_any_worker() {
    let workload: Arc<dyn Workload> = workload(&config(|_| ()), &text()).unwrap();
    assert_chunks_are_the_same_for_any_worker(&workload);
    let samples = |chunks| {
        let mut parameters = local(&config(|_| ()), &text());
        let mut training = workload.clone().training(1.0).unwrap();
        training.train_epoch(&mut parameters, 0, chunks, &mut |_| ()).unwrap().samples
    };
    assert_eq!([samples(1), samples(7)], [workload.samples_per_epoch(); 2]);
}

#[test]
fn a_profile_finds_frequent_words() {
    let text = text();
    let config = config(|_| ());
    let workload: Arc<dyn Workload> = workload(&config, &text).unwrap();
    let frequencies = profile(&workload, &config, 0.5, &mut |_| ()).unwrap();
    // Four pieces of the text, of which the last may be short.
    assert!((49..=52).contains(&frequencies.pushes()), "{}", frequencies.pushes());
    let ranked = frequencies.ranked();
    // The outputs of the most frequent words, and those words.
    let words = text.vocabulary() as u64;
    assert!(ranked[..10].iter().any(|row| row.key < 8) && ranked[..10].iter().any(|row| row.key >= words));
    assert!(ranked[..10].iter().all(|row| row.key % words < 30), "{ranked:?}");
}

#[test]
fn a_clipped_gradient_has_the_norm() {
    let mut gradients = vec![3.0, 0.0, 4.0];
    clip(&mut gradients, 6.0);
    assert_eq!(gradients, [3.0, 0.0, 4.0]);
    clip(&mut gradients, 2.5);
    assert_eq!(gradients, [1.5, 0.0, 2.0]);
}

/// Answers with what is not a number.
struct Poisoned(LocalParameters);

impl Parameters for Poisoned {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        self.0.start_pull(keys)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        let mut pulled = self.0.finish_pull(pull)?;
        pulled.values.fill(f32::NAN);
        Ok(pulled)
    }

    fn push(&mut self, _: Vec<u64>, _: Vec<f32>) -> Result<(), ClientError> {
        panic!("a push of what is not a number")
    }

    fn flush(&mut self) -> Result<(), ClientError> {
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
fn a_score_that_is_not_a_number_is_an_error() {
    let text = text();
    let mut training = training(&config(|_| ()), &text);
    let mut parameters = Poisoned(local(&config(|_| ()), &text));
    let error = training.train_epoch(&mut parameters, 3, 1, &mut |_| ()).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { epoch: 3, batch: 0, .. }), "{error}");
    let error = training.evaluate(&mut parameters, 0, 1).unwrap_err();
    assert!(matches!(error, TrainError::Score { .. }), "{error}");
}

#[test]
fn settings_that_cannot_be_trained_are_refused() {
    let good = text();
    let new = |config: &TrainConfig, text: &Text, sample| {
        let workload = workload(config, &Arc::new(text.clone()));
        workload.and_then(|workload| workload.training(sample)).map(|_| ()).unwrap_err()
    };
    let field = |change: fn(&mut LstmConfig)| match new(&config(change), &good, 1.0) {
        TrainError::Config(error) => error.field,
        other => panic!("{other}"),
    };
    assert_eq!(field(|lstm| lstm.embedding = 0), "embedding");
    assert_eq!(field(|lstm| lstm.hidden = 1 << 12), "hidden");
    assert_eq!(field(|lstm| lstm.projection = 1 << 12), "projection");
    assert_eq!(field(|lstm| lstm.layers = 0), "layers");
    assert_eq!(field(|lstm| lstm.steps = 0), "steps");
    assert_eq!(field(|lstm| lstm.steps = 7), "batch");
    assert_eq!(field(|lstm| lstm.samples = 0), "samples");
    assert_eq!(field(|lstm| lstm.dropout = 1.0), "dropout");
    assert_eq!(field(|lstm| lstm.clip = f32::NAN), "clip");
    assert_eq!(field(|lstm| lstm.range = 0.0), "range");
    assert_eq!(field(|lstm| lstm.vocabulary = 1), "vocabulary");
    assert!(matches!(new(&config(|_| ()), &good, 2.0), TrainError::Sample { .. }));
    let empty = Text { train: vec![0], ..(*good).clone() };
    assert!(matches!(new(&config(|_| ()), &empty, 1.0), TrainError::Data(DataError::NoWords { .. })));
}

#[test]
fn a_workload_has_a_model_and_a_size() {
    let text = text();
    let small = workload(&config(|_| ()), &text).unwrap();
    assert_eq!((small.model(), small.data()), ("lstm, 16-24".to_owned(), "synthetic"));
    assert_eq!(small.size(), [(text.vocabulary() as u64, "different words"), (8000, "to learn from")]);
    let large = config(|lstm| (lstm.projection, lstm.layers) = (12, 2));
    assert_eq!(workload(&large, &text).unwrap().model(), "lstm, 16-24-12, 2 layers");
}
