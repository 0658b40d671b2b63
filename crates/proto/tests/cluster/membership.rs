//! Who is taken in, who is not, and how a job ends.

use core::net::SocketAddr;
use core::time::Duration;

use libra_proto::{
    Action, Cluster, Controller, ControllerCommand, ControllerEvent, HEARTBEAT_INTERVAL, HotPath, Instant,
    Join, Kind, Link, LinkEvent, MemberEvent, Message, Peer, Role, SILENCE_MAX, Server, Sizes, Statistics,
    Switch, VERSION, Worker, WorkerCommand, WorkerEvent,
};

use crate::traffic::{check_values, run, setup, table, whole};
use crate::world::{AnyRole, CONTROLLER, Event, Place, World};

/// The controller's account of how the job failed.
fn failure(world: &mut World) -> String {
    match world.wait_for(0, |event| matches!(event, Event::Controller(ControllerEvent::Failed { .. }))) {
        Event::Controller(ControllerEvent::Failed { reason }) => reason,
        other => unreachable!("{other:?}"),
    }
}

fn end(world: &mut World, member: Place) -> String {
    for _ in 0..100_000 {
        match world.next_event(member) {
            Some(
                Event::Worker(WorkerEvent::Ended { reason }) | Event::Member(MemberEvent::Ended { reason }),
            ) => {
                return reason;
            }
            Some(_) => {}
            None => world.step(),
        }
    }
    panic!("{member} does not end");
}

#[test]
fn a_job_runs_from_the_first_join_to_the_last_report() {
    let mut world = World::new(setup(2, 1, 2));
    let joined: Vec<_> = (0..5)
        .map(|_| {
            match world
                .wait_for(0, |event| matches!(event, Event::Controller(ControllerEvent::Joined { .. })))
            {
                Event::Controller(ControllerEvent::Joined { peer, .. }) => peer,
                other => unreachable!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(joined, [Peer::Server(0), Peer::Server(1), Peer::Switch(0), Peer::Worker(0), Peer::Worker(1)]);
    world.wait_for(0, |event| *event == Event::Controller(ControllerEvent::Started));
    for member in world.servers().start..world.switches().end {
        world.wait_for(member, |event| matches!(event, Event::Member(MemberEvent::Started { .. })));
    }
    for worker in world.workers() {
        world.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
    }
    let model = run(&mut world, 5, whole);
    check_values(&mut world, &model).unwrap();

    let outcome = world.finish();
    let workers = world.workers();
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
        world.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Finished));
    }
    for member in world.servers().start..world.switches().end {
        world.wait_for(member, |event| matches!(event, Event::Member(MemberEvent::Finished(_))));
    }
}

#[test]
fn a_member_that_disappears_ends_the_job_and_is_named() {
    let sizes = setup(2, 1, 2).sizes;
    let members = usize::from(sizes.servers + sizes.switches + sizes.workers);
    for gone in 1..=members {
        let mut world = World::started(setup(sizes.servers, sizes.switches, sizes.workers));
        run(&mut world, 2, whole);
        let name = match gone {
            1 => "server 0",
            2 => "server 1",
            3 => "switch 0",
            4 => "worker 0",
            _ => "worker 1",
        };
        world.crash(gone);
        let reason = failure(&mut world);
        assert!(reason.contains(name), "{reason:?} does not name {name}");
        for other in (1..=members).filter(|other| *other != gone) {
            assert_eq!(end(&mut world, other), reason);
        }
    }
}

#[test]
fn a_member_that_falls_silent_ends_the_job_and_is_named() {
    let mut world = World::started(setup(1, 1, 2));
    let (began, silent) = (world.now, world.workers().start + 1);
    world.mute(silent);
    assert_eq!(failure(&mut world), "worker 1 was silent for 10 s");
    assert!(world.now.since(began) < SILENCE_MAX + 2 * HEARTBEAT_INTERVAL);
}

#[test]
fn everybody_learns_why_a_member_gave_up() {
    let mut world = World::started(setup(1, 1, 2));
    let workers = world.workers();
    world.command(workers.start, WorkerCommand::Abort { reason: "no such file".into() });
    assert_eq!(failure(&mut world), "worker 0: no such file");
    assert_eq!(end(&mut world, workers.start + 1), "worker 0: no such file");
    assert_eq!(end(&mut world, 1), "worker 0: no such file");
}

#[test]
fn the_user_of_the_controller_may_end_the_job() {
    let mut world = World::started(setup(1, 1, 1));
    world.deliver(0, |role, now| match role {
        AnyRole::Controller(controller) => {
            controller.handle_command(now, ControllerCommand::Abort { reason: "interrupted".into() });
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(failure(&mut world), "interrupted");
    for member in 1..=3 {
        assert_eq!(end(&mut world, member), "interrupted");
    }
}

#[test]
fn one_too_many_is_refused_and_the_job_goes_on() {
    let mut world = World::started(setup(1, 1, 1));
    let refused = [
        (world.add(|address| AnyRole::Worker(Worker::new(CONTROLLER, address))), "worker"),
        (world.add(|address| AnyRole::Server(Server::new(CONTROLLER, address))), "server"),
        (world.add(|address| AnyRole::Switch(Switch::new(CONTROLLER, address, 8 << 20))), "switch"),
    ];
    for (place, kind) in refused {
        let expected = format!("the cluster has no place for another {kind}: 1 of 1 are there");
        assert_eq!(end(&mut world, place), expected);
    }
    let model = run(&mut world, 3, whole);
    check_values(&mut world, &model).unwrap();
    world.finish();
}

#[test]
fn who_leaves_before_the_cluster_is_complete_makes_room() {
    let mut world = World::new(setup(1, 0, 2));
    let workers = world.workers();
    // One never comes, so nothing begins; the other comes and goes.
    world.crash(workers.start + 1);
    world.wait_for(0, |event| {
        matches!(event, Event::Controller(ControllerEvent::Joined { peer: Peer::Worker(0), .. }))
    });
    world.crash(workers.start);
    world.run_for(Duration::from_millis(50));
    for number in [0, 1] {
        let late = world.add(|address| AnyRole::Worker(Worker::new(CONTROLLER, address)));
        world.wait_for(0, |event| {
            matches!(event, Event::Controller(ControllerEvent::Joined { peer, .. }) if *peer == Peer::Worker(number))
        });
        if number == 1 {
            world.wait_for(late, |event| {
                matches!(event, Event::Worker(WorkerEvent::Started { worker: 1, .. }))
            });
        }
    }
}

/// What a controller answers to a join.
fn join(join: Join) -> Vec<Action> {
    let cluster = Cluster {
        job: 1,
        seed: 1,
        tables: Vec::new(),
        plan: None,
        hot_path: HotPath::for_workers(1),
        task: String::new(),
        servers: Vec::new(),
        switches: Vec::new(),
        workers: Vec::new(),
    };
    let mut controller = Controller::new(Sizes { servers: 1, switches: 1, workers: 1 }, cluster);
    let (link, remote) = (Link(Link::ACCEPTED), SocketAddr::from(([10, 0, 0, 9], 555)));
    controller.handle_link(Instant::ZERO, link, LinkEvent::Opened { remote });
    controller.handle_message(Instant::ZERO, link, Message::Join(join));
    core::iter::from_fn(|| controller.poll_action()).collect()
}

#[test]
fn another_version_is_refused_in_words() {
    let actions = join(Join {
        version: VERSION + 1,
        kind: Kind::Worker,
        stream: None,
        datagrams: None,
        receive_bytes: 0,
    });
    let [Action::Send { message: Message::Abort { reason }, .. }, Action::Close { .. }] = actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    assert_eq!(reason, "the controller speaks version 1 of the messages, this worker speaks 2");
}

#[test]
fn a_member_without_an_address_is_refused() {
    for kind in [Kind::Server, Kind::Switch, Kind::Worker] {
        let actions = join(Join { version: VERSION, kind, stream: None, datagrams: None, receive_bytes: 0 });
        assert!(matches!(actions.as_slice(), [Action::Send { .. }, Action::Close { .. }]), "{actions:?}");
    }
}

#[test]
fn a_plan_that_does_not_fit_ends_the_job_before_it_begins() {
    let cases = [
        (table("embedding", 0..60, 4), 9, "\"embedding\" has rows of 4 values in the model and of 3"),
        (table("embedding", 0..20, 3), 9, "\"embedding\" has keys 0..20 in the model, 0..60 in the plan"),
        (table("other", 0..60, 3), 9, "the model has a table \"other\""),
        (table("embedding", 0..60, 3), 2, "hot rows of table \"embedding\" have 3 values, a packet holds 2"),
    ];
    for (embedding, entries_max, expected) in cases {
        let mut setup = setup(1, 1, 1);
        setup.hot_path.entries_max = entries_max;
        setup.tables[0] = embedding;
        let reason = failure(&mut World::new(setup));
        assert!(reason.starts_with("server 0: ") && reason.contains(expected), "{reason}");
    }
}
