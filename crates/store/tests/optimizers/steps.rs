//! A schedule goes by the batches that touched the table.

use libra_store::{Decay, Init, Optimizer, Schedule, Store, TableSpec, UpdateRule};

fn store() -> Store {
    let schedule = Schedule { warmup: 0, decay: Decay::Step { every: 1, factor: 0.5 } };
    let rule = UpdateRule { schedule, ..Optimizer::Sgd { rate: 1.0 }.into() };
    let table = |name: &str, keys| TableSpec { name: name.into(), keys, width: 1, rule, init: Init::Zero };
    Store::new(vec![table("high", 10..20), table("low", 0..10)], 1).expect("the tables are good")
}

fn values(store: &mut Store, keys: &[u64]) -> Vec<f32> {
    let mut values = vec![f32::NAN; keys.len()];
    store.read_many(keys, &mut values).expect("all keys are of a table");
    values
}

#[test]
fn a_batch_is_one_step_of_each_table_it_touches() {
    let mut store = store();
    // The rows of a table may lie in several places, and a row may come twice.
    store.update_many(&[1, 11, 2, 12, 1], &[-1.0; 5]).unwrap();
    assert_eq!(values(&mut store, &[1, 2, 11, 12]), [2.0, 1.0, 1.0, 1.0]);
    store.update_many(&[2, 3], &[-1.0; 2]).unwrap();
    store.update_many(&[], &[]).unwrap();
    store.update(13, &[-1.0]).unwrap();
    store.update(3, &[-1.0]).unwrap();
    assert_eq!(values(&mut store, &[2, 3, 13]), [1.5, 0.75, 0.5]);
    assert_eq!([store.steps(0), store.steps(1)], [2, 3]);
}

#[test]
fn a_batch_that_is_refused_is_no_step() {
    let mut store = store();
    store.update(7, &[1.0, 1.0]).unwrap_err();
    store.update(70, &[1.0]).unwrap_err();
    store.update_many(&[7, 8], &[1.0]).unwrap_err();
    store.update_many(&[7, 70], &[1.0, 1.0]).unwrap_err();
    assert_eq!([store.steps(0), store.steps(1)], [0, 0]);
}

#[test]
fn steps_can_be_restored() {
    let (mut first, mut second) = (store(), store());
    for _ in 0..3 {
        first.update(7, &[-1.0]).unwrap();
    }
    second.insert(7, &values(&mut first, &[7]), &[]).unwrap();
    second.set_steps(1, first.steps(1));
    for store in [&mut first, &mut second] {
        store.update(7, &[-1.0]).unwrap();
    }
    assert_eq!(values(&mut first, &[7]), values(&mut second, &[7]));
    assert_eq!(second.steps(1), 4);
}
