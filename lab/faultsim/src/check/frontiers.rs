//! Durable frontiers and acknowledgements of switches, against what shards have committed.

use std::collections::BTreeMap;

use libra_dataplane::{Kind, Packet, epoch_newer};
use libra_proto::Tenure;

use super::Verdict;
use super::packets::Packets;

/// A packet that a switch has acknowledged, and the epoch that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Acknowledged {
    epoch: u64,
    worker: u16,
    seq: u32,
}

/// The epoch that is 16 bits on the wire, close to one that is known.
fn unwrapped(epoch: u16, near: u64) -> u64 {
    let near_on_wire = (near & 0xffff) as u16;
    if epoch_newer(epoch, near_on_wire) {
        near + u64::from(epoch.wrapping_sub(near_on_wire))
    } else {
        near.saturating_sub(u64::from(near_on_wire.wrapping_sub(epoch)))
    }
}

/// The answers of all switches.
#[derive(Debug, Default)]
pub(super) struct Frontiers {
    /// By region and view: the newest epoch that was called durable.
    said: BTreeMap<(u8, u16), u64>,
    /// By region: what the holder of the newest tenure has acknowledged and no shard has applied.
    open: BTreeMap<u8, (u64, Vec<Acknowledged>)>,
}

impl Frontiers {
    /// A switch answers a worker. `committed` is the newest epoch of the region that its shard has applied.
    // rules D2, E7
    pub(super) fn answer(
        &mut self,
        switch: u16,
        tenure: Option<Tenure>,
        packet: &Packet<'_>,
        committed: u64,
        packets: &mut Packets,
    ) -> Verdict {
        let header = packet.header;
        let region = header.region;
        let Some(tenure) = tenure.filter(|tenure| tenure.holder == Some(switch)) else {
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
                "region {region}: switch {switch} calls epoch {durable} durable, {committed} is committed"
            ));
        }
        if header.kind != Kind::Ack {
            return Ok(());
        }
        if packets.is_over(header.worker, region, tenure.since) {
            return Ok(());
        }
        for seq in packet.acknowledged().flat_map(|range| range.iter()) {
            packets.acknowledged(header.worker, region, seq, header.view)?;
            if packets.flow(header.worker, region).is_some_and(|flow| flow.is_applied(seq)) {
                continue;
            }
            let epoch = unwrapped(header.epoch, durable);
            if epoch <= durable {
                return Err(format!(
                    "region {region}: {seq} of worker {} is said to be in epoch {epoch}, which is durable, and is not applied",
                    header.worker
                ));
            }
            if let Some(open) = self.open_since(region, tenure.since) {
                open.push(Acknowledged { epoch, worker: header.worker, seq });
            }
        }
        Ok(())
    }

    /// Returns what the holder of this tenure has acknowledged; `None` if there is a newer tenure. What an older one has acknowledged is over.
    fn open_since(&mut self, region: u8, tenure: u64) -> Option<&mut Vec<Acknowledged>> {
        let (since, open) = self.open.entry(region).or_default();
        if *since < tenure {
            *since = tenure;
            open.clear();
        }
        (*since == tenure).then_some(open)
    }

    /// A shard has committed an epoch of the holder since then: all that was said to be in it must be applied.
    pub(super) fn committed(&mut self, region: u8, since: u64, epoch: u64, packets: &Packets) -> Verdict {
        let Some(open) = self.open_since(region, since) else { return Ok(()) };
        let mut missing = None;
        open.retain(|acknowledged| {
            let flow = packets.flow(acknowledged.worker, region);
            if flow.is_some_and(|flow| flow.is_applied(acknowledged.seq)) {
                return false;
            }
            if acknowledged.epoch <= epoch {
                missing = Some(*acknowledged);
            }
            true
        });
        match missing {
            None => Ok(()),
            Some(Acknowledged { epoch: named, worker, seq }) => Err(format!(
                "region {region}: {seq} of worker {worker} is said to be in epoch {named}; {epoch} is committed without it"
            )),
        }
    }
}
