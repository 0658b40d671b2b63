//! Those who flood: streams that send nothing, too little or garbage, and datagrams of strangers.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Between two turns, so that neither kind comes in one burst.
const TURN: Duration = Duration::from_millis(2);
/// Slow streams send a byte at this interval.
const SLOW_BYTE_EVERY: Duration = Duration::from_secs(1);
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Target addresses of a flood.
pub(super) struct Targets {
    pub(super) streams: Vec<SocketAddr>,
    pub(super) datagrams: Vec<SocketAddr>,
}

impl Targets {
    /// Sockets that belong to no job: streams are accepted and closed, datagrams stay in the kernel.
    pub(super) fn outside_of_job() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind a socket")?;
        let (streams, datagrams) = (vec![listener.local_addr()?], vec![socket.local_addr()?]);
        // They end with this process.
        thread::spawn(move || {
            let _bound = socket;
            for stream in listener.incoming() {
                drop(stream);
            }
        });
        Ok(Self { streams, datagrams })
    }
}

/// Amounts of the flood, and its duration.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub(super) streams: u32,
    pub(super) datagrams: u32,
    pub(super) length: Duration,
}

impl Rates {
    /// Returns how many of `all` are due.
    fn due(self, all: u32, since: Duration) -> u32 {
        let part = (since.as_secs_f64() / self.length.as_secs_f64()).min(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most `all`")]
        let due = (f64::from(all) * part) as u32;
        due
    }
}

/// A flood that goes on by itself.
pub(super) struct Flood {
    streams: JoinHandle<Result<u32>>,
    datagrams: JoinHandle<Result<u32>>,
}

impl Flood {
    pub(super) fn begin(targets: Targets, rates: Rates) -> Self {
        let streams = thread::spawn(move || open_streams(&targets.streams, rates));
        let datagrams = thread::spawn(move || send_datagrams(&targets.datagrams, rates));
        Self { streams, datagrams }
    }

    /// Waits until all of it was sent. Returns how many streams were opened, and datagrams sent.
    pub(super) fn end(self) -> Result<(u32, u32)> {
        let end = |thread: JoinHandle<Result<u32>>| match thread.join() {
            Ok(count) => count,
            Err(_) => bail!("a thread of the flood has failed"),
        };
        Ok((end(self.streams)?, end(self.datagrams)?))
    }
}

/// Behavior of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Silent,
    Slow,
    Garbage,
    /// A length of 256 MiB, and some of it.
    Promise,
}

/// Half of them are silent.
const KINDS: [Kind; 6] = [Kind::Silent, Kind::Slow, Kind::Silent, Kind::Garbage, Kind::Silent, Kind::Promise];

fn open_streams(targets: &[SocketAddr], rates: Rates) -> Result<u32> {
    let start = Instant::now();
    let mut open: Vec<(TcpStream, Kind)> = Vec::new();
    let mut opened = 0;
    let mut slow_at = start + SLOW_BYTE_EVERY;
    while opened < rates.streams {
        while opened < rates.due(rates.streams, start.elapsed()) {
            let target = targets[opened as usize % targets.len()];
            let kind = KINDS[opened as usize / targets.len() % KINDS.len()];
            // A member that accepts no stream now is no reason to stop.
            if let Ok(mut stream) = TcpStream::connect_timeout(&target, CONNECT_MAX) {
                stream.set_nonblocking(true).context("cannot open a stream that does not wait")?;
                // It may be closed already, as it should.
                let _closed = match kind {
                    Kind::Silent => Ok(()),
                    Kind::Slow => stream.write_all(&[0, 0, 0]),
                    Kind::Garbage => stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                    Kind::Promise => stream.write_all(&[[16, 0, 0, 0].as_slice(), &[1; 3000]].concat()),
                };
                open.push((stream, kind));
            }
            opened += 1;
        }
        if Instant::now() >= slow_at {
            slow_at += SLOW_BYTE_EVERY;
            for (stream, _) in open.iter_mut().filter(|(_, kind)| *kind == Kind::Slow) {
                let _closed = stream.write_all(&[1]);
            }
        }
        thread::sleep(TURN);
    }
    Ok(opened)
}

fn send_datagrams(targets: &[SocketAddr], rates: Rates) -> Result<u32> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind a socket")?;
    socket.set_nonblocking(true).context("cannot have a socket that does not wait")?;
    let datagrams = [vec![0xa5; 1200], packet(3), packet(1), vec![0x4c; 30], packet(5), vec![]];
    let start = Instant::now();
    let mut sent = 0;
    while sent < rates.datagrams {
        while sent < rates.due(rates.datagrams, start.elapsed()) {
            let target = targets[sent as usize % targets.len()];
            // What a full queue does not take was sent all the same.
            let _lost = socket.send_to(&datagrams[sent as usize / targets.len() % datagrams.len()], target);
            sent += 1;
        }
        thread::sleep(TURN);
    }
    Ok(sent)
}

/// A sound header of this kind, of worker 0 in job 1, with ten entries: all of it is public.
fn packet(kind: u8) -> Vec<u8> {
    let mut packet = vec![0x4c, kind, 0, 10, 0, 1, 0, 0, 0, 1, 0, 1, 0, 2, 0, 0];
    packet.resize(30, 0);
    for cell in 0..10_u16 {
        packet.extend_from_slice(&cell.to_be_bytes());
        packet.extend_from_slice(&1_u32.to_be_bytes());
    }
    packet
}

/// Lets this process have so many files open.
pub(super) fn raise_limit(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < files) {
        bail!("{files} streams need as many file descriptors, and `ulimit -Hn` allows {:?}", limit.maximum);
    }
    let raised = rustix::process::Rlimit { current: Some(files), ..limit };
    setrlimit(Resource::Nofile, raised).context("cannot raise the number of file descriptors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_due_at_the_end_and_half_of_it_halfway() {
        let rates = Rates { streams: 10, datagrams: 1_000_000, length: Duration::from_secs(10) };
        let due = |all, seconds| rates.due(all, Duration::from_secs(seconds));
        assert_eq!((due(10, 0), due(10, 5), due(1_000_000, 5)), (0, 5, 500_000));
        assert_eq!((due(10, 10), due(1_000_000, 99)), (10, 1_000_000));
    }
}
