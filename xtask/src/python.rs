//! The Python package: its tests, from outside of the source tree.
//!
//! Packages for the tests are installed once into an environment in a cache, which is named by the versions in `python/constraints.txt`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::process::{self, Running};
use crate::{Outcome, shell};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Leaves out what needs torch, whose installation downloads 3 GB once
    #[arg(long)]
    no_torch: bool,
    /// Version of torch, if not that of python/constraints.txt
    #[arg(long, value_name = "VERSION")]
    torch: Option<String>,
    /// Directory of the environments
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

const CONSTRAINTS: &str = "python/constraints.txt";
/// Programs whose types are checked. The tests run them.
const EXAMPLES: &[&str] = &[
    "examples/python/neumf.py",
    "examples/python/criteo.py",
    "examples/python/dlrm.py",
    "examples/python/dlrm_torch.py",
    "examples/python/score.py",
    "examples/python/two_tower.py",
    "examples/python/word2vec.py",
];
/// Disk space of an environment with torch, and of pip beside it.
const TORCH_GIBIBYTES: u64 = 12;
/// Of the tests of jobs, once the others have ended.
const JOBS_LIMIT: Duration = Duration::from_secs(600);
const FIND_PYTHON: &str = "import sys, venv, ensurepip; assert sys.version_info >= (3, 10)";

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if let Some(missing) = missing() {
        return Ok(Outcome::Skipped(missing));
    }
    let (cache, without_torch) = (cache(options)?, why_no_torch(options)?);
    let python = environment(&cache, options, without_torch.is_none())?;
    let site = site(&python)?;
    // Jobs of the tests have members of their own.
    let binary = shell::binary("libra", None)?;
    let command = |arguments: &[&str]| {
        let mut command = shell::program(&python, arguments);
        command.env("PYTHONPATH", &site).env("MYPYPATH", &site).env_remove("PYTHONHOME");
        command.env("LIBRA_BINARY", &binary);
        command
    };
    let in_site = |arguments: &[&str]| shell::run(command(arguments));
    in_site(&["-m", "mypy.stubtest", "libra_ps._native"])?;
    // Tests of trackers whose clients are large are skipped, and named.
    in_site(&["-m", "pytest", "--quiet", "-rs", "python/tests/core"])?;
    in_site(&["-m", "pytest", "--quiet", "python/tests/data"])?;
    if let Some(reason) = without_torch {
        return Ok(Outcome::Skipped(format!("the tests with torch and of jobs, and the examples: {reason}")));
    }
    // Processes of jobs wait for each other, and for deadlines: the rest goes on beside them.
    process::catch_interrupts()?;
    let log = shell::target_directory()?.join("python/jobs.log");
    let mut jobs =
        Running::start("tests of jobs", command(&["-m", "pytest", "--quiet", "python/tests/jobs"]), log)?;
    in_site(&["-m", "mypy", "--package", "libra_ps"])?;
    in_site(&[&["-m", "mypy", "--strict"][..], EXAMPLES].concat())?;
    in_site(&["examples/python/neumf.py", "--epochs=2"])?;
    in_site(&["examples/python/neumf_torch.py", "--epochs=2"])?;
    in_site(&["-m", "pytest", "--quiet", "python/tests/torch"])?;
    process::wait(slice::from_mut(&mut jobs), Instant::now() + JOBS_LIMIT)?;
    println!("{}", jobs.tail());
    Ok(Outcome::Passed)
}

/// Makes the environment of the tests, as [`run`] does when it is not there.
pub(crate) fn prepare() -> Result<Outcome> {
    if let Some(missing) = missing() {
        return Ok(Outcome::Skipped(missing));
    }
    let options = Options::default();
    let without_torch = why_no_torch(&options)?;
    environment(&cache(&options)?, &options, without_torch.is_none())?;
    Ok(Outcome::Passed)
}

/// Lets another environment have torch from that of the tests, if there is one, as it is large. Packages of its own come first.
pub(crate) fn lend_torch(python: &Path) -> Result<bool> {
    let options = Options::default();
    let lender = folder(&cache(&options)?, &options, true)?;
    let packages = |python: &Path| {
        let print = "import sysconfig; print(sysconfig.get_path('purelib'), end='')";
        shell::output(shell::program(python, &["-c", print]))
    };
    let link = Path::new(&packages(python)?).join("libra-torch.pth");
    if !is_installed(&lender) {
        drop(fs::remove_file(&link));
        return Ok(false);
    }
    fs::write(&link, packages(&lender.join("bin/python"))?)
        .with_context(|| format!("cannot write {}", link.display()))?;
    Ok(true)
}

/// Returns the interpreter with torch and the directory with the package, if `cargo xtask python` has made both.
pub(crate) fn with_torch() -> Result<Option<(PathBuf, PathBuf)>> {
    let options = Options::default();
    let (folder, site) = (folder(&cache(&options)?, &options, true)?, site_directory()?);
    let is_there = is_installed(&folder) && site.join("libra_ps").is_dir();
    Ok(is_there.then(|| (folder.join("bin/python"), site)))
}

fn site_directory() -> Result<PathBuf> {
    Ok(shell::target_directory()?.join("python/site"))
}

/// Builds the package, and returns the directory that has it then: what a wheel installs.
pub(crate) fn site(python: &Path) -> Result<PathBuf> {
    let (site, programs) = (site_directory()?, shell::programs(&[])?);
    shell::remove_directory(&site)?;
    fs::create_dir_all(&site).with_context(|| format!("cannot make {}", site.display()))?;
    shell::run(shell::program("cp", &["-r", "python/libra_ps", &site.to_string_lossy()]))?;
    let (library, module) = (programs.join("lib_native.so"), site.join("libra_ps/_native.abi3.so"));
    fs::copy(&library, &module).with_context(|| format!("cannot copy {}", library.display()))?;
    // As pip does.
    shell::run(shell::program(python, &["-m", "compileall", "-q", &site.to_string_lossy()]))?;
    Ok(site)
}

/// Returns the interpreter with the tools that make wheels.
pub(crate) fn with_tools() -> Result<PathBuf> {
    let options = Options::default();
    environment(&cache(&options)?, &options, why_no_torch(&options)?.is_none())
}

/// Returns the reason if there is no Python for environments.
pub(crate) fn missing() -> Option<String> {
    let quiet = Command::new("python3").args(["-c", FIND_PYTHON]).output();
    let is_there = quiet.is_ok_and(|output| output.status.success());
    (!is_there).then(|| "there is no python3 of 3.10 or later with venv".to_owned())
}

fn cache(options: &Options) -> Result<PathBuf> {
    if let Some(cache) = &options.cache {
        return Ok(cache.clone());
    }
    match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => Ok(PathBuf::from(cache).join("libra-python")),
        None => {
            let home = std::env::var_os("HOME").context("HOME is not set: name a directory with --cache")?;
            Ok(PathBuf::from(home).join(".cache/libra-python"))
        }
    }
}

/// The versions to install. Without torch its line is left out.
fn pins(text: &str, options: &Options, with_torch: bool) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pin = |line: &str| match (&options.torch, line.starts_with("torch==")) {
        (Some(version), true) => format!("torch=={version}"),
        _ => line.to_owned(),
    };
    lines.filter(|line| with_torch || !line.starts_with("torch==")).map(pin).collect()
}

fn why_no_torch(options: &Options) -> Result<Option<String>> {
    if options.no_torch {
        return Ok(Some("--no-torch".to_owned()));
    }
    let cache = cache(options)?;
    if is_installed(&folder(&cache, options, true)?) {
        return Ok(None);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let free = shell::output(shell::program("df", &["--output=avail", "-BG", &cache.to_string_lossy()]))?;
    let digits: String =
        free.lines().nth(1).unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    let free: u64 = digits.parse().context("df did not print a number")?;
    let reason = format!("torch needs {TORCH_GIBIBYTES} GB in {}, there are {free}", cache.display());
    Ok((free < TORCH_GIBIBYTES).then_some(reason))
}

/// The environment of these versions.
fn folder(cache: &Path, options: &Options, with_torch: bool) -> Result<PathBuf> {
    let path = shell::root().join(CONSTRAINTS);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {CONSTRAINTS}"))?;
    Ok(cache.join(pins(&text, options, with_torch).join("-").replace("==", "-")))
}

fn is_installed(folder: &Path) -> bool {
    folder.join("complete").exists()
}

/// Returns the interpreter of an environment, which is made if it is not there.
fn environment(cache: &Path, options: &Options, with_torch: bool) -> Result<PathBuf> {
    let text = fs::read_to_string(shell::root().join(CONSTRAINTS))?;
    with_packages(&folder(cache, options, with_torch)?, &pins(&text, options, with_torch))
}

/// Returns the interpreter of an environment with the versions in a file.
pub(crate) fn environment_of(constraints: &str) -> Result<PathBuf> {
    let options = Options::default();
    let text = fs::read_to_string(shell::root().join(constraints))
        .with_context(|| format!("cannot read {constraints}"))?;
    let pins = pins(&text, &options, true);
    with_packages(&cache(&options)?.join(pins.join("-").replace("==", "-")), &pins)
}

/// Returns the interpreter of an environment, after installing these versions into it if it is not complete.
fn with_packages(folder: &Path, pins: &[String]) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    if is_installed(folder) {
        return Ok(python);
    }
    println!("installing into {}", folder.display());
    shell::run(shell::program("python3", &["-m", "venv", "--clear", &folder.to_string_lossy()]))?;
    let mut arguments = vec!["-m", "pip", "install", "--quiet"];
    arguments.extend(pins.iter().map(String::as_str));
    shell::run(shell::program(&python, &arguments))?;
    fs::write(folder.join("complete"), pins.join("\n"))?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_file_and_of_the_options() {
        let text = "# a comment\nnumpy==2.4.6\ntorch==2.15.0\n";
        let options = Options::default();
        assert_eq!(pins(text, &options, true), ["numpy==2.4.6", "torch==2.15.0"]);
        assert_eq!(pins(text, &options, false), ["numpy==2.4.6"]);
        let options = Options { torch: Some("2.4.1".to_owned()), ..options };
        assert_eq!(pins(text, &options, true), ["numpy==2.4.6", "torch==2.4.1"]);
    }
}
