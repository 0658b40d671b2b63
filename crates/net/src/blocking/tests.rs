//! Streams of threads on loopback, with the same token, another or none.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::*;
use crate::door::WAITING_MAX;
use crate::security::Token;
use crate::security::tests::hello_of_tls_12;

/// A process that is called, and what comes to it.
struct House {
    address: SocketAddr,
    arrivals: mpsc::Receiver<Arrival>,
}

impl House {
    fn new(security: Security) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, arrivals) = mpsc::channel();
        // It ends with the process of the test.
        thread::spawn(move || {
            let mut door = BlockingDoor::new(listener, security).unwrap();
            while sender.send(door.arrival().unwrap()).is_ok() {}
        });
        Self { address, arrivals }
    }

    fn socket(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    fn arrival(&self) -> Arrival {
        self.arrivals.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn turned_away(&self) -> String {
        match self.arrival() {
            Arrival::Stranger { reason, .. } => reason,
            Arrival::Identified(..) => panic!("it is let in"),
        }
    }
}

fn with(token: Token) -> Security {
    Security::with_token(&token)
}

fn token() -> Token {
    Token::random().unwrap()
}

fn pair(security: &Security) -> [Arc<BlockingStream>; 2] {
    let house = House::new(security.clone());
    let caller = BlockingStream::call(house.socket(), security).unwrap();
    let Arrival::Identified(called, _) = house.arrival() else { panic!() };
    [caller, called].map(Arc::new)
}

/// Writes bytes in pieces of random sizes, as a thread that waits and one that does not. Returns how often something was left.
fn write(stream: &BlockingStream, bytes: &[u8], random: &mut SmallRng) -> usize {
    let (mut at, mut times_left) = (0, 0);
    while at < bytes.len() {
        let mut slices = Vec::new();
        for _ in 0..random.random_range(0..20) {
            let length = 1_usize << random.random_range(0..18);
            let end = bytes.len().min(at + random.random_range(0..length));
            slices.push(IoSlice::new(&bytes[at..end]));
            at = end;
        }
        if random.random_bool(0.2) {
            stream.write_all(&mut slices).unwrap();
        } else {
            let rest = stream.write_some(&mut slices).unwrap();
            times_left += usize::from(!rest.is_empty());
            stream.write_rest(&rest).unwrap();
        }
        if let Some(session) = stream.session.as_ref().filter(|_| random.random_bool(0.05)) {
            lock(session).refresh_traffic_keys().unwrap();
        }
    }
    times_left
}

fn read(stream: &Arc<BlockingStream>, length: usize, random: &mut SmallRng) -> Vec<u8> {
    let (mut reader, mut bytes) = (stream.reader(), Vec::new());
    while bytes.len() < length {
        let mut into = vec![0; 1 << random.random_range(0..18)];
        let read = reader.read(&mut into).unwrap();
        assert!(read > 0, "it ended after {} of {length} bytes", bytes.len());
        bytes.extend_from_slice(&into[..read]);
        if random.random_bool(0.02) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    bytes
}

// rule S6
#[test]
fn bytes_arrive_as_they_were_written_however_they_are_cut() {
    let mut times_left = [0, 0];
    for seed in 0..20 {
        for (security, times_left) in [Security::NONE, with(token())].iter().zip(&mut times_left) {
            let ends = pair(security);
            for end in &ends {
                // Too small for most of what is written. With less than this the kernel waits for acknowledgements that are delayed.
                socket2::SockRef::from(end.socket()).set_send_buffer_size(64 << 10).unwrap();
            }
            let ways = [(&ends[0], &ends[1]), (&ends[1], &ends[0])];
            thread::scope(|scope| {
                let mut writers = Vec::new();
                for (way, (from, to)) in (0..).zip(ways) {
                    let mut random = SmallRng::seed_from_u64(2 * seed + way);
                    let mut bytes = vec![0; random.random_range(1..1_000_000)];
                    random.fill_bytes(&mut bytes);
                    let bytes = Arc::new(bytes);
                    let (written, mut of_reader) = (Arc::clone(&bytes), random.clone());
                    writers.push(scope.spawn(move || write(from, &written, &mut random)));
                    scope.spawn(move || {
                        let came = read(to, bytes.len(), &mut of_reader);
                        assert!(came == *bytes, "seed {seed}");
                    });
                }
                *times_left += writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>();
            });
        }
    }
    assert!(times_left.iter().all(|times| *times > 0), "{times_left:?}: nothing was ever cut");
}

#[test]
fn a_process_with_another_token_or_none_is_named_at_both_ends() {
    let house = House::new(with(token()));
    let refused = |house: &House, security: &Security| {
        let error = BlockingStream::call(house.socket(), security).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        error.to_string()
    };
    assert_eq!(refused(&house, &with(token())), "it has another token");
    assert_eq!(house.turned_away(), "it has another token, and refuses that of this end");

    let plain = Arc::new(BlockingStream::call(house.socket(), &Security::NONE).unwrap());
    plain.write_all(&mut [IoSlice::new(&[7; 100])]).unwrap();
    assert_eq!(plain.reader().read(&mut [0; 100]).unwrap_err().to_string(), SPEAKS_TLS);
    assert_eq!(house.turned_away(), "it has no token: it does not speak TLS");

    house.socket().write_all(&hello_of_tls_12()).unwrap();
    assert_eq!(house.turned_away(), "it offers no TLS 1.3");

    let house = House::new(Security::NONE);
    let caller = thread::spawn({
        let socket = house.socket();
        move || BlockingStream::call(socket, &with(token())).unwrap_err().to_string()
    });
    let Arrival::Identified(called, _) = house.arrival() else { panic!() };
    let called = Arc::new(called);
    assert_eq!(called.reader().read(&mut [0; 100]).unwrap_err().to_string(), SPEAKS_TLS);
    called.shutdown(Shutdown::Both);
    assert!(caller.join().unwrap().contains("it has no token, or another one"));
}

#[test]
fn strangers_delay_no_process_of_the_cluster() {
    let security = with(token());
    let house = House::new(security.clone());
    let mut silent = Vec::new();
    for stranger in 0..100 {
        let mut socket = house.socket();
        if stranger % 2 == 0 {
            socket.write_all(&[0x16, 0x03, 0x01, 0x02]).unwrap();
        }
        silent.push(socket);
    }
    let mut garbage = house.socket();
    garbage.write_all(&[7; 10_000]).unwrap();
    let begun = Instant::now();
    BlockingStream::call(house.socket(), &security).unwrap();
    assert!(begun.elapsed() < FIRST_MESSAGE_MAX / 2, "{:?}", begun.elapsed());
    let (mut displaced, mut foreign) = (0, 0);
    loop {
        match house.arrival() {
            Arrival::Identified(..) => break,
            Arrival::Stranger { reason, .. } if reason == "it was silent while others came" => displaced += 1,
            Arrival::Stranger { reason, .. } => {
                assert_eq!(reason, "it has no token: it does not speak TLS");
                foreign += 1;
            }
        }
    }
    assert!(displaced >= 100 - WAITING_MAX && foreign == 1, "{displaced} and {foreign}");
    // Those that are left have 5 s.
    for _ in displaced..100 {
        assert_eq!(house.turned_away(), "it did not identify itself within 5 s");
    }
}
