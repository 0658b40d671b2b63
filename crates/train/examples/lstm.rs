//! Trains the language model over a store in memory: one line an epoch.
//!
//! ```text
//! cargo run --release -p libra-train --example lstm -- data=/path/to/ptb sum=2
//! ```

use std::{error::Error, fs};

use libra_store::{Clip, Decay, Optimizer, Rule, Schedule, Store};
use libra_train::{LocalParameters, ModelConfig, ModelKind, Share, open};

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = ModelKind::Lstm.config();
    let ModelConfig::Lstm(mut lstm) = config.model.clone() else { panic!() };
    let (mut data, mut sum, mut every) = ("synthetic".to_owned(), 1usize, 0u64);
    let mut factor = 0.5f32;
    let mut warmup = 0u64;
    let mut workers = 1usize;
    let mut rowclip = 0f32;
    let (mut optimizer, mut layer_optimizer) = ("adam".to_owned(), "adam".to_owned());
    let (mut rate, mut layer_rate) = (0.002f32, 0.002f32);
    let (mut beta1, mut beta2) = (0.9f32, 0.999f32);
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').ok_or("name=value")?;
        match name {
            "data" => data = value.into(),
            "sum" => sum = value.parse()?,
            "epochs" => config.epochs = value.parse()?,
            "batch" => config.batch = value.parse()?,
            "seed" => config.seed = value.parse()?,
            "embedding" => lstm.embedding = value.parse()?,
            "hidden" => lstm.hidden = value.parse()?,
            "projection" => lstm.projection = value.parse()?,
            "layers" => lstm.layers = value.parse()?,
            "steps" => lstm.steps = value.parse()?,
            "samples" => lstm.samples = value.parse()?,
            "dropout" => lstm.dropout = value.parse()?,
            "clip" => lstm.clip = value.parse()?,
            "range" => lstm.range = value.parse()?,
            "optimizer" => optimizer = value.into(),
            "layer_optimizer" => layer_optimizer = value.into(),
            "rate" => rate = value.parse()?,
            "layer_rate" => layer_rate = value.parse()?,
            "beta1" => beta1 = value.parse()?,
            "beta2" => beta2 = value.parse()?,
            "every" => every = value.parse()?,
            "factor" => factor = value.parse()?,
            "warmup" => warmup = value.parse()?,
            "workers" => workers = value.parse()?,
            "rowclip" => rowclip = value.parse()?,
            _ => return Err(name.into()),
        }
    }
    config.model = ModelConfig::Lstm(lstm);
    let rule = |name: &str, rate| -> Rule {
        let optimizer = match name {
            "adam" => Optimizer::Adam { rate, beta1, beta2, epsilon: 1e-8 },
            "adagrad" => Optimizer::Adagrad { rate, epsilon: 1e-8 },
            "rowadagrad" => Optimizer::RowAdagrad { rate, epsilon: 1e-8 },
            "rmsprop" => Optimizer::RmsProp { rate, decay: beta2, epsilon: 1e-8 },
            _ => Optimizer::Sgd { rate },
        };
        let decay = if every > 0 { Decay::Exponential { every, factor } } else { Decay::None };
        let clip = if rowclip > 0.0 { Clip::Norm { limit: rowclip } } else { Clip::None };
        Rule { schedule: Schedule { warmup, decay }, clip, ..optimizer.into() }
    };
    config.embeddings = rule(&optimizer, rate);
    config.layers = rule(&layer_optimizer, layer_rate);
    let workload = open(&config, &data)?;
    println!(
        "{}, {}: {}; {config:?}, {sum} pushes an update",
        workload.model(),
        workload.data(),
        workload.size()
    );
    println!("{:?}", workload.baselines());
    let _ = workers;
    let mut training = workload.clone().training(Share::WHOLE)?;
    let mut parameters =
        LocalParameters::with_pushes_per_update(Store::new(workload.tables(), config.seed)?, sum);
    for epoch in 0..config.epochs {
        let start = processor_seconds();
        let report = training.train_epoch(&mut parameters, epoch, &mut |_| ())?;
        let trained = processor_seconds();
        let quality = training.evaluate(&mut parameters)?;
        println!(
            "epoch {:2} loss {:.4} perplexity {:.2} train {:.1} s ({:.0} tokens/s, {} pushes, {} rows/push) evaluate {:.1} s total {trained:.0} s",
            epoch + 1,
            report.loss,
            quality.measures()[0].value,
            trained - start,
            report.samples as f64 / (trained - start),
            report.batches,
            report.rows / report.batches,
            processor_seconds() - trained,
        );
    }
    Ok(())
}

/// Seconds that this thread has computed.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}
