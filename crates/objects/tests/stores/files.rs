//! Objects that are files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use libra_objects::{Environment, Kind, Objects, Upload};

fn files() -> Objects {
    Objects::open(&Kind::Local, &Environment::of_process(), None).unwrap()
}

fn write(root: &Path, names: &[&str]) {
    for name in names {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), "1").unwrap();
    }
}

/// All files and directories, by their paths from the root.
fn tree(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    found
}

fn own(name: &str) -> bool {
    name == "current.json" || name.starts_with("version-")
}

#[test]
fn only_own_leftovers_are_swept() {
    let root = tempfile::tempdir().unwrap();
    let others =
        ["notes#1", "current.json.bak#2", "photos/a.jpg#1", "version-2/manifest.json", "current.json"];
    write(root.path(), &others);
    write(
        root.path(),
        &["current.json#1", "version-1/base#1", "version-1/deep/base#12", "version-2/delta#3"],
    );
    fs::create_dir_all(root.path().join("version-3")).unwrap();
    fs::create_dir_all(root.path().join("empty")).unwrap();
    files().sweep_own(root.path().to_str().unwrap(), own).unwrap();
    let left: BTreeSet<_> = others.iter().map(|name| (*name).to_owned()).collect();
    let directories = ["photos", "version-2", "empty"].map(str::to_owned);
    assert_eq!(tree(root.path()), left.into_iter().chain(directories).collect());
    // There may be no directory yet.
    files().sweep_own(root.path().join("none").to_str().unwrap(), own).unwrap();
}

#[test]
fn all_leftovers_are_swept_where_all_is_own() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        &["job-1.json", "job-2.json#1", "shard-0/checkpoint-1/a#4", "shard-1/checkpoint-1/a#b"],
    );
    files().sweep(root.path().to_str().unwrap()).unwrap();
    let left = ["job-1.json", "shard-1", "shard-1/checkpoint-1", "shard-1/checkpoint-1/a#b"];
    assert_eq!(tree(root.path()), left.map(str::to_owned).into());
}

#[test]
fn a_directory_with_files_is_not_removed() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &["full/a"]);
    fs::create_dir_all(root.path().join("empty")).unwrap();
    for name in ["full", "empty", "none"] {
        files().remove_empty(root.path().join(name).to_str().unwrap());
    }
    assert_eq!(tree(root.path()), ["full", "full/a"].map(str::to_owned).into());
}

#[test]
fn a_file_of_parts_is_there_whole_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let files = files();
    let send = |upload: &mut Upload, text: &'static str| {
        let mut parts = text.as_bytes().chunks(2).map(Bytes::from_static);
        files.send_all(upload, text.len() as u64, 2, |_| Ok(parts.next().unwrap()), |fault| fault).unwrap();
    };
    let mut whole = files.begin_upload(&at("run/whole")).unwrap().unwrap();
    let mut given_up = files.begin_upload(&at("run/given-up")).unwrap().unwrap();
    assert_eq!(whole.id(), None);
    send(&mut whole, "abcd");
    send(&mut given_up, "abcde");
    assert!(!Path::new(&at("run/whole")).exists());
    send(&mut whole, "e");
    files.finish_upload(&mut whole).unwrap();
    files.abort_upload(given_up).unwrap();
    assert_eq!(files.read(&at("run/whole")).unwrap(), "abcde");
    assert_eq!(tree(root.path()), ["run".to_owned(), "run/whole".to_owned()].into());
}
