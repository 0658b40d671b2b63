use std::collections::{BTreeMap, BTreeSet};

use libra_plan::Shard;
use proptest::prelude::*;

use super::*;
use crate::{Admission, Extent, Init, Optimizer, RowLifecycle, TableSpec, UpdateRule};

const INIT: Init = Init::Uniform { bound: 1.0 };
const SEED: u64 = 23;
const KEYS: u64 = 100;

fn table(keys: std::ops::Range<u64>, growth: RowLifecycle) -> TableSpec {
    let rule = UpdateRule { growth, ..Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 }.into() };
    TableSpec { name: "row".into(), keys, width: 2, rule, init: INIT }
}

fn store(keys: std::ops::Range<u64>, growth: RowLifecycle) -> Store {
    Store::new(vec![table(keys, growth)], SEED).unwrap()
}

/// RowLifecycle as it is documented, without bounds of memory or time.
struct Naive {
    growth: RowLifecycle,
    rows: BTreeMap<u64, NaiveRow>,
    counts: BTreeMap<u64, u8>,
    steps: u64,
    dropped: u64,
}

#[derive(Clone)]
struct NaiveRow {
    words: Vec<f32>,
    updated: Vec<u64>,
}

impl Naive {
    fn update(&mut self, keys: &[u64]) {
        self.steps += 1;
        for key in keys {
            if !self.rows.contains_key(key)
                && let Some(Admission::Occurrences { updates, .. }) = self.growth.admission
            {
                let count = self.counts.entry(*key).or_default();
                *count += 1;
                if *count < updates {
                    self.dropped += 1;
                    continue;
                }
                self.counts.remove(key);
            }
            let row = self.rows.entry(*key).or_insert_with(|| {
                let mut words = vec![0.0; 4];
                INIT.fill(SEED, *key, &mut words[..2]);
                NaiveRow { words, updated: Vec::new() }
            });
            let (values, state) = row.words.split_at_mut(2);
            table(0..1, RowLifecycle::default()).rule.prepare(0).apply(values, state, &[0.5, -0.25]);
            row.updated.push(self.steps);
        }
    }

    /// By rising worth.
    fn in_order(&self) -> Vec<u64> {
        let mut order: Vec<_> = self.rows.iter().map(|(key, row)| (self.worth(row), *key)).collect();
        order.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap());
        order.into_iter().map(|(_, key)| key).collect()
    }

    /// Returns the value that is compared, and when the row was updated.
    fn worth(&self, row: &NaiveRow) -> (f64, u64) {
        let last = *row.updated.last().unwrap();
        match self.growth.eviction {
            Some(Eviction::LeastUsed { half_life, .. }) => {
                let half_life = u64::from(half_life);
                let (mut count, mut half_lives) = (0_u64, 0);
                for step in &row.updated {
                    count = (count >> (step / half_life - half_lives)) + 1;
                    half_lives = step / half_life;
                }
                ((count >> (self.steps / half_life - half_lives)) as f64, last)
            }
            Some(Eviction::LowestNorm { .. }) => {
                (row.words[..2].iter().map(|value| f64::from(*value).powi(2)).sum(), 0)
            }
            _ => (0.0, last),
        }
    }

    fn evict(&mut self) -> BTreeSet<u64> {
        let going: BTreeSet<u64> = match self.growth.eviction {
            None => BTreeSet::new(),
            Some(Eviction::Idle { steps }) => {
                let old = |key: &u64| self.steps - self.worth(&self.rows[key]).1 >= u64::from(steps);
                self.rows.keys().copied().filter(old).collect()
            }
            Some(Eviction::LeastUsed { rows_max, .. } | Eviction::LowestNorm { rows_max }) => {
                let beyond = self.rows.len().saturating_sub(usize::try_from(rows_max).unwrap());
                self.in_order().into_iter().take(beyond).collect()
            }
        };
        self.rows.retain(|key, _| !going.contains(key));
        going
    }
}

fn growth() -> impl Strategy<Value = RowLifecycle> {
    let admission = prop_oneof![
        Just(None),
        (2_u8..5).prop_map(|updates| Some(Admission::Occurrences { updates, keys: 10_000 })),
    ];
    let eviction = prop_oneof![
        Just(None),
        (1_u32..5).prop_map(|steps| Some(Eviction::Idle { steps })),
        (1_u64..12, 1_u32..10)
            .prop_map(|(rows_max, half_life)| Some(Eviction::LeastUsed { rows_max, half_life })),
        (1_u64..12).prop_map(|rows_max| Some(Eviction::LowestNorm { rows_max })),
    ];
    (admission, eviction).prop_map(|(admission, eviction)| RowLifecycle { admission, eviction })
}

proptest! {
    /// At most 16 rows at once, of which the lowest are known exactly (rules G1, G2).
    #[test]
    fn rows_come_and_go_as_in_a_naive_model(
        growth in growth(),
        batches in prop::collection::vec(prop::collection::vec(0_u64..16, 1..12), 1..60),
        evicts in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut store = store(0..KEYS, growth);
        let rows = BTreeMap::new();
        let mut naive = Naive { growth, rows, counts: BTreeMap::new(), steps: 0, dropped: 0 };
        let mut evicted = 0;
        for (keys, evicts) in batches.iter().zip(evicts) {
            store.update_many(keys, &[0.5, -0.25].repeat(keys.len())).unwrap();
            naive.update(keys);
            if evicts {
                let looked = store.evict(1000);
                evicted += looked.removed.len() as u64;
                prop_assert_eq!(looked.removed.into_iter().collect::<BTreeSet<_>>(), naive.evict());
            }
            let rows: BTreeMap<u64, Vec<f32>> = store
                .rows_of(0)
                .map(|(key, values, state)| (key, [values, &state[..2]].concat()))
                .collect();
            let expected: BTreeMap<_, _> =
                naive.rows.iter().map(|(key, row)| (*key, row.words.clone())).collect();
            prop_assert_eq!(rows, expected);
            for key in 0..KEYS {
                let (mut values, mut first) = ([0.0; 2], [0.0; 2]);
                store.read(key, &mut values).unwrap();
                INIT.fill(SEED, key, &mut first);
                prop_assert_eq!(&values[..], naive.rows.get(&key).map_or(&first[..], |row| &row.words[..2]));
            }
            prop_assert_eq!(store.lifecycle_counts(), LifecycleCounts { dropped: naive.dropped, evicted });
        }
    }

    /// Its keys have neighbours of other shards between them, and all else is the same: which rows go, and in which order, which chunks
    /// are dense, and the content of a snapshot.
    #[test]
    fn a_shard_of_many_evicts_as_one_that_has_all_keys(
        shard in prop::sample::select(vec![Shard::new(1, 3), Shard::new(4, 5), Shard::new(0, 300)]),
        eviction in prop_oneof![
            (1_u32..6).prop_map(|steps| Eviction::Idle { steps }),
            (100_u64..9_000).prop_map(|rows_max| Eviction::LeastUsed { rows_max, half_life: 3 }),
        ],
        batches in prop::collection::vec((0_u64..12_000, 1_u64..8_000, 1_usize..3, 0_usize..20_000), 1..20),
        begins in 0_usize..20,
    ) {
        let growth = RowLifecycle { admission: None, eviction: Some(eviction) };
        let mut all = store(0..20_000, growth);
        let keys = 0..20_000 * u64::from(shard.shards());
        let mut one = Store::of_shard(vec![table(keys, growth)], SEED, shard).unwrap();
        let groups = |keys: Vec<u64>| -> Vec<u64> {
            assert!(keys.iter().all(|key| shard.key_in(shard.group_of(*key)) == Some(*key)));
            keys.into_iter().map(|key| shard.group_of(key)).collect()
        };
        for (at, (first, count, step, looks)) in batches.into_iter().enumerate() {
            if at == begins {
                all.begin_snapshot(Extent::Full);
                one.begin_snapshot(Extent::Full);
            }
            let keys: Vec<u64> = (first..first + count).step_by(step).collect();
            let gradients = [0.5, -0.25].repeat(keys.len());
            all.update_many(&keys, &gradients).unwrap();
            let keys: Vec<u64> = keys.into_iter().map(|group| shard.key_in(group).unwrap()).collect();
            one.update_many(&keys, &gradients).unwrap();
            let (of_all, of_one) = (all.evict(looks), one.evict(looks));
            prop_assert_eq!(of_all.looked, of_one.looked);
            prop_assert_eq!(of_all.removed, groups(of_one.removed));
            prop_assert_eq!(all.rows[0].dense_rows(), one.rows[0].dense_rows());
            let (of_all, of_one) = (all.read_snapshot(2_000), one.read_snapshot(2_000));
            let keys = |block: Option<crate::RowBlock>| block.map(|block| block.keys);
            prop_assert_eq!(keys(of_all), keys(of_one).map(groups));
        }
        let lie = |store: &Store| store.rows_of(0).map(|(key, ..)| key).collect::<Vec<u64>>();
        prop_assert_eq!(lie(&all), groups(lie(&one)));
    }

    /// Acknowledged updates come back: a copy from a snapshot, to which the rest of a log is applied.
    #[test]
    fn a_replay_from_a_snapshot_makes_the_same_rows(
        admission in prop_oneof![
            Just(Admission::Probability(0.3)),
            Just(Admission::Occurrences { updates: 3, keys: 12 }),
            Just(Admission::Occurrences { updates: 2, keys: 10_000 }),
        ],
        batches in prop::collection::vec(prop::collection::vec(0_u64..3000, 1..100), 3..20),
        [first, begins, reads] in prop::array::uniform3(0_usize..20),
    ) {
        let growth = RowLifecycle { admission: Some(admission), eviction: Some(Eviction::Idle { steps: 2 }) };
        let mut original = store(0..3000, growth);
        let mut copy = original.clone();
        original.track_changes();
        let mut log = Vec::new();
        let [first, begins] = [first, begins].map(|at| at % batches.len());
        let (first, begins) = (first.min(begins), first.max(begins));
        for (at, keys) in batches.iter().enumerate() {
            // A full snapshot, and an increment that is still being read while the next batches come.
            if at == first || at == begins {
                while let Some(block) = original.read_snapshot(7) {
                    take(&mut copy, &block);
                }
                original.begin_snapshot(if at == first { Extent::Full } else { Extent::Changed });
                copy.set_steps(0, original.snapshot_steps(0));
                // Counts are in the last snapshot alone, all of them.
                copy.admission_filters = store(0..3000, growth).admission_filters;
                log.clear();
            }
            let update = |store: &mut Store| store.update_many(keys, &[0.5, -0.25].repeat(keys.len())).unwrap();
            update(&mut original);
            let removed = original.evict(50).removed;
            log.push((keys, removed));
            for _ in 0..reads {
                if let Some(block) = original.read_snapshot(7) {
                    take(&mut copy, &block);
                }
            }
        }
        while let Some(block) = original.read_snapshot(7) {
            take(&mut copy, &block);
        }
        for (keys, removed) in log {
            copy.update_many(keys, &[0.5, -0.25].repeat(keys.len())).unwrap();
            for key in removed {
                prop_assert!(copy.remove(key).unwrap());
            }
        }
        prop_assert_eq!(rows(&copy), rows(&original));
        prop_assert_eq!(copy.steps(0), original.steps(0));
        prop_assert_eq!(counted(&mut copy), counted(&mut original));
    }
}

fn take(copy: &mut Store, block: &crate::RowBlock) {
    for key in &block.removed {
        copy.remove(*key).unwrap();
    }
    copy.restore(block.table, &block.keys, &block.values, &block.state).unwrap();
    copy.restore_admission(block.table, &block.admission).unwrap();
}

fn rows(store: &Store) -> BTreeMap<u64, Vec<u32>> {
    let bits = |words: &[f32]| words.iter().map(|word| word.to_bits()).collect::<Vec<_>>();
    store.rows_of(0).map(|(key, values, state)| (key, [bits(values), bits(state)].concat())).collect()
}

fn counted(store: &mut Store) -> Option<Vec<u32>> {
    store.admission_filters[0].counts_mut().map(|counts| counts.words().to_vec())
}

#[test]
fn keys_that_come_once_take_no_memory() {
    let admission = Some(Admission::Occurrences { updates: 2, keys: 1 << 14 });
    let mut store = store(0..u64::MAX, RowLifecycle { admission, eviction: None });
    let empty = store.memory_bytes();
    assert!(empty < (1 << 14) * 11 / 2, "{empty} bytes");
    let mut key = 1_u64;
    for _ in 0..2_000 {
        // Without a pattern, and among them one that comes back.
        let keys: Vec<u64> =
            (0..1000).map(|at| key.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).collect();
        store.update_many(&keys, &[1.0; 2000]).unwrap();
        store.update(key / 10_000, &[1.0; 2]).unwrap();
        key += 1000;
    }
    assert_eq!(store.rows(), 200, "of 2,000,000 keys");
    assert!(store.memory_bytes() < empty + (1 << 16));
    assert_eq!(store.lifecycle_counts().dropped, 2_000_200);
}

/// With and without places that are found by key, of which the shard has all or one in three.
#[test]
fn a_table_of_passing_keys_is_no_larger_than_its_rows() {
    for (end, shard) in [(u64::MAX, Shard::ONLY), (1 << 20, Shard::ONLY), (3 << 20, Shard::new(1, 3))] {
        let growth = RowLifecycle { admission: None, eviction: Some(Eviction::Idle { steps: 20 }) };
        let mut store = Store::of_shard(vec![table(0..end, growth)], SEED, shard).unwrap();
        let own = |group: &u64| shard.key_in(*group).unwrap();
        store.track_changes();
        let mut most = 0;
        for first in (0..500_000).step_by(1000) {
            let groups: Vec<u64> = (first..first + 1000).chain((0..first).step_by(20_000)).collect();
            let keys: Vec<u64> = groups.iter().map(own).collect();
            store.update_many(&keys, &vec![1.0; keys.len() * 2]).unwrap();
            store.evict(5_000);
            most = most.max(store.rows());
            if first % 100_000 == 0 {
                store.begin_snapshot(Extent::Changed);
            }
            while first % 100_000 == 50_000 && store.read_snapshot(1000).is_some() {}
        }
        assert!(most < 40_000, "{most} rows");
        let room = store.rows[0].positions();
        assert!(room < 200_000, "room for {room} rows");
        // 45 bytes a row, of as many as there are in half of a snapshot, and 8 bytes of each key that is removed.
        assert!(store.memory_bytes() < 8 << 20, "{} bytes", store.memory_bytes());
        let mut groups = (0..500_000).step_by(20_000);
        assert!(
            groups
                .all(|group| store.rows[0].find(own(&group)) != super::super::table_rows::RowPlace::Nowhere)
        );
    }
}

#[test]
fn rows_that_are_used_often_stay() {
    let eviction = Some(Eviction::LeastUsed { rows_max: 5_000, half_life: 1 << 20 });
    let mut store = store(0..1 << 40, RowLifecycle { admission: None, eviction });
    // 10,000 rows, of which number n gets 1 + 1000 / n updates.
    for round in 0..1000_u64 {
        let keys: Vec<u64> =
            (0..10_000).filter(|key| round <= 1000 / (key + 1)).map(|key| key << 20).collect();
        store.update_many(&keys, &vec![1.0; keys.len() * 2]).unwrap();
    }
    assert_eq!(store.rows(), 10_000);
    let mut calls = 0;
    while store.rows() > 5_000 {
        let evicted = store.evict(500);
        assert!((1..=500).contains(&evicted.looked) && evicted.removed.len() <= 500);
        calls += 1;
    }
    // Half of what is looked at goes at first, a sixteenth at last.
    assert!((20..160).contains(&calls), "{calls} calls");
    let kept: BTreeSet<u64> = store.rows_of(0).map(|(key, ..)| key >> 20).collect();
    assert_eq!((0..300).filter(|key| !kept.contains(key)).count(), 0);
    assert_eq!(store.evict(500), Evicted::default());
    assert_eq!(store.lifecycle_counts().evicted, 5_000);
}

#[test]
fn an_evicted_row_starts_from_its_first_values() {
    let growth = RowLifecycle { admission: None, eviction: Some(Eviction::Idle { steps: 1 }) };
    let mut store = store(0..KEYS, growth);
    let mut once = store.clone();
    once.update(7, &[1.0, 2.0]).unwrap();
    store.update(7, &[-3.0, 1.0]).unwrap();
    store.update(8, &[-3.0, 1.0]).unwrap();
    store.begin_snapshot(Extent::Full);
    assert_eq!(store.evict(1000).removed, [7]);
    let (mut values, mut first) = ([0.0; 2], [0.0; 2]);
    store.read(7, &mut values).unwrap();
    INIT.fill(SEED, 7, &mut first);
    assert_eq!(values, first);
    store.update(7, &[1.0, 2.0]).unwrap();
    let words = |store: &Store| rows(store)[&7][..4].to_vec();
    assert_eq!(words(&store), words(&once));
    // The snapshot has it as it was.
    let blocks: Vec<_> = std::iter::from_fn(|| store.read_snapshot(10)).collect();
    let keys: BTreeSet<u64> = blocks.iter().flat_map(|block| block.keys.clone()).collect();
    assert_eq!(keys, BTreeSet::from([7, 8]));
    let at = blocks.iter().position(|block| block.keys.contains(&7)).unwrap();
    assert_ne!(blocks[at].values[..2], values);
}

#[test]
fn tables_take_turns() {
    let growth = RowLifecycle { admission: None, eviction: Some(Eviction::Idle { steps: 1 }) };
    let of = |name: &str, keys| TableSpec { name: name.into(), ..table(keys, growth) };
    let mut store = Store::new(vec![of("a", 0..100), of("b", 1000..1 << 20), of("c", 200..300)], 1).unwrap();
    for keys in [&[1, 2, 3, 1001, 1002, 1003], &[201, 202, 203, 204, 205, 206]] {
        store.update_many(keys, &[1.0; 12]).unwrap();
    }
    store.update_many(&[4, 1004, 207], &[1.0; 6]).unwrap();
    let mut removed = BTreeSet::new();
    for _ in 0..20 {
        let evicted = store.evict(2);
        assert!(evicted.looked <= 2 && evicted.removed.len() <= evicted.looked);
        removed.extend(evicted.removed);
    }
    assert_eq!(removed, BTreeSet::from([1, 2, 3, 1001, 1002, 1003, 201, 202, 203, 204, 205, 206]));
    assert_eq!(store.rows(), 3);
}

#[test]
fn state_of_another_admission_is_not_restored() {
    let admission = Some(Admission::Occurrences { updates: 2, keys: 24 });
    let mut counting = store(0..KEYS, RowLifecycle { admission, eviction: None });
    let mut plain = store(0..KEYS, RowLifecycle::default());
    counting.update_many(&(0..20).collect::<Vec<_>>(), &[1.0; 40]).unwrap();
    counting.begin_snapshot(Extent::Full);
    let blocks: Vec<_> = std::iter::from_fn(|| counting.read_snapshot(10)).collect();
    let piece = &blocks.last().unwrap().admission;
    let wrong = Err(crate::RowError::WrongAdmission { table: 0 });
    assert_eq!(plain.restore_admission(0, piece), wrong);
    assert_eq!(counting.restore_admission(0, &piece[1..]), wrong);
    let mut far = piece.clone();
    far[0] = 2;
    assert_eq!(counting.restore_admission(0, &far), wrong);
    assert_eq!(counting.restore_admission(0, piece), Ok(()));
    assert_eq!(plain.restore_admission(0, &[]), Ok(()));
}
