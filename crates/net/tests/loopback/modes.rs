//! Clocks between real workers over loopback: the distance allowed in each mode, and the values they read then.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libra_net::{ControllerNode, NodeOptions, ServerNode, SwitchNode, WorkerNode};
use libra_plan::{Budget, DEFAULT_HEADROOM_BITS, Frequencies, Plan, Provenance, TableShape};
use libra_proto::{ArithmeticMode, ClientError, Cluster, HotPath, Parameters, Sizes, Tick};
use libra_store::{Init, Optimizer, TableSpec};

const ROWS: u64 = 40;
const HOT_ROWS: u64 = 20;
const STEPS: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Async,
    Ssp(u64),
    Sync,
}

fn table() -> TableSpec {
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    TableSpec { name: "rows".into(), keys: 0..ROWS, width: 1, rule, init: Init::Zero }
}

fn plan() -> Plan {
    let shape = TableShape { name: "rows".into(), keys: 0..ROWS, width: 1, hot: true };
    let mut frequencies = Frequencies::new(vec![shape]).unwrap();
    frequencies.record_push(0..HOT_ROWS);
    (0..HOT_ROWS).for_each(|key| frequencies.record_gradient(key, 8.0));
    let budget = Budget { p: 1.0, c: 0.5, ..Budget::default() };
    Plan::new(7, Provenance::default(), &frequencies, budget, DEFAULT_HEADROOM_BITS).unwrap()
}

/// Runs a job of so many workers, and returns the result of each of them.
fn run<T: Send + 'static>(
    workers: u16,
    work: impl Fn(u64, &mut WorkerNode) -> Result<T, ClientError> + Send + Sync + 'static,
) -> Vec<T> {
    // Whole numbers are added exactly.
    let hot_path = HotPath {
        arithmetic: ArithmeticMode::F32,
        round_time_max: Duration::from_millis(2),
        ..HotPath::for_workers(workers)
    };
    let cluster = Cluster::new(9, vec![table()], Some(plan()), hot_path);
    let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let options = NodeOptions::new(controller.address());
    let mut members: Vec<JoinHandle<()>> = Vec::new();
    for _ in 0..2 {
        let server = ServerNode::bind(options.clone(), None).unwrap();
        members.push(thread::spawn(move || server.run(|_| ()).map(drop).unwrap()));
    }
    let switch = SwitchNode::bind(options.clone(), None).unwrap();
    members.push(thread::spawn(move || switch.run(|_| ()).map(drop).unwrap()));
    let work = Arc::new(work);
    let start = |_| {
        let (work, options) = (Arc::clone(&work), options.clone());
        thread::spawn(move || {
            let mut worker = WorkerNode::join(options).unwrap();
            let done = work(worker.share().into(), &mut worker).unwrap();
            worker.report(String::new()).unwrap();
            done
        })
    };
    let threads: Vec<_> = (0..workers).map(start).collect();
    let (_commands, inbox) = tokio::sync::mpsc::unbounded_channel();
    let sizes = Sizes { servers: 2, switches: 1, workers };
    controller.run(sizes, cluster, inbox, |_| ()).unwrap();
    members.into_iter().for_each(|member| member.join().unwrap());
    threads.into_iter().map(|worker| worker.join().unwrap()).collect()
}

fn read(worker: &mut WorkerNode, keys: Vec<u64>) -> Result<Vec<f32>, ClientError> {
    let pull = worker.start_pull(keys)?;
    Ok(worker.finish_pull(pull)?.values)
}

/// The rows that a worker updates in a step: not all of them, and not the same ones as others.
fn keys_of(worker: u64, step: u64) -> Vec<u64> {
    (0..ROWS).filter(|key| !(key + worker + step).is_multiple_of(3)).collect()
}

/// A whole number that depends on the value: a worker that reads another value pushes another gradient.
fn gradient(worker: u64, step: u64, key: u64, value: f32) -> f32 {
    (value * 3.0 + (worker * 5 + step * 7 + key) as f32).rem_euclid(11.0) - 5.0
}

// rules M15, M16
#[test]
fn in_step_workers_read_what_all_have_done_and_nothing_else() {
    let workers = 3;
    let read = run(3, |me, worker| {
        worker.barrier()?;
        for step in 0..STEPS {
            if step > 0 {
                worker.wait_for_clocks(2 * step)?;
            }
            let keys = keys_of(me, step);
            let values = read(worker, keys.clone())?;
            worker.tick(Tick::Now)?;
            let gradients = keys.iter().zip(values).map(|(key, value)| gradient(me, step, *key, value));
            let gradients = gradients.collect();
            worker.wait_for_clocks(2 * step + 1)?;
            worker.push(keys, gradients)?;
            worker.tick(Tick::Visible)?;
        }
        worker.flush()?;
        worker.barrier()?;
        read(worker, (0..ROWS).collect())
    });
    let mut expected = vec![0.0; 40];
    for step in 0..STEPS {
        let before = expected.clone();
        for worker in 0..workers {
            for key in keys_of(worker, step) {
                let place = usize::try_from(key).unwrap();
                expected[place] -= gradient(worker, step, key, before[place]);
            }
        }
    }
    for read in read {
        assert_eq!(read, expected);
    }
}

/// Waits until a count is at least this, or for so long. Returns the count.
fn wait_until(count: &AtomicU64, least: u64, most: Duration) -> u64 {
    let until = Instant::now() + most;
    while count.load(Ordering::SeqCst) < least && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
    count.load(Ordering::SeqCst)
}

/// In how many steps a worker has read while another sleeps in its step 2.
fn steps_while_another_sleeps(mode: Mode, expected: u64) -> u64 {
    let (steps, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counts, counts_in) = (Arc::clone(&counted), Arc::clone(&steps));
    run(2, move |me, worker| {
        worker.barrier()?;
        for step in 0..STEPS {
            if me == 1 && step == 2 {
                // A worker that is not held up is through soon; one that is may not go one step further while this one sleeps on.
                wait_until(&counts_in, expected, Duration::from_secs(20));
                counts.store(
                    wait_until(&counts_in, expected + 1, Duration::from_millis(300)),
                    Ordering::SeqCst,
                );
            }
            match mode {
                Mode::Ssp(staleness) if step > staleness => worker.wait_for_clocks(step - staleness)?,
                Mode::Sync if step > 0 => worker.wait_for_clocks(2 * step)?,
                _ => {}
            }
            read(worker, keys_of(me, step))?;
            if me == 0 {
                counts_in.fetch_add(1, Ordering::SeqCst);
            }
            if mode == Mode::Sync {
                worker.tick(Tick::Now)?;
                worker.wait_for_clocks(2 * step + 1)?;
            }
            let keys = keys_of(me, step);
            let gradients = vec![1.0; keys.len()];
            worker.push(keys, gradients)?;
            if mode != Mode::Async {
                worker.tick(Tick::Visible)?;
            }
        }
        worker.flush()?;
        worker.barrier()
    });
    assert_eq!(steps.load(Ordering::SeqCst), STEPS, "when the other wakes up all goes on");
    counted.load(Ordering::SeqCst)
}

#[test]
fn a_worker_that_sleeps_holds_others_up_as_the_mode_says() {
    // Two steps of it are visible.
    for (mode, expected) in [(Mode::Async, STEPS), (Mode::Ssp(3), 6), (Mode::Sync, 3)] {
        assert_eq!(steps_while_another_sleeps(mode, expected), expected, "{mode:?}");
    }
}
