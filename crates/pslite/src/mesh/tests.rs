//! Whole meshes on loopback, each node in a thread of this process.

mod tokens;

use core::fmt::Display;
use core::time::Duration;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use libra_net::{Security, Token};
use parking_lot::Mutex;

use super::control::Control;
use super::frame::{Head, Kind, filling};
use super::*;

/// Collects the messages for a node in a channel.
struct Inbox {
    messages: mpsc::Sender<(i32, i32)>,
    failures: Mutex<Vec<String>>,
    /// Lines for any person.
    lines: Mutex<Vec<String>>,
}

impl Mailbox for Inbox {
    fn deliver(&self, received: Received) -> Option<Payload> {
        let _ = self.messages.send((received.sender, received.meta.timestamp));
        Some(received.payload)
    }

    fn fail(&self, error: &MeshError) {
        self.failures.lock().push(error.to_string());
    }

    fn left(&self, _node: i32, _error: &MeshError) {}

    fn note(&self, level: u8, text: &dyn Display) {
        if level == 0 {
            self.lines.lock().push(text.to_string());
        }
    }
}

struct Process {
    node: Node,
    inbox: Arc<Inbox>,
    messages: mpsc::Receiver<(i32, i32)>,
}

/// An address of this machine that no other test uses, so that no port of it is taken.
fn own_address() -> String {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let [.., second, third] = std::process::id().to_be_bytes();
    format!("127.{}.{third}.{}", 128 + second % 127, 1 + ASKED.fetch_add(1, Ordering::Relaxed) % 250)
}

fn settings(role: NodeRole, workers: u16, servers: u16, host: &str) -> NodeSettings {
    NodeSettings {
        role,
        workers,
        servers,
        scheduler: (host.to_owned(), 9000),
        host: None,
        port: 0,
        drop_percent: 0,
        drop_seed: 0,
        heartbeat: Duration::from_millis(100),
        silence_max: None,
        connect_timeout: Duration::from_secs(5),
        notice: String::new(),
        security: Security::NONE,
    }
}

fn open(settings: NodeSettings) -> Result<Process, MeshError> {
    let (sender, messages) = mpsc::channel();
    let inbox = Arc::new(Inbox { messages: sender, failures: Mutex::default(), lines: Mutex::default() });
    let node = Node::open(settings, Arc::clone(&inbox) as Arc<dyn Mailbox>)?;
    Ok(Process { node, inbox, messages })
}

/// Opens a scheduler and so many others, all joined.
fn mesh(workers: u16, servers: u16, drop_percent: u8) -> Vec<Process> {
    mesh_with(workers, servers, drop_percent, &Security::NONE)
}

fn mesh_with(workers: u16, servers: u16, drop_percent: u8, security: &Security) -> Vec<Process> {
    let host = own_address();
    let roles = [(NodeRole::Scheduler, 1), (NodeRole::Server, servers), (NodeRole::Worker, workers)];
    let roles = roles.into_iter().flat_map(|(role, count)| (0..count).map(move |_| role));
    let opening: Vec<_> = roles
        .zip(1..)
        .map(|(role, drop_seed)| {
            let settings = settings(role, workers, servers, &host);
            let settings = NodeSettings { drop_percent, drop_seed, security: security.clone(), ..settings };
            thread::spawn(move || {
                let process = open(settings).unwrap();
                process.node.join().unwrap();
                process
            })
        })
        .collect();
    let mut processes: Vec<Process> = opening.into_iter().map(|thread| thread.join().unwrap()).collect();
    processes.sort_by_key(|process| process.node.id());
    processes
}

fn outgoing(timestamp: i32) -> OutgoingMessage {
    OutgoingMessage { meta: Meta { timestamp, ..Meta::default() }, ..OutgoingMessage::default() }
}

fn request(timestamp: i32) -> OutgoingMessage {
    OutgoingMessage {
        meta: Meta { timestamp, request: true, ..Meta::default() },
        ..OutgoingMessage::default()
    }
}

fn finish(processes: Vec<Process>) {
    let finishing = processes.into_iter().map(|process| {
        thread::spawn(move || {
            process.node.barrier(EVERYBODY).unwrap();
            process.node.close();
            assert_eq!(*process.inbox.failures.lock(), [""; 0]);
        })
    });
    finishing.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn messages_arrive_in_order_though_a_third_is_dropped() {
    let with_token = Security::with_token(&Token::random().unwrap());
    for (drop_percent, security) in
        [(0, &Security::NONE), (33, &Security::NONE), (0, &with_token), (33, &with_token)]
    {
        let processes = mesh_with(2, 2, drop_percent, security);
        let ids: Vec<_> = processes.iter().map(|process| process.node.id()).collect();
        assert_eq!(ids, [1, 8, 9, 10, 11]);
        for timestamp in 0..200 {
            for from in &processes {
                for to in ids
                    .iter()
                    .filter(|to| from.node.id() == 1 || **to == 1 || (from.node.id() - **to) % 2 != 0)
                {
                    // Requests may be held, others not.
                    let message = if timestamp % 4 == 0 { outgoing(timestamp) } else { request(timestamp) };
                    from.node.send(*to, message).unwrap();
                }
            }
        }
        for to in &processes {
            let senders = if to.node.id() == 1 { 5 } else { 3 };
            let mut next = [0; 16];
            for _ in 0..200 * senders {
                let (from, timestamp) = to.messages.recv_timeout(Duration::from_secs(60)).unwrap();
                let next = &mut next[usize::try_from(from).unwrap()];
                assert_eq!(timestamp, *next, "from {from} to {}", to.node.id());
                *next += 1;
            }
        }
        finish(processes);
    }
}

#[test]
fn held_requests_go_soon_and_at_once_when_flushed() {
    let processes = mesh(1, 1, 0);
    let [_, server, worker] = processes.as_slice() else { panic!() };
    let mut are_held = 0;
    for timestamp in (0..400).step_by(2) {
        worker.node.send(8, request(timestamp)).unwrap();
        worker.node.send(8, request(timestamp + 1)).unwrap();
        are_held += u32::from(worker.node.holds());
        if timestamp % 4 == 0 {
            worker.node.flush();
            assert!(!worker.node.holds());
        }
        for expected in [timestamp, timestamp + 1] {
            let came = server.messages.recv_timeout(Duration::from_secs(5)).unwrap();
            assert_eq!(came, (worker.node.id(), expected));
        }
    }
    assert!(are_held > 0, "a request behind one without an answer is held");
    finish(processes);
}

#[test]
fn barriers_hold_exactly_the_nodes_of_their_group() {
    let processes = mesh(2, 1, 10);
    let [scheduler, server, first, second] = processes.as_slice() else { panic!() };
    assert_eq!(scheduler.node.barrier(WORKER_GROUP), Err(MeshError::NotInGroup { group: WORKER_GROUP }));
    for _ in 0..20 {
        let node = first.node.clone();
        let other = thread::spawn(move || node.barrier(WORKER_GROUP).unwrap());
        second.node.barrier(WORKER_GROUP).unwrap();
        other.join().unwrap();
    }
    // One of a group of one is no barrier.
    server.node.barrier(SERVER_GROUP).unwrap();
    finish(processes);
}

#[test]
fn a_death_ends_every_wait_and_everybody_hears_whose_it_was() {
    let mut processes = mesh(2, 2, 0);
    let dead = processes.remove(3);
    assert_eq!(dead.node.id(), 10);
    let waits: Vec<_> = processes
        .iter()
        .map(|process| {
            let node = process.node.clone();
            thread::spawn(move || {
                let error = node.barrier(EVERYBODY).unwrap_err().to_string();
                assert!(error.contains("server 1 (node 10)") && error.contains("has died"), "{error}");
                assert_eq!(node.dead_nodes(Duration::from_secs(60)), [10]);
            })
        })
        .collect();
    dead.node.vanish();
    waits.into_iter().for_each(|wait| wait.join().unwrap());
    for process in &processes {
        // A node that was told by the scheduler may find the stream closed a little later.
        while process.node.send(10, outgoing(1)).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        // Waits may end before the mailbox is told.
        process.node.close();
        assert_eq!(process.inbox.failures.lock().len(), 1);
    }
}

#[test]
fn a_barrier_of_a_node_that_died_does_not_open() {
    let mut processes = mesh(2, 2, 0);
    let dead = processes.remove(3);
    let node = dead.node.clone();
    let last = thread::spawn(move || drop(node.barrier(EVERYBODY)));
    thread::sleep(Duration::from_millis(100));
    dead.node.vanish();
    for process in &processes {
        assert!(matches!(process.node.barrier(EVERYBODY), Err(MeshError::Died { .. })));
    }
    // When all are closed, everything that was sent has come.
    processes.iter().for_each(|process| process.node.close());
    for process in &processes {
        assert_eq!(process.node.opened(EVERYBODY), 0);
    }
    // A node that has vanished gets no message.
    drop(last);
}

#[test]
fn a_node_that_leaves_is_not_dead_and_blocks_no_barrier() {
    let mut processes = mesh(2, 1, 0);
    processes.remove(2).node.close();
    let [scheduler, server, worker] = processes.as_slice() else { panic!() };
    assert_eq!(worker.node.id(), 11);
    let error = worker.node.barrier(WORKER_GROUP).unwrap_err();
    assert!(matches!(error, MeshError::BarrierFailed { .. }), "{error}");
    server.node.send(11, outgoing(1)).unwrap();
    assert_eq!(worker.messages.recv().unwrap(), (8, 1));
    let gone = server.node.send(9, outgoing(1)).unwrap_err();
    assert!(matches!(gone, MeshError::Left { .. }), "{gone}");
    assert_eq!(scheduler.node.failure(), None);
    processes.iter().for_each(|process| process.node.close());
}

/// A frame of a process that claims to be this node.
fn hello(sequence: u64, from: i32) -> Vec<u8> {
    let said = Control::Hello { from }.encode();
    let mut head = Head::bare(Kind::Control, sequence, 0, 0);
    head.lengths[0] = said.len() as u64;
    [&head.encode(), said.as_slice(), filling(said.len())].concat()
}

#[test]
fn nothing_stays_of_strangers() {
    let processes = mesh(1, 1, 0);
    let scheduler = &processes[0].node;
    let before = scheduler.streams_and_routes();
    for stranger in 0..100 {
        let (host, port) = scheduler.scheduler_address();
        let mut stream = TcpStream::connect((host.as_str(), port)).unwrap();
        for sequence in 1..20 {
            stream.write_all(&hello(sequence, 1000 * stranger + i32::try_from(sequence).unwrap())).unwrap();
        }
    }
    let until = Instant::now() + Duration::from_secs(20);
    while scheduler.streams_and_routes() != before {
        assert!(Instant::now() < until, "{:?}, and {before:?} before", scheduler.streams_and_routes());
        thread::sleep(Duration::from_millis(20));
    }
    finish(processes);
}
