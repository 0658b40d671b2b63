//! The state of a shard in a checkpoint, and the records of its log: what a server goes on from.

use core::net::{Ipv4Addr, SocketAddr};

use libra_fuzz::{Outcome, Sequences, Target, join, split};
use libra_proto::{Instant, Restored, Role};
use libra_storage::disk::SimulatedDisk;
use libra_storage::wal::{Log, RecordNumber, Settings};

use crate::job::job;

const RECORDS_MAX: usize = 12;
/// The newest record of the log that the state has.
const COVERS: u64 = 5;

fn address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 4000).into()
}

fn states() -> Vec<Vec<u8>> {
    let states = job().files.iter().filter(|(name, _)| name.ends_with("state.bin"));
    states.map(|(_, bytes)| bytes.clone()).collect()
}

/// The records of the log, as the server has written them.
fn records() -> Vec<Vec<u8>> {
    let disk = SimulatedDisk::new(1);
    for (name, bytes) in job().files.iter().filter(|(name, _)| name.starts_with("log-")) {
        disk.put(name, bytes);
    }
    let first = job().files.keys().find_map(|name| name.strip_prefix("log-")?.strip_suffix(".libra"));
    let first = first.unwrap().parse().unwrap();
    let mut records = Vec::new();
    Log::open(disk, Settings::new(9, 0), RecordNumber(first), |_, record| {
        records.push(record.to_vec());
        Ok(())
    })
    .unwrap();
    records
}

/// A server that was restored begins its work.
fn begin(restored: Restored) {
    let _ = (restored.address(), restored.row_count());
    let mut server = restored.finish(address());
    server.handle_start(Instant::from_nanos(1));
    while server.poll_action().is_some() {}
    while server.poll_event().is_some() {}
    server.poll_timeout().into_iter().for_each(|now| server.handle_timeout(now));
}

pub(crate) fn read_state(bytes: &[u8]) -> Outcome {
    assert!(Restored::whose(bytes).is_some() || Restored::new(bytes, COVERS).is_err());
    match Restored::new(bytes, COVERS) {
        Ok(restored) => {
            begin(restored);
            Outcome::beyond("ok")
        }
        // Its bytes had the form of a state.
        Err(error) if Restored::whose(bytes).is_some() => {
            Outcome::of::<(), _>(&Err(error)).past_the_first_check()
        }
        Err(_) => Outcome::refused("no state"),
    }
}

pub(crate) fn target() -> Target {
    Target::new("state", states())
}

pub(crate) fn read_records(state: &[u8], bytes: &[u8]) -> Outcome {
    let mut restored = Restored::new(state, COVERS).unwrap();
    let records = split(bytes);
    let mut applied = 0;
    for (number, (_, record)) in (COVERS + 1..).zip(&records) {
        if restored.record(number, record).is_err() {
            break;
        }
        applied += 1;
    }
    if applied == records.len() {
        begin(restored);
    }
    if applied > 0 { Outcome::beyond("applied") } else { Outcome::refused("none applied") }
}

/// A state that is not the last: a job that is done does not go on.
pub(crate) fn unfinished() -> Vec<u8> {
    let mut states = states().into_iter();
    states
        .find(|state| Restored::new(state, COVERS).is_ok())
        .expect("a checkpoint was written before the end")
}

pub(crate) fn records_after_a_state() -> (Target, Sequences) {
    let records = records();
    let seeds = records
        .chunks(RECORDS_MAX)
        .map(|records| join(&records.iter().map(|record| (0, record.clone())).collect::<Vec<_>>()));
    (Target::new("record", seeds.take(8).collect()), Sequences::of(records, RECORDS_MAX, 1))
}
