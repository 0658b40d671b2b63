//! Trace of a world: as one number, and as lines for a person.

use core::fmt;

use libra_dataplane::{Kind, Packet};
use libra_proto::{Instant, Message};

/// A running hash of everything that happens in a world: FNV-1a over words of 64 bits instead of bytes, with a rotation,
/// because a word may differ in its upper bits only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// The number so far.
    pub fn value(self) -> u64 {
        self.0
    }

    /// Takes in one word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Takes in bytes, and how many there are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (into, byte) in last.iter_mut().zip(rest) {
            *into = *byte;
        }
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    /// Takes in that something happened: when, where, and what kind of thing.
    pub(crate) fn event(&mut self, at: Instant, place: usize, kind: u64) {
        self.word(at.as_nanos());
        self.word((place as u64) << 8 | kind);
    }
}

/// Takes the lines of a trace.
pub struct TraceWriter(Box<dyn FnMut(&str)>);

impl TraceWriter {
    /// Hands each line to `write`.
    pub fn new(write: impl FnMut(&str) + 'static) -> Self {
        Self(Box::new(write))
    }

    pub(crate) fn line(&mut self, at: Instant, text: &str) {
        (self.0)(&format!("{at} {text}"));
    }
}

impl fmt::Debug for TraceWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TraceWriter")
    }
}

/// A hot packet in one line.
pub(crate) fn describe_datagram(datagram: &[u8]) -> String {
    let packet = match Packet::parse(datagram) {
        Ok(packet) => packet,
        Err(malformed) => return format!("{} bytes: {malformed}", datagram.len()),
    };
    let header = packet.header;
    let mut text = format!(
        "{:?} worker {} region {} view {:#x} seq {} entries {}",
        header.kind, header.worker, header.region, header.view, header.seq, header.entries
    );
    if header.flags.bits() != 0 {
        text += &format!(" flags {:#05b}", header.flags.bits());
    }
    match header.kind {
        Kind::Push | Kind::Install | Kind::Drain => {}
        Kind::Nack => text += &format!(" {:?} durable {}", header.nack_reason(), header.durable),
        _ => text += &format!(" round {} durable {}", header.round, header.durable),
    }
    for range in packet.acknowledged() {
        text += &format!(" [{}+{}]", range.first, range.count);
    }
    text
}

/// A message in one line, without the values in it.
pub(crate) fn describe_message(message: &Message) -> String {
    match message {
        Message::Start(start) => format!("Start you {} view {:?}", start.you, start.cluster.view),
        Message::View(view) => format!("View {view:?}"),
        Message::Rejoin(rejoin) => format!("Rejoin {} view {:#x}", rejoin.you, rejoin.view),
        Message::Restoring(progress) => {
            format!("Restoring server {} {} of {}", progress.server, progress.read, progress.total)
        }
        Message::Heartbeat { probe, .. } => format!("Heartbeat probe {probe}"),
        Message::Push(push) => format!("cold Push {} keys {:?}", push.number, push.keys.to_vec()),
        Message::Pushed { number, .. } => format!("Pushed {number}"),
        Message::Pull { number, keys } => format!("Pull {number} keys {:?}", keys.to_vec()),
        Message::Pulled { number, .. } => format!("Pulled {number}"),
        Message::Drained(drained) => format!(
            "Drained region {} since {:#x} round {} contents {} slots {:?}",
            drained.region,
            drained.view_id,
            drained.round,
            describe_contents(&drained.contents),
            drained.slots
        ),
        Message::Committed(committed) => format!(
            "Committed region {} since {:#x} round {}",
            committed.region, committed.view_id, committed.round
        ),
        Message::Adopted(adopted) => format!(
            "Adopted region {} since {:#x} round {} change {} contents {}",
            adopted.region,
            adopted.view_id,
            adopted.round,
            adopted.change,
            describe_contents(&adopted.contents)
        ),
        Message::Changed(changed) => format!(
            "Changed region {} since {:#x} change {} slots {:?}",
            changed.region, changed.view_id, changed.change, changed.values.slots
        ),
        Message::Replay(replay) => {
            format!(
                "Replay region {} since {:#x} packets {}",
                replay.region,
                replay.view_id,
                replay.packets.len()
            )
        }
        other => format!("{other:?}"),
    }
}

fn describe_contents(contents: &libra_proto::RoundContents) -> String {
    let used = contents.flows.iter();
    used.map(|(worker, flow)| format!("{worker}:{}{:?}", flow.below, flow.above))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_length_and_every_byte_count() {
        let hash = |parts: &[&[u8]]| {
            let mut hash = TraceHash::default();
            parts.iter().for_each(|part| hash.bytes(part));
            hash.value()
        };
        let all = [
            hash(&[b"abcdefghi"]),
            hash(&[b"abcdefghj"]),
            hash(&[b"abcdefghi\0"]),
            hash(&[b"abc", b"defghi"]),
            hash(&[b"defghi", b"abc"]),
            hash(&[]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one));
        }
    }
}
