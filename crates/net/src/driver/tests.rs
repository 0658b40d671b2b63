//! The order in which the loop does things when there is more than one to do.

use core::net::{Ipv4Addr, SocketAddr};

use libra_proto::Message;
use tokio::net::TcpListener;

use super::*;
use crate::door::Callers;
use crate::supervisor::{Notice, Supervisor};

/// The methods that these tests do not need: no message and no command comes, and nothing is sent.
macro_rules! does_nothing_else {
    () => {
        fn handle_message(&mut self, _: Instant, _: libra_proto::Link, _: Message) {}
        fn handle_socket_failure(&mut self, _: Instant, reason: &str) {
            panic!("{reason}");
        }
        fn handle_command(&mut self, _: Instant, command: Self::Command) {
            match command {}
        }
        fn poll_transmit(&mut self, _: Instant, _: &mut Outgoing) {}
        fn poll_action(&mut self) -> Option<Action> {
            None
        }
    };
}

/// Sets a timer and does not get to run for longer than that, as on a machine with more processes than processors.
struct Sleeper {
    due: Option<Instant>,
    happened: Vec<&'static str>,
    told: bool,
}

impl Role for Sleeper {
    type Command = core::convert::Infallible;
    type Event = Vec<&'static str>;
    type Status = ();

    fn handle_start(&mut self, now: Instant) {
        self.due = Some(now + Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(5));
    }

    fn handle_datagrams(&mut self, _: Instant, _: SocketAddr, datagrams: &mut [u8], stride: usize) {
        self.happened.extend(datagrams.chunks(stride).map(|_| "datagram"));
    }

    fn handle_timeout(&mut self, _: Instant) {
        self.due = None;
        self.happened.push("timer");
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let is_done = self.due.is_none() && !core::mem::replace(&mut self.told, self.due.is_none());
        is_done.then(|| self.happened.clone())
    }

    fn handle_link(&mut self, _: Instant, _: libra_proto::Link, _: LinkEvent) {}
    does_nothing_else!();

    fn status(&self, _now: Instant) {}
}

#[tokio::test]
async fn waiting_datagrams_are_read_before_an_overdue_timer() {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = DatagramSocket::bind(here, None).unwrap();
    let peer = std::net::UdpSocket::bind(here).unwrap();
    for _ in 0..3 {
        peer.send_to(b"an answer", socket.local_address().unwrap()).unwrap();
    }
    let role = Sleeper { due: None, happened: Vec::new(), told: false };
    let ports = Ports { datagrams: Some(socket), ..Ports::new(Links::new(Duration::ZERO)) };
    let (_commands, none) = mpsc::unbounded_channel();
    let happened = drive(role, ports, none, ControlFlow::Break).await.unwrap();
    assert_eq!(happened, ["datagram", "datagram", "datagram", "timer"]);
}

/// Is sent a datagram for each that it gets, so that there always is one, and waits for a stream.
struct Flooded {
    own: SocketAddr,
    peer: std::net::UdpSocket,
    datagrams: u32,
    is_called: bool,
}

/// So many datagrams are a flood that hides all else.
const FLOOD: u32 = 20_000;

impl Role for Flooded {
    type Command = core::convert::Infallible;
    type Event = u32;
    type Status = ();

    fn handle_start(&mut self, _: Instant) {}

    fn handle_datagrams(&mut self, _: Instant, _: SocketAddr, datagrams: &mut [u8], stride: usize) {
        for datagram in datagrams.chunks(stride) {
            self.datagrams += 1;
            self.peer.send_to(datagram, self.own).unwrap();
        }
    }

    fn handle_link(&mut self, _: Instant, _: libra_proto::Link, event: LinkEvent) {
        self.is_called = matches!(event, LinkEvent::Opened { .. });
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        (self.is_called || self.datagrams >= FLOOD).then_some(self.datagrams)
    }

    fn handle_timeout(&mut self, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    does_nothing_else!();

    fn status(&self, _now: Instant) {}
}

/// A role that stands still once, for as long as this.
struct StandsStill {
    has_stood: bool,
}

const STANDS_STILL: Duration = Duration::from_millis(500);

impl Role for StandsStill {
    type Command = core::convert::Infallible;
    type Event = ();
    type Status = ();

    fn handle_start(&mut self, _: Instant) {}
    fn handle_datagrams(&mut self, _: Instant, _: SocketAddr, _: &mut [u8], _: usize) {}
    fn handle_link(&mut self, _: Instant, _: libra_proto::Link, _: LinkEvent) {}

    fn poll_event(&mut self) -> Option<()> {
        self.has_stood.then_some(())
    }

    fn handle_timeout(&mut self, _: Instant) {
        std::thread::sleep(STANDS_STILL);
        self.has_stood = true;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.has_stood).then_some(Instant::ZERO + Duration::from_millis(300))
    }
    does_nothing_else!();

    fn status(&self, _now: Instant) {}
}

#[tokio::test]
async fn a_loop_that_stands_still_is_not_reported_as_alive() {
    let (notices, received) = std::sync::mpsc::channel();
    let note = move |notice| notices.send((std::time::Instant::now(), notice)).expect("the test receives");
    let pulse = Supervisor::new(Some(Duration::from_millis(40)), note).pulse();
    let ports = Ports { pulse: Some(pulse), ..Ports::new(Links::new(Duration::ZERO)) };
    let (_commands, none) = mpsc::unbounded_channel();
    drive(StandsStill { has_stood: false }, ports, none, ControlFlow::Break).await.unwrap();
    let ended = std::time::Instant::now();
    let alive = received.try_iter().filter(|(_, notice)| *notice == Notice::Alive);
    let times: Vec<_> = alive.map(|(at, _)| at).collect();
    assert!(times.len() > 3, "the loop has nothing to do, and turns only {} times", times.len());
    let last = times.iter().rev().find(|at| ended.duration_since(**at) >= STANDS_STILL);
    let gap = times.iter().find(|at| Some(*at) > last).map_or(ended, |at| *at) - *last.unwrap();
    assert!(gap >= STANDS_STILL, "{gap:?}");
}

#[tokio::test]
async fn a_flood_of_datagrams_does_not_hide_a_stream() {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = DatagramSocket::bind(here, None).unwrap();
    let own = socket.local_address().unwrap();
    let peer = std::net::UdpSocket::bind(here).unwrap();
    for _ in 0..8 {
        peer.send_to(b"a push", own).unwrap();
    }
    let listener = TcpListener::bind(here).await.unwrap();
    let _caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let role = Flooded { own, peer, datagrams: 0, is_called: false };
    let links = Links::new(Duration::ZERO);
    let ports = Ports {
        datagrams: Some(socket),
        entrance: Some(Entrance::Listener(listener, Callers::Unidentified, crate::Security::NONE)),
        ..Ports::new(links)
    };
    let (_commands, none) = mpsc::unbounded_channel();
    let datagrams = drive(role, ports, none, ControlFlow::Break).await.unwrap();
    assert!(datagrams < FLOOD, "the stream was not accepted before {datagrams} datagrams had come");
}
