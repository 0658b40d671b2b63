//! The program `libra` for tests of other packages, to which Cargo does not give it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// When something in a directory of sources was last written.
fn last_written(directory: &Path) -> SystemTime {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let written = entries.map(|entry| {
        if entry.file_type().unwrap().is_dir() {
            last_written(&entry.path())
        } else {
            entry.metadata().unwrap().modified().unwrap()
        }
    });
    written.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The program `libra` of this workspace, as it is now. Tests of the workspace have it built; those of one package build it, without the
/// features of dependencies that tests of others ask for, which takes minutes.
pub(crate) fn libra() -> &'static Path {
    static LIBRA: OnceLock<PathBuf> = OnceLock::new();
    LIBRA.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let profile = exe.ancestors().nth(2).unwrap();
        let libra = profile.join("libra");
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("crates");
        let folders = [crates.join("backends"), crates];
        let folders = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let sources = folders.map(|of_crate| of_crate.unwrap().path().join("src"));
        let written = sources.filter(|sources| sources.is_dir()).map(|sources| last_written(&sources)).max();
        if fs::metadata(&libra).and_then(|libra| libra.modified()).ok() >= written {
            return libra;
        }
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--package", "libra-cli", "--bin", "libra", "--target-dir"]);
        build.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "there is no `libra` to test with");
        libra
    })
}
