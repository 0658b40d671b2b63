//! Valid inputs from a simulated job: they are made of the formats as they are now, so no change of a format makes them stale.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use libra_faultsim::{ClusterHarness, HarnessConfig, whole};
use libra_proto::{AssignedRows, Durability, Level, Tick, WorkerCommand};

/// Frames of one kind of message or packet that are kept.
const OF_A_KIND: usize = 3;

/// Messages and datagrams of the members of a job, and the files of its server.
pub(crate) struct Job {
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) datagrams: Vec<Vec<u8>>,
    /// The files of the server.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

/// A job that does everything: a switch is lost, a server comes back, rows are set, reset and scanned.
pub(crate) fn job() -> &'static Job {
    static JOB: OnceLock<Job> = OnceLock::new();
    JOB.get_or_init(run)
}

fn run() -> Job {
    let durability = Durability {
        log: true,
        checkpoint_every: Some(Duration::from_millis(15)),
        increments: 2,
        ..Durability::NONE
    };
    let mut harness = ClusterHarness::started(HarnessConfig { durability, ..HarnessConfig::small(1, 2, 2) });
    // What is lost and set here means nothing to them.
    harness.world.observer.checkers = None;
    harness.work(5, whole);
    let (server, switch, worker) =
        (harness.servers().start, harness.switches().start, harness.workers().start);
    harness.command(worker, WorkerCommand::Tick(Tick::Visible));
    let rows = AssignedRows { table: 0, keys: vec![1, 2], values: vec![0.5; 6], states: Vec::new() };
    let number = harness.number();
    harness.command(worker, WorkerCommand::Assign { number, rows });
    let number = harness.number();
    harness.command(worker, WorkerCommand::Scan { number, shard: 0, table: 0, after: None });
    harness.run_for(Duration::from_millis(50));
    let number = harness.number();
    harness.command(worker, WorkerCommand::Reset { number, table: 1, steps: 0 });
    harness.run_for(Duration::from_millis(50));
    // Packets are under way when the switch is lost.
    for key in 0..20 {
        harness.push(worker, &[key, key + 1], &[1.0; 6], Level::Visible);
    }
    harness.world.crash(switch);
    harness.run_for(Duration::from_secs(3));
    harness.world.crash(server);
    harness.run_for(Duration::from_millis(100));
    harness.start_server(server);
    harness.run_for(Duration::from_secs(3));
    harness.work(5, whole);
    for worker in harness.workers() {
        harness.command(worker, WorkerCommand::Barrier { number: 0 });
    }
    harness.run_for(Duration::from_millis(50));
    let files = harness.world.disk(server).contents();
    harness.finish();

    let recorder = &harness.world.observer.recorder;
    let datagrams = recorder.datagrams.iter().map(|sent| sent.bytes.clone());
    let messages = recorder.messages.iter().map(|sent| sent.message.encode());
    Job {
        // The second byte is the kind, the third the flags.
        datagrams: some_of_each(datagrams, |bytes| (bytes[1], bytes[2])),
        messages: some_of_each(messages, |bytes| bytes[0]),
        files,
    }
}

/// The first ones of each kind that differ.
fn some_of_each<K: Ord>(frames: impl Iterator<Item = Vec<u8>>, kind: impl Fn(&[u8]) -> K) -> Vec<Vec<u8>> {
    let mut kept: BTreeMap<K, Vec<Vec<u8>>> = BTreeMap::new();
    for frame in frames {
        let of_kind = kept.entry(kind(&frame)).or_default();
        if of_kind.len() < OF_A_KIND && !of_kind.contains(&frame) {
            of_kind.push(frame);
        }
    }
    kept.into_values().flatten().collect()
}
