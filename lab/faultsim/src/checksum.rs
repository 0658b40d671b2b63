//! The checksum of UDP, by which a kernel drops datagrams whose bits were flipped on the way.

use core::net::SocketAddr;

/// The checksum of RFC 768 over pseudo header, header and payload: ones' complement of the ones' complement sum of all
/// 16-bit words. It notices any single flipped bit.
pub(crate) fn checksum(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> u16 {
    let mut sum = 0u64;
    for address in [from, to] {
        match address {
            SocketAddr::V4(address) => sum += words(&address.ip().octets()),
            SocketAddr::V6(address) => sum += words(&address.ip().octets()),
        }
        sum += u64::from(address.port());
    }
    // The protocol number of UDP, and the length, which is in the pseudo header and in the header.
    sum += 17 + 2 * (payload.len() as u64 + 8);
    sum += words(payload);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let folded = u16::try_from(sum).expect("the carries were folded in");
    // Zero would mean: no checksum.
    if folded == u16::MAX { u16::MAX } else { !folded }
}

fn words(bytes: &[u8]) -> u64 {
    let (words, odd) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum + odd.first().map_or(0, |last| u64::from(*last) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (from, to) = (SocketAddr::from(([10, 0, 0, 1], 4000)), SocketAddr::from(([10, 0, 0, 2], 4000)));
        for length in [1usize, 2, 31, 34] {
            let mut payload: Vec<u8> = (0..length).map(|at| u8::try_from(at * 37 % 256).unwrap()).collect();
            let sound = checksum(from, to, &payload);
            for bit in 0..length * 8 {
                payload[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(checksum(from, to, &payload), sound, "bit {bit} of {length} bytes");
                payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
