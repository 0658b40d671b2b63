//! The hot path's socket: UDP, with runs of datagrams handed to and taken from the kernel in one piece (GSO and GRO).

use core::time::Duration;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use libra_proto::turn::{RECEIVED_RUNS_MAX, RUN_DATAGRAMS_MAX};
use libra_proto::{DatagramRun, Instant, Outgoing, is_length_probe, packet_header_bytes};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::debug;

use crate::faults::Faults;
use crate::watch::watch;

const RECEIVE_BYTES: usize = 65_535;
/// Bytes that the kernel is asked to queue for us: the most that unprivileged processes get on common systems.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Bytes of incoming datagrams that it is asked to queue if we may have more (CAP_NET_ADMIN): bursts of many workers at once.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;

const TOO_LONG: &str = "give the controller (or `libra train`) a smaller --mtu";
/// Time from the first datagram in which a router's word that packets are too long for its link ends the job. Later, when packets
/// have passed, it may as well be a forgery.
const PATH_WATCH: Duration = Duration::from_secs(10);
/// Sends that fail for what routers said of earlier ones, one after the other.
const REPORTED_MAX: usize = 8;

/// A UDP socket that moves bursts.
pub(crate) struct DatagramSocket {
    /// Watched for incoming datagrams only: a task that also waits to write is woken by each datagram that has left.
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// True if runs may have [`RUN_DATAGRAMS_MAX`]; before Linux 6.10 it is half as many, as quinn-udp says.
    takes_long_runs: bool,
    receive: [Vec<u8>; RECEIVED_RUNS_MAX],
    faults: Option<Faults>,
    path: PathReports,
}

/// What routers say of the datagrams of a socket (ICMP).
#[derive(Debug, Default)]
struct PathReports {
    /// Time from which they are no longer believed; none before the first datagram.
    until: Option<Instant>,
    /// A link that is too narrow, and the router before it.
    narrow: Option<(Option<IpAddr>, u32)>,
    /// Bytes of the longest IP packet that must come through. A probe of the length of a path need not: its sender learns what does.
    needed: u32,
}

impl PathReports {
    /// Takes all that wait; returns true if there were any. The kernel fails a call for each, whatever that call is about.
    fn take(&mut self, state: &UdpSocketState, socket: &UdpSocket) -> bool {
        let mut any = false;
        while let Ok(Some(report)) = state.recv_transport_error(UdpSockRef::from(socket)) {
            any = true;
            debug!(router = ?report.addr, mtu = report.mtu(), "a router reports on a datagram");
            self.narrow =
                report.mtu().map(|mtu| (report.addr.map(|router| router.ip()), mtu)).or(self.narrow);
        }
        any
    }

    /// A run is about to be sent, whose longest datagram is this one.
    fn note(&mut self, to: SocketAddr, datagram: &[u8]) {
        let bytes = usize::from(packet_header_bytes(to)) + datagram.len();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes > self.needed && !is_length_probe(datagram) {
            self.needed = bytes;
        }
    }

    /// Returns the error of a path that is too narrow for packets of the hot path.
    fn check(&mut self, now: Instant) -> io::Result<()> {
        let until = *self.until.get_or_insert(now + PATH_WATCH);
        match self.narrow.take() {
            Some((router, mtu)) if now < until && mtu < self.needed => {
                let router = router.map_or_else(|| "a router".to_owned(), |router| router.to_string());
                let text = format!(
                    "{router} lets {mtu} bytes through: give the controller (or `libra train`) --mtu {mtu}"
                );
                Err(io::Error::new(ErrorKind::InvalidInput, text))
            }
            _ => Ok(()),
        }
    }
}

impl DatagramSocket {
    /// Binds a socket. Must be called inside a runtime.
    pub(crate) fn bind(address: SocketAddr, faults: Option<Faults>) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        ask_for_room(&socket)?;
        socket2::SockRef::from(&socket).set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Without that, a narrow link on the way takes packets without a trace.
        state.enable_transport_errors(UdpSockRef::from(&socket))?;
        let receive = core::array::from_fn(|_| vec![0; RECEIVE_BYTES]);
        let socket = watch(socket, Interest::READABLE)?;
        let takes_long_runs = takes_long_runs();
        debug!(
            %address,
            receive_bytes = receive_bytes(socket.get_ref())?,
            datagrams_sent_at_once = state.max_gso_segments(),
            datagrams_received_at_once = state.gro_segments(),
            takes_long_runs,
            "a socket for datagrams is bound"
        );
        Ok(Self { socket, state, takes_long_runs, receive, faults, path: PathReports::default() })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    /// Returns the number by which the kernel lists this socket.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(self.socket.get_ref())?.st_ino)
    }

    /// Returns the number of bytes that the kernel queues for this socket.
    pub(crate) fn receive_bytes(&self) -> io::Result<u32> {
        receive_bytes(self.socket.get_ref())
    }

    /// Returns what this kernel cannot do, in words; none if it moves bursts both ways.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        match (self.state.max_gso_segments() > 1, self.state.gro_segments() > 1) {
            (true, true) => None,
            (true, false) => {
                Some("this kernel does not merge what is received (UDP_GRO): each packet costs a call")
            }
            (false, true) => {
                Some("this kernel does not split what is sent (UDP_SEGMENT): each packet costs a call")
            }
            (false, false) => {
                Some("this kernel has neither UDP_SEGMENT nor UDP_GRO: each packet costs a call")
            }
        }
    }

    /// Waits until there is something to receive.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await.map(drop)
    }

    /// Hands what has arrived to `take`: sender, datagrams one behind the other, length of each but the last. Datagrams of one sender come
    /// in the order of their arrival.
    /// Returns whether there was anything.
    pub(crate) fn receive(&mut self, take: impl FnMut(SocketAddr, &mut [u8], usize)) -> io::Result<bool> {
        self.receive_by(take, |socket, receive| {
            let mut count = 0;
            let tried = socket.try_io(Interest::READABLE, |_| {
                count = receive()?;
                // Fewer than one call can take are all that there was: the runtime need not find that out by a call of its own.
                if count < RECEIVED_RUNS_MAX.min(BATCH_SIZE) {
                    Err(ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            });
            match tried {
                Err(error) if count == 0 => Err(error),
                _ => Ok(count),
            }
        })
    }

    /// The same, without waiting for readiness: the runtime may not have looked for a while.
    pub(crate) fn receive_unasked(
        &mut self,
        take: impl FnMut(SocketAddr, &mut [u8], usize),
    ) -> io::Result<bool> {
        self.receive_by(take, |_, receive| receive())
    }

    fn receive_by(
        &mut self,
        mut take: impl FnMut(SocketAddr, &mut [u8], usize),
        call: impl FnOnce(&AsyncFd<UdpSocket>, &mut dyn FnMut() -> io::Result<usize>) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let Self { socket, state, receive, path, .. } = self;
        let mut metas = [RecvMeta::default(); RECEIVED_RUNS_MAX];
        let mut slices = receive.each_mut().map(|buffer| IoSliceMut::new(buffer));
        let received =
            call(socket, &mut || state.recv(UdpSockRef::from(socket.get_ref()), &mut slices, &mut metas));
        let count = match received {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(false);
            }
            // A peer that is gone shows as an error here; its datagrams are lost like any others. What a router says of datagrams that were
            // sent is told by the next call to send.
            Err(error) if path.take(state, socket.get_ref()) || is_passing(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        // Runs of one sender are taken one behind the other: the answers to them leave in one call.
        let mut order: [usize; RECEIVED_RUNS_MAX] = core::array::from_fn(|place| place);
        let order = &mut order[..count];
        order.sort_by_key(|place| metas[*place].addr);
        for &mut place in order {
            let meta = &metas[place];
            take(meta.addr, &mut receive[place][..meta.len], meta.stride);
        }
        Ok(count > 0)
    }

    /// Sends everything in `outgoing`, through the faults if there are any, and empties it.
    pub(crate) async fn send(&mut self, now: Instant, outgoing: &mut Outgoing) -> io::Result<()> {
        if let Some(faults) = &mut self.faults {
            faults.apply(now, outgoing);
        }
        self.path.check(now)?;
        let sent = self.send_runs(outgoing).await;
        outgoing.clear();
        sent.and_then(|()| self.path.check(now))
    }

    /// Sends datagrams in runs to one destination, of one length but for the last of a run.
    async fn send_runs(&mut self, outgoing: &Outgoing) -> io::Result<()> {
        let (mut start, mut reported) = (0, 0);
        while let Some(run) = outgoing.run_at(start, self.run_datagrams_max()) {
            let DatagramRun { to: destination, bytes: contents, stride: segment, end } = run;
            let longest = &contents[..segment.min(contents.len())];
            self.path.note(destination, longest);
            let transmit =
                Transmit { destination, ecn: None, contents, segment_size: Some(segment), src_ip: None };
            loop {
                let Self { socket, state, path, .. } = &mut *self;
                match state.try_send(UdpSockRef::from(socket.get_ref()), &transmit) {
                    Ok(()) => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable().await?,
                    // It is about something that was sent before.
                    Err(_) if reported < REPORTED_MAX && path.take(state, socket.get_ref()) => reported += 1,
                    // It will not fit, even if it is sent again.
                    Err(error)
                        if error.raw_os_error() == Some(libc::EMSGSIZE) && !is_length_probe(longest) =>
                    {
                        let text = format!(
                            "packets of {segment} bytes do not fit the MTU towards {destination}: {TOO_LONG}"
                        );
                        return Err(io::Error::new(error.kind(), text));
                    }
                    // A datagram that cannot be sent now counts as lost on the way: the transport sends it again.
                    Err(_) => break,
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Waits until the kernel takes more: seldom, and so a copy of the descriptor is watched for as long as that takes.
    async fn writable(&self) -> io::Result<()> {
        let socket = watch(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?;
        socket.writable().await.map(drop)
    }

    /// Returns the number of datagrams that the kernel takes in one call. One, once it has refused a run.
    fn run_datagrams_max(&self) -> usize {
        match self.state.max_gso_segments() {
            0 | 1 => 1,
            _ if self.takes_long_runs => RUN_DATAGRAMS_MAX,
            segments => segments,
        }
    }

    /// When [`send`](Self::send) must be called though there is nothing new to send.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.faults.as_ref().and_then(Faults::poll_timeout)
    }
}

/// Receive buffer of a socket for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Bytes that the kernel queues.
    pub bytes: u32,
    /// True if it is as large as a switch wants it, whatever `net.core.rmem_max` is (CAP_NET_ADMIN).
    pub is_forced: bool,
}

impl ReceiveBuffer {
    /// Returns what a member that was started here and now would get.
    ///
    /// # Errors
    /// The machine has no socket.
    pub fn granted() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let is_forced = ask_for_room(&socket)?;
        Ok(Self { bytes: receive_bytes(&socket)?, is_forced })
    }
}

/// Asks for a large receive buffer. Returns whether the limit for all was passed.
fn ask_for_room(socket: &UdpSocket) -> io::Result<bool> {
    let is_forced = set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES).is_ok();
    if !is_forced {
        socket2::SockRef::from(socket).set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    }
    Ok(is_forced)
}

fn receive_bytes(socket: &UdpSocket) -> io::Result<u32> {
    let bytes = socket2::SockRef::from(socket).recv_buffer_size()?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
}

/// Asks the kernel by sending a run to the socket that sends it, one of its own: a socket whose run was refused sends no more of them.
fn takes_long_runs() -> bool {
    let ask = || -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let destination = socket.local_addr()?;
        let contents = &[0; RUN_DATAGRAMS_MAX];
        let transmit = Transmit { destination, ecn: None, contents, segment_size: Some(1), src_ip: None };
        state.try_send(UdpSockRef::from(&socket), &transmit)
    };
    ask().is_ok()
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use libra_dataplane::{Header, Kind, packet_bytes};

    use super::*;

    /// The datagrams `numbers`, as they arrive in runs. The first two bytes of each are its number.
    async fn arrive(socket: &mut DatagramSocket, numbers: Range<u16>) -> Vec<usize> {
        let (mut next, mut runs) = (numbers.start, Vec::new());
        while next < numbers.end {
            socket.readable().await.unwrap();
            socket
                .receive(|_, datagrams, stride| {
                    let count = datagrams.chunks(stride).len();
                    for datagram in datagrams.chunks(stride) {
                        assert_eq!(datagram[..2], next.to_be_bytes());
                        next += 1;
                    }
                    runs.push(count);
                })
                .unwrap();
        }
        runs
    }

    #[tokio::test]
    async fn a_burst_arrives_in_order_in_runs_of_the_length_of_the_kernel() {
        let bind = || DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let (mut from, mut to) = (bind(), bind());
        let destination = to.local_address().unwrap();
        for known_long in [from.takes_long_runs, false] {
            from.takes_long_runs = known_long;
            let mut outgoing = Outgoing::default();
            // Runs end where a length ends, and with a datagram that is shorter.
            for number in 0..300_u16 {
                let bytes = if number < 200 { 100 } else { 80 - usize::from(number % 50 == 0) };
                let mut datagram = [0; 100];
                datagram[..2].copy_from_slice(&number.to_be_bytes());
                outgoing.push(destination, &datagram[..bytes]);
            }
            from.send(Instant::ZERO, &mut outgoing).await.unwrap();
            assert!(outgoing.is_empty());
            let runs = arrive(&mut to, 0..300).await;
            assert!(runs.iter().max() <= Some(&from.run_datagrams_max()), "{runs:?}");
            if from.lacks().is_none() {
                assert_eq!(runs[0], from.run_datagrams_max(), "{runs:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_send_that_finds_no_room_goes_on_when_there_is() {
        let bind = || DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let (mut from, mut to) = (bind(), bind());
        socket2::SockRef::from(from.socket.get_ref()).set_send_buffer_size(100_000).unwrap();
        let mut outgoing = Outgoing::default();
        for number in 0..3000_u16 {
            let mut datagram = [0; 1000];
            datagram[..2].copy_from_slice(&number.to_be_bytes());
            outgoing.push(to.local_address().unwrap(), &datagram);
        }
        let reads = async {
            // Nothing is read before the kernel takes no more.
            tokio::task::yield_now().await;
            arrive(&mut to, 0..3000).await
        };
        let (sent, _runs) = tokio::join!(from.send(Instant::ZERO, &mut outgoing), reads);
        sent.unwrap();
    }

    #[test]
    fn a_narrow_link_is_told_with_the_mtu_that_fits() {
        let narrow = Some((Some(IpAddr::from([10, 0, 3, 7])), 1400));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut path = PathReports { until: None, narrow, needed: 1500 };
        let error = path.check(at(100)).unwrap_err().to_string();
        assert!(
            error.starts_with("10.0.3.7 lets 1400 bytes through") && error.ends_with("--mtu 1400"),
            "{error}"
        );
        assert!(path.check(at(101)).is_ok(), "it is told once");
        path.narrow = narrow;
        assert!(path.check(at(110)).is_ok(), "packets have passed by then");
    }

    // rule T19
    #[test]
    fn a_probe_that_is_too_long_is_no_error() {
        let destination = SocketAddr::from(([10, 0, 3, 7], 4000));
        let packet = |seq, entries| {
            let mut bytes = vec![0; packet_bytes(entries)];
            Header { seq, entries, ..Header::of_kind(Kind::Pull) }.emit(&mut bytes);
            bytes
        };
        let mut path = PathReports { narrow: Some((None, 1400)), ..PathReports::default() };
        path.note(destination, &packet(1 << 31, 240));
        assert!(path.check(Instant::ZERO).is_ok());
        path.narrow = Some((None, 1400));
        path.note(destination, &packet(1 << 30, 223));
        assert!(path.check(Instant::ZERO).is_ok(), "packets are shorter");
        path.narrow = Some((None, 1400));
        path.note(destination, &packet(1 << 30, 224));
        assert!(path.check(Instant::ZERO).is_err());
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_costs_others_no_datagram() {
        let bind = || DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let (mut from, mut to) = (bind(), bind());
        let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let mut outgoing = Outgoing::default();
        for number in 0..20_u16 {
            // That nothing listens there is told by the next call.
            for destination in [gone, to.local_address().unwrap()] {
                outgoing.push(destination, &number.to_be_bytes());
                from.send(Instant::ZERO, &mut outgoing).await.unwrap();
            }
        }
        arrive(&mut to, 0..20).await;
        assert!(from.receive_unasked(|_, _, _| ()).is_ok());
    }

    #[tokio::test]
    async fn sent_datagrams_wake_no_task() {
        let mut socket = DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut outgoing = Outgoing::default();
        outgoing.push(peer.local_addr().unwrap(), &[0; 100]);
        socket.send(Instant::ZERO, &mut outgoing).await.unwrap();
        let wait = Duration::from_millis(20);
        assert!(tokio::time::timeout(wait, socket.socket.writable()).await.is_err());
    }
}
