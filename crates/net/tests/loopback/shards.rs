//! A server process with several shards behind one address.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libra_net::{ControllerNode, NodeOptions, ServerNode, SwitchNode, WorkerNode};
use libra_plan::{Budget, DEFAULT_HEADROOM_BITS, Frequencies, Plan, Provenance, TableShape};
use libra_proto::{
    Answered, ArithmeticMode, Cluster, Hello, HotPath, Message, Outcome, Parameters, Pass, Peer, ServerEvent,
    ServerStatistics, Sizes, Statistics, Strangers,
};
use libra_store::{Init, Optimizer, TableSpec};

use crate::stream::Stream;

const KEYS: u64 = 3000;
const HOT_KEYS: u64 = 200;
const WIDTH: u16 = 2;
const SHARDS: u16 = 3;
const JOB: u16 = 9;

/// A job of one worker on a server of three shards, with a switch.
struct Job {
    worker: WorkerNode,
    server: JoinHandle<Statistics>,
    switch: JoinHandle<()>,
    controller: JoinHandle<Outcome>,
    /// Address of the server.
    address: SocketAddr,
    /// Streams that the server has reported as turned away.
    strangers: Arc<Mutex<Vec<Strangers>>>,
}

fn cluster() -> Cluster {
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table = TableSpec { name: "rows".into(), keys: 0..KEYS, width: WIDTH.into(), rule, init: Init::Zero };
    let shape = TableShape { name: "rows".into(), keys: 0..KEYS, width: WIDTH.into(), hot: true };
    let mut frequencies = Frequencies::new(vec![shape]).unwrap();
    frequencies.record_push(0..HOT_KEYS);
    (0..HOT_KEYS).for_each(|key| frequencies.record_gradient(key, 8.0));
    let budget = Budget { p: 1.0, c: 0.5, ..Budget::default() };
    let plan = Plan::new(7, Provenance::default(), &frequencies, budget, DEFAULT_HEADROOM_BITS).unwrap();
    // Whole numbers are added exactly.
    let hot_path = HotPath {
        arithmetic: ArithmeticMode::F32,
        round_time_max: Duration::from_millis(2),
        ..HotPath::for_workers(1)
    };
    Cluster::new(JOB, vec![table], Some(plan), hot_path)
}

impl Job {
    fn start() -> Self {
        let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let options = NodeOptions::new(controller.address());
        let server = ServerNode::bind(options.clone(), None).unwrap().with_shards(SHARDS);
        let switch = SwitchNode::bind(options.clone(), None).unwrap();
        let (address, strangers) = (server.address(), Arc::<Mutex<Vec<Strangers>>>::default());
        let reported = Arc::clone(&strangers);
        let on_event = move |event: &ServerEvent| {
            if let ServerEvent::Strangers(strangers) = event {
                reported.lock().unwrap().push(strangers.clone());
            }
        };
        let controller = thread::spawn(move || {
            let (_commands, inbox) = tokio::sync::mpsc::unbounded_channel();
            controller
                .run(Sizes { servers: 1, switches: 1, workers: 1 }, cluster(), inbox, |_event| ())
                .unwrap()
        });
        let server = thread::spawn(move || server.run(on_event).unwrap());
        let switch = thread::spawn(move || switch.run(|_event| ()).map(drop).unwrap());
        let worker = WorkerNode::join(options).unwrap();
        Self { worker, server, switch, controller, address, strangers }
    }

    /// Pushes the gradient `key + lane` to all rows, and checks the values: so many pushes are visible with it.
    fn push_and_check(&mut self, pushes: u16) {
        let lanes = |factor: f32| {
            (0..KEYS)
                .flat_map(|key| (0..WIDTH).map(move |lane| factor * (key as f32 + f32::from(lane))))
                .collect::<Vec<f32>>()
        };
        self.worker.push_visibly((0..KEYS).collect(), lanes(1.0)).unwrap();
        let pull = self.worker.start_pull((0..KEYS).collect()).unwrap();
        assert_eq!(self.worker.finish_pull(pull).unwrap().values, lanes(-f32::from(pushes)));
    }

    /// Ends the job. Returns the counts of the server, and those of its shards.
    fn finish(self) -> (ServerStatistics, Vec<(u16, ServerStatistics)>) {
        self.worker.report(String::new()).unwrap();
        self.switch.join().unwrap();
        let Statistics::Server(sum) = self.server.join().unwrap() else { panic!("those of a server") };
        let members = self.controller.join().unwrap().statistics.into_iter();
        let of_shard = |(peer, statistics)| match (peer, statistics) {
            (Peer::Server(number), Statistics::Server(statistics)) => Some((number, statistics)),
            _ => None,
        };
        (sum, members.filter_map(of_shard).collect())
    }
}

#[test]
fn a_server_of_three_shards_serves_all_rows() {
    let mut job = Job::start();
    job.push_and_check(1);
    job.push_and_check(2);
    let (sum, of_shards) = job.finish();
    assert_eq!(of_shards.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    let mut expected = ServerStatistics::default();
    for (number, statistics) in of_shards {
        assert!(statistics.rows > KEYS / 4, "server {number}: {statistics:?}");
        assert!(statistics.row_updates > 0 && statistics.dropped == 0, "server {number}: {statistics:?}");
        expected += statistics;
    }
    assert_eq!(sum, expected);
    assert_eq!((sum.rows, sum.row_updates), (KEYS, 2 * KEYS));
    assert!(sum.row_updates_hot >= HOT_KEYS, "{sum:?}");
}

// rule S1
#[test]
fn a_caller_of_no_shard_is_turned_away_and_others_go_on() {
    let mut job = Job::start();
    job.push_and_check(1);
    let hello = |to| {
        let answered = Answered::default();
        Message::Hello(Hello {
            pass: Pass::default(),
            instance: JOB.into(),
            from: Peer::Worker(0),
            to,
            answered,
        })
        .encode()
    };
    let not_there = hello(SHARDS);
    // A message of before version 11 has no number of a shard.
    let before = &hello(0)[..not_there.len() - 1];
    for frame in [not_there.as_slice(), before, &Message::Finish.encode()] {
        let mut stream = Stream::open(job.address);
        stream.send_frame(frame);
        stream.wait_for_end();
    }
    job.push_and_check(2);
    // Shards report when they look, within a second, each what it has counted; and again when that has doubled.
    let until = Instant::now() + Duration::from_secs(20);
    while job.strangers.lock().unwrap().is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    let reported = job.strangers.lock().unwrap().clone();
    assert!(!reported.is_empty());
    let (sum, _) = job.finish();
    assert_eq!(sum.dropped, 3, "{reported:?}");
}
