//! A checkpoint of two shards is loaded by jobs with other numbers of shards.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use libra_objects::Environment;
use libra_plan::{Shard, shard_of};
use libra_proto::{CheckpointHead, StorageEvent, StorageRequest};
use libra_storage::archive::{Archive, Owner, Rate, Uploader};
use libra_storage::checkpoint::{Checkpoints, export};
use libra_storage::disk::RealDisk;
use libra_storage::{LoadError, ShardCheckpoints, Source, load, shard_directory};
use libra_store::{Extent, Init, Optimizer, Store, TableSpec};

const SEED: u64 = 11;
/// A shard of a job that has another number of shards than any checkpoint here.
const ANY: (u16, u16) = (0, 100);
/// Rows by table and key: values, then state.
type Rows = BTreeMap<(usize, u64), (Vec<f32>, Vec<f32>)>;

fn tables() -> Vec<TableSpec> {
    let adagrad = Optimizer::Adagrad { rate: 0.1, epsilon: 1e-8 };
    vec![
        TableSpec { name: "user".into(), keys: 0..5000, width: 3, rule: adagrad.into(), init: Init::Zero },
        TableSpec {
            name: "item".into(),
            keys: 1 << 40..1 << 41,
            width: 1,
            rule: Optimizer::Sgd { rate: 0.5 }.into(),
            init: Init::Uniform { bound: 0.1 },
        },
    ]
}

/// The rows of shard `shard` of `shards` after some updates, each with a number of its own.
fn store(shard: u16, shards: u16) -> Store {
    let mut store = Store::of_shard(tables(), SEED, Shard::new(shard, shards)).unwrap();
    let keys = (0..3000).chain((1 << 40..(1 << 40) + 400_000_000_000).step_by(1_000_000_007));
    for key in keys.filter(|key| shard_of(*key, shards) == shard) {
        let width = store.width(key).unwrap();
        let gradient: Vec<f32> = (0..width).map(|lane| (key % 1000) as f32 + lane as f32).collect();
        store.update(key, &gradient).unwrap();
    }
    store
}

/// Writes checkpoint `number` of a shard, full or as an increment.
fn checkpoint(data: &Path, store: &mut Store, (shard, shards): (u16, u16), number: u64, base: Option<u64>) {
    let disk = RealDisk::open(shard_directory(data, shard)).unwrap();
    let head = head(store, (shard, shards), number, base);
    write(ShardCheckpoints::new(disk), store, head);
}

fn head(store: &Store, (shard, shards): (u16, u16), number: u64, base: Option<u64>) -> CheckpointHead {
    let tables = store.tables().to_vec().into_iter().zip([7, 9]).collect();
    let (covers, job, seed, position, keep, besides) = (0, 1, SEED, None, 3, Some([number; 2]));
    CheckpointHead { number, base, covers, job, seed, shard, shards, tables, position, keep, besides }
}

fn write(mut keeper: ShardCheckpoints<RealDisk>, store: &mut Store, head: CheckpointHead) {
    let base = head.base;
    assert_eq!(keeper.handle(StorageRequest::Begin(Box::new(head))), None);
    store.begin_snapshot(if base.is_some() { Extent::Changed } else { Extent::Full });
    while let Some(rows) = store.read_snapshot(100) {
        assert_eq!(keeper.handle(StorageRequest::Rows(rows)), Some(StorageEvent::RowsWritten));
    }
    let finished = keeper.handle(StorageRequest::Finish { state: vec![1, 2, 3] });
    assert!(matches!(finished, Some(StorageEvent::Checkpointed { log_from: 1, .. })), "{finished:?}");
}

fn rows(store: &Store) -> Rows {
    let of_table = |table: usize| {
        store
            .rows_of(table)
            .map(move |(key, values, state)| ((table, key), (values.to_vec(), state.to_vec())))
    };
    (0..2).flat_map(of_table).collect()
}

/// Reads the rows of one shard of so many, from a directory or a URL.
fn load_shard(data: &Path, number: u64, (shard, shards): (u16, u16)) -> Store {
    let mut own = Store::of_shard(tables(), SEED, Shard::new(shard, shards)).unwrap();
    let is_own = |key: &u64| shard_of(*key, shards) == shard;
    let steps = load(data, number, SEED, &tables(), (shard, shards), |block| {
        let width = tables()[block.table].width;
        let state = block.state.len() / block.keys.len().max(1);
        for key in block.removed.iter().filter(|key| is_own(key)) {
            own.remove(*key).unwrap();
        }
        for (row, key) in block.keys.iter().enumerate() {
            if is_own(key) {
                let values = &block.values[row * width..][..width];
                own.restore(block.table, &[*key], values, &block.state[row * state..][..state]).unwrap();
            }
        }
        ControlFlow::Continue(())
    });
    let loaded = steps.unwrap().unwrap();
    assert_eq!((loaded.steps, loaded.states[0].as_slice()), (vec![7, 9], &[1, 2, 3][..]));
    own
}

// rule L11
#[test]
fn nothing_is_removed_before_a_checkpoint_is_complete() {
    let data = tempfile::tempdir().unwrap();
    let mut store = store(0, 2);
    let mut numbers_after = |number, besides| {
        let disk = RealDisk::open(shard_directory(data.path(), 0)).unwrap();
        let head = CheckpointHead { keep: 1, besides, ..head(&store, (0, 2), number, None) };
        write(ShardCheckpoints::new(disk.clone()), &mut store, head);
        Checkpoints::new(disk).list().unwrap().iter().map(|listed| listed.number).collect::<Vec<_>>()
    };
    assert_eq!([numbers_after(1, None), numbers_after(2, None)], [vec![1], vec![2, 1]]);
    assert_eq!(numbers_after(3, Some([1, 3])), [3, 1]);
    assert_eq!(numbers_after(4, Some([1, 3])), [4, 3, 1]);
    assert_eq!(numbers_after(5, Some([4, 5])), [5, 4]);
}

#[test]
fn one_two_three_and_five_shards_load_the_same_rows() {
    let data = tempfile::tempdir().unwrap();
    let mut stores = [store(0, 2), store(1, 2)];
    for (shard, store) in (0..).zip(&mut stores) {
        store.track_changes();
        checkpoint(data.path(), store, (shard, 2), 1, None);
        // Some rows change, some are new, some are gone.
        for key in [1u64, 2, 77, 4001, 4002] {
            if shard_of(key, 2) == shard {
                store.update(key, &[1.0; 3]).unwrap();
            }
        }
        for key in (100..200).filter(|key| shard_of(*key, 2) == shard) {
            store.remove(key).unwrap();
        }
        checkpoint(data.path(), store, (shard, 2), 2, Some(1));
    }
    let expected: Rows = stores.iter().flat_map(rows).collect();

    for shards in [1, 2, 3, 5] {
        let mut found = Rows::new();
        for shard in 0..shards {
            let own = load_shard(data.path(), 2, (shard, shards));
            found.extend(rows(&own));
        }
        assert!(found == expected, "with {shards} shards: {} rows of {}", found.len(), expected.len());
    }
}

#[test]
fn mismatched_tables_are_refused_in_words() {
    let data = tempfile::tempdir().unwrap();
    checkpoint(data.path(), &mut store(0, 2), (0, 2), 1, None);
    // The second shard is not there.
    let take = |_| ControlFlow::Continue(());
    assert!(matches!(load(data.path(), 1, SEED, &tables(), ANY, take), Err(LoadError::Directory { .. })));
    let data = tempfile::tempdir().unwrap();
    checkpoint(data.path(), &mut store(0, 1), (0, 1), 1, None);
    let error = load(data.path(), 1, SEED + 1, &tables(), ANY, take).unwrap_err();
    assert!(
        error.to_string().contains("the seed of this job is 12, that of the checkpoint is 11"),
        "{error}"
    );
    let mut others = tables();
    others[0].rule = Optimizer::Sgd { rate: 0.5 }.into();
    let error = load(data.path(), 1, SEED, &others, ANY, take).unwrap_err();
    assert!(error.to_string().contains(r#"table "user""#), "{error}");
    assert!(matches!(load(data.path(), 4, SEED, &tables(), ANY, take), Err(LoadError::Checkpoint { .. })));
}

/// Writes a checkpoint of these stores, and uploads it to a URL as all servers of a job do.
fn upload(root: &Path, url: &str, stores: &mut [Store], number: u64) {
    let archive = Archive::open(url, &Environment::of_process()).unwrap();
    archive.claim(&Owner::of_process(1), false).unwrap();
    let shards = u16::try_from(stores.len()).unwrap();
    for (shard, store) in (0..).zip(stores) {
        checkpoint(root, store, (shard, shards), number, None);
        let own = Checkpoints::new(RealDisk::read_only(shard_directory(root, shard)).unwrap());
        let given_up = Arc::default();
        Uploader::new(archive.clone(), 1, Rate(u64::MAX), given_up).upload(&own, number).unwrap();
    }
    archive.commit(number, 1).unwrap();
}

/// All tables of a checkpoint at a URL, as files.
fn exported(root: &Path, url: &str, number: u64) -> Vec<Vec<u8>> {
    let source = Source::open(Path::new(url), Some(number)).unwrap();
    let Source::Archive(_, view) = &source else { panic!("it is a URL") };
    let open = |shard| Checkpoints::new(source.disk(shard).unwrap()).open(number).unwrap();
    let opened: Vec<_> = (0..view.shards()).map(open).collect();
    let disk = RealDisk::open(root.join("export")).unwrap();
    let files = export(&opened, &disk, 1 << 20).unwrap();
    files.iter().map(|file| std::fs::read(root.join("export").join(&file.file)).unwrap()).collect()
}

#[test]
fn three_then_two_then_five_servers_go_on_by_url() {
    let mut stores: Vec<Store> = (0..3).map(|shard| store(shard, 3)).collect();
    let mut before: Option<Vec<Vec<u8>>> = None;
    for (number, next) in [(4, 2), (5, 5), (6, 0)] {
        let root = tempfile::tempdir().unwrap();
        let url = format!("file://{}/run", root.path().display());
        upload(root.path(), &url, &mut stores, number);
        let files = exported(root.path(), &url, number);
        assert!(files.iter().map(Vec::len).sum::<usize>() > 50_000);
        assert!(before.is_none_or(|before| before == files), "checkpoint {number} has other rows");
        before = Some(files);
        stores = (0..next).map(|shard| load_shard(Path::new(&url), number, (shard, next))).collect();
    }
}

#[test]
fn a_shard_of_as_many_reads_only_its_own_rows() {
    let root = tempfile::tempdir().unwrap();
    let url = format!("file://{}/run", root.path().display());
    let mut stores = [store(0, 2), store(1, 2)];
    upload(root.path(), &url, &mut stores, 4);
    let other = "shard-1/checkpoint-4/table-0-user-rows-00000.safetensors";
    std::fs::remove_file(root.path().join("run").join(other)).unwrap();
    for data in [Path::new(&url), root.path()] {
        assert!(rows(&load_shard(data, 4, (0, 2))) == rows(&stores[0]));
    }
    let all = |own| load(Path::new(&url), 4, SEED, &tables(), own, |_| ControlFlow::Continue(()));
    assert!(all((1, 2)).unwrap_err().to_string().contains(other));
    assert!(all((0, 3)).unwrap_err().to_string().contains(other));
}

#[test]
fn damage_at_a_url_ends_a_load_and_is_named() {
    let root = tempfile::tempdir().unwrap();
    let url = format!("file://{}/run", root.path().display());
    upload(root.path(), &url, &mut [store(0, 2), store(1, 2)], 4);
    let file = root.path().join("run/shard-1/checkpoint-4/table-0-user-rows-00000.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let read = |number| load(Path::new(&url), number, SEED, &tables(), ANY, |_| ControlFlow::Continue(()));
    let error = read(4).unwrap_err().to_string();
    assert!(
        error.contains("/run/shard-1: checkpoint-4/table-0-user-rows-00000.safetensors is damaged"),
        "{error}"
    );
    assert_eq!(read(3).unwrap_err().to_string(), "there is no checkpoint 3");
}
