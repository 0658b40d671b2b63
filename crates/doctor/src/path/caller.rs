//! The end that asks: it measures a path within seconds.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Instant;

use libra_net::{Security, ask_controller};
use libra_proto::packet_header_bytes;

use super::wire::{self, Answer, Counts, FRAME_BYTES, Kind, PROBE_BYTES_MIN, Probe, Question};
use super::{Datagrams, Exchange, Meeting, Outcome, Path, Seen};
use crate::snmp;
use crate::socket::{ProbeSocket, is_passing};

/// Time for a stream to open, and for an answer on it.
const STREAM_MAX: Duration = Duration::from_secs(2);
/// First probes, until one comes back.
const FIRST_PROBES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(120);
/// Probes by which loss and round trips are told: of 3% loss, 15 are lost.
const PROBES: u32 = 500;
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// Time that a last answer may take.
const LAST_WAIT: Duration = Duration::from_millis(300);
/// Tries for a size, and the least time for each.
const TRIES: u32 = 3;
const TRY_WAIT: Duration = Duration::from_millis(80);
/// The smallest that `--mtu` may be.
const MTU_MIN: u16 = 256;
const RATE_TIME: Duration = Duration::from_millis(300);

/// Measures the path to `to`, `HOST:PORT`, for packets of up to `mtu` bytes. If no doctor answers, it is asked as a controller.
pub(crate) fn call(to: &str, mtu: u16, security: &Security) -> Path {
    Path { to: to.to_owned(), outcome: meet(to, mtu, security).unwrap_or_else(|outcome| outcome) }
}

fn meet(to: &str, mtu: u16, security: &Security) -> Result<Outcome, Outcome> {
    let addresses: Vec<_> = match to.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(Outcome::NoHost(error.to_string())),
    };
    let mut stream = open(&addresses)?;
    let failed = |error: io::Error| Outcome::NoStream(error.to_string());
    let (here, peer) = (stream.local_addr().map_err(failed)?, stream.peer_addr().map_err(failed)?);
    let stranger = |did: &str| match ask_controller(peer, security, STREAM_MAX) {
        Ok(answer) => Outcome::Controller(peer, answer),
        Err(error) => Outcome::Stranger(did.to_owned(), error.to_string()),
    };
    let hello = ask(&mut stream, Question::Hello).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => stranger("does not answer"),
        _ => stranger("closes the stream"),
    })?;
    let Some(head) = wire::head(&hello) else { return Err(stranger("answers in another language")) };
    if head.format != wire::FORMAT {
        return Err(Outcome::OtherFormat(head.messages));
    }
    let (session, there) = match wire::content(&hello) {
        Some(Answer::Welcome { session, caller }) => (session, caller),
        Some(Answer::Busy) => return Err(Outcome::Busy),
        _ => return Err(stranger("answers another question")),
    };
    let datagrams = exchange(&mut stream, session, (here.ip(), peer), mtu);
    Ok(Outcome::Met(Box::new(Meeting {
        peer,
        messages: head.messages,
        is_here: here.ip() == peer.ip(),
        stream: Seen { here, there },
        datagrams: datagrams.unwrap_or_else(|error| Datagrams::Ended(error.to_string())),
    })))
}

/// Tries every address, in a time for all.
fn open(addresses: &[SocketAddr]) -> Result<TcpStream, Outcome> {
    let mut last = Outcome::NoHost("it has no address".to_owned());
    let time = STREAM_MAX / u32::try_from(addresses.len().clamp(1, 8)).unwrap_or(1);
    for address in addresses.iter().take(8) {
        match TcpStream::connect_timeout(address, time) {
            Ok(stream) => {
                drop(stream.set_nodelay(true));
                let limits =
                    [stream.set_read_timeout(Some(STREAM_MAX)), stream.set_write_timeout(Some(STREAM_MAX))];
                if let Some(error) = limits.into_iter().find_map(Result::err) {
                    return Err(Outcome::NoStream(error.to_string()));
                }
                return Ok(stream);
            }
            Err(error) => last = Outcome::NoStream(format!("{address}: {error}")),
        }
    }
    Err(last)
}

fn ask(stream: &mut TcpStream, question: Question) -> io::Result<[u8; FRAME_BYTES]> {
    let mut answer = [0; FRAME_BYTES];
    stream.write_all(&wire::frame(&question))?;
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn counts(stream: &mut TcpStream) -> io::Result<Counts> {
    match wire::content(&ask(stream, Question::Counts)?) {
        Some(Answer::Counts(counts)) => Ok(counts),
        _ => Err(io::Error::other("the other end answers another question")),
    }
}

fn exchange(
    stream: &mut TcpStream,
    session: u64,
    (here, peer): (IpAddr, SocketAddr),
    mtu: u16,
) -> io::Result<Datagrams> {
    let refused_before = snmp::checksum_errors();
    let mut prober = Prober::bind(session, here, peer)?;
    let Some(there) = prober.first()? else {
        return Ok(match counts(stream)?.arrived {
            0 => Datagrams::NoneArrived,
            _ => Datagrams::NoAnswer,
        });
    };
    let (before, first) = (counts(stream)?, prober.next);
    prober.series()?;
    let (after, last) = (counts(stream)?, prober.next);
    let answered = prober.answered.range(first..last).count();
    let largest = prober.largest_packet(mtu)?;
    prober.run(largest)?;
    let all = counts(stream)?;
    let Prober { mut round_trips, duplicates, reordered, corrupted, .. } = prober;
    round_trips.sort();
    let refused = snmp::checksum_errors().saturating_sub(refused_before);
    let rate = (all.counted_ns > 0).then(|| all.counted_bytes as f64 * 8e9 / all.counted_ns as f64);
    Ok(Datagrams::Exchanged(Exchange {
        addresses: Seen { here: prober.here, there },
        sent: last - first,
        arrived: after.arrived - before.arrived,
        answered: u32::try_from(answered).unwrap_or(u32::MAX),
        duplicates: duplicates + after.duplicates,
        reordered: reordered + after.reordered,
        corrupted: corrupted + all.corrupted + refused,
        round_trips,
        mtu: largest,
        mtu_there: all.longest.saturating_add(packet_header_bytes(peer)).max(largest),
        rate,
    }))
}

/// Sends probes, and counts what comes back.
struct Prober {
    socket: ProbeSocket,
    peer: SocketAddr,
    here: SocketAddr,
    session: u64,
    /// The number of the next probe.
    next: u32,
    sent_at: Vec<Instant>,
    answered: BTreeSet<u32>,
    last: Option<u32>,
    there: Option<SocketAddr>,
    round_trips: Vec<Duration>,
    duplicates: u32,
    reordered: u32,
    corrupted: u64,
}

impl Prober {
    /// The socket is of no peer: a connected one refuses to send once a router has told it of a smaller MTU.
    fn bind(session: u64, here: IpAddr, peer: SocketAddr) -> io::Result<Self> {
        let socket = ProbeSocket::bind(SocketAddr::new(here, 0))?;
        Ok(Self {
            here: socket.local_address()?,
            socket,
            peer,
            session,
            next: 0,
            sent_at: Vec::new(),
            answered: BTreeSet::new(),
            last: None,
            there: None,
            round_trips: Vec::new(),
            duplicates: 0,
            reordered: 0,
            corrupted: 0,
        })
    }

    /// Sends a probe. Returns false if it does not fit the first link.
    fn send(&mut self, length: usize) -> io::Result<bool> {
        let probe = Probe { session: self.session, kind: Kind::Echo, number: self.next, caller: None };
        let mut bytes = vec![0; length];
        probe.write(&mut bytes);
        self.next += 1;
        self.sent_at.push(Instant::now());
        match self.socket.send(self.peer, &bytes, length) {
            Ok(()) => Ok(true),
            Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::MSGSIZE) => {
                Ok(false)
            }
            // It is lost.
            Err(error) if is_passing(&error) || error.kind() == ErrorKind::PermissionDenied => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Takes answers until a time.
    fn take_until(&mut self, until: Instant) -> io::Result<()> {
        while self.socket.wait(until)? {
            self.take()?;
        }
        Ok(())
    }

    /// Takes answers until that to a probe is there, or its time is over. Returns whether it is.
    fn take_answer(&mut self, number: u32, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        while !self.answered.contains(&number) && self.socket.wait(until)? {
            self.take()?;
        }
        Ok(self.answered.contains(&number))
    }

    fn take(&mut self) -> io::Result<()> {
        let mut probes = Vec::new();
        self.socket.receive(|_, bytes, stride| {
            probes.extend(bytes.chunks(stride.max(1)).map(Probe::read));
        })?;
        let now = Instant::now();
        for probe in probes {
            match probe {
                Ok(probe) if probe.session == self.session && probe.kind == Kind::Echoed => {
                    self.count(now, &probe);
                }
                Err(wire::NoProbe::Corrupted) => self.corrupted += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, now: Instant, probe: &Probe) {
        let Some(sent_at) = self.sent_at.get(probe.number as usize) else { return };
        if !self.answered.insert(probe.number) {
            self.duplicates += 1;
            return;
        }
        self.round_trips.push(now - *sent_at);
        self.reordered += u32::from(self.last.is_some_and(|last| probe.number < last));
        self.last = self.last.max(Some(probe.number));
        self.there = probe.caller.or(self.there);
    }

    /// Sends probes until one comes back. Returns the address that the other end sees.
    fn first(&mut self) -> io::Result<Option<SocketAddr>> {
        for number in 0..FIRST_PROBES {
            self.send(PROBE_BYTES_MIN)?;
            if self.take_answer(number, FIRST_WAIT)? {
                break;
            }
        }
        // The first round trip also asks for addresses of the link.
        self.round_trips.clear();
        Ok(self.there)
    }

    fn series(&mut self) -> io::Result<()> {
        let (start, first) = (Instant::now(), self.next);
        for count in 1..=PROBES {
            self.send(PROBE_BYTES_MIN)?;
            self.take_until(start + PROBE_INTERVAL * count)?;
        }
        let until = Instant::now() + LAST_WAIT;
        while self.answered.range(first..).count() < PROBES as usize && self.socket.wait(until)? {
            self.take()?;
        }
        Ok(())
    }

    /// Returns the length of the largest packet, up to `most`, that comes back.
    fn largest_packet(&mut self, most: u16) -> io::Result<u16> {
        let (round_trips, most) = (self.round_trips.len(), most.max(MTU_MIN));
        let (mut passes, mut fails) = (MTU_MIN, most);
        let longest = self.round_trips.iter().max().copied().unwrap_or_default();
        let wait = (2 * longest).clamp(TRY_WAIT, LAST_WAIT);
        if self.passes(most, wait)? {
            passes = most;
        }
        while passes < most && fails - passes > 1 {
            let middle = passes + (fails - passes) / 2;
            if self.passes(middle, wait)? {
                passes = middle;
            } else {
                fails = middle;
            }
        }
        // Those of long packets are another distribution.
        self.round_trips.truncate(round_trips);
        Ok(passes)
    }

    fn passes(&mut self, packet: u16, wait: Duration) -> io::Result<bool> {
        for _ in 0..TRIES {
            let number = self.next;
            if !self.send(usize::from(packet - packet_header_bytes(self.peer)))? {
                return Ok(false);
            }
            if self.take_answer(number, wait)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends packets of this length as fast as it can, for a moment.
    fn run(&mut self, packet: u16) -> io::Result<()> {
        let length = usize::from(packet - packet_header_bytes(self.peer));
        let most = (65_000 / length).min(self.socket.run_datagrams_max()).max(1);
        let mut run = vec![0; most * length];
        for (number, bytes) in (0..).zip(run.chunks_mut(length)) {
            Probe { session: self.session, kind: Kind::Count, number, caller: None }.write(bytes);
        }
        let until = Instant::now() + RATE_TIME;
        while Instant::now() < until {
            match self.socket.send(self.peer, &run, length) {
                Ok(()) => {}
                Err(error) if is_passing(&error) || error.kind() == ErrorKind::PermissionDenied => {
                    thread::sleep(Duration::from_micros(50));
                }
                Err(error) => return Err(error),
            }
        }
        thread::sleep(LAST_WAIT);
        Ok(())
    }
}
