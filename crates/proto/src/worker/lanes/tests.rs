use std::collections::VecDeque;

use libra_dataplane::{Flags, Header, Kind, Packet, packet_bytes};
use libra_plan::{Place, Scale};
use proptest::prelude::*;

use super::*;

fn row(region: u8, slot: u16, width: u32, offset: u32) -> HotRow {
    HotRow { place: Place { region, slot, width, scale: Scale(0) }, offset }
}

/// Packets as they come, each the rows that are in it.
fn packed(rows: &[HotRow], open: &mut OpenPackets) -> Vec<Vec<HotRow>> {
    let (mut rows, mut next, mut list) = (rows.iter().copied(), None, Vec::new());
    let mut packets = Vec::new();
    while let Some(region) = open.next_packet(&mut rows, &mut next, &mut list) {
        let is_last = open.is_empty() && next.is_none_or(|row| row.place.region != region);
        assert!(list.iter().all(|row| row.place.region == region));
        packets.push((region, is_last, list.clone()));
    }
    for (index, (region, is_last, _)) in packets.iter().enumerate() {
        let next = packets.get(index + 1).map(|(region, ..)| *region);
        assert_eq!(*is_last, next != Some(*region), "packet {index} of {}", packets.len());
    }
    packets.into_iter().map(|(_, _, rows)| rows).collect()
}

fn has_lane_of(packet: &[HotRow], row: &HotRow, lanes: u8) -> bool {
    let taken: Vec<usize> = packet.iter().flat_map(|row| lanes_of(row, lanes)).collect();
    lanes_of(row, lanes).any(|lane| taken.contains(&lane))
}

/// Each row into the first packet of its region with its lanes free, of the 64 that follow those that had to go.
fn naive(rows: &[HotRow], lanes: u8) -> Vec<Vec<HotRow>> {
    let mut packets = Vec::new();
    for rows in rows.chunk_by(|row, next| row.place.region == next.place.region) {
        let mut open: VecDeque<Vec<HotRow>> = VecDeque::new();
        for row in rows {
            if open.len() == 64 && open.iter().all(|packet| has_lane_of(packet, row, lanes)) {
                packets.extend(open.pop_front());
            }
            match open.iter_mut().find(|packet| !has_lane_of(packet, row, lanes)) {
                Some(packet) => packet.push(*row),
                None => open.push_back(vec![*row]),
            }
        }
        packets.extend(open);
    }
    packets
}

/// Rows of some regions by rising slot, of all widths, with gaps where rows are not in the operation. Lanes.
fn rows() -> impl Strategy<Value = (Vec<HotRow>, u8)> {
    let of_lanes = |lanes: u8| {
        let gap = prop_oneof![4 => 0_u16..3, 1 => Just(u16::from(lanes)), 1 => 0_u16..40];
        let region = prop::collection::vec((gap, 1_u32..=u32::from(lanes)), 0..400);
        (prop::collection::vec(region, 0..3), any::<bool>(), Just(lanes))
    };
    prop_oneof![2_u8..40, Just(16), Just(255)].prop_flat_map(of_lanes).prop_map(|(regions, narrow, lanes)| {
        let mut rows = Vec::new();
        for (region, of_region) in (0..).zip(regions) {
            let mut slot = 0;
            for (gap, width) in of_region {
                let width = if narrow { 1 } else { width };
                let first: u16 = slot + gap;
                if first > 30_000 {
                    break;
                }
                slot = first + u16::try_from(width).unwrap();
                rows.push(row(region, first, width, u32::try_from(rows.len()).unwrap()));
            }
        }
        (rows, lanes)
    })
}

proptest! {
    // rule W13
    #[test]
    fn rows_are_packed_as_a_naive_model_packs_them((rows, lanes) in rows()) {
        let mut open = OpenPackets::new(lanes);
        let packets = packed(&rows, &mut open);
        prop_assert_eq!(&packets, &naive(&rows, lanes));
        let mut offsets: Vec<u32> = packets.iter().flatten().map(|row| row.offset).collect();
        offsets.sort_unstable();
        prop_assert!(offsets.into_iter().eq(0..u32::try_from(rows.len()).unwrap()));
        // It is as it was: the next operation is packed the same way.
        prop_assert_eq!(packed(&rows, &mut open), packets);
    }

    // rules W13, W14
    #[test]
    fn a_packet_has_an_entry_for_each_lane_or_padding((rows, lanes) in rows()) {
        const PADDING: [u16; 3] = [32_000, 32_001, 32_002];
        let mut entries = LaneEntries { paddings: PADDING.to_vec(), entries: vec![(0, 0); lanes.into()] };
        for rows in packed(&rows, &mut OpenPackets::new(lanes)) {
            let words: Vec<u32> = (1..).take(rows.iter().map(HotRow::width).sum()).collect();
            let mut bytes = vec![0; packet_bytes(lanes)];
            let mut writer = PacketWriter::new(Header::of_kind(Kind::Push), &mut bytes);
            let slots = rows.iter().flat_map(HotRow::slots);
            entries.write(rows[0].place.region, slots.zip(words.iter().copied()), &mut writer);
            prop_assert_eq!(writer.finish(), bytes.len());
            let packet = Packet::parse(&bytes).unwrap();
            prop_assert_eq!(packet.header, Header { entries: lanes, flags: Flags::NONE, ..packet.header });
            let padding = PADDING[usize::from(rows[0].place.region)];
            let mut expected = vec![(padding, 0); lanes.into()];
            for (slot, word) in rows.iter().flat_map(HotRow::slots).zip(words) {
                let place = &mut expected[usize::from(slot % u16::from(lanes))];
                prop_assert_eq!(*place, (padding, 0), "a lane is there once");
                *place = (slot / u16::from(lanes), word);
            }
            prop_assert!(packet.entries().map(|entry| (entry.cell, entry.value)).eq(expected));
        }
    }
}

/// Returns those of 30,000 rows, by rank, that are among so many draws by Zipf's law with exponent 1.05.
fn drawn(draws: f64, seed: u64) -> Vec<u16> {
    const ROWS: u16 = 30_000;
    let weight = |rank: u16| f64::from(rank + 1).powf(-1.05);
    let total: f64 = (0..ROWS).map(weight).sum();
    let unit = |rank: u16| {
        // The finalizer of SplitMix64.
        let mut hash = (seed << 32 | u64::from(rank)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((hash ^ (hash >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let is_drawn = |rank: &u16| unit(*rank) > (-draws * weight(*rank) / total).exp();
    (0..ROWS).filter(is_drawn).collect()
}

#[test]
fn packets_of_a_skewed_push_are_as_full_as_lanes_allow() {
    const LANES: usize = 16;
    for (draws, fill_min) in [(2_000.0, 0.78), (20_000.0, 0.9), (80_000.0, 0.94)] {
        for seed in 0..10 {
            let slots = drawn(draws, seed);
            let rows: Vec<HotRow> =
                (0..).zip(&slots).map(|(offset, slot)| row(0, *slot, 1, offset)).collect();
            let packets = packed(&rows, &mut OpenPackets::new(16)).len();
            let mut of_lane = [0; LANES];
            slots.iter().for_each(|slot| of_lane[usize::from(*slot) % LANES] += 1);
            let least = *of_lane.iter().max().unwrap();
            // Algorithm 1 fills as many packets as the rows would fill, and what is left over goes into packets with lanes
            // twice, which pass the switch as many times.
            let full = rows.len().div_ceil(LANES);
            let mut seen = [0; LANES];
            let left_over: Vec<usize> = (slots.iter().map(|slot| usize::from(*slot) % LANES))
                .filter(|lane| {
                    seen[*lane] += 1;
                    seen[*lane] > full
                })
                .collect();
            let algorithm_1 = full + left_over.len().div_ceil(LANES);
            let passes_of = |packet: &[usize]| {
                packet.iter().map(|lane| packet.iter().filter(|other| *other == lane).count()).max().unwrap()
            };
            let passes = full + left_over.chunks(LANES).map(passes_of).sum::<usize>();
            let fill = |packets: usize| rows.len() as f64 / (packets * LANES) as f64;
            println!(
                "{} rows: {packets} packets, {:.3} full, of {least} at least; Algorithm 1 {algorithm_1}, {:.3} full, {passes} passes",
                rows.len(),
                fill(packets),
                fill(algorithm_1)
            );
            assert!(packets <= least + least / 100, "{packets} packets, {least} would do");
            assert!(packets <= passes + passes / 100, "{packets} packets, {passes} passes of Algorithm 1");
            assert!(fill(packets) >= fill_min, "{}", fill(packets));
        }
    }
}
