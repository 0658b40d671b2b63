//! The end that waits for callers: a thread for datagrams, and one for each caller.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rand::TryRngCore;
use rand::rngs::OsRng;

use super::sessions::{SESSIONS_MAX, Sessions};
use super::wire::{self, Answer, FRAME_BYTES, Question};
use crate::snmp;
use crate::socket::ProbeSocket;

/// Streams that are read at the same time; others are closed as they come.
const STREAMS_MAX: usize = 2 * SESSIONS_MAX;
/// Time that a stream may be silent, and that it may take in all.
const SILENCE: Duration = Duration::from_secs(5);
const SESSION_MAX: Duration = Duration::from_secs(30);

/// Waits for doctors of other machines.
///
/// Strangers cost it little, and gain nothing: it has a bounded number of streams, each for a bounded time, never answers more bytes
/// than it was sent, and answers datagrams of open sessions alone, whose numbers cannot be guessed.
pub struct Listener {
    streams: TcpListener,
    datagrams: ProbeSocket,
    address: SocketAddr,
}

/// Happening at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerEvent {
    /// A doctor called, with this version of the messages.
    Called {
        /// Its address.
        from: SocketAddr,
        /// Its version.
        messages: u16,
    },
    /// Something else called, and was not answered.
    Stranger(SocketAddr),
}

type Shared = Arc<Mutex<Sessions>>;

impl Listener {
    /// Binds a stream and a datagram socket to one port.
    ///
    /// # Errors
    /// The system refuses one of them.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let streams = TcpListener::bind(address)?;
        let address = streams.local_addr()?;
        Ok(Self { datagrams: ProbeSocket::bind(address)?, streams, address })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers callers until the process ends, and tells of each.
    ///
    /// # Errors
    /// A socket fails.
    pub fn run(self, tell: impl Fn(ListenerEvent) + Send + Sync + 'static) -> io::Result<()> {
        let Self { streams, datagrams, .. } = self;
        let (sessions, tell) = (Shared::default(), Arc::new(tell));
        let of_datagrams = Arc::clone(&sessions);
        thread::spawn(move || return_probes(datagrams, &of_datagrams));
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let Ok((stream, from)) = streams.accept() else {
                // It is an error of the one caller, or a want of descriptors.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            if open.fetch_add(1, Ordering::Relaxed) >= STREAMS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (sessions, tell, open) = (Arc::clone(&sessions), Arc::clone(&tell), Arc::clone(&open));
            thread::spawn(move || {
                if let Err(event) = serve(stream, from, &sessions, &*tell) {
                    tell(event);
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

fn lock(sessions: &Shared) -> MutexGuard<'_, Sessions> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

fn return_probes(mut socket: ProbeSocket, sessions: &Shared) {
    loop {
        let far = Instant::now() + Duration::from_secs(3600);
        let (mut answers, mut ends) = (Vec::new(), None);
        let received = socket.wait(far).and_then(|_| {
            socket.receive(|of, bytes, stride| {
                let (now, mut sessions) = (Instant::now(), lock(sessions));
                let probes = bytes.chunks_mut(stride.max(1));
                answers.extend(
                    probes.filter_map(|probe| sessions.datagram(now, of.from, probe).then(|| probe.to_vec())),
                );
                ends = Some(of);
            })
        });
        if received.is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        for answer in answers {
            if let Some(ends) = ends {
                // One that does not fit, or finds no room, is lost as on the way.
                drop(socket.answer(ends, &answer));
            }
        }
    }
}

/// Answers a caller. An error is a stranger.
fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    sessions: &Shared,
    tell: &(impl Fn(ListenerEvent) + ?Sized),
) -> Result<(), ListenerEvent> {
    let until = Instant::now() + SESSION_MAX;
    let stranger = ListenerEvent::Stranger(from);
    // A caller that reads nothing does not block it for ever.
    stream.set_write_timeout(Some(SILENCE)).map_err(|_| stranger)?;
    let first = read_frame(&mut stream, until).ok_or(stranger)?;
    let head = wire::head(&first).ok_or(stranger)?;
    tell(ListenerEvent::Called { from, messages: head.messages });
    let session = OsRng.try_next_u64().map_err(|_| stranger)?;
    let answer = match wire::content(&first) {
        Some(Question::Hello) => lock(sessions).open(session, from, snmp::checksum_errors()),
        // It finds by the head of the answer that the formats differ.
        _ => Answer::Busy,
    };
    let mut written = stream.write_all(&wire::frame(&answer));
    while written.is_ok() && matches!(answer, Answer::Welcome { .. }) {
        let Some(question) = read_frame(&mut stream, until).and_then(|frame| wire::content(&frame)) else {
            break;
        };
        let Some(answer) = lock(sessions).answer(session, question, snmp::checksum_errors()) else { break };
        written = stream.write_all(&wire::frame(&answer));
    }
    if matches!(answer, Answer::Welcome { .. }) {
        lock(sessions).close(session);
    }
    Ok(())
}

fn read_frame(stream: &mut TcpStream, until: Instant) -> Option<[u8; FRAME_BYTES]> {
    let (mut frame, mut filled) = ([0; FRAME_BYTES], 0);
    while filled < FRAME_BYTES {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left.min(SILENCE))).ok()?;
        match stream.read(&mut frame[filled..]) {
            Ok(0) => return None,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(frame)
}
