//! Bounds of the messages on a stream that a peer opened, in bytes, before and after the peer has identified itself.

use libra_dataplane::{ENTRY_BYTES, HEADER_BYTES, WINDOW};
use libra_plan::SLOTS_PER_REGION;

use crate::cluster::{Cluster, Peer};
use crate::message::MESSAGE_BYTES_MAX;
use crate::worker::{REPLAY_PACKETS_MAX, REQUEST_BYTES_MAX};

/// The first message of a stream, unless it is that of a server that comes back (rule S1).
pub const FIRST_BYTES_MAX: usize = 4 << 10;
/// The first message of a server that comes back, which has all of the cluster in it (rule S1).
pub const REJOIN_BYTES_MAX: usize = 64 << 20;
/// The text of a worker's report: with it, the message is within what the controller takes.
pub const REPORT_BYTES_MAX: usize = TO_CONTROLLER_BYTES_MAX - AROUND_BYTES;

/// Any other message to the controller.
pub(crate) const TO_CONTROLLER_BYTES_MAX: usize = 1 << 20;
/// A worker's description of the job, which has the plan in it (rule M19), and its accounts of all phases of the work (rule K3).
pub(crate) const PROPOSAL_BYTES_MAX: usize = 64 << 20;
/// Room for everything but keys, values and packets.
const AROUND_BYTES: usize = 64 << 10;
/// A packet of a replay without its entries, and its length field.
const PACKET_BYTES: usize = HEADER_BYTES + 3;
/// A slot of a round: its sum, and its part of the bitmap of slots that have one.
const SLOT_BYTES: usize = 4 + 3;
/// A flow in the contents of a round: numbers that lie apart are half of a window (rule D1) at most, two numbers of five bytes each.
const FLOW_BYTES: usize = 16 + WINDOW / 2 * 10;

/// Returns true if a frame that begins with this byte can be the message of a returning server: the only first message that may be long
/// (rule S1). Members of one version agree on it, as they must on all of the format.
pub fn may_be_long(first_byte: u8) -> bool {
    first_byte == REJOIN_TAG
}

/// The place of [`Message::Rejoin`](crate::Message::Rejoin) among the messages.
const REJOIN_TAG: u8 = 1;

/// The most bytes that a message of this member to a server has (rule S2).
pub(crate) fn bytes_max(cluster: &Cluster, caller: Peer) -> usize {
    let content = match caller {
        Peer::Worker(_) => of_worker(cluster),
        Peer::Switch(_) => of_switch(cluster),
        Peer::Controller | Peer::Server(_) => 0,
    };
    content.saturating_add(AROUND_BYTES).min(MESSAGE_BYTES_MAX)
}

/// Requests, or one row with its state if that is more (rule C8), or packets of a region without an owner (rule V6).
fn of_worker(cluster: &Cluster) -> usize {
    let values = cluster.tables.iter().map(|table| table.width + table.rule.state_len(table.width));
    let row = size_of::<u64>() + values.max().unwrap_or(0).saturating_mul(size_of::<f32>());
    let packet = PACKET_BYTES + usize::from(cluster.hot_path.entries_max) * ENTRY_BYTES;
    REQUEST_BYTES_MAX.max(row).max(REPLAY_PACKETS_MAX * packet)
}

/// A round of a whole region, with contents in which the numbers of every flow lie apart.
fn of_switch(cluster: &Cluster) -> usize {
    // The last cell is padding, of all lanes.
    let slots = usize::from(SLOTS_PER_REGION) + 2 * usize::from(cluster.hot_path.lanes);
    slots * SLOT_BYTES + usize::from(cluster.worker_numbers()) * FLOW_BYTES
}

#[cfg(test)]
mod tests;
