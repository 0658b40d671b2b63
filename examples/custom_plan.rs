//! Hot rows that are known beforehand: a plan from the popularity of items, without a profile run, written
//! as a file and read again. Then one worker trains with it.
use std::error::Error;

use libra_client::*;

const ITEMS: u64 = 50_000;
const WIDTH: usize = 16;

/// Sales of an item: few items are bought often.
fn sales(item: u64) -> u64 {
    1_000 / (item + 1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let adagrad = Optimizer::Adagrad { rate: 0.05, epsilon: 1e-8 };
    let table = TableSpec::new("items", 0..ITEMS, WIDTH, adagrad);
    let mut job = JobSpec::new(Sizes { servers: 1, switches: 1, workers: 1 }, vec![table]);

    // One push a sale is the popularity that a profile would have found; gradients stay below 0.5.
    let mut profile = Profile::new(job.shapes())?;
    for item in 0..ITEMS {
        (0..sales(item)).for_each(|_| profile.record(&[item], &[0.5; WIDTH]));
    }
    let provenance = Provenance { data: "sales of last year".to_owned(), ..Provenance::default() };
    // Half of all updates, or as much of it as 2,000 slots hold.
    let budget = Budget { p: 0.5, on_chip_bytes: 2_000 * SLOT_BYTES, ..Budget::default() };
    let plan = profile.plan(provenance, budget)?;
    println!("{}", plan.summary());
    let file = std::env::temp_dir().join(format!("libra-plan-{}.toml", std::process::id()));
    std::fs::write(&file, plan.to_toml())?;
    job.plan = Some(Plan::from_toml(&std::fs::read_to_string(&file)?)?);
    std::fs::remove_file(&file)?;

    let cluster = LocalCluster::start(&job, LocalOptions::default(), |_event| ())?;
    let mut worker = cluster.join()?;
    for step in 0..1_000 {
        let keys: Vec<u64> = (0..ITEMS).filter(|item| sales(*item) > step).collect();
        let gradients = vec![0.25; keys.len() * WIDTH];
        worker.push(keys, gradients)?;
    }
    worker.flush()?;
    println!("first value of the best item: {:.3}", worker.pull(vec![0])?.values[0]);
    worker.report(String::new())?;
    println!("packets added by the switch: {}", cluster.finish()?.outcome.packets_aggregated());
    Ok(())
}
