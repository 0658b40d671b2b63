//! Strangers at a door, and members among them.

use std::net::Ipv4Addr;

use libra_proto::{
    Answered, Cluster, Hello, HotPath, Join, Kind, Pass, Peer, Rejoin, TagKind, VERSION, WorkDone,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::frames;

/// A door of a controller or a server, and the streams that it has turned away.
struct House {
    door: Door,
    tally: Arc<Tally>,
    address: SocketAddr,
    strangers: u64,
}

impl House {
    async fn new(callers: Callers) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tally = Arc::<Tally>::default();
        Self {
            door: Door::open(Entrance::Listener(listener, callers, Security::NONE), Arc::clone(&tally)),
            tally,
            address,
            strangers: 0,
        }
    }

    /// Opens a stream and sends this.
    async fn call(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Waits until so many have been turned away in all. Returns why the last one was.
    async fn turned_away(&mut self, count: u64) -> String {
        loop {
            if let Some(strangers) = self.tally.take() {
                self.strangers += strangers.count;
                if self.strangers >= count {
                    return strangers.reason;
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn let_in(&mut self) -> Message {
        let caller = tokio::time::timeout(Duration::from_secs(2), self.door.next()).await;
        caller.expect("it is let in").first.expect("it has spoken").0
    }
}

fn frame(message: &Message) -> Vec<u8> {
    let mut frame = message.encode_behind(&frames::NO_LENGTH);
    frames::seal(&mut frame);
    frame
}

fn hello() -> Message {
    Message::Hello(Hello {
        pass: Pass::default(),
        instance: 1,
        from: Peer::Worker(3),
        to: 0,
        answered: Answered::default(),
    })
}

/// A worker that joins.
pub(crate) fn join() -> Join {
    Join {
        version: VERSION,
        kind: Kind::Worker,
        stream: None,
        shards: 1,
        datagrams: None,
        receive_bytes: 0,
        is_restartable: false,
        is_slow: false,
        tags: TagKind::Off,
        http: None,
    }
}

/// The first message of a server that rejoins at a new controller, with a task of so many bytes.
fn rejoin(bytes: usize) -> Message {
    let mut cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
    cluster.task = "x".repeat(bytes);
    let cluster = Some(Box::new(cluster));
    let join = Join { kind: Kind::Server, ..join() };
    Message::Rejoin(Box::new(Rejoin {
        join,
        instance: 1,
        you: Peer::Server(0),
        pass: Pass::default(),
        share: 0,
        view: 1,
        barriers: 0,
        cluster,
        work_done: WorkDone::default(),
    }))
}

/// Returns true if the other end has closed a stream.
async fn is_closed(mut stream: TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0; 1])).await;
    read.is_ok_and(|read| read.map_or(true, |read| read == 0))
}

// rule S1
#[tokio::test]
async fn garbage_is_turned_away_at_once_and_counted() {
    let mut house = House::new(Callers::Clients).await;
    let long = [&(256u32 << 20).to_be_bytes()[..], &[31; 100]].concat();
    let barely = [&4097u32.to_be_bytes()[..], &[1; 100]].concat();
    let garbage: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &long,
        &barely,
        &0u32.to_be_bytes(),
        &[0, 0, 0, 3, 255, 255, 255],
        // A controller's callers are not a server's.
        &frame(&Message::Join(join())),
    ];
    for (count, garbage) in (1..).zip(garbage) {
        let stream = house.call(garbage).await;
        house.turned_away(count).await;
        assert!(is_closed(stream).await);
    }
    let _member = house.call(&frame(&hello())).await;
    assert_eq!(house.let_in().await, hello());
}

// rule S1
#[tokio::test]
async fn only_what_introduces_a_member_is_let_in() {
    let mut house = House::new(Callers::Members).await;
    for (count, message) in
        (1..).zip([hello(), Message::Leave { returns: false }, Message::Abort { reason: "end".into() }])
    {
        drop(house.call(&frame(&message)).await);
        assert_eq!(house.turned_away(count).await, "its first message does not identify it");
    }
    for message in [Message::Join(join()), rejoin(10)] {
        let _member = house.call(&frame(&message)).await;
        assert_eq!(house.let_in().await, message);
    }
}

// rule S1
#[tokio::test]
async fn only_a_server_that_rejoins_may_send_a_long_message() {
    let mut house = House::new(Callers::Members).await;
    let long = frame(&rejoin(8 << 20));
    // Were the others to be shed for their number, it would be, too: it is not there at once.
    let mut member = house.call(&long[..long.len() / 2]).await;
    let mut silent = Vec::new();
    for _ in 0..3 * WAITING_MAX {
        silent.push(house.call(&[]).await);
    }
    member.write_all(&long[long.len() / 2..]).await.unwrap();
    assert_eq!(house.let_in().await, rejoin(8 << 20));
    drop(silent);
    let mut server = House::new(Callers::Clients).await;
    drop(server.call(&long[..100]).await);
    server.turned_away(1).await;
}

// rule S1
#[tokio::test]
async fn long_first_messages_together_take_no_more_than_one_may() {
    let mut house = House::new(Callers::Members).await;
    let promise = [&(64u32 << 20).to_be_bytes()[..], &[1]].concat();
    let mut callers = Vec::new();
    for _ in 0..4 {
        let mut caller = house.call(&promise).await;
        callers.push(tokio::spawn(async move {
            let zeros = vec![0; 1 << 20];
            // Of 64 MiB all but the last: it never ends.
            for _ in 0..63 {
                if caller.write_all(&zeros).await.is_err() {
                    return None;
                }
            }
            Some(caller)
        }));
    }
    let mut left = Vec::new();
    for caller in callers {
        left.extend(caller.await.unwrap());
    }
    assert!(!left.is_empty(), "one of them may send as much");
    assert_eq!(house.turned_away(3).await, "others were further with long first messages");
}

// rule S1
#[tokio::test]
async fn slow_callers_have_five_seconds() {
    let mut house = House::new(Callers::Clients).await;
    let start = Deadline::now();
    let _silent = house.call(&[]).await;
    let bytes = frame(&hello());
    let mut slow = house.call(&[]).await;
    let slow = tokio::spawn(async move {
        for byte in &bytes[..bytes.len() - 1] {
            if slow.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    });
    assert_eq!(house.turned_away(2).await, "it did not identify itself within 5 s");
    let took = start.elapsed();
    assert!(took >= FIRST_MESSAGE_MAX && took < 2 * FIRST_MESSAGE_MAX, "{took:?}");
    slow.abort();
}

// rule S1
#[tokio::test]
async fn members_get_in_while_a_thousand_silent_streams_are_open() {
    // Each has two ends here.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let mut house = House::new(Callers::Clients).await;
    let mut silent = Vec::new();
    for round in 0..20 {
        for _ in 0..50 {
            silent.push(house.call(&[]).await);
        }
        let member = tokio::time::Instant::now();
        let _stream = house.call(&frame(&hello())).await;
        assert_eq!(house.let_in().await, hello(), "round {round}");
        assert!(member.elapsed() < Duration::from_secs(1));
    }
    // All but the newest are gone.
    let waiting = u64::try_from(WAITING_MAX).unwrap();
    let count = 1000 - waiting;
    assert_eq!(house.turned_away(count).await, "it was silent while others came");
    // A member may have been there for a moment before it spoke.
    assert!(house.strangers <= count + 20);
    for _ in 0..2 * WAITING_MAX {
        // Many that speak at once are let in, though more come than may wait.
        silent.push(house.call(&frame(&hello())).await);
    }
    for _ in 0..2 * WAITING_MAX {
        assert_eq!(house.let_in().await, hello());
    }
}

// rule S1
#[tokio::test]
async fn a_peer_that_opens_many_streams_displaces_its_own() {
    let mut house = House::new(Callers::Clients).await;
    let from = |last: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
        socket.connect(house.address)
    };
    // Older than all that come after.
    let mut quiet = from(2).await.unwrap();
    let mut loud = Vec::new();
    for _ in 0..5 * WAITING_MAX {
        loud.push(from(3).await.unwrap());
    }
    house.turned_away(4 * u64::try_from(WAITING_MAX).unwrap() + 1).await;
    quiet.write_all(&frame(&hello())).await.unwrap();
    assert_eq!(house.let_in().await, hello());
}
