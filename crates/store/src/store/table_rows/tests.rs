use std::collections::BTreeMap;

use libra_plan::shard_of;
use proptest::prelude::*;

use super::*;

/// Rows beside a naive model of them. The only word of a row is what was written there last.
struct Pair {
    rows: TableRows,
    model: BTreeMap<u64, u32>,
}

impl Pair {
    fn new(keys: Range<u64>, words: usize) -> Self {
        Self { rows: TableRows::new(&keys, words, Shard::ONLY, false), model: BTreeMap::new() }
    }

    fn set(&mut self, key: u64, value: u32) {
        let is_new = !self.model.contains_key(&key);
        let (place, was_made) =
            self.rows.find_or_insert(key, |words| assert!(words.iter().all(|word| *word == 0)));
        assert_eq!(was_made, is_new);
        self.rows.words_mut(place).fill(value);
        self.model.insert(key, value);
    }

    fn remove(&mut self, key: u64) {
        assert_eq!(self.rows.remove(key), self.model.remove(&key).is_some());
    }

    fn check(&self, keys: Range<u64>) {
        self.check_these(&keys.collect::<Vec<u64>>());
    }

    fn check_these(&self, keys: &[u64]) {
        assert_eq!(self.rows.len(), self.model.len());
        let rows: BTreeMap<u64, u32> = self.rows.iter().map(|(key, words)| (key, words[0])).collect();
        assert_eq!(rows, self.model);
        for keys in keys.chunks(BLOCK) {
            let mut search = Search::of(keys);
            self.rows.begin_search(&mut search);
            self.rows.continue_search(&mut search);
            self.rows.end_search(&mut search);
            for (key, place) in keys.iter().zip(search.places) {
                assert_eq!(place, self.rows.find(*key));
                let value = (place != RowPlace::Nowhere).then(|| self.rows.words(place)[0]);
                assert_eq!(value, self.model.get(key).copied(), "key {key}");
            }
        }
    }
}

/// A permutation of 0..2^16.
fn scattered(index: u64) -> u64 {
    index.wrapping_mul(40_503) % (1 << 16)
}

#[test]
fn rows_are_the_same_before_and_after_their_chunk_is_dense() {
    // From a key that begins no chunk of all keys to one that ends none.
    for (words, last) in [(1, 77), (2, 77), (5, 77), (1, 2000), (49, 2000)] {
        let keys = 1_000_001..1_000_001 + 3 * 4096 + last;
        let mut pair = Pair::new(keys.clone(), words);
        let all = (0..1 << 16).map(|index| keys.start + scattered(index)).filter(|key| keys.contains(key));
        for (value, key) in (1..).zip(all) {
            pair.set(key, value);
            if value % 977 == 0 {
                pair.check(keys.clone());
            }
        }
        pair.check(keys.clone());
        // The last one is dense unless it is of few keys.
        let dense = if last == 77 { 3 * 4096 } else { pair.rows.len() };
        assert_eq!(pair.rows.dense.len(), dense);
        for key in keys.clone().step_by(3) {
            pair.remove(key);
            pair.remove(key);
        }
        pair.check(keys.clone());
        for key in keys.clone().step_by(2) {
            pair.set(key, 7);
        }
        pair.check(keys.clone());
    }
}

/// A table of one chunk takes as much memory as its keys.
#[test]
fn small_tables_are_dense_and_no_larger_than_their_keys() {
    for (keys, words) in [(1024, 49), (3706, 25), (3706, 400), (1000, 25)] {
        let mut pair = Pair::new(500..500 + keys, words);
        (500..500 + keys).for_each(|key| pair.set(key, 1));
        let is_dense = keys >= 1024;
        assert_eq!(pair.rows.dense.len() as u64, if is_dense { keys } else { 0 });
        let bytes = 4 * usize::try_from(keys).unwrap() * words;
        assert!(!is_dense || pair.rows.dense.memory_bytes() < bytes + 2048);
        (500..500 + keys).step_by(2).for_each(|key| pair.remove(key));
        pair.check(500..500 + keys);
        (501..500 + keys).step_by(2).for_each(|key| pair.remove(key));
        assert_eq!(pair.rows.dense.len(), 0);
        assert!(pair.rows.dense.memory_bytes() < 4096);
    }
}

/// With any number of shards, from 1 up to more than there are keys in a chunk, the keys of a shard are neighbours.
#[test]
fn rows_of_a_shard_become_dense_as_those_of_all_keys() {
    for shards in [2, 3, 7, 5000] {
        for number in [0, shards - 1] {
            let keys = 1_000_001..1_000_001 + u64::from(shards) * 9700 + 77;
            let of_shard: Vec<u64> =
                keys.clone().filter(|key| shard_of(*key, shards) == number).take(20_000).collect();
            let rows = TableRows::new(&keys, 1, Shard::new(number, shards), false);
            let mut pair = Pair { rows, model: BTreeMap::new() };
            for (value, at) in (1..).zip(0..of_shard.len()) {
                pair.set(of_shard[at * 7919 % of_shard.len()], value);
            }
            // The group of the first key may begin before the table.
            assert!(
                pair.rows.dense.len() >= 2 * 4096 - 1,
                "{} of {}",
                pair.rows.dense.len(),
                pair.rows.len()
            );
            of_shard.iter().step_by(3).for_each(|key| pair.remove(*key));
            pair.check_these(&of_shard);
        }
    }
}

/// Chunks of rows this wide lie in slabs of four.
#[test]
fn emptied_chunks_free_their_memory_and_are_used_again() {
    let of_shard = Shard::new(2, 3);
    let rows = TableRows::new(&(0..3 * 40 * 4096), 60, of_shard, false);
    let mut pair = Pair { rows, model: BTreeMap::new() };
    let slab = 4 * 4096 * 60 * 4;
    let keys = |chunks: Range<u64>| {
        let groups = chunks.start * 4096..chunks.end * 4096;
        groups.map(|group| of_shard.key_in(group).unwrap()).collect::<Vec<u64>>()
    };
    keys(0..10).into_iter().for_each(|key| pair.set(key, 1));
    assert_eq!(pair.rows.dense.len(), 10 * 4096);
    let full = pair.rows.dense.memory_bytes();
    // One of the first four chunks, all of the next four, and one of two.
    for chunk in [1, 5, 7, 4, 6, 9] {
        keys(chunk..chunk + 1).into_iter().for_each(|key| pair.remove(key));
    }
    assert_eq!(pair.rows.dense.len(), 4 * 4096);
    let freed = full - pair.rows.dense.memory_bytes();
    assert!((slab..slab + slab / 100).contains(&freed), "{freed} of {full} bytes");
    pair.check_these(&keys(0..10));
    // Rows are made of zeros: the model looks at them. The lowest places come first.
    keys(20..21).into_iter().for_each(|key| pair.set(key, 2));
    assert!(pair.rows.dense.memory_bytes() < full - slab / 2);
    keys(21..28).into_iter().for_each(|key| pair.set(key, 3));
    assert_eq!(pair.rows.dense.positions(), 12 * 4096);
    pair.check_these(&keys(0..30));
}

#[test]
fn rows_that_are_far_apart_stay_where_they_are_found_by_hash() {
    let keys = 0..1 << 24;
    let mut pair = Pair::new(keys, 1);
    for key in (0..1 << 24).step_by(6) {
        pair.rows.find_or_insert(key, |_| ());
    }
    assert_eq!(pair.rows.dense.len(), 0);
    let mut huge = Pair::new(0..u64::MAX, 1);
    (0..10_000).for_each(|key| huge.set(key, 1));
    assert_eq!(huge.rows.dense.len(), 0, "a directory of all keys would be too large");
    huge.check(0..10_100);
}

#[test]
fn to_make_a_chunk_dense_moves_it_and_no_other() {
    let mut rows = TableRows::new(&(0..1 << 20), 1, Shard::ONLY, false);
    let mut most = 0;
    for index in 0..1 << 16 {
        let before = rows.dense.len();
        rows.find_or_insert(scattered(index), |_| ());
        most = most.max(rows.dense.len() - before);
    }
    assert!((800..=4096).contains(&most), "{most} rows were moved at once");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_found_after_any_changes(
        deeds in prop::collection::vec((0u64..9000, 0u64..400, 0u8..8), 1..60),
        start in prop_oneof![Just(0u64), Just(12_345)],
    ) {
        let keys = start..start + 9400;
        let mut pair = Pair::new(keys.clone(), 1);
        for (first, count, deed) in deeds {
            for key in start + first..start + first + count {
                if deed == 0 { pair.remove(key) } else { pair.set(key, u32::from(deed)) }
            }
        }
        pair.check(keys);
    }
}
