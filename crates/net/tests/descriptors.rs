//! A member that has no file descriptors left goes on. Alone in its process: the limit is that of all threads.
#![expect(clippy::unwrap_used, reason = "a test reports errors by a panic")]

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::Duration;

use libra_net::ControllerNode;
use libra_proto::{Cluster, ControllerEvent, HotPath, Join, Kind, Message, Sizes, TagKind, VERSION};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

fn limit(files: u64) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..getrlimit(Resource::Nofile) }).unwrap();
}

fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64
}

/// A server joins that listens at this port.
fn join(controller: SocketAddr, port: u16) -> TcpStream {
    let join = Join {
        version: VERSION,
        kind: Kind::Server,
        stream: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        shards: 1,
        datagrams: None,
        receive_bytes: 0,
        is_restartable: false,
        is_slow: false,
        tags: TagKind::Off,
        http: None,
    };
    let message = Message::Join(join).encode();
    let mut stream = TcpStream::connect(controller).unwrap();
    let length = u32::try_from(message.len()).expect("a short message");
    stream.write_all(&length.to_be_bytes()).expect("the controller listens");
    stream.write_all(&message).expect("the controller listens");
    stream
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

// rule S1
#[test]
fn a_member_without_descriptors_waits_and_goes_on() {
    let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = controller.address();
    let (events, heard) = std_mpsc::channel();
    thread::spawn(move || {
        let (_commands, inbox) = mpsc::unbounded_channel();
        let sizes = Sizes { servers: 2, switches: 0, workers: 1 };
        let cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
        let _ended = controller.run(sizes, cluster, inbox, |event| drop(events.send(event.clone())));
    });
    let joined = || loop {
        match heard.recv_timeout(Duration::from_secs(5)).expect("a member is taken in") {
            ControllerEvent::Joined { .. } => return,
            ControllerEvent::Strangers(_) => {}
            event => panic!("{event:?}"),
        }
    };
    let first = join(address, 9);
    joined();
    // Connections that the kernel has made wait for a descriptor at the other end.
    let streams: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    thread::sleep(Duration::from_millis(100));
    limit(open_files() - 1 + 2);
    let more: Vec<TcpStream> = core::iter::from_fn(|| TcpStream::connect(address).ok()).collect();
    let before = cpu_time();
    thread::sleep(Duration::from_millis(500));
    let spent = cpu_time() - before;
    assert!(spent < Duration::from_millis(200), "it spins: {spent:?} of 500 ms");
    drop((streams, more));
    limit(1000);
    let second = join(address, 10);
    joined();
    drop((first, second));
}
