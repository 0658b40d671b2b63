//! Exports for serving: each version beside the checkpoint that it is of, and exporters that are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use libra_objects::Objects;
use libra_storage::checkpoint::{Checkpoints, Description, PartSettings, TableInfo, export};
use libra_storage::disk::{Disk, SimulatedDisk};
use libra_storage::serving::{
    BaseRule, Current, Exporter, ExporterId, Format, ServingError, Settings, Target, Version, VersionManifest,
};
use libra_storage::wal::RecordNumber;
use safetensors::SafeTensors;

use super::{Faulty, Lack, in_memory, names};

mod kills;

/// Rows of all tables: the bits of their values.
type Tables = BTreeMap<String, BTreeMap<u64, Vec<u32>>>;

const SHARDS: u32 = 2;
const ROOT: &str = "models/run";

/// Pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A job with two tables and a layer, whose rows come and go.
struct Job {
    draw: Draw,
    shards: Vec<Checkpoints<SimulatedDisk>>,
    rows: Tables,
    number: u64,
    /// Rows of the table of users.
    users: u64,
}

impl Job {
    fn new(seed: u64, users: u64) -> Self {
        let shards = (0..SHARDS).map(|shard| Checkpoints::new(SimulatedDisk::new(seed + u64::from(shard))));
        let rows = ["user", "item", "layer"].map(|name| (name.to_owned(), BTreeMap::new())).into();
        Self { draw: Draw(seed), shards: shards.collect(), rows, number: 0, users }
    }

    fn tables(&self) -> Vec<TableInfo> {
        let rule = serde_json::json!({ "optimizer": "adagrad" });
        let table = |name: &str, keys, width| TableInfo {
            name: name.into(),
            keys,
            width,
            state: 1,
            rule: rule.clone(),
        };
        let layer = 1 << 40;
        vec![
            table("user", 0..self.users, 5),
            table("item", self.users..self.users + 50, 2),
            table("layer", layer..layer + 1, 70),
        ]
    }

    /// Trains, admits and evicts rows, and writes a checkpoint: full, or what has changed since the one before. Returns its number.
    fn next(&mut self) -> u64 {
        self.number += 1;
        let tables = self.tables();
        let is_full = self.number == 1 || self.draw.below(4) == 0;
        let before = self.rows.clone();
        // Written, and as they were: an increment may have such rows.
        let mut written: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (position, info) in tables.iter().enumerate() {
            let rows = self.rows.get_mut(&info.name).unwrap();
            let keys = info.keys.end - info.keys.start;
            for _ in 0..keys / 8 + 1 {
                let key = info.keys.start + self.draw.below(keys);
                let row = (0..info.width).map(|_| (self.draw.below(2000) as f32 / 7.0 - 100.0).to_bits());
                let row: Vec<u32> = row.collect();
                match self.draw.below(8) {
                    0 if info.name != "layer" => drop(rows.remove(&key)),
                    1 => {}
                    _ => drop(rows.insert(key, row)),
                }
                written.entry(position).or_default().push(key);
            }
        }
        // Now and then nothing changes at all.
        if self.draw.below(12) == 0 {
            self.rows = before.clone();
        }
        for (shard, checkpoints) in self.shards.iter().enumerate() {
            let description = Description {
                number: self.number,
                job: 1,
                seed: 9,
                shards: SHARDS,
                shard: u32::try_from(shard).unwrap(),
                covers: RecordNumber(self.number),
                steps: [].into(),
                position: None,
                tables: tables.clone(),
            };
            let settings = PartSettings { rows_max: 20, ..PartSettings::default() };
            let base = (!is_full).then(|| self.number - 1);
            let mut writer = checkpoints.begin(description, base, settings).unwrap();
            for (position, info) in tables.iter().enumerate() {
                let is_own = |key: &u64| key % u64::from(SHARDS) == shard as u64;
                let (rows, old) = (&self.rows[&info.name], &before[&info.name]);
                let touched = |key: &u64| {
                    is_full
                        || rows.get(key) != old.get(key)
                        || written.get(&position).is_some_and(|keys| keys.contains(key))
                };
                for (key, row) in rows.iter().filter(|(key, _)| is_own(key) && touched(key)) {
                    let values: Vec<f32> = row.iter().map(|bits| f32::from_bits(*bits)).collect();
                    writer.write_rows(position, &[*key], &values, &[0.5]).unwrap();
                }
                let gone: Vec<u64> =
                    old.keys().filter(|key| is_own(key) && !rows.contains_key(key)).copied().collect();
                if !is_full && !gone.is_empty() {
                    writer.remove_rows(position, &gone).unwrap();
                }
            }
            writer.finish(b"state").unwrap();
        }
        self.number
    }

    fn shards(&self) -> Vec<(String, Checkpoints<SimulatedDisk>)> {
        let names = (0..).map(|shard| format!("shard-{shard}"));
        names.zip(self.shards.iter().cloned()).collect()
    }

    /// The rows of a checkpoint, as `libra checkpoint export` writes them.
    fn exported(&self, number: u64) -> Tables {
        let opened: Vec<_> = self.shards.iter().map(|shard| shard.open(number).unwrap()).collect();
        let disk = SimulatedDisk::new(1);
        let files = export(&opened, &disk, 1 << 20).unwrap();
        let table = |file: &libra_storage::checkpoint::Exported| {
            let mut bytes = vec![0; usize::try_from(file.bytes).unwrap()];
            disk.read(&file.file, 0, &mut bytes).unwrap();
            (file.table.clone(), rows_of(&bytes).0.into_iter().collect())
        };
        files.iter().map(table).collect()
    }
}

/// The rows of a file of safetensors, and the keys of those that are no more.
fn rows_of(bytes: &[u8]) -> (Vec<(u64, Vec<u32>)>, Vec<u64>) {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let keys = |name| {
        let tensor = tensors.tensor(name).unwrap();
        let keys = tensor.data().chunks_exact(8);
        keys.map(|key| u64::from_le_bytes(key.try_into().unwrap())).collect::<Vec<_>>()
    };
    let values = tensors.tensor("values").unwrap();
    let words = values.data().chunks_exact(4);
    let words: Vec<u32> = words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    let rows = words.chunks_exact(values.shape()[1]).map(<[u32]>::to_vec);
    let removed = if tensors.names().contains(&"removed") { keys("removed") } else { Vec::new() };
    (keys("keys").into_iter().zip(rows).collect(), removed)
}

/// Reads the newest version as one who serves it, and compares every file with its checksum. `None` if there is none.
fn read(target: &Target) -> Result<Option<(Current, Tables)>, String> {
    let text = |error: ServingError| error.to_string();
    let Some(current) = target.current().map_err(text)? else { return Ok(None) };
    let mut tables: Tables =
        current.tables.iter().map(|table| (table.name.clone(), BTreeMap::new())).collect();
    for listed in current.chain() {
        let name = format!("{}/manifest.json", listed.directory);
        let bytes = target.read(&name).map_err(text)?;
        if crc32c::crc32c(&bytes) != listed.checksum {
            return Err(format!("{name} has another checksum"));
        }
        let manifest = VersionManifest::read(&bytes, &name).map_err(text)?;
        let files = if listed.version == current.base { manifest.base.unwrap() } else { manifest.delta };
        for file in files {
            let name = format!("{}/{}", listed.directory, file.name);
            let bytes = target.read(&name).map_err(text)?;
            if (crc32c::crc32c(&bytes), bytes.len() as u64) != (file.checksum, file.bytes) {
                return Err(format!("{name} is damaged"));
            }
            let (rows, removed) = rows_of(&bytes);
            let table = tables.get_mut(&current.tables[file.table].name).unwrap();
            for key in removed {
                if table.remove(&key).is_none() {
                    return Err(format!("{name} removes {key}, which is not there"));
                }
            }
            table.extend(rows);
        }
    }
    Ok(Some((current, tables)))
}

fn target(store: &Faulty) -> Target {
    let objects = Objects::over(Arc::new(store.clone()), None).unwrap();
    Target::over(Arc::new(objects), ROOT, "mem://b/models/run")
}

/// An exporter whose process has ended, as one that was killed.
fn dead(id: u64) -> ExporterId {
    ExporterId { process: u32::MAX, ..ExporterId::of_process(id) }
}

fn begin(target: &Target, id: u64, settings: &Settings, spool: &Path) -> Result<Exporter, ServingError> {
    Exporter::begin(target, dead(id), settings.clone(), spool, Arc::default(), &mut |_| {})
}

fn small() -> Settings {
    Settings { part_bytes: 600, ..Settings::default() }
}

/// Bytes of the rows in which two versions differ, and of the keys of those that are no more.
fn difference(before: &Tables, after: &Tables) -> u64 {
    let of_table = |(name, rows): (&String, &BTreeMap<u64, Vec<u32>>)| {
        let old = &before[name];
        let changed = rows.iter().filter(|(key, row)| old.get(key) != Some(*row));
        let bytes: usize = changed.map(|(_, row)| 8 + 4 * row.len()).sum();
        (bytes + 8 * old.keys().filter(|key| !rows.contains_key(key)).count()) as u64
    };
    after.iter().map(of_table).sum()
}

#[test]
fn a_hundred_versions_are_their_checkpoints_to_the_bit() {
    for (seed, rule) in [(3, BaseRule::Size), (4, BaseRule::Every(12))] {
        let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
        let target = target(&store);
        let settings = Settings { base: rule, ..small() };
        let mut job = Job::new(seed, 400);
        let mut exporter = begin(&target, 1, &settings, &spool.path().join("s")).unwrap();
        let (mut before, mut incremental, mut bases, mut known) = (Tables::new(), 0, 0, Vec::new());
        for turn in 1..=100 {
            let number = job.next();
            let version = exporter.export(&job.shards(), number, &mut |_| {}).unwrap();
            let (current, tables) = read(&target).unwrap().unwrap();
            assert_eq!(tables, job.exported(number), "version {number}");
            assert_eq!(tables, job.rows);
            assert_eq!((current.version, version.version), (number, number));
            assert_eq!(version.rows, tables.values().map(|rows| rows.len() as u64).sum::<u64>());
            if turn > 1 {
                // Beside what has changed there is a header for each file.
                let changed = difference(&before, &tables);
                let files = 3 + changed.div_ceil(600);
                assert!(version.delta_bytes <= changed + 400 * files, "{version:?} {changed}");
                assert_eq!(version.delta_bytes == 0, changed == 0, "{version:?}");
            }
            incremental += u32::from(version.is_incremental);
            bases += u32::from(version.base_bytes.is_some());
            known.push(current.versions.len());
            before = tables;
            if turn % 9 == 0 {
                // It is killed, and another one goes on.
                drop(exporter);
                exporter = begin(&target, 100 + turn, &settings, &spool.path().join("s")).unwrap();
                assert_eq!(exporter.version(), Some(number));
            }
        }
        assert!(incremental > 50, "{incremental}");
        assert!((4..60).contains(&bases), "{bases}");
        assert!(known.iter().any(|versions| *versions > 3) && known.iter().all(|versions| *versions < 40));
        exporter.end().unwrap();
        assert!(names(&store).iter().all(|name| !name.ends_with("exporter.json")));
    }
}

#[test]
fn a_delta_is_hardly_longer_than_its_rows() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let target = target(&store);
    let settings = Settings { base: BaseRule::Every(100), ..Settings::default() };
    let mut exporter = begin(&target, 1, &settings, &spool.path().join("s")).unwrap();
    let mut job = Job::new(8, 4000);
    let mut before = Tables::new();
    for turn in 0..6 {
        let number = job.next();
        let version = exporter.export(&job.shards(), number, &mut |_| {}).unwrap();
        let changed = if turn == 0 { 0 } else { difference(&before, &job.rows) };
        if changed > 0 {
            assert!(version.delta_bytes as f64 <= 1.2 * changed as f64, "{version:?} {changed}");
        }
        before.clone_from(&job.rows);
    }
}

#[test]
fn chosen_tables_are_exported_with_all_layers() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let target = target(&store);
    let mut job = Job::new(5, 100);
    let number = job.next();
    let settings = Settings { tables: Some(vec!["item".to_owned()]), ..small() };
    let mut exporter = begin(&target, 1, &settings, &spool.path().join("s")).unwrap();
    exporter.export(&job.shards(), number, &mut |_| {}).unwrap();
    let (_, tables) = read(&target).unwrap().unwrap();
    assert_eq!(tables.keys().collect::<Vec<_>>(), ["item", "layer"]);
    assert_eq!(tables["item"], job.rows["item"]);
    drop(exporter);
    let refused = |settings: Settings, job: &mut Job| {
        let mut exporter = begin(&target, 2, &settings, &spool.path().join("s")).unwrap();
        let number = job.next();
        let error = exporter.export(&job.shards(), number, &mut |_| {}).unwrap_err();
        assert!(error.is_final());
        error.to_string()
    };
    let text = refused(Settings { tables: Some(vec!["itme".to_owned()]), ..small() }, &mut job);
    assert_eq!(text, "the checkpoint has no table \"itme\"; it has user, item, layer");
    let text = refused(small(), &mut job);
    assert!(text.contains("has the tables item (width 2), layer (width 70), and this one has"), "{text}");
    let text = refused(Settings { format: Format::Bf16, ..settings }, &mut job);
    assert!(text.contains("has values in f32, and this one has values in bf16"), "{text}");
}

#[test]
fn versions_only_rise() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let target = target(&store);
    let mut job = Job::new(6, 100);
    let mut exporter = begin(&target, 1, &small(), &spool.path().join("s")).unwrap();
    let first = job.next();
    let second = job.next();
    exporter.export(&job.shards(), second, &mut |_| {}).unwrap();
    for number in [first, second] {
        let error = exporter.export(&job.shards(), number, &mut |_| {}).unwrap_err();
        assert!(matches!(error, ServingError::NotNewer { version: 2, .. }), "{error}");
    }
    let error = exporter.export(&job.shards(), 7, &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "shard-0: there is no checkpoint 7");
    assert!(!error.is_final());
    // What failed has changed nothing.
    let third = job.next();
    exporter.export(&job.shards(), third, &mut |_| {}).unwrap();
    assert_eq!(read(&target).unwrap().unwrap().1, job.rows);
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let target = target(&store);
    let mut job = Job::new(7, 100);
    let mut exporter = begin(&target, 1, &small(), &spool.path().join("s")).unwrap();
    let first = job.next();
    exporter.export(&job.shards(), first, &mut |_| {}).unwrap();
    let rows = job.rows.clone();
    let second = job.next();
    // The last file that is read, so that all others are in the spool.
    let disk = job.shards[1].disk();
    let directory = format!("checkpoint-{second}");
    let files = disk.list(&directory).unwrap();
    let file = files.iter().rfind(|file| file.name.starts_with("table-")).unwrap();
    let path = format!("{directory}/{}", file.name);
    let length = disk.bytes(&path).unwrap();
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    disk.read(&path, 0, &mut bytes).unwrap();
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let replace = |bytes: &[u8]| {
        disk.truncate(&path, 0).unwrap();
        disk.append(&path, bytes).unwrap();
        disk.sync(&path).unwrap();
    };
    replace(&damaged);
    let error = exporter.export(&job.shards(), second, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains(&file.name), "{error}");
    assert_eq!(read(&target).unwrap().unwrap().1, rows);
    replace(&bytes);
    exporter.export(&job.shards(), second, &mut |_| {}).unwrap();
    assert_eq!(read(&target).unwrap().unwrap().1, job.rows);
}

#[test]
fn a_second_exporter_is_refused_and_told_of_the_first() {
    for lack in [Lack::Nothing, Lack::Condition, Lack::SilentCondition] {
        let (store, spool) = (in_memory().lacking(lack), tempfile::tempdir().unwrap());
        let target = target(&store);
        let own = |id| {
            let place = spool.path().join(format!("{id}"));
            let owner = ExporterId::of_process(id);
            Exporter::begin(&target, owner, small(), &place, Arc::default(), &mut |_| {})
        };
        let first = own(1).unwrap();
        let refused = own(2).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("another exporter, process {} on", std::process::id())),
            "{refused}"
        );
        first.end().unwrap();
        let mut second = own(2).unwrap();
        let mut job = Job::new(6, 100);
        let number = job.next();
        let version = second.export(&job.shards(), number, &mut |_| {}).unwrap();
        assert_eq!(version.is_conditional, lack != Lack::Condition);
    }
}

#[test]
fn an_exporter_that_was_overtaken_changes_nothing() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let target = target(&store);
    let mut job = Job::new(6, 100);
    // It stood still, and was taken for one that has ended.
    let mut first = begin(&target, 1, &small(), &spool.path().join("first")).unwrap();
    let number = job.next();
    let mut second = begin(&target, 2, &small(), &spool.path().join("second")).unwrap();
    second.export(&job.shards(), number, &mut |_| {}).unwrap();
    let next = job.next();
    let lost = first.export(&job.shards(), next, &mut |_| {}).unwrap_err();
    assert!(matches!(lost, ServingError::Lost { .. }) && lost.is_final(), "{lost}");
    assert!(matches!(first.end(), Err(ServingError::Lost { .. })));
    assert_eq!(read(&target).unwrap().unwrap().0.version, number);
    second.export(&job.shards(), next, &mut |_| {}).unwrap();
    assert_eq!(read(&target).unwrap().unwrap().1, job.rows);
}

#[test]
fn damage_of_an_export_is_found_when_it_is_read_back() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let target = target(&store);
    let mut job = Job::new(6, 100);
    let settings = Settings { base: BaseRule::Every(100), ..small() };
    let mut exporter = begin(&target, 1, &settings, &spool.path().join("s")).unwrap();
    for _ in 0..3 {
        let number = job.next();
        exporter.export(&job.shards(), number, &mut |_| {}).unwrap();
    }
    drop(exporter);
    let objects = Objects::over(Arc::new(store.clone()), None).unwrap();
    for name in names(&store).into_iter().filter(|name| !name.ends_with("exporter.json")) {
        // The delta of the first version is in its base.
        let bytes = objects.read(&name).unwrap();
        let mut damaged = bytes.to_vec();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        objects.put(&name, damaged.into()).unwrap();
        let error = begin(&target, 2, &settings, &spool.path().join("s")).unwrap_err();
        let file = name.rsplit_once('/').unwrap().1;
        assert!(error.to_string().contains(file), "{name}: {error}");
        objects.put(&name, bytes).unwrap();
    }
    begin(&target, 2, &settings, &spool.path().join("s")).unwrap();
}

#[test]
fn a_version_has_what_it_says() {
    let (store, spool) = (in_memory(), tempfile::tempdir().unwrap());
    let mut exporter = begin(&target(&store), 1, &small(), &spool.path().join("s")).unwrap();
    let mut job = Job::new(12, 100);
    let number = job.next();
    let first: Version = exporter.export(&job.shards(), number, &mut |_| {}).unwrap();
    assert_eq!((first.previous, first.removed, first.delta_bytes), (None, 0, 0));
    assert_eq!(first.changed, first.rows);
    assert!(first.base_bytes.is_some() && !first.is_incremental && first.is_conditional);
}
