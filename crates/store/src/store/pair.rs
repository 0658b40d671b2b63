//! A store beside another one to which the same happens, for tests of snapshots and of the memory limit.

use std::collections::{BTreeMap, BTreeSet};

use libra_plan::Shard;
use proptest::prelude::*;

use super::{Extent, Store};
use crate::{Admission, Eviction, Init, Optimizer, RowLifecycle, SimulatedBlockFile, TableSpec, UpdateRule};

/// Of each table, the words of values and state by key.
pub(super) type Contents = Vec<BTreeMap<u64, Vec<u32>>>;

/// Tables for so many shards, each of which has as many keys of them as one has of the others. Where they begin and end, the keys of a
/// group are of two tables. Chunks become dense at about a fifth to two thirds of their keys.
pub(super) fn tables_of(shards: u16) -> Vec<TableSpec> {
    tables_with(shards, [3, 1, 2, 1])
}

/// The same with rows of these widths.
fn tables_with(shards: u16, widths: [usize; 4]) -> Vec<TableSpec> {
    let (times, some) = (u64::from(shards), u64::from(shards / 2));
    let table = |name: &str, keys, width, optimizer: Optimizer| TableSpec {
        name: name.into(),
        keys,
        width,
        rule: optimizer.into(),
        init: Init::Uniform { bound: 1.0 },
    };
    let adagrad = Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 };
    let growth = RowLifecycle {
        admission: Some(Admission::Occurrences { updates: 2, keys: 5_000 }),
        eviction: Some(Eviction::LeastUsed { rows_max: 1_000, half_life: 5 }),
    };
    vec![
        table("far", (1 << 40) * times..u64::MAX, widths[0], adagrad),
        table("near", 77 * times - some..20_000 * times + some, widths[1], Optimizer::Sgd { rate: 0.1 }),
        table("wide", 20_000 * times + some..40_000 * times, widths[2], adagrad),
        TableSpec {
            rule: UpdateRule { growth, ..adagrad.into() },
            ..table("growing", 50_000 * times..60_000 * times, widths[3], adagrad)
        },
    ]
}

/// Returns the counts of the admission of the last table.
fn counted(store: &mut Store) -> Vec<u32> {
    store.admission_filters[3].counts_mut().unwrap().words().to_vec()
}

pub(super) fn contents(store: &mut Store) -> Contents {
    let words = |values: &[f32], state: &[f32]| bits(values).chain(bits(state)).collect();
    let of_table = |table| {
        let keys: Vec<u64> = store.keys_of(table).collect();
        let row = |key| {
            let (values, state) = store.row(key).expect("it has the key");
            (key, words(values, state))
        };
        keys.into_iter().map(row).collect()
    };
    (0..4).map(of_table).collect()
}

fn bits(values: &[f32]) -> impl Iterator<Item = u32> {
    values.iter().map(|value| value.to_bits())
}

/// A store that is snapshotted, beside one to which the same happens and which has no snapshots. Operations are given in
/// numbers of groups of keys; for the only shard, they are the keys.
pub(super) struct Pair {
    shard: Shard,
    pub(super) store: Store,
    pub(super) twin: Store,
    /// Contents of the last snapshot that was read to its end, with all before.
    pub(super) base: Contents,
    active: Option<Active>,
}

struct Active {
    /// Contents that the snapshot should have, and how many steps the tables had.
    then: Contents,
    steps: Vec<u64>,
    /// Contents so far, on top of the base.
    read: Contents,
    /// State of the admission, and the part of it that was read: all, in a store without the base.
    counted: Vec<u32>,
    counted_read: Store,
    seen: BTreeSet<u64>,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::of(Shard::ONLY)
    }

    pub(super) fn of(shard: Shard) -> Self {
        Self::with(shard, tables_of(shard.shards()))
    }

    /// The store has a memory limit, and rows of these widths.
    pub(super) fn with_limit(bytes: usize, widths: [usize; 4], file: SimulatedBlockFile) -> Self {
        let mut pair = Self::with(Shard::ONLY, tables_with(1, widths));
        pair.store.limit_memory(bytes, Box::new(file)).unwrap();
        pair
    }

    fn with(shard: Shard, tables: Vec<TableSpec>) -> Self {
        let mut twin = Store::of_shard(tables, 5, shard).unwrap();
        let mut store = twin.clone();
        store.track_changes();
        Self { shard, store, base: contents(&mut twin), twin, active: None }
    }

    pub(super) fn read_rows(&mut self, groups: &[u64]) {
        let keys = &self.keys(groups);
        let width: usize = keys.iter().map(|key| self.twin.width(*key).unwrap()).sum();
        let [mut values, mut expected] = [vec![0.0; width], vec![1.0; width]];
        self.store.read_many(keys, &mut values).unwrap();
        self.twin.read_many(keys, &mut expected).unwrap();
        assert!(bits(&values).eq(bits(&expected)), "rows are read as without a limit");
    }

    fn keys(&self, groups: &[u64]) -> Vec<u64> {
        groups.iter().map(|group| self.shard.key_in(*group).unwrap()).collect()
    }

    pub(super) fn update(&mut self, groups: &[u64]) {
        let keys = &self.keys(groups);
        let width: usize = keys.iter().map(|key| self.twin.width(*key).unwrap()).sum();
        let gradients: Vec<f32> = (0_u8..100).cycle().take(width).map(|step| 0.5 - f32::from(step)).collect();
        self.store.update_many(keys, &gradients).unwrap();
        self.twin.update_many(keys, &gradients).unwrap();
    }

    fn insert(&mut self, group: u64) {
        let key = self.shard.key_in(group).unwrap();
        let spec = self.twin.table_of(key).unwrap();
        let (values, state) = (vec![7.0; spec.width], vec![3.0; spec.rule.state_len(spec.width)]);
        self.store.insert(key, &values, &state).unwrap();
        self.twin.insert(key, &values, &state).unwrap();
    }

    pub(super) fn remove(&mut self, groups: &[u64]) {
        for key in self.keys(groups) {
            assert_eq!(self.store.remove(key), self.twin.remove(key));
        }
    }

    fn assign(&mut self, groups: &[u64]) {
        let keys = self.keys(groups);
        for table in 0..self.twin.tables().len() {
            let spec = &self.twin.tables()[table];
            let keys: Vec<u64> = keys.iter().copied().filter(|key| spec.keys.contains(key)).collect();
            let values: Vec<f32> = (0_u8..100).cycle().map(f32::from).take(keys.len() * spec.width).collect();
            self.store.assign(table, &keys, &values, &[]).unwrap();
            self.twin.assign(table, &keys, &values, &[]).unwrap();
        }
    }

    fn reset(&mut self, table: usize) {
        let [mut keys, mut expected] = [&mut self.store, &mut self.twin].map(|store| store.reset(table, 3));
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected);
    }

    /// Compares the keys of all rows of a table, and some rows.
    fn scan(&mut self, table: usize) {
        let mut keys: Vec<u64> = self.store.keys_of(table).collect();
        keys.sort_unstable();
        let mut expected: Vec<u64> = self.twin.keys_of(table).collect();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        keys.truncate(100);
        self.store.prepare_rows(&keys);
        for key in keys {
            let words =
                |(values, state): (&[f32], &[f32])| bits(values).chain(bits(state)).collect::<Vec<_>>();
            assert_eq!(self.store.row(key).map(words), self.twin.row(key).map(words));
        }
    }

    fn evict(&mut self, looks: usize) {
        // Others go if rows lie elsewhere, so the keys are passed on.
        for key in self.store.evict(looks).removed {
            assert_eq!(self.twin.remove(key), Ok(true));
        }
    }

    pub(super) fn begin(&mut self, extent: Extent) {
        if self.active.is_some() {
            return;
        }
        self.store.begin_snapshot(extent);
        let then = contents(&mut self.twin);
        let read = if extent == Extent::Full { vec![BTreeMap::new(); then.len()] } else { self.base.clone() };
        let steps = (0..then.len()).map(|table| self.twin.steps(table)).collect();
        let counted_read = Store::of_shard(self.twin.tables().to_vec(), 5, self.shard).unwrap();
        let counted = counted(&mut self.twin);
        let seen = BTreeSet::new();
        self.active = Some(Active { then, steps, read, counted, counted_read, seen });
    }

    /// Returns true if the snapshot goes on.
    pub(super) fn read(&mut self, rows_max: usize) -> bool {
        let block = self.store.read_snapshot(rows_max);
        let Some(active) = &mut self.active else {
            assert_eq!(block, None);
            return false;
        };
        if let Some(block) = block {
            let spec = &self.twin.tables()[block.table];
            let state_len = spec.rule.state_len(spec.width);
            assert!(block.keys.len() <= rows_max && block.removed.len() <= rows_max);
            assert_eq!(block.values.len(), block.keys.len() * spec.width);
            assert_eq!(block.state.len(), block.keys.len() * state_len);
            active.counted_read.restore_admission(block.table, &block.admission).unwrap();
            let read = &mut active.read[block.table];
            for key in &block.removed {
                assert!(!active.seen.contains(key), "{key} was removed after it was given");
                read.remove(key);
            }
            for (at, key) in block.keys.iter().enumerate() {
                assert!(active.seen.insert(*key), "{key} came twice");
                let values = &block.values[at * spec.width..][..spec.width];
                let state = &block.state[at * state_len..][..state_len];
                read.insert(*key, bits(values).chain(bits(state)).collect());
            }
            return true;
        }
        let Active { then, steps, read, counted: counted_then, mut counted_read, .. } =
            self.active.take().unwrap();
        assert!(read == then, "a snapshot has the rows of its beginning");
        assert!(counted(&mut counted_read) == counted_then, "and the counts");
        assert_eq!(steps, (0..4).map(|table| self.store.snapshot_steps(table)).collect::<Vec<_>>());
        assert_eq!(self.store.rows_copied(), 0);
        self.base = then;
        false
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Update(keys) => self.update(&keys),
            Step::ReadRows(keys) => self.read_rows(&keys),
            Step::Insert(key) => self.insert(key),
            Step::Assign(keys) => self.assign(&keys),
            Step::Reset(table) => self.reset(table),
            Step::Scan(table) => self.scan(table),
            Step::Remove(keys) => self.remove(&keys),
            Step::Evict(looks) => self.evict(looks),
            Step::Begin(extent) => self.begin(extent),
            Step::Read { blocks, rows_max } => {
                for _ in 0..blocks {
                    self.read(rows_max);
                }
            }
            Step::Cancel => self.cancel(),
        }
    }

    pub(super) fn cancel(&mut self) {
        self.store.cancel_snapshot();
        self.active = None;
        assert_eq!(self.store.rows_copied(), 0);
    }

    pub(super) fn finish(&mut self) {
        while self.read(500) {}
        self.begin(Extent::Changed);
        while self.read(1000) {}
        assert!(contents(&mut self.store) == contents(&mut self.twin), "snapshots change nothing");
    }
}

/// A step of a pair.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Update(Vec<u64>),
    ReadRows(Vec<u64>),
    Insert(u64),
    Assign(Vec<u64>),
    Reset(usize),
    Scan(usize),
    Remove(Vec<u64>),
    Evict(usize),
    Begin(Extent),
    Read { blocks: usize, rows_max: usize },
    Cancel,
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![77_u64..40_000, 77_u64..600, 50_000_u64..51_000, 1_u64 << 40..(1 << 40) + 200]
}

/// Runs of neighbours or neighbours' neighbours, long enough to fill chunks; or a few from anywhere.
fn keys() -> impl Strategy<Value = Vec<u64>> + Clone {
    let run = (77_u64..30_000, 1_u64..5000, 1_usize..3).prop_map(|(first, count, step)| {
        (first..40_000.min(first + count)).step_by(step).collect::<Vec<_>>()
    });
    let growing =
        (50_000_u64..59_000, 1_u64..1000).prop_map(|(first, count)| (first..first + count).collect());
    prop_oneof![run, growing, prop::collection::vec(key(), 1..200)]
}

/// The same of few keys, so that each comes often.
fn few_keys() -> impl Strategy<Value = Vec<u64>> + Clone {
    let run = |range: std::ops::Range<u64>| {
        (range.clone(), 1_u64..200)
            .prop_map(move |(first, count)| (first..range.end.min(first + count)).collect())
    };
    prop_oneof![
        run(77..500),
        run(20_000..20_600),
        run(50_000..50_500),
        prop::collection::vec(few_key(), 1..100),
    ]
}

fn few_key() -> impl Strategy<Value = u64> {
    prop_oneof![77_u64..500, 20_000_u64..20_600, 50_000_u64..50_500, 1_u64 << 40..(1 << 40) + 200]
}

/// Steps of these keys.
fn step_of(
    keys: impl Strategy<Value = Vec<u64>> + Clone + 'static,
    key: impl Strategy<Value = u64> + 'static,
) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => keys.clone().prop_map(Step::Update),
        3 => keys.clone().prop_map(Step::ReadRows),
        1 => key.prop_map(Step::Insert),
        2 => keys.clone().prop_map(Step::Remove),
        1 => keys.prop_map(Step::Assign),
        2 => (1_usize..5000).prop_map(Step::Evict),
        1 => (0_usize..12).prop_map(|table| if table < 4 { Step::Reset(table) } else { Step::Scan(table % 4) }),
        2 => Just(Step::Begin(Extent::Full)),
        4 => Just(Step::Begin(Extent::Changed)),
        6 => (1_usize..12, 1_usize..3000).prop_map(|(blocks, rows_max)| Step::Read { blocks, rows_max }),
        1 => Just(Step::Cancel),
    ]
}

/// Steps of many keys.
pub(super) fn step() -> impl Strategy<Value = Step> {
    step_of(keys(), key())
}

/// Steps of few keys.
pub(super) fn step_of_few() -> impl Strategy<Value = Step> {
    step_of(few_keys(), few_key())
}
