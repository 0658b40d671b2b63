//! Controllers that take the tables from workers (rule M19).

use std::collections::BTreeSet;

use super::harness::ControllerHarness;
use crate::cluster::{Cluster, Durability, Load, Peer};
use crate::controller::{Controller, ControllerEvent, Sizes};
use crate::message::Message;
use crate::mode::Mode;
use crate::statistics::{Statistics, WorkerStatistics};
use crate::testing;
use crate::work::{Work, WorkDone, WorkRecord};

const WORKER: Peer = Peer::Worker(0);
const OTHER: Peer = Peer::Worker(1);

fn harness(switches: u16) -> ControllerHarness {
    let mut harness = ControllerHarness::new(1, switches, 2);
    let cluster = Cluster { tables: Vec::new(), plan: None, ..testing::cluster(2) };
    let controller = Controller::new(Sizes { servers: 1, switches, workers: 2 }, cluster);
    harness.controller = controller.with_tables_of_workers();
    harness
}

fn job() -> Cluster {
    Cluster { mode: Mode::Sync, seed: 77, task: "front end".to_owned(), ..testing::cluster(2) }
}

fn propose(job: Cluster) -> Message {
    Message::Propose(Box::new(job))
}

fn refusal(harness: &mut ControllerHarness, peer: Peer) -> String {
    let link = harness.links_of[&peer];
    assert!(harness.closed.contains(&link));
    let sent = harness.received_on(link);
    let Some(Message::Abort { reason }) = sent.last() else { panic!("{sent:?}") };
    reason.clone()
}

#[test]
fn a_job_begins_with_the_tables_of_its_first_worker() {
    let mut harness = harness(1);
    for peer in [Peer::Server(0), Peer::Switch(0), WORKER, OTHER] {
        harness.join(peer);
    }
    assert!(
        !harness
            .received_on(harness.links_of[&Peer::Server(0)])
            .iter()
            .any(|sent| matches!(sent, Message::Start(_)))
    );
    harness.from(OTHER, propose(job()));
    assert_eq!(harness.received_on(harness.links_of[&Peer::Server(0)]), [], "the other may have another job");
    harness.from(WORKER, propose(job()));
    let sent = harness.received_on(harness.links_of[&Peer::Server(0)]);
    let [Message::Start(start)] = sent.as_slice() else { panic!("{sent:?}") };
    let Cluster { tables, plan, mode, seed, task, .. } = &*start.cluster;
    let job = job();
    assert_eq!((tables, plan, *mode, *seed, task), (&job.tables, &job.plan, Mode::Sync, 77, &job.task));
    // Again, it changes nothing.
    harness.from(WORKER, propose(job));
    harness.settle();
    assert!(harness.events().contains(&ControllerEvent::Started));
}

#[test]
fn a_worker_with_another_job_is_refused() {
    let mut changed = [job(), job(), job(), job()];
    changed[0].mode = Mode::Async;
    changed[1].seed = 78;
    changed[2].tables[0].width = 3;
    changed[3].plan = None;
    for (job_of_other, named) in
        changed.into_iter().zip(["the mode async", "the seed 78", "\"rows\"", "plan"])
    {
        let mut harness = harness(0);
        harness.join(WORKER);
        harness.from(WORKER, propose(job()));
        harness.join(OTHER);
        harness.from(OTHER, propose(job_of_other));
        let reason = refusal(&mut harness, OTHER);
        assert!(
            reason.starts_with("worker 1 has another job than worker 0: ") && reason.contains(named),
            "{reason}"
        );
        // Its place is free for one that agrees.
        harness.join(OTHER);
        harness.from(OTHER, propose(job()));
        harness.join(Peer::Server(0));
        harness.settle();
        assert!(harness.events().contains(&ControllerEvent::Started));
    }
}

#[test]
fn a_job_that_cannot_run_is_refused() {
    let mut twice = job();
    twice.tables.push(twice.tables[0].clone());
    let without_tables = Cluster { tables: Vec::new(), plan: None, ..job() };
    let without_plan = Cluster { plan: None, ..job() };
    for (job, named) in
        [(twice, "rows"), (without_tables, "at least one table"), (without_plan, "--switches 0")]
    {
        let mut harness = harness(1);
        harness.join(WORKER);
        harness.from(WORKER, propose(job));
        let reason = refusal(&mut harness, WORKER);
        assert!(reason.contains(named), "{reason}");
    }
}

#[test]
fn another_worker_decides_when_the_first_has_gone() {
    let mut harness = harness(0);
    harness.join(WORKER);
    let second = harness.join(OTHER);
    harness.from(WORKER, propose(job()));
    harness.from(OTHER, propose(job()));
    harness.break_stream(WORKER);
    assert_eq!(harness.closed, [second], "it comes again, and describes its job again");
    harness.join(WORKER);
    harness.join(OTHER);
    harness.join(Peer::Server(0));
    harness.from(OTHER, propose(Cluster { seed: 5, ..job() }));
    harness.from(WORKER, propose(Cluster { seed: 5, ..job() }));
    let sent = harness.received_on(harness.links_of[&Peer::Server(0)]);
    assert!(matches!(sent.as_slice(), [Message::Start(start)] if start.cluster.seed == 5), "{sent:?}");
}

#[test]
fn a_worker_without_a_job_is_refused() {
    let mut harness = harness(0);
    for peer in [Peer::Server(0), WORKER, OTHER] {
        harness.join(peer);
    }
    harness.from(WORKER, propose(job()));
    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(OTHER, Message::Heartbeat { statistics, probe: 0 });
    let reason = refusal(&mut harness, OTHER);
    assert!(reason.contains("--tables workers"), "{reason}");
    harness.join(OTHER);
    harness.from(OTHER, propose(job()));
    harness.settle();
    assert!(harness.events().contains(&ControllerEvent::Started));
}

fn work(phases: u64, chunks: &[u32]) -> Work {
    Work { phases, chunks: chunks.to_vec(), ..Work::default() }
}

/// A controller that resumes a job of 3 phases in its second one.
fn resuming() -> ControllerHarness {
    let mut harness = harness(0);
    let record = WorkRecord { phase: 1, done: BTreeSet::from([2]), ..WorkRecord::default() };
    let done = WorkDone { phase: 1, records: vec![(0, record)], repeated: 0 };
    let load = Load { directory: "run".to_owned(), number: 4, resumes_with: Some(5) };
    let before = Cluster {
        tables: Vec::new(),
        plan: None,
        task: "front end".to_owned(),
        seed: 77,
        work: Some(Work { done, ..work(3, &[1, 4, 4]) }),
        durability: Durability { load: Some(load), ..Durability::NONE },
        ..testing::cluster(2)
    };
    let sizes = Sizes { servers: 1, switches: 0, workers: 2 };
    harness.controller = Controller::new(sizes, before).with_tables_of_workers();
    harness.join(WORKER);
    harness.join(OTHER);
    harness
}

/// Tests rule K8.
#[test]
fn workers_go_on_with_the_work_of_the_run_before() {
    let mut harness = resuming();
    harness.join(Peer::Server(0));
    // One epoch more than before.
    let job = Cluster { work: Some(work(4, &[1, 4, 4, 4])), ..job() };
    [WORKER, OTHER].into_iter().for_each(|peer| harness.from(peer, propose(job.clone())));
    let sent = harness.received_on(harness.links_of[&Peer::Server(0)]);
    let [Message::Start(start)] = sent.as_slice() else { panic!("{sent:?}") };
    let work = start.cluster.work.as_ref().expect("it has work");
    assert_eq!((start.barrier, work.phases, work.done.phase, work.done.records.len()), (1, 4, 1, 1));
}

/// Tests rule K8.
#[test]
fn workers_with_other_work_do_not_resume() {
    let with = |work| Cluster { work, ..job() };
    let other_task = Cluster { task: "other data".to_owned(), ..with(Some(work(3, &[1, 4, 4]))) };
    let other_seed = Cluster { seed: 78, ..with(Some(work(3, &[1, 4, 4]))) };
    for (job, named) in [
        (with(None), "no samples that are dealt in chunks"),
        (with(Some(work(3, &[1, 5, 5]))), "had 4 chunks, not 5"),
        (other_task, "other data"),
        (other_seed, "the seed 77, not 78"),
    ] {
        let mut harness = resuming();
        harness.from(WORKER, propose(job));
        let reason = refusal(&mut harness, WORKER);
        assert!(reason.contains(named), "{reason}");
    }
}

/// Tests rule M19.
#[test]
fn workers_bring_the_work_and_agree_on_it() {
    let mut harness = harness(0);
    harness.join(WORKER);
    harness.join(OTHER);
    // Nothing of a job that begins is done.
    let done = WorkDone { phase: 2, ..WorkDone::default() };
    let begun = Work { done, ..work(3, &[1, 4, 4]) };
    harness.from(WORKER, propose(Cluster { work: Some(begun), ..job() }));
    let adopted = harness.controller.cluster.work.clone().expect("it has work");
    assert_eq!((adopted.done, adopted.chunks), (WorkDone::default(), vec![1, 4, 4]));
    harness.from(OTHER, propose(Cluster { work: Some(work(3, &[1, 4, 3])), ..job() }));
    let reason = refusal(&mut harness, OTHER);
    assert!(reason.contains("its work is dealt in other chunks"), "{reason}");
}
