//! A server whose rows take more memory than they may.

use core::time::Duration;

use libra_plan::SplitMix64;
use libra_store::{Optimizer, SimulatedBlockFile};

use super::durability::{Disk, LOG};
use super::harness::{CONTROLLER, NOW, ServerHarness, address, push};
use crate::cluster::{Cluster, Durability, Peer};
use crate::message::Message;
use crate::role::Role;
use crate::server::{MemoryLimit, RestoreError, Restored, Server, ServerEvent};
use crate::testing::{self, HOT_ROWS};

/// Rows take several times as much.
const LIMIT: usize = 1 << 20;
const ROWS: u64 = 40_000;
const ROWS_OF_A_PUSH: u64 = 500;

fn limit(bytes: usize, file: SimulatedBlockFile) -> MemoryLimit {
    MemoryLimit { bytes, process_shards: 2, file: Box::new(file) }
}

/// The cluster of the other tests with many cold rows, of seven words.
fn cluster(durability: Durability) -> Cluster {
    let mut cluster = Cluster { durability, ..testing::cluster(4) };
    let optimizer = Optimizer::Adam { rate: 0.5, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    (cluster.tables[0].keys, cluster.tables[0].rule) = (0..ROWS, optimizer.into());
    cluster.plan.as_mut().unwrap().tables[0].keys = 0..ROWS;
    cluster
}

fn start(limit: Option<MemoryLimit>, durability: Durability) -> (ServerHarness, Disk) {
    let server = Server::new(address(1)).with_disk();
    let server = match limit {
        Some(limit) => server.with_memory_limit(limit),
        None => server,
    };
    let mut harness = ServerHarness::starting_in(server, cluster(durability));
    let mut disk = Disk::default();
    disk.serve(&mut harness, 0);
    harness.answers(CONTROLLER);
    (harness, disk)
}

fn keys_of_push(random: &mut SplitMix64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..ROWS_OF_A_PUSH).map(|_| HOT_ROWS + random.below(ROWS - HOT_ROWS)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn pushes(count: u64) -> impl Iterator<Item = (u64, Vec<u64>)> {
    let mut random = SplitMix64::new(5);
    (1..=count).map(move |number| (number, keys_of_push(&mut random)))
}

/// All rows as a worker reads them.
fn all_values(harness: &mut ServerHarness) -> Vec<u32> {
    let reader = harness.call(Peer::Worker(2));
    let mut values = Vec::new();
    for first in (0..ROWS).step_by(5_000) {
        let keys: Vec<u64> = (first..first + 5_000).collect();
        let answer = harness.request(reader, Message::Pull { number: 1, keys: keys.as_slice().into() });
        let [Message::Pulled { values: read, .. }] = answer.as_slice() else { panic!("{answer:?}") };
        values.extend(read.clone().into_vec().into_iter().map(f32::to_bits));
    }
    values
}

/// All rows and their states, as a scan reads them.
fn scan(harness: &mut ServerHarness) -> Vec<Message> {
    harness.server.set_page_bytes_max(100_000);
    let reader = harness.call(Peer::Worker(1));
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        pages.extend(harness.request(reader, Message::Scan { number: 1, table: 0, after }));
        let Some(Message::Scanned { page, .. }) = pages.last() else { panic!("{pages:?}") };
        after = page.next;
        if after.is_none() {
            return pages;
        }
    }
}

#[test]
fn all_is_as_without_a_limit() {
    let (mut limited, mut disk) = start(Some(limit(LIMIT, SimulatedBlockFile::default())), LOG);
    let (mut other, mut other_disk) = start(None, LOG);
    let links = [&mut limited, &mut other].map(|harness| harness.call(Peer::Worker(0)));
    for (number, keys) in pushes(200) {
        for (harness, disk, link) in
            [(&mut limited, &mut disk, links[0]), (&mut other, &mut other_disk, links[1])]
        {
            harness.send(link, push(number, &keys, 0.25));
            disk.serve(harness, usize::MAX);
            if number == 100 {
                harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
                disk.serve(harness, usize::MAX);
                harness.answers(CONTROLLER);
            }
        }
        let answers = [limited.answers(links[0]), other.answers(links[1])];
        assert_eq!(answers[0].len(), 1);
        assert_eq!(answers[0], answers[1], "push {number}");
    }
    let counts = limited.statistics();
    assert!(counts.rows_on_disk > counts.rows / 2 && counts.disk_rows_read > 1_000, "{counts:?}");
    assert_eq!((counts.shards_over_limit, other.statistics().disk_rows_written), (0, 0));
    assert_eq!((disk.covers, disk.records.len()), (100, 100));
    let limited_again =
        disk.restart_limited(limited.view(), Some(limit(LIMIT, SimulatedBlockFile::default())));
    assert!(limited_again.statistics().rows_on_disk > 0, "the limit holds while rows are read");
    let values = all_values(&mut other);
    let scanned = scan(&mut other);
    for mut harness in [limited, limited_again, disk.restart(other.view())] {
        assert!(all_values(&mut harness) == values);
        assert!(scan(&mut harness) == scanned);
        assert_eq!(harness.events, []);
    }
}

#[test]
fn nothing_leaves_after_a_failed_read_and_nothing_is_lost() {
    let mut file = SimulatedBlockFile::default();
    file.reads_left = Some(20);
    let (mut harness, mut disk) = start(Some(limit(LIMIT, file)), LOG);
    let (mut expected, mut expected_disk) = start(None, LOG);
    let (link, expected_link) = (harness.call(Peer::Worker(0)), expected.call(Peer::Worker(0)));
    let mut acknowledged = 0;
    for (number, keys) in pushes(400) {
        harness.send(link, push(number, &keys, 0.25));
        disk.serve(&mut harness, usize::MAX);
        if harness.answers(link).is_empty() {
            break;
        }
        acknowledged = number;
        expected.send(expected_link, push(number, &keys, 0.25));
        expected_disk.serve(&mut expected, usize::MAX);
    }
    assert!((20..400).contains(&acknowledged), "{acknowledged}");
    let [ServerEvent::StoreFailed { reason }] = harness.events.as_slice() else {
        panic!("{:?}", harness.events)
    };
    assert!(
        reason.starts_with("server 0: ") && reason.ends_with("cannot read the simulated file"),
        "{reason}"
    );
    harness.send(link, push(acknowledged + 2, &[HOT_ROWS], 1.0));
    harness.send(CONTROLLER, Message::Checkpoint { number: 2 });
    harness.server.handle_timeout(NOW + Duration::from_secs(1));
    harness.collect();
    assert_eq!((harness.answers(link), harness.answers(CONTROLLER)), (Vec::new(), Vec::new()));
    assert_eq!((harness.events.len(), harness.requests.len()), (1, 0));
    let mut again = disk.restart(harness.view());
    assert!(all_values(&mut again) == all_values(&mut expected));
}

#[test]
fn on_a_full_disk_rows_stay_in_memory() {
    let mut file = SimulatedBlockFile::default();
    file.blocks_max = Some(100);
    let (mut harness, mut disk) = start(Some(limit(LIMIT, file)), LOG);
    let link = harness.call(Peer::Worker(0));
    let beat = |harness: &mut ServerHarness, seconds| {
        harness.server.handle_timeout(NOW + Duration::from_secs(seconds));
        harness.collect();
    };
    for (number, keys) in pushes(200) {
        harness.send(link, push(number, &keys, 0.25));
        disk.serve(&mut harness, usize::MAX);
        assert_eq!(harness.answers(link).len(), 1);
    }
    (1..4).for_each(|seconds| beat(&mut harness, seconds));
    assert_eq!(harness.events, [ServerEvent::MemoryLimitExceeded]);
    assert_eq!(harness.statistics().shards_over_limit, 1);
    assert!(all_values(&mut harness) == all_values(&mut disk.restart(harness.view())));
}

#[test]
fn a_limit_below_what_is_needed_is_refused_with_what_is() {
    let server = Server::new(address(1)).with_memory_limit(limit(1_000, SimulatedBlockFile::default()));
    let mut harness = ServerHarness::starting_in(server, cluster(Durability::NONE));
    let sent = harness.answers(CONTROLLER);
    let Some(Message::Abort { reason }) = sent.last() else { panic!("{sent:?}") };
    assert!(reason.starts_with("server 0: the memory limit is too low: "), "{reason}");
    assert!(reason.ends_with("for 2 such shards --memory-limit must be 1MiB at least"), "{reason}");
}

#[test]
fn a_limit_that_rows_reach_is_refused_while_they_are_read() {
    let (mut harness, mut disk) = start(None, LOG);
    let link = harness.call(Peer::Worker(0));
    for (number, keys) in pushes(200) {
        harness.send(link, push(number, &keys, 0.25));
        disk.serve(&mut harness, usize::MAX);
    }
    let low = limit(64 << 10, SimulatedBlockFile::default());
    let mut restored = Restored::with_memory_limit(&disk.state, disk.covers, Some(low)).unwrap();
    let error = disk.records.iter().find_map(|(number, record)| restored.record(*number, record).err());
    let Some(RestoreError::Store(reason)) = error else { panic!("{error:?}") };
    assert!(reason.contains("--memory-limit must be "), "{reason}");
}
