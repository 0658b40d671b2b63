//! The clock that a worker reports, and its guarantees about the clocks of others.

use core::time::Duration;

use libra_faultsim::{ClusterHarness, Event, HarnessConfig, Host};
use libra_proto::{Level, Message, Tick, WorkerCommand, WorkerEvent};

const HOT: u64 = 3;
const ROW: [f32; 3] = [1.0; 3];

fn tick(harness: &mut ClusterHarness, worker: Host, tick: Tick) {
    harness.command(worker, WorkerCommand::Tick(tick));
}

/// The clocks that a worker has sent.
fn sent_clocks(harness: &ClusterHarness, worker: Host) -> Vec<(u64, u64)> {
    let sent = harness.world.observer.recorder.messages.iter().filter(|sent| sent.from == worker);
    let clocks = sent.filter_map(|sent| match sent.message {
        Message::Clock { barrier, clock } => Some((barrier, clock)),
        _ => None,
    });
    clocks.collect()
}

fn wait_for_clocks(harness: &mut ClusterHarness, worker: Host, least: u64) {
    harness.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Clocks { least }));
}

// rule M15
#[test]
fn a_tick_counts_once_pushes_and_ticks_before_it_do() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let worker = harness.workers().start;
    tick(&mut harness, worker, Tick::Now);
    wait_for_clocks(&mut harness, worker, 1);
    // A hot row is visible at the end of its round; nothing is added to its sum then.
    let push = harness.push(worker, &[HOT], &ROW, Level::Visible);
    tick(&mut harness, worker, Tick::Visible);
    tick(&mut harness, worker, Tick::Now);
    harness.run_for(Duration::from_micros(100));
    assert_eq!(sent_clocks(&harness, worker), [(0, 1)]);
    harness.wait_for_push(worker, push);
    harness.run_for(Duration::from_millis(1));
    assert_eq!(sent_clocks(&harness, worker).last(), Some(&(0, 3)));
    assert_eq!(harness.pull(worker, &[HOT]), [-1.0; 3]);
}

// rules M15, M16
#[test]
fn clocks_restart_behind_a_barrier() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 2));
    let workers = [harness.workers().start, harness.workers().start + 1];
    for number in 0..2 {
        for ticks in 1..=2 {
            tick(&mut harness, workers[0], Tick::Now);
            tick(&mut harness, workers[1], Tick::Now);
            wait_for_clocks(&mut harness, workers[0], ticks);
        }
        // One that is pushed before the barrier and visible behind it changes nothing there.
        harness.push(workers[0], &[50], &ROW, Level::Accepted);
        tick(&mut harness, workers[0], Tick::Visible);
        for worker in workers {
            harness.command(worker, WorkerCommand::Barrier { number });
        }
        for worker in workers {
            harness.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Released { number }));
        }
        harness.run_for(Duration::from_millis(50));
    }
    let latest = |worker| sent_clocks(&harness, worker).into_iter().max();
    assert!(workers.into_iter().all(|worker| latest(worker) <= Some((1, 3))));
}

// rule M16
#[test]
fn a_worker_behind_the_view_of_clocks_reads_from_shards() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let worker = harness.workers().start;
    let asked = |harness: &ClusterHarness| {
        let sent = harness.world.observer.recorder.messages.iter();
        sent.filter(|sent| matches!(sent.message, Message::Pull { .. })).count()
    };
    let push = harness.push(worker, &[HOT], &ROW, Level::Visible);
    harness.wait_for_push(worker, push);
    assert_eq!((harness.pull(worker, &[HOT]), asked(&harness)), (vec![-1.0; 3], 0));
    // Others may have received it, and have pushed to another owner.
    harness.world.forge(0, worker, &Message::Clocks { barrier: 0, least: 1, view: 9 });
    wait_for_clocks(&mut harness, worker, 1);
    assert_eq!((harness.pull(worker, &[HOT]), asked(&harness)), (vec![-1.0; 3], 1));
    // One of another barrier, or a repeated one, changes nothing.
    for (barrier, least) in [(1, 5), (0, 1), (0, 0)] {
        harness.world.forge(0, worker, &Message::Clocks { barrier, least, view: 9 });
    }
    harness.run_for(Duration::from_millis(10));
    let clocks = |event: &Event| matches!(event, Event::Worker(WorkerEvent::Clocks { .. }));
    assert!(core::iter::from_fn(|| harness.next_event(worker)).all(|event| !clocks(&event)));
}

// rule M8
#[test]
fn a_clock_is_sent_again_on_a_new_stream() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 2));
    let workers = [harness.workers().start, harness.workers().start + 1];
    tick(&mut harness, workers[0], Tick::Now);
    harness.run_for(Duration::from_millis(10));
    harness.world.reset_streams(0, workers[0]);
    harness.run_for(Duration::from_millis(500));
    assert_eq!(sent_clocks(&harness, workers[0]), [(0, 1), (0, 1)]);
    tick(&mut harness, workers[1], Tick::Now);
    workers.into_iter().for_each(|worker| wait_for_clocks(&mut harness, worker, 1));
}
