//! Contents of every PUSH packet, and its state.

use std::collections::{BTreeMap, BTreeSet};

use libra_dataplane::{Entry, Flags, HEADER_BYTES, Packet, WINDOW};

use super::{Verdict, lasting_flags};

const WINDOW_U32: u32 = 1024;
const _: () = assert!(WINDOW == WINDOW_U32 as usize);

/// One packet.
#[derive(Debug)]
struct Content {
    flags: u8,
    /// The entries as they are on the wire.
    body: Box<[u8]>,
    /// The views under which it was sent to a switch.
    views: Vec<u16>,
    /// The view under which a switch acknowledged it last.
    acknowledged_in: Option<u16>,
}

/// The packets of one worker for one region, by their sequence number.
#[derive(Debug, Default)]
pub(super) struct Flow {
    contents: Vec<Option<Content>>,
    /// The view in which its worker sent the newest packet.
    view: Option<u16>,
    /// Packets that shards have applied: everything below, and these above.
    applied_below: u32,
    applied_above: BTreeSet<u32>,
}

impl Flow {
    pub(super) fn is_applied(&self, seq: u32) -> bool {
        seq < self.applied_below || self.applied_above.contains(&seq)
    }

    pub(super) fn applied_below(&self) -> u32 {
        self.applied_below
    }

    /// Packets applied beyond [`applied_below`](Self::applied_below).
    pub(super) fn applied_above(&self) -> &BTreeSet<u32> {
        &self.applied_above
    }

    fn content(&self, seq: u32) -> Option<&Content> {
        self.contents.get(seq as usize)?.as_ref()
    }

    /// The entries of a packet that was sent.
    pub(super) fn entries(&self, seq: u32) -> Option<impl Iterator<Item = Entry>> {
        let (entries, _) = self.content(seq)?.body.as_chunks();
        Some(entries.iter().map(|entry| Entry::from_bytes(*entry)))
    }

    /// Notes that a packet is applied. `false` if it was before.
    pub(super) fn apply(&mut self, seq: u32) -> bool {
        if self.is_applied(seq) || !self.applied_above.insert(seq) {
            return false;
        }
        while self.applied_above.remove(&self.applied_below) {
            self.applied_below += 1;
        }
        true
    }

    /// The sequence numbers of packets that were sent and are not applied.
    pub(super) fn unapplied(&self) -> impl Iterator<Item = u32> {
        (self.applied_below..)
            .zip(&self.contents[(self.applied_below as usize).min(self.contents.len())..])
            .filter(|(seq, content)| content.is_some() && !self.applied_above.contains(seq))
            .map(|(seq, _)| seq)
    }

    /// The view in which a packet was acknowledged last.
    pub(super) fn acknowledged_in(&self, seq: u32) -> Option<u16> {
        self.content(seq)?.acknowledged_in
    }
}

/// All flows, by worker and region.
#[derive(Debug)]
pub(super) struct Packets {
    /// Packets of a flow that a worker may keep for a replay (rule T2).
    undurable_max: u32,
    flows: BTreeMap<(u16, u8), Flow>,
    /// The view in which a flow last restarted.
    begun: BTreeMap<(u16, u8), u64>,
    /// Flows before their restarts.
    ended: Vec<((u16, u8), Flow)>,
}

impl Packets {
    pub(super) fn new(undurable_max: u32) -> Self {
        Self { undurable_max, flows: BTreeMap::new(), begun: BTreeMap::new(), ended: Vec::new() }
    }

    pub(super) fn flow(&self, worker: u16, region: u8) -> Option<&Flow> {
        self.flows.get(&(worker, region))
    }

    pub(super) fn flow_mut(&mut self, worker: u16, region: u8) -> &mut Flow {
        self.flows.entry((worker, region)).or_default()
    }

    // rule T18
    /// A shard acts on a view in which a flow restarts: all of the old flow is applied. Returns true if this is new.
    pub(super) fn restart_flow(&mut self, worker: u16, region: u8, view_id: u64) -> Result<bool, String> {
        let begun = self.begun.entry((worker, region)).or_default();
        if *begun >= view_id {
            return Ok(false);
        }
        *begun = view_id;
        let flow = self.flows.remove(&(worker, region)).unwrap_or_default();
        if let Some(seq) = flow.unapplied().next() {
            return Err(format!(
                "worker {worker}, region {region}: the flow restarts in view {view_id:#x}, and {seq} is not applied"
            ));
        }
        self.ended.push(((worker, region), flow));
        Ok(true)
    }

    /// True if a message under an ownership is about a flow that has restarted since.
    pub(super) fn is_over(&self, worker: u16, region: u8, ownership: u64) -> bool {
        self.begun.get(&(worker, region)).is_some_and(|view_id| ownership < *view_id)
    }

    /// Number of restarts of flows.
    pub(super) fn renewals(&self) -> u64 {
        self.ended.len() as u64
    }

    /// All flows, and those from before restarts.
    pub(super) fn all_flows(&self) -> impl Iterator<Item = ((u16, u8), &Flow)> {
        self.flows().chain(self.ended.iter().map(|(key, flow)| (*key, flow)))
    }

    pub(super) fn flows(&self) -> impl Iterator<Item = ((u16, u8), &Flow)> {
        self.flows.iter().map(|(key, flow)| (*key, flow))
    }

    // rules T1, T2, T4, V5
    /// A worker sends a packet to a switch.
    pub(super) fn sent(&mut self, packet: &Packet<'_>, datagram: &[u8]) -> Verdict {
        let header = packet.header;
        let content = self.note(packet, datagram)?;
        let again = !content.views.is_empty();
        if content.views.last() != Some(&header.view) {
            content.views.push(header.view);
        }
        if header.flags.contains(Flags::RETRANSMIT) != again {
            let what = if again { "sent again without a mark" } else { "marked, and was not sent before" };
            return Err(format!("{} is {what}", name(packet)));
        }
        let undurable_max = self.undurable_max;
        let flow = self.flow_mut(header.worker, header.region);
        let below = flow.applied_below;
        if header.seq >= below + undurable_max {
            return Err(format!("{} is sent while {below} is not durable", name(packet)));
        }
        // What it overwrites in the dedup window.
        let Some(overwritten) = header.seq.checked_sub(WINDOW_U32) else { return Ok(()) };
        let is_taken = flow.is_applied(overwritten) || flow.acknowledged_in(overwritten) == Some(header.view);
        if !is_taken {
            return Err(format!("{} is sent while {overwritten} is not acknowledged", name(packet)));
        }
        Ok(())
    }

    // rules T7, V5, V6
    /// A packet that a worker forgets is committed: once a region has moved, it sends in order what it has not forgotten, so nothing that is
    /// not applied is below the first of it.
    pub(super) fn forgotten(&mut self, packet: &Packet<'_>) -> Verdict {
        let header = packet.header;
        let flow = self.flow_mut(header.worker, header.region);
        if flow.view.replace(header.view) == Some(header.view) {
            return Ok(());
        }
        match flow.unapplied().next().filter(|seq| *seq < header.seq) {
            Some(seq) => Err(format!(
                "worker {}, region {}: {seq} is forgotten and is not committed, as {} is the first of view {}",
                header.worker, header.region, header.seq, header.view
            )),
            None => Ok(()),
        }
    }

    // rule V6
    /// A worker sends a packet to a shard.
    pub(super) fn replayed(&mut self, packet: &Packet<'_>, datagram: &[u8]) -> Verdict {
        self.note(packet, datagram).map(drop)
    }

    /// Notes what a packet contains.
    fn note(&mut self, packet: &Packet<'_>, datagram: &[u8]) -> Result<&mut Content, String> {
        let header = packet.header;
        let flow = self.flow_mut(header.worker, header.region);
        let (flags, body) = (lasting_flags(header.flags), &datagram[HEADER_BYTES..]);
        let at = header.seq as usize;
        if at > flow.contents.len() + (1 << 20) {
            return Err(format!("{} is far beyond all others", name(packet)));
        }
        if flow.contents.len() <= at {
            flow.contents.resize_with(at + 1, || None);
        }
        let content = flow.contents[at].get_or_insert_with(|| Content {
            flags,
            body: body.into(),
            views: Vec::new(),
            acknowledged_in: None,
        });
        if *content.body == *body && content.flags == flags {
            Ok(content)
        } else {
            Err(format!("{} names two packets", name(packet)))
        }
    }

    // rules T11, W8
    /// A switch acknowledges a packet: it was sent to it, or is in the contents that it goes on from.
    pub(super) fn acknowledged(&mut self, worker: u16, region: u8, seq: u32, view: u16) -> Verdict {
        let flow = self.flow_mut(worker, region);
        let is_applied = flow.is_applied(seq);
        let Some(Some(content)) = flow.contents.get_mut(seq as usize) else {
            return Err(format!(
                "worker {worker}, region {region}: {seq} is acknowledged, and was never sent"
            ));
        };
        content.acknowledged_in = Some(view);
        if is_applied || content.views.contains(&view) {
            return Ok(());
        }
        Err(format!(
            "worker {worker}, region {region}: {seq} is taken in view {view}, and was sent in others only"
        ))
    }
}

fn name(packet: &Packet<'_>) -> String {
    let header = packet.header;
    format!("worker {}, region {}: sequence number {}", header.worker, header.region, header.seq)
}
