//! The listening end of streams for threads that wait: a peer gets past when it has shown that it is of the cluster (rule S6).
//!
//! As at the door of a role (`crate::door`), one thread looks at all streams of strangers, and there are few of them.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use tokio_rustls::rustls::{Connection, ServerConnection};

use super::{BlockingStream, Within, send};
use crate::door::{FIRST_MESSAGE_MAX, WAITING_MAX};
use crate::security::Security;

/// A stream that has come to a door.
#[derive(Debug)]
pub enum Arrival {
    /// Its other end is of the cluster, or may be any process where nothing is protected.
    Identified(BlockingStream, SocketAddr),
    /// It was closed.
    Stranger {
        /// Its other end.
        remote: SocketAddr,
        /// The reason, in words for a person.
        reason: String,
    },
}

/// Accepts streams, and identifies their other ends.
#[derive(Debug)]
pub struct BlockingDoor {
    listener: TcpListener,
    security: Security,
    /// The oldest first, so that its time is over first.
    waiting: VecDeque<Waiting>,
}

/// A stream whose other end has not shown yet what it is.
#[derive(Debug)]
struct Waiting {
    socket: TcpStream,
    session: Connection,
    remote: SocketAddr,
    until: Instant,
}

impl BlockingDoor {
    /// Opens a door. From now on nothing but the door may accept, and a listener that is shut down ends it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(listener: TcpListener, security: Security) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, security, waiting: VecDeque::new() })
    }

    /// Waits for the next stream.
    ///
    /// # Errors
    /// The system refuses to accept: out of descriptors, as a rule, or the listener is shut down.
    pub fn arrival(&mut self) -> io::Result<Arrival> {
        loop {
            let now = Instant::now();
            if self.waiting.front().is_some_and(|oldest| oldest.until <= now) {
                return Ok(self.turn_away(0, Within::too_late().to_string()));
            }
            let ready = self.poll(now)?;
            for place in ready {
                if let Some(arrival) = self.look(place) {
                    return Ok(arrival);
                }
            }
            if let Some(arrival) = self.accept()? {
                return Ok(arrival);
            }
        }
    }

    /// Waits until there is something to do, and returns which streams have something to read.
    fn poll(&self, now: Instant) -> io::Result<Vec<usize>> {
        let wanted = |waiting: &Waiting| {
            if waiting.session.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
        };
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(self.waiting.iter().map(|waiting| PollFd::new(&waiting.socket, wanted(waiting))));
        let left = self.waiting.front().map(|oldest| oldest.until.saturating_duration_since(now));
        let left = left.map(|left| Timespec::try_from(left).expect("a few seconds"));
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = polled[1..].iter().enumerate().filter(|(_, polled)| !polled.revents().is_empty());
        Ok(ready.map(|(place, _)| place).collect())
    }

    fn accept(&mut self) -> io::Result<Option<Arrival>> {
        let (socket, remote) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(configuration) = self.security.server() else {
            return Ok(Some(Arrival::Identified(BlockingStream::new(socket, None), remote)));
        };
        socket.set_nonblocking(true)?;
        let session = ServerConnection::new(configuration).map_err(io::Error::other)?;
        let until = Instant::now() + FIRST_MESSAGE_MAX;
        self.waiting.push_back(Waiting { socket, session: session.into(), remote, until });
        Ok(if self.waiting.len() > WAITING_MAX { self.make_room() } else { None })
    }

    /// Goes on with a handshake.
    fn look(&mut self, place: usize) -> Option<Arrival> {
        let Waiting { socket, session, .. } = &mut self.waiting[place];
        let mut socket = Unwaiting(socket);
        while session.is_handshaking() || session.wants_write() {
            match session.complete_io(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => {
                    let reason = self.security.refusal(&error).to_string();
                    return Some(self.turn_away(place, reason));
                }
            }
        }
        let Waiting { socket, session, remote, .. } = self.waiting.remove(place)?;
        Some(match socket.set_nonblocking(false) {
            Ok(()) => Arrival::Identified(BlockingStream::new(socket, Some(session)), remote),
            Err(error) => Arrival::Stranger { remote, reason: error.to_string() },
        })
    }

    /// The oldest goes of the address that has the most: so a peer that opens many displaces its own.
    fn make_room(&mut self) -> Option<Arrival> {
        let mut of_address = BTreeMap::<IpAddr, usize>::new();
        for waiting in &self.waiting {
            *of_address.entry(waiting.remote.ip()).or_default() += 1;
        }
        let most = of_address.values().copied().max()?;
        let place = self.waiting.iter().position(|waiting| of_address[&waiting.remote.ip()] == most)?;
        // It may have something to read since the last look.
        let arrival = self.look(place);
        arrival.or_else(|| Some(self.turn_away(place, "it was silent while others came".to_owned())))
    }

    fn turn_away(&mut self, place: usize, reason: String) -> Arrival {
        let waiting = self.waiting.remove(place).expect("it waits");
        Arrival::Stranger { remote: waiting.remote, reason }
    }
}

/// A socket that does not wait.
struct Unwaiting<'a>(&'a TcpStream);

impl Read for Unwaiting<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Unwaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self.0, slices, SendFlags::empty())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
