//! Links that lose long packets and do not say so.

use core::time::Duration;

use libra_dataplane::{Header, Kind, packet_bytes};
use libra_faultsim::{ClusterHarness, Event, HarnessConfig, Host, whole};
use libra_proto::{ControllerEvent, HotPath, Peer, WorkerEvent, is_length_probe};

/// Entries that come through; the job has 9.
const ENTRIES: u8 = 5;

/// A job on a network whose last worker has a link that is narrow on the way to switches, back from them, or both.
fn narrow(adapts_to_paths: bool, there: bool, back: bool) -> (ClusterHarness, Host) {
    let config = HarnessConfig::small(2, 1, 2);
    let hot_path = HotPath { adapts_to_paths, ..config.hot_path.clone() };
    let mut harness = ClusterHarness::new(HarnessConfig { hot_path, ..config });
    let worker = harness.workers().end - 1;
    for switch in harness.switches() {
        narrow_link(&mut harness, worker, switch, there, back);
    }
    (harness, worker)
}

fn narrow_link(harness: &mut ClusterHarness, worker: Host, switch: Host, there: bool, back: bool) {
    let bytes_max = packet_bytes(ENTRIES) + 5;
    if there {
        harness.world.network.narrow(worker, switch, bytes_max);
    }
    if back {
        harness.world.network.narrow(switch, worker, bytes_max);
    }
}

fn start(harness: &mut ClusterHarness) {
    for worker in harness.workers() {
        harness.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
    }
}

/// The entries of pushes that were sent, by worker, without those of probes.
fn entries_sent(harness: &ClusterHarness, worker: Host) -> Vec<u8> {
    let sent = harness.world.observer.recorder.datagrams.iter().filter(|sent| sent.from == worker);
    let headers = sent.filter_map(|sent| Header::parse(&sent.bytes).ok());
    headers.filter(|header| header.kind == Kind::Push).map(|header| header.entries).collect()
}

/// A job that adapts to paths, on a wide network, and its one worker.
fn adaptive() -> (ClusterHarness, Host) {
    let config = HarnessConfig::small(1, 1, 1);
    let hot_path = HotPath { adapts_to_paths: true, ..config.hot_path.clone() };
    let harness = ClusterHarness::started(HarnessConfig { hot_path, ..config });
    let worker = harness.workers().start;
    (harness, worker)
}

// rules T19, T20
#[test]
fn a_narrow_path_ends_the_job_within_ten_seconds() {
    for (there, back) in [(true, true), (true, false), (false, true)] {
        let (mut harness, worker) = narrow(false, there, back);
        start(&mut harness);
        let begun = harness.world.now();
        let reason = loop {
            match harness.next_event(worker) {
                Some(Event::Worker(WorkerEvent::Ended { reason, .. })) => break reason,
                Some(_) => {}
                None => harness.step(),
            }
            assert!(harness.world.now().since(begun) < Duration::from_secs(10), "{there} {back}");
        };
        let (passes, fails) = (28 + packet_bytes(ENTRIES), 28 + packet_bytes(ENTRIES + 1));
        assert!(reason.contains(&format!("packets of {passes} bytes come through")), "{reason}");
        assert!(reason.contains(&format!("those of {fails} bytes do not")), "{reason}");
        assert!(reason.ends_with(&format!("--mtu {passes} or --mtu auto")), "{reason}");
    }
}

// rule T20
#[test]
fn packets_are_as_long_as_each_path_allows() {
    for (there, back) in [(true, true), (true, false), (false, true)] {
        let (mut harness, worker) = narrow(true, there, back);
        start(&mut harness);
        let mut sums = harness.work(50, whole);
        // By then its length is known.
        harness.run_for(Duration::from_secs(6));
        let before = entries_sent(&harness, worker).len();
        let more = harness.work(50, whole);
        sums.add_all(&more);
        assert_eq!(harness.check_values(&sums), Ok(()));
        assert_eq!(harness.check(), Ok(()));
        let sent = entries_sent(&harness, worker);
        assert!(sent.len() > before + 20, "its rows are hot again");
        assert_eq!(sent.iter().max(), Some(&3), "one row of three values, of which two do not fit");
        let other = entries_sent(&harness, harness.workers().start);
        assert_eq!(other.iter().max(), Some(&9));
        harness.finish();
    }
}

// rule T20
#[test]
fn a_worker_reports_that_its_packets_became_shorter() {
    let (mut harness, worker) = narrow(true, true, true);
    start(&mut harness);
    let (before, after) = (28 + packet_bytes(9), 28 + packet_bytes(ENTRIES));
    harness.wait_for(worker, |event| {
        let Event::Worker(WorkerEvent::PathChanged(change)) = event else { return false };
        assert_eq!((change.before, change.after), (before, after));
        true
    });
    let other = harness.workers().start;
    let is_change = |event: &Event| matches!(event, Event::Worker(WorkerEvent::PathChanged(_)));
    assert!(!core::iter::from_fn(|| harness.next_event(other)).any(|event| is_change(&event)));
}

// rule T19
#[test]
fn a_path_that_is_wide_costs_one_probe() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    harness.work(20, whole);
    harness.run_for(Duration::from_secs(5));
    let worker = harness.workers().start;
    let sent = harness.world.observer.recorder.datagrams.iter().filter(|sent| sent.from == worker);
    let probes = sent.filter(|sent| is_length_probe(&sent.bytes)).map(|sent| sent.bytes.len());
    assert_eq!(probes.collect::<Vec<_>>(), [packet_bytes(1), packet_bytes(9)]);
}

// rules M14, T20
#[test]
fn packets_too_long_for_a_new_owner_come_to_their_shard() {
    let (mut harness, worker) = adaptive();
    let switch = harness.switches().start;
    let mut sums = harness.work(20, whole);
    let standby = harness.add_switch();
    narrow_link(&mut harness, worker, standby, true, true);
    harness.run_for(Duration::from_millis(500));
    harness.world.crash(switch);
    let more = harness.work(20, whole);
    sums.add_all(&more);
    let mut events = core::iter::from_fn(|| harness.next_event(0));
    let given_up = Event::Controller(ControllerEvent::Lost {
        peer: Peer::Switch(1),
        reason: "could not be reached by worker 0".to_owned(),
    });
    assert!(events.any(|event| event == given_up));
    assert_eq!(harness.check_values(&sums), Ok(()));
    assert_eq!(harness.check(), Ok(()));
}

// rules M14, T19, T20
#[test]
fn a_path_that_becomes_narrow_loses_no_push() {
    let (mut harness, worker) = adaptive();
    let mut sums = harness.work(20, whole);
    let switch = harness.switches().start;
    narrow_link(&mut harness, worker, switch, true, true);
    let more = harness.work(20, whole);
    sums.add_all(&more);
    assert_eq!(harness.check_values(&sums), Ok(()));
    assert_eq!(harness.check(), Ok(()));
}
