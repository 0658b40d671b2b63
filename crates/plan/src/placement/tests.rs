use proptest::prelude::*;

use super::*;
use crate::plan::tests::{example, plan};
use crate::{Budget, HotRow, TableShape};

/// A plan of `rows` rows of one width, key 0 the most frequent.
fn uniform(rows: u64, width: u32) -> Plan {
    let mut plan = example();
    plan.tables = vec![TableShape { name: "item".into(), keys: 0..rows, width, hot: true }];
    plan.budget = Budget { p: 1.0, c: 1.0, on_chip_bytes: 1 << 40 };
    plan.rows = (0..rows).map(|key| HotRow { key, count: rows - key, scale: Scale(0) }).collect();
    plan
}

/// Rows dealt to shards and regions one after the other, by rank or, in each region, by key: key, region, slot, width.
fn naive(plan: &Plan, shards: u16, slots_per_region: u16, by_key: bool) -> Vec<(u64, usize, u32, u32)> {
    let mut placed = Vec::new();
    let mut region = 0;
    for shard in 0..shards {
        let (mut next, mut any) = (0, false);
        for row in plan.rows.iter().filter(|row| shard_of(row.key, shards) == shard) {
            let width = plan.tables.iter().find(|table| table.keys.contains(&row.key)).unwrap().width;
            if next + width > slots_per_region.into() {
                region += 1;
                next = 0;
            }
            placed.push((row.key, region, next, width));
            next += width;
            any = true;
        }
        region += usize::from(any);
    }
    if by_key {
        placed.sort_by_key(|(key, region, ..)| (*region, *key));
        for row in 0..placed.len() {
            let (_, region, ..) = placed[row];
            let before = placed[..row].iter().rev().take_while(|other| other.1 == region);
            placed[row].2 = before.map(|(.., width)| width).sum();
        }
    }
    placed
}

fn agrees_with_naive(plan: &Plan, shards: u16, most: u16) {
    for (slots, by_key) in [(RegionSlots::by_rank(most), false), (RegionSlots::by_key(most), true)] {
        is_placed_as(plan, shards, slots, &naive(plan, shards, most, by_key));
    }
}

fn is_placed_as(plan: &Plan, shards: u16, slots: RegionSlots, expected: &[(u64, usize, u32, u32)]) {
    let placement = Placement::new(plan, shards, slots).unwrap();
    assert_eq!(placement.len(), expected.len());
    assert_eq!(placement.is_empty(), expected.is_empty());
    let listed: Vec<(u64, usize, u32, u32)> = placement
        .regions()
        .iter()
        .flat_map(|layout| {
            layout
                .rows
                .iter()
                .map(|row| (row.key, usize::from(layout.region), u32::from(row.slot), row.width))
        })
        .collect();
    assert_eq!(listed, expected);
    for (row, (key, region, slot, width)) in expected.iter().enumerate() {
        let place = placement.find(*key).unwrap();
        assert_eq!(
            (usize::from(place.region), u32::from(place.slot), place.width),
            (*region, *slot, *width),
            "row {row}"
        );
        let layout = placement.region(place.region).unwrap();
        assert_eq!(layout.shard, shard_of(*key, shards));
        let last = place.slot + u16::try_from(*width).unwrap() - 1;
        assert!(last < layout.slots && layout.slots <= slots.most);
        for slot in [place.slot, last] {
            assert_eq!(placement.row_at(place.region, slot).unwrap().key, *key);
        }
    }
    let of_regions = placement.regions().iter().flat_map(|layout| {
        layout.rows.iter().enumerate().map(|(position, row)| (layout.region, position, row.key))
    });
    for (number, (region, position, key)) in (0..).zip(of_regions) {
        assert_eq!(placement.position(number), (region, position));
        assert_eq!(placement.key(*placement.place(number)), key);
        assert_eq!(placement.search().find(key), Some(number));
    }
    for (number, layout) in placement.regions().iter().enumerate() {
        assert_eq!(usize::from(layout.region), number);
        assert_eq!(u32::from(layout.slots), layout.rows.iter().map(|row| row.width).sum::<u32>());
        assert!(layout.slots > 0);
        assert_eq!(layout.row_index_at(layout.slots), None);
        assert_eq!(layout.cells(1), layout.slots + 1);
        let (cells, slots) = (u32::from(layout.cells(16)), u32::from(layout.slots));
        assert!(16 * (cells - 2) < slots && slots <= 16 * (cells - 1));
    }
    let by_shard: Vec<u8> =
        (0..shards).flat_map(|shard| placement.regions_of(shard)).map(|layout| layout.region).collect();
    assert_eq!(by_shard, placement.regions().iter().map(|layout| layout.region).collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn rows_are_where_a_naive_model_puts_them(
        plan in plan(),
        shards in 1_u16..9,
        shorter_by in prop_oneof![Just(0), 0_u16..16_000],
    ) {
        agrees_with_naive(&plan, shards, SLOTS_PER_REGION - shorter_by);
    }

    #[test]
    fn wide_rows_open_new_regions(rows in 1_u64..80, width in 1_u32..=32_767, shards in 1_u16..4) {
        agrees_with_naive(&uniform(rows, width), shards, SLOTS_PER_REGION);
    }

    #[test]
    fn a_cold_row_has_no_place(plan in plan(), key in any::<u64>()) {
        let placement = Placement::new(&plan, 3, RegionSlots::by_rank(SLOTS_PER_REGION)).unwrap();
        prop_assert_eq!(placement.find(key).is_some(), plan.rows.iter().any(|row| row.key == key));
    }
}

#[test]
fn rows_of_one_width_take_the_slots_of_their_rank() {
    let placement = Placement::new(&uniform(100, 8), 1, RegionSlots::by_rank(SLOTS_PER_REGION)).unwrap();
    for rank in 0..100 {
        let place = placement.find(rank).unwrap();
        assert_eq!((place.region, u64::from(place.slot)), (0, rank * 8));
    }
    assert_eq!(placement.row_at(0, 17).map(|row| row.key), Some(2));
    assert_eq!(placement.row_at(0, 800), None);
    assert_eq!(placement.row_at(1, 0), None);
}

#[test]
fn a_region_is_filled_to_the_last_slot_but_one() {
    let placement = Placement::new(&uniform(32_768, 1), 1, RegionSlots::by_rank(SLOTS_PER_REGION)).unwrap();
    assert_eq!(placement.regions().iter().map(|layout| layout.slots).collect::<Vec<_>>(), [32_767, 1]);
    assert_eq!(placement.find(32_767).map(|place| (place.region, place.slot)), Some((1, 0)));
    assert_eq!(placement.regions()[0].cells(1), 1 << 15);
}

#[test]
fn rows_that_cannot_be_placed_are_an_error() {
    assert_eq!(
        Placement::new(&example(), 0, RegionSlots::by_rank(SLOTS_PER_REGION)).unwrap_err(),
        PlacementError::NoShards
    );
    let mut plan = example();
    plan.number = 0;
    assert_eq!(
        Placement::new(&plan, 1, RegionSlots::by_rank(SLOTS_PER_REGION)).unwrap_err(),
        PlacementError::Invalid(Invalid::Number)
    );
    assert_eq!(
        Placement::new(&uniform(256, 32_767), 1, RegionSlots::by_rank(SLOTS_PER_REGION))
            .unwrap()
            .regions()
            .len(),
        256
    );
    let error = Placement::new(&uniform(257, 32_767), 1, RegionSlots::by_rank(SLOTS_PER_REGION)).unwrap_err();
    assert_eq!(error, PlacementError::TooManyRegions { regions: 257, shards: 1 });
    assert_eq!(Placement::new(&uniform(9, 32), 1, RegionSlots::by_rank(32)).unwrap().regions().len(), 9);
    let error = Placement::new(&uniform(9, 33), 1, RegionSlots::by_rank(32)).unwrap_err();
    assert_eq!(error, PlacementError::TooWide { table: "item".into(), width: 33, slots: 32 });
}
