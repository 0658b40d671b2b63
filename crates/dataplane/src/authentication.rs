//! Tags of packets: evidence of who sent a packet, to whom, and of each of its bits (rules A1 to A4).
//!
//! The tag is a MAC of 64 bits. NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, CRYPTO '99; with Toeplitz keys as in UMAC,
//! RFC 4418) compresses the entries, twice: two bodies of one length have the same hash with a chance of 2^-64. `SipHash-2-4`
//! (Aumasson and Bernstein, INDOCRYPT 2012) is the pseudorandom function of that, of the header, and of the whole number of the
//! view that a packet's `view` is the end of. There is no nonce to repeat: packets go out again with other flags and views, which MACs of
//! the Wegman-Carter kind do not survive.

use core::fmt;

use crate::mutants::{Mutant, is_enabled};
use crate::simd;
use crate::wire::{ENTRIES_MAX, ENTRY_BYTES, HEADER_BYTES};

/// Bytes of a [`BodyKey`].
pub const BODY_KEY_BYTES: usize = BODY_WORDS_MAX * WORD_BYTES + TOEPLITZ_WORDS * WORD_BYTES;
/// Bytes of a [`TagKey`].
pub const TAG_KEY_BYTES: usize = 16;

const WORD_BYTES: usize = 4;
/// Words that are hashed at once: a body is filled up with zeros to a multiple of so many.
pub(crate) const BLOCK_WORDS: usize = 8;
pub(crate) const BLOCK_BYTES: usize = BLOCK_WORDS * WORD_BYTES;
const BODY_WORDS_MAX: usize = (ENTRIES_MAX * ENTRY_BYTES).next_multiple_of(BLOCK_BYTES) / WORD_BYTES;
/// The second hash uses the same key from this word on.
pub(crate) const TOEPLITZ_WORDS: usize = 4;
/// Words of the key that both hashes of a block use.
pub(crate) const KEY_WORDS: usize = BLOCK_WORDS + TOEPLITZ_WORDS;

/// Offset of the tag in a header, which is the last of it.
const TAG_AT: usize = HEADER_BYTES - 8;

/// A key that compresses the entries of packets. All workers of a job share the one of a switch.
#[derive(Clone, PartialEq, Eq)]
pub struct BodyKey([u32; BODY_KEY_BYTES / WORD_BYTES]);

/// The compressed entries of one packet, for [`TagKey::tag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BodyHash([u64; 2]);

impl BodyKey {
    /// A key of these bytes, which must be secret and look random.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; BODY_KEY_BYTES]) -> Self {
        let mut words = [0; BODY_KEY_BYTES / WORD_BYTES];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// The words of the key, for a data plane that has its own loop.
    #[must_use]
    pub const fn words(&self) -> &[u32; BODY_KEY_BYTES / WORD_BYTES] {
        &self.0
    }

    /// Compresses the entries of a packet: what follows its header.
    ///
    /// Of bytes beyond those of [`ENTRIES_MAX`] entries nothing is read.
    #[inline]
    #[must_use]
    pub fn hash(&self, body: &[u8]) -> BodyHash {
        let (blocks, rest) = body.as_chunks();
        let last = (!rest.is_empty() && !is_enabled(Mutant::PaddingNotHashed)).then(|| {
            let mut block = [0; BLOCK_BYTES];
            block.iter_mut().zip(rest).for_each(|(padded, byte)| *padded = *byte);
            block
        });
        let keys = (0..).step_by(BLOCK_WORDS).map_while(|at| self.0.get(at..)?.first_chunk());
        let hash = simd::nh(&self.0, blocks, last.as_ref())
            .unwrap_or_else(|| blocks.iter().chain(&last).zip(keys).fold([0; 2], nh_block));
        BodyHash(hash)
    }
}

/// Adds a block to both hashes.
#[inline]
fn nh_block([mut a, mut b]: [u64; 2], (block, key): (&[u8; BLOCK_BYTES], &[u32; KEY_WORDS])) -> [u64; 2] {
    let pairs = block.as_chunks::<8>().0;
    let keys = key.as_chunks::<2>().0;
    let shifted = keys.get(TOEPLITZ_WORDS / 2..).unwrap_or_default();
    for ((pair, key), shifted) in pairs.iter().zip(keys).zip(shifted) {
        a = a.wrapping_add(product(*pair, *key));
        b = b.wrapping_add(product(*pair, *shifted));
    }
    [a, b]
}

/// The product of a pair of words, each with a word of the key added.
#[inline]
fn product([m0, m1, m2, m3, m4, m5, m6, m7]: [u8; 8], [first, second]: [u32; 2]) -> u64 {
    let first = u32::from_le_bytes([m0, m1, m2, m3]).wrapping_add(first);
    let second = u32::from_le_bytes([m4, m5, m6, m7]).wrapping_add(second);
    u64::from(first).wrapping_mul(second.into())
}

/// A key of tags, of one worker, one switch and one direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TagKey([u64; 2]);

impl TagKey {
    /// A key of these bytes, which must be secret and look random.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; TAG_KEY_BYTES]) -> Self {
        let [k0, k1, k2, k3, k4, k5, k6, k7, high @ ..] = bytes;
        Self([u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]), u64::from_le_bytes(high)])
    }

    /// The two words of the key, for a data plane that has its own function.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// The tag of a packet with this header, whatever tag it has now (rule A2).
    ///
    /// `view_id` is the number of the view since which the switch holds the region; its lower 16 bits are in the header.
    #[inline]
    #[must_use]
    pub fn tag(self, header: &[u8; HEADER_BYTES], view_id: u64, body: BodyHash) -> u64 {
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(header.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [h0, h1, h2] = words;
        // Without the first two bytes of the tag.
        let h2 = h2 & ((1 << (8 * (TAG_AT - 16))) - 1);
        let BodyHash([a, b]) = body;
        let view_id = if is_enabled(Mutant::SinceNotInTag) { 0 } else { view_id };
        self.sip_hash([h0, h1, h2, view_id, a, b])
    }

    /// SipHash-2-4 of so many bytes.
    #[inline]
    fn sip_hash<const WORDS: usize>(self, message: [u64; WORDS]) -> u64 {
        let [k0, k1] = self.0;
        let mut state = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let length = ((WORDS as u64).wrapping_mul(8) & 0xff).wrapping_shl(56);
        for word in message.into_iter().chain([length]) {
            state[3] ^= word;
            state = sip_round(sip_round(state));
            state[0] ^= word;
        }
        state[2] ^= 0xff;
        for _ in 0..4 {
            state = sip_round(state);
        }
        let [v0, v1, v2, v3] = state;
        v0 ^ v1 ^ v2 ^ v3
    }
}

#[inline]
const fn sip_round([mut v0, mut v1, mut v2, mut v3]: [u64; 4]) -> [u64; 4] {
    v0 = v0.wrapping_add(v1);
    v1 = v1.rotate_left(13) ^ v0;
    v0 = v0.rotate_left(32);
    v2 = v2.wrapping_add(v3);
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.wrapping_add(v3);
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v2 = v2.rotate_left(32);
    [v0, v1, v2, v3]
}

/// The two keys between a worker and a switch: what goes one way is no evidence of anything that goes the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PathKeys {
    /// The key of packets from the worker to the switch.
    pub up: TagKey,
    /// The key of answers to the worker.
    pub down: TagKey,
}

/// The way of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a worker to a switch.
    Up,
    /// From a switch to a worker.
    Down,
}

/// The tags between a worker and a switch, in a job with keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tags<'k> {
    /// Each packet has this number: for switches that cannot compute a MAC. It stops those who cannot read packets.
    Cookie(u64),
    /// Each packet has the MAC of its bytes.
    Mac {
        /// The key that compresses entries.
        body: &'k BodyKey,
        /// The keys of MACs.
        keys: PathKeys,
    },
}

impl Tags<'_> {
    /// Compresses the entries of a packet, for [`tag`](Self::tag).
    #[inline]
    #[must_use]
    pub fn body_hash(self, body: &[u8]) -> BodyHash {
        match self {
            Self::Cookie(_) => BodyHash::default(),
            Self::Mac { body: key, .. } => key.hash(body),
        }
    }

    /// The tag of a packet with this header and these entries, in a region that its switch holds since this view.
    #[inline]
    #[must_use]
    pub fn tag(self, direction: Direction, header: &[u8; HEADER_BYTES], view: u64, body: BodyHash) -> u64 {
        match self {
            Self::Cookie(cookie) => cookie,
            Self::Mac { keys: PathKeys { up, down }, .. } => {
                let is_up = direction == Direction::Up || is_enabled(Mutant::OneKeyBothWays);
                if is_up { up } else { down }.tag(header, view, body)
            }
        }
    }

    /// Returns true if a packet has the tag that it must have.
    #[inline]
    #[must_use]
    pub fn is_authentic(self, direction: Direction, packet: &[u8], view: u64) -> bool {
        let Some((header, body)) = packet.split_first_chunk() else { return false };
        self.tag(direction, header, view, self.body_hash(body)) == tag_of(header)
    }

    /// Gives a packet its tag; nothing if it is shorter than a header.
    #[inline]
    pub fn sign(self, direction: Direction, packet: &mut [u8], view: u64) {
        let Some((header, body)) = packet.split_first_chunk_mut() else { return };
        set_tag(header, self.tag(direction, header, view, self.body_hash(body)));
    }
}

/// The tag that a packet has.
#[inline]
#[must_use]
pub fn tag_of(header: &[u8; HEADER_BYTES]) -> u64 {
    header.last_chunk().map_or(0, |tag| u64::from_be_bytes(*tag))
}

/// Writes the tag of a packet.
#[inline]
pub fn set_tag(header: &mut [u8; HEADER_BYTES], tag: u64) {
    if let Some(bytes) = header.last_chunk_mut() {
        *bytes = tag.to_be_bytes();
    }
}

impl fmt::Debug for BodyKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BodyKey(secret)")
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TagKey(secret)")
    }
}

impl fmt::Debug for Tags<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cookie(_) => "Cookie(secret)",
            Self::Mac { .. } => "Mac(secret)",
        })
    }
}

impl fmt::Debug for PathKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PathKeys(secret)")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::wire::{Header, Kind};

    fn byte(number: usize) -> u8 {
        u8::try_from(number % 256).unwrap()
    }

    /// The first outputs of the reference implementation, of messages 00 01 02 .. under the key 00 01 .. 0f.
    #[test]
    fn sip_hash_agrees_with_its_authors() {
        let key = TagKey::from_bytes(core::array::from_fn(byte));
        let words = |word: usize| u64::from_le_bytes(core::array::from_fn(|at| byte(8 * word + at)));
        assert_eq!(key.sip_hash([]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.sip_hash([words(0)]), 0x93f5_f579_9a93_2462);
        assert_eq!(key.sip_hash(core::array::from_fn::<_, 2, _>(words)), 0x3f2a_cc7f_57c2_9bdb);
    }

    fn body_key() -> BodyKey {
        BodyKey::from_bytes(&core::array::from_fn(|at| byte(at * 167 + at / 256 * 13)))
    }

    /// As its definition reads, one word after the other.
    fn hash_by_definition(key: &BodyKey, body: &[u8]) -> [u64; 2] {
        let mut padded = body.to_vec();
        padded.resize(body.len().next_multiple_of(32), 0);
        let words: Vec<u32> =
            padded.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        [0, 4].map(|shift| {
            (0..words.len()).step_by(2).fold(0_u64, |sum, at| {
                let first = words[at].wrapping_add(key.0[at + shift]);
                let second = words[at + 1].wrapping_add(key.0[at + 1 + shift]);
                sum.wrapping_add(u64::from(first) * u64::from(second))
            })
        })
    }

    // rule A2
    #[test]
    fn bodies_of_all_lengths_hash_as_defined() {
        let key = body_key();
        let body: Vec<u8> = (0..ENTRIES_MAX * ENTRY_BYTES).map(|at| byte(at * 31 + at / 7)).collect();
        for entries in 0..=ENTRIES_MAX {
            let body = &body[..entries * ENTRY_BYTES];
            assert_eq!(key.hash(body).0, hash_by_definition(&key, body), "{entries} entries");
        }
        assert_eq!(key.hash(&[0xff; 1530]).0, hash_by_definition(&key, &[0xff; 1530]));
    }

    // rule A2
    #[test]
    fn every_bit_of_a_packet_changes_its_tag() {
        let (body_key, key) = (body_key(), TagKey::from_bytes([7; 16]));
        let header = Header { job: 1, worker: 2, view: 3, seq: 4, ..Header::of_kind(Kind::Push) };
        let body = [0x55; 42];
        let tag =
            |header: &[u8; HEADER_BYTES], view_id, body: &[u8]| key.tag(header, view_id, body_key.hash(body));
        let header = header.to_bytes();
        let right = tag(&header, 3, &body);
        for bit in 0..8 * TAG_AT {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(tag(&flipped, 3, &body), right, "bit {bit} of the header");
        }
        for bit in 0..8 * body.len() {
            let mut flipped = body;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(tag(&header, 3, &flipped), right, "bit {bit} of the body");
        }
        assert_ne!(tag(&header, 3 + (1 << 16), &body), right);
        let mut tagged = header;
        set_tag(&mut tagged, u64::MAX);
        assert_eq!((tag(&tagged, 3, &body), tag_of(&tagged)), (right, u64::MAX));
    }

    #[test]
    fn keys_are_not_printed() {
        let key = TagKey::from_bytes([0x41; 16]);
        let keys = PathKeys { up: key, down: key };
        let printed = std::format!("{:?} {key:?} {keys:?} {:?}", body_key(), Tags::Cookie(0x4141));
        assert_eq!(printed, "BodyKey(secret) TagKey(secret) PathKeys(secret) Cookie(secret)");
    }
}
