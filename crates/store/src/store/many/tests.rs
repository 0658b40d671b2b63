use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::tests::{SEED, batch, gradients, tables};
use super::*;
use crate::{Admission, Eviction, RowLifecycle};

/// The tables, with rows that are admitted late and leave traces in two of them.
fn growing() -> Store {
    let mut tables = tables();
    tables[0].rule.growth.admission = Some(Admission::Occurrences { updates: 2, keys: 1000 });
    tables[2].rule.growth = RowLifecycle {
        admission: Some(Admission::Probability(0.5)),
        eviction: Some(Eviction::LeastUsed { rows_max: 10, half_life: 3 }),
    };
    Store::new(tables, SEED).unwrap()
}

/// Bits of all that a store has of each table.
fn content(store: &Store) -> Vec<Vec<(u64, Vec<u32>)>> {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let rows = |position| {
        let rows = store.rows_of(position).map(|(key, values, state)| (key, bits(&[values, state].concat())));
        rows.collect()
    };
    (0..store.tables().len()).map(rows).collect()
}

proptest! {
    /// To the bit, in rows, steps, counts of admission and what a snapshot has.
    #[test]
    fn one_walk_does_what_an_update_and_a_read_do(
        batches in prop::collection::vec((batch(), any::<bool>()), 1..8),
        snapshot in 0_usize..8,
    ) {
        let (mut once, mut twice) = (growing(), growing());
        let mut keys_of = KeyBatch::default();
        for (at, (mut rows, rises)) in batches.into_iter().enumerate() {
            let mut seen = BTreeSet::new();
            rows.retain(|(key, _)| seen.insert(*key));
            if rises {
                rows.sort_by_key(|(key, _)| *key);
            }
            if at == snapshot {
                once.begin_snapshot(crate::Extent::Full);
                twice.begin_snapshot(crate::Extent::Full);
            }
            let (keys, mut gradients) = gradients(&rows);
            keys_of.fill(&once, |to| to.extend_from_slice(&keys)).unwrap();
            prop_assert_eq!((keys_of.keys(), keys_of.values()), (keys.as_slice(), gradients.len()));
            let mut values = vec![f32::NAN; gradients.len()];
            twice.update_many(&keys, &gradients).unwrap();
            twice.read_many(&keys, &mut values).unwrap();
            once.update_and_read_batch(&keys_of, &mut gradients).unwrap();
            prop_assert_eq!(&gradients, &values);
            once.read_batch(&keys_of, &mut gradients).unwrap();
            prop_assert_eq!(&gradients, &values);
            prop_assert_eq!(content(&once), content(&twice));
            prop_assert_eq!(once.lifecycle_counts(), twice.lifecycle_counts());
            prop_assert_eq!(once.rows_copied(), twice.rows_copied());
            prop_assert!((0..3).all(|table| once.steps(table) == twice.steps(table)));
        }
    }
}

#[test]
fn a_key_that_occurs_twice_has_the_values_after_each_gradient() {
    let mut store = Store::new(tables(), SEED).unwrap();
    let mut batch = KeyBatch::default();
    batch.fill(&store, |keys| keys.extend([3, 7, 3])).unwrap();
    let mut values = [10.0, 20.0, 30.0];
    store.update_and_read_batch(&batch, &mut values).unwrap();
    assert_eq!(values, [-1.0, -2.0, -4.0]);
}

#[test]
fn flawed_batch_is_empty_and_wrong_length_changes_nothing() {
    let mut store = growing();
    let mut batch = KeyBatch::default();
    assert_eq!(batch.fill(&store, |keys| keys.extend([3, 45])), Err(RowError::UnknownKey { key: 45 }));
    assert_eq!((batch.keys(), batch.values()), (&[][..], 0));
    batch.fill(&store, |keys| keys.extend([3, 60, 1000])).unwrap();
    let length = RowError::WrongLength { width: 6, found: 5 };
    assert_eq!(store.update_batch(&batch, &[1.0; 5]), Err(length));
    assert_eq!(store.read_batch(&batch, &mut [1.0; 5]), Err(length));
    assert_eq!(store.update_and_read_batch(&batch, &mut [1.0; 5]), Err(length));
    assert_eq!((store.rows(), store.steps(0)), (0, 0));
}

#[test]
fn a_batch_allocates_nothing_once_its_memory_is_there() {
    let mut store = Store::new(tables(), SEED).unwrap();
    let mut batch = KeyBatch::default();
    let keys: Vec<u64> = (0..40).chain(50..100).chain(1000..1500).collect();
    let mut values = vec![0.5; 40 + 2 * 50 + 3 * 500];
    for round in 0..4 {
        let allocated = allocation_counter::measure(|| {
            batch.fill(&store, |to| to.extend_from_slice(&keys)).unwrap();
            store.update_and_read_batch(&batch, &mut values).unwrap();
            store.update_batch(&batch, &values).unwrap();
            store.read_batch(&batch, &mut values).unwrap();
        });
        assert_eq!(allocated.count_total > 0, round == 0, "{allocated:?}");
    }
}
