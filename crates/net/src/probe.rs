//! Time that loop, sockets and kernel take of the threads of two roles that only send to each other, on loopback.
//!
//! One asks, the other answers everything with as little as there is. Each runs in the loop in which roles run, so the measured time is
//! what roles pay beside their own computation. A [`ProbeNode`] is a loop with sockets for a role of the caller's: one that answers a
//! member which is measured alone.

use core::hint::spin_loop;
use core::net::{Ipv4Addr, SocketAddr};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::thread;

use libra_proto::{Action, Callee, Instant, Link, LinkEvent, Message, Outgoing, Role};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::datagrams::DatagramSocket;
use crate::door::{Callers, Entrance};
use crate::driver::{Ports, drive};
use crate::links::Links;
use crate::node::{NodeError, NodeOptions, bind_datagrams, listen, runtime};
use crate::sched::set_sched_idle;
use crate::security::Security;

/// A role that receives nothing for so long is done, or has lost something.
const SILENCE: Duration = Duration::from_millis(300);
/// Exchanges before those that are measured.
const WARM_UP: u64 = 50;

/// Kinds of exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams in runs: how many in each, and bytes of each.
    Datagrams(usize, usize),
    /// Messages of so many bytes.
    Messages(usize),
}

/// Counters and times of one of the two threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadStats {
    /// Processor time, user and system.
    pub cpu_ns: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Number of sleeps.
    pub sleeps: u64,
    /// Runs of datagrams and their bytes, or messages and theirs, that came.
    pub rx: u64,
    /// See above.
    pub rx_bytes: u64,
    /// Runs or messages that left.
    pub tx: u64,
    /// See above.
    pub tx_bytes: u64,
}

/// Result of an exchange.
#[derive(Debug, Clone, Default)]
pub struct Exchanged {
    /// The thread that asks.
    pub asks: ThreadStats,
    /// The thread that answers.
    pub answers: ThreadStats,
    /// From asking to the answer, in nanoseconds, in no order.
    pub round_trips: Vec<u64>,
}

/// Asks so many times, with up to `window` questions under way. With `apart` each of the two threads has a core of its own, if there are two;
/// else the system may put both on one, as it likes to do with threads that take turns.
///
/// # Errors
/// The system refused something, or answers did not come.
pub fn exchange(kind: Kind, window: usize, rounds: u64, apart: bool) -> io::Result<Exchanged> {
    let cores = if apart { own_cores()? } else { [None; 2] };
    let (address, bound) = std::sync::mpsc::channel();
    let of_thread = |core: Option<CpuSet>, peer, bound| {
        thread::spawn(move || {
            core.map_or(Ok(()), |core| sched_setaffinity(None, &core))?;
            run(kind, peer, bound, (window, rounds))
        })
    };
    let answers = of_thread(cores[0], None, Some(address));
    let gone = |_| io::Error::other("a thread that exchanges is gone");
    let peer = bound.recv().map_err(|_| io::Error::other("the thread that answers is gone"))?;
    let asks = of_thread(cores[1], Some(peer), None);
    let (asks, round_trips) = asks.join().map_err(gone)??;
    let (answers, _) = answers.join().map_err(gone)??;
    Ok(Exchanged { asks, answers, round_trips })
}

/// Keeps every core from sleeping, with threads that any other thread preempts at once (`SCHED_IDLE`, see sched(7)).
#[derive(Debug)]
pub struct NoIdle {
    ended: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl NoIdle {
    /// From now on, until it is dropped.
    #[must_use]
    pub fn new() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let spin = |ended: Arc<AtomicBool>| {
            set_sched_idle();
            while !ended.load(Ordering::Relaxed) {
                spin_loop();
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cores).map(|_| Arc::clone(&ended)).map(|ended| thread::spawn(move || spin(ended)));
        Self { threads: threads.collect(), ended }
    }
}

impl Default for NoIdle {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for NoIdle {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A loop with a socket for datagrams and one for streams, on loopback.
pub struct ProbeNode {
    runtime: Runtime,
    listener: TcpListener,
    socket: DatagramSocket,
    streams: SocketAddr,
    datagrams: SocketAddr,
}

impl ProbeNode {
    /// Binds both to any free port.
    ///
    /// # Errors
    /// The system refused an address.
    pub fn bind() -> Result<Self, NodeError> {
        let runtime = runtime()?;
        let (listener, streams) = listen(&runtime, (Ipv4Addr::LOCALHOST, 0).into())?;
        let (socket, datagrams) = bind_datagrams(&runtime, &NodeOptions::new(streams), None)?;
        Ok(Self { runtime, listener, socket, streams, datagrams })
    }

    /// Returns the address at which it accepts streams.
    #[must_use]
    pub fn streams(&self) -> SocketAddr {
        self.streams
    }

    /// Returns the address at which it takes datagrams.
    #[must_use]
    pub fn datagrams(&self) -> SocketAddr {
        self.datagrams
    }

    /// Drives a role until its first event, and returns that.
    ///
    /// # Errors
    /// The sockets failed.
    pub fn run<R: Role>(self, role: R) -> io::Result<R::Event> {
        let (_commands, none) = mpsc::unbounded_channel();
        let links = Links::new(Duration::from_secs(1));
        let ports = Ports {
            entrance: Some(Entrance::Listener(self.listener, Callers::Unidentified, Security::NONE)),
            datagrams: Some(self.socket),
            ..Ports::new(links)
        };
        self.runtime.block_on(drive(role, ports, none, ControlFlow::Break))
    }
}

/// Two of the cores that this thread may run on; none if there are not two.
fn own_cores() -> io::Result<[Option<CpuSet>; 2]> {
    let all = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).map(|core| {
        let mut one = CpuSet::new();
        one.set(core);
        one
    });
    Ok(match (cores.next(), cores.next()) {
        (Some(one), Some(other)) => [Some(one), Some(other)],
        _ => [None; 2],
    })
}

fn run(
    kind: Kind,
    peer: Option<SocketAddr>,
    bound: Option<std::sync::mpsc::Sender<SocketAddr>>,
    (window, rounds): (usize, u64),
) -> io::Result<(ThreadStats, Vec<u64>)> {
    let runtime = runtime().map_err(io::Error::other)?;
    runtime.block_on(async {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut ports = Ports::new(Links::new(Duration::from_secs(1)));
        let own = if let Kind::Datagrams(..) = kind {
            let socket = DatagramSocket::bind(any, None)?;
            let own = socket.local_address()?;
            ports.datagrams = Some(socket);
            own
        } else {
            let listener = TcpListener::bind(any).await?;
            let own = listener.local_addr()?;
            ports.entrance = Some(Entrance::Listener(listener, Callers::Unidentified, Security::NONE));
            own
        };
        if let Some(bound) = bound {
            let _ = bound.send(own);
        }
        let role = Probe::new(kind, peer, window, rounds);
        let (_commands, none) = mpsc::unbounded_channel();
        drive(role, ports, none, ControlFlow::Break).await?
    })
}

/// The role of either thread.
struct Probe {
    kind: Kind,
    /// Address that it asks; none if it answers.
    peer: Option<SocketAddr>,
    window: usize,
    rounds: u64,
    link: Option<Link>,
    /// Destinations of answers or questions to send.
    owed: Vec<SocketAddr>,
    owed_messages: u64,
    /// When the questions under way were asked.
    asked: std::collections::VecDeque<Instant>,
    done: u64,
    stats: ThreadStats,
    began: Option<(u64, u64)>,
    drained: bool,
    heard_at: Instant,
    trips: Vec<u64>,
    end: Option<io::Result<(ThreadStats, Vec<u64>)>>,
    actions: Vec<Action>,
    payload: Vec<u8>,
}

impl Probe {
    fn new(kind: Kind, peer: Option<SocketAddr>, window: usize, rounds: u64) -> Self {
        let bytes = match kind {
            Kind::Datagrams(_, bytes) | Kind::Messages(bytes) => bytes,
        };
        Self {
            kind,
            peer,
            window,
            rounds,
            link: None,
            owed: Vec::new(),
            owed_messages: 0,
            asked: std::collections::VecDeque::new(),
            done: 0,
            stats: ThreadStats::default(),
            began: None,
            drained: false,
            heard_at: Instant::ZERO,
            trips: Vec::new(),
            end: None,
            actions: Vec::new(),
            payload: vec![b'x'; bytes],
        }
    }

    fn is_measured(&self) -> bool {
        self.began.is_some()
    }

    /// A question or an answer came.
    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.done += 1;
        if self.done == WARM_UP {
            self.began = used();
            self.stats = ThreadStats::default();
        } else if self.is_measured()
            && let Some(asked) = self.asked.front()
        {
            self.trips.push(u64::try_from(now.since(*asked).as_nanos()).unwrap_or(u64::MAX));
        }
        if self.peer.is_some() {
            self.asked.pop_front();
        }
        if self.done == self.rounds {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.end.is_some() {
            return; // The other end is done, too, and has closed the stream.
        }
        let (Some((cpu, sleeps)), Some((cpu_now, sleeps_now))) = (self.began, used()) else {
            self.end = Some(Err(io::Error::other("nothing was exchanged")));
            return;
        };
        self.stats.cpu_ns = cpu_now.saturating_sub(cpu);
        self.stats.sleeps = sleeps_now.saturating_sub(sleeps);
        self.end = Some(Ok((self.stats, core::mem::take(&mut self.trips))));
    }

    /// Asks as often as the window lets it.
    fn ask(&mut self, now: Instant) -> usize {
        let all = self.rounds.saturating_sub(self.done);
        let room = self.window.min(usize::try_from(all).unwrap_or(usize::MAX));
        let more = room.saturating_sub(self.asked.len());
        self.asked.extend(core::iter::repeat_n(now, more));
        more
    }

    /// Counts a turn once: a driver without a socket asks for no datagrams, and first for actions.
    fn count_turn(&mut self) {
        if !core::mem::replace(&mut self.drained, true) {
            self.stats.turns += 1;
        }
    }

    fn count_came(&mut self, bytes: usize) {
        self.stats.rx += 1;
        self.stats.rx_bytes += bytes as u64;
    }

    fn count_left(&mut self, bytes: usize) {
        if self.is_measured() {
            self.stats.tx += 1;
            self.stats.tx_bytes += bytes as u64;
        }
    }
}

/// Processor time of this thread, and how often it has slept.
fn used() -> Option<(u64, u64)> {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let cpu = u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some((cpu, sleeps.trim().parse().ok()?))
}

impl Role for Probe {
    type Command = ();
    type Event = io::Result<(ThreadStats, Vec<u64>)>;
    type Status = ();

    fn handle_start(&mut self, now: Instant) {
        self.heard_at = now + Duration::from_secs(2);
        if let (Kind::Messages(_), Some(address)) = (self.kind, self.peer) {
            self.actions.push(Action::Connect { link: Link(1), to: Callee::Server(address) });
        }
    }

    fn handle_datagrams(&mut self, now: Instant, from: SocketAddr, datagrams: &mut [u8], _stride: usize) {
        // The kernel may merge questions, and answers, which are of one byte.
        let Kind::Datagrams(packets, bytes) = self.kind else { return };
        let question = if self.peer.is_some() { 1 } else { packets * bytes };
        self.count_came(datagrams.len());
        for _ in 0..datagrams.len().div_ceil(question) {
            self.heard(now);
            if self.peer.is_none() {
                self.owed.push(from);
            }
        }
    }

    fn handle_link(&mut self, _now: Instant, link: Link, event: LinkEvent) {
        match event {
            LinkEvent::Opened { .. } => self.link = Some(link),
            LinkEvent::Closed { .. } | LinkEvent::Refused { .. } => self.finish(),
        }
    }

    fn handle_message(&mut self, now: Instant, _link: Link, message: Message) {
        let bytes = if let Message::Report { text, .. } = &message { text.len() } else { 2 };
        self.count_came(bytes);
        self.heard(now);
        self.owed_messages += u64::from(self.peer.is_none());
    }

    fn handle_socket_failure(&mut self, _now: Instant, reason: &str) {
        self.end = Some(Err(io::Error::other(reason.to_owned())));
    }

    fn handle_command(&mut self, _now: Instant, (): ()) {}

    fn handle_timeout(&mut self, _now: Instant) {
        self.finish();
    }

    fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        outgoing.clear();
        self.count_turn();
        let Kind::Datagrams(packets, bytes) = self.kind else { return };
        if let Some(peer) = self.peer {
            for _ in 0..self.ask(now) {
                (0..packets).for_each(|_| outgoing.push(peer, &self.payload));
                self.count_left(packets * bytes);
            }
        } else if !self.owed.is_empty() {
            // They leave in one piece.
            self.count_left(self.owed.len());
            for to in core::mem::take(&mut self.owed) {
                outgoing.push(to, &[0]);
            }
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.count_turn();
        if let Some(action) = self.actions.pop() {
            return Some(action);
        }
        let (Kind::Messages(bytes), Some(link)) = (self.kind, self.link) else { return None };
        if self.peer.is_some() {
            if self.asked.len() >= self.window || self.done + self.asked.len() as u64 >= self.rounds {
                return None;
            }
            self.asked.push_back(self.heard_at);
            self.count_left(bytes);
            let text = String::from_utf8_lossy(&self.payload).into_owned();
            let statistics = libra_proto::Statistics::Worker(libra_proto::WorkerStatistics::default());
            return Some(Action::Send { link, message: Message::Report { text, statistics } });
        }
        self.owed_messages = self.owed_messages.checked_sub(1)?;
        self.count_left(2);
        Some(Action::Send { link, message: Message::Barrier { number: 1 } })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.drained = false;
        self.end.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.heard_at + SILENCE)
    }

    fn status(&self, _now: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_threads_see_every_question_and_answer() {
        for kind in [Kind::Datagrams(1, 40), Kind::Datagrams(20, 1400), Kind::Messages(60_000)] {
            let exchanged = exchange(kind, 2, 150, kind == Kind::Datagrams(1, 40)).unwrap();
            let measured = 150 - WARM_UP;
            assert_eq!(exchanged.round_trips.len() as u64, measured, "{kind:?}");
            // A run that the kernel has merged counts once.
            assert!((measured / 2..=measured).contains(&exchanged.answers.rx), "{kind:?}");
            assert!(exchanged.asks.cpu_ns > 0 && exchanged.answers.turns > 0);
        }
    }
}
