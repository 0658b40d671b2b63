//! The world between the roles: what streams, machines and the network do.

use core::time::Duration;

use libra_dataplane::{Header, Kind};
use libra_faultsim::{Event, Quality, Setup, Stage, whole};
use libra_proto::{Level, WorkerEvent};

const COLD: u64 = 1000;
const GRADIENT: [f32; 40] = [1.0; 40];

fn pushed(stage: &mut Stage, worker: usize, number: u64) -> bool {
    core::iter::from_fn(|| stage.next_event(worker))
        .any(|event| event == Event::Worker(WorkerEvent::Pushed { number }))
}

#[test]
fn a_partition_holds_messages_back_and_loses_none() {
    let mut stage = Stage::started(Setup::small(1, 0, 1));
    let (server, worker) = (stage.servers().start, stage.workers().start);
    stage.world.partition(&[worker], &[server], false);
    let push = stage.push(worker, &[COLD], &GRADIENT, Level::Accepted);
    stage.run_for(Duration::from_secs(1));
    assert!(!pushed(&mut stage, worker, push));
    stage.world.heal(&[worker], &[server], false);
    stage.wait_for_push(worker, push);
}

#[test]
fn one_direction_of_a_stream_passes_as_far_as_unacknowledged() {
    let mut stage = Stage::started(Setup::small(1, 0, 2));
    let (server, worker) = (stage.servers().start, stage.workers().start);
    stage.world.partition(&[server], &[worker], false);
    let pushes: Vec<u64> = (0..15).map(|_| stage.push(worker, &[COLD], &GRADIENT, Level::Accepted)).collect();
    stage.run_for(Duration::from_secs(1));
    assert!(!pushed(&mut stage, worker, pushes[0]), "no answer arrives");
    assert_eq!(
        stage.pull(worker + 1, &[COLD]),
        [-10.0; 40],
        "as many pushes as go without an acknowledgement"
    );
    stage.world.heal(&[server], &[worker], false);
    pushes.into_iter().for_each(|push| stage.wait_for_push(worker, push));
    assert_eq!(stage.pull(worker, &[COLD]), [-15.0; 40]);
}

#[test]
fn messages_of_a_stranded_stream_arrive_after_the_next_opens() {
    let mut stage = Stage::started(Setup::small(1, 0, 2));
    let (server, worker) = (stage.servers().start, stage.workers().start);
    stage.world.strand_streams(worker, server, Duration::from_secs(2));
    let push = stage.push(worker, &[COLD], &GRADIENT, Level::Accepted);
    stage.run_for(Duration::from_secs(1));
    stage.wait_for_push(worker, push);
    // It comes on the old stream, too, and is known there.
    stage.run_for(Duration::from_secs(3));
    assert_eq!(stage.pull(worker + 1, &[COLD]), [-1.0; 40]);
}

#[test]
fn a_clock_jump_while_a_stream_opens_gives_up_no_member() {
    let mut stage = Stage::started(Setup::small(1, 1, 1));
    let (server, worker) = (stage.servers().start, stage.workers().start);
    stage.world.reset_streams(worker, server);
    stage.run_for(Duration::from_millis(50));
    stage.world.jump_clock(worker, Duration::from_secs(600));
    let push = stage.push(worker, &[COLD, 3], &[1.0; 43], Level::Visible);
    stage.wait_for_push(worker, push);
}

#[test]
fn a_process_that_sleeps_receives_everything_later() {
    let mut stage = Stage::started(Setup::small(1, 0, 1));
    let (server, worker) = (stage.servers().start, stage.workers().start);
    stage.world.pause(server);
    let pushes: Vec<u64> = (0..3).map(|_| stage.push(worker, &[COLD], &GRADIENT, Level::Accepted)).collect();
    stage.run_for(Duration::from_secs(1));
    assert!(!stage.world.is_awake(server) && stage.world.is_alive(server));
    assert!(!pushed(&mut stage, worker, pushes[2]));
    stage.world.resume(server);
    pushes.into_iter().for_each(|push| stage.wait_for_push(worker, push));
    assert_eq!(stage.pull(worker, &[COLD]), [-3.0; 40]);
}

#[test]
fn a_host_refuses_without_a_process_and_is_silent_without_power() {
    for (power, text) in [(true, "connection refused"), (false, "connection timed out")] {
        let mut stage = Stage::new(Setup::small(1, 0, 1));
        if power {
            stage.world.crash(0);
        } else {
            stage.world.fail_machine(0);
        }
        let late = stage.add_worker();
        stage.run_for(Duration::from_secs(4));
        let said = stage.next_event(late);
        assert!(
            matches!(&said, Some(Event::Worker(WorkerEvent::Ended { reason })) if reason.contains(text)),
            "{said:?}"
        );
    }
}

#[test]
fn flipped_bits_are_dropped_by_the_checksum() {
    let mut setup = Setup::small(2, 1, 2);
    setup.quality = Quality { corrupt: 0.3, ..Quality::GOOD };
    let mut stage = Stage::started(setup);
    let sums = stage.work(10, whole);
    assert_eq!((stage.check_values(&sums), stage.check()), (Ok(()), Ok(())));
    assert!(stage.world.counts().bad_checksums > 10);
    assert_eq!(stage.world.counts().bad_checksums, stage.world.network.counts().corrupted);
}

#[test]
fn datagrams_that_come_together_come_in_bursts() {
    let mut setup = Setup::small(1, 1, 1);
    setup.quality = Quality { tick: Duration::from_micros(500), ..Quality::GOOD };
    let mut stage = Stage::started(setup);
    stage.work(20, whole);
    let together = stage.world.observer.recorder.datagrams.iter().any(|sent| {
        Header::parse(&sent.bytes).is_ok_and(|header| header.kind == Kind::Ack && header.entries > 0)
    });
    assert!(together, "the acknowledgement of a burst names a range");
}

/// A canary: were a copy of a packet taken for another, both kinds of checks would have to report it.
#[test]
fn a_copy_that_passes_for_another_packet_is_noticed() {
    let mut stage = Stage::started(Setup::small(2, 1, 2));
    let (switch, worker) = (stage.switches().start, stage.workers().start);
    let mut sums = stage.work(5, whole);
    let push = stage.push(worker, &[3], &[1.0; 3], Level::Accepted);
    sums.add(&stage.setup.rows, &[3], &[1.0; 3]);
    stage.wait_for_push(worker, push);
    let sent = &stage.world.observer.recorder.datagrams;
    let copy = sent.iter().rfind(|sent| sent.bytes[1] == Kind::Push as u8).map(|sent| sent.bytes.clone());
    let mut copy = copy.expect("a push of a hot row is a packet");
    let header = Header::parse(&copy).expect("it was sent");
    Header { seq: header.seq + 7, ..header }.emit(&mut copy);
    let from = stage.world.address(worker);
    stage.world.inject(from, switch, copy);
    stage.flush_all();
    stage.run_for(Duration::from_millis(50));
    assert!(stage.check_values(&sums).is_err_and(|text| text.contains("values differ")));
    assert!(stage.check().is_err_and(|text| text.contains("never sent")));
}
