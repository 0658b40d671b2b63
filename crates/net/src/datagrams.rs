//! The hot path's socket: UDP, with runs of datagrams handed to and taken from the kernel in one piece (GSO and GRO).

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use libra_proto::turn::{RECEIVED_RUNS_MAX, RUN_DATAGRAMS_MAX};
use libra_proto::{DatagramRun, Instant, Outgoing};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::faults::Faults;
use crate::watch::watch;

const RECEIVE_BYTES: usize = 65_535;
/// Bytes that the kernel is asked to queue for us: the most that unprivileged processes get on common systems.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Bytes of incoming datagrams that it is asked to queue if we may have more (CAP_NET_ADMIN): bursts of many workers at once.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;

const TOO_LONG: &str = "give the controller (or `libra train`) a smaller --mtu";

/// A UDP socket that moves bursts.
pub(crate) struct DatagramSocket {
    /// Watched for incoming datagrams only: a task that also waits to write is woken by each datagram that has left.
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// True if runs may have [`RUN_DATAGRAMS_MAX`]; before Linux 6.10 it is half as many, as quinn-udp says.
    takes_long_runs: bool,
    receive: [Vec<u8>; RECEIVED_RUNS_MAX],
    faults: Option<Faults>,
}

impl DatagramSocket {
    /// Binds a socket. Must be called inside a runtime.
    pub(crate) fn bind(address: SocketAddr, faults: Option<Faults>) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let options = socket2::SockRef::from(&socket);
        if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
            options.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
        }
        options.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let receive = core::array::from_fn(|_| vec![0; RECEIVE_BYTES]);
        let socket = watch(socket, Interest::READABLE)?;
        let takes_long_runs = takes_long_runs();
        Ok(Self { socket, state, takes_long_runs, receive, faults })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    /// Returns the number of bytes that the kernel queues for this socket.
    pub(crate) fn receive_bytes(&self) -> io::Result<u32> {
        let bytes = socket2::SockRef::from(self.socket.get_ref()).recv_buffer_size()?;
        Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
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
                    Err(io::ErrorKind::WouldBlock.into())
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
        let Self { socket, state, receive, .. } = self;
        let mut metas = [RecvMeta::default(); RECEIVED_RUNS_MAX];
        let mut slices = receive.each_mut().map(|buffer| IoSliceMut::new(buffer));
        let received =
            call(socket, &mut || state.recv(UdpSockRef::from(socket.get_ref()), &mut slices, &mut metas));
        let count = match received {
            Ok(count) => count,
            // A peer that is gone shows as an error here; its datagrams are lost like any others.
            Err(error) if is_passing(&error) => return Ok(false),
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
        let sent = self.send_runs(outgoing).await;
        outgoing.clear();
        sent
    }

    /// Sends datagrams in runs to one destination, of one length but for the last of a run.
    async fn send_runs(&self, outgoing: &Outgoing) -> io::Result<()> {
        let Self { socket, state, .. } = self;
        let mut start = 0;
        while let Some(run) = outgoing.run_at(start, self.run_datagrams_max()) {
            let DatagramRun { to: destination, bytes: contents, stride: segment, end } = run;
            let transmit =
                Transmit { destination, ecn: None, contents, segment_size: Some(segment), src_ip: None };
            loop {
                match state.try_send(UdpSockRef::from(socket.get_ref()), &transmit) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                    // It will not fit, even if it is sent again.
                    Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
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

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionRefused | ConnectionReset)
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

    #[tokio::test]
    async fn sent_datagrams_wake_no_task() {
        let mut socket = DatagramSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut outgoing = Outgoing::default();
        outgoing.push(peer.local_addr().unwrap(), &[0; 100]);
        socket.send(Instant::ZERO, &mut outgoing).await.unwrap();
        let wait = core::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(wait, socket.socket.writable()).await.is_err());
    }
}
