//! Shards of processes that have ended, in real directories.

use std::error::Error as _;

use libra_proto::{
    Cluster, Durability, HotPath, Link, LinkEvent, Message, Peer, Restoring, Role, Server, ServerCommand,
    ServerEvent, Start, StorageRequest,
};

use super::*;
use crate::create::create;

const JOB: u16 = 7;
const NOW: libra_proto::Instant = libra_proto::Instant::from_nanos(1);

fn found(data: &tempfile::TempDir) -> Result<Vec<Found>, PlaceError> {
    find(data.path(), None, |_| ())
}

// rule S5
#[test]
fn a_data_directory_that_others_may_write_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let found_with = |mode| {
        std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        found(&data)
    };
    for mode in [0o775, 0o702, 0o777] {
        let text = found_with(mode).unwrap_err().to_string();
        assert!(text.contains(&format!("`chmod go-w {}`", data.path().display())), "{text}");
    }
    for mode in [0o700, 0o755, 0o1777] {
        assert!(found_with(mode).unwrap().is_empty());
    }
}

fn address(process: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4000 + process))
}

/// A data directory with one shard for each of these processes, as a server leaves them that is killed after its first checkpoint.
fn shards_of(processes: &[u16]) -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(JOB, Vec::new(), None, HotPath::for_workers(1));
    cluster.durability = Durability { log: true, checkpoint_bytes_per_second: u64::MAX, ..Durability::NONE };
    cluster.view.servers = processes.iter().copied().map(address).collect();
    cluster.view.number = 1;
    for (number, process) in (0..).zip(processes) {
        let directory = shard_directory(data.path(), number);
        let disk = RealDisk::open(&directory).unwrap();
        let (log, mut checkpoints) = create(disk, 7, number, true, false).unwrap();
        drop(log);
        note_address(&directory, address(*process)).unwrap();
        let mut server = Server::new(address(*process)).with_disk();
        server.handle_start(NOW);
        server.handle_link(NOW, Link(0), LinkEvent::Opened { remote: address(0) });
        let start =
            Start { you: Peer::Server(number), share: 0, barrier: 0, cluster: cluster.clone().into() };
        server.handle_message(NOW, Link(0), Message::Start(Box::new(start)));
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Storage(
                    StorageRequest::Create { .. }
                    | StorageRequest::Append { .. }
                    | StorageRequest::TrimLog { .. },
                ) => {}
                ServerEvent::Storage(request) => {
                    let done = checkpoints.handle(request);
                    done.into_iter()
                        .for_each(|event| server.handle_command(NOW, ServerCommand::Storage(event)));
                }
                _ => {}
            }
        }
    }
    data
}

fn numbers(found: &[Found]) -> Vec<u16> {
    found.iter().map(|found| found.recovered.restored.number()).collect()
}

#[test]
fn all_shards_of_the_lowest_ones_process_are_found() {
    let data = shards_of(&[1, 2, 1, 2, 1]);
    let first = found(&data).unwrap();
    assert_eq!(numbers(&first), [0, 2, 4]);
    assert!(first.iter().all(|found| found.recovered.restored.address() == address(1)));
    let second = found(&data).unwrap();
    assert_eq!(numbers(&second), [1, 3]);
    let error = found(&data).unwrap_err();
    let text = error.to_string();
    let (directory, process) = (data.path().display().to_string(), std::process::id().to_string());
    for word in [&directory, &process, "127.0.0.1:4001", "127.0.0.1:4002"] {
        assert!(text.contains(word), "{word} is not in {text:?}");
    }
    assert!(error.is_busy() && matches!(error, PlaceError::Busy { holders, .. } if holders.len() == 2));
    drop(first);
    assert_eq!(numbers(&found(&data).unwrap()), [0, 2, 4]);
}

// rule L8
#[test]
fn shards_are_read_in_turn_and_tell_how_far_they_are() {
    let data = shards_of(&[1, 2, 1]);
    let mut readings: Vec<Reading> = Vec::new();
    let found = find(data.path(), None, |reading| {
        assert_eq!(reading.progress().read, 0);
        assert!(readings.iter().all(|before| before.progress().read > 0));
        readings.push(reading);
    });
    assert_eq!(numbers(&found.unwrap()), [0, 2]);
    for (number, reading) in [0, 2].into_iter().zip(&readings) {
        let Restoring { instance, server, read, total } = reading.progress();
        assert_eq!((instance, server), (u64::from(JOB), number));
        assert!(read > 0 && read <= total, "{read} of {total}");
    }
}

#[test]
fn a_process_that_takes_its_shards_keeps_all_of_them() {
    let data = shards_of(&[1, 1, 2, 1]);
    let first = RealDisk::open(shard_directory(data.path(), 0)).unwrap();
    assert_eq!(numbers(&found(&data).unwrap()), [2]);
    drop(first);
    // A process that is about to end, and still has one.
    let last = RealDisk::open(shard_directory(data.path(), 3)).unwrap();
    let error = found(&data).unwrap_err();
    let PlaceError::Shard { directory, cause } = &error else { panic!("{error}") };
    assert!(directory.ends_with("shard-3") && cause.to_string().contains("another process"), "{error}");
    assert!(error.is_busy());
    // Its text has all that it is caused by, which must not be printed once more.
    assert!(error.source().is_none());
    drop(last);
    assert_eq!(numbers(&found(&data).unwrap()), [0, 1, 3]);
}

#[test]
fn a_shard_without_a_noted_address_is_found_alone() {
    let data = shards_of(&[1, 1, 2]);
    for number in 0..3 {
        std::fs::remove_file(shard_directory(data.path(), number).join(ADDRESS)).unwrap();
    }
    let first = found(&data).unwrap();
    assert_eq!(numbers(&first), [0]);
    let second = found(&data).unwrap();
    assert_eq!(numbers(&second), [1]);
    assert_eq!(numbers(&found(&data).unwrap()), [2]);
}
