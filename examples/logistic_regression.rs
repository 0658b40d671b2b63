//! Logistic regression on data of its own, in a cluster of processes:
//! `logistic_regression controller 127.0.0.1:7700`, `libra server` twice, `libra switch`, and
//! `logistic_regression worker 127.0.0.1:7700` twice, in any order.
use libra_client::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Eight of 10,000 features, low ones most often, and whether the user clicked: 1 or 0.
fn sample(number: u64) -> ([u64; 8], f32) {
    let skewed = |place| (0..5).fold(10_000, |end, turn| 1 + hash((number, place, turn)) % end) - 1;
    let features = [0, 1, 2, 3, 4, 5, 6, 7].map(skewed);
    let liked = features.iter().filter(|feature| hash(**feature).is_multiple_of(2)).count();
    (features, f32::from(u8::from(liked > 4)))
}

/// Trains on samples in batches of 100. Returns the mean loss, which is 0.6931 untrained.
fn train(parameters: &mut dyn Parameters, samples: Range<u64>) -> Result<f64, ClientError> {
    let (mut loss, count) = (0.0, samples.end - samples.start);
    for first in samples.step_by(100) {
        let batch: Vec<_> = (first..first + 100).map(sample).collect();
        let mut keys: Vec<u64> = batch.iter().flat_map(|(features, _)| *features).collect();
        keys.sort_unstable();
        keys.dedup();
        let rows = parameters.pull(keys)?;
        let mut gradients = vec![0.0; rows.values.len()];
        for (features, click) in batch {
            let places = features.map(|key| rows.keys.binary_search(&key).expect("it was pulled"));
            let score: f32 = places.iter().map(|place| rows.values[*place]).sum();
            let probability = 1.0 / (1.0 + (-score).exp());
            loss -= f64::from((1.0 - click - probability).abs().ln());
            places.iter().for_each(|place| gradients[*place] += (probability - click) / 100.0);
        }
        parameters.push(rows.keys, gradients)?;
    }
    parameters.flush().map(|()| loss / count as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, address] = &arguments[..] else { return Err("expected a role and an address".into()) };
    if role == "worker" {
        let mut worker = Worker::join(NodeOptions::new(address.parse::<Endpoint>()?))?;
        let first = 1_000_000 * u64::from(worker.share() + 1);
        train(&mut worker, first..first + 50_000)?;
        let loss = train(&mut worker, first + 50_000..first + 60_000)?;
        return Ok(worker.report(format!("{loss:.4}"))?);
    }
    let table = TableSpec::new("weights", 0..10_000, 1, Optimizer::Sgd { rate: 2.0 });
    let mut job = JobSpec::new(Sizes { servers: 2, switches: 1, workers: 2 }, vec![table]);
    job.plan = Some(job.profile(|parameters| train(parameters, 0..5_000).map(drop))?);
    let outcome = job.start_controller(address.parse()?, |_event| ())?.finish()?;
    println!("losses {:?}, packets added by the switch: {}", outcome.reports, outcome.packets_aggregated());
    Ok(())
}
