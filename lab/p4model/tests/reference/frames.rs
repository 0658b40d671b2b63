//! Whole frames: checksums, lengths, fragments, ARP, ping, and where frames of others go. On the program as this crate has it and, where
//! that can be run, in bmv2; each with every fault that is known of, which the frames here must find.

use std::net::{Ipv4Addr, SocketAddrV4};

use libra_dataplane::{Flags, Header, Kind};
use libra_p4::{
    Cookie, Rooms, Setup, Sizes, TableChange,
    packet::{CONDITION_ACTIVE, KIND_FLIP},
};
use libra_p4model::{FrameFault, FrameSwitch, Port, Switch};

use crate::pair::{CONFIG, address, entries_of, header, packet};

pub(crate) const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 4700);
const AGENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 4700);
const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 9), 4700);
const SWITCH_MAC: [u8; 6] = [2, 0x4c, 0, 0, 0, 1];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const UNKNOWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x55];
/// The host behind port 2.
pub(crate) const STATION: ([u8; 6], u16) = ([2, 0, 0, 0, 0, 7], 2);
/// For experiments: of no protocol.
const ETHER_TYPE: u16 = 0x88b5;

pub(crate) type Sent = (u16, Vec<u8>);

/// A frame that comes by a port, and what leaves.
pub(crate) struct Case {
    about: String,
    pub(crate) port: u16,
    pub(crate) frame: Vec<u8>,
    pub(crate) leaves: Vec<Sent>,
}

impl Case {
    /// Describes it.
    pub(crate) fn about(&self) -> &str {
        &self.about
    }
}

pub(crate) fn setup() -> Setup {
    Setup { address: SWITCH, mac: SWITCH_MAC, agent_port: 0, ports: vec![0, 1, 2] }
}

/// A worker, and a region that is not readable.
pub(crate) fn changes(sizes: Sizes) -> Vec<TableChange> {
    let config = libra_dataplane::RegionConfig { lanes: sizes.lanes, ..CONFIG };
    let region = Rooms::new(sizes).take(&config).unwrap();
    let worker =
        TableChange::AddWorker { address: address(0), job: CONFIG.job, worker: 0, cookie: Cookie::default() };
    vec![worker, TableChange::AddRegion(region)]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Right,
    Missing,
    Wrong,
}

/// A UDP datagram in a frame, and what can be wrong with it.
#[derive(Clone)]
struct Datagram {
    macs: [[u8; 6]; 2],
    from: SocketAddrV4,
    to: SocketAddrV4,
    ttl: u8,
    fragment: u16,
    ip_more: u16,
    udp_more: u16,
    ip_sum: Sum,
    udp_sum: Sum,
    payload: Vec<u8>,
}

impl Datagram {
    fn new(payload: Vec<u8>) -> Self {
        Self {
            macs: [SWITCH_MAC, HOST_MAC],
            from: address(0),
            to: SWITCH,
            ttl: 64,
            fragment: 0x4000,
            ip_more: 0,
            udp_more: 0,
            ip_sum: Sum::Right,
            udp_sum: Sum::Right,
            payload,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let udp_bytes = u16::try_from(8 + self.payload.len()).unwrap();
        let mut udp = [self.from.port(), self.to.port(), udp_bytes.wrapping_add(self.udp_more), 0]
            .map(u16::to_be_bytes)
            .concat();
        udp.extend(&self.payload);
        let addresses = [self.from.ip().octets(), self.to.ip().octets()].concat();
        let pseudo = [&addresses[..], &[0, 17], &udp[4..6], &udp].concat();
        let checksum = match self.udp_sum {
            Sum::Missing => 0,
            // 0 would be none.
            Sum::Right => Some(checksum(&pseudo)).filter(|sum| *sum != 0).unwrap_or(0xffff),
            Sum::Wrong => checksum(&pseudo) ^ 0x0100,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        let body = ip(17, self.ttl, self.fragment, self.ip_more, self.ip_sum, &addresses, &udp);
        ethernet(self.macs, 0x0800, &body)
    }

    /// Returns the answer of the switch with this payload.
    fn answer(&self, payload: Vec<u8>) -> Vec<u8> {
        let [switch, host] = self.macs;
        let (from, to) = (self.to, self.from);
        Self { macs: [host, switch], from, to, ttl: 64, payload, udp_sum: Sum::Right, ..self.clone() }.frame()
    }
}

fn ethernet([to, from]: [[u8; 6]; 2], ether_type: u16, body: &[u8]) -> Vec<u8> {
    [&to[..], &from, &ether_type.to_be_bytes(), body].concat()
}

fn ip(protocol: u8, ttl: u8, fragment: u16, more: u16, sum: Sum, addresses: &[u8], body: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(20 + body.len()).unwrap().wrapping_add(more);
    let words = [0x4500, bytes, 0x1234, fragment, u16::from(ttl) << 8 | u16::from(protocol), 0];
    let mut header = [words.map(u16::to_be_bytes).concat(), addresses.to_vec()].concat();
    let checksum = checksum(&header) ^ if sum == Sum::Wrong { 0x0001 } else { 0 };
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&header, body].concat()
}

/// The checksum of RFC 1071, for bytes in which its place is zero.
fn checksum(bytes: &[u8]) -> u16 {
    let sum = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = sum.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

fn ping(kind: u8, id: u16, to: SocketAddrV4, from: SocketAddrV4, ip_sum: Sum) -> Vec<u8> {
    let mut body = [&[kind, 0, 0, 0], &id.to_be_bytes()[..], &[0, 1], b"something"].concat();
    let sum = checksum(&body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let addresses = [from.ip().octets(), to.ip().octets()].concat();
    let macs = if kind == 8 { [SWITCH_MAC, HOST_MAC] } else { [HOST_MAC, SWITCH_MAC] };
    ethernet(macs, 0x0800, &ip(1, 64, 0x4000, 0, ip_sum, &addresses, &body))
}

fn arp(macs: [[u8; 6]; 2], operation: u16, [sender, target]: [([u8; 6], Ipv4Addr); 2]) -> Vec<u8> {
    let mut body = [0x0001, 0x0800, 0x0604, operation].map(u16::to_be_bytes).concat();
    for (mac, address) in [sender, target] {
        body.extend(mac);
        body.extend(address.octets());
    }
    ethernet(macs, 0x0806, &body)
}

/// All frames, in order, and what the program makes of them: a plain [`Switch`] gives the content of answers.
pub(crate) struct Cases {
    oracle: Switch,
    lanes: u8,
    all: Vec<Case>,
}

impl Cases {
    pub(crate) fn all(sizes: Sizes) -> Vec<Case> {
        let mut oracle = Switch::new(sizes);
        changes(sizes).iter().for_each(|change| oracle.change(change));
        let mut cases = Self { oracle, lanes: sizes.lanes, all: Vec::new() };
        cases.of_datagrams();
        cases.of_others();
        cases.of_the_end();
        cases.all
    }

    fn add(&mut self, about: &str, port: u16, frame: Vec<u8>, leaves: Vec<Sent>) {
        self.all.push(Case { about: about.to_owned(), port, frame, leaves });
    }

    /// It is answered.
    fn answered(&mut self, about: &str, port: u16, datagram: &Datagram) {
        let from = if port == 0 { Port::Agent } else { Port::Worker(datagram.from) };
        let payload = self.oracle.process(from, &datagram.payload).expect(about);
        self.add(about, port, datagram.frame(), vec![(port, datagram.answer(payload))]);
    }

    fn dropped(&mut self, about: &str, frame: Vec<u8>) {
        self.add(about, 1, frame, Vec::new());
    }

    fn flooded(&mut self, about: &str, frame: Vec<u8>) {
        let leaves = vec![(0, frame.clone()), (2, frame.clone())];
        self.add(about, 1, frame, leaves);
    }

    fn push(&self, seq: u32, value: i32) -> Datagram {
        let entries = entries_of(self.lanes, |lane| (lane % 12, value + i32::from(lane)));
        Datagram::new(packet(header(Kind::Push, 0, seq), &entries))
    }

    fn flip(&self, flags: Flags, conditions: u8) -> Datagram {
        let tag = u64::from(conditions) << 32;
        let mut payload = Header { flags, round: 5, tag, ..header(Kind::Pull, 0, 0) }.to_bytes().to_vec();
        payload[1] = KIND_FLIP;
        Datagram { from: AGENT, ..Datagram::new(payload) }
    }

    // rule W2
    fn of_datagrams(&mut self) {
        let pull = Datagram {
            udp_sum: Sum::Missing,
            ..Datagram::new(packet(header(Kind::Pull, 0, 0), &entries_of(self.lanes, |lane| (lane, 0))))
        };
        let flip = self.flip(Flags::NONE, CONDITION_ACTIVE);
        self.answered("a flip of the agent", 0, &flip);
        self.answered("a push", 1, &self.push(0, 40));
        self.answered(
            "a push without a checksum",
            1,
            &Datagram { udp_sum: Sum::Missing, ..self.push(1, 41) },
        );
        self.answered("may be cut into fragments", 1, &Datagram { fragment: 0, ttl: 1, ..self.push(2, 42) });
        self.answered("a pull that is refused", 1, &pull);
        self.answered("a probe", 1, &Datagram::new(packet(header(Kind::Pull, 0, 0), &[])));
        let with_sum_of_all_bits = (0..0x1_0000)
            .map(|value| self.push(3, value))
            .find(|datagram| datagram.frame()[40..42] == [0xff, 0xff]);
        self.answered("the checksum that stands for 0", 1, &with_sum_of_all_bits.expect("one of 2^16"));

        let plain = self.push(4, 44);
        self.dropped("header checksum", Datagram { ip_sum: Sum::Wrong, ..plain.clone() }.frame());
        self.dropped("UDP checksum", Datagram { udp_sum: Sum::Wrong, ..plain.clone() }.frame());
        for at in [26, 35, 43, 60, 75, 100, 167] {
            let mut frame = plain.frame();
            frame[at] ^= 0x10;
            self.dropped(&format!("a bit of byte {at}"), frame);
        }
        let mut of_the_agent = self.flip(Flags::LAST, 0).frame();
        of_the_agent[60] ^= 1;
        self.add("a flipped bit in a packet of the agent", 0, of_the_agent, Vec::new());
        let bare = Datagram { udp_sum: Sum::Wrong, ..Datagram::new(packet(header(Kind::Pull, 0, 0), &[])) };
        self.dropped("UDP checksum of a probe", bare.frame());
        for more in [1_u16, 6, 1000, 0xffff, 0xfffa] {
            let about = format!("a length of IP {} too long", more.cast_signed());
            self.dropped(&about, Datagram { ip_more: more, ..plain.clone() }.frame());
            let about = format!("a length of UDP {} too long", more.cast_signed());
            self.dropped(&about, Datagram { udp_more: more, ..plain.clone() }.frame());
        }
        for bytes in [13, 20, 33, 41, 50, 71, 72, 80, 167] {
            self.dropped(&format!("a pull cut off after {bytes}"), pull.frame()[..bytes].to_vec());
        }
        for fragment in [0x2000, 0x0001, 0x2005, 0x1fff] {
            let frame = Datagram { fragment, ..plain.clone() }.frame();
            self.flooded(&format!("a fragment {fragment:#x}"), frame);
        }
        let mut options = plain.frame();
        options[14] = 0x46;
        self.flooded("options of IP", options);
        self.flooded(
            "to another port",
            Datagram { to: SocketAddrV4::new(*SWITCH.ip(), 9), ..plain.clone() }.frame(),
        );
        let other = Datagram { to: OTHER, macs: [UNKNOWN_MAC, HOST_MAC], ..plain.clone() };
        self.flooded("to another", other.frame());
        let other = Datagram { ip_sum: Sum::Wrong, udp_sum: Sum::Wrong, ..other };
        self.flooded("to another, who may look at its checksums", other.frame());
        self.answered("the push that was damaged", 1, &plain);
    }

    fn of_others(&mut self) {
        let frame = |to| ethernet([to, HOST_MAC], ETHER_TYPE, b"from one to another");
        self.flooded("to who is unknown", frame(UNKNOWN_MAC));
        self.flooded("to all", frame([0xff; 6]));
        self.add("to a station", 1, frame(STATION.0), vec![(STATION.1, frame(STATION.0))]);
        for last in [0x00, 0x01, 0x02, 0x03, 0x0e, 0x0f] {
            self.dropped(&format!("of bridges {last:#x}"), frame([1, 0x80, 0xc2, 0, 0, last]));
        }
        self.flooded("of bridges, but not for one cable", frame([1, 0x80, 0xc2, 0, 0, 0x10]));

        let (host, switch) = ((HOST_MAC, *address(0).ip()), (SWITCH_MAC, *SWITCH.ip()));
        let asked = |operation, who| arp([[0xff; 6], HOST_MAC], operation, [host, ([0; 6], who)]);
        let reply = arp([HOST_MAC, SWITCH_MAC], 2, [switch, host]);
        self.add("who has the address", 1, asked(1, *SWITCH.ip()), vec![(1, reply)]);
        self.flooded("who has another", asked(1, *OTHER.ip()));
        self.flooded("an answer to who has", asked(2, *SWITCH.ip()));

        // Where the checksum carries, and where it does not.
        let ids: Vec<u16> = [true, false]
            .map(|carries| {
                let of = |id: &u16| u16::from_be_bytes([ping_sum(*id)[0], ping_sum(*id)[1]]) >= 0xf800;
                (0..u16::MAX).find(|id| of(id) == carries).expect("there is one")
            })
            .to_vec();
        for id in ids {
            let reply = ping(0, id, address(0), SWITCH, Sum::Right);
            let question = ping(8, id, SWITCH, address(0), Sum::Right);
            self.add(&format!("ping {id}"), 1, question, vec![(1, reply)]);
        }
        self.flooded("ping with a wrong header checksum", ping(8, 1, SWITCH, address(0), Sum::Wrong));
        self.flooded("ping of another", ping(8, 1, OTHER, address(0), Sum::Right));
    }

    fn of_the_end(&mut self) {
        // Its answer counts the pushes that were taken: those that were answered, and no others.
        let flip = self.flip(Flags::LAST, 0);
        self.answered("what the bank has taken", 0, &flip);
        let last = self.all.last().expect("just added").leaves[0].1.clone();
        assert_eq!(last[42 + 26..42 + 30], [0, 0, 0, 5], "five pushes");
        for port in [1, 0] {
            let frame = ethernet([UNKNOWN_MAC, HOST_MAC], ETHER_TYPE, b"the end");
            let leaves = [0, 1, 2].into_iter().filter(|other| *other != port);
            let leaves = leaves.map(|other| (other, frame.clone())).collect();
            self.add("the end", port, frame, leaves);
        }
    }
}

/// The checksum of a ping.
fn ping_sum(id: u16) -> [u8; 2] {
    let frame = ping(8, id, SWITCH, address(0), Sum::Right);
    [frame[36], frame[37]]
}

fn here() -> FrameSwitch {
    let sizes = Sizes::default();
    let mut switch = FrameSwitch::new(Switch::new(sizes), sizes, setup());
    switch.add_station(STATION.0, STATION.1);
    changes(sizes).iter().for_each(|change| switch.switch_mut().change(change));
    switch
}

/// The first frame of which the switch makes something else.
fn difference(mut switch: FrameSwitch) -> Option<String> {
    let differs = |case: &Case| switch.pass(case.port, &case.frame) != case.leaves;
    Cases::all(Sizes::default()).into_iter().find(differs).map(|case| case.about)
}

#[test]
fn frames_are_answered_forwarded_and_dropped() {
    assert_eq!(difference(here()), None);
}

#[test]
fn frames_find_every_fault_of_the_program() {
    for fault in FrameFault::ALL {
        let found = difference(here().with_fault(fault));
        assert!(found.is_some(), "{fault:?} is not found");
        println!("{fault:?}: {}", found.unwrap_or_default());
    }
}
