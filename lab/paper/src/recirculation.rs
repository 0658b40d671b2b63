//! Recirculation of packets through the pipeline: the paper's section "Evaluation of Hot Parameter Layout and
//! Orchestration".
//!
//! A register can be accessed once while a packet passes the pipeline. A packet whose fullest register takes k of its
//! entries therefore needs k passes, which is k - 1 recirculations: each pass takes one entry of every register. That
//! is what hardware must do, and [`Summary::recirculations`].
//!
//! The paper also counts otherwise: it says of n gradients in packets that already hold their registers that "it would
//! lead to n times recirculation operations", one for each entry that finds its register taken. That is
//! [`Summary::conflicts`], and never less.
//!
//! # What the paper's figure can and cannot mean
//!
//! It reports less than 1 recirculation for each packet with its placement and packaging, and 10 with random
//! placement. It says neither how many registers m there are, nor how many entries e a packet has, nor how large a
//! batch is. Of random placement both counts follow from e and m alone, for it does not depend on skew: the conflicts are
//! e - m (1 - (1 - 1/m)^e).
//!
//! | e | about 10 conflicts | about 10 recirculations |
//! |---|---|---|
//! | 16 | m = 6 (10.3) | m = 1 (15), 2 (8.6) |
//! | 20 | m = 12 (10.1) | m = 2 (10.8), 3 (7.9) |
//! | 24 | m = 20 (9.9) | m = 2 (12.9), 3 (9.4) |
//! | 28 | m = 28 (10.1) | m = 3 (11.0), 4 (8.8) |
//!
//! As recirculations, 10 needs so few registers that no placement comes below 1: e entries in m registers need e / m
//! passes at least. So the figure counts conflicts, or something that the paper does not mention. As conflicts, it
//! needs about as many registers as a packet has entries; then less than 1 is possible, too.
//!
//! # What we find
//!
//! OA and SE as in [`Skew`](crate::Skew), batches of 4,000 updates, 30,000 hot parameters; recirculations and, in
//! brackets, conflicts of a packet:
//!
//! | | m = e = 16: OA | SE | m = e = 24: OA | SE |
//! |---|---|---|---|---|
//! | heat, Algorithm 1 | 0.17 (0.36) | 0.17 (0.35) | 0.24 (0.66) | 0.23 (0.61) |
//! | random, Algorithm 1 | 0.21 (0.43) | 0.20 (0.41) | 0.28 (0.77) | 0.28 (0.77) |
//! | heat, arrival | 2.05 (5.62) | 2.06 (5.65) | 2.31 (8.48) | 2.32 (8.52) |
//! | random, arrival | 2.05 (5.64) | 2.07 (5.64) | 2.33 (8.54) | 2.33 (8.56) |
//!
//! - Below 1 with the paper's orchestration, as reported, and a little more in OA than in SE, as reported. But the reason
//!   is less in how heat is distributed than in how much of a batch is hot: of equal batches SE has longer pushes, of
//!   which less is left over. With as many gradients in a push the two hardly differ.
//! - It is Algorithm 1 that does it. By itself the placement by heat saves hardly anything: a batch has too many
//!   parameters that are not among the hottest m. With Algorithm 1 it saves a fifth of what is left, as it spreads a
//!   batch more evenly over registers, which leaves less over.
//! - What is left are packets of gradients that were left over, which are packed without regard to the layout: 4% of
//!   the packets. Most of these need more than the one recirculation of the paper's implementation
//!   ([`Summary::beyond_limit`] is 3.6% of all packets), which therefore could not send them.
//! - With twice as many registers as entries hardly anything is left over: 0.01 recirculations.

use serde::Serialize;

use crate::layout::Layout;
use crate::packaging::{Packing, pack};

/// The paper's implementation sends a packet around once at most.
pub const RECIRCULATIONS_MAX: u32 = 1;

/// Cost of a sequence of pushes, with one layout and one packing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Pushes seen.
    pub pushes: u64,
    /// Gradients in them.
    pub entries: u64,
    /// Packets that carried them.
    pub packets: u64,
    /// Packets of what Algorithm 1 left over.
    pub packets_left_over: u64,
    /// Recirculations of a packet, on average: passes less one.
    pub recirculations: f64,
    /// Recirculations of the worst packet.
    pub recirculations_max: u32,
    /// Entries of a packet that find their register taken by one before them, on average.
    pub conflicts: f64,
    /// Share of the packets, 0 to 1, that need more than the one recirculation of the paper's implementation, which
    /// could not be sent as they are.
    pub beyond_limit: f64,
}

/// Packs each push, given by the ranks of its parameters, and sends it through the pipeline.
///
/// Averages are 0 if there is no packet.
///
/// ```
/// use libra_paper::{Layout, Packing, recirculations};
///
/// // Four registers: ranks 0 and 4 share one, and so do 1 and 5.
/// let pushes = [vec![0, 4, 1, 5]];
/// let layout = Layout::heat(8, 4);
/// let arrival = recirculations(pushes.clone(), &layout, Packing::Arrival, 2);
/// assert_eq!((arrival.packets, arrival.recirculations), (2, 1.0));
/// let algorithm_1 = recirculations(pushes, &layout, Packing::Algorithm1, 2);
/// assert_eq!((algorithm_1.packets, algorithm_1.recirculations), (2, 0.0));
/// ```
///
/// # Panics
/// If a packet has no entries, or a rank is not placed.
#[must_use]
pub fn recirculations(
    pushes: impl IntoIterator<Item = Vec<u32>>,
    layout: &Layout,
    packing: Packing,
    entries_per_packet: u32,
) -> Summary {
    let mut pipeline = Pipeline { taken: vec![0; layout.registers() as usize] };
    let mut summary = Summary {
        pushes: 0,
        entries: 0,
        packets: 0,
        packets_left_over: 0,
        recirculations: 0.0,
        recirculations_max: 0,
        conflicts: 0.0,
        beyond_limit: 0.0,
    };
    let (mut total, mut conflicts, mut beyond) = (0_u64, 0_u64, 0_u64);
    for push in pushes {
        let packed = pack(packing, &push, layout, entries_per_packet);
        summary.pushes += 1;
        summary.entries += push.len() as u64;
        summary.packets += packed.packets.len() as u64;
        if packing == Packing::Algorithm1 {
            summary.packets_left_over += (packed.packets.len() - packed.by_layout) as u64;
        }
        for packet in &packed.packets {
            let cost = pipeline.cost(packet, layout);
            total += u64::from(cost.recirculations);
            conflicts += u64::from(cost.conflicts);
            beyond += u64::from(cost.recirculations > RECIRCULATIONS_MAX);
            summary.recirculations_max = summary.recirculations_max.max(cost.recirculations);
        }
    }
    if summary.packets > 0 {
        let mean = |sum: u64| sum as f64 / summary.packets as f64;
        (summary.recirculations, summary.conflicts, summary.beyond_limit) =
            (mean(total), mean(conflicts), mean(beyond));
    }
    summary
}

/// Cost of one packet.
struct Cost {
    recirculations: u32,
    conflicts: u32,
}

/// Registers that can be accessed once a pass.
struct Pipeline {
    /// Entries of the packet in each register; zero between packets.
    taken: Vec<u32>,
}

impl Pipeline {
    fn cost(&mut self, packet: &[u32], layout: &Layout) -> Cost {
        let mut cost = Cost { recirculations: 0, conflicts: 0 };
        for &rank in packet {
            let taken = &mut self.taken[layout.register(rank)];
            cost.recirculations = cost.recirculations.max(*taken);
            cost.conflicts += u32::from(*taken > 0);
            *taken += 1;
        }
        packet.iter().for_each(|rank| self.taken[layout.register(*rank)] = 0);
        cost
    }
}

#[cfg(test)]
mod tests;
