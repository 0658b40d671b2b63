//! A controller that takes over the members of one that is gone.

use super::harness::{ControllerHarness, ms};
use crate::authentication::Secret;
use crate::cluster::{Cluster, Peer};
use crate::controller::ControllerEvent;
use crate::message::Message;

use Peer::{Server, Switch, Worker};

const TERM: u64 = 1 << 32;

/// The cluster that a controller left behind, in its fourth view: two servers, switches 0 and 1, workers 0 and 1.
fn left_behind() -> Cluster {
    let harness = ControllerHarness::running(2, 2, 0, 2);
    let mut cluster = harness.cluster();
    cluster.view.number = 4;
    cluster.task = "the task".into();
    cluster
}

/// A controller that has just started and to which the servers have come back.
fn with_servers(cluster: &Cluster) -> ControllerHarness {
    let mut harness = ControllerHarness::new(2, 2, 2);
    for server in 0..2 {
        rejoin_server(&mut harness, server, cluster);
    }
    harness
}

fn rejoin_server(harness: &mut ControllerHarness, server: u16, cluster: &Cluster) {
    harness.rejoin_with(Server(server), |rejoin| {
        rejoin.view = cluster.view.number;
        rejoin.cluster = Some(Box::new(cluster.clone()));
    });
}

fn rejoin_rest(harness: &mut ControllerHarness, peers: &[Peer], view: u64) {
    for peer in peers {
        harness.rejoin_with(*peer, |rejoin| rejoin.view = view);
    }
}

/// Tests rule M9.
#[test]
fn when_all_are_back_it_goes_on_at_once_in_a_new_term() {
    let cluster = left_behind();
    let mut harness = with_servers(&cluster);
    rejoin_rest(&mut harness, &[Worker(0), Switch(1), Worker(1)], 4);
    assert_eq!((harness.recipients(), harness.events()), (vec![], vec![]), "one is missing");
    // It had received a view that no server has.
    rejoin_rest(&mut harness, &[Switch(0)], 6);
    assert_eq!(harness.events(), [ControllerEvent::Recovered]);
    assert_eq!(
        harness.view().number,
        TERM + 7,
        "above all that any member has, and its lower half counts on"
    );
    assert_eq!(harness.ownerships(), cluster.view.ownerships, "nothing moves");
    assert_eq!(harness.view().workers, cluster.view.workers);
    assert_eq!(harness.cluster().task, "the task");
    assert_eq!(harness.received_view(Server(0)), Some(harness.view()));
    assert_eq!(harness.recipients(), [Server(1)]);
    harness.viewed(Server(0));
    harness.viewed(Server(1));
    assert_eq!(harness.recipients(), [Switch(0), Switch(1)]);
    harness.viewed(Switch(0));
    harness.viewed(Switch(1));
    assert_eq!(harness.recipients(), [Worker(0), Worker(1)]);
    assert!(matches!(harness.events().as_slice(), [ControllerEvent::Settled { moved: 0, .. }]));
}

#[test]
fn the_newest_view_of_any_server_counts() {
    let older = left_behind();
    let mut newer = older.clone();
    newer.view.number = 5;
    newer.view.switches.remove(&1);
    newer.view.ownerships[1] = crate::cluster::Ownership { owner: Some(0), view_id: 5 };
    for (first, second) in [(&older, &newer), (&newer, &older)] {
        let mut harness = ControllerHarness::new(2, 2, 2);
        rejoin_server(&mut harness, 0, first);
        rejoin_server(&mut harness, 1, second);
        rejoin_rest(&mut harness, &[Worker(0), Worker(1), Switch(0)], 4);
        assert_eq!(harness.view().number, TERM + 6);
        assert_eq!(harness.ownerships(), newer.view.ownerships);
        // Both must act on it, whichever they had.
        assert_eq!(harness.recipients(), [Server(0), Server(1)]);
    }
}

#[test]
fn members_not_back_after_two_seconds_are_lost() {
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Switch(1), Worker(1)], 4);
    harness.pass(ms(1999), &[]);
    assert_eq!((harness.recipients(), harness.events()), (vec![], vec![]));
    harness.pass(ms(1), &[]);
    let events = harness.events();
    let lost = |event: &ControllerEvent| matches!(event, ControllerEvent::Lost { .. });
    assert_eq!(events.iter().filter(|event| lost(event)).count(), 2);
    assert_eq!(events.last(), Some(&ControllerEvent::Recovered));
    assert_eq!(harness.owners(), [Some(1), Some(1)]);
    assert_eq!(harness.ownerships()[0].view_id, harness.view().number);
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1]);
    harness.settle();
    // They come after all: the worker too late, the switch as another.
    let link = harness.rejoin(Worker(0));
    assert!(matches!(harness.received_on(link).as_slice(), [Message::Abort { .. }]));
    harness.rejoin(Switch(0));
    assert_eq!(harness.view().switches.keys().copied().collect::<Vec<_>>(), [1, 2]);
    // And numbers go on where the other controller was.
    harness.join(Worker(2));
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_server_may_take_longer_but_not_for_ever() {
    let cluster = left_behind();
    let mut harness = ControllerHarness::new(2, 2, 2);
    rejoin_server(&mut harness, 0, &cluster);
    rejoin_rest(&mut harness, &[Switch(0), Switch(1), Worker(0), Worker(1)], 4);
    harness.pass(ms(9000), &[]);
    assert_eq!((harness.recipients(), harness.events()), (vec![], vec![]));
    rejoin_server(&mut harness, 1, &cluster);
    assert_eq!(harness.events(), [ControllerEvent::Recovered]);
    assert_eq!(harness.ownerships(), cluster.view.ownerships);

    let mut harness = ControllerHarness::new(2, 2, 2);
    rejoin_server(&mut harness, 0, &cluster);
    rejoin_rest(&mut harness, &[Worker(0)], 4);
    harness.pass(ms(29_999), &[]);
    assert_eq!(harness.events(), []);
    harness.pass(ms(1), &[]);
    assert!(harness.failure().is_some());
    assert!(matches!(harness.received(Worker(0)).as_slice(), [Message::Abort { .. }]));
}

#[test]
fn barriers_resume_where_they_were() {
    let mut harness = with_servers(&left_behind());
    // Worker 0 was released from barrier 6; worker 1 was not, and waits there.
    harness.rejoin_with(Worker(0), |rejoin| (rejoin.view, rejoin.barriers) = (4, 7));
    harness.from(Worker(0), Message::Barrier { number: 7 });
    harness.rejoin_with(Worker(1), |rejoin| (rejoin.view, rejoin.barriers) = (4, 6));
    harness.from(Worker(1), Message::Barrier { number: 6 });
    assert_eq!(harness.recipients(), [], "who has not come back yet may be behind");
    rejoin_rest(&mut harness, &[Switch(0), Switch(1)], 4);
    [Server(0), Server(1)].into_iter().for_each(|server| harness.viewed(server));
    assert_eq!(harness.received(Worker(1)), [Message::Release { number: 6 }]);
    assert_eq!(harness.received(Worker(0)), []);
    harness.from(Worker(1), Message::Barrier { number: 7 });
    assert_eq!(harness.received(Worker(1)), [Message::Release { number: 7 }]);
    assert_eq!(harness.received(Worker(0)), [Message::Release { number: 7 }]);
    assert_eq!(harness.failure(), None);
}

#[test]
fn a_barrier_that_all_but_the_lost_have_come_to_opens() {
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Switch(0), Switch(1)], 4);
    harness.rejoin_with(Worker(1), |rejoin| (rejoin.view, rejoin.barriers) = (4, 6));
    harness.from(Worker(1), Message::Barrier { number: 6 });
    harness.pass(ms(2000), &[]);
    [Server(0), Server(1)].into_iter().for_each(|server| harness.viewed(server));
    assert!(harness.received(Worker(1)).contains(&Message::Release { number: 6 }));
}

#[test]
fn repeated_reports_end_the_job() {
    let mut harness = with_servers(&left_behind());
    let statistics = crate::statistics::Statistics::Worker(Default::default());
    rejoin_rest(&mut harness, &[Switch(0), Worker(1), Worker(0)], 4);
    for worker in [0, 1] {
        harness.from(Worker(worker), Message::Report { text: format!("{worker}"), statistics });
    }
    assert_eq!(harness.recipients(), []);
    rejoin_rest(&mut harness, &[Switch(1)], 4);
    [Server(0), Server(1)].into_iter().for_each(|server| harness.viewed(server));
    assert!(harness.received(Worker(0)).contains(&Message::Finish));
    assert!(harness.received(Server(0)).contains(&Message::Finish));
}

#[test]
fn members_of_a_new_job_are_sent_away_and_come_again() {
    let cluster = left_behind();
    let mut harness = ControllerHarness::new(2, 2, 2);
    let early = [harness.join(Server(0)), harness.join(Worker(0)), harness.join(Switch(0))];
    rejoin_server(&mut harness, 1, &cluster);
    assert!(harness.closed.len() == 3 && early.iter().all(|link| harness.closed.contains(link)));
    let link = harness.join(Switch(2));
    assert_eq!(
        (harness.received_on(link), harness.closed.last()),
        (vec![], Some(&link)),
        "without a reason, so that it tries again"
    );
    rejoin_server(&mut harness, 0, &cluster);
    rejoin_rest(&mut harness, &[Switch(0), Switch(1), Worker(0), Worker(1)], 4);
    harness.settle();
    harness.join(Switch(2));
    assert_eq!(harness.view().switches.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn recovery_waits_for_a_switch_less_long_than_for_a_worker() {
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Worker(0), Worker(1), Switch(1)], 4);
    harness.pass(ms(499), &[]);
    assert_eq!(harness.events(), []);
    harness.pass(ms(1), &[]);
    assert_eq!((harness.lost(), harness.owners()), (vec![Switch(0)], vec![Some(1), Some(1)]));
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Worker(0), Switch(1)], 4);
    harness.pass(ms(1999), &[]);
    assert_eq!(harness.events(), []);
    harness.pass(ms(1), &[]);
    assert_eq!(harness.lost(), [Switch(0), Worker(1)]);
}

#[test]
fn a_stream_may_break_again_while_it_recovers() {
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Switch(0), Worker(0)], 4);
    harness.break_stream(Switch(0));
    harness.break_stream(Server(1));
    harness.pass(ms(150), &[]);
    rejoin_rest(&mut harness, &[Switch(0)], 4);
    harness.break_stream(Worker(0));
    harness.pass(ms(100), &[]);
    let cluster = left_behind();
    rejoin_server(&mut harness, 1, &cluster);
    rejoin_rest(&mut harness, &[Worker(0), Worker(1), Switch(1)], 4);
    assert_eq!(harness.events(), [ControllerEvent::Recovered]);
    harness.settle();
    assert_eq!(harness.ownerships(), cluster.view.ownerships);
    harness.pass(ms(5000), &[]);
    assert_eq!(harness.lost(), []);
}

#[test]
fn a_controller_that_sleeps_while_it_recovers_waits_longer() {
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Switch(0), Worker(0), Worker(1)], 4);
    harness.now = harness.now + ms(60_000);
    rejoin_rest(&mut harness, &[Switch(1)], 4);
    assert_eq!(harness.events(), [ControllerEvent::Recovered]);
}

#[test]
fn health_is_watched_from_the_beginning() {
    let mut harness = with_servers(&left_behind());
    rejoin_rest(&mut harness, &[Switch(0), Switch(1), Worker(0), Worker(1)], 4);
    harness.settle();
    harness.events();
    harness.pass(ms(701), &[Switch(1)]);
    assert_eq!(harness.lost(), [Switch(1)]);
    assert_eq!(harness.owners(), [Some(0), Some(0)]);
}

#[test]
fn a_worker_that_leaves_meanwhile_does_so_when_all_are_back() {
    let mut harness = with_servers(&left_behind());
    // Its user requested it before the controller died, and it reports so again.
    rejoin_rest(&mut harness, &[Worker(0)], 4);
    harness.from(Worker(0), Message::Leave { returns: false });
    assert_eq!((harness.recipients(), harness.events()), (vec![], vec![]));
    rejoin_rest(&mut harness, &[Switch(0), Switch(1), Worker(1)], 4);
    assert!(harness.received(Worker(0)).contains(&Message::Finish));
    assert_eq!(harness.view().workers.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(harness.ownerships(), left_behind().view.ownerships);
}

#[test]
fn a_cluster_is_taken_over_only_from_its_servers() {
    let mut harness = ControllerHarness::new(1, 1, 1);
    harness.join(Server(0));
    // They were left behind by another job, whose servers are gone.
    for peer in [Worker(0), Switch(0)] {
        let link = harness.rejoin(peer);
        assert_eq!((harness.received_on(link), harness.closed.last()), (vec![], Some(&link)));
    }
    harness.join(Switch(0));
    harness.join(Worker(0));
    assert_eq!(harness.recipients(), [Server(0)], "the job begins");
}

/// The cluster of a job with a secret that a controller left behind, and the secret.
fn left_behind_with_secret() -> (Cluster, Secret) {
    let secret = Secret::new([5; 32]);
    (Cluster { secret: Some(secret.clone()), ..left_behind() }, secret)
}

// rule S7
#[test]
fn impostors_are_not_taken_over() {
    let (cluster, secret) = left_behind_with_secret();
    let mut harness = ControllerHarness::new(2, 2, 2);
    let pass = |peer: Peer| secret.of_member(peer).pass(Peer::Controller);
    // Before a server is there, nothing shows that this is not the worker.
    let impostor = harness.rejoin_with(Server(0), |rejoin| {
        (rejoin.view, rejoin.cluster, rejoin.pass) = (4, Some(Box::new(cluster.clone())), pass(Server(0)));
    });
    assert!(!harness.closed.contains(&impostor));
    let impostor = harness.rejoin_with(Worker(0), |rejoin| (rejoin.view, rejoin.pass) = (4, pass(Worker(1))));
    assert!(harness.closed.contains(&impostor));
    for peer in [Worker(0), Worker(1), Switch(0), Switch(1)] {
        let link = harness.rejoin_with(peer, |rejoin| (rejoin.view, rejoin.pass) = (4, pass(peer)));
        assert!(!harness.closed.contains(&link), "{peer}");
    }
    harness.rejoin_with(Server(1), |rejoin| {
        (rejoin.view, rejoin.cluster, rejoin.pass) = (4, Some(Box::new(cluster.clone())), pass(Server(1)));
    });
    assert_eq!(harness.events(), [ControllerEvent::Recovered]);
    // And none comes back in the place of another while the job runs.
    let before = harness.links_of[&Worker(0)];
    let impostor = harness.rejoin_with(Worker(0), |rejoin| rejoin.view = 4);
    assert!(harness.closed.contains(&impostor) && !harness.closed.contains(&before));
    let [Message::Abort { reason }] = &harness.received_on(impostor)[..] else {
        panic!("no reason is given")
    };
    assert_eq!(reason, "worker 0 has another pass than this caller");
}
