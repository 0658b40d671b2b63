//! Waits of a worker's caller.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use libra_plan::shard_of;
use libra_proto::{
    Cluster, HotPath, Link, LinkEvent, MemberEvent, Message, Outgoing, Parameters, Role, Server, ServerEvent,
    Sizes, ValueFormat,
};
use libra_store::{Init, Optimizer, TableSpec};

use super::ledger::OPERATIONS_BYTES_MAX;
use super::*;
use crate::door::{Callers, Entrance};
use crate::driver::{Ports, drive};
use crate::node::{ControllerNode, ServerNode, listen, runtime};

#[test]
fn a_stall_is_time_without_answers_while_pushes_are_open() {
    let start = Instant::now();
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let mut stalls = Stalls::default();
    stalls.pushed(at(0));
    stalls.pushed(at(5));
    stalls.answered(at(7), 1);
    stalls.answered(at(10), 0);
    assert_eq!(stalls.longest, Duration::from_millis(7));
    // Nothing was under way: no push waited.
    stalls.pushed(at(1000));
    stalls.answered(at(1003), 0);
    assert_eq!(stalls.longest, Duration::from_millis(7));
    stalls.pushed(at(2000));
    stalls.answered(at(2020), 0);
    assert_eq!(stalls.longest, Duration::from_millis(20));
}

const KEYS: u64 = 200_000;
/// Pushes that wait for the gate.
const MORE: usize = 5;

/// A server that answers no worker while the test holds its gate.
struct Gated {
    server: Server,
    gate: Arc<Mutex<()>>,
}

impl Role for Gated {
    type Command = core::convert::Infallible;
    type Event = MemberEvent;
    type Status = ();

    fn handle_start(&mut self, now: libra_proto::Instant) {
        self.server.handle_start(now);
    }

    fn handle_datagrams(
        &mut self,
        now: libra_proto::Instant,
        from: std::net::SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
    ) {
        self.server.handle_datagrams(now, from, datagrams, stride);
    }

    fn handle_link(&mut self, now: libra_proto::Instant, link: Link, event: LinkEvent) {
        self.server.handle_link(now, link, event);
    }

    fn handle_message(&mut self, now: libra_proto::Instant, link: Link, message: Message) {
        if matches!(message, Message::Push(_) | Message::Pull { .. }) {
            drop(self.gate.lock().unwrap());
        }
        self.server.handle_message(now, link, message);
    }

    fn handle_socket_failure(&mut self, now: libra_proto::Instant, reason: &str) {
        self.server.handle_socket_failure(now, reason);
    }

    fn handle_command(&mut self, _now: libra_proto::Instant, command: Self::Command) {
        match command {}
    }

    fn handle_timeout(&mut self, now: libra_proto::Instant) {
        self.server.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: libra_proto::Instant, outgoing: &mut Outgoing) {
        self.server.poll_transmit(now, outgoing);
    }

    fn poll_action(&mut self) -> Option<libra_proto::Action> {
        self.server.poll_action()
    }

    fn poll_event(&mut self) -> Option<MemberEvent> {
        match self.server.poll_event()? {
            ServerEvent::Member(event) => Some(event),
            other => panic!("a server without a disk sends {other:?}"),
        }
    }

    fn poll_timeout(&self) -> Option<libra_proto::Instant> {
        self.server.poll_timeout()
    }

    fn status(&self, _now: libra_proto::Instant) {}
}

fn run_gated(options: NodeOptions, gate: Arc<Mutex<()>>) {
    let runtime = runtime().unwrap();
    let (listener, address) = listen(&runtime, options.any_port().unwrap()).unwrap();
    let role = Gated { server: Server::new(address), gate };
    let entrance = Some(Entrance::Listener(listener, Callers::Clients, crate::Security::NONE));
    let ports = Ports { entrance, ..Ports::new(options.links()) };
    let (_commands, none) = mpsc::unbounded_channel();
    let ended = runtime.block_on(drive(role, ports, none, |event| match event {
        MemberEvent::Started { .. } => ControlFlow::Continue(()),
        event => ControlFlow::Break(event),
    }));
    assert!(matches!(ended, Ok(MemberEvent::Finished(_))), "{ended:?}");
}

/// Starts a controller, a gated server and another, and joins as the only worker.
fn cluster(gate: &Arc<Mutex<()>>, wire: ValueFormat) -> (WorkerNode, Vec<thread::JoinHandle<()>>) {
    let controller = ControllerNode::bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let options = NodeOptions::new(controller.address());
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table = TableSpec { name: "rows".into(), keys: 0..KEYS, width: 1, rule, init: Init::Zero };
    let mut cluster = Cluster::new(1, vec![table], None, HotPath::for_workers(1));
    cluster.cold_path.values = wire;
    let gate = Arc::clone(gate);
    let of_gated = options.clone();
    let server = ServerNode::bind(options.clone(), None).unwrap();
    let threads = vec![
        thread::spawn(move || {
            let (_commands, inbox) = mpsc::unbounded_channel();
            let sizes = Sizes { servers: 2, switches: 0, workers: 1 };
            controller.run(sizes, cluster, inbox, |_event| ()).unwrap();
        }),
        thread::spawn(move || run_gated(of_gated, gate)),
        thread::spawn(move || {
            let _ = server.run(|_event| ()).unwrap();
        }),
    ];
    (WorkerNode::join(options).unwrap(), threads)
}

// rule C9
#[test]
fn a_stopped_shard_stalls_its_own_rows_and_then_the_caller() {
    let gate = Arc::<Mutex<()>>::default();
    let (mut worker, threads) = cluster(&gate, ValueFormat::F32);
    let of_shard = |shard| (0..KEYS).filter(|key| shard_of(*key, 2) == shard).collect::<Vec<u64>>();
    let shards = [of_shard(0), of_shard(1)];
    let gradients = |keys: &[u64], gradient| vec![gradient; keys.len()];
    let all: Vec<u64> = (0..KEYS).collect();
    worker.push_visibly(all.clone(), gradients(&all, 1.0)).unwrap();

    // Servers are numbered as they come: the one that answers nothing is found by asking.
    let closed = gate.lock().unwrap();
    let asked = shards.each_ref().map(|keys| worker.start_pull(keys.clone()).unwrap());
    let quick = loop {
        if let Some(quick) = asked.iter().position(|pull| !worker.ledger.is_open(pull.0)) {
            break quick;
        }
        worker.wait().unwrap();
    };
    let slow = &shards[1 - quick];
    assert_eq!(worker.finish_pull(asked[quick]).unwrap().values, gradients(&shards[quick], -1.0));

    let before = worker.stream_bytes();
    let bytes = 12 * slow.len();
    let fit = (OPERATIONS_BYTES_MAX - bytes) / bytes;
    let mut pushes = 0;
    while pushes < fit {
        worker.start_push(slow.clone(), gradients(slow, 1.0)).unwrap();
        pushes += 1;
    }
    // The bytes under way are many times what the window lets through, and the other shard answers.
    let mut quick_bytes = 0;
    for _ in 0..20 {
        let keys = shards[quick][..100].to_vec();
        quick_bytes += 12 * 100 + 200;
        let pull = worker.start_pull(keys).unwrap();
        assert_eq!(worker.finish_pull(pull).unwrap().values, [-1.0; 100]);
    }
    let sent = usize::try_from(worker.stream_bytes() - before).unwrap();
    assert!(
        sent < (8 << 20) + quick_bytes + 4096,
        "{sent} bytes were sent, {} are under way",
        worker.ledger.bytes()
    );
    assert!(worker.ledger.bytes() > 5 * sent && worker.ledger.bytes() <= OPERATIONS_BYTES_MAX);

    // More than that must wait until the shard goes on.
    let (started, opened) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let caller = {
        let (started, opened) = (Arc::clone(&started), Arc::clone(&opened));
        let (slow, gradients) = (slow.clone(), gradients(slow, 1.0));
        thread::spawn(move || {
            started.store(1, Ordering::SeqCst);
            for _ in 0..MORE {
                worker.start_push(slow.clone(), gradients.clone()).unwrap();
                assert!(opened.load(Ordering::SeqCst), "there was no room for it");
            }
            worker
        })
    };
    while started.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    opened.store(true, Ordering::SeqCst);
    drop(closed);
    let mut worker = caller.join().unwrap();
    pushes += MORE;
    worker.flush().unwrap();
    assert_eq!(worker.finish_pull(asked[1 - quick]).unwrap().values.len(), slow.len());
    let pull = worker.start_pull(slow.clone()).unwrap();
    let value = -1.0 - pushes as f32;
    assert_eq!(worker.finish_pull(pull).unwrap().values, gradients(slow, value));
    worker.report(String::new()).unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
}

// rules C6, C7
#[test]
fn gradients_and_values_travel_in_the_format_of_the_job() {
    const THIRD: f32 = 1.0 / 3.0;
    // Rounding errors of a third: 8 bits of it, or 11. 70,000 is too large for f16 and goes as it is.
    for (format, bytes, rounded, large) in [
        (ValueFormat::F32, 4, THIRD, 70_000.0),
        (ValueFormat::Bf16, 2, 171.0 / 512.0, 70_144.0),
        (ValueFormat::F16, 2, 1365.0 / 4096.0, 70_000.0),
    ] {
        let (mut worker, threads) = cluster(&Arc::default(), format);
        let keys: Vec<u64> = (0..KEYS).collect();
        let before = worker.stream_bytes();
        worker.push_visibly(keys.clone(), vec![THIRD; keys.len()]).unwrap();
        let pull = worker.start_pull(keys.clone()).unwrap();
        assert_eq!(worker.finish_pull(pull).unwrap().values, vec![-rounded; keys.len()]);
        let took = usize::try_from(worker.stream_bytes() - before).unwrap();
        // Each way a key of a byte and a value; heads of blocks and messages, and a heartbeat or two.
        let expected = 2 * keys.len() * (1 + bytes);
        assert!((expected..expected * 102 / 100 + 1000).contains(&took), "{format}: {took} of {expected}");
        worker.push_visibly(vec![0, 1], vec![large, rounded]).unwrap();
        let pull = worker.start_pull(vec![0, 1]).unwrap();
        let values = worker.finish_pull(pull).unwrap().values;
        let sum = if format == ValueFormat::Bf16 { -large } else { -rounded - large };
        assert_eq!(values, [sum, -2.0 * rounded], "{format}");
        worker.report(String::new()).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
