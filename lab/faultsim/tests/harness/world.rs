//! The world between the roles: what streams, machines and the network do.

use core::time::Duration;

use libra_dataplane::{Header, Kind};
use libra_faultsim::{ClusterHarness, Event, HarnessConfig, Quality, whole};
use libra_proto::{Level, WorkerEvent};

const COLD: u64 = 1000;
const GRADIENT: [f32; 40] = [1.0; 40];

fn pushed(harness: &mut ClusterHarness, worker: usize, number: u64) -> bool {
    core::iter::from_fn(|| harness.next_event(worker))
        .any(|event| event == Event::Worker(WorkerEvent::Pushed { number }))
}

#[test]
fn a_partition_holds_messages_back_and_loses_none() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 1));
    let (server, worker) = (harness.servers().start, harness.workers().start);
    harness.world.partition(&[worker], &[server], false);
    let push = harness.push(worker, &[COLD], &GRADIENT, Level::Accepted);
    harness.run_for(Duration::from_secs(1));
    assert!(!pushed(&mut harness, worker, push));
    harness.world.heal(&[worker], &[server], false);
    harness.wait_for_push(worker, push);
}

#[test]
fn one_direction_of_a_stream_passes_as_far_as_unacknowledged() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 2));
    let (server, worker) = (harness.servers().start, harness.workers().start);
    harness.world.partition(&[server], &[worker], false);
    let pushes: Vec<u64> =
        (0..15).map(|_| harness.push(worker, &[COLD], &GRADIENT, Level::Accepted)).collect();
    harness.run_for(Duration::from_secs(1));
    assert!(!pushed(&mut harness, worker, pushes[0]), "no answer arrives");
    assert_eq!(
        harness.pull(worker + 1, &[COLD]),
        [-10.0; 40],
        "as many pushes as go without an acknowledgement"
    );
    harness.world.heal(&[server], &[worker], false);
    pushes.into_iter().for_each(|push| harness.wait_for_push(worker, push));
    assert_eq!(harness.pull(worker, &[COLD]), [-15.0; 40]);
}

#[test]
fn messages_of_a_stranded_stream_arrive_after_the_next_opens() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 2));
    let (server, worker) = (harness.servers().start, harness.workers().start);
    harness.world.strand_streams(worker, server, Duration::from_secs(2));
    let push = harness.push(worker, &[COLD], &GRADIENT, Level::Accepted);
    harness.run_for(Duration::from_secs(1));
    harness.wait_for_push(worker, push);
    // It comes on the old stream, too, and is known there.
    harness.run_for(Duration::from_secs(3));
    assert_eq!(harness.pull(worker + 1, &[COLD]), [-1.0; 40]);
}

#[test]
fn a_clock_jump_while_a_stream_opens_gives_up_no_member() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let (server, worker) = (harness.servers().start, harness.workers().start);
    harness.world.reset_streams(worker, server);
    harness.run_for(Duration::from_millis(50));
    harness.world.jump_clock(worker, Duration::from_secs(600));
    let push = harness.push(worker, &[COLD, 3], &[1.0; 43], Level::Visible);
    harness.wait_for_push(worker, push);
}

#[test]
fn a_process_that_sleeps_receives_everything_later() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 0, 1));
    let (server, worker) = (harness.servers().start, harness.workers().start);
    harness.world.pause(server);
    let pushes: Vec<u64> =
        (0..3).map(|_| harness.push(worker, &[COLD], &GRADIENT, Level::Accepted)).collect();
    harness.run_for(Duration::from_secs(1));
    assert!(!harness.world.is_awake(server) && harness.world.is_alive(server));
    assert!(!pushed(&mut harness, worker, pushes[2]));
    harness.world.resume(server);
    pushes.into_iter().for_each(|push| harness.wait_for_push(worker, push));
    assert_eq!(harness.pull(worker, &[COLD]), [-3.0; 40]);
}

#[test]
fn a_host_refuses_without_a_process_and_is_silent_without_power() {
    for (power, text) in [(true, "connection refused"), (false, "connection timed out")] {
        let mut harness = ClusterHarness::new(HarnessConfig::small(1, 0, 1));
        if power {
            harness.world.crash(0);
        } else {
            harness.world.fail_machine(0);
        }
        let late = harness.add_worker();
        harness.run_for(Duration::from_secs(4));
        let said = harness.next_event(late);
        assert!(
            matches!(&said, Some(Event::Worker(WorkerEvent::Ended { reason, .. })) if reason.contains(text)),
            "{said:?}"
        );
    }
}

#[test]
fn flipped_bits_are_dropped_by_the_checksum() {
    let mut config = HarnessConfig::small(2, 1, 2);
    config.quality = Quality { corrupt: 0.3, ..Quality::GOOD };
    let mut harness = ClusterHarness::started(config);
    let sums = harness.work(10, whole);
    assert_eq!((harness.check_values(&sums), harness.check()), (Ok(()), Ok(())));
    assert!(harness.world.counts().bad_checksums > 10);
    assert_eq!(harness.world.counts().bad_checksums, harness.world.network.counts().corrupted);
}

#[test]
fn datagrams_that_come_together_come_in_bursts() {
    let mut config = HarnessConfig::small(1, 1, 1);
    config.quality = Quality { tick: Duration::from_micros(500), ..Quality::GOOD };
    let mut harness = ClusterHarness::started(config);
    harness.work(20, whole);
    let together = harness.world.observer.recorder.datagrams.iter().any(|sent| {
        Header::parse(&sent.bytes).is_ok_and(|header| header.kind == Kind::Ack && header.entries > 0)
    });
    assert!(together, "the acknowledgement of a burst names a range");
}

/// A canary: were a copy of a packet taken for another, both kinds of checks would have to report it.
#[test]
fn a_copy_that_passes_for_another_packet_is_noticed() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(2, 1, 2));
    let (switch, worker) = (harness.switches().start, harness.workers().start);
    let mut sums = harness.work(5, whole);
    let push = harness.push(worker, &[3], &[1.0; 3], Level::Accepted);
    sums.add(&harness.config.rows, &[3], &[1.0; 3]);
    harness.wait_for_push(worker, push);
    let sent = &harness.world.observer.recorder.datagrams;
    let copy = sent.iter().rfind(|sent| sent.bytes[1] == Kind::Push as u8).map(|sent| sent.bytes.clone());
    let mut copy = copy.expect("a push of a hot row is a packet");
    let header = Header::parse(&copy).expect("it was sent");
    Header { seq: header.seq + 7, ..header }.emit(&mut copy);
    let from = harness.world.address(worker);
    harness.world.inject(from, switch, copy);
    harness.flush_all();
    harness.run_for(Duration::from_millis(50));
    assert!(harness.check_values(&sums).is_err_and(|text| text.contains("values differ")));
    assert!(harness.check().is_err_and(|text| text.contains("never sent")));
}
