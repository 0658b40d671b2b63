//! Exporters that are killed at any request, and the ones that go on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use libra_objects::Objects;
use libra_storage::serving::{BaseRule, ServingError, Settings, Target, VersionManifest};

use super::super::{Faulty, Lack, in_memory, kill, names, on_disk};
use super::{Job, ROOT, Tables, begin, read, target};

/// Versions that an exporter has written until it was killed.
#[derive(Debug, Default)]
struct History {
    begun: Vec<u64>,
    done: Option<u64>,
}

/// The checkpoints of a job, and the rows of each.
struct Run {
    job: Job,
    rows: BTreeMap<u64, Tables>,
}

impl Run {
    fn new() -> Self {
        let mut job = Job::new(11, 60);
        let mut rows = BTreeMap::new();
        for _ in 0..8 {
            let number = job.next();
            rows.insert(number, job.rows.clone());
        }
        Self { job, rows }
    }

    /// Exports all checkpoints above the newest version; with a planted bug, `current.json` is written first.
    fn export(
        &self,
        target: &Target,
        id: u64,
        spool: &Path,
        planted: Option<&dyn Fn(u64)>,
        history: &mut History,
    ) -> Result<(), ServingError> {
        let settings = Settings { part_bytes: 400, base: BaseRule::Every(2), keep: 1, ..Settings::default() };
        let mut exporter = begin(target, id, &settings, spool)?;
        for number in self
            .rows
            .keys()
            .filter(|number| exporter.version().is_none_or(|version| **number > version))
            .copied()
            .collect::<Vec<_>>()
        {
            history.begun.push(number);
            if let Some(plant) = planted {
                plant(number);
            }
            exporter.export(&self.job.shards(), number, &mut |_| {})?;
            history.done = Some(number);
        }
        exporter.end()
    }

    /// Looks at what a killed exporter has left, and lets another one go on.
    fn check(&self, healthy: &Target, store: &Faulty, spool: &Path, history: &History) -> Result<(), String> {
        let version = match read(healthy)? {
            None => None,
            Some((current, tables)) => {
                if !history.begun.contains(&current.version) {
                    return Err(format!("version {} was not begun", current.version));
                }
                if tables != self.rows[&current.version] {
                    return Err(format!("version {} has other rows than its checkpoint", current.version));
                }
                Some(current.version)
            }
        };
        if version < history.done {
            return Err(format!("{:?} was there, and is gone: {version:?}", history.done));
        }
        self.export(healthy, 50, spool, None, &mut History::default()).map_err(|error| error.to_string())?;
        let (current, tables) = read(healthy)?.ok_or("nothing is there")?;
        if tables != self.rows[&current.version] || Some(&current.version) != self.rows.keys().last() {
            return Err("the newest checkpoint is not exported".to_owned());
        }
        let mut wanted = vec!["current.json".to_owned()];
        for listed in &current.versions {
            let manifest = format!("{}/manifest.json", listed.directory);
            let bytes = healthy.read(&manifest).map_err(|error| error.to_string())?;
            let version = VersionManifest::read(&bytes, &manifest).map_err(|error| error.to_string())?;
            let files = version.base.into_iter().flatten().chain(version.delta);
            wanted.extend(files.map(|file| format!("{}/{}", listed.directory, file.name)));
            wanted.push(manifest);
        }
        let found = names(store);
        match found.iter().find(|name| !wanted.iter().any(|wanted| name.ends_with(wanted.as_str()))) {
            Some(garbage) => Err(format!("{garbage} is left")),
            None => Ok(()),
        }
    }

    /// Kills an exporter before and after each request. Returns the number of kills, and the first violation.
    fn sweep(&self, lack: Lack, planted: bool) -> (u64, Option<String>) {
        let spool = tempfile::tempdir().unwrap();
        let spool = spool.path().join("s");
        let sound = in_memory().lacking(lack);
        self.export(&target(&sound), 7, &spool, None, &mut History::default()).unwrap();
        let requests = sound.requests();
        let early = |number: u64| {
            let store = in_memory();
            let shards = self.job.shards();
            let target = target(&store);
            let settings = Settings { part_bytes: 400, ..Settings::default() };
            let mut exporter = begin(&target, 7, &settings, &spool.with_extension("early")).unwrap();
            exporter.export(&shards, number, &mut |_| {}).unwrap();
            target.read("current.json").unwrap()
        };
        let early: BTreeMap<u64, _> = if planted {
            self.rows.keys().map(|number| (*number, early(*number))).collect()
        } else {
            BTreeMap::new()
        };
        for point in 0..2 * requests {
            let store = in_memory().lacking(lack);
            let killed = store.killed(Some(kill(point)));
            let objects = Objects::over(Arc::new(killed.clone()), None).unwrap();
            // A process that was killed plants nothing.
            let plant =
                |number: u64| drop(objects.put(&format!("{ROOT}/current.json"), early[&number].clone()));
            let plant = planted.then_some(&plant as &dyn Fn(u64));
            let mut history = History::default();
            let ended = self.export(&target(&killed), 7, &spool, plant, &mut history);
            assert!(ended.is_err() || point + 2 >= 2 * requests || planted, "kill {point} of {requests}");
            if let Err(violation) = self.check(&target(&store), &store, &spool, &history) {
                return (point, Some(format!("kill {point}: {violation}")));
            }
        }
        (2 * requests, None)
    }
}

#[test]
fn an_exporter_killed_at_any_request_leaves_a_version() {
    let run = Run::new();
    for lack in [Lack::Nothing, Lack::Condition] {
        let (kills, violation) = run.sweep(lack, false);
        assert_eq!(violation, None);
        assert!(kills >= 200, "{kills} kills");
    }
}

#[test]
fn a_version_that_is_named_before_its_files_is_caught() {
    let (_, violation) = Run::new().sweep(Lack::Nothing, true);
    let violation = violation.expect("it is caught");
    assert!(violation.contains("manifest.json: there is no such file"), "{violation}");
}

#[test]
fn exports_to_files_survive_kills() {
    let run = Run::new();
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path().join("s");
    let root = tempfile::tempdir().unwrap();
    let store = on_disk(root.path());
    run.export(&target(&store), 7, &spool, None, &mut History::default()).unwrap();
    let requests = store.requests();
    let mut kills = 0;
    for point in (0..2 * requests).step_by(2 * usize::try_from(requests).unwrap() / 40 + 1) {
        let root = tempfile::tempdir().unwrap();
        let store = on_disk(root.path());
        let mut history = History::default();
        let killed = store.killed(Some(kill(point)));
        let _ = run.export(&target(&killed), 7, &spool, None, &mut history);
        let checked = run.check(&target(&store), &store, &spool, &history);
        assert_eq!(checked, Ok(()), "kill {point} of {requests}");
        kills += 1;
    }
    assert!(kills >= 20, "{kills} kills");
}
