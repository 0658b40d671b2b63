//! The clock that a worker reports, and its guarantees about the clocks of others.

use core::time::Duration;

use libra_faultsim::{Event, Host, Setup, Stage};
use libra_proto::{Level, Message, Tick, WorkerCommand, WorkerEvent};

const HOT: u64 = 3;
const ROW: [f32; 3] = [1.0; 3];

fn tick(stage: &mut Stage, worker: Host, tick: Tick) {
    stage.command(worker, WorkerCommand::Tick(tick));
}

/// The clocks that a worker has sent.
fn said(stage: &Stage, worker: Host) -> Vec<(u64, u64)> {
    let sent = stage.world.observer.recorder.messages.iter().filter(|sent| sent.from == worker);
    let clocks = sent.filter_map(|sent| match sent.message {
        Message::Clock { barrier, clock } => Some((barrier, clock)),
        _ => None,
    });
    clocks.collect()
}

fn wait_for_clocks(stage: &mut Stage, worker: Host, least: u64) {
    stage.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Clocks { least }));
}

// rule M15
#[test]
fn a_tick_counts_once_pushes_and_ticks_before_it_do() {
    let mut stage = Stage::started(Setup::small(1, 1, 1));
    let worker = stage.workers().start;
    tick(&mut stage, worker, Tick::Now);
    wait_for_clocks(&mut stage, worker, 1);
    // A hot row is visible at the end of its epoch; nothing is added to its sum then.
    let push = stage.push(worker, &[HOT], &ROW, Level::Visible);
    tick(&mut stage, worker, Tick::Visible);
    tick(&mut stage, worker, Tick::Now);
    stage.run_for(Duration::from_micros(100));
    assert_eq!(said(&stage, worker), [(0, 1)]);
    stage.wait_for_push(worker, push);
    stage.run_for(Duration::from_millis(1));
    assert_eq!(said(&stage, worker).last(), Some(&(0, 3)));
    assert_eq!(stage.pull(worker, &[HOT]), [-1.0; 3]);
}

// rules M15, M16
#[test]
fn clocks_restart_behind_a_barrier() {
    let mut stage = Stage::started(Setup::small(1, 0, 2));
    let workers = [stage.workers().start, stage.workers().start + 1];
    for number in 0..2 {
        for ticks in 1..=2 {
            tick(&mut stage, workers[0], Tick::Now);
            tick(&mut stage, workers[1], Tick::Now);
            wait_for_clocks(&mut stage, workers[0], ticks);
        }
        // One that is pushed before the barrier and visible behind it changes nothing there.
        stage.push(workers[0], &[50], &ROW, Level::Accepted);
        tick(&mut stage, workers[0], Tick::Visible);
        for worker in workers {
            stage.command(worker, WorkerCommand::Barrier { number });
        }
        for worker in workers {
            stage.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Released { number }));
        }
        stage.run_for(Duration::from_millis(50));
    }
    let latest = |worker| said(&stage, worker).into_iter().max();
    assert!(workers.into_iter().all(|worker| latest(worker) <= Some((1, 3))));
}

// rule M16
#[test]
fn a_worker_behind_the_view_of_clocks_reads_from_shards() {
    let mut stage = Stage::started(Setup::small(1, 1, 1));
    let worker = stage.workers().start;
    let asked = |stage: &Stage| {
        let sent = stage.world.observer.recorder.messages.iter();
        sent.filter(|sent| matches!(sent.message, Message::Pull { .. })).count()
    };
    let push = stage.push(worker, &[HOT], &ROW, Level::Visible);
    stage.wait_for_push(worker, push);
    assert_eq!((stage.pull(worker, &[HOT]), asked(&stage)), (vec![-1.0; 3], 0));
    // Others may have received it, and have pushed to another holder.
    stage.world.forge(0, worker, &Message::Clocks { barrier: 0, least: 1, view: 9 });
    wait_for_clocks(&mut stage, worker, 1);
    assert_eq!((stage.pull(worker, &[HOT]), asked(&stage)), (vec![-1.0; 3], 1));
    // One of another barrier, or a repeated one, changes nothing.
    for (barrier, least) in [(1, 5), (0, 1), (0, 0)] {
        stage.world.forge(0, worker, &Message::Clocks { barrier, least, view: 9 });
    }
    stage.run_for(Duration::from_millis(10));
    let clocks = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Clocks { .. }));
    assert!(core::iter::from_fn(|| stage.next_event(worker)).all(|event| !clocks(&event)));
}

// rule M8
#[test]
fn a_clock_is_sent_again_on_a_new_stream() {
    let mut stage = Stage::started(Setup::small(1, 0, 2));
    let workers = [stage.workers().start, stage.workers().start + 1];
    tick(&mut stage, workers[0], Tick::Now);
    stage.run_for(Duration::from_millis(10));
    stage.world.reset_streams(0, workers[0]);
    stage.run_for(Duration::from_millis(500));
    assert_eq!(said(&stage, workers[0]), [(0, 1), (0, 1)]);
    tick(&mut stage, workers[1], Tick::Now);
    workers.into_iter().for_each(|worker| wait_for_clocks(&mut stage, worker, 1));
}
