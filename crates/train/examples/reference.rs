//! The reference trainer: the same loop as a cluster runs, over a store in memory.
//!
//! ```text
//! cargo run --release -p libra-train --example reference -- data=/path/to/ml-1m epochs=20
//! ```
//! Settings are `name=value`; see `USAGE` below. It prints one line an epoch: what a run over a network must reach, too.

use std::{
    error::Error,
    io::{IsTerminal, Write},
    sync::Arc,
    time::Instant,
};

use libra_store::{Optimizer, Store};
use libra_train::{Dataset, LocalParameters, TrainConfig, Trainer, quality};

const USAGE: &str = "settings (name=value): data=synthetic|DIRECTORY model=gmf|mlp|neumf factors=8 epochs=20 batch=1024 \
                     negatives=4 seed=1 optimizer=adam|adagrad|sgd rate=0.002 layer_rate=RATE deviation=0.01 \
                     sum=1 (pushes whose sum is one update)";

struct Settings {
    data: String,
    optimizer: String,
    rate: Option<f32>,
    layer_rate: Option<f32>,
    sum: usize,
    config: TrainConfig,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Settings { data, optimizer, rate, layer_rate, sum, mut config } = settings()?;
    if let Some(rate) = rate {
        config.embeddings = rule(&optimizer, rate)?.into();
        config.layers = rule(&optimizer, layer_rate.unwrap_or(rate))?.into();
    }
    config.check()?;
    let dataset = Arc::new(Dataset::open(&data, config.seed)?);
    println!(
        "{}: {} users, {} items, {} pairs, {} test cases",
        dataset.name,
        dataset.users,
        dataset.items,
        dataset.train.len(),
        dataset.test.len()
    );
    let baseline = quality::popularity_baseline(&dataset);
    println!("popularity alone: HR@10 {:.4}, NDCG@10 {:.4}", baseline.hit_rate(), baseline.ndcg());
    println!("{config:?}, {sum} pushes an update");

    let mut trainer = Trainer::new(&config, dataset.clone(), 0, 1)?;
    let store = Store::new(trainer.model().tables(), config.seed)?;
    let mut parameters = LocalParameters::with_pushes_per_update(store, sum);
    let watched = std::io::stderr().is_terminal();
    println!("epoch     loss   HR@10  NDCG@10  seconds  samples/s  processor ms/batch");
    for epoch in 0..config.epochs {
        let (start, processor_start) = (Instant::now(), processor_seconds());
        let mut batches = 0u32;
        let report = trainer.train_epoch(&mut parameters, epoch, &mut |progress| {
            batches += 1;
            if watched && batches.is_multiple_of(100) {
                let share = 100.0 * progress.samples as f64 / progress.samples_total as f64;
                eprint!("\repoch {} {share:5.1} % loss {:.4} ", progress.epoch + 1, progress.loss);
                // Progress that cannot be shown is no reason to stop.
                let _ = std::io::stderr().flush();
            }
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let processor = processor_seconds() - processor_start;
        let quality = trainer.evaluate(&mut parameters, &dataset.test)?;
        println!(
            "\r{:5}  {:7.5}  {:6.4}   {:6.4}  {seconds:7.2}  {:9.0}  {:8.3}",
            epoch + 1,
            report.loss,
            quality.hit_rate(),
            quality.ndcg(),
            report.samples as f64 / seconds,
            processor * 1e3 / report.batches as f64
        );
    }
    Ok(())
}

/// Seconds that this thread has been running: on a busy machine they say more than those of the clock. 0 where there is no
/// such count.
fn processor_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) * 1e-9
}

fn rule(name: &str, rate: f32) -> Result<Optimizer, String> {
    match name {
        "adam" => Ok(Optimizer::Adam { rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }),
        "adagrad" => Ok(Optimizer::Adagrad { rate, epsilon: 1e-8 }),
        "sgd" => Ok(Optimizer::Sgd { rate }),
        _ => Err(format!("there is no optimizer {name:?}; {USAGE}")),
    }
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings {
        data: "synthetic".to_owned(),
        optimizer: "adam".to_owned(),
        rate: None,
        layer_rate: None,
        sum: 1,
        config: TrainConfig::default(),
    };
    let config = &mut settings.config;
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').ok_or(USAGE)?;
        match name {
            "data" => settings.data = value.to_owned(),
            "optimizer" => settings.optimizer = value.to_owned(),
            "rate" => settings.rate = Some(value.parse()?),
            "layer_rate" => settings.layer_rate = Some(value.parse()?),
            "sum" => settings.sum = value.parse()?,
            "model" => config.model = value.parse()?,
            "factors" => config.factors = value.parse()?,
            "epochs" => config.epochs = value.parse()?,
            "batch" => config.batch = value.parse()?,
            "negatives" => config.negatives = value.parse()?,
            "seed" => config.seed = value.parse()?,
            "deviation" => config.deviation = value.parse()?,
            _ => return Err(format!("there is no setting {name:?}; {USAGE}").into()),
        }
    }
    Ok(settings)
}
