//! Gradients that servers refused.

use super::harness::ControllerHarness;
use crate::cluster::Peer;
use crate::controller::{ControllerEvent, Refusal};
use crate::message::Message;
use crate::server::REFUSALS_MAX;
use crate::statistics::{ServerStatistics, Statistics, WorkerStatistics};

use Peer::{Server, Worker};

fn refused(worker: Option<u16>, table: u16, count: u64) -> Message {
    Message::GradientsRefused { worker, table, key: 17, count }
}

fn refusal(server: u16, worker: Option<u16>, count: u64) -> Refusal {
    Refusal { server, worker, table: "rows".into(), key: 17, count }
}

// rule C11
#[test]
fn the_first_refusal_of_a_pair_is_an_event_and_the_end_has_all() {
    let mut harness = ControllerHarness::running(2, 0, 0, 1);
    for (server, worker, count) in [(0, Some(3), 1), (0, Some(3), 70), (0, Some(3), 40), (1, None, 2)] {
        harness.from(Server(server), refused(worker, 0, count));
    }
    // A table that is not there, and a sender that applies nothing.
    harness.from(Server(0), refused(Some(3), 9, 1));
    harness.from(Worker(0), refused(Some(4), 0, 1));
    let first = [refusal(0, Some(3), 1), refusal(1, None, 2)];
    assert_eq!(harness.events(), first.map(ControllerEvent::Refused));

    let statistics = Statistics::Worker(WorkerStatistics::default());
    harness.from(Worker(0), Message::Report { text: String::new(), statistics });
    harness.from(Server(1), refused(None, 0, 3));
    for server in 0..2 {
        let statistics = Statistics::Server(ServerStatistics::default());
        harness.from(Server(server), Message::Heartbeat { statistics, probe: 0 });
    }
    let events = harness.events();
    let Some(ControllerEvent::Finished(outcome)) = events.last() else { panic!("{events:?}") };
    assert_eq!(outcome.refusals, [refusal(0, Some(3), 70), refusal(1, None, 3)]);
}

// rule C11
#[test]
fn a_server_does_not_fill_the_memory_of_the_controller() {
    let mut harness = ControllerHarness::running(1, 0, 0, 1);
    let most = u16::try_from(REFUSALS_MAX).unwrap();
    for worker in 0..2 * most {
        harness.from(Server(0), refused(Some(worker), 0, 1));
    }
    assert_eq!(harness.events().len(), REFUSALS_MAX);
}
