//! `cargo xtask wheel`: the Python package as it ships, for every machine that torch's wheels are for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::{Outcome, python, shell};

/// Machines that the wheel is for: those that torch's is for.
const TAG: &str = "manylinux_2_28";
const BYTES_MAX: u64 = 8 << 20;
/// Libraries that a wheel must find on no machine.
const FOREIGN: &[&str] = &["libtorch", "libc10", "libpython", "libssl", "libcrypto"];

pub(crate) fn run() -> Result<Outcome> {
    if let Some(missing) = python::missing() {
        return Ok(Outcome::Skipped(missing));
    }
    let python = python::with_tools()?;
    let folder = shell::target_directory()?.join("python");
    let wheel = build(&python, &folder.join("wheels"))?;
    let installed = folder.join("installed");
    shell::remove_directory(&installed)?;
    let (path, target) = (wheel.to_string_lossy(), format!("--target={}", installed.display()));
    shell::run(shell::program(&python, &["-m", "pip", "install", "--quiet", "--no-deps", &target, &path]))?;
    check(&wheel, &installed.join("libra_ps/_native.abi3.so"))?;
    shell::run(shell::program(&python, &["-m", "abi3audit", "--strict", &path]))?;
    let mut import = shell::program(&python, &["-c", "import libra_ps; print(libra_ps.__version__)"]);
    import.env("PYTHONPATH", &installed);
    let version = shell::output(import)?;
    ensure!(wheel_name(&wheel).contains(version.trim()), "{path} is of version {}", version.trim());
    println!("{}", wheel.display());
    Ok(Outcome::Passed)
}

/// Returns the wheel.
fn build(python: &Path, wheels: &Path) -> Result<PathBuf> {
    shell::remove_directory(wheels)?;
    let out = wheels.to_string_lossy();
    // The linker of zig has the glibc of the tag.
    let portable = ["--zig", "--compatibility", TAG];
    let build = [&["-m", "maturin", "build", "--quiet", "--release", "--out", &out][..], &portable].concat();
    let mut command = shell::program(python, &build);
    // Maturin looks for zig in the packages of the first python3.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = python.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).context("PATH cannot be extended")?);
    shell::run(command)?;
    let found = fs::read_dir(wheels)?.next().context("maturin has built no wheel")??;
    Ok(found.path())
}

/// Checks the size, the tag and the libraries of a wheel.
fn check(wheel: &Path, library: &Path) -> Result<()> {
    let name = wheel_name(wheel);
    ensure!(name.contains("-cp310-abi3-"), "{name} is not for any Python from 3.10 on");
    ensure!(name.contains(TAG), "{name} is not for {TAG}");
    let bytes = fs::metadata(wheel)?.len();
    ensure!(bytes <= BYTES_MAX, "{name} has {bytes} bytes, at most {BYTES_MAX}");
    let linked = shell::output(shell::program("readelf", &["--dynamic", &library.to_string_lossy()]))?;
    let needed: Vec<&str> = linked.lines().filter(|line| line.contains("(NEEDED)")).collect();
    if let Some(line) = needed.iter().find(|line| FOREIGN.iter().any(|foreign| line.contains(foreign))) {
        bail!("the wheel needs a library of something else: {}", line.trim());
    }
    println!("{name}: {:.1} MB, {} libraries of the system", bytes as f64 / 1e6, needed.len());
    Ok(())
}

fn wheel_name(wheel: &Path) -> String {
    wheel.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
