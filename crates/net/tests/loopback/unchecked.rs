//! A worker of another make, that does not check its gradients, against real servers over TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use libra_net::{ControllerNode, NodeOptions, ServerNode};
use libra_proto::{
    Answered, Cluster, ColdPush, ControllerEvent, Hello, HotPath, Join, Kind, Message, Pass, Refusal, Sizes,
    Start, Statistics, TagKind, VERSION, WorkerStatistics,
};
use libra_store::{Init, Optimizer, TableSpec};

use crate::stream::Stream;

fn push(number: u64, gradients: Vec<f32>) -> Message {
    let keys = [3, 17].as_slice().into();
    Message::Push(ColdPush { number, keys, gradients: gradients.into(), answer: true })
}

// rule C11
#[test]
fn a_refused_push_is_reported_to_the_worker_and_the_user() {
    let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = controller.address();
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table = TableSpec { name: "item".into(), keys: 0..100, width: 1, rule, init: Init::Zero };
    let cluster = Cluster::new(1, vec![table], None, HotPath::for_workers(1));
    let server = ServerNode::bind(NodeOptions::new(address), None).unwrap();
    let serving = thread::spawn(move || server.run(|_event| ()).map(drop));
    let controlling = thread::spawn(move || {
        let (_commands, inbox) = tokio::sync::mpsc::unbounded_channel();
        let mut refusals = Vec::new();
        let outcome =
            controller.run(Sizes { servers: 1, switches: 0, workers: 1 }, cluster, inbox, |event| {
                if let ControllerEvent::Refused(refusal) = event {
                    refusals.push(refusal.clone());
                }
            });
        (outcome.unwrap(), refusals)
    });

    let mut control = Stream::open(address);
    let datagrams = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
    control.send(&Message::Join(Join {
        version: VERSION,
        kind: Kind::Worker,
        stream: None,
        shards: 1,
        datagrams,
        receive_bytes: 0,
        is_restartable: false,
        is_slow: false,
        tags: TagKind::Off,
        http: None,
    }));
    let Start { you, cluster, .. } = control.receive_until(|message| match message {
        Message::Start(start) => Some(*start),
        _ => None,
    });
    control.send(&Message::Viewed { number: cluster.view.number });
    let mut shard = Stream::open(cluster.view.servers[0]);
    shard.send(&Message::Hello(Hello {
        instance: cluster.instance,
        from: you,
        pass: Pass::default(),
        to: 0,
        answered: Answered::default(),
    }));
    for number in 1..=3 {
        shard.send(&push(number, vec![1.0, f32::NEG_INFINITY]));
        let bits = f32::NEG_INFINITY.to_bits();
        assert_eq!(shard.receive(), Message::PushRefused { number, key: 17, lane: 0, bits });
    }
    // On the same stream it goes on; nothing of what was refused was added.
    shard.send(&push(4, vec![1.0, 2.0]));
    let Message::Pushed { number: 4, values, .. } = shard.receive() else { panic!("the push is applied") };
    assert_eq!(values.into_vec(), [-1.0, -2.0]);

    let statistics = Statistics::Worker(WorkerStatistics::default());
    control.send(&Message::Report { text: String::new(), statistics });
    control.receive_until(|message| matches!(message, Message::Finish).then_some(()));
    serving.join().unwrap().unwrap();
    let (outcome, told) = controlling.join().unwrap();
    let refusal = Refusal { server: 0, worker: Some(0), table: "item".into(), key: 17, count: 1 };
    assert_eq!(told, core::slice::from_ref(&refusal));
    assert_eq!(outcome.refusals, [Refusal { count: 3, ..refusal }]);
    let refused = outcome.statistics.iter().find_map(|(_, statistics)| match statistics {
        Statistics::Server(server) => Some(server.pushes_refused),
        _ => None,
    });
    assert_eq!(refused, Some(3));
}
