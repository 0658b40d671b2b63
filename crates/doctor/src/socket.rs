//! A UDP socket as the hot path has it: nothing is fragmented, and runs of datagrams go to and come from the kernel in one piece.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::UdpSocket;
use std::time::Instant;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const RECEIVE_BYTES: usize = 65_535;

pub(crate) struct ProbeSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    buffer: Vec<u8>,
}

/// The sender of datagrams, and the address that it sent them to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) from: SocketAddr,
    pub(crate) to: Option<IpAddr>,
}

impl ProbeSocket {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        // Refused above `net.core.rmem_max`, which is a finding of its own.
        drop(socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20));
        // This also asks the kernel to set DF, and not to mind what it knows of the path (IP_PMTUDISC_PROBE).
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, state, buffer: vec![0; RECEIVE_BYTES] })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends datagrams of `segment` bytes in one call.
    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8], segment: usize) -> io::Result<()> {
        self.send_from(None, to, bytes, segment)
    }

    /// Answers by the address that was called.
    pub(crate) fn answer(&self, ends: Ends, bytes: &[u8]) -> io::Result<()> {
        self.send_from(ends.to, ends.from, bytes, bytes.len())
    }

    fn send_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        bytes: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let segment_size = (segment < bytes.len()).then_some(segment);
        let transmit = Transmit { destination: to, ecn: None, contents: bytes, segment_size, src_ip: from };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Number of datagrams that the kernel takes in one call.
    pub(crate) fn run_datagrams_max(&self) -> usize {
        self.state.max_gso_segments().max(1)
    }

    /// Waits for datagrams; false if none came in time, or the time is over.
    pub(crate) fn wait(&self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(60));
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut watched, Some(&left)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands what has come to `take`: its ends, datagrams one behind the other, length of each but the last.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(Ends, &mut [u8], usize)) -> io::Result<()> {
        let mut meta = [RecvMeta::default()];
        let received = self.state.recv(
            UdpSockRef::from(&self.socket),
            &mut [IoSliceMut::new(&mut self.buffer)],
            &mut meta,
        );
        match received {
            Ok(0) => {}
            Ok(_) => {
                let RecvMeta { addr: from, len, stride, dst_ip: to, .. } = meta[0];
                take(Ends { from, to }, &mut self.buffer[..len], stride);
            }
            // A peer without a socket shows so.
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// An error of a datagram, not of the socket.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock,
    };
    matches!(
        error.kind(),
        WouldBlock | Interrupted | ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
    )
}
