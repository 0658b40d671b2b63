//! Whole frames: what the parser, `forward.p4` and the checksums of the program do around [`Switch`], in Rust, for the v1model.
//!
//! Tests compare it with the program in bmv2, and turn each [`FrameFault`] on in both: every test of frames must find all of them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use libra_dataplane::{Flags, HEADER_BYTES, Kind, MAGIC, VERSION};
use libra_p4::{ARP_REQUEST, BARE_BYTES, ECHO_REQUEST, IP_HEADER_BYTES, Setup, Sizes, UDP_HEADER_BYTES};

use crate::switch::{Port, Switch};

const ETHERNET_BYTES: usize = 14;
const ARP_BYTES: usize = 28;
const ICMP_BYTES: usize = 4;
/// Offsets of the headers.
const IP_AT: usize = ETHERNET_BYTES;
const UDP_AT: usize = IP_AT + IP_HEADER_BYTES;
const PAYLOAD_AT: usize = UDP_AT + UDP_HEADER_BYTES;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const PLAIN: u8 = 0x45;
const ICMP: u8 = 1;
const UDP: u8 = 17;
/// More fragments follow, or this is not the first.
const FRAGMENT: u16 = 0x3fff;
/// The first 44 bits of addresses that no bridge forwards.
const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0, 0];

/// A fault of the frame part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFault {
    /// A fragment is taken for a whole packet.
    FragmentsTaken,
    /// The length of IP is not compared.
    IpLengthIgnored,
    /// A flooded frame goes back where it came from, too.
    FloodedBack,
    /// The checksum of an answer to ping is that of the question.
    PingChecksumKept,
    /// Ping is not answered.
    PingUnanswered,
    /// All frames are flooded.
    StationsIgnored,
    /// Frames of bridges for each other are flooded.
    ReservedFlooded,
    /// The checksum of the header of IPv4 is not compared.
    HeaderChecksumIgnored,
    /// The checksum of UDP is not compared.
    UdpChecksumIgnored,
    /// A datagram without a checksum is taken for one with a wrong one.
    UdpChecksumRequired,
    /// Answers have no UDP checksum.
    AnswersWithoutChecksum,
    /// A packet that is cut off in a header is carried out.
    CutTaken,
}

impl FrameFault {
    /// Every fault.
    pub const ALL: [Self; 12] = [
        Self::FragmentsTaken,
        Self::IpLengthIgnored,
        Self::FloodedBack,
        Self::PingChecksumKept,
        Self::PingUnanswered,
        Self::StationsIgnored,
        Self::ReservedFlooded,
        Self::HeaderChecksumIgnored,
        Self::UdpChecksumIgnored,
        Self::UdpChecksumRequired,
        Self::AnswersWithoutChecksum,
        Self::CutTaken,
    ];
}

/// Protocol that the parser finds behind Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Other,
    Arp,
    /// ICMP in an IPv4 packet without options that is no fragment.
    Icmp,
    /// UDP in such a packet; a packet of Libra of so many bytes, or something else.
    Udp {
        libra: Option<usize>,
    },
}

/// A frame behind the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parsed {
    network: Network,
    is_damaged: bool,
}

/// The program with its ports.
#[derive(Debug, Clone)]
pub struct FrameSwitch {
    switch: Switch,
    sizes: Sizes,
    setup: Setup,
    stations: BTreeMap<[u8; 6], u16>,
    fault: Option<FrameFault>,
}

impl FrameSwitch {
    /// Makes a switch with this configuration.
    #[must_use]
    pub fn new(switch: Switch, sizes: Sizes, setup: Setup) -> Self {
        Self { switch, sizes, setup, stations: BTreeMap::new(), fault: None }
    }

    /// The same with a fault.
    #[must_use]
    pub fn with_fault(self, fault: FrameFault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Says by which port a station is reached.
    pub fn add_station(&mut self, mac: [u8; 6], port: u16) {
        self.stations.insert(mac, port);
    }

    /// The switch, whose tables change.
    pub fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Lets a frame pass that comes by a port. Returns what leaves, and by which ports, in their order.
    pub fn pass(&mut self, came_by: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        // rule W2
        let Some(parsed) = self.parse(frame) else { return Vec::new() };
        if let Some(answer) = self.host(parsed, frame) {
            return vec![(came_by, answer)];
        }
        if self.is_ours(parsed, frame) {
            let answer = self.aggregate(parsed, came_by, frame);
            return answer.into_iter().map(|answer| (came_by, answer)).collect();
        }
        self.forward(came_by, frame)
    }

    fn has(&self, fault: FrameFault) -> bool {
        self.fault == Some(fault)
    }

    /// `None` if the frame is cut off in a header.
    fn parse(&self, frame: &[u8]) -> Option<Parsed> {
        let of = |network| Parsed { network, is_damaged: false };
        let has = |bytes: usize| (frame.len() >= bytes).then_some(());
        has(ETHERNET_BYTES)?;
        match word(frame, 12) {
            ARP => has(ETHERNET_BYTES + ARP_BYTES).map(|()| of(Network::Arp)),
            IPV4 => {
                has(UDP_AT)?;
                let is_whole = word(frame, IP_AT + 6) & FRAGMENT == 0 || self.has(FrameFault::FragmentsTaken);
                let is_plain = frame[IP_AT] == PLAIN;
                let header = &frame[IP_AT..UDP_AT];
                let is_damaged =
                    is_plain && sum(header) != 0xffff && !self.has(FrameFault::HeaderChecksumIgnored);
                let network = match frame[IP_AT + 9] {
                    UDP if is_plain && is_whole => {
                        has(PAYLOAD_AT)?;
                        Network::Udp { libra: self.libra_bytes(frame)? }
                    }
                    ICMP if is_plain && is_whole => {
                        has(UDP_AT + ICMP_BYTES)?;
                        Network::Icmp
                    }
                    _ => Network::Other,
                };
                let is_damaged = is_damaged || self.is_payload_damaged(network, frame);
                Some(Parsed { network, is_damaged })
            }
            _ => Some(of(Network::Other)),
        }
    }

    /// Returns the number of bytes of a packet of Libra, if both lengths allow one. `None` if it is cut off.
    #[expect(clippy::option_option, reason = "a packet that is cut off is none that is something else")]
    fn libra_bytes(&self, frame: &[u8]) -> Option<Option<usize>> {
        let (ip, udp) = (word(frame, IP_AT + 2), word(frame, UDP_AT + 4));
        let ip =
            if self.has(FrameFault::IpLengthIgnored) { udp.wrapping_add(IP_HEADER_BYTES_U16) } else { ip };
        let found = [BARE_BYTES, self.sizes.packet_bytes()].into_iter().find(|bytes| {
            usize::from(udp) == bytes + UDP_HEADER_BYTES
                && usize::from(ip) == bytes + UDP_HEADER_BYTES + IP_HEADER_BYTES
        });
        let Some(bytes) = found else { return Some(None) };
        let payload = frame.get(PAYLOAD_AT..PAYLOAD_AT + HEADER_BYTES)?;
        // What is not understood is not read on.
        let is_full = bytes > BARE_BYTES && wants_entries(payload, self.sizes.lanes);
        let is_cut = is_full && frame.len() < PAYLOAD_AT + bytes && !self.has(FrameFault::CutTaken);
        (!is_cut).then_some(Some(bytes))
    }

    fn is_payload_damaged(&self, network: Network, frame: &[u8]) -> bool {
        let Network::Udp { libra: Some(bytes) } = network else { return false };
        let checksum = word(frame, UDP_AT + 6);
        if self.has(FrameFault::UdpChecksumIgnored)
            || checksum == 0 && !self.has(FrameFault::UdpChecksumRequired)
        {
            return false;
        }
        let end = frame.len().min(PAYLOAD_AT + bytes);
        udp_sum(&frame[..end]) != 0xffff
    }

    /// ARP and ping for the address of the switch.
    fn host(&self, parsed: Parsed, frame: &[u8]) -> Option<Vec<u8>> {
        let ours = self.setup.address.ip().octets();
        let mut answer = frame.to_vec();
        match parsed.network {
            Network::Arp if word(frame, 20) == ARP_REQUEST && frame[38..42] == ours => {
                let (sender, mac) = (frame[22..32].to_vec(), self.setup.mac);
                answer[..6].copy_from_slice(&sender[..6]);
                answer[6..12].copy_from_slice(&mac);
                answer[21] = 2;
                answer[22..28].copy_from_slice(&mac);
                answer[28..32].copy_from_slice(&ours);
                answer[32..42].copy_from_slice(&sender);
                Some(answer)
            }
            Network::Icmp
                if u16::from(frame[UDP_AT]) == ECHO_REQUEST
                    && frame[IP_AT + 16..UDP_AT] == ours
                    && !parsed.is_damaged
                    && !self.has(FrameFault::PingUnanswered) =>
            {
                turn_round(&mut answer);
                answer[UDP_AT] = 0;
                if !self.has(FrameFault::PingChecksumKept) {
                    let checksum = word(frame, UDP_AT + 2);
                    // The sum has lost 0x0800, so its complement gains as much, and what it carries.
                    let more = if checksum < 0xf800 { 0x0800 } else { 0x0801 };
                    set_word(&mut answer, UDP_AT + 2, checksum.wrapping_add(more));
                }
                Some(answer)
            }
            _ => None,
        }
    }

    fn is_ours(&self, parsed: Parsed, frame: &[u8]) -> bool {
        let to = || SocketAddrV4::new(ip_at(frame, IP_AT + 16), word(frame, UDP_AT + 2));
        matches!(parsed.network, Network::Udp { .. }) && to() == self.setup.address
    }

    /// The frame of the answer, if there is one.
    fn aggregate(&mut self, parsed: Parsed, came_by: u16, frame: &[u8]) -> Option<Vec<u8>> {
        let Network::Udp { libra: Some(bytes) } = parsed.network else { return None };
        if parsed.is_damaged {
            return None;
        }
        let from = SocketAddrV4::new(ip_at(frame, IP_AT + 12), word(frame, UDP_AT));
        let port = if came_by == self.setup.agent_port { Port::Agent } else { Port::Worker(from) };
        let mut payload = frame[PAYLOAD_AT..frame.len().min(PAYLOAD_AT + bytes)].to_vec();
        payload.resize(bytes, 0);
        let payload = self.switch.process(port, &payload)?;
        let mut answer = frame[..PAYLOAD_AT].to_vec();
        answer.extend(&payload);
        // What was behind the packet, as short frames have, stays there.
        answer.extend(frame.get(PAYLOAD_AT + bytes..).unwrap_or_default());
        turn_round(&mut answer);
        for at in 0..2 {
            answer.swap(UDP_AT + at, UDP_AT + 2 + at);
        }
        let udp_bytes =
            u16::try_from(payload.len() + UDP_HEADER_BYTES).expect("a packet has less than 2^16 bytes");
        set_word(&mut answer, UDP_AT + 4, udp_bytes);
        set_word(&mut answer, UDP_AT + 6, 0);
        set_word(&mut answer, IP_AT + 2, udp_bytes + IP_HEADER_BYTES_U16);
        answer[IP_AT + 8] = 64;
        set_word(&mut answer, IP_AT + 10, 0);
        let checksum = !sum(&answer[IP_AT..UDP_AT]);
        set_word(&mut answer, IP_AT + 10, checksum);
        if !self.has(FrameFault::AnswersWithoutChecksum) {
            // If that is zero, there is none.
            let checksum = !udp_sum(&answer[..PAYLOAD_AT + payload.len()]);
            set_word(&mut answer, UDP_AT + 6, checksum);
        }
        Some(answer)
    }

    fn forward(&self, came_by: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let to: [u8; 6] = std::array::from_fn(|at| frame[at]);
        if to.starts_with(&RESERVED) && to[5] < 0x10 && !self.has(FrameFault::ReservedFlooded) {
            return Vec::new();
        }
        if let Some(&port) = self.stations.get(&to).filter(|_| !self.has(FrameFault::StationsIgnored)) {
            return vec![(port, frame.to_vec())];
        }
        let ports = self.setup.ports.iter().copied();
        let ports = ports.filter(|&port| port != came_by || self.has(FrameFault::FloodedBack));
        ports.map(|port| (port, frame.to_vec())).collect()
    }
}

const IP_HEADER_BYTES_U16: u16 = 20;

/// Exchanges the addresses of Ethernet and IP.
fn turn_round(frame: &mut [u8]) {
    for at in 0..6 {
        frame.swap(at, 6 + at);
    }
    for at in 0..4 {
        frame.swap(IP_AT + 12 + at, IP_AT + 16 + at);
    }
}

/// The ones' complement sum of UDP and of what RFC 768 takes from IP.
fn udp_sum(frame: &[u8]) -> u16 {
    let addresses = &frame[IP_AT + 12..UDP_AT];
    let pseudo = [addresses, &[0, UDP], &frame[UDP_AT + 4..UDP_AT + 6], &frame[UDP_AT..]].concat();
    sum(&pseudo)
}

/// The ones' complement sum of an even number of bytes (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = sum.to_be_bytes();
    u16::from_be_bytes([high, low])
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn set_word(frame: &mut [u8], at: usize, word: u16) {
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

fn ip_at(frame: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3])
}

const KIND_AT: usize = 1;
const FLAGS_AT: usize = 2;
const ENTRIES_AT: usize = 3;
const VERSION_AT: usize = 13;

/// Returns true if the parser reads on behind this header, which is then that of a packet with an entry for each lane.
fn wants_entries(header: &[u8], lanes: u8) -> bool {
    let flags = Flags::RETRANSMIT.with(Flags::VALUES).with(Flags::LAST).bits();
    let kinds = [Kind::Push, Kind::Pull, Kind::Install, Kind::Drain].map(|kind| kind as u8);
    header[0] == MAGIC
        && kinds.contains(&header[KIND_AT])
        && header[FLAGS_AT] & !flags == 0
        && header[ENTRIES_AT] == lanes
        && header[VERSION_AT] == VERSION
}
