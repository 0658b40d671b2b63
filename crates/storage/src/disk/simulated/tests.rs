use super::*;

const LOSE_ALL: fn(usize) -> usize = |_| 0;
const KEEP_NAMES: fn(usize) -> usize = |options| usize::from(options == 2);

fn text(disk: &SimulatedDisk, name: &str) -> String {
    String::from_utf8(disk.contents()[name].clone()).unwrap()
}

#[test]
fn synced_bytes_stay_and_the_rest_may_go() {
    let disk = SimulatedDisk::new(1);
    disk.create("a").unwrap();
    disk.append("a", b"one").unwrap();
    disk.sync("a").unwrap();
    disk.append("a", b"two").unwrap();
    let nameless = disk.fork();
    nameless.crash_with(&mut LOSE_ALL.clone());
    assert!(nameless.contents().is_empty(), "its name was not synced");

    disk.sync_directory("").unwrap();
    disk.crash_with(&mut LOSE_ALL.clone());
    assert_eq!(text(&disk, "a"), "one");
}

#[test]
fn a_rename_without_sync_may_be_undone() {
    let disk = SimulatedDisk::new(1);
    disk.put("d.partial/x", b"1");
    disk.rename("d.partial", "d").unwrap();
    let undone = disk.fork();
    undone.crash_with(&mut LOSE_ALL.clone());
    assert_eq!(text(&undone, "d.partial/x"), "1");
    disk.crash_with(&mut KEEP_NAMES.clone());
    assert_eq!(text(&disk, "d/x"), "1");
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = SimulatedDisk::new(1);
    disk.create("a").unwrap();
    disk.set_capacity(Some(2));
    assert!(disk.append("a", b"abc").unwrap_err().is_full());
    assert_eq!(text(&disk, "a"), "ab");
    disk.truncate("a", 0).unwrap();
    disk.append("a", b"xy").unwrap();
}

#[test]
fn after_a_failed_sync_a_later_one_proves_nothing() {
    let disk = SimulatedDisk::new(1);
    disk.put("a", b"one");
    disk.append("a", b"two").unwrap();
    disk.fail_syncs(0..1);
    disk.sync("a").unwrap_err();
    disk.sync("a").unwrap();
    assert_eq!(text(&disk, "a"), "onetwo");
    disk.crash_with(&mut LOSE_ALL.clone());
    assert_eq!(text(&disk, "a"), "one\0\0\0");
}

#[test]
fn the_same_seed_loses_the_same() {
    let run = |seed| {
        let disk = SimulatedDisk::new(seed);
        disk.put("a", b"");
        disk.append("a", &[7; 2000]).unwrap();
        disk.crash_at(disk.operations());
        disk.sync("a").unwrap_err();
        assert!(disk.has_crashed());
        disk.crash();
        disk.contents()
    };
    assert_eq!(run(5), run(5));
    assert!((0..20).any(|seed| run(seed) != run(5)));
}
