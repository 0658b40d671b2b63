//! A cluster inside this process: two workers count events, 1% of datagrams is lost, and the switch is
//! killed in the middle. Every event is counted once.
use std::error::Error;
use std::thread;
use std::time::Duration;

use libra_client::*;

const KEYS: u64 = 1_000;
const PUSHES: u64 = 20_000;

/// The keys of one push: each once, low ones in more pushes.
fn events(push: u64) -> Vec<u64> {
    (0..KEYS).filter(|key| push.is_multiple_of(key / 10 + 1)).collect()
}

fn push_all(parameters: &mut dyn Parameters, pushes: u64) -> Result<(), ClientError> {
    for push in 0..pushes {
        let keys = events(push);
        let ones = vec![1.0; keys.len()];
        parameters.push(keys, ones)?;
    }
    parameters.flush()
}

fn main() -> Result<(), Box<dyn Error>> {
    // A row becomes minus the sum of its pushes.
    let table = TableSpec::new("counts", 0..KEYS, 1, Optimizer::Sgd { rate: 1.0 });
    let mut job = JobSpec::new(Sizes { servers: 2, switches: 1, workers: 2 }, vec![table]);
    job.plan = Some(job.profile(|parameters| push_all(parameters, 100))?);
    let options =
        LocalOptions { faults: FaultRates::new(0.01, 0.0, 0.0)?, standbys: 1, ..LocalOptions::default() };
    let cluster = LocalCluster::start(&job, options, |event| {
        if let LocalEvent::Controller(ControllerEvent::Lost { peer, reason }) = event {
            println!("lost: {peer}, which {reason}");
        }
    })?;
    let counts = thread::scope(|scope| {
        let count = || -> Result<Vec<f32>, NodeError> {
            let mut worker = cluster.join()?;
            let counted = push_all(&mut worker, PUSHES)
                .and_then(|()| worker.barrier())
                .and_then(|()| worker.pull((0..KEYS).collect()));
            let counts = counted.expect("the job goes on without its switch").values;
            worker.report("counted".to_owned()).expect("the controller is there");
            Ok(counts)
        };
        let workers = [scope.spawn(count), scope.spawn(count)];
        thread::sleep(Duration::from_millis(1500));
        println!("killed: switch {:?}", cluster.switches().kill());
        workers.map(|worker| worker.join().expect("no worker panics"))
    });
    let expected: Vec<f32> = (0..KEYS).map(|key| -2.0 * PUSHES.div_ceil(key / 10 + 1) as f32).collect();
    for counts in counts {
        assert_eq!(counts?, expected, "every push counts once");
    }
    let outcome = cluster.finish()?.outcome;
    println!("{} counts are exact; packets added by switches: {}", KEYS, outcome.packets_aggregated());
    Ok(())
}
