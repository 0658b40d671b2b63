//! A controller that takes over the members of one that is gone.

use super::desk::{Desk, ms};
use crate::cluster::{Cluster, Peer};
use crate::controller::ControllerEvent;
use crate::message::Message;

use Peer::{Server, Switch, Worker};

const TERM: u64 = 1 << 32;

/// The cluster that a controller left behind, in its fourth view: two servers, switches 0 and 1, workers 0 and 1.
fn left_behind() -> Cluster {
    let desk = Desk::running(2, 2, 0, 2);
    let mut cluster = desk.cluster();
    cluster.view.number = 4;
    cluster.task = "the task".into();
    cluster
}

/// A controller that has just started and to which the servers have come back.
fn with_servers(cluster: &Cluster) -> Desk {
    let mut desk = Desk::new(2, 2, 2);
    for server in 0..2 {
        rejoin_server(&mut desk, server, cluster);
    }
    desk
}

fn rejoin_server(desk: &mut Desk, server: u16, cluster: &Cluster) {
    desk.rejoin_with(Server(server), |rejoin| {
        rejoin.view = cluster.view.number;
        rejoin.cluster = Some(Box::new(cluster.clone()));
    });
}

fn rejoin_rest(desk: &mut Desk, peers: &[Peer], view: u64) {
    for peer in peers {
        desk.rejoin_with(*peer, |rejoin| rejoin.view = view);
    }
}

/// Tests rule M9.
#[test]
fn when_all_are_back_it_goes_on_at_once_in_a_new_term() {
    let cluster = left_behind();
    let mut desk = with_servers(&cluster);
    rejoin_rest(&mut desk, &[Worker(0), Switch(1), Worker(1)], 4);
    assert_eq!((desk.who_heard(), desk.events()), (vec![], vec![]), "one is missing");
    // It had received a view that no server has.
    rejoin_rest(&mut desk, &[Switch(0)], 6);
    assert_eq!(desk.events(), [ControllerEvent::Recovered]);
    assert_eq!(desk.view().number, TERM + 7, "above all that any member has, and its lower half counts on");
    assert_eq!(desk.tenures(), cluster.view.tenures, "nothing moves");
    assert_eq!(desk.view().workers, cluster.view.workers);
    assert_eq!(desk.cluster().task, "the task");
    assert_eq!(desk.heard_view(Server(0)), Some(desk.view()));
    assert_eq!(desk.who_heard(), [Server(1)]);
    desk.viewed(Server(0));
    desk.viewed(Server(1));
    assert_eq!(desk.who_heard(), [Switch(0), Switch(1)]);
    desk.viewed(Switch(0));
    desk.viewed(Switch(1));
    assert_eq!(desk.who_heard(), [Worker(0), Worker(1)]);
    assert!(matches!(desk.events().as_slice(), [ControllerEvent::Settled { moved: 0, .. }]));
}

#[test]
fn the_newest_view_of_any_server_counts() {
    let older = left_behind();
    let mut newer = older.clone();
    newer.view.number = 5;
    newer.view.switches.remove(&1);
    newer.view.tenures[1] = crate::cluster::Tenure { holder: Some(0), since: 5 };
    for (first, second) in [(&older, &newer), (&newer, &older)] {
        let mut desk = Desk::new(2, 2, 2);
        rejoin_server(&mut desk, 0, first);
        rejoin_server(&mut desk, 1, second);
        rejoin_rest(&mut desk, &[Worker(0), Worker(1), Switch(0)], 4);
        assert_eq!(desk.view().number, TERM + 6);
        assert_eq!(desk.tenures(), newer.view.tenures);
        // Both must act on it, whichever they had.
        assert_eq!(desk.who_heard(), [Server(0), Server(1)]);
    }
}

#[test]
fn members_not_back_after_two_seconds_are_lost() {
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Switch(1), Worker(1)], 4);
    desk.pass(ms(1999), &[]);
    assert_eq!((desk.who_heard(), desk.events()), (vec![], vec![]));
    desk.pass(ms(1), &[]);
    let events = desk.events();
    let lost = |event: &ControllerEvent| matches!(event, ControllerEvent::Lost { .. });
    assert_eq!(events.iter().filter(|event| lost(event)).count(), 2);
    assert_eq!(events.last(), Some(&ControllerEvent::Recovered));
    assert_eq!(desk.holders(), [Some(1), Some(1)]);
    assert_eq!(desk.tenures()[0].since, desk.view().number);
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1]);
    desk.settle();
    // They come after all: the worker too late, the switch as another.
    let link = desk.rejoin(Worker(0));
    assert!(matches!(desk.heard_on(link).as_slice(), [Message::Abort { .. }]));
    desk.rejoin(Switch(0));
    assert_eq!(desk.view().switches.keys().copied().collect::<Vec<_>>(), [1, 2]);
    // And numbers go on where the other controller was.
    desk.join(Worker(2));
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_server_may_take_longer_but_not_for_ever() {
    let cluster = left_behind();
    let mut desk = Desk::new(2, 2, 2);
    rejoin_server(&mut desk, 0, &cluster);
    rejoin_rest(&mut desk, &[Switch(0), Switch(1), Worker(0), Worker(1)], 4);
    desk.pass(ms(9000), &[]);
    assert_eq!((desk.who_heard(), desk.events()), (vec![], vec![]));
    rejoin_server(&mut desk, 1, &cluster);
    assert_eq!(desk.events(), [ControllerEvent::Recovered]);
    assert_eq!(desk.tenures(), cluster.view.tenures);

    let mut desk = Desk::new(2, 2, 2);
    rejoin_server(&mut desk, 0, &cluster);
    rejoin_rest(&mut desk, &[Worker(0)], 4);
    desk.pass(ms(29_999), &[]);
    assert_eq!(desk.events(), []);
    desk.pass(ms(1), &[]);
    assert!(desk.failure().is_some());
    assert!(matches!(desk.heard(Worker(0)).as_slice(), [Message::Abort { .. }]));
}

#[test]
fn barriers_resume_where_they_were() {
    let mut desk = with_servers(&left_behind());
    // Worker 0 was released from barrier 6; worker 1 was not, and waits there.
    desk.rejoin_with(Worker(0), |rejoin| (rejoin.view, rejoin.barriers) = (4, 7));
    desk.from(Worker(0), Message::Barrier { number: 7 });
    desk.rejoin_with(Worker(1), |rejoin| (rejoin.view, rejoin.barriers) = (4, 6));
    desk.from(Worker(1), Message::Barrier { number: 6 });
    assert_eq!(desk.who_heard(), [], "who has not come back yet may be behind");
    rejoin_rest(&mut desk, &[Switch(0), Switch(1)], 4);
    [Server(0), Server(1)].into_iter().for_each(|server| desk.viewed(server));
    assert_eq!(desk.heard(Worker(1)), [Message::Release { number: 6 }]);
    assert_eq!(desk.heard(Worker(0)), []);
    desk.from(Worker(1), Message::Barrier { number: 7 });
    assert_eq!(desk.heard(Worker(1)), [Message::Release { number: 7 }]);
    assert_eq!(desk.heard(Worker(0)), [Message::Release { number: 7 }]);
    assert_eq!(desk.failure(), None);
}

#[test]
fn a_barrier_that_all_but_the_lost_have_come_to_opens() {
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Switch(0), Switch(1)], 4);
    desk.rejoin_with(Worker(1), |rejoin| (rejoin.view, rejoin.barriers) = (4, 6));
    desk.from(Worker(1), Message::Barrier { number: 6 });
    desk.pass(ms(2000), &[]);
    [Server(0), Server(1)].into_iter().for_each(|server| desk.viewed(server));
    assert!(desk.heard(Worker(1)).contains(&Message::Release { number: 6 }));
}

#[test]
fn repeated_reports_end_the_job() {
    let mut desk = with_servers(&left_behind());
    let statistics = crate::statistics::Statistics::Worker(Default::default());
    rejoin_rest(&mut desk, &[Switch(0), Worker(1), Worker(0)], 4);
    for worker in [0, 1] {
        desk.from(Worker(worker), Message::Report { text: format!("{worker}"), statistics });
    }
    assert_eq!(desk.who_heard(), []);
    rejoin_rest(&mut desk, &[Switch(1)], 4);
    [Server(0), Server(1)].into_iter().for_each(|server| desk.viewed(server));
    assert!(desk.heard(Worker(0)).contains(&Message::Finish));
    assert!(desk.heard(Server(0)).contains(&Message::Finish));
}

#[test]
fn members_of_a_new_job_are_sent_away_and_come_again() {
    let cluster = left_behind();
    let mut desk = Desk::new(2, 2, 2);
    let early = [desk.join(Server(0)), desk.join(Worker(0)), desk.join(Switch(0))];
    rejoin_server(&mut desk, 1, &cluster);
    assert!(desk.closed.len() == 3 && early.iter().all(|link| desk.closed.contains(link)));
    let link = desk.join(Switch(2));
    assert_eq!(
        (desk.heard_on(link), desk.closed.last()),
        (vec![], Some(&link)),
        "without a reason, so that it tries again"
    );
    rejoin_server(&mut desk, 0, &cluster);
    rejoin_rest(&mut desk, &[Switch(0), Switch(1), Worker(0), Worker(1)], 4);
    desk.settle();
    desk.join(Switch(2));
    assert_eq!(desk.view().switches.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn recovery_waits_for_a_switch_less_long_than_for_a_worker() {
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Worker(0), Worker(1), Switch(1)], 4);
    desk.pass(ms(499), &[]);
    assert_eq!(desk.events(), []);
    desk.pass(ms(1), &[]);
    assert_eq!((desk.lost(), desk.holders()), (vec![Switch(0)], vec![Some(1), Some(1)]));
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Worker(0), Switch(1)], 4);
    desk.pass(ms(1999), &[]);
    assert_eq!(desk.events(), []);
    desk.pass(ms(1), &[]);
    assert_eq!(desk.lost(), [Switch(0), Worker(1)]);
}

#[test]
fn a_stream_may_break_again_while_it_recovers() {
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Switch(0), Worker(0)], 4);
    desk.break_stream(Switch(0));
    desk.break_stream(Server(1));
    desk.pass(ms(150), &[]);
    rejoin_rest(&mut desk, &[Switch(0)], 4);
    desk.break_stream(Worker(0));
    desk.pass(ms(100), &[]);
    let cluster = left_behind();
    rejoin_server(&mut desk, 1, &cluster);
    rejoin_rest(&mut desk, &[Worker(0), Worker(1), Switch(1)], 4);
    assert_eq!(desk.events(), [ControllerEvent::Recovered]);
    desk.settle();
    assert_eq!(desk.tenures(), cluster.view.tenures);
    desk.pass(ms(5000), &[]);
    assert_eq!(desk.lost(), []);
}

#[test]
fn a_controller_that_sleeps_while_it_recovers_waits_longer() {
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Switch(0), Worker(0), Worker(1)], 4);
    desk.now = desk.now + ms(60_000);
    rejoin_rest(&mut desk, &[Switch(1)], 4);
    assert_eq!(desk.events(), [ControllerEvent::Recovered]);
}

#[test]
fn health_is_watched_from_the_beginning() {
    let mut desk = with_servers(&left_behind());
    rejoin_rest(&mut desk, &[Switch(0), Switch(1), Worker(0), Worker(1)], 4);
    desk.settle();
    desk.events();
    desk.pass(ms(701), &[Switch(1)]);
    assert_eq!(desk.lost(), [Switch(1)]);
    assert_eq!(desk.holders(), [Some(0), Some(0)]);
}

#[test]
fn a_worker_that_leaves_meanwhile_does_so_when_all_are_back() {
    let mut desk = with_servers(&left_behind());
    // Its user requested it before the controller died, and it reports so again.
    rejoin_rest(&mut desk, &[Worker(0)], 4);
    desk.from(Worker(0), Message::Leave);
    assert_eq!((desk.who_heard(), desk.events()), (vec![], vec![]));
    rejoin_rest(&mut desk, &[Switch(0), Switch(1), Worker(1)], 4);
    assert!(desk.heard(Worker(0)).contains(&Message::Finish));
    assert_eq!(desk.view().workers.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(desk.tenures(), left_behind().view.tenures);
}

#[test]
fn a_cluster_is_taken_over_only_from_its_servers() {
    let mut desk = Desk::new(1, 1, 1);
    desk.join(Server(0));
    // They were left behind by another job, whose servers are gone.
    for peer in [Worker(0), Switch(0)] {
        let link = desk.rejoin(peer);
        assert_eq!((desk.heard_on(link), desk.closed.last()), (vec![], Some(&link)));
    }
    desk.join(Switch(0));
    desk.join(Worker(0));
    assert_eq!(desk.who_heard(), [Server(0)], "the job begins");
}
