use std::collections::BTreeMap;

use libra_plan::{Shard, shard_of};
use proptest::prelude::*;

use super::*;
use crate::TableSpec;
use crate::store::pair::{Contents, Pair, contents, step, tables_of};

fn tables() -> Vec<TableSpec> {
    tables_of(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // rule L2
    #[test]
    fn a_snapshot_has_the_rows_of_its_beginning(
        shard in prop::sample::select(vec![Shard::ONLY, Shard::new(1, 3), Shard::new(4, 5)]),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut pair = Pair::of(shard);
        for step in steps {
            pair.take(step);
        }
        pair.finish();
    }
}

/// Each shard of some, with rows of its own.
struct Shards(Vec<Store>);

impl Shards {
    fn new(shards: u16) -> Self {
        let of = |number| Store::of_shard(tables_of(3), 5, Shard::new(number, shards)).unwrap();
        Self((0..shards).map(of).collect())
    }

    /// Gives each shard its own of these keys.
    fn deal(&mut self, keys: &[u64], mut give: impl FnMut(&mut Store, &[u64])) {
        let shards = u16::try_from(self.0.len()).unwrap();
        for (number, store) in (0..).zip(&mut self.0) {
            let own: Vec<u64> = keys.iter().copied().filter(|key| shard_of(*key, shards) == number).collect();
            give(store, &own);
        }
    }

    fn update(&mut self, keys: &[u64]) {
        self.deal(keys, |store, keys| {
            let width = keys.iter().map(|key| store.width(*key).unwrap()).sum();
            store.update_many(keys, &vec![0.75; width]).unwrap();
        });
    }

    fn remove(&mut self, keys: &[u64]) {
        self.deal(keys, |store, keys| {
            for key in keys {
                store.remove(*key).unwrap();
            }
        });
    }

    /// Takes a block of another shard of another number of them, as a server that loads a checkpoint does.
    fn take(&mut self, block: &RowBlock) {
        self.remove(&block.removed);
        let at: BTreeMap<u64, usize> = (0..).zip(&block.keys).map(|(at, key)| (*key, at)).collect();
        let count = block.keys.len().max(1);
        let rows = |words: &[f32], keys: &[u64]| -> Vec<f32> {
            let width = words.len() / count;
            keys.iter().flat_map(|key| words[at[key] * width..][..width].to_vec()).collect()
        };
        self.deal(&block.keys, |store, keys| {
            store.restore(block.table, keys, &rows(&block.values, keys), &rows(&block.state, keys)).unwrap();
        });
    }

    fn contents(&mut self) -> Contents {
        let mut all: Contents = vec![BTreeMap::new(); 4];
        let shards = u16::try_from(self.0.len()).unwrap();
        for (number, store) in (0..).zip(&mut self.0) {
            for (all, mut own) in all.iter_mut().zip(contents(store)) {
                assert!(own.keys().all(|key| shard_of(*key, shards) == number));
                all.append(&mut own);
            }
        }
        all
    }

    fn dense_rows(&self, table: usize) -> usize {
        self.0.iter().map(|store| store.rows[table].dense_rows()).sum()
    }
}

/// Keys of all tables but the one that decides which rows it makes.
fn runs() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let near = (231_u64..110_000, 1_u64..40_000).prop_map(|(first, count)| first..120_000.min(first + count));
    let far = (3_u64 << 40..(3 << 40) + 500, 1_u64..1000).prop_map(|(first, count)| first..first + count);
    prop::collection::vec(prop_oneof![3 => near, 1 => far].prop_map(Iterator::collect), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A full snapshot of all shards and an increment, each read while rows change, make the same rows in any number of shards.
    #[test]
    fn other_numbers_of_shards_make_the_same_rows_of_a_snapshot(
        shards in prop::sample::select(vec![1_u16, 2, 3, 5]),
        before in runs(),
        removed in runs(),
        after in runs(),
        rows_max in 1_usize..20_000,
    ) {
        let mut original = Shards::new(shards);
        original.0.iter_mut().for_each(Store::track_changes);
        before.iter().for_each(|keys| original.update(keys));
        let mut copies = [1, 2, 3, 4, 7].map(Shards::new);
        for extent in [Extent::Full, Extent::Changed] {
            original.0.iter_mut().for_each(|store| store.begin_snapshot(extent));
            let then = original.contents();
            for number in 0..original.0.len() {
                let mut changes = removed.iter().zip(&after);
                while let Some(block) = original.0[number].read_snapshot(rows_max) {
                    copies.iter_mut().for_each(|copy| copy.take(&block));
                    if let Some((removed, after)) = changes.next() {
                        original.remove(removed);
                        original.update(after);
                    }
                }
            }
            for copy in &mut copies {
                prop_assert!(copy.contents() == then, "{extent:?}, {} shards", copy.0.len());
            }
        }
    }
}

#[test]
fn a_snapshot_of_dense_chunks_is_dense_in_other_shards() {
    let keys: Vec<u64> = (231..110_000).collect();
    let mut original = Shards::new(3);
    original.update(&keys);
    // All keys up to the last chunk of each.
    assert!(original.dense_rows(1) > 45_000 && original.dense_rows(2) > 35_000);
    original.0.iter_mut().for_each(|store| store.begin_snapshot(Extent::Full));
    let then = original.contents();
    original.remove(&keys[10_000..40_000]);
    let mut copies = [1, 3, 4].map(Shards::new);
    for store in &mut original.0 {
        while let Some(block) = store.read_snapshot(8192) {
            copies.iter_mut().for_each(|copy| copy.take(&block));
        }
    }
    for mut copy in copies {
        assert!(copy.contents() == then);
        assert!(copy.dense_rows(1) > 45_000 && copy.dense_rows(2) > 35_000, "{}", copy.0.len());
    }
}

/// All blocks of a snapshot of this extent.
fn snapshot(store: &mut Store, extent: Extent) -> Vec<RowBlock> {
    store.begin_snapshot(extent);
    std::iter::from_fn(|| store.read_snapshot(1000)).collect()
}

fn keys_of(blocks: &[RowBlock]) -> (Vec<u64>, Vec<u64>) {
    let mut keys: Vec<u64> = blocks.iter().flat_map(|block| block.keys.clone()).collect();
    keys.sort_unstable();
    (keys, blocks.iter().flat_map(|block| block.removed.clone()).collect())
}

#[test]
fn an_increment_has_what_changed_and_no_more() {
    let mut pair = Pair::new();
    pair.update(&(77..15_000).collect::<Vec<_>>());
    pair.update(&(1 << 40..(1 << 40) + 10_000).collect::<Vec<_>>());
    assert_eq!(keys_of(&snapshot(&mut pair.store, Extent::Changed)).0.len(), 24_923);
    assert!(snapshot(&mut pair.store, Extent::Changed).is_empty());
    pair.update(&[99, 20_000, 1 << 40]);
    pair.remove(&[100, 20_001]);
    assert_eq!(keys_of(&snapshot(&mut pair.store, Extent::Changed)), (vec![99, 20_000, 1 << 40], vec![100]));
    pair.update(&[500]);
    pair.store.begin_snapshot(Extent::Full);
    pair.update(&[501]);
    pair.remove(&[502]);
    pair.cancel();
    assert_eq!(keys_of(&snapshot(&mut pair.store, Extent::Changed)), (vec![500, 501], vec![502]));
}

#[test]
fn rows_move_to_their_chunk_when_the_snapshot_is_over() {
    let mut pair = Pair::new();
    let near: Vec<u64> = (77..20_000).collect();
    pair.update(&[77]);
    pair.begin(Extent::Full);
    near.chunks(100).for_each(|keys| pair.update(keys));
    assert_eq!(pair.store.rows[1].dense_rows(), 0, "rows have moved");
    while pair.read(100) {}
    // One chunk for each batch, from the last one, which is of fewer keys.
    for dense in [0, 3539, 3539 + 4096, 3539 + 2 * 4096] {
        assert_eq!(pair.store.rows[1].dense_rows(), dense);
        pair.update(&[77]);
    }
    // They were changed since the snapshot began, and still are.
    pair.finish();
    assert_eq!(pair.base[1].len(), near.len());
}

#[test]
fn rows_that_move_away_from_an_empty_chunk_are_still_changed() {
    let mut pair = Pair::new();
    let near: Vec<u64> = (77..77 + 4096).collect();
    pair.update(&near);
    pair.begin(Extent::Full);
    while pair.read(1000) {}
    pair.update(&near[..10]);
    pair.remove(&near[20..4000]);
    assert_eq!((pair.store.rows[1].dense_rows(), pair.store.rows()), (0, 116));
    let (keys, removed) = keys_of(&snapshot(&mut pair.store, Extent::Changed));
    assert_eq!((keys, removed), (near[..10].to_vec(), near[20..4000].to_vec()));
}

#[test]
fn without_a_snapshot_or_tracking_nothing_is_kept_for_them() {
    let mut store = Store::new(tables(), 5).unwrap();
    store.update_many(&(77..20_000).collect::<Vec<_>>(), &[1.0; 19_923]).unwrap();
    let bytes = store.memory_bytes();
    store.begin_snapshot(Extent::Full);
    store.update_many(&(77..10_000).collect::<Vec<_>>(), &[1.0; 9_923]).unwrap();
    assert_eq!(store.rows_copied(), 9_923);
    assert!(store.memory_bytes() > bytes + 9_923 * 12);
    while store.read_snapshot(1000).is_some() {}
    assert_eq!((store.rows_copied(), store.memory_bytes()), (0, bytes));
    store.begin_snapshot(Extent::Full);
    store.cancel_snapshot();
    assert_eq!(store.memory_bytes(), bytes);
    assert_eq!(store.read_snapshot(1), None);
}

#[test]
fn to_restore_a_snapshot_gives_the_store_back() {
    let mut pair = Pair::new();
    pair.update(&(77..20_000).step_by(2).collect::<Vec<_>>());
    pair.update(&(1 << 40..(1 << 40) + 10_000).collect::<Vec<_>>());
    let mut copy = Store::new(tables(), 5).unwrap();
    copy.restore(1, &[77, 20], &[0.0], &[]).unwrap_err();
    for block in snapshot(&mut pair.store, Extent::Full) {
        copy.restore(block.table, &block.keys, &block.values, &block.state).unwrap();
    }
    assert!(contents(&mut copy) == contents(&mut pair.twin));
    // Those that rise are put to their place at once.
    let mut copy = Store::new(tables(), 5).unwrap();
    let keys: Vec<u64> = (77..20_000).rev().chain(77..20_000).collect();
    copy.restore(1, &keys[19_923..], &vec![1.0; 19_923], &[]).unwrap();
    assert_eq!((copy.rows[1].dense_rows(), copy.rows()), (19_923, 19_923));
    copy.restore(1, &keys, &vec![2.0; keys.len()], &[]).unwrap();
    assert!(copy.rows_of(1).all(|(_, values, _)| values == [2.0]) && copy.rows() == 19_923);
}

#[test]
fn rows_that_are_not_those_of_the_table_are_not_restored() {
    let mut store = Store::new(tables(), 5).unwrap();
    assert_eq!(store.restore(1, &[100, 20_000], &[0.0; 2], &[]), Err(RowError::NotOfTable { key: 20_000 }));
    let length = RowError::WrongLength { width: 2, found: 3 };
    assert_eq!(store.restore(1, &[100, 101], &[0.0; 3], &[]), Err(length));
    let states = RowError::WrongStates { words: 2, found: 1 };
    assert_eq!(store.restore(2, &[20_000], &[0.0; 2], &[0.0]), Err(states));
    assert_eq!(store.rows(), 0);
}
