//! The real disk and the simulated one keep the same contract.

use libra_storage::disk::{Disk, Operation, RealDisk, SimulatedDisk};
use libra_storage::wal::{Log, RecordNumber, Settings};

fn read(disk: &impl Disk, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(disk.bytes(name).unwrap()).unwrap()];
    assert_eq!(disk.read(name, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn names(disk: &impl Disk, directory: &str) -> Vec<(String, bool)> {
    let entries = disk.list(directory).unwrap().into_iter().filter(|entry| entry.name != "lock");
    entries.map(|entry| (entry.name, entry.is_directory)).collect()
}

fn keeps_the_contract(disk: &impl Disk) {
    disk.create("a").unwrap();
    let error = disk.create("a").unwrap_err();
    assert_eq!((error.operation, error.is_missing(), error.is_full()), (Operation::Create, false, false));
    disk.append("a", b"hello ").unwrap();
    disk.append("a", b"world").unwrap();
    assert_eq!(read(disk, "a"), b"hello world");
    disk.truncate("a", 5).unwrap();
    disk.append("a", b"!").unwrap();
    disk.sync("a").unwrap();
    assert_eq!(read(disk, "a"), b"hello!");
    let mut end = [0; 10];
    assert_eq!(disk.read("a", 4, &mut end).unwrap(), 2);
    assert_eq!(disk.read("a", 40, &mut end).unwrap(), 0);

    disk.create_directory("d").unwrap();
    disk.create_directory("d").unwrap_err();
    disk.create("d/x").unwrap();
    disk.append("d/x", b"1").unwrap();
    disk.rename("d", "e").unwrap();
    disk.append("e/x", b"2").unwrap();
    disk.sync("e/x").unwrap();
    disk.sync_directory("e").unwrap();
    disk.sync_directory("").unwrap();
    assert_eq!(read(disk, "e/x"), b"12");
    assert_eq!(names(disk, ""), [("a".to_owned(), false), ("e".to_owned(), true)]);
    assert_eq!(names(disk, "e"), [("x".to_owned(), false)]);
    disk.remove("e").unwrap_err();

    // A file that replaces another one is not mixed up with it.
    disk.create("b").unwrap();
    disk.append("b", b"new").unwrap();
    disk.rename("b", "a").unwrap();
    disk.append("a", b"er").unwrap();
    disk.close("a");
    disk.append("a", b".").unwrap();
    assert_eq!(read(disk, "a"), b"newer.");

    for error in [
        disk.append("no", b"").unwrap_err(),
        disk.sync("no").unwrap_err(),
        disk.truncate("no", 0).unwrap_err(),
        disk.bytes("no").unwrap_err(),
        disk.read("no", 0, &mut end).unwrap_err(),
        disk.rename("no", "nowhere").unwrap_err(),
        disk.remove("no").unwrap_err(),
        disk.list("no").unwrap_err(),
        disk.sync_directory("no").unwrap_err(),
        disk.create("no/x").unwrap_err(),
    ] {
        assert!(error.is_missing() && error.to_string().contains("no"), "{error}");
    }
    disk.remove("e/x").unwrap();
    disk.remove("e").unwrap();
    disk.remove("a").unwrap();
    assert_eq!(names(disk, ""), []);
}

/// Appends to a stream, in pieces, and reads it after each sync.
fn streams(disk: &impl Disk) {
    const MIB: usize = 1 << 20;
    let pieces = [0, 1, 4095, 1, 5000, MIB - 1, 2 * MIB + 17, MIB, 3, 0];
    disk.create_stream("s").unwrap();
    disk.create_stream("s").unwrap_err();
    let mut all: Vec<u8> = Vec::new();
    for (number, length) in pieces.into_iter().enumerate() {
        let piece: Vec<u8> = (0..length).map(|at| (at * 31 + number).to_le_bytes()[0]).collect();
        disk.append("s", &piece).unwrap();
        all.extend(piece);
        if number % 3 != 1 {
            disk.sync("s").unwrap();
            assert!(read(disk, "s") == all, "after piece {number}");
        }
    }
    disk.sync("s").unwrap();
    disk.close("s");
    assert!(read(disk, "s") == all);
    // From here on it is a file as any other.
    disk.append("s", b"end").unwrap();
    assert!(read(disk, "s").ends_with(b"end"));
    disk.remove("s").unwrap();
}

#[test]
fn both_have_streams() {
    streams(&SimulatedDisk::new(1));
    let directory = tempfile::tempdir().unwrap();
    streams(&RealDisk::open(directory.path()).unwrap());
    // In memory, where there are no direct writes, or they are of another kind.
    if let Ok(directory) = tempfile::tempdir_in("/dev/shm") {
        streams(&RealDisk::open(directory.path()).unwrap());
    }
}

#[test]
fn both_keep_the_contract() {
    keeps_the_contract(&SimulatedDisk::new(1));
    let directory = tempfile::tempdir().unwrap();
    keeps_the_contract(&RealDisk::open(directory.path().join("new")).unwrap());
}

#[test]
fn one_process_writes_and_others_may_read() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path()).unwrap();
    disk.create("a").unwrap();
    let error = RealDisk::open(directory.path()).unwrap_err();
    assert_eq!(error.operation, Operation::Lock);
    assert!(error.to_string().contains("another process"), "{error}");
    let reader = RealDisk::read_only(directory.path()).unwrap();
    assert_eq!(reader.bytes("a").unwrap(), 0);
    for error in [reader.create("b"), reader.append("a", b"x"), reader.remove("a"), reader.sync("a")] {
        error.unwrap_err();
    }
    drop(disk);
    RealDisk::open(directory.path()).unwrap();
    RealDisk::read_only(directory.path().join("no")).unwrap_err();
}

#[test]
fn no_name_leaves_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path().join("inside")).unwrap();
    for name in ["../a", "/a", "d/../../a", "."] {
        assert_eq!(disk.create(name).unwrap_err().cause.kind(), std::io::ErrorKind::InvalidInput, "{name}");
    }
}

#[test]
fn a_log_is_the_same_on_both() {
    let directory = tempfile::tempdir().unwrap();
    let (real, simulated) = (RealDisk::open(directory.path()).unwrap(), SimulatedDisk::new(1));
    let settings = Settings { segment_bytes: 100, ..Settings::new(1, 2) };
    for life in 0..3u8 {
        let open = |disk: std::sync::Arc<dyn Disk>| {
            Log::open(disk, settings.clone(), RecordNumber::NONE, |_, _| Ok(())).unwrap()
        };
        let (mut one, recovery) = open(std::sync::Arc::new(real.clone()));
        let (mut other, same) = open(std::sync::Arc::new(simulated.clone()));
        assert_eq!(recovery, same);
        for record in 0..5 {
            for log in [&mut one, &mut other] {
                log.append(&[life; 33]).unwrap();
                if record % 2 == 0 {
                    log.sync().unwrap();
                }
            }
        }
        if life == 1 {
            one.close().unwrap();
            other.close().unwrap();
        }
    }
    for (name, bytes) in simulated.contents() {
        assert_eq!(read(&real, &name), bytes, "{name}");
    }
    assert_eq!(names(&real, ""), names(&simulated, ""));
}
