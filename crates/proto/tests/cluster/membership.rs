//! Members that are accepted or refused, and the end of a job.

use core::net::SocketAddr;
use core::time::Duration;

use libra_faultsim::{AnyRole, ClusterHarness, Event, HarnessConfig, Host, Rows, Sums, whole};
use libra_proto::{
    Action, Cluster, Controller, ControllerCommand, ControllerEvent, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT,
    HotPath, Instant, Join, Kind, Link, LinkEvent, MemberEvent, Message, Peer, Role, Sizes, Statistics,
    TagKind, VERSION, WorkerCommand, WorkerEvent,
};

/// The controller's account of how the job failed.
fn failure(harness: &mut ClusterHarness) -> String {
    match harness.wait_for(0, |event| matches!(event, Event::Controller(ControllerEvent::Failed { .. }))) {
        Event::Controller(ControllerEvent::Failed { reason }) => reason,
        other => unreachable!("{other:?}"),
    }
}

/// The member that the controller takes for gone, and the reason.
fn loss(harness: &mut ClusterHarness) -> (Peer, String) {
    match harness.wait_for(0, |event| matches!(event, Event::Controller(ControllerEvent::Lost { .. }))) {
        Event::Controller(ControllerEvent::Lost { peer, reason }) => (peer, reason),
        other => unreachable!("{other:?}"),
    }
}

fn end(harness: &mut ClusterHarness, member: Host) -> String {
    for _ in 0..100_000 {
        match harness.next_event(member) {
            Some(
                Event::Worker(WorkerEvent::Ended { reason, .. })
                | Event::Member(MemberEvent::Ended { reason, .. }),
            ) => {
                return reason;
            }
            Some(_) => {}
            None => harness.step(),
        }
    }
    panic!("{member} does not end");
}

// rules M3, M12
#[test]
fn a_job_runs_from_the_first_join_to_the_last_report() {
    let mut harness = ClusterHarness::new(HarnessConfig::small(2, 1, 2));
    let mut joined: Vec<_> = (0..5)
        .map(|_| {
            match harness
                .wait_for(0, |event| matches!(event, Event::Controller(ControllerEvent::Joined { .. })))
            {
                Event::Controller(ControllerEvent::Joined { peer, .. }) => peer,
                other => unreachable!("{other:?}"),
            }
        })
        .collect();
    joined.sort_unstable();
    assert_eq!(joined, [Peer::Server(0), Peer::Server(1), Peer::Switch(0), Peer::Worker(0), Peer::Worker(1)]);
    harness.wait_for(0, |event| *event == Event::Controller(ControllerEvent::Started));
    for member in harness.servers().start..harness.switches().end {
        harness.wait_for(member, |event| matches!(event, Event::Member(MemberEvent::Started { .. })));
    }
    for worker in harness.workers() {
        harness.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
    }
    let sums = harness.work(5, whole);
    harness.check_values(&sums).unwrap();

    let outcome = harness.finish();
    let workers = harness.workers();
    assert_eq!(
        outcome.reports,
        [format!("worker at {}", workers.start), format!("worker at {}", workers.start + 1)]
    );
    let peers: Vec<_> = outcome.statistics.iter().map(|(peer, _)| *peer).collect();
    assert_eq!(peers, joined);
    let (mut taken, mut sent) = (0, 0);
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Worker(worker) => sent += worker.packets,
            Statistics::Switch(switch) => taken += switch.packets,
            Statistics::Server(server) => assert_eq!((server.dropped, server.duplicates), (0, 0)),
        }
    }
    // The switch also counts probes, which no worker counts.
    assert!(taken >= sent && sent > 0);
    for worker in workers {
        harness.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Finished));
    }
    for member in harness.servers().start..harness.switches().end {
        harness.wait_for(member, |event| matches!(event, Event::Member(MemberEvent::Finished(_))));
    }
    harness.check().unwrap();
}

// rule M7
#[test]
fn a_server_that_disappears_ends_the_job_and_is_named() {
    for gone in [1, 2] {
        let mut harness = ClusterHarness::started(HarnessConfig::small(2, 1, 2));
        harness.work(2, whole);
        harness.world.crash(gone);
        let reason = failure(&mut harness);
        let name = format!("server {}", gone - 1);
        assert!(reason.contains(&name), "{reason:?} does not name {name}");
        for other in (1..=5).filter(|other| *other != gone) {
            assert_eq!(end(&mut harness, other), reason);
        }
    }
}

// rule M7
#[test]
fn the_others_go_on_without_a_switch_or_worker_that_disappears() {
    for (gone, peer) in [(3, Peer::Switch(0)), (4, Peer::Worker(0)), (5, Peer::Worker(1))] {
        let mut harness = ClusterHarness::started(HarnessConfig::small(2, 1, 2));
        let mut sums = harness.work(2, whole);
        harness.world.crash(gone);
        assert_eq!(loss(&mut harness), (peer, "disappeared: connection reset".to_owned()));
        let worker = if gone == 4 { 5 } else { 4 };
        harness.push(worker, &[3, 50], &[1.0; 6], libra_proto::Level::Visible);
        sums.add(&harness.config.rows, &[3, 50], &[1.0; 6]);
        let number = harness.number();
        harness.command(worker, WorkerCommand::Flush { number });
        harness.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Flushed { number }));
        let expected: Vec<f32> =
            sums.row(&harness.config.rows, 3).chain(sums.row(&harness.config.rows, 50)).collect();
        assert_eq!(harness.pull(worker, &[3, 50]), expected);
        harness.check().unwrap();
    }
}

// rules M4, M5
#[test]
fn a_worker_that_sends_nothing_is_lost() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 2));
    let (began, silent) = (harness.world.now(), harness.workers().start + 1);
    harness.mute(silent);
    assert_eq!(loss(&mut harness), (Peer::Worker(1), "sent nothing for 10s".to_owned()));
    assert!(harness.world.now().since(began) < HEARTBEAT_TIMEOUT + 2 * HEARTBEAT_INTERVAL);
}

#[test]
fn everybody_learns_why_a_member_gave_up() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 2));
    let workers = harness.workers();
    harness.command(workers.start, WorkerCommand::Abort { reason: "no such file".into() });
    assert_eq!(failure(&mut harness), "worker 0: no such file");
    assert_eq!(end(&mut harness, workers.start + 1), "worker 0: no such file");
    assert_eq!(end(&mut harness, 1), "worker 0: no such file");
}

#[test]
fn the_user_of_the_controller_may_end_the_job() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    harness.act(0, |role, now| match role {
        AnyRole::Controller(controller) => {
            controller.handle_command(now, ControllerCommand::Abort { reason: "interrupted".into() });
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(failure(&mut harness), "interrupted");
    for member in 1..=3 {
        assert_eq!(end(&mut harness, member), "interrupted");
    }
}

/// As rule M22 says.
#[test]
fn one_too_many_is_refused_or_stands_by_and_the_job_goes_on() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let refused = [(harness.add_worker(), "worker"), (harness.add_server(), "server")];
    for (host, kind) in refused {
        let expected = format!("the cluster has no place for another {kind}: 1 of 1 are there");
        assert_eq!(end(&mut harness, host), expected);
    }
    let standby = harness.add_switch();
    let started = Event::Member(MemberEvent::Started { you: Peer::Switch(1) });
    harness.wait_for(standby, |event| *event == started);
    let sums = harness.work(3, whole);
    harness.check_values(&sums).unwrap();
    harness.finish();
    harness.check().unwrap();
}

#[test]
fn a_member_that_leaves_an_incomplete_cluster_makes_room() {
    let mut harness = ClusterHarness::new(HarnessConfig::small(1, 0, 2));
    let workers = harness.workers();
    // One never comes, so nothing begins; the other comes and goes.
    harness.world.crash(workers.start + 1);
    harness.wait_for(0, |event| {
        matches!(event, Event::Controller(ControllerEvent::Joined { peer: Peer::Worker(0), .. }))
    });
    harness.world.crash(workers.start);
    harness.run_for(Duration::from_millis(50));
    for number in [0, 1] {
        let late = harness.add_worker();
        harness.wait_for(0, |event| {
            matches!(event, Event::Controller(ControllerEvent::Joined { peer, .. }) if *peer == Peer::Worker(number))
        });
        if number == 1 {
            harness.wait_for(late, |event| {
                matches!(event, Event::Worker(WorkerEvent::Started { worker: 1, .. }))
            });
        }
    }
}

/// Returns the answer of a controller to a join.
fn join(join: Join) -> Vec<Action> {
    let cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
    let mut controller = Controller::new(Sizes { servers: 1, switches: 1, workers: 1 }, cluster);
    let (link, remote) = (Link(Link::ACCEPTED), SocketAddr::from(([10, 0, 0, 9], 555)));
    controller.handle_link(Instant::ZERO, link, LinkEvent::Opened { remote });
    controller.handle_message(Instant::ZERO, link, Message::Join(join));
    core::iter::from_fn(|| controller.poll_action()).collect()
}

// rule M1
#[test]
fn another_version_is_refused_in_words() {
    let actions = join(Join {
        version: VERSION + 1,
        kind: Kind::Worker,
        stream: None,
        shards: 1,
        datagrams: None,
        receive_bytes: 0,
        is_restartable: false,
        is_slow: false,
        tags: TagKind::Off,
        http: None,
    });
    let [Action::Send { message: Message::Abort { reason }, .. }, Action::Close { .. }] = actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    let expected = format!(
        "the controller speaks version {VERSION} of the messages, this worker speaks {}",
        VERSION + 1
    );
    assert_eq!(*reason, expected);
}

#[test]
fn a_member_without_an_address_is_refused() {
    for kind in [Kind::Server, Kind::Switch, Kind::Worker] {
        let actions = join(Join {
            version: VERSION,
            kind,
            stream: None,
            shards: 1,
            datagrams: None,
            receive_bytes: 0,
            is_restartable: false,
            is_slow: false,
            tags: TagKind::Off,
            http: None,
        });
        assert!(matches!(actions.as_slice(), [Action::Send { .. }, Action::Close { .. }]), "{actions:?}");
    }
}

#[test]
fn a_plan_that_does_not_fit_ends_the_job_before_it_begins() {
    let rows = |embedding| Rows { embedding, ..HarnessConfig::small(1, 1, 1).rows };
    let mut other = rows((60, 3)).tables();
    other[0].name = "other".into();
    let small = || HarnessConfig::small(1, 1, 1).hot_path;
    let of_entries = |entries_max| HotPath { entries_max, ..small() };
    let cases = [
        (rows((60, 4)).tables(), small(), "\"embedding\" has rows of 4 values in the model and of 3"),
        (rows((20, 3)).tables(), small(), "\"embedding\" has keys 0..20 in the model, 0..60 in the plan"),
        (other, small(), "the model has a table \"other\""),
        (
            rows((60, 3)).tables(),
            of_entries(2),
            "hot rows of table \"embedding\" have 3 values, a packet holds 2",
        ),
        (
            rows((60, 3)).tables(),
            small().with_lanes(2),
            "hot rows of table \"embedding\" have 3 values, a packet holds 2",
        ),
        (
            rows((60, 3)).tables(),
            HotPath { cells_max: 2, ..small() },
            "hot rows of table \"embedding\" have 3 values, a region has 1 slots",
        ),
        (
            rows((60, 3)).tables(),
            HotPath { lanes: 16, ..small() },
            "packets hold up to 9 entries, and regions have 16 lanes: beyond one lane both must be the same",
        ),
        (rows((60, 3)).tables(), HotPath { lanes: 0, ..small() }, "regions have no lanes"),
        (
            rows((60, 3)).tables(),
            HotPath { adapts_to_paths: true, ..small().with_lanes(16) },
            "packets with an entry for each of 16 lanes cannot be shorter",
        ),
    ];
    for (tables, hot_path, expected) in cases {
        let config = HarnessConfig { tables, hot_path, ..HarnessConfig::small(1, 1, 1) };
        let reason = failure(&mut ClusterHarness::new(config));
        assert!(reason.starts_with("server 0: ") && reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_worker_that_leaves_makes_room_for_another() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 2));
    let sums = harness.work(3, whole);
    let leaving = harness.workers().start + 1;
    harness.command(leaving, WorkerCommand::Leave { returns: false });
    harness.wait_for(leaving, |event| *event == Event::Worker(WorkerEvent::Finished));
    let successor = harness.add_worker();
    harness.wait_for(successor, |event| {
        matches!(event, Event::Worker(WorkerEvent::Started { worker: 2, share: 1, .. }))
    });
    let keys = harness.config.rows.keys();
    let expected: Vec<f32> = keys.iter().flat_map(|key| sums.row(&harness.config.rows, *key)).collect();
    assert_eq!(harness.pull(successor, &keys), expected);
    assert_eq!(Sums::zero(&harness.config.rows).0.len(), expected.len());
}
