//! Packets in words, and how two of them differ, field by field.

use std::fmt::Write as _;
use std::ops::Range;

use libra_dataplane::{ENTRY_BYTES, Entry, Flags, HEADER_BYTES, Header, Kind, NackReason};

use crate::run::Difference;

/// The numbers of a header that need no words: their names and bytes.
const NUMBERS: [(&str, Range<usize>); 9] = [
    ("magic", 0..1),
    ("version", 13..14),
    ("entries", 3..4),
    ("job", 4..6),
    ("worker", 6..8),
    ("plan", 8..10),
    ("view", 10..12),
    ("region", 12..13),
    ("durable", 16..18),
];

/// A packet in one line, for a sentence about it.
pub(crate) fn summary(packet: &[u8]) -> String {
    match Header::parse(packet) {
        Ok(Header { kind, flags, entries, job, worker, region, seq, .. }) => {
            let kind = kind_in_words(kind as u8);
            let flags = flags_in_words(flags.bits());
            format!("{kind} {flags} seq {seq} of w{job}.{worker} for r{job}.{region}, {entries} entries")
        }
        Err(malformed) => format!("{} bytes that are no packet ({malformed})", packet.len()),
    }
}

/// Lists the differences of an answer from the expected one. Nothing if they are equal.
pub(crate) fn differences(expected: Option<&[u8]>, found: Option<&[u8]>) -> Vec<Difference> {
    let words = |answer: Option<&[u8]>| answer.map_or_else(|| "none".to_owned(), summary);
    match (expected, found) {
        _ if expected == found => vec![],
        (Some(expected), Some(found)) if expected.len().min(found.len()) < HEADER_BYTES => {
            vec![Difference::new("bytes", hex(expected), hex(found))]
        }
        (Some(expected), Some(found)) => field_differences(&fields(expected), &fields(found)),
        _ => vec![Difference::new("answer", words(expected), words(found))],
    }
}

fn field_differences(expected: &[(String, String)], found: &[(String, String)]) -> Vec<Difference> {
    let value = |fields: &[(String, String)], name: &str| {
        let field = fields.iter().find(|(field, _)| field == name);
        field.map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let more = found.iter().filter(|(name, _)| !expected.iter().any(|(field, _)| field == name));
    let names = expected.iter().chain(more).map(|(name, _)| name);
    names
        .map(|name| Difference::new(name, value(expected, name), value(found, name)))
        .filter(|difference| difference.expected != difference.found)
        .collect()
}

/// Lists the fields of a packet, whether it is sound or not; nothing of what is shorter than a header.
fn fields(packet: &[u8]) -> Vec<(String, String)> {
    let Some((head, body)) = packet.split_first_chunk::<HEADER_BYTES>() else { return vec![] };
    let number =
        |range: Range<usize>| head[range].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let is_nack = head[1] == Kind::Nack as u8;
    let round = u16::from_be_bytes([head[14], head[15]]);
    let reason = NackReason::from_code(round).filter(|_| is_nack);
    let mut fields = vec![
        ("kind".to_owned(), kind_in_words(head[1])),
        ("flags".to_owned(), flags_in_words(head[2])),
        (
            "round".to_owned(),
            reason.map_or_else(|| round.to_string(), |reason| format!("{round} ({reason:?})")),
        ),
    ];
    fields.extend(NUMBERS.map(|(name, range)| (name.to_owned(), number(range).to_string())));
    fields.push(("seq".to_owned(), number(18..22).to_string()));
    fields.push(("tag".to_owned(), format!("{:016x}", number(22..30))));
    let is_ranges = head[1] == Kind::Ack as u8 && head[2] & Flags::VALUES.bits() == 0;
    let (entries, rest) = body.as_chunks::<ENTRY_BYTES>();
    fields.extend(entries.iter().enumerate().map(|(place, &bytes)| {
        let Entry { cell, value } = Entry::from_bytes(bytes);
        let words =
            if is_ranges { format!("{cell} from {value}") } else { format!("cell {cell}: {value:08x}") };
        (format!("entry {place}"), words)
    }));
    if !rest.is_empty() {
        fields.push(("behind it".to_owned(), hex(rest)));
    }
    fields
}

fn kind_in_words(code: u8) -> String {
    Kind::from_code(code).map_or_else(|| code.to_string(), |kind| format!("{kind:?}").to_uppercase())
}

fn flags_in_words(bits: u8) -> String {
    let names = [(Flags::RETRANSMIT, "RETRANSMIT"), (Flags::VALUES, "VALUES"), (Flags::LAST, "LAST")];
    let mut words: Vec<_> = names
        .into_iter()
        .filter(|(flag, _)| bits & flag.bits() != 0)
        .map(|(_, name)| name.to_owned())
        .collect();
    let unknown = names.iter().fold(bits, |bits, (flag, _)| bits & !flag.bits());
    if unknown != 0 {
        words.push(format!("{unknown:#04x}"));
    }
    if words.is_empty() { "no flags".to_owned() } else { words.join("+") }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes any text");
        text
    })
}
