//! The fuzz target of the program in the kernel, beside the pipeline: sequences of packets, most of them with a few bytes changed.

use std::sync::{Mutex, PoisonError};

use libra_dataplane::{Arithmetic, Entry, Flags, HEADER_BYTES, Header, Kind, WINDOW, entries_in};
use libra_fuzz::{Outcome, Sequences, Target, fuzz, join, split};
use libra_proto::RoundContents;

use crate::scene::{Both, address, config, header, values, write};

const WORKERS: u8 = 4;
/// Packets of a sequence, at most.
const PACKETS_MAX: usize = 40;
/// A region with the windows of its flows is opened for each sequence.
const MEMORY_BYTES: u64 = 4 << 20;
const REGION: u8 = 0;

fn packets() -> Vec<Vec<u8>> {
    let entries = |count: u16| -> Vec<Entry> {
        (0..count).map(|cell| Entry { cell: 3 * cell, value: 100 + u32::from(cell) }).collect()
    };
    let kinds = [Kind::Push, Kind::Push, Kind::Pull, Kind::Install, Kind::Drain, Kind::Ack];
    let packet = |(number, kind): (u16, Kind)| {
        let worker = number % u16::from(WORKERS);
        let flags = Flags::from_bits(u8::try_from(number % 8).unwrap()).unwrap();
        let header = Header { flags, ..header(kind, worker, u32::from(number / 8)) };
        write(header, &entries(number % 20))
    };
    (0..60).zip(kinds.into_iter().cycle()).map(packet).collect()
}

/// Makes the number of entries agree with the length, if a number does.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        bytes[3] = entries_in(bytes.len());
    }
}

/// Answers are compared with each packet, counters, contents and sums at the end.
fn read(both: &mut Both, inputs: &[u8]) -> Outcome {
    both.each(|plane| plane.forget(REGION));
    both.open(config(REGION, Arithmetic::Fixed { bound: 1 << 20 }), 7, &RoundContents::default());
    both.each(|plane| plane.install(REGION, &values(&[(0, 7), (3, 9)])));
    let mut answers = 0;
    for (worker, packet) in split(inputs).into_iter().take(PACKETS_MAX) {
        // A sender does not go on before what it sent a window before is acknowledged; kernels read no more than a frame has.
        let window = u32::try_from(WINDOW).unwrap();
        let breaks_the_rule = Header::parse_without_entries(packet)
            .is_ok_and(|header| header.kind == Kind::Push && (window..u32::MAX).contains(&header.seq));
        if !breaks_the_rule && !packet.is_empty() && packet.len() <= 1472 {
            answers += u32::from(both.send(address((worker % WORKERS).into()), packet).is_some());
        }
    }
    both.compare(&[REGION]);
    both.close_round(REGION);
    both.compare(&[REGION]);
    if answers > 0 { Outcome::beyond("answered") } else { Outcome::refused("no answer") }
}

// rules W5, W6, W12
#[test]
fn fuzz_kernel() {
    let Some(both) = Both::load(WORKERS.into()) else { return };
    // A sequence that fails leaves the planes different, and is not tried in a smaller form.
    let both = Mutex::new(both);
    let read = |inputs: &[u8]| read(&mut both.lock().unwrap_or_else(PoisonError::into_inner), inputs);
    let numbered: Vec<(u8, Vec<u8>)> = (0..WORKERS).cycle().zip(packets()).collect();
    let seeds = numbered.chunks(PACKETS_MAX).map(join).collect();
    let target = Target::new("kernel", seeds).with_memory(MEMORY_BYTES);
    let sequences = Sequences::of(packets(), PACKETS_MAX, WORKERS).sealed(seal);
    fuzz!(target, sequences.clone(), read);
}
