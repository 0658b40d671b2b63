//! Packets that a data plane below the IP stack takes, and those that it leaves to others.

use std::net::SocketAddrV4;

use libra_conformance::{IpVerdict, Sender, WorkerName};
use libra_dataplane::{Kind, NackReason};

use crate::scene::{FIXED, JOB, REGION, Scene, header, packet, push, worker};

pub(crate) fn scenes() -> Vec<Scene> {
    vec![taken(), left()]
}

/// An IPv4 packet with a UDP datagram, and what can be wrong with it.
#[derive(Clone)]
struct Datagram {
    from: SocketAddrV4,
    to: SocketAddrV4,
    payload: Vec<u8>,
    version: u8,
    options: Vec<u8>,
    service: u8,
    /// The three flags and the offset of a fragment.
    fragment: u16,
    ttl: u8,
    protocol: u8,
    /// Added to the length of IP.
    ip_more: i16,
    /// Added to the length of UDP.
    udp_more: i16,
    has_udp_checksum: bool,
}

const SWITCH: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 7, 0, 1), 4700);
/// The address of worker 0.
const WORKER: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 7, 0, 2), 5000);

impl Datagram {
    fn new(payload: Vec<u8>) -> Self {
        Self {
            from: WORKER,
            to: SWITCH,
            payload,
            version: 4,
            options: vec![],
            service: 0,
            fragment: 0x4000,
            ttl: 64,
            protocol: 17,
            ip_more: 0,
            udp_more: 0,
            has_udp_checksum: true,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let udp_bytes = i16::try_from(8 + self.payload.len()).unwrap();
        let header_bytes = 20 + self.options.len();
        let ip_bytes = i16::try_from(header_bytes).unwrap() + udp_bytes + self.ip_more;
        let mut bytes = vec![self.version << 4 | u8::try_from(header_bytes / 4).unwrap(), self.service];
        bytes.extend(ip_bytes.to_be_bytes());
        bytes.extend(0x1234_u16.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(self.from.ip().octets());
        bytes.extend(self.to.ip().octets());
        bytes.extend(&self.options);
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum);

        let mut udp = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()].concat();
        udp.extend((udp_bytes + self.udp_more).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(&self.payload);
        if self.has_udp_checksum {
            let pseudo = [&bytes[12..20], &[0, self.protocol], &udp[4..6], &udp].concat();
            let sum = checksum(&pseudo);
            udp[6..8].copy_from_slice(&sum);
        }
        [bytes, udp].concat()
    }
}

/// The checksum of RFC 1071, for bytes in which its place is zero.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    [high, low]
}

fn take(scene: &mut Scene, from: Sender, datagram: &Datagram) -> IpVerdict {
    scene.ip_taken(from, &datagram.payload, datagram.bytes())
}

fn taken() -> Scene {
    let mut scene = Scene::with(
        "ip-taken",
        "Whole IPv4 packets that are for the data plane: answered, or dropped as their payload would be.",
        FIXED,
    );
    let plain = Datagram::new(push(0, 0, &[(0, 1), (3, 2)]));
    scene.note("A push.");
    take(&mut scene, worker(0), &plain);
    scene.note("Without a UDP checksum; may be cut into fragments, but is not; with other fields of IP.");
    take(&mut scene, worker(0), &Datagram { has_udp_checksum: false, ..plain.clone() });
    take(&mut scene, worker(0), &Datagram { fragment: 0, ..plain.clone() });
    take(&mut scene, worker(0), &Datagram { ttl: 1, service: 0xB8, ..plain.clone() });
    scene.note("Refused: the answer is shorter than the question, and of an odd number of words.");
    let pull = packet(header(Kind::Pull, 0, 0), &[(0, 0), (3, 0), (5, 0)]);
    let verdict = take(&mut scene, worker(0), &Datagram { payload: pull.clone(), ..plain.clone() });
    let IpVerdict::Answer(nack) = verdict else { panic!("{verdict:?}") };
    assert_eq!(libra_dataplane::Header::parse(&nack).unwrap().nack_reason(), Some(NackReason::NotInstalled));
    scene.install(REGION, &[(0, 0x0102_0304), (5, 0xFFFF_FFFF)]);
    scene.readable(REGION, true);
    scene.note("Values.");
    take(&mut scene, worker(0), &Datagram { payload: pull, ..plain.clone() });
    scene.note("Malformed, foreign and unexpected ones; a datagram without payload.");
    let payloads = [
        plain.payload[..35].to_vec(),
        push(1, 0, &[(0, 1)]),
        packet(header(Kind::Install, 0, 0), &[(0, 1)]),
        vec![],
    ];
    for payload in payloads {
        assert_eq!(take(&mut scene, worker(0), &Datagram { payload, ..plain.clone() }), IpVerdict::Drop);
    }
    scene.note("From an address of no worker, and from a worker's machine and another port.");
    for from in ["10.7.0.77:5000", "10.7.0.2:5001"] {
        let from = from.parse().unwrap();
        let datagram = Datagram { from, ..plain.clone() };
        assert_eq!(take(&mut scene, Sender::Stranger(from), &datagram), IpVerdict::Drop);
    }
    scene.worker(WorkerName { job: JOB, worker: 2 });
    scene.close_round(REGION, 1);
    scene
}

fn left() -> Scene {
    let mut scene = Scene::with(
        "ip-left",
        "Whole packets that are none of the data plane's business: they pass, and change nothing.",
        FIXED,
    );
    let plain = Datagram::new(push(0, 0, &[(0, 1), (3, 2)]));
    let mut pass = |why: &str, packets: Vec<Vec<u8>>| {
        scene.note(why);
        for packet in packets {
            scene.ip_left(packet);
        }
    };
    let to = |to: &str| Datagram { to: to.parse().unwrap(), ..plain.clone() }.bytes();
    pass("To another port, to another machine.", vec![to("10.7.0.1:4701"), to("10.7.0.3:4700")]);
    let protocol = |protocol| Datagram { protocol, ..plain.clone() }.bytes();
    pass("TCP, ICMP, UDP-Lite.", vec![protocol(6), protocol(1), protocol(136)]);
    let fragment = |fragment| Datagram { fragment, ..plain.clone() }.bytes();
    pass(
        "Fragments: the first, one from within, whose first bytes look like UDP, and the last.",
        vec![fragment(0x2000), fragment(0x2005), fragment(0x0001), fragment(0x1FFF)],
    );
    let options = |options: &[u8]| Datagram { options: options.to_vec(), ..plain.clone() }.bytes();
    pass(
        "With options of IP: one word of nothing, and the most there can be.",
        vec![options(&[1, 1, 1, 0]), options(&[1; 40])],
    );
    let mut short_header = plain.bytes();
    short_header[0] = 0x44;
    let version = |version| Datagram { version, ..plain.clone() }.bytes();
    pass("Not IPv4, or with a header that is too short.", vec![version(6), version(0), short_header]);
    let udp = |udp_more| Datagram { udp_more, ..plain.clone() }.bytes();
    let bytes = i16::try_from(plain.payload.len()).unwrap();
    pass(
        "A length of UDP that is not that of IP: by one, by an entry, shorter than its own header, zero, and far too long.",
        vec![udp(1), udp(-1), udp(6), udp(-6), udp(-bytes - 1), udp(-bytes - 8), udp(10_000)],
    );
    let ip = |ip_more| Datagram { ip_more, ..plain.clone() }.bytes();
    pass(
        "A length of IP beyond the packet, or not that of UDP.",
        vec![ip(1), ip(1000), ip(-1), ip(-6), ip(-bytes - 8)],
    );
    let cut = |bytes: usize| plain.bytes()[..bytes].to_vec();
    pass(
        "Cut off, in each header and behind them.",
        vec![cut(1), cut(19), cut(20), cut(27), cut(28), cut(60)],
    );
    scene.bank(REGION);
    scene.acked(REGION, 0);
    scene
}
