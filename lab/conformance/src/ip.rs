//! Comparison of an IPv4 packet with the answer to another, as far as a data plane is free in how it makes it.

use crate::describe::{differences, hex};
use crate::run::Difference;
use crate::vector::IpVerdict;

/// Bytes of an IPv4 header without options.
const IP_HEADER_BYTES: usize = 20;
/// Bytes before the payload of a UDP datagram in an IPv4 packet without options.
const HEADERS_BYTES: usize = IP_HEADER_BYTES + 8;
const PROTOCOL_UDP: u8 = 17;

/// Lists the differences of a verdict from that of the vector.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// From 10.0.0.2:5000 to 10.0.0.1:4700, with the payload 4c 01 02.
    const QUESTION: &str = "4500001f000040004011 26cc 0a000002 0a000001 1388 125c 000b 77f0 4c0102";
    /// Back, with the payload 4c 05.
    const ANSWER: &str = "4500001e000040004011 26cd 0a000001 0a000002 125c 1388 000a 79ee 4c05";

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.bytes().filter(|digit| *digit != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    /// The fields that are wrong in an answer of which one byte was changed.
    fn wrong(at: usize, byte: u8) -> Vec<String> {
        let mut answer = bytes(ANSWER);
        answer[at] = byte;
        let expected = IpVerdict::Answer(vec![0x4C, 0x05]);
        let found = IpVerdict::Answer(answer);
        let different = verdict_differences(&bytes(QUESTION), &expected, &found);
        different.into_iter().map(|difference| difference.field).collect()
    }

    #[test]
    fn an_answer_is_right_with_or_without_a_udp_checksum() {
        assert_eq!(wrong(0, 0x45), [""; 0]);
        let mut answer = bytes(ANSWER);
        answer[26..28].fill(0);
        let expected = IpVerdict::Answer(vec![0x4C, 0x05]);
        assert_eq!(verdict_differences(&bytes(QUESTION), &expected, &IpVerdict::Answer(answer)), []);
    }

    #[test]
    fn each_wrong_field_of_an_answer_is_named() {
        for (at, byte, field) in [
            (0, 0x46, "IP version and header length"),
            (3, 0x1F, "IP length"),
            (6, 0x20, "IP fragment"),
            (9, 6, "IP protocol"),
            (15, 9, "IP source"),
            (19, 9, "IP destination"),
            (21, 0, "UDP source"),
            (23, 0, "UDP destination"),
            (25, 9, "UDP length"),
            (29, 6, "bytes"),
        ] {
            let fields = wrong(at, byte);
            let expected = if at < 20 { "IP header checksum" } else { "UDP checksum" };
            assert!(fields.iter().any(|name| name == field), "{field} not in {fields:?}");
            assert!(fields.iter().any(|name| name == expected), "{expected} not in {fields:?}");
        }
    }

    #[test]
    fn verdicts_differ_as_a_whole() {
        for (expected, found) in [
            (IpVerdict::Pass, IpVerdict::Drop),
            (IpVerdict::Drop, IpVerdict::Answer(vec![])),
            (IpVerdict::Answer(vec![]), IpVerdict::Pass),
        ] {
            assert_eq!(verdict_differences(&[], &expected, &found)[0].field, "verdict");
            assert_eq!(
                verdict_differences(&[], &found, &found.clone()).len(),
                usize::from(matches!(found, IpVerdict::Answer(_)))
            );
        }
        let cut = IpVerdict::Answer(bytes(ANSWER)[..20].to_vec());
        assert_eq!(
            verdict_differences(&bytes(QUESTION), &IpVerdict::Answer(vec![]), &cut)[0].field,
            "packet"
        );
    }
}
