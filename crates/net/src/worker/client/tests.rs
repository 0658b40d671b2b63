use core::time::Duration;
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;

use libra_proto::{Cluster, HotPath, Level, PullId, Sizes, WorkerCommand, WorkerEvent};
use libra_store::{Init, Optimizer, TableSpec};

use super::WorkerClient;
use crate::node::{ControllerNode, ControllerThread, NodeError, NodeOptions, ServerNode};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a controller on a thread of its own, a server, and the only worker.
fn cluster() -> (ControllerThread, thread::JoinHandle<bool>, WorkerClient, mpsc::Receiver<WorkerEvent>) {
    let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let options = NodeOptions::new(controller.address());
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table = TableSpec { name: "rows".into(), keys: 0..10, width: 1, rule, init: Init::Zero };
    let cluster = Cluster::new(1, vec![table], None, HotPath::for_workers(1));
    let sizes = Sizes { servers: 1, switches: 0, workers: 1 };
    let controller = controller.start(sizes, cluster, |_event| ()).unwrap();
    let server = ServerNode::bind(options.clone(), None).unwrap();
    let server = thread::spawn(move || server.run(|_event| ()).is_ok());
    let (sender, events) = mpsc::channel();
    let worker = WorkerClient::start(options, move |event| drop(sender.send(event))).unwrap();
    assert!(matches!(events.recv_timeout(TIMEOUT), Ok(WorkerEvent::Started { worker: 0, .. })));
    (controller, server, worker, events)
}

#[test]
fn commands_go_in_and_events_come_out_until_the_job_is_done() {
    let (controller, server, worker, events) = cluster();
    let (keys, gradients) = (vec![3, 4], vec![1.0, -2.0]);
    worker.command(WorkerCommand::Push { number: 1, keys, gradients, level: Level::Visible });
    assert_eq!(events.recv_timeout(TIMEOUT), Ok(WorkerEvent::Pushed { number: 1 }));
    worker.command(WorkerCommand::Pull { id: PullId(2), keys: vec![4, 3] });
    let Ok(WorkerEvent::Pulled(PullId(2), pulled)) = events.recv_timeout(TIMEOUT) else { panic!() };
    assert_eq!(pulled.values, [2.0, -1.0]);

    assert!(controller.wait(Duration::ZERO).is_none(), "the worker has not reported");
    worker.command(WorkerCommand::Report { text: "done".to_owned() });
    assert_eq!(events.recv_timeout(TIMEOUT), Ok(WorkerEvent::Finished));
    let outcome = controller.wait(TIMEOUT).unwrap().unwrap();
    assert_eq!(outcome.reports, ["done"]);
    assert!(server.join().unwrap());
    assert!(events.recv_timeout(TIMEOUT).is_err(), "its thread has ended");
}

#[test]
fn a_controller_that_is_asked_to_ends_the_job_for_all() {
    let (controller, server, _worker, events) = cluster();
    controller.abort("enough".to_owned());
    let Some(Err(NodeError::Ended { reason, .. })) = controller.wait(TIMEOUT) else { panic!() };
    assert_eq!(reason, "enough");
    assert!(
        matches!(events.recv_timeout(TIMEOUT), Ok(WorkerEvent::Ended { reason, .. }) if reason.contains("enough"))
    );
    assert!(!server.join().unwrap());
}
