//! Messages of applications: a few numbers, a text, and up to three arrays.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

/// Bytes that their owner keeps unchanged until they are dropped: they are sent from where they lie.
#[derive(Clone, Default)]
pub struct Bytes(Option<Arc<dyn AsRef<[u8]> + Send + Sync>>);

impl Bytes {
    /// Bytes that `owner` keeps.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(owner)))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |owner| (**owner).as_ref())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.as_slice().len())
    }
}

/// The numbers of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meta {
    /// The application that it is for.
    pub app: i32,
    /// Customer that made the request, in the process of the worker.
    pub customer: i32,
    /// Number of the request among those of that customer.
    pub timestamp: i32,
    /// A command, or whatever the application likes.
    pub head: i32,
    /// Requests with a higher one should be served first.
    pub priority: i32,
    /// Type of the values, in numbers that this crate does not interpret.
    pub value_type: u32,
    /// A request; a response otherwise.
    pub request: bool,
    /// It brings values.
    pub push: bool,
    /// It asks for values.
    pub pull: bool,
    /// It has a text and no arrays.
    pub simple: bool,
    /// A response to a request that could not be served; the text has the reason.
    pub refused: bool,
    /// It is between the libraries of two processes, and not for the application.
    pub internal: bool,
}

/// A message on its way out.
#[derive(Debug, Clone, Default)]
pub struct OutgoingMessage {
    /// Its numbers.
    pub meta: Meta,
    /// Its text.
    pub text: Bytes,
    /// Keys, 8 bytes each.
    pub keys: Bytes,
    /// Values.
    pub values: Bytes,
    /// Number of values of each key, 4 bytes each; empty if all have as many.
    pub lengths: Bytes,
}

impl OutgoingMessage {
    /// Text, keys, values and lengths, in the order of a frame.
    pub(super) fn sections(&self) -> [&[u8]; SECTIONS] {
        [&self.text, &self.keys, &self.values, &self.lengths].map(Bytes::as_slice)
    }
}

/// Number of runs of bytes in a message.
pub(super) const SECTIONS: usize = 4;

/// A message that has come.
#[derive(Debug)]
pub struct Received {
    /// The node that sent it.
    pub sender: i32,
    /// Its numbers.
    pub meta: Meta,
    /// Its text and arrays.
    pub payload: Payload,
}

/// Text and arrays of a message, in one run of memory; each begins where a number of 8 bytes may begin.
#[derive(Debug, Default)]
pub struct Payload {
    words: Vec<u64>,
    sections: [Range<usize>; SECTIONS],
}

impl Payload {
    /// Memory for sections of these lengths; what is in it is left over from before. `None` if that is more than there can be.
    pub(super) fn prepare(mut words: Vec<u64>, lengths: [u64; SECTIONS]) -> Option<Self> {
        let sections = sections_of(lengths)?;
        let needed = sections[SECTIONS - 1].end.div_ceil(WORD);
        if words.len() < needed {
            words.resize(needed, 0);
        }
        Some(Self { words, sections })
    }

    /// Returns the number of bytes they take in a stream; `None` if that is more than there can be.
    pub(super) fn stream_length(lengths: [u64; SECTIONS]) -> Option<usize> {
        sections_of(lengths).map(|sections| sections[SECTIONS - 1].end.next_multiple_of(WORD))
    }

    /// The bytes as they come from a stream, with the padding of sections.
    pub(super) fn stream_bytes_mut(&mut self) -> &mut [u8] {
        let end = self.sections[SECTIONS - 1].end.next_multiple_of(WORD);
        &mut bytemuck::cast_slice_mut(&mut self.words)[..end]
    }

    /// Copies a message on its way out, for one that goes over no stream. `None` if that is more than there can be.
    pub fn copied(outgoing: &OutgoingMessage) -> Option<Self> {
        let sections = outgoing.sections();
        let mut payload = Self::prepare(Vec::new(), sections.map(|section| section.len() as u64))?;
        let ranges = payload.sections.clone();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut payload.words);
        for (range, section) in ranges.into_iter().zip(sections) {
            bytes[range].copy_from_slice(section);
        }
        Some(payload)
    }

    /// The memory, to be used again.
    pub(super) fn into_words(self) -> Vec<u64> {
        self.words
    }

    fn section(&self, number: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.sections[number].clone()]
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        self.section(0)
    }

    /// The keys; bytes that make no whole key are left out.
    pub fn keys(&self) -> &[u64] {
        let bytes = self.section(1);
        bytemuck::cast_slice(&bytes[..bytes.len() / WORD * WORD])
    }

    /// The values.
    pub fn values(&self) -> &[u8] {
        self.section(2)
    }

    /// The lengths; bytes that make no whole one are left out.
    pub fn lengths(&self) -> &[i32] {
        let bytes = self.section(3);
        bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<i32>() * size_of::<i32>()])
    }
}

fn sections_of(lengths: [u64; SECTIONS]) -> Option<[Range<usize>; SECTIONS]> {
    let mut end = 0_usize;
    let mut sections = [const { 0..0 }; SECTIONS];
    for (section, length) in sections.iter_mut().zip(lengths) {
        let length = usize::try_from(length).ok()?;
        *section = end..end.checked_add(length)?;
        end = section.end.checked_next_multiple_of(WORD)?;
    }
    (end <= BYTES_MAX).then_some(sections)
}

pub(super) const WORD: usize = size_of::<u64>();
/// No message takes more.
const BYTES_MAX: usize = 1 << 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_come_out_as_they_went_in() {
        let outgoing = OutgoingMessage {
            text: Bytes::new(*b"hello"),
            keys: Bytes::new(bytemuck::cast::<[u64; 2], [u8; 16]>([1, u64::MAX])),
            values: Bytes::new(*b"four"),
            lengths: Bytes::new(bytemuck::cast::<[i32; 1], [u8; 4]>([-7])),
            ..OutgoingMessage::default()
        };
        let payload = Payload::copied(&outgoing).unwrap();
        assert_eq!((payload.text(), payload.values()), (b"hello".as_slice(), b"four".as_slice()));
        assert_eq!((payload.keys(), payload.lengths()), ([1, u64::MAX].as_slice(), [-7].as_slice()));
    }

    #[test]
    fn lengths_that_no_memory_has_are_refused() {
        for lengths in [[u64::MAX; 4], [1, u64::MAX - 8, 0, 0], [0, 0, 0, 1 << 37]] {
            assert!(Payload::prepare(Vec::new(), lengths).is_none());
        }
    }
}
