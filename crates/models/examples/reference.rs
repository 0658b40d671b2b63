//! The reference trainer: the same loop as a cluster runs, over a store in memory.
//!
//! ```text
//! cargo run --release -p libra-models --example reference -- model=neumf data=/path/to/ml-1m epochs=20
//! ```
//! Settings are `name=value`; see `USAGE` below. It prints one line an epoch: what a run over a network must reach, too.

use std::{
    error::Error,
    io::{IsTerminal, Write},
    str::FromStr,
    time::Instant,
};

use libra_client::{LocalParameters, Optimizer, Store, UpdateRule};
use libra_models::{Chunks, Measure, ModelConfig, ModelKind, TrainConfig, open};

const USAGE: &str = "settings (name=value): model=gmf|mlp|neumf|deeplight (first) data=synthetic|PATH epochs=N batch=N seed=1 chunks=N (of an epoch) \
                     optimizer=adam|adamw|adagrad|sgd rate=RATE layer_rate=RATE decay=0 layer_decay=0 sum=1 (pushes whose sum is one \
                     update); of gmf, mlp, neumf: factors=8 negatives=4 deviation=0.01; of deeplight: width=N hidden=N,N \
                     min_count=N test=0.2 dropout=SHARE deviation=DEVIATION prune=SHARE prune_warmup=EPOCHS prune_interval=STEPS";

struct Settings {
    data: String,
    sum: usize,
    chunks: Option<u32>,
    config: TrainConfig,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Settings { data, sum, chunks, config } = settings()?;
    let workload = open(&config, &data)?;
    let size: Vec<String> =
        workload.size().iter().map(|(count, of_what)| format!("{count} {of_what}")).collect();
    println!("{}: {}", workload.data(), size.join(", "));
    println!("without a model: {}", line(&workload.baselines()));
    let Chunks { training: usual, evaluation } = workload.chunks(1);
    let chunks = chunks.unwrap_or(usual);
    let mut training = workload.clone().training(1.0)?;
    println!("{config:?}, {sum} pushes an update, {chunks} chunks an epoch");

    let store = Store::new(workload.tables(), config.seed)?;
    let mut parameters = LocalParameters::with_pushes_per_update(store, sum);
    let watched = std::io::stderr().is_terminal();
    for epoch in 0..config.epochs {
        let (start, processor_start) = (Instant::now(), processor_seconds());
        let mut batches = 0u32;
        let report = training.train_epoch(&mut parameters, epoch, chunks, &mut |progress| {
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
        let evaluated = training.evaluate(&mut parameters, epoch, evaluation)?;
        println!(
            "\repoch {:3}  loss {:7.5}  {}  {seconds:.2} s  {:.0} samples/s  processor {:.3} ms/batch",
            epoch + 1,
            report.loss,
            line(&[evaluated.quality.measures(), evaluated.findings].concat()),
            report.samples as f64 / seconds,
            processor * 1e3 / report.batches as f64
        );
    }
    Ok(())
}

fn line(measures: &[Measure]) -> String {
    let figures = measures.iter().map(|measure| format!("{} {:.4}", measure.name, measure.value));
    figures.collect::<Vec<String>>().join(", ")
}

/// Processor time of this thread, in seconds: on a busy machine more reliable than those of the clock. 0 where there is no
/// such count.
fn processor_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) * 1e-9
}

fn rule(name: &str, rate: f32, weight_decay: f32) -> Result<UpdateRule, String> {
    let (beta1, beta2, epsilon) = (0.9, 0.999, 1e-8);
    let optimizer = match name {
        "adam" => Optimizer::Adam { rate, beta1, beta2, epsilon },
        "adamw" => Optimizer::AdamW { rate, beta1, beta2, epsilon },
        "adagrad" => Optimizer::Adagrad { rate, epsilon },
        "sgd" => Optimizer::Sgd { rate },
        _ => return Err(format!("there is no optimizer {name:?}; {USAGE}")),
    };
    Ok(UpdateRule { weight_decay, ..optimizer.into() })
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut config = ModelKind::Neumf.config();
    let (mut data, mut sum, mut chunks) = ("synthetic".to_owned(), 1, None);
    let (mut optimizer, mut rate, mut layer_rate) = ("adam".to_owned(), None, None);
    let (mut decay, mut layer_decay) = (None, None);
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').ok_or(USAGE)?;
        match name {
            "model" => config = ModelKind::from_str(value)?.config(),
            "data" => data = value.to_owned(),
            "sum" => sum = value.parse()?,
            "chunks" => chunks = Some(value.parse()?),
            "optimizer" => optimizer = value.to_owned(),
            "rate" => rate = Some(value.parse()?),
            "layer_rate" => layer_rate = Some(value.parse()?),
            "decay" => decay = Some(value.parse()?),
            "layer_decay" => layer_decay = Some(value.parse()?),
            "epochs" => config.epochs = value.parse()?,
            "batch" => config.batch = value.parse()?,
            "seed" => config.seed = value.parse()?,
            _ => set(&mut config.model, name, value)?,
        }
    }
    if let Some(rate) = rate {
        config.embeddings = rule(&optimizer, rate, config.embeddings.weight_decay)?;
        config.layers = rule(&optimizer, layer_rate.unwrap_or(rate), config.layers.weight_decay)?;
    }
    config.embeddings.weight_decay = decay.unwrap_or(config.embeddings.weight_decay);
    config.layers.weight_decay = layer_decay.unwrap_or(config.layers.weight_decay);
    Ok(Settings { data, sum, chunks, config })
}

/// A setting of the model itself.
fn set(model: &mut ModelConfig, name: &str, value: &str) -> Result<(), Box<dyn Error>> {
    match (model, name) {
        (ModelConfig::Ncf(ncf), "factors") => ncf.factors = value.parse()?,
        (ModelConfig::Ncf(ncf), "negatives") => ncf.negatives = value.parse()?,
        (ModelConfig::Ncf(ncf), "deviation") => ncf.deviation = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "width") => deeplight.width = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "hidden") => {
            let units = value.split(',').filter(|units| !units.is_empty());
            deeplight.hidden = units.map(str::parse).collect::<Result<_, _>>()?;
        }
        (ModelConfig::Deeplight(deeplight), "min_count") => deeplight.min_count = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "test") => deeplight.test = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "dropout") => deeplight.dropout = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "deviation") => deeplight.deviation = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "prune") => {
            let share = value.parse()?;
            let prune = &mut deeplight.prune;
            (prune.embeddings, prune.pairs, prune.layers) = (share, share, share);
        }
        (ModelConfig::Deeplight(deeplight), "prune_warmup") => deeplight.prune.warmup = value.parse()?,
        (ModelConfig::Deeplight(deeplight), "prune_interval") => deeplight.prune.interval = value.parse()?,
        _ => return Err(format!("this model has no setting {name:?}; {USAGE}").into()),
    }
    Ok(())
}
