//! Durable frontiers and acknowledgements of switches, against what shards have committed.

use std::collections::BTreeMap;

use libra_dataplane::{Kind, Packet, round_newer};
use libra_proto::Ownership;

use super::Verdict;
use super::packets::Packets;

/// A packet that a switch has acknowledged, and the round that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Acknowledged {
    round: u64,
    worker: u16,
    seq: u32,
}

/// The round that is 16 bits on the wire, close to one that is known.
fn unwrapped(round: u16, near: u64) -> u64 {
    let near_on_wire = (near & 0xffff) as u16;
    if round_newer(round, near_on_wire) {
        near + u64::from(round.wrapping_sub(near_on_wire))
    } else {
        near.saturating_sub(u64::from(near_on_wire.wrapping_sub(round)))
    }
}

/// The answers of all switches.
#[derive(Debug, Default)]
pub(super) struct Frontiers {
    /// By region and view: the newest round that was called durable.
    said: BTreeMap<(u8, u16), u64>,
    /// By region: what the newest owner has acknowledged and no shard has applied.
    open: BTreeMap<u8, (u64, Vec<Acknowledged>)>,
}

impl Frontiers {
    /// A switch answers a worker. `committed` is the newest round of the region that its shard has applied.
    // rules D2, E7
    pub(super) fn answer(
        &mut self,
        switch: u16,
        ownership: Option<Ownership>,
        packet: &Packet<'_>,
        committed: u64,
        packets: &mut Packets,
    ) -> Verdict {
        let header = packet.header;
        let region = header.region;
        let Some(ownership) = ownership.filter(|ownership| ownership.owner == Some(switch)) else {
            return Err(format!("switch {switch} answers for region {region} in view {}", header.view));
        };
        // A switch that was replaced may be far behind.
        let said = self.said.get(&(region, header.view)).copied();
        let durable = unwrapped(header.durable, said.unwrap_or(committed));
        if let Some(before) = said.filter(|said| *said > durable) {
            return Err(format!("region {region}: durable went back from {before} to {durable}"));
        }
        self.said.insert((region, header.view), durable);
        if durable > committed {
            return Err(format!(
                "region {region}: switch {switch} calls round {durable} durable, {committed} is committed"
            ));
        }
        if header.kind != Kind::Ack {
            return Ok(());
        }
        if packets.is_over(header.worker, region, ownership.view_id) {
            return Ok(());
        }
        for seq in packet.acknowledged().flat_map(|range| range.iter()) {
            packets.acknowledged(header.worker, region, seq, header.view)?;
            if packets.flow(header.worker, region).is_some_and(|flow| flow.is_applied(seq)) {
                continue;
            }
            let round = unwrapped(header.round, durable);
            if round <= durable {
                return Err(format!(
                    "region {region}: {seq} of worker {} is said to be in round {round}, which is durable, and is not applied",
                    header.worker
                ));
            }
            if let Some(open) = self.open_since(region, ownership.view_id) {
                open.push(Acknowledged { round, worker: header.worker, seq });
            }
        }
        Ok(())
    }

    /// Returns what the owner in this view has acknowledged; `None` if there is a newer ownership. What an older one has acknowledged is over.
    fn open_since(&mut self, region: u8, ownership: u64) -> Option<&mut Vec<Acknowledged>> {
        let (view_id, open) = self.open.entry(region).or_default();
        if *view_id < ownership {
            *view_id = ownership;
            open.clear();
        }
        (*view_id == ownership).then_some(open)
    }

    /// A shard has committed a round of the owner since then: all that was said to be in it must be applied.
    pub(super) fn committed(&mut self, region: u8, view_id: u64, round: u64, packets: &Packets) -> Verdict {
        let Some(open) = self.open_since(region, view_id) else { return Ok(()) };
        let mut missing = None;
        open.retain(|acknowledged| {
            let flow = packets.flow(acknowledged.worker, region);
            if flow.is_some_and(|flow| flow.is_applied(acknowledged.seq)) {
                return false;
            }
            if acknowledged.round <= round {
                missing = Some(*acknowledged);
            }
            true
        });
        match missing {
            None => Ok(()),
            Some(Acknowledged { round: named, worker, seq }) => Err(format!(
                "region {region}: {seq} of worker {worker} is said to be in round {named}; {round} is committed without it"
            )),
        }
    }
}
