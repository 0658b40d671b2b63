//! A frame of a mesh: a head of fixed size, and behind it the sections of a message, each filled up to whole words.

use super::message::{Meta, SECTIONS, WORD};

pub(super) const HEAD_BYTES: usize = 88;
/// The first bytes of every frame: another protocol is detected at once.
const MAGIC: u32 = 0x6c69_6272;
const VERSION: u16 = 2;

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of an application; numbered.
    Application = 1,
    /// A message of the mesh itself; numbered, too.
    Control = 2,
    /// Acknowledges messages, and nothing else.
    Acknowledge = 3,
    /// Asks for an acknowledgement; its number is that of the newest message sent.
    Probe = 4,
    /// Acknowledges messages, and reports that the one after them is missing.
    Missing = 5,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Counts the messages of this direction of the stream, from one.
    pub(super) sequence: u64,
    /// All messages of the other direction up to this one were taken.
    pub(super) taken: u64,
    pub(super) sender: i32,
    pub(super) meta: Meta,
    pub(super) lengths: [u64; SECTIONS],
}

const REQUEST: u8 = 1;
const PUSH: u8 = 2;
const PULL: u8 = 4;
const SIMPLE: u8 = 8;
const REFUSED: u8 = 16;
const INTERNAL: u8 = 32;

impl Head {
    /// One without a message.
    pub(super) fn bare(kind: Kind, sequence: u64, taken: u64, sender: i32) -> Self {
        Self { kind, sequence, taken, sender, meta: Meta::default(), lengths: [0; SECTIONS] }
    }

    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let meta = &self.meta;
        let flags = [
            (meta.request, REQUEST),
            (meta.push, PUSH),
            (meta.pull, PULL),
            (meta.simple, SIMPLE),
            (meta.refused, REFUSED),
            (meta.internal, INTERNAL),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let mut bytes = [0; HEAD_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.put(MAGIC.to_le_bytes());
        writer.put(VERSION.to_le_bytes());
        writer.put([self.kind as u8, flags]);
        writer.put(self.sequence.to_le_bytes());
        writer.put(self.taken.to_le_bytes());
        for number in [self.sender, meta.app, meta.customer, meta.timestamp, meta.head, meta.priority] {
            writer.put(number.to_le_bytes());
        }
        writer.put(meta.value_type.to_le_bytes());
        writer.put([0; 4]);
        for length in self.lengths {
            writer.put(length.to_le_bytes());
        }
        bytes
    }

    /// `None` if this is no frame of this version.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (magic, version) = (u32::from_le_bytes(reader.take()), u16::from_le_bytes(reader.take()));
        if (magic, version) != (MAGIC, VERSION) {
            return None;
        }
        let [kind, flags] = reader.take();
        let kinds = [Kind::Application, Kind::Control, Kind::Acknowledge, Kind::Probe, Kind::Missing];
        let kind = kinds.into_iter().find(|known| *known as u8 == kind)?;
        let (sequence, taken) = (u64::from_le_bytes(reader.take()), u64::from_le_bytes(reader.take()));
        let mut number = || i32::from_le_bytes(reader.take());
        let sender = number();
        let (app, customer, timestamp, head, priority) = (number(), number(), number(), number(), number());
        let value_type = u32::from_le_bytes(reader.take());
        let _filling: [u8; 4] = reader.take();
        let is = |flag| flags & flag != 0;
        let meta = Meta {
            app,
            customer,
            timestamp,
            head,
            priority,
            value_type,
            request: is(REQUEST),
            push: is(PUSH),
            pull: is(PULL),
            simple: is(SIMPLE),
            refused: is(REFUSED),
            internal: is(INTERNAL),
        };
        let lengths = core::array::from_fn(|_| u64::from_le_bytes(reader.take()));
        Some(Self { kind, sequence, taken, sender, meta, lengths })
    }
}

/// Returns the padding behind a section of so many bytes.
pub(super) fn filling(length: usize) -> &'static [u8] {
    &[0; WORD][..length.next_multiple_of(WORD) - length]
}

struct Writer<'a> {
    bytes: &'a mut [u8; HEAD_BYTES],
    at: usize,
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk().expect("a head has all its fields");
        self.0 = rest;
        *bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_out_as_they_went_in() {
        let meta = Meta {
            app: 1,
            customer: -2,
            timestamp: 3,
            head: i32::MIN,
            priority: 5,
            value_type: 9,
            request: true,
            push: false,
            pull: true,
            simple: false,
            refused: true,
            internal: true,
        };
        let head = Head {
            kind: Kind::Control,
            sequence: 7,
            taken: u64::MAX,
            sender: 9,
            meta,
            lengths: [1, 2, 3, 4],
        };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        let bare = Head::bare(Kind::Missing, 1, 2, 3);
        assert_eq!(Head::decode(&bare.encode()), Some(bare));
    }

    #[test]
    fn bytes_without_a_head_are_detected() {
        let head = Head::bare(Kind::Probe, 1, 2, 3).encode();
        for at in [0, 4, 6] {
            let mut wrong = head;
            wrong[at] ^= 0x40;
            assert_eq!(Head::decode(&wrong), None, "byte {at}");
        }
    }
}
