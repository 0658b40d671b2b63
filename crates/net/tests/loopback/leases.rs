//! Work in chunks between real workers over loopback: each chunk is done once while workers come and go.

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libra_net::{ControllerNode, Drain, NodeOptions, ServerNode, WorkerNode};
use libra_proto::{ClientError, Cluster, HotPath, Mode, Outcome, Parameters, Sizes, Work};
use libra_store::{Init, Optimizer, TableSpec};

const CHUNKS: [u32; 2] = [40, 7];
const PHASES: u64 = 4;

struct Job {
    options: NodeOptions,
    server: JoinHandle<()>,
    controller: JoinHandle<Outcome>,
}

/// Starts a job that begins with so many workers, and may have more.
fn start(workers: u16, mode: Mode) -> Job {
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let rows = u64::from(CHUNKS[0]);
    let table = TableSpec { name: "rows".into(), keys: 0..rows, width: 1, rule, init: Init::Zero };
    let mut cluster = Cluster::new(9, vec![table], None, HotPath::for_workers(workers));
    cluster.work = Some(Work { phases: PHASES, chunks: CHUNKS.to_vec(), ..Work::default() });
    (cluster.mode, cluster.shares) = (mode, 4);
    let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let options = NodeOptions::new(controller.address());
    let server = ServerNode::bind(options.clone(), None).unwrap();
    let server = thread::spawn(move || server.run(|_| ()).map(drop).unwrap());
    let sizes = Sizes { servers: 1, switches: 0, workers };
    let controller = thread::spawn(move || {
        let (_commands, inbox) = tokio::sync::mpsc::unbounded_channel();
        controller.run(sizes, cluster, inbox, |_| ()).unwrap()
    });
    Job { options, server, controller }
}

/// Works until the work is done, two steps a chunk. Each subtracts a half of the chunk's row. Returns the chunks that it has done.
fn work(
    worker: &mut WorkerNode,
    mode: Mode,
    mut on_chunk: impl FnMut(u64, u32),
) -> Result<Vec<(u64, u32)>, ClientError> {
    let mut done = Vec::new();
    let mut steps = (worker.phase(), 0);
    while worker.phase() < PHASES {
        let phase = worker.phase();
        if phase != steps.0 {
            steps = (phase, 0);
        }
        let chunks = worker.cluster().chunks(phase);
        while let Some(chunk) = worker.next_chunk(chunks, None)? {
            for _ in 0..2 {
                let keys = vec![u64::from(chunk)];
                mode.before_pull(steps.1, worker)?;
                worker.pull(keys.clone())?;
                mode.after_pull(worker)?;
                mode.before_push(steps.1, worker)?;
                worker.push(keys, vec![0.5])?;
                mode.after_push(worker)?;
                steps.1 += 1;
            }
            worker.finish_chunk(chunk, format!("{phase}"))?;
            done.push((phase, chunk));
            on_chunk(phase, chunk);
        }
        // Fails once this worker is asked to end.
        worker.flush()?;
    }
    Ok(done)
}

/// The values of rows in the end, if each chunk of each phase was done once.
fn expected() -> Vec<f32> {
    let times = |row: u32| (0..PHASES).filter(|phase| row < CHUNKS[(phase % 2) as usize]).count();
    (0..CHUNKS[0]).map(|row| -(times(row) as f32)).collect()
}

// rules K2, K4, K5, K6
#[test]
fn workers_come_and_go_and_each_chunk_is_done_once() {
    for mode in [Mode::Async, Mode::Ssp { staleness: 2 }, Mode::Sync] {
        let job = start(2, mode);
        let (joins, joined) = mpsc::channel::<()>();
        let options = job.options.clone();
        // It comes in the middle of the first phase.
        let late = thread::spawn(move || {
            joined.recv().unwrap();
            let mut worker = WorkerNode::join(options).unwrap();
            let done = work(&mut worker, mode, |_, _| ()).unwrap();
            worker.report(String::new()).unwrap();
            done
        });
        let options = job.options.clone();
        let stays = thread::spawn(move || {
            let mut worker = WorkerNode::join(options).unwrap();
            let done = work(&mut worker, mode, |phase, _| {
                thread::sleep(Duration::from_millis(2));
                if phase == 0 {
                    // Once it has come, there is no receiver.
                    let _ = joins.send(());
                }
            });
            let done = done.unwrap();
            let values = worker.pull((0..u64::from(CHUNKS[0])).collect()).unwrap().values;
            worker.report(String::new()).unwrap();
            (done, values)
        });
        let drain = Drain::new();
        let options = NodeOptions { drain: drain.clone(), ..job.options.clone() };
        let goes = thread::spawn(move || {
            let mut worker = WorkerNode::join(options).unwrap();
            let mut done = Vec::new();
            let error = work(&mut worker, mode, |phase, chunk| {
                done.push((phase, chunk));
                thread::sleep(Duration::from_millis(2));
                if done.len() == 6 {
                    drain.begin();
                }
            });
            assert_eq!(error.unwrap_err(), ClientError::Drained);
            worker.drain().unwrap();
            done
        });
        let (mut done, values) = stays.join().unwrap();
        assert_eq!(values, expected(), "{mode:?}");
        let (went, came) = (goes.join().unwrap(), late.join().unwrap());
        assert!(went.len() >= 6 && !came.is_empty(), "{went:?} {came:?}");
        done.extend(went.into_iter().chain(came));
        done.sort_unstable();
        let all =
            (0..PHASES).flat_map(|phase| (0..CHUNKS[(phase % 2) as usize]).map(move |chunk| (phase, chunk)));
        assert!(done.into_iter().eq(all), "{mode:?}");
        let outcome = job.controller.join().unwrap();
        job.server.join().unwrap();
        assert_eq!((outcome.repeated_chunks, outcome.work.len()), (0, 3));
    }
}
