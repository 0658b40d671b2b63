//! A datagram as a frame, for the program to carry out without an interface.

use std::net::SocketAddrV4;

use libra_dataplane::packet_bytes;

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Before the datagram.
pub(crate) const HEAD_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
/// Of the longest frame that is made.
pub(crate) const FRAME_BYTES_MAX: usize = HEAD_BYTES + packet_bytes(u8::MAX) + 1;

/// Makes `frame` one with this datagram.
pub(crate) fn write(frame: &mut Vec<u8>, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) {
    let bytes = |size: usize| u16::try_from(size).unwrap_or(u16::MAX).to_be_bytes();
    let [ip0, ip1] = bytes(IP_BYTES + UDP_BYTES + datagram.len());
    let [udp0, udp1] = bytes(UDP_BYTES + datagram.len());
    let [[from0, from1], [to0, to1]] = [from, to].map(|address| address.port().to_be_bytes());
    frame.clear();
    frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    // The program does not verify checksums: the stack that delivered the frame has done so.
    frame.extend([0x45, 0, ip0, ip1, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.ip().octets());
    frame.extend(to.ip().octets());
    frame.extend([from0, from1, to0, to1, udp0, udp1, 0, 0]);
    frame.extend(datagram);
}
