use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::*;
use crate::block_file::Block;
use crate::store::mutants::{self, Mutant};
use crate::store::pair::{Pair, Step, step, step_of_few};
use crate::{Eviction, Init, Optimizer, RowLifecycle, SimulatedBlockFile, TableSpec, UpdateRule};

/// Widths of rows of the tables of a pair.
const WIDTHS: [usize; 4] = [3, 5, 36, 4];
/// For few keys: the rows of all take 800 kB.
const FEW_WIDTHS: [usize; 4] = [40, 50, 100, 30];
/// A limit for these.
const FEW_LIMIT: usize = 200_000;
/// Some rows take several blocks, or end in another one than they begin.
const LARGE_WIDTHS: [usize; 4] = [1300, 700, 36, 4];

fn used(store: &Store) -> usize {
    store.limited_bytes()
}

fn check(mut pair: Pair, limit: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    for step in steps {
        pair.take(step);
        // A scan brings rows, and the next step moves others away.
        pair.store.relieve();
        prop_assert!(used(&pair.store) <= limit, "{} bytes", used(&pair.store));
    }
    pair.finish();
    prop_assert_eq!(pair.store.fault(), None);
    Ok(())
}

/// Rows of few keys move to the file and back in nearly every step.
fn check_few(steps: Vec<Step>) -> Result<(), TestCaseError> {
    check(Pair::with_limit(FEW_LIMIT, FEW_WIDTHS, SimulatedBlockFile::default()), FEW_LIMIT, steps)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // rule L2
    #[test]
    fn rows_on_disk_are_as_those_in_memory(steps in prop::collection::vec(step(), 1..60)) {
        let limit = 1_500_000;
        check(Pair::with_limit(limit, WIDTHS, SimulatedBlockFile::default()), limit, steps)?;
    }

    #[test]
    fn few_rows_that_move_often_are_as_those_in_memory(steps in prop::collection::vec(step_of_few(), 1..80)) {
        check_few(steps)?;
    }

    #[test]
    fn rows_of_several_blocks_are_as_those_in_memory(steps in prop::collection::vec(step_of_few(), 1..60)) {
        let limit = 700_000;
        check(Pair::with_limit(limit, LARGE_WIDTHS, SimulatedBlockFile::default()), limit, steps)?;
    }
}

#[test]
fn each_mutant_is_caught() {
    use Mutant::*;
    for mutant in [
        PendingForgotten,
        CopyForgotten,
        ChangeForgottenOnDisk,
        ChangeForgottenInMemory,
        SwapForgotten,
        RecordKept,
    ] {
        mutants::enable(Some(mutant));
        let config =
            Config { cases: 500, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        let steps = prop::collection::vec(step_of_few(), 1..80);
        let result = TestRunner::new(config).run(&steps, check_few);
        mutants::enable(None);
        assert!(matches!(result, Err(TestError::Fail(..))), "{mutant:?} was not noticed");
    }
}

/// A store with a memory limit and a table of rows of 16 values and as much state.
fn store(limit: usize, file: impl BlockFile + 'static) -> Store {
    store_of(16, limit, file)
}

fn store_of(width: usize, limit: usize, file: impl BlockFile + 'static) -> Store {
    let table = TableSpec {
        name: "item".into(),
        keys: 0..1 << 40,
        width,
        rule: Optimizer::Adagrad { rate: 0.1, epsilon: 1e-6 }.into(),
        init: Init::Uniform { bound: 1.0 },
    };
    let mut store = Store::new(vec![table], 1).unwrap();
    store.limit_memory(limit, Box::new(file)).unwrap();
    store
}

fn update(store: &mut Store, keys: &[u64]) {
    store.update_many(keys, &vec![1.0; 16 * keys.len()]).unwrap();
}

#[test]
fn memory_stays_at_the_limit_with_ten_times_as_many_rows() {
    let limit = 8 << 20;
    let mut store = store_of(64, limit, SimulatedBlockFile::default());
    let rows = 10 * limit / store.rows[0].row_bytes();
    let keys: Vec<u64> = (0..rows as u64).collect();
    let mut values = vec![0.0; 64 * 1000];
    for pass in 0..3 {
        // Neighbours, which would be dense without a limit.
        for keys in keys.chunks(1000) {
            store.update_many(keys, &vec![1.0; 64 * keys.len()]).unwrap();
            store.read_many(keys, &mut values[..64 * keys.len()]).unwrap();
            // What is allocated for rows to come, and the buffer.
            let bytes = store.memory_bytes();
            assert!(bytes <= limit + (2 << 20), "{bytes} bytes in pass {pass}, {:?}", store.disk_counts());
        }
    }
    assert_eq!((store.rows(), store.fault()), (rows, None));
    let counts = store.disk_counts();
    assert!(counts.rows > rows as u64 * 9 / 10 && !counts.is_full, "{counts:?} of {rows}");
}

/// A store of one table with this eviction, with a memory limit or without.
fn evicting(eviction: Eviction, limit: Option<usize>) -> Store {
    let growth = RowLifecycle { eviction: Some(eviction), ..RowLifecycle::default() };
    let rule = UpdateRule { growth, ..Optimizer::Sgd { rate: 1.0 }.into() };
    let table = TableSpec { name: "item".into(), keys: 0..1 << 40, width: 16, rule, init: Init::Zero };
    let mut store = Store::new(vec![table], 1).unwrap();
    if let Some(limit) = limit {
        store.limit_memory(limit, Box::new(SimulatedBlockFile::default())).unwrap();
    }
    store
}

#[test]
fn idle_rows_go_from_the_disk_as_from_memory() {
    let removed = |limit| {
        let mut store = evicting(Eviction::Idle { steps: 50 }, limit);
        let mut removed = Vec::new();
        for batch in 0..100 {
            update(&mut store, &(batch * 100..batch * 100 + 200).collect::<Vec<_>>());
            removed.extend(store.evict(400).removed);
        }
        removed.extend(std::iter::repeat_with(|| store.evict(1000).removed).take(30).flatten());
        assert!(limit.is_none() || store.disk_counts().rows > 2000, "{:?}", store.disk_counts());
        removed.sort_unstable();
        removed
    };
    let expected: Vec<u64> = (0..5000).collect();
    assert!(removed(None) == expected && removed(Some(300_000)) == expected);
}

#[test]
fn rows_of_the_lowest_norm_go_from_the_disk() {
    let mut store = evicting(Eviction::LowestNorm { rows_max: 5000 }, Some(300_000));
    let keys: Vec<u64> = (0..10_000).collect();
    for keys in keys.chunks(500) {
        // The norm falls with the key.
        let gradients: Vec<f32> = keys.iter().flat_map(|key| [10_000.0 - *key as f32; 16]).collect();
        store.update_many(keys, &gradients).unwrap();
    }
    assert!(store.disk_counts().rows > 7000, "{:?}", store.disk_counts());
    let removed: Vec<u64> = std::iter::repeat_with(|| store.evict(1000).removed).take(50).flatten().collect();
    let of_upper_half = removed.iter().filter(|key| **key < 5000).count();
    assert_eq!((removed.len(), store.rows()), (5000, 5000));
    assert!(of_upper_half < 500, "{of_upper_half}");
}

/// Records that are read while the same rows are used in each batch, among others that are used once.
fn reads_of_used_rows() -> u64 {
    let mut store = store(1 << 20, SimulatedBlockFile::default());
    let often: Vec<u64> = (0..1000).collect();
    for batch in 1..200 {
        update(&mut store, &often);
        update(&mut store, &(batch * 1000..batch * 1000 + 200).collect::<Vec<_>>());
    }
    assert!(store.disk_counts().rows > 30_000);
    store.disk_counts().records_read
}

#[test]
fn rows_that_are_used_often_stay_in_memory() {
    assert_eq!(reads_of_used_rows(), 0);
    mutants::enable(Some(Mutant::UseForgotten));
    let reads = reads_of_used_rows();
    mutants::enable(None);
    assert!(reads > 1000, "{reads}");
}

#[test]
fn narrow_rows_stay_in_memory() {
    let mut pair = Pair::with_limit(400_000, [3, 1, 1, 1], SimulatedBlockFile::default());
    pair.update(&(77..30_000).collect::<Vec<_>>());
    assert_eq!((pair.store.disk_counts(), pair.store.fault()), (DiskCounts::default(), None));
    pair.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Until the disk fails all is as in memory, and then nothing changes any more.
    #[test]
    fn nothing_changes_any_more_once_the_disk_has_failed(
        steps in prop::collection::vec(step_of_few(), 1..60),
        reads_left in prop::option::of(0_u32..60),
        writes_left in prop::option::of(0_u32..60),
    ) {
        let mut file = SimulatedBlockFile::default();
        (file.reads_left, file.writes_left) = (reads_left, writes_left);
        let mut pair = Pair::with_limit(FEW_LIMIT, FEW_WIDTHS, file);
        for step in steps {
            // Only steps after which a comparison finds out whether there was a fault first.
            let (Step::Update(keys) | Step::ReadRows(keys)) = step else { continue };
            let width = keys.iter().map(|key| pair.twin.width(*key).unwrap()).sum();
            let [mut values, mut expected] = [vec![0.5; width], vec![0.5; width]];
            let batches = pair.store.batches;
            pair.store.update_many(&keys, &values).unwrap();
            match pair.store.fault() {
                None => pair.twin.update_many(&keys, &expected).unwrap(),
                Some(fault) => {
                    let fault = fault.clone();
                    prop_assert!(fault.to_string().starts_with("rows cannot be moved between memory and disk: cannot"));
                    let (counts, batches_then) = (pair.store.disk_counts(), pair.store.batches);
                    // It was not applied if a read failed; if a write did, it was before.
                    prop_assert!(batches_then == batches || batches_then == batches + 1);
                    pair.store.update_many(&keys, &values).unwrap();
                    pair.store.read_many(&keys, &mut values).unwrap();
                    let removed = pair.store.remove(keys[0]).unwrap();
                    prop_assert!(!removed);
                    pair.store.evict(1000);
                    prop_assert_eq!(pair.store.batches, batches_then);
                    prop_assert_eq!(pair.store.disk_counts(), counts);
                    prop_assert_eq!(pair.store.fault(), Some(&fault));
                    return Ok(());
                }
            }
            pair.store.read_many(&keys, &mut values).unwrap();
            pair.twin.read_many(&keys, &mut expected).unwrap();
            prop_assert!(pair.store.fault().is_some() || values == expected);
        }
    }

    #[test]
    fn rows_stay_in_memory_when_the_disk_is_full(
        steps in prop::collection::vec(step_of_few(), 1..60),
        blocks_max in 0_u32..60,
    ) {
        let mut file = SimulatedBlockFile::default();
        file.blocks_max = Some(blocks_max);
        let mut pair = Pair::with_limit(FEW_LIMIT, FEW_WIDTHS, file);
        for step in steps {
            pair.take(step);
            pair.store.relieve();
            let is_below = used(&pair.store) <= FEW_LIMIT;
            prop_assert!(is_below || pair.store.disk_counts().is_full);
        }
        pair.finish();
        prop_assert_eq!(pair.store.fault(), None);
    }
}

#[test]
fn a_limit_below_the_indexes_is_refused_with_what_it_needs() {
    let table = TableSpec {
        name: "item".into(),
        keys: 0..1 << 40,
        width: 16,
        rule: Optimizer::Sgd { rate: 0.1 }.into(),
        init: Init::Zero,
    };
    let mut store = Store::new(vec![table], 1).unwrap();
    let refused = store.limit_memory(100, Box::new(SimulatedBlockFile::default())).unwrap_err();
    assert_eq!((refused.limit, refused.needed), (100, refused.indexes + ROWS_MIN * 72));
    store.limit_memory(refused.needed, Box::new(SimulatedBlockFile::default())).unwrap();
}

#[test]
fn a_limit_that_is_reached_is_a_fault_with_what_it_needs() {
    let updated = |limit| {
        let mut store = store(limit, SimulatedBlockFile::default());
        for first in (0..20_000).step_by(100) {
            update(&mut store, &(first..first + 100).collect::<Vec<_>>());
        }
        store
    };
    let mut low = updated(100_000);
    let Some(StoreFault::Limit(fault)) = low.fault().cloned() else { panic!("{:?}", low.fault()) };
    assert!(fault.needed > fault.limit && fault.indexes < fault.needed, "{fault:?}");
    let rows = low.rows();
    update(&mut low, &[1 << 30]);
    assert_eq!(low.rows(), rows);
    assert_eq!(updated(1 << 20).fault(), None);
}

/// A file that returns what is in the first block for any other.
#[derive(Debug)]
struct Confused(SimulatedBlockFile);

impl BlockFile for Confused {
    fn reserve(&mut self, blocks: u32) -> Result<(), BlockFileError> {
        self.0.reserve(blocks)
    }

    fn read(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError> {
        for block in &mut blocks[..numbers.len()] {
            self.0.read(&[0], std::slice::from_mut(block))?;
        }
        Ok(())
    }

    fn write(&mut self, numbers: &[u32], blocks: &mut [Block]) -> Result<(), BlockFileError> {
        self.0.write(numbers, blocks)
    }
}

#[test]
fn record_of_another_row_is_a_fault() {
    let mut store = store(1 << 20, Confused(SimulatedBlockFile::default()));
    for first in (0..20_000).step_by(1000) {
        update(&mut store, &(first..first + 1000).collect::<Vec<_>>());
    }
    assert_eq!(store.fault(), None);
    store.read_many(&(0..1000).collect::<Vec<_>>(), &mut [0.0; 16_000]).unwrap();
    assert!(matches!(store.fault(), Some(StoreFault::WrongRow { .. })), "{:?}", store.fault());
}
