use std::collections::HashMap as NaiveMap;

use proptest::prelude::*;

use super::*;
use crate::{Init, Optimizer};

fn tables() -> Vec<TableSpec> {
    let adam = Optimizer::Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let table = |name: &str, keys, width, optimizer, init| TableSpec {
        name: name.into(),
        keys,
        width,
        optimizer,
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
        Some((values, vec![0.0; table.optimizer.state_len(table.width)]))
    }

    fn read(&self, key: u64) -> Option<Vec<f32>> {
        self.rows.get(&key).cloned().or_else(|| Self::first(key)).map(|(values, _)| values)
    }

    fn update(&mut self, key: u64, gradient: &[f32]) {
        let (values, state) = self.rows.entry(key).or_insert_with(|| Self::first(key).unwrap());
        Self::table(key).unwrap().optimizer.apply(values, state, gradient);
    }
}

const SEED: u64 = 17;

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
fn reading_keeps_no_row_and_growth_is_amortised() {
    let mut store = Store::new(tables(), SEED).unwrap();
    assert_eq!(store.memory_bytes(), 0);
    let mut row = [0.0; 3];
    for key in 1000..2000 {
        store.read(key, &mut row).unwrap();
    }
    assert_eq!((store.rows(), store.memory_bytes()), (0, 0));
    let mut growths = 0;
    for key in 1000..101_000 {
        let before = store.memory_bytes();
        store.update(key, &[1.0; 3]).unwrap();
        growths += usize::from(store.memory_bytes() != before);
    }
    assert_eq!(store.rows(), 100_000);
    assert!(growths < 50, "{growths}");
    // 3 values and 7 words of state, and an index of 16 bytes and a control byte: at most doubled by growth.
    let least = 100_000 * (10 * 4 + 17);
    assert!((least..least * 5 / 2).contains(&store.memory_bytes()), "{}", store.memory_bytes());
}

#[test]
fn first_values_do_not_depend_on_what_else_was_touched() {
    let mut busy = Store::new(tables(), SEED).unwrap();
    for key in (1000..5000).rev() {
        busy.update(key, &[1.0; 3]).unwrap();
    }
    let fresh = Store::new(tables(), SEED).unwrap();
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
