//! Whether an IPv4 packet is the answer to another, as far as a data plane is free in how it makes it.

use crate::describe::{differences, hex};
use crate::run::Difference;
use crate::vector::IpVerdict;

/// Bytes of an IPv4 header without options.
const IP_HEADER_BYTES: usize = 20;
/// Bytes before the payload of a UDP datagram in an IPv4 packet without options.
const HEADERS_BYTES: usize = IP_HEADER_BYTES + 8;
const PROTOCOL_UDP: u8 = 17;

/// How a verdict differs from that of the vector.
pub(crate) fn verdict_differences(
    question: &[u8],
    expected: &IpVerdict,
    found: &IpVerdict,
) -> Vec<Difference> {
    match (expected, found) {
        (IpVerdict::Answer(payload), IpVerdict::Answer(packet)) => {
            answer_differences(question, payload, packet)
        }
        _ if expected == found => vec![],
        _ => vec![Difference::new("verdict", words(expected), words(found))],
    }
}

fn words(verdict: &IpVerdict) -> String {
    match verdict {
        IpVerdict::Pass => "pass".to_owned(),
        IpVerdict::Drop => "drop".to_owned(),
        IpVerdict::Answer(bytes) => format!("answer {}", hex(bytes)),
    }
}

/// The payload must be that of the vector, the datagram go from where the question went to where it came from, and all lengths
/// and checksums be right. A UDP checksum may be left out; all else in the headers is free.
fn answer_differences(question: &[u8], payload: &[u8], found: &[u8]) -> Vec<Difference> {
    let (Some(asked), Some((head, found_payload))) =
        (question.first_chunk::<HEADERS_BYTES>(), found.split_first_chunk::<HEADERS_BYTES>())
    else {
        return vec![Difference::new("packet", "headers of IPv4 and UDP", hex(found))];
    };
    let mut different = Vec::new();
    let mut compare = |field: &str, expected: &[u8], found: &[u8]| {
        if expected != found {
            different.push(Difference::new(field, hex(expected), hex(found)));
        }
    };
    let ip_bytes = HEADERS_BYTES + payload.len();
    compare("IP version and header length", &[0x45], &head[..1]);
    compare("IP length", &length(ip_bytes), &head[2..4]);
    // The bit that forbids fragments is free.
    compare("IP fragment", &[0, 0], &[head[6] & !0x40, head[7]]);
    compare("IP protocol", &[PROTOCOL_UDP], &head[9..10]);
    compare("IP header checksum", &[0, 0], &checksum(&head[..IP_HEADER_BYTES]));
    compare("IP source", &asked[16..20], &head[12..16]);
    compare("IP destination", &asked[12..16], &head[16..20]);
    compare("UDP source", &asked[22..24], &head[20..22]);
    compare("UDP destination", &asked[20..22], &head[22..24]);
    compare("UDP length", &length(ip_bytes - IP_HEADER_BYTES), &head[24..26]);
    if head[26..28] != [0, 0] {
        let pseudo = [&head[12..20], &[0, PROTOCOL_UDP], &head[24..26], &found[IP_HEADER_BYTES..]].concat();
        compare("UDP checksum", &[0, 0], &checksum(&pseudo));
    }
    different.extend(differences(Some(payload), Some(found_payload)));
    different
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("a vector holds no payload that no datagram holds").to_be_bytes()
}

/// The checksum of RFC 1071, which is zero over bytes that hold their own.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    [high, low]
}
