//! The order in which the loop does things when there is more than one to do.

use core::net::{Ipv4Addr, SocketAddr};

use libra_proto::Message;
use tokio::net::TcpListener;

use super::*;
use crate::door::Callers;

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
