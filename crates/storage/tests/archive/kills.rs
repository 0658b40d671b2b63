//! A job that is killed at any request, and the one that goes on.

use std::sync::Arc;

use libra_objects::{Environment, Objects};
use libra_storage::archive::{Archive, ArchiveError, Owner};
use libra_storage::checkpoint::Checkpoints;
use libra_storage::disk::SimulatedDisk;

use super::{
    Faulty, NEWEST, SHARDS, archive, checkpoints, in_memory, kill, names, on_disk, uploader, verify,
};

const OWNER: u64 = 7;

/// Progress of a job until it was killed.
#[derive(Debug, Default)]
struct History {
    /// Checkpoints that all shards have uploaded.
    uploaded: Vec<u64>,
    /// The newest whose commit was acknowledged.
    committed: u64,
}

/// A job from its claim to a prune by hand. With a planted bug, commits are written before the files.
fn job(
    archive: &Archive,
    disks: &[Checkpoints<SimulatedDisk>],
    planted: Option<&dyn Fn(u64)>,
    history: &mut History,
) -> Result<(), ArchiveError> {
    archive.claim(&Owner::of_process(OWNER), false)?;
    for number in 1..=NEWEST {
        if let Some(plant) = planted {
            plant(number);
        }
        for disk in disks {
            uploader(archive, OWNER).upload(disk, number)?;
        }
        history.uploaded.push(number);
        archive.commit(number, OWNER)?;
        history.committed = number;
        archive.retain(2)?;
    }
    archive.prune(&[NEWEST].into(), false)?;
    Ok(())
}

/// Looks at what a killed job has left, prunes it, and lets another job go on.
fn check(
    healthy: &Archive,
    store: &Faulty,
    disks: &[Checkpoints<SimulatedDisk>],
    history: &History,
) -> Result<(), String> {
    let text = |error: ArchiveError| error.to_string();
    let numbers = verify(healthy)?;
    if let Some(number) = numbers.iter().find(|number| !history.uploaded.contains(number)) {
        return Err(format!("{number} is listed, and was not uploaded by all"));
    }
    let newest = numbers.last().copied();
    if newest.unwrap_or(0) < history.committed {
        return Err(format!("{} was committed, and is gone", history.committed));
    }
    healthy.prune(&newest.into_iter().collect(), false).map_err(text)?;
    let view = healthy.view().map_err(text)?;
    let files = view.commits.values().flat_map(|commit| commit.files.iter().map(|file| file.name.clone()));
    let commits = view.commits.keys().map(|number| format!("job-{number}.json"));
    let wanted: Vec<String> = files.chain(commits).collect();
    let found: Vec<_> = names(store).into_iter().collect();
    let garbage = found.iter().find(|name| {
        !name.ends_with("owner.json") && !wanted.iter().any(|wanted| name.ends_with(wanted.as_str()))
    });
    if let Some(garbage) = garbage {
        return Err(format!("{garbage} is left"));
    }
    let open = store.open.lock().unwrap().clone();
    if !open.is_empty() {
        return Err(format!("uploads are left: {open:?}"));
    }
    if verify(healthy)? != Vec::from_iter(newest) {
        return Err("the newest was pruned".to_owned());
    }
    healthy.claim(&Owner::of_process(8), true).map_err(text)?;
    if newest != Some(NEWEST) {
        for disk in disks {
            uploader(healthy, 8).upload(disk, NEWEST).map_err(text)?;
        }
        healthy.commit(NEWEST, 8).map_err(text)?;
    }
    if verify(healthy)?.last() != Some(&NEWEST) {
        Err("the next one does not count".to_owned())
    } else {
        Ok(())
    }
}

fn disks() -> Vec<Checkpoints<SimulatedDisk>> {
    (0..SHARDS).map(|shard| checkpoints(shard, SHARDS, 0)).collect()
}

/// Kills a job before and after each request. Returns the number of kills, and the first violation.
fn sweep(planted: bool) -> (u64, Option<String>) {
    let disks = disks();
    // The objects of a job that was not killed.
    let sound = in_memory();
    let mut history = History::default();
    job(&archive(&sound, true), &disks, None, &mut history).unwrap();
    let requests = sound.requests();
    let commits = in_memory();
    {
        let keeps_all = archive(&commits, true);
        keeps_all.claim(&Owner::of_process(OWNER), false).unwrap();
        for number in 1..=NEWEST {
            for disk in &disks {
                uploader(&keeps_all, OWNER).upload(disk, number).unwrap();
            }
            keeps_all.commit(number, OWNER).unwrap();
        }
    }
    let commits = Objects::over(Arc::new(commits), None).unwrap();
    for point in 0..2 * requests {
        let store = in_memory();
        let killed = store.killed(Some(kill(point)));
        let objects = Objects::over(Arc::new(killed.clone()), None).unwrap();
        let plant = |number: u64| {
            let path = format!("runs/one/job-{number}.json");
            // A process that was killed plants nothing.
            let _ = objects.put(&path, commits.read(&path).unwrap());
        };
        let planted = planted.then_some(&plant as &dyn Fn(u64));
        let mut history = History::default();
        let ended = job(&archive(&killed, true), &disks, planted, &mut history);
        assert!(
            ended.is_err() || point + 2 >= 2 * requests || planted.is_some(),
            "kill {point} of {requests}"
        );
        if let Err(violation) = check(&archive(&store, true), &store, &disks, &history) {
            return (point, Some(format!("kill {point}: {violation}")));
        }
    }
    (2 * requests, None)
}

#[test]
fn a_kill_at_any_request_leaves_the_newest_sound() {
    let (kills, violation) = sweep(false);
    assert_eq!(violation, None);
    assert!(kills >= 200, "{kills} kills");
}

#[test]
fn a_commit_that_is_written_first_is_caught() {
    let (_, violation) = sweep(true);
    let violation = violation.expect("it is caught");
    assert!(violation.contains("there is no checkpoint 1"), "{violation}");
}

#[test]
fn files_survive_kills_as_objects_do() {
    let disks = disks();
    let root = tempfile::tempdir().unwrap();
    let store = on_disk(root.path());
    job(&archive(&store, false), &disks, None, &mut History::default()).unwrap();
    let requests = store.requests();
    let mut kills = 0;
    for point in (0..2 * requests).step_by(2 * usize::try_from(requests).unwrap() / 60 + 1) {
        let root = tempfile::tempdir().unwrap();
        let store = on_disk(root.path());
        let mut history = History::default();
        let _ = job(&archive(&store.killed(Some(kill(point))), false), &disks, None, &mut history);
        let directory = root.path().join("runs/one");
        // As a process leaves it that is killed while it writes a file.
        let left = directory.join("shard-1/checkpoint-2/state.bin#1");
        std::fs::create_dir_all(left.parent().unwrap()).unwrap();
        std::fs::write(&left, b"st").unwrap();
        let url = format!("file://{}", directory.display());
        let healthy = Archive::open(&url, &Environment::of_process()).unwrap();
        let checked = check(&healthy, &store, &disks, &history);
        assert_eq!(checked, Ok(()), "kill {point} of {requests}");
        assert!(!left.exists());
        kills += 1;
    }
    assert!(kills >= 30, "{kills} kills");
}
