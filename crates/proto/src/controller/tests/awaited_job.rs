//! A controller that is told its job when members have called already.

use super::harness::{ControllerHarness, address, ms};
use crate::cluster::{Cluster, Peer};
use crate::controller::{Controller, ControllerCommand, ControllerEvent, Sizes};
use crate::message::Message;
use crate::role::Role;
use crate::statistics::{ServerStatistics, Statistics};
use crate::status::Gathering;
use crate::testing;

use Peer::{Server, Switch, Worker};

/// A controller without a job, which is an instance of its own.
fn awaiting() -> ControllerHarness {
    let mut harness = ControllerHarness::new(0, 0, 0);
    harness.controller = Controller::awaiting_job(testing::cluster(1).with_instance(77));
    harness
}

fn describe(harness: &mut ControllerHarness) {
    let sizes = Sizes { servers: 1, switches: 1, workers: 1 };
    harness.command(ControllerCommand::Describe { sizes, cluster: Box::new(testing::cluster(1)) });
}

// rule M20
#[test]
fn callers_wait_for_the_job_and_then_have_their_places() {
    let mut harness = awaiting();
    for peer in [Worker(0), Switch(0), Server(0)] {
        let link = harness.join(peer);
        assert!(harness.admitted.contains(&link), "a driver would close it");
    }
    // A member sends its counts before it has a place.
    let statistics = Statistics::Server(ServerStatistics::default());
    harness.from(Server(0), Message::Heartbeat { statistics, probe: 0 });
    assert_eq!(harness.closed, []);
    let gone = harness.join(Worker(0));
    harness.links_of.insert(Worker(1), gone);
    harness.break_stream(Worker(1));
    harness.pass(ms(600_000), &[]);
    assert_eq!((harness.recipients(), harness.events()), (vec![], vec![]));
    harness.links_of.retain(|peer, _| *peer == Switch(0));
    let cluster = |harness: &ControllerHarness| harness.cluster();
    describe(&mut harness);
    let joined = harness.events();
    assert!(joined.iter().all(|event| matches!(event, ControllerEvent::Joined { .. })), "{joined:?}");
    assert_eq!(joined.len(), 3, "one has gone meanwhile");
    assert_eq!((cluster(&harness).instance, cluster(&harness).shares), (77, 1));
    assert_eq!(harness.view().servers.len(), 1);
    // It is described once.
    harness.command(ControllerCommand::Describe {
        sizes: Sizes { servers: 9, switches: 9, workers: 9 },
        cluster: Box::new(Cluster { seed: 5, ..testing::cluster(9) }),
    });
    assert_eq!(cluster(&harness).shares, 1);
}

#[test]
fn a_status_has_the_members_that_have_come() {
    let mut harness = awaiting();
    let gathering = |harness: &ControllerHarness| {
        harness.controller.status(harness.now).gathering.map(|Gathering { there, expected }| {
            let Sizes { servers, switches, workers } = there;
            assert_eq!(expected, Sizes { servers: 1, switches: 1, workers: 1 });
            [servers, switches, workers]
        })
    };
    let link = harness.join_with(Server(0), |join| join.shards = 2);
    assert_eq!(gathering(&harness), None, "the job is not known");
    describe(&mut harness);
    assert_eq!(gathering(&harness), Some([0, 0, 0]), "one of two shards is there");
    harness.join_with(Server(1), |join| (join.shards, join.stream) = (2, Some(address(link))));
    harness.join(Worker(0));
    assert_eq!(gathering(&harness), Some([1, 0, 1]));
    harness.join(Switch(0));
    harness.settle();
    assert_eq!(gathering(&harness), None, "the job has begun");
}

// rule M20
#[test]
fn a_cluster_goes_on_before_the_job_is_known() {
    let old = ControllerHarness::running(1, 1, 0, 1);
    let mut harness = awaiting();
    let newcomer = harness.join(Worker(0));
    harness.rejoin_with(Server(0), |rejoin| rejoin.cluster = Some(Box::new(old.cluster())));
    assert_eq!(harness.events(), [ControllerEvent::TakesOver]);
    assert!(harness.closed.contains(&newcomer), "it came to begin another job");
    harness.rejoin(Switch(0));
    harness.rejoin(Worker(0));
    assert_eq!(harness.events(), [ControllerEvent::Recovered]);
    let plan = harness.cluster().plan;
    describe(&mut harness);
    assert_eq!((harness.cluster().plan, harness.cluster().instance), (plan, old.cluster().instance));
    harness.settle();
    harness.pass(ms(60_000), &[]);
    assert_eq!(harness.failure(), None);
}

#[test]
fn callers_of_a_job_that_cannot_be_prepared_are_told() {
    let mut harness = awaiting();
    let link = harness.join(Server(0));
    harness.command(ControllerCommand::Abort { reason: "no such data".into() });
    assert_eq!(harness.received_on(link), [Message::Abort { reason: "no such data".into() }]);
    assert!(harness.failure().is_some());
}
