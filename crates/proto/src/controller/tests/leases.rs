//! Leases: the chunks that workers are given, and what becomes of them.

use std::collections::{BTreeMap, BTreeSet};

use super::harness::{ControllerHarness, ms};
use crate::cluster::{CheckpointAt, Cluster, Durability, Peer};
use crate::controller::{ControllerCommand, ControllerEvent};
use crate::message::Message;
use crate::statistics::{Statistics, WorkerStatistics};
use crate::work::{AddedPhase, AddedPhases, LeaseRequest, Work, WorkDone, WorkRecord};

use Peer::{Server, Worker};

/// A cluster of one server whose job has two phases.
fn running(workers: u16, chunks: [u32; 2]) -> ControllerHarness {
    running_with(workers, |cluster| {
        cluster.work = Some(Work { phases: 2, chunks: chunks.to_vec(), ..Work::default() })
    })
}

fn running_with(workers: u16, edit: impl FnOnce(&mut Cluster)) -> ControllerHarness {
    let mut harness = ControllerHarness::new(1, 0, workers);
    edit(&mut harness.controller.cluster);
    for worker in 0..workers {
        harness.join(Worker(worker));
    }
    harness.join(Server(0));
    harness.settle();
    for worker in 0..workers {
        harness.received(Worker(worker));
    }
    harness
}

/// A worker tells of the chunks that it has done in a phase, and wants two leases.
fn tell(harness: &mut ControllerHarness, worker: u16, phase: u64, done: &[u32]) {
    tell_all(harness, worker, phase, done, &[]);
}

fn tell_all(harness: &mut ControllerHarness, worker: u16, phase: u64, done: &[u32], held: &[u32]) {
    let accounts = BTreeMap::from([(phase, format!("{done:?}"))]);
    let record = WorkRecord { phase, done: done.iter().copied().collect(), accounts };
    let held = held.iter().copied().collect();
    let request = LeaseRequest { record, held, wanted: 2 };
    harness.from(Worker(worker), Message::Lease(Box::new(request)));
}

/// The newest leases that a worker was sent since the last look: the phase, the chunks, the clock.
fn leased(harness: &mut ControllerHarness, worker: u16) -> Option<(u64, Vec<u32>, u64)> {
    let leased = |message| match message {
        Message::Leased { phase, chunks, clock } => Some((phase, chunks, clock)),
        _ => None,
    };
    harness.received(Worker(worker)).into_iter().filter_map(leased).last()
}

fn leave(harness: &mut ControllerHarness, worker: u16) {
    harness.from(Worker(worker), Message::Leave { returns: true });
}

fn report(harness: &mut ControllerHarness, worker: u16) {
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Worker(worker), Message::Report { text: String::new(), statistics });
}

/// Tests rule K2.
#[test]
fn workers_get_the_chunks_that_they_want_one_ahead() {
    let mut harness = running(2, [5, 1]);
    assert_eq!(leased(&mut harness, 0), None, "none has asked");
    tell(&mut harness, 0, 0, &[]);
    assert_eq!(leased(&mut harness, 0), Some((0, vec![0, 1], 0)));
    tell(&mut harness, 1, 0, &[]);
    assert_eq!(leased(&mut harness, 1), Some((0, vec![3, 4], 0)), "behind the next one of worker 0");
    tell(&mut harness, 0, 0, &[0]);
    assert_eq!(leased(&mut harness, 0), Some((0, vec![1, 2], 0)));
    tell(&mut harness, 1, 0, &[3]);
    assert_eq!(leased(&mut harness, 1), None, "all are dealt");
}

/// Tests rule K2.
#[test]
fn workers_get_chunks_that_follow_one_another() {
    let mut harness = running(3, [96, 1]);
    let mut held: [Vec<u32>; 3] = Default::default();
    let mut done: [Vec<u32>; 3] = Default::default();
    let workers = [0u16, 1, 2];
    workers.into_iter().for_each(|worker| tell(&mut harness, worker, 0, &[]));
    // Worker 2 does one while the others do two.
    for turn in 0..200 {
        for worker in workers {
            let place = usize::from(worker);
            if let Some((0, chunks, _)) = leased(&mut harness, worker) {
                held[place].extend(chunks.iter().filter(|chunk| !done[place].contains(chunk)));
                held[place].dedup();
            }
            if (worker < 2 || turn % 2 == 0) && !held[place].is_empty() {
                let chunk = held[place].remove(0);
                if !done[place].contains(&chunk) {
                    done[place].push(chunk);
                    tell(&mut harness, worker, 0, &[chunk]);
                }
            }
        }
    }
    let breaks = done.iter().map(|done| done.windows(2).filter(|pair| pair[1] != pair[0] + 1).count());
    assert!(breaks.sum::<usize>() <= 12, "{done:?}");
    let mut all = done.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..96), "{done:?}");
}

/// Tests rule K4.
#[test]
fn a_phase_begins_when_all_chunks_of_the_one_before_are_done() {
    let mut harness = running(2, [2, 3]);
    tell(&mut harness, 0, 0, &[]);
    tell(&mut harness, 1, 0, &[]);
    assert_eq!(leased(&mut harness, 0), Some((0, vec![0, 1], 0)));
    tell(&mut harness, 0, 0, &[1]);
    assert_eq!(leased(&mut harness, 1), None);
    tell(&mut harness, 0, 0, &[0]);
    assert_eq!(leased(&mut harness, 0), Some((1, vec![0, 1], 0)));
    assert_eq!(leased(&mut harness, 1), Some((1, vec![2], 0)), "one for each before the second for any");
    tell(&mut harness, 1, 1, &[2]);
    tell(&mut harness, 0, 1, &[0, 1]);
    // The work is done: nothing is dealt, and the job ends with the reports.
    assert_eq!(leased(&mut harness, 0), Some((2, vec![], 0)));
    assert_eq!(leased(&mut harness, 1), Some((2, vec![], 0)));
    [0, 1].into_iter().for_each(|worker| report(&mut harness, worker));
    let statistics = Statistics::Server(crate::statistics::ServerStatistics::default());
    harness.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    let outcome = harness.events().into_iter().find_map(|event| match event {
        ControllerEvent::Finished(outcome) => Some(outcome),
        _ => None,
    });
    let outcome = outcome.expect("the job is done");
    assert_eq!(outcome.repeated_chunks, 0);
    let accounts: Vec<_> = outcome.work.iter().map(|(worker, record)| (*worker, &record.accounts)).collect();
    assert_eq!(accounts[1], (1, &BTreeMap::from([(0, "[]".to_owned()), (1, "[2]".to_owned())])));
}

/// Tests rule K5.
#[test]
fn chunks_of_a_lost_worker_are_dealt_again_once_servers_know() {
    let mut harness = running(2, [3, 1]);
    tell(&mut harness, 0, 0, &[]);
    assert_eq!(leased(&mut harness, 0), Some((0, vec![0, 1], 0)));
    tell(&mut harness, 1, 0, &[]);
    assert_eq!(leased(&mut harness, 1), Some((0, vec![2], 0)));
    tell(&mut harness, 0, 0, &[0]);
    harness.break_stream(Worker(0));
    harness.pass(ms(2000), &[Server(0), Worker(1)]);
    assert_eq!(leased(&mut harness, 1), None, "another controller may have the servers");
    harness.viewed(Server(0));
    assert_eq!(leased(&mut harness, 1), Some((0, vec![1, 2], 0)));
    let finished = &harness.controller.cluster.view.finished;
    assert_eq!(finished[&0].done, BTreeSet::from([0]));
}

/// Tests rule K5.
#[test]
fn a_worker_leaves_once_servers_have_its_record() {
    let mut harness = running(2, [3, 1]);
    tell(&mut harness, 0, 0, &[]);
    tell(&mut harness, 1, 0, &[]);
    tell(&mut harness, 0, 0, &[0]);
    harness.received(Worker(0));
    leave(&mut harness, 0);
    assert!(!harness.received(Worker(0)).contains(&Message::Finish));
    let view = harness.received_view(Server(0)).expect("a view with its record");
    assert_eq!(view.finished[&0].done, BTreeSet::from([0]));
    assert!(view.workers.contains_key(&0));
    harness.viewed(Server(0));
    assert!(harness.received(Worker(0)).contains(&Message::Finish));
    harness.viewed(Server(0));
    let (phase, mut chunks, _) = leased(&mut harness, 1).expect("what it had is free");
    chunks.sort_unstable();
    assert_eq!((phase, chunks), (0, vec![1, 2]));
    assert_eq!(harness.controller.repeated_chunks(), 0, "it had not begun them");
}

/// Tests rule K5.
#[test]
fn a_new_controller_deals_when_workers_have_told_what_they_hold() {
    let mut before = running(2, [4, 1]);
    tell(&mut before, 0, 0, &[]);
    tell(&mut before, 1, 0, &[]);
    let cluster = before.controller.cluster.clone();
    let mut harness = ControllerHarness::new(1, 0, 2);
    harness.rejoin_with(Server(0), |rejoin| {
        rejoin.view = cluster.view.number;
        rejoin.cluster = Some(Box::new(cluster.clone()));
    });
    for worker in [0, 1] {
        harness.rejoin_with(Worker(worker), |rejoin| rejoin.view = cluster.view.number);
    }
    harness.settle();
    [0, 1].into_iter().for_each(|worker| drop(harness.received(Worker(worker))));
    tell_all(&mut harness, 1, 0, &[2], &[3]);
    assert_eq!(leased(&mut harness, 1), None, "worker 0 has told nothing");
    tell_all(&mut harness, 0, 0, &[], &[0]);
    let held = |harness: &mut ControllerHarness, worker| leased(harness, worker).map(|(_, chunks, _)| chunks);
    assert_eq!(held(&mut harness, 0), Some(vec![0, 1]), "its lease of 1 was lost with the controller");
    assert_eq!(held(&mut harness, 1), None, "chunk 2 is done, and 3 is the last");
}

/// The controller that takes over a cluster of one server when the controller before has died with some of its workers.
fn taken_over(before: &ControllerHarness, work_done: WorkDone, back: &[u16]) -> ControllerHarness {
    let cluster = before.controller.cluster.clone();
    let mut harness = ControllerHarness::new(1, 0, cluster.shares);
    harness.rejoin_with(Server(0), |rejoin| {
        rejoin.view = cluster.view.number;
        rejoin.cluster = Some(Box::new(cluster.clone()));
        rejoin.work_done = work_done;
    });
    for &worker in back {
        harness.rejoin_with(Worker(worker), |rejoin| rejoin.view = cluster.view.number);
    }
    harness.pass(ms(2001), &[]);
    harness.settle();
    harness
}

/// Tests rule K5.
#[test]
fn a_new_controller_goes_on_with_the_work_that_servers_know() {
    let record = |phase, done: &[u32]| WorkRecord {
        phase,
        done: done.iter().copied().collect(),
        accounts: BTreeMap::from([(phase, format!("{done:?}"))]),
    };
    let earlier = vec![(0, record(0, &[3]))];
    let begun = WorkDone { phase: 0, records: earlier.clone(), repeated: 0 };
    let before = running_with(2, |cluster| {
        cluster.work = Some(Work { phases: 3, chunks: vec![4, 6], done: begun.clone(), ..Work::default() });
    });
    let records = [earlier, vec![(0, record(1, &[0, 1])), (1, record(1, &[4]))]].concat();
    let told = WorkDone { phase: 1, records, repeated: 2 };
    // All workers are gone: what was done at the last checkpoint is not dealt again.
    let mut harness = taken_over(&before, told.clone(), &[]);
    harness.join(Worker(2));
    harness.settle();
    harness.received(Worker(2));
    tell(&mut harness, 2, 1, &[]);
    assert_eq!(leased(&mut harness, 2), Some((1, vec![2, 3], 0)));
    assert_eq!((harness.controller.repeated_chunks(), harness.view().finished.len()), (2, 2));
    // Of a worker that is there, what it tells counts.
    let mut harness = taken_over(&before, told, &[1]);
    tell_all(&mut harness, 1, 1, &[4, 5], &[]);
    assert_eq!(leased(&mut harness, 1), Some((1, vec![2, 3], 0)));
    assert_eq!(harness.view().finished.keys().collect::<Vec<_>>(), [&0]);
    let accounts = harness.controller.records().into_iter().map(|(worker, record)| (worker, record.accounts));
    let of = |phase, account: &str| BTreeMap::from([(phase, account.to_owned())]);
    let expected = [(0, of(0, "[3]")), (0, of(1, "[0, 1]")), (1, of(1, "[4, 5]"))];
    assert_eq!(accounts.collect::<Vec<_>>(), expected);
}

/// Tests rules K5, K9.
#[test]
fn phases_that_are_dropped_are_done_for_a_new_controller() {
    let mut before =
        running_with(1, |cluster| cluster.work = Some(Work { is_open: true, ..Work::default() }));
    add(&mut before, 0, &[1; 4], false);
    before.controller.cluster.view.added.enter(4);
    let mut harness = taken_over(&before, WorkDone::default(), &[]);
    harness.join(Worker(1));
    harness.settle();
    harness.received(Worker(1));
    tell(&mut harness, 1, 2, &[]);
    assert_eq!(leased(&mut harness, 1), Some((2, vec![0], 0)));
}

#[test]
fn workers_that_are_too_many_are_asked_to_end() {
    let mut harness = running(3, [5, 1]);
    harness.command(ControllerCommand::Scale { workers: 1 });
    assert!(harness.events().contains(&ControllerEvent::ScaleAsked { workers: 1 }));
    let asked = [0, 1, 2].map(|worker| harness.received(Worker(worker)).contains(&Message::Drain));
    assert_eq!(asked, [false, true, true], "those that came last");
    harness.command(ControllerCommand::Scale { workers: 9 });
    assert!(!harness.received(Worker(0)).contains(&Message::Drain));
}

/// Tests rule K6.
#[test]
fn an_idle_worker_blocks_no_clock_and_goes_on_from_the_slowest() {
    let mut harness = running_with(3, |cluster| {
        cluster.work = Some(Work { phases: 1, chunks: vec![5], ..Work::default() });
        cluster.mode = crate::mode::Mode::Sync;
    });
    tell(&mut harness, 0, 0, &[]);
    tell(&mut harness, 1, 0, &[]);
    let clock = |barrier, clock| Message::Clock { barrier, clock };
    harness.from(Worker(0), clock(0, 5));
    harness.from(Worker(1), clock(0, 7));
    harness.received(Worker(0));
    // Worker 2 has not asked so far: it is not waited for, and begins with a whole step.
    tell(&mut harness, 2, 0, &[]);
    assert_eq!(leased(&mut harness, 2), Some((0, vec![2], 6)));
    harness.from(Worker(0), clock(0, 9));
    let clocks = |message| if let Message::Clocks { least, .. } = message { Some(least) } else { None };
    assert_eq!(harness.received(Worker(0)).into_iter().filter_map(clocks).last(), Some(6));
    // Without a chunk it is not waited for any more.
    tell(&mut harness, 2, 0, &[2]);
    assert_eq!(harness.received(Worker(0)).into_iter().filter_map(clocks).last(), Some(7));
}

/// The messages that a server was sent for a checkpoint since the last look.
fn checkpoint(harness: &mut ControllerHarness) -> Option<(WorkDone, u64)> {
    let mut done = None;
    harness.received(Server(0)).into_iter().find_map(|message| match message {
        Message::WorkDone(of) => {
            done = Some(*of);
            None
        }
        Message::Checkpoint { number } => Some((done.take().expect("the position comes first"), number)),
        _ => None,
    })
}

fn keeping(checkpoint_at: CheckpointAt) -> ControllerHarness {
    running_with(2, |cluster| {
        cluster.work = Some(Work { phases: 2, chunks: vec![6, 1], ..Work::default() });
        let every = Some(ms(1000));
        cluster.durability = Durability { checkpoint_every: every, checkpoint_at, ..Durability::NONE };
    })
}

/// Tests rule K7.
#[test]
fn a_checkpoint_has_the_work_that_is_done() {
    let mut harness = keeping(CheckpointAt::Steps);
    tell(&mut harness, 0, 0, &[]);
    tell(&mut harness, 1, 0, &[]);
    tell(&mut harness, 1, 0, &[4]);
    harness.command(ControllerCommand::Checkpoint);
    let (WorkDone { phase, records, repeated }, number) = checkpoint(&mut harness).expect("it was asked for");
    assert_eq!((phase, number, repeated), (0, 2, 4), "two workers have two leases each");
    let done: Vec<_> = records.iter().map(|(worker, record)| (*worker, record.done.clone())).collect();
    assert_eq!(done, [(0, BTreeSet::new()), (1, BTreeSet::from([4]))]);
    tell(&mut harness, 0, 0, &[0]);
    assert_eq!(leased(&mut harness, 0), Some((0, vec![1, 2], 0)), "leases go on meanwhile");
}

/// Tests rule K7.
#[test]
fn leases_close_before_a_checkpoint_at_chunks() {
    let mut harness = keeping(CheckpointAt::Chunks);
    tell(&mut harness, 0, 0, &[]);
    tell(&mut harness, 1, 0, &[]);
    harness.command(ControllerCommand::Checkpoint);
    assert_eq!(checkpoint(&mut harness), None, "chunks are under way");
    [0, 1].into_iter().for_each(|worker| drop(harness.received(Worker(worker))));
    tell(&mut harness, 0, 0, &[0, 1]);
    assert_eq!(leased(&mut harness, 0), None);
    tell(&mut harness, 1, 0, &[4, 5]);
    harness.pass(ms(1), &[]);
    let (done, number) = checkpoint(&mut harness).expect("no chunk is under way");
    assert_eq!((done.repeated, number), (0, 2));
    tell(&mut harness, 0, 0, &[]);
    assert_eq!(leased(&mut harness, 0), None, "the server may not have begun it");
    harness.from(Server(0), Message::CheckpointBegun { number: 9 });
    assert_eq!(leased(&mut harness, 0), None);
    harness.from(Server(0), Message::CheckpointBegun { number });
    assert_eq!(
        (leased(&mut harness, 0), leased(&mut harness, 1)),
        (Some((0, vec![2], 0)), Some((0, vec![3], 0)))
    );
    // Nor is it waited for one that failed.
    harness.from(Server(0), Message::Checkpointed { number, is_on_disk: true, failure: None });
    harness.command(ControllerCommand::Checkpoint);
    tell(&mut harness, 0, 0, &[2]);
    tell(&mut harness, 1, 0, &[3]);
    harness.pass(ms(1), &[]);
    let (done, number) = checkpoint(&mut harness).expect("a phase ended");
    assert_eq!((done.phase, leased(&mut harness, 0)), (1, Some((1, vec![], 0))));
    let failure = Some("full".to_owned());
    harness.from(Server(0), Message::Checkpointed { number, is_on_disk: false, failure });
    assert_eq!(leased(&mut harness, 0), Some((1, vec![0], 0)));
}

/// Tests rule K8.
#[test]
fn a_job_that_resumes_deals_what_was_not_done() {
    let record = |phase, done: &[u32]| {
        let accounts = BTreeMap::from([(0, "first".to_owned()), (phase, "second".to_owned())]);
        WorkRecord { phase, done: done.iter().copied().collect(), accounts }
    };
    let records = vec![(0, record(1, &[0])), (1, record(1, &[2]))];
    let done = WorkDone { phase: 1, records: records.clone(), repeated: 3 };
    let mut harness = running_with(1, |cluster| {
        cluster.work = Some(Work { phases: 2, chunks: vec![4, 4], done, ..Work::default() });
    });
    // The harness has set the cluster after the controller was made.
    harness.controller.barrier = harness.controller.cluster.first_phase();
    tell(&mut harness, 0, 1, &[]);
    assert_eq!(leased(&mut harness, 0), Some((1, vec![1, 3], 0)));
    tell(&mut harness, 0, 1, &[1, 3]);
    assert_eq!(leased(&mut harness, 0), Some((2, vec![], 0)), "all is done");
    let mut expected = records;
    expected.push((0, record(1, &[1, 3])));
    let WorkDone { records, repeated, .. } = harness.controller.work_done().expect("there is work");
    let accounts = |of: &[(u16, WorkRecord)]| -> Vec<usize> {
        of.iter().map(|(_, record)| record.accounts.len()).collect()
    };
    assert_eq!((repeated, accounts(&records)), (3, vec![2, 2, 1]));
    assert_eq!(records.len(), expected.len());
}

/// Adds phases of so many chunks to open work, which has so many phases.
fn add(harness: &mut ControllerHarness, behind: u64, chunks: &[u32], is_complete: bool) {
    let phase = |&chunks: &u32| AddedPhase { chunks, text: format!("{behind}+{chunks}") };
    let phases = chunks.iter().map(phase).collect();
    harness.command(ControllerCommand::AddPhases { behind, phases, is_complete });
}

/// Tests rule K9.
#[test]
fn phases_are_added_to_open_work() {
    let mut harness =
        running_with(2, |cluster| cluster.work = Some(Work { is_open: true, ..Work::default() }));
    tell(&mut harness, 0, 0, &[]);
    assert_eq!(leased(&mut harness, 0), None, "there is no phase yet");
    add(&mut harness, 0, &[2, 1], false);
    assert_eq!(leased(&mut harness, 0), None, "the server does not have them");
    harness.viewed(Server(0));
    let view = harness.controller.cluster.view_of(Worker(1));
    assert_eq!(view.added.get(1).map(|phase| &*phase.text), Some("0+1"));
    assert_eq!(leased(&mut harness, 0), Some((0, vec![0, 1], 0)));
    tell(&mut harness, 0, 0, &[0, 1]);
    assert_eq!(leased(&mut harness, 0), Some((1, vec![0], 0)));
    tell(&mut harness, 0, 1, &[0]);
    assert_eq!(leased(&mut harness, 0), Some((2, vec![], 0)), "all waits for more");
    // Its front end has not heard of the first.
    add(&mut harness, 0, &[7], false);
    assert_eq!(harness.view().added.count(), 2);
    add(&mut harness, 2, &[1, 1, 1], false);
    harness.viewed(Server(0));
    for phase in 2..5 {
        assert_eq!(leased(&mut harness, 0), Some((phase, vec![0], 0)));
        tell(&mut harness, 0, phase, &[0]);
    }
    harness.events();
    add(&mut harness, 5, &[], true);
    let AddedPhases { done, phases, is_complete } = harness.view().added;
    assert_eq!((done, phases.len(), is_complete), (3, 2, true), "those before the last two are dropped");
    let added = |event: ControllerEvent| matches!(event, ControllerEvent::PhasesAdded(_));
    assert!(harness.events().into_iter().any(added), "the front end learns of it");
    // A late message about a phase that is not kept changes nothing.
    tell(&mut harness, 1, 0, &[1]);
    add(&mut harness, 5, &[1], false);
    assert_eq!(harness.view().added.count(), 5, "no other is to come");
    harness.viewed(Server(0));
    [0, 1].into_iter().for_each(|worker| report(&mut harness, worker));
    assert_eq!(harness.failure(), None);
}

/// Tests rule K1.
#[test]
fn who_tells_of_what_there_is_not_ends_the_job() {
    for (phase, done) in [(1, vec![]), (0, vec![3])] {
        let mut harness = running(1, [3, 1]);
        tell(&mut harness, 0, phase, &done);
        let failed = |event: &ControllerEvent| matches!(event, ControllerEvent::Failed { reason } if reason.contains("phase"));
        assert!(harness.events().iter().any(failed), "phase {phase}, done {done:?}");
    }
    let mut harness = running(1, [3, 1]);
    harness.from(Worker(0), Message::Barrier { number: 0 });
    assert!(harness.events().iter().any(|event| matches!(event, ControllerEvent::Failed { .. })));
}
