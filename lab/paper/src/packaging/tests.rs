use proptest::prelude::*;

use super::*;
use crate::random::Random;

/// Algorithm 1 line by line, with the paper's names.
fn transcription(g: &[u32], m: impl Fn(u32) -> u32, entries: usize) -> (Vec<Vec<u32>>, usize) {
    let mut p: Vec<Vec<u32>> = vec![Vec::new(); g.len().div_ceil(entries)];
    let mut left_over = Vec::new();
    // P_1 tracks which packets are not full; their content is that of P.
    let mut p_1: Vec<usize> = (0..p.len()).collect();
    for &theta in g {
        let k = m(theta);
        let mut p_2 = p_1.clone();
        let mut is_inserted = false;
        let res: Vec<usize> = (0..p.len()).filter(|pkt| p[*pkt].iter().any(|other| m(*other) == k)).collect();
        if !res.is_empty() {
            p_2.retain(|pkt| !res.contains(pkt));
        }
        if let Some(&pkt) = p_2.first() {
            p[pkt].push(theta);
            is_inserted = true;
            if p[pkt].len() == entries {
                p_1.retain(|other| *other != pkt);
            }
        }
        if !is_inserted {
            left_over.push(theta);
        }
    }
    let by_layout = p.len();
    if !left_over.is_empty() {
        p.extend(left_over.chunks(entries).map(<[u32]>::to_vec));
    }
    (p, by_layout)
}

fn check(batch: &[u32], layout: &Layout, entries: u32) -> Result<(), TestCaseError> {
    let packed = orchestrate(batch, layout, entries);
    let (packets, by_layout) =
        transcription(batch, |rank| layout.place(rank).register, entries.try_into().unwrap());
    prop_assert_eq!(&packed.packets, &packets);
    prop_assert_eq!(packed.by_layout, by_layout);

    let mut sent: Vec<u32> = packed.packets.iter().flatten().copied().collect();
    let mut given = batch.to_vec();
    sent.sort_unstable();
    given.sort_unstable();
    prop_assert_eq!(sent, given, "each gradient is in one packet");
    for (index, packet) in packed.packets.iter().enumerate() {
        prop_assert!(!packet.is_empty() && packet.len() <= entries as usize);
        let mut registers: Vec<usize> = packet.iter().map(|rank| layout.register(*rank)).collect();
        registers.sort_unstable();
        registers.dedup();
        prop_assert!(index >= packed.by_layout || registers.len() == packet.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn packets_are_those_of_the_algorithm_as_written(
        batch in prop::collection::vec(0_u32..120, 0..150), registers in 1_u32..40, entries in 1_u32..20,
        seed: u64,
    ) {
        check(&batch, &Layout::heat(120, registers), entries)?;
        check(&batch, &Layout::random(120, registers, seed), entries)?;
    }

    #[test]
    fn skewed_batches_too(seed: u64, length in 0_usize..400, entries in 1_u32..20) {
        // Squares make low ranks frequent, and multiples of the registers with them.
        let mut random = Random::new(seed);
        let batch: Vec<u32> = (0..length).map(|_| random.below(32) * random.below(32)).collect();
        check(&batch, &Layout::heat(1024, 16), entries)?;
    }
}

#[test]
fn a_batch_of_one_register_is_left_over_but_for_one_a_packet() {
    let batch: Vec<u32> = (0..32).map(|index| index * 4).collect();
    let packed = orchestrate(&batch, &Layout::heat(128, 4), 16);
    let sizes: Vec<usize> = packed.packets.iter().map(Vec::len).collect();
    assert_eq!((sizes, packed.by_layout), (vec![1, 1, 16, 14], 2));
}

#[test]
fn order_of_arrival_fills_each_packet() {
    let batch: Vec<u32> = (0..40).collect();
    let packed = pack(Packing::Arrival, &batch, &Layout::heat(40, 4), 16);
    assert_eq!(packed.packets.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
    assert_eq!(packed.packets.concat(), batch);
}

/// 2^18 gradients of two registers: the algorithm as written would compare billions of packets.
#[test]
fn a_large_batch_takes_no_quadratic_time() {
    let batch: Vec<u32> = (0..1 << 18).collect();
    let packed = orchestrate(&batch, &Layout::heat(1 << 18, 2), 16);
    assert_eq!(packed.by_layout, 1 << 14);
    assert_eq!(packed.packets.iter().map(Vec::len).sum::<usize>(), batch.len());
}

#[test]
fn the_profile_of_the_wire_fits_in_the_packet_of_the_paper() {
    let entry_bytes = u32::try_from(libra_dataplane::ENTRY_BYTES).unwrap();
    assert_eq!(HEADERS_BYTES, 42 + u32::try_from(libra_dataplane::HEADER_BYTES).unwrap());
    assert!(entries_that_fit(PACKET_BYTES, HEADERS_BYTES, entry_bytes) >= ENTRIES_PER_PACKET);
}
