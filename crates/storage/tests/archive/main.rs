//! Checkpoints at a URL: kills at all moments, stores that lack something, and two jobs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libra_objects::Objects;
use libra_storage::archive::{Archive, ArchiveError, Environment, Owner, Rate, Uploader};
use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo};
use libra_storage::disk::SimulatedDisk;
use libra_storage::wal::RecordNumber;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

use self::faulty::{Faulty, Kill, Lack};

mod faulty;
mod kills;
mod serving;

const SHARDS: u16 = 2;
const NEWEST: u64 = 5;

/// The checkpoints of a shard on its disk: full 1 and 3, and increments on them.
fn checkpoints(shard: u16, shards: u16, seed: u64) -> Checkpoints<SimulatedDisk> {
    let checkpoints = Checkpoints::new(SimulatedDisk::new(seed));
    for number in 1..=NEWEST {
        let base = (![1, 3].contains(&number)).then(|| number - 1);
        let rule = serde_json::json!({ "optimizer": "adagrad" });
        let table = TableInfo { name: "user".into(), keys: 0..1000, width: 2, state: 1, rule };
        let description = Description {
            number,
            job: 1,
            seed: 9,
            shards: shards.into(),
            shard: shard.into(),
            covers: RecordNumber(number),
            steps: [].into(),
            position: None,
            tables: vec![table],
        };
        let settings = PartSettings { rows_max: 20, ..PartSettings::default() };
        let mut writer = checkpoints.begin(description, base, settings).unwrap();
        for key in (u64::from(shard)..60).step_by(shards.into()) {
            let value = (100 * number + key + seed) as f32;
            writer.write_rows(0, &[key], &[value, -value], &[0.5]).unwrap();
        }
        writer.finish(b"state").unwrap();
    }
    checkpoints
}

fn archive(store: &Faulty, has_parts: bool) -> Archive {
    let parts = has_parts.then(|| Arc::new(store.clone()) as _);
    Archive::over(
        Arc::new(Objects::over(Arc::new(store.clone()), parts).unwrap()),
        "runs/one",
        "mem://b/runs/one",
    )
}

fn in_memory() -> Faulty {
    let store = Arc::new(InMemory::new());
    Faulty::new(store.clone(), Some(store))
}

fn uploader(archive: &Archive, owner: u64) -> Uploader {
    // Files of rows are longer, and the state is shorter.
    Uploader::new(archive.clone(), owner, Rate(u64::MAX), Arc::default()).with_part_bytes(150)
}

/// Reads everything that counts; returns the numbers.
fn verify(archive: &Archive) -> Result<Vec<u64>, String> {
    let view = archive.view().map_err(|error| error.to_string())?;
    if let Some((number, damage)) = view.damaged.first_key_value() {
        return Err(format!("commit {number}: {damage}"));
    }
    for commit in view.commits.values() {
        for shard in 0..u16::try_from(commit.shards).unwrap() {
            let own = Checkpoints::new(archive.disk(&view, shard));
            own.verify(commit.number).map_err(|error| format!("{}: {error}", commit.number))?;
        }
    }
    Ok(view.commits.keys().copied().collect())
}

/// Uploads the parts of a checkpoint, and commits it.
fn put(archive: &Archive, owner: u64, number: u64) -> Result<(), ArchiveError> {
    for shard in 0..SHARDS {
        uploader(archive, owner).upload(&checkpoints(shard, SHARDS, 0), number)?;
    }
    archive.commit(number, owner).map(drop)
}

#[test]
fn what_is_committed_comes_back_as_it_was() {
    let archive = archive(&in_memory(), true);
    archive.claim(&Owner::of_process(7), false).unwrap();
    put(&archive, 7, 2).unwrap();
    // Uploaded, but not by all.
    uploader(&archive, 7).upload(&checkpoints(0, SHARDS, 0), 4).unwrap();
    assert!(matches!(archive.commit(4, 7), Err(ArchiveError::Incomplete { number: 4, .. })));
    assert_eq!(verify(&archive).unwrap(), [2]);
    put(&archive, 7, 5).unwrap();
    assert_eq!(verify(&archive).unwrap(), [2, 5]);
    let view = archive.view().unwrap();
    let own = Checkpoints::new(archive.disk(&view, 1));
    assert_eq!(own.manifests(5).unwrap(), checkpoints(1, SHARDS, 0).manifests(5).unwrap());
    assert_eq!(view.commits[&5].chain, [3, 4, 5].into());
    assert_eq!(own.find(5, 0, 7).unwrap().unwrap().values, [507.0, -507.0]);
    // Committed again by a controller that did not hear of it.
    archive.commit(5, 7).unwrap();
    let Err(error) = archive.view_of(4) else { panic!("it does not count") };
    assert_eq!(error.to_string(), "there is no checkpoint 4");
}

#[test]
fn an_upload_sends_only_what_is_not_there() {
    let archive = archive(&in_memory(), true);
    archive.claim(&Owner::of_process(7), false).unwrap();
    let disk = checkpoints(0, 1, 0);
    let mut own = uploader(&archive, 7);
    let bytes =
        |numbers: &[u64]| numbers.iter().map(|number| disk.inspect(*number).unwrap().bytes()).sum::<u64>();
    assert_eq!(own.upload(&disk, 4).unwrap(), bytes(&[3, 4]));
    assert_eq!(own.upload(&disk, 4).unwrap(), 0);
    assert_eq!(own.upload(&disk, 5).unwrap(), bytes(&[5]));
}

#[test]
fn an_upload_keeps_its_rate_and_can_be_given_up() {
    let archive = archive(&in_memory(), true);
    archive.claim(&Owner::of_process(7), false).unwrap();
    let disk = checkpoints(0, 1, 0);
    let given_up = Arc::new(AtomicBool::new(false));
    let rate = Rate(20_000);
    let mut own = Uploader::new(archive.clone(), 7, rate, given_up.clone()).with_part_bytes(150);
    let begun = Instant::now();
    let bytes = own.upload(&disk, 1).unwrap();
    // The last piece is sent when those before have had their time.
    let least = (bytes - disk.inspect(1).unwrap().files.iter().map(|file| file.bytes).max().unwrap()) / 2;
    assert!(begun.elapsed() >= Duration::from_secs_f64(least as f64 / rate.0 as f64), "{bytes} bytes");
    given_up.store(true, Ordering::Relaxed);
    assert!(matches!(own.upload(&disk, 3), Err(ArchiveError::GivenUp)));
}

#[test]
fn a_second_job_is_refused_until_it_takes_over() {
    for lack in [Lack::Nothing, Lack::Condition, Lack::SilentCondition] {
        let archive = archive(&in_memory().lacking(lack), true);
        let claim = archive.claim(&Owner::of_process(1), false).unwrap();
        assert_eq!((claim.is_conditional, claim.newest), (lack == Lack::Nothing, 0));
        put(&archive, 1, 3).unwrap();
        let mut first = uploader(&archive, 1);
        first.upload(&checkpoints(0, SHARDS, 0), 5).unwrap();
        assert!(first.bytes_sent() > 0);
        let refused = archive.claim(&Owner::of_process(2), false).unwrap_err().to_string();
        assert!(refused.contains(&format!("of process {} on", std::process::id())), "{refused}");
        assert!(refused.contains("--restore-from mem://b/runs/one"), "{refused}");
        // One that goes on with these checkpoints takes them over, without what does not count.
        assert_eq!(archive.claim(&Owner::of_process(2), true).unwrap().newest, 3);
        assert!(archive.look_above(3).unwrap().uploaded.is_none());
        for late in [put(&archive, 1, 5), archive.commit(3, 1).map(drop)] {
            assert!(matches!(late, Err(ArchiveError::Lost { .. })), "{late:?}");
        }
        assert!(first.upload(&checkpoints(0, SHARDS, 0), 5).is_err());
        assert_eq!(first.bytes_sent(), 0, "the last upload has sent nothing");
        put(&archive, 2, 4).unwrap();
        assert_eq!(verify(&archive).unwrap(), [3, 4]);
        // Another checkpoint of a number that counts is never put over it.
        let other = checkpoints(0, SHARDS, 1);
        let over = uploader(&archive, 2).upload(&other, 4);
        assert!(matches!(over, Err(ArchiveError::NumberTaken { number: 3 | 4, .. })), "{over:?}");
        assert_eq!(verify(&archive).unwrap(), [3, 4]);
    }
}

#[test]
fn a_bucket_that_is_made_again_is_that_of_its_job() {
    for lack in [Lack::Nothing, Lack::Condition] {
        let store = in_memory().lacking(lack);
        let (archive, owner) = (archive(&store, true), Owner::of_process(1));
        archive.claim(&owner, false).unwrap();
        put(&archive, 1, 2).unwrap();
        for name in names(&store) {
            futures_executor(store.delete(&name.into()));
        }
        let missing = put(&archive, 1, 3).unwrap_err().to_string();
        assert!(missing.contains("owner.json: there is no such file"), "{missing}");
        archive.renew(&owner).unwrap();
        put(&archive, 1, 4).unwrap();
        assert_eq!(verify(&archive).unwrap(), [4]);
        // One that was taken over stays that of the other.
        archive.claim(&Owner::of_process(2), true).unwrap();
        archive.renew(&owner).unwrap();
        assert!(matches!(put(&archive, 1, 5), Err(ArchiveError::Lost { .. })));
    }
}

#[test]
fn directories_of_old_checkpoints_go_with_their_files() {
    let root = tempfile::tempdir().unwrap();
    let url = format!("file://{}/run", root.path().display());
    let archive = Archive::open(&url, &Environment::of_process()).unwrap();
    archive.claim(&Owner::of_process(1), false).unwrap();
    for number in [1, 3, 5] {
        put(&archive, 1, number).unwrap();
    }
    archive.retain(1).unwrap();
    let there = std::fs::read_dir(root.path().join("run/shard-0")).unwrap();
    let there: BTreeSet<_> = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // What checkpoint 5 builds on stays.
    assert_eq!(there, ["checkpoint-3", "checkpoint-4", "checkpoint-5"].map(str::to_owned).into());
}

#[test]
fn a_store_that_takes_no_writes_is_found_by_the_probe() {
    let archive = archive(&in_memory().lacking(Lack::Writes), true);
    let refused = archive.claim(&Owner::of_process(1), false).unwrap_err().to_string();
    assert!(refused.contains("the credentials do not allow it"), "{refused}");
}

#[test]
fn the_last_checkpoint_is_found_when_all_have_uploaded_it() {
    let archive = archive(&in_memory(), true);
    archive.claim(&Owner::of_process(7), false).unwrap();
    put(&archive, 7, 3).unwrap();
    uploader(&archive, 7).upload(&checkpoints(0, SHARDS, 0), 5).unwrap();
    assert_eq!(archive.look_above(3).unwrap().uploaded, None);
    uploader(&archive, 7).upload(&checkpoints(1, SHARDS, 0), 5).unwrap();
    assert_eq!(archive.look_above(3).unwrap().uploaded, Some(5));
    archive.commit(5, 7).unwrap();
    assert_eq!(archive.look_above(5).unwrap().uploaded, None);
}

#[test]
fn damage_at_the_url_is_named() {
    let store = in_memory();
    let archive = archive(&store, true);
    archive.claim(&Owner::of_process(7), false).unwrap();
    put(&archive, 7, 3).unwrap();
    put(&archive, 7, 5).unwrap();
    let objects = Objects::over(Arc::new(store), None).unwrap();
    let flip = |name: &str| {
        let path = format!("runs/one/{name}");
        let mut bytes = objects.read(&path).unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        objects.put(&path, bytes.into()).unwrap();
    };
    let rows = "shard-1/checkpoint-5/table-0-user-rows-00001.safetensors";
    for name in [rows, "shard-1/checkpoint-4/state.bin", "shard-0/checkpoint-5/manifest.json", "job-5.json"] {
        flip(name);
        let error = verify(&archive).unwrap_err();
        assert!(error.contains(name.rsplit_once('/').map_or(name, |(_, file)| file)), "{name}: {error}");
        flip(name);
        assert_eq!(verify(&archive).unwrap(), [3, 5]);
    }
    let path = format!("runs/one/{rows}");
    objects.delete(&path).unwrap();
    assert!(verify(&archive).unwrap_err().contains("missing"));
    let view = archive.view_of(5).unwrap();
    let error = Checkpoints::new(archive.disk(&view, 1)).verify(5).unwrap_err().to_string();
    assert!(error.contains("mem://b/runs/one/shard-1/checkpoint-5/table-0"), "{error}");
}

#[test]
fn places_without_a_store_or_with_a_secret_are_refused() {
    let environment = [].into_iter().collect();
    for (url, words) in [
        ("/tmp/x", "a directory is file:///DIR"),
        ("ftp://host/x", "the schemes are"),
        ("https://host/x", "lists no directories"),
        ("s3://key:geheim@b/x", "credentials belong into the environment"),
        ("s3://b/x?X-Amz-Signature=geheim", "without query"),
        ("s3://b/run-*", "without query and pattern"),
    ] {
        let error = Archive::open(url, &environment).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("geheim"), "{url}: {error}");
    }
}

/// All objects, by name.
fn names(store: &dyn ObjectStore) -> BTreeSet<String> {
    let listed = futures_util::TryStreamExt::try_collect::<Vec<_>>(store.list(None));
    futures_executor(listed).into_iter().map(|meta| meta.location.to_string()).collect()
}

fn futures_executor<T>(future: impl Future<Output = object_store::Result<T>>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future).unwrap()
}

fn on_disk(root: &std::path::Path) -> Faulty {
    Faulty::new(Arc::new(LocalFileSystem::new_with_prefix(root).unwrap()), None)
}

/// A kill before or after the request with this number.
fn kill(point: u64) -> Kill {
    Kill { at: point / 2, is_done: point % 2 == 1 }
}

#[test]
fn a_directory_takes_files_in_parts() {
    let root = tempfile::tempdir().unwrap();
    let url = format!("file://{}/runs/one", root.path().display());
    let archive = Archive::open(&url, &Environment::of_process()).unwrap();
    archive.claim(&Owner::of_process(7), false).unwrap();
    put(&archive, 7, 5).unwrap();
    assert_eq!(verify(&archive).unwrap(), [5]);
    let view = archive.view().unwrap();
    let parts = 150;
    assert!(view.commits[&5].files.iter().any(|file| file.bytes > 4 * parts), "more than is sent at once");
}
