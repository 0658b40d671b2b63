use std::collections::BTreeMap as NaiveMap;

use proptest::prelude::*;

use super::*;
use crate::{Init, Optimizer};

pub(super) fn tables() -> Vec<TableSpec> {
    let adam = Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let table = |name: &str, keys, width, optimizer: Optimizer, init| TableSpec {
        name: name.into(),
        keys,
        width,
        rule: optimizer.into(),
        init,
    };
    vec![
        table("user", 1000..1_000_000, 3, adam, Init::Normal { deviation: 0.1 }),
        table("item", 0..40, 1, Optimizer::Sgd { rate: 0.1 }, Init::Zero),
        table(
            "tag",
            50..100,
            2,
            Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 },
            Init::Uniform { bound: 1.0 },
        ),
    ]
}

/// One `Vec` for each row, found by trying every table.
#[derive(Default)]
struct Naive {
    rows: NaiveMap<u64, (Vec<f32>, Vec<f32>)>,
}

impl Naive {
    fn table(key: u64) -> Option<TableSpec> {
        tables().into_iter().find(|table| table.keys.contains(&key))
    }

    fn first(key: u64) -> Option<(Vec<f32>, Vec<f32>)> {
        let table = Self::table(key)?;
        let mut values = vec![0.0; table.width];
        table.init.fill(SEED, key, &mut values);
        Some((values, vec![0.0; table.rule.state_len(table.width)]))
    }

    fn read(&self, key: u64) -> Option<Vec<f32>> {
        self.rows.get(&key).cloned().or_else(|| Self::first(key)).map(|(values, _)| values)
    }

    fn update(&mut self, key: u64, gradient: &[f32]) {
        let (values, state) = self.rows.entry(key).or_insert_with(|| Self::first(key).unwrap());
        Self::table(key).unwrap().rule.prepare(0).apply(values, state, gradient);
    }
}

pub(super) const SEED: u64 = 17;

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..110, 995_u64..1010, 999_990_u64..1_000_010, any::<u64>()]
}

proptest! {
    #[test]
    fn the_store_agrees_with_a_naive_model(
        steps in prop::collection::vec((key(), any::<bool>(), -1.0_f32..1.0), 0..200),
    ) {
        let mut store = Store::new(tables(), SEED).unwrap();
        let mut naive = Naive::default();
        for (key, update, slope) in steps {
            let width = Naive::table(key).map(|table| table.width);
            prop_assert_eq!(store.width(key), width);
            prop_assert_eq!(store.table_of(key).cloned(), Naive::table(key));
            let Some(width) = width else {
                prop_assert_eq!(store.read(key, &mut [0.0]), Err(RowError::UnknownKey { key }));
                prop_assert_eq!(store.update(key, &[0.0]), Err(RowError::UnknownKey { key }));
                continue;
            };
            if update {
                let lanes = (1_u8..).take(width);
                let gradient: Vec<f32> = lanes.map(|lane| slope * f32::from(lane)).collect();
                store.update(key, &gradient).unwrap();
                naive.update(key, &gradient);
            }
            let mut values = vec![f32::NAN; width];
            store.read(key, &mut values).unwrap();
            prop_assert_eq!(Some(values), naive.read(key));
            prop_assert_eq!(store.rows(), naive.rows.len());
        }
    }
}

#[test]
fn a_width_that_is_not_the_row_s_is_refused_and_changes_nothing() {
    let mut store = Store::new(tables(), SEED).unwrap();
    let error = RowError::WrongWidth { key: 60, width: 2, found: 3 };
    assert_eq!(store.read(60, &mut [0.0; 3]), Err(error));
    assert_eq!(store.update(60, &[0.0; 3]), Err(error));
    assert_eq!(store.rows(), 0);
}

#[test]
fn reading_keeps_no_row() {
    let mut store = Store::new(tables(), SEED).unwrap();
    let keys: Vec<u64> = (1000..2000).collect();
    let mut rows = vec![0.0; 3 * keys.len()];
    store.read_many(&keys, &mut rows).unwrap();
    for (key, row) in keys.iter().zip(rows.chunks(3)) {
        let mut single = [0.0; 3];
        store.read(*key, &mut single).unwrap();
        assert_eq!(single, row);
    }
    assert_eq!((store.rows(), store.memory_bytes()), (0, 0));
}

/// Steps of a batch: keys of all tables in any order, many of them twice.
pub(super) fn batch() -> impl Strategy<Value = Vec<(u64, f32)>> {
    let key = prop_oneof![0_u64..40, 50_u64..100, 1000_u64..1100, 1000_u64..1_000_000];
    prop::collection::vec((key, -1.0_f32..1.0), 0..300)
}

/// The keys, and their gradients one after the other.
pub(super) fn gradients(batch: &[(u64, f32)]) -> (Vec<u64>, Vec<f32>) {
    let keys = batch.iter().map(|(key, _)| *key).collect();
    let of_row = |(key, slope): &(u64, f32)| {
        let lanes = (1_u8..).take(Naive::table(*key).unwrap().width);
        lanes.map(|lane| slope * f32::from(lane)).collect::<Vec<_>>()
    };
    (keys, batch.iter().flat_map(of_row).collect())
}

proptest! {
    /// To the bit: the naive model computes one row after the other.
    #[test]
    fn batches_do_what_their_rows_do_one_by_one(batches in prop::collection::vec(batch(), 1..8)) {
        let mut store = Store::new(tables(), SEED).unwrap();
        let mut singly = store.clone();
        let mut naive = Naive::default();
        for batch in &batches {
            let (keys, gradients) = gradients(batch);
            store.update_many(&keys, &gradients).unwrap();
            let mut rest = &gradients[..];
            for key in &keys {
                let gradient;
                (gradient, rest) = rest.split_at(Naive::table(*key).unwrap().width);
                singly.update(*key, gradient).unwrap();
                naive.update(*key, gradient);
            }
            let mut values = vec![f32::NAN; gradients.len()];
            store.read_many(&keys, &mut values).unwrap();
            let expected: Vec<f32> = keys.iter().flat_map(|key| naive.read(*key).unwrap()).collect();
            prop_assert_eq!(values, expected);
        }
        for position in 0..tables().len() {
            let rows = |store: &Store| -> NaiveMap<u64, (Vec<f32>, Vec<f32>)> {
                let rows = store.rows_of(position);
                rows.map(|(key, values, state)| (key, (values.to_vec(), state.to_vec()))).collect()
            };
            let keys = &tables()[position].keys;
            let expected: NaiveMap<_, _> = naive.rows.clone().into_iter().filter(|(key, _)| keys.contains(key)).collect();
            prop_assert_eq!(rows(&store), rows(&singly));
            prop_assert_eq!(rows(&store), expected);
        }
        prop_assert_eq!(store.rows(), naive.rows.len());
    }

    #[test]
    fn rows_are_set_removed_and_copied(
        first in batch(),
        set in prop::collection::vec((1000_u64..1100, -1.0_f32..1.0), 0..200),
        removed in prop::collection::vec(1000_u64..1100, 0..200),
    ) {
        let mut store = Store::new(tables(), SEED).unwrap();
        let mut naive = Naive::default();
        for row in &first {
            let (keys, gradient) = gradients(std::slice::from_ref(row));
            store.update(keys[0], &gradient).unwrap();
            naive.update(keys[0], &gradient);
        }
        for ((key, value), removed) in set.iter().zip(removed) {
            store.insert(*key, &[*value; 3], &[2.0; 7]).unwrap();
            naive.rows.insert(*key, (vec![*value; 3], vec![2.0; 7]));
            prop_assert_eq!(store.remove(removed), Ok(naive.rows.remove(&removed).is_some()));
        }
        let mut copy = Store::new(tables(), SEED).unwrap();
        for position in 0..tables().len() {
            for (key, values, state) in store.rows_of(position) {
                copy.insert(key, values, state).unwrap();
            }
        }
        prop_assert_eq!((store.rows(), copy.rows()), (naive.rows.len(), naive.rows.len()));
        for key in (0..40).chain(50..100).chain(1000..1100) {
            let mut values = [vec![0.0; store.width(key).unwrap()], vec![0.0; store.width(key).unwrap()]];
            store.read(key, &mut values[0]).unwrap();
            copy.read(key, &mut values[1]).unwrap();
            prop_assert_eq!(&values[0], &naive.read(key).unwrap());
            prop_assert_eq!(&values[0], &values[1]);
        }
    }
}

#[test]
fn rows_that_move_during_a_batch_are_found_where_they_went() {
    let table = || TableSpec { keys: 0..10_000, ..tables()[1].clone() };
    let [mut together, mut one_by_one] = [(); 2].map(|()| Store::new(vec![table()], SEED).unwrap());
    // Rows of one chunk, found by hash; then a batch with so many new ones of it that the chunk becomes dense, and with the first ones
    // in between: where they were was looked up before they moved.
    let first: Vec<u64> = (3000..3600).collect();
    let both: Vec<u64> = (0..2400).flat_map(|new| [new, 3000 + new % 600]).collect();
    for batch in [first, both] {
        together.update_many(&batch, &vec![1.0; batch.len()]).unwrap();
        for key in batch {
            one_by_one.update(key, &[1.0]).unwrap();
        }
    }
    let keys: Vec<u64> = (0..10_000).collect();
    let [mut these, mut those] = [(); 2].map(|()| vec![0.0; keys.len()]);
    together.read_many(&keys, &mut these).unwrap();
    one_by_one.read_many(&keys, &mut those).unwrap();
    assert_eq!(these, those);
    assert!(together.rows[0].moves() > 0, "nothing has moved, and the test shows nothing");
}

#[test]
fn a_batch_with_a_flaw_changes_nothing() {
    let mut store = Store::new(tables(), SEED).unwrap();
    let unknown = RowError::UnknownKey { key: 45 };
    assert_eq!(store.update_many(&[3, 45], &[1.0; 2]), Err(unknown));
    assert_eq!(store.read_many(&[3, 45], &mut [1.0; 2]), Err(unknown));
    let length = RowError::WrongLength { width: 6, found: 5 };
    assert_eq!(store.update_many(&[3, 60, 1000], &[1.0; 5]), Err(length));
    assert_eq!(store.read_many(&[3, 60, 1000], &mut [1.0; 5]), Err(length));
    let state = RowError::WrongState { key: 60, words: 2, found: 1 };
    assert_eq!(store.insert(60, &[1.0; 2], &[0.0]), Err(state));
    assert_eq!(store.remove(45), Err(unknown));
    assert_eq!((store.rows(), store.steps(0), store.memory_bytes()), (0, 0, 0));
    store.update_many(&[], &[]).unwrap();
    store.read_many(&[], &mut []).unwrap();
}

/// A table of so many rows with these keys, filled by batches.
fn filled(keys: impl Iterator<Item = u64>) -> Store {
    let optimizer = Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 };
    let table = TableSpec {
        name: "row".into(),
        keys: 0..u64::MAX,
        width: 1,
        rule: optimizer.into(),
        init: Init::Zero,
    };
    let mut store = Store::new(vec![table], SEED).unwrap();
    let keys: Vec<u64> = keys.collect();
    for keys in keys.chunks(1000) {
        store.update_many(keys, &vec![1.0; keys.len()]).unwrap();
    }
    store
}

/// Dense, with a stride, with equal low bits, and of which the hashes have equal fragments.
#[test]
fn keys_of_any_pattern_are_found_and_take_as_much_memory() {
    let equal_fragments = (0_u64..).filter(|key| crate::directory::hash_of(*key) & 0xfff0 == 0);
    let patterns: [&mut dyn Iterator<Item = u64>; 5] = [
        &mut (0..100_000),
        &mut (0..100_000).map(|key| key * 4096),
        &mut (0..100_000).map(|key| key << 32 | 0x1234),
        &mut (0..100_000).map(|key| u64::MAX - 1 - key),
        &mut equal_fragments.take(2_000),
    ];
    for keys in patterns {
        let keys: Vec<u64> = keys.collect();
        let mut store = filled(keys.iter().copied());
        assert_eq!(store.rows(), keys.len());
        let mut values = vec![0.0; keys.len()];
        store.read_many(&keys, &mut values).unwrap();
        assert!(values.iter().all(|value| *value < 0.0));
        store.read_many(&keys.iter().map(|key| key ^ 1 << 63).collect::<Vec<_>>(), &mut values).unwrap();
        assert!(values.iter().all(|value| *value == 0.0) || keys[0] > 1 << 63);
        if keys.len() == 100_000 {
            assert_small(&store);
        }
    }
}

fn assert_small(store: &Store) {
    let beyond = store.memory_bytes() as f64 / store.rows() as f64 - 8.0;
    assert!((12.0..=16.0).contains(&beyond), "{beyond} bytes for each of {} rows", store.rows());
}

#[test]
fn a_row_costs_at_most_16_bytes_beyond_values_and_state() {
    let mut store = filled(0..100_000);
    for key in 100_000..1_000_000 {
        store.update(key * 7, &[1.0]).unwrap();
        if key % 4096 == 0 {
            assert_small(&store);
        }
    }
    assert_small(&store);
}

#[test]
fn first_values_do_not_depend_on_what_else_was_touched() {
    let mut busy = Store::new(tables(), SEED).unwrap();
    for key in (1000..5000).rev() {
        busy.update(key, &[1.0; 3]).unwrap();
    }
    let mut fresh = Store::new(tables(), SEED).unwrap();
    let (mut from_busy, mut from_fresh) = ([0.0; 3], [0.0; 3]);
    busy.read(70_000, &mut from_busy).unwrap();
    fresh.read(70_000, &mut from_fresh).unwrap();
    assert_eq!(from_busy, from_fresh);
    assert_ne!(from_busy, [0.0; 3]);
}

#[test]
fn overlapping_tables_are_refused() {
    let mut tables = tables();
    tables[2].keys = 30..100;
    let error = Store::new(tables, 0).unwrap_err();
    assert_eq!(error, TableError::Overlap { first: "item".into(), second: "tag".into(), key: 30 });
    assert_eq!(Store::new(Vec::new(), 0).unwrap().rows(), 0);
}

#[test]
fn changed_rule_keeps_rows_and_states() {
    let mut store = Store::new(tables(), SEED).unwrap();
    store.update(60, &[1.0, 1.0]).unwrap();
    let before = store.rows_of(2).next().map(|(_, values, state)| (values.to_vec(), state.to_vec())).unwrap();
    let faster = Optimizer::Adagrad { rate: 0.2, epsilon: 1e-6 };
    store.set_rule(2, faster.into()).unwrap();
    let after = store.rows_of(2).next().map(|(_, values, state)| (values.to_vec(), state.to_vec())).unwrap();
    assert_eq!(after, before);
    store.update(60, &[1.0, 1.0]).unwrap();
    let mut row = [0.0; 2];
    store.read(60, &mut row).unwrap();
    assert_eq!(row[0], before.0[0] - 0.2 / (2.0_f32.sqrt() + 1e-6));
    let error = store.set_rule(2, Optimizer::Adagrad { rate: -1.0, epsilon: 1e-6 }.into()).unwrap_err();
    assert!(matches!(error, TableError::Number { field: "rate", .. }));
    assert_eq!(store.tables()[2].rule, faster.into());
}
