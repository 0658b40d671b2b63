//! Roles that receive any messages and datagrams from members of any kind.

use libra_dataplane::{Header, MAGIC};
use libra_faultsim::{ClusterHarness, Host};
use libra_fuzz::{Outcome, Sequences, Target, join, split};
use libra_proto::Message;

use crate::job::job;

/// A job of this size, with what it has sent and received, takes about 600 KiB.
const MEMORY_BYTES: u64 = 2 << 20;
/// Inputs of one job.
const INPUTS_MAX: usize = 12;
/// Members of the job.
const MEMBERS: u8 = 6;

/// Each input comes from one member to another, by its number. One that begins as a packet is a datagram, all others are messages.
pub(crate) fn read(inputs: &[u8]) -> Outcome {
    let mut harness = ClusterHarness::busy();
    let members = Host::from(MEMBERS);
    let mut received = 0;
    for (way, input) in split(inputs) {
        let (from, to) = (Host::from(way) % members, Host::from(way) / members % members);
        if input.first() == Some(&MAGIC) {
            harness.world.inject(harness.world.address(from), to, input.to_vec());
            received += u32::from(Header::parse(input).is_ok());
        } else if let Ok(message) = Message::decode(input) {
            harness.world.forge(from, to, &message);
            received += 1;
        }
        for _ in 0..20 {
            harness.step();
        }
    }
    for _ in 0..300 {
        harness.step();
    }
    if received > 0 { Outcome::beyond("received") } else { Outcome::refused("nothing received") }
}

pub(crate) fn target() -> (Target, Sequences) {
    let inputs = [job().messages.clone(), job().datagrams.clone()].concat();
    let seeds = inputs.chunks(INPUTS_MAX).map(|inputs| {
        let ways = (0..MEMBERS * MEMBERS).cycle();
        join(&ways.zip(inputs.iter().cloned()).collect::<Vec<_>>())
    });
    let target = Target::new("role", seeds.collect()).with_memory(MEMORY_BYTES);
    (target, Sequences::of(inputs, INPUTS_MAX, MEMBERS * MEMBERS))
}
